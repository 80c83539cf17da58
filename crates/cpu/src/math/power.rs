//! Powers of f32.
//!
//! |x|^y is 2 to the power of y·log2|x|. That product may be 150, so that its logarithm is needed to 30 bits and more: it is the sum of
//! two floats. A table of 16 numbers brings the mantissa near 1; what is left is a short polynomial.

use super::exponential;
use super::lanes::Lanes;
use super::logarithm::{Split, split};
use crate::vector::{Binary, Unary, Value};

/// The bits of the least mantissa: 16 pieces of 2^19 floats begin here, and 1 lies well within the tenth.
const LEAST_MANTISSA: i32 = 0x3f33_0000;
/// Near one over the numbers of each piece.
#[rustfmt::skip]
const INVERSE: [f32; 16] = [
    1.398_907_1, 1.340_314_1, 1.286_432_1, 1.236_715, 1.190_697_7, 1.147_982_1, 1.108_225_1, 1.071_129_7,
    1.036_437_3, 1.0, 0.948_148_13, 0.895_104_9, 0.847_682_1, 0.805_031_4, 0.766_467_1, 0.731_428_56,
];
/// −log2 of [`INVERSE`] in multiples of 2^−14, so that an exponent can be added without rounding.
#[rustfmt::skip]
const LOG: [f32; 16] = [
    -0.484_313_96, -0.422_546_4, -0.363_403_32, -0.306_518_55, -0.251_831_05, -0.199_096_68, -0.148_254_4, -0.099_121_094,
    -0.051_635_742, 0.0, 0.076_843_26, 0.159_851_07, 0.238_403_32, 0.312_866_2, 0.383_728_03, 0.451_232_9,
];
/// What [`LOG`] leaves of the logarithm.
#[rustfmt::skip]
const LOG_REST: [f32; 16] = [
    1.384_276_4e-5, -2.480_002_5e-5, 2.795_630_8e-5, 5.531_669e-6, 2.390_965_2e-5, -3.492_947_4e-6, 3.437_290_8e-6, -1.206_131_95e-5,
    2.937_494_6e-6, 0.0, -2.763_913_8e-5, 2.027_868_3e-5, 1.420_356_2e-6, 1.679_406e-5, -2.378_861_4e-5, -2.178_287_3e-5,
];
/// (log2(1 + t) − t·log2 e) / t² on |t| ≤ 0.0297.
const CURVE: [f32; 5] = [-0.721_347_5, 0.480_898_3, -0.360_673_7, 0.288_766_4, -0.240_687_98];
const LOG2_E: f32 = std::f32::consts::LOG2_E;
/// log2 e less the f32 next to it.
const LOG2_E_REST: f32 = 1.925_963e-8;

/// x to the power of y, also where either is no ordinary number: as IEEE 754 has it.
pub(super) fn pow(f: &mut Lanes<'_>, x: Value, y: Value) -> Value {
    let a = f.magnitude(x);
    let (log, rest) = log2(f, a);
    let exponent = f.mul(y, log);
    let lost = f.minus_product(exponent, y, log);
    let lost = f.negated(lost);
    let lost = f.fma(y, rest, lost);
    // An exponent beyond every float has lost nothing; what it lost would be no number.
    let size = f.magnitude(exponent);
    let is_small = f.lt(size, 256.0f32);
    let lost = f.select(is_small, lost, 0.0f32);
    let power = exponential::exp2_of_sum(f, exponent, lost);
    // 1 to any power is 1, and so is anything to the power of 0: also what is not a number.
    let is_one = f.eq(a, 1.0f32);
    let is_nothing = f.eq(y, 0.0f32);
    let is_one = f.or(is_one, is_nothing);
    let power = f.select(is_one, 1.0f32, power);
    signed(f, x, y, power)
}

/// The power of |x| with the sign that x gives it: minus where y is odd, no number where y is no integer.
fn signed(f: &mut Lanes<'_>, x: Value, y: Value, power: Value) -> Value {
    let whole = f.0.unary(Unary::Trunc, y);
    let is_integer = f.eq(whole, y);
    let half = f.mul(y, 0.5f32);
    let whole_half = f.0.unary(Unary::Trunc, half);
    let is_even = f.eq(whole_half, half);
    let is_odd = f.binary(Binary::AndNot, is_even, is_integer);
    let sign = f.sign(x);
    let sign = f.select(is_odd, sign, 0.0f32);
    let power = f.or(power, sign);
    let is_negative = f.lt(x, 0.0f32);
    let is_finite = f.lt(f32::NEG_INFINITY, x);
    let is_negative = f.and(is_negative, is_finite);
    let is_undefined = f.binary(Binary::AndNot, is_integer, is_negative);
    f.select(is_undefined, f32::NAN, power)
}

/// log2 of what is not negative, as two floats: the second is small beside the first. Of 0 it is −∞, and ∞ and NaN are theirs.
fn log2(f: &mut Lanes<'_>, x: Value) -> (Value, Value) {
    let Split { e, mantissa, above } = split(f, x, LEAST_MANTISSA);
    let piece = f.binary(Binary::ShrSigned, above, 19);
    let [inverse, log, log_rest] = [INVERSE, LOG, LOG_REST].map(|numbers| f.table(&numbers, piece));
    // mantissa · inverse is 1 + t + lost, exactly.
    let product = f.mul(mantissa, inverse);
    let lost = f.minus_product(product, mantissa, inverse);
    let lost = f.negated(lost);
    let t = f.sub(product, 1.0f32);

    let line = f.mul(t, LOG2_E);
    let line_lost = f.minus_product(line, t, LOG2_E);
    let rest = f.sub(log_rest, line_lost);
    let rest = f.fma(t, LOG2_E_REST, rest);
    // The slope of log2 at 1 + t is that at 1 less t times it, as far as it matters.
    let slope = f.minus_product(LOG2_E, t, LOG2_E);
    let rest = f.fma(lost, slope, rest);
    let square = f.mul(t, t);
    let curve = f.polynomial(t, &CURVE);
    let rest = f.fma(square, curve, rest);

    // The table's logarithm with the exponent is 0 or larger than the line.
    let large = f.add(e, log);
    let (sum, lost) = sum_of(f, large, line);
    let rest = f.add(lost, rest);
    let (sum, rest) = sum_of(f, sum, rest);
    let is_zero = f.eq(x, 0.0f32);
    let sum = f.select(is_zero, f32::NEG_INFINITY, sum);
    let is_finite = f.lt(x, f32::INFINITY);
    (f.select(is_finite, sum, x), rest)
}

/// large + small, and what it loses by rounding.
fn sum_of(f: &mut Lanes<'_>, large: Value, small: Value) -> (Value, Value) {
    let sum = f.add(large, small);
    let back = f.sub(large, sum);
    (sum, f.add(back, small))
}
