//! Texts: tensors of bytes whose last axis holds UTF-8, filled up with zeros behind the end of each text.

use std::collections::HashSet;

use regex_lite::{Regex, RegexBuilder};

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

/// The texts of a tensor; zeros behind their ends are no part of them.
pub(super) struct Texts {
    bytes: Vec<u8>,
    width: usize,
    count: usize,
}

impl Texts {
    /// Those of a tensor, if there is memory for a copy.
    pub(super) fn of(x: &Buffer, run: &Run<'_>) -> Result<Texts> {
        let width = x.sizes().last().copied().unwrap_or(0);
        let count = x.sizes().split_last().map_or(0, |(_, leading)| leading.iter().product());
        run.reserve_work(&[], x.count() / 8)?;
        let mut bytes = Vec::with_capacity(x.count());
        let mut block = vec![0; BLOCK];
        for start in (0..x.count()).step_by(BLOCK) {
            let length = BLOCK.min(x.count() - start);
            x.read_ints(start, &mut block[..length])?;
            bytes.extend(block[..length].iter().map(|byte| *byte as u8));
        }
        Ok(Texts { bytes, width, count })
    }

    /// A text, by its row.
    fn get(&self, k: usize) -> Result<&str> {
        let row = &self.bytes[k * self.width..(k + 1) * self.width];
        let end = row.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
        std::str::from_utf8(&row[..end]).map_err(|_| Error::invalid(format!("text {k} is not UTF-8")))
    }

    /// How many there are.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// All of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = Result<&str>> {
        (0..self.count).map(|k| self.get(k))
    }
}

/// Elements converted at a time.
const BLOCK: usize = 1 << 12;

/// The only text of a vector of bytes.
fn only_text(x: &Buffer, run: &Run<'_>) -> Result<String> {
    let all = Texts { width: x.count(), count: 1, ..Texts::of(x, run)? };
    all.get(0).map(str::to_string)
}

/// A tensor that texts are written into, one behind another.
pub(super) struct Written {
    values: Vec<i64>,
    sizes: Vec<usize>,
    next: usize,
}

impl Written {
    /// Room for texts of at most `width` bytes, of which the longest one has `longest`.
    pub(super) fn new(mut sizes: Vec<usize>, width: usize, longest: usize, run: &Run<'_>) -> Result<Written> {
        run.reserve_text(longest)?;
        sizes.push(width);
        let count = sizes.iter().fold(1usize, |count, size| count.saturating_mul(*size));
        run.reserve_work(&[], count)?;
        Ok(Written { values: vec![0; count], sizes, next: 0 })
    }

    /// Writes the next one, in two parts.
    pub(super) fn push(&mut self, parts: [&str; 2]) {
        let width = self.sizes.last().copied().unwrap_or(0);
        let row = self.values[self.next..self.next + width].iter_mut();
        row.zip(parts.into_iter().flat_map(str::bytes)).for_each(|(place, byte)| *place = i64::from(byte));
        self.next += width;
    }

    /// The tensor, when all are written.
    pub(super) fn tensor(self) -> Buffer {
        Buffer::ints(DType::U8, self.sizes, self.values)
    }
}

/// The sizes of texts without that of their bytes.
pub(super) fn leading(x: &Buffer) -> Vec<usize> {
    x.sizes().split_last().map_or(Vec::new(), |(_, leading)| leading.to_vec())
}

/// Each text of `x` with that of `y` behind it.
pub(super) fn join(x: &Buffer, y: &Buffer, run: &Run<'_>) -> Result<Buffer> {
    let (sizes, [x, y]) = (leading(x), [Texts::of(x, run)?, Texts::of(y, run)?]);
    let mut longest = 0;
    for (x, y) in x.iter().zip(y.iter()) {
        longest = longest.max(x?.len() + y?.len());
    }
    let mut joined = Written::new(sizes, x.width + y.width, longest, run)?;
    for (x, y) in x.iter().zip(y.iter()) {
        joined.push([x?, y?]);
    }
    Ok(joined.tensor())
}

/// The parts of each text between delimiters, filled up with empty ones, and how many there are. Without a delimiter, white
/// space of any length divides, and none is left at the ends. At most `cuts` cuts are made.
pub(super) fn split(x: &Buffer, delimiter: &Buffer, cuts: &Buffer, run: &Run<'_>) -> Result<Vec<Buffer>> {
    let (all, delimiter) = (Texts::of(x, run)?, only_text(delimiter, run)?);
    let cuts = usize::try_from(cuts.to_ints()[0]).unwrap_or(usize::MAX);
    run.reserve_work(&[], all.count)?;
    let mut counts = Vec::with_capacity(all.count);
    let (mut most, mut longest) = (0, 0);
    for text in all.iter() {
        let parts = parts(text?, &delimiter, cuts);
        longest = parts.iter().map(|part| part.len()).fold(longest, usize::max);
        most = most.max(parts.len());
        counts.push(parts.len() as i64);
    }
    let mut written = Written::new([leading(x), vec![most]].concat(), longest, longest, run)?;
    for text in all.iter() {
        let parts = parts(text?, &delimiter, cuts);
        parts.into_iter().chain(std::iter::repeat("")).take(most).for_each(|part| written.push([part, ""]));
    }
    Ok(vec![written.tensor(), Buffer::ints(DType::I64, leading(x), counts)])
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
    let (all, stop) = (Texts::of(x, run)?, Texts::of(stop, run)?);
    // A word in a set of its own is a few words of memory.
    run.reserve_work(&[], (stop.bytes.len() / 8).saturating_add(stop.count.saturating_mul(12)))?;
    let comparable = |text: &str| if exact { text.to_string() } else { text.to_lowercase() };
    let stop: HashSet<String> = stop.iter().map(|word| word.map(comparable)).collect::<Result<_>>()?;
    let kept = || all.iter().filter(|text| text.as_ref().map_or(true, |text| !stop.contains(&comparable(text))));
    let (mut count, mut longest) = (0, 0);
    for text in kept() {
        longest = longest.max(case.apply(text?).len());
        count += 1;
    }
    let mut written = Written::new(vec![count.max(1)], longest, longest, run)?;
    for text in kept() {
        written.push([&case.apply(text?), ""]);
    }
    Ok(written.tensor())
}

/// A pattern that is to match whole texts. Its language is that of RE2: classes such as `\w` are of ASCII, and time is bounded.
pub fn whole_text_pattern(pattern: &str) -> Result<Regex> {
    pattern_of_size(pattern, MOST_PATTERN)
        .map_err(|error| Error::invalid(format!("the pattern \"{pattern}\" cannot be read: {error}")))
}

fn pattern_of_size(pattern: &str, most: usize) -> std::result::Result<Regex, regex_lite::Error> {
    let read = |pattern: &str| RegexBuilder::new(pattern).size_limit(most).build();
    // On its own first, so that no bracket of it can close ours.
    read(pattern).and_then(|_| read(&format!("\\A(?:{pattern})\\z")))
}

/// Bytes that a pattern may take once it is read.
const MOST_PATTERN: usize = 10 << 20;

/// Every byte of a text may visit every byte of a pattern: so many visits take some seconds. A pattern of a few lines is
/// allowed for texts of whatever length.
const MOST_VISITS: usize = 1 << 33;
const SMALL_PATTERN: usize = 16 << 10;

/// Whether a pattern matches each text as a whole.
pub(super) fn matches(x: &Buffer, pattern: &Buffer, run: &Run<'_>) -> Result<Buffer> {
    let pattern = only_text(pattern, run)?;
    let most = (MOST_VISITS / x.count().max(1)).clamp(SMALL_PATTERN, MOST_PATTERN);
    let pattern = match pattern_of_size(&pattern, most) {
        Ok(pattern) => pattern,
        Err(_) => {
            // What cannot be read at all is told as that.
            whole_text_pattern(&pattern)?;
            let (own, texts) = (pattern.len(), x.count());
            return Err(Error::limit(format!(
                "a pattern of {own} bytes takes more than {most} in memory, too many for {texts} bytes of texts"
            )));
        }
    };
    let all = Texts::of(x, run)?;
    run.reserve_work(&[], all.count)?;
    let found = all.iter().map(|text| Ok(i64::from(pattern.is_match(text?)))).collect::<Result<Vec<i64>>>()?;
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
