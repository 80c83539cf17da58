//! The table of element types, and the conversion between their bits and numbers.

/// What sort of number an element type holds; decides which column of the scalar table gives its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Class {
    /// false or true, stored as one byte, 0 or 1
    Bool,
    /// an unsigned integer; arithmetic wraps
    Unsigned,
    /// a two's complement integer; arithmetic wraps
    Signed,
    /// an IEEE-like binary floating-point number
    Float,
}

/// The layout of a binary floating-point format: a sign bit, then exponent and mantissa, and what is no number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatFormat {
    /// width of the exponent field
    pub exponent_bits: u32,
    /// width of the stored mantissa field
    pub mantissa_bits: u32,
    /// what the exponent field holds for numbers from 1 up to 2
    pub bias: i32,
    /// which bits are no numbers
    pub specials: Specials,
}

/// Which bits of a float format are infinities, NaN or otherwise not as the fields say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Specials {
    /// IEEE: exponents of all ones are infinities and NaN
    Infinities,
    /// all ones are NaN, of either sign; there are no infinities
    AllOnes,
    /// the bits of −0 are NaN; there are no infinities
    NegativeZero,
    /// every pattern is a number; what is too large becomes the largest, NaN becomes −0
    None,
    /// powers of two without sign and zero; all ones are NaN
    Scale,
}

macro_rules! dtypes {
    ($($Variant:ident, $name:literal, bits $bits:literal, $class:ident, $doc:literal;)+) => {
        /// The type of a tensor's elements.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum DType { $(#[doc = $doc] $Variant),+ }

        impl DType {
            /// Every row of the table.
            pub const ALL: &'static [DType] = &[$(DType::$Variant),+];

            /// The name used in text forms and messages.
            pub const fn name(self) -> &'static str { match self { $(DType::$Variant => $name),+ } }

            /// Width of one stored element in bits.
            pub const fn bits(self) -> usize { match self { $(DType::$Variant => $bits),+ } }

            /// What sort of number it holds.
            pub const fn class(self) -> Class { match self { $(DType::$Variant => Class::$class),+ } }
        }
    };
}

dtypes! {
//  variant  name    width    class     doc
    Bool,    "bool", bits 8,  Bool,     "truth values";
    U8,      "u8",   bits 8,  Unsigned, "8-bit unsigned integers";
    U16,     "u16",  bits 16, Unsigned, "16-bit unsigned integers";
    U32,     "u32",  bits 32, Unsigned, "32-bit unsigned integers";
    U64,     "u64",  bits 64, Unsigned, "64-bit unsigned integers";
    I8,      "i8",   bits 8,  Signed,   "8-bit integers";
    I16,     "i16",  bits 16, Signed,   "16-bit integers";
    I32,     "i32",  bits 32, Signed,   "32-bit integers";
    I64,     "i64",  bits 64, Signed,   "64-bit integers";
    F16,     "f16",  bits 16, Float,    "IEEE half precision";
    BF16,    "bf16", bits 16, Float,    "bfloat16: the upper half of an f32";
    F32,     "f32",  bits 32, Float,    "IEEE single precision";
    F64,     "f64",  bits 64, Float,    "IEEE double precision";
//  narrow types, for storage: below eight bits the first element lies in the low bits of a byte
    U2,      "u2",   bits 2,  Unsigned, "2-bit unsigned integers";
    U4,      "u4",   bits 4,  Unsigned, "4-bit unsigned integers";
    I2,      "i2",   bits 2,  Signed,   "2-bit integers";
    I4,      "i4",   bits 4,  Signed,   "4-bit integers";
    F4E2M1,  "f4e2m1", bits 4, Float,   "4-bit floats up to 6, without infinities and NaN";
    F8E4M3,  "f8e4m3", bits 8, Float,   "8-bit floats up to 448, without infinities";
    F8E4M3Z, "f8e4m3z", bits 8, Float,  "8-bit floats up to 240, without infinities and −0";
    F8E5M2,  "f8e5m2", bits 8, Float,   "8-bit floats up to 57344, as IEEE";
    F8E5M2Z, "f8e5m2z", bits 8, Float,  "8-bit floats up to 57344, without infinities and −0";
    F8E8M0,  "f8e8m0", bits 8, Float,   "powers of two from 2^−127 to 2^127, for scales";
}

impl DType {
    /// The row with this name.
    pub fn from_name(name: &str) -> Option<DType> {
        DType::ALL.iter().copied().find(|d| d.name() == name)
    }

    /// Bytes that `count` elements occupy, or `None` on overflow.
    pub fn bytes(self, count: usize) -> Option<usize> {
        count.checked_mul(self.bits())?.checked_add(7).map(|bits| bits / 8)
    }

    /// Whether this is a floating-point type.
    pub fn is_float(self) -> bool {
        self.class() == Class::Float
    }

    /// Whether this is an integer type (bool is not).
    pub fn is_int(self) -> bool {
        matches!(self.class(), Class::Signed | Class::Unsigned)
    }

    /// The float layout, for float types.
    pub fn format(self) -> Option<FloatFormat> {
        use Specials::{AllOnes, Infinities, NegativeZero, Scale};
        let (exponent_bits, mantissa_bits, bias, specials) = match self {
            DType::F16 => (5, 10, 15, Infinities),
            DType::BF16 => (8, 7, 127, Infinities),
            DType::F32 => (8, 23, 127, Infinities),
            DType::F64 => (11, 52, 1023, Infinities),
            DType::F4E2M1 => (2, 1, 1, Specials::None),
            DType::F8E4M3 => (4, 3, 7, AllOnes),
            DType::F8E4M3Z => (4, 3, 8, NegativeZero),
            DType::F8E5M2 => (5, 2, 15, Infinities),
            DType::F8E5M2Z => (5, 2, 16, NegativeZero),
            DType::F8E8M0 => (8, 0, 127, Scale),
            _ => return None,
        };
        Some(FloatFormat { exponent_bits, mantissa_bits, bias, specials })
    }

    /// Distance from 1 to the next larger number of a float type; 0 for exact types.
    pub fn epsilon(self) -> f64 {
        self.format().map_or(0.0, |f| (-(f64::from(f.mantissa_bits))).exp2())
    }

    /// The smallest and largest value of an integer or bool type.
    pub fn int_range(self) -> Option<(i128, i128)> {
        match self.class() {
            Class::Bool => Some((0, 1)),
            Class::Unsigned => Some((0, (1i128 << self.bits()) - 1)),
            Class::Signed => Some((-(1i128 << (self.bits() - 1)), (1i128 << (self.bits() - 1)) - 1)),
            Class::Float => None,
        }
    }

    /// The largest finite value of a float type.
    pub fn max_float(self) -> Option<f64> {
        self.format().map(|format| format.decode(format.max_bits()))
    }

    /// The nearest number of a float type (ties to even), an infinity or NaN where it is too large; `x` itself for the
    /// other types.
    pub fn round(self, x: f64) -> f64 {
        match self {
            DType::F32 => f64::from(x as f32),
            DType::F64 => x,
            _ => self.format().map_or(x, |format| format.decode(format.encode(x))),
        }
    }

    /// The bits that store the nearest number of a float type; 0 for the other types.
    pub fn to_bits(self, x: f64) -> u64 {
        match self {
            DType::F64 => x.to_bits(),
            DType::F32 => u64::from((x as f32).to_bits()),
            _ => self.format().map_or(0, |format| format.encode(x)),
        }
    }

    /// The number of a float type that these bits store; 0 for the other types.
    pub fn from_bits(self, bits: u64) -> f64 {
        match self {
            DType::F64 => f64::from_bits(bits),
            DType::F32 => f64::from(f32::from_bits(bits as u32)),
            _ => self.format().map_or(0.0, |format| format.decode(bits)),
        }
    }

    /// The low bits of `x`, read as a number of this integer type; for bool, whether `x` is not 0.
    pub fn wrap(self, x: i128) -> i128 {
        let unused = 128 - self.bits();
        match self.class() {
            Class::Bool => i128::from(x != 0),
            Class::Unsigned => ((x as u128) << unused >> unused) as i128,
            Class::Signed => x << unused >> unused,
            Class::Float => x,
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl FloatFormat {
    fn sign_bit(self) -> u64 {
        if self.specials == Specials::Scale { 0 } else { 1 << (self.exponent_bits + self.mantissa_bits) }
    }

    /// Exponent and mantissa of all ones.
    fn all_ones(self) -> u64 {
        (1 << (self.exponent_bits + self.mantissa_bits)) - 1
    }

    /// The exponent field of all ones.
    fn top_exponent(self) -> u64 {
        (1 << self.exponent_bits) - 1
    }

    /// The bits of the largest finite number.
    pub fn max_bits(self) -> u64 {
        match self.specials {
            Specials::Infinities => (self.top_exponent() << self.mantissa_bits) - 1,
            Specials::AllOnes | Specials::Scale => self.all_ones() - 1,
            Specials::NegativeZero | Specials::None => self.all_ones(),
        }
    }

    /// The bits of NaN with a sign, or what stands for it.
    fn nan_bits(self, sign: u64) -> u64 {
        match self.specials {
            Specials::Infinities => {
                sign | (self.top_exponent() << self.mantissa_bits) | (1 << (self.mantissa_bits - 1))
            }
            Specials::AllOnes | Specials::Scale => sign | self.all_ones(),
            Specials::NegativeZero | Specials::None => self.sign_bit(),
        }
    }

    /// The bits for what is too large: infinity, else NaN, else the largest number.
    fn overflow_bits(self, sign: u64) -> u64 {
        match self.specials {
            Specials::Infinities => sign | self.top_exponent() << self.mantissa_bits,
            Specials::None => sign | self.max_bits(),
            _ => self.nan_bits(sign),
        }
    }

    /// The bits of the nearest number, ties to even; what is too large becomes infinity or, without one, NaN.
    pub fn encode(self, x: f64) -> u64 {
        let sign = if x.is_sign_negative() { self.sign_bit() } else { 0 };
        if x.is_nan() {
            return self.nan_bits(sign);
        }
        let a = x.abs();
        if a == 0.0 {
            return if self.specials == Specials::NegativeZero { 0 } else { sign };
        }
        if a.is_infinite() {
            return self.overflow_bits(sign);
        }
        if self.specials == Specials::Scale {
            return self.encode_scale(x);
        }
        let exponent = ((a.to_bits() >> 52) as i32) - 1023;
        if exponent >= 1 - self.bias && self.mantissa_bits < 52 {
            // Among normal numbers only bits are left out; a carry out of the mantissa adds one to the exponent, as it should.
            let lost = 52 - self.mantissa_bits;
            let half = (1 << (lost - 1)) - 1 + (a.to_bits() >> lost & 1);
            let bits = ((a.to_bits() + half) >> lost) - (((1023 - self.bias) as u64) << self.mantissa_bits);
            return if bits > self.max_bits() { self.overflow_bits(sign) } else { sign | bits };
        }
        // The unit in the last place at this magnitude; below the normal range it stays constant.
        let exponent = exponent.max(1 - self.bias);
        let scaled = a * f64::from(self.mantissa_bits as i32 - exponent).exp2();
        let rounded = scaled.round_ties_even() as u64;
        let normal = 1u64 << self.mantissa_bits;
        let bits = if rounded < normal {
            rounded // subnormal: the biased exponent is 0
        } else {
            // A carry out of the mantissa adds one to the exponent, as it should.
            (((exponent + self.bias) as u64) << self.mantissa_bits) + (rounded - normal)
        };
        match bits {
            0 if self.specials == Specials::NegativeZero => 0,
            bits if bits > self.max_bits() => self.overflow_bits(sign),
            bits => sign | bits,
        }
    }

    /// The nearest power of two, ties to the larger; below the smallest one that, negative numbers NaN.
    fn encode_scale(self, x: f64) -> u64 {
        if x < 0.0 {
            return self.nan_bits(0);
        }
        let field = (x / 0.75).log2().floor() + f64::from(self.bias);
        if field > self.max_bits() as f64 { self.overflow_bits(0) } else { field.max(0.0) as u64 }
    }

    /// The number that these bits stand for.
    pub fn decode(self, bits: u64) -> f64 {
        let mantissa = bits & ((1 << self.mantissa_bits) - 1);
        let exponent = (bits >> self.mantissa_bits) & self.top_exponent();
        let negative = bits & self.sign_bit() != 0;
        let magnitude = bits & self.all_ones();
        let scale = |significand: u64, exponent: u64| {
            significand as f64 * f64::from(exponent as i32 - self.bias - self.mantissa_bits as i32).exp2()
        };
        let is_normal = exponent != 0 && exponent < self.top_exponent() && self.specials != Specials::Scale;
        if is_normal && self.bias < 1023 {
            let bits = (exponent + (1023 - self.bias) as u64) << 52 | mantissa << (52 - self.mantissa_bits);
            return f64::from_bits(bits | u64::from(negative) << 63);
        }
        let x = match self.specials {
            Specials::Infinities if exponent == self.top_exponent() => {
                if mantissa == 0 {
                    f64::INFINITY
                } else {
                    f64::NAN
                }
            }
            Specials::AllOnes | Specials::Scale if magnitude == self.all_ones() => f64::NAN,
            Specials::NegativeZero if negative && magnitude == 0 => return f64::NAN,
            Specials::Scale => scale(1, exponent),
            _ if exponent == 0 => scale(mantissa, 1),
            _ => scale(mantissa | 1 << self.mantissa_bits, exponent),
        };
        if negative { -x } else { x }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pattern_of_a_narrow_float_survives_the_round_trip() {
        for dtype in DType::ALL.iter().copied().filter(|d| d.is_float() && d.bits() <= 16) {
            let format = dtype.format().unwrap();
            for bits in 0..1u64 << dtype.bits() {
                let x = format.decode(bits);
                if x.is_nan() {
                    assert!(format.decode(format.encode(x)).is_nan());
                } else {
                    assert_eq!(format.encode(x), bits, "{dtype} {bits:#06x} {x}");
                }
            }
        }
    }

    #[test]
    fn what_lies_between_two_neighbours_becomes_the_nearer_one_and_in_the_middle_the_even_one() {
        for dtype in DType::ALL.iter().copied().filter(|d| d.is_float() && d.bits() <= 16) {
            let format = dtype.format().unwrap();
            if format.specials == Specials::Scale {
                continue;
            }
            for bits in 0..format.max_bits() {
                let (low, high) = (format.decode(bits), format.decode(bits + 1));
                // Neighbours have few digits: their middle is exact.
                let middle = low + (high - low) / 2.0;
                let even = bits + (bits & 1);
                let sign = format.sign_bit();
                for (x, expected) in [(middle.next_down(), bits), (middle, even), (middle.next_up(), bits + 1)] {
                    assert_eq!(format.encode(x), expected, "{dtype} {x:e}");
                    let negative =
                        if expected == 0 && format.specials == Specials::NegativeZero { 0 } else { sign | expected };
                    assert_eq!(format.encode(-x), negative, "{dtype} {:e}", -x);
                }
            }
        }
    }

    #[test]
    fn rounding_is_to_nearest_even_and_overflows_to_infinity() {
        assert_eq!(DType::F16.round(2049.0), 2048.0);
        assert_eq!(DType::F16.round(2051.0), 2052.0);
        assert_eq!(DType::F16.round(2049.0 + 1e-9), 2050.0);
        assert_eq!(DType::F16.round(65520.0), f64::INFINITY);
        assert_eq!(DType::F16.round(65519.9), 65504.0);
        assert_eq!(DType::F16.round(-1e-9), -0.0);
        assert_eq!(DType::BF16.round(1.0 + 1.0 / 256.0), 1.0);
        assert_eq!(DType::F16.max_float(), Some(65504.0));
        assert_eq!(DType::F64.max_float(), Some(f64::MAX));
        assert_eq!(DType::F32.max_float(), Some(f64::from(f32::MAX)));
    }

    #[test]
    fn eight_bits_hold_what_their_tables_say() {
        let largest = [(DType::F8E4M3, 448.0), (DType::F8E4M3Z, 240.0), (DType::F8E5M2, 57344.0)];
        for (dtype, max) in largest.into_iter().chain([(DType::F8E5M2Z, 57344.0), (DType::F4E2M1, 6.0)]) {
            assert_eq!(dtype.max_float(), Some(max), "{dtype}");
            assert_eq!((dtype.round(max), dtype.round(-max)), (max, -max), "{dtype}");
        }
        assert_eq!(DType::F8E4M3.round(464.0), 448.0); // a tie, to even
        assert!(DType::F8E4M3.round(464.1).is_nan() && DType::F8E4M3.round(f64::INFINITY).is_nan());
        assert!(DType::F8E4M3Z.round(248.0).is_nan() && DType::F8E4M3Z.round(247.9) == 240.0);
        assert_eq!(DType::F8E5M2.round(61440.0), f64::INFINITY);
        assert_eq!(DType::F8E4M3.to_bits(f64::NAN), 0x7f);
        assert_eq!((DType::F8E4M3Z.to_bits(f64::NAN), DType::F8E4M3Z.to_bits(-0.0)), (0x80, 0));
        assert_eq!((DType::F8E4M3.to_bits(0.001953125), DType::F8E4M3Z.to_bits(0.0009765625)), (1, 1));
        let all: Vec<f64> = (0..8).map(|bits| DType::F4E2M1.from_bits(bits)).collect();
        assert_eq!(all, [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]);
        assert_eq!((DType::F4E2M1.round(-100.0), DType::F4E2M1.round(0.25)), (-6.0, 0.0));
        assert_eq!(DType::F4E2M1.to_bits(f64::NAN), 0x8);
        assert_eq!(
            (DType::F8E8M0.round(3.0), DType::F8E8M0.round(2.9), DType::F8E8M0.round(0.0)),
            (4.0, 2.0, (-127f64).exp2())
        );
        assert_eq!(DType::F8E8M0.max_float(), Some(127f64.exp2()));
        assert!(DType::F8E8M0.round(-1.0).is_nan() && DType::F8E8M0.round(1e39).is_nan());
    }

    #[test]
    fn integers_wrap() {
        assert_eq!(DType::I8.wrap(200), -56);
        assert_eq!(DType::U8.wrap(-1), 255);
        assert_eq!(DType::Bool.wrap(7), 1);
        assert_eq!((DType::I4.wrap(9), DType::U4.wrap(-1), DType::I2.wrap(2), DType::U2.wrap(7)), (-7, 15, -2, 3));
        assert_eq!((DType::U64.wrap(-1), DType::I64.wrap(1 << 63)), (u64::MAX.into(), i64::MIN.into()));
    }
}
