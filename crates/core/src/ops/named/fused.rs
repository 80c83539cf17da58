//! Products and convolutions with what ONNX Runtime's optimiser has put behind them.

use super::activation::hard_sigmoid;
use super::{Call, NamedOp, convolution, matrix};
use crate::error::{Error, Result};
use crate::graph::Tensor;

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::contributed(
        "FusedMatMul",
        &["alpha", "transA", "transB", "transBatchA", "transBatchB"],
        "alpha times a product of matrices whose axes may be exchanged",
        |call| {
            let a = arranged(call, call.input(0)?, "transA", "transBatchA")?;
            let b = arranged(call, call.input(1)?, "transB", "transBatchB")?;
            Ok(vec![matrix::scaled(call, a.matmul(b), "alpha")?])
        },
    ),
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
        &["activation", "activation_params", "auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"],
        "an activation of a convolution, its bias and another tensor",
        |call| {
            let y = convolution::convolve(call, call.input(0)?, call.input(1)?)?;
            let y = convolution::with_bias(y, call.optional(2))?;
            let y = call.optional(3).map_or(y, |z| y + z);
            let parameters = call.floats("activation_params")?.unwrap_or_default();
            Ok(vec![activate(call, y, &[parameters.first().copied(), parameters.get(1).copied()])?])
        },
    ),
];

/// A matrix with its axes in order: `batch` moves the first axis behind the batch axes, `matrix` exchanges the last two.
fn arranged<'b>(call: &Call<'_, 'b>, x: Tensor<'b>, matrix: &str, batch: &str) -> Result<Tensor<'b>> {
    let rank = x.rank()?;
    let mut order: Vec<usize> = (0..rank).collect();
    if call.flag(batch, false)? && rank > 2 {
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
        "Relu" => x.max(0.0),
        "Tanh" => x.tanh(),
        "Sigmoid" => x.sigmoid(),
        "LeakyRelu" => x.lt(0.0).select(x * first.unwrap_or(0.01), x),
        "HardSigmoid" => hard_sigmoid(x, first.unwrap_or(0.2), second.unwrap_or(0.5)),
        "HardSwish" => x * hard_sigmoid(x, 1.0 / 6.0, 0.5),
        "Clip" => {
            let low = first.map_or(x, |low| x.max(low));
            second.map_or(low, |high| low.min(high))
        }
        other => return Err(Error::unsupported(format!("activation \"{other}\" of {}", call.op.name))),
    })
}
