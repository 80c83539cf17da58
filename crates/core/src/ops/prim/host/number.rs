//! Numbers as texts, and texts as numbers.

use super::text::{Texts, Written, leading};
use crate::error::{Error, Result};
use crate::reference::{Buffer, Run};
use crate::tensor::DType;

/// Bytes of the longest number: a sign, 17 digits, a point and an exponent of five bytes.
pub(super) const LONGEST: usize = 24;

/// Numbers as texts. The standard asks for plain or scientific notation and for `NaN`, `INF` and `-INF`; digits and exponents are those
/// of C's `%g` with 8 digits, or 17 for f64, as ONNX Runtime has them.
pub(super) fn print(x: &Buffer, run: &Run<'_>) -> Result<Buffer> {
    let mut written = Written::new(x.sizes().to_vec(), LONGEST, LONGEST, run)?;
    run.reserve_work(&[], x.count())?;
    let dtype = x.dtype();
    if dtype.is_float() {
        let digits = if dtype == DType::F64 { 17 } else { 8 };
        x.to_floats().iter().for_each(|x| written.push([&general(*x, digits), ""]));
    } else if dtype == DType::U64 {
        x.to_ints().iter().for_each(|x| written.push([&(*x as u64).to_string(), ""]));
    } else {
        x.to_ints().iter().for_each(|x| written.push([&x.to_string(), ""]));
    }
    Ok(written.tensor())
}

/// A number with so many digits that matter, zeros at the end left out: plain where its exponent is small, otherwise scientific.
fn general(x: f64, digits: i32) -> String {
    if x.is_nan() {
        return "NaN".into();
    }
    if x.is_infinite() {
        return if x > 0.0 { "INF" } else { "-INF" }.into();
    }
    let places = |n: i32| usize::try_from(n).unwrap_or(0);
    let short = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_string(),
        false => text.to_string(),
    };
    let scientific = format!("{x:.*e}", places(digits - 1));
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..digits).contains(&exponent) {
        return short(&format!("{x:.*}", places(digits - 1 - exponent)));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", short(mantissa), exponent.abs())
}

/// The numbers that texts say, integers or floats.
pub(super) fn parse(x: &Buffer, whole: bool, run: &Run<'_>) -> Result<Buffer> {
    let all = Texts::of(x, run)?;
    run.reserve_work(&[], all.count())?;
    if whole {
        let values = all.iter().map(|text| integer(text?)).collect::<Result<Vec<i64>>>()?;
        return Ok(Buffer::ints(DType::I64, leading(x), values));
    }
    let values = all.iter().map(|text| float(text?)).collect::<Result<Vec<f64>>>()?;
    Ok(Buffer::floats(DType::F64, leading(x), values))
}

fn float(text: &str) -> Result<f64> {
    text.trim().parse().map_err(|_| Error::invalid(format!("the text \"{text}\" is no number")))
}

/// An integer; what stands behind a point is cut off.
fn integer(text: &str) -> Result<i64> {
    let plain = text.trim();
    match (plain.parse::<i64>(), plain.parse::<u64>()) {
        (Ok(x), _) => Ok(x),
        (_, Ok(x)) => Ok(x as i64),
        _ => float(text).map(|x| x as i64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_are_printed_as_c_does() {
        let of = |x: f64| general(x, 8);
        assert_eq!([0.0, -0.0, 1.0, -2.25, 100.0].map(of), ["0", "-0", "1", "-2.25", "100"]);
        assert_eq!(
            [1e8, 12345678.0, 123456789.0, 1e-4, 1e-5].map(of),
            ["1e+08", "12345678", "1.2345679e+08", "0.0001", "1e-05"]
        );
        assert_eq!([f64::NAN, f64::INFINITY, f64::NEG_INFINITY].map(of), ["NaN", "INF", "-INF"]);
        assert_eq!([f64::from(0.1f32), 99999999.5].map(of), ["0.1", "1e+08"]);
        assert_eq!(general(0.1, 17), "0.10000000000000001");
        assert!(general(-f64::MIN_POSITIVE * 1.234567890123456, 17).len() <= LONGEST);
    }

    #[test]
    fn texts_are_numbers_with_or_without_a_point() {
        assert_eq!(["1.5", "-INF", "1e3", " 7"].map(|x| float(x).unwrap()), [1.5, f64::NEG_INFINITY, 1000.0, 7.0]);
        assert!(float("NaN").unwrap().is_nan() && float("seven").is_err() && float("").is_err());
        assert_eq!(["-3", "18446744073709551615", "2.9"].map(|x| integer(x).unwrap()), [-3, -1, 2]);
    }
}
