//! Several short rows as one: where results lie in a row from the first to the last of them, so do vectors, whatever the length of a row.
//! What is the same for all rows (a bias, a scale) is put into the worker's memory as often as there are rows.

#[cfg(test)]
mod tests;

use fuseline::error::Result;
use fuseline::tensor::Dim;
use fuseline::tile::{AxisSet, Op, StepId};

use super::Memory;
use super::bound::bytes_of;
use super::emitter::{Emitter, Given, Held};
use super::generic::held_dtype;
use super::index::gcd;
use super::lanes::slope_along;
use super::point::Point;
use super::reach::reached;
use super::rows::{Pass, Rows};
use crate::vector::Bound as To;

/// Vectors of a row from which it is long enough by itself.
const SHORT: i64 = 4;

/// Elements that several rows have together: a multiple of those that share random words, and no fewer than this.
const SHARED: i64 = 64;
const FEWEST: i64 = 512;

/// Rows that are worked on as one.
#[derive(Clone, Debug)]
pub(super) struct Several {
    /// the axis of rows, and that of their elements, along which lanes run
    pub axis: usize,
    pub lane: usize,
    /// how many rows are one
    pub rows: i64,
    /// what is the same for all rows, and where it lies
    held: Vec<(StepId, Held)>,
}

impl Several {
    /// Elements of a row that are several.
    pub fn elements(&self, extents: &[i64]) -> i64 {
        self.rows * extents[self.lane]
    }

    /// Whether a step lies in the worker's memory.
    pub fn holds(&self, id: StepId) -> bool {
        self.held.iter().any(|(own, _)| *own == id)
    }

    /// Rows along an axis that stores are better computed together with those before and behind them.
    pub fn of(e: &mut Emitter<'_>, axes: AxisSet, stores: &[usize]) -> Option<Several> {
        let bound = e.bound;
        let first = &bound.stores[*stores.first()?].offset;
        let mut lanes =
            axes.iter().filter(|axis| bound.extents[*axis] > 1 && slope_along(bound, first, *axis) == Some(1));
        let lane = lanes.next()?;
        let (kernel, columns) = (bound.kernel, bound.extents[lane]);
        // Two vectors that are full share random words by themselves.
        let is_even = columns % e.lanes() == 0 && columns > e.lanes();
        if columns >= SHORT * e.lanes() || is_even || !e.given.is_empty() {
            return None;
        }
        let rows = SHARED / gcd(SHARED, columns);
        let times = std::iter::successors(Some(rows), |rows| Some(2 * rows));
        let rows = times.into_iter().find(|rows| rows * columns >= FEWEST)?;
        let told_apart = bound.told_apart();
        let others = axes.iter().filter(|axis| *axis != lane && bound.extents[*axis] >= rows);
        let values: Vec<StepId> = stores.iter().map(|k| kernel.stores[*k].value).collect();
        let steps = reached(kernel, &values, &|_| false);
        for axis in others.filter(|axis| !told_apart.contains(*axis) && !told_apart.contains(lane)) {
            let is_row = |dim: &Dim| bound.is_row(dim, axis, lane) && AxisSet::mentioned(dim).contains(lane);
            if stores.iter().all(|k| is_row(&bound.stores[*k].offset))
                && let Some(same) = the_same(e, &steps, &values, axis, lane)
            {
                return Some(Several { axis, lane, rows, held: hold(e, &same, rows, lane) });
            }
        }
        None
    }
}

/// The steps that are the same for all rows and that others are computed of; `None` where something else tells rows apart than where elements lie.
fn the_same(e: &Emitter<'_>, steps: &[StepId], stored: &[StepId], axis: usize, lane: usize) -> Option<Vec<StepId>> {
    let bound = e.bound;
    let kernel = bound.kernel;
    let varies = |id: StepId| kernel.step(id).axes.contains(axis);
    let mut same: Vec<StepId> = Vec::new();
    for id in steps.iter().copied() {
        let step = kernel.step(id);
        if !varies(id) {
            let beside = step.axes.iter().any(|other| other != lane && bound.extents[other] > 1);
            let is_used = stored.contains(&id)
                || steps.iter().any(|user| varies(*user) && kernel.step(*user).op.operands().contains(&id));
            if is_used && step.axes.contains(lane) {
                if beside {
                    return None;
                }
                same.push(id);
            }
            continue;
        }
        let lies_in_rows = match &step.op {
            Op::Load { reads, .. } => reads.is_empty() && bound.is_row(&bound.load(id).offset, axis, lane),
            Op::Random { index, reads, .. } => reads.is_empty() && bound.is_row(&bound.dim(index), axis, lane),
            Op::Map { .. } => true,
            _ => false,
        };
        // what varies from row to row, but not within one, lies in no row of vectors
        if !lies_in_rows || !step.axes.contains(lane) {
            return None;
        }
    }
    same.sort();
    Some(same)
}

/// Places in the worker's memory for so many rows of each of some steps.
fn hold(e: &mut Emitter<'_>, steps: &[StepId], rows: i64, lane: usize) -> Vec<(StepId, Held)> {
    let mut held = Vec::with_capacity(steps.len());
    for id in steps {
        let dtype = held_dtype(e.bound.kernel.step(*id).dtype);
        let start = e.worker_bytes.next_multiple_of(64);
        // rows are written as vectors, the last of which may reach over the end
        let elements = rows * e.bound.extents[lane] + e.lanes();
        e.worker_bytes = start + (elements * bytes_of(dtype)) as usize;
        let worker = e.pointer(Memory::Worker);
        let base = Some(e.b.plus(worker, start as i64));
        held.push((*id, Held { memory: Memory::Worker, base, offset: Dim::axis(lane), dtype, again: true }));
    }
    held
}

impl Emitter<'_> {
    /// Puts what is the same for all rows into the worker's memory, row behind row.
    pub fn repeat(&mut self, several: &Several, rows: &Rows) -> Result<()> {
        if several.held.is_empty() {
            return Ok(());
        }
        let columns = self.bound.extents[several.lane];
        let (row, _) = self.b.begin_loop(To::Number(0), To::Number(several.rows), 1, &[]);
        let moved = |e: &mut Self, held: &Held| {
            let skipped = e.b.times(row, columns * bytes_of(held.dtype));
            let base = held.base.map(|base| e.b.int(crate::vector::IntOp::Add, base, skipped));
            Held { base, ..held.clone() }
        };
        let holds = several.held.iter().map(|(id, held)| (*id, moved(self, held))).collect();
        let pass = Pass { holds, ..Pass::default() };
        let plain = Rows { unroll: 1, several: None, ..rows.clone() };
        let origin = Point::origin(self.bound.extents.len());
        self.pass(&plain, &pass, &[origin], None)?;
        self.b.end_loop(&[]);
        self.given.extend(several.held.iter().map(|(id, held)| (*id, Given::Held(held.clone()))));
        Ok(())
    }
}
