//! The roles of axes in a contraction, as a multiplication of matrices: batch, rows, columns, sum.

use fuseline::tensor::{DType, Dim};
use fuseline::tile::{AxisSet, Kernel, Op, StepId};
use rustc_hash::FxHashMap;

use super::Emission;
use super::bound::{Bound, bytes_of, ceil_div};
use super::factors::as_it_lies;
use super::lanes::{SCATTERED, access_cost, choose_lane, offsets_read};
use super::late::Lines;
use super::matrix;
use super::multiply::FAR;
use super::reach::reached;

/// What a term costs whose left factor has the next one far away, in terms that lie in a row.
const FAR_TERMS: f64 = 1.1;

/// What a vector of a left factor costs that goes through the farthest memory before it is read, in vectors that lie in a row: 64 bytes
/// are written and read again.
const GATHERED_FAR: f64 = 32.0;

/// Terms of a vector of results that tiles multiply in the time in which a vector is written.
const TILE_TERMS: f64 = 16.0;

/// Vectors are filled where this part of their lanes is.
const FILLED: (i64, i64) = (7, 10);

/// Contractions that share a factor, as multiplications of one matrix with others that have the same columns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Roles {
    /// the contractions
    pub dots: Vec<StepId>,
    /// the shared factor, whose elements are read one by one
    pub left: StepId,
    /// the other factors, whose elements are read in vectors
    pub right: Vec<StepId>,
    /// axes of all
    pub batch: Vec<usize>,
    /// axes of the left factor alone
    pub rows: Vec<usize>,
    /// axes of the right factors alone, the last one along the lanes
    pub columns: Vec<usize>,
    /// axes that are summed
    pub sum: Vec<usize>,
}

impl Roles {
    /// The roles that contractions which a group of stores needs can have, the best first; none where they are no such multiplication.
    pub fn of(emission: &Emission<'_>, dots: &[StepId], stores: &[usize]) -> Vec<Roles> {
        let (bound, lanes) = (emission.bound, emission.lanes());
        let kernel = bound.kernel;
        let written = stores.iter().map(|k| kernel.stores[*k].axes()).fold(AxisSet::EMPTY, AxisSet::union);
        let offsets: Vec<_> = stores.iter().map(|k| bound.stores[*k].offset.clone()).collect();
        let wanted = choose_lane(bound, written, &offsets, lanes);
        let sides = [0, 1].into_iter().filter_map(|side| sides(bound, dots, side));
        let sides = sides.map(|roles| roles.with_lanes_along(wanted).in_lines(bound, lanes));
        let mut sides: Vec<Roles> = sides.filter(|roles| roles.is_even(bound, lanes)).collect();
        sides.sort_by(|a, b| a.cost(emission, wanted).total_cmp(&b.cost(emission, wanted)));
        sides
    }

    /// The same with the lanes along an axis, if that is one of the columns.
    fn with_lanes_along(mut self, lane: Option<usize>) -> Roles {
        let is_lane = |axis: &usize| Some(*axis) == lane;
        let (last, mut others): (Vec<usize>, Vec<usize>) = self.columns.into_iter().partition(is_lane);
        others.extend(last);
        self.columns = others;
        self
    }

    /// The same with every line of columns a batch of its own, where vectors would run from line to line and lines fill their vectors.
    fn in_lines(mut self, bound: &Bound<'_>, lanes: i64) -> Roles {
        let Some((last, others)) = self.columns.split_last() else { return self };
        let (last, length) = (*last, bound.extents[*last]);
        if !self.is_even(bound, lanes) && length * FILLED.1 >= ceil_div(length, lanes) * lanes * FILLED.0 {
            self.batch.extend(others);
            self.columns = vec![last];
        }
        self
    }

    /// What a lane of results costs that is not idle, two terms being as much as what lies in a row. Lanes should run where results and
    /// what is packed in every run lie in a row, but for long sums it matters more that vectors are full.
    fn cost(&self, emission: &Emission<'_>, wanted: Option<usize>) -> f64 {
        let (bound, lanes) = (emission.bound, emission.lanes());
        let (columns, terms, rows) =
            (self.column_count(bound), self.sum_count(bound) as f64, self.row_count(bound) as f64);
        let Some(lane) = self.columns.last() else { return f64::INFINITY };
        let store = if Some(*lane) == wanted { 1.0 } else { SCATTERED };
        let packed = self.right.iter().filter(|id| !is_constant(emission, **id));
        let read = offsets_read(bound, &packed.copied().collect::<Vec<_>>(), &|_| false);
        let pack: f64 = read.iter().map(|offset| access_cost(bound, offset, *lane)).sum();
        if matrix::fits(emission, self) {
            let gather = if is_constant(emission, self.left) { 0.0 } else { self.square_cost(emission) };
            let each = terms / TILE_TERMS + store + terms * pack / rows + terms * gather / columns as f64;
            return each * ceil_div(columns, lanes) as f64 / columns as f64;
        }
        let (far, gather) = match as_it_lies(bound, self) {
            Some((_, _, 0 | 1)) => (1.0, 0.0),
            Some(_) => (FAR_TERMS, 0.0),
            None => (1.0, terms * self.gather_cost(emission) / columns as f64),
        };
        let each = far * terms / 2.0 + store + terms * pack / rows + gather;
        each * ceil_div(columns, lanes) as f64 / columns as f64
    }

    /// What it costs to read a vector of the left factor, along whatever axis is best, and to write it to squares.
    fn square_cost(&self, emission: &Emission<'_>) -> f64 {
        let bound = emission.bound;
        let along = |offset: &Dim| {
            let axes = self.rows.last().into_iter().chain(self.sum.last());
            axes.map(|axis| access_cost(bound, offset, *axis)).fold(SCATTERED, f64::min)
        };
        1.0 + offsets_read(bound, &[self.left], &|_| false).iter().map(along).sum::<f64>()
    }

    /// What it costs to read a vector of the left factor along its rows, and to write it where tiles read it.
    fn gather_cost(&self, emission: &Emission<'_>) -> f64 {
        let bound = emission.bound;
        let read = offsets_read(bound, &[self.left], &|_| false);
        let read = self.rows.last().map_or(1.0, |row| read.iter().map(|offset| access_cost(bound, offset, *row)).sum());
        let bytes = bound.count(bound.kernel.step(self.left).axes).saturating_mul(bytes_of(DType::F32));
        let stays = bytes < FAR || Lines::of(emission, self, &FxHashMap::default()).is_some();
        read + if stays { 0.0 } else { GATHERED_FAR }
    }

    /// Whether no vector runs from one of several axes of columns into the next.
    fn is_even(&self, bound: &Bound<'_>, lanes: i64) -> bool {
        match self.columns.split_last() {
            Some((last, others)) if others.iter().any(|axis| bound.extents[*axis] > 1) => {
                bound.extents[*last] % lanes == 0
            }
            _ => true,
        }
    }

    pub fn row_count(&self, bound: &Bound<'_>) -> i64 {
        self.rows.iter().map(|axis| bound.extents[*axis]).product()
    }

    pub fn column_count(&self, bound: &Bound<'_>) -> i64 {
        self.columns.iter().map(|axis| bound.extents[*axis]).product()
    }

    pub fn sum_count(&self, bound: &Bound<'_>) -> i64 {
        self.sum.iter().map(|axis| bound.extents[*axis]).product()
    }

    pub fn batch_count(&self, bound: &Bound<'_>) -> i64 {
        self.batch.iter().map(|axis| bound.extents[*axis]).product()
    }

    /// All axes of the results.
    pub fn free(&self) -> AxisSet {
        self.batch.iter().chain(&self.rows).chain(&self.columns).copied().collect()
    }
}

/// Whether a step is computed of constants alone.
pub(super) fn is_constant(emission: &Emission<'_>, id: StepId) -> bool {
    let kernel = emission.bound.kernel;
    reached(kernel, &[id], &|_| false).into_iter().all(|id| match kernel.step(id).op {
        Op::Load { input, .. } => emission.constant.get(input).is_some_and(|is| *is),
        Op::Map { .. } => true,
        _ => false,
    })
}

/// The operands of a contraction.
fn factors(kernel: &Kernel, dot: StepId) -> Option<([StepId; 2], AxisSet)> {
    match &kernel.step(dot).op {
        Op::Dot { a, b, over, .. } => Some(([*a, *b], *over)),
        _ => None,
    }
}

/// The roles where the factor at this side of the first contraction is the shared one.
pub(super) fn sides(bound: &Bound<'_>, dots: &[StepId], side: usize) -> Option<Roles> {
    let kernel = bound.kernel;
    let (first, over) = factors(kernel, *dots.first()?)?;
    let left = first[side];
    let mut right = Vec::new();
    for dot in dots {
        let (operands, sum) = factors(kernel, *dot)?;
        let other = if operands[0] == left { operands[1] } else { operands[0] };
        if sum != over || !operands.contains(&left) || kernel.step(*dot).axes != kernel.step(dots[0]).axes {
            return None;
        }
        right.push(other);
    }
    let axes = |id: StepId| kernel.step(id).axes.without(over);
    let (own, others) = (axes(left), axes(right[0]));
    if right.iter().any(|id| axes(*id) != others) {
        return None;
    }
    let columns: Vec<usize> = others.without(own).iter().collect();
    if columns.is_empty() || kernel.step(left).axes.union(kernel.step(right[0]).axes).without(over) != own.union(others)
    {
        return None;
    }
    Some(Roles {
        dots: dots.to_vec(),
        left,
        right,
        batch: own.common(others).iter().collect(),
        rows: own.without(others).iter().collect(),
        columns,
        sum: over.iter().collect(),
    })
}
