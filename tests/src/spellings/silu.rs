//! SiLU of `[n, s, 96]`, and the gated products that it stands in.

use fuseline::graph::Tensor;

use super::row::x;
use super::{Sheet, spellings};

spellings! {
    "silu" {
        "f32" {
            "product with the sigmoid": sigmoid,
            "quotient by the exponential": quotient,
            "reciprocal of the exponential": reciprocal,
            "one operator": named,
            "one operator of ONNX Runtime": contributed,
            "by the hyperbolic tangent": by_tanh,
        }
        "f32, steeper" {
            "product with the sigmoid": steep,
            "one operator": steep_named,
        }
    }
    "swiglu" {
        "f32, two weights" {
            "sigmoid, two products": two_weights,
            "one operator for the gate": two_weights_named,
            "quotient for the gate": two_weights_quotient,
            "rows flattened": two_weights_flattened,
            "gate on the right": gate_on_the_right,
            "sums with labels": two_weights_einsum,
            "products of matrices, weights turned": two_weights_gemm,
        }
        "f32, packed weights" {
            "split": packed_split,
            "two slices": packed_slices,
            "reshaped and gathered": packed_gathered,
            "split by sizes, sums with labels": packed_sizes,
        }
    }
}

fn silu<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.mul(x, s.sigmoid(x))
}

fn one_plus_exp<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.add(s.exp(s.neg(x)), s.number(1.0))
}

fn sigmoid(s: &Sheet) {
    s.output("y", silu(s, x(s)));
}

fn quotient(s: &Sheet) {
    let x = x(s);
    s.output("y", s.div(x, one_plus_exp(s, x)));
}

fn reciprocal(s: &Sheet) {
    let x = x(s);
    s.output("y", s.mul(s.reciprocal(one_plus_exp(s, x)), x));
}

fn named(s: &Sheet) {
    s.output("y", s.op("Swish").opset(24).of(&[x(s)]));
}

fn contributed(s: &Sheet) {
    s.output("y", s.contributed("QuickGelu").float("alpha", 1.0).of(&[x(s)]));
}

fn steep(s: &Sheet) {
    let x = x(s);
    s.output("y", s.mul(s.sigmoid(s.mul(s.number(1.702), x)), x));
}

fn steep_named(s: &Sheet) {
    s.output("y", s.contributed("QuickGelu").of(&[x(s)]));
}

struct Operands<'s> {
    x: Tensor<'s>,
    gate: Tensor<'s>,
    up: Tensor<'s>,
}

fn operands(s: &Sheet) -> Operands<'_> {
    Operands { x: s.floats("x", "n, s, 96"), gate: s.floats("gate", "96, 160"), up: s.floats("up", "96, 160") }
}

fn two_weights(s: &Sheet) {
    let o = operands(s);
    s.output("y", s.mul(silu(s, s.matmul(o.x, o.gate)), s.matmul(o.x, o.up)));
}

fn two_weights_named(s: &Sheet) {
    let o = operands(s);
    let gate = s.op("Swish").opset(24).of(&[s.matmul(o.x, o.gate)]);
    s.output("y", s.mul(gate, s.matmul(o.x, o.up)));
}

fn two_weights_quotient(s: &Sheet) {
    let o = operands(s);
    let gate = s.matmul(o.x, o.gate);
    s.output("y", s.mul(s.div(gate, one_plus_exp(s, gate)), s.matmul(o.x, o.up)));
}

fn two_weights_flattened(s: &Sheet) {
    let o = operands(s);
    let rows = s.reshape(o.x, &[-1, 96]);
    let y = s.mul(silu(s, s.matmul(rows, o.gate)), s.matmul(rows, o.up));
    let shape = s.vector(&[s.size(o.x, 0), s.size(o.x, 1), s.int(160)]);
    s.output("y", s.call("Reshape", &[y, shape]));
}

fn gate_on_the_right(s: &Sheet) {
    let o = operands(s);
    let up = s.matmul(o.x, o.up);
    s.output("y", s.mul(up, silu(s, s.matmul(o.x, o.gate))));
}

fn packed(s: &Sheet) -> Tensor<'_> {
    s.matmul(s.floats("x", "n, s, 96"), s.floats("weights", "96, 320"))
}

fn packed_split(s: &Sheet) {
    let parts = s.split(packed(s), -1, 2);
    s.output("y", s.mul(silu(s, parts[0]), parts[1]));
}

fn packed_slices(s: &Sheet) {
    let both = packed(s);
    let gate = s.slice(both, 2, 0, 160);
    s.output("y", s.mul(silu(s, gate), s.slice(both, -1, -160, i64::MAX)));
}

fn packed_gathered(s: &Sheet) {
    let both = s.reshape(packed(s), &[0, 0, 2, 160]);
    let part = |k: i64| s.op("Gather").int("axis", 2).of(&[both, s.int(k)]);
    s.output("y", s.mul(silu(s, part(0)), part(1)));
}

fn by_tanh(s: &Sheet) {
    let x = x(s);
    let tanh = s.tanh(s.div(x, s.number(2.0)));
    s.output("y", s.mul(s.mul(x, s.number(0.5)), s.add(s.number(1.0), tanh)));
}

fn two_weights_einsum(s: &Sheet) {
    let o = operands(s);
    let [up, gate] = [o.up, o.gate].map(|w| s.op("Einsum").str("equation", "bsd,df->bsf").of(&[o.x, w]));
    s.output("y", s.mul(s.mul(up, gate), s.sigmoid(gate)));
}

fn two_weights_gemm(s: &Sheet) {
    let o = operands(s);
    let rows = s.reshape(o.x, &[-1, 96]);
    let product = |w| s.op("Gemm").int("transB", 1).of(&[rows, s.transpose(w, &[1, 0])]);
    let y = s.mul(silu(s, product(o.gate)), product(o.up));
    let shape = s.concat(&[s.slice(s.call("Shape", &[o.x]), 0, 0, 2), s.ints(&[160])], 0);
    s.output("y", s.call("Reshape", &[y, shape]));
}

fn packed_sizes(s: &Sheet) {
    let (x, weights) = (s.floats("x", "n, s, 96"), s.floats("weights", "96, 320"));
    let both = s.op("Einsum").str("equation", "...d,df->...f").of(&[x, weights]);
    let parts = s.op("Split").int("axis", -1).all(&[both, s.ints(&[160, 160])], 2);
    s.output("y", s.mul(parts[1], s.div(parts[0], one_plus_exp(s, parts[0]))));
}
