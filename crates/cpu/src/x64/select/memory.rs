//! Loads and stores of consecutive elements.

use fuseline::error::{Error, Result};
use fuseline::tensor::DType;
use iced_x86::Code;

use super::{Select, def, used};
use crate::vector::{Address, Binary, Effect, Ty, Value};
use crate::x64::machine::{Fold, Masking, Mem, Operand, Reg, Role, Size, What};
use crate::x64::table::{self, Level, rows};

/// What lanes of these elements are computed in.
pub(super) fn element(memory: DType) -> Result<Ty> {
    Ty::of(memory).ok_or_else(|| Error::unsupported(format!("{memory:?} in machine code")))
}

/// Whether elements are as wide as their lanes.
pub(super) fn is_full(memory: DType) -> bool {
    Ty::of(memory).is_some_and(|ty| memory.bits() == 8 * ty.lane_bytes())
}

impl Select<'_> {
    pub(super) fn load(&mut self, at: &Address, memory: DType, mask: Option<Value>) -> Result<Reg> {
        let mask = mask.map(|m| self.reg(m)).transpose()?;
        let mem = self.address(at)?;
        match (mask, self.level) {
            (Some(mask), Level::Avx2) if is_full(memory) => {
                let ty = element(memory)?;
                let mask = self.mask_for(ty, mask)?;
                let (to, size) = self.fresh(ty)?;
                let row = if ty.lane_bytes() == 8 { rows::MASK_LOAD_64 } else { rows::MASK_LOAD_32 };
                let code = self.of_row(row, size)?;
                self.code(code, &[def(to, size), used(mask, size), Operand::Mem(mem)]);
                Ok(to)
            }
            (Some(mask), Level::Avx2) => {
                let slot = self.lanes_to_stack(&super::lanes::Places::Consecutive(mem), memory, Some(mask))?;
                self.load_from(Mem::slot(slot, 0), memory, None)
            }
            (mask, _) => self.load_from(mem, memory, mask),
        }
    }

    /// Consecutive elements, widened; in AVX-512 perhaps of some lanes only.
    pub(super) fn load_from(&mut self, mem: Mem, memory: DType, mask: Option<Reg>) -> Result<Reg> {
        let ty = element(memory)?;
        let lanes = if ty == Ty::Mask { Ty::I32 } else { ty };
        let row = match table::widen(memory) {
            Some(row) => row,
            None => Self::move_row(ty, false),
        };
        let (to, size) = self.fresh(lanes)?;
        let code = self.of_row(row, size)?;
        let masking = mask.map(|reg| Masking { reg, zero: true, role: Role::Use });
        self.push_masked(What::Code(code), &[def(to, size), Operand::Mem(mem)], Fold::Never, masking);
        match memory {
            DType::BF16 => self.shift_by(Binary::Shl, Ty::I32, to, 16),
            DType::Bool => self.nonzero(to),
            _ => Ok(to),
        }
    }

    pub(super) fn load_splat(&mut self, at: &Address, memory: DType) -> Result<Reg> {
        let ty = element(memory)?;
        let mem = self.address(at)?;
        if is_full(memory) {
            let (to, size) = self.fresh(ty)?;
            let row = if ty.lane_bytes() == 8 { rows::SPREAD_64 } else { rows::SPLAT_32 };
            let code = self.of_row(row, size)?;
            self.code(code, &[def(to, size), Operand::Mem(mem)]);
            return Ok(to);
        }
        let number = self.read_number(mem, memory)?;
        match memory {
            DType::Bool => self.splat_truth(number),
            DType::F16 => {
                let low = self.low_lane(number, Size::Dword);
                let wide = self.function.reg(Size::X);
                let widen = table::widen(memory).ok_or_else(|| Error::bug("f16"))?;
                self.op(widen, Size::X, &[def(wide, Size::X), used(low, Size::X)], 1)?;
                let (to, size) = self.fresh(ty)?;
                self.op(rows::SPREAD_32, size, &[def(to, size), used(wide, Size::X)], 1)?;
                Ok(to)
            }
            DType::BF16 => {
                let shifted = self.shift_number(number, 16, Code::Shl_rm64_imm8);
                self.spread(Ty::I32, shifted)
            }
            _ => self.spread(ty, number),
        }
    }

    pub(super) fn effect(&mut self, effect: &Effect) -> Result<()> {
        match effect {
            Effect::Store { at, value, memory, mask, streaming } => self.store(at, *value, *memory, *mask, *streaming),
            Effect::StoreQuads { at, apart, value, memory, mask } => {
                self.store_quads(at, *apart, *value, *memory, *mask)
            }
            Effect::StoreFactor { at, value, mask } => self.store_factor(at, *value, *mask),
            Effect::StoreLane { at, value, memory } => self.store_lane(at, *value, *memory),
            Effect::Scatter { at, index, value, memory, mask } => self.scatter(at, *index, *value, *memory, *mask),
            Effect::Prefetch(at) => {
                let mem = self.address(at)?;
                self.code(Code::Prefetcht0_m8, &[Operand::Mem(mem)]);
                Ok(())
            }
            Effect::Tile(op) => self.tile(op),
        }
    }

    fn store(&mut self, at: &Address, value: Value, memory: DType, mask: Option<Value>, streaming: bool) -> Result<()> {
        let ty = self.program.ty(value);
        let from = self.reg(value)?;
        let mask = mask.map(|m| self.reg(m)).transpose()?;
        let mem = self.address(at)?;
        match (mask, self.level) {
            (Some(mask), Level::Avx2) if is_full(memory) => {
                let size = self.size(ty)?;
                let mask = self.mask_for(ty, mask)?;
                let row = if ty.lane_bytes() == 8 { rows::MASK_STORE_64 } else { rows::MASK_STORE_32 };
                let code = self.of_row(row, size)?;
                self.code(code, &[Operand::Mem(mem), used(mask, size), used(from, size)]);
                Ok(())
            }
            (Some(mask), Level::Avx2) => {
                let slot = self.function.slot(self.program.lanes as usize * memory.bits() / 8);
                self.store_to(Mem::slot(slot, 0), ty, from, memory, None)?;
                self.lanes_from_stack(slot, &super::lanes::Places::Consecutive(mem), memory, Some(mask))
            }
            (None, _) if streaming => self.stream(mem, ty, from, memory),
            (mask, _) => self.store_to(mem, ty, from, memory, mask),
        }
    }

    /// Consecutive elements, narrowed; in AVX-512 perhaps of some lanes only.
    pub(super) fn store_to(&mut self, mem: Mem, ty: Ty, from: Reg, memory: DType, mask: Option<Reg>) -> Result<()> {
        if is_full(memory) {
            let size = self.size(ty)?;
            let code = self.of_row(Self::move_row(ty, true), size)?;
            let masking = mask.map(|reg| Masking { reg, zero: false, role: Role::Use });
            self.push_masked(What::Code(code), &[Operand::Mem(mem), used(from, size)], Fold::Never, masking);
            return Ok(());
        }
        self.narrow_to(Operand::Mem(mem), from, memory, mask)
    }

    /// Past the caches, where the machine can: 16 bytes at least.
    fn stream(&mut self, mem: Mem, ty: Ty, from: Reg, memory: DType) -> Result<()> {
        let bytes = self.program.lanes as usize * memory.bits() / 8;
        let (from, size) = match Size::vector(bytes) {
            Some(size) if is_full(memory) => (from, size),
            Some(size) if bytes >= 16 => {
                let narrow = self.function.reg(size);
                self.narrow_to(def(narrow, size), from, memory, None)?;
                (narrow, size)
            }
            _ => return self.store_to(mem, ty, from, memory, None),
        };
        self.function.fence = true;
        let code = self.of_row(rows::STREAM, size)?;
        self.code(code, &[Operand::Mem(mem), used(from, size)]);
        Ok(())
    }

    /// Elements of bf16 for tiles: machines that have these round by an instruction, which takes subnormals for 0.
    fn store_factor(&mut self, at: &Address, value: Value, mask: Option<Value>) -> Result<()> {
        let from = self.reg(value)?;
        let mask = mask.map(|m| self.reg(m)).transpose()?;
        let mem = self.address(at)?;
        let size = self.size(Ty::F32)?;
        let (narrow, round, write) = match size {
            Size::Z => {
                let write = Code::EVEX_Vmovdqu16_ymmm256_k1z_ymm;
                (Size::Y, Code::EVEX_Vcvtneps2bf16_ymm_k1z_zmmm512b32, write)
            }
            Size::Y => {
                let write = Code::EVEX_Vmovdqu16_xmmm128_k1z_xmm;
                (Size::X, Code::EVEX_Vcvtneps2bf16_xmm_k1z_ymmm256b32, write)
            }
            _ => return Err(Error::unsupported("factors of tiles in vectors of four lanes")),
        };
        let rounded = self.function.reg(narrow);
        self.code(round, &[def(rounded, narrow), used(from, size)]);
        let masking = mask.map(|reg| Masking { reg, zero: false, role: Role::Use });
        self.push_masked(What::Code(write), &[Operand::Mem(mem), used(rounded, narrow)], Fold::Never, masking);
        Ok(())
    }

    fn store_lane(&mut self, at: &Address, value: Value, memory: DType) -> Result<()> {
        let ty = self.program.ty(value);
        let from = self.reg(value)?;
        let mem = self.address(at)?;
        if is_full(memory) {
            let code = match (ty.lane_bytes(), self.level) {
                (8, Level::Avx512) => Code::EVEX_Vmovsd_m64_k1_xmm,
                (8, Level::Avx2) => Code::VEX_Vmovsd_m64_xmm,
                (_, Level::Avx512) => Code::EVEX_Vmovss_m32_k1_xmm,
                (_, Level::Avx2) => Code::VEX_Vmovss_m32_xmm,
            };
            self.code(code, &[Operand::Mem(mem), used(from, Size::X)]);
            return Ok(());
        }
        let lanes = self.bits_to_narrow(from, memory)?;
        let number = self.lowest(lanes, Size::Dword);
        self.write_number(mem, number, memory.bits() / 8);
        Ok(())
    }

    /// The low bytes of an integer, to memory.
    pub(super) fn write_number(&mut self, mem: Mem, number: Reg, bytes: usize) {
        let (code, size) = match bytes {
            1 => (Code::Mov_rm8_r8, Size::Byte),
            2 => (Code::Mov_rm16_r16, Size::Word),
            4 => (Code::Mov_rm32_r32, Size::Dword),
            _ => (Code::Mov_rm64_r64, Size::Qword),
        };
        self.code(code, &[Operand::Mem(mem), used(number, size)]);
    }
}
