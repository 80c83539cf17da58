//! Attention of f16: sums that leave its range unless they are scaled first.

use fuseline::graph::Tensor;
use fuseline::tensor::DType::{Bool, F16, F32};

use super::attention::{Operands, SCALE, finish, heads, scores};
use super::softmax::written_out;
use super::{Sheet, spellings};

spellings! {
    "attention" {
        "f16" {
            "scale on queries": queries,
            "scale on scores": products,
            "scores over root": quotients,
            "scale on keys": keys,
            "root on both": both,
            "written out": written,
            "one operator": named,
        }
        "f16, softmax in f32" {
            "scale on queries": wide,
            "scale on scores": wide_products,
            "scale on converted scores": wide_behind,
            "logarithm and exponential": wide_log,
            "one operator": wide_named,
        }
    }
    "attention, additive mask" {
        "f16" {
            "scale on queries": masked_queries,
            "scale on scores": masked_products,
            "scores over root": masked_quotients,
            "root on both": masked_both,
        }
    }
    "attention, boolean mask" {
        "f16, hidden by infinity" {
            "scale on queries": hidden_queries,
            "scale on scores": hidden_products,
            "scores over root": hidden_quotients,
        }
    }
}

type Scaled = for<'s> fn(&'s Sheet, &Operands<'s>) -> Tensor<'s>;

fn on_queries<'s>(s: &'s Sheet, o: &Operands<'s>) -> Tensor<'s> {
    scores(s, s.mul(o.q, s.number_as(F16, SCALE)), o.k)
}

fn on_scores<'s>(s: &'s Sheet, o: &Operands<'s>) -> Tensor<'s> {
    s.mul(scores(s, o.q, o.k), s.number_as(F16, SCALE))
}

fn over_root<'s>(s: &'s Sheet, o: &Operands<'s>) -> Tensor<'s> {
    s.div(scores(s, o.q, o.k), s.number_as(F16, 8.0))
}

fn on_keys<'s>(s: &'s Sheet, o: &Operands<'s>) -> Tensor<'s> {
    scores(s, o.q, s.mul(o.k, s.number_as(F16, SCALE)))
}

/// A number whose square in f16 is near the scale, not the scale.
fn on_both<'s>(s: &'s Sheet, o: &Operands<'s>) -> Tensor<'s> {
    let root = s.number_as(F16, SCALE.sqrt());
    scores(s, s.mul(o.q, root), s.mul(o.k, root))
}

fn plain(s: &Sheet, scaled: Scaled) {
    let o = heads(s, F16);
    finish(s, scaled(s, &o), &o);
}

fn queries(s: &Sheet) {
    plain(s, on_queries);
}

fn products(s: &Sheet) {
    plain(s, on_scores);
}

fn quotients(s: &Sheet) {
    plain(s, over_root);
}

fn keys(s: &Sheet) {
    plain(s, on_keys);
}

fn both(s: &Sheet) {
    plain(s, on_both);
}

fn written(s: &Sheet) {
    let o = heads(s, F16);
    s.output("y", s.matmul(written_out(s, on_scores(s, &o), -1), o.v));
}

fn named(s: &Sheet) {
    let o = heads(s, F16);
    s.output("y", s.op("Attention").opset(23).of(&[o.q, o.k, o.v]));
}

/// The softmax of scores in f32, its result in f16.
fn wide_softmax(s: &Sheet, scores: Scaled) {
    let o = heads(s, F16);
    let probabilities = s.cast(s.softmax(scores(s, &o), -1), F16);
    s.output("y", s.matmul(probabilities, o.v));
}

fn wide(s: &Sheet) {
    wide_softmax(s, |s, o| s.cast(on_queries(s, o), F32));
}

fn wide_products(s: &Sheet) {
    wide_softmax(s, |s, o| s.cast(on_scores(s, o), F32));
}

fn wide_behind(s: &Sheet) {
    wide_softmax(s, |s, o| s.mul(s.cast(scores(s, o.q, o.k), F32), s.number(SCALE)));
}

fn wide_log(s: &Sheet) {
    let o = heads(s, F16);
    let p = s.exp(s.op("LogSoftmax").int("axis", -1).of(&[s.cast(on_queries(s, &o), F32)]));
    s.output("y", s.matmul(s.cast(p, F16), o.v));
}

fn wide_named(s: &Sheet) {
    let o = heads(s, F16);
    let attention = s.op("Attention").opset(23).str("softmax_precision", F32.name());
    s.output("y", attention.of(&[o.q, o.k, o.v]));
}

fn masked(s: &Sheet, scaled: Scaled) {
    let o = heads(s, F16);
    finish(s, s.add(scaled(s, &o), s.input("mask", F16, "n, 1, 1, t")), &o);
}

fn masked_queries(s: &Sheet) {
    masked(s, on_queries);
}

fn masked_products(s: &Sheet) {
    masked(s, on_scores);
}

fn masked_quotients(s: &Sheet) {
    masked(s, over_root);
}

fn masked_both(s: &Sheet) {
    masked(s, on_both);
}

fn hidden(s: &Sheet, scaled: Scaled) {
    let o = heads(s, F16);
    let mask = s.input("mask", Bool, "n, 1, s, t");
    finish(s, s.choose(mask, scaled(s, &o), s.number_as(F16, f64::NEG_INFINITY)), &o);
}

fn hidden_queries(s: &Sheet) {
    hidden(s, on_queries);
}

fn hidden_products(s: &Sheet) {
    hidden(s, on_scores);
}

fn hidden_quotients(s: &Sheet) {
    hidden(s, over_root);
}
