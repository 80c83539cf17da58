//! Exponentials of differences with a row's own numbers: one form of a softmax.

use smallvec::SmallVec;

use super::called;
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Value};
use crate::ops::prim::{Map, Monoid, Reduce, View};
use crate::ops::{Expr, ExprNode, Prim, Scalar, range};
use crate::tensor::Dim;

/// `exp(x − log Σ exp(x))` is `exp(x) / Σ exp(x)`: a log-softmax taken back is a softmax; so is one of which a part is seen.
pub(super) fn divide_by_sum(rebuild: &mut Rebuild<'_>, row: &Map, args: &[Value]) -> Result<Option<Values>> {
    let Some(&[logarithm]) = called(row, args, Scalar::Exp) else { return Ok(None) };
    let graph = rebuild.graph();
    let node = graph.node_of(logarithm);
    let (seen, logarithm) = match node.prim() {
        Prim::View(view) if view.guard.is_empty() => (Some(view.clone()), node.args()[0]),
        _ => (None, logarithm),
    };
    let Some((power, view, sum)) = normalised(graph, logarithm) else { return Ok(None) };
    let ty = graph.ty(power).clone();
    let sum = rebuild.add(view, &[sum])?;
    let expr = Expr::call(Scalar::Div, &[ty.dtype; 2])?;
    let quotient = rebuild.add(Map { expr, shape: ty.shape }, &[power, sum])?;
    match seen {
        Some(view) => replaced(rebuild.add(view, &[quotient])?),
        None => replaced(quotient),
    }
}

/// The operands of a value that is one function of floats.
fn map(graph: &Graph, value: Value, op: Scalar) -> Option<&[Value]> {
    match graph.node_of(value).prim() {
        Prim::Map(row) => called(row, graph.node_of(value).args(), op),
        _ => None,
    }
}

/// For `x − log Σ exp(x)`: `exp(x)`, and how its sum is looked at.
fn normalised(graph: &Graph, value: Value) -> Option<(Value, View, Value)> {
    let &[x, shift] = map(graph, value, Scalar::Sub)? else { return None };
    let node = graph.node_of(shift);
    let Prim::View(view) = node.prim() else { return None };
    let sum = map(graph, node.args()[0], Scalar::Log)?[0];
    // Perhaps with the folded axis put back.
    let folded = match graph.node_of(sum).prim() {
        Prim::View(kept) if kept.guard.is_empty() => graph.node_of(sum).args()[0],
        _ => sum,
    };
    let Prim::Reduce(fold) = graph.node_of(folded).prim() else { return None };
    let power = graph.node_of(folded).args()[0];
    let sums_powers = fold.monoid == Monoid::Sum && map(graph, power, Scalar::Exp)? == [x];
    (sums_powers && view.guard.is_empty()).then(|| (power, view.clone(), sum))
}

/// `exp(c · (x − max x))` and the like with powers of two are `exp(y − max y)` for the multiple `y` of `x`: a positive number passes a maximum.
pub(super) fn scale_before_maximum(rebuild: &mut Rebuild<'_>, row: &Map, args: &[Value]) -> Result<Option<Values>> {
    let Some((difference, number)) = scaled(rebuild.graph(), row, args) else { return Ok(None) };
    let graph = rebuild.graph();
    let Some(&[x, shift]) = map(graph, difference, Scalar::Sub) else { return Ok(None) };
    let node = graph.node_of(shift);
    let Prim::View(view) = node.prim() else { return Ok(None) };
    let (view, max) = (view.clone(), node.args()[0]);
    let Prim::Reduce(fold) = graph.node_of(max).prim() else { return Ok(None) };
    let dtype = graph.ty(x).dtype;
    let is_own = fold.monoid == Monoid::Max && graph.node_of(max).args()[0] == x && view.guard.is_empty();
    // An exponent keeps its digits: ln 2 is none of a type of 8 or 11 bits.
    let is_kept = (dtype.round(number) - number).abs() <= number * f64::from(f32::EPSILON);
    if !is_own || number <= 0.0 || !range::may_move(number) || !is_kept {
        return Ok(None);
    }
    let (fold, shape) = (fold.clone(), row.shape.clone());
    let multiple = Expr::build(&[dtype], |scope, x| x[0] * scope.float(x[0], number));
    let y = rebuild.add(Map { expr: multiple, shape: shape.clone() }, &[x])?;
    let max = rebuild.add(Reduce { ..fold }, &[y])?;
    let max = rebuild.add(view, &[max])?;
    let less = rebuild.add(Map { expr: Expr::call(Scalar::Sub, &[dtype; 2])?, shape: shape.clone() }, &[y, max])?;
    replaced(rebuild.add(Map { expr: Expr::call(Scalar::Exp, &[dtype])?, shape }, &[less])?)
}

/// `y − max y` is `y` where `y` is `x − max x` already, along the same axes: the largest of such a row is 0. (GPT-OSS shifts its scores and their
/// sink before the softmax does.) Where the maximum of `x` is infinite or NaN, both are NaN in some place, and so is every sum of the row.
pub(super) fn shift_once(rebuild: &mut Rebuild<'_>, row: &Map, args: &[Value]) -> Result<Option<Values>> {
    let graph = rebuild.graph();
    let Some(&[y, shift]) = called(row, args, Scalar::Sub) else { return Ok(None) };
    let Some(axes) = maximum_of(graph, shift, y) else { return Ok(None) };
    let Some(&[x, inner]) = map(graph, y, Scalar::Sub) else { return Ok(None) };
    if maximum_of(graph, inner, x) == Some(axes) { replaced(y) } else { Ok(None) }
}

/// For the maximum of `x` along some axes, repeated along them: the axes.
fn maximum_of(graph: &Graph, value: Value, x: Value) -> Option<&[usize]> {
    let node = graph.node_of(value);
    let Prim::View(view) = node.prim() else { return None };
    let folded = graph.node_of(node.args()[0]);
    let Prim::Reduce(fold) = folded.prim() else { return None };
    let kept = (0..view.shape.rank()).filter(|axis| !fold.axes.contains(axis)).map(Dim::axis);
    let is_own = fold.monoid == Monoid::Max && folded.args()[0] == x && view.guard.is_empty();
    (is_own && view.map.iter().cloned().eq(kept)).then_some(fold.axes.as_slice())
}

/// For `exp(c · x)`, `2^x` and `2^(c · x)`: `x`, and the number that multiplies it in a power of e.
fn scaled(graph: &Graph, row: &Map, args: &[Value]) -> Option<(Value, f64)> {
    let &[power] = args else { return None };
    if !row.expr.dtype().is_float() {
        return None;
    }
    let ops: SmallVec<[&ExprNode; 4]> = row.expr.nodes().iter().map(|(node, _)| node).collect();
    let base = match ops.as_slice() {
        [ExprNode::Arg(0), ExprNode::Apply(Scalar::Exp, _)] => 1.0,
        [ExprNode::Arg(0), ExprNode::Apply(Scalar::Exp2, _)] => std::f64::consts::LN_2,
        _ => return None,
    };
    let times = |value: Value| {
        let Prim::Map(row) = graph.node_of(value).prim() else { return None };
        let nodes = row.expr.nodes();
        let [(ExprNode::Arg(0), _), (ExprNode::Const(number), _), (ExprNode::Apply(Scalar::Mul, _), _)] = nodes else {
            return None;
        };
        Some((graph.node_of(value).args()[0], number.to_f64()))
    };
    match times(power) {
        Some((x, number)) => Some((x, number * base)),
        None => (base != 1.0).then_some((power, base)),
    }
}
