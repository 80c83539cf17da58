//! Coordinates that data gives: where indices must lie so that these are inside, and how it is told that one does not.

use std::fmt;

use crate::tensor::{Dim, Ranges, Symbol};

/// An axis on which a coordinate must lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// the axis of the tensor that is read
    pub axis: usize,
    /// what must lie below this
    pub size: i64,
    /// what must: a value that is read, by its number, from which the coordinate is made; none where it is the coordinate itself
    pub read: Option<usize>,
}

impl Limit {
    /// That of a coordinate on an axis of so many elements, in a kernel whose axes have these ranges. Where views between an index and the data are
    /// looked through, who gave the index knows nothing of them: it is the index that is looked at.
    pub fn of(coordinate: &Dim, axis: usize, size: i64, ranges: &Ranges<'_>) -> Limit {
        let mut reads = Vec::new();
        coordinate.for_each_symbol(&mut |symbol| {
            if matches!(symbol, Symbol::Read(_)) && !reads.contains(symbol) {
                reads.push(symbol.clone());
            }
        });
        let whole = Limit { axis, size, read: None };
        let [symbol @ Symbol::Read(read)] = reads.as_slice() else { return whole };
        let own = match Scale::of(coordinate, symbol, ranges) {
            Some((Scale::Times(by), _)) if size % by == 0 => size / by,
            Some((Scale::Over(by), _)) => size.saturating_mul(by),
            _ => return whole,
        };
        Limit { axis, size: own, read: Some(usize::from(*read)) }
    }

    /// What is said of an index, or a coordinate, beyond it.
    pub fn told(&self, index: impl fmt::Display) -> String {
        format!("index {index} {}", out_of_range(self.axis, self.size))
    }
}

/// How it is told that an index lies outside of a tensor; the index stands before it.
pub fn out_of_range(axis: usize, size: impl fmt::Display) -> String {
    format!("is out of range for axis {axis} of size {size}")
}

/// What a coordinate is to one of the numbers that it is made of, such that what is outside stays outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scale {
    /// so many times the number and less than once more: of axes that are joined, the number is the outermost
    Times(i64),
    /// so many numbers are one coordinate: of the axes that the number is cut into, the coordinate is the outermost
    Over(i64),
}

impl Scale {
    /// The scale of a symbol in a coordinate, and the rest of the coordinate, which the symbol is not in.
    pub(crate) fn of(coordinate: &Dim, symbol: &Symbol, ranges: &Ranges<'_>) -> Option<(Scale, Dim)> {
        if let Some((x, by)) = coordinate.as_quotient() {
            return (x.as_symbol() == Some(symbol) && by > 0).then(|| (Scale::Over(by), Dim::int(0)));
        }
        let with = |n: i64| coordinate.substitute(&|other| (other == symbol).then(|| Dim::int(n)));
        let rest = with(0);
        let by = (with(1) - &rest).as_int().filter(|by| *by > 0)?;
        let is_all = *coordinate == Dim::from(symbol.clone()) * by + &rest;
        (is_all && ranges.is_below(&rest, &Dim::int(by))).then_some((Scale::Times(by), rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_index_is_told_as_it_was_given() {
        let read = || Dim::from(Symbol::Read(3));
        let extents = [Dim::int(8), Dim::int(9)];
        let limit = |coordinate: Dim, size: i64| {
            let Limit { size, read, .. } = Limit::of(&coordinate, 1, size, &Ranges::of(&extents));
            (size, read)
        };
        assert_eq!(limit(read(), 10), (10, Some(3)));
        assert_eq!(limit(read() * 8 + Dim::axis(0), 80), (10, Some(3)), "the outermost of joined axes");
        assert_eq!(limit(read().floordiv(&Dim::int(2)), 5), (10, Some(3)), "the outermost of the axes it is cut into");
        for other in
            [read() * 8 + Dim::axis(1), read() + 5, read().modulo(&Dim::int(2)), read() + Dim::from(Symbol::Read(1))]
        {
            assert_eq!(
                limit(other.clone(), 80),
                (80, None),
                "{other}: the coordinate may be inside where the index is not"
            );
        }
        let limit = Limit { axis: 1, size: 10, read: None };
        assert_eq!(limit.told(-11), "index -11 is out of range for axis 1 of size 10");
    }
}
