//! Steps looked at from the coordinates of another shape.

use smallvec::SmallVec;

use super::facts::{Axes, axes, mentioned};
use super::step::{Kind, Step};
use crate::error::Result;
use crate::graph::rewrite::Rebuild;
use crate::graph::{Graph, Value};
use crate::ops::prim::{Map, Monoid, View};
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

    /// The reductions that the step is computed from with nothing but maps and views between.
    pub(super) fn reductions(&self, graph: &Graph) -> Vec<Fold> {
        let fold = |leaf: &Seen| match leaf.step.kind(graph) {
            Kind::Value(value) => Fold::of(graph, value),
            _ => None,
        };
        self.leaves(graph).unwrap_or_default().iter().filter_map(fold).collect()
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
    pub(super) fn rebuilt(&self, graph: &Graph, rebuild: &mut Rebuild<'_>) -> Result<Value> {
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

    /// Where a reduction is seen, repeated along the axes that it folds: that reduction. The coordinates are those of what it folds.
    pub(super) fn own_row(&self, graph: &Graph) -> Option<Fold> {
        let seen = self.behind_views(graph);
        let Kind::Value(value) = seen.step.kind(graph) else { return None };
        let fold = Fold::of(graph, value)?;
        let own = View::new(fold.step.shape(graph).clone(), fold.kept.iter().map(|axis| Dim::axis(*axis)).collect());
        (seen.view == own).then_some(fold)
    }

    /// Whether only one place along some axis of the step is seen.
    fn is_part(&self, graph: &Graph) -> bool {
        let fixed = |(dim, size): (&Dim, &Dim)| mentioned(dim) == 0 && !size.is(1);
        self.view.guard.is_empty() && self.view.map.iter().zip(self.step.shape(graph).dims()).any(fixed)
    }
}

/// A reduction of a step, which it may see with its axes in another order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Fold {
    /// how it folds
    pub(super) monoid: Monoid,
    /// what it folds
    pub(super) step: Step,
    /// over which axes of the step, ascending
    pub(super) axes: Vec<usize>,
    /// which axis of the step each axis of the result is
    kept: Vec<usize>,
}

impl Fold {
    /// The reduction that makes a value.
    pub(super) fn of(graph: &Graph, value: Value) -> Option<Fold> {
        let node = graph.node_of(value);
        let Prim::Reduce(row) = node.prim() else { return None };
        let mut operand = node.args()[0];
        let mut order: Vec<usize> = (0..graph.ty(operand).shape.rank()).collect();
        while let Prim::View(view) = graph.node_of(operand).prim() {
            let inner = graph.node_of(operand).args()[0];
            let Some(places) = permuted(view, &graph.ty(inner).shape) else { break };
            order = order.iter().map(|axis| places[*axis]).collect();
            operand = inner;
        }
        let mut axes: Vec<usize> = row.axes.iter().map(|axis| order[*axis]).collect();
        axes.sort_unstable();
        let kept = (0..order.len()).filter(|axis| !row.axes.contains(axis)).map(|axis| order[axis]).collect();
        Some(Fold { monoid: row.monoid, step: Step::of(graph, operand), axes, kept })
    }

    /// What is folded, where the result is seen through a view that repeats it along an axis: at every place of the axis, the element
    /// that this is folded from. `None` where the axis is not as long, or more is folded.
    pub(super) fn along(&self, graph: &Graph, view: &View, axis: usize) -> Option<Seen> {
        let (&[folded], shape) = (self.axes.as_slice(), self.step.shape(graph)) else { return None };
        let varies = view.map.iter().any(|dim| mentioned(dim) & axes([axis]) != 0);
        if varies || !view.guard.is_empty() || shape[folded] != view.shape[axis] {
            return None;
        }
        let mut map = vec![Dim::axis(axis); shape.rank()];
        self.kept.iter().zip(&view.map).for_each(|(place, dim)| map[*place] = dim.clone());
        Some(Seen { step: self.step, view: View::new(view.shape.clone(), map) })
    }
}

/// For a view that only permutes axes: which axis of the operand each of its axes is.
fn permuted(view: &View, operand: &Shape) -> Option<Vec<usize>> {
    if view.shape.rank() != operand.rank() || !view.guard.is_empty() {
        return None;
    }
    let units: Vec<usize> = (0..operand.rank()).filter(|axis| operand[*axis].is(1)).collect();
    let place = |axis: usize| {
        if view.shape[axis].is(1) {
            // One is as good as another.
            return units.get((0..axis).filter(|before| view.shape[*before].is(1)).count()).copied();
        }
        let along = Dim::axis(axis);
        let place = view.map.iter().position(|dim| *dim == along)?;
        (operand[place] == view.shape[axis]).then_some(place)
    };
    (0..view.shape.rank()).map(place).collect()
}
