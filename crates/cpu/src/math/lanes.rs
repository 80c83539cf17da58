//! Vector code that reads like a formula.

use crate::vector::{Binary, Builder, Compare, Convert, FmaOp, Ty, Value};

/// What stands for a vector in a formula: a value, or a number that is the same in every lane.
pub(super) trait Term {
    /// The vector.
    fn value(self, b: &mut Builder) -> Value;
}

impl Term for Value {
    fn value(self, _: &mut Builder) -> Value {
        self
    }
}

impl Term for f32 {
    fn value(self, b: &mut Builder) -> Value {
        b.bits(Ty::F32, u64::from(self.to_bits()))
    }
}

impl Term for f64 {
    fn value(self, b: &mut Builder) -> Value {
        b.bits(Ty::F64, self.to_bits())
    }
}

impl Term for i32 {
    fn value(self, b: &mut Builder) -> Value {
        b.integer(Ty::I32, i64::from(self))
    }
}

impl Term for i64 {
    fn value(self, b: &mut Builder) -> Value {
        b.integer(Ty::I64, self)
    }
}

/// Methods for formulas: operands may be values or numbers. Those of two floats follow the instructions, not the table.
pub(super) struct Lanes<'b>(pub &'b mut Builder);

impl Lanes<'_> {
    pub(super) fn binary(&mut self, op: Binary, a: impl Term, b: impl Term) -> Value {
        let (a, b) = (a.value(self.0), b.value(self.0));
        self.0.binary(op, a, b)
    }

    pub(super) fn add(&mut self, a: impl Term, b: impl Term) -> Value {
        self.binary(Binary::Add, a, b)
    }

    pub(super) fn sub(&mut self, a: impl Term, b: impl Term) -> Value {
        self.binary(Binary::Sub, a, b)
    }

    pub(super) fn mul(&mut self, a: impl Term, b: impl Term) -> Value {
        self.binary(Binary::Mul, a, b)
    }

    pub(super) fn div(&mut self, a: impl Term, b: impl Term) -> Value {
        self.binary(Binary::Div, a, b)
    }

    /// The smaller; `x` where it is NaN.
    pub(super) fn at_most(&mut self, x: Value, bound: impl Term) -> Value {
        self.binary(Binary::Min, bound, x)
    }

    /// The larger; `x` where it is NaN.
    pub(super) fn at_least(&mut self, x: Value, bound: impl Term) -> Value {
        self.binary(Binary::Max, bound, x)
    }

    pub(super) fn and(&mut self, a: impl Term, b: impl Term) -> Value {
        self.binary(Binary::And, a, b)
    }

    pub(super) fn or(&mut self, a: impl Term, b: impl Term) -> Value {
        self.binary(Binary::Or, a, b)
    }

    pub(super) fn xor(&mut self, a: impl Term, b: impl Term) -> Value {
        self.binary(Binary::Xor, a, b)
    }

    /// Integers: a · 2^n.
    pub(super) fn shl(&mut self, a: impl Term, n: impl Term) -> Value {
        self.binary(Binary::Shl, a, n)
    }

    /// a · 2^n of floats.
    pub(super) fn scale(&mut self, a: impl Term, n: impl Term) -> Value {
        self.binary(Binary::Scale, a, n)
    }

    /// Whether scaling is one instruction, whatever the exponent: that of AVX-512, which is there if vectors have 64 bytes.
    pub(super) fn scales_by_anything(&self) -> bool {
        self.0.lanes() == 16
    }

    /// a·b + c
    pub(super) fn fma(&mut self, a: impl Term, b: impl Term, c: impl Term) -> Value {
        let (a, b, c) = (a.value(self.0), b.value(self.0), c.value(self.0));
        self.0.fma(FmaOp::Add, a, b, c)
    }

    /// c − a·b
    pub(super) fn minus_product(&mut self, c: impl Term, a: impl Term, b: impl Term) -> Value {
        let (a, b, c) = (a.value(self.0), b.value(self.0), c.value(self.0));
        self.0.fma(FmaOp::NegAdd, a, b, c)
    }

    /// c0 + x·(c1 + x·(c2 + …)) of f32.
    pub(super) fn polynomial(&mut self, x: Value, coefficients: &[f32]) -> Value {
        let (last, rest) = coefficients.split_last().expect("a polynomial has a coefficient");
        let mut sum = last.value(self.0);
        for c in rest.iter().rev() {
            sum = self.fma(sum, x, *c);
        }
        sum
    }

    /// The numbers of a table at places that the low bits of an I32 give; there are a power of two of them, no fewer than lanes.
    pub(super) fn table(&mut self, numbers: &[f32], places: Value) -> Value {
        if numbers.len() == self.0.lanes() as usize {
            let bits: Vec<u32> = numbers.iter().map(|x| x.to_bits()).collect();
            let numbers = self.0.numbers(Ty::F32, &bits);
            return self.0.pick(numbers, places);
        }
        let (low, high) = numbers.split_at(numbers.len() / 2);
        let [first, last] = [low, high].map(|half| self.table(half, places));
        let bit = self.and(places, low.len() as i32);
        let in_last = self.compare(Compare::Ne, bit, 0);
        self.select(in_last, last, first)
    }

    pub(super) fn compare(&mut self, op: Compare, a: impl Term, b: impl Term) -> Value {
        let (a, b) = (a.value(self.0), b.value(self.0));
        self.0.compare(op, a, b)
    }

    pub(super) fn lt(&mut self, a: impl Term, b: impl Term) -> Value {
        self.compare(Compare::Lt, a, b)
    }

    pub(super) fn le(&mut self, a: impl Term, b: impl Term) -> Value {
        self.compare(Compare::Le, a, b)
    }

    pub(super) fn eq(&mut self, a: impl Term, b: impl Term) -> Value {
        self.compare(Compare::Eq, a, b)
    }

    pub(super) fn is_nan(&mut self, a: Value) -> Value {
        self.0.compare(Compare::Unordered, a, a)
    }

    pub(super) fn select(&mut self, mask: Value, a: impl Term, b: impl Term) -> Value {
        let (a, b) = (a.value(self.0), b.value(self.0));
        self.0.select(mask, a, b)
    }

    /// The bits of floats as integers, and the other way round.
    pub(super) fn bits(&mut self, a: Value) -> Value {
        let to = match self.0.ty(a) {
            Ty::F32 => Ty::I32,
            Ty::F64 => Ty::I64,
            Ty::I32 => Ty::F32,
            _ => Ty::F64,
        };
        self.0.convert(Convert::Bits, to, a)
    }

    /// The bit of the sign, alone.
    pub(super) fn sign(&mut self, x: Value) -> Value {
        let sign = sign_bit(self.0, x);
        self.and(x, sign)
    }

    /// Floats without their sign.
    pub(super) fn magnitude(&mut self, x: Value) -> Value {
        let sign = sign_bit(self.0, x);
        self.binary(Binary::AndNot, sign, x)
    }

    /// Floats with the other sign.
    pub(super) fn negated(&mut self, x: Value) -> Value {
        let sign = sign_bit(self.0, x);
        self.xor(x, sign)
    }

    /// The opposite of a mask.
    pub(super) fn not(&mut self, mask: Value) -> Value {
        let all = self.0.truth(true);
        self.0.binary(Binary::Xor, mask, all)
    }
}

impl Term for &f32 {
    fn value(self, b: &mut Builder) -> Value {
        (*self).value(b)
    }
}

fn sign_bit(b: &mut Builder, like: Value) -> Value {
    let ty = b.ty(like);
    b.float(ty, -0.0)
}
