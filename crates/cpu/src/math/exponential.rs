//! Exponential functions of f32.
//!
//! All but erf write x as n·ln 2 + r with |r| ≤ ln 2 / 2 and take a polynomial of r; the power of two is exact. The polynomials
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

/// Lengths of the pieces of [`ERF`].
const ERF_PIECE: f32 = 0.25;
/// From here on erf x is 1 as far as it matters; the last piece of [`ERF`] has no more.
const ERF_END: f32 = 3.87;
/// erf x / x, where x is r more than a multiple k of [`ERF_PIECE`] and |r| is at most half of it: the coefficients of r^0, r^1, …
/// by k. In the last pieces it is a little less, so that rounding leads nowhere above 1.
#[rustfmt::skip]
const ERF: [[f32; 16]; 5] = [
    [
        std::f32::consts::FRAC_2_SQRT_PI, 1.105_305_6, 1.040_999_8, 0.948_207_5, 0.842_700_8, 0.738_320_1, 0.644_070_1, 0.563_812_4,
        0.497_661_14, 0.443_794_34, 0.399_837_23, 0.363_599_78, 0.333_325_95, 0.307_690_98, 0.285_714_06, 0.266_666_62,
    ],
    [
        -1.470_392_5e-5, -0.181_163_03, -0.324_430_8, -0.407_032_55, -0.427_592_55, -0.401_439_73, -0.350_094_35, -0.292_022_38,
        -0.238_497_59, -0.194_067_7, -0.159_063_58, -0.132_004_9, -0.111_062_236, -0.094_665_16, -0.081_631_05, -0.071_110_87,
    ],
    [
        -0.375_549_05, -0.335_346_4, -0.229_914_98, -0.100_215_84, 0.012_486_159, 0.084_626_67, 0.114_465_59, 0.114_095_636,
        0.098_579_94, 0.079_111_62, 0.061_444_398, 0.047_409_162, 0.036_884_345, 0.029_097_69, 0.023_319_574, 0.018_965_414,
    ],
    [
        -0.007_230_203, 0.104_025_036, 0.165_944_1, 0.168_617_34, 0.125_654_65, 0.066_483_33, 0.016_512_12, -0.013_395_311,
        -0.025_018_731, -0.025_446_82, -0.021_233_631, -0.016_245_283, -0.012_040_689, -0.008_902_974, -0.006_655_609, -0.005_057_554_7,
    ],
    [
        0.140_814_81, 0.088_467_69, 0.032_355_323, -0.024_706_3, -0.056_408_51, -0.057_635_583, -0.040_483_333, -0.019_763_53,
        -0.004_635_507, 0.002_737_833_2, 0.005_187_739, 0.005_083_487, 0.003_509_926_4, 0.002_692_310_4, 0.001_785_165_7, 0.001_146_204_1,
    ],
];

/// Below it e^x is nothing as f32.
const EXP_NOTHING: f32 = -104.0;

/// Below it 2^x is nothing as f32.
const EXP2_NOTHING: f32 = -150.0;

/// e^x.
pub(super) fn exp(f: &mut Lanes<'_>, x: Value) -> Value {
    let is_something = f.le(EXP_NOTHING, x);
    let mut x = f.at_most(x, 89.0f32);
    // A zero may be scaled by anything, where that is no more work.
    if !f.scales_by_anything() {
        x = f.at_least(x, EXP_NOTHING);
    }
    let (n, r) = split(f, x);
    let power = f.polynomial(r, &EXP);
    let power = only_where(f, is_something, power);
    f.scale(power, n)
}

/// Zero in other lanes. A processor takes long over a product that underflows, but not over a zero; scores that are masked come
/// to e^−∞ by the million. So is NaN, which comes back with what scales it.
fn only_where(f: &mut Lanes<'_>, is_something: Value, x: impl Term) -> Value {
    f.select(is_something, x, 0.0f32)
}

/// 2^x.
pub(super) fn exp2(f: &mut Lanes<'_>, x: Value) -> Value {
    exp2_with(f, x, |_, r| r)
}

/// 2^(x + rest), where the rest is small beside x.
pub(super) fn exp2_of_sum(f: &mut Lanes<'_>, x: Value, rest: Value) -> Value {
    exp2_with(f, x, |f, r| f.add(r, rest))
}

/// 2^x, with something done to what x has behind its point.
fn exp2_with(f: &mut Lanes<'_>, x: Value, with: impl FnOnce(&mut Lanes<'_>, Value) -> Value) -> Value {
    let is_something = f.le(EXP2_NOTHING, x);
    let shifted = f.add(x, ROUNDER);
    let n = f.sub(shifted, ROUNDER);
    let r = f.sub(x, n);
    let r = with(f, r);
    // An infinity leaves no fraction; any number will do, and NaN comes back with n.
    let r = f.binary(Binary::Min, r, 0.5f32);
    let power = f.polynomial(r, &EXP2);
    let power = only_where(f, is_something, power);
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
    let is_something = f.le(EXP_NOTHING, x);
    let x = f.at_most(x, 20.0f32);
    let x = f.at_least(x, EXP_NOTHING);
    let (n, r) = split(f, x);
    let mut falling = EXP;
    falling.iter_mut().skip(1).step_by(2).for_each(|c| *c = -*c);
    let rest = f.polynomial(r, &falling);
    let one = only_where(f, is_something, 1.0f32);
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

/// The error function: x times a polynomial that depends on where |x| lies.
pub(super) fn erf(f: &mut Lanes<'_>, x: Value) -> Value {
    let x = f.at_most(x, ERF_END);
    let x = f.at_least(x, -ERF_END);
    let a = f.magnitude(x);
    let shifted = f.fma(a, 1.0 / ERF_PIECE, ROUNDER);
    let n = f.sub(shifted, ROUNDER);
    let r = f.minus_product(a, n, ERF_PIECE);
    // The low bits of the sum are the piece.
    let piece = f.bits(shifted);
    let [first, second, third, fourth, last] = ERF.map(|row| f.table(&row, piece));
    let sum = f.fma(last, r, fourth);
    let sum = f.fma(sum, r, third);
    let sum = f.fma(sum, r, second);
    let sum = f.fma(sum, r, first);
    f.mul(x, sum)
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
