//! What the functions of vector programs are, lane by lane.
//!
//! Loops over arrays of a constant length, which compilers turn into whatever vectors the processor has.

use super::{Binary, Compare, FmaOp, Unary};

/// A number of a vector.
pub(super) trait Lane: Copy + PartialOrd {
    /// Its bits as the low bits of a word.
    fn word(self) -> u64;

    /// The number with the low bits of a word.
    fn of_word(word: u64) -> Self;

    /// A function of two numbers; of those that every type has.
    fn bitwise(op: Binary, a: Self, b: Self) -> Self {
        let (a, b) = (a.word(), b.word());
        Self::of_word(match op {
            Binary::And => a & b,
            Binary::Or => a | b,
            Binary::Xor => a ^ b,
            Binary::AndNot => !a & b,
            _ => unreachable!("{op:?} is no function of bits"),
        })
    }

    /// A function of two vectors.
    fn binary<const L: usize>(op: Binary, a: &[Self; L], b: &[Self; L]) -> [Self; L];

    /// A comparison of two vectors.
    fn compare<const L: usize>(op: Compare, a: &[Self; L], b: &[Self; L]) -> [bool; L];
}

/// A function of every lane.
pub(super) fn map<A: Copy, R: Copy + Default, const L: usize>(a: &[A; L], f: impl Fn(A) -> R) -> [R; L] {
    let mut out = [R::default(); L];
    for k in 0..L {
        out[k] = f(a[k]);
    }
    out
}

/// A function of the lanes of two vectors.
fn zip<A: Copy, R: Copy + Default, const L: usize>(a: &[A; L], b: &[A; L], f: impl Fn(A, A) -> R) -> [R; L] {
    let mut out = [R::default(); L];
    for k in 0..L {
        out[k] = f(a[k], b[k]);
    }
    out
}

/// In a butterfly: every lane with the one whose number differs in bit 0, then 1, 2, …
pub(super) fn fold<T: Lane, const L: usize>(op: Binary, a: &[T; L]) -> [T; L] {
    let mut own = *a;
    let mut step = 1;
    while step < L {
        let mut other = own;
        for k in 0..L {
            other[k] = own[k ^ step];
        }
        own = T::binary(op, &own, &other);
        step *= 2;
    }
    own
}

/// A float of a vector.
pub(super) trait Float: Lane + Default {
    /// a·b + c, rounded once.
    fn fused<const L: usize>(a: &[Self; L], b: &[Self; L], c: &[Self; L]) -> [Self; L];

    /// a · 2^floor(b), rounded once.
    fn scale(a: Self, b: Self) -> Self;

    /// −a.
    fn negated(a: Self) -> Self;

    /// A function of one vector.
    fn unary<const L: usize>(op: Unary, a: &[Self; L]) -> [Self; L];

    /// A fused multiply-add of vectors.
    fn fma<const L: usize>(op: FmaOp, a: &[Self; L], b: &[Self; L], c: &[Self; L]) -> [Self; L] {
        let negated = |a| map(a, Self::negated);
        match op {
            FmaOp::Add => Self::fused(a, b, c),
            FmaOp::Sub => Self::fused(a, b, &negated(c)),
            FmaOp::NegAdd => Self::fused(&negated(a), b, c),
            FmaOp::NegSub => Self::fused(&negated(a), b, &negated(c)),
        }
    }
}

macro_rules! floats {
    ($($float:ident, $bits:ident, narrow $narrow:expr;)+) => {$(
        impl Lane for $float {
            fn word(self) -> u64 {
                u64::from(self.to_bits())
            }

            fn of_word(word: u64) -> $float {
                $float::from_bits(word as $bits)
            }

            fn binary<const L: usize>(op: Binary, a: &[$float; L], b: &[$float; L]) -> [$float; L] {
                match op {
                    Binary::Add => zip(a, b, |a, b| a + b),
                    Binary::Sub => zip(a, b, |a, b| a - b),
                    Binary::Mul => zip(a, b, |a, b| a * b),
                    Binary::Div => zip(a, b, |a, b| a / b),
                    Binary::Min => zip(a, b, |a, b| if a < b { a } else { b }),
                    Binary::Max => zip(a, b, |a, b| if a > b { a } else { b }),
                    Binary::Scale => zip(a, b, $float::scale),
                    Binary::And | Binary::Or | Binary::Xor | Binary::AndNot => zip(a, b, |a, b| $float::bitwise(op, a, b)),
                    Binary::JoinLow => quads(a, b, [0, 1, 4, 5]),
                    Binary::JoinHigh => quads(a, b, [2, 3, 6, 7]),
                    Binary::MixLow => quads(a, b, [0, 4, 1, 5]),
                    Binary::MixHigh => quads(a, b, [2, 6, 3, 7]),
                    Binary::MinUnsigned | Binary::MaxUnsigned | Binary::MulHigh | Binary::MulEven | Binary::Shl
                    | Binary::ShrSigned | Binary::ShrUnsigned => {
                        unreachable!("{op:?} is a function of integers")
                    }
                }
            }

            fn compare<const L: usize>(op: Compare, a: &[$float; L], b: &[$float; L]) -> [bool; L] {
                match op {
                    Compare::Lt => zip(a, b, |a, b| a < b),
                    Compare::Le => zip(a, b, |a, b| a <= b),
                    Compare::Eq => zip(a, b, |a, b| a == b),
                    Compare::Ne => zip(a, b, |a, b| a != b),
                    Compare::Unordered => zip(a, b, |a, b| a.is_nan() || b.is_nan()),
                    Compare::LtUnsigned | Compare::LeUnsigned => unreachable!("{op:?} compares integers"),
                }
            }
        }

        impl Float for $float {
            fn fused<const L: usize>(a: &[$float; L], b: &[$float; L], c: &[$float; L]) -> [$float; L] {
                fused::$float(a, b, c)
            }

            fn scale(a: $float, b: $float) -> $float {
                scale::$float(a, b)
            }

            fn negated(a: $float) -> $float {
                -a
            }

            fn unary<const L: usize>(op: Unary, a: &[$float; L]) -> [$float; L] {
                match op {
                    Unary::Sqrt => map(a, $float::sqrt),
                    Unary::Floor => map(a, $float::floor),
                    Unary::Ceil => map(a, $float::ceil),
                    Unary::Round => map(a, $float::round_ties_even),
                    Unary::Trunc => map(a, $float::trunc),
                    Unary::RoundF16 | Unary::RoundBf16 => $narrow(op, a),
                    Unary::Swap => unreachable!("{op:?} is a function of I32"),
                }
            }
        }
    )+};
}

floats! {
    f32, u32, narrow round_narrow;
    f64, u64, narrow |op, _| unreachable!("{op:?} is a function of F32");
}

fn round_narrow<const L: usize>(op: Unary, a: &[f32; L]) -> [f32; L] {
    match op {
        Unary::RoundF16 => map(a, |x| f16_to_f32(f32_to_f16(x))),
        _ => map(a, |x| bf16_to_f32(f32_to_bf16(x))),
    }
}

macro_rules! integers {
    ($($int:ident, $unsigned:ident, high $high:expr;)+) => {$(
        impl Lane for $int {
            fn word(self) -> u64 {
                u64::from(self as $unsigned)
            }

            fn of_word(word: u64) -> $int {
                word as $int
            }

            fn binary<const L: usize>(op: Binary, a: &[$int; L], b: &[$int; L]) -> [$int; L] {
                let within = |b: $int| (0..$int::BITS as $int).contains(&b);
                match op {
                    Binary::Add => zip(a, b, $int::wrapping_add),
                    Binary::Sub => zip(a, b, $int::wrapping_sub),
                    Binary::Mul => zip(a, b, $int::wrapping_mul),
                    Binary::Min => zip(a, b, Ord::min),
                    Binary::Max => zip(a, b, Ord::max),
                    Binary::MinUnsigned => zip(a, b, |a, b| (a as $unsigned).min(b as $unsigned) as $int),
                    Binary::MaxUnsigned => zip(a, b, |a, b| (a as $unsigned).max(b as $unsigned) as $int),
                    Binary::MulHigh => zip(a, b, $high),
                    Binary::MulEven => {
                        let [low, high] = [zip(a, b, $int::wrapping_mul), zip(a, b, $high)];
                        std::array::from_fn(|lane| if lane % 2 == 0 { low[lane] } else { high[lane - 1] })
                    }
                    Binary::JoinLow => quads(a, b, [0, 1, 4, 5]),
                    Binary::JoinHigh => quads(a, b, [2, 3, 6, 7]),
                    Binary::MixLow => quads(a, b, [0, 4, 1, 5]),
                    Binary::MixHigh => quads(a, b, [2, 6, 3, 7]),
                    Binary::Shl => zip(a, b, |a, b| if within(b) { a << b } else { 0 }),
                    Binary::ShrSigned => zip(a, b, |a, b| a >> if within(b) { b } else { $int::BITS as $int - 1 }),
                    Binary::ShrUnsigned => {
                        zip(a, b, |a, b| if within(b) { ((a as $unsigned) >> b) as $int } else { 0 })
                    }
                    Binary::And | Binary::Or | Binary::Xor | Binary::AndNot => zip(a, b, |a, b| $int::bitwise(op, a, b)),
                    Binary::Div | Binary::Scale => unreachable!("{op:?} is a function of floats"),
                }
            }

            fn compare<const L: usize>(op: Compare, a: &[$int; L], b: &[$int; L]) -> [bool; L] {
                match op {
                    Compare::Lt => zip(a, b, |a, b| a < b),
                    Compare::Le => zip(a, b, |a, b| a <= b),
                    Compare::Eq => zip(a, b, |a, b| a == b),
                    Compare::Ne => zip(a, b, |a, b| a != b),
                    Compare::LtUnsigned => zip(a, b, |a, b| (a as $unsigned) < b as $unsigned),
                    Compare::LeUnsigned => zip(a, b, |a, b| a as $unsigned <= b as $unsigned),
                    Compare::Unordered => unreachable!("{op:?} compares floats"),
                }
            }
        }
    )+};
}

integers! {
    i32, u32, high |a, b| ((u64::from(a as u32) * u64::from(b as u32)) >> 32) as i32;
    i64, u64, high |_, _| unreachable!("MulHigh is a function of I32");
}

/// Within every four lanes, those of a (0 to 3) and of b (4 to 7) that are listed.
fn quads<T: Copy, const L: usize>(a: &[T; L], b: &[T; L], taken: [usize; 4]) -> [T; L] {
    std::array::from_fn(|lane| {
        let (quad, place) = (lane / 4 * 4, taken[lane % 4]);
        if place < 4 { a[quad + place] } else { b[quad + place - 4] }
    })
}

/// The lanes with these numbers, modulo how many there are.
pub(super) fn pick<T: Copy, const L: usize>(from: &[T; L], lanes: &[i32; L]) -> [T; L] {
    std::array::from_fn(|lane| from[lanes[lane] as u32 as usize % L])
}

/// Lanes 2k and 2k + 1 change places.
pub(super) fn swap<T: Copy, const L: usize>(a: &[T; L]) -> [T; L] {
    std::array::from_fn(|lane| a[lane ^ 1])
}

/// A function of two masks.
pub(super) fn logic<const L: usize>(op: Binary, a: &[bool; L], b: &[bool; L]) -> [bool; L] {
    match op {
        Binary::And => zip(a, b, |a, b| a & b),
        Binary::Or => zip(a, b, |a, b| a | b),
        Binary::Xor => zip(a, b, |a, b| a ^ b),
        Binary::AndNot => zip(a, b, |a, b| !a & b),
        _ => unreachable!("{op:?} is no function of masks"),
    }
}

/// The second where the mask holds, otherwise the third.
pub(super) fn select<T: Copy, const L: usize>(mask: &[bool; L], a: &[T; L], b: &[T; L]) -> [T; L] {
    let mut out = *b;
    for k in 0..L {
        out[k] = if mask[k] { a[k] } else { b[k] };
    }
    out
}

/// Integers that floats become, towards zero; the least integer where there is none.
pub(super) mod truncate {
    /// Of an f32.
    pub(in super::super) fn f32_to_i32(x: f32) -> i32 {
        // Below the least, and for the other comparison's NaN, `as` and the branch give what is asked for.
        if x < 2_147_483_648.0 { x as i32 } else { i32::MIN }
    }

    /// Of an f32.
    pub(in super::super) fn f32_to_i64(x: f32) -> i64 {
        if x < 9_223_372_036_854_775_808.0 { x as i64 } else { i64::MIN }
    }

    /// Of an f64.
    pub(in super::super) fn f64_to_i32(x: f64) -> i32 {
        if x < 2_147_483_648.0 { x as i32 } else { i32::MIN }
    }

    /// Of an f64.
    pub(in super::super) fn f64_to_i64(x: f64) -> i64 {
        if x < 9_223_372_036_854_775_808.0 { x as i64 } else { i64::MIN }
    }
}

mod fused {
    /// Through f64, where products are exact, so that the sum is rounded there and then to f32. That is as good as once, unless
    /// the first rounding made a tie of what was none.
    #[cfg(not(any(target_feature = "fma", target_arch = "aarch64")))]
    pub(super) fn f32<const L: usize>(a: &[f32; L], b: &[f32; L], c: &[f32; L]) -> [f32; L] {
        let mut sums = [0.0; L];
        let mut ties = false;
        for k in 0..L {
            sums[k] = f64::from(a[k]) * f64::from(b[k]) + f64::from(c[k]);
            ties |= may_be_a_tie(sums[k]);
        }
        if ties {
            for k in 0..L {
                sums[k] = to_odd(f64::from(a[k]) * f64::from(b[k]), f64::from(c[k]));
            }
        }
        sums.map(|sum| sum as f32)
    }

    /// Whether a number lies halfway between two f32. Below their normal numbers, ties are elsewhere: all but 0 may be some.
    #[cfg(not(any(target_feature = "fma", target_arch = "aarch64")))]
    fn may_be_a_tie(x: f64) -> bool {
        let halfway = x.to_bits() & 0x1fff_ffff == 0x1000_0000;
        halfway | ((x.abs() < f64::from(f32::MIN_POSITIVE)) & (x != 0.0))
    }

    /// The sum, rounded to odd: rounded again to f32, that is as good as rounding once.
    #[cfg(not(any(target_feature = "fma", target_arch = "aarch64")))]
    fn to_odd(a: f64, b: f64) -> f64 {
        let sum = a + b;
        let added = sum - a;
        let error = (a - (sum - added)) + (b - added);
        // The error of an infinite or undefined sum is NaN.
        let inexact = error.abs() > 0.0;
        let bits = sum.to_bits();
        let towards = if (error > 0.0) == (sum > 0.0) { bits.wrapping_add(1) } else { bits.wrapping_sub(1) };
        f64::from_bits(if inexact && bits & 1 == 0 { towards } else { bits })
    }

    #[cfg(any(target_feature = "fma", target_arch = "aarch64"))]
    pub(super) fn f32<const L: usize>(a: &[f32; L], b: &[f32; L], c: &[f32; L]) -> [f32; L] {
        std::array::from_fn(|k| a[k].mul_add(b[k], c[k]))
    }

    pub(super) fn f64<const L: usize>(a: &[f64; L], b: &[f64; L], c: &[f64; L]) -> [f64; L] {
        std::array::from_fn(|k| a[k].mul_add(b[k], c[k]))
    }
}

mod scale {
    /// 2^e for −1022 ≤ e ≤ 1023.
    fn power(e: i64) -> f64 {
        f64::from_bits(((1023 + e) as u64) << 52)
    }

    pub(super) fn f32(a: f32, b: f32) -> f32 {
        // f64 holds every a·2^e exactly that does not end at 0 or ∞ as an f32, and those of e = ±300 do.
        let e = b.floor().clamp(-300.0, 300.0);
        if b.is_finite() { (f64::from(a) * power(e as i64)) as f32 } else { a * b.exp2() }
    }

    pub(super) fn f64(a: f64, b: f64) -> f64 {
        if !b.is_finite() {
            return a * b.exp2();
        }
        let mut e = b.floor().clamp(-2200.0, 2200.0) as i64;
        let mut x = a;
        while e > 1023 {
            x *= power(1023);
            e -= 1023;
        }
        // Steps that leave 53 bits to spare: only the last one may reach subnormals, so that there is one rounding.
        while e < -1022 {
            x *= power(-969);
            e += 969;
        }
        x * power(e)
    }
}

/// The f32 that an f16 is.
pub(super) fn f16_to_f32(h: u16) -> f32 {
    let sign = u32::from(h & 0x8000) << 16;
    let magnitude = u32::from(h & 0x7fff);
    let finite = (f32::from_bits(magnitude << 13) * f32::from_bits(0x7780_0000)).to_bits();
    let quiet = if magnitude > 0x7c00 { 0x0040_0000 } else { 0 };
    let special = 0x7f80_0000 | (magnitude << 13) | quiet;
    f32::from_bits(sign | if magnitude >= 0x7c00 { special } else { finite })
}

/// The nearest f16, ties to even.
pub(super) fn f32_to_f16(x: f32) -> u16 {
    let sign = (x.to_bits() >> 16) & 0x8000;
    let magnitude = x.to_bits() & 0x7fff_ffff;
    // 65520 lies halfway between the largest f16 and what would follow.
    let normal = magnitude.wrapping_sub(112 << 23).wrapping_add(0xfff + ((magnitude >> 13) & 1)) >> 13;
    // The sum has its last bit at 2^−24, as subnormals have.
    let subnormal = (f32::from_bits(magnitude) + 0.5).to_bits().wrapping_sub(0.5f32.to_bits());
    let nan = 0x7e00 | ((magnitude >> 13) & 0x3ff);
    let h = match magnitude {
        0x7f80_0001.. => nan,
        0x477f_f000.. => 0x7c00,
        0x3880_0000.. => normal,
        _ => subnormal,
    };
    (sign | h) as u16
}

/// The f32 that a bf16 is.
pub(super) fn bf16_to_f32(h: u16) -> f32 {
    f32::from_bits(u32::from(h) << 16)
}

/// The nearest bf16, ties to even.
pub(super) fn f32_to_bf16(x: f32) -> u16 {
    let bits = x.to_bits();
    let rounded = bits.wrapping_add(0x7fff + ((bits >> 16) & 1)) >> 16;
    let nan = (bits >> 16) | 0x40;
    (if x.is_nan() { nan } else { rounded }) as u16
}

#[cfg(test)]
mod tests {
    use fuseline::philox;
    use fuseline::tensor::DType;

    use super::*;

    /// Floats of every sort: any bits, and many of like size, whose sums cancel.
    fn floats(stream: u64) -> impl Iterator<Item = f32> {
        let special = [0.0, -0.0, 1.0, -1.0, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, f32::MAX, f32::MIN_POSITIVE];
        let words = philox::words(7, stream, 0);
        words.map(move |word| match word % 8 {
            0 => special[(word >> 8) as usize % special.len()],
            1 | 2 => f32::from_bits(0x3f80_0000 ^ (word & 0x8180_0000) | (word >> 28)),
            3 => f32::from_bits(word & 0x80ff_ffff),
            _ => f32::from_bits(word),
        })
    }

    fn same(a: f32, b: f32) -> bool {
        a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan()
    }

    #[test]
    fn halves_are_the_nearest() {
        let halfway = (0..0x7c00u16).flat_map(|h| {
            let middle = f64::midpoint(f64::from(f16_to_f32(h)), f64::from(f16_to_f32(h + 1))) as f32;
            [middle.next_down(), middle, middle.next_up(), -middle]
        });
        for x in floats(0).take(100_000).chain(halfway) {
            let exact = f64::from(x);
            assert!(same(f16_to_f32(f32_to_f16(x)), DType::F16.round(exact) as f32), "f16 of {x:e}");
            assert!(same(bf16_to_f32(f32_to_bf16(x)), DType::BF16.round(exact) as f32), "bf16 of {x:e}");
        }
        for h in 0..=u16::MAX {
            let nan = h & 0x7fff > 0x7c00;
            assert!(nan && f16_to_f32(h).is_nan() || f32_to_f16(f16_to_f32(h)) == h, "{h:x}");
            let nan = h & 0x7fff > 0x7f80;
            assert!(nan && bf16_to_f32(h).is_nan() || f32_to_bf16(bf16_to_f32(h)) == h, "{h:x}");
        }
    }

    #[test]
    fn fused_products_round_once() {
        for ((a, b), c) in floats(1).zip(floats(2)).zip(floats(3)).take(300_000) {
            for c in [c, -(a * b), -(a * b).next_up()] {
                assert!(same(fused::f32(&[a], &[b], &[c])[0], a.mul_add(b, c)), "{a:e} * {b:e} + {c:e}");
            }
        }
    }

    #[test]
    fn scaling_is_a_product() {
        for (a, e) in floats(4).zip((-320..=320).cycle()).take(100_000) {
            // Powers of two below 2^-149 or above 2^127 are no f32: the product is taken in f64, where it is exact.
            let exact = f64::from(a) * f64::from(e).exp2();
            assert!(same(scale::f32(a, e as f32 + 0.5), exact as f32), "{a:e} by {e}");
        }
        for (a, b, expected) in [
            (1.0, f64::INFINITY, f64::INFINITY),
            (3.0, f64::NEG_INFINITY, 0.0),
            (0.0, f64::INFINITY, f64::NAN),
            (f64::INFINITY, f64::NEG_INFINITY, f64::NAN),
            (f64::NAN, 1.0, f64::NAN),
            (1.0, f64::NAN, f64::NAN),
            (f64::INFINITY, -5000.0, f64::INFINITY),
            (-0.0, 5000.0, -0.0),
            (f64::MAX, -2098.0, f64::from_bits(1)),
            (f64::from_bits(1), 2097.9, f64::from_bits(0x7fe0_0000_0000_0000)),
            (1.0, -0.5, 0.5),
            (1.5, -1074.0, f64::from_bits(2)),
            (f64::from_bits(0x3ff8_0000_0000_0001), -1075.0, f64::from_bits(1)),
        ] {
            let found = scale::f64(a, b);
            assert!(found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan(), "{a:e} by {b}");
            if f64::from(a as f32) == a {
                assert!(same(scale::f32(a as f32, b as f32), expected as f32), "{a:e} by {b}");
            }
        }
    }

    #[test]
    fn what_is_no_integer_becomes_the_least() {
        for x in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 1e30, -1e30] {
            assert_eq!((truncate::f64_to_i32(x), truncate::f64_to_i64(x)), (i32::MIN, i64::MIN), "{x}");
            assert_eq!((truncate::f32_to_i32(x as f32), truncate::f32_to_i64(x as f32)), (i32::MIN, i64::MIN), "{x}");
        }
        assert_eq!(truncate::f64_to_i32(2_147_483_647.9), i32::MAX);
        assert_eq!(truncate::f64_to_i32(-2_147_483_648.9), i32::MIN);
        assert_eq!(truncate::f64_to_i32(-1.9), -1);
        assert_eq!(truncate::f32_to_i64(1e18), 999_999_984_306_749_440);
    }

    #[test]
    fn shifts_by_too_much() {
        let (a, by) = ([-8, 8, -8, 8], [31, 32, -1, 2]);
        assert_eq!(i32::binary(Binary::Shl, &a, &by), [0, 0, 0, 32]);
        assert_eq!(i32::binary(Binary::ShrSigned, &a, &by), [-1, 0, -1, 2]);
        assert_eq!(i32::binary(Binary::ShrUnsigned, &a, &by), [1, 0, 0, 2]);
        assert_eq!(i64::binary(Binary::ShrSigned, &[-8, 8], &[64, i64::MIN]), [-1, 0]);
    }

    #[test]
    fn the_second_where_there_is_no_order() {
        let (a, b) = ([f32::NAN, 1.0, 0.0, -0.0], [1.0, f32::NAN, -0.0, 0.0]);
        for op in [Binary::Min, Binary::Max] {
            assert_eq!(f32::binary(op, &a, &b).map(f32::to_bits), b.map(f32::to_bits));
        }
    }

    #[test]
    fn folds_are_butterflies() {
        let x: [f64; 4] = [1.0, 2.0, 4.0, 8.0];
        let sub = |a: f64, b: f64, c: f64, d: f64| (a - b) - (c - d);
        let expected = [sub(1., 2., 4., 8.), sub(2., 1., 8., 4.), sub(4., 8., 1., 2.), sub(8., 4., 2., 1.)];
        assert_eq!(fold(Binary::Sub, &x), expected);
        assert_eq!(fold(Binary::Add, &[7i32; 16]), [112; 16]);
    }
}
