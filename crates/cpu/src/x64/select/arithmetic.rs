//! Functions of vectors that take several instructions.

use fuseline::error::{Error, Result};
use smallvec::SmallVec;

use super::range::Range;
use super::{Select, changed, def, imm8, used};
use crate::vector::{Binary, Compare, Convert, Ty, Unary};
use crate::x64::machine::{Masking, Operand, Reg, Role, Size, What};
use crate::x64::table::{self, Level, rows};

impl Select<'_> {
    /// A function of two vectors that this instruction set has no instruction for.
    pub(super) fn compose(&mut self, op: Binary, ty: Ty, a: Reg, b: Reg) -> Result<Reg> {
        match (op, ty) {
            (Binary::MulHigh, Ty::I32) => {
                let odd = self.shift_by(Binary::ShrUnsigned, Ty::I64, b, 32)?;
                self.multiply_high(a, b, odd)
            }
            (Binary::Mul, Ty::I64) => self.multiply_wide(a, b),
            (Binary::Min | Binary::Max | Binary::MinUnsigned | Binary::MaxUnsigned, Ty::I64) => {
                let compare = match op {
                    Binary::Min | Binary::Max => Compare::Lt,
                    _ => Compare::LtUnsigned,
                };
                let less = self.compare_regs(compare, ty, a, b)?;
                let smaller = matches!(op, Binary::Min | Binary::MinUnsigned);
                let (yes, no) = if smaller { (a, b) } else { (b, a) };
                self.blend(ty, less, used(yes, self.size(ty)?), no)
            }
            (Binary::ShrSigned, Ty::I64) => {
                // of a negative number, shifts bring zeros into its complement
                let size = self.size(ty)?;
                let zero = self.shared(ty, 0)?;
                let sign = self.by_row(rows::GREATER_64, size, zero, a)?;
                let folded = self.two(Binary::Xor, ty, a, sign)?;
                let shifted = self.two(Binary::ShrUnsigned, ty, folded, b)?;
                self.two(Binary::Xor, ty, shifted, sign)
            }
            (Binary::Scale, Ty::F32 | Ty::F64) => self.scale(ty, a, b, Range::ANY),
            _ => Err(Error::bug(format!("{op:?} of {ty:?}"))),
        }
    }

    /// The high halves of unsigned products of 4-byte lanes: those at even places, then those at odd ones, of which `odd` are the second
    /// factors.
    pub(super) fn multiply_high(&mut self, a: Reg, b: Reg, odd: Reg) -> Result<Reg> {
        let size = self.size(Ty::I32)?;
        let even = self.by_row(rows::MUL_LOW, size, a, b)?;
        let even = self.shift_by(Binary::ShrUnsigned, Ty::I64, even, 32)?;
        let a = self.shift_by(Binary::ShrUnsigned, Ty::I64, a, 32)?;
        let odd = self.by_row(rows::MUL_LOW, size, a, odd)?;
        let odd = self.shift_by(Binary::ShrUnsigned, Ty::I64, odd, 32)?;
        let odd = self.shift_by(Binary::Shl, Ty::I64, odd, 32)?;
        self.two(Binary::Or, Ty::I32, even, odd)
    }

    /// The low halves of products of 8-byte lanes, from products of their halves.
    fn multiply_wide(&mut self, a: Reg, b: Reg) -> Result<Reg> {
        let size = self.size(Ty::I64)?;
        let low = self.by_row(rows::MUL_LOW, size, a, b)?;
        let swapped = self.shuffle(rows::SHUFFLE_32, size, b, 0xb1)?;
        let multiply = table::binary(Binary::Mul, Ty::I32).ok_or_else(|| Error::bug("products of I32"))?;
        let add = table::binary(Binary::Add, Ty::I32).ok_or_else(|| Error::bug("sums of I32"))?;
        let cross = self.by_row(multiply, size, a, swapped)?;
        let other = self.shift_by(Binary::ShrUnsigned, Ty::I64, cross, 32)?;
        let cross = self.by_row(add, size, cross, other)?;
        let high = self.shift_by(Binary::Shl, Ty::I64, cross, 32)?;
        self.two(Binary::Add, Ty::I64, low, high)
    }

    /// a · 2^floor(b) by multiplications with powers of two, as many as the range of b asks for. The last takes all that it can, so
    /// that those before it do not round: where they would reach subnormals, the result is 0.
    pub(super) fn scale(&mut self, ty: Ty, a: Reg, b: Reg, range: Range) -> Result<Reg> {
        let (most, lowest, highest) = if ty == Ty::F32 { (300.0, -126, 127) } else { (2200.0, -1022, 1023) };
        let mut exponent = b;
        if !range.whole {
            exponent = self.floor(ty, b)?;
        }
        if range.high > most {
            let most = self.shared_float(ty, most)?;
            exponent = self.two(Binary::Min, ty, exponent, most)?;
        }
        if range.low < -most {
            let least = self.shared_float(ty, -most)?;
            exponent = self.two(Binary::Max, ty, exponent, least)?;
        }
        let mut left = self.convert_reg(Convert::Truncate, ty, Ty::I32, exponent)?;
        let mut low = range.low.clamp(-most, most).floor() as i32;
        let mut high = range.high.clamp(-most, most).ceil() as i32;
        let mut parts: SmallVec<[Reg; 3]> = SmallVec::new();
        while low < lowest || high > highest {
            let mut part = left;
            if high > highest {
                let limit = self.shared_int(highest)?;
                part = self.two(Binary::Min, Ty::I32, part, limit)?;
            }
            if low < lowest {
                let limit = self.shared_int(lowest)?;
                part = self.two(Binary::Max, Ty::I32, part, limit)?;
            }
            left = self.two(Binary::Sub, Ty::I32, left, part)?;
            (low, high) = ((low - lowest).min(0), (high - highest).max(0));
            parts.push(part);
        }
        parts.push(left);
        let mut product = a;
        for part in parts.into_iter().rev() {
            let power = self.power_of_two(ty, part, highest)?;
            product = self.two(Binary::Mul, ty, product, power)?;
        }
        self.scale_special(ty, a, b, product, range)
    }

    fn floor(&mut self, ty: Ty, a: Reg) -> Result<Reg> {
        let (to, size) = self.fresh(ty)?;
        let (row, how) = table::unary(Unary::Floor, ty).ok_or_else(|| Error::bug("floors"))?;
        self.op(row, size, &[def(to, size), used(a, size), imm8(how.unwrap_or_default())], 1)?;
        Ok(to)
    }

    /// What scaling gives where the exponent is NaN or infinite.
    fn scale_special(&mut self, ty: Ty, a: Reg, b: Reg, product: Reg, range: Range) -> Result<Reg> {
        match (range.is_finite(), range.nan) {
            (true, false) => Ok(product),
            (true, true) => {
                let nan = self.compare_regs(Compare::Unordered, ty, b, b)?;
                self.blend(ty, nan, used(b, self.size(ty)?), product)
            }
            (false, _) => {
                // where b is not finite, so is not b − b: there the power is ∞, 0 or NaN itself
                let difference = self.two(Binary::Sub, ty, b, b)?;
                let special = self.compare_regs(Compare::Unordered, ty, difference, difference)?;
                let zero = self.shared(ty, 0)?;
                let power = self.two(Binary::Max, ty, zero, b)?;
                let scaled = self.two(Binary::Mul, ty, a, power)?;
                self.blend(ty, special, used(scaled, self.size(ty)?), product)
            }
        }
    }

    /// 2^k for exponents of normal numbers, by their bits.
    fn power_of_two(&mut self, ty: Ty, exponent: Reg, bias: i32) -> Result<Reg> {
        let bias = self.shared_int(bias)?;
        let biased = self.two(Binary::Add, Ty::I32, exponent, bias)?;
        if ty == Ty::F32 {
            return self.shift_by(Binary::Shl, Ty::I32, biased, 23);
        }
        let wide = self.convert_reg(Convert::ExtendSigned, Ty::I32, Ty::I64, biased)?;
        self.shift_by(Binary::Shl, Ty::I64, wide, 52)
    }

    pub(super) fn shared_float(&mut self, ty: Ty, x: f64) -> Result<Reg> {
        let bits = if ty == Ty::F32 { u64::from((x as f32).to_bits()) } else { x.to_bits() };
        self.shared(ty, bits)
    }

    pub(super) fn shared_int(&mut self, n: i32) -> Result<Reg> {
        self.shared(Ty::I32, u64::from(n as u32))
    }

    /// F32 lanes rounded to a narrower type.
    pub(super) fn round_to(&mut self, op: Unary, a: Reg) -> Result<Reg> {
        if op == Unary::RoundBf16 {
            let rounded = self.round_bf16(a)?;
            let upper = self.shared_int(-1 << 16)?;
            return self.two(Binary::And, Ty::I32, rounded, upper);
        }
        let size = self.size(Ty::F32)?;
        let half = if size == Size::Z { Size::Y } else { Size::X };
        let (narrow, to) = (self.function.reg(half), self.function.reg(size));
        let code = self.of_row(rows::NARROW_F16, size)?;
        self.code(code, &[def(narrow, half), used(a, size), imm8(0)]);
        let widen = table::widen(fuseline::tensor::DType::F16).ok_or_else(|| Error::bug("f16"))?;
        self.op(widen, size, &[def(to, size), used(narrow, half)], 1)?;
        Ok(to)
    }

    /// F32 lanes whose upper halves are the nearest bf16, ties to even; the lower halves are whatever they are.
    pub(super) fn round_bf16(&mut self, a: Reg) -> Result<Reg> {
        let size = self.size(Ty::F32)?;
        let last = self.shift_by(Binary::ShrUnsigned, Ty::I32, a, 16)?;
        let one = self.shared_int(1)?;
        let last = self.two(Binary::And, Ty::I32, last, one)?;
        let half = self.shared_int(0x7fff)?;
        let up = self.two(Binary::Add, Ty::I32, last, half)?;
        let rounded = self.two(Binary::Add, Ty::I32, a, up)?;
        // NaN would round to infinity: it becomes quiet instead
        let undefined = self.compare_regs(Compare::Unordered, Ty::F32, a, a)?;
        let quiet = self.shared_int(1 << 22)?;
        if self.level == Level::Avx2 {
            let nan = self.two(Binary::Or, Ty::I32, a, quiet)?;
            return self.blend(Ty::I32, undefined, used(nan, size), rounded);
        }
        let row = table::binary(Binary::Or, Ty::I32).ok_or_else(|| Error::bug("bits of I32"))?;
        let (code, fold) = (self.of_row(row, size)?, self.fold_at(row, 2));
        let masking = Masking { reg: undefined, zero: false, role: Role::Use };
        let operands: [Operand; 3] = [changed(rounded, size), used(a, size), used(quiet, size)];
        self.push_masked(What::Code(code), &operands, fold, Some(masking));
        Ok(rounded)
    }
}
