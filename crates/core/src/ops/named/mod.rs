//! Table 3: the operators that users know, each a row with its expansion into primitives.
//!
//! A row names the operator as ONNX does (that column is the only trace of a file format in this crate), the first
//! version of its operator set that the expansion follows, its attributes, and `expand`. Softmax, Gelu, Conv, Attention exist
//! nowhere else: after expansion there are only primitives, which remember their [`crate::graph::Origin`].

mod activation;
mod amount;
mod attention;
mod attributes;
mod call;
mod cast;
mod classify;
mod convolution;
mod determinant;
mod distance;
mod einsum;
mod elementwise;
mod embedding;
mod encode;
mod experts;
mod feature;
mod fused;
mod generate;
mod grouped;
mod indexing;
mod interpolate;
mod linear_attention;
mod logic;
mod loss;
mod matrix;
mod movement;
mod multi_head;
mod normalization;
mod optimizer;
mod packed;
mod pad;
mod pooling;
mod quantization;
mod quantized;
mod random;
mod ratio;
mod rearrange;
mod recurrent;
mod reduction;
mod resize;
mod rotary;
mod sample;
mod scatter;
mod search;
mod shape;
mod signal;
mod slice;
mod softmax;
mod support;
mod text;
mod time_loop;
mod tokens;
mod tree;
mod vectorize;
mod vision;
mod windows;

pub use attention::flex_attention;
pub use attributes::{Attribute, Attributes};
pub use call::Call;
pub use text::{equal_texts, equally_wide, numbers_of, texts_of};

use std::sync::OnceLock;

use rustc_hash::FxHashMap;

use crate::error::Result;
use crate::graph::Tensor;

/// Expands a call into primitives; returns the outputs, or poisoned values whose error the builder keeps.
pub type Expand = for<'a, 'b> fn(&'a Call<'a, 'b>) -> Result<Vec<Tensor<'b>>>;

/// One row of the table.
#[derive(Debug)]
pub struct NamedOp {
    /// the operator's name
    pub name: &'static str,
    /// its operator set: empty for the standard one
    pub domain: &'static str,
    /// the first version of the operator set whose meaning the expansion covers (versions after it are told apart inside)
    pub since: u32,
    /// the attributes that the expansion knows; others are refused
    pub attributes: &'static [&'static str],
    /// what it computes
    pub doc: &'static str,
    /// its meaning
    pub expand: Expand,
}

impl NamedOp {
    /// A row of the standard operator set.
    const fn standard(
        name: &'static str,
        since: u32,
        attributes: &'static [&'static str],
        doc: &'static str,
        expand: Expand,
    ) -> NamedOp {
        NamedOp { name, domain: "", since, attributes, doc, expand }
    }

    /// A row of ONNX Runtime's own operator set, which has one version.
    const fn contributed(
        name: &'static str,
        attributes: &'static [&'static str],
        doc: &'static str,
        expand: Expand,
    ) -> NamedOp {
        NamedOp { name, domain: "com.microsoft", since: 1, attributes, doc, expand }
    }
}

/// The files of the table.
static GROUPS: &[&[NamedOp]] = &[
    activation::OPS,
    attention::OPS,
    cast::OPS,
    classify::OPS,
    convolution::OPS,
    determinant::OPS,
    distance::OPS,
    einsum::OPS,
    elementwise::OPS,
    embedding::OPS,
    encode::OPS,
    experts::OPS,
    feature::OPS,
    fused::OPS,
    generate::OPS,
    grouped::OPS,
    indexing::OPS,
    linear_attention::OPS,
    logic::OPS,
    loss::OPS,
    matrix::OPS,
    movement::OPS,
    multi_head::OPS,
    normalization::OPS,
    optimizer::OPS,
    packed::OPS,
    pad::OPS,
    pooling::OPS,
    quantization::OPS,
    quantized::OPS,
    random::OPS,
    rearrange::OPS,
    recurrent::OPS,
    reduction::OPS,
    resize::OPS,
    rotary::OPS,
    sample::OPS,
    scatter::OPS,
    search::OPS,
    shape::OPS,
    signal::OPS,
    slice::OPS,
    softmax::OPS,
    support::OPS,
    text::OPS,
    tokens::OPS,
    tree::OPS,
    vectorize::OPS,
    vision::OPS,
];

/// Every row, group by group.
pub fn all() -> impl Iterator<Item = &'static NamedOp> {
    GROUPS.iter().copied().flatten()
}

/// The row of an operator.
pub fn find(domain: &str, name: &str) -> Option<&'static NamedOp> {
    static INDEX: OnceLock<FxHashMap<(&'static str, &'static str), &'static NamedOp>> = OnceLock::new();
    let index = INDEX.get_or_init(|| all().map(|op| ((op.domain, op.name), op)).collect());
    let domain = if domain == "ai.onnx" { "" } else { domain };
    index.get(&(domain, name)).copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_unique_and_documented() {
        let mut seen = std::collections::HashSet::new();
        for op in all() {
            assert!(seen.insert((op.domain, op.name)), "{} twice", op.name);
            assert!(!op.doc.is_empty(), "{} lacks its doc", op.name);
            assert!(op.since >= 1);
        }
    }
}
