//! Which axes of contractions are rows, columns, steps of the sum and batch.

use fuseline::tensor::DType;
use fuseline::tile::{AxisSet, Op, StepId};

use super::super::nest::{Nest, slope};
use super::super::operand::{Operand, narrow_type};
use super::super::relay::{self, Relay};
use super::Product;
use super::shape::Chosen;

/// Results of fewer columns, or sums of fewer steps, are no work for tiles.
const LEAST: i64 = 8;

/// Which axes are rows, columns and steps.
#[derive(Clone, Debug)]
pub(super) struct Roles {
    left: StepId,
    right: Vec<StepId>,
    batch: AxisSet,
    pub rows: AxisSet,
    pub columns: AxisSet,
    sum: AxisSet,
}

impl Roles {
    /// The roles where the factor at this side of the first contraction is the one that all share.
    pub fn of(nest: &Nest<'_>, dots: &[StepId], side: usize) -> Option<Roles> {
        let factors = |dot: StepId| match &nest.kernel.step(dot).op {
            Op::Dot { a, b, accumulator: DType::F32, .. } => Some([*a, *b]),
            _ => None,
        };
        let (first, left) = (*dots.first()?, factors(*dots.first()?)?[side]);
        let sum = nest.folds[first.index()];
        let mut right = Vec::with_capacity(dots.len());
        for dot in dots {
            let [a, b] = factors(*dot)?;
            if nest.folds[dot.index()] != sum || nest.axes[dot.index()] != nest.axes[first.index()] {
                return None;
            }
            right.push(match (a == left, b == left) {
                (true, _) => b,
                (false, true) => a,
                _ => return None,
            });
        }
        let axes = |id: StepId| nest.axes[id.index()].without(sum);
        let (own, others) = (axes(left), axes(right[0]));
        let narrow_enough = |id: &StepId| {
            let dtype = nest.kernel.step(*id).dtype;
            dtype.is_float() && dtype != DType::F64
        };
        let is_whole = |id: &StepId| sum.is_within(nest.axes[id.index()]);
        let all: Vec<StepId> = std::iter::once(left).chain(right.iter().copied()).collect();
        let is_product = right.iter().all(|id| axes(*id) == others)
            && all.iter().all(|id| narrow_enough(id) && is_whole(id))
            && own.union(others) == nest.axes[first.index()]
            && !sum.is_empty();
        let (batch, rows, columns) = (own.common(others), own.without(others), others.without(own));
        is_product.then_some(Roles { left, right, batch, rows, columns, sum })
    }

    pub fn axes(&self) -> AxisSet {
        self.batch.union(self.rows).union(self.columns)
    }

    /// The product with blocks that suit it; none where it is small.
    pub fn product(&self, nest: &Nest<'_>, stores: &[usize], dots: &[StepId]) -> Option<Product> {
        let count = |axes: AxisSet| nest.count(axes).as_int();
        let is_small = |axes: AxisSet| count(axes).is_some_and(|n| n < LEAST);
        let narrow = narrow_type(nest, self.left);
        let by_units = narrow.is_some() && self.right.iter().all(|id| narrow_type(nest, *id) == narrow);
        // Threads that each have a result do as well for few rows.
        if is_small(self.columns) || is_small(self.sum) || (!by_units && is_small(self.rows)) {
            return None;
        }
        let dtype = narrow.filter(|_| by_units).unwrap_or(DType::F32);
        let offsets = || stores.iter().map(|store| &nest.stores[*store].access.offset);
        let load_offset = |id: StepId| move |axis: usize| lowest_slope(nest, id, axis);
        let store_slope = |axis: usize| offsets().filter_map(|o| slope(o, axis)?.as_int()).filter(|s| *s > 0).min();
        let (rows, columns) = (ordered(self.rows, &store_slope), ordered(self.columns, &store_slope));
        let sum = ordered(self.sum, &load_offset(self.left));
        let batch: Vec<usize> = self.batch.iter().collect();
        let left = Operand::of(nest, self.left, dtype, &rows, &sum);
        let right: Vec<Operand> =
            self.right.iter().map(|factor| Operand::of(nest, *factor, dtype, &columns, &sum)).collect();
        let computed = left.is_computed() || right.iter().any(Operand::is_computed);
        let sizes = [self.batch, self.rows, self.columns, self.sum].map(|axes| nest.count(axes));
        let Chosen { shape, by_groups, are_many } = Chosen::of(nest, &sizes, dots.len() as i64, by_units, computed);
        let dots = dots.to_vec();
        let mut product =
            Product { dots, left, right, batch, rows, columns, sum, by_units, by_groups, shape, relay: None };
        if by_groups && are_many && (shape.rows, shape.columns) == (128, relay::COLUMNS) {
            product.relay = Relay::of(nest, &product);
        }
        Some(product)
    }
}

/// Axes with those innermost along which something lies most densely.
fn ordered(axes: AxisSet, slope: &dyn Fn(usize) -> Option<i64>) -> Vec<usize> {
    let mut order: Vec<usize> = axes.iter().collect();
    order.sort_by_key(|axis| (std::cmp::Reverse(slope(*axis).unwrap_or(i64::MAX)), *axis));
    order
}

/// How far apart neighbours along an axis lie in what a step reads, at the least.
fn lowest_slope(nest: &Nest<'_>, id: StepId, axis: usize) -> Option<i64> {
    let step = nest.kernel.step(id);
    match &step.op {
        Op::Load { .. } => slope(&nest.load(id).offset, axis)?.as_int().filter(|slope| *slope > 0),
        op => op.operands().iter().filter_map(|operand| lowest_slope(nest, *operand, axis)).min(),
    }
}
