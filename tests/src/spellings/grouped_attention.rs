//! Attention in which groups of query heads share keys, with and without a cache and positions.

use fuseline::graph::Tensor;
use fuseline::tensor::DType::{Bool, F32, I32, I64};

use super::attention::{Operands, SCALE, finish, merge_heads, scores, split_heads};
use super::rope::{rotate_named, rotate_sliced, rotate_split};
use super::{Sheet, spellings};

spellings! {
    "grouped attention" {
        "f32" {
            "axis inserted, repeated, joined": repeated,
            "repeated by a tile": tiled,
            "gathered heads": gathered,
            "queries by group": by_group,
            "three axes, repeated": three_axes,
            "sums with labels by group": einsum_by_group,
            "one operator": named,
        }
        "causal, behind a past" {
            "appended, repeated, joined": past_repeated,
            "one operator": past_named,
        }
        "rows of several lengths" {
            "hidden by comparisons": lengths_compared,
            "one operator of ONNX Runtime": lengths_contributed,
        }
        "rotated, causal, behind a past" {
            "halves sliced": llama_sliced,
            "halves split": llama_split,
            "queries scaled before they turn": llama_scaled_first,
            "one operator each": llama_named,
        }
    }
}

/// Six heads of queries, two of keys and values.
fn operands(s: &Sheet) -> Operands<'_> {
    Operands { q: s.floats("q", "n, 6, s, 64"), k: s.floats("k", "n, 2, t, 64"), v: s.floats("v", "n, 2, t, 64") }
}

/// Each head three times, by an axis that is inserted, expanded and joined.
fn repeat<'s>(s: &'s Sheet, x: Tensor<'s>, width: i64) -> Tensor<'s> {
    let (batch, length) = (s.size(x, 0), s.size(x, 2));
    let wide = s.vector(&[batch, s.int(2), s.int(3), length, s.int(width)]);
    let expanded = s.expand(s.unsqueeze(x, &[2]), wide);
    s.call("Reshape", &[expanded, s.vector(&[batch, s.int(6), length, s.int(width)])])
}

fn attend<'s>(s: &'s Sheet, q: Tensor<'s>, k: Tensor<'s>, v: Tensor<'s>) {
    let o = Operands { q, k, v };
    finish(s, s.mul(scores(s, q, k), s.number(SCALE)), &o);
}

fn repeated(s: &Sheet) {
    let o = operands(s);
    attend(s, o.q, repeat(s, o.k, 64), repeat(s, o.v, 64));
}

fn tiled(s: &Sheet) {
    let o = operands(s);
    let tile = |x, width| {
        let wide = s.call("Tile", &[s.unsqueeze(x, &[2]), s.ints(&[1, 1, 3, 1, 1])]);
        s.reshape(wide, &[0, 6, -1, width])
    };
    attend(s, o.q, tile(o.k, 64), tile(o.v, 64));
}

fn gathered(s: &Sheet) {
    let o = operands(s);
    let gather = |x| s.op("Gather").int("axis", 1).of(&[x, s.ints(&[0, 0, 0, 1, 1, 1])]);
    attend(s, o.q, gather(o.k), gather(o.v));
}

fn by_group(s: &Sheet) {
    let o = operands(s);
    let q = s.reshape(o.q, &[0, 2, 3, -1, 64]);
    let [k, v] = [o.k, o.v].map(|x| s.unsqueeze(x, &[2]));
    let product = s.matmul(q, s.transpose(k, &[0, 1, 2, 4, 3]));
    let y = s.matmul(s.softmax(s.div(product, s.number(8.0)), -1), v);
    s.output("y", s.call("Reshape", &[y, s.vector(&[s.size(o.q, 0), s.int(6), s.size(o.q, 2), s.int(64)])]));
}

fn named(s: &Sheet) {
    let o = operands(s);
    s.output("y", s.op("Attention").opset(23).of(&[o.q, o.k, o.v]));
}

/// New keys and values, and those of earlier steps.
struct Step<'s> {
    q: Tensor<'s>,
    k: Tensor<'s>,
    v: Tensor<'s>,
    past_key: Tensor<'s>,
    past_value: Tensor<'s>,
}

fn step(s: &Sheet) -> Step<'_> {
    Step {
        q: s.floats("q", "n, 6, s, 64"),
        k: s.floats("k", "n, 2, s, 64"),
        v: s.floats("v", "n, 2, s, 64"),
        past_key: s.floats("past_key", "n, 2, p, 64"),
        past_value: s.floats("past_value", "n, 2, p, 64"),
    }
}

/// Past and new keys, the heads repeated behind the cache, a mask by positions.
fn attend_cached<'s>(s: &'s Sheet, step: &Step<'s>) {
    attend_cached_scaled(s, step, |product| s.mul(product, s.number(SCALE)));
}

fn attend_cached_scaled<'s>(s: &'s Sheet, step: &Step<'s>, scaled: impl Fn(Tensor<'s>) -> Tensor<'s>) {
    let keys = s.concat(&[step.past_key, step.k], 2);
    let values = s.concat(&[step.past_value, step.v], 2);
    let places = |limit| s.call("Range", &[s.int(0), limit, s.int(1)]);
    let queries = s.add(places(s.size(step.q, 2)), s.size(step.past_key, 2));
    let seen = s.call("LessOrEqual", &[s.unsqueeze(places(s.size(keys, 2)), &[0]), s.unsqueeze(queries, &[1])]);
    let product = scaled(scores(s, step.q, repeat(s, keys, 64)));
    let hidden = s.choose(s.cast(seen, Bool), product, s.number(f64::NEG_INFINITY));
    s.output("y", s.matmul(s.softmax(hidden, -1), repeat(s, values, 64)));
    s.output("keys", keys);
    s.output("values", values);
}

fn attend_cached_named<'s>(s: &'s Sheet, step: &Step<'s>) {
    let attention = s.op("Attention").opset(23).int("is_causal", 1);
    let operands = [step.q, step.k, step.v].map(Some).into_iter();
    let operands: Vec<_> = operands.chain([None, Some(step.past_key), Some(step.past_value)]).collect();
    for (name, result) in ["y", "keys", "values"].into_iter().zip(attention.some(&operands, 3)) {
        s.output(name, result);
    }
}

fn past_repeated(s: &Sheet) {
    attend_cached(s, &step(s));
}

fn past_named(s: &Sheet) {
    attend_cached_named(s, &step(s));
}

/// Six heads of queries and two of keys in rows, and the last key that each row of the batch has.
fn row_operands(s: &Sheet) -> (Operands<'_>, Tensor<'_>) {
    let o = Operands { q: s.floats("q", "n, s, 384"), k: s.floats("k", "n, s, 128"), v: s.floats("v", "n, s, 128") };
    (o, s.input("lengths", I32, "n"))
}

fn lengths_compared(s: &Sheet) {
    let (o, lengths) = row_operands(s);
    let q = split_heads(s, o.q, 6);
    let [k, v] = [o.k, o.v].map(|x| repeat(s, split_heads(s, x, 2), 64));
    let places = s.call("Range", &[s.int(0), s.size(o.q, 1), s.int(1)]);
    let (queries, keys) = (s.unsqueeze(places, &[1]), s.unsqueeze(places, &[0]));
    let filled = s.call("LessOrEqual", &[keys, s.unsqueeze(s.cast(lengths, I64), &[1, 2, 3])]);
    let seen = s.call("And", &[filled, s.call("LessOrEqual", &[keys, queries])]);
    let product = s.mul(scores(s, q, k), s.number(SCALE));
    let hidden = s.choose(seen, product, s.number(f64::NEG_INFINITY));
    s.output("y", merge_heads(s, s.matmul(s.softmax(hidden, -1), v), 384));
}

fn lengths_contributed(s: &Sheet) {
    let (o, lengths) = row_operands(s);
    let total = s.cast(s.size(o.q, 1), I32);
    let attention = s.contributed("GroupQueryAttention").int("num_heads", 6).int("kv_num_heads", 2);
    let operands = [Some(o.q), Some(o.k), Some(o.v), None, None, Some(lengths), Some(total)];
    s.output("y", attention.some(&operands, 1)[0]);
}

/// Cosines and sines of half the head size, for every new position.
fn tables(s: &Sheet) -> [Tensor<'_>; 2] {
    ["cos", "sin"].map(|name| s.input(name, F32, "1, s, 32"))
}

fn llama<'s>(s: &'s Sheet, rotate: impl Fn(Tensor<'s>, [Tensor<'s>; 2]) -> Tensor<'s>, attend: impl Fn(&Step<'s>)) {
    let new = step(s);
    let tables = tables(s);
    let (q, k) = (rotate(new.q, tables), rotate(new.k, tables));
    attend(&Step { q, k, ..new });
}

fn llama_sliced(s: &Sheet) {
    llama(s, |x, tables| rotate_sliced(s, x, tables), |step| attend_cached(s, step));
}

/// The scale on the queries, and these turned then.
fn llama_scaled_first(s: &Sheet) {
    let new = step(s);
    let tables = tables(s);
    let (q, k) = (rotate_sliced(s, s.mul(new.q, s.number(SCALE)), tables), rotate_split(s, new.k, tables));
    attend_cached_scaled(s, &Step { q, k, ..new }, |product| product);
}

fn llama_split(s: &Sheet) {
    llama(s, |x, tables| rotate_split(s, x, tables), |step| attend_cached(s, step));
}

fn llama_named(s: &Sheet) {
    llama(s, |x, tables| rotate_named(s, x, tables), |step| attend_cached_named(s, step));
}

fn three_axes<'s>(s: &'s Sheet) {
    let o = operands(s);
    let joined = s.mul(s.size(o.q, 0), s.int(6));
    let rows = |x: Tensor<'s>| s.call("Reshape", &[x, s.vector(&[joined, s.size(x, 2), s.int(64)])]);
    let (q, k, v) = (rows(o.q), rows(repeat(s, o.k, 64)), rows(repeat(s, o.v, 64)));
    let product = s.mul(s.matmul(q, s.transpose(k, &[0, 2, 1])), s.number(SCALE));
    let y = s.matmul(s.softmax(product, -1), v);
    s.output("y", s.call("Reshape", &[y, s.vector(&[s.size(o.q, 0), s.int(6), s.size(o.q, 2), s.int(64)])]));
}

fn einsum_by_group(s: &Sheet) {
    let o = operands(s);
    let q = s.reshape(s.mul(o.q, s.number(SCALE)), &[0, 2, 3, -1, 64]);
    let product = s.op("Einsum").str("equation", "bghqd,bgkd->bghqk").of(&[q, o.k]);
    let y = s.op("Einsum").str("equation", "bghqk,bgkd->bghqd").of(&[s.softmax(product, -1), o.v]);
    s.output("y", s.call("Reshape", &[y, s.vector(&[s.size(o.q, 0), s.int(6), s.size(o.q, 2), s.int(64)])]));
}
