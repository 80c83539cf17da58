//! Row 12: convolutions of images with what stands behind them.

use super::Entry;
use super::sketch::Sketch;
use crate::graph::Tensor;
use crate::ops::named::Attribute;

const IMAGES: &[(&str, i64)] = &[("batch", 1), ("channels", 32), ("height", 28), ("width", 28), ("filters", 32)];

pub(super) static ENTRIES: &[Entry] = &[
    Entry::new(12, "conv_bn_relu", "relu(batchnorm(conv(x, w))), 3 × 3, statistics given", IMAGES, |s| {
        let [gamma, beta, mean, var] = ["gamma", "beta", "mean", "var"].map(|name| s.input(name, &["filters"]));
        let y = conv(s, &[]);
        s.output("y", s.op("Relu", &[s.op("BatchNormalization", &[y, gamma, beta, mean, var])]));
        Ok(())
    })
    .with_positive(&["var"]),
    Entry::new(12, "conv_bias_relu", "relu(conv(x, w) + b), 3 × 3", IMAGES, |s| {
        s.output("y", s.op("Relu", &[conv(s, &[s.input("b", &["filters"])])]));
        Ok(())
    }),
];

/// A convolution with 3 × 3 filters that keeps height and width.
fn conv<'s>(s: &'s Sketch, bias: &[Tensor<'s>]) -> Tensor<'s> {
    let x = s.input("x", &["batch", "channels", "height", "width"]);
    let w = s.input("w", &["filters", "channels", "3", "3"]);
    let inputs: Vec<Tensor<'s>> = [x, w].into_iter().chain(bias.iter().copied()).collect();
    s.op_with("Conv", &inputs, &[("pads", Attribute::Ints(vec![1; 4]))])
}
