//! Rows 14 and 15: results and operands in 8 bits.

use super::Entry;
use super::sketch::Sketch;
use crate::graph::Tensor;
use crate::ops::named::Attribute;
use crate::tensor::DType;

const MATRIX: &[(&str, i64)] = &[("rows", 256), ("columns", 1024)];
const EXPERTS: &[(&str, i64)] = &[("tokens", 32), ("experts", 8), ("features", 128), ("hidden", 128)];

pub(super) static ENTRIES: &[Entry] = &[
    Entry::new(14, "layernorm_quantize_int8", "layernorm(x) as int8, with a scale for each row", MATRIX, |s| {
        let x = s.input("x", &["rows", "columns"]);
        let (gamma, beta) = (s.input("gamma", &["columns"]), s.input("beta", &["columns"]));
        let (q, scale) = quantize_rows(s, s.op("LayerNormalization", &[x, gamma, beta]));
        s.output("q", q);
        s.output("scale", scale);
        Ok(())
    }),
    Entry::new(
        15,
        "moe_int8",
        "each token's int8 row times the int8 weights of its best expert, as int8",
        EXPERTS,
        |s| {
            let x = s.typed_input("x", DType::I8, &["tokens", "features"]);
            let x_scale = s.input("x_scale", &["tokens"]);
            let router = s.input("router", &["tokens", "experts"]);
            let w = s.typed_input("w", DType::I8, &["experts", "features", "hidden"]);
            let w_scale = s.input("w_scale", &["experts", "hidden"]);

            let axis = |k| ("axis", Attribute::Int(k));
            let expert = s.op_with("ArgMax", &[router], &[axis(1), ("keepdims", Attribute::Int(0))]);
            let x = s.op_with("DequantizeLinear", &[x, x_scale], &[axis(0)]);
            let weights = s.op_with("Gather", &[w, expert], &[axis(0)]);
            let scales = s.op_with("Gather", &[w_scale, expert], &[axis(0)]);
            let weights = s.op_with("Cast", &[weights], &[("to", Attribute::Str(x.dtype()?.name().into()))]);
            let weights = s.op("Mul", &[weights, s.op("Unsqueeze", &[scales, s.ints(&[1])])]);
            let y = s.op("MatMul", &[s.op("Unsqueeze", &[x, s.ints(&[1])]), weights]);
            let (q, scale) = quantize_rows(s, s.op("Squeeze", &[y, s.ints(&[1])]));
            s.output("q", q);
            s.output("scale", scale);
            Ok(())
        },
    )
    .with_positive(&["x_scale", "w_scale"]),
];

/// A matrix as int8 and the scale of each of its rows: the largest magnitude becomes 127; a row of zeros has the scale 1.
fn quantize_rows<'s>(s: &'s Sketch, x: Tensor<'s>) -> (Tensor<'s>, Tensor<'s>) {
    let magnitude = s.op("Abs", &[x]);
    let largest = s.op_with("ReduceMax", &[magnitude, s.ints(&[1])], &[("keepdims", Attribute::Int(0))]);
    let scale = s.op("Div", &[largest, s.number(127.0)]);
    let is_zero = s.op("Equal", &[scale, s.number(0.0)]);
    let scale = s.op("Where", &[is_zero, s.number(1.0), scale]);
    let attributes = [("axis", Attribute::Int(0)), ("output_dtype", Attribute::Str("i8".into()))];
    (s.op_with("QuantizeLinear", &[x, scale], &attributes), scale)
}
