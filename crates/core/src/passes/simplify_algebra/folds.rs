//! Folds that can be said with less, and what is done with them.

use smallvec::SmallVec;

use super::called;
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Value};
use crate::ops::prim::{Map, Monoid, Reduce, View};
use crate::ops::{Expr, ExprNode, Prim, Scalar};
use crate::tensor::{DType, Dim, Shape};

/// A fold that is another one: the least of negated numbers is the largest of them, negated; what is folded along an axis on which parts of
/// one element stand side by side is folded as they are.
pub(super) fn plainer(
    rebuild: &mut Rebuild<'_>,
    row: &Reduce,
    operand: Value,
    is_real: bool,
) -> Result<Option<Values>> {
    let node = rebuild.graph().node_of(operand);
    match node.prim() {
        // The least integer is its own negative, and so are the halves of those without a sign: their order is no other one backwards.
        Prim::Map(map) if map.expr.dtype().is_float() => {
            let other = match row.monoid {
                Monoid::Min => Monoid::Max,
                Monoid::Max => Monoid::Min,
                _ => return Ok(None),
            };
            let Some(&[x]) = called(map, node.args(), Scalar::Neg) else { return Ok(None) };
            let fold = rebuild.add(Reduce { monoid: other, axes: row.axes.clone() }, &[x])?;
            let ty = rebuild.graph().ty(fold).clone();
            replaced(rebuild.add(Map { expr: Expr::call(Scalar::Neg, &[ty.dtype])?, shape: ty.shape }, &[fold])?)
        }
        Prim::Concat(parts) if row.axes == [parts.axis] && (is_real || row.monoid != Monoid::Sum) => {
            let op = match row.monoid {
                Monoid::Sum => Scalar::Add,
                Monoid::Prod => Scalar::Mul,
                Monoid::Max => Scalar::Max,
                Monoid::Min => Scalar::Min,
                _ => return Ok(None),
            };
            let (axis, args) = (parts.axis, SmallVec::<[Value; 4]>::from_slice(node.args()));
            side_by_side(rebuild, op, axis, &args)
        }
        _ => Ok(None),
    }
}

/// More parts are a table.
const MOST_PARTS: usize = 8;

fn side_by_side(rebuild: &mut Rebuild<'_>, op: Scalar, axis: usize, parts: &[Value]) -> Result<Option<Values>> {
    let graph = rebuild.graph();
    let (dtype, whole) = (graph.ty(parts[0]).dtype, graph.ty(parts[0]).shape.clone());
    let is_one = |part: &Value| graph.ty(*part).shape[axis].is(1);
    if parts.len() > MOST_PARTS || !parts.iter().all(is_one) || !(dtype.is_float() || dtype.is_int()) {
        return Ok(None);
    }
    let kept: Vec<usize> = (0..whole.rank()).filter(|a| *a != axis).collect();
    let shape: Shape = kept.iter().map(|a| whole[*a].clone()).collect();
    let place = |a: usize| kept.iter().position(|k| *k == a).map_or(Dim::int(0), Dim::axis);
    let map: Vec<Dim> = (0..whole.rank()).map(place).collect();
    let mut folded = None;
    for part in parts {
        let part = rebuild.add(View::new(shape.clone(), map.clone()), &[*part])?;
        folded = Some(match folded {
            Some(before) => {
                rebuild.add(Map { expr: Expr::call(op, &[dtype; 2])?, shape: shape.clone() }, &[before, part])?
            }
            None => part,
        });
    }
    folded.map_or(Ok(None), replaced)
}

/// Whether a count of truths is not zero is whether some of them holds, and whether it is as many as there are is whether all do.
pub(super) fn counted(rebuild: &mut Rebuild<'_>, row: &Map, args: &[Value]) -> Result<Option<Values>> {
    let Some(asked) = asks(rebuild.graph(), row, args) else { return Ok(None) };
    let (fold, truths) = (rebuild.graph().node_of(args[0]), asked.truths);
    let Prim::Reduce(fold) = fold.prim() else { return Ok(None) };
    let axes = fold.axes.clone();
    let node = rebuild.graph().node_of(truths);
    let Prim::Map(map) = node.prim() else { return Ok(None) };
    let (map, operands) = (map.clone(), SmallVec::<[Value; 3]>::from_slice(node.args()));
    // Bytes: of no truths the largest is 0, and the least is not.
    let expr =
        Expr::build(map.expr.args(), |scope, leaves| map.expr.inline(scope, leaves).operands()[0].cast(DType::U8));
    let numbers = rebuild.add(Map { expr, shape: map.shape }, &operands)?;
    let fold = rebuild.add(Reduce { monoid: asked.monoid, axes }, &[numbers])?;
    let expr = Expr::build(&[DType::U8], |_, x| {
        let holds = x[0].cast(DType::Bool);
        if asked.holds { holds } else { holds.apply(Scalar::Not) }
    });
    replaced(rebuild.add(Map { expr, shape: row.shape.clone() }, &[fold])?)
}

/// What a condition on a count of truths says.
struct Asked {
    /// the truths as numbers
    truths: Value,
    /// max: some of them holds; min: all do
    monoid: Monoid,
    /// whether it says so, or the opposite
    holds: bool,
}

fn asks(graph: &Graph, row: &Map, args: &[Value]) -> Option<Asked> {
    let &[count] = args else { return None };
    if row.expr.dtype() != DType::Bool || graph.ty(count).dtype == DType::Bool {
        return None;
    }
    let node = graph.node_of(count);
    let Prim::Reduce(Reduce { monoid: Monoid::Sum, axes }) = node.prim() else { return None };
    let truths = node.args()[0];
    let Prim::Map(numbers) = graph.node_of(truths).prim() else { return None };
    // A type of few bits may have begun again at zero.
    let dtype = numbers.expr.dtype();
    let (last, before) = (numbers.expr.nodes().last()?, dtype.is_float() || dtype.bits() >= 32);
    let is_truth = matches!(last.0, ExprNode::Cast(x) if numbers.expr.nodes()[x as usize].1 == DType::Bool);
    if !is_truth || !before {
        return None;
    }
    let shape = &numbers.shape;
    let most: Dim = axes.iter().map(|axis| &shape[*axis]).product();
    if let Some(holds) = is_all(&row.expr, &most, dtype) {
        return Some(Asked { truths, monoid: Monoid::Min, holds });
    }
    // A comparison with one number that tells 0 from 1, and 1 not from 2, tells 0 from all others.
    let [none, one, two] = [0.0, 1.0, 2.0].map(|n| value(&row.expr, n));
    let (none, one, two) = (none?, one?, two?);
    (none != one && one == two).then_some(Asked { truths, monoid: Monoid::Max, holds: one != 0.0 })
}

/// Whether an expression of a count is that it is as large as can be (true), or that it is not (false).
fn is_all(expr: &Expr, most: &Dim, dtype: DType) -> Option<bool> {
    if dtype.is_float() {
        return None; // large counts are rounded
    }
    let (nodes, holds) = match expr.nodes() {
        [rest @ .., (ExprNode::Apply(Scalar::Not, _), _)] => (rest, false),
        nodes => (nodes, true),
    };
    let (ExprNode::Apply(Scalar::Eq, sides), _) = nodes.last()? else { return None };
    let is_most = |k: u32| match &nodes[k as usize].0 {
        ExprNode::Const(number) => most.as_int().is_some_and(|n| number.to_f64() == n as f64),
        ExprNode::Size(dim) => dim == most,
        _ => false,
    };
    let is_count = |k: u32| matches!(nodes[k as usize].0, ExprNode::Arg(_));
    let fits = (is_count(sides[0]) && is_most(sides[1])) || (is_count(sides[1]) && is_most(sides[0]));
    (fits && nodes.len() == 3).then_some(holds)
}

/// What a comparison of a count, perhaps of a positive multiple of it, gives; `None` for other expressions.
fn value(expr: &Expr, count: f64) -> Option<f64> {
    let mut values: Vec<f64> = Vec::with_capacity(expr.nodes().len());
    let mut comparisons = 0;
    for (node, dtype) in expr.nodes() {
        let at = |k: &u32| values[*k as usize];
        values.push(match node {
            ExprNode::Arg(_) => count,
            ExprNode::Const(number) => number.to_f64(),
            ExprNode::Cast(x) if *dtype == DType::Bool => {
                comparisons += 1;
                f64::from(at(x) != 0.0)
            }
            ExprNode::Apply(Scalar::Not, x) if *dtype == DType::Bool => 1.0 - at(&x[0]),
            ExprNode::Apply(Scalar::Mul, x) => {
                let factor = at(&x[1]);
                let constant = matches!(expr.nodes()[x[1] as usize].0, ExprNode::Const(_));
                Some(at(&x[0]) * factor).filter(|_| constant && factor > 0.0)?
            }
            ExprNode::Apply(op @ (Scalar::Lt | Scalar::Le | Scalar::Eq), x) => {
                comparisons += 1;
                let (a, b) = (at(&x[0]), at(&x[1]));
                f64::from(match op {
                    Scalar::Lt => a < b,
                    Scalar::Le => a <= b,
                    _ => a == b,
                })
            }
            _ => return None,
        });
    }
    values.pop().filter(|_| comparisons == 1)
}
