//! Folds over windows that slide: depthwise convolutions, pools.
//!
//! Neighbours share most of what their windows see. A task copies what all its windows see into the worker's memory once, with what
//! stands for elements beyond the edges, and apart by their remainders where windows move by more than one element: what a vector
//! of results needs for a term then lies in a row, and nothing is asked about edges any more.

use fuseline::error::Result;
use fuseline::ops::{Expr, ExprNode, Number, Scalar};
use fuseline::tensor::{DType, Dim};
use fuseline::tile::{AxisSet, Op, StepId};
use rustc_hash::FxHashMap;

use super::bound::{Bound, bytes_of, ceil_div};
use super::emitter::{Emitter, Given, Held};
use super::fold::{Folding, Kept};
use super::generic::{give, held_dtype, unroll_across};
use super::index::gcd;
use super::lanes::{choose_lane, slope_along};
use super::multiply::rows_point;
use super::point::{Coord, Point};
use super::reach::reached;
use super::tiling::{Chunk, Tiling};
use super::{Emission, Memory, share};
use crate::vector::{Bound as To, IntOp, Ty, Value};

/// How often an element is seen, at least, for a copy to pay.
const REPEATS: f64 = 2.0;

/// Bytes that a task copies, about at most.
const COPIED: i64 = 128 << 10;

/// Bytes that a task copies where windows reach so far that it must, at most.
const MOST_COPIED: i64 = 1 << 20;

/// Rows of results that a task has at least, if there are as many: less is mostly edge.
const LEAST_ROWS: i64 = 8;

/// Vectors of sums that a tile keeps in registers, of so many registers.
fn tile_vectors(registers: usize) -> i64 {
    if registers >= 32 { 8 } else { 4 }
}

/// Terms whose code is written out one after another; more are a loop.
const WRITTEN_OUT: i64 = 12;

/// Results along an axis see, with each of their terms along another one, the element `result·stride + term·dilation`. Only one of both
/// is more than one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Slide {
    /// the axis of the results
    along: usize,
    /// the axis of the terms
    over: usize,
    stride: i64,
    dilation: i64,
    terms: i64,
}

impl Slide {
    /// How a fold over an axis slides along one of the results', if everything that is read has it so.
    fn of(bound: &Bound<'_>, over: usize, results: AxisSet, seen: &[Dim]) -> Option<Slide> {
        results.iter().find_map(|along| {
            let (mut ratio, both) = (None, AxisSet::of(along).with(over));
            for dim in seen.iter().filter(|dim| !AxisSet::mentioned(dim).common(both).is_empty()) {
                let (stride, dilation) = (slope_along(bound, dim, along)?, slope_along(bound, dim, over)?);
                let common = gcd(stride, dilation);
                let own = (stride.checked_div(common)?, dilation.checked_div(common)?);
                if own.0 < 1 || own.1 < 1 || ratio.replace(own).is_some_and(|other| other != own) {
                    return None;
                }
            }
            let (stride, dilation) = ratio.filter(|(stride, dilation)| *stride == 1 || *dilation == 1)?;
            Some(Slide { along, over, stride, dilation, terms: bound.extents[over] })
        })
    }

    /// Into how many strands elements are taken apart: those of a strand are `stride` elements from each other.
    fn strands(&self) -> i64 {
        if self.dilation == 1 { self.stride.min(self.terms) } else { 1 }
    }

    /// How many elements of a strand are seen beyond one for every result.
    fn more(&self, strand: i64) -> i64 {
        ((self.terms - 1) * self.dilation - strand) / self.stride
    }

    /// How many elements are copied for all results.
    fn copied(&self, bound: &Bound<'_>) -> i64 {
        (0..self.strands()).map(|strand| bound.extents[self.along] + self.more(strand)).sum()
    }

    /// The strand in which a result finds a term, and how far behind the result's own number.
    fn place(&self, term: i64) -> (i64, i64) {
        let element = term * self.dilation;
        (element % self.stride, element / self.stride)
    }

    /// As [`Slide::place`], from where results begin, for a term whose number only the code knows.
    fn moved(&self, e: &mut Emitter<'_>, start: Value, term: Value, (strand_bytes, unit): (i64, i64)) -> Value {
        let element = e.b.times(term, self.dilation);
        let stride = e.b.number(self.stride);
        let strand = e.b.int(IntOp::FloorMod, element, stride);
        let shift = e.b.int(IntOp::FloorDiv, element, stride);
        let (strand, shift) = (e.b.times(strand, strand_bytes), e.b.times(shift, unit));
        let offset = e.b.int(IntOp::Add, strand, shift);
        e.b.int(IntOp::Add, start, offset)
    }
}

/// A fold over windows.
#[derive(Clone, Debug)]
pub(super) struct Windows {
    fold: StepId,
    folding: Folding,
    /// what slides
    source: StepId,
    /// along rows, if windows have two axes
    rows: Option<Slide>,
    /// along lanes
    lane: Slide,
    /// the other axes of the results
    outer: Vec<usize>,
}

impl Windows {
    /// A fold as one over windows that share what they see, where all stores have its axes and are computed of it element by element.
    pub fn of(
        emission: &Emission<'_>,
        fold: StepId,
        stores: &[usize],
        held: &FxHashMap<StepId, Held>,
    ) -> Option<Windows> {
        let bound = emission.bound;
        let step = bound.kernel.step(fold);
        let folding = Folding::of(bound.kernel, fold).filter(|folding| folding.is_single())?;
        // The results of a running fold have the axis that it runs along: what each of them sees is no window of one length.
        let is_running = !step.axes.common(step.op.folds()).is_empty();
        if is_running || stores.iter().any(|k| bound.kernel.stores[*k].axes() != step.axes) {
            return None;
        }
        let offsets: Vec<Dim> = stores.iter().map(|k| bound.stores[*k].offset.clone()).collect();
        let lane = choose_lane(bound, step.axes, &offsets, emission.lanes())?;
        step.op.operands().into_iter().find_map(|source| {
            let seen = seen_by(bound, source, step.axes.union(step.op.folds()), held)?;
            let slides = step.op.folds().iter().map(|over| Slide::of(bound, over, step.axes, &seen));
            let mut slides = slides.collect::<Option<Vec<Slide>>>()?;
            slides.sort_by_key(|slide| slide.along == lane);
            let (rows, lane) = match slides.as_slice() {
                [last] if last.along == lane => (None, *last),
                [first, last] if last.along == lane && first.along != lane => (Some(*first), *last),
                _ => return None,
            };
            let copied: f64 = slides.iter().map(|slide| slide.copied(bound) as f64).product();
            let seen: f64 = slides.iter().map(|slide| (bound.extents[slide.along] * slide.terms) as f64).product();
            let is_held = held_dtype(bound.kernel.step(source).dtype) == DType::F32;
            let slid: AxisSet = slides.iter().map(|slide| slide.along).collect();
            let outer = step.axes.without(slid).iter().collect();
            let windows = Windows { fold, folding, source, rows, lane, outer };
            let (least, more) = (windows.least_rows(), windows.rows_more());
            let fits = (least + more).saturating_mul(windows.row_bytes(bound, emission.lanes())) <= MOST_COPIED;
            (copied * REPEATS <= seen && is_held && fits).then_some(windows)
        })
    }

    /// Emits the fold, and what is stored of it.
    pub fn emit(&self, emission: &mut Emission<'_>, stores: &[usize], held: &FxHashMap<StepId, Held>) -> Result<()> {
        let (bound, lanes) = (emission.bound, emission.lanes());
        let others: i64 = self.outer.iter().map(|axis| bound.extents[*axis]).product();
        let count = self.rows.map_or(1, |rows| bound.extents[rows.along]);
        let pitch = self.pitch(bound, lanes);
        let least = self.least_rows();
        let most = (COPIED / self.row_bytes(bound, lanes)).max(least);
        let runs = share::runs(count, others, (least, most), emission.cores);
        emission.phase("slide", &mut |e: &mut Emitter<'_>| {
            give(e, held);
            let width = unroll_across(e, self.lane.along);
            let tile_rows = (tile_vectors(e.isa.registers()) / width).clamp(1, count);
            let (tiling, together) = Tiling::in_runs(count, tile_rows, runs);
            let chunks = ceil_div(tiling.count, together);
            let task = e.b.begin_tasks();
            let chunks_value = e.b.number(chunks);
            let chunk = e.b.int(IntOp::FloorMod, task, chunks_value);
            let number = e.b.int(IntOp::FloorDiv, task, chunks_value);
            let Chunk { from, to, .. } = tiling.chunk(e, chunk, together);
            let origin = Point::origin(bound.extents.len());
            let origin = rows_point(e, &self.outer, &origin, number);
            let rows_held = together * tiling.rows + self.rows_more();
            let (first, behind) = (tiling.row(e, from), tiling.row(e, to));
            let copy = self.copy(e, &origin, (first, behind), (pitch, rows_held))?;
            tiling.each_height(e, from, to, &mut |e, row, rows| {
                let before = e.b.int(IntOp::Sub, row, first);
                let skipped = e.b.times(before, copy.row_bytes);
                let start = e.b.int(IntOp::Add, copy.start, skipped);
                self.tile(e, &copy, start, (&origin, row), (rows, width), stores)
            })?;
            e.b.end_loop(&[]);
            Ok(others * chunks)
        })
    }

    /// Into how many strands rows are taken apart.
    fn lines(&self) -> i64 {
        self.rows.map_or(1, |rows| rows.strands())
    }

    /// How many rows are seen beyond one for every row of results.
    fn rows_more(&self) -> i64 {
        self.rows.map_or(0, |rows| rows.more(0))
    }

    /// Rows of results that a task has at least, if there are as many: with fewer, what it copies is mostly seen by others too.
    fn least_rows(&self) -> i64 {
        LEAST_ROWS.max(self.rows_more())
    }

    /// Elements from row to row of a copy: all that vectors of results read, in whole vectors.
    fn pitch(&self, bound: &Bound<'_>, lanes: i64) -> i64 {
        let results = ceil_div(bound.extents[self.lane.along], lanes) * lanes;
        ceil_div(results + self.lane.more(0), lanes) * lanes
    }

    /// Bytes of a row of a copy, in all strands.
    fn row_bytes(&self, bound: &Bound<'_>, lanes: i64) -> i64 {
        self.lines() * self.lane.strands() * self.pitch(bound, lanes) * bytes_of(DType::F32)
    }

    /// Copies what the windows of some rows see into the worker's memory.
    fn copy(
        &self,
        e: &mut Emitter<'_>,
        origin: &Point,
        (first, behind): (Value, Value),
        (pitch, rows_held): (i64, i64),
    ) -> Result<Copy> {
        let bytes = bytes_of(DType::F32);
        let own = e.pointer(Memory::Worker);
        let start = e.b.plus(own, e.worker_bytes as i64);
        let row_bytes = pitch * bytes;
        let copy = Copy {
            start,
            row_bytes,
            strand_bytes: row_bytes * rows_held,
            line_bytes: row_bytes * rows_held * self.lane.strands(),
        };
        e.worker_bytes += (copy.line_bytes * self.lines()) as usize;
        e.writes.insert(Memory::Worker);
        for line in 0..self.lines() {
            for strand in 0..self.lane.strands() {
                let at = e.b.plus(start, line * copy.line_bytes + strand * copy.strand_bytes);
                let Some(rows) = self.rows else {
                    self.copy_row(e, origin, strand, (at, pitch))?;
                    continue;
                };
                let end = e.b.plus(behind, rows.more(line));
                let (row, inside) = e.b.begin_loop(To::Value(first), To::Value(end), 1, &[at]);
                let point = origin.with(rows.along, Coord { base: Some(row), plus: 0, lanes: false });
                let point = point.with(rows.over, fixed(line));
                self.copy_row(e, &point, strand, (inside[0], pitch))?;
                let next = e.b.plus(inside[0], row_bytes);
                e.b.end_loop(&[next]);
            }
        }
        Ok(copy)
    }

    /// Copies a strand of a row: whole vectors, then those with lanes beyond what is seen, up to the end of the row.
    fn copy_row(&self, e: &mut Emitter<'_>, point: &Point, strand: i64, (at, pitch): (Value, i64)) -> Result<()> {
        let (lanes, bytes) = (e.lanes(), bytes_of(DType::F32));
        let seen = e.bound.extents[self.lane.along] + self.lane.more(strand);
        let point = point.with(self.lane.over, fixed(strand));
        let whole = seen / lanes * lanes;
        if whole > 0 {
            let (x, _) = e.b.begin_loop(To::Number(0), To::Number(whole), lanes, &[]);
            e.multiples.insert(x, lanes);
            let point = point.with(self.lane.along, Coord { base: Some(x), plus: 0, lanes: true });
            let value = e.values(&[self.source], &[point])?[0][0];
            let place = e.b.address(at, &[(x, bytes)], 0);
            e.b.store(place, value, DType::F32, None);
            e.b.end_loop(&[]);
        }
        let zero = e.b.number(0);
        for plus in (whole..pitch).step_by(lanes as usize) {
            let value = if plus < seen {
                let point = point.with(self.lane.along, Coord { base: Some(zero), plus, lanes: true });
                let point = e.below(point, zero, plus, seen);
                e.values(&[self.source], &[point])?[0][0]
            } else {
                e.b.float(Ty::F32, 0.0)
            };
            let place = e.b.address(at, &[], plus * bytes);
            e.b.store(place, value, DType::F32, None);
        }
        Ok(())
    }

    /// Emits the results of some rows, block by block of lanes; `start` is where the first row of the copy lies.
    fn tile(
        &self,
        e: &mut Emitter<'_>,
        copy: &Copy,
        start: Value,
        (origin, row): (&Point, Value),
        (rows, width): (i64, i64),
        stores: &[usize],
    ) -> Result<()> {
        let kernel = e.bound.kernel;
        let (lanes, extent) = (e.lanes(), e.bound.extents[self.lane.along]);
        let (x, _) = e.b.begin_loop(To::Number(0), To::Number(extent), width * lanes, &[]);
        e.multiples.insert(x, width * lanes);
        let mut points = Vec::new();
        for r in 0..rows {
            let at_row = match self.rows {
                Some(rows) => origin.with(rows.along, Coord { base: Some(row), plus: r, lanes: false }),
                None => origin.clone(),
            };
            for v in 0..width {
                let point = at_row.with(self.lane.along, Coord { base: Some(x), plus: v * lanes, lanes: true });
                let is_whole = extent % (width * lanes) == 0;
                points.push(if is_whole { point } else { e.below(point, x, v * lanes, extent) });
            }
        }
        let skipped = e.b.times(x, bytes_of(DType::F32));
        let start = e.b.int(IntOp::Add, start, skipped);
        let kept = self.fold_terms(e, copy, start, &points, width)?;
        let axes = kernel.step(self.fold).axes;
        let results =
            points.iter().zip(&kept).map(|(point, kept)| (point.key(axes), self.folding.result(&mut e.b, kept)));
        let results = results.collect();
        e.given.insert(self.fold, Given::Values(results));
        e.store_all(stores, &points)?;
        e.given.remove(&self.fold);
        e.b.end_loop(&[]);
        Ok(())
    }

    /// Emits all terms of the folds at some points; what they keep.
    fn fold_terms(
        &self,
        e: &mut Emitter<'_>,
        copy: &Copy,
        start: Value,
        points: &[Point],
        width: i64,
    ) -> Result<Vec<Kept>> {
        let (down, across) = (self.rows.map_or(1, |rows| rows.terms), self.lane.terms);
        let mut kept: Vec<Kept> = points.iter().map(|_| self.folding.neutral(&mut e.b)).collect();
        let parts = self.folding.parts();
        let flat = |kept: &[Kept]| kept.iter().flatten().copied().collect::<Vec<Value>>();
        let deep = |flat: &[Value]| flat.chunks(parts).map(Kept::from_slice).collect::<Vec<Kept>>();
        // A loop stands where too much would be written out otherwise.
        let (loops_down, loops_across) = (down > 1 && down * across > WRITTEN_OUT, across > WRITTEN_OUT);
        let mut points = points.to_vec();
        let mut start = start;
        if loops_down && let Some(rows) = self.rows {
            let (term, inside) = e.b.begin_loop(To::Number(0), To::Number(down), 1, &flat(&kept));
            kept = deep(&inside);
            start = rows.moved(e, start, term, (copy.line_bytes, copy.row_bytes));
            let coord = Coord { base: Some(term), plus: 0, lanes: false };
            points = points.iter().map(|point| point.with(rows.over, coord)).collect();
        }
        if loops_across {
            let (term, inside) = e.b.begin_loop(To::Number(0), To::Number(across), 1, &flat(&kept));
            kept = deep(&inside);
            start = self.lane.moved(e, start, term, (copy.strand_bytes, bytes_of(DType::F32)));
            let coord = Coord { base: Some(term), plus: 0, lanes: false };
            points = points.iter().map(|point| point.with(self.lane.over, coord)).collect();
        }
        if loops_down || loops_across {
            e.b.stay_inside();
        }
        for down in 0..if loops_down { 1 } else { down } {
            for across in 0..if loops_across { 1 } else { across } {
                let mut offset = 0;
                if let Some(rows) = self.rows.filter(|_| !loops_down) {
                    let (line, shift) = rows.place(down);
                    offset += line * copy.line_bytes + shift * copy.row_bytes;
                    points.iter_mut().for_each(|point| *point = point.with(rows.over, fixed(down)));
                }
                if !loops_across {
                    let (strand, shift) = self.lane.place(across);
                    offset += strand * copy.strand_bytes + shift * bytes_of(DType::F32);
                    points.iter_mut().for_each(|point| *point = point.with(self.lane.over, fixed(across)));
                }
                self.term(e, (start, offset, copy.row_bytes), &points, width, &mut kept)?;
            }
        }
        e.b.move_outside();
        for _ in 0..i32::from(loops_across) + i32::from(loops_down) {
            let behind = e.b.end_loop(&flat(&kept));
            kept = deep(&behind);
        }
        Ok(kept)
    }

    /// One term joins the fold at every point.
    fn term(
        &self,
        e: &mut Emitter<'_>,
        (start, offset, row_bytes): (Value, i64, i64),
        points: &[Point],
        width: i64,
        kept: &mut [Kept],
    ) -> Result<()> {
        let vector = e.lanes() * bytes_of(DType::F32);
        let operands = e.bound.kernel.step(self.fold).op.operands();
        let others: Vec<StepId> = operands.iter().copied().filter(|id| *id != self.source).collect();
        let values = e.values(&others, points)?;
        let others: FxHashMap<StepId, Vec<Value>> = others.into_iter().zip(values).collect();
        for (k, kept) in kept.iter_mut().enumerate() {
            let (r, v) = (k as i64 / width, k as i64 % width);
            let at = e.b.address(start, &[], offset + r * row_bytes + v * vector);
            let seen = e.b.load_again(at, DType::F32, None);
            let terms: Vec<Value> = operands.iter().map(|id| others.get(id).map_or(seen, |values| values[k])).collect();
            *kept = self.folding.join(&mut e.b, kept, &terms, None, None);
        }
        Ok(())
    }
}

/// What the windows of a task see, in the worker's memory.
#[derive(Clone, Copy, Debug)]
struct Copy {
    /// an Int: where it begins
    start: Value,
    row_bytes: i64,
    /// from strand to strand of a row
    strand_bytes: i64,
    /// from strand to strand of rows
    line_bytes: i64,
}

/// A coordinate that is known.
fn fixed(at: i64) -> Coord {
    Coord { base: None, plus: at, lanes: false }
}

/// The expressions by which a step, and what it is computed from, depends on some axes; `None` where it does not by what it reads alone.
fn seen_by(bound: &Bound<'_>, id: StepId, axes: AxisSet, held: &FxHashMap<StepId, Held>) -> Option<Vec<Dim>> {
    let kernel = bound.kernel;
    let mut dims = Vec::new();
    for id in reached(kernel, &[id], &|id| held.contains_key(&id)) {
        if let Some(held) = held.get(&id) {
            dims.push(held.offset.clone());
            continue;
        }
        match &kernel.step(id).op {
            Op::Load { reads, .. } => {
                let access = bound.load(id);
                if !access.checked.is_empty() || !reads.is_empty() {
                    return None;
                }
                dims.push(access.offset.clone());
                dims.extend(access.guards.iter().map(|(dim, _)| dim.clone()));
            }
            Op::Map { expr, .. } => dims.extend(coordinates_of(expr, axes)),
            _ => return None,
        }
    }
    Some(dims)
}

/// The sums of coordinates by which an expression depends on some axes.
fn coordinates_of(expr: &Expr, axes: AxisSet) -> Vec<Dim> {
    let mut sums: Vec<Option<Dim>> = Vec::new();
    let mut asked = vec![true; expr.nodes().len()];
    for (node, _) in expr.nodes() {
        let sum = match node {
            ExprNode::Const(Number::Int(n)) => Some(Dim::int(*n)),
            ExprNode::Coord(axis) => Some(Dim::axis(usize::from(*axis))),
            ExprNode::Apply(op, operands) => match (op, operands.as_slice()) {
                (Scalar::Add, [a, b]) => sums[*a as usize].clone().zip(sums[*b as usize].clone()).map(|(a, b)| a + b),
                (Scalar::Sub, [a, b]) => sums[*a as usize].clone().zip(sums[*b as usize].clone()).map(|(a, b)| a - b),
                (Scalar::Mul, [a, b]) => sums[*a as usize].clone().zip(sums[*b as usize].clone()).map(|(a, b)| a * b),
                _ => None,
            },
            _ => None,
        };
        // What is part of a sum is asked for by that alone.
        if sum.is_some() {
            node.operands().iter().for_each(|operand| asked[*operand as usize] = false);
        }
        sums.push(sum);
    }
    // A part may have other readers.
    for ((node, _), _) in expr.nodes().iter().zip(&sums).filter(|(_, sum)| sum.is_none()) {
        node.operands().iter().for_each(|operand| asked[*operand as usize] = true);
    }
    let asked = sums.into_iter().zip(asked).filter_map(|(sum, asked)| sum.filter(|_| asked));
    asked.filter(|sum| !AxisSet::mentioned(sum).common(axes).is_empty()).collect()
}
