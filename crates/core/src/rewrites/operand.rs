//! Factors of an operand of a contraction, from the coordinates of the result.

use super::facts::{Axes, axes};
use super::peel::{Action, Factor, act, cast};
use super::seen::Seen;
use crate::error::{Error, Result};
use crate::graph::rewrite::Rebuild;
use crate::graph::{Graph, Node, Value};
use crate::ops::prim::{Contract, Label, Map, View};
use crate::ops::{Expr, Number};
use crate::tensor::{DType, Dim, Ranges};

/// The labels of an operand's axes.
pub(super) fn labels(row: &Contract, operand: usize) -> &[Label] {
    [&row.a, &row.b][operand]
}

/// The axes of an operand that are summed over.
pub(super) fn summed_axes(row: &Contract, operand: usize) -> Axes {
    let labels = labels(row, operand);
    axes((0..labels.len()).filter(|k| !row.out.contains(&labels[*k])))
}

/// What an operand is seen through without the guards of the view: where these fill with 0, a factor of what they guard is one
/// of the whole. `None` if what is behind could then be looked up outside of itself.
pub(super) fn unguarded(graph: &Graph, seen: &Seen) -> Option<Seen> {
    if seen.view.guard.is_empty() {
        return Some(seen.clone());
    }
    let open = Seen { step: seen.step, view: View::new(seen.view.shape.clone(), seen.view.map.clone()) };
    let ranges = Ranges::of(open.view.shape.dims());
    let inside = |leaf: &Seen| {
        let sizes = leaf.step.shape(graph).dims();
        leaf.view.map.len() == sizes.len()
            && leaf.view.map.iter().zip(sizes).all(|(at, size)| ranges.is_below(at, size))
    };
    open.leaves(graph)?.iter().all(inside).then_some(open)
}

/// An operand of a contraction from the coordinates of its result, where it does not matter how far along the summed axes.
pub(super) fn from_result(node: &Node, row: &Contract, operand: usize) -> View {
    let place = |label: &Label| row.out.iter().position(|l| l == label).map_or(Dim::int(0), Dim::axis);
    View::new(node.types()[0].shape.clone(), labels(row, operand).iter().map(place).collect())
}

/// A result on which the factors of an operand act, the innermost first, computed in its type.
pub(super) fn acted_on(
    graph: &Graph,
    rebuild: &mut Rebuild<'_>,
    at: (&Node, &Contract, usize),
    factors: &[Factor],
    result: Value,
) -> Result<Value> {
    let mut result = result;
    for factor in factors.iter().rev() {
        let dtype = match factor.action {
            Action::Times | Action::Over => rebuild.graph().ty(result).dtype,
            Action::Unless | Action::OnlyIf => DType::Bool,
        };
        let value = factor_at_result(graph, rebuild, at, &factor.seen, dtype)?;
        result = act(rebuild, factor.action, result, value)?;
    }
    Ok(result)
}

/// What is seen from the coordinates of an operand, at the coordinates of the result.
pub(super) fn at_result(
    graph: &Graph,
    rebuild: &mut Rebuild<'_>,
    at: (&Node, &Contract, usize),
    seen: &Seen,
) -> Result<Value> {
    seen_from_result(at, seen)?.rebuilt(graph, rebuild)
}

fn seen_from_result((node, row, operand): (&Node, &Contract, usize), seen: &Seen) -> Result<Seen> {
    let view = from_result(node, row, operand).after(&seen.view);
    let view = view.ok_or_else(|| Error::bug("views without guards compose"))?;
    Ok(Seen { step: seen.step, view })
}

/// A factor in another type at the coordinates of the result. Where nothing is summed, the result is 0 and stays so: what is computed of a
/// row without elements (the normaliser of a softmax over no keys) may be no number, and is 1.
fn factor_at_result(
    graph: &Graph,
    rebuild: &mut Rebuild<'_>,
    at: (&Node, &Contract, usize),
    seen: &Seen,
    dtype: DType,
) -> Result<Value> {
    let seen = seen_from_result(at, seen)?;
    let summed = summed_count(graph, at);
    let is_always = seen.reductions(graph).is_empty() || (&summed - 1).is_nonnegative();
    if is_always || dtype == DType::Bool {
        let value = seen.rebuilt(graph, rebuild)?;
        return cast(rebuild, value, dtype);
    }
    // Once for a row, not for each of its results.
    let Seen { step, view } = seen.behind_views(graph);
    let value = Seen::at(graph, step).rebuilt(graph, rebuild)?;
    let value = cast(rebuild, value, dtype)?;
    let expr = Expr::build(&[dtype], |scope, x| {
        let none = scope.constant(DType::I64, Number::Int(0));
        none.lt(scope.index(&summed)).select(x[0], scope.constant(dtype, Number::new(dtype, 1.0)))
    });
    let shape = rebuild.graph().ty(value).shape.clone();
    let is_whole = view.is_identity(&shape);
    let value = rebuild.add(Map { expr, shape }, &[value])?;
    if is_whole { Ok(value) } else { rebuild.add(view, &[value]) }
}

/// How many products a contraction sums for each element.
fn summed_count(graph: &Graph, (node, row, _): (&Node, &Contract, usize)) -> Dim {
    let types = [0, 1].map(|operand| graph.ty(node.args()[operand]).clone());
    row.summed().iter().filter_map(|label| row.extent(&types, *label)).cloned().product()
}
