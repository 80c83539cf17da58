//! Ways that nobody has been seen to use, and that mean the same: what is recognised is the computation.

use std::f64::consts::{LOG2_E, PI};

use fuseline::graph::Tensor;
use fuseline::tensor::DType::F32;

use super::row::{affine, mean, x};
use super::{Sheet, spellings};

spellings! {
    "layer_norm" {
        "f32" {
            "squared norm over a count": norm_squared_norm,
            "variance bounded by nothing": norm_bounded,
            "unbiased variance, scaled": norm_unbiased,
            "squares by labels": norm_squares_by_labels,
            "root of the reciprocal": norm_root_of_reciprocal,
            "product and negated mean": norm_affine,
            "sums flattened": norm_flattened_sums,
            "statistics by one product": norm_by_dots,
            "mean of squares less the square of the mean": norm_moments,
            "sum of squares less a product of sums, bounded": norm_moments_bounded,
        }
    }
    "rms_norm" {
        "f32" {
            "root of the reciprocal": rms_root_of_reciprocal,
            "sum of products": rms_by_dots,
            "power of a half, quotient of one": rms_power,
        }
    }
    "gelu_erf" {
        "f32" {
            "other tail, negated": gelu_other_tail,
            "mean of two": gelu_mean,
        }
    }
    "gelu_tanh" {
        "f32" {
            "negated argument": gelu_tanh_negated,
            "inner by Horner": gelu_tanh_horner,
        }
    }
    "silu" {
        "f32" {
            "quotient of exponentials": silu_exponentials,
            "one operator with a slope of one": silu_swish,
        }
    }
    "swiglu" {
        "f32, two weights" {
            "by the hyperbolic tangent": swiglu_tanh,
            "products by columns": swiglu_dots,
        }
        "f32, packed weights" {
            "weights turned, gathered": swiglu_gathered,
        }
    }
    "softmax" {
        "inner axis" {
            "matrix of an older version": softmax_coerced,
            "powers of two": softmax_powers,
            "least of the negated": softmax_least,
            "difference negated": softmax_negated,
            "sum of magnitudes": softmax_magnitudes,
            "sum by a product with ones": softmax_ones,
            "mean times a count": softmax_mean,
            "logarithm of the sum by one operator": softmax_log_sum_reduced,
        }
        "outer axis" {
            "sum by labels": softmax_outer_labels,
            "matrix of an older version": softmax_outer_coerced,
            "sum by a product with ones": softmax_outer_ones,
            "exponential of the logarithm": softmax_outer_log,
        }
    }
    "skip_layer_norm" {
        "without bias" {
            "less the negated": skip_negated,
            "sum of two in a list": skip_list,
            "sum along an axis of two": skip_stacked,
        }
    }
    "rope" {
        "halves, tables of half the size" {
            "tables tiled": rope_tiled,
            "product with a matrix of signs": rope_matrix,
            "halves chosen by place": rope_chosen,
        }
        "pairs" {
            "tables repeated by a gather": rope_pairs_tables,
            "product with a matrix of signs": rope_pairs_matrix,
        }
    }
}

const EPSILON: f64 = 1e-5;
const RMS_EPSILON: f64 = 1e-6;

/// What is left of a norm behind the centred rows and what is below the root.
fn finish_norm<'s>(s: &'s Sheet, centred: Tensor<'s>, variance: Tensor<'s>, [scale, shift]: [Tensor<'s>; 2]) {
    let root = s.sqrt(s.add(variance, s.number(EPSILON)));
    s.output("y", s.add(s.mul(s.div(centred, root), scale), shift));
}

fn norm_squared_norm(s: &Sheet) {
    let (x, parameters) = (x(s), affine(s));
    let centred = s.sub(x, mean(s, x));
    let norm = s.reduce("ReduceL2", centred, -1);
    finish_norm(s, centred, s.div(s.pow(norm, s.number(2.0)), s.number(96.0)), parameters);
}

fn norm_bounded(s: &Sheet) {
    let (x, parameters) = (x(s), affine(s));
    let centred = s.sub(x, mean(s, x));
    let variance = s.call("Max", &[mean(s, s.mul(centred, centred)), s.number(0.0)]);
    finish_norm(s, centred, variance, parameters);
}

fn norm_unbiased(s: &Sheet) {
    let (x, parameters) = (x(s), affine(s));
    let centred = s.sub(x, mean(s, x));
    let unbiased = s.div(s.reduce("ReduceSum", s.mul(centred, centred), -1), s.number(95.0));
    finish_norm(s, centred, s.mul(unbiased, s.number(95.0 / 96.0)), parameters);
}

fn norm_squares_by_labels(s: &Sheet) {
    let (x, parameters) = (x(s), affine(s));
    let centred = s.sub(x, mean(s, x));
    let squares = s.op("Einsum").str("equation", "bsd,bsd->bs").of(&[centred, centred]);
    finish_norm(s, centred, s.unsqueeze(s.mul(squares, s.number(1.0 / 96.0)), &[-1]), parameters);
}

fn norm_moments(s: &Sheet) {
    let (x, parameters) = (x(s), affine(s));
    let average = mean(s, x);
    let variance = s.sub(mean(s, s.mul(x, x)), s.mul(average, average));
    finish_norm(s, s.sub(x, average), variance, parameters);
}

fn norm_moments_bounded(s: &Sheet) {
    let (x, parameters) = (x(s), affine(s));
    let sum = s.reduce("ReduceSum", x, -1);
    let average = s.div(sum, s.number(96.0));
    let squares = s.sub(s.reduce("ReduceSumSquare", x, -1), s.mul(sum, average));
    let variance = s.call("Max", &[s.div(squares, s.number(96.0)), s.number(0.0)]);
    finish_norm(s, s.sub(x, average), variance, parameters);
}

fn norm_root_of_reciprocal(s: &Sheet) {
    let (x, [scale, shift]) = (x(s), affine(s));
    let centred = s.sub(x, mean(s, x));
    let variance = s.add(s.number(EPSILON), mean(s, s.pow(centred, s.number(2.0))));
    let normalized = s.mul(s.sqrt(s.reciprocal(variance)), centred);
    s.output("y", s.add(shift, s.mul(scale, normalized)));
}

/// As ATen's own kernel does: times the inverse root, plus the negated mean times it.
fn norm_affine(s: &Sheet) {
    let (x, [scale, shift]) = (x(s), affine(s));
    let mean_of = mean(s, x);
    let centred = s.sub(x, mean_of);
    let inverse = s.reciprocal(s.sqrt(s.add(mean(s, s.mul(centred, centred)), s.number(EPSILON))));
    let normalized = s.add(s.mul(x, inverse), s.mul(s.neg(mean_of), inverse));
    s.output("y", s.add(s.mul(normalized, scale), shift));
}

fn norm_flattened_sums(s: &Sheet) {
    let (x, parameters) = (x(s), affine(s));
    let rows = |y| s.op("Flatten").int("axis", 2).of(&[y]);
    let back = |y| s.call("Reshape", &[y, s.vector(&[s.size(x, 0), s.size(x, 1), s.int(1)])]);
    let centred = s.sub(x, back(mean(s, rows(x))));
    finish_norm(s, centred, back(mean(s, rows(s.mul(centred, centred)))), parameters);
}

fn norm_by_dots(s: &Sheet) {
    let (x, parameters) = (x(s), affine(s));
    let centred = s.sub(x, mean(s, x));
    let square = s.matmul(s.unsqueeze(centred, &[2]), s.unsqueeze(centred, &[3]));
    let variance = s.div(s.call("Squeeze", &[square, s.ints(&[3])]), s.number(96.0));
    finish_norm(s, centred, variance, parameters);
}

fn scale(s: &Sheet) -> Tensor<'_> {
    s.floats("scale", "96")
}

fn rms_root_of_reciprocal(s: &Sheet) {
    let (x, scale) = (x(s), scale(s));
    let inverse = s.sqrt(s.reciprocal(s.add(mean(s, s.mul(x, x)), s.number(RMS_EPSILON))));
    s.output("y", s.mul(scale, s.mul(inverse, x)));
}

fn rms_by_dots(s: &Sheet) {
    let (x, scale) = (x(s), scale(s));
    let square = s.matmul(s.unsqueeze(x, &[2]), s.unsqueeze(x, &[3]));
    let moment = s.div(s.call("Squeeze", &[square, s.ints(&[3])]), s.number(96.0));
    s.output("y", s.mul(s.div(x, s.sqrt(s.add(moment, s.number(RMS_EPSILON)))), scale));
}

fn rms_power(s: &Sheet) {
    let (x, scale) = (x(s), scale(s));
    let root = s.pow(s.add(mean(s, s.pow(x, s.int(2))), s.number(RMS_EPSILON)), s.number(0.5));
    s.output("y", s.mul(s.mul(x, scale), s.div(s.number(1.0), root)));
}

fn gelu_other_tail(s: &Sheet) {
    let x = x(s);
    let tail = s.erf(s.div(s.neg(x), s.sqrt(s.number(2.0))));
    s.output("y", s.mul(s.mul(x, s.sub(s.number(1.0), tail)), s.number(0.5)));
}

fn gelu_mean(s: &Sheet) {
    let x = x(s);
    let product = s.mul(x, s.erf(s.div(x, s.number(2f64.sqrt()))));
    s.output("y", s.call("Mean", &[x, product]));
}

fn gelu_tanh_negated(s: &Sheet) {
    let x = x(s);
    let cube = s.mul(s.pow(x, s.number(3.0)), s.number(0.044715));
    let inner = s.mul(s.add(x, cube), s.number(-(2.0 / PI).sqrt()));
    s.output("y", s.mul(s.mul(s.number(0.5), x), s.sub(s.number(1.0), s.tanh(inner))));
}

fn gelu_tanh_horner(s: &Sheet) {
    let x = x(s);
    let root = f64::from((2.0 / PI).sqrt() as f32);
    let inner = s.mul(x, s.add(s.number(root), s.mul(s.number(root * f64::from(0.044715f32)), s.mul(x, x))));
    s.output("y", s.mul(x, s.add(s.number(0.5), s.mul(s.number(0.5), s.tanh(inner)))));
}

fn silu_exponentials(s: &Sheet) {
    let x = x(s);
    let negated = s.exp(s.neg(x));
    s.output("y", s.div(x, s.add(negated, s.number(1.0))));
}

fn silu_swish(s: &Sheet) {
    let x = x(s);
    s.output("y", s.op("Swish").opset(24).float("alpha", 1.0).of(&[x]));
}

fn two_weights(s: &Sheet) -> [Tensor<'_>; 2] {
    ["gate", "up"].map(|name| s.floats(name, "96, 160"))
}

fn swiglu_tanh(s: &Sheet) {
    let x = x(s);
    let [gate, up] = two_weights(s).map(|w| s.matmul(x, w));
    let bent = s.add(s.tanh(s.mul(gate, s.number(0.5))), s.number(1.0));
    s.output("y", s.mul(s.mul(s.mul(gate, s.number(0.5)), bent), up));
}

/// Products as sums of elements, column by column.
fn swiglu_dots(s: &Sheet) {
    let x = x(s);
    let column = s.unsqueeze(x, &[3]);
    let [gate, up] = two_weights(s).map(|w| {
        let terms = s.mul(column, s.unsqueeze(w, &[0, 1]));
        s.op("ReduceSum").int("keepdims", 0).of(&[terms, s.ints(&[2])])
    });
    s.output("y", s.mul(s.mul(gate, s.sigmoid(gate)), up));
}

fn swiglu_gathered(s: &Sheet) {
    let (x, weights) = (x(s), s.floats("weights", "96, 320"));
    let parts = s.reshape(s.transpose(weights, &[1, 0]), &[2, 160, 96]);
    let [gate, up] = [0, 1].map(|k| s.matmul(x, s.transpose(s.gather(parts, s.int(k)), &[1, 0])));
    s.output("y", s.mul(up, s.mul(s.sigmoid(gate), gate)));
}

fn scores(s: &Sheet) -> Tensor<'_> {
    s.floats("x", "n, s, 768")
}

fn like<'s>(s: &'s Sheet, y: Tensor<'s>, x: Tensor<'s>) -> Tensor<'s> {
    s.call("Reshape", &[y, s.call("Shape", &[x])])
}

fn softmax_coerced(s: &Sheet) {
    let x = scores(s);
    let rows = s.op("Flatten").int("axis", 2).of(&[x]);
    s.output("y", like(s, s.op("Softmax").opset(1).of(&[rows]), x));
}

fn softmax_powers(s: &Sheet) {
    let x = s.mul(scores(s), s.number(LOG2_E));
    let e = s.pow(s.number(2.0), s.sub(x, s.reduce("ReduceMax", x, -1)));
    s.output("y", s.div(e, s.reduce("ReduceSum", e, -1)));
}

fn softmax_least(s: &Sheet) {
    let x = scores(s);
    let largest = s.neg(s.reduce("ReduceMin", s.neg(x), -1));
    let e = s.exp(s.sub(x, largest));
    s.output("y", s.div(e, s.reduce("ReduceSum", e, -1)));
}

fn softmax_negated(s: &Sheet) {
    let x = scores(s);
    let e = s.exp(s.neg(s.sub(s.reduce("ReduceMax", x, -1), x)));
    s.output("y", s.div(e, s.reduce("ReduceSum", e, -1)));
}

fn exponentials<'s>(s: &'s Sheet, x: Tensor<'s>, axis: i64) -> Tensor<'s> {
    s.exp(s.sub(x, s.reduce("ReduceMax", x, axis)))
}

fn softmax_magnitudes(s: &Sheet) {
    let e = exponentials(s, scores(s), -1);
    s.output("y", s.div(e, s.reduce("ReduceL1", e, -1)));
}

fn softmax_ones(s: &Sheet) {
    let e = exponentials(s, scores(s), -1);
    s.output("y", s.div(e, s.matmul(e, s.table(F32, &[768, 1], |_| 1.0))));
}

fn softmax_mean(s: &Sheet) {
    let e = exponentials(s, scores(s), -1);
    let sum = s.mul(s.reduce("ReduceMean", e, -1), s.number(768.0));
    s.output("y", s.div(e, sum));
}

fn softmax_log_sum_reduced(s: &Sheet) {
    let x = scores(s);
    let shifted = s.sub(x, s.reduce("ReduceMax", x, -1));
    let logarithm = s.reduce("ReduceLogSum", s.exp(shifted), -1);
    s.output("y", s.exp(s.sub(shifted, logarithm)));
}

fn softmax_outer_labels(s: &Sheet) {
    let e = exponentials(s, scores(s), 1);
    let sum = s.op("Einsum").str("equation", "bsd->bd").of(&[e]);
    s.output("y", s.div(e, s.unsqueeze(sum, &[1])));
}

fn softmax_outer_coerced(s: &Sheet) {
    let x = s.transpose(scores(s), &[0, 2, 1]);
    let rows = s.op("Flatten").int("axis", 2).of(&[x]);
    let y = like(s, s.op("Softmax").opset(11).of(&[rows]), x);
    s.output("y", s.transpose(y, &[0, 2, 1]));
}

fn softmax_outer_ones(s: &Sheet) {
    let x = scores(s);
    let e = exponentials(s, x, 1);
    let ones = s.expand(s.number(1.0), s.vector(&[s.int(1), s.size(x, 1)]));
    s.output("y", s.div(e, s.matmul(ones, e)));
}

fn softmax_outer_log(s: &Sheet) {
    s.output("y", s.exp(s.op("LogSoftmax").int("axis", -2).of(&[scores(s)])));
}

fn skip_operands(s: &Sheet) -> ([Tensor<'_>; 2], [Tensor<'_>; 2]) {
    ([x(s), s.floats("skip", "n, s, 96")], affine(s))
}

fn norm<'s>(s: &'s Sheet, x: Tensor<'s>, [scale, shift]: [Tensor<'s>; 2]) {
    let norm = s.op("LayerNormalization").int("axis", -1).float("epsilon", EPSILON);
    s.output("y", norm.of(&[x, scale, shift]));
    s.output("sum", x);
}

fn skip_negated(s: &Sheet) {
    let ([x, skip], parameters) = skip_operands(s);
    norm(s, s.sub(x, s.neg(skip)), parameters);
}

fn skip_list(s: &Sheet) {
    let ([x, skip], parameters) = skip_operands(s);
    norm(s, s.call("Sum", &[skip, x]), parameters);
}

fn skip_stacked(s: &Sheet) {
    let ([x, skip], parameters) = skip_operands(s);
    let both = s.concat(&[x, skip].map(|x| s.unsqueeze(x, &[0])), 0);
    norm(s, s.op("ReduceSum").int("keepdims", 0).of(&[both, s.ints(&[0])]), parameters);
}

fn heads(s: &Sheet) -> Tensor<'_> {
    s.floats("x", "n, 4, s, 64")
}

fn tables(s: &Sheet) -> [Tensor<'_>; 2] {
    ["cos", "sin"].map(|name| s.floats(name, "1, s, 32"))
}

fn turned<'s>(s: &'s Sheet, x: Tensor<'s>, rotated: Tensor<'s>, [cos, sin]: [Tensor<'s>; 2]) {
    s.output("y", s.add(s.mul(x, cos), s.mul(rotated, sin)));
}

fn doubled<'s>(s: &'s Sheet, table: Tensor<'s>) -> Tensor<'s> {
    s.unsqueeze(s.concat(&[table, table], -1), &[1])
}

fn rope_tiled(s: &Sheet) {
    let x = heads(s);
    let halves = s.split(x, -1, 2);
    let rotated = s.concat(&[s.neg(halves[1]), halves[0]], -1);
    let twice = |t| s.unsqueeze(s.call("Tile", &[t, s.ints(&[1, 1, 2])]), &[1]);
    turned(s, x, rotated, tables(s).map(twice));
}

fn rope_matrix(s: &Sheet) {
    let x = heads(s);
    let sign = |i: &[usize]| f64::from(u8::from(i[0] + 32 == i[1])) - f64::from(u8::from(i[0] == i[1] + 32));
    turned(s, x, s.matmul(x, s.table(F32, &[64, 64], sign)), tables(s).map(|t| doubled(s, t)));
}

/// The halves changed places, negated where the place is in the first one.
fn rope_chosen(s: &Sheet) {
    let x = heads(s);
    let swapped = s.concat(&[s.slice(x, -1, 32, 64), s.slice(x, -1, 0, 32)], -1);
    let first = s.call("Less", &[s.call("Range", &[s.int(0), s.int(64), s.int(1)]), s.int(32)]);
    turned(s, x, s.choose(first, s.neg(swapped), swapped), tables(s).map(|t| doubled(s, t)));
}

fn rope_pairs_tables(s: &Sheet) {
    let x = heads(s);
    let pairs = s.split(s.reshape(x, &[0, 0, 0, 32, 2]), 4, 2);
    let rotated = like(s, s.concat(&[s.neg(pairs[1]), pairs[0]], 4), x);
    let each: Vec<i64> = (0..64).map(|k: i64| k / 2).collect();
    let twice = |t| s.unsqueeze(s.op("Gather").int("axis", 2).of(&[t, s.ints(&each)]), &[1]);
    turned(s, x, rotated, tables(s).map(twice));
}

fn rope_pairs_matrix(s: &Sheet) {
    let x = heads(s);
    let sign = |i: &[usize]| match (i[0] % 2, i[0] ^ 1 == i[1]) {
        (1, true) => -1.0,
        (0, true) => 1.0,
        _ => 0.0,
    };
    let twice = |t| {
        let wide = s.expand(s.unsqueeze(t, &[1, 4]), s.ints(&[1, 1, 1, 1, 2]));
        s.reshape(wide, &[1, 1, -1, 64])
    };
    turned(s, x, s.matmul(x, s.table(F32, &[64, 64], sign)), tables(s).map(twice));
}
