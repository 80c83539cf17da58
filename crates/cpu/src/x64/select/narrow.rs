//! Lanes that become elements of fewer bytes.

use fuseline::error::{Error, Result};
use fuseline::tensor::DType;
use iced_x86::Code;

use super::{Select, def, imm8, used};
use crate::vector::{Binary, Ty};
use crate::x64::machine::{Fold, Masking, Operand, Reg, Role, Size, What};
use crate::x64::table::{Level, rows};

impl Select<'_> {
    /// Elements of lanes, narrowed, to memory or a register; in AVX-512 perhaps of some lanes only.
    pub(super) fn narrow_to(&mut self, to: Operand, from: Reg, memory: DType, mask: Option<Reg>) -> Result<()> {
        let masking = mask.map(|reg| Masking { reg, zero: false, role: Role::Use });
        if memory == DType::F16 {
            let size = self.size(Ty::F32)?;
            let code = self.of_row(rows::NARROW_F16, size)?;
            self.push_masked(What::Code(code), &[to, used(from, size), imm8(0)], Fold::Never, masking);
            return Ok(());
        }
        let lanes = self.integers_to_narrow(from, memory)?;
        if self.level == Level::Avx2 {
            return self.pack(to, lanes, memory.bits() / 8);
        }
        let size = self.size(Ty::I32)?;
        let code = self.of_row(if memory.bits() == 8 { rows::NARROW_8 } else { rows::NARROW_16 }, size)?;
        self.push_masked(What::Code(code), &[to, used(lanes, size)], Fold::Never, masking);
        Ok(())
    }

    /// 4-byte lanes whose low bits are the elements.
    fn integers_to_narrow(&mut self, from: Reg, memory: DType) -> Result<Reg> {
        match memory {
            DType::Bool => self.ones(from),
            DType::BF16 => {
                let rounded = self.round_bf16(from)?;
                self.shift_by(Binary::ShrUnsigned, Ty::I32, rounded, 16)
            }
            DType::I8 | DType::U8 | DType::I16 | DType::U16 => Ok(from),
            _ => Err(Error::unsupported(format!("stores of {memory:?} in machine code"))),
        }
    }

    /// The same where only lane 0 matters.
    pub(super) fn bits_to_narrow(&mut self, from: Reg, memory: DType) -> Result<Reg> {
        if memory != DType::F16 {
            return self.integers_to_narrow(from, memory);
        }
        let to = self.function.reg(Size::X);
        let code = self.of_row(rows::NARROW_F16, Size::X)?;
        self.code(code, &[def(to, Size::X), used(from, Size::X), imm8(0)]);
        Ok(to)
    }

    /// AVX2: the low bytes of 4-byte lanes, one behind another.
    fn pack(&mut self, to: Operand, lanes: Reg, bytes: usize) -> Result<()> {
        let size = self.size(Ty::I32)?;
        let order = self.byte_order(bytes)?;
        let packed = self.by_row(rows::SHUFFLE_8, size, lanes, order)?;
        let (code, from) = match (size, bytes) {
            (Size::X, 1) => (Code::VEX_Vmovd_rm32_xmm, packed),
            (Size::X, _) => (Code::VEX_Vmovq_xmmm64_xmm, packed),
            (_, 1) => {
                let (high, both) = (self.function.reg(Size::X), self.function.reg(Size::X));
                self.code(
                    Code::VEX_Vextracti128_xmmm128_ymm_imm8,
                    &[def(high, Size::X), used(packed, Size::Y), imm8(1)],
                );
                let operands = [def(both, Size::X), used(packed, Size::X), used(high, Size::X)];
                self.push(What::Code(Code::VEX_Vpunpckldq_xmm_xmm_xmmm128), &operands, Fold::At(2));
                (Code::VEX_Vmovq_xmmm64_xmm, both)
            }
            _ => {
                let both = self.shuffle(rows::PERMUTE_64, size, packed, 0x08)?;
                (Code::VEX_Vmovups_xmmm128_xmm, both)
            }
        };
        self.code(code, &[to, used(from, Size::X)]);
        Ok(())
    }

    /// Which bytes come first: of every 16, the low ones of each lane.
    fn byte_order(&mut self, bytes: usize) -> Result<Reg> {
        let mut order = [0x80u8; 16];
        for lane in 0..4 {
            for byte in 0..bytes {
                order[lane * bytes + byte] = (4 * lane + byte) as u8;
            }
        }
        let words =
            order.chunks_exact(4).map(|word| u64::from(u32::from_le_bytes([word[0], word[1], word[2], word[3]])));
        let words: Vec<u64> = words.cycle().take(self.program.lanes as usize).collect();
        let made = self.function.insts.len();
        let reg = self.vector_constant(Ty::I32, words.into_iter())?;
        self.preamble.extend(self.function.insts.drain(made..));
        Ok(reg)
    }
}
