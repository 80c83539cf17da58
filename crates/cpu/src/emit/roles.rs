//! The roles of axes in a contraction, as a multiplication of matrices: batch, rows, columns, sum.

use fuseline::tile::{AxisSet, Kernel, Op, StepId};

use super::bound::Bound;
use super::lanes::choose_lane;

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
    /// The roles of contractions that a group of stores needs; `None` where they are no such multiplication.
    pub fn of(bound: &Bound<'_>, dots: &[StepId], stores: &[usize], lanes: i64) -> Option<Roles> {
        let kernel = bound.kernel;
        let written = stores.iter().map(|k| kernel.stores[*k].axes()).fold(AxisSet::EMPTY, AxisSet::union);
        let offsets: Vec<_> = stores.iter().map(|k| bound.stores[*k].offset.clone()).collect();
        let wanted = choose_lane(bound, written, &offsets, lanes);
        let sides = [0, 1].into_iter().filter_map(|side| sides(bound, dots, side));
        let sides: Vec<Roles> = sides.map(|roles| roles.with_lanes_along(wanted)).collect();
        // Lanes run where results lie in a row, if that is a free axis of a factor that can be read in vectors; where no vector fits
        // between its ends, results had better be written one by one.
        let fits = |roles: &&Roles| wanted.is_some_and(|lane| roles.columns.contains(&lane));
        let even = |roles: &&Roles| roles.is_even(bound, lanes);
        let roles = sides.iter().filter(even).find(fits);
        let roles = roles.or_else(|| sides.iter().filter(even).max_by_key(|roles| roles.column_count(bound)));
        roles.cloned()
    }

    /// The same with the lanes along an axis, if that is one of the columns.
    fn with_lanes_along(mut self, lane: Option<usize>) -> Roles {
        let is_lane = |axis: &usize| Some(*axis) == lane;
        let (last, mut others): (Vec<usize>, Vec<usize>) = self.columns.into_iter().partition(is_lane);
        others.extend(last);
        self.columns = others;
        self
    }

    /// Whether no vector runs from one of several axes of columns into the next.
    fn is_even(&self, bound: &Bound<'_>, lanes: i64) -> bool {
        match self.columns.as_slice() {
            [.., _, last] => bound.extents[*last] % lanes == 0,
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
