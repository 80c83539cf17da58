//! Rows that overlap: the last pass over a row happens in a pass over the next one.
//!
//! A last pass that does little but write waits for memory, and one with much arithmetic leaves memory alone: together they take little more than
//! the longer of both. What the last pass reads of its row is there for a row longer: results of folds are handed on by the loop over rows, and what
//! is held lies in one of two places that rows take in turns. (In one place, read just before the next row writes there, it took as long as without any
//! overlap.)

use fuseline::error::Result;
use fuseline::tile::{Op, StepId};
use rustc_hash::FxHashMap;

use super::Memory;
use super::bound::ceil_div;
use super::emitter::{Emitter, Given, Held};
use super::point::Point;
use super::reach::reached;
use super::row_plan::{held_bytes, next_row, pass_cost, roots};
use super::rows::{Pass, Rows};
use super::share;
use crate::vector::{Bound as To, IntOp, Ty, Value};

/// With less arithmetic than this there is nothing in a pass to wait beside.
const MUCH: u32 = 8;

/// Rows that a task has if there are enough, and has at least: the last pass over the last of them happens by itself.
const ROWS: i64 = 16;
const FEWEST_ROWS: i64 = 4;

/// How the last pass over a row happens in one over the next.
#[derive(Clone, Debug)]
pub(super) struct Overlap {
    /// folds that it reads
    folds: Vec<StepId>,
    /// what it reads that is held, where rows of even and of odd numbers put it
    places: Vec<(StepId, [Held; 2])>,
}

/// The row before, whose last pass has not happened yet.
#[derive(Debug)]
pub(super) struct RowBefore {
    last: Pass,
    point: Point,
    /// an Int: whether there is one
    exists: Value,
    /// what its last pass reads
    given: Vec<(StepId, Given)>,
}

impl Emitter<'_> {
    /// Lets rows overlap where that pays: results go past the caches, the last pass reads what is held and does not fold, and an earlier one has
    /// arithmetic to do it beside. A last pass that has much more of it itself (words that are drawn) takes longer in another one.
    ///
    /// Not a bit of a result may depend on it. What stands in a loop is multiplied by the reciprocal of what stands outside, which rounds otherwise than
    /// a division: so no vector may be left alone behind the blocks of a row, without a loop, and nothing that a row knows may be loaded within the last pass.
    pub fn let_overlap(&mut self, rows: &mut Rows) {
        let block = rows.unroll * self.lanes();
        let fits =
            |lane: usize| rows.inner == [lane] && !(1..=self.lanes()).contains(&(self.bound.extents[lane] % block));
        let is_plain = rows.lane.is_some_and(fits) && rows.several.is_none() && rows.turned.is_none();
        let Some((last, earlier)) = rows.passes.split_last() else { return };
        if !rows.streaming || !is_plain || !last.folds.is_empty() || self.rows_of_task(rows) < FEWEST_ROWS {
            return;
        }
        let little = pass_cost(self, rows, earlier.len());
        let costs = (0..earlier.len()).map(|pass| (pass_cost(self, rows, pass), pass));
        let Some((_, beside)) = costs.max().filter(|(much, _)| *much >= MUCH.max(little / 2)) else { return };
        let Some(overlap) = self.overlap(rows) else { return };
        rows.passes[beside].overlap = Some(overlap);
        // there is most to do now
        let ahead = next_row(self, rows);
        rows.passes.iter_mut().for_each(|pass| pass.ahead.clear());
        rows.passes[beside].ahead = ahead;
    }

    /// What the last pass reads, and room for it; none where nothing is held, or a fold is not one of floats.
    fn overlap(&mut self, rows: &Rows) -> Option<Overlap> {
        let kernel = self.bound.kernel;
        let (last, earlier) = rows.passes.split_last()?;
        let holds = || earlier.iter().flat_map(|pass| &pass.holds);
        let is_fold = |id: StepId| kernel.step(id).op.is_fold();
        let ends = |id: StepId| self.given.contains_key(&id) || is_fold(id) || holds().any(|(held, _)| *held == id);
        let read = reached(kernel, &roots(self, last), &ends);
        let folds = read.iter().copied().filter(|id| is_fold(*id) && !self.given.contains_key(id));
        let folds: Vec<StepId> = folds.collect();
        let mut loads = read.iter().map(|id| kernel.step(*id)).filter(|step| matches!(step.op, Op::Load { .. }));
        let lane = rows.lane?;
        if !loads.all(|step| step.axes.contains(lane)) {
            return None;
        }
        let held: Vec<(StepId, Held)> = holds().filter(|(id, _)| read.contains(id)).cloned().collect();
        if held.is_empty() || !folds.iter().all(|id| kernel.step(*id).dtype.is_float()) {
            return None;
        }
        let (mut places, length) = (Vec::with_capacity(held.len()), self.bound.extents[lane]);
        for (id, even) in held {
            let worker = self.pointer(Memory::Worker);
            let base = self.b.plus(worker, self.worker_bytes as i64);
            self.worker_bytes += held_bytes(length, even.dtype) as usize;
            let odd = Held { base: Some(base), ..even.clone() };
            places.push((id, [even, odd]));
        }
        Some(Overlap { folds, places })
    }

    /// How many rows a task has.
    fn rows_of_task(&self, rows: &Rows) -> i64 {
        let points = |axes: &[usize]| axes.iter().map(|axis| self.bound.extents[*axis]).product::<i64>();
        let (count, inside) = (points(&rows.outer), points(&rows.inner).max(1));
        let usual = share::elements(count.saturating_mul(inside), self.cores) / inside;
        usual.max(ROWS.min(share::even(count, self.cores))).clamp(1, count.max(1))
    }

    /// Emits a phase of rows that overlap; returns the number of tasks.
    pub fn rows_overlapping(&mut self, rows: &Rows, overlap: &Overlap) -> Result<i64> {
        let Some((last, earlier)) = rows.passes.split_last() else { return Ok(0) };
        let sizes: Vec<i64> = rows.outer.iter().map(|axis| self.bound.extents[*axis]).collect();
        let (count, together) = (sizes.iter().product::<i64>(), self.rows_of_task(rows));
        let task = self.b.begin_tasks();
        let first = self.b.times(task, together);
        let (end, all) = (self.b.plus(first, together), self.b.number(count));
        let end = self.b.int(IntOp::Min, end, all);

        let nothing: Vec<Value> = overlap.folds.iter().map(|id| self.nothing(*id)).collect();
        let (row, kept) = self.b.begin_loop(To::Value(first), To::Value(end), 1, &nothing);
        let before = self.b.plus(row, -1);
        let at = self.decode(rows, &sizes, before, None);
        let given = self.given_of_row(overlap, (before, &at), &kept);
        let (one, done) = (self.b.number(1), self.b.int(IntOp::Sub, row, first));
        let exists = self.b.int(IntOp::Min, done, one);
        self.before = Some(RowBefore { last: last.clone(), point: at, exists, given });
        let point = [self.decode(rows, &sizes, row, None)];
        for pass in earlier {
            let mut pass = pass.clone();
            for (id, held) in &mut pass.holds {
                if let Some((_, places)) = overlap.places.iter().find(|(other, _)| other == id) {
                    *held = self.place_of_row(places, row);
                }
            }
            self.pass(rows, &pass, &point, None)?;
        }
        self.before = None;
        self.behind_passes(rows, &point)?;
        let next = overlap.folds.iter().map(|id| self.kept_at(*id, &point[0]));
        let next = next.collect::<Result<Vec<Value>>>()?;
        let kept = self.b.end_loop(&next);

        let row = self.b.plus(end, -1);
        let point = [self.decode(rows, &sizes, row, None)];
        let given = self.given_of_row(overlap, (row, &point[0]), &kept);
        self.given.extend(given);
        self.pass(rows, last, &point, None)?;
        self.b.end_loop(&[]);
        Ok(ceil_div(count, together))
    }

    /// What stands for the result of a fold where there is no row before.
    fn nothing(&mut self, id: StepId) -> Value {
        let ty = Ty::of(self.bound.kernel.step(id).dtype).unwrap_or(Ty::F32);
        self.b.float(ty, 0.0)
    }

    /// What the last pass over a row reads, by the number of the row and where it is.
    fn given_of_row(
        &mut self,
        overlap: &Overlap,
        (row, at): (Value, &Point),
        results: &[Value],
    ) -> Vec<(StepId, Given)> {
        let mut given = Vec::with_capacity(overlap.folds.len() + overlap.places.len());
        for (id, result) in overlap.folds.iter().zip(results) {
            let key = at.key(self.bound.kernel.step(*id).axes);
            given.push((*id, Given::Values(FxHashMap::from_iter([(key, *result)]))));
        }
        for (id, places) in &overlap.places {
            given.push((*id, Given::Held(self.place_of_row(places, row))));
        }
        given
    }

    /// Where a row puts what it holds, by its number.
    fn place_of_row(&mut self, [even, odd]: &[Held; 2], row: Value) -> Held {
        let one = self.b.number(1);
        let is_odd = self.b.int(IntOp::And, row, one);
        let base = odd.base.zip(even.base).map(|(odd, even)| self.b.choose(is_odd, odd, even));
        Held { base, ..even.clone() }
    }

    /// The last pass over the row before, if there is one, at the columns of some points.
    pub fn last_of_row_before(&mut self, rows: &Rows, points: &[Point]) -> Result<()> {
        let (Some(before), Some(lane)) = (self.before.take(), rows.lane) else { return Ok(()) };
        self.b.begin_when(before.exists, &[]);
        let at = |point: &Point| {
            let there = before.point.with(lane, point.coord(lane));
            if let Some(mask) = point.mask { there.masked(mask) } else { there }
        };
        let at: Vec<Point> = points.iter().map(at).collect();
        let given = before.given.iter().cloned();
        let own: Vec<_> = given.map(|(id, given)| (id, self.given.insert(id, given))).collect();
        self.body(rows, &before.last, &[], &at, Vec::new())?;
        for (id, given) in own {
            match given {
                Some(given) => self.given.insert(id, given),
                None => self.given.remove(&id),
            };
        }
        self.b.end_when(&[]);
        self.before = Some(before);
        Ok(())
    }
}
