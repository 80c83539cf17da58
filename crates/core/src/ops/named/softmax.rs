//! Softmax and its kin: written here once for every operator that contains them.

use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::Monoid;
use crate::tensor::{Dim, Shape};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard("Softmax", 1, &["axis"], "exp(x) divided by its sum over an axis", |call| {
        let x = call.input(0)?;
        Ok(vec![softmax(x, &axes(call, x)?)])
    }),
    NamedOp::standard("LogSoftmax", 1, &["axis"], "the logarithm of Softmax", |call| {
        let x = call.input(0)?;
        Ok(vec![log_softmax(x, &axes(call, x)?)])
    }),
    NamedOp::standard("Hardmax", 1, &["axis"], "1 at the first maximum along an axis, 0 elsewhere", hardmax),
    NamedOp::contributed("BiasSoftmax", &["axis", "is_inner_broadcast"], "Softmax of a sum that broadcasts", |call| {
        let x = call.input(0)?;
        call.flag("is_inner_broadcast", true)?; // tells a kernel where the sizes of 1 lie; the shapes say so too
        Ok(vec![softmax(x + call.input(1)?, &trailing_axes(x, call.int_or("axis", 1)?)?)])
    }),
];

/// exp(x) divided by its sum over axes.
pub(super) fn softmax<'b>(x: Tensor<'b>, axes: &[usize]) -> Tensor<'b> {
    let e = (x - x.reduce_keep(Monoid::Max, axes)).exp();
    e / e.sum(axes)
}

/// The logarithm of [`softmax`], accurate where that is close to 0.
pub(super) fn log_softmax<'b>(x: Tensor<'b>, axes: &[usize]) -> Tensor<'b> {
    let shifted = x - x.reduce_keep(Monoid::Max, axes);
    shifted - shifted.exp().sum(axes).log()
}

/// The axes that a call normalises over: one from version 13 on; before, the tensor is seen as a matrix whose rows
/// hold the given axis and all that follow.
fn axes(call: &Call<'_, '_>, x: Tensor<'_>) -> Result<Vec<usize>> {
    if call.opset >= 13 {
        return Ok(vec![x.axis(call.int_or("axis", -1)?)?]);
    }
    trailing_axes(x, call.int_or("axis", 1)?)
}

/// The given axis and all that follow; an axis just behind the last one means none.
fn trailing_axes(x: Tensor<'_>, axis: i64) -> Result<Vec<usize>> {
    let rank = x.rank()?;
    let from = if axis < 0 { axis + rank as i64 } else { axis };
    match usize::try_from(from).ok().filter(|from| *from <= rank) {
        Some(from) => Ok((from..rank).collect()),
        None => Err(Error::invalid(format!("axis {axis} of a tensor with {rank} axes"))),
    }
}

fn hardmax<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let shape = x.shape()?;
    if shape.dims().iter().any(|d| d.is(0)) {
        return Ok(vec![x]);
    }
    let axes = axes(call, x)?;
    if call.opset >= 13 {
        return Ok(vec![one_at_maximum(x, axes[0])?]);
    }
    let (rows, row) = shape.dims().split_at(shape.rank() - axes.len());
    let matrix: [Dim; 2] = [rows.iter().product(), row.iter().product()];
    let matrix = x.reshape(Shape::new(matrix));
    Ok(vec![one_at_maximum(matrix, 1)?.reshape(shape.clone())])
}

fn one_at_maximum(x: Tensor<'_>, axis: usize) -> Result<Tensor<'_>> {
    let ty = x.ty()?;
    let first = x.reduce_keep(Monoid::ArgMax, &[axis]);
    Ok(x.builder().coordinate(axis, &ty.shape).equal(first).cast(ty.dtype))
}
