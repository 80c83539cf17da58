//! The text form of kernels: what reports show, what tests and users write, and what parses back.
//!
//! Comes in: a kernel, or a text. Goes out: the other, exactly: `parse(print(k)) == k` for every kernel that
//! [`super::verify`] accepts. The grammar and the meaning of each line stand in `docs/tile.md`. Printing is
//! [`std::fmt::Display`]; the alternate form `{:#}` adds type and axes of every step as a comment. Never here: whether a
//! kernel keeps its invariants; the parser infers types and leaves the rest to [`super::verify`].

mod parse;
mod print;
mod short;
mod usual;

use super::Kernel;
use crate::cursor::Cursor;
use crate::error::{Error, Result};

/// The kernel that a text denotes. Errors name line and column.
pub fn parse(text: &str) -> Result<Kernel> {
    read(text).map(|source| source.kernel)
}

/// The kernel that a text denotes, with what its writer calls things and where they stand. Errors name line and column.
pub fn read(text: &str) -> Result<Source> {
    let mut cursor = Cursor::new(text);
    let source = parse::read_kernel(&mut cursor)?;
    cursor.end()?;
    Ok(source)
}

/// A kernel as somebody wrote it.
#[derive(Clone, Debug)]
pub struct Source {
    /// the kernel; its steps are typed, and nothing else is verified
    pub kernel: Kernel,
    /// what the writer calls it
    pub name: Option<String>,
    /// what the writer calls its inputs, in order
    pub inputs: Vec<String>,
    /// what the writer calls its outputs, in order
    pub outputs: Vec<String>,
    /// whether the writer says how it runs
    pub is_scheduled: bool,
    places: Places,
    /// of the short form
    names: Option<Names>,
}

/// What the writer of the short form calls things that have numbers.
#[derive(Clone, Debug, Default)]
struct Names {
    axes: Vec<String>,
    /// of steps that are an assignment or an input
    steps: Vec<Option<String>>,
}

/// Lines and columns, from 1 on.
#[derive(Clone, Debug, Default)]
struct Places {
    steps: Vec<(usize, usize)>,
    stores: Vec<(usize, usize)>,
    schedule: (usize, usize),
}

impl Source {
    /// The line and column, from 1 on, of what an error of [`super::verify`] or of a run is about.
    pub fn locate(&self, error: &Error) -> Option<(usize, usize)> {
        error.path().iter().rev().find_map(|place| {
            let number = |prefix: &str| {
                let digits = place.strip_prefix(prefix)?;
                digits[..digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len())].parse::<usize>().ok()
            };
            let step = number("step %").and_then(|k| self.places.steps.get(k));
            let store = || number("store ").and_then(|k| self.places.stores.get(k));
            let schedule = || place.starts_with("schedule ").then_some(&self.places.schedule);
            step.or_else(store).or_else(schedule).copied()
        })
    }

    /// An error of [`super::verify`] or of a run in the words of the writer: who has named everything never sees a number. What
    /// [`Source::locate`] finds is left out of the path then.
    pub fn in_own_words(&self, error: Error) -> Error {
        let Some(names) = &self.names else { return error };
        let is_inner = |place: &str| ["step %", "store ", "schedule "].iter().any(|start| place.starts_with(start));
        let path: Vec<String> = error.path().iter().filter(|place| !is_inner(place)).cloned().collect();
        let told = Error::new(error.kind(), self.renamed(error.message(), names));
        path.into_iter().rev().fold(told, |error, place| error.at(place))
    }

    /// A text in which `%2`, `i0`, `x1` and `y0` are what the writer calls them.
    fn renamed(&self, text: &str, names: &Names) -> String {
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let (mut told, mut rest) = (String::with_capacity(text.len()), text);
        while let Some(start) = rest.find(|c| is_part(c) || c == '%') {
            told.push_str(&rest[..start]);
            rest = &rest[start..];
            let length = rest.find(|c| !is_part(c) && c != '%').unwrap_or(rest.len());
            let (word, after) = rest.split_at(length);
            told.push_str(self.name_of(word, names).unwrap_or(word));
            rest = after;
        }
        told.push_str(rest);
        told
    }

    fn name_of<'n>(&'n self, word: &str, names: &'n Names) -> Option<&'n str> {
        let mut letters = word.chars();
        let kind = letters.next()?;
        let number: usize = letters.as_str().parse().ok()?;
        match kind {
            '%' => Some(names.steps.get(number)?.as_deref().unwrap_or("what is computed there")),
            'i' => names.axes.get(number).map(String::as_str),
            'x' => self.inputs.get(number).map(String::as_str),
            'y' => self.outputs.get(number).map(String::as_str),
            _ => None,
        }
    }
}

/// The line and column, from 1 on, that an error of the parser names.
pub fn place_of(error: &Error) -> Option<(usize, usize)> {
    error.path().iter().rev().find_map(|place| {
        let (line, column) = place.strip_prefix("line ")?.split_once(", column ")?;
        Some((line.parse().ok()?, column.parse().ok()?))
    })
}

#[cfg(test)]
mod tests;
