//! Exponential functions of f32.
//!
//! All of them write x as n·ln 2 + r with |r| ≤ ln 2 / 2 and take a polynomial of r; the power of two is exact. The polynomials
//! are of least relative error on that range, their coefficients rounded one after another.

use super::lanes::{Lanes, Term};
use crate::vector::{Binary, Value};

/// Added to a number and taken away again, it leaves the nearest integer; the low bits of the sum are that integer.
const ROUNDER: f32 = 12_582_912.0;
/// As [`ROUNDER`]; the low bits of the sum are the exponent field of 2 to the power of the integer.
const POWER_ROUNDER: f32 = 12_583_039.0;
const LOG2_E: f32 = std::f32::consts::LOG2_E;
const LN_2: f32 = std::f32::consts::LN_2;
/// ln 2 less the f32 next to it.
const LN_2_REST: f32 = -1.904_654_3e-9;

/// e^r on |r| ≤ ln 2 / 2.
const EXP: [f32; 7] = [1.0, 1.0, 0.499_999_94, 0.166_665_21, 0.041_668_266, 0.008_368_677, 0.001_382_073_4];
/// 2^r on |r| ≤ 1/2.
const EXP2: [f32; 7] = [1.0, LN_2, 0.240_226_48, 0.055_503_596, 0.009_618_501, 0.001_339_098_7, 0.000_153_285_82];
/// (e^r − 1 − r) / r² on |r| ≤ ln 2 / 2.
const EXPM1: [f32; 6] = [0.5, 0.166_666_66, 0.041_666_493, 0.008_333_545, 0.001_393_233_1, 0.000_197_625_72];
/// (e^2r − 1 − 2r) / 2r² on |r| ≤ ln 2 / 4.
const HALF_EXPM1: [f32; 5] = [0.999_999_94, 0.666_661_86, 0.333_339_48, 0.133_860_35, 0.044_386_227];

/// 2^r − 1 over r on |r| ≤ 1/2.
const EXP2M1: [f32; 6] = [LN_2, 0.240_226_49, 0.055_503_674, 0.009_618_307, 0.001_338_740_8, 0.000_153_837_45];
/// log2(erfc x) / x on 0 ≤ x ≤ 3.95.
const ERFC: [f32; 8] = [
    -1.627_907,
    -0.918_444_7,
    -0.148_321_57,
    0.027_852_2,
    -0.000_265_081_12,
    -0.001_828_205_3,
    0.000_557_374_85,
    -0.000_059_758_066,
];

/// Below it e^x is nothing as f32.
const EXP_NOTHING: f32 = -104.0;

/// Below it 2^x is nothing as f32.
const EXP2_NOTHING: f32 = -150.0;

/// e^x.
pub(super) fn exp(f: &mut Lanes<'_>, x: Value) -> Value {
    let is_nothing = f.lt(x, EXP_NOTHING);
    let x = f.at_most(x, 89.0f32);
    let x = f.at_least(x, EXP_NOTHING);
    let (n, r) = split(f, x);
    let power = f.polynomial(r, &EXP);
    let power = nothing_where(f, is_nothing, power);
    f.scale(power, n)
}

/// Zero in some lanes. A processor takes long over a product that underflows, but not over a zero; scores that are masked come
/// to e^−∞ by the million.
fn nothing_where(f: &mut Lanes<'_>, is_nothing: Value, x: impl Term) -> Value {
    f.select(is_nothing, 0.0f32, x)
}

/// 2^x.
pub(super) fn exp2(f: &mut Lanes<'_>, x: Value) -> Value {
    let is_nothing = f.lt(x, EXP2_NOTHING);
    let shifted = f.add(x, ROUNDER);
    let n = f.sub(shifted, ROUNDER);
    let r = f.sub(x, n);
    // An infinity leaves no fraction; any number will do, and NaN comes back with n.
    let r = f.binary(Binary::Min, r, 0.5f32);
    let power = f.polynomial(r, &EXP2);
    let power = nothing_where(f, is_nothing, power);
    f.scale(power, n)
}

/// e^x − 1.
pub(super) fn expm1(f: &mut Lanes<'_>, x: Value) -> Value {
    let low = f.at_most(x, 89.0f32);
    let low = f.at_least(low, -18.0f32);
    let shifted = f.fma(low, LOG2_E, ROUNDER);
    let n = f.sub(shifted, ROUNDER);
    let exact = f.minus_product(low, n, LN_2);
    let r = f.minus_product(exact, n, LN_2_REST);
    let square = f.mul(r, r);
    let curve = f.polynomial(r, &EXPM1);
    // e^r − 1 is exact + rest; the sum is formed with the power of two, so that little is rounded before it.
    let rest = f.mul(square, curve);
    let rest = f.minus_product(rest, n, LN_2_REST);
    let power = f.scale(1.0f32, n);
    let less = f.sub(power, 1.0f32);
    let sum = f.fma(power, exact, less);
    let small = f.fma(power, rest, sum);
    let whole = f.add(exact, rest);
    let whole = f.add(whole, 1.0f32);
    let large = f.scale(whole, n);
    let is_large = f.lt(87.0f32, x);
    let y = f.select(is_large, large, small);
    // The sign is that of x, also of −0.
    let sign = f.sign(x);
    f.or(y, sign)
}

/// 1 / (1 + e^−x), as 2^n / (2^n + e^−r).
pub(super) fn sigmoid(f: &mut Lanes<'_>, x: Value) -> Value {
    let is_nothing = f.lt(x, EXP_NOTHING);
    let x = f.at_most(x, 20.0f32);
    let x = f.at_least(x, EXP_NOTHING);
    let (n, r) = split(f, x);
    let mut falling = EXP;
    falling.iter_mut().skip(1).step_by(2).for_each(|c| *c = -*c);
    let rest = f.polynomial(r, &falling);
    let one = nothing_where(f, is_nothing, 1.0f32);
    let power = f.scale(one, n);
    let sum = f.add(power, rest);
    f.div(power, sum)
}

/// The hyperbolic tangent: h / (h + 1), where h is half of e^2|x| − 1.
pub(super) fn tanh(f: &mut Lanes<'_>, x: Value) -> Value {
    let sign = f.sign(x);
    let a = f.magnitude(x);
    let a = f.at_most(a, 9.1f32);
    let shifted = f.fma(a, 2.0 * LOG2_E, POWER_ROUNDER);
    let n = f.sub(shifted, POWER_ROUNDER);
    let r = f.minus_product(a, n, 0.5 * LN_2);
    let square = f.mul(r, r);
    let curve = f.polynomial(r, &HALF_EXPM1);
    let half = f.fma(square, curve, r);
    let power = power_of(f, shifted);
    let less = f.fma(power, 0.5f32, -0.5f32);
    let half = f.fma(power, half, less);
    let sum = f.add(half, 1.0f32);
    let y = f.div(half, sum);
    f.or(y, sign)
}

/// The error function: 1 − 2^w, where w = log2(erfc |x|) is |x| times a polynomial.
pub(super) fn erf(f: &mut Lanes<'_>, x: Value) -> Value {
    let sign = f.sign(x);
    let a = f.magnitude(x);
    let a = f.at_most(a, 3.93f32);
    let curve = f.polynomial(a, &ERFC);
    let shifted = f.fma(a, curve, POWER_ROUNDER);
    let n = f.sub(shifted, POWER_ROUNDER);
    let r = f.product_minus(a, curve, n);
    let rest = f.polynomial(r, &EXP2M1);
    let rest = f.mul(r, rest);
    let power = power_of(f, shifted);
    let less = f.sub(1.0f32, power);
    let y = f.minus_product(less, power, rest);
    f.or(y, sign)
}

/// n and r with x = n·ln 2 + r.
fn split(f: &mut Lanes<'_>, x: Value) -> (Value, Value) {
    let shifted = f.fma(x, LOG2_E, ROUNDER);
    let n = f.sub(shifted, ROUNDER);
    let r = f.minus_product(x, n, LN_2);
    (n, f.minus_product(r, n, LN_2_REST))
}

/// 2^n, where n was rounded by way of [`POWER_ROUNDER`] and the power is a normal number.
fn power_of(f: &mut Lanes<'_>, shifted: Value) -> Value {
    let bits = f.bits(shifted);
    let power = f.shl(bits, 23);
    f.bits(power)
}
