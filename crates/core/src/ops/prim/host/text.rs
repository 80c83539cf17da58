//! Texts: tensors of bytes whose last axis holds UTF-8, filled up with zeros behind the end of each text.

use regex_lite::Regex;

use crate::error::{Error, Result};
use crate::reference::{Buffer, Run};
use crate::tensor::DType;

/// What becomes of upper and lower case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Case {
    /// it stays
    Kept,
    /// everything becomes lower case
    Lower,
    /// everything becomes upper case
    Upper,
}

impl Case {
    fn apply(self, text: &str) -> String {
        match self {
            Case::Kept => text.to_string(),
            Case::Lower => text.to_lowercase(),
            Case::Upper => text.to_uppercase(),
        }
    }
}

/// The texts of a tensor, row by row; zeros behind their ends are no part of them.
fn texts(x: &Buffer) -> Result<Vec<String>> {
    let width = x.sizes().last().copied().unwrap_or(0);
    let values = x.to_ints();
    let count = x.sizes().split_last().map_or(0, |(_, leading)| leading.iter().product());
    let text = |k: usize| {
        let bytes: Vec<u8> = values[k * width..(k + 1) * width].iter().map(|byte| *byte as u8).collect();
        let end = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        let text = std::str::from_utf8(&bytes[..end]).map_err(|_| Error::invalid(format!("text {k} is not UTF-8")))?;
        Ok(text.to_string())
    };
    (0..count).map(text).collect()
}

/// The only text of a vector of bytes.
fn only_text(x: &Buffer) -> Result<String> {
    let width = x.count();
    let row = Buffer::ints(DType::U8, vec![1, width], x.to_ints().into_owned());
    Ok(texts(&row)?.pop().unwrap_or_default())
}

/// Texts as a tensor, as wide as the longest one or as `width` says.
fn tensor(texts: &[impl AsRef<str>], mut sizes: Vec<usize>, width: Option<usize>, run: &Run<'_>) -> Result<Buffer> {
    let longest = texts.iter().map(|text| text.as_ref().len()).max().unwrap_or(0);
    run.reserve_text(longest)?;
    let width = width.unwrap_or(longest);
    run.reserve(texts.len().saturating_mul(width))?;
    let mut values = vec![0; texts.len() * width];
    for (k, text) in texts.iter().enumerate() {
        for (place, byte) in values[k * width..].iter_mut().zip(text.as_ref().bytes()) {
            *place = i64::from(byte);
        }
    }
    sizes.push(width);
    Ok(Buffer::ints(DType::U8, sizes, values))
}

fn leading(x: &Buffer) -> Vec<usize> {
    x.sizes().split_last().map_or(Vec::new(), |(_, leading)| leading.to_vec())
}

/// Each text of `x` with that of `y` behind it.
pub(super) fn join(x: &Buffer, y: &Buffer, run: &Run<'_>) -> Result<Buffer> {
    let joined: Vec<String> = texts(x)?.into_iter().zip(texts(y)?).map(|(x, y)| x + &y).collect();
    let width = x.sizes().last().copied().unwrap_or(0) + y.sizes().last().copied().unwrap_or(0);
    tensor(&joined, leading(x), Some(width), run)
}

/// The parts of each text between delimiters, filled up with empty ones, and how many there are. Without a delimiter, white
/// space of any length divides, and none is left at the ends. At most `cuts` cuts are made.
pub(super) fn split(x: &Buffer, delimiter: &Buffer, cuts: &Buffer, run: &Run<'_>) -> Result<Vec<Buffer>> {
    let (all, delimiter) = (texts(x)?, only_text(delimiter)?);
    let cuts = usize::try_from(cuts.to_ints()[0]).unwrap_or(usize::MAX);
    let parts: Vec<Vec<&str>> = all.iter().map(|text| parts(text, &delimiter, cuts)).collect();
    let most = parts.iter().map(Vec::len).max().unwrap_or(0);
    run.reserve(parts.len().saturating_mul(most))?;
    let filled: Vec<&str> =
        parts.iter().flat_map(|parts| parts.iter().copied().chain(std::iter::repeat("")).take(most)).collect();
    let counts = parts.iter().map(|parts| parts.len() as i64).collect();
    let sizes = [leading(x), vec![most]].concat();
    Ok(vec![tensor(&filled, sizes, None, run)?, Buffer::ints(DType::I64, leading(x), counts)])
}

fn parts<'t>(text: &'t str, delimiter: &str, cuts: usize) -> Vec<&'t str> {
    if !delimiter.is_empty() {
        return text.splitn(cuts.saturating_add(1), delimiter).collect();
    }
    let mut parts = Vec::new();
    let mut rest = text.trim_start();
    while !rest.is_empty() {
        let end = rest.find(char::is_whitespace).filter(|_| parts.len() < cuts);
        let (part, behind) = rest.split_at(end.unwrap_or(rest.len()));
        parts.push(part);
        rest = behind.trim_start();
    }
    parts
}

/// The texts of a row that are no stop words, in another case; where none is left, one empty text.
pub(super) fn normalize(x: &Buffer, stop: &Buffer, case: Case, exact: bool, run: &Run<'_>) -> Result<Buffer> {
    let comparable = |text: &str| if exact { text.to_string() } else { text.to_lowercase() };
    let stop: std::collections::HashSet<String> = texts(stop)?.iter().map(|word| comparable(word)).collect();
    let all = texts(x)?;
    let kept = all.iter().filter(|text| !stop.contains(&comparable(text)));
    let mut kept: Vec<String> = kept.map(|text| case.apply(text)).collect();
    if kept.is_empty() {
        kept.push(String::new());
    }
    tensor(&kept, vec![kept.len()], None, run)
}

/// A pattern that is to match whole texts. Its language is that of RE2: classes such as `\w` are of ASCII, and time is bounded.
pub fn whole_text_pattern(pattern: &str) -> Result<Regex> {
    // On its own first, so that no bracket of it can close ours.
    let checked = Regex::new(pattern).and_then(|_| Regex::new(&format!("\\A(?:{pattern})\\z")));
    checked.map_err(|error| Error::invalid(format!("the pattern \"{pattern}\" cannot be read: {error}")))
}

/// Whether a pattern matches each text as a whole.
pub(super) fn matches(x: &Buffer, pattern: &Buffer) -> Result<Buffer> {
    let pattern = whole_text_pattern(&only_text(pattern)?)?;
    let found = texts(x)?.iter().map(|text| i64::from(pattern.is_match(text))).collect();
    Ok(Buffer::ints(DType::Bool, leading(x), found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn white_space_divides_as_one_and_never_stands_at_the_ends() {
        assert_eq!(parts("  a  b c ", "", usize::MAX), ["a", "b", "c"]);
        assert_eq!(parts("  a  b c ", "", 1), ["a", "b c "]);
        assert_eq!(parts("a b", "", 0), ["a b"]);
        assert!(parts(" \t\n", "", 3).is_empty() && parts("", "", 3).is_empty());
    }

    #[test]
    fn every_delimiter_divides() {
        assert_eq!(parts("a--b-", "-", usize::MAX), ["a", "", "b", ""]);
        assert_eq!(parts("a--b-", "-", 2), ["a", "", "b-"]);
        assert_eq!(parts("", "-", 2), [""]);
        assert_eq!(parts("a→→b", "→→", 9), ["a", "b"]);
    }

    #[test]
    fn patterns_match_whole_texts_only() {
        let is_match = |pattern: &str, text: &str| whole_text_pattern(pattern).unwrap().is_match(text);
        assert!(is_match("a|ab", "ab") && !is_match("a", "ab") && is_match("", "") && !is_match("a$", "a\n"));
        assert!(!is_match(r"\w", "é") && is_match(".", "é"));
        for broken in ["(a", "a)", "a)(b", "[", "*"] {
            assert!(whole_text_pattern(broken).is_err(), "{broken}");
        }
    }
}
