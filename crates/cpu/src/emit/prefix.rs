//! Running folds: every trip along the axis leaves what has been kept so far.

use fuseline::error::Result;
use fuseline::tile::StepId;

use super::emitter::{Emitter, Held};
use super::fold::{Folding, Kept};
use super::fold_loop::Steps;
use super::point::Coord;
use super::rows::{Pass, Rows};
use crate::vector::Bound as To;

/// A running fold.
#[derive(Clone, Debug)]
pub(super) struct Running {
    pub step: StepId,
    /// the axis to run along
    pub axis: usize,
    /// whether an element's own value is left out
    pub exclusive: bool,
    /// the other axes, outermost first
    pub outer: Vec<usize>,
    /// along which lanes run, one of the outer axes
    pub lane: Option<usize>,
    /// where the results go
    pub held: Held,
}

impl Emitter<'_> {
    /// Emits a phase that runs along an axis; returns the number of tasks.
    pub fn running(&mut self, running: &Running) -> Result<i64> {
        let Running { step, axis, exclusive, .. } = *running;
        let rows = Rows {
            outer: running.outer.clone(),
            inner: Vec::new(),
            lane: running.lane,
            passes: vec![Pass::default()],
            results: Vec::new(),
            stores: Vec::new(),
            unroll: 1,
            turned: None,
            drawn: Vec::new(),
            several: None,
            streaming: false,
        };
        self.rows_with(&rows, self.bound.extents[axis], &mut |e, points| {
            let kernel = e.bound.kernel;
            let Some(folding) = Folding::of(kernel, step) else { return Ok(()) };
            let operands = kernel.step(step).op.operands();
            let start = folding.neutral(&mut e.b);
            let steps = Steps { from: To::Number(0), to: To::Number(e.bound.extents[axis]), by: 1, inside: 1 };
            e.fold_loop_seen(&[folding], steps, start.to_vec(), |e, var, inside, before| {
                let old = Kept::from_slice(&inside);
                let point = points[0].with(axis, Coord { base: Some(var), plus: 0, lanes: false });
                let terms = e.values(&operands, std::slice::from_ref(&point))?;
                let terms: Vec<_> = terms.into_iter().map(|term| term[0]).collect();
                let new = folding.join(&mut e.b, &old, &terms, None, None);
                let so_far = if exclusive { &old } else { &new };
                let all = before.map(|before| folding.merge(&mut e.b, &Kept::from_slice(before), so_far));
                let value = folding.result(&mut e.b, all.as_ref().unwrap_or(so_far));
                e.store_held(&running.held, value, &point);
                Ok(new.to_vec())
            })?;
            Ok(())
        })
    }
}
