//! Softmax of `[n, s, 768]` over the inner and over an outer axis.

use fuseline::graph::Tensor;
use fuseline::tensor::DType::{F16, F32};

use super::{Sheet, spellings};

spellings! {
    "softmax" {
        "inner axis" {
            "one operator": inner,
            "written out": inner_written_out,
            "reciprocal of the sum": inner_reciprocal,
            "older version, rows of a matrix": inner_old,
            "rows flattened": inner_flattened,
            "exponential of the logarithm": inner_of_log,
            "less the logarithm of the sum": inner_log_sum,
        }
        "outer axis" {
            "one operator": outer,
            "written out": outer_written_out,
            "transposed and back": outer_transposed,
        }
        "scaled" {
            "product": scaled_product,
            "quotient": scaled_quotient,
            "root in the graph": scaled_root,
        }
        "with a mask" {
            "sum": masked,
            "one operator of ONNX Runtime": masked_named,
            "mask repeated": masked_expanded,
        }
        "f16" {
            "computed wide": wide,
            "written out, wide": wide_written_out,
        }
    }
    "log_softmax" {
        "inner axis" {
            "one operator": log,
            "written out": log_written_out,
            "logarithm of the sum first": log_sum_first,
            "logarithm of the operator": log_of_softmax,
        }
    }
}

fn x(s: &Sheet) -> Tensor<'_> {
    s.floats("x", "n, s, 768")
}

/// The exponential of what is left when the largest is taken away, and its sum.
fn exponentials<'s>(s: &'s Sheet, x: Tensor<'s>, axis: i64) -> (Tensor<'s>, Tensor<'s>) {
    let e = s.exp(s.sub(x, s.reduce("ReduceMax", x, axis)));
    (e, s.reduce("ReduceSum", e, axis))
}

pub(super) fn written_out<'s>(s: &'s Sheet, x: Tensor<'s>, axis: i64) -> Tensor<'s> {
    let (e, sum) = exponentials(s, x, axis);
    s.div(e, sum)
}

fn inner(s: &Sheet) {
    s.output("y", s.softmax(x(s), -1));
}

fn inner_written_out(s: &Sheet) {
    s.output("y", written_out(s, x(s), 2));
}

fn inner_reciprocal(s: &Sheet) {
    let (e, sum) = exponentials(s, x(s), -1);
    s.output("y", s.mul(e, s.reciprocal(sum)));
}

fn inner_old(s: &Sheet) {
    s.output("y", s.op("Softmax").opset(11).int("axis", 2).of(&[x(s)]));
}

fn inner_flattened(s: &Sheet) {
    let x = x(s);
    let y = s.softmax(s.reshape(x, &[-1, 768]), 1);
    s.output("y", s.call("Reshape", &[y, s.call("Shape", &[x])]));
}

fn outer(s: &Sheet) {
    s.output("y", s.softmax(x(s), 1));
}

fn outer_written_out(s: &Sheet) {
    s.output("y", written_out(s, x(s), -2));
}

fn outer_transposed(s: &Sheet) {
    let turned = s.transpose(x(s), &[0, 2, 1]);
    s.output("y", s.transpose(s.softmax(turned, 2), &[0, 2, 1]));
}

fn scaled_product(s: &Sheet) {
    s.output("y", s.softmax(s.mul(x(s), s.number(0.125)), -1));
}

fn scaled_quotient(s: &Sheet) {
    s.output("y", s.softmax(s.div(x(s), s.number(8.0)), -1));
}

fn scaled_root(s: &Sheet) {
    s.output("y", written_out(s, s.div(x(s), s.sqrt(s.number(64.0))), -1));
}

fn mask(s: &Sheet) -> Tensor<'_> {
    s.floats("mask", "n, 1, 768")
}

fn masked(s: &Sheet) {
    let x = x(s);
    s.output("y", s.softmax(s.add(x, mask(s)), -1));
}

fn masked_named(s: &Sheet) {
    let x = x(s);
    let softmax = s.contributed("BiasSoftmax").int("axis", 2).int("is_inner_broadcast", 0);
    s.output("y", softmax.of(&[x, mask(s)]));
}

fn masked_expanded(s: &Sheet) {
    let x = x(s);
    let everywhere = s.expand(mask(s), s.call("Shape", &[x]));
    s.output("y", s.softmax(s.add(everywhere, x), -1));
}

fn wide(s: &Sheet) {
    let x = s.cast(s.input("x", F16, "n, s, 768"), F32);
    s.output("y", s.cast(s.softmax(x, -1), F16));
}

fn wide_written_out(s: &Sheet) {
    let x = s.cast(s.input("x", F16, "n, s, 768"), F32);
    s.output("y", s.cast(written_out(s, x, -1), F16));
}

fn log(s: &Sheet) {
    s.output("y", s.op("LogSoftmax").int("axis", -1).of(&[x(s)]));
}

fn log_written_out(s: &Sheet) {
    let x = x(s);
    let shifted = s.sub(x, s.reduce("ReduceMax", x, -1));
    let sum = s.reduce("ReduceSum", s.exp(shifted), -1);
    s.output("y", s.sub(shifted, s.call("Log", &[sum])));
}

fn log_sum_first(s: &Sheet) {
    let x = x(s);
    let (_, sum) = exponentials(s, x, -1);
    let total = s.add(s.reduce("ReduceMax", x, -1), s.call("Log", &[sum]));
    s.output("y", s.sub(x, total));
}

fn inner_of_log(s: &Sheet) {
    s.output("y", s.exp(s.op("LogSoftmax").int("axis", 2).of(&[x(s)])));
}

fn inner_log_sum(s: &Sheet) {
    let x = x(s);
    let largest = s.reduce("ReduceMax", x, -1);
    let sum = s.reduce("ReduceSum", s.exp(s.sub(x, largest)), -1);
    s.output("y", s.exp(s.sub(x, s.add(s.call("Log", &[sum]), largest))));
}

fn log_of_softmax(s: &Sheet) {
    s.output("y", s.call("Log", &[s.softmax(x(s), 2)]));
}
