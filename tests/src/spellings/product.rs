//! Products of `[n, s, 96]` with weights, and what runs along their rows: whichever factor is written first, the rows are those of the result.

use fuseline::graph::Tensor;
use fuseline::tensor::DType::F32;

use super::{Sheet, spellings};

spellings! {
    "product and norm" {
        "f32" {
            "product of matrices": matrices,
            "sums with labels": labels,
            "sums with labels, weights first": labels_weights_first,
        }
    }
    "product and softmax" {
        "f32" {
            "product of matrices": softmax_of_matrices,
            "sums with labels, weights first": softmax_of_labels,
        }
    }
    "angles" {
        "positions times frequencies" {
            "positions in front": positions_in_front,
            "frequencies in front": frequencies_in_front,
            "product of matrices": positions_by_frequencies,
        }
    }
}

fn factors(s: &Sheet) -> [Tensor<'_>; 2] {
    let weights = s.table(F32, &[96, 64], |at| ((at[0] * 37 + at[1] * 11) % 17) as f64 / 64.0 - 0.125);
    [s.floats("x", "n, s, 96"), weights]
}

/// A bias, what came in, a norm.
fn norm<'s>(s: &'s Sheet, product: Tensor<'s>) {
    let [bias, scale, shift] = ["bias", "scale", "shift"].map(|name| s.floats(name, "64"));
    let sum = s.add(s.add(product, bias), s.floats("residual", "n, s, 64"));
    s.output("y", s.call("LayerNormalization", &[sum, scale, shift]));
}

fn softmax<'s>(s: &'s Sheet, product: Tensor<'s>) {
    s.output("y", s.op("Softmax").int("axis", -1).of(&[product]));
}

fn by_matrices(s: &Sheet) -> Tensor<'_> {
    let [x, w] = factors(s);
    s.matmul(x, w)
}

fn by_labels<'s>(s: &'s Sheet, equation: &str, weights_first: bool) -> Tensor<'s> {
    let [x, w] = factors(s);
    s.op("Einsum").str("equation", equation).of(&if weights_first { [w, x] } else { [x, w] })
}

fn matrices(s: &Sheet) {
    norm(s, by_matrices(s));
}

fn labels(s: &Sheet) {
    norm(s, by_labels(s, "abc,cd->abd", false));
}

fn labels_weights_first(s: &Sheet) {
    norm(s, by_labels(s, "cd,abc->abd", true));
}

fn softmax_of_matrices(s: &Sheet) {
    softmax(s, by_matrices(s));
}

fn softmax_of_labels(s: &Sheet) {
    softmax(s, by_labels(s, "cd,abc->abd", true));
}

/// The sine and the cosine of angles, as many rows of them as `x` has.
fn tables<'s>(s: &'s Sheet, angles: impl FnOnce(Tensor<'s>, Tensor<'s>) -> Tensor<'s>) {
    let x = s.floats("x", "s, 48");
    let rows = s.slice(s.call("Shape", &[x]), 0, 0, 1);
    let positions = s.call("Range", &[s.int(0), s.call("Squeeze", &[rows]), s.int(1)]);
    let angles = angles(s.cast(positions, F32), s.floats("frequencies", "48"));
    s.output("sin", s.call("Sin", &[angles]));
    s.output("cos", s.call("Cos", &[angles]));
    s.output("y", x);
}

fn positions_in_front(s: &Sheet) {
    tables(s, |positions, frequencies| s.mul(s.unsqueeze(positions, &[1]), frequencies));
}

fn frequencies_in_front(s: &Sheet) {
    tables(s, |positions, frequencies| s.mul(s.unsqueeze(frequencies, &[0]), s.unsqueeze(positions, &[1])));
}

fn positions_by_frequencies(s: &Sheet) {
    tables(s, |positions, frequencies| s.matmul(s.unsqueeze(positions, &[1]), s.unsqueeze(frequencies, &[0])));
}
