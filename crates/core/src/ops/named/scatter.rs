//! Operators that write at places given by data.

use super::indexing::Coordinates;
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::{Combine, Scatter, View, identity_map};
use crate::tensor::{DType, Dim, Shape, Symbol};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp {
        name: "Scatter",
        domain: "",
        since: 9,
        attributes: &["axis"],
        doc: "the old name of ScatterElements",
        expand: scatter_elements,
    },
    NamedOp {
        name: "ScatterElements",
        domain: "",
        since: 11,
        attributes: &["axis", "reduction"],
        doc: "updates written along an axis at places given by indices of their shape",
        expand: scatter_elements,
    },
    NamedOp {
        name: "ScatterND",
        domain: "",
        since: 11,
        attributes: &["reduction"],
        doc: "slices written at coordinates given by the last axis of the indices",
        expand: scatter_nd,
    },
    NamedOp {
        name: "TensorScatter",
        domain: "",
        since: 24,
        attributes: &["axis", "mode"],
        doc: "updates written into a cache along an axis from a place of each batch on",
        expand: tensor_scatter,
    },
];

fn combine(call: &Call<'_, '_>) -> Result<Combine> {
    if call.op.name == "Scatter" {
        return Ok(Combine::Replace);
    }
    match call.str_or("reduction", "none")? {
        "none" => Ok(Combine::Replace),
        other => Combine::from_name(other)
            .filter(|c| *c != Combine::Replace)
            .ok_or_else(|| Error::invalid(format!("{} with reduction {other}", call.op.name))),
    }
}

/// The tensor with sizes that must agree, checked at run time where that is not known.
fn with_sizes<'b>(call: &Call<'_, 'b>, x: Tensor<'b>, shape: &Shape) -> Result<Tensor<'b>> {
    if x.rank()? != shape.rank() {
        return Err(Error::invalid(format!("{}: {} where the shape {shape} is wanted", call.op.name, x.ty()?)));
    }
    for (a, b) in x.shape()?.dims().iter().zip(shape.dims()) {
        call.builder.require_equal(a, b, "the shape of updates")?;
    }
    Ok(x.with_shape(shape.clone()))
}

fn scatter_elements<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (x, indices) = (call.input(0)?, call.input(1)?);
    let axis = x.axis(call.int_or("axis", 0)?)?;
    let shape = indices.shape()?;
    if shape.rank() != x.rank()? {
        return Err(Error::invalid(format!("{} into {} at {}", call.op.name, x.ty()?, indices.ty()?)));
    }
    let updates = with_sizes(call, call.input(2)?, &shape)?;
    let indices = indices.cast(DType::I64).wrap_index(&x.dim(axis)?);
    let mut map = identity_map(shape.rank());
    map[axis] = Symbol::Read(0).into();
    Ok(vec![x.scatter(Scatter { combine: combine(call)?, map }, updates, &[indices])])
}

fn scatter_nd<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let coordinates = Coordinates::of(x, call.input(1)?, 0)?;
    let own = x.shape()?;
    let shape = Shape::from([coordinates.places.as_slice(), &own.dims()[coordinates.len()..]].concat());
    let updates = with_sizes(call, call.input(2)?, &shape)?;
    let map = coordinates.map(0, own.rank());
    let scatter = Scatter { combine: combine(call)?, map };
    Ok(vec![x.scatter(scatter, updates, &coordinates.spread(&shape))])
}

fn tensor_scatter<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (cache, update) = (call.input(0)?, call.input(1)?);
    let axis = cache.axis(call.int_or("axis", -2)?)?;
    let size = cache.dim(axis)?;
    let mut dims = cache.shape()?.dims().to_vec();
    dims[axis] = update.dim(axis)?;
    let shape = Shape::from(dims);
    let update = with_sizes(call, update, &shape)?;
    let (starts, first) = match call.optional(2) {
        Some(starts) => {
            let starts = with_sizes(call, starts, &Shape::from(vec![cache.dim(0)?]))?;
            let spread = View::new(shape.clone(), vec![Dim::axis(0)]);
            (vec![starts.cast(DType::I64).view(spread)], Symbol::Read(0).into())
        }
        None => (Vec::new(), Dim::int(0)),
    };
    let place = first + Dim::axis(axis);
    let mut map = identity_map(shape.rank());
    map[axis] = match call.str_or("mode", "linear")? {
        "linear" => place,
        "circular" => place.modulo(&size),
        other => return Err(Error::invalid(format!("TensorScatter with mode {other}"))),
    };
    Ok(vec![cache.scatter(Scatter { combine: Combine::Replace, map }, update, &starts)])
}
