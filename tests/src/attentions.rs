//! Attention in all its variety: what exporters and papers put around two products and a softmax, drawn at random.
//!
//! [`attentions`] is a proptest strategy. Shrinking goes towards plain attention of few tokens.

use std::sync::Arc;

use fuseline::error::Result;
use fuseline::graph::{Builder, Graph, Tensor};
use fuseline::ops::prim::{Monoid, View};
use fuseline::philox;
use fuseline::tensor::{DType, Dim, Env, Literal, Shape, Symbol};
use proptest::prelude::*;

use crate::generate::{Case, Inputs};

/// How queries and keys are told whom to see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mask {
    None,
    /// numbers for every query and key, some of them −∞
    Added,
    /// truth for every query and key; a query may see nothing
    Chosen,
    /// the same as −∞ that is added
    ChosenAdded,
    /// truth for every key of a batch
    Keys,
    /// how many keys of a batch there are; perhaps none
    Lengths,
    /// every token sees itself and those before it
    Causal,
    /// and not too long before it
    Window,
    /// the farther, the less
    Slopes,
}

/// Where the scores are scaled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Scale {
    Scores,
    Queries,
    Keys,
    Divided,
    Both,
}

/// How probabilities are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Softmax {
    Shifted,
    /// without subtracting the largest
    Bare,
    /// times one over the sum
    Reciprocal,
    /// the exponential of its logarithm
    Logarithm,
    /// divided after the second product
    Late,
}

/// What stands against rows that see nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Guard {
    None,
    NotANumber,
    /// rows whose mask is empty
    Empty,
}

/// What happens to the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Plain,
    /// heads side by side
    Merged,
    Projected,
    Gated,
    Short,
}

/// Which sizes are known to the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Known {
    Nothing,
    Everything,
}

/// What a graph of attention consists of.
#[derive(Clone, Debug)]
struct Variant {
    mask: Mask,
    scale: Scale,
    softmax: Softmax,
    guard: Guard,
    end: End,
    known: Known,
    dtype: DType,
    /// queries for each key head
    group: i64,
    /// heads lie behind tokens
    packed: bool,
    /// keys and values from before; whether the longer ones are results too
    past: Option<bool>,
    softcap: bool,
    /// the softmax is computed in f32
    wide: bool,
    /// some probabilities are dropped
    drops: bool,
    /// a fold of the scores is a result, too: over keys, or over queries
    beside: Option<(Monoid, usize)>,
    /// batch, key heads, queries, keys, size of a head, size of a value
    sizes: [i64; 6],
}

/// Random graphs of attention, with inputs.
pub fn attentions() -> impl Strategy<Value = Case> {
    let what = (
        prop::sample::select(vec![
            Mask::None,
            Mask::Added,
            Mask::Chosen,
            Mask::ChosenAdded,
            Mask::Keys,
            Mask::Lengths,
            Mask::Causal,
            Mask::Window,
            Mask::Slopes,
        ]),
        prop::sample::select(vec![Scale::Scores, Scale::Queries, Scale::Keys, Scale::Divided, Scale::Both]),
        prop::sample::select(vec![
            Softmax::Shifted,
            Softmax::Bare,
            Softmax::Reciprocal,
            Softmax::Late,
            Softmax::Logarithm,
        ]),
        prop::sample::select(vec![Guard::None, Guard::NotANumber, Guard::Empty]),
        prop::sample::select(vec![End::Plain, End::Merged, End::Projected, End::Gated, End::Short]),
        prop::sample::select(vec![Known::Nothing, Known::Everything]),
        prop::sample::select(vec![DType::F32, DType::F16, DType::BF16]),
    );
    let how = (
        prop::sample::select(vec![1i64, 2, 3]),
        any::<bool>(),
        prop::sample::select(vec![None, Some(false), Some(true)]),
        prop::sample::select(vec![false, false, true]),
        any::<bool>(),
        prop::sample::select(vec![false, false, false, true]),
        prop::sample::select(vec![
            None,
            None,
            Some((Monoid::ArgMax, 3)),
            Some((Monoid::ArgMin, 3)),
            Some((Monoid::ArgMaxLast, 2)),
            Some((Monoid::Max, 3)),
            Some((Monoid::Sum, 2)),
        ]),
    );
    let sizes = (
        prop::sample::select(vec![1i64, 2, 3, 0]),
        prop::sample::select(vec![1i64, 2]),
        prop::sample::select(vec![2i64, 1, 3, 5]),
        prop::sample::select(vec![3i64, 1, 2, 5, 6]),
        prop::sample::select(vec![2i64, 1, 3, 5]),
        prop::sample::select(vec![2i64, 1, 3]),
    );
    (what, how, sizes).prop_map(|(what, how, (b, h, s, t, d, e))| {
        let (mask, scale, softmax, guard, end, known, dtype) = what;
        let (group, packed, past, softcap, wide, drops, beside) = how;
        let sizes = [b, h, s, t, d, e];
        // A row that sees nothing is NaN, and 0 where all of that is dropped; real algebra need not tell these apart.
        let guard = if drops { Guard::NotANumber } else { guard };
        let variant = Variant {
            mask,
            scale,
            softmax,
            guard,
            end,
            known,
            dtype,
            group,
            packed,
            past,
            softcap,
            wide,
            drops,
            beside,
            sizes,
        };
        variant.case()
    })
}

/// Keys from before.
const PAST: i64 = 2;

impl Variant {
    fn case(&self) -> Case {
        let builder = Builder::new("attention");
        let written = self.write(&builder);
        builder.settle(written.map(|()| builder.poison()));
        let graph = builder.finish().unwrap_or_else(|e| panic!("{self:?}: {e}"));
        Case { inputs: self.inputs(&graph), graph }
    }

    /// A size, as a name or as a number.
    fn size(&self, name: &str) -> Dim {
        match self.known {
            Known::Nothing => Dim::named(name),
            Known::Everything => Dim::int(self.number(name)),
        }
    }

    fn number(&self, name: &str) -> i64 {
        let names = ["b", "h", "s", "t", "d", "e"];
        match names.iter().position(|n| *n == name) {
            Some(k) => self.sizes[k],
            None => PAST,
        }
    }

    /// An input of heads `[batch, heads, tokens, size]`, however it lies.
    fn heads<'b>(&self, b: &'b Builder, name: &str, heads: i64, tokens: &str, size: &str) -> Tensor<'b> {
        let [batch, tokens, size] = [self.size("b"), self.size(tokens), Dim::int(self.number(size))];
        match self.packed {
            true => {
                let flat = b.input(name, self.dtype, vec![batch.clone(), tokens.clone(), &size * heads]);
                flat.reshape(vec![batch, tokens, Dim::int(heads), size]).permute(&[0, 2, 1, 3])
            }
            false => b.input(name, self.dtype, vec![batch, Dim::int(heads), tokens, size]),
        }
    }

    fn write(&self, b: &Builder) -> Result<()> {
        let own = self.number("h");
        let heads = own * self.group;
        // A causal mask speaks of the same tokens.
        let square = matches!(self.mask, Mask::Causal | Mask::Window);
        let keys = if square { "s" } else { "t" };
        let q = self.heads(b, "q", heads, "s", "d");
        let [mut k, mut v] = [("k", "d"), ("v", "e")].map(|(name, size)| self.heads(b, name, own, keys, size));
        let mut offset = Dim::int(0);
        if let Some(returned) = self.past {
            offset = self.size("p");
            let before = |name: &str, size: &str| {
                let size = Dim::int(self.number(size));
                b.input(name, self.dtype, vec![self.size("b"), Dim::int(own), offset.clone(), size])
            };
            k = b.concat(&[before("past_k", "d"), k], 2);
            v = b.concat(&[before("past_v", "e"), v], 2);
            if returned {
                b.output("present_k", k);
                b.output("present_v", v);
            }
        }
        let (k, v) = (self.repeat(k)?, self.repeat(v)?);
        let scores = self.scores(q, k)?;
        if let Some((monoid, axis)) = self.beside {
            b.output("beside", scores.reduce(monoid, &[axis]));
        }
        let (scores, seen) = self.masked(b, scores, &offset)?;
        let y = self.weighed(b, scores, seen, v)?;
        self.finish(b, y)
    }

    /// Every key head for its group of queries.
    fn repeat<'b>(&self, x: Tensor<'b>) -> Result<Tensor<'b>> {
        let mut dims = x.shape()?.dims().to_vec();
        dims[1] = &dims[1] * self.group;
        let map = vec![Dim::axis(0), Dim::axis(1).floordiv(&Dim::int(self.group)), Dim::axis(2), Dim::axis(3)];
        Ok(if self.group == 1 { x } else { x.view(View::new(dims.into(), map)) })
    }

    fn scores<'b>(&self, q: Tensor<'b>, k: Tensor<'b>) -> Result<Tensor<'b>> {
        let product = |q: Tensor<'b>, k: Tensor<'b>| q.matmul(k.permute(&[0, 1, 3, 2]));
        let scale = (self.number("d") as f64).sqrt().recip();
        let scaled = match self.scale {
            Scale::Scores => product(q, k) * scale,
            Scale::Queries => product(q * scale, k),
            Scale::Keys => product(q, k * scale),
            Scale::Divided => product(q, k) / scale.recip(),
            Scale::Both => product(q * scale.sqrt(), k * scale.sqrt()),
        };
        let scaled = if self.wide { scaled.cast(DType::F32) } else { scaled };
        Ok(if self.softcap { (scaled / 3.0).tanh() * 3.0 } else { scaled })
    }

    /// The scores with the mask applied, and the truth of the mask where it has one.
    fn masked<'b>(&self, b: &'b Builder, scores: Tensor<'b>, past: &Dim) -> Result<(Tensor<'b>, Option<Tensor<'b>>)> {
        let (dtype, [rows, columns]) = (scores.dtype()?, [scores.dim(2)?, scores.dim(3)?]);
        let plane = Shape::from(vec![rows, columns.clone()]);
        let distance = b.index(&(Dim::axis(0) + past - Dim::axis(1)), &plane);
        let hidden = f64::NEG_INFINITY;
        let seen = match self.mask {
            Mask::None => return Ok((scores, None)),
            Mask::Added => return Ok((scores + b.input("mask", dtype, plane), None)),
            Mask::Slopes => {
                let slopes = b.input("slopes", dtype, vec![scores.dim(1)?]).insert_axes(&[1, 2]);
                return Ok((scores - distance.cast(dtype) * slopes, None));
            }
            Mask::Chosen | Mask::ChosenAdded => b.input("seen", DType::Bool, plane),
            Mask::Keys => b.input("seen", DType::Bool, vec![scores.dim(0)?, columns]).insert_axes(&[1, 2]),
            Mask::Lengths => {
                let lengths = b.input("lengths", DType::I64, vec![scores.dim(0)?]).insert_axes(&[1, 2, 3]);
                b.coordinate(0, &vec![columns].into()).lt(lengths)
            }
            Mask::Causal => distance.ge(0i64),
            Mask::Window => distance.ge(0i64).and(distance.lt(2i64)),
        };
        let seen = seen.expand(scores.shape()?);
        let masked = match self.mask {
            Mask::ChosenAdded => scores + seen.select(b.scalar(dtype, 0.0).expand(scores.shape()?), hidden),
            _ => seen.select(scores, hidden),
        };
        Ok((masked, Some(seen)))
    }

    fn weighed<'b>(
        &self,
        b: &'b Builder,
        scores: Tensor<'b>,
        seen: Option<Tensor<'b>>,
        v: Tensor<'b>,
    ) -> Result<Tensor<'b>> {
        let below = match self.softmax {
            Softmax::Bare => scores,
            _ => scores - scores.reduce_keep(Monoid::Max, &[3]),
        };
        let e = below.exp();
        let sum = e.sum(&[3]);
        let mut p = match self.softmax {
            Softmax::Shifted | Softmax::Bare => e / sum,
            Softmax::Reciprocal => e * sum.recip(),
            Softmax::Logarithm => (below - sum.log()).exp(),
            Softmax::Late => e,
        };
        p = match (self.guard, seen) {
            (Guard::NotANumber, _) => p.is_nan().select(b.scalar(p.dtype()?, 0.0).expand(p.shape()?), p),
            (Guard::Empty, Some(seen)) => {
                let any = seen.reduce_keep(Monoid::Max, &[3]).expand(p.shape()?);
                any.select(p, 0.0)
            }
            _ => p,
        };
        if self.drops {
            let kept = b.uniform(b.int(DType::I64, 7), DType::F32, p.shape()?).lt(0.75);
            p = kept.select(p, 0.0) / 0.75;
        }
        let y = p.cast(v.dtype()?).matmul(v);
        Ok(if self.softmax == Softmax::Late { y / sum.cast(y.dtype()?) } else { y })
    }

    fn finish<'b>(&self, b: &'b Builder, y: Tensor<'b>) -> Result<()> {
        let shape = y.shape()?;
        let width = &shape[1] * &shape[3];
        let merged = || y.permute(&[0, 2, 1, 3]).reshape(vec![shape[0].clone(), shape[2].clone(), width.clone()]);
        b.output(
            "y",
            match self.end {
                End::Plain => y,
                End::Merged => merged(),
                End::Projected => {
                    let w = b.input("w", self.dtype, vec![width.clone(), Dim::int(3)]);
                    merged().matmul(w) + b.input("bias", self.dtype, vec![Dim::int(3)])
                }
                End::Gated => y * b.input("gate", self.dtype, shape).sigmoid(),
                End::Short => merged().cast(DType::BF16),
            },
        );
        Ok(())
    }

    fn inputs(&self, graph: &Graph) -> Inputs {
        let names = ["b", "h", "s", "t", "d", "e", "p"];
        let env: Env = names.iter().map(|name| (Symbol::name(name), self.number(name))).collect();
        let input = |(stream, value): (usize, &fuseline::graph::Value)| {
            let (name, ty) = (graph.input_name(*value), graph.ty(*value));
            let sizes = ty.shape.eval(&env).expect("all sizes are bound");
            let keys = sizes.last().copied().unwrap_or(1).max(1);
            let values = (0..sizes.iter().product()).map(|k: usize| {
                let word = philox::word(11, stream as u64, k as u64);
                let noise = f64::from(word % 1000) / 250.0 - 2.0;
                match name.as_ref() {
                    // Every second row sees nothing at all.
                    "seen" => f64::from(u8::from(word % 5 > 1 && (k / keys).is_multiple_of(2))),
                    "mask" if word.is_multiple_of(3) || (k / keys) % 3 == 2 => f64::NEG_INFINITY,
                    "lengths" => f64::from(word % 4),
                    "slopes" => noise.abs() / 8.0,
                    _ => noise,
                }
            });
            let values: Vec<f64> = values.collect();
            (Arc::clone(name), Literal::from_f64s(ty.dtype, sizes, &values).expect("as many as the sizes say"))
        };
        graph.inputs().iter().enumerate().map(input).collect()
    }
}
