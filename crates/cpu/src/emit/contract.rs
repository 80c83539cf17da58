//! Contractions as multiplications of matrices.
//!
//! The right factors are packed into panels as wide as a few vectors, element after element of the sum; a panel of a
//! constant is packed once for all runs. A task multiplies rows of the left factor with panels, tile by tile: the sums of a
//! tile stay in registers from the first term to what is computed of them and stored.

use fuseline::error::{Error, Result};
use fuseline::tensor::{DType, Dim};
use fuseline::tile::{AxisSet, Op, Schedule, StepId};
use rustc_hash::FxHashMap;

use super::bound::{Bound, bytes_of, ceil_div};
use super::emitter::{Emitter, Given, Held};
use super::fold::{Folding, Kept};
use super::generic::{emit_fold, emit_stores_of, give, held_dtype};
use super::lanes::{choose_lane, offsets_read, slope_along};
use super::late::{Lines, emit_lines, packs_late};
use super::matrix;
use super::point::{Coord, Point};
use super::roles::Roles;
use super::row_plan::plan_rows;
use super::rows::dense_offset;
use super::tile_sums::{Stepped, TileSums};
use super::tiling::Tiling;
use super::windows::Windows;
use super::{Emission, Memory, share};
use crate::code::Isa;
use crate::vector::{Bound as To, Compare, IntOp, Ty, Value};

/// Rows that a task works on at a time where it owns whole rows, at most, and at least if there are as many.
const WHOLE_ROWS: i64 = 66;
const LEAST_ROWS: i64 = 4;

/// Rows that are too few to read all of a right factor for them.
const FEW_ROWS: i64 = 24;

/// Terms that are added at a time: with more, what is read of both factors does not stay close while tiles pass, and sums
/// had better wait in memory.
const MOST_TERMS: i64 = 1024;

/// Bytes of the left factor that stay in the second-level cache while a panel passes.
pub(super) const LEFT_BYTES: i64 = 1 << 20;

/// Rows of a tile: with the vectors of a panel, sums for three quarters of the registers.
pub(super) const TILE_ROWS: i64 = 6;

/// Bytes of a right factor that do not stay in the caches of a core.
pub(super) const FAR: i64 = 1 << 20;

/// Bytes of a line of memory.
pub(super) const LINE: i64 = 64;

/// Vectors may be filled to one part of so many.
const NARROWEST: i64 = 4;

/// Vectors of a panel.
pub(super) fn panel_vectors(isa: Isa) -> i64 {
    if isa.registers() >= 32 { 4 } else { 2 }
}

/// Bytes of a term in a panel.
pub(super) fn panel_bytes(e: &Emitter<'_>, dtype: DType) -> i64 {
    panel_vectors(e.isa) * e.lanes() * bytes_of(dtype)
}

/// A contraction with its factors where tiles can read them.
pub(super) struct Multiply {
    pub roles: Roles,
    pub left: Held,
    pub right: Vec<Held>,
    /// elements of the left factor from row to row, and from term to term
    pub row_stride: i64,
    pub term_stride: i64,
    /// vectors of a panel
    pub width: i64,
    /// whether tasks pack the right factors, panel by panel; before that there are none
    pub packs_late: bool,
    /// how tasks gather the left factor, if they do
    pub lines: Option<Lines>,
}

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
            matrix::emit_blocks(emission, &roles, &stores, folds, &held)?;
            continue;
        }
        let multiply = factors(emission, roles, folds, &held)?;
        match (folds, multiply.lines) {
            (true, _) => emit_rows_behind(emission, &multiply, &stores, &held)?,
            (false, Some(lines)) => emit_lines(emission, &multiply, lines, &stores, &held)?,
            (false, None) => emit_tiles(emission, &multiply, &Sums::Stored(&stores), &held)?,
        }
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
    Roles::of(emission, needed, stores).into_iter().find(|roles| float && fits(roles))
}

/// The contractions that a value needs, and whether folds stand behind them.
fn contractions_of(emission: &Emission<'_>, value: StepId, dots: &[StepId]) -> (Vec<StepId>, bool) {
    let kernel = emission.bound.kernel;
    let behind = behind(emission, dots);
    let mut seen = vec![false; kernel.steps.len()];
    let (mut todo, mut needed, mut folds) = (vec![value], Vec::new(), false);
    while let Some(id) = todo.pop() {
        if std::mem::replace(&mut seen[id.index()], true) {
            continue;
        }
        if dots.contains(&id) {
            needed.push(id);
        } else {
            folds |= behind[id.index()] && kernel.step(id).op.is_fold();
            todo.extend(kernel.step(id).op.operands());
        }
    }
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

/// Puts the factors where tiles can read them.
fn factors(emission: &mut Emission<'_>, roles: Roles, folds: bool, held: &FxHashMap<StepId, Held>) -> Result<Multiply> {
    let most = panel_vectors(emission.isa) / roles.right.len() as i64;
    let width = most.min(ceil_div(roles.column_count(emission.bound), emission.lanes()));
    let width = if most % width == 0 { width } else { most };
    let lines = if folds { None } else { Lines::of(emission, &roles, held) };
    let (left, row_stride, term_stride) = match &lines {
        Some(lines) => (lines.nowhere(emission, &roles), 1, lines.rows()),
        None => left_factor(emission, &roles, held)?,
    };
    let packs_late = !folds && lines.is_none() && packs_late(emission, &roles, held);
    let mut right = Vec::new();
    for id in roles.right.clone().into_iter().filter(|_| !packs_late) {
        right.push(pack_right(emission, &roles, id, held)?);
    }
    Ok(Multiply { roles, left, right, row_stride, term_stride, width, packs_late, lines })
}

/// The left factor as it lies, where rows and terms are at even distances; otherwise packed.
pub(super) fn left_factor(
    emission: &mut Emission<'_>,
    roles: &Roles,
    held: &FxHashMap<StepId, Held>,
) -> Result<(Held, i64, i64)> {
    let bound = emission.bound;
    if let Some((left, row_stride, term_stride)) = as_it_lies(bound, roles) {
        return Ok((left, row_stride, term_stride));
    }
    // What lies in a row is written in a row: rows of a term beside each other, or terms of a row.
    let own = bound.kernel.step(roles.left).axes;
    let read = offsets_read(bound, &[roles.left], &|id| held.contains_key(&id));
    let by_terms = choose_lane(bound, own, &read, emission.lanes()).is_some_and(|lane| roles.rows.contains(&lane));
    let (rows, terms) = (roles.row_count(bound), roles.sum_count(bound));
    let (outer, inner, strides) =
        if by_terms { (&roles.sum, &roles.rows, (1, rows)) } else { (&roles.rows, &roles.sum, (terms, 1)) };
    let order = roles.batch.iter().chain(outer).chain(inner).copied();
    let order: Vec<usize> = order.filter(|axis| own.contains(*axis)).collect();
    let offset = dense_offset(&order, &bound.extents);
    let left = hold(emission, "gather", roles.left, offset, &order, held)?;
    Ok((left, strides.0, strides.1))
}

/// The left factor where it lies, with the distances of rows and of terms, if these are even and nothing is to be done about it.
pub(super) fn as_it_lies(bound: &Bound<'_>, roles: &Roles) -> Option<(Held, i64, i64)> {
    let Op::Load { input, .. } = &bound.kernel.step(roles.left).op else { return None };
    let access = bound.load(roles.left);
    let plain = access.checked.is_empty() && access.guards.is_empty() && access.dtype == DType::F32;
    let rows = even_stride(bound, &access.offset, &roles.rows)?;
    let terms = even_stride(bound, &access.offset, &roles.sum)?;
    let offset = access.offset.clone();
    let left = Held { memory: Memory::Input(*input), base: None, offset, dtype: access.dtype, again: false };
    plain.then_some((left, rows, terms))
}

/// The distance of neighbours along axes taken together, where it is the same everywhere. Along an axis with one point there are none.
pub(super) fn even_stride(bound: &Bound<'_>, offset: &Dim, axes: &[usize]) -> Option<i64> {
    let mut stride = None;
    let mut expected = 0;
    for axis in axes.iter().rev().filter(|axis| bound.extents[**axis] > 1) {
        let own = slope_along(bound, offset, *axis)?;
        if stride.is_some() && own != expected {
            return None;
        }
        stride.get_or_insert(own);
        expected = own * bound.extents[*axis];
    }
    Some(stride.unwrap_or(0))
}

/// Packs a right factor into panels.
pub(super) fn pack_right(
    emission: &mut Emission<'_>,
    roles: &Roles,
    id: StepId,
    held: &FxHashMap<StepId, Held>,
) -> Result<Held> {
    let bound = emission.bound;
    let panel = panel_vectors(emission.isa) * emission.lanes();
    let column = dense_offset(&roles.columns, &bound.extents);
    let term = dense_offset(&roles.sum, &bound.extents);
    let (terms, panels) = (roles.sum_count(bound), (roles.column_count(bound) + panel - 1) / panel);
    let batch = dense_offset(&roles.batch, &bound.extents);
    let size = Dim::int(panel);
    let offset = ((batch * panels + column.floordiv(&size)) * terms + term) * panel + column.modulo(&size);
    let order: Vec<usize> = roles.batch.iter().chain(&roles.sum).chain(&roles.columns).copied().collect();
    let place = hold(emission, "pack", id, offset, &order, held)?;
    let bytes = roles.batch_count(bound) * panels * terms * panel * bytes_of(place.dtype);
    if let Memory::Scratch(k) = place.memory {
        emission.scratch[k] = bytes as usize;
    }
    Ok(place)
}

/// Computes a step into scratch of its own.
fn hold(
    emission: &mut Emission<'_>,
    name: &'static str,
    id: StepId,
    offset: Dim,
    order: &[usize],
    held: &FxHashMap<StepId, Held>,
) -> Result<Held> {
    let bound = emission.bound;
    let dtype = held_dtype(bound.kernel.step(id).dtype);
    let place = Held { memory: Memory::Scratch(emission.scratch.len()), base: None, offset, dtype, again: false };
    let bytes = bound.count(order.iter().copied().collect()) * bytes_of(dtype);
    emission.phase(name, &mut |e: &mut Emitter<'_>| {
        give(e, held);
        let rows = super::generic::hold_rows(e, id, order, &place);
        e.rows(&rows)
    })?;
    emission.scratch.push(bytes as usize);
    Ok(place)
}

/// What becomes of the sums of tiles.
pub(super) enum Sums<'s> {
    /// what is computed of them is stored, by its place among the stores
    Stored(&'s [usize]),
    /// they are put into memory
    Held(&'s FxHashMap<StepId, Held>),
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
        let (from, to) = tiling.chunk(e, chunk, together);
        let origin = batch_point(e, roles, batch);
        let packed = multiply.packed(e, &origin, panel)?;
        let multiply = packed.as_ref().unwrap_or(multiply);
        let places = multiply.waiting(e, &tiling, (from, together), panel);
        multiply.tiles_used(e, (&tiling, (from, to)), &origin, panel, &places, then)?;
        e.b.end_loop(&[]);
        Ok(roles.batch_count(bound) * chunks * panels)
    })
}

/// Emits a product with folds of rows behind it. A task that owns whole rows reads all of the right factor; where that would be for a few
/// rows, tasks own tiles instead, and rows are worked on in a phase of their own.
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
    if emission.cores == 1 || rows >= runs * FEW_ROWS {
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
        let (from, to) = tiling.chunk(e, chunk, together);
        let origin = batch_point(e, roles, batch);
        // Rows of the worker's memory begin with the first row of the chunk.
        let (first, behind) = (tiling.row(e, from), tiling.row(e, to));
        let before = e.b.number(0);
        let places = in_worker(roles, e, (first, rows_most), (before, padded));
        multiply.add_up(e, &tiling, &origin, panels, (from, to), &places)?;
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

/// The point of a batch by its number.
pub(super) fn batch_point(e: &mut Emitter<'_>, roles: &Roles, batch: Value) -> Point {
    let origin = Point::origin(e.bound.extents.len());
    rows_point(e, &roles.batch, &origin, batch)
}

/// A point with the coordinates along some axes that a number says, the last of them innermost.
pub(super) fn rows_point(e: &mut Emitter<'_>, axes: &[usize], origin: &Point, number: Value) -> Point {
    let (mut point, mut rest) = (origin.clone(), number);
    for (k, axis) in axes.iter().enumerate().rev() {
        let size = e.b.number(e.bound.extents[*axis]);
        let coord = if k == 0 { rest } else { e.b.int(IntOp::FloorMod, rest, size) };
        rest = e.b.int(IntOp::FloorDiv, rest, size);
        point = point.with(*axis, Coord { base: Some(coord), plus: 0, lanes: false });
    }
    point
}

impl Multiply {
    /// Emits the tiles `from..to` of a panel, and what becomes of their sums.
    pub(super) fn tiles_used(
        &self,
        e: &mut Emitter<'_>,
        (tiling, tiles): (&Tiling, (Value, Value)),
        origin: &Point,
        panel: Value,
        places: &FxHashMap<StepId, Held>,
        then: &Sums<'_>,
    ) -> Result<()> {
        self.in_parts(e, places, false, &mut |e, terms, is_last| {
            self.tiles(e, tiling, origin, panel, tiles, terms, &mut |e, points| match (is_last, then) {
                (false, _) => self.store_sums(e, places, points),
                (true, Sums::Stored(stores)) => e.store_all(stores, points),
                (true, Sums::Held(places)) => {
                    for dot in &self.roles.dots {
                        for point in points {
                            let value = e.given_at(*dot, point)?;
                            e.store_held(&places[dot], value, point);
                        }
                    }
                    Ok(())
                }
            })
        })
    }

    /// What a tile asks for of the terms that are added next, which lie behind its own, be they of this panel or the next one:
    /// with every term one line. Some tiles together ask for all; what fewer tiles read passes by too fast for that.
    fn ahead(&self, e: &mut Emitter<'_>, tile: Value, count: i64) -> Option<(i64, Value)> {
        let (terms, columns) = (self.roles.sum_count(e.bound), self.roles.column_count(e.bound));
        let term = panel_bytes(e, self.right[0].dtype);
        let tiles = ceil_div(self.roles.row_count(e.bound), self.tile_rows(e.isa));
        let is_near = self.right[0].memory == Memory::Worker;
        if is_near || terms * columns * bytes_of(self.right[0].dtype) < FAR || tiles < term / LINE {
            return None;
        }
        let lines = e.b.number(term / LINE - 1);
        let line = e.b.int(IntOp::And, tile, lines);
        Some((count * term, e.b.times(line, LINE)))
    }

    /// Rows of a tile whose sums fit into the registers.
    pub(super) fn tile_rows(&self, isa: Isa) -> i64 {
        (TILE_ROWS * panel_vectors(isa) / (self.width * self.roles.right.len() as i64)).min(2 * TILE_ROWS)
    }

    pub(super) fn panels(&self, emission: &Emission<'_>) -> i64 {
        let panel = self.width * emission.lanes();
        (self.roles.column_count(emission.bound) + panel - 1) / panel
    }

    /// Emits the tiles `from..to` of a panel; `then` is given the points of each tile, where the sums have their values.
    #[allow(clippy::too_many_arguments, reason = "where, which and what then")]
    fn tiles(
        &self,
        e: &mut Emitter<'_>,
        tiling: &Tiling,
        origin: &Point,
        panel: Value,
        (from, to): (Value, Value),
        terms: &Terms<'_>,
        then: &mut dyn FnMut(&mut Emitter<'_>, &[Point]) -> Result<()>,
    ) -> Result<()> {
        tiling.each(e, from, to, &mut |e, tile, first, rows| {
            let points = self.points(e, origin, first, rows, panel);
            self.sums(e, origin, (tile, first, rows), panel, terms, &points)?;
            e.b.stay_inside();
            then(e, &points)?;
            e.b.move_outside();
            Ok(())
        })
    }

    /// Emits the sums of all panels into the worker's memory, some terms at a time: so many that what is read of both factors
    /// stays close.
    fn add_up(
        &self,
        e: &mut Emitter<'_>,
        tiling: &Tiling,
        origin: &Point,
        panels: i64,
        tiles: (Value, Value),
        places: &FxHashMap<StepId, Held>,
    ) -> Result<()> {
        self.in_parts(e, places, true, &mut |e, terms, _| {
            let (panel, _) = e.b.begin_loop(To::Number(0), To::Number(panels), 1, &[]);
            self.tiles(e, tiling, origin, panel, tiles, terms, &mut |e, points| self.store_sums(e, places, points))?;
            e.b.end_loop(&[]);
            Ok(())
        })
    }

    /// Emits the terms of a sum some at a time: `part` is told which, and whether these are the last. Where what is done with the
    /// last is no different, equal parts are one loop.
    fn in_parts(
        &self,
        e: &mut Emitter<'_>,
        places: &FxHashMap<StepId, Held>,
        ends_alike: bool,
        part: &mut dyn FnMut(&mut Emitter<'_>, &Terms<'_>, bool) -> Result<()>,
    ) -> Result<()> {
        let all = self.roles.sum_count(e.bound);
        let parts = self.parts(e);
        let count = ceil_div(all, parts);
        part(e, &Terms::all(count.min(all)), parts == 1)?;
        let looped = if ends_alike && parts * count == all { parts } else { parts - 1 };
        if looped > 1 {
            let (number, _) = e.b.begin_loop(To::Number(1), To::Number(looped), 1, &[]);
            let from = Some(e.b.times(number, count));
            part(e, &Terms { from, count, begun: Some(places) }, false)?;
            e.b.end_loop(&[]);
        }
        if looped > 0 && looped < parts {
            let from = Some(e.b.number(looped * count));
            part(e, &Terms { from, count: all - looped * count, begun: Some(places) }, true)?;
        }
        Ok(())
    }

    /// How many times terms are added.
    fn parts(&self, e: &Emitter<'_>) -> i64 {
        ceil_div(self.roles.sum_count(e.bound), MOST_TERMS).max(1)
    }

    /// Where the sums of tiles, so many from one on, wait for the rest of their terms; nowhere if there are no more.
    pub(super) fn waiting(
        &self,
        e: &mut Emitter<'_>,
        tiling: &Tiling,
        (from, together): (Value, i64),
        panel: Value,
    ) -> FxHashMap<StepId, Held> {
        if self.parts(e) == 1 {
            return FxHashMap::default();
        }
        let across = self.width * e.lanes();
        let first = tiling.row(e, from);
        let before = e.b.times(panel, across);
        in_worker(&self.roles, e, (first, together * tiling.rows), (before, across))
    }

    /// Stores the sums of a tile. Rows of the worker's memory are padded: lanes beyond the end may be written.
    fn store_sums(&self, e: &mut Emitter<'_>, places: &FxHashMap<StepId, Held>, points: &[Point]) -> Result<()> {
        for dot in &self.roles.dots {
            for point in points {
                let value = e.given_at(*dot, point)?;
                e.store_held(&places[dot], value, &point.clone().unmasked());
            }
        }
        Ok(())
    }

    /// The points of a tile: rows, then the vectors of the panel.
    fn points(&self, e: &mut Emitter<'_>, origin: &Point, first: Value, rows: i64, panel: Value) -> Vec<Point> {
        let start = e.b.times(panel, self.width * e.lanes());
        e.multiples.insert(start, self.width * e.lanes());
        tile_points(e, &self.roles, origin, (first, rows), (start, self.width))
    }

    /// Emits the sums of a tile and gives the contractions their values.
    fn sums(
        &self,
        e: &mut Emitter<'_>,
        origin: &Point,
        (tile, first, rows): (Value, Value, i64),
        panel: Value,
        terms: &Terms<'_>,
        points: &[Point],
    ) -> Result<()> {
        let roles = &self.roles;
        let kernel = e.bound.kernel;
        let bytes = bytes_of(self.left.dtype);
        let left = Stepped {
            dtype: self.left.dtype,
            row_bytes: self.row_stride * bytes,
            term_bytes: self.term_stride * bytes,
        };
        // Where the tile begins in the left factor: rows and terms follow at even distances.
        let at_first = rows_point(e, &roles.rows, origin, first);
        let start = e.address_of(&self.left, &at_first);
        let start = terms.move_by(e, start, left.term_bytes);
        let mut right = Vec::new();
        for held in &self.right {
            let at = column_start(e, roles, origin, panel, self.width * e.lanes());
            let start = e.address_of(held, &at);
            let term_bytes = panel_bytes(e, held.dtype);
            right.push(terms.move_by(e, start, term_bytes));
        }
        let sums = TileSums {
            foldings: roles.dots.iter().filter_map(|dot| Folding::of_factors(kernel, *dot, roles.left)).collect(),
            rows,
            width: self.width,
            terms: terms.count,
            left,
            right: self.right.iter().map(|r| (r.dtype, panel_bytes(e, r.dtype))).collect(),
            masks: Vec::new(),
            ahead: self.ahead(e, tile, terms.count),
        };
        let begun = terms.begun.map(|places| {
            let held = roles.dots.iter().flat_map(|dot| points.iter().map(|point| (&places[dot], point)));
            held.map(|(place, point)| e.load_held(place, &point.clone().unmasked())).collect()
        });
        let kept = sums.emit(e, start, &right, begun);
        give_sums(e, &roles.dots, &sums, &kept, points);
        Ok(())
    }
}

/// Places in the worker's memory for the sums of so many rows and columns from some on.
pub(super) fn in_worker(
    roles: &Roles,
    e: &mut Emitter<'_>,
    (first, rows): (Value, i64),
    (before, across): (Value, i64),
) -> FxHashMap<StepId, Held> {
    let row = dense_offset(&roles.rows, &e.bound.extents);
    let column = dense_offset(&roles.columns, &e.bound.extents);
    let own = e.pointer(Memory::Worker);
    let mut places = FxHashMap::default();
    let mut used = e.worker_bytes as i64;
    for dot in &roles.dots {
        let dtype = held_dtype(e.bound.kernel.step(*dot).dtype);
        let bytes = bytes_of(dtype);
        let skipped = e.b.times(first, across);
        let skipped = e.b.int(IntOp::Add, skipped, before);
        let skipped = e.b.times(skipped, -bytes);
        let base = e.b.int(IntOp::Add, own, skipped);
        let base = e.b.plus(base, used);
        used += rows * across * bytes;
        let offset = &row * across + &column;
        places.insert(*dot, Held { memory: Memory::Worker, base: Some(base), offset, dtype, again: true });
    }
    e.worker_bytes = used as usize;
    places
}

/// The terms of a sum that are added at a time.
struct Terms<'t> {
    /// an Int: the first of them; none for the very first
    from: Option<Value>,
    count: i64,
    /// where the sums of the terms before lie; none where there are none
    begun: Option<&'t FxHashMap<StepId, Held>>,
}

impl Terms<'_> {
    /// All terms.
    fn all(count: i64) -> Self {
        Terms { from: None, count, begun: None }
    }

    /// A pointer to the first term, from one to the very first.
    fn move_by(&self, e: &mut Emitter<'_>, pointer: Value, bytes: i64) -> Value {
        match self.from {
            Some(from) => {
                let plus = e.b.times(from, bytes);
                e.b.int(IntOp::Add, pointer, plus)
            }
            None => pointer,
        }
    }
}

/// Gives contractions the values that the sums of a tile are.
pub(super) fn give_sums(e: &mut Emitter<'_>, dots: &[StepId], sums: &TileSums, kept: &[Value], points: &[Point]) {
    let kernel = e.bound.kernel;
    for (d, dot) in dots.iter().enumerate() {
        let mut values = FxHashMap::default();
        for (k, point) in points.iter().enumerate() {
            let one = Kept::from_slice(&[kept[d * points.len() + k]]);
            values.insert(point.key(kernel.step(*dot).axes), sums.foldings[d].result(&mut e.b, &one));
        }
        e.given.insert(*dot, Given::Values(values));
    }
}

/// The points of a tile: so many rows from one on, then so many vectors of columns from one on.
pub(super) fn tile_points(
    e: &mut Emitter<'_>,
    roles: &Roles,
    origin: &Point,
    (first, rows): (Value, i64),
    (start, width): (Value, i64),
) -> Vec<Point> {
    let (lanes, columns) = (e.lanes(), roles.column_count(e.bound));
    let mut points = Vec::new();
    for r in 0..rows {
        let row = match roles.rows[..] {
            [] => origin.clone(),
            [axis] => origin.with(axis, Coord { base: Some(first), plus: r, lanes: false }),
            _ => {
                let number = e.b.plus(first, r);
                rows_point(e, &roles.rows, origin, number)
            }
        };
        for v in 0..width {
            let mut point = column_point(e, &roles.columns, &row, start, v * lanes);
            if columns % (width * lanes) != 0 {
                let left = e.b.number(columns - v * lanes);
                let left = e.b.int(IntOp::Sub, left, start);
                let left = e.b.splat(Ty::I32, left);
                let numbers = e.b.lane_numbers(Ty::I32);
                let mask = e.b.compare(Compare::Lt, numbers, left);
                point = point.masked(mask);
            }
            points.push(point);
        }
    }
    points
}

/// A point with lanes along the last column axis, at a column by number plus a few.
pub(super) fn column_point(e: &mut Emitter<'_>, columns: &[usize], row: &Point, start: Value, plus: i64) -> Point {
    if let [axis] = columns {
        return row.with(*axis, Coord { base: Some(start), plus, lanes: true });
    }
    let (mut point, mut rest) = (row.clone(), e.b.plus(start, plus));
    for (k, axis) in columns.iter().enumerate().rev() {
        let size = e.b.number(e.bound.extents[*axis]);
        let coord = if k == 0 { rest } else { e.b.int(IntOp::FloorMod, rest, size) };
        rest = e.b.int(IntOp::FloorDiv, rest, size);
        point = point.with(*axis, Coord { base: Some(coord), plus: 0, lanes: k + 1 == columns.len() });
    }
    point
}

/// The point where a panel begins, at the first term.
fn column_start(e: &mut Emitter<'_>, roles: &Roles, origin: &Point, panel: Value, across: i64) -> Point {
    let start = e.b.times(panel, across);
    column_point(e, &roles.columns, origin, start, 0)
}
