//! Integers that stand for reals: `real = (integer − zero point) · scale`.

use super::cast::cast_saturating;
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::{Monoid, View};
use crate::tensor::{DType, Dim};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard(
        "QuantizeLinear",
        10,
        &["axis", "block_size", "output_dtype", "precision", "saturate"],
        "x / scale rounded half to even, plus the zero point, saturated",
        |call| Ok(vec![quantize_linear(call)?]),
    ),
    NamedOp::standard(
        "DequantizeLinear",
        10,
        &["axis", "block_size", "output_dtype"],
        "(x − zero point) · scale",
        |call| Ok(vec![dequantize_linear(call)?]),
    ),
    NamedOp::contributed(
        "QuantizeLinear",
        &["axis", "block_size", "output_dtype", "precision", "saturate"],
        "x / scale rounded half to even, plus the zero point, saturated",
        |call| Ok(vec![quantize_linear(call)?]),
    ),
    NamedOp::contributed(
        "DequantizeLinear",
        &["axis", "block_size", "output_dtype"],
        "(x − zero point) · scale",
        |call| Ok(vec![dequantize_linear(call)?]),
    ),
    NamedOp::standard(
        "DynamicQuantizeLinear",
        11,
        &[],
        "quantised to u8 with the scale and zero point that the tensor's own range asks for, which are results too",
        |call| {
            let Dynamic { scale, zero, quotient } = dynamic_u8(call.input(0)?)?;
            Ok(vec![saturated(quotient, Some(zero), DType::U8)?, scale, zero])
        },
    ),
];

/// An integer tensor less its zero point, as i32.
pub(super) fn centred<'b>(x: Tensor<'b>, zero: Option<Tensor<'b>>) -> Result<Tensor<'b>> {
    let x = x.cast(DType::I32);
    Ok(match zero {
        Some(zero) => x - scalar_if_single(zero)?.cast(DType::I32),
        None => x,
    })
}

/// A parameter of an axis, shaped to broadcast against a tensor of `rank` axes; a single one becomes a scalar.
pub(super) fn along_axis(parameter: Tensor<'_>, rank: usize, axis: usize) -> Result<Tensor<'_>> {
    let parameter = scalar_if_single(parameter)?;
    match parameter.rank()? {
        0 => Ok(parameter),
        1 => Ok(parameter.insert_axes(&(1..rank - axis).collect::<Vec<_>>())),
        _ => Err(Error::invalid(format!("a parameter {} for one axis", parameter.ty()?))),
    }
}

/// A tensor of one element as a scalar, anything else as it is.
pub(super) fn scalar_if_single(x: Tensor<'_>) -> Result<Tensor<'_>> {
    let shape = x.shape()?;
    Ok(if shape.rank() > 0 && shape.dims().iter().all(|d| d.is(1)) {
        x.remove_axes(&(0..shape.rank()).collect::<Vec<_>>())
    } else {
        x
    })
}

/// `quotient` rounded half to even, plus a zero point, saturated to `dtype`.
pub(super) fn saturated<'b>(quotient: Tensor<'b>, zero: Option<Tensor<'b>>, dtype: DType) -> Result<Tensor<'b>> {
    let (low, high) = dtype
        .int_range()
        .filter(|_| dtype.is_int())
        .ok_or_else(|| Error::unsupported(format!("quantisation to {dtype}")))?;
    let rounded = quotient.cast(DType::F32).round();
    let shifted = match zero {
        Some(zero) => rounded + zero.cast(DType::F32),
        None => rounded,
    };
    Ok(shifted.max(low as f64).min(high as f64).cast(dtype))
}

/// Scale, zero point and `x / scale` of a tensor that is quantised to u8 by its own range.
pub(super) struct Dynamic<'b> {
    pub scale: Tensor<'b>,
    pub zero: Tensor<'b>,
    pub quotient: Tensor<'b>,
}

/// The range of a tensor, stretched to contain 0, mapped to 0..=255.
pub(super) fn dynamic_u8(x: Tensor<'_>) -> Result<Dynamic<'_>> {
    let all: Vec<usize> = (0..x.rank()?).collect();
    dynamic_u8_by(x, |monoid| x.reduce(monoid, &all))
}

/// The same for ranges that `extreme` finds; what it returns broadcasts against `x`.
pub(super) fn dynamic_u8_by<'b>(x: Tensor<'b>, extreme: impl Fn(Monoid) -> Tensor<'b>) -> Result<Dynamic<'b>> {
    let high = extreme(Monoid::Max).max(0.0);
    let low = extreme(Monoid::Min).min(0.0);
    let range = high - low;
    let scale = range.not_equal(0.0).select(range, 1.0) / 255.0;
    let zero = saturated(-low / scale, None, DType::U8)?;
    Ok(Dynamic { scale, zero, quotient: x / scale })
}

/// How scales and zero points lie over a tensor.
struct Granularity {
    axis: i64,
    block: i64,
}

impl Granularity {
    fn of(call: &Call<'_, '_>) -> Result<Granularity> {
        let block = call.int_or("block_size", 0)?;
        if block < 0 {
            return Err(Error::invalid(format!("attribute block_size of {} is {block}", call.op.name)));
        }
        Ok(Granularity { axis: call.int_or("axis", 1)?, block })
    }

    /// A scale or zero point, shaped to broadcast against `x`.
    fn spread<'b>(&self, parameter: Tensor<'b>, x: Tensor<'b>) -> Result<Tensor<'b>> {
        let (parameter, shape) = (scalar_if_single(parameter)?, x.shape()?);
        let rank = parameter.rank()?;
        if rank == 0 {
            return Ok(parameter);
        }
        let axis = x.axis(self.axis)?;
        if rank == 1 && self.block == 0 {
            return along_axis(parameter, shape.rank(), axis);
        }
        if rank != shape.rank() || self.block == 0 {
            return Err(Error::invalid(format!("a scale or zero point {} for {}", parameter.ty()?, x.ty()?)));
        }
        let block = Dim::int(self.block);
        x.builder().require_equal(&parameter.dim(axis)?, &shape[axis].ceildiv(&block), "blocks of a scale")?;
        let at = |k: usize| if k == axis { Dim::axis(k).floordiv(&block) } else { Dim::axis(k) };
        Ok(parameter.view(View::new(shape.clone(), (0..rank).map(at).collect())))
    }
}

fn quantize_linear<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let (x, scale) = (call.input(0)?, call.input(1)?);
    let granularity = Granularity::of(call)?;
    let zero = call.optional(2);
    let named = call.dtype("output_dtype")?;
    let dtype = match (zero, named) {
        (Some(zero), _) => zero.dtype()?,
        (None, Some(named)) => named,
        (None, None) => DType::U8,
    };
    if named.is_some_and(|named| named != dtype) {
        return Err(Error::invalid(format!(
            "attribute output_dtype of {} differs from the zero point's type",
            call.op.name
        )));
    }
    let precision = call.dtype("precision")?.unwrap_or(scale.dtype()?);
    let scale = granularity.spread(scale.cast(precision), x)?;
    let zero = zero.map(|z| granularity.spread(z, x)).transpose()?;
    let quotient = x.cast(precision) / scale;
    if !dtype.is_float() {
        return saturated(quotient, zero, dtype);
    }
    let shifted = zero.map_or(quotient, |zero| quotient + zero.cast(precision));
    if call.flag("saturate", true)? { cast_saturating(shifted, dtype) } else { Ok(shifted.cast(dtype)) }
}

fn dequantize_linear<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let (x, scale) = (call.input(0)?, call.input(1)?);
    let granularity = Granularity::of(call)?;
    let dtype = call.dtype("output_dtype")?.unwrap_or(scale.dtype()?);
    let zero = call.optional(2).map(|z| granularity.spread(z, x)).transpose()?;
    let scale = granularity.spread(scale, x)?.cast(DType::F32);
    let real = match zero {
        _ if !x.dtype()?.is_float() => centred(x, zero)?.cast(DType::F32),
        Some(zero) => x.cast(DType::F32) - zero.cast(DType::F32),
        None => x.cast(DType::F32),
    };
    Ok((real * scale).cast(dtype))
}
