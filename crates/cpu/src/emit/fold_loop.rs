//! Loops in which terms join folds.
//!
//! A sum of many numbers, one after the other, errs by half a rounding of what is summed so far with each of them: for numbers of one sign
//! these grow with their count, where chance would have its root. So a long sum is a sum of sums, each of a block of trips.

use fuseline::error::Result;

use super::emitter::Emitter;
use super::fold::{Folding, Kept};
use crate::vector::{Bound as To, IntOp, Value};

/// Terms that are summed one after the other, at the least.
const BLOCK: i64 = 32;

/// The trips of a loop.
#[derive(Clone, Copy, Debug)]
pub(super) struct Steps {
    pub from: To,
    pub to: To,
    pub by: i64,
    /// terms of a trip that join one after the other
    pub inside: i64,
}

impl Steps {
    /// How many trips sum up what is added to the sum then, where that is worth it: as many as there are such blocks.
    fn block(&self) -> Option<i64> {
        let (To::Number(from), To::Number(to)) = (self.from, self.to) else { return None };
        let trips = (to - from) / self.by;
        let terms = trips.saturating_mul(self.inside);
        let wanted = BLOCK.max(terms.isqrt());
        let block = (wanted / self.inside.max(1)).max(1);
        (trips > block).then_some(block)
    }
}

impl Emitter<'_> {
    /// Emits a loop. `trip` emits what happens in it, given the number of the trip and what folds keep, and returns what they keep then.
    pub fn fold_loop(
        &mut self,
        foldings: &[Folding],
        steps: Steps,
        kept: Vec<Value>,
        mut trip: impl FnMut(&mut Self, Value, Vec<Value>) -> Result<Vec<Value>>,
    ) -> Result<Vec<Value>> {
        self.fold_loop_seen(foldings, steps, kept, |e, number, inside, _| trip(e, number, inside))
    }

    /// As [`Emitter::fold_loop`]; what happens in a trip also sees what was kept before its block, which is still to be added to what sums keep in it;
    /// nothing where a trip keeps all there is.
    pub fn fold_loop_seen(
        &mut self,
        foldings: &[Folding],
        steps: Steps,
        kept: Vec<Value>,
        mut trip: impl FnMut(&mut Self, Value, Vec<Value>, Option<&[Value]>) -> Result<Vec<Value>>,
    ) -> Result<Vec<Value>> {
        let sums: Vec<bool> = foldings.iter().flat_map(|folding| vec![folding.is_sum(); folding.parts()]).collect();
        let block = steps.block().filter(|_| sums.contains(&true));
        let Steps { from, to, by, .. } = steps;
        let (Some(block), To::Number(end)) = (block, to) else {
            let (number, inside) = self.b.begin_loop(from, to, by, &kept);
            let next = trip(self, number, inside, None)?;
            return Ok(self.b.end_loop(&next));
        };
        let is_sum = |k: usize| sums[k % sums.len()];
        let (begin, before) = self.b.begin_loop(from, to, block * by, &kept);
        let nothing = Accumulators::new(self, foldings, kept.len() / sums.len()).values;
        let start: Vec<Value> = (0..kept.len()).map(|k| if is_sum(k) { nothing[k] } else { before[k] }).collect();
        let (all, until) = (self.b.number(end), self.b.plus(begin, block * by));
        let until = self.b.int(IntOp::Min, until, all);
        let (number, inside) = self.b.begin_loop(To::Value(begin), To::Value(until), by, &start);
        let next = trip(self, number, inside, Some(&before))?;
        let of_block = Accumulators { foldings: foldings.to_vec(), values: self.b.end_loop(&next) };
        let mut sum = Accumulators { foldings: foldings.to_vec(), values: before };
        for copy in 0..kept.len() / sums.len() {
            for (f, folding) in foldings.iter().enumerate() {
                let (old, new) = (sum.at(copy, f), of_block.at(copy, f));
                let new = if folding.is_sum() { folding.merge(&mut self.b, &old, &new) } else { new };
                sum.set(copy, f, &new);
            }
        }
        Ok(self.b.end_loop(&sum.values))
    }
}

/// What folds keep, for every copy of every fold, as one list that loops can carry.
#[derive(Debug)]
pub(super) struct Accumulators {
    pub foldings: Vec<Folding>,
    pub values: Vec<Value>,
}

impl Accumulators {
    pub fn new(e: &mut Emitter<'_>, foldings: &[Folding], copies: usize) -> Accumulators {
        let mut values = Vec::new();
        for _ in 0..copies {
            for folding in foldings {
                values.extend(folding.neutral(&mut e.b));
            }
        }
        Accumulators { foldings: foldings.to_vec(), values }
    }

    fn place(&self, copy: usize, fold: usize) -> std::ops::Range<usize> {
        let sizes: Vec<usize> = self.foldings.iter().map(|folding| folding.parts()).collect();
        let start = copy * sizes.iter().sum::<usize>() + sizes[..fold].iter().sum::<usize>();
        start..start + sizes[fold]
    }

    pub fn at(&self, copy: usize, fold: usize) -> Kept {
        Kept::from_slice(&self.values[self.place(copy, fold)])
    }

    pub fn set(&mut self, copy: usize, fold: usize, kept: &Kept) {
        let place = self.place(copy, fold);
        self.values[place].copy_from_slice(kept);
    }
}
