//! Rows 3, 8, 9, 16 and the matrix part of row 13: matrix products with what stands before and behind them.

use super::Entry;
use crate::ops::named::Attribute;

const GEMM: &[(&str, i64)] = &[("m", 128), ("k", 512), ("n", 1024)];
const HEADS: &[(&str, i64)] = &[("tokens", 128), ("features", 512), ("size", 512)];
const SQUARE: &[(&str, i64)] = &[("tokens", 128), ("features", 512)];
const FEED_FORWARD: &[(&str, i64)] = &[("tokens", 64), ("features", 256), ("hidden", 1024)];

pub(super) static ENTRIES: &[Entry] = &[
    Entry::new(3, "linear_bias_relu", "relu(x · w + b)", GEMM, |s| {
        let (x, w, b) = (s.input("x", &["m", "k"]), s.input("w", &["k", "n"]), s.input("b", &["n"]));
        s.output("y", s.op("Relu", &[s.linear(x, w, b)]));
        Ok(())
    }),
    Entry::new(3, "linear_bias_gelu", "gelu(x · w + b)", GEMM, |s| {
        let (x, w, b) = (s.input("x", &["m", "k"]), s.input("w", &["k", "n"]), s.input("b", &["n"]));
        s.output("y", s.op("Gelu", &[s.linear(x, w, b)]));
        Ok(())
    }),
    Entry::new(3, "linear_bias_silu", "silu(x · w + b)", GEMM, |s| {
        let (x, w, b) = (s.input("x", &["m", "k"]), s.input("w", &["k", "n"]), s.input("b", &["n"]));
        s.output("y", s.silu(s.linear(x, w, b)));
        Ok(())
    }),
    Entry::new(8, "norm_linear", "layernorm(x) · w + b", GEMM, |s| {
        let (x, gamma, beta) = (s.input("x", &["m", "k"]), s.input("gamma", &["k"]), s.input("beta", &["k"]));
        let (w, b) = (s.input("w", &["k", "n"]), s.input("b", &["n"]));
        s.output("y", s.linear(s.op("LayerNormalization", &[x, gamma, beta]), w, b));
        Ok(())
    }),
    Entry::new(8, "rmsnorm_linear", "rmsnorm(x) · w", GEMM, |s| {
        let (x, gamma, w) = (s.input("x", &["m", "k"]), s.input("gamma", &["k"]), s.input("w", &["k", "n"]));
        s.output("y", s.op("MatMul", &[s.op("RMSNormalization", &[x, gamma]), w]));
        Ok(())
    }),
    Entry::new(9, "qkv", "three projections of one x: x · w + b for query, key and value", HEADS, |s| {
        let x = s.input("x", &["tokens", "features"]);
        for name in ["q", "k", "v"] {
            let w = s.input(&format!("w_{name}"), &["features", "size"]);
            let b = s.input(&format!("b_{name}"), &["size"]);
            s.output(name, s.linear(x, w, b));
        }
        Ok(())
    }),
    Entry::new(13, "gemm_relu", "relu(a · bᵀ + c)", GEMM, |s| {
        let (a, b, c) = (s.input("a", &["m", "k"]), s.input("b", &["n", "k"]), s.input("c", &["n"]));
        let product = s.op_with("Gemm", &[a, b, c], &[("transB", Attribute::Int(1))]);
        s.output("y", s.op("Relu", &[product]));
        Ok(())
    }),
    Entry::new(13, "matmul_bn", "batchnorm(x · w), statistics given", GEMM, |s| {
        let (x, w) = (s.input("x", &["m", "k"]), s.input("w", &["k", "n"]));
        let [gamma, beta, mean, var] = ["gamma", "beta", "mean", "var"].map(|name| s.input(name, &["n"]));
        let product = s.op("MatMul", &[x, w]);
        s.output("y", s.op("BatchNormalization", &[product, gamma, beta, mean, var]));
        Ok(())
    })
    .with_positive(&["var"]),
    Entry::new(16, "transformer_sublayer", "x + gelu(layernorm(x) · w + b)", SQUARE, |s| {
        let x = s.input("x", &["tokens", "features"]);
        let (gamma, beta) = (s.input("gamma", &["features"]), s.input("beta", &["features"]));
        let (w, b) = (s.input("w", &["features", "features"]), s.input("b", &["features"]));
        let normed = s.op("LayerNormalization", &[x, gamma, beta]);
        s.output("y", s.op("Add", &[x, s.op("Gelu", &[s.linear(normed, w, b)])]));
        Ok(())
    }),
    Entry::new(16, "feed_forward", "x + gelu(layernorm(x) · w + b) · u + c", FEED_FORWARD, |s| {
        let x = s.input("x", &["tokens", "features"]);
        let (gamma, beta) = (s.input("gamma", &["features"]), s.input("beta", &["features"]));
        let (w, b) = (s.input("w", &["features", "hidden"]), s.input("b", &["hidden"]));
        let (u, c) = (s.input("u", &["hidden", "features"]), s.input("c", &["features"]));
        let normed = s.op("LayerNormalization", &[x, gamma, beta]);
        let hidden = s.op("Gelu", &[s.linear(normed, w, b)]);
        s.output("y", s.op("Add", &[x, s.linear(hidden, u, c)]));
        Ok(())
    }),
];
