//! The gradients of LayerNorm: of the operand, a row at a time; of scale and shift, sums over all rows.

use fuseline::graph::Tensor;
use fuseline::graph::gradient::gradients;

use super::{Sheet, spellings};

spellings! {
    "layer_norm_backward" {
        "from saved statistics" {
            "row sums, as ATen": row_sums,
            "row means": row_means,
            "rows flattened": flattened,
        }
        "from the operand" {
            "derived": derived,
        }
    }
}

struct Operands<'s> {
    /// the gradient of the result
    dy: Tensor<'s>,
    x: Tensor<'s>,
    mean: Tensor<'s>,
    /// one over the root of the variance
    inverse: Tensor<'s>,
    scale: Tensor<'s>,
}

fn operands(s: &Sheet) -> Operands<'_> {
    Operands {
        dy: s.floats("dy", "n, s, 96"),
        x: s.floats("x", "n, s, 96"),
        mean: s.floats("mean", "n, s, 1"),
        inverse: s.floats("inverse", "n, s, 1"),
        scale: s.floats("scale", "96"),
    }
}

fn parameters<'s>(s: &'s Sheet, o: &Operands<'s>, normalized: Tensor<'s>) {
    let sum = |x| s.op("ReduceSum").int("keepdims", 0).of(&[x, s.ints(&[0, 1])]);
    s.output("dscale", sum(s.mul(o.dy, normalized)));
    s.output("dshift", sum(o.dy));
}

fn row_sums(s: &Sheet) {
    let o = operands(s);
    let normalized = s.mul(s.sub(o.x, o.mean), o.inverse);
    let weighted = s.mul(o.dy, o.scale);
    let sum = |x| s.reduce("ReduceSum", x, -1);
    let (a, b) = (s.mul(weighted, s.number(96.0)), sum(weighted));
    let c = s.mul(normalized, sum(s.mul(weighted, normalized)));
    let factor = s.div(o.inverse, s.number(96.0));
    s.output("dx", s.mul(factor, s.sub(s.sub(a, b), c)));
    parameters(s, &o, normalized);
}

fn row_means(s: &Sheet) {
    let o = operands(s);
    let normalized = s.mul(s.sub(o.x, o.mean), o.inverse);
    let weighted = s.mul(o.scale, o.dy);
    let mean = |x| s.reduce("ReduceMean", x, -1);
    let centred = s.sub(s.sub(weighted, mean(weighted)), s.mul(normalized, mean(s.mul(weighted, normalized))));
    s.output("dx", s.mul(centred, o.inverse));
    parameters(s, &o, normalized);
}

fn flattened(s: &Sheet) {
    let o = operands(s);
    let rows = |x| s.reshape(x, &[-1, 96]);
    let column = |x| s.reshape(x, &[-1, 1]);
    let (dy, x) = (rows(o.dy), rows(o.x));
    let normalized = s.mul(s.sub(x, column(o.mean)), column(o.inverse));
    let weighted = s.mul(dy, o.scale);
    let mean = |x| s.reduce("ReduceMean", x, 1);
    let centred = s.sub(s.sub(weighted, mean(weighted)), s.mul(normalized, mean(s.mul(weighted, normalized))));
    let dx = s.mul(centred, column(o.inverse));
    s.output("dx", s.call("Reshape", &[dx, s.call("Shape", &[o.x])]));
    let sum = |x| s.op("ReduceSum").int("keepdims", 0).of(&[x, s.ints(&[0])]);
    s.output("dscale", sum(s.mul(dy, normalized)));
    s.output("dshift", sum(dy));
}

/// What the gradient rules make of the operator.
fn derived(s: &Sheet) {
    let (x, scale, shift) = (s.floats("x", "n, s, 96"), s.floats("scale", "96"), s.floats("shift", "96"));
    let y = s.op("LayerNormalization").of(&[x, scale, shift]);
    let total = s.mul(y, s.floats("dy", "n, s, 96")).sum(&[0, 1, 2]).remove_axes(&[0, 1, 2]);
    match gradients(total, &[x, scale, shift]) {
        Ok(found) => {
            for (name, gradient) in ["dx", "dscale", "dshift"].into_iter().zip(found) {
                s.output(name, gradient);
            }
        }
        Err(error) => s.output("dx", s.builder().fail(error)),
    }
}
