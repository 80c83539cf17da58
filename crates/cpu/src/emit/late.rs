//! Factors that the tasks which multiply them put together, each as much as it needs.
//!
//! A convolution is a multiplication with a matrix that has every element of a picture many times: as a whole it would go through
//! the farthest memory; a few lines of it, or a panel, stay close.

use fuseline::error::{Error, Result};
use fuseline::tensor::{DType, Dim};
use fuseline::tile::{Op, StepId};
use rustc_hash::FxHashMap;

use super::bound::{Bound, bytes_of, ceil_div};
use super::emitter::{Emitter, Held};
use super::factors::{Right, panel_bytes, panel_vectors};
use super::generic::{give, held_dtype};
use super::multiply::{Multiply, Sums, batch_point, rows_point, tile_points};
use super::point::{Coord, Point};
use super::reach::reached;
use super::roles::Roles;
use super::rows::dense_offset;
use super::tiling::Tiling;
use super::{Emission, Memory};
use crate::vector::{Bound as To, Compare, IntOp, Ty, Value};

/// A factor that has so many times the elements of what it reads is large for what it says.
const REPEATS: i64 = 2;

/// Panels for every core, if tasks are to pack them, or to read what is not packed.
pub(super) const LATE_PANELS: i64 = 2;

/// Rows of a left factor that a task gathers at once: lines along the last axis of the rows, which are read and written in
/// vectors. In the worker's memory the rows of a term lie beside each other.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lines {
    /// lines of a task
    count: i64,
    /// rows of a line
    length: i64,
    /// tasks of a batch
    chunks: i64,
}

impl Lines {
    /// Rows that a task gathers: so many that what it reads of the right factors is worth reading.
    const ROWS: std::ops::RangeInclusive<i64> = 48..=128;

    /// Where a left factor repeats what it reads: the longest chunks of whole lines of which there are enough.
    pub fn of(emission: &Emission<'_>, roles: &Roles, held: &FxHashMap<StepId, Held>) -> Option<Lines> {
        let bound = emission.bound;
        let (last, outer) = roles.rows.split_last()?;
        let all: i64 = outer.iter().map(|axis| bound.extents[*axis]).product();
        let length = bound.extents[*last];
        let enough = LATE_PANELS * emission.cores as i64;
        let fits = |count: &i64| {
            all % count == 0
                && Lines::ROWS.contains(&(count * length))
                && roles.batch_count(bound) * (all / count) >= enough
        };
        let count = (1..=all.min(*Lines::ROWS.end())).rev().find(fits)?;
        let is_f32 = held_dtype(bound.kernel.step(roles.left).dtype) == DType::F32;
        let gathers = is_f32 && repeats(bound, roles.left, held);
        gathers.then_some(Lines { count, length, chunks: all / count })
    }

    pub fn rows(&self) -> i64 {
        self.count * self.length
    }

    /// A factor that is gathered later.
    pub fn nowhere(&self, emission: &Emission<'_>, roles: &Roles) -> Held {
        let offset = dense_offset(&roles.rows, &emission.bound.extents);
        Held { memory: Memory::Worker, base: None, offset, dtype: DType::F32, again: true }
    }
}

/// Whether a factor has far more elements than what it is computed from.
fn repeats(bound: &Bound<'_>, id: StepId, held: &FxHashMap<StepId, Held>) -> bool {
    let kernel = bound.kernel;
    let is_held = |id: StepId| held.contains_key(&id);
    let read = reached(kernel, &[id], &is_held).into_iter().filter_map(|id| match kernel.step(id).op {
        Op::Load { input, .. } if !is_held(id) => Some(bound.input_count(input)),
        _ => None,
    });
    bound.count(kernel.step(id).axes) >= read.max().unwrap_or(1).max(1).saturating_mul(REPEATS)
}

/// Whether the right factors had better be packed by the tasks that multiply them, panel by panel: they repeat what they read, so
/// that all of them together are far more than that, and there are panels for everybody.
pub(super) fn packs_late(emission: &Emission<'_>, roles: &Roles, held: &FxHashMap<StepId, Held>) -> bool {
    let bound = emission.bound;
    let panel = panel_vectors(emission.isa) * emission.lanes();
    let panels = roles.batch_count(bound) * ceil_div(roles.column_count(bound), panel);
    roles.right.iter().all(|id| repeats(bound, *id, held)) && panels >= LATE_PANELS * emission.cores as i64
}

/// Emits tasks that gather lines of the left factor and multiply them with all panels.
pub(super) fn emit_lines(
    emission: &mut Emission<'_>,
    multiply: &Multiply,
    lines: Lines,
    stores: &[usize],
    held: &FxHashMap<StepId, Held>,
) -> Result<()> {
    let bound = emission.bound;
    let roles = &multiply.roles;
    let tiling = Tiling::new(lines.rows(), multiply.tile_rows(emission.isa));
    let panels = multiply.panels(emission);
    emission.phase("multiply", &mut |e: &mut Emitter<'_>| {
        give(e, held);
        let task = e.b.begin_tasks();
        let chunks = e.b.number(lines.chunks);
        let chunk = e.b.int(IntOp::FloorMod, task, chunks);
        let batch = e.b.int(IntOp::FloorDiv, task, chunks);
        let origin = batch_point(e, roles, batch);
        let multiply = multiply.gathered(e, lines, &origin, chunk)?;
        let first = e.b.times(chunk, lines.rows());
        let tiling = tiling.from(first);
        let (panel, _) = e.b.begin_loop(To::Number(0), To::Number(panels), 1, &[]);
        let chunk = tiling.all(e);
        let places = multiply.waiting(e, &tiling, (chunk.from, tiling.count), panel);
        multiply.tiles_used(e, (&tiling, chunk), &origin, panel, &places, &Sums::Stored(stores))?;
        e.b.end_loop(&[]);
        e.b.end_loop(&[]);
        Ok(roles.batch_count(bound) * lines.chunks)
    })
}

impl Multiply {
    /// The same with lines of the left factor in the worker's memory: those of a chunk.
    pub(super) fn gathered(&self, e: &mut Emitter<'_>, lines: Lines, origin: &Point, chunk: Value) -> Result<Multiply> {
        let roles = &self.roles;
        let Some((lane, outer)) = roles.rows.split_last() else { return Err(Error::bug("lines without rows")) };
        let bytes = bytes_of(self.left.dtype);
        let own = e.pointer(Memory::Worker);
        let start = e.b.plus(own, e.worker_bytes as i64);
        e.worker_bytes += (roles.sum_count(e.bound) * lines.rows() * bytes) as usize;
        e.writes.insert(Memory::Worker);
        let (line, _) = e.b.begin_loop(To::Number(0), To::Number(lines.count), 1, &[]);
        let first = e.b.times(chunk, lines.count);
        let number = e.b.int(IntOp::Add, first, line);
        let at_line = rows_point(e, outer, origin, number);
        let zero = e.b.number(0);
        let mut points = Vec::new();
        for vector in 0..ceil_div(lines.length, e.lanes()) {
            let plus = vector * e.lanes();
            let mut point = at_line.with(*lane, Coord { base: Some(zero), plus, lanes: true });
            if plus + e.lanes() > lines.length {
                let left = e.b.integer(Ty::I32, lines.length - plus);
                let numbers = e.b.lane_numbers(Ty::I32);
                let mask = e.b.compare(Compare::Lt, numbers, left);
                point = point.masked(mask);
            }
            points.push(point);
        }
        let skipped = e.b.times(line, lines.length * bytes);
        let at = e.b.int(IntOp::Add, start, skipped);
        put_terms(e, (roles.left, self.left.dtype), &roles.sum, (points, false), (at, lines.rows() * bytes))?;
        e.b.end_loop(&[]);
        let before = e.b.times(chunk, -lines.rows() * bytes);
        let base = Some(e.b.int(IntOp::Add, start, before));
        let left = Held { base, ..self.left.clone() };
        let right = self.right.clone();
        Ok(Multiply { roles: roles.clone(), left, right, lines: None, ..*self })
    }

    /// The same with a panel of the right factors in the worker's memory, if tasks pack them.
    pub(super) fn packed(&self, e: &mut Emitter<'_>, origin: &Point, panel: Value) -> Result<Option<Multiply>> {
        if !self.packs_late {
            return Ok(None);
        }
        let roles = &self.roles;
        let start = e.b.times(panel, self.width * e.lanes());
        e.multiples.insert(start, self.width * e.lanes());
        let columns =
            tile_points(e, &Roles { rows: Vec::new(), ..roles.clone() }, origin, (start, 1), (start, self.width));
        let mut right = Vec::new();
        for id in &roles.right {
            let dtype = held_dtype(e.bound.kernel.step(*id).dtype);
            let (own, term_bytes) = (e.pointer(Memory::Worker), panel_bytes(e, dtype));
            let base = e.b.plus(own, e.worker_bytes as i64);
            e.worker_bytes += (roles.sum_count(e.bound) * term_bytes) as usize;
            e.writes.insert(Memory::Worker);
            put_terms(e, (*id, dtype), &roles.sum, (columns.clone(), true), (base, term_bytes))?;
            let held = Held { memory: Memory::Worker, base: Some(base), offset: Dim::int(0), dtype, again: true };
            right.push(Right { held, term_bytes, is_packed: true });
        }
        let left = self.left.clone();
        Ok(Some(Multiply { roles: roles.clone(), left, right, packs_late: false, ..*self }))
    }
}

/// Puts a factor at some points, vectors beside each other, into memory, term after term at even distances; where memory is padded, with
/// what stands for lanes that a point leaves out.
fn put_terms(
    e: &mut Emitter<'_>,
    (id, dtype): (StepId, DType),
    sum: &[usize],
    (mut points, is_padded): (Vec<Point>, bool),
    (start, term_bytes): (Value, i64),
) -> Result<()> {
    let mut at = vec![start];
    for axis in sum {
        let (term, inside) = e.b.begin_loop(To::Number(0), To::Number(e.bound.extents[*axis]), 1, &at);
        let coord = Coord { base: Some(term), plus: 0, lanes: false };
        points.iter_mut().for_each(|point| *point = point.with(*axis, coord));
        at = inside;
    }
    for (v, (value, point)) in e.values(&[id], &points)?[0].iter().zip(&points).enumerate() {
        let place = e.b.address(at[0], &[], v as i64 * e.lanes() * bytes_of(dtype));
        e.b.store(place, *value, dtype, point.mask.filter(|_| !is_padded));
    }
    let mut next = vec![e.b.plus(at[0], term_bytes)];
    for _ in sum {
        next = e.b.end_loop(&next);
    }
    Ok(())
}
