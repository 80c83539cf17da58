//! Ranges of constants: which may be joined, and which may move past a sum.
//!
//! Algebra on real numbers knows neither overflow nor underflow. These predicates say where it may be used on constants all
//! the same, under every [`Numerics`](crate::passes::Numerics): passes, normal forms and rewrites ask them and nobody else.

use crate::tensor::DType;

/// Whether a number is a normal number of a float type: one that keeps its precision there.
pub(crate) fn is_normal(x: f64, dtype: DType) -> bool {
    let (Some(format), Some(largest)) = (dtype.format(), dtype.max_float()) else { return false };
    let smallest = f64::from(1 - format.bias).exp2();
    (smallest..=largest).contains(&x.abs())
}

/// Whether `(x · a) · b` may be written `x · (a · b)`: the joint factor is a normal number of the type, so that nothing overflows
/// or vanishes which did not before. Where a factor is 0, infinite or NaN already, joining it changes nothing.
pub(crate) fn may_multiply(a: f64, b: f64, dtype: DType) -> bool {
    let is_special = |x: f64| x == 0.0 || !dtype.round(x).is_finite();
    is_special(a) || is_special(b) || is_normal(a * b, dtype)
}

/// Whether `(x + a) + b` may be written `x + (a + b)`: the joint summand is finite in the type, and no rounding is lost that was
/// meant. `(x + 1.5·2²³) − 1.5·2²³` is how `x` is rounded to a whole number: where constants larger than [`DROWNING`] nearly
/// cancel, `x` was rounded to few digits in between, and they stay apart. Small ones may cancel: `1 − (1 − x)` is `x`.
pub(crate) fn may_add(a: f64, b: f64, dtype: DType) -> bool {
    let larger = a.abs().max(b.abs());
    if !dtype.round(larger).is_finite() {
        return true;
    }
    let sum = a + b;
    dtype.round(sum).is_finite() && larger <= DROWNING * sum.abs().max(1.0)
}

/// A number that is larger than another by this factor leaves few of the other's digits in a sum.
pub(crate) const DROWNING: f64 = 256.0;

/// Whether a factor may move past a sum of products: `Σ (x·c)·y` is `c · Σ x·y` as long as the products without it stay in range. It
/// is within 2⁻²⁰ … 2²⁰, as are 1/√d, 1/8 and ln 2; a larger or smaller one may be what keeps them there.
pub(crate) fn may_move(factor: f64) -> bool {
    const MOST: f64 = (1u64 << 20) as f64;
    (1.0 / MOST..=MOST).contains(&factor.abs())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn factors_are_joined_inside_of_the_range() {
        for (a, b, joined) in [
            (1e30, 1e30, false),
            (1e-30, 1e-30, false),
            (1e-30, 1e-9, false),
            (1e30, 1e-30, true),
            (3.0, 0.5, true),
            (0.0, 1e30, true),
            (f64::INFINITY, 1e30, true),
        ] {
            assert_eq!(may_multiply(a, b, DType::F32), joined, "{a} · {b}");
        }
        assert!(!may_multiply(300.0, 300.0, DType::F16) && may_multiply(300.0, 300.0, DType::BF16));
    }

    #[test]
    fn summands_are_joined_where_nothing_overflows_and_no_rounding_is_meant() {
        let magic = 12_582_912.0;
        for (a, b, joined) in [
            (3e38, 3e38, false),
            (magic, -magic, false),
            (magic, 1.0 - magic, false),
            (magic, magic, true),
            (10000.0, -10000.0, false),
            (1.0, -1.0, true),
            (3.0, -2.5, true),
            (-10000.0, 1.0, true),
            (f64::NEG_INFINITY, 1.0, true),
        ] {
            assert_eq!(may_add(a, b, DType::F32), joined, "{a} + {b}");
        }
    }
}
