//! A sum with a skip connection and perhaps biases, normalised; the sum is a result too.

use fuseline::graph::Tensor;

use super::{Sheet, spellings};

spellings! {
    "skip_layer_norm" {
        "without bias" {
            "written out": plain,
            "skip on the left": plain_left,
            "one operator": plain_named,
        }
        "with bias" {
            "bias on the operand": bias_on_operand,
            "bias on the operand, skip on the left": bias_right,
            "bias on the skip": bias_on_skip,
            "bias last": bias_last,
            "one operator": bias_named,
        }
        "two biases" {
            "one on each side": two_biases,
            "one after the other": two_biases_last,
        }
    }
    "skip_rms_norm" {
        "without bias" {
            "written out": rms,
            "skip on the left, reciprocal": rms_left,
            "one operator": rms_named,
        }
    }
}

const EPSILON: f64 = 1e-5;

struct Operands<'s> {
    x: Tensor<'s>,
    skip: Tensor<'s>,
    scale: Tensor<'s>,
    shift: Tensor<'s>,
}

fn operands(s: &Sheet) -> Operands<'_> {
    Operands {
        x: s.floats("x", "n, s, 96"),
        skip: s.floats("skip", "n, s, 96"),
        scale: s.floats("scale", "96"),
        shift: s.floats("shift", "96"),
    }
}

fn bias(s: &Sheet) -> Tensor<'_> {
    s.floats("bias", "96")
}

fn normalized<'s>(s: &'s Sheet, sum: Tensor<'s>, o: &Operands<'s>) {
    let centred = s.sub(sum, s.reduce("ReduceMean", sum, -1));
    let variance = s.reduce("ReduceMean", s.pow(centred, s.number(2.0)), -1);
    let y = s.div(centred, s.sqrt(s.add(variance, s.number(EPSILON))));
    s.output("y", s.add(s.mul(y, o.scale), o.shift));
    s.output("sum", sum);
}

fn plain(s: &Sheet) {
    let o = operands(s);
    normalized(s, s.add(o.x, o.skip), &o);
}

fn plain_left(s: &Sheet) {
    let o = operands(s);
    let sum = s.add(o.skip, o.x);
    s.output("y", s.op("LayerNormalization").float("epsilon", EPSILON).of(&[sum, o.scale, o.shift]));
    s.output("sum", sum);
}

fn plain_named(s: &Sheet) {
    let o = operands(s);
    let op = s.contributed("SkipLayerNormalization").float("epsilon", EPSILON);
    let results = op.all(&[o.x, o.skip, o.scale, o.shift], 4);
    s.output("y", results[0]);
    s.output("sum", results[3]);
}

fn bias_on_operand(s: &Sheet) {
    let o = operands(s);
    normalized(s, s.add(s.add(o.x, bias(s)), o.skip), &o);
}

fn bias_right(s: &Sheet) {
    let o = operands(s);
    normalized(s, s.add(o.skip, s.add(bias(s), o.x)), &o);
}

fn bias_on_skip(s: &Sheet) {
    let o = operands(s);
    normalized(s, s.add(o.x, s.add(o.skip, bias(s))), &o);
}

fn bias_last(s: &Sheet) {
    let o = operands(s);
    normalized(s, s.add(s.add(o.x, o.skip), bias(s)), &o);
}

fn bias_named(s: &Sheet) {
    let o = operands(s);
    let op = s.contributed("SkipLayerNormalization").float("epsilon", EPSILON);
    let results = op.all(&[o.x, o.skip, o.scale, o.shift, bias(s)], 4);
    s.output("y", results[0]);
    s.output("sum", results[3]);
}

fn two_biases(s: &Sheet) {
    let o = operands(s);
    let (a, b) = (bias(s), s.floats("skip_bias", "96"));
    normalized(s, s.add(s.add(o.x, a), s.add(o.skip, b)), &o);
}

fn two_biases_last(s: &Sheet) {
    let o = operands(s);
    let (a, b) = (bias(s), s.floats("skip_bias", "96"));
    normalized(s, s.add(s.add(s.add(o.x, o.skip), b), a), &o);
}

fn rms_operands(s: &Sheet) -> (Tensor<'_>, Tensor<'_>, Tensor<'_>) {
    (s.floats("x", "n, s, 96"), s.floats("skip", "n, s, 96"), s.floats("scale", "96"))
}

fn moment<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.add(s.reduce("ReduceMean", s.mul(x, x), -1), s.number(EPSILON))
}

fn rms(s: &Sheet) {
    let (x, skip, scale) = rms_operands(s);
    let sum = s.add(x, skip);
    s.output("y", s.mul(s.div(sum, s.sqrt(moment(s, sum))), scale));
    s.output("sum", sum);
}

fn rms_left(s: &Sheet) {
    let (x, skip, scale) = rms_operands(s);
    let sum = s.add(skip, x);
    s.output("y", s.mul(scale, s.mul(sum, s.reciprocal(s.sqrt(moment(s, sum))))));
    s.output("sum", sum);
}

fn rms_named(s: &Sheet) {
    let (x, skip, scale) = rms_operands(s);
    let op = s.contributed("SkipSimplifiedLayerNormalization").float("epsilon", EPSILON);
    let results = op.all(&[x, skip, scale], 4);
    s.output("y", results[0]);
    s.output("sum", results[3]);
}
