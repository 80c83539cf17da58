//! Normalisation of groups of channels of `[n, 32, s]`, eight channels to a group.

use fuseline::graph::Tensor;
use fuseline::tensor::DType::F32;

use super::{Sheet, spellings};

spellings! {
    "group_norm" {
        "f32" {
            "one operator": named,
            "by the norm of instances": by_instances,
            "written out": written_out,
            "over two axes": two_axes,
            "rows of groups by the norm of layers": by_layers,
        }
    }
}

const EPSILON: f64 = 1e-5;

fn operands(s: &Sheet) -> [Tensor<'_>; 3] {
    [s.floats("x", "n, 32, s"), s.floats("scale", "32"), s.floats("shift", "32")]
}

fn affine<'s>(s: &'s Sheet, normalized: Tensor<'s>, scale: Tensor<'s>, shift: Tensor<'s>) {
    let column = |x| s.unsqueeze(x, &[1]);
    s.output("y", s.add(s.mul(normalized, column(scale)), column(shift)));
}

fn like<'s>(s: &'s Sheet, x: Tensor<'s>, model: Tensor<'s>) -> Tensor<'s> {
    s.call("Reshape", &[x, s.call("Shape", &[model])])
}

fn named(s: &Sheet) {
    let operands = operands(s);
    s.output("y", s.op("GroupNormalization").int("num_groups", 4).float("epsilon", EPSILON).of(&operands));
}

/// As PyTorch exports it.
fn by_instances(s: &Sheet) {
    let [x, scale, shift] = operands(s);
    let groups = s.reshape(x, &[0, 4, -1]);
    let [ones, zeros] = [1.0, 0.0].map(|value| s.table(F32, &[4], |_| value));
    let y = s.op("InstanceNormalization").float("epsilon", EPSILON).of(&[groups, ones, zeros]);
    affine(s, like(s, y, x), scale, shift);
}

fn standardized<'s>(s: &'s Sheet, x: Tensor<'s>, axes: &[i64]) -> Tensor<'s> {
    let mean = |x| s.call("ReduceMean", &[x, s.ints(axes)]);
    let centred = s.sub(x, mean(x));
    let variance = mean(s.mul(centred, centred));
    s.div(centred, s.sqrt(s.add(variance, s.number(EPSILON))))
}

fn written_out(s: &Sheet) {
    let [x, scale, shift] = operands(s);
    let y = standardized(s, s.reshape(x, &[0, 4, -1]), &[2]);
    affine(s, like(s, y, x), scale, shift);
}

fn two_axes(s: &Sheet) {
    let [x, scale, shift] = operands(s);
    let y = standardized(s, s.reshape(x, &[0, 4, 8, -1]), &[-1, -2]);
    affine(s, like(s, y, x), scale, shift);
}

fn by_layers(s: &Sheet) {
    let [x, scale, shift] = operands(s);
    let length = s.mul(s.int(8), s.size(x, 2));
    let rows = s.call("Reshape", &[x, s.vector(&[s.int(-1), length])]);
    let y = standardized(s, rows, &[1]);
    affine(s, like(s, y, x), scale, shift);
}
