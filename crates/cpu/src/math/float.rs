//! Functions of floats, f32 and f64 alike, that instructions do not give as the table wants them.

use super::lanes::Lanes;
use crate::vector::{Binary, Builder, Compare, Ty, Value};

/// The larger; NaN if either is; of two zeros +0.
pub(super) fn max(f: &mut Lanes<'_>, a: Value, b: Value) -> Value {
    if let Some(x) = constant(f, a) {
        return max_with(f, x, a, b);
    }
    if let Some(x) = constant(f, b) {
        return max_with(f, x, b, a);
    }
    // The instruction gives its second argument where both are zeros or either is NaN. Of zeros, the bits in both are right.
    let one = f.binary(Binary::Max, a, b);
    let other = f.binary(Binary::Max, b, a);
    let both = f.and(one, other);
    let is_nan = f.compare(Compare::Unordered, a, b);
    let nan = f.0.float(f.0.ty(a), f64::NAN);
    f.select(is_nan, nan, both)
}

/// The smaller; NaN if either is; of two zeros −0.
pub(super) fn min(f: &mut Lanes<'_>, a: Value, b: Value) -> Value {
    let negative_zero = |x: f64| x == 0.0 && x.is_sign_negative();
    for (constant, (a, b)) in [(constant(f, a), (a, b)), (constant(f, b), (b, a))] {
        if constant.is_some_and(|x| !x.is_nan() && !negative_zero(x)) {
            return f.binary(Binary::Min, a, b);
        }
    }
    // The instruction gives its second argument where both are zeros or either is NaN. The bits in either of both ways round
    // are right: a −0 stays one, and a NaN stays NaN whatever bits are added.
    let one = f.binary(Binary::Min, a, b);
    let other = f.binary(Binary::Min, b, a);
    f.or(one, other)
}

/// −1, 0 or 1, zeros and NaN as they are.
pub(super) fn sign(f: &mut Lanes<'_>, x: Value) -> Value {
    let ty = f.0.ty(x);
    let (zero, one) = (f.0.float(ty, 0.0), f.0.float(ty, 1.0));
    let magnitude = f.magnitude(x);
    let has_one = f.lt(zero, magnitude);
    let sign = f.sign(x);
    let unit = f.or(sign, one);
    f.select(has_one, unit, x)
}

/// a / b as a · (1 / b), where b is a constant or stands outside of a loop that a stands in: one division instead of many. None
/// where it does not, or where lanes hold f64.
///
/// Numbers whose reciprocal may not be a normal number are scaled by powers of two together with a, which changes nothing.
pub(super) fn divide_by_known(b: &mut Builder, a: Value, n: Value) -> Option<Value> {
    if b.ty(n) != Ty::F32 || b.depth(n) >= b.depth(a) {
        return None;
    }
    let mut f = Lanes(b);
    let safe = |x: f64| (-100f64).exp2() < x.abs() && x.abs() < 100f64.exp2();
    if let Some(x) = constant(&f, n).filter(|x| safe(*x)) {
        return Some(f.mul(a, (1.0 / x) as f32));
    }
    let magnitude = f.magnitude(n);
    let small = f.lt(magnitude, 2f32.powi(-64));
    let large = f.lt(2f32.powi(64), magnitude);
    let scale = f.select(small, 2f32.powi(64), 1.0f32);
    let scale = f.select(large, 2f32.powi(-64), scale);
    let scaled = f.mul(n, scale);
    let reciprocal = f.div(1.0f32, scaled);
    let a = f.mul(a, scale);
    Some(f.mul(a, reciprocal))
}

/// The larger of a known number `c`, which is `x`, and lanes `y`.
fn max_with(f: &mut Lanes<'_>, x: f64, c: Value, y: Value) -> Value {
    if x.is_nan() {
        return c;
    }
    let larger = f.binary(Binary::Max, c, y);
    // Where both are zeros the instruction gives y, which may be −0.
    if x == 0.0 && x.is_sign_positive() { f.add(larger, c) } else { larger }
}

/// The number, where lanes are known to hold one.
fn constant(f: &Lanes<'_>, value: Value) -> Option<f64> {
    let bits = f.0.as_bits(value)?;
    Some(if f.0.ty(value) == Ty::F32 { f64::from(f32::from_bits(bits as u32)) } else { f64::from_bits(bits) })
}
