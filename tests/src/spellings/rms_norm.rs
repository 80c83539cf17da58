//! RMSNorm over the last axis of `[n, s, 96]`.

use fuseline::graph::Tensor;
use fuseline::tensor::DType::{self, F16, F32};

use super::{Sheet, spellings};

spellings! {
    "rms_norm" {
        "f32" {
            "power, mean, root, quotient": quotient,
            "product for the square": product,
            "reciprocal of the root": reciprocal,
            "power of minus one half": inverse_power,
            "sum of squares over a count": sum_of_squares,
            "scale first": scale_first,
            "scale on the root": scale_on_root,
            "rows flattened": flattened,
            "squared norm over a count": squared_norm,
            "squares by labels": squares_by_labels,
            "norm over the root of a count": norm_over_root,
            "one operator": named,
            "one operator, older name": named_simplified,
        }
        "f32, one plus the scale" {
            "sum before the product": one_plus,
            "two products": two_products,
        }
        "f32, by head" {
            "heads split off": by_head,
            "heads in front": heads_in_front,
        }
        "f16" {
            "converted before, scaled wide": wide,
            "converted before, scaled narrow": narrow_scale,
            "only the statistics wide": wide_statistics,
            "one operator": named_f16,
        }
    }
}

const EPSILON: f64 = 1e-6;

fn operands(s: &Sheet, dtype: DType) -> (Tensor<'_>, Tensor<'_>) {
    (s.input("x", dtype, "n, s, 96"), s.input("scale", dtype, "96"))
}

/// The mean of squares, plus epsilon.
fn moment<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.add(s.reduce("ReduceMean", s.pow(x, s.number(2.0)), -1), s.number(EPSILON))
}

fn normalize<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.div(x, s.sqrt(moment(s, x)))
}

fn quotient(s: &Sheet) {
    let (x, scale) = operands(s, F32);
    s.output("y", s.mul(normalize(s, x), scale));
}

fn product(s: &Sheet) {
    let (x, scale) = operands(s, F32);
    let mean = s.op("ReduceMean").opset(13).ints("axes", &[2]).of(&[s.mul(x, x)]);
    s.output("y", s.mul(scale, s.div(x, s.sqrt(s.add(mean, s.number(EPSILON))))));
}

fn reciprocal(s: &Sheet) {
    let (x, scale) = operands(s, F32);
    s.output("y", s.mul(scale, s.mul(x, s.reciprocal(s.sqrt(moment(s, x))))));
}

fn inverse_power(s: &Sheet) {
    let (x, scale) = operands(s, F32);
    s.output("y", s.mul(s.mul(x, s.pow(moment(s, x), s.number(-0.5))), scale));
}

fn sum_of_squares(s: &Sheet) {
    let (x, scale) = operands(s, F32);
    let mean = s.div(s.reduce("ReduceSumSquare", x, -1), s.cast(s.size(x, -1), F32));
    let inverse = s.div(s.number(1.0), s.sqrt(s.add(s.number(EPSILON), mean)));
    s.output("y", s.mul(s.mul(x, inverse), scale));
}

fn scale_first(s: &Sheet) {
    let (x, scale) = operands(s, F32);
    s.output("y", s.div(s.mul(x, scale), s.sqrt(moment(s, x))));
}

fn scale_on_root(s: &Sheet) {
    let (x, scale) = operands(s, F32);
    s.output("y", s.mul(x, s.div(scale, s.sqrt(moment(s, x)))));
}

fn flattened(s: &Sheet) {
    let (x, scale) = operands(s, F32);
    let y = s.mul(normalize(s, s.reshape(x, &[-1, 96])), scale);
    s.output("y", s.call("Reshape", &[y, s.call("Shape", &[x])]));
}

fn named(s: &Sheet) {
    let (x, scale) = operands(s, F32);
    s.output("y", s.op("RMSNormalization").opset(23).float("epsilon", EPSILON).of(&[x, scale]));
}

fn named_simplified(s: &Sheet) {
    let (x, scale) = operands(s, F32);
    s.output("y", s.op("SimplifiedLayerNormalization").float("epsilon", EPSILON).of(&[x, scale]));
}

fn one_plus(s: &Sheet) {
    let (x, scale) = operands(s, F32);
    s.output("y", s.mul(normalize(s, x), s.add(scale, s.number(1.0))));
}

fn two_products(s: &Sheet) {
    let (x, scale) = operands(s, F32);
    let inverse = s.reciprocal(s.sqrt(moment(s, x)));
    s.output("y", s.mul(s.mul(x, inverse), s.add(s.number(1.0), scale)));
}

fn head_operands(s: &Sheet) -> (Tensor<'_>, Tensor<'_>) {
    (s.floats("x", "n, s, 96"), s.floats("scale", "24"))
}

fn by_head(s: &Sheet) {
    let (x, scale) = head_operands(s);
    let heads = s.reshape(x, &[0, 0, 4, 24]);
    s.output("y", s.transpose(s.mul(normalize(s, heads), scale), &[0, 2, 1, 3]));
}

fn heads_in_front(s: &Sheet) {
    let (x, scale) = head_operands(s);
    let heads = s.transpose(s.reshape(x, &[0, -1, 4, 24]), &[0, 2, 1, 3]);
    s.output("y", s.op("RMSNormalization").opset(23).float("epsilon", EPSILON).of(&[heads, scale]));
}

fn wide(s: &Sheet) {
    let (x, scale) = operands(s, F16);
    s.output("y", s.cast(s.mul(normalize(s, s.cast(x, F32)), s.cast(scale, F32)), F16));
}

fn narrow_scale(s: &Sheet) {
    let (x, scale) = operands(s, F16);
    s.output("y", s.mul(scale, s.cast(normalize(s, s.cast(x, F32)), F16)));
}

fn wide_statistics(s: &Sheet) {
    let (x, scale) = operands(s, F16);
    let inverse = s.reciprocal(s.sqrt(moment(s, s.cast(x, F32))));
    s.output("y", s.mul(s.mul(x, s.cast(inverse, F16)), scale));
}

fn named_f16(s: &Sheet) {
    let (x, scale) = operands(s, F16);
    s.output("y", s.op("RMSNormalization").opset(23).float("epsilon", EPSILON).of(&[x, scale]));
}

fn squared_norm(s: &Sheet) {
    let (x, scale) = operands(s, F32);
    let norm = s.reduce("ReduceL2", x, -1);
    let mean = s.div(s.pow(norm, s.number(2.0)), s.number(96.0));
    s.output("y", s.mul(s.div(x, s.sqrt(s.add(mean, s.number(EPSILON)))), scale));
}

fn squares_by_labels(s: &Sheet) {
    let (x, scale) = operands(s, F32);
    let squares = s.op("Einsum").str("equation", "abi,abi->ab").of(&[x, x]);
    let mean = s.mul(s.unsqueeze(squares, &[-1]), s.number(1.0 / 96.0));
    s.output("y", s.mul(scale, s.mul(x, s.reciprocal(s.sqrt(s.add(mean, s.number(EPSILON)))))));
}

fn norm_over_root(s: &Sheet) {
    let (x, scale) = operands(s, F32);
    let root = s.div(s.reduce("ReduceL2", x, -1), s.sqrt(s.cast(s.size(x, -1), F32)));
    let moment = s.add(s.mul(root, root), s.number(EPSILON));
    s.output("y", s.mul(x, s.mul(s.pow(moment, s.number(-0.5)), scale)));
}
