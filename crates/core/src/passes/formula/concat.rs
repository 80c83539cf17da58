//! Formulas behind one another.

use super::{MOST_FLOPS, at_coordinates, look};
use crate::graph::{Graph, Value};
use crate::ops::Expr;
use crate::tensor::{Dim, Ranges, Symbol};

/// More parts are no cheap function of coordinates.
const MOST_PARTS: usize = 4;

/// A part of a concat that follows a formula, of the coordinates of the whole.
struct Part {
    begin: Dim,
    end: Dim,
    formula: Expr,
}

/// The formula of formulas behind one another along an axis. A single element that a neighbour would go on to is part of it: −1 before
/// 0, 1, 2, … (how positions are shifted by one) is a range. Parts that are concats are not looked into: nests of them have no end.
pub(super) fn of_concat(graph: &Graph, axis: usize, operands: &[Value], whole: &[Dim]) -> Option<Expr> {
    if operands.len() > MOST_PARTS {
        return None;
    }
    let ranges = Ranges::of(whole);
    let mut parts: Vec<Part> = Vec::with_capacity(operands.len());
    let mut begin = Dim::int(0);
    for operand in operands {
        let end = &begin + &graph.ty(*operand).shape.dims()[axis];
        let formula = at_coordinates(&look(graph, None, *operand, false)?, &|a| {
            if a == axis { Dim::axis(axis) - &begin } else { Dim::axis(a) }
        });
        let next = Part { begin, end: end.clone(), formula };
        begin = end;
        match parts.last_mut() {
            Some(last) if last.is_single() && last.is_like(&next, &last.begin, axis, &ranges) => {
                *last = Part { begin: last.begin.clone(), ..next };
            }
            Some(last) if next.is_single() && last.is_like(&next, &next.begin, axis, &ranges) => last.end = next.end,
            _ => parts.push(next),
        }
    }
    let (last, before) = parts.split_last()?;
    let chosen = Expr::build(&[], |scope, _| {
        let (place, term) = (scope.coord(axis), |part: &Part| part.formula.inline_with(scope, |_| None));
        before
            .iter()
            .rev()
            .fold(term(last), |behind, part| place.lt(scope.size(part.end.clone())).select(term(part), behind))
    });
    (chosen.flops() <= MOST_FLOPS).then_some(chosen)
}

impl Part {
    fn is_single(&self) -> bool {
        (&self.end - &self.begin).as_int() == Some(1)
    }

    /// Whether both have the same integer at a place along an axis.
    fn is_like(&self, other: &Part, place: &Dim, axis: usize, ranges: &Ranges<'_>) -> bool {
        let here = |symbol: &Symbol| (*symbol == Symbol::Axis(axis as u8)).then(|| place.clone());
        let at_place = |part: &Part| Some(part.formula.as_index(ranges)?.substitute(&here));
        at_place(self).is_some_and(|element| at_place(other) == Some(element))
    }
}
