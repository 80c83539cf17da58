//! Along which axis lanes run.

use fuseline::tensor::{Dim, Symbol};
use fuseline::tile::{AxisSet, Op, StepId};

use super::bound::Bound;
use super::reach::reached;
use super::turn::turned_columns;

/// What a vector costs whose elements lie one by one, in vectors whose elements lie in a row.
pub(super) const SCATTERED: f64 = 12.0;

/// What a vector costs beside what is read and written: where it lies, and which of its lanes take part.
const VECTOR: f64 = 3.0;

/// What an operation costs, which is done for lanes that take no part too.
const FLOP: f64 = 0.2;

/// What a vector costs whose elements are turned in registers, four vectors at a time, in vectors whose elements lie in a row: by itself, and for each of
/// its lanes.
const TURNED: f64 = 2.0;
const TURNED_LANE: f64 = 0.2;

/// What it costs to fold the lanes of a vector into one: short rows had better stand in lanes, one in each.
const FOLDED: f64 = 6.6;

/// What every fold of a row costs more whose last vector is not full, where masks are vectors: they are loaded, and lanes that take no part replaced.
const PARTLY: f64 = 9.0;

/// What a vector of random words costs by itself, and what four do that lie in a row; of rows that are turned all lie in a row, but come by way of memory.
const DRAWN: f64 = 60.0;
const FOUR_DRAWN: f64 = 48.0;

/// What random words cost of a row along which lanes run: vectors share words in whole blocks.
fn drawn_along(extent: i64, lanes: i64) -> f64 {
    let whole = match extent / lanes {
        0 => 0.0,
        1 => DRAWN,
        whole => FOUR_DRAWN * (whole as f64 / 4.0).ceil(),
    };
    if extent % lanes == 0 { whole } else { whole + DRAWN }
}

/// The axis along which lanes should run, of some that they may: where most of what is read and written lies in a row, and
/// vectors are full.
pub(super) fn choose_lane(bound: &Bound<'_>, may: AxisSet, accesses: &[Dim], lanes: i64) -> Option<usize> {
    choose_lane_of_rows(bound, may, accesses, lanes, Folded::default())
}

/// Rows along some axes that are folded so many times, with so much arithmetic at every point.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Folded {
    pub along: AxisSet,
    pub times: usize,
    pub flops: u32,
    /// random words that each point has
    pub draws: usize,
    /// whether masks are vectors
    pub wide_masks: bool,
}

/// The same where rows are folded.
pub(super) fn choose_lane_of_rows(
    bound: &Bound<'_>,
    may: AxisSet,
    accesses: &[Dim],
    lanes: i64,
    Folded { along, times, flops, draws, wide_masks }: Folded,
) -> Option<usize> {
    let turned = TURNED + TURNED_LANE * lanes as f64;
    let cost = |axis: usize| {
        let extent = bound.extents[axis];
        let vectors = (extent as f64 / lanes as f64).ceil();
        let columns = turned_columns(bound, along, may.without(along), axis, lanes);
        let each = |offset: &Dim| match (access_cost(bound, offset, axis), columns) {
            (SCATTERED, Some(column)) if stride_along(bound, offset, column) == Some(1) => turned,
            (cost, _) => cost,
        };
        let each: f64 = accesses.iter().map(each).sum();
        let folded = if along.contains(axis) { FOLDED * times as f64 / bound.count(along) as f64 } else { 0.0 };
        let is_partly = wide_masks && along.contains(axis) && extent % lanes != 0;
        let folded = if is_partly { folded + PARTLY * times as f64 / extent as f64 } else { folded };
        let drawn = match (along.contains(axis), columns) {
            (true, _) => drawn_along(extent, lanes) / extent as f64,
            (false, Some(_)) => (FOUR_DRAWN / 4.0 + turned) / lanes as f64,
            (false, None) => DRAWN / lanes as f64,
        };
        (each + VECTOR + FLOP * f64::from(flops)) * vectors / extent as f64 + folded + drawn * draws as f64
    };
    let axes = may.iter().filter(|axis| bound.extents[*axis] > 1);
    // Of equals the innermost.
    axes.min_by(|a, b| cost(*a).total_cmp(&cost(*b)).then(b.cmp(a)))
}

/// The axis along which the elements lie in a row that lanes find scattered: a step along it stays in the lines of memory that
/// are there already, so that it should be the next one. None where lanes find everything in a row.
pub(super) fn axis_across(bound: &Bound<'_>, axes: AxisSet, accesses: &[Dim], lane: usize) -> Option<usize> {
    let scattered = |offset: &&Dim| access_cost(bound, offset, lane) == SCATTERED;
    let lines = |axis: usize| {
        let in_row = |offset: &&Dim| stride_along(bound, offset, axis) == Some(1);
        accesses.iter().filter(scattered).filter(in_row).count()
    };
    let others = axes.iter().filter(|axis| *axis != lane && bound.extents[*axis] > 1);
    others.map(|axis| (lines(axis), axis)).filter(|(lines, _)| *lines > 0).max().map(|(_, axis)| axis)
}

/// What it costs to read or write a vector along an axis.
pub(super) fn access_cost(bound: &Bound<'_>, offset: &Dim, axis: usize) -> f64 {
    match stride_along(bound, offset, axis) {
        Some(0) => 0.5,
        Some(1) => 1.0,
        _ => SCATTERED,
    }
}

/// How far neighbours along an axis are from each other, at the first points.
pub(super) fn stride_along(bound: &Bound<'_>, offset: &Dim, axis: usize) -> Option<i64> {
    if let Some(slope) = slope_of_sum(offset, axis) {
        return Some(slope);
    }
    let at = |n: i64| {
        offset
            .eval_with(&|symbol| match symbol {
                Symbol::Axis(other) if usize::from(*other) == axis => Some(n),
                Symbol::Axis(_) => Some(0),
                _ => None,
            })
            .ok()
    };
    let last = bound.extents[axis] - 1;
    let step = at(1)? - at(0)?;
    // Quotients step rarely: at the end they have.
    (last < 4 || at(2)? - at(1)? == step).then_some(step)
}

/// The distance of neighbours along an axis, where it is the same everywhere and nothing else is said of the axis.
pub(super) fn slope_along(bound: &Bound<'_>, offset: &Dim, axis: usize) -> Option<i64> {
    if let Some(slope) = slope_of_sum(offset, axis) {
        return Some(slope);
    }
    let slope = stride_along(bound, offset, axis)?;
    let rest = offset.clone() - Dim::axis(axis) * slope;
    (!AxisSet::mentioned(&rest).contains(axis)).then_some(slope)
}

/// The distance of neighbours along an axis, where the offset is a sum of multiples of coordinates: nearly all are.
fn slope_of_sum(offset: &Dim, axis: usize) -> Option<i64> {
    let (mut slope, mut is_sum) = (0, true);
    offset.linear(|symbol, factor| match symbol {
        Symbol::Axis(other) if usize::from(*other) == axis => slope = factor,
        Symbol::Axis(_) => {}
        _ => is_sum = false,
    })?;
    is_sum.then_some(slope)
}

/// The offsets at which a step and what it is made of read, up to steps that are there already.
pub(super) fn offsets_read(bound: &Bound<'_>, roots: &[StepId], is_given: &dyn Fn(StepId) -> bool) -> Vec<Dim> {
    let kernel = bound.kernel;
    let found = reached(kernel, roots, is_given).into_iter();
    let loads = found.filter(|id| !is_given(*id) && matches!(kernel.step(*id).op, Op::Load { .. }));
    let offset = |id: StepId| {
        let access = bound.load(id);
        let checked = access.checked.iter().map(|c| c.index.clone() * c.stride);
        checked.fold(access.offset.clone(), |sum, more| sum + more)
    };
    loads.map(offset).collect()
}
