//! Memory.

use fuseline::error::{Error, Result};
use fuseline::tensor::DType;
use iced_x86::Code;

use super::{Select, def, used};
use crate::vector::{Address, Effect, Ty, Value};
use crate::x64::machine::{Fold, Masking, Mem, Operand, Reg, Role, Size, What};
use crate::x64::table::{Level, rows};

impl Select<'_> {
    fn element(&self, memory: DType) -> Result<Ty> {
        Ty::of(memory).ok_or_else(|| Error::unsupported(format!("{memory:?} in machine code")))
    }

    pub(super) fn load(&mut self, at: &Address, memory: DType, mask: Option<Value>) -> Result<Reg> {
        let ty = self.element(memory)?;
        if memory.bits() != 8 * ty.lane_bytes() {
            return Err(Error::unsupported(format!("loads of {memory:?} in machine code")));
        }
        let mask = mask.map(|m| self.reg(m)).transpose()?;
        let mem = self.address(at)?;
        let (to, size) = self.fresh(ty)?;
        let code = self.of_row(Self::move_row(ty, false), size)?;
        let operands = [def(to, size), Operand::Mem(mem)];
        match (mask, self.level) {
            (Some(_), Level::Avx2) => return Err(Error::unsupported("masked loads in AVX2")),
            (mask, _) => {
                let masking = mask.map(|reg| Masking { reg, zero: true, role: Role::Use });
                self.push_masked(What::Code(code), &operands, Fold::Never, masking);
            }
        }
        Ok(to)
    }

    pub(super) fn load_splat(&mut self, at: &Address, memory: DType) -> Result<Reg> {
        let ty = self.element(memory)?;
        if memory.bits() != 8 * ty.lane_bytes() {
            return Err(Error::unsupported(format!("loads of {memory:?} in machine code")));
        }
        let mem = self.address(at)?;
        let (to, size) = self.fresh(ty)?;
        let row = if ty.lane_bytes() == 8 { rows::SPREAD_64 } else { rows::SPLAT_32 };
        let code = self.of_row(row, size)?;
        self.code(code, &[def(to, size), Operand::Mem(mem)]);
        Ok(to)
    }

    pub(super) fn effect(&mut self, effect: &Effect) -> Result<()> {
        match effect {
            Effect::Store { at, value, memory, mask, streaming } => self.store(at, *value, *memory, *mask, *streaming),
            Effect::StoreLane { at, value, memory } => self.store_lane(at, *value, *memory),
            Effect::Prefetch(at) => {
                let mem = self.address(at)?;
                self.code(Code::Prefetcht0_m8, &[Operand::Mem(mem)]);
                Ok(())
            }
            Effect::Scatter { .. } => Err(Error::unsupported("scatter in machine code")),
        }
    }

    fn store(&mut self, at: &Address, value: Value, memory: DType, mask: Option<Value>, streaming: bool) -> Result<()> {
        let ty = self.program.ty(value);
        if memory.bits() != 8 * ty.lane_bytes() {
            return Err(Error::unsupported(format!("stores of {memory:?} in machine code")));
        }
        let from = self.reg(value)?;
        let mask = mask.map(|m| self.reg(m)).transpose()?;
        let mem: Mem = self.address(at)?;
        let size = self.size(ty)?;
        let row = if streaming && mask.is_none() { rows::STREAM } else { Self::move_row(ty, true) };
        self.function.fence |= streaming;
        let code = self.of_row(row, size)?;
        if mask.is_some() && self.level == Level::Avx2 {
            return Err(Error::unsupported("masked stores in AVX2"));
        }
        let masking = mask.map(|reg| Masking { reg, zero: false, role: Role::Use });
        self.push_masked(What::Code(code), &[Operand::Mem(mem), used(from, size)], Fold::Never, masking);
        Ok(())
    }

    fn store_lane(&mut self, at: &Address, value: Value, memory: DType) -> Result<()> {
        let ty = self.program.ty(value);
        if memory.bits() != 8 * ty.lane_bytes() {
            return Err(Error::unsupported(format!("stores of {memory:?} in machine code")));
        }
        let from = self.reg(value)?;
        let mem = self.address(at)?;
        let code = match (ty.lane_bytes(), self.level) {
            (8, Level::Avx512) => Code::EVEX_Vmovsd_m64_k1_xmm,
            (8, Level::Avx2) => Code::VEX_Vmovsd_m64_xmm,
            (_, Level::Avx512) => Code::EVEX_Vmovss_m32_k1_xmm,
            (_, Level::Avx2) => Code::VEX_Vmovss_m32_xmm,
        };
        self.code(code, &[Operand::Mem(mem), used(from, Size::X)]);
        Ok(())
    }
}
