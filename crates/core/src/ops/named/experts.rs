//! Mixtures of experts: every token goes through the few networks that a router chooses for it.
//!
//! All experts are written out for all tokens, those that are not chosen with a weight of 0: which ones they are is known when it runs.

use super::activation::{gelu_tanh, swish};
use super::softmax::softmax;
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::{Monoid, View};
use crate::tensor::{DType, Dim, Shape};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::contributed(
        "MoE",
        &[
            "activation_alpha",
            "activation_beta",
            "activation_type",
            "k",
            "normalize_routing_weights",
            "swiglu_fusion",
            "swiglu_limit",
            "use_sparse_mixer",
        ],
        "two layers of the experts that a router chooses, weighed by what it says of them",
        |call| {
            let layer = |weights: usize, bias: usize| match call.optional(weights) {
                Some(_) => Ok(Some(Layer { weights: call.input(weights)?, bias: call.optional(bias) })),
                None => Ok(None),
            };
            let layers = [layer(2, 3)?, layer(4, 5)?, layer(6, 7)?];
            mixture(call, layers, None)
        },
    ),
    NamedOp::contributed(
        "QMoE",
        &[
            "accuracy_level",
            "activation_alpha",
            "activation_beta",
            "activation_type",
            "block_size",
            "expert_weight_bits",
            "fc1_expert_weight_bits",
            "fc2_expert_weight_bits",
            "fc3_expert_weight_bits",
            "k",
            "normalize_routing_weights",
            "quant_type",
            "swiglu_fusion",
            "swiglu_limit",
            "use_sparse_mixer",
            "weights_prepacked",
        ],
        "MoE with weights of few bits, a scale and a zero point for every row or for every block of one",
        |call| {
            let layers = [
                quantised_layer(call, [2, 3, 4, 11], "fc1_expert_weight_bits")?,
                quantised_layer(call, [5, 6, 7, 12], "fc2_expert_weight_bits")?,
                quantised_layer(call, [8, 9, 10, 13], "fc3_expert_weight_bits")?,
            ];
            mixture(call, layers, call.optional(14))
        },
    ),
];

/// A layer of all experts.
#[derive(Clone, Copy)]
struct Layer<'b> {
    /// `[experts, to, from]`
    weights: Tensor<'b>,
    /// `[experts, to]`
    bias: Option<Tensor<'b>>,
}

impl<'b> Layer<'b> {
    /// What every expert makes of rows `[tokens, from]`: `[tokens, experts, to]`.
    fn of(&self, x: Tensor<'b>) -> Tensor<'b> {
        let y = x.contract("tk,enk->ten", self.weights);
        self.bias.map_or(y, |bias| y + bias)
    }
}

fn mixture<'b>(
    call: &Call<'_, 'b>,
    [first, second, third]: [Option<Layer<'b>>; 3],
    router_weights: Option<Tensor<'b>>,
) -> Result<Vec<Tensor<'b>>> {
    let (Some(first), Some(second)) = (first, second) else {
        return Err(Error::invalid(format!("{} needs the weights of two layers", call.op.name)));
    };
    let x = call.input(0)?;
    let shape = x.shape()?;
    let Some(size) = shape.dims().last().filter(|_| matches!(shape.rank(), 2 | 3)) else {
        return Err(Error::invalid(format!("{} of {}", call.op.name, x.ty()?)));
    };
    let tokens: Dim = shape.dims()[..shape.rank() - 1].iter().cloned().product();
    let rows = x.reshape(Shape::new([tokens, size.clone()]));
    let weights = routed(call, call.input(1)?, router_weights)?;
    let hidden = activated(call, first.of(rows), third.map(|third| third.of(rows)))?;
    // Sums over experts and over their hidden rows at once.
    let weighed = hidden * weights.insert_axes(&[2]);
    let mut y = weighed.contract("ten,ekn->tk", second.weights);
    if let Some(bias) = second.bias {
        y = y + weights.contract("te,ek->tk", bias);
    }
    Ok(vec![y.reshape(shape)])
}

/// How much each expert counts for each token, `[tokens, experts]`; 0 for those that are not among the k that the router likes best.
fn routed<'b>(call: &Call<'_, 'b>, logits: Tensor<'b>, given: Option<Tensor<'b>>) -> Result<Tensor<'b>> {
    if call.flag("use_sparse_mixer", false)? {
        return Err(call.unsupported("use_sparse_mixer", 1));
    }
    let k = call.int_or("k", 1)?;
    let ty = logits.ty()?;
    if ty.shape.rank() != 2 || k < 1 || ty.shape[1].as_int().is_some_and(|experts| k > experts) {
        return Err(Error::invalid(format!("{} with k = {k} of experts that are rated by {ty}", call.op.name)));
    }
    let (_, places) = logits.sort(1, true);
    let best = places.slice(1, 0usize, k, 1).insert_axes(&[2]);
    let spread = Shape::new([ty.shape[0].clone(), Dim::int(k), ty.shape[1].clone()]);
    let chosen = call.builder.coordinate(2, &spread).equal(best).reduce(Monoid::Max, &[1]);
    // With quantised weights ONNX Runtime takes the softmax of those that are chosen in any case.
    let normalised = call.flag("normalize_routing_weights", false)? || (given.is_none() && call.op.name == "QMoE");
    if let Some(given) = given {
        let kept = chosen.select(given, 0.0);
        return Ok(if normalised { kept / kept.sum(&[1]) } else { kept });
    }
    Ok(match normalised {
        true => softmax(chosen.select(logits, f64::NEG_INFINITY), &[1]),
        false => chosen.select(softmax(logits, &[1]), 0.0),
    })
}

/// What the first layer becomes, `[tokens, experts, hidden]`, with what a third layer makes of the same rows.
fn activated<'b>(call: &Call<'_, 'b>, h: Tensor<'b>, gated: Option<Tensor<'b>>) -> Result<Tensor<'b>> {
    let kind = call.str_or("activation_type", "relu")?;
    if kind == "swiglu" {
        let half = h.dim(2)?.floordiv(&Dim::int(2));
        let (gate, linear) = match (call.int_or("swiglu_fusion", 0)?, gated) {
            (0, Some(linear)) => (h, linear),
            (1, None) => (h.slice(2, 0usize, half.clone(), 2), h.slice(2, 1usize, half, 2)),
            (2, None) => (h.slice(2, 0usize, half.clone(), 1), h.slice(2, half.clone(), half, 1)),
            (fusion, _) => return Err(call.unsupported("swiglu_fusion", fusion)),
        };
        let (gate, linear) = match call.float("swiglu_limit")? {
            Some(limit) => (gate.min(limit), linear.max(-limit).min(limit)),
            None => (gate, linear),
        };
        let (alpha, beta) = (call.float_or("activation_alpha", 1.0)?, call.float_or("activation_beta", 0.0)?);
        return Ok(swish(gate, alpha) * (linear + beta));
    }
    let active = match kind {
        "relu" => h.max(0.0),
        "gelu" => gelu_tanh(h)?,
        "silu" => swish(h, 1.0),
        "identity" => h,
        other => return Err(call.unsupported("activation_type", other)),
    };
    Ok(gated.map_or(active, |gated| active * gated))
}

/// A layer whose weights are packed along their last axis: the operands are weights, scales, bias and zero points.
fn quantised_layer<'b>(
    call: &Call<'_, 'b>,
    [weights, scales, bias, zero]: [usize; 4],
    own_bits: &str,
) -> Result<Option<Layer<'b>>> {
    let (Some(packed), Some(scales)) = (call.optional(weights), call.optional(scales)) else { return Ok(None) };
    let (kind, layout) = (call.str_or("quant_type", "int")?, call.int_or("weights_prepacked", -1)?);
    if kind != "int" {
        return Err(call.unsupported("quant_type", kind));
    }
    if layout > 0 {
        return Err(call.unsupported("weights_prepacked", "weights in a private layout"));
    }
    let bits = call.int(own_bits)?.map_or_else(|| call.int_or("expert_weight_bits", 4), Ok)?;
    if ![2, 4, 8].contains(&bits) {
        return Err(call.unsupported("expert_weight_bits", bits));
    }
    let [experts, rows, bytes] = packed.shape()?.dims().to_vec().try_into().map_err(|_| {
        Error::invalid(format!("{} with weights of {} axes", call.op.name, packed.rank().unwrap_or_default()))
    })?;
    let per_byte = 8 / bits;
    let shape = Shape::new([experts.clone(), rows.clone(), bytes * per_byte]);
    let weights = unpacked(packed, bits, &shape, Dim::axis(2));
    let of_block = match call.int("block_size")?.filter(|block| *block > 0) {
        Some(block) => Dim::axis(2).floordiv(&Dim::int(block)),
        None => Dim::int(0),
    };
    let by_block = scales.rank()? == 3;
    // What there is one of for every row, or for every block of a row.
    let at = |x: Tensor<'b>| {
        let place = [Dim::axis(0), Dim::axis(1), of_block.clone()];
        x.view(View::new(shape.clone(), place[..x.rank().unwrap_or(2)].to_vec()))
    };
    let zero = match call.optional(zero) {
        None => call.builder.int(DType::I32, 1 << (bits - 1)),
        Some(packed) if by_block => {
            let blocks = Shape::new([experts, rows, scales.dim(2)?]);
            at(unpacked(packed, bits, &blocks, Dim::axis(2)))
        }
        Some(packed) => at(unpacked(packed, bits, &Shape::new([experts, rows]), Dim::axis(1))),
    };
    let dtype = call.input(0)?.dtype()?;
    let centred = (weights.cast(DType::I32) - zero.cast(DType::I32)).cast(dtype);
    Ok(Some(Layer { weights: centred * at(scales.cast(dtype)), bias: call.optional(bias) }))
}

/// The integers of `bytes`, packed along the last axis of `shape`, the first in the lowest bits.
fn unpacked<'b>(bytes: Tensor<'b>, bits: i64, shape: &Shape, last: Dim) -> Tensor<'b> {
    let per_byte = Dim::int(8 / bits);
    let mut map: Vec<Dim> = (0..shape.rank()).map(Dim::axis).collect();
    map[shape.rank() - 1] = last.floordiv(&per_byte);
    let seen = bytes.view(View::new(shape.clone(), map));
    if bits == 8 {
        return seen;
    }
    let shift = bytes.builder().index(&(last.modulo(&per_byte) * bits), shape).cast(DType::U8);
    (seen >> shift).and((1i64 << bits) - 1)
}
