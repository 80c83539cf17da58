//! Rows 1 and 2, and the elementwise part of row 13: chains of elementwise operators.

use super::Entry;

const N: &[(&str, i64)] = &[("n", 1_000_000)];
const MATRIX: &[(&str, i64)] = &[("rows", 512), ("columns", 1024)];
const SIZES: &[&str] = &["rows", "columns"];

pub(super) static ENTRIES: &[Entry] = &[
    Entry::new(1, "mul_add_relu", "relu(x · w + b)", N, |s| {
        let (x, w, b) = (s.input("x", &["n"]), s.input("w", &["n"]), s.input("b", &["n"]));
        s.output("y", s.op("Relu", &[s.op("Add", &[s.op("Mul", &[x, w]), b])]));
        Ok(())
    }),
    Entry::new(1, "add_gelu", "gelu(x + y)", N, |s| {
        let (x, y) = (s.input("x", &["n"]), s.input("y", &["n"]));
        s.output("z", s.op("Gelu", &[s.op("Add", &[x, y])]));
        Ok(())
    }),
    Entry::new(2, "bias_gelu", "gelu(x + bias)", MATRIX, |s| {
        let (x, bias) = (s.input("x", SIZES), s.input("bias", &["columns"]));
        s.output("y", s.op("Gelu", &[s.op("Add", &[x, bias])]));
        Ok(())
    }),
    Entry::new(2, "fast_gelu", "gelu(x + bias), by tanh", MATRIX, |s| {
        let (x, bias) = (s.input("x", SIZES), s.input("bias", &["columns"]));
        s.output("y", s.fast_gelu(s.op("Add", &[x, bias])));
        Ok(())
    }),
    Entry::new(2, "silu", "x · sigmoid(x)", N, |s| {
        s.output("y", s.silu(s.input("x", &["n"])));
        Ok(())
    }),
    Entry::new(2, "swiglu", "silu(gate) · up", MATRIX, |s| {
        let (gate, up) = (s.input("gate", SIZES), s.input("up", SIZES));
        s.output("y", s.op("Mul", &[s.silu(gate), up]));
        Ok(())
    }),
    Entry::new(2, "geglu", "gelu(gate) · up", MATRIX, |s| {
        let (gate, up) = (s.input("gate", SIZES), s.input("up", SIZES));
        s.output("y", s.op("Mul", &[s.op("Gelu", &[gate]), up]));
        Ok(())
    }),
    Entry::new(7, "residual_relu", "relu(x + residual)", MATRIX, |s| {
        let (x, residual) = (s.input("x", SIZES), s.input("residual", SIZES));
        s.output("y", s.op("Relu", &[s.op("Add", &[x, residual])]));
        Ok(())
    }),
    Entry::new(13, "scale_offset_power", "(x · 0.5 + 1)³", N, |s| {
        let scaled = s.op("Mul", &[s.input("x", &["n"]), s.number(0.5)]);
        let shifted = s.op("Add", &[scaled, s.number(1.0)]);
        s.output("y", s.op("Pow", &[shifted, s.number(3.0)]));
        Ok(())
    }),
    Entry::new(13, "relu_clip", "min(relu(x), 6)", N, |s| {
        let x = s.op("Relu", &[s.input("x", &["n"])]);
        s.output("y", s.op("Clip", &[x, s.number(0.0), s.number(6.0)]));
        Ok(())
    }),
    Entry::new(13, "relu_quantize", "relu(x) as u8 in steps of 1/32", N, |s| {
        let x = s.op("Relu", &[s.input("x", &["n"])]);
        s.output("q", s.op("QuantizeLinear", &[x, s.number(1.0 / 32.0)]));
        Ok(())
    }),
];
