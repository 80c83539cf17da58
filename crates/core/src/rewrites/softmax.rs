//! The parts of a softmax, recognised by structure.

use super::seen::{Fold, Seen};
use super::step::{Kind, Step};
use crate::graph::Graph;
use crate::ops::Scalar;
use crate::ops::prim::Monoid;
use crate::tensor::DType;

/// Whether a step is `exp(x − m)` with `m` the maximum of `x` over some axes, and over which: a number in [0, 1] unless the row
/// holds NaN, +∞, or −∞ only, in which case all of it is NaN or 0.
pub(super) fn shifted_exponential(graph: &Graph, step: Step) -> Option<Vec<usize>> {
    let power = step.call::<1>(graph, Scalar::Exp).or_else(|| step.call(graph, Scalar::Exp2))?;
    let [x, max] = power[0].call(graph, Scalar::Sub)?;
    let fold = Seen::at(graph, max).own_row(graph)?;
    (fold.monoid == Monoid::Max && fold.step == x).then_some(fold.axes)
}

/// For a step `e / s` or `e · (1 / s)` with `e = exp(x − max x)` and `s = Σ e` over the same axes: the step `e`, and the step `s` or
/// `1 / s`.
pub(super) fn normalised(graph: &Graph, probability: Step) -> Option<(Step, Step)> {
    if let Some([e, sum]) = probability.call(graph, Scalar::Div) {
        return sums_row(graph, e, &Seen::at(graph, sum)).then_some((e, sum));
    }
    let [a, b] = probability.call(graph, Scalar::Mul)?;
    [(a, b), (b, a)].into_iter().find_map(|(e, inverse)| {
        let seen = Seen::at(graph, inverse).behind_views(graph);
        let [one, sum] = seen.step.call(graph, Scalar::Div)?;
        (one.float(graph) == Some(1.0) && sums_row(graph, e, &seen.with(sum))).then_some((e, inverse))
    })
}

/// Whether a step is `exp(x − max x)`, and what is seen from its coordinates its sum over the axes of the maximum.
fn sums_row(graph: &Graph, e: Step, sum: &Seen) -> bool {
    let fold = sum.own_row(graph).filter(|fold| fold.monoid == Monoid::Sum && fold.step == e);
    fold.is_some_and(|fold| shifted_exponential(graph, e) == Some(fold.axes))
}

/// Whether a condition, seen from the coordinates of a probability `e / s` with `e = exp(x − max x)`, says that the maximum of its
/// row is −∞ (true) or that it is not (false); `None` if it says neither.
pub(super) fn masks_row(graph: &Graph, condition: Step, e: Step) -> Option<bool> {
    let mut holds = true;
    let mut seen = Seen::at(graph, condition).behind_views(graph);
    loop {
        let inner = match seen.step.kind(graph) {
            Kind::Call(Scalar::Not, operands) if seen.step.dtype(graph) == DType::Bool => {
                holds = !holds;
                operands[0]
            }
            // A truth as a number, and a number as a truth.
            Kind::Cast(x) if !seen.step.dtype(graph).is_float() && !x.dtype(graph).is_float() => x,
            _ => break,
        };
        seen = seen.with(inner).behind_views(graph);
    }
    let axes = shifted_exponential(graph, e)?;
    let power = e.call::<1>(graph, Scalar::Exp).or_else(|| e.call(graph, Scalar::Exp2))?;
    let [x, _] = power[0].call(graph, Scalar::Sub)?;
    if let Some(hidden) = mask_hides_row(graph, &seen, x, &axes) {
        return Some(holds == hidden);
    }
    let (max, least, holds) = match seen.step.kind(graph) {
        Kind::Call(Scalar::Eq, operands) => (operands[0], operands[1], holds),
        Kind::Call(Scalar::Lt, operands) => (operands[1], operands[0], !holds),
        _ => return None,
    };
    let fold = seen.with(max).own_row(graph)?;
    let masks = least.float(graph) == Some(f64::NEG_INFINITY) && fold.monoid == Monoid::Max && fold.step == x;
    (masks && axes == fold.axes).then_some(holds)
}

/// Whether what is seen from the coordinates of `x` says that all of a row is hidden (true) or some of it shown (false): it is a fold over
/// the row of what says so of its elements. Of rows of real numbers and −∞ the first is that the maximum of `x` is −∞.
fn mask_hides_row(graph: &Graph, seen: &Seen, x: Step, axes: &[usize]) -> Option<bool> {
    let Kind::Value(value) = seen.step.kind(graph) else { return None };
    let (fold, &[axis]) = (Fold::of(graph, value)?, axes) else { return None };
    let mut truth = fold.along(graph, &seen.view, axis)?.behind_views(graph);
    let mut same = true;
    loop {
        let inner = match truth.step.kind(graph) {
            Kind::Call(Scalar::Not, operands) if truth.step.dtype(graph) == DType::Bool => {
                same = !same;
                operands[0]
            }
            Kind::Cast(inner) if inner.dtype(graph) == DType::Bool => inner,
            _ => break,
        };
        truth = truth.with(inner).behind_views(graph);
    }
    match (fold.monoid, same == shows(graph, &truth, x)?) {
        (Monoid::Max, true) => Some(false),
        (Monoid::Min | Monoid::Prod, false) => Some(true),
        _ => None,
    }
}

/// Whether a truth says of an element of `x` that it is shown (true) or hidden (false): it compares it with −∞, or is the condition of
/// `x = (c ? y : −∞)`.
fn shows(graph: &Graph, truth: &Seen, x: Step) -> Option<bool> {
    let least = |step: Step| step.float(graph) == Some(f64::NEG_INFINITY);
    let is = |seen: &Seen, step: Step| *seen == Seen::at(graph, step).behind_views(graph);
    match truth.step.kind(graph) {
        Kind::Call(Scalar::Lt, operands) if least(operands[0]) => {
            return is(&truth.with(operands[1]).behind_views(graph), x).then_some(true);
        }
        Kind::Call(Scalar::Eq, operands) if least(operands[1]) => {
            return is(&truth.with(operands[0]).behind_views(graph), x).then_some(false);
        }
        _ => {}
    }
    let [condition, yes, no] = x.call(graph, Scalar::Select)?;
    let shown = if least(no) { true } else { Some(false).filter(|_| least(yes))? };
    is(truth, condition).then_some(shown)
}
