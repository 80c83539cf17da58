//! Folds in parts, and attention along its stream.

use super::super::{AxisSet, Correction, Kernel, Op, Placement, Schedule, StepId};
use super::{Block, Folds, Held, Interpreter};
use crate::error::{Context, Error, Result};
use crate::ops::prim::Monoid;
use crate::reference::{Buffer, combine, eval_map_within, eval_reduce};
use crate::tensor::DType;

/// The steps that are computed piece by piece along the stream of an attention: what varies along it, and what depends on
/// a fold along it.
pub(super) fn streamed(kernel: &Kernel, folds: Folds) -> Vec<bool> {
    let mut streamed = vec![false; kernel.steps.len()];
    let Schedule::Attention { chain, .. } = &kernel.schedule else { return streamed };
    if folds == Folds::Whole {
        return streamed;
    }
    for (k, step) in kernel.steps.iter().enumerate() {
        let own = step.axes.union(step.op.folds()).common(chain.stream);
        streamed[k] = !own.is_empty() || step.op.operands().iter().any(|operand| streamed[operand.index()]);
    }
    streamed
}

impl Interpreter<'_> {
    /// The fold of a step at a block of points, in the parts that the schedule names.
    pub(super) fn fold(&self, k: usize, block: &Block) -> Result<Buffer> {
        let step = &self.kernel.steps[k];
        let (roles, parts) = match &self.kernel.schedule {
            Schedule::Row { along, placement: Placement::Split(parts) } => (*along, *parts),
            Schedule::Column { across, parts, .. } => (*across, *parts),
            _ => return self.fold_whole(k, block),
        };
        let axis = step.op.folds().common(roles).iter().find(|axis| block.sizes[*axis] > 1);
        let Some(axis) = axis.filter(|_| self.folds == Folds::AsScheduled) else { return self.fold_whole(k, block) };
        let pieces = block.pieces(axis, block.sizes[axis].div_ceil(parts as usize));
        match &step.op {
            Op::Reduce { monoid, arg, .. } if monoid.is_position() => self.best_of(*monoid, axis, *arg, pieces),
            op => {
                let folds = pieces.map(|piece| self.fold_whole(k, &piece));
                let joined = folds.reduce(|a, b| Ok(combine(monoid_of(op), &a?, &b?)));
                self.rounded(joined.ok_or_else(|| Error::bug("a fold of no parts"))??)
            }
        }
    }

    /// The position of the best element of all pieces: each one's best, and where that is.
    fn best_of(&self, monoid: Monoid, axis: usize, arg: StepId, pieces: impl Iterator<Item = Block>) -> Result<Buffer> {
        let largest = matches!(monoid, Monoid::ArgMax | Monoid::ArgMaxLast);
        let value = if largest { Monoid::Max } else { Monoid::Min };
        let over = AxisSet::of(axis);
        let (mut values, mut places, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        for piece in pieces {
            let at = self.reduce(monoid, over, arg, &piece)?;
            places.push(at.to_ints().iter().map(|n| n + piece.start[axis] as i64).collect::<Vec<_>>());
            sizes = at.sizes().to_vec();
            let best = self.reduce(value, over, arg, &piece)?;
            values.push(best.reshaped([&[1], sizes.as_slice()].concat()));
        }
        let winners = eval_reduce(monoid, &[0], &Buffer::concat(&values, 0), &self.run)?;
        let places = winners.to_ints().iter().enumerate().map(|(k, piece)| places[*piece as usize][k]).collect();
        Ok(Buffer::ints(DType::I64, sizes, places))
    }

    /// Runs the steps of an attention along its stream: folds keep running results, which are corrected where they depend
    /// on one that has changed. Parts of the stream begin anew, and what they have found is put together.
    pub(super) fn stream(&mut self, block: &Block) -> Result<()> {
        let kernel = self.kernel;
        let Schedule::Attention { chain, corrections, tile, parts } = &kernel.schedule else { return Ok(()) };
        if self.nest.streamed.is_empty() {
            return Ok(());
        }
        let steps = std::mem::take(&mut self.nest.streamed);
        let axis = chain.stream.iter().max_by_key(|axis| block.sizes[*axis]);
        let mut pieces: Vec<Block> =
            axis.map_or_else(Vec::new, |axis| block.pieces(axis, tile.columns as usize).collect());
        if pieces.is_empty() {
            pieces.push(block.clone());
        }
        let mut found: Option<Vec<Option<Held>>> = None;
        for part in pieces.chunks(pieces.len().div_ceil(*parts as usize)) {
            steps.iter().for_each(|k| self.held[*k] = None);
            for piece in part {
                self.walk(&steps, piece, chain.stream, corrections)?;
            }
            if let Some(found) = &found {
                self.join(&steps, found, block, chain.stream, corrections)?;
            }
            found = Some(self.held.clone());
        }
        for k in steps.iter().filter(|k| kernel.steps[**k].axes.common(chain.stream).is_empty()) {
            self.write(*k, block)?;
        }
        self.nest.streamed = steps;
        Ok(())
    }

    /// Runs the steps of an attention on one piece of its stream.
    fn walk(&mut self, steps: &[usize], piece: &Block, stream: AxisSet, corrections: &[Correction]) -> Result<()> {
        let kernel = self.kernel;
        let before = self.held.clone();
        for k in steps {
            if kernel.steps[*k].op.folds().common(stream).is_empty() {
                self.hold(*k, piece)?;
            } else {
                self.advance(*k, piece, &before, corrections).at(|| kernel.describe(*k))?;
            }
            if !kernel.steps[*k].axes.common(stream).is_empty() {
                self.write(*k, piece)?;
            }
        }
        Ok(())
    }

    /// Takes one more piece into a running fold.
    fn advance(&mut self, k: usize, piece: &Block, before: &[Option<Held>], corrections: &[Correction]) -> Result<()> {
        let mut total = self.fold_whole(k, piece)?;
        if before[k].is_some() {
            let running = self.corrected(k, before, piece, corrections)?;
            total = self.rounded(combine(monoid_of(&self.kernel.steps[k].op), &running, &total))?;
        }
        self.held[k] = Some(Held { buffer: total, block: piece.clone() });
        Ok(())
    }

    /// Puts what another part of the stream has found together with what is held.
    fn join(
        &mut self,
        steps: &[usize],
        found: &[Option<Held>],
        block: &Block,
        stream: AxisSet,
        corrections: &[Correction],
    ) -> Result<()> {
        let kernel = self.kernel;
        let own = self.held.clone();
        for k in steps {
            let step = &kernel.steps[*k];
            if !step.op.folds().common(stream).is_empty() {
                // What it depends on comes first: a running result is known of both together before it is followed.
                let parts = [found, own.as_slice()].map(|part| self.corrected(*k, part, block, corrections));
                let [first, second] = parts;
                let buffer = self.rounded(combine(monoid_of(&step.op), &first?, &second?))?;
                self.held[*k] = Some(Held { buffer, block: block.clone() });
            } else if step.axes.common(stream).is_empty() {
                self.hold(*k, block)?;
            }
        }
        Ok(())
    }

    /// A partial result of a fold as it is when what it depends on is no longer what it was but what is held now.
    fn corrected(
        &self,
        k: usize,
        before: &[Option<Held>],
        piece: &Block,
        corrections: &[Correction],
    ) -> Result<Buffer> {
        let step = &self.kernel.steps[k];
        let missing = |k: usize| move || Error::bug(format!("%{k} has no running result"));
        let mut running = before[k].as_ref().ok_or_else(missing(k))?.buffer.clone();
        for correction in corrections.iter().filter(|c| c.fold.index() == k) {
            let on = correction.on.index();
            let own = self.kernel.steps[on].axes;
            let seen = |held: &Option<Held>| {
                held.as_ref().ok_or_else(missing(on)).map(|held| self.seen(held, own, step.axes, piece))
            };
            let changed = [seen(&before[on])?, seen(&self.held[on])?];
            let sizes = piece.sizes_of(step.axes);
            let factor = eval_map_within(&correction.factor, sizes.clone(), &|axis| (axis, 0), &changed, &self.run)?;
            let values = running.to_floats().iter().zip(factor.to_floats().iter()).map(|(x, f)| x * f).collect();
            running = Buffer::floats(step.dtype, sizes, values);
        }
        Ok(running)
    }
}

/// How partial results of a fold are put together.
fn monoid_of(op: &Op) -> Monoid {
    match op {
        Op::Reduce { monoid, .. } => *monoid,
        _ => Monoid::Sum,
    }
}
