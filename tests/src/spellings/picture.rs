//! Activations in networks of pictures, `[4, 64, 14, 14]`: before a depthwise convolution, before a gate of means, behind the norm of groups. An
//! activation is a few nodes, which kernels around it could divide; whichever these are, the kernels are the same.

use fuseline::graph::Tensor;
use fuseline::tensor::DType::F32;

use super::{Sheet, spellings};

spellings! {
    "picture" {
        "SiLU between convolutions" {
            "sigmoid": sigmoid_between,
            "quotient": quotient_between,
            "one over": one_over_between,
        }
        "SiLU behind a norm of groups" {
            "sigmoid": sigmoid_behind_norm,
            "quotient": quotient_behind_norm,
            "one over": one_over_behind_norm,
        }
        "GELU between convolutions" {
            "half last": half_last_between,
            "half first": half_first_between,
            "distribution first": distribution_between,
            "one operator": named_between,
        }
        "GELU before a gate" {
            "half last": half_last_gated,
            "half first": half_first_gated,
            "distribution first": distribution_gated,
            "one operator": named_gated,
        }
        "HardSwish before a gate" {
            "one operator": hard_swish_gated,
            "by its sigmoid": hard_sigmoid_gated,
        }
    }
}

const CHANNELS: usize = 64;

fn weights<'s>(s: &'s Sheet, sizes: &[usize], seed: usize) -> Tensor<'s> {
    s.table(F32, sizes, |at| {
        let place = at.iter().fold(seed, |place, k| place * 31 + k);
        ((place * 37) % 17) as f64 / 64.0 - 0.125
    })
}

fn picture(s: &Sheet) -> Tensor<'_> {
    s.floats("x", "4, 64, 14, 14")
}

/// A convolution of single pixels.
fn pointwise<'s>(s: &'s Sheet, x: Tensor<'s>, seed: usize) -> Tensor<'s> {
    let filters = weights(s, &[CHANNELS, CHANNELS, 1, 1], seed);
    s.call("Conv", &[x, filters, weights(s, &[CHANNELS], seed + 1)])
}

/// Every channel by itself, 3 × 3.
fn depthwise<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    let filters = weights(s, &[CHANNELS, 1, 3, 3], 5);
    s.op("Conv").ints("pads", &[1, 1, 1, 1]).int("group", CHANNELS as i64).of(&[x, filters, weights(s, &[CHANNELS], 6)])
}

/// A function of one tensor.
type Function = for<'s> fn(&'s Sheet, Tensor<'s>) -> Tensor<'s>;

fn between(s: &Sheet, activation: Function) {
    s.output("y", depthwise(s, activation(s, pointwise(s, picture(s), 1))));
}

fn behind_norm(s: &Sheet, activation: Function) {
    let norm = s.op("GroupNormalization").int("num_groups", 8).opset(21);
    let scale = s.table(F32, &[CHANNELS], |at| 0.75 + (at[0] % 5) as f64 / 8.0);
    let normal = norm.of(&[picture(s), scale, weights(s, &[CHANNELS], 2)]);
    s.output("y", depthwise(s, activation(s, normal)));
}

fn gated(s: &Sheet, activation: Function) {
    let y = activation(s, pointwise(s, picture(s), 1));
    let gate = s.sigmoid(pointwise(s, s.call("GlobalAveragePool", &[y]), 3));
    s.output("y", s.mul(y, gate));
}

fn sigmoid<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.mul(x, s.sigmoid(x))
}

fn one_plus_exp<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.add(s.number(1.0), s.exp(s.neg(x)))
}

fn quotient<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.div(x, one_plus_exp(s, x))
}

fn one_over<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.mul(x, s.div(s.number(1.0), one_plus_exp(s, x)))
}

/// `erf(x / √2)`.
fn erf<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.erf(s.div(x, s.number(std::f64::consts::SQRT_2)))
}

fn half_last<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.mul(s.mul(x, s.add(erf(s, x), s.number(1.0))), s.number(0.5))
}

fn half_first<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.mul(s.mul(s.number(0.5), x), s.add(s.number(1.0), erf(s, x)))
}

fn distribution<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.mul(s.add(s.number(0.5), s.mul(s.number(0.5), erf(s, x))), x)
}

fn named<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.call("Gelu", &[x])
}

fn hard_swish<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.call("HardSwish", &[x])
}

fn hard_sigmoid<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.mul(x, s.op("HardSigmoid").float("alpha", 1.0 / 6.0).float("beta", 0.5).of(&[x]))
}

macro_rules! rows {
    ($($row:ident = $place:ident, $activation:ident;)+) => {
        $(fn $row(s: &Sheet) {
            $place(s, $activation);
        })+
    };
}

rows! {
    sigmoid_between = between, sigmoid;
    quotient_between = between, quotient;
    one_over_between = between, one_over;
    sigmoid_behind_norm = behind_norm, sigmoid;
    quotient_behind_norm = behind_norm, quotient;
    one_over_behind_norm = behind_norm, one_over;
    half_last_between = between, half_last;
    half_first_between = between, half_first;
    distribution_between = between, distribution;
    named_between = between, named;
    half_last_gated = gated, half_last;
    half_first_gated = gated, half_first;
    distribution_gated = gated, distribution;
    named_gated = gated, named;
    hard_swish_gated = gated, hard_swish;
    hard_sigmoid_gated = gated, hard_sigmoid;
}
