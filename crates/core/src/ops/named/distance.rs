//! Distances of rows.

use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::Monoid;

pub(super) static OPS: &[NamedOp] =
    &[NamedOp::contributed("CDist", &["metric"], "the distances of all pairs of rows, squared or not", |call| {
        Ok(vec![distances(call)?])
    })];

fn distances<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    if a.rank()? != 2 || b.rank()? != 2 {
        return Err(Error::invalid(format!("CDist of {} and {}", a.ty()?, b.ty()?)));
    }
    let apart = a.insert_axes(&[1]) - b.insert_axes(&[0]);
    let squares = apart.square().reduce(Monoid::Sum, &[2]);
    match call.str_or("metric", "sqeuclidean")? {
        "sqeuclidean" => Ok(squares),
        "euclidean" => Ok(squares.sqrt()),
        other => Err(call.unsupported("metric", other)),
    }
}
