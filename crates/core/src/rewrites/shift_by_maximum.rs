//! Logarithms of sums of exponentials that are taken away from what they sum.

use super::peel::call;
use super::seen::{Fold, Seen};
use super::step::{Kind, Step, with_step};
use super::{Facts, Permit, Rewrite, Site, sites};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Value};
use crate::ops::prim::{Monoid, Reduce, View};
use crate::ops::{ExprNode, Prim, Scalar};
use crate::passes::Tier;
use crate::tensor::{Dim, Shape};

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "shift-by-maximum",
    doc: "A number less the logarithm of the sum of its row's exponentials is first shifted by what shifts these, the row's maximum.",
    tier: Tier::Real,
    run,
};

/// In: any graph. Out: no `x − (s + log Σ exp(x − s))`, `s` the maximum of the row or 0 where that is infinite, and the sum read nowhere
/// else: it is `(x − m) − log Σ exp(x − m)` with the maximum `m`, which is how a log-softmax is written. So is that of a part of a row.
///
/// Of rows of −∞ only both are NaN. True of real numbers: beside +∞ a number gave 0 and gives NaN.
fn run(graph: &Graph, facts: &Facts, permit: &mut Permit<'_>) -> Result<Option<Graph>> {
    sites(graph, facts, |id| find(graph, facts, id, permit), |rebuild, id, found| found.rebuilt(graph, rebuild, id))
}

struct Found {
    /// the step of the map that is a difference
    position: usize,
    /// what is summed, of the whole row
    row: Step,
    /// what shifts it
    shift: Value,
    axes: Vec<usize>,
    /// where what is shifted lies in the row
    part: View,
}

fn find(graph: &Graph, facts: &Facts, id: usize, permit: &mut Permit<'_>) -> Option<Found> {
    let Prim::Map(row) = graph.nodes()[id].prim() else { return None };
    let is_less = |k: &usize| matches!(row.expr.nodes()[*k].0, ExprNode::Apply(Scalar::Sub, _));
    let mut places = (0..row.expr.nodes().len()).filter(is_less);
    let found = places.find_map(|k| less_sum(graph, facts, Value::new(id, 0), k))?;
    let site = Site {
        rule: REWRITE.name,
        producer: found.shift.node(),
        consumer: id,
        flops_saved: Dim::int(0),
        bytes_saved: Dim::int(0),
        is_sure: false,
        what: "a row is shifted by its maximum before the logarithm of its sum is taken away".to_owned(),
    };
    permit.allow(graph, site).then_some(found)
}

fn less_sum(graph: &Graph, facts: &Facts, value: Value, position: usize) -> Option<Found> {
    let [x, less] = Step::at(graph, value, position as u32).call(graph, Scalar::Sub)?;
    let seen = Seen::at(graph, less).behind_views(graph);
    let [a, b] = seen.step.call(graph, Scalar::Add).filter(|_| facts.readers(seen.step.node()) <= 1)?;
    let log = |step: Step| seen.with(step).behind_views(graph);
    [(a, b), (b, a)].into_iter().find_map(|(shift, logarithm)| {
        let logarithm = log(logarithm);
        let [sum] = logarithm.step.call(graph, Scalar::Log)?;
        let (fold, _) = own_row(graph, &logarithm.with(sum), Monoid::Sum)?;
        let [power] = fold.step.call(graph, Scalar::Exp)?;
        let [row, shifted] = power.call(graph, Scalar::Sub)?;
        let part = part_of(graph, x, row)?;
        // The shift, as seen from the row, is the same that was added.
        let shape = row.shape(graph);
        let outside = of_row(&seen.with(shift).behind_views(graph), shape);
        let inside = Seen::at(graph, shifted).behind_views(graph);
        let max = finite(graph, shift)?;
        let (largest, reduce) = own_row(graph, &of_row(&seen.with(max), shape), Monoid::Max)?;
        let is_own = outside == inside && largest.step == row && largest.axes == fold.axes;
        is_own.then(|| Found { position, row, shift: reduce, axes: fold.axes, part: part.clone() })
    })
}

/// What is seen from a part of a row, along which it does not vary, seen from the whole row.
fn of_row(seen: &Seen, shape: &Shape) -> Seen {
    Seen { step: seen.step, view: View { shape: shape.clone(), ..seen.view.clone() } }
}

/// The fold that is seen, with its value, repeated along the axes that it folds.
fn own_row(graph: &Graph, seen: &Seen, monoid: Monoid) -> Option<(Fold, Value)> {
    let seen = seen.behind_views(graph);
    let Kind::Value(value) = seen.step.kind(graph) else { return None };
    let fold = Fold::of(graph, value).filter(|fold| fold.monoid == monoid)?;
    let fold = of_row(&seen, fold.step.shape(graph)).own_row(graph)?;
    Some((fold, value))
}

/// For `|m| < ∞ ? m : 0`: `m`.
fn finite(graph: &Graph, shift: Step) -> Option<Step> {
    let [condition, max, zero] = shift.call(graph, Scalar::Select)?;
    let [size, bound] = condition.call(graph, Scalar::Lt)?;
    let is_finite = size.call(graph, Scalar::Abs) == Some([max]) && bound.float(graph) == Some(f64::INFINITY);
    (is_finite && zero.float(graph) == Some(0.0)).then_some(max)
}

/// Where a step lies in a row; `None` where it does not.
fn part_of(graph: &Graph, step: Step, row: Step) -> Option<View> {
    if step == row {
        return Some(View::identity(step.shape(graph)));
    }
    let Kind::Value(value) = row.kind(graph) else { return None };
    let node = graph.node_of(value);
    let Prim::Concat(concat) = node.prim() else { return None };
    let part = node.args().iter().position(|arg| Step::of(graph, *arg) == step)?;
    let before: Dim = node.args()[..part].iter().map(|arg| graph.ty(*arg).shape[concat.axis].clone()).sum();
    let shape = step.shape(graph).clone();
    let place = |axis: usize| if axis == concat.axis { Dim::axis(axis) + &before } else { Dim::axis(axis) };
    let map = (0..shape.rank()).map(place).collect();
    Some(View::new(shape, map))
}

impl Found {
    fn rebuilt(&self, graph: &Graph, rebuild: &mut Rebuild<'_>, id: usize) -> Result<Option<Values>> {
        let row = self.row.rebuilt(graph, rebuild)?;
        let shape = rebuild.graph().ty(row).shape.clone();
        let kept: Vec<Dim> = (0..shape.rank()).filter(|a| !self.axes.contains(a)).map(Dim::axis).collect();
        let everywhere = View::new(shape, kept);
        let max = rebuild.add(Reduce { monoid: Monoid::Max, axes: self.axes.clone() }, &[row])?;
        let max = rebuild.add(everywhere.clone(), &[max])?;
        let shifted = call(rebuild, Scalar::Sub, &[row, max])?;
        let power = call(rebuild, Scalar::Exp, &[shifted])?;
        let sum = rebuild.add(Reduce { monoid: Monoid::Sum, axes: self.axes.clone() }, &[power])?;
        let logarithm = call(rebuild, Scalar::Log, &[sum])?;
        let logarithm = rebuild.add(everywhere, &[logarithm])?;
        let mut less = call(rebuild, Scalar::Sub, &[shifted, logarithm])?;
        if !self.part.is_identity(&rebuild.graph().ty(less).shape) {
            less = rebuild.add(self.part.clone(), &[less])?;
        }
        replaced(with_step(graph, rebuild, (id, self.position), less, |less, _| less)?)
    }
}
