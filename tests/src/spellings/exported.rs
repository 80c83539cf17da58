//! Ways of exporters that are seldom seen: norms of TensorFlow, rotations of diffusion models, masks before scales, scores in parts.

use fuseline::graph::Tensor;
use fuseline::tensor::DType::{Bool, F32, I64};

use super::attention::{Operands, SCALE, finish, heads, scaled_scores, scores};
use super::row::{affine, mean, x};
use super::{Sheet, spellings};

spellings! {
    "layer_norm" {
        "f32" {
            "scale on the reciprocal, shift less the mean": norm_folded,
            "product less the product of the mean": norm_two_products,
        }
    }
    "rms_norm" {
        "f32" {
            "product of rows with columns": rms_rows,
        }
        "f32, one plus the scale" {
            "sum with the product": rms_sum,
            "one operator": rms_sum_named,
        }
    }
    "group_norm" {
        "f32" {
            "scale on the reciprocal, shift less the mean": group_folded,
        }
    }
    "softmax" {
        "inner axis" {
            "shifted twice": softmax_twice,
        }
    }
    "rope" {
        "halves, tables of half the size" {
            "less the halves turned the other way": rope_less,
            "one table of both": rope_one_table,
            "matrices of two rows, sums with labels": rope_matrices,
            "turned along another axis": rope_transposed,
        }
        "pairs" {
            "matrices of two rows, products": rope_pairs_matrices,
            "matrices of two rows, product of matrices": rope_pairs_product,
            "neighbours backwards": rope_pairs_backwards,
        }
        "first half only" {
            "three parts": rope_three_parts,
        }
    }
    "attention, boolean mask" {
        "hidden by infinity" {
            "choice before the scale": hidden_before_scale,
            "choice before the quotient": hidden_before_quotient,
        }
    }
    "attention, causal and padded" {
        "hidden by infinity" {
            "product of integers": both_as_integers,
        }
    }
    "attention, linear positions" {
        "f32" {
            "difference of numbers": positions_as_numbers,
        }
    }
    "attention, sinks" {
        "f32" {
            "shifted by the largest before": sink_shifted,
        }
    }
    "grouped attention" {
        "heads in rows" {
            "repeated, merged": rows_repeated,
            "gathered, merged": rows_gathered,
            "queries by group, merged": rows_by_group,
            "sums with labels by group": rows_labels,
            "one operator": rows_named,
        }
    }
    "attention, keys in parts" {
        "f32" {
            "keys joined": parts_of_keys,
            "turned keys joined": parts_of_turned_keys,
            "scores joined": parts_of_scores,
            "scaled scores joined": parts_of_scaled_scores,
            "scores joined, two products": parts_of_products,
        }
    }
    "attention, queries in parts" {
        "f32" {
            "queries and keys joined": parts_of_queries,
            "sum of two products": sum_of_products,
            "sum of two scaled products": sum_of_scaled_products,
            "sums with labels": sum_of_labels,
        }
    }
}

const EPSILON: f64 = 1e-5;
const RMS_EPSILON: f64 = 1e-6;

/// The mean, and the reciprocal of the deviation.
fn moments<'s>(s: &'s Sheet, x: Tensor<'s>) -> [Tensor<'s>; 2] {
    let m = mean(s, x);
    let centred = s.sub(x, m);
    let variance = mean(s, s.mul(centred, centred));
    [m, s.reciprocal(s.sqrt(s.add(variance, s.number(EPSILON))))]
}

/// As TensorFlow normalises a batch.
fn norm_folded(s: &Sheet) {
    let (x, [scale, shift]) = (x(s), affine(s));
    let [m, inverse] = moments(s, x);
    let factor = s.mul(inverse, scale);
    s.output("y", s.add(s.mul(x, factor), s.sub(shift, s.mul(m, factor))));
}

fn norm_two_products(s: &Sheet) {
    let (x, [scale, shift]) = (x(s), affine(s));
    let [m, inverse] = moments(s, x);
    let normalized = s.add(s.mul(x, inverse), s.mul(s.neg(m), inverse));
    s.output("y", s.add(s.mul(normalized, scale), shift));
}

fn rms_operands(s: &Sheet) -> (Tensor<'_>, Tensor<'_>) {
    (x(s), s.floats("scale", "96"))
}

/// Every row times itself as a column.
fn rms_rows(s: &Sheet) {
    let (x, scale) = rms_operands(s);
    let square = s.call("Squeeze", &[s.matmul(s.unsqueeze(x, &[2]), s.unsqueeze(x, &[3])), s.ints(&[3])]);
    let root = s.sqrt(s.add(s.div(square, s.number(96.0)), s.number(RMS_EPSILON)));
    s.output("y", s.mul(s.div(x, root), scale));
}

fn rms_sum(s: &Sheet) {
    let (x, scale) = rms_operands(s);
    let normalized = s.div(x, s.sqrt(s.add(mean(s, s.mul(x, x)), s.number(RMS_EPSILON))));
    s.output("y", s.add(normalized, s.mul(normalized, scale)));
}

fn rms_sum_named(s: &Sheet) {
    let (x, scale) = rms_operands(s);
    let norm = s.op("RMSNormalization").opset(23).float("epsilon", RMS_EPSILON);
    s.output("y", norm.of(&[x, s.add(scale, s.number(1.0))]));
}

/// As TensorFlow normalises groups.
fn group_folded(s: &Sheet) {
    let x = s.floats("x", "n, 32, s");
    let [scale, shift] = ["scale", "shift"].map(|name| s.reshape(s.floats(name, "32"), &[1, 4, 8, 1]));
    let groups = s.reshape(x, &[0, 4, 8, -1]);
    let mean = |x| s.call("ReduceMean", &[x, s.ints(&[2, 3])]);
    let m = mean(groups);
    let centred = s.sub(groups, m);
    let variance = mean(s.mul(centred, centred));
    let factor = s.mul(s.reciprocal(s.sqrt(s.add(variance, s.number(EPSILON)))), scale);
    let y = s.add(s.mul(groups, factor), s.sub(shift, s.mul(m, factor)));
    s.output("y", s.call("Reshape", &[y, s.call("Shape", &[x])]));
}

fn softmax_twice(s: &Sheet) {
    let x = s.floats("x", "n, s, 768");
    s.output("y", s.softmax(s.sub(x, s.reduce("ReduceMax", x, -1)), -1));
}

fn turning(s: &Sheet) -> Tensor<'_> {
    s.floats("x", "n, 4, s, 64")
}

fn tables(s: &Sheet) -> [Tensor<'_>; 2] {
    ["cos", "sin"].map(|name| s.floats(name, "1, s, 32"))
}

/// For both halves, with an axis for the heads.
fn doubled<'s>(s: &'s Sheet, table: Tensor<'s>) -> Tensor<'s> {
    s.unsqueeze(s.concat(&[table, table], -1), &[1])
}

fn rope_less(s: &Sheet) {
    let x = turning(s);
    let [cos, sin] = tables(s).map(|t| doubled(s, t));
    let halves = s.split(x, -1, 2);
    let turned = s.concat(&[halves[1], s.neg(halves[0])], -1);
    s.output("y", s.sub(s.mul(x, cos), s.mul(turned, sin)));
}

fn rope_one_table(s: &Sheet) {
    let x = turning(s);
    let [cos, sin] = tables(s).map(|t| s.unsqueeze(t, &[3]));
    let both = s.concat(&[cos, sin], 3);
    let [cos, sin] = [0, 1].map(|k| doubled(s, s.op("Gather").int("axis", 3).of(&[both, s.int(k)])));
    let halves = s.split(x, -1, 2);
    let turned = s.concat(&[s.neg(halves[1]), halves[0]], -1);
    s.output("y", s.add(s.mul(x, cos), s.mul(turned, sin)));
}

/// `[[cos, −sin], [sin, cos]]` for every position and frequency, with two axes more.
fn matrices(s: &Sheet) -> Tensor<'_> {
    let [cos, sin] = tables(s).map(|t| s.unsqueeze(t, &[3]));
    s.reshape(s.concat(&[cos, s.neg(sin), sin, cos], 3), &[1, -1, 32, 2, 2])
}

fn rope_matrices(s: &Sheet) {
    let x = turning(s);
    let [cos, sin] = tables(s).map(|t| s.unsqueeze(t, &[3, 4]));
    let row = |a, b| s.concat(&[a, b], 4);
    let matrices = s.concat(&[row(cos, s.neg(sin)), row(sin, cos)], 3);
    let matrices = s.call("Squeeze", &[matrices, s.ints(&[0])]);
    let halves = s.reshape(x, &[0, 0, 0, 2, 32]);
    let y = s.op("Einsum").str("equation", "nhsjd,sdij->nhsid").of(&[halves, matrices]);
    s.output("y", s.reshape(y, &[0, 0, 0, 64]));
}

fn rope_transposed(s: &Sheet) {
    let x = turning(s);
    let [cos, sin] = tables(s).map(|t| doubled(s, t));
    let halves = s.split(s.transpose(x, &[0, 1, 3, 2]), 2, 2);
    let turned = s.transpose(s.concat(&[s.neg(halves[1]), halves[0]], 2), &[0, 1, 3, 2]);
    s.output("y", s.add(s.mul(turned, sin), s.mul(x, cos)));
}

/// As Flux does.
fn rope_pairs_matrices(s: &Sheet) {
    let x = turning(s);
    let (matrices, pairs) = (s.unsqueeze(matrices(s), &[1]), s.reshape(x, &[0, 0, 0, 32, 1, 2]));
    let column = |x, k: i64| s.op("Gather").int("axis", -1).of(&[x, s.int(k)]);
    let product = |k| s.mul(column(matrices, k), column(pairs, k));
    s.output("y", s.call("Reshape", &[s.add(product(0), product(1)), s.call("Shape", &[x])]));
}

fn rope_pairs_product(s: &Sheet) {
    let x = turning(s);
    let columns = s.reshape(x, &[0, 0, 0, 32, 2, 1]);
    let y = s.matmul(s.unsqueeze(matrices(s), &[1]), columns);
    s.output("y", s.call("Reshape", &[y, s.call("Shape", &[x])]));
}

fn rope_pairs_backwards(s: &Sheet) {
    let x = turning(s);
    let [cos, sin] = tables(s).map(|t| s.unsqueeze(t, &[1, 4]));
    let pairs = s.reshape(x, &[0, 0, 0, 32, 2]);
    let backwards = s.call("Slice", &[pairs, s.ints(&[-1]), s.ints(&[i64::MIN]), s.ints(&[4]), s.ints(&[-1])]);
    let signs = s.table(F32, &[2], |i| if i[0] == 0 { -1.0 } else { 1.0 });
    let y = s.add(s.mul(pairs, cos), s.mul(s.mul(backwards, signs), sin));
    s.output("y", s.reshape(y, &[0, 0, 0, 64]));
}

fn rope_three_parts(s: &Sheet) {
    let x = turning(s);
    let [cos, sin] = ["cos", "sin"].map(|name| s.unsqueeze(s.floats(name, "1, s, 16"), &[1]));
    let parts = s.op("Split").int("axis", 3).all(&[x, s.ints(&[16, 16, 32])], 3);
    let low = s.sub(s.mul(parts[0], cos), s.mul(parts[1], sin));
    let high = s.add(s.mul(parts[1], cos), s.mul(parts[0], sin));
    s.output("y", s.concat(&[low, high, parts[2]], -1));
}

fn infinity(s: &Sheet) -> Tensor<'_> {
    s.number(f64::NEG_INFINITY)
}

fn hidden<'s>(s: &'s Sheet, o: &Operands<'s>) -> Tensor<'s> {
    s.choose(s.input("mask", Bool, "n, 1, s, t"), scores(s, o.q, o.k), infinity(s))
}

fn hidden_before_scale(s: &Sheet) {
    let o = heads(s, F32);
    finish(s, s.mul(hidden(s, &o), s.number(SCALE)), &o);
}

fn hidden_before_quotient(s: &Sheet) {
    let o = heads(s, F32);
    finish(s, s.div(hidden(s, &o), s.number(8.0)), &o);
}

fn self_heads(s: &Sheet) -> Operands<'_> {
    Operands { q: s.floats("q", "n, 4, s, 64"), k: s.floats("k", "n, 4, s, 64"), v: s.floats("v", "n, 4, s, 64") }
}

fn places<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.call("Range", &[s.int(0), s.size(x, 2), s.int(1)])
}

fn both_as_integers(s: &Sheet) {
    let o = self_heads(s);
    let (queries, keys) = (s.unsqueeze(places(s, o.q), &[1]), s.unsqueeze(places(s, o.k), &[0]));
    let causal = s.cast(s.call("LessOrEqual", &[keys, queries]), I64);
    let padding = s.cast(s.unsqueeze(s.input("mask", Bool, "n, s"), &[1, 2]), I64);
    let seen = s.cast(s.mul(causal, padding), Bool);
    finish(s, s.choose(seen, scaled_scores(s, &o), infinity(s)), &o);
}

fn positions_as_numbers(s: &Sheet) {
    let o = self_heads(s);
    let slopes = s.table(F32, &[4, 1, 1], |i| (-2.0 * (i[0] as f64 + 1.0)).exp2());
    let places = s.cast(places(s, o.q), F32);
    let distance = s.sub(s.unsqueeze(places, &[0]), s.unsqueeze(places, &[1]));
    finish(s, s.add(scaled_scores(s, &o), s.mul(slopes, distance)), &o);
}

/// As GPT-OSS does.
fn sink_shifted(s: &Sheet) {
    let (o, sinks) = (heads(s, F32), s.floats("sinks", "4"));
    let shape = s.vector(&[s.size(o.q, 0), s.int(4), s.size(o.q, 2), s.int(1)]);
    let column = s.expand(s.reshape(sinks, &[1, -1, 1, 1]), shape);
    let all = s.concat(&[scaled_scores(s, &o), column], -1);
    let p = s.softmax(s.sub(all, s.reduce("ReduceMax", all, -1)), -1);
    s.output("y", s.matmul(s.slice(p, 3, 0, -1), o.v));
}

/// Queries, and keys and values in two parts.
fn in_parts(s: &Sheet) -> (Tensor<'_>, [Tensor<'_>; 2], [Tensor<'_>; 2]) {
    let parts = |first: &str, second: &str| [s.floats(first, "n, 4, p, 64"), s.floats(second, "n, 4, t, 64")];
    (s.floats("q", "n, 4, s, 64"), parts("past_keys", "k"), parts("past_values", "v"))
}

fn parts_of_keys(s: &Sheet) {
    let (q, keys, values) = in_parts(s);
    let o = Operands { q, k: s.concat(&keys, 2), v: s.concat(&values, 2) };
    finish(s, scaled_scores(s, &o), &o);
}

fn parts_of_turned_keys(s: &Sheet) {
    let (q, keys, values) = in_parts(s);
    let turned = s.concat(&keys.map(|k| s.transpose(k, &[0, 1, 3, 2])), 3);
    let p = s.softmax(s.mul(s.matmul(q, turned), s.number(SCALE)), -1);
    s.output("y", s.matmul(p, s.concat(&values, 2)));
}

fn parts_of_scores(s: &Sheet) {
    let (q, keys, values) = in_parts(s);
    let all = s.concat(&keys.map(|k| scores(s, q, k)), 3);
    s.output("y", s.matmul(s.softmax(s.mul(all, s.number(SCALE)), -1), s.concat(&values, 2)));
}

fn parts_of_scaled_scores(s: &Sheet) {
    let (q, keys, values) = in_parts(s);
    let all = s.concat(&keys.map(|k| s.mul(scores(s, q, k), s.number(SCALE))), 3);
    s.output("y", s.matmul(s.softmax(all, -1), s.concat(&values, 2)));
}

fn parts_of_products(s: &Sheet) {
    let (q, keys, values) = in_parts(s);
    let all = s.concat(&keys.map(|k| scores(s, q, k)), 3);
    let p = s.softmax(s.mul(all, s.number(SCALE)), -1);
    let (none, past, end) = (s.int(0), s.size(keys[0], 2), s.int(i64::MAX));
    let parts = [s.slice_to(p, 3, none, past), s.slice_to(p, 3, past, end)];
    s.output("y", s.add(s.matmul(parts[0], values[0]), s.matmul(parts[1], values[1])));
}

/// Queries and keys in two parts, of which the second part of the keys is one for all heads; and values.
fn with_shared_part(s: &Sheet) -> ([Tensor<'_>; 2], [Tensor<'_>; 2], Tensor<'_>) {
    let queries = [s.floats("q", "n, 4, s, 64"), s.floats("turned_q", "n, 4, s, 32")];
    let keys = [s.floats("k", "n, 4, t, 64"), s.floats("turned_k", "n, 1, t, 32")];
    (queries, keys, s.floats("v", "n, 4, t, 64"))
}

fn parts_of_queries(s: &Sheet) {
    let (queries, keys, v) = with_shared_part(s);
    let shared = s.expand(keys[1], s.vector(&[s.size(v, 0), s.int(4), s.size(v, 2), s.int(32)]));
    let o = Operands { q: s.concat(&queries, -1), k: s.concat(&[keys[0], shared], -1), v };
    finish(s, s.mul(scores(s, o.q, o.k), s.number(SCALE)), &o);
}

fn sum_of_products(s: &Sheet) {
    let (queries, keys, v) = with_shared_part(s);
    let sum = s.add(scores(s, queries[0], keys[0]), scores(s, queries[1], keys[1]));
    s.output("y", s.matmul(s.softmax(s.mul(sum, s.number(SCALE)), -1), v));
}

fn sum_of_scaled_products(s: &Sheet) {
    let (queries, keys, v) = with_shared_part(s);
    let product = |k: usize| s.mul(scores(s, queries[k], keys[k]), s.number(SCALE));
    s.output("y", s.matmul(s.softmax(s.add(product(0), product(1)), -1), v));
}

/// As DeepSeek does.
fn sum_of_labels(s: &Sheet) {
    let (queries, keys, v) = with_shared_part(s);
    let product = |equation: &str, q, k| s.op("Einsum").str("equation", equation).of(&[q, k]);
    let shared = s.call("Squeeze", &[keys[1], s.ints(&[1])]);
    let sum = s.add(product("bhsd,bhtd->bhst", queries[0], keys[0]), product("bhsr,btr->bhst", queries[1], shared));
    s.output("y", s.matmul(s.softmax(s.mul(sum, s.number(SCALE)), -1), v));
}

/// Six heads of queries and two of keys and values, each in a row.
fn rows(s: &Sheet) -> Operands<'_> {
    Operands { q: s.floats("q", "n, s, 192"), k: s.floats("k", "n, t, 64"), v: s.floats("v", "n, t, 64") }
}

fn split<'s>(s: &'s Sheet, x: Tensor<'s>, heads: i64) -> Tensor<'s> {
    s.transpose(s.reshape(x, &[0, -1, heads, 32]), &[0, 2, 1, 3])
}

fn root(s: &Sheet) -> Tensor<'_> {
    s.number(1.0 / 32f64.sqrt())
}

fn attended<'s>(s: &'s Sheet, repeat: impl Fn(Tensor<'s>) -> Tensor<'s>) {
    let o = rows(s);
    let (q, k, v) = (split(s, o.q, 6), repeat(split(s, o.k, 2)), repeat(split(s, o.v, 2)));
    let y = s.matmul(s.softmax(s.mul(scores(s, q, k), root(s)), -1), v);
    s.output("y", s.reshape(s.transpose(y, &[0, 2, 1, 3]), &[0, -1, 192]));
}

fn rows_repeated(s: &Sheet) {
    attended(s, |x| {
        let wide = s.expand(s.unsqueeze(x, &[2]), s.ints(&[1, 1, 3, 1, 1]));
        s.reshape(wide, &[0, 6, -1, 32])
    });
}

fn rows_gathered(s: &Sheet) {
    attended(s, |x| s.op("Gather").int("axis", 1).of(&[x, s.ints(&[0, 0, 0, 1, 1, 1])]));
}

fn rows_by_group(s: &Sheet) {
    let o = rows(s);
    let q = s.transpose(s.reshape(o.q, &[0, -1, 2, 3, 32]), &[0, 2, 3, 1, 4]);
    let [k, v] = [o.k, o.v].map(|x| s.unsqueeze(split(s, x, 2), &[2]));
    let product = s.matmul(q, s.transpose(k, &[0, 1, 2, 4, 3]));
    let y = s.matmul(s.softmax(s.mul(product, root(s)), -1), v);
    s.output("y", s.reshape(s.transpose(y, &[0, 3, 1, 2, 4]), &[0, -1, 192]));
}

fn rows_labels(s: &Sheet) {
    let o = rows(s);
    let q = s.reshape(o.q, &[0, -1, 2, 3, 32]);
    let [k, v] = [o.k, o.v].map(|x| s.reshape(x, &[0, -1, 2, 32]));
    let product = s.op("Einsum").str("equation", "bsgrd,btgd->bgrst").of(&[q, k]);
    let p = s.softmax(s.mul(product, root(s)), -1);
    let y = s.op("Einsum").str("equation", "bgrst,btgd->bsgrd").of(&[p, v]);
    s.output("y", s.reshape(y, &[0, -1, 192]));
}

fn rows_named(s: &Sheet) {
    let o = rows(s);
    let attention = s.op("Attention").opset(23).int("q_num_heads", 6).int("kv_num_heads", 2);
    s.output("y", attention.of(&[o.q, o.k, o.v]));
}
