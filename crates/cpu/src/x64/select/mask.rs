//! Masks: registers of their own in AVX-512; vectors of truths, 4 bytes a lane, in AVX2.

use fuseline::error::{Error, Result};
use iced_x86::{Code, OpKind};

use super::{Select, changed, def, imm8, used};
use crate::vector::{Binary, Compare, Op, Ty, Value};
use crate::x64::machine::{Constant, Fold, Masking, Mem, Operand, Reg, Role, Size, What};
use crate::x64::table::{self, Level, Row, rows};

impl Select<'_> {
    /// A mask of the first n lanes.
    pub(super) fn first(&mut self, n: u32) -> Result<Reg> {
        let lanes = self.program.lanes;
        match self.level {
            Level::Avx512 => {
                let bits = (1u64 << n.min(lanes)) - 1;
                let offset = self.function.pool.place(&bits.to_le_bytes());
                self.hold(Ty::Mask, Constant { offset, lane: 0, zero: false })
            }
            Level::Avx2 => self.vector_constant(Ty::Mask, (0..lanes).map(|lane| if lane < n { u64::MAX } else { 0 })),
        }
    }

    /// Whether an integer is not 0, in every lane.
    pub(super) fn splat_truth(&mut self, from: Reg) -> Result<Reg> {
        // 0 − x borrows unless x is 0; x − x − borrow is then −1
        let copy = self.copy_of(from);
        self.code(Code::Neg_rm64, &[changed(copy, Size::Qword)]);
        let again = Operand::Reg(copy, Size::Qword, Role::Again);
        self.code(Code::Sbb_r64_rm64, &[changed(copy, Size::Qword), again]);
        if self.level == Level::Avx2 {
            return self.spread(Ty::Mask, copy);
        }
        let lanes = Operand::Imm(OpKind::Immediate32, (1i64 << self.program.lanes) - 1);
        self.code(Code::And_rm32_imm32, &[changed(copy, Size::Dword), lanes]);
        let to = self.function.reg(Size::K);
        self.code(Code::VEX_Kmovw_kr_r32, &[def(to, Size::K), used(copy, Size::Dword)]);
        Ok(to)
    }

    /// The flags: equal if no lane holds.
    pub(super) fn test_mask(&mut self, mask: Reg) -> Result<()> {
        if self.level == Level::Avx512 {
            self.code(Code::VEX_Kortestw_kr_kr, &[used(mask, Size::K), used(mask, Size::K)]);
            return Ok(());
        }
        let bits = self.mask_bits(mask)?;
        self.code(Code::Test_rm32_r32, &[used(bits, Size::Dword), used(bits, Size::Dword)]);
        Ok(())
    }

    /// A mask as bits of an integer.
    pub(super) fn mask_bits(&mut self, mask: Reg) -> Result<Reg> {
        let to = self.function.reg(Size::Qword);
        let size = self.size(Ty::Mask)?;
        let code = match size {
            Size::K => Code::VEX_Kmovw_r32_kr,
            Size::Y => Code::VEX_Vmovmskps_r32_ymm,
            _ => Code::VEX_Vmovmskps_r32_xmm,
        };
        self.code(code, &[def(to, Size::Dword), used(mask, size)]);
        Ok(to)
    }

    pub(super) fn combine_masks(&mut self, op: Binary, a: Reg, b: Reg) -> Result<Reg> {
        let (to, size) = self.fresh(Ty::Mask)?;
        let operands = [def(to, size), used(a, size), used(b, size)];
        if self.level == Level::Avx2 {
            let row = table::binary(op, Ty::I32).ok_or_else(|| Error::bug(format!("{op:?} of masks")))?;
            self.op(row, size, &operands, 2)?;
            return Ok(to);
        }
        let code = match op {
            Binary::And => Code::VEX_Kandw_kr_kr_kr,
            Binary::Or => Code::VEX_Korw_kr_kr_kr,
            Binary::Xor => Code::VEX_Kxorw_kr_kr_kr,
            Binary::AndNot => Code::VEX_Kandnw_kr_kr_kr,
            _ => return Err(Error::bug(format!("{op:?} of masks"))),
        };
        self.code(code, &operands);
        Ok(to)
    }

    pub(super) fn compare(&mut self, op: Compare, a: Value, b: Value) -> Result<Reg> {
        let ty = self.program.ty(a);
        let size = self.size(ty)?;
        match table::compare(op, ty).filter(|(row, _)| row.code(self.level, size).is_some()) {
            Some((row, predicate)) => {
                let a = self.reg(a)?;
                let b = self.source(b, row.lane)?;
                self.compare_by(row, predicate, ty, a, b)
            }
            None => {
                let (a, b) = (self.reg(a)?, self.reg(b)?);
                let wide = self.compare_integers(op, ty, a, b)?;
                self.mask_of(ty, wide)
            }
        }
    }

    /// A comparison of registers.
    pub(super) fn compare_regs(&mut self, op: Compare, ty: Ty, a: Reg, b: Reg) -> Result<Reg> {
        let size = self.size(ty)?;
        match table::compare(op, ty).filter(|(row, _)| row.code(self.level, size).is_some()) {
            Some((row, predicate)) => self.compare_by(row, predicate, ty, a, used(b, size)),
            None => {
                let wide = self.compare_integers(op, ty, a, b)?;
                self.mask_of(ty, wide)
            }
        }
    }

    fn compare_by(&mut self, row: Row, predicate: u8, ty: Ty, a: Reg, b: Operand) -> Result<Reg> {
        let size = self.size(ty)?;
        let to_size = if self.level == Level::Avx512 { Size::K } else { size };
        let to = self.function.reg(to_size);
        self.op(row, size, &[def(to, to_size), used(a, size), b, imm8(predicate)], 2)?;
        self.mask_of(ty, to)
    }

    /// AVX2: truths in lanes of this type.
    fn compare_integers(&mut self, op: Compare, ty: Ty, a: Reg, b: Reg) -> Result<Reg> {
        let size = self.size(ty)?;
        let (equal, greater) = match ty {
            Ty::I32 => (rows::EQUAL_32, rows::GREATER_32),
            Ty::I64 => (rows::EQUAL_64, rows::GREATER_64),
            _ => return Err(Error::bug(format!("{op:?} of {ty:?}"))),
        };
        let (a, b) = match op {
            // as signed integers, after the lowest has become the lowest
            Compare::LtUnsigned | Compare::LeUnsigned => {
                let sign = self.shared(ty, if ty == Ty::I32 { 1 << 31 } else { 1 << 63 })?;
                (self.two(Binary::Xor, ty, a, sign)?, self.two(Binary::Xor, ty, b, sign)?)
            }
            _ => (a, b),
        };
        let truth = match op {
            Compare::Eq | Compare::Ne => self.by_row(equal, size, a, b)?,
            Compare::Lt | Compare::LtUnsigned => self.by_row(greater, size, b, a)?,
            _ => self.by_row(greater, size, a, b)?,
        };
        match op {
            Compare::Ne | Compare::Le | Compare::LeUnsigned => {
                let all = self.shared(ty, if ty == Ty::I32 { u64::from(u32::MAX) } else { u64::MAX })?;
                self.two(Binary::Xor, ty, truth, all)
            }
            _ => Ok(truth),
        }
    }

    /// AVX2: a mask from truths in lanes of a type.
    fn mask_of(&mut self, ty: Ty, truths: Reg) -> Result<Reg> {
        if self.level == Level::Avx512 || ty.lane_bytes() != 8 { Ok(truths) } else { self.low_halves(truths) }
    }

    /// AVX2: the low halves of four 8-byte lanes.
    pub(super) fn low_halves(&mut self, from: Reg) -> Result<Reg> {
        let (high, to) = (self.function.reg(Size::X), self.function.reg(Size::X));
        self.code(Code::VEX_Vextracti128_xmmm128_ymm_imm8, &[def(high, Size::X), used(from, Size::Y), imm8(1)]);
        let operands = [def(to, Size::X), used(from, Size::X), used(high, Size::X), imm8(0x88)];
        self.push(What::Code(Code::VEX_Vshufps_xmm_xmm_xmmm128_imm8), &operands, Fold::At(2));
        Ok(to)
    }

    /// AVX2: a mask with lanes as wide as those of a type.
    pub(super) fn mask_for(&mut self, ty: Ty, mask: Reg) -> Result<Reg> {
        if ty.lane_bytes() != 8 {
            return Ok(mask);
        }
        let (size, narrow) = (self.size(ty)?, self.size(Ty::Mask)?);
        let to = self.function.reg(size);
        self.op(rows::EXTEND_SIGNED, size, &[def(to, size), used(mask, narrow)], 1)?;
        Ok(to)
    }

    pub(super) fn choose_lanes(&mut self, ty: Ty, mask: Value, a: Value, b: Value) -> Result<Reg> {
        if let Some(Op::Fma(op, x, y, z)) = self.pending[a.index()] {
            self.pending[a.index()] = None;
            let masking = Masking { reg: self.reg(mask)?, zero: true, role: Role::Use };
            return self.fma(*op, ty, [*x, *y, *z], Some(masking));
        }
        let (mask, b) = (self.reg(mask)?, self.reg(b)?);
        let a = match (ty, self.level) {
            (Ty::Mask, _) => used(self.reg(a)?, self.size(ty)?),
            (_, Level::Avx512) => self.source(a, ty.lane_bytes() as u8)?,
            (_, Level::Avx2) => self.source(a, 0)?,
        };
        self.blend(ty, mask, a, b)
    }

    /// By a mask the first, otherwise the second.
    pub(super) fn blend(&mut self, ty: Ty, mask: Reg, a: Operand, b: Reg) -> Result<Reg> {
        let size = self.size(ty)?;
        if size == Size::K {
            let Operand::Reg(a, ..) = a else { return Err(Error::bug("a mask in memory")) };
            let yes = self.combine_masks(Binary::And, mask, a)?;
            let no = self.combine_masks(Binary::AndNot, mask, b)?;
            return self.combine_masks(Binary::Or, yes, no);
        }
        let wide = ty.lane_bytes() == 8;
        let to = self.function.reg(size);
        if self.level == Level::Avx512 {
            let row = if wide { rows::BLEND_64 } else { rows::BLEND_32 };
            let masking = Masking { reg: mask, zero: false, role: Role::Use };
            let (code, fold) = (self.of_row(row, size)?, self.fold_at(row, 2));
            self.push_masked(What::Code(code), &[def(to, size), used(b, size), a], fold, Some(masking));
            return Ok(to);
        }
        let row = if wide { rows::BLEND_BY_64 } else { rows::BLEND_BY_32 };
        let mask = self.mask_for(ty, mask)?;
        self.op(row, size, &[def(to, size), used(b, size), a, used(mask, size)], 2)?;
        Ok(to)
    }

    /// Lanes of a mask as they are, others 0.
    pub(super) fn only(&mut self, ty: Ty, mask: Reg, a: Reg) -> Result<Reg> {
        if self.level == Level::Avx512 {
            let (to, size) = self.fresh(ty)?;
            let code = self.of_row(Self::move_row(ty, false), size)?;
            let masking = Masking { reg: mask, zero: true, role: Role::Use };
            self.push_masked(What::Code(code), &[def(to, size), used(a, size)], Fold::Never, Some(masking));
            return Ok(to);
        }
        let mask = self.mask_for(ty, mask)?;
        self.two(Binary::And, ty, mask, a)
    }

    /// 1 in lanes of a mask, others 0.
    pub(super) fn ones(&mut self, mask: Reg) -> Result<Reg> {
        if self.level == Level::Avx512 {
            let (to, size) = self.fresh(Ty::I32)?;
            let place = self.function.pool.place(&1u32.to_le_bytes());
            let code = self.of_row(rows::SPLAT_32, size)?;
            let masking = Masking { reg: mask, zero: true, role: Role::Use };
            let one = Operand::Mem(Mem::pool(place));
            self.push_masked(What::Code(code), &[def(to, size), one], Fold::Never, Some(masking));
            return Ok(to);
        }
        self.shift_by(Binary::ShrUnsigned, Ty::I32, mask, 31)
    }

    /// Which lanes are not 0.
    pub(super) fn nonzero(&mut self, lanes: Reg) -> Result<Reg> {
        let size = self.size(Ty::I32)?;
        if self.level == Level::Avx512 {
            let to = self.function.reg(Size::K);
            self.op(rows::TEST_32, size, &[def(to, Size::K), used(lanes, size), used(lanes, size)], 2)?;
            return Ok(to);
        }
        let zero = self.shared(Ty::I32, 0)?;
        self.compare_regs(Compare::Ne, Ty::I32, lanes, zero)
    }
}
