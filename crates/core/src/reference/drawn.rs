//! Roundings drawn at random.
//!
//! A result is moved by a random part of what it may err by itself, then rounded to the digits of its type; unless it is wanted, nothing
//! leaves the range of a type that does not do so exactly. What has no more digits as it comes is not moved: no rounding has touched it, and whoever computes
//! it in another order gets it, too.

use super::{Buffer, Reading, Run, eval_contract, eval_prefix, eval_reduce};
use crate::error::Result;
use crate::ops::prim::{Contract, Monoid};
use crate::ops::{Prim, Scalar};
use crate::philox;
use crate::tensor::DType;

impl Run<'_> {
    /// Numbers from -1 to 1, others at every call.
    fn draws(&self) -> impl Iterator<Item = f64> + use<> {
        let seed = match self.reading() {
            Reading::Drawn { seed, .. } => u64::from(seed),
            _ => 0,
        };
        let stream = self.streams.get();
        self.streams.set(stream + 1);
        philox::words(seed, stream, 0).map(|word| f64::from(word as i32) / 2f64.powi(31))
    }

    /// The results of a function, each of which may err by so many roundings.
    pub(super) fn draw_call(&self, op: Scalar, dtype: DType, values: &mut [f64]) {
        use Scalar::{Abs, Cos, Erf, Max, Min, Neg, Select, Sigmoid, Sin, Tanh};
        if matches!(op, Abs | Max | Min | Neg | Select) {
            return;
        }
        let own = (0.5 + f64::from(op.def().ulp)) * dtype.epsilon();
        self.draw(dtype, values, |_, x| own * x.abs());
        if matches!(op, Cos | Erf | Sigmoid | Sin | Tanh) {
            // Whoever computes one knows this end of its range.
            values.iter_mut().for_each(|x| *x = x.clamp(-1.0, 1.0));
        }
        if matches!(self.reading(), Reading::Drawn { signs: true, .. }) {
            for (x, sign) in values.iter_mut().zip(self.draws()).filter(|(x, _)| **x == 0.0) {
                *x = 0f64.copysign(sign);
            }
        }
    }

    /// Numbers moved by a random part of how far each may be off, and rounded.
    pub(super) fn draw(&self, dtype: DType, values: &mut [f64], reach: impl Fn(usize, f64) -> f64) {
        // Of f64 nothing tells what was rounded; what has few digits was not.
        let digits = if dtype == DType::F64 { DType::F32 } else { dtype }.epsilon();
        let in_range =
            |x: f64| if matches!(self.reading(), Reading::Drawn { ranges: true, .. }) { dtype.round(x) } else { x };
        for ((k, x), part) in values.iter_mut().enumerate().zip(self.draws()) {
            if x.is_finite() && rounded(*x, digits) != *x {
                *x = rounded(*x + part * reach(k, *x), dtype.epsilon());
            }
            *x = in_range(*x);
        }
    }

    /// The results of a primitive, drawn; those of expressions and regions are already.
    pub(super) fn drawn(&self, prim: &Prim, args: &[Buffer], results: Vec<Buffer>) -> Result<Vec<Buffer>> {
        let sums: Option<(Buffer, f64)> = match prim {
            _ if results.iter().all(|result| !result.dtype().is_float()) => return Ok(results),
            Prim::Contract(row) => {
                let extent = |label: &char| row.a.iter().position(|l| l == label).map_or(1, |k| args[0].sizes()[k]);
                let length: usize = row.summed().iter().map(extent).product();
                let [a, b] = [self.squared(&args[0])?, self.squared(&args[1])?];
                let exact = Contract { accumulator: DType::F64, ..row.clone() };
                Some((eval_contract(&exact, &a, &b, self)?, row.accumulator.epsilon() * (length as f64).sqrt()))
            }
            Prim::Reduce(row) if row.monoid == Monoid::Sum => {
                let length: usize = row.axes.iter().map(|axis| args[0].sizes()[*axis]).product();
                let squares = eval_reduce(Monoid::Sum, &row.axes, &self.squared(&args[0])?, self)?;
                Some((squares, args[0].dtype().epsilon() * (length as f64).sqrt()))
            }
            Prim::Prefix(row) if row.monoid == Monoid::Sum => {
                let length = args[0].sizes()[row.axis];
                let squares = eval_prefix(Monoid::Sum, row.axis, row.exclusive, &self.squared(&args[0])?);
                Some((squares, args[0].dtype().epsilon() * (length as f64).sqrt()))
            }
            Prim::Reduce(_) | Prim::Prefix(_) | Prim::Scatter(_) | Prim::Host(_) => None,
            _ => return Ok(results),
        };
        let of = |result: Buffer| -> Result<Buffer> {
            let dtype = result.dtype();
            if !dtype.is_float() || result.is_literal() {
                return Ok(result);
            }
            let mut values = self.dense(&result)?.to_floats().into_owned();
            let own = 2.0 * dtype.epsilon();
            match &sums {
                Some((squares, rounding)) => {
                    let squares = squares.to_floats();
                    self.draw(dtype, &mut values, |k, x| {
                        rounding * squares[k].sqrt() + 0.5 * dtype.epsilon() * x.abs()
                    });
                }
                None => self.draw(dtype, &mut values, |_, x| own * x.abs()),
            }
            Ok(Buffer::floats(dtype, result.sizes().to_vec(), values))
        };
        results.into_iter().map(of).collect()
    }

    /// The squares of the elements, where there is memory for them.
    fn squared(&self, x: &Buffer) -> Result<Buffer> {
        self.reserve(x.count())?;
        let dense = self.dense(x)?;
        let squares = dense.to_floats().iter().map(|x| x * x).collect();
        Ok(Buffer::floats(DType::F64, x.sizes().to_vec(), squares))
    }
}

/// A number with as many digits as leave such a step behind 1, whatever its magnitude: what Veltkamp's splitting keeps.
fn rounded(x: f64, step: f64) -> f64 {
    let shifted = x * (step / f64::EPSILON + 1.0);
    if step > f64::EPSILON && shifted.is_finite() { shifted - (shifted - x) } else { x }
}
