//! Two contractions joined along a stream.
//!
//! A task owns some rows (queries) of one batch point (a head). It streams over blocks of keys: scores of the block by the
//! first contraction, into the worker's memory; row by row, the running folds (the largest score, the sum of weights) follow
//! and scores become weights; then the second contraction adds the block to the results, which were brought up to date by
//! the schedule's corrections. At the end the results are stored with what comes after. Both contractions are computed by vectors or,
//! of bf16 where the machine has them, by tiles.

mod tiles;
mod vectors;

use fuseline::error::{Error, Result};
use fuseline::tensor::{DType, Dim};
use fuseline::tile::{AxisSet, Chain, Correction, Op, Rounding, Schedule, StepId};
use rustc_hash::FxHashMap;

use super::bound::{bytes_of, ceil_div};
use super::contract::behind;
use super::emitter::{Emitter, Given, Held};
use super::fold::Folding;
use super::generic::{emit_fold, emit_generic, give, held_dtype};
use super::matrix::unrounded;
use super::multiply::{batch_point, column_point, rows_point};
use super::narrow::hold_narrow;
use super::point::{Coord, Point};
use super::roles::Roles;
use super::rows::{Pass, Rows, dense_offset};
use super::stream::{depth, folds, joined, score};
use super::tile_sums::LINE;
use super::{Emission, Memory};
use crate::vector::{Bound as To, IntOp, Ty, Value};
use tiles::Tiles;
use vectors::Vectors;

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
    if let Some(tiles) = Tiles::of(emission, &attention, &held)? {
        return attention.emit_phase(emission, &tiles, &held);
    }
    let vectors = Vectors::of(emission, &attention, &held)?;
    attention.emit_phase(emission, &vectors, &held)
}

/// How both contractions are computed.
trait Products {
    /// Tasks of a batch point.
    fn chunks(&self) -> i64;

    /// Rows for which the worker's memory has places.
    fn task_rows(&self) -> i64;

    /// Keys that are worked on together: all blocks but the last are multiples of it.
    fn panel(&self) -> i64;

    /// Columns of a row of results in the worker's memory.
    fn padded(&self) -> i64;

    /// Whether memory has sums as they are, of which scores are computed when they are read, and weights are bf16 in a place of their own.
    /// Otherwise it has scores, which become weights where they lie.
    fn leaves_sums(&self) -> bool;

    /// The rows of a task by its number.
    fn span(&self, e: &mut Emitter<'_>, chunk: Value) -> Span;

    /// Emits the scores of a block of keys, or their sums.
    fn scores(&self, e: &mut Emitter<'_>, places: &Places, task: &Task, keys: Keys) -> Result<()>;

    /// Emits the results with one more block of keys.
    fn results(&self, e: &mut Emitter<'_>, places: &Places, task: &Task, keys: Keys) -> Result<()>;
}

/// Rows of a task, from one up to another, and the tiles that these are.
#[derive(Clone, Copy)]
struct Span {
    tiles: (Value, Value),
    rows: (Value, Value),
}

/// What a task works on.
struct Task {
    batch: Value,
    origin: Point,
    span: Span,
}

/// A block of keys: the first, an Int, and how many.
#[derive(Clone, Copy)]
struct Keys {
    first: Value,
    length: i64,
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

    fn emit_phase(
        &self,
        emission: &mut Emission<'_>,
        products: &dyn Products,
        held: &FxHashMap<StepId, Held>,
    ) -> Result<()> {
        emission.phase("attention", &mut |e: &mut Emitter<'_>| {
            give(e, held);
            self.emit(e, products)
        })
    }

    fn emit(&self, e: &mut Emitter<'_>, products: &dyn Products) -> Result<i64> {
        let bound = e.bound;
        let (first, chunks, panel) = (&self.first, products.chunks(), products.panel());
        let keys = bound.extents[first.columns[0]];
        let (most, least) =
            if self.first_hidden(e).is_some() { (CAUSAL_BLOCK, ceil_div(keys, 2)) } else { (BLOCK, keys) };
        let block = most.min(ceil_div(least, panel) * panel);

        let task = e.b.begin_tasks();
        let chunks_value = e.b.number(chunks);
        // The last rows first: they may have more to do.
        let chunk = e.b.int(IntOp::FloorMod, task, chunks_value);
        let last_chunk = e.b.number(chunks - 1);
        let chunk = e.b.int(IntOp::Sub, last_chunk, chunk);
        let batch = e.b.int(IntOp::FloorDiv, task, chunks_value);
        let span = products.span(e, chunk);
        let task = Task { batch, origin: batch_point(e, first, batch), span };
        let places = self.places(e, span.rows.0, block, products);
        self.start(e, &places, &task)?;
        let full = keys / block;
        let blocks = self.blocks(e, keys, block, span.rows);
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
            let keys = Keys { first: key, length };
            products.scores(e, &places, &task, keys)?;
            self.weights(e, &places, &task, keys)?;
            products.results(e, &places, &task, keys)?;
            e.b.end_loop(&[]);
        }
        self.finish(e, &places, &task)?;
        e.b.end_loop(&[]);
        Ok(first.batch_count(bound) * chunks)
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
    fn places(&self, e: &mut Emitter<'_>, first_row: Value, block: i64, products: &dyn Products) -> Places {
        let bound = e.bound;
        let kernel = bound.kernel;
        let own = e.pointer(Memory::Worker);
        let row = dense_offset(&self.first.rows, &bound.extents);
        let mut start = ceil_div(e.worker_bytes as i64, LINE) * LINE;
        let mut place = |e: &mut Emitter<'_>, row_elements: i64, column: Dim, dtype: DType| {
            let bytes = bytes_of(dtype);
            let before = e.b.times(first_row, -row_elements * bytes);
            let base = e.b.int(IntOp::Add, own, before);
            let base = e.b.plus(base, start);
            start += ceil_div(products.task_rows() * row_elements * bytes, LINE) * LINE;
            let offset = &row * row_elements + column;
            Held { memory: Memory::Worker, base: Some(base), offset, dtype, again: true }
        };
        let key = Dim::axis(self.first.columns[0]);
        let column = dense_offset(&self.second.columns, &bound.extents);
        let (of, weights, across) = match products.leaves_sums() {
            // Rows a line longer than a power of two are not all in the same few sets of a cache.
            true => {
                let narrow = block + LINE / bytes_of(DType::BF16);
                (self.chain.first, Some((place(e, narrow, key.clone(), DType::BF16), narrow)), block + LINE / 4)
            }
            false => (self.score, None, block),
        };
        let scores = place(e, across, key, held_dtype(kernel.step(of).dtype));
        let results = place(e, products.padded(), column, held_dtype(kernel.step(self.chain.second).dtype));
        let running =
            self.folds.iter().map(|(id, _)| (*id, place(e, 1, Dim::int(0), held_dtype(kernel.step(*id).dtype))));
        let running: Vec<(StepId, Held)> = running.collect();
        e.worker_bytes = start as usize;
        Places { scores, across, weights, results, padded: products.padded(), running }
    }

    /// Results and running folds begin with nothing.
    fn start(&self, e: &mut Emitter<'_>, places: &Places, task: &Task) -> Result<()> {
        let kernel = e.bound.kernel;
        let (point, padded) = (self.begin_rows(e, task), places.padded);
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

    /// Begins a loop over the rows of a task.
    fn begin_rows(&self, e: &mut Emitter<'_>, task: &Task) -> Point {
        let (from, to) = task.span.rows;
        let (row, _) = e.b.begin_loop(To::Value(from), To::Value(to), 1, &[]);
        rows_point(e, &self.first.rows, &task.origin, row)
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

    /// Row by row: the running folds follow, scores become weights, results are brought up to date.
    fn weights(&self, e: &mut Emitter<'_>, places: &Places, task: &Task, keys: Keys) -> Result<()> {
        let kernel = e.bound.kernel;
        e.given.remove(&self.chain.first);
        let kept = if places.weights.is_some() { self.chain.first } else { self.score };
        e.given.insert(kept, Given::Held(places.scores.clone()));
        let plan = self.passes(e, places);
        let end = e.b.plus(keys.first, keys.length);
        let point = self.begin_rows(e, task);
        self.clear_end(e, places, &point, keys);
        // The running results before and after this block.
        let mut changed: FxHashMap<StepId, (Value, Value)> = FxHashMap::default();
        for (depth, pass) in plan.passes.iter().enumerate() {
            e.pass(&plan, pass, std::slice::from_ref(&point), Some((keys.first, end)))?;
            for (id, _) in self.folds.iter().filter(|(_, own)| *own == depth) {
                let Some(folding) = Folding::of(kernel, *id) else { continue };
                let held = places.running(*id)?;
                let (old, block) = (e.load_held(&held, &point), e.kept_at(*id, &point)?);
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
            self.each_vector(e, &point, places.padded, &mut |e, at| {
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
        let held = plan.passes.iter().flat_map(|pass| pass.holds.iter().map(|(id, _)| *id));
        for id in held.chain([self.chain.first, self.score, self.weight]) {
            e.given.remove(&id);
        }
        Ok(())
    }

    /// Clears the weights of keys behind the last one, as far as a tile has them: they are multiplied with zeros, but must be numbers.
    fn clear_end(&self, e: &mut Emitter<'_>, places: &Places, row: &Point, keys: Keys) {
        let Some((weights, _)) = &places.weights else { return };
        let whole = keys.length / tiles::TERMS * tiles::TERMS;
        if whole == keys.length {
            return;
        }
        let coord = Coord { base: Some(keys.first), plus: whole, lanes: false };
        let start = e.address_of(weights, &row.with(self.first.columns[0], coord));
        let zero = e.b.integer(Ty::I32, 0);
        let vector = e.lanes() * 4;
        for k in 0..tiles::TERMS * bytes_of(DType::BF16) / vector {
            let at = e.b.address(start, &[], k * vector);
            e.b.store(at, zero, DType::I32, None);
        }
    }

    /// The passes over a row of scores.
    fn passes(&self, e: &Emitter<'_>, places: &Places) -> Rows {
        let stream = self.first.columns[0];
        let deepest = self.folds.iter().map(|(_, depth)| depth + 1).max().unwrap_or(0);
        let mut passes = vec![Pass::default(); deepest.max(self.weight_depth + 1)];
        for (id, depth) in &self.folds {
            passes[*depth].folds.push(*id);
        }
        match &places.weights {
            Some((weights, _)) => {
                // It is rounded when it is written, so that nobody may read it again for what it was before.
                let is_last = passes.len() == self.weight_depth + 1;
                let before = unrounded(e.bound.kernel, self.weight).filter(|_| is_last);
                let weight = before.unwrap_or(self.weight);
                passes[self.weight_depth].holds.push((weight, weights.clone()));
                // What is more than a product is not computed again in every pass.
                let is_costly =
                    matches!(&e.bound.kernel.step(self.score).op, Op::Map { expr, .. } if expr.nodes().len() > 3);
                if passes.len() > 1 && self.score != self.chain.first && is_costly {
                    passes[0].holds.push((self.score, places.scores.clone()));
                }
            }
            None if self.weight != self.score => {
                // They take the place of the scores, which folds read until then.
                let last = passes.len() - 1;
                passes[last].holds.push((self.weight, places.scores.clone()));
            }
            None => {}
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
            turned: None,
            drawn: Vec::new(),
            several: None,
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

    /// Stores the results with what comes after.
    fn finish(&self, e: &mut Emitter<'_>, places: &Places, task: &Task) -> Result<()> {
        let second = &self.second;
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
            turned: None,
            drawn: Vec::new(),
            several: None,
            streaming: false,
        };
        let point = self.begin_rows(e, task);
        e.row(&plan, &[point], None)?;
        e.b.end_loop(&[]);
        Ok(())
    }
}

/// The worker's memory.
struct Places {
    scores: Held,
    /// elements from row to row of the scores
    across: i64,
    /// weights and the elements from row to row of these, where they do not take the place of scores
    weights: Option<(Held, i64)>,
    results: Held,
    /// elements from row to row of the results
    padded: i64,
    running: Vec<(StepId, Held)>,
}

impl Places {
    /// The same where scores begin with another key.
    fn moved(&self, e: &mut Emitter<'_>, key: Value) -> Places {
        let mut move_one = |held: &Held| {
            let before = e.b.times(key, -bytes_of(held.dtype));
            let base = held.base.map(|base| e.b.int(IntOp::Add, base, before));
            Held { base, ..held.clone() }
        };
        let weights = self.weights.as_ref().map(|(held, across)| (move_one(held), *across));
        let (scores, results) = (move_one(&self.scores), self.results.clone());
        Places { scores, across: self.across, weights, results, padded: self.padded, running: self.running.clone() }
    }

    fn running(&self, id: StepId) -> Result<Held> {
        let found = self.running.iter().find(|(own, _)| *own == id);
        found.map(|(_, held)| held.clone()).ok_or_else(|| Error::bug(format!("{id:?} is no running fold")))
    }
}
