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

/// The layout of a binary floating-point format: one sign bit, then exponent and mantissa, IEEE rules for infinities and NaN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FloatFormat {
    /// width of the exponent field
    pub exponent_bits: u32,
    /// width of the stored mantissa field
    pub mantissa_bits: u32,
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
        let (exponent_bits, mantissa_bits) = match self {
            DType::F16 => (5, 10),
            DType::BF16 => (8, 7),
            DType::F32 => (8, 23),
            DType::F64 => (11, 52),
            _ => return None,
        };
        Some(FloatFormat { exponent_bits, mantissa_bits })
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
        let f = self.format()?;
        let bias = (1i32 << (f.exponent_bits - 1)) - 1;
        Some((2.0 - self.epsilon()) * f64::from(bias).exp2())
    }

    /// The nearest number of a float type (ties to even); `x` itself for the other types.
    pub fn round(self, x: f64) -> f64 {
        match self {
            DType::F32 => f64::from(x as f32),
            DType::F16 | DType::BF16 => {
                let format = self.format().expect("a float type has a format");
                format.decode(format.encode(x))
            }
            _ => x,
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
        match self {
            DType::Bool => i128::from(x != 0),
            DType::U8 => i128::from(x as u8),
            DType::U16 => i128::from(x as u16),
            DType::U32 => i128::from(x as u32),
            DType::U64 => i128::from(x as u64),
            DType::I8 => i128::from(x as i8),
            DType::I16 => i128::from(x as i16),
            DType::I32 => i128::from(x as i32),
            DType::I64 => i128::from(x as i64),
            DType::F16 | DType::BF16 | DType::F32 | DType::F64 => x,
        }
    }
}

impl std::fmt::Display for DType {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.pad(self.name())
    }
}

impl FloatFormat {
    fn bias(self) -> i32 {
        (1 << (self.exponent_bits - 1)) - 1
    }

    /// The bits of the nearest number, ties to even; overflow gives infinity.
    pub fn encode(self, x: f64) -> u64 {
        let sign = (x.to_bits() >> 63) << (self.exponent_bits + self.mantissa_bits);
        let all_ones = ((1u64 << self.exponent_bits) - 1) << self.mantissa_bits;
        if x.is_nan() {
            return sign | all_ones | (1 << (self.mantissa_bits - 1));
        }
        let a = x.abs();
        if a == 0.0 {
            return sign;
        }
        if a.is_infinite() {
            return sign | all_ones;
        }
        // The unit in the last place at this magnitude; below the normal range it stays constant.
        let exponent = (((a.to_bits() >> 52) as i32) - 1023).max(1 - self.bias());
        let scaled = a * f64::from(self.mantissa_bits as i32 - exponent).exp2();
        let rounded = scaled.round_ties_even() as u64;
        let normal = 1u64 << self.mantissa_bits;
        if rounded < normal {
            return sign | rounded; // subnormal: the biased exponent is 0
        }
        // A carry out of the mantissa adds one to the exponent, as it should.
        let bits = (((exponent + self.bias()) as u64) << self.mantissa_bits) + (rounded - normal);
        sign | bits.min(all_ones)
    }

    /// The number that these bits stand for.
    pub fn decode(self, bits: u64) -> f64 {
        let mantissa = bits & ((1 << self.mantissa_bits) - 1);
        let exponent = (bits >> self.mantissa_bits) & ((1 << self.exponent_bits) - 1);
        let negative = (bits >> (self.exponent_bits + self.mantissa_bits)) & 1 == 1;
        let magnitude = if exponent == (1 << self.exponent_bits) - 1 {
            if mantissa == 0 { f64::INFINITY } else { f64::NAN }
        } else if exponent == 0 {
            mantissa as f64 * f64::from(1 - self.bias() - self.mantissa_bits as i32).exp2()
        } else {
            let significand = mantissa | (1 << self.mantissa_bits);
            significand as f64 * f64::from(exponent as i32 - self.bias() - self.mantissa_bits as i32).exp2()
        };
        if negative { -magnitude } else { magnitude }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_f16_and_bf16_pattern_survives_the_round_trip() {
        for dtype in [DType::F16, DType::BF16] {
            let format = dtype.format().unwrap();
            for bits in 0..=0xffffu64 {
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
    fn rounding_is_to_nearest_even_and_overflows_to_infinity() {
        assert_eq!(DType::F16.round(2049.0), 2048.0);
        assert_eq!(DType::F16.round(2051.0), 2052.0);
        assert_eq!(DType::F16.round(2049.0 + 1e-9), 2050.0);
        assert_eq!(DType::F16.round(65520.0), f64::INFINITY);
        assert_eq!(DType::F16.round(65519.9), 65504.0);
        assert_eq!(DType::F16.round(-1e-9), -0.0);
        assert_eq!(DType::BF16.round(1.0 + 1.0 / 256.0), 1.0);
        assert_eq!(DType::F16.max_float(), Some(65504.0));
    }

    #[test]
    fn integers_wrap() {
        assert_eq!(DType::I8.wrap(200), -56);
        assert_eq!(DType::U8.wrap(-1), 255);
        assert_eq!(DType::Bool.wrap(7), 1);
    }
}
