//! Conversions between element types.

use super::elementwise::as_float;
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::tensor::DType;

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard("Identity", 1, &[], "x itself", |call| Ok(vec![call.input(0)?])),
    NamedOp::standard("Cast", 1, &["to", "saturate", "round_mode"], "x converted to another element type", |call| {
        cast(call, target(call)?)
    }),
    NamedOp::standard(
        "CastLike",
        15,
        &["saturate", "round_mode"],
        "x converted to the element type of another tensor",
        |call| cast(call, call.input(1)?.dtype()?),
    ),
    NamedOp::standard("BitCast", 26, &["to"], "the bits of x read as another element type of the same width", |call| {
        Ok(vec![call.input(0)?.bits(target(call)?)])
    }),
];

fn target(call: &Call<'_, '_>) -> Result<DType> {
    call.dtype("to")?.ok_or_else(|| Error::invalid(format!("attribute to of {} is missing", call.op.name)))
}

fn cast<'b>(call: &Call<'_, 'b>, to: DType) -> Result<Vec<Tensor<'b>>> {
    let (x, saturate) = (call.input(0)?, call.flag("saturate", true)?);
    Ok(vec![match to {
        DType::F8E8M0 => cast_to_scale(x, call.str_or("round_mode", "up")?, saturate)?,
        _ if saturate => cast_saturating(x, to)?,
        _ => x.cast(to),
    }])
}

/// Converted to another type; what is too large for a float of eight bits becomes the largest that it holds.
pub(super) fn cast_saturating(x: Tensor<'_>, to: DType) -> Result<Tensor<'_>> {
    let from = x.dtype()?;
    match to.max_float() {
        Some(max) if to.bits() <= 8 && to != from => {
            // The bound must be a number of the type that is compared.
            let wide = if from.bits() <= 8 { x.cast(DType::F32) } else { as_float(x)? };
            Ok(wide.min(max).max(-max).cast(to))
        }
        _ => Ok(x.cast(to)),
    }
}

/// Converted to a power of two by way of the exponent field of an f32, which is the same as that of a scale.
fn cast_to_scale<'b>(x: Tensor<'b>, round_mode: &str, saturate: bool) -> Result<Tensor<'b>> {
    let single = x.cast(DType::F32);
    let bits = single.bits(DType::U32);
    let (exponent, fraction) = ((bits >> 23).and(255), bits.and(0x7f_ffff));
    // An exponent field of 0 means 2^−127 in a scale; in an f32 that has the first bit of the fraction.
    let least = exponent.equal(0);
    let rounded = match round_mode {
        "up" => exponent + least.select(fraction.gt(0x40_0000), fraction.gt(0)).cast(DType::U32),
        "nearest" => exponent + least.select(fraction.ge(0x60_0000), fraction.ge(0x40_0000)).cast(DType::U32),
        "down" => exponent,
        other => return Err(Error::invalid(format!("attribute round_mode is \"{other}\", not up, down or nearest"))),
    };
    let nan = x.builder().int(DType::U32, 255);
    let field = if saturate {
        single.is_nan().select(nan, rounded.min(254))
    } else {
        single.lt((-127f64).exp2()).select(nan, rounded.min(255))
    };
    Ok(field.cast(DType::U8).bits(DType::F8E8M0))
}
