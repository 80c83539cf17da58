//! GELU of `[n, s, 96]`, by the error function and by the hyperbolic tangent.

use std::f64::consts::{FRAC_1_SQRT_2, PI, SQRT_2};

use fuseline::graph::Tensor;
use fuseline::tensor::DType::{F16, F32};

use super::row::x;
use super::{Sheet, spellings};

spellings! {
    "gelu_erf" {
        "f32" {
            "quotient, sum, product, half": quotient,
            "half first": half_first,
            "half of the sum": half_of_sum,
            "product for the quotient": product,
            "one on the left": one_on_the_left,
            "root of two computed": computed_root,
            "half of the quotient's factor": half_of_factor,
            "less the other tail": other_tail,
            "negated argument": negated_argument,
            "one operator": named,
            "one operator of ONNX Runtime": contributed,
        }
        "f32, of a sum" {
            "written out": biased,
            "one operator": biased_named,
        }
        "f16" {
            "converted before and after": wide,
            "one operator between conversions": wide_named,
        }
    }
    "gelu_tanh" {
        "f32" {
            "third power": third_power,
            "integer exponent": integer_exponent,
            "products": products,
            "factored": factored,
            "polynomial": polynomial,
            "half last": half_last,
            "by the sigmoid": by_sigmoid,
            "half of the sum": half_of_tanh,
            "one operator": named_tanh,
            "one operator of ONNX Runtime": contributed_tanh,
        }
    }
}

/// `1 + erf(x / √2)`.
fn twice_distribution<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.add(s.erf(s.div(x, s.number(SQRT_2))), s.number(1.0))
}

fn quotient(s: &Sheet) {
    let x = x(s);
    s.output("y", s.mul(s.mul(x, twice_distribution(s, x)), s.number(0.5)));
}

fn half_first(s: &Sheet) {
    let x = x(s);
    s.output("y", s.mul(s.mul(x, s.number(0.5)), twice_distribution(s, x)));
}

fn half_of_sum(s: &Sheet) {
    let x = x(s);
    s.output("y", s.mul(x, s.mul(s.number(0.5), twice_distribution(s, x))));
}

fn product(s: &Sheet) {
    let x = x(s);
    let sum = s.add(s.erf(s.mul(x, s.number(FRAC_1_SQRT_2))), s.number(1.0));
    s.output("y", s.mul(s.mul(s.number(0.5), x), sum));
}

fn one_on_the_left(s: &Sheet) {
    let x = x(s);
    let sum = s.add(s.number(1.0), s.erf(s.div(x, s.number(SQRT_2))));
    s.output("y", s.mul(s.mul(x, sum), s.number(0.5)));
}

fn computed_root(s: &Sheet) {
    let x = x(s);
    let sum = s.add(s.erf(s.div(x, s.sqrt(s.number(2.0)))), s.number(1.0));
    s.output("y", s.mul(s.div(x, s.number(2.0)), sum));
}

fn half_of_factor(s: &Sheet) {
    let x = x(s);
    let half = s.mul(twice_distribution(s, x), s.number(0.5));
    s.output("y", s.mul(half, x));
}

fn named(s: &Sheet) {
    s.output("y", s.call("Gelu", &[x(s)]));
}

fn contributed(s: &Sheet) {
    s.output("y", s.contributed("Gelu").of(&[x(s)]));
}

fn biased(s: &Sheet) {
    let sum = s.add(x(s), s.floats("bias", "96"));
    s.output("y", s.mul(s.mul(sum, twice_distribution(s, sum)), s.number(0.5)));
}

fn biased_named(s: &Sheet) {
    let x = x(s);
    s.output("y", s.contributed("BiasGelu").of(&[x, s.floats("bias", "96")]));
}

fn wide(s: &Sheet) {
    let x = s.cast(s.input("x", F16, "n, s, 96"), F32);
    let y = s.mul(s.mul(x, twice_distribution(s, x)), s.number(0.5));
    s.output("y", s.cast(y, F16));
}

fn wide_named(s: &Sheet) {
    let y = s.call("Gelu", &[s.cast(s.input("x", F16, "n, s, 96"), F32)]);
    s.output("y", s.cast(y, F16));
}

const CUBIC: f64 = 0.044715;

fn slope() -> f64 {
    (2.0 / PI).sqrt()
}

/// `0.5 · x · (1 + tanh(inner))`.
fn by_tanh<'s>(s: &'s Sheet, x: Tensor<'s>, inner: Tensor<'s>) {
    s.output("y", s.mul(s.mul(x, s.number(0.5)), s.add(s.tanh(inner), s.number(1.0))));
}

fn cubic<'s>(s: &'s Sheet, x: Tensor<'s>, cube: Tensor<'s>) -> Tensor<'s> {
    s.mul(s.add(x, s.mul(cube, s.number(CUBIC))), s.number(slope()))
}

fn third_power(s: &Sheet) {
    let x = x(s);
    by_tanh(s, x, cubic(s, x, s.pow(x, s.number(3.0))));
}

fn integer_exponent(s: &Sheet) {
    let x = x(s);
    by_tanh(s, x, cubic(s, x, s.pow(x, s.int(3))));
}

fn products(s: &Sheet) {
    let x = x(s);
    by_tanh(s, x, cubic(s, x, s.mul(x, s.mul(x, x))));
}

fn factored(s: &Sheet) {
    let x = x(s);
    let grown = s.add(s.number(1.0), s.mul(s.mul(s.number(CUBIC), x), x));
    by_tanh(s, x, s.mul(s.mul(x, s.number(slope())), grown));
}

fn polynomial(s: &Sheet) {
    let x = x(s);
    let square = s.mul(s.number(CUBIC * slope()), s.mul(x, x));
    by_tanh(s, x, s.mul(x, s.add(square, s.number(slope()))));
}

fn half_last(s: &Sheet) {
    let x = x(s);
    let inner = cubic(s, x, s.pow(x, s.number(3.0)));
    s.output("y", s.mul(s.number(0.5), s.mul(x, s.add(s.number(1.0), s.tanh(inner)))));
}

fn named_tanh(s: &Sheet) {
    s.output("y", s.op("Gelu").str("approximate", "tanh").of(&[x(s)]));
}

fn contributed_tanh(s: &Sheet) {
    s.output("y", s.contributed("FastGelu").of(&[x(s)]));
}

fn other_tail(s: &Sheet) {
    let x = x(s);
    let tail = s.sub(s.number(1.0), s.erf(s.div(x, s.number(SQRT_2))));
    s.output("y", s.sub(x, s.mul(s.mul(s.number(0.5), x), tail)));
}

fn negated_argument(s: &Sheet) {
    let x = x(s);
    let inside = s.erf(s.mul(x, s.number(-FRAC_1_SQRT_2)));
    s.output("y", s.mul(s.mul(x, s.number(0.5)), s.sub(s.number(1.0), inside)));
}

/// `1 + tanh(u)` is `2 · sigmoid(2 · u)`.
fn by_sigmoid(s: &Sheet) {
    let x = x(s);
    let inner = cubic(s, x, s.pow(x, s.number(3.0)));
    s.output("y", s.mul(x, s.sigmoid(s.mul(inner, s.number(2.0)))));
}

fn half_of_tanh(s: &Sheet) {
    let x = x(s);
    let inner = cubic(s, x, s.mul(s.mul(x, x), x));
    let half = s.add(s.number(0.5), s.mul(s.number(0.5), s.tanh(inner)));
    s.output("y", s.mul(x, half));
}
