//! Two contractions joined along a stream.
//!
//! A task owns some rows (queries) of one batch point (a head). It streams over blocks of keys: scores of the block by the
//! first contraction, into the worker's memory; row by row, the running folds (the largest score, the sum of weights) follow
//! and scores become weights; then the second contraction adds the block to the results, which were brought up to date by
//! the schedule's corrections. At the end the results are stored with what comes after.

use fuseline::error::{Error, Result};
use fuseline::tensor::{DType, Dim};
use fuseline::tile::{AxisSet, Chain, Correction, Op, Rounding, Schedule, StepId};
use rustc_hash::FxHashMap;

use super::bound::{bytes_of, ceil_div};
use super::contract::behind;
use super::emitter::{Emitter, Given, Held};
use super::factors::{even_stride, left_factor, pack_right, panel_bytes, panel_vectors};
use super::fold::Folding;
use super::generic::{emit_fold, emit_generic, give, held_dtype};
use super::multiply::{TILE_ROWS, batch_point, column_point, give_sums, rows_point, tile_points};
use super::narrow::hold_narrow;
use super::point::Point;
use super::roles::Roles;
use super::rows::{Pass, Rows, dense_offset};
use super::stream::{depth, folds, joined, score};
use super::tile_sums::{Stepped, TileSums};
use super::tiling::{Chunk, Tiling};
use super::{Emission, Memory, share};
use crate::vector::{Bound as To, IntOp, Value};

/// Rows that a task works on, at most, and at least if there are as many.
const ROWS: i64 = 48;
const LEAST_ROWS: i64 = 2 * TILE_ROWS;

/// Keys of a block, and where rows do not see all of them: those that a row does not see are skipped by blocks.
const BLOCK: i64 = 256;
const CAUSAL_BLOCK: i64 = 128;

/// With fewer rows, packing the keys costs more than it saves.
const FEWEST_ROWS: i64 = 4;

/// The parts of an attention kernel.
struct Attention<'e> {
    chain: &'e Chain,
    corrections: &'e [Correction],
    /// scores: rows of queries, columns of keys
    first: Roles,
    /// results: the same rows, columns of values, summed along the keys
    second: Roles,
    /// what is kept of the scores: the step that everything behind the first contraction reads
    score: StepId,
    /// the left factor of the second contraction
    weight: StepId,
    /// folds along the stream, each with the passes that must be over before it
    folds: Vec<(StepId, usize)>,
    /// the passes that must be over before weights can be computed
    weight_depth: usize,
}

/// Emits attention.
pub(super) fn emit_attention(emission: &mut Emission<'_>) -> Result<()> {
    let bound = emission.bound;
    let Some(attention) = Attention::of(emission) else { return emit_generic(emission) };
    let mut held: FxHashMap<StepId, Held> = FxHashMap::default();
    hold_narrow(emission, &mut held)?;
    let dots = [attention.chain.first, attention.chain.second];
    let behind = behind(emission, &dots);
    for (k, step) in bound.kernel.steps.iter().enumerate() {
        let id = StepId(k as u32);
        if step.op.is_fold() && !dots.contains(&id) && !behind[k] {
            let place = emit_fold(emission, id, &held)?;
            held.insert(id, place);
        }
    }
    let (left, row_stride, term_stride) = left_factor(emission, &attention.first, &held)?;
    let bytes = bytes_of(left.dtype);
    let stepped = Stepped { dtype: left.dtype, row_bytes: row_stride * bytes, term_bytes: term_stride * bytes };
    let keys = pack_right(emission, &attention.first, attention.first.right[0], &held)?;
    let (values, value_step) = value_factor(emission, &attention.second, &held)?;
    let (rows, batches) = (attention.first.row_count(bound), attention.first.batch_count(bound));
    let runs = share::runs(rows, batches, (LEAST_ROWS, ROWS), emission.cores);
    let (tiling, together) = Tiling::in_runs(rows, TILE_ROWS, runs);
    let value_width = value_width(emission, &attention.second, &values);
    let factors = Factors { left, stepped, keys, values, value_step, value_width, tiling, together };
    emission.phase("attention", &mut |e: &mut Emitter<'_>| {
        give(e, &held);
        attention.emit(e, &factors)
    })
}

/// Where the factors lie, and how rows are divided.
struct Factors {
    left: Held,
    stepped: Stepped,
    keys: Held,
    values: Held,
    /// bytes from key to key of the values
    value_step: i64,
    /// vectors of columns that a tile of results has
    value_width: i64,
    tiling: Tiling,
    /// tiles of a task
    together: i64,
}

/// The values as they lie, where columns lie in a row and keys at even distances; otherwise packed.
fn value_factor(emission: &mut Emission<'_>, roles: &Roles, held: &FxHashMap<StepId, Held>) -> Result<(Held, i64)> {
    let bound = emission.bound;
    let id = roles.right[0];
    if let Op::Load { input, .. } = &bound.kernel.step(id).op {
        let access = bound.load(id);
        let plain = access.checked.is_empty() && access.guards.is_empty() && access.dtype == DType::F32;
        let columns = even_stride(bound, &access.offset, &roles.columns);
        let terms = even_stride(bound, &access.offset, &roles.sum);
        if let (true, Some(1), Some(stride)) = (plain, columns, terms) {
            let offset = access.offset.clone();
            let values = Held { memory: Memory::Input(*input), base: None, offset, dtype: access.dtype, again: false };
            return Ok((values, stride * bytes_of(access.dtype)));
        }
    }
    let place = pack_right(emission, roles, id, held)?;
    let step = panel_vectors(emission.isa) * emission.lanes() * bytes_of(place.dtype);
    Ok((place, step))
}

/// How many vectors of columns tiles of results have: as few as there are, and of those that are more all tiles about as many. Panels of what is
/// packed are cut evenly.
fn value_width(emission: &Emission<'_>, roles: &Roles, values: &Held) -> i64 {
    let most = panel_vectors(emission.isa);
    let vectors = ceil_div(roles.column_count(emission.bound), emission.lanes());
    match values.memory {
        Memory::Input(_) => ceil_div(vectors, ceil_div(vectors, most)),
        _ => {
            // Sums of one vector would wait for each other.
            let widths = (2.min(vectors)..=most).rev().filter(|width| most % width == 0);
            widths.min_by_key(|width| ceil_div(vectors, *width) * width).unwrap_or(most)
        }
    }
}

impl<'e> Attention<'e> {
    /// The parts of the kernel; `None` where it is not of the form that is emitted here.
    fn of(emission: &Emission<'e>) -> Option<Attention<'e>> {
        let bound = emission.bound;
        let kernel = bound.kernel;
        let Schedule::Attention { chain, corrections, .. } = &kernel.schedule else { return None };
        let first = joined(bound, chain.first, chain.stream)?;
        let second = joined(bound, chain.second, chain.columns)?;
        let lanes = emission.lanes();
        let even = |roles: &Roles| {
            roles.columns.len() == 1 || roles.columns.last().is_some_and(|axis| bound.extents[*axis] % lanes == 0)
        };
        let summed: AxisSet = second.sum.iter().copied().collect();
        let outer: AxisSet = first.batch.iter().chain(&first.rows).copied().collect();
        let same = second.batch.iter().chain(&second.rows).copied().collect::<AxisSet>() == outer;
        if !even(&first) || !even(&second) || summed != chain.stream || !same || chain.stream.len() != 1 {
            return None;
        }
        if first.row_count(bound) < FEWEST_ROWS || second.batch != first.batch {
            return None;
        }
        let float = [chain.first, chain.second].iter().all(|id| kernel.step(*id).dtype.is_float());
        let weight = second.left;
        let behind = behind(emission, &[chain.first]);
        let folds = folds(emission, &behind, chain, outer)?;
        let columns: AxisSet = second.columns.iter().copied().collect();
        let stored = kernel
            .stores
            .iter()
            .all(|store| outer.is_within(store.axes()) && store.axes().is_within(outer.union(columns)));
        if !float || !stored || !behind[weight.index()] && weight != chain.first {
            return None;
        }
        let score = score(emission, chain, &folds, weight);
        let weight_depth = depth(emission, weight, &folds);
        Some(Attention { chain, corrections, first, second, score, weight, folds, weight_depth })
    }

    fn emit(&self, e: &mut Emitter<'_>, factors: &Factors) -> Result<i64> {
        let bound = e.bound;
        let (first, second) = (&self.first, &self.second);
        let (tiling, together) = (&factors.tiling, factors.together);
        let chunks = ceil_div(tiling.count, together);
        let stream = first.columns[0];
        let keys = bound.extents[stream];
        let (most, least) =
            if self.first_hidden(e).is_some() { (CAUSAL_BLOCK, ceil_div(keys, 2)) } else { (BLOCK, keys) };
        let block = most.min(ceil_div(least, self.panel(e)) * self.panel(e));
        let (task_rows, padded) = (together * tiling.rows, self.padded(e, factors));

        let task = e.b.begin_tasks();
        let chunks_value = e.b.number(chunks);
        // The last rows first: they may have more to do.
        let chunk = e.b.int(IntOp::FloorMod, task, chunks_value);
        let last_chunk = e.b.number(chunks - 1);
        let chunk = e.b.int(IntOp::Sub, last_chunk, chunk);
        let batch = e.b.int(IntOp::FloorDiv, task, chunks_value);
        let Chunk { from, to, .. } = tiling.chunk(e, chunk, together);
        let rows = (tiling.row(e, from), tiling.row(e, to));
        let origin = batch_point(e, first, batch);
        let places = self.places(e, rows.0, task_rows, block, padded);
        self.start(e, &places, &origin, rows, padded)?;
        let full = keys / block;
        let blocks = self.blocks(e, keys, block, rows);
        for (begin, end, length) in [(0, full, block), (full, ceil_div(keys, block), keys - full * block)] {
            if begin == end {
                continue;
            }
            let last = e.b.number(end);
            let last = match blocks {
                Some(blocks) => e.b.int(IntOp::Min, blocks, last),
                None => last,
            };
            let (number, _) = e.b.begin_loop(To::Number(begin), To::Value(last), 1, &[]);
            let key = e.b.times(number, block);
            e.multiples.insert(key, block);
            let places = places.moved(e, key);
            self.scores(e, factors, &places, &origin, (from, to), key, length)?;
            self.weights(e, &places, &origin, rows, key, length, padded)?;
            self.results(e, factors, &places, &origin, (from, to), key, length)?;
            e.b.end_loop(&[]);
        }
        self.finish(e, &places, &origin, rows, second)?;
        e.b.end_loop(&[]);
        Ok(first.batch_count(bound) * chunks)
    }

    /// Keys of a panel.
    fn panel(&self, e: &Emitter<'_>) -> i64 {
        panel_vectors(e.isa) * e.lanes()
    }

    /// Columns of a row of results in the worker's memory.
    fn padded(&self, e: &Emitter<'_>, factors: &Factors) -> i64 {
        let across = factors.value_width * e.lanes();
        ceil_div(self.second.column_count(e.bound), across) * across
    }

    /// From how many keys behind its own place on a row sees nothing, where that is so.
    fn first_hidden(&self, e: &Emitter<'_>) -> Option<i64> {
        let kernel = e.bound.kernel;
        let Op::Map { expr, .. } = &kernel.step(self.score).op else { return None };
        let row = self.first.rows.first().filter(|_| kernel.rounding != Rounding::Every)?;
        fuseline::tile::first_masked(expr, self.first.columns[0], *row)
    }

    /// How many blocks of keys some rows need, where it is not all of them.
    fn blocks(&self, e: &mut Emitter<'_>, keys: i64, block: i64, rows: (Value, Value)) -> Option<Value> {
        let (_, inner) = self.first.rows.split_first()?;
        let beyond = self.first_hidden(e)?;
        // Keys from `row + beyond` on have no weight; the last row of the task sees most.
        let inner = inner.iter().map(|axis| e.bound.extents[*axis]).product();
        let (last, inner) = (e.b.plus(rows.1, -1), e.b.number(inner));
        let last = e.b.int(IntOp::FloorDiv, last, inner);
        let behind = e.b.plus(last, beyond + block - 1);
        let size = e.b.number(block);
        let needed = e.b.int(IntOp::FloorDiv, behind, size);
        // A row that sees nothing still has one block, so that its folds are those of masked scores.
        let (one, all) = (e.b.number(1), e.b.number(ceil_div(keys, block)));
        let needed = e.b.int(IntOp::Max, needed, one);
        Some(e.b.int(IntOp::Min, needed, all))
    }

    /// The worker's memory: scores, results, running folds.
    fn places(&self, e: &mut Emitter<'_>, first_row: Value, rows: i64, block: i64, padded: i64) -> Places {
        let bound = e.bound;
        let kernel = bound.kernel;
        let own = e.pointer(Memory::Worker);
        let row = dense_offset(&self.first.rows, &bound.extents);
        let mut start = e.worker_bytes as i64;
        let mut place = |e: &mut Emitter<'_>, row_elements: i64, column: Dim, dtype: DType| {
            let bytes = bytes_of(dtype);
            let before = e.b.times(first_row, -row_elements * bytes);
            let base = e.b.int(IntOp::Add, own, before);
            let base = e.b.plus(base, start);
            start += ceil_div(rows * row_elements * bytes, 64) * 64;
            let offset = &row * row_elements + column;
            Held { memory: Memory::Worker, base: Some(base), offset, dtype, again: true }
        };
        let key = Dim::axis(self.first.columns[0]);
        let column = dense_offset(&self.second.columns, &bound.extents);
        let scores = place(e, block, key, held_dtype(kernel.step(self.score).dtype));
        let results = place(e, padded, column, held_dtype(kernel.step(self.chain.second).dtype));
        let running =
            self.folds.iter().map(|(id, _)| (*id, place(e, 1, Dim::int(0), held_dtype(kernel.step(*id).dtype))));
        let running: Vec<(StepId, Held)> = running.collect();
        e.worker_bytes = start as usize;
        Places { scores, results, running, block }
    }

    /// Results and running folds begin with nothing.
    fn start(
        &self,
        e: &mut Emitter<'_>,
        places: &Places,
        origin: &Point,
        rows: (Value, Value),
        padded: i64,
    ) -> Result<()> {
        let kernel = e.bound.kernel;
        let (row, _) = e.b.begin_loop(To::Value(rows.0), To::Value(rows.1), 1, &[]);
        let point = rows_point(e, &self.first.rows, origin, row);
        for (id, held) in &places.running {
            let Some(folding) = Folding::of(kernel, *id) else { continue };
            let neutral = folding.neutral(&mut e.b);
            let value = folding.result(&mut e.b, &neutral);
            e.store_held(held, value, &point);
        }
        let Some(folding) = Folding::of(kernel, self.chain.second) else { return Err(Error::bug("no contraction")) };
        let zero = folding.neutral(&mut e.b)[0];
        self.each_vector(e, &point, padded, &mut |e, at| {
            e.store_held(&places.results, zero, at);
            Ok(())
        })?;
        e.b.end_loop(&[]);
        Ok(())
    }

    /// Emits code for every vector of a padded row of results.
    fn each_vector(
        &self,
        e: &mut Emitter<'_>,
        point: &Point,
        padded: i64,
        body: &mut dyn FnMut(&mut Emitter<'_>, &Point) -> Result<()>,
    ) -> Result<()> {
        let lanes = e.lanes();
        if padded / lanes <= 8 {
            let zero = e.b.number(0);
            for v in 0..padded / lanes {
                let at = column_point(e, &self.second.columns, point, zero, v * lanes);
                body(e, &at)?;
            }
            return Ok(());
        }
        let (start, _) = e.b.begin_loop(To::Number(0), To::Number(padded), lanes, &[]);
        e.multiples.insert(start, lanes);
        let at = column_point(e, &self.second.columns, point, start, 0);
        body(e, &at)?;
        e.b.end_loop(&[]);
        Ok(())
    }

    /// The scores of a block of keys.
    #[allow(clippy::too_many_arguments, reason = "where, which rows, which keys")]
    fn scores(
        &self,
        e: &mut Emitter<'_>,
        factors: &Factors,
        places: &Places,
        origin: &Point,
        tiles: (Value, Value),
        key: Value,
        length: i64,
    ) -> Result<()> {
        let kernel = e.bound.kernel;
        let roles = &self.first;
        let (panel, width) = (self.panel(e), panel_vectors(e.isa));
        let (number, _) = e.b.begin_loop(To::Number(0), To::Number(ceil_div(length, panel)), 1, &[]);
        let plus = e.b.times(number, panel);
        let start = e.b.int(IntOp::Add, key, plus);
        e.multiples.insert(start, panel);
        let at = column_point(e, &roles.columns, origin, start, 0);
        let right = e.address_of(&factors.keys, &at);
        factors.tiling.each(e, tiles.0, tiles.1, &mut |e, _, first, rows| {
            let points = tile_points(e, roles, origin, (first, rows), (start, width));
            let at_first = rows_point(e, &roles.rows, origin, first);
            let left = e.address_of(&factors.left, &at_first);
            let sums = TileSums {
                foldings: Folding::of_factors(kernel, self.chain.first, roles.left).into_iter().collect(),
                rows,
                width,
                terms: roles.sum_count(e.bound),
                left: factors.stepped,
                right: vec![(factors.keys.dtype, panel_bytes(e, factors.keys.dtype))],
                panels: None,
                masks: Vec::new(),
                ahead: None,
            };
            let kept = sums.emit(e, left, &[right], None);
            give_sums(e, &roles.dots, &sums, &kept, &points);
            e.b.stay_inside();
            let values = e.values(&[self.score], &points)?;
            e.b.move_outside();
            for (point, value) in points.iter().zip(&values[0]) {
                // Rows are padded: lanes beyond the end may be written.
                e.store_held(&places.scores, *value, &point.clone().unmasked());
            }
            Ok(())
        })?;
        e.b.end_loop(&[]);
        Ok(())
    }

    /// Row by row: the running folds follow, scores become weights, results are brought up to date.
    #[allow(clippy::too_many_arguments, reason = "where, which rows, which keys")]
    fn weights(
        &self,
        e: &mut Emitter<'_>,
        places: &Places,
        origin: &Point,
        rows: (Value, Value),
        key: Value,
        length: i64,
        padded: i64,
    ) -> Result<()> {
        let kernel = e.bound.kernel;
        e.given.remove(&self.chain.first);
        e.given.insert(self.score, Given::Held(places.scores.clone()));
        let plan = self.passes(e, places);
        let end = e.b.plus(key, length);
        let (row, _) = e.b.begin_loop(To::Value(rows.0), To::Value(rows.1), 1, &[]);
        let point = rows_point(e, &self.first.rows, origin, row);
        // The running results before and after this block.
        let mut changed: FxHashMap<StepId, (Value, Value)> = FxHashMap::default();
        for (depth, pass) in plan.passes.iter().enumerate() {
            e.pass(&plan, pass, std::slice::from_ref(&point), Some((key, end)))?;
            for (id, _) in self.folds.iter().filter(|(_, own)| *own == depth) {
                let Some(folding) = Folding::of(kernel, *id) else { continue };
                let held = places.running(*id)?;
                let (old, block) = (e.load_held(&held, &point), e.given_at(*id, &point)?);
                let kept = match self.factor(e, *id, &changed) {
                    Some(factor) => e.b.binary(crate::vector::Binary::Mul, old, factor),
                    None => old,
                };
                let new = folding.merge_results(&mut e.b, kept, block);
                e.store_held(&held, new, &point);
                let key = point.key(kernel.step(*id).axes);
                e.given.insert(*id, Given::Values(std::iter::once((key, new)).collect()));
                changed.insert(*id, (old, new));
            }
        }
        if let Some(factor) = self.factor(e, self.chain.second, &changed) {
            self.each_vector(e, &point, padded, &mut |e, at| {
                let old = e.load_held(&places.results, at);
                let new = e.b.binary(crate::vector::Binary::Mul, old, factor);
                e.store_held(&places.results, new, at);
                Ok(())
            })?;
        }
        e.b.end_loop(&[]);
        for (id, _) in &self.folds {
            e.given.remove(id);
        }
        e.given.remove(&self.score);
        e.given.remove(&self.weight);
        Ok(())
    }

    /// The passes over a row of scores.
    fn passes(&self, e: &Emitter<'_>, places: &Places) -> Rows {
        let stream = self.first.columns[0];
        let deepest = self.folds.iter().map(|(_, depth)| depth + 1).max().unwrap_or(0);
        let mut passes = vec![Pass::default(); deepest.max(self.weight_depth + 1)];
        for (id, depth) in &self.folds {
            passes[*depth].folds.push(*id);
        }
        if self.weight != self.score {
            passes[self.weight_depth].holds.push((self.weight, places.scores.clone()));
        }
        let most = if e.lanes() * 4 >= 64 { 4 } else { 2 };
        Rows {
            outer: self.first.batch.iter().chain(&self.first.rows).copied().collect(),
            inner: vec![stream],
            lane: Some(stream),
            passes,
            results: Vec::new(),
            stores: Vec::new(),
            unroll: most,
            streaming: false,
        }
    }

    /// With what a fold is multiplied because others have changed.
    fn factor(&self, e: &mut Emitter<'_>, fold: StepId, changed: &FxHashMap<StepId, (Value, Value)>) -> Option<Value> {
        let mut product = None;
        for correction in self.corrections.iter().filter(|c| c.fold == fold) {
            let (old, new) = changed.get(&correction.on)?;
            let origin = Point::origin(e.bound.extents.len());
            let factor = e.map(&correction.factor, &[vec![*old], vec![*new]], &[&origin], Rounding::Ends)[0];
            product = Some(match product {
                Some(other) => e.b.binary(crate::vector::Binary::Mul, other, factor),
                None => factor,
            });
        }
        product
    }

    /// The results with one more block of keys.
    #[allow(clippy::too_many_arguments, reason = "where, which rows, which keys")]
    fn results(
        &self,
        e: &mut Emitter<'_>,
        factors: &Factors,
        places: &Places,
        origin: &Point,
        tiles: (Value, Value),
        key: Value,
        length: i64,
    ) -> Result<()> {
        let kernel = e.bound.kernel;
        let roles = &self.second;
        let width = factors.value_width;
        let panel = width * e.lanes();
        let columns = roles.column_count(e.bound);
        let (number, _) = e.b.begin_loop(To::Number(0), To::Number(ceil_div(columns, panel)), 1, &[]);
        let start = e.b.times(number, panel);
        e.multiples.insert(start, panel);
        let stream = roles.sum[0];
        let at_key = origin.with(stream, super::point::Coord { base: Some(key), plus: 0, lanes: false });
        let at = column_point(e, &roles.columns, &at_key, start, 0);
        let right = e.address_of(&factors.values, &at);
        let dtype = places.scores.dtype;
        factors.tiling.each(e, tiles.0, tiles.1, &mut |e, _, first, rows| {
            let points = tile_points(e, roles, origin, (first, rows), (start, width));
            let at_first = rows_point(e, &roles.rows, &at_key, first);
            let left = e.address_of(&places.scores, &at_first);
            let masks: Vec<Value> = points.iter().take(width as usize).filter_map(|point| point.mask).collect();
            let whole: Vec<Point> = points.iter().cloned().map(Point::unmasked).collect();
            let sums = TileSums {
                foldings: Folding::of_factors(kernel, self.chain.second, roles.left).into_iter().collect(),
                rows,
                width,
                terms: length,
                left: Stepped { dtype, row_bytes: places.block * bytes_of(dtype), term_bytes: bytes_of(dtype) },
                right: vec![(factors.values.dtype, factors.value_step)],
                panels: None,
                masks,
                ahead: None,
            };
            let kept: Vec<Value> = whole.iter().map(|point| e.load_held(&places.results, point)).collect();
            let kept = sums.emit(e, left, &[right], Some(kept));
            for (point, value) in whole.iter().zip(kept) {
                e.store_held(&places.results, value, point);
            }
            Ok(())
        })?;
        e.b.end_loop(&[]);
        Ok(())
    }

    /// Stores the results with what comes after.
    fn finish(
        &self,
        e: &mut Emitter<'_>,
        places: &Places,
        origin: &Point,
        rows: (Value, Value),
        second: &Roles,
    ) -> Result<()> {
        for (id, held) in &places.running {
            e.given.insert(*id, Given::Held(held.clone()));
        }
        e.given.insert(self.chain.second, Given::Held(places.results.clone()));
        let columns: AxisSet = second.columns.iter().copied().collect();
        let lane = second.columns.last().copied();
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        for (k, store) in e.bound.kernel.stores.iter().enumerate() {
            if store.axes().common(columns).is_empty() { outside.push(k) } else { inside.push(k) }
        }
        let plan = Rows {
            outer: self.first.batch.iter().chain(&self.first.rows).copied().collect(),
            inner: second.columns.clone(),
            lane,
            passes: vec![Pass { stores: inside, ..Pass::default() }],
            results: Vec::new(),
            stores: outside,
            // A loop of two trips at least: what a row knows stands outside of it, and is divided by once.
            unroll: super::generic::unroll(e, lane).min(second.column_count(e.bound) / e.lanes() / 2).max(1),
            streaming: false,
        };
        let (row, _) = e.b.begin_loop(To::Value(rows.0), To::Value(rows.1), 1, &[]);
        let point = rows_point(e, &self.first.rows, origin, row);
        e.row(&plan, &[point], None)?;
        e.b.end_loop(&[]);
        Ok(())
    }
}

/// The worker's memory.
struct Places {
    scores: Held,
    results: Held,
    running: Vec<(StepId, Held)>,
    /// elements from row to row of the scores
    block: i64,
}

impl Places {
    /// The same where scores begin with another key.
    fn moved(&self, e: &mut Emitter<'_>, key: Value) -> Places {
        let mut scores = self.scores.clone();
        let before = e.b.times(key, -bytes_of(scores.dtype));
        scores.base = scores.base.map(|base| e.b.int(IntOp::Add, base, before));
        Places { scores, results: self.results.clone(), running: self.running.clone(), block: self.block }
    }

    fn running(&self, id: StepId) -> Result<Held> {
        let found = self.running.iter().find(|(own, _)| *own == id);
        found.map(|(_, held)| held.clone()).ok_or_else(|| Error::bug(format!("{id:?} is no running fold")))
    }
}
