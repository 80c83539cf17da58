//! Maps that choose among the parts of a concat along a short axis.

use smallvec::SmallVec;

use super::{MOST_DEPTH, Parts, Union, finish};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values};
use crate::graph::{Graph, Value};
use crate::ops::prim::{Map, View, identity_map};
use crate::ops::{Prim, Scope, Term};
use crate::tensor::{Dim, Shape, Symbol};

/// An axis of few places along which something that a map is computed from is chosen among the parts of a concat: the rows of a small matrix.
pub(super) fn chosen_along(graph: &Graph, readers: &[u32], row: &Map, args: &[Value]) -> Option<usize> {
    let is_short = |axis: &usize| row.shape[*axis].as_int().is_some_and(|n| (2..=MOST_PLACES).contains(&n));
    let short: SmallVec<[usize; 2]> = (0..row.shape.rank()).filter(is_short).collect();
    if short.is_empty() || row.expr.has_coordinates() {
        return None;
    }
    let mut todo: SmallVec<[Value; 4]> = SmallVec::from_slice(args);
    for _ in 0..MOST_DEPTH {
        let value = todo.pop()?;
        let node = graph.node_of(value);
        match node.prim() {
            Prim::Map(inner) if readers[value.node()] == 1 && !inner.expr.has_coordinates() => {
                todo.extend(node.args().iter().copied())
            }
            Prim::View(view) if view.guard.is_empty() => {
                let Prim::Concat(concat) = graph.node_of(node.args()[0]).prim() else { continue };
                let index = &view.map[concat.axis];
                let chooses = |axis: &usize| index.mentions(|s| *s == Symbol::Axis(*axis as u8));
                if let Some(axis) = short.iter().copied().find(chooses) {
                    return Some(axis);
                }
            }
            _ => {}
        }
    }
    None
}

/// Axes of more places are no rows of small matrices.
const MOST_PLACES: i64 = 4;

/// A map as what it is at each of a few places along an axis, joined.
pub(super) fn join_places(
    rebuild: &mut Rebuild<'_>,
    parts: &Parts<'_>,
    (row, args): (&Map, &[Value]),
) -> Result<Option<Values>> {
    let scope = Scope::default();
    let mut union = Union::new(parts, &scope);
    let mut shape = row.shape.dims().to_vec();
    shape[parts.axis] = Dim::int(1);
    let shape = Shape::from(shape);
    let mut terms: SmallVec<[Term<'_>; 2]> = SmallVec::new();
    for place in &parts.starts {
        let mut map = identity_map(shape.rank());
        map[parts.axis] = place.clone();
        let seen = View::new(shape.clone(), map);
        let args: SmallVec<[Term<'_>; 3]> = args.iter().map(|arg| union.term(*arg, seen.clone(), MOST_DEPTH)).collect();
        terms.push(row.expr.inline(&scope, &args));
    }
    // Where a concat is still read, or none was looked through, nothing is gained: the same map would be found again.
    if !union.passes_concat
        || union.leaves.iter().any(|leaf| matches!(parts.graph.node_of(leaf.source).prim(), Prim::Concat(_)))
    {
        return Ok(None);
    }
    let root = union.join(&terms);
    finish(rebuild, &union, root)
}
