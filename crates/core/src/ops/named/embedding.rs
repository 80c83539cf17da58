//! The first layer of BERT-like models as one operator of ONNX Runtime.

use super::normalization::standardize;
use super::{Call, NamedOp};
use crate::error::Result;
use crate::graph::Tensor;
use crate::ops::prim::Monoid;
use crate::tensor::DType;

pub(super) static OPS: &[NamedOp] = &[NamedOp::contributed(
    "EmbedLayerNormalization",
    &["epsilon", "mask_index_type"],
    "the sum of word, position and segment embeddings, normalised over the last axis",
    embed_layer_normalization,
)];

fn embed_layer_normalization<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let words = call.input(0)?;
    let positions = match call.optional(8) {
        Some(positions) => call.input(3)?.take(0, positions),
        None => call.input(3)?.slice(0, 0usize, words.dim(1)?, 1),
    };
    let mut sum = call.input(2)?.take(0, words) + positions;
    if let (Some(segments), Some(table)) = (call.optional(1), call.optional(4)) {
        sum = sum + table.take(0, segments);
    }
    let dtype = sum.dtype()?;
    let stash = if matches!(dtype, DType::F16 | DType::BF16) { DType::F32 } else { dtype };
    let normalized = standardize(sum.cast(stash), &[2], call.float_or("epsilon", 1e-12)?).normalized;
    let y = normalized * call.input(5)?.cast(stash) + call.input(6)?.cast(stash);
    // The length of each row; which kind of length was wanted does not change what is counted.
    call.int_or("mask_index_type", 0)?;
    let lengths = match call.optional(7) {
        Some(mask) => mask.cast(DType::I32).reduce(Monoid::Sum, &[1]),
        None => call.builder.int(DType::I32, 0).expand(vec![words.dim(0)?]),
    };
    Ok(vec![y.cast(dtype), lengths, sum])
}
