//! Steps looked at from the coordinates of another shape.

use smallvec::SmallVec;

use super::facts::{Axes, mentioned};
use super::step::{Kind, Step};
use crate::error::Result;
use crate::graph::rewrite::Rebuild;
use crate::graph::{Graph, Value};
use crate::ops::prim::{Map, Reduce, View, identity_map};
use crate::ops::{Expr, ExprNode, Prim};
use crate::tensor::{Dim, Shape};

/// A step, looked at from the coordinates of another shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Seen {
    /// what is looked at
    pub(super) step: Step,
    /// how
    pub(super) view: View,
}

/// Searches stop after this many steps; what is behind so much arithmetic is no factor of a row.
const MOST_STEPS: usize = 64;

impl Seen {
    /// A value from its own coordinates.
    pub(super) fn whole(graph: &Graph, value: Value) -> Seen {
        Seen { step: Step::of(graph, value), view: View::identity(&graph.ty(value).shape) }
    }

    /// A step from its own coordinates.
    pub(super) fn at(graph: &Graph, step: Step) -> Seen {
        Seen { step, view: View::identity(step.shape(graph)) }
    }

    /// Another step at the same coordinates.
    pub(super) fn with(&self, step: Step) -> Seen {
        Seen { step, view: self.view.clone() }
    }

    /// What is behind a view, seen through it; `None` if this is no view, or one that cannot be composed with.
    pub(super) fn behind(&self, graph: &Graph) -> Option<Seen> {
        let Kind::Value(value) = self.step.kind(graph) else { return None };
        let node = graph.node_of(value);
        let Prim::View(inner) = node.prim() else { return None };
        Some(Seen { step: Step::of(graph, node.args()[0]), view: self.view.after(inner)? })
    }

    /// What is behind all views.
    pub(super) fn behind_views(&self, graph: &Graph) -> Seen {
        let mut seen = self.clone();
        while let Some(behind) = seen.behind(graph) {
            seen = behind;
        }
        seen
    }

    /// Whether the step can be computed without some of the axes of the coordinates: nothing behind it is looked up by them.
    pub(super) fn is_free_of(&self, graph: &Graph, axes: Axes) -> bool {
        self.leaves(graph).is_some_and(|leaves| leaves.iter().all(|leaf| leaf.axes() & axes == 0))
    }

    /// The reductions that the step is computed from with nothing but maps and views between, and what they fold.
    pub(super) fn reductions<'g>(&self, graph: &'g Graph) -> Vec<(&'g Reduce, Step)> {
        let reduction = |leaf: &Seen| {
            let Kind::Value(value) = leaf.step.kind(graph) else { return None };
            let node = graph.node_of(value);
            let Prim::Reduce(row) = node.prim() else { return None };
            Some((row, Step::of(graph, node.args()[0])))
        };
        self.leaves(graph).unwrap_or_default().iter().filter_map(reduction).collect()
    }

    /// What the step is computed from behind maps and views, as it is seen: values, and coordinates that an expression
    /// mentions. `None` where that is too much.
    pub(super) fn leaves(&self, graph: &Graph) -> Option<Vec<Seen>> {
        let mut leaves = Vec::new();
        let mut todo = vec![self.clone()];
        for _ in 0..MOST_STEPS {
            let Some(seen) = todo.pop() else { return Some(leaves) };
            if let Some(behind) = seen.behind(graph) {
                todo.push(behind);
                continue;
            }
            match seen.step.kind(graph) {
                Kind::Call(_, operands) => todo.extend(operands.iter().map(|o| seen.with(*o))),
                Kind::Cast(x) | Kind::Bits(x) => todo.push(seen.with(x)),
                Kind::Coord(axis) => {
                    let map = vec![seen.view.map[usize::from(axis)].clone()];
                    leaves.push(Seen { step: seen.step, view: View { map, ..seen.view } });
                }
                Kind::Value(_) => leaves.push(seen),
                Kind::Const(_) | Kind::Size => {}
            }
        }
        None
    }

    /// The axes of the coordinates that what is seen is looked up by.
    pub(super) fn axes(&self) -> Axes {
        let read = self.view.map.iter().chain(self.view.guard.iter().map(|g| &g.index));
        read.fold(0, |axes, dim| axes | mentioned(dim))
    }

    /// The value of the new graph that holds what is seen. A map of which only a part is seen is computed at the new coordinates
    /// instead.
    pub(super) fn rebuilt(&self, graph: &Graph, rebuild: &mut Rebuild) -> Result<Value> {
        if let Some(behind) = self.behind(graph) {
            return behind.rebuilt(graph, rebuild);
        }
        let Some((expr, args)) = self.step.parts(graph).filter(|_| self.is_part(graph)) else {
            let value = self.step.rebuilt(graph, rebuild)?;
            let identity = self.view.is_identity(&rebuild.graph().ty(value).shape);
            return if identity { Ok(value) } else { rebuild.add(self.view.clone(), &[value]) };
        };
        let args: SmallVec<[Value; 3]> =
            args.iter().map(|arg| self.with(Step::of(graph, *arg)).rebuilt(graph, rebuild)).collect::<Result<_>>()?;
        let dtypes = expr.args().to_vec();
        let expr = Expr::build(&dtypes, |scope, terms| {
            expr.inline_with(scope, |node| match node {
                ExprNode::Arg(k) => Some(terms[*k as usize]),
                ExprNode::Coord(axis) => Some(scope.index(&self.view.map[usize::from(*axis)])),
                _ => None,
            })
        });
        rebuild.add(Map { expr, shape: self.view.shape.clone() }, &args)
    }

    /// Where a reduction is seen, repeated along the axes that it folds: the reduction and what it folds, which has the shape of
    /// the coordinates.
    pub(super) fn own_row<'g>(&self, graph: &'g Graph) -> Option<(&'g Reduce, Step)> {
        let seen = self.behind_views(graph);
        let Kind::Value(value) = seen.step.kind(graph) else { return None };
        let node = graph.node_of(value);
        let Prim::Reduce(row) = node.prim() else { return None };
        let own = own_row_view(&graph.ty(node.args()[0]).shape, &row.axes);
        (seen.view == own).then(|| (row, Step::of(graph, node.args()[0])))
    }

    /// Whether only one place along some axis of the step is seen.
    fn is_part(&self, graph: &Graph) -> bool {
        let fixed = |(dim, size): (&Dim, &Dim)| mentioned(dim) == 0 && !size.is(1);
        self.view.guard.is_empty() && self.view.map.iter().zip(self.step.shape(graph).dims()).any(fixed)
    }
}

/// The view that repeats a reduction along the axes that it folded.
fn own_row_view(folded: &Shape, axes: &[usize]) -> View {
    let kept = identity_map(folded.rank()).into_iter().enumerate().filter(|(k, _)| !axes.contains(k));
    View::new(folded.clone(), kept.map(|(_, dim)| dim).collect())
}
