//! Constants of formulas: which real number is meant, and which numbers a type can hold.

use std::f64::consts::PI;

use crate::tensor::DType;

/// The real number that a constant stands for: of the numbers that the constant may be a rounding of, the one that has
/// the shortest name, otherwise the constant itself.
///
/// Exporters write √2, 1/√d, √(2/π) and 1/6 in the precision of the model, and some compute one from another there:
/// `1.4142135`, `0.70710677` and `0.7071068` are one number or its reciprocal. Names are `r` and `√r` for `r` one of `p/q`,
/// `p/q · π`, `p/q / π`, with small `p` and `q`, or with one of them 1 and the other any that the type tells from its neighbours;
/// the shorter, the smaller `p · q`. How small it must be is chosen so that a number taken at random hardly ever has a name
/// within the tolerance: 1½ units of the last place, or half a unit in types of less than 24 bits, where the constant must
/// also remain what it is when it is rounded again. The name of a rounded name is that name.
pub(super) fn intended(x: f64, dtype: DType) -> f64 {
    let size = x.abs();
    let Some(format) = dtype.format().filter(|_| (NARROWEST..=1.0 / NARROWEST).contains(&size)) else { return x };
    let wide = format.mantissa_bits >= 23;
    if has_bits(x, if wide { SHORT } else { SHORT / 2 }) {
        return x;
    }
    let rounded = dtype.round(size);
    let Some(name) = shortest_name(rounded, dtype) else { return x };
    let again = dtype.round(name);
    let stays = again == rounded || wide && shortest_name(again, dtype) == Some(name);
    if stays { name.copysign(x) } else { x }
}

/// The number with the shortest name near a positive constant.
fn shortest_name(size: f64, dtype: DType) -> Option<f64> {
    let bits = dtype.format()?.mantissa_bits;
    let longest = MOST_NAME.min(1 << (bits.max(3) - 3).min(30));
    let tolerance = dtype.epsilon() * if bits >= 23 { 1.5 } else { 0.5 };
    let mut shortest: Option<(u64, f64)> = None;
    for is_root in [false, true] {
        let (value, tolerance) = if is_root { (size * size, 2.0 * tolerance) } else { (size, tolerance) };
        for unit in [1.0, PI, 1.0 / PI] {
            let ratio = value / unit;
            let Some((p, q)) = simplest(ratio * (1.0 - tolerance), ratio * (1.0 + tolerance)) else { continue };
            let length = p.saturating_mul(q);
            let is_name = length <= longest || p.min(q) == 1 && unit == 1.0 && p.max(q) as f64 * tolerance < 0.5;
            if is_name && shortest.is_none_or(|(least, _)| length < least) {
                let name = p as f64 / q as f64 * unit;
                shortest = Some((length, if is_root { name.sqrt() } else { name }));
            }
        }
    }
    shortest.map(|(_, name)| name)
}

/// A number computed from others that are meant, without the error of computing it in f64.
pub(super) fn computed(x: f64) -> f64 {
    intended(x, DType::F64)
}

/// What a number means once it has been written as a constant of a type.
pub(super) fn read_back(x: f64, dtype: DType) -> f64 {
    intended(dtype.round(x), dtype)
}

/// Numbers outside of this range and its inverse are meant as they are written (−1e9, 1e-12).
const NARROWEST: f64 = 1.0 / (1u64 << 20) as f64;

/// The largest product of numerator and denominator of a short name.
const MOST_NAME: u64 = 1 << 10;

/// The fraction with the smallest denominator between two positive numbers, if its parts are no larger than 2^31.
fn simplest(low: f64, high: f64) -> Option<(u64, u64)> {
    const MOST: u64 = 1 << 31;
    let whole = low.floor();
    if whole > MOST as f64 {
        return None;
    }
    let n = whole as u64;
    if whole == low {
        return (n > 0).then_some((n, 1));
    }
    if whole + 1.0 <= high {
        return Some((n + 1, 1));
    }
    // Every step but the first at least doubles one of the parts every second time, so that few are needed.
    let (p, q) = simplest(1.0 / (high - whole), 1.0 / (low - whole))?;
    let numerator = n.checked_mul(p)?.checked_add(q)?;
    (numerator <= MOST && p <= MOST).then_some((numerator, p))
}

/// Whether a number has few significant bits, as small integers and simple fractions have: most likely it was written, not
/// computed.
pub(super) fn is_short(x: f64) -> bool {
    has_bits(x, SHORT)
}

const SHORT: u32 = 9;

/// Whether a finite number has at most so many significant bits.
fn has_bits(x: f64, bits: u32) -> bool {
    x.is_finite() && x.to_bits() << (11 + bits) == 0
}

/// Whether two numbers are the same constant of a float type.
pub(super) fn is_same(a: f64, b: f64, dtype: DType) -> bool {
    dtype.round(a) == dtype.round(b)
}

#[cfg(test)]
#[expect(clippy::approx_constant, reason = "these are the constants that exporters write")]
mod tests {
    use super::*;
    use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI, LN_2, SQRT_2};

    #[test]
    fn the_constants_of_formulas_are_recognised_behind_their_rounding() {
        let meant =
            [SQRT_2, FRAC_1_SQRT_2, FRAC_1_SQRT_2 * FRAC_2_SQRT_PI, 1.0 / 6.0, 1.0 / 768.0, 1.0 / 768f64.sqrt()];
        for real in meant {
            for dtype in [DType::F32, DType::F64] {
                let rounded = dtype.round(real);
                let ulp = real * dtype.epsilon() / 2.0;
                for constant in [rounded, rounded + ulp, rounded - ulp] {
                    assert!((intended(constant, dtype) - real).abs() <= 1e-15, "{constant} is {real}");
                    assert!((intended(-constant, dtype) + real).abs() <= 1e-15);
                }
            }
        }
        assert_eq!(intended(f64::from(1.414_213_5f32), DType::F32), SQRT_2);
        assert_eq!(intended(DType::F16.round(SQRT_2), DType::F16), SQRT_2);
    }

    #[test]
    fn other_constants_stay_what_they_are() {
        for x in [0.044715, 1.702, 1e-5, 1e-12, -3.4028234663852886e38, 0.0, LN_2, 10000.0, f64::INFINITY] {
            let x = DType::F32.round(x);
            assert_eq!(DType::F32.round(intended(x, DType::F32)), x);
        }
        assert_ne!(intended(1.4142, DType::F32), SQRT_2, "that is another number");
    }

    #[test]
    fn a_name_is_read_as_itself() {
        for k in 0..200_000u32 {
            let x = f64::from(f32::from_bits(0x3a00_0000 + k * 911));
            let name = intended(x, DType::F32);
            assert_eq!(read_back(name, DType::F32), name, "{x}");
            assert!((name - x).abs() <= 2.0 * x * DType::F32.epsilon());
        }
    }

    #[test]
    fn a_narrow_constant_rounds_back_to_itself() {
        for bits in (1u64 << 10)..(31 << 10) {
            let x = DType::F16.from_bits(bits);
            assert_eq!(DType::F16.round(intended(x, DType::F16)), x);
            let x = DType::BF16.from_bits(bits);
            assert_eq!(DType::BF16.round(intended(x, DType::BF16)), x);
        }
    }
}
