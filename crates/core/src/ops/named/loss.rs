//! Losses of a classification.

use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::{Gather, Monoid};
use crate::tensor::{DType, Dim, Symbol};

/// The attributes of losses.
const LOSS: &[&str] = &["ignore_index", "reduction"];

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard("NegativeLogLikelihoodLoss", 12, LOSS, "−x at the target's class, weighted, reduced", |call| {
        let (x, target) = (call.input(0)?, Target::new(call)?);
        Ok(vec![target.reduce(call, -target.pick(x)?)?])
    }),
    NamedOp::standard("SoftmaxCrossEntropyLoss", 12, LOSS, "−LogSoftmax(x) at the target's class", cross_entropy),
];

fn cross_entropy<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (x, target) = (call.input(0)?, Target::new(call)?);
    // The logarithm of the probability is picked before it is computed: only a row's statistics are needed.
    let largest = x.reduce(Monoid::Max, &[1]);
    let shifted = x - largest.insert_axes(&[1]);
    let total = shifted.exp().reduce(Monoid::Sum, &[1]).log();
    let loss = total - (target.pick(x)? - largest);
    Ok(vec![target.reduce(call, loss)?, shifted - total.insert_axes(&[1])])
}

/// The classes that are wanted, and how much each counts.
struct Target<'b> {
    /// the class, 0 where the target is ignored
    class: Tensor<'b>,
    /// the weight, 0 where the target is ignored; none where all count alike
    weight: Option<Tensor<'b>>,
    /// where the target counts; none where it always does
    counts: Option<Tensor<'b>>,
}

impl<'b> Target<'b> {
    fn new(call: &Call<'_, 'b>) -> Result<Target<'b>> {
        let (x, given) = (call.input(0)?, call.input(1)?.cast(DType::I64));
        if x.rank()? < 2 || given.rank()? + 1 != x.rank()? {
            return Err(Error::invalid(format!("{} of {} with targets {}", call.op.name, x.ty()?, given.ty()?)));
        }
        let counts = call.int("ignore_index")?.map(|ignored| given.not_equal(ignored));
        let class = counts.map_or(given, |counts| counts.select(given, 0));
        let weight = match (call.optional(2), counts) {
            (Some(weights), None) => Some(weights.take(0, class)),
            (Some(weights), Some(counts)) => Some(counts.select(weights.take(0, class), 0)),
            (None, Some(counts)) => Some(counts.cast(x.dtype()?)),
            (None, None) => None,
        };
        Ok(Target { class, weight, counts })
    }

    /// The element of the target's class; classes are counted by the second axis.
    fn pick(&self, x: Tensor<'b>) -> Result<Tensor<'b>> {
        let (shape, wanted) = (x.shape()?, self.class.shape()?);
        let others = shape.dims()[..1].iter().chain(&shape.dims()[2..]);
        for (dim, other) in wanted.dims().iter().zip(others) {
            x.builder().require_equal(dim, other, "scores and their targets")?;
        }
        let class = self.class.wrap_index(&shape[1]);
        let axis = |k: usize| if k == 0 { Dim::axis(0) } else { Dim::axis(k - 1) };
        let map = (0..shape.rank()).map(|k| if k == 1 { Symbol::Read(0).into() } else { axis(k) });
        Ok(x.gather(Gather { shape: wanted, map: map.collect() }, &[class]))
    }

    /// The losses weighted and reduced as the call says.
    fn reduce(&self, call: &Call<'_, 'b>, loss: Tensor<'b>) -> Result<Tensor<'b>> {
        let all: Vec<usize> = (0..loss.rank()?).collect();
        let loss = self.counts.map_or(loss, |counts| counts.select(loss, 0));
        let loss = self.weight.map_or(loss, |weight| loss * weight);
        match call.str_or("reduction", "mean")? {
            "none" => Ok(loss),
            "sum" => Ok(loss.reduce(Monoid::Sum, &all)),
            "mean" => Ok(match self.weight {
                Some(weight) => loss.reduce(Monoid::Sum, &all) / weight.reduce(Monoid::Sum, &all),
                None => loss.mean(&all).remove_axes(&all),
            }),
            other => Err(Error::invalid(format!("attribute reduction of {} is \"{other}\"", call.op.name))),
        }
    }
}
