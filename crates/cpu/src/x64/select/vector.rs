//! Vectors and masks.

use fuseline::error::{Error, Result};
use iced_x86::{Code, OpKind};

use super::{Select, changed, def, imm8, used};
use crate::vector::{Binary, Compare, FmaOp, FoldOp, Ty, Unary, Value};
use crate::x64::machine::{Constant, Fold, Masking, Operand, Reg, Role, Size, What};
use crate::x64::table::{self, Level, Row, rows};

impl Select<'_> {
    pub(super) fn constant(&mut self, ty: Ty, bits: u64) -> Result<Reg> {
        if ty == Ty::Mask {
            return self.first(if bits != 0 { self.program.lanes } else { 0 });
        }
        let constant = self.uniform(ty, bits)?;
        self.hold(ty, constant)
    }

    pub(super) fn lane_numbers(&mut self, ty: Ty) -> Result<Reg> {
        self.vector_constant(ty, 0..u64::from(self.program.lanes))
    }

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

    pub(super) fn splat(&mut self, ty: Ty, from: Value) -> Result<Reg> {
        let from = self.reg(from)?;
        if ty == Ty::Mask {
            return self.splat_truth(from);
        }
        self.splat_int(ty, from)
    }

    /// An integer in every lane.
    pub(super) fn splat_int(&mut self, ty: Ty, from: Reg) -> Result<Reg> {
        let (to, size) = self.fresh(ty)?;
        let (wide, part) = (ty.lane_bytes() == 8, if ty.lane_bytes() == 8 { Size::Qword } else { Size::Dword });
        if self.level == Level::Avx512 {
            let row = if wide { rows::SPLAT_INT_64 } else { rows::SPLAT_INT_32 };
            let code = self.of_row(row, size)?;
            self.code(code, &[def(to, size), used(from, part)]);
            return Ok(to);
        }
        let low = self.function.reg(Size::X);
        let (code, row) = match wide {
            true => (Code::VEX_Vmovq_xmm_rm64, rows::SPREAD_64),
            false => (Code::VEX_Vmovd_xmm_rm32, rows::SPREAD_32),
        };
        self.push(What::Code(code), &[def(low, Size::X), used(from, part)], Fold::At(1));
        self.op(row, size, &[def(to, size), used(low, Size::X)], 1)?;
        Ok(to)
    }

    fn splat_truth(&mut self, from: Reg) -> Result<Reg> {
        // 0 − x borrows unless x is 0; x − x − borrow is then −1
        let copy = self.copy_of(from);
        self.code(Code::Neg_rm64, &[changed(copy, Size::Qword)]);
        self.code(Code::Sbb_r64_rm64, &[changed(copy, Size::Qword), used(copy, Size::Qword)]);
        match self.level {
            Level::Avx512 => {
                let lanes = Operand::Imm(OpKind::Immediate32, (1i64 << self.program.lanes) - 1);
                self.code(Code::And_rm32_imm32, &[changed(copy, Size::Dword), lanes]);
                let to = self.function.reg(Size::K);
                self.code(Code::VEX_Kmovw_kr_r32, &[def(to, Size::K), used(copy, Size::Dword)]);
                Ok(to)
            }
            Level::Avx2 => {
                let (to, size) = self.fresh(Ty::Mask)?;
                let low = self.function.reg(Size::X);
                self.code(Code::VEX_Vmovd_xmm_rm32, &[def(low, Size::X), used(copy, Size::Dword)]);
                self.op(rows::SPREAD_32, size, &[def(to, size), used(low, Size::X)], 1)?;
                Ok(to)
            }
        }
    }

    pub(super) fn lane0(&mut self, value: Value) -> Result<Reg> {
        let ty = self.program.ty(value);
        let from = self.reg(value)?;
        let to = self.function.reg(Size::Qword);
        match (ty, self.level) {
            (Ty::Mask, Level::Avx512) => {
                self.code(Code::VEX_Kmovw_r32_kr, &[def(to, Size::Dword), used(from, Size::K)]);
            }
            (Ty::I64, Level::Avx512) => {
                self.code(Code::EVEX_Vmovq_rm64_xmm, &[def(to, Size::Qword), used(from, Size::X)]);
            }
            (Ty::I64, Level::Avx2) => {
                self.code(Code::VEX_Vmovq_rm64_xmm, &[def(to, Size::Qword), used(from, Size::X)]);
            }
            (_, Level::Avx512) => self.code(Code::EVEX_Vmovd_rm32_xmm, &[def(to, Size::Dword), used(from, Size::X)]),
            (_, Level::Avx2) => self.code(Code::VEX_Vmovd_rm32_xmm, &[def(to, Size::Dword), used(from, Size::X)]),
        }
        match ty {
            Ty::Mask => {
                let one = Operand::Imm(OpKind::Immediate8to32, 1);
                self.code(Code::And_rm32_imm8, &[changed(to, Size::Dword), one]);
            }
            Ty::I32 => self.code(Code::Movsxd_r64_rm32, &[def(to, Size::Qword), used(to, Size::Dword)]),
            _ => {}
        }
        Ok(to)
    }

    pub(super) fn unary(&mut self, op: Unary, ty: Ty, a: Value) -> Result<Reg> {
        let Some((row, number)) = table::unary(op, ty) else {
            return Err(Error::unsupported(format!("{op:?} of {ty:?} in machine code")));
        };
        let a = self.source(a, row.lane)?;
        let (to, size) = self.fresh(ty)?;
        match number {
            None => self.op(row, size, &[def(to, size), a], 1)?,
            Some(number) => self.op(row, size, &[def(to, size), a, imm8(number)], 1)?,
        }
        Ok(to)
    }

    pub(super) fn binary(&mut self, op: Binary, ty: Ty, a: Value, b: Value) -> Result<Reg> {
        if ty == Ty::Mask {
            return self.binary_masks(op, a, b);
        }
        if let (Some(row), Some(by)) = (table::shift(op, ty), self.facts.constants[b.index()])
            && let Some(reg) = self.shift(row, ty, a, by)?
        {
            return Ok(reg);
        }
        let Some(row) =
            table::binary(op, ty).filter(|row| self.size(ty).is_ok_and(|s| row.code(self.level, s).is_some()))
        else {
            return Err(Error::unsupported(format!("{op:?} of {ty:?} in machine code")));
        };
        let commutes = match op {
            Binary::Add | Binary::Mul | Binary::And | Binary::Or | Binary::Xor => true,
            Binary::Min | Binary::Max | Binary::MinUnsigned | Binary::MaxUnsigned => !ty.is_float(),
            _ => false,
        };
        let swap = commutes && !self.is_memory(b) && (self.is_memory(a) || self.facts.constants[a.index()].is_some());
        let (a, b) = if swap { (b, a) } else { (a, b) };
        let a = self.reg(a)?;
        let b = self.source(b, row.lane)?;
        let (to, size) = self.fresh(ty)?;
        self.op(row, size, &[def(to, size), used(a, size), b], 2)?;
        Ok(to)
    }

    /// A shift by one number for all lanes, unless the number is out of range.
    fn shift(&mut self, row: Row, ty: Ty, a: Value, by: u64) -> Result<Option<Reg>> {
        let size = self.size(ty)?;
        let (Some(code), true) = (row.code(self.level, size), by < 8 * ty.lane_bytes() as u64) else { return Ok(None) };
        let a = self.reg(a)?;
        let to = self.function.reg(size);
        let fold = if self.level == Level::Avx512 { self.fold_at(row, 1) } else { Fold::Never };
        self.push(What::Code(code), &[def(to, size), used(a, size), imm8(by as u8)], fold);
        Ok(Some(to))
    }

    fn binary_masks(&mut self, op: Binary, a: Value, b: Value) -> Result<Reg> {
        let (a, b) = (self.reg(a)?, self.reg(b)?);
        self.combine_masks(op, a, b)
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

    pub(super) fn fma(&mut self, op: FmaOp, ty: Ty, [a, b, c]: [Value; 3]) -> Result<Reg> {
        let size = self.size(ty)?;
        let rows = table::fma(op, ty).ok_or_else(|| Error::bug(format!("a multiply-add of {ty:?}")))?;
        let mut codes = [Code::INVALID; 3];
        for (code, row) in codes.iter_mut().zip(rows) {
            *code = self.of_row(row, size)?;
        }
        let lane = rows[0].lane;
        // one operand may be memory: the first load that waits for nothing else
        let memory = [c, b, a].into_iter().find(|v| self.is_memory(*v));
        let mut operands = [Operand::None; 4];
        for (at, value) in [a, b, c].into_iter().enumerate() {
            operands[at + 1] = match memory {
                Some(m) if m == value => Operand::None,
                _ => used(self.reg(value)?, size),
            };
        }
        if let Some(memory) = memory {
            let operand = self.source(memory, lane)?;
            for place in operands[1..].iter_mut().filter(|place| **place == Operand::None) {
                *place = operand;
            }
        }
        let to = self.function.reg(size);
        operands[0] = def(to, size);
        let lane = if self.level == Level::Avx512 { lane } else { 0 };
        self.push(What::Fma(codes), &operands, Fold::Any(lane));
        Ok(to)
    }

    pub(super) fn compare(&mut self, op: Compare, a: Value, b: Value) -> Result<Reg> {
        let ty = self.program.ty(a);
        let size = self.size(ty)?;
        let (row, predicate) = table::compare(op, ty)
            .filter(|(row, _)| row.code(self.level, size).is_some())
            .ok_or_else(|| Error::unsupported(format!("{op:?} of {ty:?} in machine code")))?;
        let a = self.reg(a)?;
        let b = self.source(b, row.lane)?;
        let (to, mask_size) = self.fresh(Ty::Mask)?;
        self.op(row, size, &[def(to, mask_size), used(a, size), b, imm8(predicate)], 2)?;
        Ok(to)
    }

    pub(super) fn choose_lanes(&mut self, ty: Ty, mask: Value, a: Value, b: Value) -> Result<Reg> {
        if ty == Ty::Mask && self.level == Level::Avx512 {
            let (mask, a, b) = (self.reg(mask)?, self.reg(a)?, self.reg(b)?);
            let yes = self.combine_masks(Binary::And, mask, a)?;
            let no = self.combine_masks(Binary::AndNot, mask, b)?;
            return self.combine_masks(Binary::Or, yes, no);
        }
        let size = self.size(ty)?;
        let (mask, b) = (self.reg(mask)?, self.reg(b)?);
        let wide = ty.lane_bytes() == 8;
        if self.level == Level::Avx512 {
            let row = if wide { rows::BLEND_64 } else { rows::BLEND_32 };
            let a = self.source(a, row.lane)?;
            let to = self.function.reg(size);
            let masking = Masking { reg: mask, zero: false, role: Role::Use };
            let (code, fold) = (self.of_row(row, size)?, self.fold_at(row, 2));
            self.push_masked(What::Code(code), &[def(to, size), used(b, size), a], fold, Some(masking));
            return Ok(to);
        }
        let row = if wide { rows::BLEND_BY_64 } else { rows::BLEND_BY_32 };
        let mask = self.mask_for(ty, mask)?;
        let a = self.source(a, 0)?;
        let to = self.function.reg(size);
        self.op(row, size, &[def(to, size), used(b, size), a, used(mask, size)], 2)?;
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

    pub(super) fn fold(&mut self, op: FoldOp, ty: Ty, a: Value) -> Result<Reg> {
        let FoldOp::By(op) = op;
        let size = self.size(ty)?;
        let row = table::binary(op, ty)
            .filter(|row| row.code(self.level, size).is_some())
            .ok_or_else(|| Error::unsupported(format!("a fold by {op:?} of {ty:?} in machine code")))?;
        let mut own = self.reg(a)?;
        let mut distance = 1;
        while distance < self.program.lanes {
            let other = self.exchange(ty, size, own, distance)?;
            let to = self.function.reg(size);
            self.op(row, size, &[def(to, size), used(own, size), used(other, size)], 2)?;
            own = to;
            distance *= 2;
        }
        Ok(own)
    }

    /// Lanes that are this far apart change places.
    fn exchange(&mut self, ty: Ty, size: Size, from: Reg, distance: u32) -> Result<Reg> {
        let to = self.function.reg(size);
        let bytes = distance as usize * ty.lane_bytes();
        let (row, operands): (Row, &[Operand]) = match (bytes, self.level) {
            (4, _) => (rows::SHUFFLE_32, &[def(to, size), used(from, size), imm8(0xb1)]),
            (8, _) => (rows::SHUFFLE_32, &[def(to, size), used(from, size), imm8(0x4e)]),
            (16, Level::Avx2) => (rows::PERMUTE_64, &[def(to, size), used(from, size), imm8(0x4e)]),
            (16, Level::Avx512) if size == Size::Y => {
                (rows::PERMUTE_64, &[def(to, size), used(from, size), imm8(0x4e)])
            }
            (16, _) => (rows::SHUFFLE_128, &[def(to, size), used(from, size), used(from, size), imm8(0xb1)]),
            _ => (rows::SHUFFLE_128, &[def(to, size), used(from, size), used(from, size), imm8(0x4e)]),
        };
        let code = self.of_row(row, size)?;
        self.code(code, operands);
        Ok(to)
    }
}
