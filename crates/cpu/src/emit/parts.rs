//! Long folds with few results: cut into parts, so that there are tasks for all cores. First every part is folded, then what the parts gave.
//!
//! Parts follow from sizes alone: the same result on every machine.

use fuseline::error::{Error, Result};
use fuseline::tile::{AxisSet, Kernel, Op, StepId};

use super::bound::{Bound, ceil_div};
use super::emitter::{Emitter, Held};
use super::fold::Folding;
use super::rows::Rows;
use crate::vector::{Bound as To, IntOp, Value};

/// More results than this are enough to share.
const FEW: i64 = 8;

/// Folds of fewer elements are not worth a second phase.
const LONG: i64 = 128 << 10;

/// Elements of a part.
const PART: i64 = 16 << 10;

/// Whether the folds of a kernel over some axes are few and long, and are all that is wanted.
pub(super) fn is_few_and_long(bound: &Bound<'_>, over: AxisSet) -> bool {
    let kernel = bound.kernel;
    let free: AxisSet = (0..kernel.axes.len()).filter(|axis| !over.contains(*axis)).collect();
    let folds = kernel.steps.iter().filter(|step| step.op.is_fold());
    let divides = |op: &Op| matches!(op, Op::Reduce { monoid, .. } if !monoid.is_position());
    bound.count(free) <= FEW
        && bound.count(over) >= LONG
        && folds.into_iter().all(|step| divides(&step.op))
        && kernel.stores.iter().all(|store| store.axes().common(over).is_empty())
}

/// How a fold is cut.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    /// how many there are
    pub count: i64,
    /// elements of a part along the outermost of the folded axes
    length: i64,
    /// bytes of the results of a part
    bytes: i64,
}

impl Parts {
    /// The parts of a fold whose folded axes have this order; none where it is better left whole.
    pub fn of(bound: &Bound<'_>, id: StepId, inner: &[usize], lane: Option<usize>, dtype_bytes: i64) -> Option<Parts> {
        let step = bound.kernel.step(id);
        let over: AxisSet = inner.iter().copied().collect();
        let is_inside = lane.is_none_or(|lane| over.contains(lane));
        let divides = matches!(step.op, Op::Reduce { monoid, .. } if !monoid.is_position());
        let (results, all) = (bound.count(step.axes), bound.count(over));
        if !divides || !is_inside || results > FEW || all < LONG {
            return None;
        }
        let first = bound.extents[*inner.first()?];
        let length = ceil_div(PART, all / first).min(first);
        Some(Parts { count: ceil_div(first, length), length, bytes: results * dtype_bytes })
    }

    /// Bytes of the results of all parts.
    pub fn bytes(&self) -> i64 {
        self.count * self.bytes
    }

    /// The same place in the results of a part.
    fn place(&self, e: &mut Emitter<'_>, held: &Held, part: Value) -> Held {
        let start = held.base.unwrap_or_else(|| e.pointer(held.memory));
        let before = e.b.times(part, self.bytes);
        Held { base: Some(e.b.int(IntOp::Add, start, before)), ..held.clone() }
    }
}

impl Emitter<'_> {
    /// Emits the fold of every part of rows, whose results have room for all parts; returns the number of tasks.
    pub fn fold_parts(&mut self, rows: &Rows, parts: Parts) -> Result<i64> {
        let sizes: Vec<i64> = rows.outer.iter().map(|axis| self.bound.extents[*axis]).collect();
        let task = self.b.begin_tasks();
        let count = self.b.number(parts.count);
        let part = self.b.int(IntOp::FloorMod, task, count);
        let row = self.b.int(IntOp::FloorDiv, task, count);
        let from = self.b.times(part, parts.length);
        self.multiples.insert(from, parts.length);
        let (to, all) = (self.b.plus(from, parts.length), self.b.number(self.bound.extents[rows.inner[0]]));
        let to = self.b.int(IntOp::Min, to, all);
        let point = self.decode(rows, &sizes, row, None);
        let mut own = rows.clone();
        for (_, held) in &mut own.results {
            *held = parts.place(self, held, part);
        }
        self.row(&own, &[point], Some((from, to)))?;
        self.b.end_loop(&[]);
        Ok(sizes.iter().product::<i64>() * parts.count)
    }

    /// Emits the fold of what the parts of a step gave; returns the number of tasks.
    pub fn fold_results(&mut self, id: StepId, rows: &Rows, parts: Parts, from: &Held, to: &Held) -> Result<i64> {
        let folding = folding(self.bound.kernel, id)?;
        let rows = Rows { inner: Vec::new(), lane: None, passes: Vec::new(), results: Vec::new(), ..rows.clone() };
        self.rows_with(&rows, parts.count, &mut |e, points| {
            for point in points {
                let neutral = folding.neutral(&mut e.b);
                let (part, kept) = e.b.begin_loop(To::Number(0), To::Number(parts.count), 1, &neutral);
                let place = parts.place(e, from, part);
                let value = e.load_held(&place, point);
                let joined = folding.join(&mut e.b, &kept.into_iter().collect(), &[value], None, None);
                let kept = e.b.end_loop(&joined).into_iter().collect();
                let result = folding.result(&mut e.b, &kept);
                e.store_held(to, result, point);
            }
            Ok(())
        })
    }
}

fn folding(kernel: &Kernel, id: StepId) -> Result<Folding> {
    Folding::of(kernel, id).ok_or_else(|| Error::bug(format!("{id:?} is no fold")))
}
