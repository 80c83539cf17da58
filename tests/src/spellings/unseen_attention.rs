//! Ways to write attention that nobody has been seen to use, and that mean the same.

use fuseline::graph::Tensor;
use fuseline::tensor::DType::{Bool, F32, I32, I64};

use super::attention::{Operands, SCALE, finish, heads, scaled_scores, scores};
use super::{Sheet, spellings};

spellings! {
    "attention" {
        "heads apart" {
            "scores as sums of products": dots,
            "scores and values as sums of products": dots_both,
            "products of queries in front, summed by labels": dots_labels,
            "softmax of a matrix, an older version": coerced,
            "softmax by powers of two": powers,
            "reciprocal of the root": reciprocal_root,
            "softmax along another axis": keys_inside,
            "sum of exponentials by a product with ones": ones,
            "scale behind the maximum": scaled_late,
        }
    }
    "attention, additive mask" {
        "f32" {
            "less the negated mask": additive_negated,
            "less what one operator gives": additive_log_sum,
        }
    }
    "attention, boolean mask" {
        "hidden by infinity" {
            "the smaller of scores and infinities": boolean_least,
            "less infinities": boolean_less,
            "less what one operator gives": boolean_log_sum,
            "choice of queries and of nothing": boolean_twice,
        }
    }
    "attention, causal" {
        "hidden by infinity" {
            "the smaller of scores and infinities": causal_least,
            "a query before the key behind": causal_behind,
            "triangle of ones equals zero": causal_equal,
            "places counted in a grid": causal_grid,
        }
    }
    "attention, guarded" {
        "f32" {
            "count of what is seen": guard_count,
            "count of what is hidden": guard_count_hidden,
            "count as a float": guard_count_float,
        }
    }
    "attention, boolean mask, guarded" {
        "f32" {
            "choice by what is not a number": masked_guard,
            "rows of the mask": masked_guard_any,
            "count of the mask": masked_guard_count,
            "count of the mask as numbers": masked_guard_numbers,
            "mask hides all": masked_guard_all,
            "one operator": masked_guard_named,
        }
    }
    "attention, sinks" {
        "f32" {
            "logarithm, cut, exponential": sink_log,
            "a column in front, logarithm": sink_front,
            "split off": sink_split,
            "logarithm of the sums": sink_log_sum,
        }
    }
    "grouped attention" {
        "f32" {
            "halves of the heads three times": grouped_halves,
            "product with ones": grouped_ones,
            "sums of products by group": grouped_dots,
        }
    }
    "attention, softcap" {
        "f32" {
            "by the sigmoid": softcap_sigmoid,
        }
    }
}

fn product_sum<'s>(s: &'s Sheet, a: Tensor<'s>, b: Tensor<'s>, axis: i64) -> Tensor<'s> {
    s.op("ReduceSum").int("keepdims", 0).of(&[s.mul(a, b), s.ints(&[axis])])
}

/// Queries and keys multiplied element by element, summed along the head size.
fn dot_scores<'s>(s: &'s Sheet, q: Tensor<'s>, k: Tensor<'s>) -> Tensor<'s> {
    product_sum(s, s.unsqueeze(q, &[3]), s.unsqueeze(k, &[2]), -1)
}

fn dots(s: &Sheet) {
    let o = heads(s, F32);
    finish(s, s.mul(dot_scores(s, o.q, o.k), s.number(SCALE)), &o);
}

fn dots_both(s: &Sheet) {
    let o = heads(s, F32);
    let p = s.softmax(s.div(dot_scores(s, o.q, o.k), s.number(8.0)), -1);
    s.output("y", product_sum(s, s.unsqueeze(p, &[4]), s.unsqueeze(o.v, &[2]), 3));
}

fn dots_labels(s: &Sheet) {
    let o = heads(s, F32);
    let products = s.op("Einsum").str("equation", "bhqe,bhke->bhqke").of(&[o.q, o.k]);
    let product = s.op("ReduceSum").int("keepdims", 0).of(&[products, s.ints(&[4])]);
    finish(s, s.mul(product, s.number(SCALE)), &o);
}

fn coerced(s: &Sheet) {
    let o = heads(s, F32);
    let scores = scaled_scores(s, &o);
    let rows = s.op("Flatten").int("axis", 3).of(&[scores]);
    let p = s.op("Softmax").opset(11).int("axis", 1).of(&[rows]);
    s.output("y", s.matmul(s.call("Reshape", &[p, s.call("Shape", &[scores])]), o.v));
}

fn powers(s: &Sheet) {
    let o = heads(s, F32);
    let scores = s.mul(scores(s, o.q, o.k), s.number(SCALE * std::f64::consts::LOG2_E));
    let e = s.pow(s.number(2.0), s.sub(scores, s.reduce("ReduceMax", scores, -1)));
    s.output("y", s.matmul(s.div(e, s.reduce("ReduceSum", e, -1)), o.v));
}

fn reciprocal_root(s: &Sheet) {
    let o = heads(s, F32);
    let scale = s.reciprocal(s.sqrt(s.cast(s.size(o.k, 3), F32)));
    finish(s, s.mul(scale, scores(s, o.q, o.k)), &o);
}

fn keys_inside(s: &Sheet) {
    let o = heads(s, F32);
    let product = s.op("Einsum").str("equation", "bhqe,bhke->bkqh").of(&[o.q, o.k]);
    let p = s.softmax(s.mul(product, s.number(SCALE)), 1);
    s.output("y", s.op("Einsum").str("equation", "bkqh,bhkv->bhqv").of(&[p, o.v]));
}

fn exponentials<'s>(s: &'s Sheet, scores: Tensor<'s>) -> Tensor<'s> {
    s.exp(s.sub(scores, s.reduce("ReduceMax", scores, -1)))
}

fn ones(s: &Sheet) {
    let o = heads(s, F32);
    let e = exponentials(s, scaled_scores(s, &o));
    let ones = s.expand(s.number(1.0), s.vector(&[s.size(o.k, 2), s.int(1)]));
    s.output("y", s.matmul(s.div(e, s.matmul(e, ones)), o.v));
}

/// exp(s·(x − max x)): the scale is positive.
fn scaled_late(s: &Sheet) {
    let o = heads(s, F32);
    let x = scores(s, o.q, o.k);
    let e = s.exp(s.mul(s.sub(x, s.reduce("ReduceMax", x, -1)), s.number(SCALE)));
    s.output("y", s.matmul(s.div(e, s.reduce("ReduceSum", e, -1)), o.v));
}

fn additive_mask(s: &Sheet) -> Tensor<'_> {
    s.floats("mask", "n, 1, 1, t")
}

fn additive_negated(s: &Sheet) {
    let o = heads(s, F32);
    finish(s, s.sub(scaled_scores(s, &o), s.neg(additive_mask(s))), &o);
}

fn less_log_sum<'s>(s: &'s Sheet, scores: Tensor<'s>, o: &Operands<'s>) {
    let p = s.exp(s.sub(scores, s.reduce("ReduceLogSumExp", scores, -1)));
    s.output("y", s.matmul(p, o.v));
}

fn additive_log_sum(s: &Sheet) {
    let o = heads(s, F32);
    less_log_sum(s, s.add(scaled_scores(s, &o), additive_mask(s)), &o);
}

fn boolean_mask(s: &Sheet) -> Tensor<'_> {
    s.input("mask", Bool, "n, 1, s, t")
}

fn infinity(s: &Sheet) -> Tensor<'_> {
    s.number(f64::NEG_INFINITY)
}

fn boolean_least(s: &Sheet) {
    let o = heads(s, F32);
    let bound = s.choose(boolean_mask(s), s.number(f64::INFINITY), infinity(s));
    finish(s, s.call("Min", &[scaled_scores(s, &o), bound]), &o);
}

fn boolean_less(s: &Sheet) {
    let o = heads(s, F32);
    let shift = s.choose(boolean_mask(s), s.number(0.0), s.number(f64::INFINITY));
    finish(s, s.sub(scaled_scores(s, &o), shift), &o);
}

fn boolean_log_sum(s: &Sheet) {
    let o = heads(s, F32);
    less_log_sum(s, s.choose(boolean_mask(s), scaled_scores(s, &o), infinity(s)), &o);
}

fn boolean_twice(s: &Sheet) {
    let o = heads(s, F32);
    let mask = boolean_mask(s);
    let shown = s.choose(mask, scaled_scores(s, &o), s.number(0.0));
    finish(s, s.choose(mask, shown, infinity(s)), &o);
}

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

fn causal_least(s: &Sheet) {
    let o = self_heads(s);
    let [queries, keys] = places(s, &o);
    let seen = s.call("LessOrEqual", &[keys, queries]);
    let bound = s.choose(seen, s.number(f64::INFINITY), infinity(s));
    finish(s, s.call("Min", &[bound, scaled_scores(s, &o)]), &o);
}

fn causal_behind(s: &Sheet) {
    let o = self_heads(s);
    let [queries, keys] = places(s, &o);
    hide(s, s.call("Greater", &[s.add(queries, s.int(1)), keys]), &o);
}

fn causal_equal(s: &Sheet) {
    let o = self_heads(s);
    let square = s.vector(&[s.size(o.q, 2), s.size(o.k, 2)]);
    let below = s.op("Trilu").int("upper", 0).of(&[s.expand(s.number(1.0), square)]);
    let hidden = s.call("Equal", &[below, s.number(0.0)]);
    finish(s, s.choose(hidden, infinity(s), scaled_scores(s, &o)), &o);
}

/// Places as running counts in a square, along either axis.
fn causal_grid(s: &Sheet) {
    let o = self_heads(s);
    let square = s.vector(&[s.size(o.q, 2), s.size(o.k, 2)]);
    let ones = s.expand(s.int(1), square);
    let [rows, columns] = [0, 1].map(|axis| s.call("CumSum", &[ones, s.int(axis)]));
    hide(s, s.call("GreaterOrEqual", &[rows, columns]), &o);
}

fn hidden_scores<'s>(s: &'s Sheet, o: &Operands<'s>) -> Tensor<'s> {
    s.add(scaled_scores(s, o), s.floats("hiding", "n, 1, s, t"))
}

fn guard<'s>(s: &'s Sheet, none: Tensor<'s>, scores: Tensor<'s>, o: &Operands<'s>) {
    s.output("y", s.matmul(s.choose(none, s.number(0.0), s.softmax(scores, -1)), o.v));
}

fn guard_count(s: &Sheet) {
    let o = heads(s, F32);
    let scores = hidden_scores(s, &o);
    let seen = s.cast(s.call("Greater", &[scores, infinity(s)]), I64);
    guard(s, s.call("Equal", &[s.reduce("ReduceSum", seen, -1), s.int(0)]), scores, &o);
}

fn guard_count_hidden(s: &Sheet) {
    let o = heads(s, F32);
    let scores = hidden_scores(s, &o);
    let hidden = s.cast(s.call("Equal", &[scores, infinity(s)]), I64);
    guard(s, s.call("Equal", &[s.reduce("ReduceSum", hidden, -1), s.size(o.k, 2)]), scores, &o);
}

fn guard_count_float(s: &Sheet) {
    let o = heads(s, F32);
    let scores = hidden_scores(s, &o);
    let seen = s.cast(s.call("Not", &[s.call("Equal", &[scores, infinity(s)])]), F32);
    let none = s.call("Less", &[s.reduce("ReduceSum", seen, -1), s.number(0.5)]);
    guard(s, none, scores, &o);
}

/// Scores of which some are hidden by a mask that may hide all of a row.
fn masked<'s>(s: &'s Sheet, o: &Operands<'s>) -> (Tensor<'s>, Tensor<'s>) {
    let mask = s.input("some", Bool, "n, 1, s, t");
    (mask, s.choose(mask, scaled_scores(s, o), infinity(s)))
}

fn masked_guard(s: &Sheet) {
    let o = heads(s, F32);
    let (_, scores) = masked(s, &o);
    let p = s.softmax(scores, -1);
    s.output("y", s.matmul(s.choose(s.call("IsNaN", &[p]), s.number(0.0), p), o.v));
}

/// Since ONNX 1.23 a query that sees no key gives 0.
fn masked_guard_named(s: &Sheet) {
    let o = heads(s, F32);
    s.output("y", s.op("Attention").opset(23).of(&[o.q, o.k, o.v, s.input("some", Bool, "n, 1, s, t")]));
}

fn masked_guard_any(s: &Sheet) {
    let o = heads(s, F32);
    let (mask, scores) = masked(s, &o);
    let any = s.cast(s.reduce("ReduceMax", s.cast(mask, I32), -1), Bool);
    guard(s, s.call("Not", &[any]), scores, &o);
}

fn masked_guard_count(s: &Sheet) {
    let o = heads(s, F32);
    let (mask, scores) = masked(s, &o);
    guard(s, s.call("Equal", &[s.reduce("ReduceSum", s.cast(mask, I64), -1), s.int(0)]), scores, &o);
}

fn masked_guard_numbers(s: &Sheet) {
    let o = heads(s, F32);
    let (mask, scores) = masked(s, &o);
    let some = s.call("Greater", &[s.reduce("ReduceSum", s.cast(mask, F32), -1), s.number(0.0)]);
    s.output("y", s.matmul(s.choose(some, s.softmax(scores, -1), s.number(0.0)), o.v));
}

fn masked_guard_all(s: &Sheet) {
    let o = heads(s, F32);
    let (mask, scores) = masked(s, &o);
    let hidden = s.cast(s.call("Not", &[mask]), I32);
    guard(s, s.cast(s.reduce("ReduceMin", hidden, -1), Bool), scores, &o);
}

fn sinks<'s>(s: &'s Sheet) -> (Operands<'s>, Tensor<'s>, Tensor<'s>) {
    let (o, sinks) = (heads(s, F32), s.floats("sinks", "4"));
    let shape = s.vector(&[s.size(o.q, 0), s.int(4), s.size(o.q, 2), s.int(1)]);
    let column = s.expand(s.reshape(sinks, &[1, -1, 1, 1]), shape);
    (o, scaled_scores(s, &o), column)
}

fn logarithm<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.op("LogSoftmax").int("axis", -1).of(&[x])
}

fn sink_log(s: &Sheet) {
    let (o, scores, column) = sinks(s);
    let logarithms = logarithm(s, s.concat(&[scores, column], -1));
    s.output("y", s.matmul(s.exp(s.slice(logarithms, 3, 0, -1)), o.v));
}

fn sink_front(s: &Sheet) {
    let (o, scores, column) = sinks(s);
    let p = s.exp(logarithm(s, s.concat(&[column, scores], -1)));
    s.output("y", s.matmul(s.slice(p, 3, 1, i64::MAX), o.v));
}

fn sink_split(s: &Sheet) {
    let (o, scores, column) = sinks(s);
    let p = s.softmax(s.concat(&[scores, column], -1), -1);
    let sizes = s.vector(&[s.size(o.k, 2), s.int(1)]);
    let parts = s.op("Split").int("axis", 3).all(&[p, sizes], 2);
    s.output("y", s.matmul(parts[0], o.v));
}

fn sink_log_sum(s: &Sheet) {
    let (o, scores, column) = sinks(s);
    let sum = s.reduce("ReduceLogSumExp", s.concat(&[scores, column], -1), -1);
    s.output("y", s.matmul(s.exp(s.sub(scores, sum)), o.v));
}

fn grouped(s: &Sheet) -> Operands<'_> {
    Operands { q: s.floats("q", "n, 6, s, 64"), k: s.floats("k", "n, 2, t, 64"), v: s.floats("v", "n, 2, t, 64") }
}

fn attend<'s>(s: &'s Sheet, q: Tensor<'s>, k: Tensor<'s>, v: Tensor<'s>) {
    let o = Operands { q, k, v };
    finish(s, scaled_scores(s, &o), &o);
}

/// Each head behind itself, twice, then both groups.
fn grouped_halves(s: &Sheet) {
    let o = grouped(s);
    let repeat = |x| {
        let heads = s.split(x, 1, 2);
        let three = |k: usize| s.concat(&[heads[k], heads[k], heads[k]], 1);
        s.concat(&[three(0), three(1)], 1)
    };
    attend(s, o.q, repeat(o.k), repeat(o.v));
}

fn grouped_ones(s: &Sheet) {
    let o = grouped(s);
    let repeat = |x| {
        let wide = s.mul(s.unsqueeze(x, &[2]), s.table(F32, &[1, 1, 3, 1, 1], |_| 1.0));
        s.reshape(wide, &[0, 6, -1, 64])
    };
    attend(s, o.q, repeat(o.k), repeat(o.v));
}

fn grouped_dots(s: &Sheet) {
    let o = grouped(s);
    let q = s.unsqueeze(s.reshape(o.q, &[0, 2, 3, -1, 64]), &[4]);
    let product = product_sum(s, q, s.unsqueeze(o.k, &[2, 3]), -1);
    let p = s.softmax(s.mul(product, s.number(SCALE)), -1);
    let y = s.matmul(p, s.unsqueeze(o.v, &[2]));
    s.output("y", s.call("Reshape", &[y, s.call("Shape", &[o.q])]));
}

fn softcap_sigmoid(s: &Sheet) {
    let o = heads(s, F32);
    let bent = s.sigmoid(s.mul(scaled_scores(s, &o), s.number(0.04)));
    finish(s, s.mul(s.sub(s.mul(bent, s.number(2.0)), s.number(1.0)), s.number(50.0)), &o);
}
