//! Operators that move elements to other coordinates.

use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::{View, identity_map};
use crate::tensor::Dim;

pub(super) static OPS: &[NamedOp] = &[
    NamedOp {
        name: "Transpose",
        domain: "",
        since: 1,
        attributes: &["perm"],
        doc: "axes in the order `perm`, by default reversed",
        expand: transpose,
    },
    NamedOp {
        name: "Concat",
        domain: "",
        since: 1,
        attributes: &["axis"],
        doc: "tensors behind one another along an axis",
        expand: concat,
    },
    NamedOp {
        name: "Split",
        domain: "",
        since: 1,
        attributes: &["axis", "split", "num_outputs"],
        doc: "consecutive pieces along an axis",
        expand: split,
    },
    NamedOp {
        name: "Tile",
        domain: "",
        since: 1,
        attributes: &[],
        doc: "the tensor repeated along each axis",
        expand: tile,
    },
];

fn transpose<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let order = match call.ints("perm")? {
        Some(perm) => perm.iter().map(|a| x.axis(*a)).collect::<Result<Vec<_>>>()?,
        None => (0..x.rank()?).rev().collect(),
    };
    Ok(vec![x.permute(&order)])
}

fn concat<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let axis = match call.int("axis")? {
        Some(axis) => axis,
        None if call.opset < 4 => 1,
        None => return Err(Error::invalid("Concat needs an axis")),
    };
    Ok(vec![call.builder.concat(&call.present()?, axis)])
}

fn split<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let axis = x.axis(call.int_or("axis", 0)?)?;
    let size = x.dim(axis)?;
    let lengths: Vec<Dim> = match (call.ints("split")?, call.optional(1)) {
        (Some(given), _) => given.iter().map(|n| Dim::int(*n)).collect(),
        (None, Some(_)) => call.dims(1, "split")?,
        (None, None) => even_lengths(call, &size)?,
    };
    call.builder.require_equal(&lengths.iter().cloned().sum(), &size, "the pieces of Split")?;
    let mut start = Dim::int(0);
    let mut pieces = Vec::with_capacity(lengths.len());
    for len in lengths {
        let next = &start + &len;
        pieces.push(x.slice(axis, start, len, 1));
        start = next;
    }
    Ok(pieces)
}

/// Pieces of one length; since version 18 the last one may be shorter.
fn even_lengths(call: &Call<'_, '_>, size: &Dim) -> Result<Vec<Dim>> {
    let given = call.int("num_outputs")?;
    let count = given.unwrap_or(call.outputs as i64);
    if !(1..=4096).contains(&count) {
        return Err(Error::invalid(format!("Split into {count} pieces")));
    }
    if call.opset < 18 {
        return Ok(vec![size.floordiv(&Dim::int(count)); count as usize]);
    }
    let whole = size.ceildiv(&Dim::int(count));
    let left = |k: i64| (size - &whole * k).max_with(&Dim::int(0));
    Ok((0..count).map(|k| whole.min_with(&left(k))).collect())
}

fn tile<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let own = x.shape()?;
    let repeats = if call.opset < 6 {
        let axis = call.constant_ints(2, "axis")?.unwrap_or_default();
        let axis = x.axis(axis.first().copied().unwrap_or(0))?;
        let mut repeats = vec![Dim::int(1); own.rank()];
        repeats[axis] = call.dims(1, "tiles")?.pop().ok_or_else(|| Error::invalid("Tile needs a number of tiles"))?;
        repeats
    } else {
        call.dims(1, "repeats")?
    };
    if repeats.len() != own.rank() {
        return Err(Error::invalid(format!("Tile of shape {own} with {} repeats", repeats.len())));
    }
    let dims = own.dims().iter().zip(&repeats).map(|(d, r)| d * r).collect();
    let mut map = identity_map(own.rank());
    for (k, index) in map.iter_mut().enumerate().filter(|(k, _)| !repeats[*k].is(1)) {
        *index = index.modulo(&own[k]);
    }
    Ok(vec![x.view(View::new(dims, map))])
}
