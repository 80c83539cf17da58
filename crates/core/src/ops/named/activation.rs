//! Activation functions.

use std::f64::consts::{FRAC_1_SQRT_2, FRAC_2_SQRT_PI};

use super::elementwise::as_float;
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::tensor::{DType, Shape};

/// The attributes of a function with the parameter alpha.
const ALPHA: &[&str] = &["alpha", "consumed_inputs"];

fn swiglu<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (gate, linear) = (call.input(0)?, call.input(1)?);
    let (a, b) = (gate.shape()?, linear.shape()?);
    if a.rank() != b.rank() {
        return Err(Error::invalid(format!(
            "SwiGLU takes two tensors of one shape, not {} and {}",
            gate.ty()?,
            linear.ty()?
        )));
    }
    for (a, b) in a.dims().iter().zip(b.dims()) {
        call.builder.require_equal(a, b, "SwiGLU takes two tensors of one shape")?;
    }
    Ok(vec![swish(gate, call.float_or("alpha", 1.0)?) * linear])
}
/// The attributes of a function with the parameters alpha and beta.
const ALPHA_BETA: &[&str] = &["alpha", "beta", "consumed_inputs"];

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard("Relu", 1, &["consumed_inputs"], "max(x, 0)", |call| Ok(vec![call.input(0)?.max(0)])),
    NamedOp::standard("LeakyRelu", 1, ALPHA, "x, below 0 alpha · x", |call| {
        let x = call.input(0)?;
        Ok(vec![x.lt(0).select(x * call.float_or("alpha", 0.01)?, x)])
    }),
    NamedOp::standard("PRelu", 1, &["consumed_inputs"], "x, below 0 slope · x", prelu),
    NamedOp::standard("Elu", 1, ALPHA, "x, below 0 alpha · (exp(x) − 1)", |call| {
        let x = call.input(0)?;
        Ok(vec![x.lt(0).select(x.expm1() * call.float_or("alpha", 1.0)?, x)])
    }),
    NamedOp::standard("Celu", 12, &["alpha"], "x, below 0 alpha · (exp(x / alpha) − 1)", |call| {
        let (x, alpha) = (call.input(0)?, call.float_or("alpha", 1.0)?);
        Ok(vec![x.max(0) + ((x / alpha).expm1() * alpha).min(0)])
    }),
    NamedOp::standard("Selu", 1, &["alpha", "gamma", "consumed_inputs"], "gamma · Elu(x)", |call| {
        let x = call.input(0)?;
        let below = x.expm1() * call.float_or("alpha", 1.673_263_2)?;
        Ok(vec![x.gt(0).select(x, below) * call.float_or("gamma", 1.050_701)?])
    }),
    NamedOp::standard("ThresholdedRelu", 1, ALPHA, "x above alpha, otherwise 0", |call| {
        let x = call.input(0)?;
        Ok(vec![x.gt(call.float_or("alpha", 1.0)?).select(x, 0)])
    }),
    NamedOp::standard("HardSigmoid", 1, ALPHA_BETA, "alpha · x + beta, held within [0, 1]", |call| {
        let (alpha, beta) = (call.float_or("alpha", 0.2)?, call.float_or("beta", 0.5)?);
        Ok(vec![hard_sigmoid(call.input(0)?, alpha, beta)])
    }),
    NamedOp::standard("HardSwish", 14, &[], "x · HardSigmoid(x) with alpha = 1/6 and beta = 1/2", |call| {
        let x = call.input(0)?;
        Ok(vec![x * hard_sigmoid(x, 1.0 / 6.0, 0.5)])
    }),
    NamedOp::standard("Softplus", 1, &[], "log(1 + exp(x))", |call| Ok(vec![softplus(call.input(0)?)])),
    NamedOp::standard("Softsign", 1, &[], "x / (1 + |x|)", |call| {
        let x = call.input(0)?;
        Ok(vec![x / (x.abs() + 1)])
    }),
    NamedOp::standard("Gelu", 20, &["approximate"], "x times the normal distribution at x", |call| {
        match call.str_or("approximate", "none")? {
            "none" => Ok(vec![gelu(call.input(0)?)]),
            "tanh" => Ok(vec![gelu_tanh(call.input(0)?)?]),
            other => Err(call.unsupported("approximate", other)),
        }
    }),
    NamedOp::standard("Swish", 24, &["alpha"], "x · sigmoid(alpha · x)", |call| {
        Ok(vec![swish(call.input(0)?, call.float_or("alpha", 1.0)?)])
    }),
    NamedOp::standard("SwiGLU", 28, &["alpha"], "a · sigmoid(alpha · a) · b", swiglu),
    NamedOp::standard("Mish", 18, &[], "x · tanh(softplus(x))", |call| {
        let x = call.input(0)?;
        Ok(vec![x * softplus(x).tanh()])
    }),
    NamedOp::standard("Shrink", 9, &["bias", "lambd"], "x moved towards 0 by bias; 0 within ±lambd", shrink),
    NamedOp::standard("Affine", 1, ALPHA_BETA, "alpha · x + beta", |call| {
        Ok(vec![call.input(0)? * call.float_or("alpha", 1.0)? + call.float_or("beta", 0.0)?])
    }),
    NamedOp::standard("ScaledTanh", 1, ALPHA_BETA, "alpha · tanh(beta · x)", |call| {
        let (alpha, beta) = (call.float_or("alpha", 1.0)?, call.float_or("beta", 1.0)?);
        Ok(vec![(call.input(0)? * beta).tanh() * alpha])
    }),
    NamedOp::standard("ParametricSoftplus", 1, ALPHA_BETA, "alpha · softplus(beta · x)", |call| {
        let (alpha, beta) = (call.float_or("alpha", 1.0)?, call.float_or("beta", 1.0)?);
        Ok(vec![softplus(call.input(0)? * beta) * alpha])
    }),
    NamedOp::contributed("Gelu", &[], "x times the normal distribution at x", |call| Ok(vec![gelu(call.input(0)?)])),
    NamedOp::contributed("BiasGelu", &[], "Gelu of a sum", |call| Ok(vec![gelu(call.input(0)? + call.input(1)?)])),
    NamedOp::contributed("FastGelu", &[], "Gelu by tanh, of x or of a sum", |call| {
        let x = call.input(0)?;
        Ok(vec![gelu_tanh(call.optional(1).map_or(x, |bias| x + bias))?])
    }),
    NamedOp::contributed("QuickGelu", &["alpha"], "x · sigmoid(alpha · x)", |call| {
        Ok(vec![swish(call.input(0)?, call.float_or("alpha", 1.702)?)])
    }),
    NamedOp::contributed("ScaledSiLU", &["alpha"], "Swish of a scaled x", |call| {
        let x = call.input(0)?;
        let scaled = match call.optional(1) {
            Some(scale) => x * scale.cast(x.dtype()?).reshape(Shape::scalar()),
            None => x * call.float_or("alpha", 1.0)?,
        };
        Ok(vec![swish(scaled, 1.0)])
    }),
    NamedOp::contributed("GatedAdd", &[], "a + b · gate", |call| {
        Ok(vec![call.input(0)? + call.input(1)? * call.input(2)?])
    }),
    NamedOp::contributed("BiasSplitGelu", &[], "of a sum, the first half times Gelu of the second", bias_split_gelu),
    NamedOp::contributed("BiasAdd", &[], "the sum of a tensor, a bias and a skip connection", |call| {
        Ok(vec![call.input(0)? + call.input(1)? + call.input(2)?])
    }),
];

/// x times the normal distribution at x, by the error function.
pub(super) fn gelu(x: Tensor<'_>) -> Tensor<'_> {
    x * 0.5 * ((x * FRAC_1_SQRT_2).erf() + 1)
}

/// [`gelu`] approximated by a hyperbolic tangent. Its constants are what they are in every type: 0.044715 is none of bf16.
pub(super) fn gelu_tanh(x: Tensor<'_>) -> Result<Tensor<'_>> {
    let dtype = x.dtype()?;
    if dtype.is_float() && dtype.bits() < 32 {
        return Ok(gelu_tanh(x.cast(DType::F32))?.cast(dtype));
    }
    let inner = (x + x * x * x * 0.044715) * (FRAC_1_SQRT_2 * FRAC_2_SQRT_PI);
    Ok(x * 0.5 * (inner.tanh() + 1))
}

/// x · sigmoid(alpha · x).
pub(super) fn swish(x: Tensor<'_>, alpha: f64) -> Tensor<'_> {
    let scaled = if alpha == 1.0 { x } else { x * alpha };
    x * scaled.sigmoid()
}

/// log(1 + exp(x)), without overflow.
pub(super) fn softplus(x: Tensor<'_>) -> Tensor<'_> {
    x.max(0) + (-x.abs()).exp().log1p()
}

/// alpha · x + beta, held within [0, 1].
pub(super) fn hard_sigmoid(x: Tensor<'_>, alpha: f64, beta: f64) -> Tensor<'_> {
    (x * alpha + beta).min(1).max(0)
}

fn prelu<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (x, slope) = (call.input(0)?, call.input(1)?);
    let (shape, rank) = (x.shape()?, x.rank()?);
    let slope = match slope.shape()?.dims() {
        // A slope for every channel: the rule before version 7, and what some exporters go on to write.
        [channels] if rank > 2 && !channels.is(1) && (call.opset < 7 || channels.surely_differs(&shape[rank - 1])) => {
            slope.insert_axes(&(1..rank - 1).collect::<Vec<_>>())
        }
        _ => slope,
    };
    if slope.rank()? > rank {
        return Err(Error::invalid(format!("slopes of shape {} for a tensor of shape {shape}", slope.shape()?)));
    }
    Ok(vec![x.lt(0).select(x * slope, x)])
}

fn shrink<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let given = call.input(0)?;
    let x = as_float(given)?;
    let (bias, lambd) = (call.float_or("bias", 0.0)?, call.float_or("lambd", 0.5)?);
    let above = x.gt(lambd).select(x - bias, 0);
    Ok(vec![x.lt(-lambd).select(x + bias, above).cast(given.dtype()?)])
}

fn bias_split_gelu<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)? + call.input(1)?;
    let axis = x.axis(-1)?;
    let half = x.dim(axis)?.floordiv(&2i64.into());
    Ok(vec![x.slice(axis, 0usize, half.clone(), 1) * gelu(x.slice(axis, half.clone(), half, 1))])
}
