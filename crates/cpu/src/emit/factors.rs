//! The factors of a product where tiles can read them: as they lie, gathered, or packed in panels.

use fuseline::error::{Error, Result};
use fuseline::tensor::{DType, Dim};
use fuseline::tile::{Op, StepId};
use rustc_hash::FxHashMap;

use super::bound::{Bound, bytes_of, ceil_div};
use super::emitter::{Emitter, Held};
use super::generic::{give, held_dtype};
use super::lanes::{choose_lane, offsets_read, slope_along};
use super::late::{LATE_PANELS, Lines, packs_late};
use super::multiply::{Multiply, TILE_ROWS};
use super::roles::{Roles, is_constant};
use super::rows::dense_offset;
use super::{Emission, Memory};
use crate::code::Isa;

/// Vectors of columns that a tile has at most where it reads a right factor as that lies.
const WIDEST: i64 = 16;

/// To pack a factor that lies the other way costs as much as to read it so many times.
const PACKED_READS: i64 = 4;

/// Panels that a tile of few rows reads at a time at most: from one place in memory a core reads 12 GB/s, from two 14, from four 15 to 16, from six 17.
const MOST_PANELS: i64 = 4;

/// A right factor where tiles can read it.
#[derive(Clone, Debug)]
pub(super) struct Right {
    pub held: Held,
    /// bytes from term to term
    pub term_bytes: i64,
    /// whether it is packed into panels, which are whole: lanes beyond the last column may be read
    pub is_packed: bool,
}

/// Vectors of a panel.
pub(super) fn panel_vectors(isa: Isa) -> i64 {
    if isa.registers() >= 32 { 4 } else { 2 }
}

/// Bytes of a term in a panel.
pub(super) fn panel_bytes(e: &Emitter<'_>, dtype: DType) -> i64 {
    panel_vectors(e.isa) * e.lanes() * bytes_of(dtype)
}

/// Puts the factors where tiles can read them.
pub(super) fn factors(
    emission: &mut Emission<'_>,
    roles: Roles,
    folds: bool,
    held: &FxHashMap<StepId, Held>,
) -> Result<Multiply> {
    let lines = if folds { None } else { Lines::of(emission, &roles, held) };
    let (left, row_stride, term_stride) = match &lines {
        Some(lines) => (lines.nowhere(emission, &roles), 1, lines.rows()),
        None => left_factor(emission, &roles, held)?,
    };
    if let Some(right) = right_as_it_lies(emission, &roles) {
        let width = widest(emission, &roles);
        return Ok(Multiply { roles, left, right, row_stride, term_stride, width, packs_late: false, lines });
    }
    let most = panel_vectors(emission.isa) / roles.right.len() as i64;
    let width = most.min(ceil_div(roles.column_count(emission.bound), emission.lanes()));
    let width = if most % width == 0 { width } else { most };
    let packs_late = !folds && lines.is_none() && packs_late(emission, &roles, held);
    let together = if packs_late || lines.is_some() { None } else { panels_together(emission, &roles) };
    let width = together.map_or(width, |together| together * panel_vectors(emission.isa));
    let mut right = Vec::new();
    for id in roles.right.clone().into_iter().filter(|_| !packs_late) {
        let held = pack_right(emission, &roles, id, held)?;
        let term_bytes = panel_vectors(emission.isa) * emission.lanes() * bytes_of(held.dtype);
        right.push(Right { held, term_bytes, is_packed: true });
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
    let (outer, inner) = if by_terms { (&roles.sum, &roles.rows) } else { (&roles.rows, &roles.sum) };
    let all: Vec<usize> = roles.batch.iter().chain(outer).chain(inner).copied().collect();
    // What is the same for all terms is gathered once; what is the same for some of several axes of terms would lie at uneven distances.
    let once = all.iter().copied().filter(|axis| own.contains(*axis)).collect();
    for order in [once, all] {
        let offset = dense_offset(&order, &bound.extents);
        let strides = [&roles.rows, &roles.sum].map(|axes| even_stride(bound, &offset, axes));
        if let [Some(row_stride), Some(term_stride)] = strides {
            let left = hold(emission, "gather", roles.left, offset, &order, held)?;
            return Ok((left, row_stride, term_stride));
        }
    }
    Err(Error::bug("all elements of a factor at uneven distances"))
}

/// The left factor where it lies, with the distances of rows and of terms, if these are even and nothing is to be done about it.
pub(super) fn as_it_lies(bound: &Bound<'_>, roles: &Roles) -> Option<(Held, i64, i64)> {
    lying(bound, roles.left, &roles.rows, &roles.sum)
}

/// The right factors where they lie, if columns are neighbours there and all rows fit into a tile: what is read once is not worth packing.
fn right_as_it_lies(emission: &Emission<'_>, roles: &Roles) -> Option<Vec<Right>> {
    let bound = emission.bound;
    if roles.row_count(bound) > TILE_ROWS {
        return None;
    }
    let lies = |id: &StepId| {
        let (held, column, term) = lying(bound, *id, &roles.columns, &roles.sum)?;
        let term_bytes = term * bytes_of(held.dtype);
        (column == 1 && !is_constant(emission, *id)).then_some(Right { held, term_bytes, is_packed: false })
    };
    roles.right.iter().map(lies).collect()
}

/// Whether terms, not columns, are neighbours in right factors that are read for a few rows alone: then sums run along vectors.
pub(super) fn lies_in_terms(emission: &Emission<'_>, roles: &Roles) -> bool {
    let lies = |id: &StepId| {
        let lying = lying(emission.bound, *id, &roles.columns, &roles.sum);
        lying.is_some_and(|(_, column, term)| term == 1 && column != 1) && !is_constant(emission, *id)
    };
    roles.row_count(emission.bound) <= PACKED_READS && roles.right.iter().all(lies)
}

/// How many vectors wide tiles of all rows can be, as long as there are tiles for every core.
fn widest(emission: &Emission<'_>, roles: &Roles) -> i64 {
    let (bound, lanes) = (emission.bound, emission.lanes());
    let (columns, batch) = (roles.column_count(bound), roles.batch_count(bound));
    let sums = TILE_ROWS * panel_vectors(emission.isa) / (roles.row_count(bound) * roles.right.len() as i64).max(1);
    let is_shared = |width: &i64| batch * ceil_div(columns, width * lanes) >= LATE_PANELS * emission.cores as i64;
    let widths = std::iter::successors(Some(WIDEST), |width| Some(width / 2)).take_while(|width| *width > 0);
    widths.filter(|width| *width <= sums).find(is_shared).unwrap_or(1)
}

/// How many panels a tile of all rows reads at a time, where their sums fit into the registers: the more places a core reads from, the faster it
/// reads, as the processor looks ahead along each of them. But all cores should have as much to do, and tiles be alike: what is packed must not depend on
/// the rows, and ends with the last panel.
fn panels_together(emission: &Emission<'_>, roles: &Roles) -> Option<i64> {
    let bound = emission.bound;
    let (columns, panel) = (roles.column_count(bound), panel_vectors(emission.isa) * emission.lanes());
    let (panels, factors) = (ceil_div(columns, panel), roles.right.len() as i64);
    let most = (TILE_ROWS / (roles.row_count(bound) * factors).max(1)).min(MOST_PANELS / factors);
    // A panel takes one and a half with one place to read from, one and a quarter with two.
    let time = |together: &i64| {
        let turns = ceil_div(roles.batch_count(bound) * panels / together, emission.cores as i64);
        let places = together * factors;
        turns * together * (2 * places + 1) * MOST_PANELS * MOST_PANELS / places
    };
    let alike = (1..=most).filter(|together| panels % together == 0 && columns >= panel);
    alike.min_by_key(time)
}

/// A factor where it lies, with the distances along some axes and of terms, if these are even and nothing is to be done about it.
fn lying(bound: &Bound<'_>, id: StepId, axes: &[usize], sum: &[usize]) -> Option<(Held, i64, i64)> {
    let Op::Load { input, .. } = &bound.kernel.step(id).op else { return None };
    let access = bound.load(id);
    let plain = access.checked.is_empty() && access.guards.is_empty() && access.dtype == DType::F32;
    let own = even_stride(bound, &access.offset, axes)?;
    let terms = even_stride(bound, &access.offset, sum)?;
    let offset = access.offset.clone();
    let held = Held { memory: Memory::Input(*input), base: None, offset, dtype: access.dtype, again: false };
    plain.then_some((held, own, terms))
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
pub(super) fn hold(
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
    emission.phase_of_any_lanes(name, &mut |e: &mut Emitter<'_>| {
        give(e, held);
        let rows = super::generic::hold_rows(e, id, order, &place);
        e.rows(&rows)
    })?;
    emission.scratch.push(bytes as usize);
    Ok(place)
}
