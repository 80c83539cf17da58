//! The text form of kernels: what reports show, what tests and users write, and what parses back.
//!
//! Comes in: a kernel, or a text. Goes out: the other, exactly: `parse(print(k)) == k` for every kernel that
//! [`super::verify`] accepts. The grammar and the meaning of each line stand in `docs/tile.md`. Printing is
//! [`std::fmt::Display`]; the alternate form `{:#}` adds type and axes of every step as a comment. Never here: whether a
//! kernel keeps its invariants; the parser infers types and leaves the rest to [`super::verify`].

mod parse;
mod print;

use super::Kernel;
use crate::cursor::Cursor;
use crate::error::Result;

/// The kernel that a text denotes. Errors name line and column.
pub fn parse(text: &str) -> Result<Kernel> {
    let mut cursor = Cursor::new(text);
    let kernel = parse::read_kernel(&mut cursor)?;
    cursor.end()?;
    Ok(kernel)
}

#[cfg(test)]
mod tests;
