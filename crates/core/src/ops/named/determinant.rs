//! Determinants and inverses, by elimination with row pivots.

use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::Monoid;
use crate::tensor::DType;

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard("Det", 11, &[], "the determinant of every matrix", |call| Ok(vec![determinant(call)?])),
    NamedOp::contributed("Inverse", &[], "the inverse of every matrix", |call| Ok(vec![inverse(call)?])),
];

/// Larger matrices than this would be written out into too many steps.
const LARGEST: i64 = 64;

/// How many axes lie before those of square matrices, and how many rows these have.
fn square(call: &Call<'_, '_>, x: Tensor<'_>) -> Result<(usize, i64)> {
    let (shape, name) = (x.shape()?, call.op.name);
    let batch = shape.rank().checked_sub(2).ok_or_else(|| Error::invalid(format!("{name} of {shape}")))?;
    let (rows, columns) = (&shape[batch], &shape[batch + 1]);
    call.builder.require_equal(rows, columns, "a square matrix")?;
    let Some(size) = rows.as_int().or(columns.as_int()) else {
        return Err(Error::needs_value(format!("the number of rows of a matrix, {rows}, must be known"), Vec::new()));
    };
    if size > LARGEST {
        return Err(Error::unsupported(format!("{name} of matrices of {rows} rows")));
    }
    Ok((batch, size))
}

/// Elimination of every column from all other rows, by the row in which it is largest.
fn inverse<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let x = call.input(0)?;
    let (shape, dtype) = (x.shape()?, x.dtype()?);
    let (batch, size) = square(call, x)?;
    let (row, column) = (batch, batch + 1);
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let (b, x) = (call.builder, x.cast(wide));
    let unit = b.coordinate(row, &shape).equal(b.coordinate(column, &shape)).cast(wide);
    let mut rows = b.concat(&[x, unit], column as i64);
    for k in 0..size {
        let first = rows.element(column, k as usize);
        let number = b.coordinate(batch, &first.shape()?);
        let at = number.ge(k).select(first.abs(), -1.0).reduce(Monoid::ArgMax, &[batch]).insert_axes(&[batch]);
        let is_pivot = number.equal(at).insert_axes(&[column]);
        let pivot_row = is_pivot.select(rows, 0.0).reduce(Monoid::Sum, &[row]).insert_axes(&[row]);
        let solved = pivot_row / pivot_row.slice(column, k as usize, 1usize, 1);
        // The row that stood here takes the place of the pivot's.
        let moved = is_pivot.select(rows.slice(row, k as usize, 1usize, 1).expand(rows.shape()?), rows);
        let others = moved - moved.slice(column, k as usize, 1usize, 1) * solved;
        rows = number.equal(k).insert_axes(&[column]).select(solved.expand(rows.shape()?), others);
    }
    Ok(rows.slice(column, size as usize, size as usize, 1).cast(dtype))
}

fn determinant<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let x = call.input(0)?;
    let (shape, dtype) = (x.shape()?, x.dtype()?);
    let (batch, size) = square(call, x)?;
    let wide = if dtype == DType::F64 { DType::F64 } else { DType::F32 };
    let mut rest = x.cast(wide);
    let mut product: Option<Tensor<'b>> = None;
    for left in (1..=size).rev() {
        let step = eliminate(rest, batch, left)?;
        product = Some(product.map_or(step.factor, |p| p * step.factor));
        rest = step.rest;
    }
    match product {
        Some(product) => Ok(product.cast(dtype)),
        None => Ok(call.builder.scalar(dtype, 1.0).expand(shape.dims()[..batch].to_vec())),
    }
}

/// One step of the elimination.
struct Step<'b> {
    /// the pivot, negative where rows were exchanged
    factor: Tensor<'b>,
    /// the matrix without its first column and the pivot's row
    rest: Tensor<'b>,
}

/// Eliminates the first column of matrices of `size` rows by the row in which it is largest.
fn eliminate<'b>(x: Tensor<'b>, batch: usize, size: i64) -> Result<Step<'b>> {
    let (row, column) = (batch, batch + 1);
    let first = x.element(column, 0usize);
    let at = first.abs().reduce(Monoid::ArgMax, &[batch]).insert_axes(&[batch]);
    let is_pivot = x.builder().coordinate(batch, &first.shape()?).equal(at);
    let pivot_row = is_pivot.insert_axes(&[column]).select(x, 0.0).reduce(Monoid::Sum, &[row]);
    let pivot = pivot_row.element(batch, 0usize);
    let exchanged = is_pivot.element(batch, 0usize).not();
    let factor = exchanged.select(-pivot, pivot);
    if size == 1 {
        return Ok(Step { factor, rest: x });
    }
    // The first row takes the place of the pivot's.
    let (below, moved) = (x.slice(row, 1usize, size - 1, 1), is_pivot.slice(batch, 1usize, size - 1, 1));
    let below = moved.insert_axes(&[column]).select(x.slice(row, 0usize, 1usize, 1).expand(below.shape()?), below);
    let divisor = pivot.equal(0.0).select(pivot + 1.0, pivot).insert_axes(&[batch, batch + 1]);
    let ratio = below.slice(column, 0usize, 1usize, 1) / divisor;
    let others = pivot_row.slice(batch, 1usize, size - 1, 1).insert_axes(&[batch]);
    Ok(Step { factor, rest: below.slice(column, 1usize, size - 1, 1) - ratio * others })
}
