//! Contractions as multiplications of matrices.
//!
//! The right factors are packed into panels as wide as a few vectors, element after element of the sum; a panel of a
//! constant is packed once for all runs. A task multiplies rows of the left factor with panels, tile by tile: the sums of a
//! tile stay in registers from the first term to what is computed of them and stored.

use fuseline::error::{Error, Result};
use fuseline::tile::{AxisSet, Op, Schedule, StepId};
use rustc_hash::FxHashMap;

use super::alike::{Product, emitted};
use super::bound::{bytes_of, ceil_div};
use super::emitter::{Emitter, Given, Held};
use super::factors::{factors, lies_in_terms};
use super::generic::{emit_fold, emit_stores_of, give, held_dtype};
use super::late::emit_lines;
use super::matrix;
use super::multiply::{FAR, MOST_TERMS, Multiply, Sums, batch_point, in_worker, rows_point};
use super::reach::reached;
use super::roles::Roles;
use super::row_plan::plan_rows;
use super::rows::dense_offset;
use super::tiling::Tiling;
use super::windows::Windows;
use super::{Emission, Memory, share};
use crate::vector::{Bound as To, IntOp};

/// Rows that a task works on at a time where it owns whole rows, at most, and at least if there are as many.
const WHOLE_ROWS: i64 = 66;
const LEAST_ROWS: i64 = 4;

/// Rows that are too few to read all of a right factor for them.
const FEW_ROWS: i64 = 24;

/// Bytes of the left factor that stay in the second-level cache while a panel passes.
pub(super) const LEFT_BYTES: i64 = 1 << 20;

/// Vectors may be filled to one part of so many.
const NARROWEST: i64 = 4;

/// Emits a contraction: what comes before, the factors, the product with what comes after.
pub(super) fn emit_contract(emission: &mut Emission<'_>) -> Result<()> {
    let bound = emission.bound;
    let kernel = bound.kernel;
    let Schedule::Contract { dots, .. } = &kernel.schedule else {
        return Err(Error::bug("a contraction without its schedule"));
    };
    let mut held: FxHashMap<StepId, Held> = FxHashMap::default();
    let behind = behind(emission, dots);
    for (k, step) in kernel.steps.iter().enumerate() {
        let id = StepId(k as u32);
        if step.op.is_fold() && !dots.contains(&id) && !behind[k] {
            let place = emit_fold(emission, id, &held)?;
            held.insert(id, place);
        }
    }
    let mut packed = matrix::PackedLeft::new();
    let mut products: Vec<Product> = Vec::new();
    for Group { needed, roles, stores, folds } in groups(emission, dots) {
        if let ([dot], false) = (needed.as_slice(), folds)
            && let Some(windows) = Windows::of(emission, *dot, &stores, &held)
        {
            windows.emit(emission, &stores, &held)?;
            continue;
        }
        let Some(roles) = roles else {
            emit_stores_of(emission, &stores, &mut held)?;
            continue;
        };
        if matrix::fits(emission, &roles) {
            matrix::emit_blocks(emission, &roles, &stores, folds, &held, &mut packed)?;
            continue;
        }
        if products.iter().any(|product| product.repeat(emission, &roles, &stores, &held)) {
            continue;
        }
        let before = emitted(emission);
        let multiply = factors(emission, roles, folds, &held)?;
        match (folds, multiply.lines) {
            (true, _) => emit_rows_behind(emission, &multiply, &stores, &held)?,
            (false, Some(lines)) => emit_lines(emission, &multiply, lines, &stores, &held)?,
            (false, None) => emit_tiles(emission, &multiply, &Sums::Stored(&stores), &held)?,
        }
        products.push(Product::since(before, emission, multiply.roles, &stores));
    }
    Ok(())
}

/// Stores that need the same contractions.
struct Group {
    /// the contractions
    needed: Vec<StepId>,
    /// none where they are no multiplication of matrices
    roles: Option<Roles>,
    stores: Vec<usize>,
    /// whether folds stand between the contractions and the stores
    folds: bool,
}

/// Which steps depend on a contraction.
pub(super) fn behind(emission: &Emission<'_>, dots: &[StepId]) -> Vec<bool> {
    let mut behind: Vec<bool> = Vec::new();
    for step in &emission.bound.kernel.steps {
        let depends = step.op.operands().iter().any(|id| dots.contains(id) || behind[id.index()]);
        behind.push(depends);
    }
    behind
}

/// The stores of a kernel by the contractions that they need.
fn groups(emission: &Emission<'_>, dots: &[StepId]) -> Vec<Group> {
    let mut groups: Vec<(Vec<StepId>, Vec<usize>, bool)> = Vec::new();
    for (k, store) in emission.bound.kernel.stores.iter().enumerate() {
        let (needed, folds) = contractions_of(emission, store.value, dots);
        match groups.iter_mut().find(|(own, ..)| *own == needed) {
            Some((_, stores, own_folds)) => {
                stores.push(k);
                *own_folds |= folds;
            }
            None => groups.push((needed, vec![k], folds)),
        }
    }
    let group = |(needed, stores, folds): (Vec<StepId>, Vec<usize>, bool)| {
        let roles = multiplication(emission, &needed, &stores, folds);
        Group { needed, roles, stores, folds }
    };
    groups.into_iter().map(group).collect()
}

/// The roles of contractions that are a multiplication of matrices with nothing but rows behind it.
fn multiplication(emission: &Emission<'_>, needed: &[StepId], stores: &[usize], folds: bool) -> Option<Roles> {
    let (bound, lanes) = (emission.bound, emission.lanes());
    let kernel = bound.kernel;
    let float = needed.iter().all(|id| kernel.step(*id).dtype.is_float());
    let fits = |roles: &Roles| {
        let covers = |k: &usize| {
            let axes = kernel.stores[*k].axes();
            if folds { axes.is_within(roles.free()) } else { axes == roles.free() }
        };
        let wide = roles.column_count(bound) * NARROWEST >= lanes;
        let fits = roles.right.len() <= 2 && wide && stores.iter().all(covers);
        fits && (!folds || folds_rows(emission, roles, stores))
    };
    let roles = Roles::of(emission, needed, stores).into_iter().find(|roles| float && fits(roles))?;
    (!lies_in_terms(emission, &roles)).then_some(roles)
}

/// The contractions that a value needs, and whether folds stand behind them.
fn contractions_of(emission: &Emission<'_>, value: StepId, dots: &[StepId]) -> (Vec<StepId>, bool) {
    let kernel = emission.bound.kernel;
    let behind = behind(emission, dots);
    let (mut needed, others): (Vec<StepId>, Vec<StepId>) =
        reached(kernel, &[value], &|id| dots.contains(&id)).into_iter().partition(|id| dots.contains(id));
    let folds = others.iter().any(|id| behind[id.index()] && kernel.step(*id).op.is_fold());
    needed.sort();
    (needed, folds)
}

/// Whether every fold behind the contractions runs over all columns, so that a task that owns rows can compute it.
fn folds_rows(emission: &Emission<'_>, roles: &Roles, stores: &[usize]) -> bool {
    let kernel = emission.bound.kernel;
    let columns: AxisSet = roles.columns.iter().copied().collect();
    let outer: AxisSet = roles.batch.iter().chain(&roles.rows).copied().collect();
    let behind = behind(emission, &roles.dots);
    let all = kernel.steps.iter().enumerate().filter(|(k, step)| behind[*k] && step.op.is_fold());
    let rows = all.into_iter().all(|(_, step)| matches!(step.op, Op::Reduce { over, .. } if over == columns));
    rows && stores.iter().all(|k| {
        let axes = kernel.stores[*k].axes();
        outer.is_within(axes)
    })
}

/// Emits tiles whose sums are used at once.
fn emit_tiles(
    emission: &mut Emission<'_>,
    multiply: &Multiply,
    then: &Sums<'_>,
    held: &FxHashMap<StepId, Held>,
) -> Result<()> {
    let bound = emission.bound;
    let roles = &multiply.roles;
    let tiling = Tiling::new(roles.row_count(bound), multiply.tile_rows(emission.isa));
    let panels = multiply.panels(emission);
    // Rows in chunks whose part of the left factor stays close, but enough chunks to share.
    let terms = roles.sum_count(bound).min(MOST_TERMS);
    let most = (LEFT_BYTES / (terms * 4).max(1) / tiling.rows.max(1)).max(1);
    // Who packs a panel multiplies all of it.
    let together = match multiply.packs_late {
        true => tiling.count,
        false => share::tiles(tiling.count, panels * roles.batch_count(bound), most, emission.cores),
    };
    let chunks = ceil_div(tiling.count, together);
    // Of chunk and panel, the one that is more to read stays from task to task.
    let panels_stay = together * tiling.rows < multiply.width * emission.lanes();
    emission.phase("multiply", &mut |e: &mut Emitter<'_>| {
        give(e, held);
        let task = e.b.begin_tasks();
        let [inner, outer] = if panels_stay { [chunks, panels] } else { [panels, chunks] };
        let (inner_value, outer_value) = (e.b.number(inner), e.b.number(outer));
        let first = e.b.int(IntOp::FloorMod, task, inner_value);
        let rest = e.b.int(IntOp::FloorDiv, task, inner_value);
        let second = e.b.int(IntOp::FloorMod, rest, outer_value);
        let batch = e.b.int(IntOp::FloorDiv, rest, outer_value);
        let (chunk, panel) = if panels_stay { (first, second) } else { (second, first) };
        let mut chunk = tiling.chunk(e, chunk, together);
        if panels_stay {
            (chunk.first, chunk.count) = (e.b.number(0), tiling.count);
        }
        let origin = batch_point(e, roles, batch);
        let packed = multiply.packed(e, &origin, panel)?;
        let multiply = packed.as_ref().unwrap_or(multiply);
        let places = multiply.waiting(e, &tiling, (chunk.from, together), panel);
        multiply.tiles_used(e, (&tiling, chunk), &origin, panel, &places, then)?;
        e.b.end_loop(&[]);
        Ok(roles.batch_count(bound) * chunks * panels)
    })
}

/// Emits a product with folds of rows behind it. A task that owns whole rows reads all of the right factor; where that does not stay close, or
/// would be read for a few rows, tasks own tiles instead, and rows are worked on in a phase of their own.
fn emit_rows_behind(
    emission: &mut Emission<'_>,
    multiply: &Multiply,
    stores: &[usize],
    held: &FxHashMap<StepId, Held>,
) -> Result<()> {
    let bound = emission.bound;
    let roles = &multiply.roles;
    let rows = roles.row_count(bound);
    let runs = share::runs(rows, roles.batch_count(bound), (LEAST_ROWS, WHOLE_ROWS), emission.cores);
    let stays = multiply.right_bytes(bound) < FAR;
    if stays && (emission.cores == 1 || rows >= runs * FEW_ROWS) {
        return emit_whole_rows(emission, multiply, runs, stores, held);
    }
    let order: Vec<usize> = roles.batch.iter().chain(&roles.rows).chain(&roles.columns).copied().collect();
    let mut held = held.clone();
    let mut places = FxHashMap::default();
    for dot in &roles.dots {
        let dtype = held_dtype(bound.kernel.step(*dot).dtype);
        let (memory, offset) = (Memory::Scratch(emission.scratch.len()), dense_offset(&order, &bound.extents));
        emission.scratch.push((bound.count(roles.free()) * bytes_of(dtype)) as usize);
        places.insert(*dot, Held { memory, base: None, offset, dtype, again: false });
    }
    emit_tiles(emission, multiply, &Sums::Held(&places), &held)?;
    held.extend(places);
    emission.phase("row", &mut |e: &mut Emitter<'_>| {
        give(e, &held);
        let outer: Vec<usize> = roles.batch.iter().chain(&roles.rows).copied().collect();
        let rows = plan_rows(e, outer, roles.columns.clone(), roles.columns.last().copied(), stores)?;
        e.rows(&rows)
    })
}

/// Emits tasks that own whole rows: their tiles go to the worker's memory, then rows are worked on.
fn emit_whole_rows(
    emission: &mut Emission<'_>,
    multiply: &Multiply,
    runs: i64,
    stores: &[usize],
    held: &FxHashMap<StepId, Held>,
) -> Result<()> {
    let bound = emission.bound;
    let roles = &multiply.roles;
    let (rows, most) = (roles.row_count(bound), multiply.tile_rows(emission.isa));
    let (tiling, together) = Tiling::in_runs(rows, most, runs);
    let panels = multiply.panels(emission);
    let chunks = ceil_div(tiling.count, together);
    let padded = panels * multiply.width * emission.lanes();
    let rows_most = together * tiling.rows;
    emission.phase("multiply", &mut |e: &mut Emitter<'_>| {
        give(e, held);
        let task = e.b.begin_tasks();
        let chunks_value = e.b.number(chunks);
        let chunk = e.b.int(IntOp::FloorMod, task, chunks_value);
        let batch = e.b.int(IntOp::FloorDiv, task, chunks_value);
        let chunk = tiling.chunk(e, chunk, together);
        let origin = batch_point(e, roles, batch);
        // Rows of the worker's memory begin with the first row of the chunk.
        let (first, behind) = (tiling.row(e, chunk.from), tiling.row(e, chunk.to));
        let before = e.b.number(0);
        let places = in_worker(roles, e, (first, rows_most), (before, padded));
        multiply.add_up(e, &tiling, &origin, panels, chunk, &places)?;
        for (dot, place) in &places {
            e.given.insert(*dot, Given::Held(place.clone()));
        }
        let outer: Vec<usize> = roles.batch.iter().chain(&roles.rows).copied().collect();
        let rows = plan_rows(e, outer, roles.columns.clone(), roles.columns.last().copied(), stores)?;
        let (row, _) = e.b.begin_loop(To::Value(first), To::Value(behind), 1, &[]);
        let point = rows_point(e, &roles.rows, &origin, row);
        e.row(&rows, &[point], None)?;
        e.b.end_loop(&[]);
        e.b.end_loop(&[]);
        Ok(roles.batch_count(bound) * chunks)
    })
}
