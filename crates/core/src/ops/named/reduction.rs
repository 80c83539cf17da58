//! Reductions over axes, and running sums.

use super::elementwise::as_float;
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::Monoid;

/// The attributes of reductions, of all versions.
const REDUCE: &[&str] = &["axes", "keepdims", "noop_with_empty_axes"];
/// The attributes of positions.
const POSITION: &[&str] = &["axis", "keepdims", "select_last_index"];
/// The attributes of running folds.
const RUNNING: &[&str] = &["exclusive", "reverse"];

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard("ReduceSum", 1, REDUCE, "the sum over axes", |call| fold(call, Monoid::Sum)),
    NamedOp::standard("ReduceProd", 1, REDUCE, "the product over axes", |call| fold(call, Monoid::Prod)),
    NamedOp::standard("ReduceMax", 1, REDUCE, "the largest over axes", |call| fold(call, Monoid::Max)),
    NamedOp::standard("ReduceMin", 1, REDUCE, "the smallest over axes", |call| fold(call, Monoid::Min)),
    NamedOp::standard("ReduceMean", 1, REDUCE, "the mean over axes; integers truncate", |call| {
        reduce(call, |x, axes| Ok(x.mean(axes)))
    }),
    NamedOp::standard("ReduceL1", 1, REDUCE, "the sum of magnitudes over axes", |call| {
        reduce(call, |x, axes| Ok(x.abs().sum(axes)))
    }),
    NamedOp::standard("ReduceL2", 1, REDUCE, "the root of the sum of squares over axes", |call| {
        reduce(call, |x, axes| Ok(as_float(x.square().sum(axes))?.sqrt()))
    }),
    NamedOp::standard("ReduceSumSquare", 1, REDUCE, "the sum of squares over axes", |call| {
        reduce(call, |x, axes| Ok(x.square().sum(axes)))
    }),
    NamedOp::standard("ReduceLogSum", 1, REDUCE, "the logarithm of the sum over axes", |call| {
        reduce(call, |x, axes| Ok(as_float(x.sum(axes))?.log()))
    }),
    NamedOp::standard("ReduceLogSumExp", 1, REDUCE, "the logarithm of the sum of exponentials over axes", |call| {
        reduce(call, |x, axes| Ok(log_sum_exp(as_float(x)?, axes)))
    }),
    NamedOp::standard("ArgMax", 1, POSITION, "the position of the largest along an axis", |call| {
        position(call, Monoid::ArgMax, Monoid::ArgMaxLast)
    }),
    NamedOp::standard("ArgMin", 1, POSITION, "the position of the smallest along an axis", |call| {
        position(call, Monoid::ArgMin, Monoid::ArgMinLast)
    }),
    NamedOp::standard("CumSum", 11, RUNNING, "running sums along an axis", |call| running(call, Monoid::Sum)),
    NamedOp::standard("CumProd", 26, RUNNING, "running products along an axis", |call| running(call, Monoid::Prod)),
];

/// The logarithm of the sum of exponentials over axes, which keep the size 1.
pub(super) fn log_sum_exp<'b>(x: Tensor<'b>, axes: &[usize]) -> Tensor<'b> {
    let largest = x.reduce_keep(Monoid::Max, axes);
    // An infinite shift would make NaN of ∞ − ∞; without one the result is the infinity that it should be.
    let shift = largest.abs().lt(f64::INFINITY).select(largest, 0);
    (x - shift).exp().sum(axes).log() + shift
}

/// The axes that a call reduces over: an attribute, later an operand; all of them where none are named, or none.
fn axes(call: &Call<'_, '_>, x: Tensor<'_>) -> Result<Vec<usize>> {
    match call.ints_or_input("axes", 1)? {
        Some(axes) if !axes.is_empty() => x.axes(&axes),
        _ if call.flag("noop_with_empty_axes", false)? => Ok(Vec::new()),
        _ => Ok((0..x.rank()?).collect()),
    }
}

/// A reduction whose `body` keeps the axes; the result has the type of the operand.
fn reduce<'b>(
    call: &Call<'_, 'b>,
    body: impl FnOnce(Tensor<'b>, &[usize]) -> Result<Tensor<'b>>,
) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let axes = axes(call, x)?;
    let reduced = body(x, &axes)?.cast(x.dtype()?);
    Ok(vec![if call.flag("keepdims", true)? { reduced } else { reduced.remove_axes(&axes) }])
}

fn fold<'b>(call: &Call<'_, 'b>, monoid: Monoid) -> Result<Vec<Tensor<'b>>> {
    reduce(call, |x, axes| Ok(x.reduce_keep(monoid, axes)))
}

fn position<'b>(call: &Call<'_, 'b>, first: Monoid, last: Monoid) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let axis = x.axis(call.int_or("axis", 0)?)?;
    let monoid = if call.flag("select_last_index", false)? { last } else { first };
    let found = x.reduce(monoid, &[axis]);
    Ok(vec![if call.flag("keepdims", true)? { found.insert_axes(&[axis]) } else { found }])
}

fn running<'b>(call: &Call<'_, 'b>, monoid: Monoid) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let axis = match call.constant_ints(1, "axis")?.as_deref() {
        Some([axis]) => x.axis(*axis)?,
        _ => return Err(Error::invalid(format!("{} takes one axis", call.op.name))),
    };
    let (exclusive, reverse) = (call.flag("exclusive", false)?, call.flag("reverse", false)?);
    let turned = |x: Tensor<'b>| if reverse { x.flip(axis) } else { x };
    Ok(vec![turned(turned(x).prefix(monoid, axis, exclusive))])
}
