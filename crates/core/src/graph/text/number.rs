//! Numbers as text, exactly: floats by the shortest digits that round back, everything else by its bits.

use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::ops::Number;
use crate::tensor::{Class, DType};

/// A number as it stands in the text; its value depends on the type it is read as.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NumberText<'t> {
    /// digits, or one of the words `inf`, `nan`, `true`, `false`
    Plain(&'t str),
    /// `bits(0x…)`
    Bits(u64),
}

/// Whether a number comes next.
pub(crate) fn is_next(cursor: &mut Cursor<'_>) -> bool {
    let rest = cursor.rest();
    let body = rest.strip_prefix('-').unwrap_or(rest);
    if body.starts_with(|c: char| c.is_ascii_digit()) {
        return true;
    }
    let end = body.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(body.len());
    match &body[..end] {
        "inf" | "nan" | "true" | "false" => true,
        "bits" => body[end..].starts_with('('),
        _ => false,
    }
}

/// Reads a number.
pub(crate) fn read<'t>(cursor: &mut Cursor<'t>) -> Result<NumberText<'t>> {
    if !is_next(cursor) {
        return Err(cursor.expected("a number"));
    }
    if cursor.eat_word("bits") {
        cursor.expect("(")?;
        let start = *cursor;
        let text = cursor.number()?;
        let bits = text.strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let bits = bits.ok_or_else(|| start.expected("bits such as 0x7fc00001"))?;
        cursor.expect(")")?;
        return Ok(NumberText::Bits(bits));
    }
    cursor.number().map(NumberText::Plain)
}

impl NumberText<'_> {
    /// The constant of an element type that the text denotes. The bits of a float are those of an f64.
    pub(crate) fn number(self, dtype: DType) -> Result<Number> {
        let refuse = |text: &dyn std::fmt::Display| Error::invalid(format!("{text} is not a number of type {dtype}"));
        match (self, dtype.class()) {
            (NumberText::Bits(bits), Class::Float) => Ok(Number::Float(bits)),
            (NumberText::Bits(bits), _) => Err(refuse(&format_args!("bits({bits:#x})"))),
            (NumberText::Plain(text), Class::Bool) => match text {
                "true" => Ok(Number::Int(1)),
                "false" => Ok(Number::Int(0)),
                _ => Err(refuse(&text)),
            },
            (NumberText::Plain(text), Class::Float) => {
                let value = match text {
                    "nan" => f64::NAN,
                    "inf" => f64::INFINITY,
                    "-inf" => f64::NEG_INFINITY,
                    _ if text.ends_with(|c: char| c.is_ascii_digit()) => text.parse().map_err(|_| refuse(&text))?,
                    _ => return Err(refuse(&text)),
                };
                // What is too large, or an infinity or NaN that the type lacks, is a slip of the pen.
                let rounded = dtype.round(value);
                if (value.is_nan(), value.is_infinite()) != (rounded.is_nan(), rounded.is_infinite()) {
                    return Err(refuse(&text));
                }
                Ok(Number::Float(if value.is_nan() { value.to_bits() } else { rounded.to_bits() }))
            }
            (NumberText::Plain(text), _) => {
                let (low, high) = dtype.int_range().unwrap_or((0, 0));
                let value = text.parse::<i128>().ok().filter(|n| (low..=high).contains(n));
                Ok(Number::Int(value.ok_or_else(|| refuse(&text))? as i64))
            }
        }
    }

    /// The stored bits of an element of a literal. Here `bits(…)` are those of the element itself.
    pub(crate) fn element(self, dtype: DType) -> Result<u64> {
        match self {
            NumberText::Bits(bits) if dtype.bits() == 64 || bits >> dtype.bits() == 0 => Ok(bits),
            NumberText::Bits(bits) => Err(Error::invalid(format!("bits({bits:#x}) are too many for {dtype}"))),
            NumberText::Plain(_) => Ok(match self.number(dtype)? {
                Number::Int(n) => n as u64 & (u64::MAX >> (64 - dtype.bits())),
                Number::Float(bits) => dtype.to_bits(f64::from_bits(bits)),
            }),
        }
    }
}

/// A constant of an element type.
pub(crate) fn text(dtype: DType, number: Number) -> String {
    match number {
        Number::Float(bits) => {
            let plain = float_text(dtype, f64::from_bits(bits));
            match NumberText::Plain(&plain).number(dtype) {
                Ok(back) if back == number => plain,
                _ => format!("bits({bits:#x})"),
            }
        }
        Number::Int(n) if dtype == DType::Bool => if n == 0 { "false" } else { "true" }.to_owned(),
        Number::Int(n) if dtype == DType::U64 => (n as u64).to_string(),
        Number::Int(n) => n.to_string(),
    }
}

/// An element of a literal, given its stored bits.
pub(crate) fn element_text(dtype: DType, bits: u64) -> String {
    let unused = 64 - dtype.bits() as u32;
    let plain = match dtype.class() {
        Class::Bool => if bits == 0 { "false" } else { "true" }.to_owned(),
        Class::Unsigned => bits.to_string(),
        Class::Signed => ((bits << unused) as i64 >> unused).to_string(),
        Class::Float => float_text(dtype, dtype.from_bits(bits)),
    };
    match NumberText::Plain(&plain).element(dtype) {
        Ok(back) if back == bits => plain,
        _ => format!("bits({bits:#x})"),
    }
}

/// The shortest digits that round to `x` in the type; those of an f64 where the type does not hold `x`.
fn float_text(dtype: DType, x: f64) -> String {
    if x.is_nan() {
        return "nan".to_owned();
    }
    if x.is_infinite() {
        return if x > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let rounds_back = |text: &String| text.parse::<f64>().is_ok_and(|y| dtype.round(y).to_bits() == x.to_bits());
    let short = match dtype {
        DType::F64 => None,
        DType::F32 => Some(format!("{:?}", x as f32)).filter(rounds_back),
        _ => (0..9).map(|digits| format!("{x:.digits$e}")).find(rounds_back).map(|e| plain_digits(&e)),
    };
    short.filter(rounds_back).unwrap_or_else(|| format!("{x:?}"))
}

/// A number such as `2.5e-1` without its exponent where that is short.
fn plain_digits(scientific: &str) -> String {
    scientific.parse::<f32>().map_or_else(|_| scientific.to_owned(), |x| format!("{x:?}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_narrow_number_survives() {
        for dtype in DType::ALL.iter().copied().filter(|d| d.bits() <= 16) {
            for bits in 0..1u64 << dtype.bits() {
                let text = element_text(dtype, bits);
                let back = read(&mut Cursor::new(&text)).unwrap().element(dtype).unwrap();
                assert_eq!(back, bits, "{dtype} {text}");
            }
        }
        assert_eq!(element_text(DType::F16, DType::F16.format().unwrap().encode(0.1)), "0.1");
        assert_eq!(element_text(DType::BF16, DType::BF16.format().unwrap().encode(1e30)), "1e30");
    }

    #[test]
    fn constants_survive() {
        let floats = [0.0, -0.0, 1.0, 0.1, -1.5, 1e-45, 5e-324, 1e300, f64::MAX, f64::INFINITY, f64::NEG_INFINITY];
        let payloads = [f64::NAN.to_bits(), (-f64::NAN).to_bits(), 0x7ff8_0000_0000_0001];
        for dtype in [DType::F16, DType::BF16, DType::F32, DType::F64] {
            let bits = floats.iter().map(|x| x.to_bits()).chain(payloads);
            for number in bits.map(Number::Float) {
                let text = text(dtype, number);
                assert_eq!(read(&mut Cursor::new(&text)).unwrap().number(dtype).unwrap(), number, "{dtype} {text}");
            }
        }
        let rounded = text(DType::F32, Number::new(DType::F32, 0.1));
        assert_eq!(
            (rounded.as_str(), text(DType::F32, Number::Float(0.1f64.to_bits())).as_str()),
            ("0.1", "bits(0x3fb999999999999a)")
        );
        for (dtype, n) in
            [(DType::I64, i64::MIN), (DType::U64, -1), (DType::I8, -128), (DType::U8, 255), (DType::Bool, 1)]
        {
            let text = text(dtype, Number::Int(n));
            assert_eq!(read(&mut Cursor::new(&text)).unwrap().number(dtype).unwrap(), Number::Int(n), "{text}");
        }
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let cases = [
            (DType::U8, "256"),
            (DType::U8, "-1"),
            (DType::I32, "1.5"),
            (DType::Bool, "1"),
            (DType::F32, "true"),
            (DType::F32, "1e60"),
            (DType::F32, "infinity"),
            (DType::F32, "0x10"),
            (DType::F64, "-nan"),
            (DType::F8E4M3, "inf"),
            (DType::F8E4M3, "1000.0"),
            (DType::F4E2M1, "nan"),
            (DType::F8E8M0, "-1.0"),
            (DType::I4, "8"),
        ];
        for (dtype, text) in cases {
            assert!(NumberText::Plain(text).number(dtype).is_err(), "{dtype} {text}");
        }
        assert!(NumberText::Bits(0x100).element(DType::U8).is_err());
        assert_eq!(NumberText::Bits(2).element(DType::Bool).unwrap(), 2);
    }
}
