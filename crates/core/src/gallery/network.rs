//! Whole networks, small ones: what there is to show where there is no file. Weights are drawn from seeds.

use std::cell::Cell;
use std::f64::consts::TAU;

use super::sketch::Sketch;
use crate::error::Result;
use crate::graph::{Graph, Tensor};
use crate::ops::named::Attribute;
use crate::tensor::{DType, Literal, Seeded, Shape};

/// A network with its weights.
#[derive(Debug)]
pub struct Network {
    /// how it is asked for
    pub name: &'static str,
    /// what it is
    pub doc: &'static str,
    draw: fn(&Net<'_>) -> Result<()>,
}

/// All networks, that which is shown first at first.
pub static NETWORKS: &[Network] = &[
    Network { name: "encoder", doc: "4 layers of a transformer encoder as BERT has them, 256 wide", draw: encoder },
    Network {
        name: "resnet",
        doc: "8 residual blocks of convolutions with batch norms, 16 to 128 channels",
        draw: resnet,
    },
    Network {
        name: "llama",
        doc: "4 layers of a decoder as Llama has them, 256 wide: RMSNorm, rotary positions, SwiGLU",
        draw: llama,
    },
    Network { name: "opt", doc: "4 layers of a decoder as OPT has them, 256 wide: norms first, ReLU", draw: opt },
];

impl Network {
    /// The network with this name.
    pub fn find(name: &str) -> Option<&'static Network> {
        NETWORKS.iter().find(|network| network.name == name)
    }

    /// The graph, in f32, with free batch and number of tokens.
    pub fn graph(&self) -> Result<Graph> {
        let sketch = Sketch::new(self.name, DType::F32)?;
        (self.draw)(&Net { sketch: &sketch, seed: Cell::new(1) })?;
        sketch.finish()
    }
}

const LAYERS: usize = 4;
const WIDTH: usize = 256;
const HEADS: i64 = 4;
const HEAD: usize = 64;
/// positions that the tables of rotary embeddings have
const POSITIONS: usize = 2048;

/// A network under construction.
struct Net<'s> {
    sketch: &'s Sketch,
    seed: Cell<u64>,
}

impl<'s> Net<'s> {
    /// Numbers between two bounds, other ones every time.
    fn drawn(&self, sizes: &[usize], low: f64, high: f64) -> Result<Tensor<'s>> {
        let seed = self.seed.replace(self.seed.get() + 1);
        Ok(self.sketch.constant(Literal::seeded(DType::F32, sizes, Seeded { seed, low, high })?))
    }

    /// Weights that keep the magnitude of what they are multiplied with.
    fn weights(&self, sizes: &[usize], terms: usize) -> Result<Tensor<'s>> {
        let bound = (3.0 / terms as f64).sqrt();
        self.drawn(sizes, -bound, bound)
    }

    fn linear(&self, x: Tensor<'s>, from: usize, to: usize) -> Result<Tensor<'s>> {
        Ok(self.sketch.linear(x, self.weights(&[from, to], from)?, self.drawn(&[to], -0.1, 0.1)?))
    }

    fn product(&self, x: Tensor<'s>, from: usize, to: usize) -> Result<Tensor<'s>> {
        Ok(self.sketch.op("MatMul", &[x, self.weights(&[from, to], from)?]))
    }

    fn layer_norm(&self, x: Tensor<'s>) -> Result<Tensor<'s>> {
        let (scale, shift) = (self.drawn(&[WIDTH], 0.5, 1.5)?, self.drawn(&[WIDTH], -0.1, 0.1)?);
        Ok(self.sketch.op_with("LayerNormalization", &[x, scale, shift], &[("axis", Attribute::Int(-1))]))
    }

    fn rms_norm(&self, x: Tensor<'s>) -> Result<Tensor<'s>> {
        let scale = self.drawn(&[WIDTH], 0.5, 1.5)?;
        Ok(self.sketch.op_with("RMSNormalization", &[x, scale], &[("axis", Attribute::Int(-1))]))
    }

    /// `[batch, tokens, width]` as `[batch, heads, tokens, size]`.
    fn split(&self, x: Tensor<'s>) -> Tensor<'s> {
        let parts = self.sketch.op("Reshape", &[x, self.sketch.ints(&[0, 0, HEADS, HEAD as i64])]);
        self.turned(parts, [0, 2, 1, 3])
    }

    fn turned(&self, x: Tensor<'s>, order: [i64; 4]) -> Tensor<'s> {
        self.sketch.op_with("Transpose", &[x], &[("perm", Attribute::Ints(order.to_vec()))])
    }

    /// Attention of queries to keys, of every token to those before it only where that is asked for, put together again.
    fn attention(&self, [q, k, v]: [Tensor<'s>; 3], is_causal: bool) -> Result<Tensor<'s>> {
        let s = self.sketch;
        let product = s.op("MatMul", &[q, self.turned(k, [0, 1, 3, 2])]);
        let mut scores = s.op("Mul", &[product, s.number(1.0 / (HEAD as f64).sqrt())]);
        if is_causal {
            let mask = s.part("CausalMask", || -> Result<Tensor<'s>> {
                let shape: Shape = scores.shape()?.dims()[2..].to_vec().into();
                let builder = scores.builder();
                Ok(builder.coordinate(1, &shape).le(builder.coordinate(0, &shape)))
            })?;
            scores = s.op("Where", &[mask, scores, s.number(f64::NEG_INFINITY)]);
        }
        let weights = s.op_with("Softmax", &[scores], &[("axis", Attribute::Int(-1))]);
        let heads = self.turned(s.op("MatMul", &[weights, v]), [0, 2, 1, 3]);
        Ok(s.op("Reshape", &[heads, s.ints(&[0, 0, WIDTH as i64])]))
    }

    fn sum(&self, x: Tensor<'s>, y: Tensor<'s>) -> Tensor<'s> {
        self.sketch.op("Add", &[x, y])
    }

    /// The tokens that go in.
    fn tokens(&self) -> Tensor<'s> {
        self.sketch.input("x", &["batch", "tokens", "256"])
    }
}

fn encoder(net: &Net<'_>) -> Result<()> {
    let mut x = net.tokens();
    for _ in 0..LAYERS {
        let [q, k, v] = [net.linear(x, WIDTH, WIDTH)?, net.linear(x, WIDTH, WIDTH)?, net.linear(x, WIDTH, WIDTH)?];
        let seen = net.attention([q, k, v].map(|part| net.split(part)), false)?;
        x = net.layer_norm(net.sum(x, net.linear(seen, WIDTH, WIDTH)?))?;
        let hidden = net.sketch.op("Gelu", &[net.linear(x, WIDTH, 4 * WIDTH)?]);
        x = net.layer_norm(net.sum(x, net.linear(hidden, 4 * WIDTH, WIDTH)?))?;
    }
    net.sketch.output("y", x);
    Ok(())
}

fn opt(net: &Net<'_>) -> Result<()> {
    let mut x = net.tokens();
    for _ in 0..LAYERS {
        let normal = net.layer_norm(x)?;
        let part = || net.linear(normal, WIDTH, WIDTH).map(|part| net.split(part));
        let seen = net.attention([part()?, part()?, part()?], true)?;
        x = net.sum(x, net.linear(seen, WIDTH, WIDTH)?);
        let hidden = net.sketch.op("Relu", &[net.linear(net.layer_norm(x)?, WIDTH, 4 * WIDTH)?]);
        x = net.sum(x, net.linear(hidden, 4 * WIDTH, WIDTH)?);
    }
    net.sketch.output("y", net.layer_norm(x)?);
    Ok(())
}

fn llama(net: &Net<'_>) -> Result<()> {
    let s = net.sketch;
    let (cosines, sines) = (s.constant(rotations(f64::cos)?), s.constant(rotations(f64::sin)?));
    let mut x = net.tokens();
    let positions = s.part("Range", || -> Result<Tensor<'_>> {
        let shape: Shape = x.shape()?.dims()[..2].to_vec().into();
        Ok(x.builder().coordinate(1, &shape))
    })?;
    for _ in 0..LAYERS {
        let normal = net.rms_norm(x)?;
        let part = || net.product(normal, WIDTH, WIDTH).map(|part| net.split(part));
        let turned = |part| s.op("RotaryEmbedding", &[part, cosines, sines, positions]);
        let seen = net.attention([turned(part()?), turned(part()?), part()?], true)?;
        x = net.sum(x, net.product(seen, WIDTH, WIDTH)?);
        let normal = net.rms_norm(x)?;
        let gate = s.silu(net.product(normal, WIDTH, 3 * WIDTH)?);
        let hidden = s.op("Mul", &[gate, net.product(normal, WIDTH, 3 * WIDTH)?]);
        x = net.sum(x, net.product(hidden, 3 * WIDTH, WIDTH)?);
    }
    s.output("y", net.rms_norm(x)?);
    Ok(())
}

/// A function of the angles by which pairs of elements are turned, for every position.
fn rotations(of: fn(f64) -> f64) -> Result<Literal> {
    let pairs = HEAD / 2;
    let angle = |k: usize| (k / pairs) as f64 * 10_000f64.powf(-((k % pairs) as f64) / pairs as f64) % TAU;
    let values: Vec<f64> = (0..POSITIONS * pairs).map(|k| of(angle(k))).collect();
    Literal::from_f64s(DType::F32, [POSITIONS, pairs], &values)
}

fn resnet(net: &Net<'_>) -> Result<()> {
    let s = net.sketch;
    let image = s.input("x", &["batch", "3", "64", "64"]);
    let mut x = s.op("Relu", &[convolution(net, image, [3, 16], 3, 1)?]);
    let mut channels = 16;
    for wide in [16, 32, 64, 128] {
        for stride in [if wide == 16 { 1 } else { 2 }, 1] {
            let hidden = s.op("Relu", &[convolution(net, x, [channels, wide], 3, stride)?]);
            let direct = if channels == wide { x } else { convolution(net, x, [channels, wide], 1, stride)? };
            x = s.op("Relu", &[net.sum(convolution(net, hidden, [wide, wide], 3, 1)?, direct)]);
            channels = wide;
        }
    }
    let means = s.op_with("Flatten", &[s.op("GlobalAveragePool", &[x])], &[("axis", Attribute::Int(1))]);
    s.output("y", net.linear(means, channels, 100)?);
    Ok(())
}

/// A convolution with square filters, and a batch norm.
fn convolution<'s>(
    net: &Net<'s>,
    x: Tensor<'s>,
    [from, to]: [usize; 2],
    size: usize,
    stride: i64,
) -> Result<Tensor<'s>> {
    let filters = net.weights(&[to, from, size, size], from * size * size)?;
    let pads = Attribute::Ints(vec![(size / 2) as i64; 4]);
    let strides = Attribute::Ints(vec![stride; 2]);
    let y = net.sketch.op_with("Conv", &[x, filters], &[("pads", pads), ("strides", strides)]);
    let scale = [net.drawn(&[to], 0.5, 1.5)?, net.drawn(&[to], -0.1, 0.1)?];
    let statistics = [net.drawn(&[to], -0.1, 0.1)?, net.drawn(&[to], 0.5, 1.5)?];
    Ok(net.sketch.op("BatchNormalization", &[y, scale[0], scale[1], statistics[0], statistics[1]]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks_have_weights_and_free_sizes() {
        for network in NETWORKS {
            let graph = network.graph().unwrap_or_else(|error| panic!("{}: {error}", network.name));
            assert_eq!((graph.inputs().len(), graph.outputs().len()), (1, 1), "{}", network.name);
            assert!(graph.ty(graph.inputs()[0]).shape.dims()[0].as_symbol().is_some(), "{}", network.name);
            assert!(graph.nodes().len() > 100, "{}", network.name);
        }
        assert!(Network::find("opt").is_some() && Network::find("nothing").is_none());
    }
}
