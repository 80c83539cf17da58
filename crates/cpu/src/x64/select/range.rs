//! Between which numbers floats lie: what is known to be small and whole is scaled with less effort.

use super::Select;
use crate::vector::{Binary, Convert, FmaOp, Op, Ty, Unary, Value};

/// Bounds of the lanes of a value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Range {
    /// none is below, unless it is NaN
    pub low: f64,
    /// none is above, unless it is NaN
    pub high: f64,
    /// whether one may be NaN
    pub nan: bool,
    /// whether all are whole numbers or infinite, unless NaN
    pub whole: bool,
}

/// Deeper than this nothing is known.
const DEPTH: u32 = 6;

impl Range {
    /// Nothing is known.
    pub const ANY: Range = Range { low: f64::NEG_INFINITY, high: f64::INFINITY, nan: true, whole: false };

    /// Whether none is infinite.
    pub fn is_finite(&self) -> bool {
        self.low.is_finite() && self.high.is_finite()
    }

    fn number(x: f64) -> Range {
        if x.is_nan() { Range::ANY } else { Range { low: x, high: x, nan: false, whole: x.fract() == 0.0 } }
    }

    /// Of one or of the other.
    fn or(self, other: Range) -> Range {
        Range {
            low: self.low.min(other.low),
            high: self.high.max(other.high),
            nan: self.nan || other.nan,
            whole: self.whole && other.whole,
        }
    }

    /// Of a function that is monotonic in each argument, by its values at the corners.
    fn corners(values: &[f64], nan: bool, whole: bool) -> Range {
        if values.iter().any(|x| !x.is_finite()) {
            return Range::ANY;
        }
        let low = values.iter().copied().fold(f64::INFINITY, f64::min);
        let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        Range { low, high, nan, whole }
    }

    /// `a < b ? a : b`, or the larger.
    fn choice(a: Range, b: Range, pick: fn(f64, f64) -> f64) -> Range {
        let chosen =
            Range { low: pick(a.low, b.low), high: pick(a.high, b.high), nan: b.nan, whole: a.whole && b.whole };
        // where the first is NaN, the second is taken whatever it is
        if a.nan { chosen.or(b) } else { chosen }
    }

    /// After rounding to the type: floats from here on are whole.
    fn rounded(self, ty: Ty) -> Range {
        let (digits, largest) = if ty == Ty::F32 { (23, f64::from(f32::MAX)) } else { (52, f64::MAX) };
        let magnitude = self.low.abs().max(self.high.abs());
        if magnitude > largest / 2.0 {
            return Range::ANY;
        }
        let least = (1u64 << digits) as f64;
        let large = self.low >= least || self.high <= -least;
        // what was computed here in f64 may round to the neighbour
        let slack = magnitude * 2f64.powi(1 - digits);
        Range { low: self.low - slack, high: self.high + slack, whole: self.whole || large, ..self }
    }
}

impl Select<'_> {
    /// Bounds of a float.
    pub(super) fn range(&self, value: Value) -> Range {
        self.range_within(value, DEPTH)
    }

    fn range_within(&self, value: Value, depth: u32) -> Range {
        let ty = self.program.ty(value);
        let (Some(op), true) = (self.facts[value].op, depth > 0 && ty.is_float()) else {
            return Range::ANY;
        };
        let of = |value: Value| self.range_within(value, depth - 1);
        match op {
            Op::Const(Ty::F32, bits) => Range::number(f64::from(f32::from_bits(*bits as u32))),
            Op::Const(_, bits) => Range::number(f64::from_bits(*bits)),
            Op::Binary(Binary::Min, a, b) => Range::choice(of(*a), of(*b), f64::min),
            Op::Binary(Binary::Max, a, b) => Range::choice(of(*a), of(*b), f64::max),
            Op::Binary(Binary::Add, a, b) => {
                let (a, b) = (of(*a), of(*b));
                Range::corners(&[a.low + b.low, a.high + b.high], a.nan || b.nan, a.whole && b.whole).rounded(ty)
            }
            Op::Binary(Binary::Sub, a, b) => {
                let (a, b) = (of(*a), of(*b));
                Range::corners(&[a.low - b.high, a.high - b.low], a.nan || b.nan, a.whole && b.whole).rounded(ty)
            }
            Op::Binary(Binary::Mul, a, b) => product(of(*a), of(*b)).rounded(ty),
            Op::Fma(FmaOp::Add, a, b, c) => {
                let (product, c) = (product(of(*a), of(*b)), of(*c));
                let nan = product.nan || c.nan;
                Range::corners(&[product.low + c.low, product.high + c.high], nan, product.whole && c.whole).rounded(ty)
            }
            Op::Unary(Unary::Round | Unary::Floor | Unary::Ceil | Unary::Trunc, a) => {
                let a = of(*a);
                Range { low: a.low.floor(), high: a.high.ceil(), whole: true, ..a }
            }
            Op::Select(_, a, b) => of(*a).or(of(*b)),
            Op::Convert(Convert::Float, _, a) if self.program.ty(*a) == Ty::I32 => {
                Range { low: -2_147_483_648.0, high: 2_147_483_648.0, nan: false, whole: true }
            }
            _ => Range::ANY,
        }
    }
}

fn product(a: Range, b: Range) -> Range {
    let corners = [a.low * b.low, a.low * b.high, a.high * b.low, a.high * b.high];
    Range::corners(&corners, a.nan || b.nan, a.whole && b.whole)
}
