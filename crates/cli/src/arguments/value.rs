//! Values that several commands take: models, sizes, element types.

use std::ffi::{OsStr, OsString};
use std::fmt;
use std::num::{IntErrorKind, NonZeroUsize, ParseIntError};
use std::path::{Path, PathBuf};
use std::str::FromStr;

use clap::builder::{OsStringValueParser, PossibleValue, TypedValueParser, ValueParser, ValueParserFactory};
use clap::{Arg, Command};
use fuseline::fuse::DecisionId;
use fuseline::tensor::DType;
use fuseline_session::machine;

use crate::target;

/// Which model is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelName {
    Gallery(String),
    Demo(String),
    File(PathBuf),
}

impl ModelName {
    /// Its file, if it has one.
    pub fn file(&self) -> Option<&Path> {
        match self {
            ModelName::File(path) => Some(path),
            ModelName::Gallery(_) | ModelName::Demo(_) => None,
        }
    }
}

impl ValueParserFactory for ModelName {
    type Parser = ValueParser;

    fn value_parser() -> ValueParser {
        OsStringValueParser::new().try_map(ModelName::read).into()
    }
}

impl ModelName {
    /// A file may have a name that is no text.
    fn read(given: OsString) -> Result<ModelName, String> {
        let Some(text) = given.to_str() else { return Ok(ModelName::File(given.into())) };
        if let Some(name) = text.strip_prefix("demo:") {
            return Ok(ModelName::Demo(name.into()));
        }
        match text.strip_prefix("gallery:") {
            Some("") => Err("a name must follow gallery: (`fuseline gallery` lists them)".into()),
            Some(name) => Ok(ModelName::Gallery(name.into())),
            None if text.is_empty() => Err("the path is empty".into()),
            None => Ok(ModelName::File(given.into())),
        }
    }
}

/// A device to plan for: a name that shells complete, or a file.
#[derive(Clone, Copy, Debug)]
pub struct TargetName;

impl TypedValueParser for TargetName {
    type Value = OsString;

    fn parse_ref(&self, _: &Command, _: Option<&Arg>, value: &OsStr) -> Result<OsString, clap::Error> {
        Ok(value.to_owned())
    }

    fn possible_values(&self) -> Option<Box<dyn Iterator<Item = PossibleValue> + '_>> {
        Some(Box::new(target::names().into_iter().map(PossibleValue::new)))
    }
}

/// A number for a free size; where there is no other, or for another number of the same, the name may be left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeBinding {
    pub name: Option<String>,
    pub size: i64,
}

impl fmt::Display for SizeBinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.name {
            Some(name) => write!(f, "{name}={}", self.size),
            None => write!(f, "{}", self.size),
        }
    }
}

impl FromStr for SizeBinding {
    type Err = String;

    fn from_str(text: &str) -> Result<SizeBinding, String> {
        let Some((name, size)) = text.rsplit_once('=') else {
            let size = text.trim();
            if !size.starts_with(|c: char| c.is_ascii_digit() || c == '-') {
                return Err("a size is given as NAME=SIZE, such as batch=1 (several: batch=1,seq=128)".into());
            }
            return Ok(SizeBinding { name: None, size: parse_size(size)? });
        };
        let name = unquoted(name.trim());
        if name.is_empty() {
            return Err("the name before = is missing".into());
        }
        Ok(SizeBinding { name: Some(name.into()), size: parse_size(size.trim())? })
    }
}

/// A name without the quotes in which reports show one that is no word.
fn unquoted(name: &str) -> &str {
    let bare = |quote: char| name.strip_prefix(quote)?.strip_suffix(quote);
    bare('\'').or_else(|| bare('"')).unwrap_or(name)
}

/// A size with an optional suffix: `128`, `4k`, `1M`, `2G`, or in powers of two `4Ki`, `1Mi`, `2Gi`.
pub fn parse_size(text: &str) -> Result<i64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" | "ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        suffix => return Err(format!("the suffix {suffix} is unknown; use k, M, G, Ki, Mi or Gi")),
    };
    let too_large = || format!("the size {text} does not fit into 64 bits");
    let number: i64 = digits.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => too_large(),
        _ => format!("\"{text}\" is not a size; a size is written as 128, 4k, 1M, 2G, 4Ki, 1Mi or 2Gi"),
    })?;
    if number < 0 {
        return Err(format!("the size {number} is below zero"));
    }
    number.checked_mul(factor).ok_or_else(too_large)
}

/// A whole number, 0 or more.
pub fn whole<T: TryFrom<u64>>(text: &str) -> Result<T, String> {
    let number: u64 = text.parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => "the number does not fit into 64 bits".to_string(),
        _ => "wanted: a whole number, 0 or more".to_string(),
    })?;
    T::try_from(number).map_err(|_| "the number is too large for this machine".to_string())
}

/// Nobody waits for more, and every time is kept.
const MOST_RUNS: usize = 10_000_000;

/// How often something is done before it counts.
pub fn repeats(text: &str) -> Result<usize, String> {
    whole(text).and_then(|number| if number > MOST_RUNS { Err(format!("the most is {MOST_RUNS}")) } else { Ok(number) })
}

/// How often something is done: once at least.
pub fn count(text: &str) -> Result<NonZeroUsize, String> {
    let number: usize = whole(text).map_err(|why| why.replace("0 or more", "1 or more"))?;
    if number > MOST_RUNS {
        return Err(format!("the most is {MOST_RUNS}"));
    }
    NonZeroUsize::new(number).ok_or_else(|| "wanted: a whole number, 1 or more".to_string())
}

/// A number of threads that a machine can have at work.
pub fn thread_count(text: &str) -> Result<NonZeroUsize, String> {
    let most = machine::most_threads();
    let count: NonZeroUsize = text.parse().map_err(|_| format!("wanted: a number from 1 to {most}"))?;
    if count > most { Err(format!("the most is {most} threads")) } else { Ok(count) }
}

/// A decision by its name.
pub fn decision(text: &str) -> Result<DecisionId, String> {
    text.parse().map_err(|_| "wanted: 12 hexadecimal digits, the name that explain lists before a decision".into())
}

/// An element type that is a float.
pub fn float_type(text: &str) -> Result<DType, String> {
    DType::from_name(text).filter(|d| d.is_float()).ok_or_else(|| "wanted: f32, f16, bf16 or f64".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_have_a_limit() {
        assert_eq!(thread_count("3").map(NonZeroUsize::get), Ok(3));
        for wrong in ["0", "-1", "x", "100000"] {
            let most = machine::most_threads().to_string();
            assert!(thread_count(wrong).is_err_and(|error| error.contains(&most)), "{wrong}");
        }
    }

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(parse_size("128"), Ok(128));
        assert_eq!(parse_size("4k"), Ok(4000));
        assert_eq!(parse_size("1Mi"), Ok(1 << 20));
        assert!(parse_size("").is_err() && parse_size("-1").is_err() && parse_size("1T").is_err());
        assert!(parse_size("9999999999G").is_err());
        assert_eq!("a=b=3".parse::<SizeBinding>().unwrap(), SizeBinding { name: Some("a=b".into()), size: 3 });
        assert_eq!("'a.0'=3".parse::<SizeBinding>().unwrap(), SizeBinding { name: Some("a.0".into()), size: 3 });
        assert_eq!("1M".parse::<SizeBinding>().unwrap(), SizeBinding { name: None, size: 1_000_000 });
        assert!("n".parse::<SizeBinding>().is_err() && "=3".parse::<SizeBinding>().is_err());
    }
}
