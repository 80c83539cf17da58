//! Vectors: operations that are instructions, with operands in memory where that saves a load.

use fuseline::error::{Error, Result};
use iced_x86::{Code, OpKind};

use super::range::Range;
use super::{Select, changed, def, imm8, used};
use crate::vector::{Binary, FmaOp, FoldOp, Ty, Unary, Value};
use crate::x64::machine::{Fold, Masking, Operand, Reg, Size, What};
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

    pub(super) fn splat(&mut self, ty: Ty, from: Value) -> Result<Reg> {
        let from = self.reg(from)?;
        if ty == Ty::Mask { self.splat_truth(from) } else { self.spread(ty, from) }
    }

    /// The low bits of an integer in every lane.
    pub(super) fn spread(&mut self, ty: Ty, from: Reg) -> Result<Reg> {
        let (to, size) = self.fresh(ty)?;
        let (wide, part) = (ty.lane_bytes() == 8, if ty.lane_bytes() == 8 { Size::Qword } else { Size::Dword });
        if self.level == Level::Avx512 {
            let row = if wide { rows::SPLAT_INT_64 } else { rows::SPLAT_INT_32 };
            let code = self.of_row(row, size)?;
            self.code(code, &[def(to, size), used(from, part)]);
            return Ok(to);
        }
        let low = self.low_lane(from, part);
        let row = if wide { rows::SPREAD_64 } else { rows::SPREAD_32 };
        self.op(row, size, &[def(to, size), used(low, Size::X)], 1)?;
        Ok(to)
    }

    /// An integer in the lowest lane.
    pub(super) fn low_lane(&mut self, from: Reg, part: Size) -> Reg {
        let low = self.function.reg(Size::X);
        let code = match (part, self.level) {
            (Size::Qword, Level::Avx512) => Code::EVEX_Vmovq_xmm_rm64,
            (Size::Qword, Level::Avx2) => Code::VEX_Vmovq_xmm_rm64,
            (_, Level::Avx512) => Code::EVEX_Vmovd_xmm_rm32,
            (_, Level::Avx2) => Code::VEX_Vmovd_xmm_rm32,
        };
        self.push(What::Code(code), &[def(low, Size::X), used(from, part)], Fold::At(1));
        low
    }

    pub(super) fn lane0(&mut self, value: Value) -> Result<Reg> {
        let ty = self.program.ty(value);
        let from = self.reg(value)?;
        if ty == Ty::Mask {
            let bits = self.mask_bits(from)?;
            let one = Operand::Imm(OpKind::Immediate8to32, 1);
            self.code(Code::And_rm32_imm8, &[changed(bits, Size::Dword), one]);
            return Ok(bits);
        }
        let to = self.lowest(from, if ty == Ty::I64 { Size::Qword } else { Size::Dword });
        if ty == Ty::I32 {
            self.code(Code::Movsxd_r64_rm32, &[def(to, Size::Qword), used(to, Size::Dword)]);
        }
        Ok(to)
    }

    /// The bits of the lowest lane.
    pub(super) fn lowest(&mut self, from: Reg, part: Size) -> Reg {
        let to = self.function.reg(Size::Qword);
        let code = match (part, self.level) {
            (Size::Qword, Level::Avx512) => Code::EVEX_Vmovq_rm64_xmm,
            (Size::Qword, Level::Avx2) => Code::VEX_Vmovq_rm64_xmm,
            (_, Level::Avx512) => Code::EVEX_Vmovd_rm32_xmm,
            (_, Level::Avx2) => Code::VEX_Vmovd_rm32_xmm,
        };
        self.code(code, &[def(to, part), used(from, Size::X)]);
        to
    }

    pub(super) fn unary(&mut self, op: Unary, ty: Ty, a: Value) -> Result<Reg> {
        let Some((row, number)) = table::unary(op, ty) else {
            let a = self.reg(a)?;
            return self.round_to(op, a);
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
            let (a, b) = (self.reg(a)?, self.reg(b)?);
            return self.combine_masks(op, a, b);
        }
        if op == Binary::Xor
            && let Some((part, other)) =
                [(a, b), (b, a)].into_iter().find(|(part, _)| self.part_of_xor(*part).is_some())
            && let Some([x, y]) = self.part_of_xor(part)
        {
            self.pending[part.index()] = None;
            return self.xor_of_three(ty, [x, y, other]);
        }
        let size = self.size(ty)?;
        if let (Some(row), Some(by)) = (table::shift(op, ty), self.facts[b].bits)
            && row.code(self.level, size).is_some()
            && by < 8 * ty.lane_bytes() as u64
        {
            let a = self.reg(a)?;
            return self.shift_by(op, ty, a, by as u8);
        }
        let Some(row) = table::binary(op, ty).filter(|row| row.code(self.level, size).is_some()) else {
            let range = if op == Binary::Scale { self.range(b) } else { Range::ANY };
            let is_constant = self.facts[b].bits.is_some();
            let (a, b) = (self.reg(a)?, self.reg(b)?);
            if op == Binary::MulHigh && is_constant {
                return self.multiply_high(a, b, b);
            }
            return if op == Binary::Scale { self.scale(ty, a, b, range) } else { self.compose(op, ty, a, b) };
        };
        let commutes = match op {
            Binary::Add | Binary::Mul | Binary::And | Binary::Or | Binary::Xor => true,
            Binary::Min | Binary::Max | Binary::MinUnsigned | Binary::MaxUnsigned => !ty.is_float(),
            _ => false,
        };
        let swap = commutes && !self.is_memory(b) && (self.is_memory(a) || self.facts[a].bits.is_some());
        let (a, b) = if swap { (b, a) } else { (a, b) };
        let a = self.reg(a)?;
        let b = self.source(b, row.lane)?;
        let to = self.function.reg(size);
        self.op(row, size, &[def(to, size), used(a, size), b], 2)?;
        Ok(to)
    }

    /// A function of two registers.
    pub(super) fn two(&mut self, op: Binary, ty: Ty, a: Reg, b: Reg) -> Result<Reg> {
        let size = self.size(ty)?;
        match table::binary(op, ty).filter(|row| row.code(self.level, size).is_some()) {
            Some(row) => self.by_row(row, size, a, b),
            None => self.compose(op, ty, a, b),
        }
    }

    /// An instruction that makes a register of two.
    pub(super) fn by_row(&mut self, row: Row, size: Size, a: Reg, b: Reg) -> Result<Reg> {
        let to = self.function.reg(size);
        self.op(row, size, &[def(to, size), used(a, size), used(b, size)], 2)?;
        Ok(to)
    }

    /// A shift of all lanes by one number.
    pub(super) fn shift_by(&mut self, op: Binary, ty: Ty, a: Reg, by: u8) -> Result<Reg> {
        let size = self.function.sizes[a.index()];
        let row = table::shift(op, ty).ok_or_else(|| Error::bug(format!("{op:?} of {ty:?} by a number")))?;
        let code = self.of_row(row, size)?;
        let to = self.function.reg(size);
        // AVX2 shifts registers only
        let fold = if self.level == Level::Avx512 { self.fold_at(row, 1) } else { Fold::Never };
        self.push(What::Code(code), &[def(to, size), used(a, size), imm8(by)], fold);
        Ok(to)
    }

    pub(super) fn fma(&mut self, op: FmaOp, ty: Ty, [a, b, c]: [Value; 3], masking: Option<Masking>) -> Result<Reg> {
        let size = self.size(ty)?;
        let rows = table::fma(op, ty).ok_or_else(|| Error::bug(format!("a multiply-add of {ty:?}")))?;
        let mut codes = [Code::INVALID; 3];
        for (code, row) in codes.iter_mut().zip(rows) {
            *code = self.of_row(row, size)?;
        }
        self.three(What::Fma(codes), size, rows[0].lane, [a, b, c], masking)
    }

    /// AVX-512: bits in one or three of three.
    fn xor_of_three(&mut self, ty: Ty, operands: [Value; 3]) -> Result<Reg> {
        let size = self.size(ty)?;
        let row = rows::THREE;
        let code = self.of_row(row, size)?;
        self.three(What::Xor(code), size, row.lane, operands, None)
    }

    /// An instruction of three operands, of which it overwrites any.
    fn three(
        &mut self,
        what: What,
        size: Size,
        lane: u8,
        [a, b, c]: [Value; 3],
        masking: Option<Masking>,
    ) -> Result<Reg> {
        // one operand may be memory: a load that waits for nothing else
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
        self.push_masked(what, &operands, Fold::Any(lane), masking);
        Ok(to)
    }

    pub(super) fn pick(&mut self, ty: Ty, from: Value, lanes: Value) -> Result<Reg> {
        let (from, lanes) = (self.reg(from)?, self.reg(lanes)?);
        // of four lanes, the numbers are the second operand
        match self.size(ty)? {
            Size::X => self.by_row(rows::PICK_OF_4, Size::X, from, lanes),
            size => self.by_row(rows::PICK, size, lanes, from),
        }
    }

    pub(super) fn fold(&mut self, op: FoldOp, ty: Ty, a: Value) -> Result<Reg> {
        let FoldOp::By(op) = op;
        let size = self.size(ty)?;
        let mut own = self.reg(a)?;
        if ty == Ty::Mask {
            let bits = self.mask_bits(own)?;
            return self.splat_truth(bits);
        }
        let mut distance = 1;
        while distance < self.program.lanes {
            let other = self.exchange(ty, size, own, distance)?;
            own = match op {
                // the machine's own gives ∞ for NaN and ∞, which a fold meets on its way
                Binary::Scale => self.scale(ty, own, other, Range::ANY)?,
                _ => self.two(op, ty, own, other)?,
            };
            distance *= 2;
        }
        Ok(own)
    }

    /// Lanes that are this far apart change places.
    fn exchange(&mut self, ty: Ty, size: Size, from: Reg, distance: u32) -> Result<Reg> {
        let bytes = distance as usize * ty.lane_bytes();
        match bytes {
            4 => self.shuffle(rows::SHUFFLE_32, size, from, 0xb1),
            8 => self.shuffle(rows::SHUFFLE_32, size, from, 0x4e),
            16 if size == Size::Y => self.shuffle(rows::PERMUTE_64, size, from, 0x4e),
            _ => {
                let to = self.function.reg(size);
                let code = self.of_row(rows::SHUFFLE_128, size)?;
                let how = imm8(if bytes == 16 { 0xb1 } else { 0x4e });
                self.code(code, &[def(to, size), used(from, size), used(from, size), how]);
                Ok(to)
            }
        }
    }

    /// Lanes of a register in another order.
    pub(super) fn shuffle(&mut self, row: Row, size: Size, from: Reg, how: u8) -> Result<Reg> {
        let to = self.function.reg(size);
        self.op(row, size, &[def(to, size), used(from, size), imm8(how)], 1)?;
        Ok(to)
    }
}
