//! Phases in which a task owns whole rows: maps, folds along axes with everything before, between and after, and folds down
//! columns, lane by lane.
//!
//! A row is a point along the *outer* axes; what happens in it is a list of passes over the *inner* axes. A pass computes
//! folds, stores results, and puts values that later passes need into the worker's memory.

#[cfg(all(test, unix))]
mod tests;

use fuseline::error::Result;
use fuseline::tensor::Dim;
use fuseline::tile::{Op, StepId};
use rustc_hash::FxHashMap;

use super::bound::ceil_div;
use super::emitter::{Emitter, Given, Held};
use super::fold::{Folding, Kept};
use super::fold_loop::{Accumulators, Steps};
use super::generic::most_vectors;
use super::overlap::Overlap;
use super::point::{Coord, Point};
use super::several::Several;
use super::{share, turn};
use crate::vector::{Bound as To, Compare, IntOp, Ty, Value};

/// So many blocks of rows abreast are worth code for those that are left.
const FEW_ABREAST: i64 = 4;

/// What happens in a pass over the inner axes.
#[derive(Clone, Debug, Default)]
pub(super) struct Pass {
    /// folds that it computes, all over all inner axes
    pub folds: Vec<StepId>,
    /// stores, by their place
    pub stores: Vec<usize>,
    /// values that are put into memory
    pub holds: Vec<(StepId, Held)>,
    /// loads that are asked for ahead of time, each with the bytes by which
    pub ahead: Vec<(StepId, i64)>,
    /// whether the last pass over the row before happens in it too, and how
    pub overlap: Option<Overlap>,
}

/// A phase of rows.
#[derive(Clone, Debug)]
pub(super) struct Rows {
    /// the axes of a row's coordinates, outermost first
    pub outer: Vec<usize>,
    /// the axes of a pass, outermost first
    pub inner: Vec<usize>,
    /// along which lanes run: the last of the inner axes, or one of the outer ones; none where nothing can
    pub lane: Option<usize>,
    /// what happens in a row
    pub passes: Vec<Pass>,
    /// results of folds that are put into memory when a row is done
    pub results: Vec<(StepId, Held)>,
    /// stores of what does not vary over the inner axes, by their place
    pub stores: Vec<usize>,
    /// vectors that are worked on at a time
    pub unroll: i64,
    /// the inner axis, four points of which are turned in registers, where lanes run along an axis of rows
    pub turned: Option<usize>,
    /// random words that are drawn for a block of rows that is turned, and where they wait
    pub drawn: Vec<(StepId, Held)>,
    /// how several rows are one, where they are
    pub several: Option<Several>,
    /// whether results are written past the caches
    pub streaming: bool,
}

impl Rows {
    /// Whether a pass over a row is no loop, but at most a block of vectors and one more.
    pub fn is_flat(&self, extents: &[i64], lanes: i64) -> bool {
        let Some((lane, others)) = self.inner.split_last() else { return false };
        let (extent, block) = (extents[*lane], self.unroll * lanes);
        let rest = if extent < block { extent } else { extent - block };
        self.lane == Some(*lane) && others.iter().all(|axis| extents[*axis] == 1) && rest <= lanes
    }
}

impl Emitter<'_> {
    /// Emits a phase of rows; returns the number of tasks.
    pub fn rows(&mut self, rows: &Rows) -> Result<i64> {
        let extents = &self.bound.extents;
        let inside: i64 = match &rows.several {
            Some(several) => several.elements(extents),
            None => rows.inner.iter().map(|axis| extents[*axis]).product(),
        };
        if let Some(overlap) = rows.passes.iter().find_map(|pass| pass.overlap.as_ref()) {
            return self.rows_overlapping(rows, overlap);
        }
        match self.abreast(rows) {
            1 => self.rows_with(rows, inside, &mut |_, _| Ok(())),
            abreast => {
                let mut rows = rows.clone();
                // what comes next is as many rows away
                let asked = rows.passes.iter_mut().flat_map(|pass| &mut pass.ahead);
                asked.for_each(|(_, bytes)| *bytes *= abreast);
                self.rows_abreast(&rows, inside, abreast)
            }
        }
    }

    /// How many rows are worked on at a time. What happens in a short one waits for what happened before, step by step: others fill the time.
    fn abreast(&self, rows: &Rows) -> i64 {
        let (extents, kernel) = (&self.bound.extents, self.bound.kernel);
        let folds = rows.passes.iter().any(|pass| !pass.folds.is_empty());
        let draws = kernel.steps.iter().any(|step| matches!(step.op, Op::Random { .. }));
        let (Some(lane), Some(last)) = (rows.lane, rows.outer.last()) else { return 1 };
        if !folds || draws || !rows.is_flat(extents, self.lanes()) {
            return 1;
        }
        // they do not go on behind the end of an axis, unless it is the only one
        let is_only = rows.outer.iter().all(|axis| axis == last || extents[*axis] == 1);
        let fits = |block: &i64| extents[*last] % block == 0 || (is_only && extents[*last] >= FEW_ABREAST * block);
        let most = most_vectors(self) / ceil_div(extents[lane], self.lanes());
        let blocks = std::iter::successors(Some(most), |block| Some(block / 2));
        blocks.take_while(|block| *block > 1).find(fits).unwrap_or(1)
    }

    /// Emits a phase of rows, each of so many elements, in which something more happens behind the passes; returns the number
    /// of tasks.
    pub fn rows_with(
        &mut self,
        rows: &Rows,
        inside: i64,
        more: &mut dyn FnMut(&mut Self, &[Point]) -> Result<()>,
    ) -> Result<i64> {
        let lane_is_outer = rows.lane.is_some_and(|lane| !rows.inner.contains(&lane));
        // Along an axis of rows, lanes come in blocks.
        let block = rows.unroll * self.lanes();
        let extent = |e: &Self, axis: usize| match rows.lane {
            Some(lane) if lane_is_outer && lane == axis => ceil_div(e.bound.extents[axis], block),
            _ if rows.several.as_ref().is_some_and(|several| several.axis == axis) => {
                ceil_div(e.bound.extents[axis], rows.several.as_ref().map_or(1, |several| several.rows))
            }
            _ => e.bound.extents[axis],
        };
        let sizes: Vec<i64> = rows.outer.iter().map(|axis| extent(self, *axis)).collect();
        let count: i64 = sizes.iter().product();
        let wide = if lane_is_outer { block } else { 1 };
        let size = share::elements(count.saturating_mul(inside).saturating_mul(wide), self.cores);
        // A map over one long row is cut into pieces.
        let piece = self.piece(rows, count, size);
        let pieces = piece.map_or(1, |piece| ceil_div(self.bound.extents[rows.inner[rows.inner.len() - 1]], piece));
        let work = piece.unwrap_or(inside) * wide;
        let together = (size / work.max(1)).clamp(1, (count * pieces).max(1));
        // Blocks whose random words are drawn together belong to one task.
        let drawn = rows.turned.filter(|_| !rows.drawn.is_empty());
        let drawn = drawn.map_or(1, |column| turn::blocks_drawn(self.bound.extents[column]));
        let together = ceil_div(together, drawn) * drawn;
        let tasks = ceil_div(count * pieces, together);

        let task = self.b.begin_tasks();
        let first = self.b.times(task, together);
        let last = self.b.plus(first, together);
        let end = self.b.number(count * pieces);
        let last = self.b.int(IntOp::Min, last, end);
        if let Some(several) = &rows.several {
            self.repeat(several, rows)?;
        }
        if rows.turned.is_some() {
            self.rows_turned(rows, &sizes, (first, last))?;
            self.b.end_loop(&[]);
            return Ok(tasks);
        }
        let (row, _) = self.b.begin_loop(To::Value(first), To::Value(last), 1, &[]);
        let mut rest = row;
        let mut range = None;
        if let Some(piece) = piece {
            let lane = rows.inner[rows.inner.len() - 1];
            let (number, pieces) = (self.b.number(pieces), pieces);
            let which = if pieces == 1 { self.b.number(0) } else { self.b.int(IntOp::FloorMod, row, number) };
            rest = self.b.int(IntOp::FloorDiv, row, number);
            let from = self.b.times(which, piece);
            self.multiples.insert(from, piece);
            let to = self.b.plus(from, piece);
            let all = self.b.number(self.bound.extents[lane]);
            range = Some((from, self.b.int(IntOp::Min, to, all)));
        }
        let point = self.decode(rows, &sizes, rest, if lane_is_outer { Some(block) } else { None });
        if let Some(several) = &rows.several {
            range = Some(self.range_of_several(several, &point));
        }
        let points = if lane_is_outer { self.lane_block(rows, &point) } else { vec![point] };
        self.row(rows, &points, range)?;
        more(self, &points)?;
        self.b.end_loop(&[]);
        self.b.end_loop(&[]);
        Ok(tasks)
    }

    /// Emits a phase of rows, some at a time and those that are left one by one; returns the number of tasks.
    fn rows_abreast(&mut self, rows: &Rows, inside: i64, abreast: i64) -> Result<i64> {
        let sizes: Vec<i64> = rows.outer.iter().map(|axis| self.bound.extents[*axis]).collect();
        let count: i64 = sizes.iter().product();
        let size = share::elements(count.saturating_mul(inside), self.cores);
        let together = ceil_div((size / inside.max(1)).clamp(1, count.max(1)), abreast) * abreast;
        let task = self.b.begin_tasks();
        let first = self.b.times(task, together);
        let (last, end) = (self.b.plus(first, together), self.b.number(count));
        let last = self.b.int(IntOp::Min, last, end);
        let (length, block) = (self.b.int(IntOp::Sub, last, first), self.b.number(abreast));
        let left = self.b.int(IntOp::FloorMod, length, block);
        let whole = if count % abreast == 0 { last } else { self.b.int(IntOp::Sub, last, left) };
        for (from, to, step) in [(first, whole, abreast), (whole, last, 1)] {
            if from == to {
                continue;
            }
            let (row, _) = self.b.begin_loop(To::Value(from), To::Value(to), step, &[]);
            let point = self.decode(rows, &sizes, row, None);
            let points = match rows.outer.last() {
                Some(axis) if step > 1 => self.row_block(*axis, &point, abreast),
                _ => vec![point],
            };
            self.row(rows, &points, None)?;
            self.b.end_loop(&[]);
        }
        self.b.end_loop(&[]);
        Ok(ceil_div(count, together))
    }

    /// Emits what happens in a row: at one point, or at the vectors of a block of lanes along an axis of rows.
    pub fn row(&mut self, rows: &Rows, points: &[Point], range: Option<(Value, Value)>) -> Result<()> {
        for pass in &rows.passes {
            self.pass(rows, pass, points, range)?;
        }
        self.behind_passes(rows, points)
    }

    /// Emits what happens in a row when its passes are over.
    pub fn behind_passes(&mut self, rows: &Rows, points: &[Point]) -> Result<()> {
        for (id, held) in &rows.results {
            for point in points {
                let value = self.kept_at(*id, point)?;
                self.store_held(held, value, point);
            }
        }
        for store in &rows.stores {
            let values = self.values(&[self.bound.kernel.stores[*store].value], points)?;
            for (point, value) in points.iter().zip(&values[0]) {
                self.store(*store, *value, point, false);
            }
        }
        Ok(())
    }

    /// From where to where the elements of several rows go, from a row on.
    fn range_of_several(&mut self, several: &Several, point: &Point) -> (Value, Value) {
        let (rows, columns) = (self.bound.extents[several.axis], self.bound.extents[several.lane]);
        let (none, all) = (self.b.number(0), self.b.number(several.rows * columns));
        let (Some(row), true) = (point.coord(several.axis).base, rows % several.rows != 0) else { return (none, all) };
        let before = self.b.times(row, columns);
        let end = self.b.number(rows * columns);
        let left = self.b.int(IntOp::Sub, end, before);
        (none, self.b.int(IntOp::Min, left, all))
    }

    /// Into which pieces the innermost axis is cut, where nothing folds along it and there is too little else to share.
    fn piece(&self, rows: &Rows, count: i64, size: i64) -> Option<i64> {
        let lane = *rows.inner.last()?;
        let folds = rows.passes.iter().any(|pass| !pass.folds.is_empty());
        let long = self.bound.extents[lane] > 2 * size;
        let alone = rows.lane == Some(lane) && rows.inner.len() == 1;
        (!folds && alone && rows.passes.len() == 1 && long && count < 64).then_some(size)
    }

    /// The coordinates of a row by its number.
    pub fn decode(&mut self, rows: &Rows, sizes: &[i64], number: Value, block: Option<i64>) -> Point {
        let mut point = Point::origin(self.bound.extents.len());
        let mut rest = number;
        for (k, axis) in rows.outer.iter().enumerate().rev() {
            let size = self.b.number(sizes[k]);
            let coord = if k == 0 { rest } else { self.b.int(IntOp::FloorMod, rest, size) };
            rest = self.b.int(IntOp::FloorDiv, rest, size);
            let several = rows.several.as_ref().filter(|several| several.axis == *axis);
            let block = several.map(|several| several.rows).or(block.filter(|_| rows.lane == Some(*axis)));
            let coord = match block {
                Some(block) => {
                    let base = self.b.times(coord, block);
                    self.multiples.insert(base, block);
                    base
                }
                _ => coord,
            };
            let coord = Coord { base: Some(coord), plus: 0, lanes: rows.lane == Some(*axis) };
            point = point.with(*axis, coord);
        }
        point
    }

    /// The vectors of a block of lanes along an axis of rows.
    pub fn lane_block(&mut self, rows: &Rows, point: &Point) -> Vec<Point> {
        let Some(lane) = rows.lane else { return vec![point.clone()] };
        let (lanes, extent) = (self.lanes(), self.bound.extents[lane]);
        let vectors = (0..rows.unroll).map(|k| point.moved(lane, k * lanes));
        let vectors: Vec<Point> = vectors.collect();
        if extent % (rows.unroll * lanes) == 0 {
            return vectors;
        }
        let Some(base) = point.coord(lane).base else { return vectors };
        vectors.into_iter().enumerate().map(|(k, at)| self.below(at, base, k as i64 * lanes, extent)).collect()
    }

    /// Rows that are worked on together, from a multiple of their number along an axis on.
    fn row_block(&mut self, axis: usize, point: &Point, abreast: i64) -> Vec<Point> {
        if let Some(base) = point.coord(axis).base {
            self.multiples.insert(base, abreast);
        }
        (0..abreast).map(|k| point.moved(axis, k)).collect()
    }

    /// A point whose lanes beyond the end are left out.
    pub fn below(&mut self, point: Point, base: Value, plus: i64, end: i64) -> Point {
        let end = self.b.number(end - plus);
        self.below_value(point, base, end)
    }

    /// A point whose lanes at `base` and behind stay below an integer.
    fn below_value(&mut self, point: Point, base: Value, end: Value) -> Point {
        let left = self.b.int(IntOp::Sub, end, base);
        let left = self.b.splat(Ty::I32, left);
        let numbers = self.b.lane_numbers(Ty::I32);
        let mask = self.b.compare(Compare::Lt, numbers, left);
        point.masked(mask)
    }

    /// Emits a pass: loops over the inner axes, then what its folds are.
    pub fn pass(&mut self, rows: &Rows, pass: &Pass, points: &[Point], range: Option<(Value, Value)>) -> Result<()> {
        let kernel = self.bound.kernel;
        let foldings: Vec<Folding> = pass.folds.iter().filter_map(|id| Folding::of(kernel, *id)).collect();
        // Vectors along a folded axis are folded apart and merged at the end.
        let lane_is_inner = rows.lane.is_some_and(|lane| rows.inner.contains(&lane));
        let copies = match (lane_is_inner, self.turns) {
            (true, _) => rows.unroll as usize,
            (false, Some(column)) => turn::columns_abreast(self.bound.extents[column]) as usize,
            (false, None) => 1,
        };
        let mut kept = Accumulators::new(self, &foldings, points.len() * copies);
        kept.values = self.nest(rows, pass, &foldings, &rows.inner, points, kept.values, range)?;
        let across = rows
            .lane
            .is_some_and(|lane| pass.folds.first().is_some_and(|id| kernel.step(*id).op.folds().contains(lane)));
        for (f, id) in pass.folds.iter().enumerate() {
            let mut values = FxHashMap::default();
            for (p, point) in points.iter().enumerate() {
                let mut all = kept.at(p * copies, f);
                for copy in 1..copies {
                    let other = kept.at(p * copies + copy, f);
                    all = foldings[f].merge(&mut self.b, &all, &other);
                }
                if across {
                    all = foldings[f].across(&mut self.b, &all);
                }
                let value = foldings[f].result(&mut self.b, &all);
                values.insert(point.key(kernel.step(*id).axes), value);
            }
            self.given.insert(*id, Given::Values(values));
        }
        for (id, held) in &pass.holds {
            self.given.insert(*id, Given::Held(held.clone()));
        }
        Ok(())
    }

    /// How many terms join what a fold keeps in the loops over some inner axes.
    fn chain(&self, rows: &Rows, axes: &[usize]) -> i64 {
        let block = |axis: usize| if rows.lane == Some(axis) { rows.unroll * self.lanes() } else { 1 };
        axes.iter().map(|axis| ceil_div(self.bound.extents[*axis], block(*axis))).product()
    }

    /// Loops over the inner axes that are left, the first of them within a range; returns what folds keep.
    #[allow(clippy::too_many_arguments, reason = "the state of a nest of loops")]
    fn nest(
        &mut self,
        rows: &Rows,
        pass: &Pass,
        foldings: &[Folding],
        axes: &[usize],
        points: &[Point],
        kept: Vec<Value>,
        range: Option<(Value, Value)>,
    ) -> Result<Vec<Value>> {
        match axes {
            [] => self.body(rows, pass, foldings, points, kept),
            [column] if self.turns == Some(*column) => self.column_loops(rows, pass, foldings, *column, points, kept),
            [lane] if rows.lane == Some(*lane) => self.lane_loops(rows, pass, foldings, *lane, points, kept, range),
            [axis, further @ ..] => {
                // What is left of a range is all there is of the further axes.
                let (from, to) = match range {
                    Some((from, to)) => (To::Value(from), To::Value(to)),
                    None => (To::Number(0), To::Number(self.bound.extents[*axis])),
                };
                let inside = self.chain(rows, further);
                let steps = Steps { from, to, by: 1, inside };
                self.fold_loop(foldings, steps, kept, |e, var, kept| {
                    let coord = Coord { base: Some(var), plus: 0, lanes: false };
                    let points: Vec<Point> = points.iter().map(|point| point.with(*axis, coord)).collect();
                    e.nest(rows, pass, foldings, further, &points, kept, None)
                })
            }
        }
    }

    /// The loops along the lanes: whole blocks of vectors, then vector by vector with the lanes that are left.
    #[allow(clippy::too_many_arguments, reason = "the state of a nest of loops")]
    fn lane_loops(
        &mut self,
        rows: &Rows,
        pass: &Pass,
        foldings: &[Folding],
        lane: usize,
        points: &[Point],
        kept: Vec<Value>,
        range: Option<(Value, Value)>,
    ) -> Result<Vec<Value>> {
        let (lanes, extent) = (self.lanes(), self.bound.extents[lane]);
        let block = rows.unroll * lanes;
        let (from, whole, to, rest) = match range {
            None => {
                let whole = extent / block * block;
                (To::Number(0), To::Number(whole), To::Number(extent), extent > whole)
            }
            Some((from, to)) => {
                let length = self.b.int(IntOp::Sub, to, from);
                let size = self.b.number(block);
                let blocks = self.b.int(IntOp::FloorDiv, length, size);
                let whole = self.b.times(blocks, block);
                let whole = self.b.int(IntOp::Add, from, whole);
                self.multiples.insert(whole, lanes);
                let is_all = self.b.as_number(whole).is_some_and(|whole| self.b.as_number(to) == Some(whole));
                (To::Value(from), To::Value(whole), To::Value(to), !is_all)
            }
        };
        let mut kept = kept;
        if range.is_some() || extent >= block {
            let steps = Steps { from, to: whole, by: block, inside: 1 };
            kept = self.fold_loop(foldings, steps, kept, |e, var, inside| {
                e.multiples.insert(var, block);
                let at = |k: i64| Coord { base: Some(var), plus: k * lanes, lanes: true };
                let row = |point: &Point| (0..rows.unroll).map(|k| point.with(lane, at(k))).collect::<Vec<_>>();
                let vectors: Vec<Point> = points.iter().flat_map(row).collect();
                e.body(rows, pass, foldings, &vectors, inside)
            })?;
        }
        if rest {
            // One vector of a row at a time: only the first accumulators of each take part.
            let each = kept.len() / points.len();
            let first = each / rows.unroll as usize;
            let some: Vec<Value> = kept.chunks(each.max(1)).flat_map(|row| &row[..first]).copied().collect();
            let (var, inside) = self.b.begin_loop(whole, to, lanes, &some);
            self.multiples.insert(var, lanes);
            let mut vectors = Vec::with_capacity(points.len());
            for point in points {
                let at = point.with(lane, Coord { base: Some(var), plus: 0, lanes: true });
                vectors.push(match (range, extent % lanes) {
                    (None, 0) => at,
                    (None, _) => self.below(at, var, 0, extent),
                    (Some((_, to)), _) => self.below_value(at, var, to),
                });
            }
            let next = self.body(rows, pass, foldings, &vectors, inside)?;
            let results = self.b.end_loop(&next);
            let firsts = kept.chunks_mut(each.max(1)).flat_map(|row| &mut row[..first]);
            firsts.zip(results).for_each(|(old, new)| *old = new);
        }
        Ok(kept)
    }

    /// What happens at some points: terms join the folds, values are stored.
    pub fn body(
        &mut self,
        rows: &Rows,
        pass: &Pass,
        foldings: &[Folding],
        points: &[Point],
        kept: Vec<Value>,
    ) -> Result<Vec<Value>> {
        let kernel = self.bound.kernel;
        let mut wanted: Vec<StepId> = Vec::new();
        for id in &pass.folds {
            wanted.extend(kernel.step(*id).op.operands());
        }
        wanted.extend(pass.holds.iter().map(|(id, _)| *id));
        wanted.extend(pass.stores.iter().map(|store| kernel.stores[*store].value));
        for (id, bytes) in &pass.ahead {
            points.iter().filter(|point| point.mask.is_none()).for_each(|point| self.ask_for(*id, point, *bytes));
        }
        let values = self.values(&wanted, points)?;
        if pass.overlap.is_some() {
            self.last_of_row_before(rows, points)?;
        }
        let mut values = values.into_iter();
        let mut kept = Accumulators { foldings: foldings.to_vec(), values: kept };
        for (f, id) in pass.folds.iter().enumerate() {
            let op = &kernel.step(*id).op;
            let terms: Vec<Vec<Value>> = op.operands().iter().filter_map(|_| values.next()).collect();
            // Vectors along an inner axis are copies of one fold, two of which may be looked at together.
            let lane_is_inner = rows.lane.is_some_and(|lane| rows.inner.contains(&lane));
            let outer = rows.outer.iter().copied().collect();
            let mut p = 0;
            while p < points.len() {
                let pair = match &points[p..] {
                    [one, other, ..] => {
                        lane_is_inner && one.is_like(other, outer) && [one, other].iter().all(|at| at.mask.is_none())
                    }
                    _ => false,
                };
                let two = pair.then(|| {
                    let old = [kept.at(p, f), kept.at(p + 1, f)];
                    foldings[f].join_two(&mut self.b, [&old[0], &old[1]], [terms[0][p], terms[0][p + 1]])
                });
                if let Some(Some([first, second])) = two {
                    kept.set(p, f, &first);
                    kept.set(p + 1, f, &second);
                    p += 2;
                    continue;
                }
                let new = self.joined(foldings[f], op, &kept.at(p, f), &terms, &points[p], p);
                kept.set(p, f, &new);
                p += 1;
            }
        }
        for (id, held) in &pass.holds {
            let held_values = values.next().unwrap_or_default();
            for (point, value) in points.iter().zip(&held_values) {
                self.store_held(held, *value, point);
            }
            debug_assert!(!held_values.is_empty(), "{id:?} was asked for");
        }
        for store in &pass.stores {
            let values = values.next().unwrap_or_default();
            if self.store_turned(*store, &values, points) {
                continue;
            }
            for (point, value) in points.iter().zip(values) {
                self.store(*store, value, point, rows.streaming);
            }
        }
        Ok(kept.values)
    }

    /// What a fold keeps when the terms of a point have joined it.
    fn joined(&mut self, folding: Folding, op: &Op, old: &Kept, terms: &[Vec<Value>], point: &Point, p: usize) -> Kept {
        let terms: Vec<Value> = terms.iter().map(|term| term[p]).collect();
        let position = self.position(op, point);
        let mask = point.mask.filter(|_| point.lane_axis().is_some_and(|lane| op.folds().contains(lane)));
        folding.join(&mut self.b, old, &terms, position, mask)
    }

    /// The position of a term along the axis of a fold that wants it.
    fn position(&mut self, op: &Op, point: &Point) -> Option<Value> {
        let Op::Reduce { monoid, over, .. } = op else { return None };
        if !monoid.is_position() {
            return None;
        }
        let coord = point.coord(over.iter().next()?);
        let base = match coord.base {
            Some(base) => self.b.plus(base, coord.plus),
            None => self.b.number(coord.plus),
        };
        let base = self.b.splat(Ty::I32, base);
        if !coord.lanes {
            return Some(base);
        }
        let numbers = self.b.lane_numbers(Ty::I32);
        Some(self.b.binary(crate::vector::Binary::Add, base, numbers))
    }
}

/// The offset of an element among the points of some axes, the last one innermost.
pub(super) fn dense_offset(axes: &[usize], extents: &[i64]) -> Dim {
    let (mut offset, mut stride) = (Dim::int(0), 1);
    for axis in axes.iter().rev() {
        offset = offset + Dim::axis(*axis) * stride;
        stride *= extents[*axis];
    }
    offset
}
