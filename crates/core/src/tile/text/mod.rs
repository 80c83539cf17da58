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
    places: Places,
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
