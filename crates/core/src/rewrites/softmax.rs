//! The parts of a softmax, recognised by structure.

use super::seen::own_row;
use super::step::Step;
use crate::graph::Graph;
use crate::ops::Scalar;
use crate::ops::prim::Monoid;

/// Whether a step is `exp(x − m)` with `m` the maximum of `x` over some axes, and over which: a number in [0, 1] unless the row
/// holds NaN, +∞, or −∞ only, in which case all of it is NaN or 0.
pub(super) fn shifted_exponential(graph: &Graph, step: Step) -> Option<&[usize]> {
    let power = step.call::<1>(graph, Scalar::Exp).or_else(|| step.call(graph, Scalar::Exp2))?;
    let [x, max] = power[0].call(graph, Scalar::Sub)?;
    let (row, folded) = own_row(graph, max)?;
    (row.monoid == Monoid::Max && folded == x).then_some(row.axes.as_slice())
}

/// For a step `e / s` with `e = exp(x − max x)` and `s = Σ e` over the same axes: the step `s`.
pub(super) fn sum_of_row(graph: &Graph, probability: Step) -> Option<Step> {
    let [e, sum] = probability.call(graph, Scalar::Div)?;
    let (row, folded) = own_row(graph, sum)?;
    let normalises = row.monoid == Monoid::Sum && folded == e;
    (normalises && shifted_exponential(graph, e)? == row.axes).then_some(sum)
}
