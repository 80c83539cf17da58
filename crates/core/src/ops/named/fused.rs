//! Products and convolutions with what ONNX Runtime's optimiser has put behind them.

use super::activation::{gelu_tanh, hard_sigmoid};
use super::windows::{channels_first, channels_last};
use super::{Call, NamedOp, convolution, matrix, recurrent};
use crate::error::{Error, Result};
use crate::graph::Tensor;

/// The attributes of a convolution with an activation.
const FUSED_CONVOLUTION: &[&str] =
    &["activation", "activation_params", "auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"];

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::contributed(
        "FusedMatMul",
        &["alpha", "transA", "transB", "transBatchA", "transBatchB"],
        "alpha times a product of matrices whose axes may be exchanged",
        |call| Ok(vec![product(call)?]),
    ),
    NamedOp::contributed(
        "TransposeMatMul",
        &["alpha", "transA", "transB"],
        "alpha times a product of matrices that may be transposed",
        |call| Ok(vec![product(call)?]),
    ),
    NamedOp::contributed(
        "FusedMatMulActivation",
        &[
            "activation",
            "activation_alpha",
            "activation_axis",
            "activation_beta",
            "activation_gamma",
            "alpha",
            "transA",
            "transB",
            "transBatchA",
            "transBatchB",
        ],
        "an activation of alpha times a product of matrices",
        |call| {
            let parameters = [call.float("activation_alpha")?, call.float("activation_beta")?];
            Ok(vec![activate(call, product(call)?, &parameters)?])
        },
    ),
    NamedOp::contributed("GemmFastGelu", &[], "Gelu by tanh of a product of matrices plus a bias", |call| {
        let y = call.input(0)?.matmul(call.input(1)?);
        Ok(vec![gelu_tanh(call.optional(2).map_or(y, |bias| y + bias))?])
    }),
    NamedOp::contributed(
        "FusedGemm",
        &["activation", "activation_alpha", "activation_beta", "activation_gamma", "alpha", "beta", "transA", "transB"],
        "an activation of alpha · A · B + beta · C",
        |call| {
            let parameters = [call.float("activation_alpha")?, call.float("activation_beta")?];
            Ok(vec![activate(call, matrix::gemm(call)?, &parameters)?])
        },
    ),
    NamedOp::contributed(
        "FusedConv",
        FUSED_CONVOLUTION,
        "an activation of a convolution, its bias and another tensor",
        |call| Ok(vec![fused_convolution(call, call.input(0)?, call.optional(3))?]),
    ),
    NamedOp::contributed(
        "NhwcFusedConv",
        FUSED_CONVOLUTION,
        "an activation of a convolution, its bias and another tensor, channels last",
        |call| {
            let other = call.optional(3).map(channels_first).transpose()?;
            Ok(vec![channels_last(fused_convolution(call, channels_first(call.input(0)?)?, other)?)?])
        },
    ),
    NamedOp::contributed(
        "NhwcConv",
        &["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"],
        "a convolution with a bias per filter, channels last",
        |call| {
            let y = convolution::convolve(call, channels_first(call.input(0)?)?, call.input(1)?)?;
            Ok(vec![channels_last(convolution::with_bias(y, call.optional(2))?)?])
        },
    ),
];

/// alpha times the product of two matrices, whose axes the attributes of the operator may exchange.
fn product<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let a = arranged(call, call.input(0)?, "transA", "transBatchA")?;
    let b = arranged(call, call.input(1)?, "transB", "transBatchB")?;
    matrix::scaled(call, a.matmul(b), "alpha")
}

fn fused_convolution<'b>(call: &Call<'_, 'b>, x: Tensor<'b>, other: Option<Tensor<'b>>) -> Result<Tensor<'b>> {
    let y = convolution::with_bias(convolution::convolve(call, x, call.input(1)?)?, call.optional(2))?;
    let y = other.map_or(y, |other| y + other);
    let parameters = call.floats("activation_params")?.unwrap_or_default();
    activate(call, y, &[parameters.first().copied(), parameters.get(1).copied()])
}

/// A matrix with its axes in order: `batch` moves the first axis behind the batch axes, `matrix` exchanges the last two.
fn arranged<'b>(call: &Call<'_, 'b>, x: Tensor<'b>, matrix: &str, batch: &str) -> Result<Tensor<'b>> {
    let rank = x.rank()?;
    let mut order: Vec<usize> = (0..rank).collect();
    if call.op.attributes.contains(&batch) && call.flag(batch, false)? && rank > 2 {
        order[..rank - 1].rotate_left(1);
    }
    if call.flag(matrix, false)? && rank > 1 {
        order.swap(rank - 2, rank - 1);
    }
    Ok(x.permute(&order))
}

/// The function that the attribute `activation` names.
fn activate<'b>(call: &Call<'_, 'b>, x: Tensor<'b>, parameters: &[Option<f64>; 2]) -> Result<Tensor<'b>> {
    let [first, second] = *parameters;
    Ok(match call.str_or("activation", "")? {
        "" => x,
        "HardSwish" => x * hard_sigmoid(x, 1.0 / 6.0, 0.5),
        "Clip" => {
            let low = first.map_or(x, |low| x.max(low));
            second.map_or(low, |high| low.min(high))
        }
        other => recurrent::activated(other, *parameters, x)
            .ok_or_else(|| Error::unsupported(format!("activation \"{other}\" of {}", call.op.name)))?,
    })
}
