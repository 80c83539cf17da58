//! Logarithms of f32.
//!
//! x is 2^e·(1 + t) with 1 + t between √½ and √2; the logarithm of 1 + t is t + t²·(−½ + t·(…)), of least relative error.

use super::lanes::Lanes;
use crate::vector::{Binary, Compare, Convert, Ty, Value};

/// (log(1 + t) − t) / t² on √½ ≤ 1 + t ≤ √2.
const LOG: [f32; 8] =
    [-0.5, 0.333_339_12, -0.250_013_38, 0.199_629_9, -0.165_774_93, 0.149_154_86, -0.142_686_29, 0.086_998_925];
/// The bits of √½.
const LEAST_MANTISSA: i32 = 0x3f35_04f3;
const LN_2: f32 = std::f32::consts::LN_2;
const LOG2_E: f32 = std::f32::consts::LOG2_E;
const LOG2_E_LESS_1: f32 = 0.442_695_05;

/// A positive number as 2^e·mantissa.
pub(super) struct Split {
    /// a whole number, as a float
    pub e: Value,
    pub mantissa: Value,
    /// how far the bits of the mantissa lie above the least one, with those of the exponent before them
    pub above: Value,
}

/// log x.
pub(super) fn log(f: &mut Lanes<'_>, x: Value) -> Value {
    let (e, t) = near_one(f, x);
    let fraction = log_of_mantissa(f, t);
    let y = f.fma(e, LN_2, fraction);
    at_the_ends(f, x, x, y)
}

/// log2 x.
pub(super) fn log2(f: &mut Lanes<'_>, x: Value) -> Value {
    let (e, t) = near_one(f, x);
    let curve = curve(f, t);
    // t·log2(e) as t + t·(log2(e) − 1): the larger part is exact.
    let rest = f.mul(t, LOG2_E_LESS_1);
    let rest = f.fma(curve, LOG2_E, rest);
    let fraction = f.add(t, rest);
    let y = f.add(e, fraction);
    at_the_ends(f, x, x, y)
}

/// log(1 + x): what 1 + x loses by rounding is added to t.
pub(super) fn log1p(f: &mut Lanes<'_>, x: Value) -> Value {
    let sum = f.add(x, 1.0f32);
    let back = f.sub(sum, 1.0f32);
    let lost = f.sub(x, back);
    let one = f.sub(sum, back);
    let lost_one = f.sub(1.0f32, one);
    let lost = f.add(lost, lost_one);
    let (e, t) = near_one(f, sum);
    let down = f.negated(e);
    let lost = f.scale(lost, down);
    let t = f.add(t, lost);
    let fraction = log_of_mantissa(f, t);
    let y = f.fma(e, LN_2, fraction);
    let y = at_the_ends(f, sum, x, y);
    // The sign is that of x, also of −0.
    let sign = f.sign(x);
    f.or(y, sign)
}

/// log(1 + t).
fn log_of_mantissa(f: &mut Lanes<'_>, t: Value) -> Value {
    let curve = curve(f, t);
    f.add(t, curve)
}

/// log(1 + t) − t.
fn curve(f: &mut Lanes<'_>, t: Value) -> Value {
    let square = f.mul(t, t);
    let curve = f.polynomial(t, &LOG);
    f.mul(square, curve)
}

/// A positive number as 2^e·(1 + t): e and t.
fn near_one(f: &mut Lanes<'_>, x: Value) -> (Value, Value) {
    let Split { e, mantissa, .. } = split(f, x, LEAST_MANTISSA);
    (e, f.sub(mantissa, 1.0f32))
}

/// A positive number whose mantissa is at least what has these bits, and less than twice that.
pub(super) fn split(f: &mut Lanes<'_>, x: Value, least: i32) -> Split {
    let is_tiny = f.lt(x, f32::MIN_POSITIVE);
    let scaled = f.mul(x, 8_388_608.0f32);
    let x = f.select(is_tiny, scaled, x);
    let bits = f.bits(x);
    let above = f.sub(bits, least);
    let e = f.binary(Binary::ShrSigned, above, 23);
    let field = f.shl(e, 23);
    let mantissa = f.sub(bits, field);
    let mantissa = f.bits(mantissa);
    let e = f.0.convert(Convert::Float, Ty::F32, e);
    let shifted = f.sub(e, 23.0f32);
    Split { e: f.select(is_tiny, shifted, e), mantissa, above }
}

/// `y`, but −∞ where `argument` is 0, NaN where it is less or NaN; and +∞ where `x` is.
fn at_the_ends(f: &mut Lanes<'_>, argument: Value, x: Value, y: Value) -> Value {
    let is_zero = f.eq(argument, 0.0f32);
    let y = f.select(is_zero, f32::NEG_INFINITY, y);
    // A comparison that is false of NaN.
    let is_number = f.compare(Compare::Le, 0.0f32, argument);
    let y = f.select(is_number, y, f32::NAN);
    let is_infinite = f.eq(x, f32::INFINITY);
    f.select(is_infinite, x, y)
}
