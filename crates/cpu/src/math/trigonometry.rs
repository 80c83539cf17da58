//! Sine and cosine of f32.
//!
//! x is n·π/2 + r with |r| ≤ π/4, where π/2 is a sum of three f32; beyond [`FAR`] that is not enough, and a routine is called.

use fuseline::ops::Scalar;

use super::lanes::Lanes;
use super::routine;
use crate::vector::{Compare, Value};

const ROUNDER: f32 = 12_582_912.0;
const FRAC_2_PI: f32 = std::f32::consts::FRAC_2_PI;
/// π/2 as a sum, the largest first.
const HALF_PI: [f32; 3] = [std::f32::consts::FRAC_PI_2, -4.371_139e-8, -1.715_124_5e-15];
/// Magnitudes up to this are reduced exactly enough.
const FAR: f32 = 100_000.0;
/// (sin r − r) / r³ over r².
const SIN: [f32; 3] = [-0.166_666_55, 0.008_332_188, -0.000_195_181];
/// cos r over r².
const COS: [f32; 5] = [1.0, -0.5, 0.041_666_646, -0.001_388_731, 0.000_024_432_553];

/// The sine.
pub(super) fn sin(f: &mut Lanes<'_>, x: Value) -> Value {
    quarter_turns(f, x, 0, Scalar::Sin)
}

/// The cosine: the sine, a quarter turn on.
pub(super) fn cos(f: &mut Lanes<'_>, x: Value) -> Value {
    quarter_turns(f, x, 1, Scalar::Cos)
}

/// The sine of x + `quarters`·π/2.
fn quarter_turns(f: &mut Lanes<'_>, x: Value, quarters: i32, op: Scalar) -> Value {
    let shifted = f.fma(x, FRAC_2_PI, ROUNDER);
    let n = f.sub(shifted, ROUNDER);
    let mut r = x;
    for part in HALF_PI {
        r = f.minus_product(r, n, part);
    }
    let square = f.mul(r, r);
    let odd = f.polynomial(square, &SIN);
    let cube = f.mul(square, r);
    let odd = f.fma(odd, cube, r);
    let even = f.polynomial(square, &COS);

    let turns = f.bits(shifted);
    let turns = f.add(turns, quarters);
    let is_odd = f.and(turns, 1);
    let is_odd = f.compare(Compare::Ne, is_odd, 0);
    let y = f.select(is_odd, even, odd);
    // Bit 1 of the number of quarters, as the bit of the sign.
    let sign = f.shl(turns, 30);
    let sign = f.bits(sign);
    let sign = f.sign(sign);
    let y = f.xor(y, sign);
    let y = if quarters == 0 { keep_zero(f, x, y) } else { y };
    let a = f.magnitude(x);
    let is_far = f.lt(FAR, a);
    f.0.call_where(is_far, routine::float(op, crate::vector::Ty::F32), &[x], y)
}

/// The sine of −0 is −0.
fn keep_zero(f: &mut Lanes<'_>, x: Value, y: Value) -> Value {
    let is_zero = f.eq(x, 0.0f32);
    f.select(is_zero, x, y)
}
