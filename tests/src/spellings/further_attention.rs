//! More ways to write attention: scales, heads, masks, guards, sinks, caches.

use fuseline::graph::Tensor;
use fuseline::tensor::DType::{Bool, F32, I32, I64};

use super::attention::{Operands, SCALE, finish, heads, merge_heads, scaled_scores, scores};
use super::softmax::written_out;
use super::{Sheet, spellings};

spellings! {
    "attention" {
        "heads apart" {
            "fourth root on both": fourth_root,
            "heads as two axes": two_axes_of_heads,
            "heads behind queries": heads_behind,
            "statistics repeated": repeated_statistics,
            "batch and heads as one axis of the labels": labels_joined,
            "scale twice": scaled_twice,
            "less what one operator gives": log_sum,
        }
        "projected by parts of the weights" {
            "weights sliced": projected_weights,
        }
        "projected, parts of the bias" {
            "bias split": projected_bias,
        }
    }
    "attention, additive mask" {
        "f32" {
            "softmax of ONNX Runtime's own": additive_bias_softmax,
            "exponential of the logarithm": additive_log,
            "mask with two axes squeezed": additive_squeezed,
        }
    }
    "attention, boolean mask" {
        "hidden by infinity" {
            "mask as numbers": boolean_numbers,
            "logarithm of the mask": boolean_logarithm,
            "exponential of the logarithm": boolean_log,
        }
    }
    "attention, causal" {
        "hidden by infinity" {
            "places as numbers": causal_floats,
            "band of a product": causal_product,
            "added by a choice": causal_choice_added,
        }
    }
    "attention, causal and padded" {
        "hidden by infinity" {
            "both at once": both_and,
            "one after the other": both_nested,
            "added one after the other": both_added,
            "either hides": both_or,
        }
    }
    "attention, causal and padded, guarded" {
        "f32" {
            "choice by what is not a number": both_guarded,
            "one operator with a mask": both_named,
        }
    }
    "attention, window" {
        "hidden by infinity" {
            "two comparisons": window_compared,
            "difference within bounds": window_difference,
            "two triangles": window_triangles,
            "one after the other": window_nested,
            "stored table": window_table,
        }
    }
    "attention, guarded" {
        "f32" {
            "equal to itself": guard_equal,
            "rows of infinities by the least": guard_least,
            "rows by their largest": guard_largest,
            "rows of infinities by a sum": guard_sum,
        }
    }
    "attention, sinks" {
        "f32" {
            "a column more": sink_column,
            "in the sums": sink_sums,
        }
        "of nothing" {
            "one more in the sum": sink_one,
            "a column of zeros": sink_zero,
        }
    }
    "attention, one head of keys" {
        "f32" {
            "broadcast": multi_query,
            "repeated": multi_query_repeated,
            "heads in rows of one product": multi_query_rows,
            "one operator": multi_query_named,
        }
    }
    "grouped attention" {
        "f32" {
            "repeated behind the transpose": grouped_transposed,
            "heads joined one by one": grouped_concat,
        }
    }
    "attention, softcap" {
        "f32" {
            "scale inside of the quotient": softcap_inside,
        }
    }
}

fn fourth_root(s: &Sheet) {
    let o = heads(s, F32);
    let root = s.pow(s.number(64.0), s.number(-0.25));
    finish(s, scores(s, s.mul(o.q, root), s.mul(o.k, root)), &o);
}

fn log_sum(s: &Sheet) {
    let o = heads(s, F32);
    let scores = scaled_scores(s, &o);
    let p = s.exp(s.sub(scores, s.reduce("ReduceLogSumExp", scores, -1)));
    s.output("y", s.matmul(p, o.v));
}

fn two_axes_of_heads(s: &Sheet) {
    let o = heads(s, F32);
    let [q, k, v] = [o.q, o.k, o.v].map(|x| s.reshape(x, &[0, 2, 2, -1, 64]));
    let product = s.mul(s.matmul(q, s.transpose(k, &[0, 1, 2, 4, 3])), s.number(SCALE));
    let y = s.matmul(s.softmax(product, -1), v);
    s.output("y", s.call("Reshape", &[y, s.call("Shape", &[o.q])]));
}

fn heads_behind(s: &Sheet) {
    let o = heads(s, F32);
    let product = s.op("Einsum").str("equation", "bhqe,bhke->bqhk").of(&[o.q, o.k]);
    let p = s.softmax(s.mul(product, s.number(SCALE)), -1);
    s.output("y", s.op("Einsum").str("equation", "bqhk,bhkv->bhqv").of(&[p, o.v]));
}

fn repeated_statistics(s: &Sheet) {
    let o = heads(s, F32);
    let scores = scaled_scores(s, &o);
    let everywhere = |x| s.expand(x, s.call("Shape", &[scores]));
    let e = s.exp(s.sub(scores, everywhere(s.reduce("ReduceMax", scores, 3))));
    s.output("y", s.matmul(s.div(e, everywhere(s.reduce("ReduceSum", e, 3))), o.v));
}

fn labels_joined(s: &Sheet) {
    let o = heads(s, F32);
    let [q, k, v] = [o.q, o.k, o.v].map(|x| {
        let sizes = s.op("Shape").int("start", 2).of(&[x]);
        s.call("Reshape", &[x, s.concat(&[s.ints(&[-1]), sizes], 0)])
    });
    let product = s.op("Einsum").str("equation", "xqe,xke->xqk").of(&[q, k]);
    let p = s.softmax(s.div(product, s.number(8.0)), 2);
    let y = s.op("Einsum").str("equation", "xqk,xkv->xqv").of(&[p, v]);
    s.output("y", s.call("Reshape", &[y, s.call("Shape", &[o.q])]));
}

fn scaled_twice(s: &Sheet) {
    let o = heads(s, F32);
    let half = s.div(scores(s, o.q, o.k), s.number(2.0));
    finish(s, s.div(half, s.number(4.0)), &o);
}

fn projection(s: &Sheet) -> [Tensor<'_>; 3] {
    [s.floats("x", "n, s, 96"), s.floats("weights", "96, 768"), s.floats("bias", "768")]
}

fn attend_projected<'s>(s: &'s Sheet, parts: [Tensor<'s>; 3]) {
    let [q, k, v] = parts.map(|x| s.transpose(s.reshape(x, &[0, 0, 4, 64]), &[0, 2, 1, 3]));
    let p = s.softmax(s.mul(scores(s, q, k), s.number(SCALE)), -1);
    s.output("y", merge_heads(s, s.matmul(p, v), 256));
}

fn projected_weights(s: &Sheet) {
    let [x, weights, bias] = projection(s);
    let part = |k: i64| {
        let product = s.matmul(x, s.slice(weights, 1, 256 * k, 256 * (k + 1)));
        s.add(product, s.slice(bias, 0, 256 * k, 256 * (k + 1)))
    };
    attend_projected(s, [part(0), part(1), part(2)]);
}

fn projected_bias(s: &Sheet) {
    let [x, weights, bias] = projection(s);
    let (products, biases) = (s.split(s.matmul(x, weights), 2, 3), s.split(bias, 0, 3));
    attend_projected(s, [0, 1, 2].map(|k| s.add(biases[k], products[k])));
}

fn additive_mask(s: &Sheet) -> Tensor<'_> {
    s.floats("mask", "n, 1, 1, t")
}

fn additive_bias_softmax(s: &Sheet) {
    let o = heads(s, F32);
    let scores = scaled_scores(s, &o);
    let softmax = s.contributed("BiasSoftmax").int("axis", 3).int("is_inner_broadcast", 0);
    s.output("y", s.matmul(softmax.of(&[scores, additive_mask(s)]), o.v));
}

fn additive_log(s: &Sheet) {
    let o = heads(s, F32);
    let scores = s.add(scaled_scores(s, &o), additive_mask(s));
    s.output("y", s.matmul(s.exp(s.op("LogSoftmax").int("axis", -1).of(&[scores])), o.v));
}

fn additive_squeezed(s: &Sheet) {
    let o = heads(s, F32);
    let mask = s.call("Squeeze", &[additive_mask(s), s.ints(&[1])]);
    finish(s, s.add(scaled_scores(s, &o), s.unsqueeze(mask, &[1])), &o);
}

fn boolean_mask(s: &Sheet) -> Tensor<'_> {
    s.input("mask", Bool, "n, 1, s, t")
}

fn infinity(s: &Sheet) -> Tensor<'_> {
    s.number(f64::NEG_INFINITY)
}

fn boolean_numbers(s: &Sheet) {
    let o = heads(s, F32);
    let seen = s.call("Greater", &[s.cast(boolean_mask(s), F32), s.number(0.5)]);
    finish(s, s.choose(seen, scaled_scores(s, &o), infinity(s)), &o);
}

fn boolean_logarithm(s: &Sheet) {
    let o = heads(s, F32);
    let mask = s.call("Log", &[s.cast(boolean_mask(s), F32)]);
    finish(s, s.add(scaled_scores(s, &o), mask), &o);
}

fn boolean_log(s: &Sheet) {
    let o = heads(s, F32);
    let hidden = s.choose(boolean_mask(s), scaled_scores(s, &o), infinity(s));
    s.output("y", s.matmul(s.exp(s.op("LogSoftmax").int("axis", 3).of(&[hidden])), o.v));
}

/// As many keys as queries.
fn self_heads(s: &Sheet) -> Operands<'_> {
    Operands { q: s.floats("q", "n, 4, s, 64"), k: s.floats("k", "n, 4, s, 64"), v: s.floats("v", "n, 4, s, 64") }
}

fn places<'s>(s: &'s Sheet, o: &Operands<'s>) -> [Tensor<'s>; 2] {
    let range = |x: Tensor<'s>| s.call("Range", &[s.int(0), s.size(x, 2), s.int(1)]);
    [s.unsqueeze(range(o.q), &[1]), s.unsqueeze(range(o.k), &[0])]
}

fn hide<'s>(s: &'s Sheet, seen: Tensor<'s>, o: &Operands<'s>) {
    finish(s, s.choose(seen, scaled_scores(s, o), infinity(s)), o);
}

fn causal_floats(s: &Sheet) {
    let o = self_heads(s);
    let [queries, keys] = places(s, &o).map(|x| s.cast(x, F32));
    hide(s, s.call("LessOrEqual", &[keys, queries]), &o);
}

/// A triangle of ones, turned over and multiplied by −∞ where it is one.
fn causal_product(s: &Sheet) {
    let o = self_heads(s);
    let [queries, keys] = places(s, &o);
    let seen = s.cast(s.call("GreaterOrEqual", &[queries, keys]), I32);
    hide(s, s.call("Equal", &[seen, s.builder().int(I32, 1)]), &o);
}

fn causal_choice_added(s: &Sheet) {
    let o = self_heads(s);
    let [queries, keys] = places(s, &o);
    let shift = s.choose(s.call("Less", &[queries, keys]), infinity(s), s.number(0.0));
    finish(s, s.add(s.unsqueeze(shift, &[0, 1]), scaled_scores(s, &o)), &o);
}

/// Whether a query comes no earlier than a key, and whether a key is there.
fn both<'s>(s: &'s Sheet, o: &Operands<'s>) -> [Tensor<'s>; 2] {
    let [queries, keys] = places(s, o);
    let padding = s.unsqueeze(s.input("mask", Bool, "n, s"), &[1, 2]);
    [s.call("LessOrEqual", &[keys, queries]), padding]
}

fn both_and(s: &Sheet) {
    let o = self_heads(s);
    let masks = both(s, &o);
    hide(s, s.call("And", &masks), &o);
}

fn both_nested(s: &Sheet) {
    let o = self_heads(s);
    let [causal, padding] = both(s, &o);
    hide_nested(s, [causal, padding], &o);
}

fn hide_nested<'s>(s: &'s Sheet, [first, second]: [Tensor<'s>; 2], o: &Operands<'s>) {
    let once = s.choose(first, scaled_scores(s, o), infinity(s));
    finish(s, s.choose(second, once, infinity(s)), o);
}

fn both_added(s: &Sheet) {
    let o = self_heads(s);
    let [causal, padding] = both(s, &o).map(|mask| s.choose(mask, s.number(0.0), infinity(s)));
    finish(s, s.add(s.add(scaled_scores(s, &o), causal), padding), &o);
}

fn both_or(s: &Sheet) {
    let o = self_heads(s);
    let hidden = both(s, &o).map(|mask| s.call("Not", &[mask]));
    finish(s, s.choose(s.call("Or", &hidden), infinity(s), scaled_scores(s, &o)), &o);
}

fn both_guarded(s: &Sheet) {
    let o = self_heads(s);
    let hidden = s.choose(s.call("And", &both(s, &o)), scaled_scores(s, &o), infinity(s));
    let probabilities = s.softmax(hidden, -1);
    s.output("y", s.matmul(s.choose(s.call("IsNaN", &[probabilities]), s.number(0.0), probabilities), o.v));
}

fn both_named(s: &Sheet) {
    let o = self_heads(s);
    let mask = s.unsqueeze(s.input("mask", Bool, "n, s"), &[1, 2]);
    let length = s.size(o.q, 2);
    let everywhere = s.expand(mask, s.vector(&[s.int(1), s.int(1), length, length]));
    s.output("y", s.op("Attention").opset(23).int("is_causal", 1).of(&[o.q, o.k, o.v, everywhere]));
}

fn window_compared(s: &Sheet) {
    let o = self_heads(s);
    let [queries, keys] = places(s, &o);
    let near = s.call("Greater", &[keys, s.sub(queries, s.int(3))]);
    hide(s, s.call("And", &[s.call("LessOrEqual", &[keys, queries]), near]), &o);
}

fn window_difference(s: &Sheet) {
    let o = self_heads(s);
    let [queries, keys] = places(s, &o);
    let distance = s.sub(queries, keys);
    let near = s.call("Less", &[distance, s.int(3)]);
    hide(s, s.call("And", &[s.call("GreaterOrEqual", &[distance, s.int(0)]), near]), &o);
}

fn window_triangles(s: &Sheet) {
    let o = self_heads(s);
    let length = s.size(o.q, 2);
    let ones = s.expand(s.int(1), s.vector(&[length, length]));
    let below = s.op("Trilu").int("upper", 0).of(&[ones]);
    let band = s.op("Trilu").int("upper", 1).of(&[below, s.int(-2)]);
    hide(s, s.cast(band, Bool), &o);
}

fn window_nested(s: &Sheet) {
    let o = self_heads(s);
    let [queries, keys] = places(s, &o);
    let near = s.call("Less", &[s.sub(queries, keys), s.int(3)]);
    hide_nested(s, [s.call("GreaterOrEqual", &[queries, keys]), near], &o);
}

fn window_table(s: &Sheet) {
    let o = self_heads(s);
    let table = s.table(Bool, &[32, 32], |i| f64::from(u8::from(i[1] <= i[0] && i[1] + 3 > i[0])));
    let length = s.unsqueeze(s.size(o.q, 2), &[0]);
    let ends = s.concat(&[length, length], 0);
    hide(s, s.call("Slice", &[table, s.ints(&[0, 0]), ends, s.ints(&[0, 1])]), &o);
}

/// Scores of which some rows are −∞ throughout.
fn hidden_scores<'s>(s: &'s Sheet, o: &Operands<'s>) -> Tensor<'s> {
    s.add(scaled_scores(s, o), s.floats("hiding", "n, 1, s, t"))
}

fn guard_equal(s: &Sheet) {
    let o = heads(s, F32);
    let p = s.softmax(hidden_scores(s, &o), -1);
    s.output("y", s.matmul(s.choose(s.call("Equal", &[p, p]), p, s.number(0.0)), o.v));
}

fn guard_sum(s: &Sheet) {
    let o = heads(s, F32);
    let scores = hidden_scores(s, &o);
    let some = s.cast(s.call("Not", &[s.call("Equal", &[scores, infinity(s)])]), I64);
    let any = s.call("Greater", &[s.reduce("ReduceSum", some, -1), s.int(0)]);
    s.output("y", s.matmul(s.choose(any, written_out(s, scores, -1), s.number(0.0)), o.v));
}

fn guard_least(s: &Sheet) {
    let o = heads(s, F32);
    let scores = hidden_scores(s, &o);
    let hidden = s.cast(s.call("Equal", &[scores, infinity(s)]), I32);
    let all = s.cast(s.reduce("ReduceMin", hidden, -1), Bool);
    s.output("y", s.matmul(s.choose(all, s.number(0.0), s.softmax(scores, -1)), o.v));
}

fn guard_largest(s: &Sheet) {
    let o = heads(s, F32);
    let scores = hidden_scores(s, &o);
    let none = s.call("Equal", &[s.reduce("ReduceMax", scores, -1), infinity(s)]);
    s.output("y", s.matmul(s.choose(none, s.number(0.0), s.softmax(scores, -1)), o.v));
}

fn sinks<'s>(s: &'s Sheet) -> (Operands<'s>, Tensor<'s>) {
    (heads(s, F32), s.floats("sinks", "4"))
}

/// As gpt-oss does: a logit of every head beside those of the keys, whose probability is dropped.
fn sink_column(s: &Sheet) {
    let (o, sinks) = sinks(s);
    let scores = scaled_scores(s, &o);
    let shape = s.vector(&[s.size(o.q, 0), s.int(4), s.size(o.q, 2), s.int(1)]);
    let column = s.expand(s.reshape(sinks, &[1, -1, 1, 1]), shape);
    let p = s.softmax(s.concat(&[scores, column], -1), -1);
    s.output("y", s.matmul(s.slice(p, 3, 0, -1), o.v));
}

fn sink_sums(s: &Sheet) {
    let (o, sinks) = sinks(s);
    let scores = scaled_scores(s, &o);
    let sinks = s.reshape(sinks, &[4, 1, 1]);
    let largest = s.call("Max", &[s.reduce("ReduceMax", scores, -1), sinks]);
    let e = s.exp(s.sub(scores, largest));
    let sum = s.add(s.reduce("ReduceSum", e, -1), s.exp(s.sub(sinks, largest)));
    s.output("y", s.matmul(s.div(e, sum), o.v));
}

/// One more in the sum: a row may see nothing.
fn sink_one(s: &Sheet) {
    let o = heads(s, F32);
    let scores = scaled_scores(s, &o);
    let largest = s.call("Max", &[s.reduce("ReduceMax", scores, -1), s.number(0.0)]);
    let e = s.exp(s.sub(scores, largest));
    let sum = s.add(s.reduce("ReduceSum", e, -1), s.exp(s.neg(largest)));
    s.output("y", s.matmul(s.div(e, sum), o.v));
}

fn sink_zero(s: &Sheet) {
    let o = heads(s, F32);
    let scores = scaled_scores(s, &o);
    let column = s.expand(s.number(0.0), s.vector(&[s.size(o.q, 0), s.int(4), s.size(o.q, 2), s.int(1)]));
    let p = s.softmax(s.concat(&[column, scores], 3), -1);
    s.output("y", s.matmul(s.slice(p, 3, 1, i64::MAX), o.v));
}

fn one_head(s: &Sheet) -> Operands<'_> {
    Operands { q: s.floats("q", "n, 4, s, 64"), k: s.floats("k", "n, 1, t, 64"), v: s.floats("v", "n, 1, t, 64") }
}

fn multi_query(s: &Sheet) {
    let o = one_head(s);
    finish(s, scaled_scores(s, &o), &o);
}

fn multi_query_repeated(s: &Sheet) {
    let o = one_head(s);
    let repeat = |x| s.expand(x, s.vector(&[s.size(x, 0), s.int(4), s.size(x, 2), s.int(64)]));
    let o = Operands { q: o.q, k: repeat(o.k), v: repeat(o.v) };
    finish(s, scaled_scores(s, &o), &o);
}

/// Heads and queries are the rows of one product.
fn multi_query_rows(s: &Sheet) {
    let o = one_head(s);
    let q = s.reshape(o.q, &[0, 1, -1, 64]);
    let product = s.mul(scores(s, q, o.k), s.number(SCALE));
    let y = s.matmul(s.softmax(product, -1), o.v);
    s.output("y", s.call("Reshape", &[y, s.call("Shape", &[o.q])]));
}

fn multi_query_named(s: &Sheet) {
    let o = one_head(s);
    s.output("y", s.op("Attention").opset(23).of(&[o.q, o.k, o.v]));
}

/// Six heads of queries, two of keys and values.
fn grouped(s: &Sheet) -> Operands<'_> {
    Operands { q: s.floats("q", "n, 6, s, 64"), k: s.floats("k", "n, 2, t, 64"), v: s.floats("v", "n, 2, t, 64") }
}

fn grouped_concat(s: &Sheet) {
    let o = grouped(s);
    let repeat = |x| {
        let heads = s.split(x, 1, 2);
        s.concat(&[heads[0], heads[0], heads[0], heads[1], heads[1], heads[1]], 1)
    };
    let o = Operands { q: o.q, k: repeat(o.k), v: repeat(o.v) };
    finish(s, scaled_scores(s, &o), &o);
}

fn grouped_transposed(s: &Sheet) {
    let o = grouped(s);
    let turned = s.unsqueeze(s.transpose(o.k, &[0, 1, 3, 2]), &[2]);
    let (batch, length) = (s.size(o.k, 0), s.size(o.k, 2));
    let keys = s.expand(turned, s.vector(&[batch, s.int(2), s.int(3), s.int(64), length]));
    let keys = s.call("Reshape", &[keys, s.vector(&[batch, s.int(6), s.int(64), length])]);
    let values = s.expand(s.unsqueeze(o.v, &[2]), s.vector(&[batch, s.int(2), s.int(3), length, s.int(64)]));
    let values = s.call("Reshape", &[values, s.vector(&[batch, s.int(6), length, s.int(64)])]);
    let p = s.softmax(s.matmul(s.mul(o.q, s.number(SCALE)), keys), -1);
    s.output("y", s.matmul(p, values));
}

fn softcap_inside(s: &Sheet) {
    let o = heads(s, F32);
    let bent = s.tanh(s.div(scores(s, o.q, o.k), s.number(400.0)));
    finish(s, s.mul(s.number(50.0), bent), &o);
}
