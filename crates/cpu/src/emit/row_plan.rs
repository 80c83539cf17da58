//! What happens in which pass over a row.

use fuseline::error::Result;
use fuseline::tensor::{DType, Dim};
use fuseline::tile::{AxisSet, Kernel, Op, StepId};
use rustc_hash::FxHashMap;

use super::bound::bytes_of;
use super::emitter::{Emitter, Held};
use super::generic::{STREAMED, emit_generic, held_dtype, loads_of, loads_rows, unroll};
use super::lanes::{Folded, SCATTERED, access_cost, choose_lane_of_rows, offsets_read, stride_along};
use super::parts::is_few_and_long;
use super::reach::reached;
use super::rows::{Pass, Rows, dense_offset};
use super::turn::{places_of_words, turned_columns};
use super::{Emission, Memory};
use crate::code::Isa;

/// Arithmetic that is not done twice: its result is put into memory between passes.
const COSTLY: u32 = 6;

/// Bytes of a row that may lie in the worker's memory between passes.
const MOST_HELD: i64 = 1 << 20;

/// Emits a kernel that folds along axes that one worker owns.
pub(super) fn emit_row(emission: &mut Emission<'_>, along: AxisSet) -> Result<()> {
    let bound = emission.bound;
    let kernel = bound.kernel;
    let folds: Vec<&Op> = kernel.steps.iter().map(|step| &step.op).filter(|op| op.is_fold()).collect();
    let plain = folds.iter().all(|op| op.folds() == along && !matches!(op, Op::Prefix { .. }));
    let written = kernel.stores.iter().map(|store| store.axes()).fold(AxisSet::EMPTY, AxisSet::union);
    let outer = written.without(along);
    if !plain
        || along.is_empty()
        || is_few_and_long(bound, along)
        || !kernel.stores.iter().all(|store| outer.is_within(store.axes()))
    {
        return emit_generic(emission);
    }
    let stores: Vec<usize> = (0..kernel.stores.len()).collect();
    let roots: Vec<StepId> = kernel.stores.iter().map(|store| store.value).collect();
    let mut offsets = offsets_read(bound, &roots, &|_| false);
    offsets.extend(bound.stores.iter().map(|access| access.offset.clone()));
    emission.phase("row", &mut |e: &mut Emitter<'_>| {
        let draws = kernel.steps.iter().filter(|step| matches!(step.op, Op::Random { .. })).count();
        let folded = Folded {
            along,
            times: folds.len(),
            flops: flops_along(kernel, &roots, along),
            draws,
            wide_masks: e.isa == Isa::Avx2,
        };
        let lane = choose_lane_of_rows(bound, along.union(outer), &offsets, e.lanes(), folded);
        let (outer, inner) = (ordered(outer, lane), ordered(along, lane));
        let mut rows = plan_rows(e, outer, inner, lane, &stores)?;
        e.let_overlap(&mut rows);
        e.rows(&rows)
    })
}

/// The arithmetic of what steps are made of, at every point along some axes.
fn flops_along(kernel: &Kernel, steps: &[StepId], along: AxisSet) -> u32 {
    let all = reached(kernel, steps, &|_| false).into_iter().map(|id| kernel.step(id));
    let flops = all.filter(|step| !step.axes.common(along).is_empty()).map(|step| match &step.op {
        Op::Map { expr, .. } => expr.flops(),
        _ => 0,
    });
    flops.sum()
}

/// Axes in ascending order, but for that of the lanes, which is last.
fn ordered(axes: AxisSet, lane: Option<usize>) -> Vec<usize> {
    let others = axes.iter().filter(|axis| Some(*axis) != lane);
    others.chain(lane.filter(|lane| axes.contains(*lane))).collect()
}

/// Plans the passes over a row that stores need: a fold follows those that its terms need.
pub(super) fn plan_rows(
    e: &mut Emitter<'_>,
    outer: Vec<usize>,
    inner: Vec<usize>,
    lane: Option<usize>,
    stores: &[usize],
) -> Result<Rows> {
    let bound = e.bound;
    let kernel = bound.kernel;
    let within: AxisSet = inner.iter().copied().collect();
    let outside: AxisSet = outer.iter().copied().collect();
    let turned = lane.and_then(|lane| turned_columns(bound, within, outside, lane, e.lanes()));
    // Four columns of rows that are turned are as many vectors as registers have room for.
    let unroll = if turned.is_some() { 1 } else { unroll(e, lane) };
    let drawn = lane.zip(turned).map_or_else(Vec::new, |(lane, column)| places_of_words(e, lane, column));
    let mut rows = Rows {
        outer,
        inner,
        lane,
        passes: Vec::new(),
        results: Vec::new(),
        stores: Vec::new(),
        unroll,
        turned,
        drawn,
        several: None,
        streaming: false,
    };
    let roots: Vec<StepId> = stores.iter().map(|k| kernel.stores[*k].value).collect();
    let depths = depths(e, &roots);
    let pass = |rows: &mut Rows, k: usize| rows.passes.resize(rows.passes.len().max(k + 1), Pass::default());
    for (id, depth) in &depths {
        if kernel.step(*id).op.is_fold() && !e.given.contains_key(id) {
            pass(&mut rows, depth - 1);
            rows.passes[depth - 1].folds.push(*id);
        }
    }
    for store in stores {
        let Some((_, depth)) = depths.iter().find(|(id, _)| *id == kernel.stores[*store].value) else { continue };
        if kernel.stores[*store].axes().common(within).is_empty() {
            rows.stores.push(*store);
        } else {
            pass(&mut rows, *depth);
            rows.passes[*depth].stores.push(*store);
        }
    }
    let bytes = |k: &usize| bound.count(kernel.stores[*k].axes()) * bytes_of(bound.stores[*k].dtype);
    rows.streaming = stores.iter().map(bytes).sum::<i64>() >= STREAMED;
    hold_between(e, &mut rows, within);
    if rows.streaming {
        // Memory is read while there is most else to do.
        let busiest = (0..rows.passes.len()).max_by_key(|pass| pass_cost(e, &rows, *pass));
        if let Some(busiest) = busiest {
            rows.passes[busiest].ahead = next_row(e, &rows);
        }
    }
    Ok(rows)
}

/// What the first pass over the next row will read, by the bytes from row to row.
pub(super) fn next_row(e: &Emitter<'_>, rows: &Rows) -> Vec<(StepId, i64)> {
    let (Some(first), Some(lane), Some(row)) = (rows.passes.first(), rows.lane, rows.outer.last()) else {
        return Vec::new();
    };
    let bound = e.bound;
    let far = |id: StepId| {
        let stride = stride_along(bound, &bound.load(id).offset, *row).filter(|stride| *stride != 0)?;
        Some((id, stride * bytes_of(bound.load(id).dtype)))
    };
    let loads = loads_of(e, &roots(e, first)).into_iter().filter(|id| loads_rows(bound, *id, lane));
    loads.filter_map(far).collect()
}

/// The steps that some values need, each with the number of passes that must be over before it can be computed; a fold's own
/// pass counts. Operands come first.
fn depths(e: &Emitter<'_>, roots: &[StepId]) -> Vec<(StepId, usize)> {
    let kernel = e.bound.kernel;
    let mut wanted = vec![false; kernel.steps.len()];
    let mut todo = roots.to_vec();
    while let Some(id) = todo.pop() {
        if !std::mem::replace(&mut wanted[id.index()], true) && !e.given.contains_key(&id) {
            todo.extend(kernel.step(id).op.operands());
        }
    }
    let mut depth = vec![0; kernel.steps.len()];
    let mut found = Vec::new();
    for k in (0..kernel.steps.len()).filter(|k| wanted[*k]) {
        let id = StepId(k as u32);
        if !e.given.contains_key(&id) {
            let op = &kernel.step(id).op;
            let operands = op.operands().iter().map(|id| depth[id.index()]).max().unwrap_or(0);
            depth[k] = operands + usize::from(op.is_fold());
        }
        found.push((id, depth[k]));
    }
    found
}

/// Lets passes put into memory what later ones would have to compute again.
fn hold_between(e: &mut Emitter<'_>, rows: &mut Rows, within: AxisSet) {
    let kernel = e.bound.kernel;
    let extents = &e.bound.extents;
    // What a pass has computed in no loop is still in registers in the next one.
    if rows.is_flat(extents, e.lanes()) {
        return;
    }
    // The first pass that computes a step, for every step.
    let mut first: FxHashMap<StepId, usize> = FxHashMap::default();
    let mut held: FxHashMap<StepId, usize> = FxHashMap::default();
    for p in 0..rows.passes.len() {
        let mut todo = roots(e, &rows.passes[p]);
        let mut seen = vec![false; kernel.steps.len()];
        while let Some(id) = todo.pop() {
            let step = kernel.step(id);
            if std::mem::replace(&mut seen[id.index()], true)
                || e.given.contains_key(&id)
                || step.op.is_fold()
                || held.contains_key(&id)
            {
                continue;
            }
            let earlier = *first.entry(id).or_insert(p);
            let varies = !step.axes.common(within).is_empty();
            if earlier < p && varies && (cost(e, id) >= COSTLY || is_scattered(e, id, rows.lane)) {
                held.insert(id, earlier);
                continue;
            }
            todo.extend(step.op.operands());
        }
    }
    let mut held: Vec<(StepId, usize)> = held.into_iter().collect();
    held.sort();
    // Along an axis of rows, a block of lanes lies behind another.
    let lane = rows.lane.filter(|lane| !rows.inner.contains(lane));
    let block = lane.map_or(1, |_| rows.unroll * e.lanes());
    let count: i64 = rows.inner.iter().map(|axis| extents[*axis]).product::<i64>() * block;
    let mut offset = dense_offset(&rows.inner, extents);
    if let Some(lane) = lane {
        offset = offset * block + Dim::axis(lane).modulo(&Dim::int(block));
    }
    let used = e.worker_bytes as i64;
    let mut start = used;
    for (id, p) in held {
        let dtype = held_dtype(kernel.step(id).dtype);
        let bytes = held_bytes(count, dtype);
        if start - used + bytes > MOST_HELD {
            continue;
        }
        let worker = e.pointer(Memory::Worker);
        let base = e.b.plus(worker, start);
        start += bytes;
        let place = Held { memory: Memory::Worker, base: Some(base), offset: offset.clone(), dtype, again: true };
        rows.passes[p].holds.push((id, place));
    }
    e.worker_bytes = start as usize;
}

/// Bytes for so many values that are held: no vector ends behind them.
pub(super) fn held_bytes(count: i64, dtype: DType) -> i64 {
    (count * bytes_of(dtype) + 63) / 64 * 64 + 64
}

/// Whether a step loads lanes one by one: then it does so once.
fn is_scattered(e: &Emitter<'_>, id: StepId, lane: Option<usize>) -> bool {
    let is_load = matches!(e.bound.kernel.step(id).op, Op::Load { .. });
    is_load && lane.is_some_and(|lane| access_cost(e.bound, &e.bound.load(id).offset, lane) == SCATTERED)
}

/// What a pass asks for.
pub(super) fn roots(e: &Emitter<'_>, pass: &Pass) -> Vec<StepId> {
    let kernel = e.bound.kernel;
    let terms = pass.folds.iter().flat_map(|id| kernel.step(*id).op.operands());
    terms.chain(pass.stores.iter().map(|k| kernel.stores[*k].value)).collect()
}

/// The arithmetic of a pass: without that of folds, which other passes compute, and of what these have put into memory.
pub(super) fn pass_cost(e: &Emitter<'_>, rows: &Rows, pass: usize) -> u32 {
    let earlier = rows.passes[..pass].iter().flat_map(|pass| &pass.holds);
    let held: Vec<StepId> = earlier.map(|(id, _)| *id).collect();
    let is_there = |id: StepId| held.contains(&id) || e.bound.kernel.step(id).op.is_fold();
    arithmetic(e, &roots(e, &rows.passes[pass]), &is_there)
}

/// The arithmetic of a step and of what it is made of.
fn cost(e: &Emitter<'_>, id: StepId) -> u32 {
    arithmetic(e, &[id], &|_| false)
}

/// The arithmetic of steps and of what they are made of, as far as it is not there.
fn arithmetic(e: &Emitter<'_>, steps: &[StepId], is_there: &dyn Fn(StepId) -> bool) -> u32 {
    let kernel = e.bound.kernel;
    let is_there = |id: StepId| e.given.contains_key(&id) || is_there(id);
    let ends = |id: StepId| is_there(id) || !matches!(kernel.step(id).op, Op::Map { .. });
    let found = reached(kernel, steps, &ends).into_iter().filter(|id| !is_there(*id));
    found
        .map(|id| match &kernel.step(id).op {
            Op::Map { expr, .. } => expr.flops(),
            Op::Random { .. } => 40,
            Op::Load { reads, .. } => {
                if reads.is_empty() {
                    1
                } else {
                    2
                }
            }
            _ => 0,
        })
        .sum()
}
