//! Conversions between element types.

use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;

/// How to round and saturate matters only where a type of 8 bits or less is the target.
const CAST_ATTRIBUTES: &[&str] = &["to", "saturate", "round_mode"];

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard("Identity", 1, &[], "x itself", |call| Ok(vec![call.input(0)?])),
    NamedOp::standard("Cast", 1, CAST_ATTRIBUTES, "x converted to another element type", cast),
    NamedOp::standard(
        "CastLike",
        15,
        &["saturate", "round_mode"],
        "x converted to the type of another tensor",
        |call| Ok(vec![call.input(0)?.cast(call.input(1)?.dtype()?)]),
    ),
    NamedOp::standard("BitCast", 26, &["to"], "the bits of x read as another element type of the same width", |call| {
        let to = call.dtype("to")?.ok_or_else(|| Error::invalid("attribute to of BitCast is missing"))?;
        Ok(vec![call.input(0)?.bits(to)])
    }),
];

fn cast<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let to = call.dtype("to")?.ok_or_else(|| Error::invalid("attribute to of Cast is missing"))?;
    Ok(vec![call.input(0)?.cast(to)])
}
