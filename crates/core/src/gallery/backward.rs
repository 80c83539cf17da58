//! Row 17: sums over columns, and what training computes of norms and softmax: gradients by their inputs, made by [`gradients`].

use super::Entry;
use super::sketch::Sketch;
use crate::error::Result;
use crate::graph::Tensor;
use crate::graph::gradient::gradients;
use crate::ops::named::Attribute;
use crate::ops::prim::Monoid;

const MATRIX: &[(&str, i64)] = &[("rows", 256), ("columns", 1024)];
const SIZES: &[&str] = &["rows", "columns"];

/// Returns the gradients by some inputs, `dy` being the gradient by `y`, of which nothing else is returned.
fn backward<'s>(s: &'s Sketch, y: Tensor<'s>, inputs: &[(&str, Tensor<'s>)]) -> Result<()> {
    let tensors: Vec<Tensor<'s>> = inputs.iter().map(|(_, input)| *input).collect();
    let dy = s.input("dy", SIZES);
    let found = s.part("Gradient", || gradients((y * dy).reduce(Monoid::Sum, &[0, 1]), &tensors));
    for ((name, _), gradient) in inputs.iter().zip(found?) {
        s.output(&format!("d{name}"), gradient);
    }
    Ok(())
}

pub(super) static ENTRIES: &[Entry] = &[
    Entry::new(17, "column_sum", "the sum of every column", MATRIX, |s| {
        let axes = s.ints(&[0]);
        let sum = s.op_with("ReduceSum", &[s.input("x", SIZES), axes], &[("keepdims", Attribute::Int(0))]);
        s.output("y", sum);
        Ok(())
    }),
    Entry::new(17, "layernorm_gelu_backward", "the gradients of gelu(layernorm(x)) by x, γ and β", MATRIX, |s| {
        let (x, gamma, beta) = (s.input("x", SIZES), s.input("gamma", &["columns"]), s.input("beta", &["columns"]));
        let y = s.op("Gelu", &[s.op("LayerNormalization", &[x, gamma, beta])]);
        backward(s, y, &[("x", x), ("gamma", gamma), ("beta", beta)])
    }),
    Entry::new(17, "rmsnorm_backward", "the gradients of rmsnorm(x) by x and γ", MATRIX, |s| {
        let (x, gamma) = (s.input("x", SIZES), s.input("gamma", &["columns"]));
        backward(s, s.op("RMSNormalization", &[x, gamma]), &[("x", x), ("gamma", gamma)])
    }),
    Entry::new(17, "softmax_backward", "the gradient of softmax(x) by x", MATRIX, |s| {
        let x = s.input("x", SIZES);
        backward(s, s.op_with("Softmax", &[x], &[("axis", Attribute::Int(-1))]), &[("x", x)])
    }),
];
