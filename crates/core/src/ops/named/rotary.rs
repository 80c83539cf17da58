//! Rotary position embeddings: pairs of elements turned by an angle that grows with the position.
//!
//! The partner of an element and its place in the tables are index maps, its sign is an expression of its coordinate, so
//! nothing is split or joined: `y[j] = x[j]·cos[pair(j)] ∓ x[partner(j)]·sin[pair(j)]`.

use super::attention::{merge_heads, split_heads};
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::View;
use crate::tensor::{DType, Dim, Shape};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard(
        "RotaryEmbedding",
        23,
        &["interleaved", "num_heads", "rotary_embedding_dim"],
        "rotary position embedding with tables of cosines and sines",
        |call| {
            let (cos, sin) = (call.input(1)?, call.input(2)?);
            match call.optional(3) {
                Some(positions) => embed(call, cos.take(0, positions), sin.take(0, positions)),
                None => embed(call, cos, sin),
            }
        },
    ),
    NamedOp::contributed(
        "RotaryEmbedding",
        &["interleaved", "is_packed_batching", "num_heads", "rotary_embedding_dim", "scale"],
        "rotary position embedding; a single position is that of the first element",
        |call| {
            if call.float_or("scale", 1.0)? != 1.0 {
                return Err(call.unsupported("scale", call.float_or("scale", 1.0)?));
            }
            if call.flag("is_packed_batching", false)? {
                return Err(call.unsupported("is_packed_batching", 1));
            }
            let x = call.input(0)?;
            let length = x.dim(x.rank()?.saturating_sub(2).max(1))?;
            let positions = positions_from(call.input(1)?.cast(DType::I64), &length)?;
            embed(call, call.input(2)?.take(0, positions), call.input(3)?.take(0, positions))
        },
    ),
];

/// Positions `[batch, length]`; one number is the position of the first element of every row.
fn positions_from<'b>(given: Tensor<'b>, length: &Dim) -> Result<Tensor<'b>> {
    if given.rank()? == 2 {
        return Ok(given);
    }
    let shape = Shape::from(vec![Dim::int(1), length.clone()]);
    Ok(given.builder().coordinate(1, &shape) + given.reshape(Shape::scalar()))
}

fn embed<'b>(call: &Call<'_, 'b>, cos: Tensor<'b>, sin: Tensor<'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let rotated = match call.int_or("rotary_embedding_dim", 0)? {
        0 => None,
        given => Some(Dim::int(given)),
    };
    let interleaved = call.flag("interleaved", false)?;
    let y = match x.rank()? {
        4 => rotate(x, cos, sin, rotated, interleaved)?,
        3 => {
            let heads = match call.int_or("num_heads", 0)? {
                // The tables tell the size of a head where the number of heads is left out.
                0 => x.dim(2)?.floordiv(&(cos.dim(2)? * 2)),
                given => Dim::int(given),
            };
            merge_heads(rotate(split_heads(x, &heads)?, cos, sin, rotated, interleaved)?)?
        }
        _ => return Err(Error::invalid(format!("{} of a tensor of shape {}", call.op.name, x.shape()?))),
    };
    Ok(vec![y])
}

/// Rotates the first `rotated` elements (all, if not given) of `[batch, heads, length, size]` by tables
/// `[batch or 1, length, rotated / 2]`; the others are passed on.
pub(super) fn rotate<'b>(
    x: Tensor<'b>,
    cos: Tensor<'b>,
    sin: Tensor<'b>,
    rotated: Option<Dim>,
    interleaved: bool,
) -> Result<Tensor<'b>> {
    let size = x.dim(3)?;
    match rotated.filter(|rotated| *rotated != size) {
        None => turn(x, [cos, sin], interleaved),
        Some(rotated) => {
            let turned = turn(x.slice(3, 0usize, rotated.clone(), 1), [cos, sin], interleaved)?;
            let rest = x.slice(3, rotated.clone(), size - rotated, 1);
            Ok(x.builder().concat(&[turned, rest], 3))
        }
    }
}

/// Rotates all elements: `x[j]·cos[pair(j)] ± x[partner(j)]·sin[pair(j)]`, minus for the first of each pair.
fn turn<'b>(x: Tensor<'b>, tables: [Tensor<'b>; 2], interleaved: bool) -> Result<Tensor<'b>> {
    let shape = x.shape()?;
    let half = shape[3].floordiv(&Dim::int(2));
    let tables = tables.map(|table| check_table(x, table, &half));
    // Pairs of neighbours have an axis of their own; halves are seen in one axis, turned by a half.
    let mut dims = shape.dims().to_vec();
    let mut at: Vec<Dim> = (0..3).map(Dim::axis).collect();
    let (element, partner, pair) = if interleaved {
        dims.splice(3.., [half.clone(), Dim::int(2)]);
        (Dim::axis(3) * 2 + Dim::axis(4), Dim::axis(3) * 2 + 1 - Dim::axis(4), Dim::axis(3))
    } else {
        (Dim::axis(3), (Dim::axis(3) + &half).modulo(&shape[3]), Dim::axis(3).modulo(&half))
    };
    let domain = Shape::from(dims);
    let mut seen = |index: Dim| {
        at.truncate(3);
        at.push(index);
        x.view(View::new(domain.clone(), at.clone()))
    };
    let (straight, crossed) = (seen(element), seen(partner));
    let mut spread = Vec::with_capacity(2);
    for table in tables {
        let table = table?;
        let row = if table.dim(0)?.is(1) { Dim::int(0) } else { Dim::axis(0) };
        spread.push(table.view(View::new(domain.clone(), vec![row, Dim::axis(2), pair.clone()])));
    }
    let place = x.builder().coordinate(domain.rank() - 1, &domain);
    let first = if interleaved { place.lt(1i64) } else { place.lt(&half) };
    let sign = first.select(x.builder().scalar(x.dtype()?, -1.0), 1.0);
    let turned = straight * spread[0] + crossed * spread[1] * sign;
    if !interleaved {
        return Ok(turned);
    }
    let (pair, two) = (Dim::axis(3), Dim::int(2));
    at.truncate(3);
    at.extend([pair.floordiv(&two), pair.modulo(&two)]);
    Ok(turned.view(View::new(shape, at)))
}

/// A table of cosines or sines in the type of what is rotated, with its sizes checked.
fn check_table<'b>(x: Tensor<'b>, table: Tensor<'b>, half: &Dim) -> Result<Tensor<'b>> {
    let (ty, own) = (x.ty()?, table.shape()?);
    let [batch, length, pairs] = own.dims() else {
        return Err(Error::invalid(format!("rotary tables of shape {own} for {ty}")));
    };
    if !batch.is(1) {
        x.builder().require_equal(batch, &ty.shape[0], "batch of rotary tables")?;
    }
    x.builder().require_equal(length, &ty.shape[2], "length of rotary tables")?;
    x.builder().require_equal(pairs, half, "rotary tables hold half of the rotated elements")?;
    x.builder().require_equal(&(half * 2), &ty.shape[3], "rotated elements are pairs")?;
    Ok(table.cast(ty.dtype))
}
