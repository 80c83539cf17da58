//! Operators on quantised tensors: each operand with its scale and zero point, the result with its own.

use super::multi_head::attend_projected;
use super::pooling::{average_windows, spatial_axes};
use super::quantization::{along_axis, centred, dynamic_u8, saturated, scalar_if_single};
use super::softmax::softmax;
use super::windows::{channels_first, channels_last};
use super::{Call, NamedOp, convolution, matrix};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::Scalar;
use crate::ops::prim::Monoid;
use crate::tensor::DType;

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard(
        "QLinearConv",
        10,
        &["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"],
        "a convolution of quantised tensors with a bias in units of both scales",
        |call| Ok(vec![convolution(call, false)?]),
    ),
    NamedOp::contributed(
        "QLinearConv",
        &["auto_pad", "channels_last", "dilations", "group", "kernel_shape", "pads", "strides"],
        "a convolution of quantised tensors, whose channels may come last",
        |call| Ok(vec![convolution(call, call.flag("channels_last", false)?)?]),
    ),
    NamedOp::standard("QLinearMatMul", 10, &[], "the product of quantised matrices", |call| Ok(vec![product(call)?])),
    NamedOp::contributed("QLinearAdd", &[], "a sum of quantised tensors", |call| {
        Ok(vec![elementwise(call, Scalar::Add)?])
    }),
    NamedOp::contributed("QLinearMul", &[], "a product of quantised tensors at every element", |call| {
        Ok(vec![elementwise(call, Scalar::Mul)?])
    }),
    NamedOp::contributed("QLinearSigmoid", &[], "the sigmoid of a quantised tensor", |call| {
        Ok(vec![requantised(call, real(call, 0)?.sigmoid(), 3)?])
    }),
    NamedOp::contributed("QLinearLeakyRelu", &["alpha"], "x, below 0 alpha · x, of a quantised tensor", |call| {
        let x = real(call, 0)?;
        let y = x.lt(0.0).select(x * call.float_or("alpha", 0.01)?, x);
        Ok(vec![requantised(call, y, 3)?])
    }),
    NamedOp::contributed("QLinearSoftmax", &["axis", "opset"], "the softmax of a quantised tensor", |call| {
        Ok(vec![quantised_softmax(call)?])
    }),
    NamedOp::contributed(
        "QLinearGlobalAveragePool",
        &["channels_last"],
        "the mean over all spatial axes of a quantised tensor",
        |call| {
            let x = real(call, 0)?;
            let rank = x.rank()?;
            let axes: Vec<usize> = if call.flag("channels_last", false)? {
                (1..rank.saturating_sub(1)).collect()
            } else {
                spatial_axes(call, x)?
            };
            Ok(vec![requantised(call, x.mean(&axes), 3)?])
        },
    ),
    NamedOp::contributed(
        "QLinearAveragePool",
        &[
            "auto_pad",
            "ceil_mode",
            "channels_last",
            "count_include_pad",
            "dilations",
            "kernel_shape",
            "pads",
            "strides",
        ],
        "the mean of every window of a quantised tensor",
        |call| {
            let x = real(call, 0)?;
            let last = call.flag("channels_last", false)?;
            let y = average_windows(call, if last { channels_first(x)? } else { x })?;
            Ok(vec![requantised(call, if last { channels_last(y)? } else { y }, 3)?])
        },
    ),
    NamedOp::contributed(
        "QLinearReduceMean",
        &["axes", "keepdims"],
        "the mean of a quantised tensor over axes",
        |call| {
            let x = real(call, 0)?;
            let axes = reduced_axes(call, x)?;
            let mean = x.mean(&axes);
            let mean = if call.flag("keepdims", true)? { mean } else { mean.remove_axes(&axes) };
            Ok(vec![requantised(call, mean, 3)?])
        },
    ),
    NamedOp::contributed(
        "ReduceSumInteger",
        &["axes", "keepdims"],
        "the sum of 8-bit integers over axes, in i32",
        |call| {
            let x = call.input(0)?;
            let axes = reduced_axes(call, x)?;
            let sum = x.cast(DType::I32).reduce(Monoid::Sum, &axes);
            Ok(vec![if call.flag("keepdims", true)? { sum.insert_axes(&axes) } else { sum }])
        },
    ),
    NamedOp::contributed("MulInteger", &[], "the product of 8-bit integers less their zero points, in i32", |call| {
        Ok(vec![centred(call.input(0)?, call.optional(1))? * centred(call.input(2)?, call.optional(3))?])
    }),
    NamedOp::contributed("MatMulInteger16", &[], "the product of matrices of 16-bit integers, in i32", |call| {
        Ok(vec![centred(call.input(0)?, None)?.matmul(centred(call.input(1)?, None)?)])
    }),
    NamedOp::contributed("QLinearConcat", &["axis"], "quantised tensors behind one another along an axis", |call| {
        Ok(vec![concat(call)?])
    }),
    NamedOp::contributed("QLinearWhere", &[], "one of two quantised tensors at every element", |call| {
        let y = call.input(0)?.select(real(call, 1)?, real(call, 4)?);
        Ok(vec![requantised(call, y, 7)?])
    }),
    NamedOp::contributed(
        "QGemm",
        &["alpha", "transA", "transB"],
        "alpha · A · B + C of quantised matrices; without a scale for it, the result is real",
        |call| Ok(vec![general_product(call)?]),
    ),
    NamedOp::contributed("MatMulIntegerToFloat", &[], "the real product of quantised matrices, plus a bias", |call| {
        let a = centred(call.input(0)?, call.optional(4).map(matrix::per_row).transpose()?)?;
        let b = centred(call.input(1)?, call.optional(5))?;
        let scale = matrix::per_row(call.input(2)?)? * call.input(3)?;
        Ok(vec![scaled_product(a, b, scale, call.optional(6))?])
    }),
    NamedOp::contributed(
        "DynamicQuantizeMatMul",
        &[],
        "the product of a matrix, quantised by its own range, and a quantised matrix, plus a bias",
        |call| {
            let a = dynamic_u8(call.input(0)?)?;
            let left = centred(saturated(a.quotient, Some(a.zero), DType::U8)?, Some(a.zero))?;
            let right = centred(call.input(1)?, call.optional(3))?;
            Ok(vec![scaled_product(left, right, a.scale * call.input(2)?, call.optional(4))?])
        },
    ),
    NamedOp::contributed(
        "QAttention",
        &[
            "do_rotary",
            "mask_filter_value",
            "num_heads",
            "past_present_share_buffer",
            "qkv_hidden_sizes",
            "scale",
            "unidirectional",
        ],
        "self-attention whose input projection is a product of quantised matrices",
        |call| {
            let input = centred(call.input(0)?, call.optional(6))?;
            let weights = centred(call.input(1)?, call.optional(7))?;
            let scale = call.input(3)? * call.input(4)?;
            let projected = scaled_product(input, weights, scale, call.optional(2))?;
            attend_projected(call, projected, call.optional(5), call.optional(8), None)
        },
    ),
];

/// Operand `k`, whose scale and zero point follow it, as the reals that it stands for.
fn real<'b>(call: &Call<'_, 'b>, k: usize) -> Result<Tensor<'b>> {
    let scale = scalar_if_single(call.input(k + 1)?)?;
    Ok(centred(call.input(k)?, call.optional(k + 2))?.cast(DType::F32) * scale.cast(DType::F32))
}

/// Reals quantised with the scale that is operand `k` and the zero point behind it; its type is the result's, otherwise
/// that of the first quantised operand.
fn requantised<'b>(call: &Call<'_, 'b>, y: Tensor<'b>, k: usize) -> Result<Tensor<'b>> {
    let scale = scalar_if_single(call.input(k)?)?;
    let zero = call.optional(k + 1).map(scalar_if_single).transpose()?;
    let dtype = match zero {
        Some(zero) => zero.dtype()?,
        None => {
            let types = (0..k).filter_map(|j| call.optional(j)?.dtype().ok());
            let mut quantised = types.filter(|d| matches!(d, DType::I8 | DType::U8 | DType::I16 | DType::U16));
            quantised.next().unwrap_or(DType::U8)
        }
    };
    saturated(y / scale.cast(DType::F32), zero, dtype)
}

fn convolution<'b>(call: &Call<'_, 'b>, last: bool) -> Result<Tensor<'b>> {
    let (x, w) = (call.input(0)?, call.input(3)?);
    let x = if last { channels_first(x)? } else { x };
    let rank = x.rank()?;
    let filters_zero = call.optional(5).map(|z| along_axis(z, rank, 0)).transpose()?;
    let sums = convolution::convolve(call, centred(x, call.optional(2))?, centred(w, filters_zero)?)?;
    let sums = convolution::with_bias(sums, call.optional(8))?;
    let scale = scalar_if_single(call.input(1)?)? * along_axis(call.input(4)?, rank, 1)?;
    let y = requantised(call, sums.cast(DType::F32) * scale.cast(DType::F32), 6)?;
    if last { channels_last(y) } else { Ok(y) }
}

fn product<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let a = centred(call.input(0)?, call.optional(2).map(matrix::per_row).transpose()?)?;
    let b = centred(call.input(3)?, call.optional(5))?;
    let scale = scalar_if_single(matrix::per_row(call.input(1)?)?)? * scalar_if_single(call.input(4)?)?;
    requantised(call, a.matmul(b).cast(DType::F32) * scale.cast(DType::F32), 6)
}

/// The product of centred integers in units of `scale`, plus a real bias.
fn scaled_product<'b>(a: Tensor<'b>, b: Tensor<'b>, scale: Tensor<'b>, bias: Option<Tensor<'b>>) -> Result<Tensor<'b>> {
    let scale = scalar_if_single(scale)?;
    let y = a.matmul(b).cast(scale.dtype()?) * scale;
    Ok(bias.map_or(y, |bias| y + bias))
}

fn elementwise<'b>(call: &Call<'_, 'b>, op: Scalar) -> Result<Tensor<'b>> {
    requantised(call, call.builder.apply(op, &[real(call, 0)?, real(call, 3)?]), 6)
}

fn quantised_softmax<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let x = real(call, 0)?;
    let axis = x.axis(call.int_or("axis", -1)?)?;
    let last = if call.int_or("opset", 13)? < 13 { x.rank()? } else { axis + 1 };
    requantised(call, softmax(x, &(axis..last).collect::<Vec<_>>()), 3)
}

/// The attribute `axes`; all axes where it is left out.
fn reduced_axes(call: &Call<'_, '_>, x: Tensor<'_>) -> Result<Vec<usize>> {
    match call.ints("axes")? {
        Some(axes) => x.axes(axes),
        None => Ok((0..x.rank()?).collect()),
    }
}

fn concat<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let count = call.inputs.len();
    if count < 5 || count % 3 != 2 {
        return Err(Error::invalid(format!("{count} operands of QLinearConcat")));
    }
    let parts: Vec<Tensor<'b>> = (2..count).step_by(3).map(|k| real(call, k)).collect::<Result<_>>()?;
    let axis = call.int("axis")?.ok_or_else(|| Error::invalid("attribute axis of QLinearConcat is missing"))?;
    requantised(call, call.builder.concat(&parts, axis), 0)
}

fn general_product<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let transposed = (call.flag("transA", false)?, call.flag("transB", false)?);
    let columns_axis = usize::from(!transposed.1);
    let a = centred(call.input(0)?, call.optional(2))?;
    let columns_zero = call.optional(5).map(|z| along_axis(z, 2, columns_axis)).transpose()?;
    let b = centred(call.input(3)?, columns_zero)?;
    let mut sums = a.contract(matrix::general_subscripts(transposed), b);
    if let Some(c) = call.optional(6) {
        sums = sums + c.cast(DType::I32);
    }
    let scale = scalar_if_single(call.input(1)?)? * scalar_if_single(call.input(4)?)?;
    let y = sums.cast(DType::F32) * (scale.cast(DType::F32) * call.float_or("alpha", 1.0)?);
    if call.optional(7).is_some() { requantised(call, y, 7) } else { Ok(y) }
}
