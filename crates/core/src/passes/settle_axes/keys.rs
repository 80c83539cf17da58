//! Axes of a product that another product sums: the keys of an attention.
//!
//! Between the two products the keys may be taken apart, for biases along the lines and the columns of a picture. A loop over
//! keys wants them as one axis, also where that axis was joined from two before: biases find their place by division.

use std::ops::Range;

use super::frame::Slot;
use super::vote::Vote;
use crate::graph::{Graph, Node};
use crate::ops::Prim;
use crate::tensor::{Dim, Ranges, Symbol};

/// A set of one axis. There is none for axes that no set has room for.
pub(super) fn bit(axis: usize) -> u64 {
    u32::try_from(axis).ok().and_then(|axis| 1u64.checked_shl(axis)).unwrap_or(0)
}

/// One factor of a contraction: its node and which of the two.
pub(super) type Side = (usize, u8);

/// From which factor of which contraction every axis comes.
pub(super) struct Keys {
    sides: Vec<Vec<Option<Side>>>,
}

impl Keys {
    /// The keys of a graph: axes that a contraction has from one of its factors alone, seen through maps and views.
    pub fn of(graph: &Graph) -> Keys {
        let mut sides: Vec<Vec<Option<Side>>> = Vec::with_capacity(graph.nodes().len());
        for (id, node) in graph.nodes().iter().enumerate() {
            let of = |k: usize| match node.args().get(k) {
                Some(arg) if arg.port() == 0 => sides[arg.node()].as_slice(),
                _ => &[],
            };
            let own: Vec<Option<Side>> = match node.prim() {
                Prim::Contract(row) => {
                    let side = |label| match (row.a.contains(label), row.b.contains(label)) {
                        (true, false) => Some((id, 0)),
                        (false, true) => Some((id, 1)),
                        _ => None,
                    };
                    row.out.iter().map(side).collect()
                }
                Prim::Map(row) if (0..node.args().len()).any(|k| !of(k).is_empty()) => {
                    let side = |axis| (0..node.args().len()).find_map(|k| of(k).get(axis).copied().flatten());
                    (0..row.shape.rank()).map(side).collect()
                }
                Prim::View(view) if !of(0).is_empty() => {
                    let side = |axis: usize| {
                        let moves = |dim: &Dim| dim.mentions(|s| *s == Symbol::Axis(axis as u8));
                        let mut along = view.map.iter().zip(of(0)).filter(|(dim, _)| moves(dim)).map(|(_, side)| *side);
                        let first = along.next().flatten()?;
                        along.all(|side| side == Some(first)).then_some(first)
                    };
                    (0..view.shape.rank()).map(side).collect()
                }
                _ => Vec::new(),
            };
            sides.push(if own.iter().all(Option::is_none) { Vec::new() } else { own });
        }
        Keys { sides }
    }

    /// The factors that the axes of a node's first result come from; an empty list where none does.
    pub fn sides(&self, node: usize) -> &[Option<Side>] {
        &self.sides[node]
    }
}

impl Vote {
    /// Whether an index moves along nothing but axes that the reader folds.
    pub fn folds(&self, at: &Dim) -> bool {
        !at.mentions(|s| !matches!(s, Symbol::Axis(a) if self.folded & bit(usize::from(*a)) != 0))
    }

    /// Whether the reader has a run of axes as one, or folds all of it.
    fn sees_as_one(&self, run: &Range<usize>, factors: &[Vec<Dim>]) -> bool {
        if self.at[run.clone()].iter().all(|at| at.as_int().is_none() && self.folds(at)) {
            return true;
        }
        let slot = Slot::Run { first: run.start, last: run.end - 1 };
        let at = slot.coordinate(&self.at, factors).simplify(&Ranges::of(self.domain.dims()));
        matches!(at.as_symbol(), Some(Symbol::Axis(_)))
    }
}

/// Whether an axis comes from one factor of a contraction, and another sums it as it is.
pub(super) fn is_key(axis: usize, sides: &[Option<Side>], votes: &[Vote]) -> bool {
    let sums = |vote: &Vote| match vote.at[axis].as_symbol() {
        Some(Symbol::Axis(a)) => vote.summed & bit(usize::from(*a)) != 0,
        _ => false,
    };
    sides.get(axis).is_some_and(Option::is_some) && votes.iter().any(sums)
}

/// Runs of a node's axes that come from one factor of a contraction and that another sums as one axis, where nobody who
/// reads the node needs them apart.
pub(super) fn keys_in_parts(node: &Node, sides: &[Option<Side>], votes: &[Vote]) -> Vec<Range<usize>> {
    let mut runs: Vec<Range<usize>> = Vec::new();
    if sides.is_empty() || !matches!(node.prim(), Prim::Map(_) | Prim::Contract(_)) {
        return runs;
    }
    let shape = &node.types()[0].shape;
    let factors: Vec<Vec<Dim>> = shape.dims().iter().map(|dim| vec![dim.clone()]).collect();
    for vote in votes.iter().filter(|vote| vote.summed != 0) {
        for summed in (0..vote.domain.rank()).filter(|axis| vote.summed & bit(*axis) != 0) {
            let moves = |axis: &usize| vote.at[*axis].mentions(|s| *s == Symbol::Axis(summed as u8));
            let Some(first) = (0..shape.rank()).find(moves) else { continue };
            let run = first..(first..shape.rank()).take_while(moves).last().unwrap_or(first) + 1;
            let side = sides[first];
            let is_new = runs.iter().all(|other| other.end <= run.start || run.end <= other.start);
            let is_key = side.is_some() && sides[run.clone()].iter().all(|other| *other == side);
            let all = |votes: &[Vote]| votes.iter().all(|vote| vote.sees_as_one(&run, &factors));
            if run.len() > 1 && is_new && is_key && all(votes) {
                runs.push(run);
            }
        }
    }
    runs.sort_by_key(|run| run.start);
    runs
}
