//! Attention in which scores are hidden or shifted: masks of every kind, positions, caps, dropout, guards.
//!
//! A mask that is added and a mask that chooses are different classes. Where a finite number is added, the score is still in the
//! sum: a NaN under the mask makes its whole row NaN, an infinity too, and a row that is hidden throughout still tells its
//! scores apart. A choice replaces the score, whatever it was, and hides a NaN as well. Only of −∞ are both one class: what is
//! added to it does not show in a real number, and default numerics are about those; under strict numerics they are
//! different kernels, because a NaN shows.

use fuseline::graph::Tensor;
use fuseline::tensor::DType::{Bool, F32, I64, U8};

use super::attention::{Operands, SCALE, finish, heads, merge_heads, scaled_scores, scores, split_heads};
use super::softmax::written_out;
use super::{Sheet, spellings};

spellings! {
    "attention, additive mask" {
        "f32" {
            "scores over a root, plus mask": additive_quotient,
            "scores times scale, plus mask": additive_product,
            "scale on queries": additive_on_queries,
            "root of the scale on both": additive_on_both,
            "mask repeated": additive_expanded,
            "mask on the left, softmax written out": additive_left,
            "three axes": additive_three_axes,
        }
    }
    "attention, boolean mask" {
        "hidden by infinity" {
            "choice": boolean_choice,
            "choice by the inverse": boolean_inverse,
            "zeros and infinities added": boolean_added,
            "mask repeated": boolean_expanded,
        }
        "hidden by the least number" {
            "choice": least_choice,
            "choice by a comparison with zero": least_compared,
        }
    }
    "attention, padding mask" {
        "one less the mask, times a constant" {
            "two axes inserted one by one": padding_product,
            "two axes inserted at once": padding_product_at_once,
            "by a reshape": padding_product_reshaped,
        }
        "choice between a constant and zero" {
            "truth of the mask": padding_truth,
            "mask equals zero": padding_equal,
            "repeated before the choice": padding_expanded,
        }
        "choice by one less the mask" {
            "repeated, subtracted, converted": padding_filled,
            "subtracted, converted, repeated": padding_filled_late,
        }
    }
    "attention, product with a mask" {
        "hidden by a constant" {
            "less a constant, one less the mask": product_mask,
            "plus a constant, the mask less one": product_mask_plus,
            "sum on the left": product_mask_left,
        }
    }
    "attention, causal" {
        "hidden by infinity" {
            "lower triangle of ones": causal_triangle,
            "stored table, cut to size": causal_table,
            "comparison of ranges": causal_ranges,
            "comparison of running counts": causal_counts,
            "upper triangle of infinities added": causal_added,
            "difference of ranges": causal_difference,
            "not the upper triangle": causal_not_upper,
            "triangle of a table by bytes": causal_bytes,
            "stored table of infinities added": causal_stored_added,
            "one operator": causal_named,
            "one operator of ONNX Runtime": causal_contributed,
        }
        "hidden by the least number, keys and values returned" {
            "table cut twice, as GPT-2": gpt2_table,
            "comparison of ranges": gpt2_ranges,
            "stored table as bytes": gpt2_bytes,
        }
        "behind a past" {
            "table cut by lengths": past_table,
            "comparison of ranges": past_ranges,
            "one operator": past_named,
        }
    }
    "attention, softcap" {
        "f32" {
            "quotient, tangent, product": softcap,
            "product, tangent, product": softcap_product,
            "one operator": softcap_named,
        }
    }
    "attention, linear positions" {
        "f32" {
            "slopes times distance": alibi,
            "slopes in the graph": alibi_computed,
            "distance taken away": alibi_taken_away,
        }
    }
    "attention, dropout" {
        "f32" {
            "one operator": dropout,
            "written out": dropout_written_out,
            "three axes": dropout_three_axes,
        }
    }
    "attention, guarded" {
        "f32" {
            "choice by what is not a number": guarded,
            "rows of infinities, softmax written out": safe_softmax,
            "rows of infinities, three axes": safe_softmax_three_axes,
            "one operator": guarded_named,
        }
    }
}

fn additive_mask(s: &Sheet) -> Tensor<'_> {
    s.floats("mask", "n, 1, 1, t")
}

fn additive_quotient(s: &Sheet) {
    let o = heads(s, F32);
    finish(s, s.add(s.div(scores(s, o.q, o.k), s.number(8.0)), additive_mask(s)), &o);
}

fn additive_product(s: &Sheet) {
    let o = heads(s, F32);
    finish(s, s.add(scaled_scores(s, &o), additive_mask(s)), &o);
}

fn additive_on_queries(s: &Sheet) {
    let o = heads(s, F32);
    finish(s, s.add(scores(s, s.div(o.q, s.number(8.0)), o.k), additive_mask(s)), &o);
}

fn additive_on_both(s: &Sheet) {
    let o = heads(s, F32);
    let root = s.number(SCALE.sqrt());
    let product = s.matmul(s.mul(o.q, root), s.mul(s.transpose(o.k, &[0, 1, 3, 2]), root));
    finish(s, s.add(product, additive_mask(s)), &o);
}

fn additive_expanded(s: &Sheet) {
    let o = heads(s, F32);
    let shape = s.vector(&[s.size(o.q, 0), s.int(1), s.size(o.q, 2), s.size(o.k, 2)]);
    let mask = s.expand(additive_mask(s), shape);
    finish(s, s.add(scaled_scores(s, &o), mask), &o);
}

fn additive_left(s: &Sheet) {
    let o = heads(s, F32);
    let sum = s.add(additive_mask(s), scaled_scores(s, &o));
    s.output("y", s.matmul(written_out(s, sum, -1), o.v));
}

/// An operand with batch and heads as one axis.
fn joined<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    let sizes = s.op("Shape").int("start", 2).of(&[x]);
    s.call("Reshape", &[x, s.concat(&[s.ints(&[-1]), sizes], 0)])
}

/// The product of joined queries and keys, with four axes again.
fn joined_scores<'s>(s: &'s Sheet, o: &Operands<'s>) -> Tensor<'s> {
    let product = s.matmul(joined(s, o.q), s.transpose(joined(s, o.k), &[0, 2, 1]));
    let shape = s.vector(&[s.size(o.q, 0), s.int(4), s.size(o.q, 2), s.size(o.k, 2)]);
    s.mul(s.call("Reshape", &[product, shape]), s.number(SCALE))
}

/// The product of joined probabilities and values, with four axes again.
fn joined_values<'s>(s: &'s Sheet, probabilities: Tensor<'s>, o: &Operands<'s>) {
    let y = s.matmul(joined(s, probabilities), joined(s, o.v));
    let shape = s.vector(&[s.size(o.q, 0), s.int(4), s.size(o.q, 2), s.int(64)]);
    s.output("y", s.call("Reshape", &[y, shape]));
}

fn additive_three_axes(s: &Sheet) {
    let o = heads(s, F32);
    let probabilities = s.softmax(s.add(joined_scores(s, &o), additive_mask(s)), -1);
    joined_values(s, probabilities, &o);
}

fn boolean_mask(s: &Sheet) -> Tensor<'_> {
    s.input("mask", Bool, "n, 1, s, t")
}

fn infinity(s: &Sheet) -> Tensor<'_> {
    s.number(f64::NEG_INFINITY)
}

fn least(s: &Sheet) -> Tensor<'_> {
    s.number(f64::from(f32::MIN))
}

fn boolean_choice(s: &Sheet) {
    let o = heads(s, F32);
    finish(s, s.choose(boolean_mask(s), scaled_scores(s, &o), infinity(s)), &o);
}

fn boolean_inverse(s: &Sheet) {
    let o = heads(s, F32);
    let hidden = s.call("Not", &[boolean_mask(s)]);
    finish(s, s.choose(hidden, infinity(s), s.div(scores(s, o.q, o.k), s.number(8.0))), &o);
}

fn boolean_added(s: &Sheet) {
    let o = heads(s, F32);
    let shift = s.choose(boolean_mask(s), s.number(0.0), infinity(s));
    finish(s, s.add(scaled_scores(s, &o), shift), &o);
}

fn boolean_expanded(s: &Sheet) {
    let o = heads(s, F32);
    let product = scaled_scores(s, &o);
    let mask = s.expand(boolean_mask(s), s.call("Shape", &[product]));
    finish(s, s.choose(mask, product, infinity(s)), &o);
}

fn least_choice(s: &Sheet) {
    let o = heads(s, F32);
    finish(s, s.choose(boolean_mask(s), scaled_scores(s, &o), least(s)), &o);
}

/// As DistilBERT does: the mask as numbers, compared with zero, viewed and repeated to the shape of the scores.
fn least_compared(s: &Sheet) {
    let o = heads(s, F32);
    let product = scores(s, s.div(o.q, s.number(8.0)), o.k);
    let hidden = s.call("Equal", &[s.cast(boolean_mask(s), I64), s.int(0)]);
    let viewed = s.call("Reshape", &[hidden, s.vector(&[s.size(o.q, 0), s.int(1), s.size(o.q, 2), s.size(o.k, 2)])]);
    let everywhere = s.expand(viewed, s.call("Shape", &[product]));
    finish(s, s.choose(everywhere, least(s), product), &o);
}

fn padding(s: &Sheet) -> Tensor<'_> {
    s.input("padding", I64, "n, t")
}

/// BERT's mask of numbers: nothing where a key is, a large negative number elsewhere.
fn hidden_by_product<'s>(s: &'s Sheet, seen: Tensor<'s>) -> Tensor<'s> {
    s.mul(s.sub(s.number(1.0), s.cast(seen, F32)), s.number(-10000.0))
}

fn padding_product(s: &Sheet) {
    let o = heads(s, F32);
    let seen = s.unsqueeze(s.unsqueeze(padding(s), &[1]), &[2]);
    let product = s.div(scores(s, o.q, o.k), s.number(8.0));
    finish(s, s.add(product, hidden_by_product(s, seen)), &o);
}

fn padding_product_at_once(s: &Sheet) {
    let o = heads(s, F32);
    let seen = s.op("Unsqueeze").opset(11).ints("axes", &[1, 2]).of(&[padding(s)]);
    finish(s, s.add(scaled_scores(s, &o), hidden_by_product(s, seen)), &o);
}

fn padding_product_reshaped(s: &Sheet) {
    let o = heads(s, F32);
    let padding = padding(s);
    let seen = s.call("Reshape", &[padding, s.vector(&[s.size(padding, 0), s.int(1), s.int(1), s.size(padding, 1)])]);
    let product = scores(s, s.mul(o.q, s.number(SCALE)), o.k);
    finish(s, s.add(product, hidden_by_product(s, seen)), &o);
}

fn padding_truth(s: &Sheet) {
    let o = heads(s, F32);
    let seen = s.unsqueeze(s.cast(padding(s), Bool), &[1, 2]);
    finish(s, s.add(scaled_scores(s, &o), s.choose(seen, s.number(0.0), least(s))), &o);
}

fn padding_equal(s: &Sheet) {
    let o = heads(s, F32);
    let hidden = s.call("Equal", &[s.unsqueeze(s.unsqueeze(padding(s), &[1]), &[2]), s.int(0)]);
    finish(s, s.add(scaled_scores(s, &o), s.choose(hidden, least(s), s.number(0.0))), &o);
}

fn padding_expanded(s: &Sheet) {
    let o = heads(s, F32);
    let shape = s.vector(&[s.size(o.q, 0), s.int(1), s.size(o.q, 2), s.size(o.k, 2)]);
    let seen = s.cast(s.expand(s.unsqueeze(padding(s), &[1, 2]), shape), Bool);
    finish(s, s.add(scaled_scores(s, &o), s.choose(seen, s.number(0.0), least(s))), &o);
}

/// As the older exporter writes the masks of encoders: what is one less the mask is filled where it is true.
fn filled<'s>(s: &'s Sheet, seen: Tensor<'s>) -> Tensor<'s> {
    let inverse = s.sub(s.number(1.0), s.cast(seen, F32));
    s.choose(s.cast(inverse, Bool), least(s), inverse)
}

fn padding_filled(s: &Sheet) {
    let o = heads(s, F32);
    let shape = s.vector(&[s.size(o.q, 0), s.int(1), s.size(o.q, 2), s.size(o.k, 2)]);
    let seen = s.expand(s.unsqueeze(s.unsqueeze(padding(s), &[1]), &[2]), shape);
    finish(s, s.add(s.div(scores(s, o.q, o.k), s.number(8.0)), filled(s, seen)), &o);
}

fn padding_filled_late(s: &Sheet) {
    let o = heads(s, F32);
    let shape = s.vector(&[s.size(o.q, 0), s.int(1), s.size(o.q, 2), s.size(o.k, 2)]);
    let mask = s.expand(filled(s, s.unsqueeze(padding(s), &[1, 2])), shape);
    finish(s, s.add(scaled_scores(s, &o), mask), &o);
}

/// As many keys as queries.
pub(super) fn self_heads(s: &Sheet) -> Operands<'_> {
    Operands { q: s.floats("q", "n, 4, s, 64"), k: s.floats("k", "n, 4, s, 64"), v: s.floats("v", "n, 4, s, 64") }
}

fn square<'s>(s: &'s Sheet, o: &Operands<'s>) -> Tensor<'s> {
    s.vector(&[s.size(o.q, 2), s.size(o.k, 2)])
}

fn hide<'s>(s: &'s Sheet, seen: Tensor<'s>, o: &Operands<'s>) {
    finish(s, s.choose(seen, scaled_scores(s, o), infinity(s)), o);
}

fn causal_triangle(s: &Sheet) {
    let o = self_heads(s);
    let ones = s.expand(s.number(1.0), square(s, &o));
    hide(s, s.cast(s.op("Trilu").int("upper", 0).of(&[ones]), Bool), &o);
}

/// Whether a query sees a key, for more of both than there are.
fn stored_triangle(s: &Sheet, dtype: fuseline::tensor::DType) -> Tensor<'_> {
    s.table(dtype, &[1, 1, 32, 32], |i| f64::from(u8::from(i[3] <= i[2])))
}

fn causal_table(s: &Sheet) {
    let o = self_heads(s);
    let length = s.size(o.q, 2);
    let rows = s.slice_to(stored_triangle(s, Bool), 2, s.int(0), length);
    hide(s, s.slice_to(rows, 3, s.int(0), s.size(o.k, 2)), &o);
}

fn range<'s>(s: &'s Sheet, limit: Tensor<'s>) -> Tensor<'s> {
    s.call("Range", &[s.int(0), limit, s.int(1)])
}

fn causal_ranges(s: &Sheet) {
    let o = self_heads(s);
    let (queries, keys) = (range(s, s.size(o.q, 2)), range(s, s.size(o.k, 2)));
    hide(s, s.call("GreaterOrEqual", &[s.unsqueeze(queries, &[1]), s.unsqueeze(keys, &[0])]), &o);
}

fn causal_counts(s: &Sheet) {
    let o = self_heads(s);
    let ones = s.expand(s.int(1), s.unsqueeze(s.size(o.q, 2), &[0]));
    let count = s.call("CumSum", &[ones, s.int(0)]);
    hide(s, s.call("LessOrEqual", &[s.unsqueeze(count, &[0]), s.unsqueeze(count, &[1])]), &o);
}

fn causal_added(s: &Sheet) {
    let o = self_heads(s);
    let hidden = s.expand(infinity(s), square(s, &o));
    let mask = s.op("Trilu").int("upper", 1).of(&[hidden, s.int(1)]);
    finish(s, s.add(scaled_scores(s, &o), mask), &o);
}

fn causal_stored_added(s: &Sheet) {
    let o = self_heads(s);
    let table = s.table(F32, &[32, 32], |i| if i[1] <= i[0] { 0.0 } else { f64::NEG_INFINITY });
    let length = s.unsqueeze(s.size(o.q, 2), &[0]);
    let ends = s.concat(&[length, length], 0);
    let mask = s.call("Slice", &[table, s.ints(&[0, 0]), ends, s.ints(&[0, 1])]);
    finish(s, s.add(scaled_scores(s, &o), s.unsqueeze(mask, &[0, 1])), &o);
}

fn causal_named(s: &Sheet) {
    let o = self_heads(s);
    s.output("y", s.op("Attention").opset(23).int("is_causal", 1).of(&[o.q, o.k, o.v]));
}

/// The operator takes queries in rows; keys and values may have their heads apart.
fn causal_contributed(s: &Sheet) {
    let o = self_heads(s);
    let q = merge_heads(s, o.q, 256);
    let attention = s.contributed("MultiHeadAttention").int("num_heads", 4).int("unidirectional", 1);
    let y = attention.of(&[q, o.k, o.v]);
    s.output("y", split_heads(s, y, 4));
}

/// GPT-2's projection: queries, keys and values side by side, split, heads in front.
fn gpt2_operands(s: &Sheet) -> Operands<'_> {
    let parts = s.split(s.floats("qkv", "n, s, 768"), 2, 3);
    let [q, k, v] = [0, 1, 2].map(|k| split_heads(s, parts[k], 4));
    Operands { q, k, v }
}

/// Attention whose keys and values are results too.
fn present<'s>(s: &'s Sheet, seen: Tensor<'s>, o: &Operands<'s>) {
    let product = s.div(scores(s, o.q, o.k), s.sqrt(s.cast(s.size(o.v, -1), F32)));
    let probabilities = s.softmax(s.choose(seen, product, least(s)), -1);
    s.output("y", merge_heads(s, s.matmul(probabilities, o.v), 256));
    s.output("keys", o.k);
    s.output("values", o.v);
}

/// The rows from `keys − queries` on, then the columns up to `keys`.
fn cut<'s>(s: &'s Sheet, table: Tensor<'s>, o: &Operands<'s>) -> Tensor<'s> {
    let (queries, keys) = (s.size(o.q, -2), s.size(o.k, -2));
    let rows = s.slice_to(table, 2, s.sub(keys, queries), keys);
    s.slice_to(rows, 3, s.int(0), keys)
}

fn gpt2_table(s: &Sheet) {
    let o = gpt2_operands(s);
    present(s, cut(s, stored_triangle(s, Bool), &o), &o);
}

fn gpt2_ranges(s: &Sheet) {
    let o = gpt2_operands(s);
    let places = range(s, s.size(o.q, 2));
    let seen = s.call("LessOrEqual", &[s.unsqueeze(places, &[0]), s.unsqueeze(places, &[1])]);
    present(s, s.unsqueeze(seen, &[0, 1]), &o);
}

fn gpt2_bytes(s: &Sheet) {
    let o = gpt2_operands(s);
    let table = cut(s, stored_triangle(s, U8), &o);
    present(s, s.cast(table, Bool), &o);
}

/// Keys and values with those of earlier steps in front of them.
struct Cached<'s> {
    o: Operands<'s>,
    past: [Tensor<'s>; 2],
    new: Operands<'s>,
}

fn cached(s: &Sheet) -> Cached<'_> {
    let new = self_heads(s);
    let past = [s.floats("past_key", "n, 4, p, 64"), s.floats("past_value", "n, 4, p, 64")];
    let (k, v) = (s.concat(&[past[0], new.k], 2), s.concat(&[past[1], new.v], -2));
    Cached { o: Operands { q: new.q, k, v }, past, new }
}

fn hide_cached<'s>(s: &'s Sheet, seen: Tensor<'s>, o: &Operands<'s>) {
    hide(s, seen, o);
    s.output("keys", o.k);
    s.output("values", o.v);
}

fn past_table(s: &Sheet) {
    let Cached { o, .. } = cached(s);
    hide_cached(s, cut(s, stored_triangle(s, Bool), &o), &o);
}

fn past_ranges(s: &Sheet) {
    let Cached { o, past, .. } = cached(s);
    let queries = s.add(range(s, s.size(o.q, 2)), s.size(past[0], 2));
    let keys = range(s, s.size(o.k, 2));
    hide_cached(s, s.call("LessOrEqual", &[s.unsqueeze(keys, &[0]), s.unsqueeze(queries, &[1])]), &o);
}

fn past_named(s: &Sheet) {
    let Cached { past, new, .. } = cached(s);
    let attention = s.op("Attention").opset(23).int("is_causal", 1);
    let operands = [Some(new.q), Some(new.k), Some(new.v), None, Some(past[0]), Some(past[1])];
    for (name, result) in ["y", "keys", "values"].into_iter().zip(attention.some(&operands, 3)) {
        s.output(name, result);
    }
}

fn softcap(s: &Sheet) {
    let o = heads(s, F32);
    let bent = s.tanh(s.div(scaled_scores(s, &o), s.number(50.0)));
    finish(s, s.mul(bent, s.number(50.0)), &o);
}

fn softcap_product(s: &Sheet) {
    let o = heads(s, F32);
    let product = scores(s, s.div(o.q, s.number(8.0)), o.k);
    finish(s, s.mul(s.number(50.0), s.tanh(s.mul(product, s.number(0.02)))), &o);
}

fn softcap_named(s: &Sheet) {
    let o = heads(s, F32);
    s.output("y", s.op("Attention").opset(23).float("softcap", 50.0).of(&[o.q, o.k, o.v]));
}

/// How far a key lies behind its query, as f32 `[queries, keys]`.
fn distance<'s>(s: &'s Sheet, o: &Operands<'s>) -> Tensor<'s> {
    let (queries, keys) = (range(s, s.size(o.q, 2)), range(s, s.size(o.k, 2)));
    s.cast(s.sub(s.unsqueeze(keys, &[0]), s.unsqueeze(queries, &[1])), F32)
}

fn alibi(s: &Sheet) {
    let o = self_heads(s);
    let slopes = s.table(F32, &[4, 1, 1], |i| (-2.0 * (i[0] as f64 + 1.0)).exp2());
    finish(s, s.add(scaled_scores(s, &o), s.mul(slopes, distance(s, &o))), &o);
}

fn alibi_computed(s: &Sheet) {
    let o = self_heads(s);
    let heads = s.cast(s.call("Range", &[s.int(1), s.int(5), s.int(1)]), F32);
    let slopes = s.pow(s.number(0.25), heads);
    let bias = s.mul(distance(s, &o), s.unsqueeze(slopes, &[1, 2]));
    finish(s, s.add(s.unsqueeze(bias, &[0]), scaled_scores(s, &o)), &o);
}

/// How far back a key lies, taken away from the scores.
fn alibi_taken_away(s: &Sheet) {
    let o = self_heads(s);
    let slopes = s.table(F32, &[4, 1, 1], |i| (-2.0 * (i[0] as f64 + 1.0)).exp2());
    let (queries, keys) = (range(s, s.size(o.q, 2)), range(s, s.size(o.k, 2)));
    let back = s.cast(s.sub(s.unsqueeze(queries, &[1]), s.unsqueeze(keys, &[0])), F32);
    finish(s, s.sub(scaled_scores(s, &o), s.mul(slopes, back)), &o);
}

fn dropped<'s>(s: &'s Sheet, probabilities: Tensor<'s>) -> Tensor<'s> {
    s.call("Dropout", &[probabilities, s.number(0.1), s.builder().int(Bool, 1)])
}

fn dropout(s: &Sheet) {
    let o = heads(s, F32);
    s.output("y", s.matmul(dropped(s, s.softmax(scaled_scores(s, &o), -1)), o.v));
}

fn dropout_written_out(s: &Sheet) {
    let o = heads(s, F32);
    let probabilities = s.softmax(scaled_scores(s, &o), -1);
    let uniform = s.call("RandomUniformLike", &[probabilities]);
    let kept = s.call("GreaterOrEqual", &[uniform, s.number(0.1)]);
    let scaled = s.mul(probabilities, s.number(1.0 / f64::from(1.0 - 0.1f32)));
    s.output("y", s.matmul(s.choose(kept, scaled, s.number(0.0)), o.v));
}

fn dropout_three_axes(s: &Sheet) {
    let o = heads(s, F32);
    joined_values(s, dropped(s, s.softmax(joined_scores(s, &o), -1)), &o);
}

/// Scores of which some rows are −∞ throughout.
fn hidden_scores<'s>(s: &'s Sheet, product: Tensor<'s>) -> Tensor<'s> {
    s.add(product, s.floats("hiding", "n, 1, s, t"))
}

/// Since ONNX 1.23 a query that sees no key gives 0.
fn guarded_named(s: &Sheet) {
    let o = heads(s, F32);
    s.output("y", s.op("Attention").opset(23).of(&[o.q, o.k, o.v, s.floats("hiding", "n, 1, s, t")]));
}

fn guarded(s: &Sheet) {
    let o = heads(s, F32);
    let probabilities = s.softmax(hidden_scores(s, scaled_scores(s, &o)), -1);
    let seen = s.choose(s.call("IsNaN", &[probabilities]), s.number(0.0), probabilities);
    s.output("y", s.matmul(seen, o.v));
}

/// ATen's `_safe_softmax`: zero where a whole row is −∞.
fn safe<'s>(s: &'s Sheet, product: Tensor<'s>) -> Tensor<'s> {
    let some = s.call("Not", &[s.call("Equal", &[product, infinity(s)])]);
    let any = s.cast(s.reduce("ReduceMax", s.cast(some, I64), -1), Bool);
    s.choose(any, written_out(s, product, -1), s.number(0.0))
}

fn safe_softmax(s: &Sheet) {
    let o = heads(s, F32);
    s.output("y", s.matmul(safe(s, hidden_scores(s, scaled_scores(s, &o))), o.v));
}

fn safe_softmax_three_axes(s: &Sheet) {
    let o = heads(s, F32);
    let product = hidden_scores(s, joined_scores(s, &o));
    let hidden = s.call("Equal", &[product, infinity(s)]);
    let all = s.call("Not", &[s.cast(s.reduce("ReduceMax", s.cast(s.call("Not", &[hidden]), I64), -1), Bool)]);
    joined_values(s, s.choose(all, s.number(0.0), written_out(s, product, -1)), &o);
}

/// Whether a query sees a key, as zeros and ones that are multiplied.
fn product_operands(s: &Sheet) -> (Operands<'_>, Tensor<'_>) {
    (heads(s, F32), s.floats("padding", "n, 1, s, t"))
}

fn product_mask(s: &Sheet) {
    let (o, mask) = product_operands(s);
    let hidden = s.mul(s.number(1e4), s.sub(s.number(1.0), mask));
    finish(s, s.sub(s.mul(scaled_scores(s, &o), mask), hidden), &o);
}

fn product_mask_plus(s: &Sheet) {
    let (o, mask) = product_operands(s);
    let hidden = s.mul(s.sub(mask, s.number(1.0)), s.number(1e4));
    finish(s, s.add(s.mul(mask, s.div(scores(s, o.q, o.k), s.number(8.0))), hidden), &o);
}

fn product_mask_left(s: &Sheet) {
    let (o, mask) = product_operands(s);
    let hidden = s.mul(s.sub(s.number(1.0), mask), s.number(-1e4));
    finish(s, s.add(hidden, s.mul(scores(s, s.mul(o.q, s.number(SCALE)), o.k), mask)), &o);
}

fn causal_difference(s: &Sheet) {
    let o = self_heads(s);
    let (queries, keys) = (range(s, s.size(o.q, 2)), range(s, s.size(o.k, 2)));
    let ahead = s.sub(s.unsqueeze(keys, &[0]), s.unsqueeze(queries, &[1]));
    let hidden = s.call("Greater", &[ahead, s.int(0)]);
    finish(s, s.choose(hidden, infinity(s), scaled_scores(s, &o)), &o);
}

fn causal_not_upper(s: &Sheet) {
    let o = self_heads(s);
    let ones = s.expand(s.int(1), square(s, &o));
    let above = s.cast(s.op("Trilu").int("upper", 1).of(&[ones, s.int(1)]), Bool);
    hide(s, s.call("Not", &[above]), &o);
}

fn causal_bytes(s: &Sheet) {
    let o = self_heads(s);
    let length = s.unsqueeze(s.size(o.q, 2), &[0]);
    let ends = s.concat(&[length, length], 0);
    let table = s.call("Slice", &[stored_triangle(s, U8), s.ints(&[0, 0]), ends, s.ints(&[2, 3])]);
    let seen = s.call("Equal", &[table, s.builder().int(U8, 1)]);
    hide(s, seen, &o);
}
