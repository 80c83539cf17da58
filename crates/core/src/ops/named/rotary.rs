//! Rotary position embeddings: pairs of elements turned by an angle that grows with the position.
//!
//! The partner of an element, its sign and its place in the tables are index maps, so nothing is split or joined:
//! `y[j] = x[j]·cos[pair(j)] ∓ x[partner(j)]·sin[pair(j)]`; elements behind the rotated ones have cos 1 and sin 0.

use super::attention::{merge_heads, split_heads};
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::Number;
use crate::ops::prim::{Guard, View};
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
/// `[batch or 1, length, rotated / 2]`.
pub(super) fn rotate<'b>(
    x: Tensor<'b>,
    cos: Tensor<'b>,
    sin: Tensor<'b>,
    rotated: Option<Dim>,
    interleaved: bool,
) -> Result<Tensor<'b>> {
    let ty = x.ty()?;
    let shape = ty.shape.clone();
    let rotated = rotated.unwrap_or_else(|| shape[3].clone());
    let (element, half) = (Dim::axis(3), rotated.floordiv(&Dim::int(2)));
    let (partner, pair) = if interleaved {
        let odd = element.modulo(&Dim::int(2));
        (&element + 1 - odd * 2, element.floordiv(&Dim::int(2)))
    } else {
        ((&element + &half).modulo(&rotated), element.modulo(&half))
    };
    let inside = vec![Guard { index: element, bound: rotated }];
    let guarded = |tensor: Tensor<'b>, map: Vec<Dim>, outside: f64| {
        let fill = Number::new(ty.dtype, outside);
        tensor.view(View::guarded(shape.clone(), map, inside.clone(), fill))
    };
    let table = |table: Tensor<'b>, outside: f64| -> Result<Tensor<'b>> {
        let own = table.shape()?;
        let [batch, length, pairs] = own.dims() else {
            return Err(Error::invalid(format!("rotary tables of shape {own} for {ty}")));
        };
        if !batch.is(1) {
            x.builder().require_equal(batch, &shape[0], "batch of rotary tables")?;
        }
        x.builder().require_equal(length, &shape[2], "length of rotary tables")?;
        x.builder().require_equal(pairs, &half, "rotary tables hold half of the rotated elements")?;
        let row = if batch.is(1) { Dim::int(0) } else { Dim::axis(0) };
        Ok(guarded(table.cast(ty.dtype), vec![row, Dim::axis(2), pair.clone()], outside))
    };
    let mut map: Vec<Dim> = (0..3).map(Dim::axis).collect();
    map.push(partner);
    let straight = x * table(cos, 1.0)?;
    let crossed = guarded(x, map, 0.0) * table(sin, 0.0)?;
    let place = x.builder().coordinate(0, &vec![shape[3].clone()].into());
    let first = if interleaved { place.modulo(2i64).equal(0i64) } else { place.lt(&half) };
    Ok(first.select(straight - crossed, straight + crossed))
}
