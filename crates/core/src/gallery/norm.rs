//! Rows 5, 6 and the norms of row 7: normalisation of rows with what stands before and behind it.

use super::Entry;
use super::sketch::Sketch;
use crate::graph::Tensor;

const MATRIX: &[(&str, i64)] = &[("rows", 256), ("columns", 1024)];
const SIZES: &[&str] = &["rows", "columns"];

/// LayerNorm of a tensor, with inputs for scale and shift.
fn layer_norm<'s>(s: &'s Sketch, x: Tensor<'s>) -> Tensor<'s> {
    s.op("LayerNormalization", &[x, s.input("gamma", &["columns"]), s.input("beta", &["columns"])])
}

pub(super) static ENTRIES: &[Entry] = &[
    Entry::new(5, "layernorm", "γ · (x − mean) / √(variance + ε) + β over each row", MATRIX, |s| {
        s.output("y", layer_norm(s, s.input("x", SIZES)));
        Ok(())
    }),
    Entry::new(5, "layernorm_relu", "relu(layernorm(x))", MATRIX, |s| {
        s.output("y", s.op("Relu", &[layer_norm(s, s.input("x", SIZES))]));
        Ok(())
    }),
    Entry::new(5, "layernorm_gelu", "gelu(layernorm(x))", MATRIX, |s| {
        s.output("y", s.op("Gelu", &[layer_norm(s, s.input("x", SIZES))]));
        Ok(())
    }),
    Entry::new(5, "layernorm_bias_gelu", "gelu(layernorm(x) + bias)", MATRIX, |s| {
        let normed = layer_norm(s, s.input("x", SIZES));
        s.output("y", s.op("Gelu", &[s.op("Add", &[normed, s.input("bias", &["columns"])])]));
        Ok(())
    }),
    Entry::new(6, "rmsnorm", "γ · x / √(mean(x²) + ε) over each row", MATRIX, |s| {
        s.output("y", s.op("RMSNormalization", &[s.input("x", SIZES), s.input("gamma", &["columns"])]));
        Ok(())
    }),
    Entry::new(7, "add_layernorm", "sum = x + residual and layernorm(sum), both returned", MATRIX, |s| {
        let sum = s.op("Add", &[s.input("x", SIZES), s.input("residual", SIZES)]);
        s.output("y", layer_norm(s, sum));
        s.output("sum", sum);
        Ok(())
    }),
    Entry::new(7, "add_rmsnorm", "sum = x + residual and rmsnorm(sum), both returned", MATRIX, |s| {
        let sum = s.op("Add", &[s.input("x", SIZES), s.input("residual", SIZES)]);
        s.output("y", s.op("RMSNormalization", &[sum, s.input("gamma", &["columns"])]));
        s.output("sum", sum);
        Ok(())
    }),
];
