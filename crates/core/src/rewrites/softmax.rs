//! The parts of a softmax, recognised by structure.

use super::seen::Seen;
use super::step::Step;
use crate::graph::Graph;
use crate::ops::Scalar;
use crate::ops::prim::Monoid;

/// Whether a step is `exp(x − m)` with `m` the maximum of `x` over some axes, and over which: a number in [0, 1] unless the row
/// holds NaN, +∞, or −∞ only, in which case all of it is NaN or 0.
pub(super) fn shifted_exponential(graph: &Graph, step: Step) -> Option<&[usize]> {
    let power = step.call::<1>(graph, Scalar::Exp).or_else(|| step.call(graph, Scalar::Exp2))?;
    let [x, max] = power[0].call(graph, Scalar::Sub)?;
    let (row, folded) = Seen::at(graph, max).own_row(graph)?;
    (row.monoid == Monoid::Max && folded == x).then_some(row.axes.as_slice())
}

/// For a step `e / s` or `e · (1 / s)` with `e = exp(x − max x)` and `s = Σ e` over the same axes: the step `s` or `1 / s`.
pub(super) fn normaliser(graph: &Graph, probability: Step) -> Option<Step> {
    if let Some([e, sum]) = probability.call(graph, Scalar::Div) {
        return sums_row(graph, e, &Seen::at(graph, sum)).then_some(sum);
    }
    let [a, b] = probability.call(graph, Scalar::Mul)?;
    [(a, b), (b, a)].into_iter().find_map(|(e, inverse)| {
        let seen = Seen::at(graph, inverse).behind_views(graph);
        let [one, sum] = seen.step.call(graph, Scalar::Div)?;
        (one.float(graph) == Some(1.0) && sums_row(graph, e, &seen.with(sum))).then_some(inverse)
    })
}

/// Whether a step is `exp(x − max x)`, and what is seen from its coordinates its sum over the axes of the maximum.
fn sums_row(graph: &Graph, e: Step, sum: &Seen) -> bool {
    let Some((row, folded)) = sum.own_row(graph) else { return false };
    row.monoid == Monoid::Sum && folded == e && shifted_exponential(graph, e) == Some(row.axes.as_slice())
}
