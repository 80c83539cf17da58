//! Attention without a mask: where the scale stands, how heads are split, how products are written.

use fuseline::graph::Tensor;
use fuseline::tensor::DType::{self, F32};

use super::softmax::written_out;
use super::{Sheet, spellings};

spellings! {
    "attention" {
        "heads apart" {
            "scores times scale": scale_on_scores,
            "scores over a root": scores_over_root,
            "scale on queries": scale_on_queries,
            "queries over a root": queries_over_root,
            "scale on keys": scale_on_keys,
            "root of the scale on both": root_on_both,
            "root of the scale on both, from the shape": root_from_shape,
            "softmax written out": softmax_written_out,
            "exponential of the logarithm": softmax_of_log,
            "three axes": three_axes,
            "three axes, repeated and copied": three_axes_expanded,
            "sums with labels": einsum,
            "keys transposed twice": keys_transposed_twice,
            "axis of one in front": axis_in_front,
            "scores turned": scores_turned,
            "values turned": values_turned,
            "normalised behind the product": normalised_late,
            "power of the head size, dropout that does nothing": idle_dropout,
            "sums with labels, values first": einsum_values_first,
            "one operator": named,
        }
        "heads in rows" {
            "split, attended, merged": rows,
            "keys transposed at once": rows_keys_at_once,
            "scale on queries before the split": rows_scaled_early,
            "three axes": rows_three_axes,
            "sums with labels": rows_einsum,
            "sequence in front": rows_sequence_in_front,
            "one operator": rows_named,
            "one operator of ONNX Runtime": rows_contributed,
        }
        "without scale" {
            "three axes": bare,
            "an axis for one head": bare_one_head,
        }
        "projected" {
            "product, sum, split": projected_split,
            "product, sum, slices": projected_slices,
            "reshaped by three": projected_reshaped,
            "reshaped by three, split and squeezed": projected_squeezed,
            "heads split first": projected_heads_first,
            "one operator": projected_named,
        }
    }
}

/// Queries, keys and values.
#[derive(Clone, Copy)]
pub(super) struct Operands<'s> {
    pub q: Tensor<'s>,
    pub k: Tensor<'s>,
    pub v: Tensor<'s>,
}

/// `[n, 4, s, 64]`, keys and values of another length.
pub(super) fn heads(s: &Sheet, dtype: DType) -> Operands<'_> {
    Operands {
        q: s.input("q", dtype, "n, 4, s, 64"),
        k: s.input("k", dtype, "n, 4, t, 64"),
        v: s.input("v", dtype, "n, 4, t, 64"),
    }
}

/// One over the root of the head size.
pub(super) const SCALE: f64 = 0.125;

/// The product with the transposed keys.
pub(super) fn scores<'s>(s: &'s Sheet, q: Tensor<'s>, k: Tensor<'s>) -> Tensor<'s> {
    s.matmul(q, s.transpose(k, &[0, 1, 3, 2]))
}

pub(super) fn scaled_scores<'s>(s: &'s Sheet, o: &Operands<'s>) -> Tensor<'s> {
    s.mul(scores(s, o.q, o.k), s.number(SCALE))
}

/// Softmax and the product with the values, the result of the row.
pub(super) fn finish<'s>(s: &'s Sheet, scores: Tensor<'s>, o: &Operands<'s>) {
    s.output("y", s.matmul(s.softmax(scores, -1), o.v));
}

fn scale_on_scores(s: &Sheet) {
    let o = heads(s, F32);
    finish(s, scaled_scores(s, &o), &o);
}

fn scores_over_root(s: &Sheet) {
    let o = heads(s, F32);
    finish(s, s.div(scores(s, o.q, o.k), s.sqrt(s.number(64.0))), &o);
}

fn scale_on_queries(s: &Sheet) {
    let o = heads(s, F32);
    finish(s, scores(s, s.mul(o.q, s.number(SCALE)), o.k), &o);
}

fn queries_over_root(s: &Sheet) {
    let o = heads(s, F32);
    finish(s, scores(s, s.div(o.q, s.number(8.0)), o.k), &o);
}

fn scale_on_keys(s: &Sheet) {
    let o = heads(s, F32);
    let keys = s.mul(s.transpose(o.k, &[0, 1, 3, 2]), s.number(SCALE));
    finish(s, s.matmul(o.q, keys), &o);
}

fn root_on_both(s: &Sheet) {
    let o = heads(s, F32);
    let keys = s.mul(s.transpose(o.k, &[0, 1, 3, 2]), s.number(SCALE.sqrt()));
    finish(s, s.matmul(s.mul(o.q, s.number(SCALE.sqrt())), keys), &o);
}

/// As `scaled_dot_product_attention` is exported: the scale from the size of the last axis, its root on both operands.
fn root_from_shape(s: &Sheet) {
    let o = heads(s, F32);
    let size = s.cast(s.size(o.q, -1), F32);
    let root = s.sqrt(s.div(s.number(1.0), s.sqrt(size)));
    let keys = s.mul(s.transpose(o.k, &[0, 1, 3, 2]), root);
    finish(s, s.matmul(s.mul(o.q, root), keys), &o);
}

fn softmax_written_out(s: &Sheet) {
    let o = heads(s, F32);
    s.output("y", s.matmul(written_out(s, scaled_scores(s, &o), 3), o.v));
}

fn softmax_of_log(s: &Sheet) {
    let o = heads(s, F32);
    let logarithm = s.op("LogSoftmax").int("axis", 3).of(&[scaled_scores(s, &o)]);
    s.output("y", s.matmul(s.exp(logarithm), o.v));
}

/// A batched product of three axes, as `bmm` is.
fn three_axes<'s>(s: &'s Sheet) {
    let o = heads(s, F32);
    let rows = |x: Tensor<'s>, width: i64| {
        let joined = s.call("Mul", &[s.size(x, 0), s.int(4)]);
        s.call("Reshape", &[x, s.vector(&[joined, s.size(x, 2), s.int(width)])])
    };
    let product = s.matmul(rows(o.q, 64), s.transpose(rows(o.k, 64), &[0, 2, 1]));
    let probabilities = s.softmax(s.mul(product, s.number(SCALE)), -1);
    let y = s.matmul(probabilities, rows(o.v, 64));
    s.output("y", s.call("Reshape", &[y, s.vector(&[s.size(o.q, 0), s.int(4), s.size(o.q, 2), s.int(64)])]));
}

/// As ATen decomposes it: every operand expanded to its own shape and viewed with three axes, scores viewed with four.
fn three_axes_expanded<'s>(s: &'s Sheet) {
    let o = heads(s, F32);
    let rows = |x: Tensor<'s>, sizes: [Tensor<'s>; 2]| {
        let own = s.call("Shape", &[x]);
        let copied = s.call("Identity", &[s.expand(x, own)]);
        s.call("Reshape", &[copied, s.vector(&[s.int(-1), sizes[0], sizes[1]])])
    };
    let (queries, keys) = (s.size(o.q, 2), s.size(o.k, 2));
    let root = s.number(SCALE.sqrt());
    let q = rows(s.mul(o.q, root), [queries, s.int(64)]);
    let k = rows(s.mul(s.transpose(o.k, &[0, 1, 3, 2]), root), [s.int(64), keys]);
    let four =
        |x: Tensor<'s>, last: Tensor<'s>| s.call("Reshape", &[x, s.vector(&[s.size(o.q, 0), s.int(4), queries, last])]);
    let probabilities = written_out(s, four(s.matmul(q, k), keys), -1);
    let y = s.matmul(rows(probabilities, [queries, keys]), rows(o.v, [keys, s.int(64)]));
    s.output("y", four(y, s.int(64)));
}

fn einsum(s: &Sheet) {
    let o = heads(s, F32);
    let product = s.op("Einsum").str("equation", "bhqe,bhke->bhqk").of(&[o.q, o.k]);
    let probabilities = s.softmax(s.mul(product, s.number(SCALE)), -1);
    s.output("y", s.op("Einsum").str("equation", "bhqk,bhkv->bhqv").of(&[probabilities, o.v]));
}

fn keys_transposed_twice(s: &Sheet) {
    let o = heads(s, F32);
    let turned = s.transpose(s.transpose(o.k, &[0, 2, 1, 3]), &[0, 2, 3, 1]);
    finish(s, s.div(s.matmul(o.q, turned), s.number(8.0)), &o);
}

fn axis_in_front(s: &Sheet) {
    let o = heads(s, F32);
    let front = |x| s.unsqueeze(x, &[0]);
    let product = s.matmul(front(o.q), s.transpose(front(o.k), &[0, 1, 2, 4, 3]));
    let probabilities = s.softmax(s.mul(s.number(SCALE), product), -1);
    s.output("y", s.call("Squeeze", &[s.matmul(probabilities, front(o.v)), s.ints(&[0])]));
}

fn named(s: &Sheet) {
    let o = heads(s, F32);
    s.output("y", s.op("Attention").opset(23).of(&[o.q, o.k, o.v]));
}

/// `[n, s, 256]`: four heads in a row.
fn row_operands(s: &Sheet) -> Operands<'_> {
    Operands { q: s.floats("q", "n, s, 256"), k: s.floats("k", "n, t, 256"), v: s.floats("v", "n, t, 256") }
}

pub(super) fn split_heads<'s>(s: &'s Sheet, x: Tensor<'s>, heads: i64) -> Tensor<'s> {
    let size = s.op("Shape").of(&[x]);
    let split = s.concat(&[s.slice(size, 0, 0, 2), s.ints(&[heads, -1])], 0);
    s.transpose(s.call("Reshape", &[x, split]), &[0, 2, 1, 3])
}

pub(super) fn merge_heads<'s>(s: &'s Sheet, x: Tensor<'s>, width: i64) -> Tensor<'s> {
    s.reshape(s.transpose(x, &[0, 2, 1, 3]), &[0, 0, width])
}

fn rows(s: &Sheet) {
    let o = row_operands(s);
    let [q, k, v] = [o.q, o.k, o.v].map(|x| split_heads(s, x, 4));
    let probabilities = s.softmax(s.div(scores(s, q, k), s.number(8.0)), -1);
    s.output("y", merge_heads(s, s.matmul(probabilities, v), 256));
}

fn rows_keys_at_once(s: &Sheet) {
    let o = row_operands(s);
    let (q, v) = (split_heads(s, o.q, 4), split_heads(s, o.v, 4));
    let k = s.transpose(s.reshape(o.k, &[0, 0, 4, 64]), &[0, 2, 3, 1]);
    let probabilities = s.softmax(s.mul(s.matmul(q, k), s.number(SCALE)), -1);
    s.output("y", merge_heads(s, s.matmul(probabilities, v), 256));
}

fn rows_scaled_early(s: &Sheet) {
    let o = row_operands(s);
    let q = split_heads(s, s.mul(o.q, s.number(SCALE)), 4);
    let [k, v] = [o.k, o.v].map(|x| split_heads(s, x, 4));
    let y = s.matmul(s.softmax(scores(s, q, k), 3), v);
    let shape = s.vector(&[s.size(o.q, 0), s.size(o.q, 1), s.int(256)]);
    s.output("y", s.call("Reshape", &[s.transpose(y, &[0, 2, 1, 3]), shape]));
}

/// As older attention modules do: batch and heads are one axis.
fn rows_three_axes<'s>(s: &'s Sheet) {
    let o = row_operands(s);
    let joined = s.mul(s.size(o.q, 0), s.int(4));
    let rows = |x: Tensor<'s>, width: i64| {
        let heads = s.transpose(s.reshape(x, &[0, 0, 4, width]), &[0, 2, 1, 3]);
        s.call("Reshape", &[heads, s.vector(&[joined, s.size(x, 1), s.int(width)])])
    };
    let q = rows(s.mul(o.q, s.number(SCALE)), 64);
    let product = s.matmul(q, s.transpose(rows(o.k, 64), &[0, 2, 1]));
    let y = s.matmul(s.softmax(product, -1), rows(o.v, 64));
    let four = s.call("Reshape", &[y, s.vector(&[s.size(o.q, 0), s.int(4), s.size(o.q, 1), s.int(64)])]);
    s.output("y", merge_heads(s, four, 256));
}

fn rows_einsum(s: &Sheet) {
    let o = row_operands(s);
    let [q, k] = [o.q, o.k].map(|x| s.reshape(x, &[0, 0, 4, 64]));
    let product = s.op("Einsum").str("equation", "bqhe,bkhe->bhqk").of(&[q, k]);
    let probabilities = s.softmax(s.mul(product, s.number(SCALE)), -1);
    let v = s.reshape(o.v, &[0, 0, 4, 64]);
    let y = s.op("Einsum").str("equation", "bhqk,bkhv->bqhv").of(&[probabilities, v]);
    s.output("y", s.reshape(y, &[0, 0, 256]));
}

fn rows_named(s: &Sheet) {
    let o = row_operands(s);
    let attention = s.op("Attention").opset(23).int("q_num_heads", 4).int("kv_num_heads", 4);
    s.output("y", attention.of(&[o.q, o.k, o.v]));
}

fn rows_contributed(s: &Sheet) {
    let o = row_operands(s);
    s.output("y", s.contributed("MultiHeadAttention").int("num_heads", 4).of(&[o.q, o.k, o.v]));
}

fn bare_operands(s: &Sheet) -> Operands<'_> {
    Operands { q: s.floats("q", "n, s, 64"), k: s.floats("k", "n, t, 64"), v: s.floats("v", "n, t, 64") }
}

fn bare(s: &Sheet) {
    let o = bare_operands(s);
    finish(s, s.matmul(o.q, s.transpose(o.k, &[0, 2, 1])), &o);
}

fn bare_one_head(s: &Sheet) {
    let o = bare_operands(s);
    let [q, k, v] = [o.q, o.k, o.v].map(|x| s.unsqueeze(x, &[1]));
    let y = s.op("Attention").opset(23).float("scale", 1.0).of(&[q, k, v]);
    s.output("y", s.call("Squeeze", &[y, s.ints(&[1])]));
}

/// Queries, keys and values of 256 each, side by side.
fn projection(s: &Sheet) -> Tensor<'_> {
    let product = s.matmul(s.floats("x", "n, s, 96"), s.floats("weights", "96, 768"));
    s.add(product, s.floats("bias", "768"))
}

fn attend_projected<'s>(s: &'s Sheet, parts: [Tensor<'s>; 3]) {
    let [q, k, v] = parts.map(|x| split_heads(s, x, 4));
    let probabilities = s.softmax(s.div(scores(s, q, k), s.number(8.0)), -1);
    s.output("y", merge_heads(s, s.matmul(probabilities, v), 256));
}

fn projected_split(s: &Sheet) {
    let parts = s.op("Split").int("axis", 2).all(&[projection(s), s.ints(&[256, 256, 256])], 3);
    attend_projected(s, [parts[0], parts[1], parts[2]]);
}

fn projected_slices(s: &Sheet) {
    let all = projection(s);
    attend_projected(s, [0, 1, 2].map(|k| s.slice(all, -1, 256 * k, 256 * (k + 1))));
}

/// As ViT does: heads and the three parts split at once, the parts moved to the front.
fn projected_reshaped(s: &Sheet) {
    let all = s.transpose(s.reshape(projection(s), &[0, 0, 3, 4, 64]), &[2, 0, 3, 1, 4]);
    let [q, k, v] = [0, 1, 2].map(|part| s.gather(all, s.int(part)));
    let probabilities = s.softmax(scores(s, s.mul(q, s.number(SCALE)), k), -1);
    s.output("y", merge_heads(s, s.matmul(probabilities, v), 256));
}

fn projected_named(s: &Sheet) {
    let (x, weights, bias) = (s.floats("x", "n, s, 96"), s.floats("weights", "96, 768"), s.floats("bias", "768"));
    s.output("y", s.contributed("Attention").int("num_heads", 4).of(&[x, weights, bias]));
}

/// Keys times queries: the softmax runs over the first of the last two axes.
fn scores_turned(s: &Sheet) {
    let o = heads(s, F32);
    let product = s.mul(s.matmul(o.k, s.transpose(o.q, &[0, 1, 3, 2])), s.number(SCALE));
    let probabilities = s.softmax(product, 2);
    s.output("y", s.matmul(s.transpose(probabilities, &[0, 1, 3, 2]), o.v));
}

fn values_turned(s: &Sheet) {
    let o = heads(s, F32);
    let probabilities = s.transpose(s.softmax(scaled_scores(s, &o), 3), &[0, 1, 3, 2]);
    let y = s.matmul(s.transpose(o.v, &[0, 1, 3, 2]), probabilities);
    s.output("y", s.transpose(y, &[0, 1, 3, 2]));
}

fn normalised_late(s: &Sheet) {
    let o = heads(s, F32);
    let scores = scaled_scores(s, &o);
    let e = s.exp(s.sub(scores, s.reduce("ReduceMax", scores, -1)));
    s.output("y", s.div(s.matmul(e, o.v), s.reduce("ReduceSum", e, -1)));
}

fn idle_dropout(s: &Sheet) {
    let o = heads(s, F32);
    let scale = s.pow(s.number(64.0), s.number(-0.5));
    let probabilities = s.softmax(s.mul(scores(s, o.q, o.k), scale), -1);
    s.output("y", s.matmul(s.op("Dropout").of(&[probabilities, s.number(0.1)]), o.v));
}

fn einsum_values_first(s: &Sheet) {
    let o = heads(s, F32);
    let product = s.op("Einsum").str("equation", "nhsd,nhld->nhls").of(&[o.k, s.mul(o.q, s.number(SCALE))]);
    let y = s.op("Einsum").str("equation", "nhsv,nhls->nhlv").of(&[o.v, s.softmax(product, -1)]);
    s.output("y", y);
}

/// As PyTorch's own module does: sequence, batch, width; then batch and heads are one axis.
fn rows_sequence_in_front<'s>(s: &'s Sheet) {
    let o = row_operands(s);
    let joined = s.mul(s.size(o.q, 0), s.int(4));
    let rows = |x: Tensor<'s>| {
        let front = s.transpose(x, &[1, 0, 2]);
        let heads = s.call("Reshape", &[front, s.vector(&[s.size(x, 1), joined, s.int(64)])]);
        s.transpose(heads, &[1, 0, 2])
    };
    let (q, k, v) = (rows(o.q), rows(o.k), rows(o.v));
    let product = s.matmul(s.div(q, s.sqrt(s.number(64.0))), s.transpose(k, &[0, 2, 1]));
    let y = s.transpose(s.matmul(s.softmax(product, 2), v), &[1, 0, 2]);
    let merged = s.call("Reshape", &[y, s.vector(&[s.size(o.q, 1), s.size(o.q, 0), s.int(256)])]);
    s.output("y", s.transpose(merged, &[1, 0, 2]));
}

fn projected_squeezed(s: &Sheet) {
    let all = s.transpose(s.reshape(projection(s), &[0, -1, 3, 4, 64]), &[2, 0, 3, 1, 4]);
    let parts = s.split(all, 0, 3);
    let [q, k, v] = [0, 1, 2].map(|part| s.call("Squeeze", &[parts[part], s.ints(&[0])]));
    let probabilities = s.softmax(s.mul(scores(s, q, k), s.number(SCALE)), 3);
    s.output("y", merge_heads(s, s.matmul(probabilities, v), 256));
}

fn projected_heads_first(s: &Sheet) {
    let all = s.transpose(s.reshape(projection(s), &[0, 0, 12, 64]), &[0, 2, 1, 3]);
    let [q, k, v] = [0, 4, 8].map(|head| s.slice(all, 1, head, head + 4));
    let probabilities = s.softmax(s.mul(scores(s, q, k), s.number(SCALE)), -1);
    s.output("y", merge_heads(s, s.matmul(probabilities, v), 256));
}
