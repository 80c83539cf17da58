//! LayerNorm over the last axis of `[n, s, 96]`.

use fuseline::graph::Tensor;
use fuseline::tensor::DType::{self, F16, F32};

use super::{Sheet, spellings};

spellings! {
    "layer_norm" {
        "f32" {
            "nine operators, axes as attribute": nine,
            "axes as operand": axes_as_operand,
            "centred twice": centred_twice,
            "integer exponent": integer_exponent,
            "converted exponent": converted_exponent,
            "product for the square": product,
            "reciprocal of the root": reciprocal,
            "power of minus one half": inverse_power,
            "sum over a constant": sum_over_count,
            "sum times a reciprocal": sum_times_inverse,
            "count from the shape": count_from_shape,
            "axes not kept": axes_not_kept,
            "rows flattened": flattened,
            "transposed and back": transposed,
            "scale inside": scale_inside,
            "product and shift of the operand": product_and_shift,
            "difference the other way round": other_difference,
            "sum of squares": sum_of_squares,
            "norm of the differences": norm_of_differences,
            "means by a product with a constant": mean_by_product,
            "means by labels": mean_by_labels,
            "shift on the left, quotient of products": quotient_of_products,
            "one operator": named,
            "one operator over rows": named_over_rows,
        }
        "f32, epsilon outside of the root" {
            "nine operators": epsilon_outside,
            "reciprocal": epsilon_outside_reciprocal,
        }
        "f32, variance of squares" {
            "mean of squares less squared mean": fast_variance,
            "squared mean by a power": fast_variance_power,
        }
        "f16" {
            "converted before and after": wide,
            "converted before the power": wide_power,
            "converted before the scale": narrow_scale,
            "one operator": named_f16,
        }
    }
}

struct Operands<'s> {
    x: Tensor<'s>,
    scale: Tensor<'s>,
    shift: Tensor<'s>,
}

fn operands(s: &Sheet, dtype: DType) -> Operands<'_> {
    Operands {
        x: s.input("x", dtype, "n, s, 96"),
        scale: s.input("scale", dtype, "96"),
        shift: s.input("shift", dtype, "96"),
    }
}

const EPSILON: f64 = 1e-5;

fn mean<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.op("ReduceMean").opset(13).ints("axes", &[-1]).of(&[x])
}

/// Standardised, with the parts that spellings differ in.
fn standardize<'s>(
    s: &'s Sheet,
    x: Tensor<'s>,
    mean: impl Fn(Tensor<'s>) -> Tensor<'s>,
    square: impl Fn(Tensor<'s>) -> Tensor<'s>,
    divide: impl Fn(Tensor<'s>, Tensor<'s>) -> Tensor<'s>,
) -> Tensor<'s> {
    let centred = s.sub(x, mean(x));
    divide(centred, s.add(mean(square(centred)), s.number(EPSILON)))
}

fn by_root<'s>(s: &'s Sheet) -> impl Fn(Tensor<'s>, Tensor<'s>) -> Tensor<'s> {
    |x, variance| s.div(x, s.sqrt(variance))
}

fn power<'s>(s: &'s Sheet) -> impl Fn(Tensor<'s>) -> Tensor<'s> {
    |x| s.pow(x, s.number(2.0))
}

/// Scaled and shifted, the result of the row.
fn finish<'s>(s: &'s Sheet, normalized: Tensor<'s>, o: &Operands<'s>) {
    s.output("y", s.add(s.mul(normalized, o.scale), o.shift));
}

fn with_mean<'s>(s: &'s Sheet, mean: impl Fn(Tensor<'s>) -> Tensor<'s>) {
    let o = operands(s, F32);
    finish(s, standardize(s, o.x, mean, power(s), by_root(s)), &o);
}

fn with_square<'s>(s: &'s Sheet, square: impl Fn(Tensor<'s>) -> Tensor<'s>) {
    let o = operands(s, F32);
    finish(s, standardize(s, o.x, |x| mean(s, x), square, by_root(s)), &o);
}

fn with_division<'s>(s: &'s Sheet, divide: impl Fn(Tensor<'s>, Tensor<'s>) -> Tensor<'s>) {
    let o = operands(s, F32);
    finish(s, standardize(s, o.x, |x| mean(s, x), power(s), divide), &o);
}

fn nine(s: &Sheet) {
    with_square(s, power(s));
}

fn axes_as_operand(s: &Sheet) {
    with_mean(s, |x| s.reduce("ReduceMean", x, -1));
}

/// Old versions of PyTorch computed the difference once for the variance and once for the result.
fn centred_twice(s: &Sheet) {
    let o = operands(s, F32);
    let average = s.reduce("ReduceMean", o.x, 2);
    let squares = s.pow(s.sub(o.x, average), s.number(2.0));
    let again = s.sub(o.x, mean(s, o.x));
    let root = s.sqrt(s.add(mean(s, squares), s.number(EPSILON)));
    finish(s, s.div(again, root), &o);
}

fn integer_exponent(s: &Sheet) {
    with_square(s, |x| s.pow(x, s.int(2)));
}

fn converted_exponent(s: &Sheet) {
    with_square(s, |x| s.pow(x, s.cast(s.int(2), F32)));
}

fn product(s: &Sheet) {
    with_square(s, |x| s.mul(x, x));
}

fn reciprocal(s: &Sheet) {
    with_division(s, |x, variance| s.mul(x, s.reciprocal(s.sqrt(variance))));
}

fn inverse_power(s: &Sheet) {
    with_division(s, |x, variance| s.mul(s.pow(variance, s.number(-0.5)), x));
}

fn sum_over_count(s: &Sheet) {
    with_mean(s, |x| s.div(s.reduce("ReduceSum", x, -1), s.number(96.0)));
}

fn sum_times_inverse(s: &Sheet) {
    with_mean(s, |x| s.mul(s.reduce("ReduceSum", x, -1), s.number(1.0 / 96.0)));
}

fn count_from_shape(s: &Sheet) {
    with_mean(s, |x| s.div(s.reduce("ReduceSum", x, -1), s.cast(s.size(x, 2), F32)));
}

fn axes_not_kept(s: &Sheet) {
    with_mean(s, |x| {
        let mean = s.op("ReduceMean").int("keepdims", 0).of(&[x, s.ints(&[2])]);
        s.unsqueeze(mean, &[-1])
    });
}

fn flattened(s: &Sheet) {
    let o = operands(s, F32);
    let rows = s.reshape(o.x, &[-1, 96]);
    let normalized = standardize(s, rows, |x| mean(s, x), power(s), by_root(s));
    let y = s.add(s.mul(normalized, o.scale), o.shift);
    s.output("y", s.call("Reshape", &[y, s.call("Shape", &[o.x])]));
}

/// As channels-last code in a channels-first model does.
fn transposed(s: &Sheet) {
    let o = operands(s, F32);
    let x = s.transpose(o.x, &[0, 2, 1]);
    let mean = |x| s.reduce("ReduceMean", x, 1);
    let normalized = standardize(s, x, mean, power(s), by_root(s));
    let column = |x| s.unsqueeze(x, &[1]);
    let y = s.add(s.mul(normalized, column(o.scale)), column(o.shift));
    s.output("y", s.transpose(y, &[0, 2, 1]));
}

/// The factor of the scale goes to the root first.
fn scale_inside(s: &Sheet) {
    let o = operands(s, F32);
    let centred = s.sub(o.x, mean(s, o.x));
    let variance = mean(s, s.mul(centred, centred));
    let factor = s.mul(o.scale, s.reciprocal(s.sqrt(s.add(variance, s.number(EPSILON)))));
    s.output("y", s.add(s.mul(centred, factor), o.shift));
}

fn named(s: &Sheet) {
    let o = operands(s, F32);
    s.output("y", s.op("LayerNormalization").float("epsilon", EPSILON).of(&[o.x, o.scale, o.shift]));
}

fn named_over_rows(s: &Sheet) {
    let o = operands(s, F32);
    let rows = s.reshape(o.x, &[-1, 96]);
    let y = s.op("LayerNormalization").int("axis", 1).float("epsilon", EPSILON).of(&[rows, o.scale, o.shift]);
    s.output("y", s.call("Reshape", &[y, s.call("Shape", &[o.x])]));
}

fn outside<'s>(s: &'s Sheet, divide: impl Fn(Tensor<'s>, Tensor<'s>) -> Tensor<'s>) {
    let o = operands(s, F32);
    let centred = s.sub(o.x, mean(s, o.x));
    let root = s.sqrt(mean(s, s.pow(centred, s.number(2.0))));
    // Large, so that the difference to the usual place shows in every element.
    finish(s, divide(centred, s.add(root, s.number(0.1))), &o);
}

fn epsilon_outside(s: &Sheet) {
    outside(s, |x, root| s.div(x, root));
}

fn epsilon_outside_reciprocal(s: &Sheet) {
    outside(s, |x, root| s.mul(x, s.reciprocal(root)));
}

fn of_squares<'s>(s: &'s Sheet, square: impl Fn(Tensor<'s>) -> Tensor<'s>) {
    let o = operands(s, F32);
    let average = mean(s, o.x);
    let variance = s.sub(mean(s, square(o.x)), square(average));
    let positive = s.call("Max", &[variance, s.number(0.0)]);
    finish(s, s.div(s.sub(o.x, average), s.sqrt(s.add(positive, s.number(EPSILON)))), &o);
}

fn fast_variance(s: &Sheet) {
    of_squares(s, |x| s.mul(x, x));
}

fn fast_variance_power(s: &Sheet) {
    of_squares(s, power(s));
}

fn wide(s: &Sheet) {
    let o = operands(s, F16);
    let wide = |x| s.cast(x, F32);
    let normalized = standardize(s, wide(o.x), |x| mean(s, x), power(s), by_root(s));
    let y = s.add(s.mul(normalized, wide(o.scale)), wide(o.shift));
    s.output("y", s.cast(y, F16));
}

fn wide_power(s: &Sheet) {
    let o = operands(s, F16);
    let centred = s.cast(s.sub(o.x, mean(s, o.x)), F32);
    let variance = mean(s, s.pow(centred, s.number(2.0)));
    let normalized = s.div(centred, s.sqrt(s.add(variance, s.number(EPSILON))));
    finish(s, s.cast(normalized, F16), &o);
}

fn narrow_scale(s: &Sheet) {
    let o = operands(s, F16);
    let normalized = standardize(s, s.cast(o.x, F32), |x| mean(s, x), power(s), by_root(s));
    finish(s, s.cast(normalized, F16), &o);
}

fn named_f16(s: &Sheet) {
    let o = operands(s, F16);
    s.output("y", s.op("LayerNormalization").float("epsilon", EPSILON).of(&[o.x, o.scale, o.shift]));
}

/// As batch normalisation is written, and layers on top of it: one product and one sum for every element.
fn product_and_shift(s: &Sheet) {
    let o = operands(s, F32);
    let average = mean(s, o.x);
    let difference = s.sub(o.x, average);
    let variance = mean(s, s.mul(difference, difference));
    let factor = s.mul(s.reciprocal(s.sqrt(s.add(variance, s.number(EPSILON)))), o.scale);
    s.output("y", s.add(s.mul(o.x, factor), s.sub(o.shift, s.mul(average, factor))));
}

fn other_difference(s: &Sheet) {
    let o = operands(s, F32);
    let centred = s.sub(mean(s, o.x), o.x);
    let root = s.sqrt(s.add(mean(s, s.mul(centred, centred)), s.number(EPSILON)));
    finish(s, s.div(s.neg(centred), root), &o);
}

fn sum_of_squares(s: &Sheet) {
    let o = operands(s, F32);
    let centred = s.sub(o.x, s.reduce("ReduceMean", o.x, 2));
    let variance = s.div(s.reduce("ReduceSumSquare", centred, -1), s.number(96.0));
    finish(s, s.div(centred, s.pow(s.add(variance, s.number(EPSILON)), s.number(0.5))), &o);
}

fn norm_of_differences(s: &Sheet) {
    let o = operands(s, F32);
    let centred = s.sub(o.x, mean(s, o.x));
    let norm = s.op("ReduceL2").opset(13).ints("axes", &[2]).of(&[centred]);
    let variance = s.mul(s.mul(norm, norm), s.number(1.0 / 96.0));
    finish(s, s.div(centred, s.sqrt(s.add(s.number(EPSILON), variance))), &o);
}

fn mean_by_product(s: &Sheet) {
    let weights = s.table(F32, &[96, 1], |_| 1.0 / 96.0);
    with_mean(s, |x| s.matmul(x, weights));
}

fn mean_by_labels(s: &Sheet) {
    let o = operands(s, F32);
    let centred = s.sub(o.x, mean(s, o.x));
    let squares = s.op("Einsum").str("equation", "bsd,bsd->bs").of(&[centred, centred]);
    let variance = s.unsqueeze(s.div(squares, s.number(96.0)), &[2]);
    finish(s, s.div(centred, s.sqrt(s.add(variance, s.number(EPSILON)))), &o);
}

fn quotient_of_products(s: &Sheet) {
    let o = operands(s, F32);
    let centred = s.sub(o.x, mean(s, o.x));
    let root = s.sqrt(s.add(mean(s, s.mul(centred, centred)), s.number(EPSILON)));
    s.output("y", s.add(o.shift, s.div(s.mul(o.scale, centred), root)));
}
