//! Rows that stand in lanes while their elements lie in memory one behind another: four columns of as many rows as there are lanes are
//! read as fours of elements and turned in registers, and turned back before they are written. Whole rows of few columns are [`super::interleave`]d.

use std::ops::Range;

use fuseline::error::Result;
use fuseline::tensor::{DType, Dim};
use fuseline::tile::{AxisSet, Op, StepId};
use smallvec::{SmallVec, smallvec};

use super::Memory;
use super::bound::{Access, Bound};
use super::emitter::{Emitter, Given, Held};
use super::fold::Folding;
use super::fold_loop::Steps;
use super::index::{Index, gcd, index_at};
use super::interleave::Interleaved;
use super::lanes::slope_along;
use super::point::{Coord, Point};
use super::rows::{Pass, Rows};
use crate::vector::{Address, Binary, Bound as To, IntOp, Value};

/// Columns that are turned at a time.
pub(super) const COLUMNS: i64 = 4;

/// Rows of fewer columns are read element by element.
const FEWEST_COLUMNS: i64 = 3;

/// How many columns are worked on at a time, at most: four, and at the end of a row that is not made of fours the last five to seven; all where these are fewer.
pub(super) fn columns_abreast(columns: i64) -> i64 {
    match columns % COLUMNS {
        0 => COLUMNS,
        left => columns.min(COLUMNS + left),
    }
}

/// Fours that have all of some columns, which follow each other: how far behind the first column each begins, and which it has that no other one has. One that is
/// all of a row of fewer columns has the first of the next row too.
fn fours(count: i64) -> SmallVec<[(i64, Range<usize>); 2]> {
    match count - COLUMNS {
        behind @ 1.. => smallvec![(0, 0..4), (behind, (4 - behind) as usize..4)],
        _ => smallvec![(0, 0..count as usize)],
    }
}

/// How many blocks of as many rows as there are lanes are turned. Fours that begin with a row of fewer elements end in the next one, which must be there.
pub(super) fn turned_blocks(rows: i64, columns: i64, lanes: i64) -> i64 {
    if columns < COLUMNS { (rows - 1) / lanes } else { rows / lanes }
}

/// The axis of columns of rows that could be turned if lanes ran along an axis of rows: whatever varies over both lies in rows of 32-bit elements. `None`
/// where nothing does, where there are fewer rows than lanes, or where rows that do not fill a vector stand in the middle.
pub(super) fn turned_columns(
    bound: &Bound<'_>,
    along: AxisSet,
    outer: AxisSet,
    lane: usize,
    lanes: i64,
) -> Option<usize> {
    let long = |axes: AxisSet| axes.iter().filter(|axis| bound.extents[*axis] > 1).collect::<Vec<_>>();
    let rows = bound.extents[lane];
    let [column] = long(along)[..] else { return None };
    let is_last = turned_blocks(rows, bound.extents[column], lanes) * lanes == rows || long(outer) == [lane];
    if !outer.contains(lane) || rows < lanes || bound.extents[column] < FEWEST_COLUMNS || !is_last {
        return None;
    }
    let steps = (0..bound.kernel.steps.len()).map(|k| StepId(k as u32));
    let loads = steps.filter(|id| matches!(bound.kernel.step(*id).op, Op::Load { .. })).map(|id| bound.load(id));
    let both: Vec<&Access> = loads
        .chain(&bound.stores)
        .filter(|access| AxisSet::of(lane).with(column).is_within(AxisSet::mentioned(&access.offset)))
        .collect();
    let turns = |access: &&Access| is_turned(bound, access, lane, column);
    let drawn = bound.kernel.steps.iter().all(|step| match &step.op {
        Op::Random { index, reads, .. } => reads.is_empty() && bound.is_row(&bound.dim(index), lane, column),
        _ => true,
    });
    (!both.is_empty() && drawn && both.iter().all(turns)).then_some(column)
}

/// Whether elements lie in rows along an axis, which stand in lanes along another.
fn is_turned(bound: &Bound<'_>, access: &Access, lane: usize, column: usize) -> bool {
    let is_plain = access.checked.is_empty() && access.guards.is_empty() && access.reads.is_empty();
    is_plain
        && !access.is_empty
        && matches!(access.dtype, DType::F32 | DType::I32 | DType::U32)
        && slope_along(bound, &access.offset, column) == Some(1)
        && slope_along(bound, &access.offset, lane).is_some_and(|stride| stride > 1)
}

/// Blocks of rows whose random words are drawn together: so many that the words of all end with the last of four vectors.
pub(super) fn blocks_drawn(columns: i64) -> i64 {
    COLUMNS / gcd(COLUMNS, columns)
}

/// Places in the worker's memory for the random words of some blocks of rows that are turned.
pub(super) fn places_of_words(e: &mut Emitter<'_>, lane: usize, column: usize) -> Vec<(StepId, Held)> {
    let (bound, lanes) = (e.bound, e.lanes());
    let steps = (0..bound.kernel.steps.len()).map(|k| StepId(k as u32));
    let draws = steps.filter(|id| matches!(bound.kernel.step(*id).op, Op::Random { .. }));
    let columns = bound.extents[column];
    let rows = blocks_drawn(columns) * lanes;
    // Of the last row of few columns some more are read.
    let elements = rows * columns + COLUMNS;
    let mut places = Vec::new();
    for id in draws {
        let start = e.worker_bytes.next_multiple_of(64);
        e.worker_bytes = start + 4 * elements as usize;
        let worker = e.pointer(Memory::Worker);
        let base = Some(e.b.plus(worker, start as i64));
        let offset = Dim::axis(lane).modulo(&Dim::int(rows)) * columns + Dim::axis(column);
        places.push((id, Held { memory: Memory::Worker, base, offset, dtype: DType::U32, again: true }));
    }
    places
}

/// Fours of elements in memory, one row behind another.
struct Turned {
    at: Address,
    /// elements from row to row
    stride: i64,
    dtype: DType,
}

impl Turned {
    /// Where fours of rows begin: of the first, and of every fourth one behind it.
    fn quads(&self) -> [(Address, u32); 4] {
        let row = |k: i64| Address { offset: self.at.offset + (k * self.stride * 4) as i32, ..self.at };
        std::array::from_fn(|k| (row(k as i64), 4 * self.stride as u32))
    }
}

impl Emitter<'_> {
    /// Emits blocks of rows that are turned in registers, from one up to another; rows that do not fill the last one are read and written
    /// element by element.
    pub fn rows_turned(&mut self, rows: &Rows, sizes: &[i64], (first, last): (Value, Value)) -> Result<()> {
        let (lanes, extents) = (self.lanes(), &self.bound.extents);
        let (Some(lane), Some(column)) = (rows.lane, rows.turned) else { return Ok(()) };
        let whole = turned_blocks(extents[lane], extents[column], lanes);
        let fills = whole * lanes == extents[lane];
        let number = self.b.number(whole);
        let given = self.given.clone();
        for is_whole in [true, false] {
            let (from, to) = match (fills, is_whole) {
                (true, true) => (first, last),
                (true, false) => continue,
                (false, true) => (first, self.b.int(IntOp::Min, last, number)),
                (false, false) => (self.b.int(IntOp::Max, first, number), last),
            };
            let (row, _) = self.b.begin_loop(To::Value(from), To::Value(to), 1, &[]);
            let point = self.decode(rows, sizes, row, Some(lanes));
            if is_whole {
                let begins = self.b.int(IntOp::Eq, row, from);
                self.draw_turned(rows, &point, begins)?;
                self.turns = rows.turned;
                self.row(rows, &[point], None)?;
                self.turns = None;
            } else {
                let points = self.lane_block(rows, &point);
                self.row(rows, &points, None)?;
            }
            self.b.end_loop(&[]);
            self.given.clone_from(&given);
        }
        Ok(())
    }

    /// The loop along columns of rows that are turned, four at a time, and the last of them where these are no fours.
    pub fn column_loops(
        &mut self,
        rows: &Rows,
        pass: &Pass,
        foldings: &[Folding],
        column: usize,
        points: &[Point],
        kept: Vec<Value>,
    ) -> Result<Vec<Value>> {
        let extent = self.bound.extents[column];
        let abreast = columns_abreast(extent);
        let whole = if extent % COLUMNS == 0 { extent } else { extent - abreast };
        let columns = |var: Value, count: i64| {
            let at = move |k: i64| Coord { base: Some(var), plus: k, lanes: false };
            let of_row = move |point: &Point| (0..count).map(|k| point.with(column, at(k))).collect::<Vec<_>>();
            points.iter().flat_map(of_row).collect::<Vec<Point>>()
        };
        let mut kept = kept;
        if whole > 0 {
            // The accumulators of the last columns, where they are more, begin with them.
            let others = kept.split_off(kept.len() / abreast as usize * COLUMNS as usize);
            let steps = Steps { from: To::Number(0), to: To::Number(whole), by: COLUMNS, inside: 1 };
            kept = self.fold_loop(foldings, steps, kept, |e, var, inside| {
                e.body(rows, pass, foldings, &columns(var, COLUMNS), inside)
            })?;
            kept.extend(others);
        }
        if extent > whole {
            let var = self.b.number(whole);
            kept = self.body(rows, pass, foldings, &columns(var, extent - whole), kept)?;
        }
        Ok(kept)
    }

    /// The values of a load at points of a row of columns that are turned; `None` where it is read otherwise.
    pub fn load_turned(&mut self, id: StepId, points: &[&Point]) -> Option<Vec<Value>> {
        let (bound, count) = (self.bound, points.len() as i64);
        // Fewer columns than a four has are all that there are: what comes behind them is the next row.
        let fits = |columns: &usize| (COLUMNS.min(bound.extents[*columns])..2 * COLUMNS).contains(&count);
        let columns = self.turns.filter(fits)?;
        let Op::Load { input, .. } = &bound.kernel.step(id).op else { return None };
        let (memory, access) = (Memory::Input(*input), bound.load(id));
        let whole = self.turned(memory, access, points[0], points)?;
        if let Some(rows) = Interleaved::of(points.len(), whole.stride, self.b.lanes()) {
            self.reads.insert(memory);
            return Some(rows.load(&mut self.b, whole.at, whole.dtype));
        }
        let mut values = Vec::with_capacity(points.len());
        for (from, taken) in fours(count) {
            let turned = self.turned(memory, access, &points[0].moved(columns, from), points)?;
            let rows = turned.quads().map(|(at, apart)| self.b.load_quads(at, apart, turned.dtype));
            values.extend_from_slice(&self.turn(rows)[taken]);
        }
        self.reads.insert(memory);
        Some(values)
    }

    /// Draws the random words of some blocks of rows, element behind element, into the worker's memory, where rows find them: with the first of the blocks,
    /// and with the one that a task begins with. `point` is the first row of a block.
    fn draw_turned(&mut self, rows: &Rows, point: &Point, begins: Value) -> Result<()> {
        let (Some(lane), Some(column)) = (rows.lane, rows.turned) else { return Ok(()) };
        let (Some(base), false) = (point.coord(lane).base, rows.drawn.is_empty()) else { return Ok(()) };
        let (bound, lanes, columns) = (self.bound, self.lanes(), self.bound.extents[column]);
        let drawn = blocks_drawn(columns) * lanes;
        let (number, none) = (self.b.number(drawn), self.b.number(0));
        let behind = self.b.int(IntOp::FloorMod, base, number);
        let is_first = self.b.int(IntOp::Eq, behind, none);
        let wanted = self.b.int(IntOp::Or, is_first, begins);
        let start = self.b.int(IntOp::Sub, base, behind);
        self.multiples.insert(start, drawn);
        // Lanes run along the columns, and on into the rows behind.
        let first = point.with(lane, Coord { base: Some(start), plus: 0, lanes: false });
        for (id, _) in &rows.drawn {
            if let Op::Random { seed, .. } = &bound.kernel.step(*id).op {
                // read once for all rows
                self.coordinate(*seed, &first)?;
            }
        }
        self.b.begin_when(wanted, &[]);
        for (id, held) in &rows.drawn {
            let op = &bound.kernel.step(*id).op;
            let together = COLUMNS * lanes;
            let (element, _) = self.b.begin_loop(To::Number(0), To::Number(drawn * columns), together, &[]);
            self.multiples.insert(element, together);
            let at = |k: i64| Coord { base: Some(element), plus: k * lanes, lanes: true };
            let points: Vec<Point> = (0..COLUMNS).map(|k| first.with(column, at(k))).collect();
            let words = self.randoms(op, &points.iter().collect::<Vec<_>>())?;
            self.writes.insert(held.memory);
            for (k, words) in (0..).zip(words) {
                let worker = held.base.unwrap_or(element);
                let to = self.b.address(worker, &[(element, 4)], k * lanes * 4);
                self.b.store(to, words, DType::U32, None);
            }
            self.b.end_loop(&[]);
        }
        self.b.end_when(&[]);
        self.given.extend(rows.drawn.iter().map(|(id, held)| (*id, Given::Held(held.clone()))));
        Ok(())
    }

    /// Random words that were drawn before, at points of a row of columns that are turned.
    pub fn drawn_turned(&mut self, held: &Held, points: &[&Point]) -> Option<Vec<Value>> {
        let columns = self.turns.filter(|_| held.dtype == DType::U32 && held.memory == Memory::Worker)?;
        if points.len() >= 2 * COLUMNS as usize || points.iter().any(|point| point.mask.is_some()) {
            return None;
        }
        let mut words = Vec::with_capacity(points.len());
        for (from, taken) in fours(points.len() as i64) {
            let first = points[0].moved(columns, from);
            let Index::Sum(sum) = index_at(&mut self.b, &self.multiples, &held.offset, &first, &[]) else {
                return None;
            };
            if sum.lane < 2 {
                return None;
            }
            let terms: Vec<(Value, i64)> = sum.terms.iter().map(|(value, factor)| (*value, factor * 4)).collect();
            let at = self.b.address(held.base?, &terms, sum.constant * 4);
            let turned = Turned { at, stride: sum.lane, dtype: DType::U32 };
            let rows = turned.quads().map(|(at, apart)| self.b.load_quads_again(at, apart, DType::U32));
            words.extend_from_slice(&self.turn(rows)[taken]);
        }
        self.reads.insert(held.memory);
        Some(words)
    }

    /// Writes values at points of a row of columns that are turned; false where they are written otherwise.
    pub fn store_turned(&mut self, store: usize, values: &[Value], points: &[Point]) -> bool {
        let bound = self.bound;
        let (access, memory) = (&bound.stores[store], Memory::Output(bound.kernel.stores[store].output));
        let at: Vec<&Point> = points.iter().collect();
        let Some(columns) = self.turns.filter(|_| !points.is_empty() && points.len() < 2 * COLUMNS as usize) else {
            return false;
        };
        let behind = (points.len() as i64 - COLUMNS).max(0);
        let Some(turned) = self.turned(memory, access, &points[0], &at) else { return false };
        let Some(last) = self.turned(memory, access, &points[0].moved(columns, behind), &at) else { return false };
        self.writes.insert(memory);
        if let Some(rows) = Interleaved::of(points.len(), turned.stride, self.b.lanes()) {
            for (at, vector) in rows.vectors(&mut self.b, turned.at, values) {
                self.b.store(at, vector, turned.dtype, None);
            }
            return true;
        }
        if points.len() < COLUMNS as usize {
            self.store_few(&turned, values);
            return true;
        }
        // Columns of both fours are written twice, as the same.
        self.store_four(&turned, values);
        if behind > 0 {
            self.store_four(&last, &values[behind as usize..]);
        }
        true
    }

    /// Writes fours of columns.
    fn store_four(&mut self, turned: &Turned, values: &[Value]) {
        let rows = self.turn(std::array::from_fn(|k| values[k]));
        for ((at, apart), row) in turned.quads().into_iter().zip(rows) {
            self.b.store_quads(at, apart, row, turned.dtype, None);
        }
    }

    /// Writes fewer columns than four; what stands in for columns behind the end is not written.
    fn store_few(&mut self, turned: &Turned, values: &[Value]) {
        let mask = self.b.first(values.len() as u32);
        let rows = self.turn(std::array::from_fn(|k| values[k.min(values.len() - 1)]));
        for ((at, apart), row) in turned.quads().into_iter().zip(rows) {
            self.b.store_quads(at, apart, row, turned.dtype, Some(mask));
        }
    }

    /// Where fours of elements lie from a point on, if points follow each other in rows that stand in lanes.
    fn turned(&mut self, memory: Memory, access: &Access, first: &Point, points: &[&Point]) -> Option<Turned> {
        let columns = self.turns?;
        let lane = points[0].lane_axis()?;
        let base = points[0].coord(columns);
        let follow = (0i64..).zip(points).all(|(k, point)| {
            let coord = point.coord(columns);
            point.mask.is_none() && coord.base == base.base && coord.plus == base.plus + k
        });
        if !follow || !is_turned(self.bound, access, lane, columns) {
            return None;
        }
        let Index::Sum(sum) = index_at(&mut self.b, &self.multiples, &access.offset, first, &[]) else { return None };
        let stride = sum.lane;
        let terms: Vec<(Value, i64)> = sum.terms.iter().map(|(value, factor)| (*value, factor * 4)).collect();
        let pointer = self.pointer(memory);
        let at = self.b.address(pointer, &terms, sum.constant * 4);
        let furthest = i64::from(at.offset) + 4 * stride * self.lanes();
        i32::try_from(furthest).ok().map(|_| Turned { at, stride, dtype: access.dtype })
    }

    /// Rows of four as columns, within every four lanes.
    fn turn(&mut self, [a, b, c, d]: [Value; 4]) -> [Value; 4] {
        let [ab_low, cd_low] = [(a, b), (c, d)].map(|(x, y)| self.b.binary(Binary::MixLow, x, y));
        let [ab_high, cd_high] = [(a, b), (c, d)].map(|(x, y)| self.b.binary(Binary::MixHigh, x, y));
        let mut join = |x, y| [Binary::JoinLow, Binary::JoinHigh].map(|op| self.b.binary(op, x, y));
        let ([first, second], [third, fourth]) = (join(ab_low, cd_low), join(ab_high, cd_high));
        [first, second, third, fourth]
    }
}
