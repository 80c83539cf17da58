//! Roundings drawn at random.
//!
//! A result is moved by a random part of what it may err by itself, then rounded to the digits of its type; unless it is wanted, nothing
//! leaves the range of a type that does not do so exactly. What has no more digits as it comes is not moved: no rounding has touched it, and whoever computes
//! it in another order gets it, too; but for quotients, which may be products with a reciprocal that is rounded.
//!
//! In every other draw equal numbers err equally, as they do wherever the same code computes them, and what computes them changes somewhere, as it does
//! behind the last whole vector of a row.

use std::borrow::Cow;

use super::{Buffer, Reading, Run, eval_contract, eval_prefix, eval_reduce};
use crate::error::Result;
use crate::ops::prim::{Contract, Monoid};
use crate::ops::{Prim, Scalar};
use crate::philox;
use crate::tensor::DType;

impl Run<'_> {
    fn seed(&self) -> u64 {
        match self.reading() {
            Reading::Drawn { seed, .. } => u64::from(seed),
            _ => 0,
        }
    }

    /// The number of a call that draws.
    fn stream(&self) -> u64 {
        let stream = self.streams.get();
        self.streams.set(stream + 1);
        stream
    }

    /// Numbers from -1 to 1, others at every call.
    fn draws(&self) -> impl Iterator<Item = f64> + use<> {
        philox::words(self.seed(), self.stream(), 0).map(part_of)
    }

    /// Which part of what it may err by each number is moved.
    fn parts(&self, values: &[f64]) -> Vec<f64> {
        let seed = self.seed();
        if seed.is_multiple_of(2) {
            return self.draws().take(values.len()).collect();
        }
        let stream = self.stream();
        let [length, first] = [0, 1].map(|k| philox::word(seed, stream, k));
        // Of any magnitude: rows may be short or long. Blocks often begin with the first element.
        let length = 1u64 << (length % 12);
        let before = if seed % 4 == 1 { 0 } else { u64::from(first) % length };
        let code = |k: usize| (k as u64 + before) / length;
        let part = |(k, x): (usize, &f64)| part_of(philox::word(seed, stream ^ (code(k) + 1) << 32, x.to_bits()));
        values.iter().enumerate().map(part).collect()
    }

    /// The results of a function, each of which may err by so many roundings.
    pub(super) fn draw_call(&self, op: Scalar, dtype: DType, operands: &[Cow<'_, [f64]>], values: &mut [f64]) {
        use Scalar::{Abs, Cos, Erf, Max, Min, Neg, Select, Sigmoid, Sin, Tanh};
        if matches!(op, Abs | Max | Min | Neg | Select) {
            return;
        }
        let own = (0.5 + f64::from(op.def().ulp)) * dtype.epsilon();
        let is_rounded = |k: usize| op == Scalar::Div && !is_power_of_two(operands[1][k]);
        self.draw_where(dtype, values, is_rounded, |_, x| own * x.abs());
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
        self.draw_where(dtype, values, |_| false, reach);
    }

    /// The same, where some were rounded although it does not show.
    fn draw_where(
        &self,
        dtype: DType,
        values: &mut [f64],
        is_rounded: impl Fn(usize) -> bool,
        reach: impl Fn(usize, f64) -> f64,
    ) {
        // Of f64 nothing tells what was rounded; what has few digits was not.
        let digits = if dtype == DType::F64 { DType::F32 } else { dtype }.epsilon();
        let in_range =
            |x: f64| if matches!(self.reading(), Reading::Drawn { ranges: true, .. }) { dtype.round(x) } else { x };
        let parts = self.parts(values);
        for ((k, x), part) in values.iter_mut().enumerate().zip(parts) {
            if x.is_finite() && (is_rounded(k) || rounded(*x, digits) != *x) {
                *x = rounded(*x + part * reach(k, *x), dtype.epsilon());
            }
            *x = in_range(*x);
        }
    }

    /// The results of a primitive, drawn; those of expressions and regions are already.
    pub(super) fn drawn(&self, prim: &Prim, args: &[Buffer], results: Vec<Buffer>) -> Result<Vec<Buffer>> {
        if results.iter().all(|result| !result.dtype().is_float()) {
            return Ok(results);
        }
        let sums = self.sums(prim, args)?;
        if sums.is_none() && !matches!(prim, Prim::Reduce(_) | Prim::Prefix(_) | Prim::Scatter(_) | Prim::Host(_)) {
            return Ok(results);
        }
        let of = |result: Buffer| -> Result<Buffer> {
            let dtype = result.dtype();
            if !dtype.is_float() || result.is_literal() {
                return Ok(result);
            }
            let mut values = self.dense(&result)?.to_floats().into_owned();
            let own = 2.0 * dtype.epsilon();
            match &sums {
                Some(Sums { squares, magnitudes, rounding, accumulator }) => {
                    let (squares, exact) = (squares.to_floats(), magnitudes.as_ref().map(|_| values.clone()));
                    self.draw(dtype, &mut values, |k, x| {
                        rounding * squares[k].sqrt() + 0.5 * dtype.epsilon() * x.abs()
                    });
                    if let (Some(magnitudes), Some(exact)) = (magnitudes, exact) {
                        self.draw_overflow(*accumulator, &exact, &magnitudes.to_floats(), &mut values);
                    }
                }
                None => self.draw(dtype, &mut values, |_, x| own * x.abs()),
            }
            Ok(Buffer::floats(dtype, result.sizes().to_vec(), values))
        };
        results.into_iter().map(of).collect()
    }

    /// What is known of the terms that a primitive sums up; none where it does not.
    fn sums(&self, prim: &Prim, args: &[Buffer]) -> Result<Option<Sums>> {
        let ranges = matches!(self.reading(), Reading::Drawn { ranges: true, .. });
        let of =
            |sum: &dyn Fn(&[Buffer]) -> Result<Buffer>, length: usize, accumulator: DType| -> Result<Option<Sums>> {
                let each = |f: fn(f64) -> f64| args.iter().map(|x| self.mapped(x, f)).collect::<Result<Vec<Buffer>>>();
                let squares = sum(&each(|x| x * x)?)?;
                let magnitudes = if ranges { Some(sum(&each(f64::abs)?)?) } else { None };
                let rounding = accumulator.epsilon() * (length as f64).sqrt();
                Ok(Some(Sums { squares, magnitudes, rounding, accumulator }))
            };
        match prim {
            Prim::Contract(row) if row.accumulator.is_float() => {
                let extent = |label: &char| row.a.iter().position(|l| l == label).map_or(1, |k| args[0].sizes()[k]);
                let length: usize = row.summed().iter().map(extent).product();
                let exact = Contract { accumulator: DType::F64, ..row.clone() };
                of(&|terms| eval_contract(&exact, &terms[0], &terms[1], self), length, row.accumulator)
            }
            Prim::Reduce(row) if row.monoid == Monoid::Sum => {
                let length: usize = row.axes.iter().map(|axis| args[0].sizes()[*axis]).product();
                of(&|terms| eval_reduce(Monoid::Sum, &row.axes, &terms[0], self), length, args[0].dtype())
            }
            Prim::Prefix(row) if row.monoid == Monoid::Sum => {
                let length = args[0].sizes()[row.axis];
                of(&|terms| Ok(eval_prefix(Monoid::Sum, row.axis, row.exclusive, &terms[0])), length, args[0].dtype())
            }
            _ => Ok(None),
        }
    }

    /// In which order terms are summed up is not written: where those of one sign are too large together, so may be what is summed up of them first.
    fn draw_overflow(&self, accumulator: DType, exact: &[f64], magnitudes: &[f64], values: &mut [f64]) {
        // Sums of narrow numbers are held wider.
        let held = if accumulator.bits() < 32 { DType::F32 } else { accumulator };
        let terms = exact.iter().zip(magnitudes);
        for ((x, (sum, all)), part) in values.iter_mut().zip(terms).zip(self.draws()) {
            let is_too_large = |terms: f64| held.round(terms).is_infinite();
            let others = match (is_too_large((all + sum) / 2.0), is_too_large((all - sum) / 2.0)) {
                (true, true) => [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, *x],
                (true, false) => [f64::INFINITY, f64::INFINITY, *x, *x],
                (false, true) => [f64::NEG_INFINITY, f64::NEG_INFINITY, *x, *x],
                (false, false) => continue,
            };
            *x = others[((part + 1.0) * 2.0).clamp(0.0, 3.0) as usize];
        }
    }

    /// A function of every element, where there is memory for that.
    fn mapped(&self, x: &Buffer, f: fn(f64) -> f64) -> Result<Buffer> {
        self.reserve(x.count())?;
        let dense = self.dense(x)?;
        let values = dense.to_floats().iter().map(|x| f(*x)).collect();
        Ok(Buffer::floats(DType::F64, x.sizes().to_vec(), values))
    }
}

/// What is known of the terms of sums.
struct Sums {
    /// the sums of their squares
    squares: Buffer,
    /// the sums of their magnitudes, where what leaves the range of a type is to be drawn
    magnitudes: Option<Buffer>,
    /// how far a sum may be off, as a part of the root of its squares
    rounding: f64,
    /// the type in which they are summed up
    accumulator: DType,
}

/// A random word as a number from -1 to 1.
fn part_of(word: u32) -> f64 {
    f64::from(word as i32) / 2f64.powi(31)
}

/// Whether a product with the reciprocal of a number is the quotient.
fn is_power_of_two(x: f64) -> bool {
    x.to_bits() & ((1 << 52) - 1) == 0
}

/// A number with as many digits as leave such a step behind 1, whatever its magnitude: what Veltkamp's splitting keeps.
fn rounded(x: f64, step: f64) -> f64 {
    let shifted = x * (step / f64::EPSILON + 1.0);
    if step > f64::EPSILON && shifted.is_finite() { shifted - (shifted - x) } else { x }
}
