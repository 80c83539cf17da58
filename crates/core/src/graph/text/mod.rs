//! The text form of graphs: what reports show, what tests are written in, and what parses back.
//!
//! Comes in: a graph, or a text. Goes out: the other, exactly: `parse(print(g)) == g` for every graph that
//! [`super::verify`] accepts. The grammar and the meaning of each primitive stand in `docs/ir.md`. Printing is
//! [`std::fmt::Display`]; the alternate form `{:#}` adds where nodes come from (`!Softmax "encoder/3"`), which parses
//! back too. Never here: what a node means; types come from [`Graph::add`].

pub(crate) mod expr;
mod host;
mod literal;
pub(crate) mod number;
pub(crate) mod parse;
pub(crate) mod print;
pub(crate) mod read_expr;

use bytes::Bytes;

use super::Graph;
use crate::cursor::Cursor;
use crate::error::{Error, Result};
use crate::tensor::{Literal, Source};

/// Finds the bytes of a large constant: where they lie and how many there are.
pub type Resolve<'r> = dyn Fn(&Source, usize) -> Result<Bytes> + 'r;

impl Graph {
    /// The graph that a text denotes; constants that lie in files are refused.
    pub fn parse(text: &str) -> Result<Graph> {
        parse(text, &no_files)
    }
}

/// The graph that a text denotes; `resolve` gives the data of constants that lie in files. Errors name line and column.
pub fn parse(text: &str, resolve: &Resolve<'_>) -> Result<Graph> {
    let mut cursor = Cursor::new(text);
    let graph = parse::read_graph(&mut cursor, resolve, false)?;
    cursor.end()?;
    Ok(graph)
}

/// A tensor with its data as text, such as `[1.0, 2.5] : f32[2]`.
pub fn print_literal(literal: &Literal) -> String {
    format!("{} : {}", literal::text(literal), literal.ty())
}

/// The tensor that a text such as `[1.0, 2.5] : f32[2]` denotes; a single value stands for all elements.
pub fn parse_literal(text: &str) -> Result<Literal> {
    let mut cursor = Cursor::new(text);
    let data = literal::read(&mut cursor)?;
    cursor.expect(":")?;
    let place = cursor;
    let ty = parse::read_type(&mut cursor)?;
    cursor.end()?;
    data.of_type(&ty, place, &no_files)
}

/// Refuses constants that lie in files.
pub(crate) fn no_files(source: &Source, _: usize) -> Result<Bytes> {
    Err(Error::invalid(format!("nothing is known of the file \"{}\"", source.file)))
}

#[cfg(test)]
mod tests;
