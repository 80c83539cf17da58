//! Any kernel, fold by fold: what every schedule can fall back to, and all that maps need.
//!
//! Every fold becomes a phase that leaves its result in scratch; then the stores follow, those over the same axes together.

use fuseline::error::Result;
use fuseline::tensor::DType;
use fuseline::tile::{AxisSet, Op, StepId};
use rustc_hash::FxHashMap;

use super::bound::{Bound, bytes_of, ceil_div};
use super::emitter::{Emitter, Given, Held};
use super::lanes::{axis_across, choose_lane, offsets_read, stride_along};
use super::parts::Parts;
use super::prefix::Running;
use super::reach::reached;
use super::rows::{Pass, Rows, dense_offset};
use super::several::Several;
use super::windows::Windows;
use super::{Emission, Memory};

/// What lies in memory for a value that registers hold: halves are not rounded on the way.
pub(super) fn held_dtype(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        other => other,
    }
}

/// Emits a kernel fold by fold.
pub(super) fn emit_generic(emission: &mut Emission<'_>) -> Result<()> {
    let stores: Vec<usize> = (0..emission.bound.kernel.stores.len()).collect();
    emit_stores_of(emission, &stores, &mut FxHashMap::default())
}

/// Emits some stores, with the folds that they need and that are not there yet.
pub(super) fn emit_stores_of(
    emission: &mut Emission<'_>,
    stores: &[usize],
    held: &mut FxHashMap<StepId, Held>,
) -> Result<()> {
    let kernel = emission.bound.kernel;
    let roots: Vec<StepId> = stores.iter().map(|k| kernel.stores[*k].value).collect();
    let wanted = reached(kernel, &roots, &|id| held.contains_key(&id));
    let is_missing = |id: &StepId| kernel.step(*id).op.is_fold() && !held.contains_key(id);
    let mut folds: Vec<StepId> = wanted.into_iter().filter(is_missing).collect();
    // What a fold needs stands before it.
    folds.sort();
    if let [fold] = folds.as_slice()
        && let Some(windows) = Windows::of(emission, *fold, stores, held)
    {
        return windows.emit(emission, stores, held);
    }
    for id in folds {
        let place = emit_fold(emission, id, held)?;
        held.insert(id, place);
    }
    emit_stores(emission, stores, held)
}

/// Emits stores, those over the same axes together.
fn emit_stores(emission: &mut Emission<'_>, stores: &[usize], held: &FxHashMap<StepId, Held>) -> Result<()> {
    let kernel = emission.bound.kernel;
    let mut groups: Vec<(AxisSet, Vec<usize>)> = Vec::new();
    for k in stores {
        let own = kernel.stores[*k].axes();
        match groups.iter_mut().find(|(axes, _)| *axes == own) {
            Some((_, stores)) => stores.push(*k),
            None => groups.push((own, vec![*k])),
        }
    }
    for (axes, stores) in groups {
        emission.phase("map", &mut |e: &mut Emitter<'_>| {
            give(e, held);
            let rows = map_rows(e, axes, &stores);
            e.rows(&rows)
        })?;
    }
    Ok(())
}

/// Lets a phase read what earlier ones have computed.
pub(super) fn give(e: &mut Emitter<'_>, held: &FxHashMap<StepId, Held>) {
    e.given.extend(held.iter().map(|(id, held)| (*id, Given::Held(held.clone()))));
}

/// Stores over the same axes as a phase of rows.
fn map_rows(e: &mut Emitter<'_>, axes: AxisSet, stores: &[usize]) -> Rows {
    let bound = e.bound;
    let values: Vec<StepId> = stores.iter().map(|k| bound.kernel.stores[*k].value).collect();
    let mut offsets = offsets_read(bound, &values, &|id| e.given.contains_key(&id));
    offsets.extend(stores.iter().map(|k| bound.stores[*k].offset.clone()));
    let several = Several::of(e, axes, stores);
    let lane = match &several {
        Some(several) => Some(several.lane),
        None => choose_lane(bound, axes, &offsets, e.lanes()),
    };
    let bytes: i64 = stores.iter().map(|k| bytes_written(bound, *k)).sum();
    let streaming = bytes >= STREAMED;
    if several.is_none()
        && let Some((lane, across)) = lane.and_then(|lane| Some((lane, axis_across(bound, axes, &offsets, lane)?)))
    {
        let others = axes.iter().filter(|axis| ![lane, across].contains(axis));
        let pass = Pass { stores: stores.to_vec(), ..Pass::default() };
        return Rows { streaming, ..rows_across(others.collect(), lane, across, pass) };
    }
    let is_same = |id: &StepId| several.as_ref().is_some_and(|several| several.holds(*id));
    let is_row = |id: &StepId| lane.is_some_and(|lane| loads_rows(bound, *id, lane) && !is_same(id));
    let ahead = if streaming {
        loads_of(e, &values).into_iter().filter(is_row).map(|id| (id, AHEAD)).collect()
    } else {
        Vec::new()
    };
    Rows {
        outer: axes.iter().filter(|axis| Some(*axis) != lane).collect(),
        inner: lane.into_iter().collect(),
        lane,
        passes: vec![Pass { stores: stores.to_vec(), ahead, ..Pass::default() }],
        results: Vec::new(),
        stores: Vec::new(),
        unroll: if several.is_some() { most_vectors(e) } else { unroll(e, lane) },
        turned: None,
        drawn: Vec::new(),
        several,
        streaming,
    }
}

/// Rows along the axis where what lanes find scattered lies in a row ([`axis_across`]): a vector of rows at a time.
fn rows_across(mut outer: Vec<usize>, lane: usize, across: usize, pass: Pass) -> Rows {
    outer.push(lane);
    Rows {
        outer,
        inner: vec![across],
        lane: Some(lane),
        passes: vec![pass],
        results: Vec::new(),
        stores: Vec::new(),
        unroll: 1,
        turned: None,
        drawn: Vec::new(),
        several: None,
        streaming: false,
    }
}

/// A step at all points of some axes as a phase of rows that puts it into memory. Where lines are short a row is many of them: finding
/// out where a row is takes longer than a line.
pub(super) fn hold_rows(e: &Emitter<'_>, id: StepId, order: &[usize], place: &Held) -> Rows {
    let bound = e.bound;
    let mut offsets = offsets_read(bound, &[id], &|id| e.given.contains_key(&id));
    offsets.push(place.offset.clone());
    let lane = choose_lane(bound, order.iter().copied().collect(), &offsets, e.lanes());
    let axes: AxisSet = order.iter().copied().collect();
    if let Some((lane, across)) = lane.and_then(|lane| Some((lane, axis_across(bound, axes, &offsets, lane)?))) {
        // Of reads and writes, it is reads that are better scattered.
        let swaps = stride_along(bound, &place.offset, across) == Some(1);
        let (lane, across) = if swaps { (across, lane) } else { (lane, across) };
        let others = order.iter().copied().filter(|axis| ![lane, across].contains(axis));
        let pass = Pass { holds: vec![(id, place.clone())], ..Pass::default() };
        return rows_across(others.collect(), lane, across, pass);
    }
    let (mut outer, mut inner, mut count) = (Vec::new(), Vec::new(), 1);
    for axis in order.iter().copied().filter(|axis| Some(*axis) != lane) {
        let enough = count >= MANY_ROWS;
        if enough {
            inner.push(axis)
        } else {
            outer.push(axis)
        }
        count *= bound.extents[axis];
    }
    inner.extend(lane);
    Rows {
        outer,
        inner,
        lane,
        passes: vec![Pass { holds: vec![(id, place.clone())], ..Pass::default() }],
        results: Vec::new(),
        stores: Vec::new(),
        unroll: unroll(e, lane),
        turned: None,
        drawn: Vec::new(),
        several: None,
        streaming: false,
    }
}

/// Rows that can be shared among all cores.
const MANY_ROWS: i64 = 128;

/// Results of so many bytes are written past the caches: they will not be there when they are read.
pub(super) const STREAMED: i64 = 3 << 20;

/// How far ahead of its use memory is asked for where elements are read in a row.
const AHEAD: i64 = 2048;

/// The loads that some steps are made of, up to what is there already.
pub(super) fn loads_of(e: &Emitter<'_>, roots: &[StepId]) -> Vec<StepId> {
    let kernel = e.bound.kernel;
    let is_load = |id: StepId| matches!(kernel.step(id).op, Op::Load { .. });
    let is_given = |id: StepId| e.given.contains_key(&id);
    let found = reached(kernel, roots, &|id| is_given(id) || is_load(id));
    let mut loads: Vec<StepId> = found.into_iter().filter(|id| is_load(*id) && !is_given(*id)).collect();
    loads.sort();
    loads
}

/// Whether a load reads lanes along an axis in a row, at places that follow from coordinates alone.
pub(super) fn loads_rows(bound: &Bound<'_>, id: StepId, lane: usize) -> bool {
    let access = bound.load(id);
    access.checked.is_empty() && access.guards.is_empty() && stride_along(bound, &access.offset, lane) == Some(1)
}

fn bytes_written(bound: &Bound<'_>, store: usize) -> i64 {
    bound.count(bound.kernel.stores[store].axes()) * bytes_of(bound.stores[store].dtype)
}

/// Vectors that are worked on at a time along an axis.
pub(super) fn unroll(e: &Emitter<'_>, lane: Option<usize>) -> i64 {
    lane.map_or(1, |lane| (e.bound.extents[lane] / e.lanes()).clamp(1, most_vectors(e)))
}

/// Vectors that registers have room for at a time; as many as share blocks of random words, if there are such.
pub(super) fn most_vectors(e: &Emitter<'_>) -> i64 {
    let draws = e.bound.kernel.steps.iter().any(|step| matches!(step.op, Op::Random { .. }));
    if e.lanes() * 4 >= 64 || draws { 4 } else { 2 }
}

/// Vectors that are worked on at a time along an axis of rows, where they come in whole blocks: so many that few lanes are idle.
pub(super) fn unroll_across(e: &Emitter<'_>, lane: usize) -> i64 {
    let vectors = ceil_div(e.bound.extents[lane], e.lanes());
    (1..=most_vectors(e)).min_by_key(|unroll| (ceil_div(vectors, *unroll) * unroll, -unroll)).unwrap_or(1)
}

/// Emits a fold; returns where its result lies.
pub(super) fn emit_fold(emission: &mut Emission<'_>, id: StepId, held: &FxHashMap<StepId, Held>) -> Result<Held> {
    let bound = emission.bound;
    let step = bound.kernel.step(id);
    let over = step.op.folds();
    let operands = step.op.operands();
    let scratch = emission.scratch.len();
    let dtype = held_dtype(step.dtype);
    let (mut place, mut divided) = (None, None);
    let name = step.op.name();
    emission.phase(name, &mut |e: &mut Emitter<'_>| {
        give(e, held);
        let is_prefix = matches!(step.op, Op::Prefix { .. });
        let free = if is_prefix { step.axes.without(over) } else { step.axes };
        let may = if is_prefix { free } else { free.union(over) };
        let offsets = offsets_read(bound, &operands, &|id| e.given.contains_key(&id));
        let lane = choose_lane(bound, may, &offsets, e.lanes());
        let mut order: Vec<usize> = step.axes.iter().filter(|axis| Some(*axis) != lane).collect();
        order.extend(lane.filter(|lane| step.axes.contains(*lane)));
        let offset = dense_offset(&order, &bound.extents);
        let result = Held { memory: Memory::Scratch(scratch), base: None, offset, dtype, again: false };
        place = Some(result.clone());
        let outer: Vec<usize> = order.into_iter().filter(|axis| free.contains(*axis)).collect();
        if let Op::Prefix { axis, exclusive, .. } = step.op {
            let running = Running { step: id, axis, exclusive, outer, lane, held: result };
            return e.running(&running);
        }
        let mut inner: Vec<usize> = over.iter().filter(|axis| Some(*axis) != lane).collect();
        inner.extend(lane.filter(|lane| over.contains(*lane)));
        let rows = Rows {
            outer,
            inner,
            lane,
            passes: vec![Pass { folds: vec![id], ..Pass::default() }],
            results: vec![(id, result)],
            stores: Vec::new(),
            unroll: lane
                .filter(|lane| free.contains(*lane))
                .map_or_else(|| unroll(e, lane), |lane| unroll_across(e, lane)),
            turned: None,
            drawn: Vec::new(),
            several: None,
            streaming: false,
        };
        match Parts::of(bound, id, &rows.inner, lane, bytes_of(dtype)) {
            Some(parts) => {
                let tasks = e.fold_parts(&rows, parts);
                divided = Some((rows, parts));
                tasks
            }
            None => e.rows(&rows),
        }
    })?;
    let bytes = (bound.count(step.axes) * bytes_of(dtype)) as usize;
    let place = place.expect("a phase emits its fold");
    let Some((rows, parts)) = divided else {
        emission.scratch.push(bytes);
        return Ok(place);
    };
    emission.scratch.extend([parts.bytes() as usize, bytes]);
    let whole = Held { memory: Memory::Scratch(scratch + 1), ..place.clone() };
    emission.phase("merge", &mut |e: &mut Emitter<'_>| e.fold_results(id, &rows, parts, &place, &whole))?;
    Ok(whole)
}
