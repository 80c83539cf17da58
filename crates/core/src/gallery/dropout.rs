//! Row 4 and the dropouts of row 7. Every dropout is a training one, of one element in ten.

use super::Entry;
use crate::ops::named::Attribute;

const MATRIX: &[(&str, i64)] = &[("rows", 256), ("columns", 1024)];
const SIZES: &[&str] = &["rows", "columns"];

pub(super) static ENTRIES: &[Entry] = &[
    Entry::new(4, "gelu_dropout", "dropout(gelu(x))", MATRIX, |s| {
        s.output("y", s.dropout(s.op("Gelu", &[s.input("x", SIZES)])));
        Ok(())
    }),
    Entry::new(4, "gelu_dropout_residual", "residual + dropout(gelu(x))", MATRIX, |s| {
        let (x, residual) = (s.input("x", SIZES), s.input("residual", SIZES));
        s.output("y", s.op("Add", &[residual, s.dropout(s.op("Gelu", &[x]))]));
        Ok(())
    }),
    Entry::new(4, "softmax_dropout", "dropout(softmax(x))", MATRIX, |s| {
        let p = s.op_with("Softmax", &[s.input("x", SIZES)], &[("axis", Attribute::Int(-1))]);
        s.output("y", s.dropout(p));
        Ok(())
    }),
    Entry::new(4, "bias_dropout_residual", "residual + dropout(x + bias)", MATRIX, |s| {
        let (x, bias, residual) = (s.input("x", SIZES), s.input("bias", &["columns"]), s.input("residual", SIZES));
        s.output("y", s.op("Add", &[residual, s.dropout(s.op("Add", &[x, bias]))]));
        Ok(())
    }),
    Entry::new(7, "layernorm_dropout_self", "layernorm(x + dropout(x))", MATRIX, |s| {
        let (x, gamma, beta) = (s.input("x", SIZES), s.input("gamma", &["columns"]), s.input("beta", &["columns"]));
        let sum = s.op("Add", &[x, s.dropout(x)]);
        s.output("y", s.op("LayerNormalization", &[sum, gamma, beta]));
        Ok(())
    }),
    Entry::new(7, "layernorm_dropout_residual", "layernorm(residual + dropout(x))", MATRIX, |s| {
        let (x, residual) = (s.input("x", SIZES), s.input("residual", SIZES));
        let (gamma, beta) = (s.input("gamma", &["columns"]), s.input("beta", &["columns"]));
        let sum = s.op("Add", &[residual, s.dropout(x)]);
        s.output("y", s.op("LayerNormalization", &[sum, gamma, beta]));
        Ok(())
    }),
];
