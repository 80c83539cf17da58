//! More ways to write norms, activations, softmax and rotations.

use std::f64::consts::{FRAC_1_SQRT_2, PI};

use fuseline::graph::Tensor;
use fuseline::tensor::DType::{F32, I64};

use super::row::{affine, mean, x};
use super::{Sheet, spellings};

spellings! {
    "layer_norm" {
        "f32" {
            "norm of one group": norm_of_group,
            "norm of instances": norm_of_instances,
            "means by a pool": norm_by_pool,
            "statistics repeated": norm_repeated,
            "scale and shift with three axes": norm_wide_scale,
            "sum of the negated mean": norm_negated,
            "sums with labels": norm_by_labels,
        }
    }
    "rms_norm" {
        "f32" {
            "mean by a product with a constant": rms_by_product,
            "statistics repeated": rms_repeated,
            "mean by a pool": rms_by_pool,
            "scale with three axes, root of the sum": rms_wide_scale,
        }
    }
    "gelu_erf" {
        "f32" {
            "sum of two halves": gelu_two_halves,
            "root of two by a power": gelu_power,
            "distribution first": gelu_distribution,
        }
    }
    "gelu_tanh" {
        "f32" {
            "quotient by the exponential": gelu_quotient,
            "slope doubled": gelu_doubled,
            "sum of two halves": gelu_tanh_halves,
        }
    }
    "silu" {
        "f32" {
            "sigmoid of the negated, from one": silu_other_tail,
            "quotient of one": silu_one_over,
        }
    }
    "swiglu" {
        "f32, two weights" {
            "weights joined in the graph": swiglu_joined,
            "convolutions of one point": swiglu_convolved,
        }
        "f32, packed weights" {
            "weights sliced": swiglu_sliced,
            "reshaped, split, squeezed": swiglu_squeezed,
        }
    }
    "softmax" {
        "inner axis" {
            "less what one operator gives": softmax_log_sum,
            "transposed and back": softmax_turned,
            "statistics repeated": softmax_repeated,
            "statistics not kept": softmax_not_kept,
            "scaled and back": softmax_scaled_back,
        }
        "outer axis" {
            "less what one operator gives": softmax_outer_log_sum,
            "an axis inserted": softmax_outer_inserted,
        }
    }
    "log_softmax" {
        "inner axis" {
            "less what one operator gives": log_softmax_less,
            "rows flattened": log_softmax_flattened,
        }
    }
    "rope" {
        "halves, tables of half the size" {
            "gathered by constants": rope_gathered,
            "rows of a matrix, split": rope_rows,
            "times minus one": rope_minus_one,
            "tables repeated": rope_tables_repeated,
            "difference and sum, stacked": rope_stacked,
        }
        "halves, angles computed" {
            "sums with labels": rope_labels,
            "functions of half the angles": rope_half_angles,
        }
        "pairs" {
            "turned, tables of the full size": rope_pairs_turned,
            "gathered by constants": rope_pairs_gathered,
        }
        "halves, tables gathered by position" {
            "gathered, then doubled": rope_gathered_late,
            "positions flattened": rope_gathered_flat,
        }
    }
}

const EPSILON: f64 = 1e-5;

fn like<'s>(s: &'s Sheet, y: Tensor<'s>, x: Tensor<'s>) -> Tensor<'s> {
    s.call("Reshape", &[y, s.call("Shape", &[x])])
}

fn norm_of_group(s: &Sheet) {
    let (x, [scale, shift]) = (x(s), affine(s));
    let columns = s.reshape(x, &[-1, 96, 1]);
    let norm = s.op("GroupNormalization").opset(21).int("num_groups", 1).float("epsilon", EPSILON);
    s.output("y", like(s, norm.of(&[columns, scale, shift]), x));
}

fn norm_of_instances(s: &Sheet) {
    let (x, [scale, shift]) = (x(s), affine(s));
    let rows = s.mul(s.size(x, 0), s.size(x, 1));
    let channels = s.call("Reshape", &[x, s.vector(&[s.int(1), rows, s.int(96)])]);
    let everywhere = |number: f64| s.expand(s.number(number), s.vector(&[rows]));
    let norm = s.op("InstanceNormalization").float("epsilon", EPSILON);
    let normalized = like(s, norm.of(&[channels, everywhere(1.0), everywhere(0.0)]), x);
    s.output("y", s.add(s.mul(normalized, scale), shift));
}

fn pooled<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    let mean = s.call("GlobalAveragePool", &[s.reshape(x, &[-1, 1, 96])]);
    s.call("Reshape", &[mean, s.vector(&[s.size(x, 0), s.size(x, 1), s.int(1)])])
}

fn norm_by_pool(s: &Sheet) {
    let (x, [scale, shift]) = (x(s), affine(s));
    let centred = s.sub(x, pooled(s, x));
    let variance = pooled(s, s.mul(centred, centred));
    let normalized = s.div(centred, s.sqrt(s.add(variance, s.number(EPSILON))));
    s.output("y", s.add(s.mul(normalized, scale), shift));
}

fn norm_repeated(s: &Sheet) {
    let (x, [scale, shift]) = (x(s), affine(s));
    let everywhere = |y| s.expand(y, s.call("Shape", &[x]));
    let centred = s.sub(x, everywhere(mean(s, x)));
    let root = s.sqrt(s.add(mean(s, s.mul(centred, centred)), s.number(EPSILON)));
    let normalized = s.div(centred, everywhere(root));
    s.output("y", s.add(s.mul(normalized, everywhere(scale)), everywhere(shift)));
}

fn norm_wide_scale(s: &Sheet) {
    let (x, [scale, shift]) = (x(s), affine(s).map(|p| s.reshape(p, &[1, 1, 96])));
    let centred = s.sub(x, mean(s, x));
    let variance = mean(s, s.pow(s.call("Abs", &[centred]), s.number(2.0)));
    let normalized = s.div(centred, s.sqrt(s.add(variance, s.number(EPSILON))));
    s.output("y", s.call("Sum", &[s.mul(scale, normalized), shift]));
}

fn norm_negated(s: &Sheet) {
    let (x, [scale, shift]) = (x(s), affine(s));
    let centred = s.add(x, s.neg(mean(s, x)));
    let inverse = s.div(s.number(1.0), s.sqrt(s.add(mean(s, s.mul(centred, centred)), s.number(EPSILON))));
    s.output("y", s.add(s.mul(s.mul(centred, inverse), scale), shift));
}

fn norm_by_labels(s: &Sheet) {
    let (x, [scale, shift]) = (x(s), affine(s));
    let sum = s.op("Einsum").str("equation", "bsd->bs").of(&[x]);
    let centred = s.sub(x, s.unsqueeze(s.div(sum, s.number(96.0)), &[2]));
    let normalized = s.div(centred, s.sqrt(s.add(mean(s, s.mul(centred, centred)), s.number(EPSILON))));
    s.output("y", s.add(s.mul(normalized, scale), shift));
}

const RMS_EPSILON: f64 = 1e-6;

fn scale(s: &Sheet) -> Tensor<'_> {
    s.floats("scale", "96")
}

fn rms_by_product(s: &Sheet) {
    let (x, scale) = (x(s), scale(s));
    let moment = s.matmul(s.mul(x, x), s.table(F32, &[96, 1], |_| 1.0 / 96.0));
    s.output("y", s.mul(s.div(x, s.sqrt(s.add(moment, s.number(RMS_EPSILON)))), scale));
}

fn rms_repeated(s: &Sheet) {
    let (x, scale) = (x(s), scale(s));
    let inverse = s.pow(s.add(mean(s, s.mul(x, x)), s.number(RMS_EPSILON)), s.number(-0.5));
    s.output("y", s.mul(s.mul(x, s.expand(inverse, s.call("Shape", &[x]))), scale));
}

fn rms_by_pool(s: &Sheet) {
    let (x, scale) = (x(s), scale(s));
    let root = s.sqrt(s.add(pooled(s, s.pow(x, s.number(2.0))), s.number(RMS_EPSILON)));
    s.output("y", s.mul(scale, s.div(x, root)));
}

fn rms_wide_scale(s: &Sheet) {
    let (x, scale) = (x(s), s.reshape(scale(s), &[1, 1, -1]));
    let sum = s.op("ReduceSum").int("keepdims", 0).of(&[s.mul(x, x), s.ints(&[-1])]);
    let moment = s.add(s.mul(sum, s.number(1.0 / 96.0)), s.number(RMS_EPSILON));
    s.output("y", s.div(s.mul(scale, x), s.unsqueeze(s.sqrt(moment), &[-1])));
}

fn gelu_two_halves(s: &Sheet) {
    let x = x(s);
    let half = s.mul(x, s.number(0.5));
    s.output("y", s.add(half, s.mul(half, s.erf(s.mul(x, s.number(FRAC_1_SQRT_2))))));
}

fn gelu_power(s: &Sheet) {
    let x = x(s);
    let inside = s.erf(s.div(x, s.pow(s.number(2.0), s.number(0.5))));
    s.output("y", s.div(s.mul(x, s.add(inside, s.number(1.0))), s.number(2.0)));
}

fn gelu_distribution(s: &Sheet) {
    let x = x(s);
    let inside = s.erf(s.mul(x, s.sqrt(s.number(0.5))));
    s.output("y", s.mul(s.add(s.number(0.5), s.mul(s.number(0.5), inside)), x));
}

fn gelu_inner<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    let cube = s.mul(s.mul(x, x), s.mul(x, s.number(0.044715)));
    s.mul(s.number((2.0 / PI).sqrt()), s.add(x, cube))
}

fn gelu_quotient(s: &Sheet) {
    let x = x(s);
    let e = s.exp(s.mul(gelu_inner(s, x), s.number(-2.0)));
    s.output("y", s.div(x, s.add(s.number(1.0), e)));
}

fn gelu_doubled(s: &Sheet) {
    let x = x(s);
    let cube = s.mul(s.pow(x, s.number(3.0)), s.number(0.044715));
    let inner = s.mul(s.add(x, cube), s.number(2.0 * f64::from((2.0 / PI).sqrt() as f32)));
    s.output("y", s.mul(x, s.sigmoid(inner)));
}

fn gelu_tanh_halves(s: &Sheet) {
    let x = x(s);
    let half = s.mul(x, s.number(0.5));
    s.output("y", s.add(half, s.mul(half, s.tanh(gelu_inner(s, x)))));
}

fn silu_other_tail(s: &Sheet) {
    let x = x(s);
    s.output("y", s.mul(x, s.sub(s.number(1.0), s.sigmoid(s.neg(x)))));
}

fn silu_one_over(s: &Sheet) {
    let x = x(s);
    let sum = s.add(s.number(1.0), s.exp(s.mul(x, s.number(-1.0))));
    s.output("y", s.mul(x, s.div(s.number(1.0), sum)));
}

fn two_weights(s: &Sheet) -> [Tensor<'_>; 2] {
    ["gate", "up"].map(|name| s.floats(name, "96, 160"))
}

fn gated<'s>(s: &'s Sheet, gate: Tensor<'s>, up: Tensor<'s>) {
    s.output("y", s.mul(s.mul(gate, s.sigmoid(gate)), up));
}

fn swiglu_joined(s: &Sheet) {
    let (x, weights) = (x(s), two_weights(s));
    let parts = s.split(s.matmul(x, s.concat(&weights, 1)), -1, 2);
    gated(s, parts[0], parts[1]);
}

fn swiglu_convolved(s: &Sheet) {
    let (x, weights) = (x(s), two_weights(s));
    let turned = s.transpose(x, &[0, 2, 1]);
    let [gate, up] = weights.map(|w| {
        let filters = s.unsqueeze(s.transpose(w, &[1, 0]), &[2]);
        s.transpose(s.call("Conv", &[turned, filters]), &[0, 2, 1])
    });
    gated(s, gate, up);
}

fn packed(s: &Sheet) -> (Tensor<'_>, Tensor<'_>) {
    (x(s), s.floats("weights", "96, 320"))
}

fn swiglu_sliced(s: &Sheet) {
    let (x, weights) = packed(s);
    let [gate, up] = [0, 160].map(|from| s.matmul(x, s.slice(weights, 1, from, from + 160)));
    gated(s, gate, up);
}

fn swiglu_squeezed(s: &Sheet) {
    let (x, weights) = packed(s);
    let parts = s.split(s.reshape(s.matmul(x, weights), &[0, 0, 2, -1]), 2, 2);
    let [gate, up] = [0, 1].map(|k| s.call("Squeeze", &[parts[k], s.ints(&[2])]));
    gated(s, gate, up);
}

fn scores(s: &Sheet) -> Tensor<'_> {
    s.floats("x", "n, s, 768")
}

fn softmax_log_sum(s: &Sheet) {
    let x = scores(s);
    s.output("y", s.exp(s.sub(x, s.reduce("ReduceLogSumExp", x, -1))));
}

fn softmax_turned(s: &Sheet) {
    let turned = s.transpose(scores(s), &[2, 0, 1]);
    s.output("y", s.transpose(s.softmax(turned, 0), &[1, 2, 0]));
}

fn softmax_repeated(s: &Sheet) {
    let x = scores(s);
    let everywhere = |y| s.expand(y, s.call("Shape", &[x]));
    let e = s.exp(s.sub(x, everywhere(s.reduce("ReduceMax", x, 2))));
    s.output("y", s.div(e, everywhere(s.reduce("ReduceSum", e, 2))));
}

fn softmax_not_kept<'s>(s: &'s Sheet) {
    let x = scores(s);
    let fold =
        |name: &'static str, x: Tensor<'s>| s.unsqueeze(s.op(name).int("keepdims", 0).of(&[x, s.ints(&[-1])]), &[-1]);
    let e = s.exp(s.sub(x, fold("ReduceMax", x)));
    s.output("y", s.div(e, fold("ReduceSum", e)));
}

fn softmax_scaled_back(s: &Sheet) {
    let x = s.div(s.mul(scores(s), s.number(8.0)), s.number(8.0));
    s.output("y", s.softmax(x, -1));
}

fn softmax_outer_log_sum(s: &Sheet) {
    let x = scores(s);
    s.output("y", s.exp(s.sub(x, s.reduce("ReduceLogSumExp", x, 1))));
}

fn softmax_outer_inserted(s: &Sheet) {
    let x = s.unsqueeze(scores(s), &[0]);
    s.output("y", s.call("Squeeze", &[s.softmax(x, 2), s.ints(&[0])]));
}

fn log_softmax_less(s: &Sheet) {
    let x = scores(s);
    s.output("y", s.sub(x, s.reduce("ReduceLogSumExp", x, -1)));
}

fn log_softmax_flattened(s: &Sheet) {
    let x = scores(s);
    s.output("y", like(s, s.op("LogSoftmax").int("axis", 1).of(&[s.reshape(x, &[-1, 768])]), x));
}

fn heads(s: &Sheet) -> Tensor<'_> {
    s.floats("x", "n, 4, s, 64")
}

fn tables(s: &Sheet) -> [Tensor<'_>; 2] {
    ["cos", "sin"].map(|name| s.floats(name, "1, s, 32"))
}

/// For both halves, with an axis for the heads.
fn doubled<'s>(s: &'s Sheet, table: Tensor<'s>) -> Tensor<'s> {
    s.unsqueeze(s.concat(&[table, table], -1), &[1])
}

fn turned<'s>(s: &'s Sheet, x: Tensor<'s>, rotated: Tensor<'s>, [cos, sin]: [Tensor<'s>; 2]) {
    s.output("y", s.add(s.mul(x, cos), s.mul(rotated, sin)));
}

fn rope_gathered(s: &Sheet) {
    let x = heads(s);
    let order: Vec<i64> = (32..64).chain(0..32).collect();
    let swapped = s.op("Gather").int("axis", 3).of(&[x, s.ints(&order)]);
    let signs = s.table(F32, &[64], |i| if i[0] < 32 { -1.0 } else { 1.0 });
    turned(s, x, s.mul(swapped, signs), tables(s).map(|t| doubled(s, t)));
}

fn rope_rows(s: &Sheet) {
    let x = heads(s);
    let rows = s.split(s.reshape(x, &[0, 0, 0, 2, 32]), 3, 2);
    let rotated = s.reshape(s.concat(&[s.neg(rows[1]), rows[0]], 3), &[0, 0, 0, 64]);
    turned(s, x, rotated, tables(s).map(|t| doubled(s, t)));
}

fn rope_minus_one(s: &Sheet) {
    let x = heads(s);
    let halves = s.split(x, -1, 2);
    let rotated = s.concat(&[s.mul(halves[1], s.number(-1.0)), halves[0]], -1);
    turned(s, x, rotated, tables(s).map(|t| doubled(s, t)));
}

fn rope_tables_repeated(s: &Sheet) {
    let x = heads(s);
    let halves = s.split(x, -1, 2);
    let rotated = s.concat(&[s.neg(halves[1]), halves[0]], -1);
    let shape = s.call("Shape", &[x]);
    turned(s, x, rotated, tables(s).map(|t| s.expand(doubled(s, t), shape)));
}

fn rope_stacked(s: &Sheet) {
    let x = heads(s);
    let [cos, sin] = tables(s).map(|t| s.unsqueeze(t, &[1]));
    let (first, second) = (s.slice(x, -1, 0, 32), s.slice(x, -1, 32, 64));
    let low = s.sub(s.mul(first, cos), s.mul(second, sin));
    let high = s.add(s.mul(second, cos), s.mul(first, sin));
    let stacked = s.concat(&[s.unsqueeze(low, &[3]), s.unsqueeze(high, &[3])], 3);
    s.output("y", like(s, stacked, x));
}

fn positions(s: &Sheet) -> Tensor<'_> {
    s.input("positions", I64, "n, s")
}

fn frequencies(s: &Sheet) -> Tensor<'_> {
    s.table(F32, &[32], |i| 10000f64.powf(-(i[0] as f64) / 32.0))
}

fn rotated_half<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    let halves = s.split(x, -1, 2);
    s.concat(&[s.neg(halves[1]), halves[0]], -1)
}

fn rope_labels(s: &Sheet) {
    let x = heads(s);
    let angles = s.op("Einsum").str("equation", "ns,d->nsd").of(&[s.cast(positions(s), F32), frequencies(s)]);
    let both = s.concat(&[angles, angles], -1);
    turned(s, x, rotated_half(s, x), ["Cos", "Sin"].map(|name| s.unsqueeze(s.call(name, &[both]), &[1])));
}

fn rope_half_angles(s: &Sheet) {
    let x = heads(s);
    let angles = s.mul(s.unsqueeze(s.cast(positions(s), F32), &[2]), frequencies(s));
    turned(s, x, rotated_half(s, x), ["Cos", "Sin"].map(|name| doubled(s, s.call(name, &[angles]))));
}

/// As GPT-J does: every second element negated and swapped with the one before it.
fn rope_pairs_turned(s: &Sheet) {
    let x = heads(s);
    let every_second =
        |from: i64| s.call("Slice", &[x, s.ints(&[from]), s.ints(&[i64::MAX]), s.ints(&[3]), s.ints(&[2])]);
    let (even, odd) = (every_second(0), every_second(1));
    let stacked = s.concat(&[s.unsqueeze(s.neg(odd), &[4]), s.unsqueeze(even, &[4])], 4);
    let twice = |t| {
        let wide = s.expand(s.unsqueeze(t, &[1, 4]), s.ints(&[1, 1, 1, 1, 2]));
        s.reshape(wide, &[1, 1, -1, 64])
    };
    turned(s, x, like(s, stacked, x), tables(s).map(twice));
}

fn rope_pairs_gathered(s: &Sheet) {
    let x = heads(s);
    let order: Vec<i64> = (0..64).map(|k: i64| k ^ 1).collect();
    let swapped = s.op("Gather").int("axis", -1).of(&[x, s.ints(&order)]);
    let signs = s.table(F32, &[64], |i| if i[0] % 2 == 0 { -1.0 } else { 1.0 });
    let each: Vec<i64> = (0..64).map(|k: i64| k / 2).collect();
    let twice = |t| s.unsqueeze(s.op("Gather").int("axis", 2).of(&[t, s.ints(&each)]), &[1]);
    turned(s, x, s.mul(swapped, signs), tables(s).map(twice));
}

fn cache(s: &Sheet) -> [Tensor<'_>; 2] {
    ["cos", "sin"].map(|name| s.floats(name, "24, 32"))
}

fn rope_gathered_late(s: &Sheet) {
    let x = heads(s);
    let (tables, positions) = (cache(s), positions(s));
    turned(s, x, rotated_half(s, x), tables.map(|t| doubled(s, s.gather(t, positions))));
}

fn rope_gathered_flat(s: &Sheet) {
    let x = heads(s);
    let (tables, positions) = (cache(s), positions(s));
    let flat = s.reshape(positions, &[-1]);
    let shape = s.vector(&[s.size(x, 0), s.size(x, 2), s.int(32)]);
    let rows = tables.map(|t| doubled(s, s.call("Reshape", &[s.gather(t, flat), shape])));
    turned(s, x, rotated_half(s, x), rows);
}
