//! Conditions on probabilities that are conditions on rows.

use super::softmax;
use super::step::{Kind, Step, with_step};
use super::{Facts, Permit, Rewrite, Site, sites};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Node, Value};
use crate::ops::prim::{Map, Monoid, Reduce};
use crate::ops::{Expr, ExprNode, Number, Prim, Scalar, Term};
use crate::passes::Tier;
use crate::tensor::{DType, Dim};

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "guard-rows",
    doc: "Whether a probability of a softmax is NaN is asked of its row, whether a row is all −∞ of its maximum, and what keeps probabilities \
          between 0 and 1 is not asked at all.",
    tier: Tier::Exact,
    run,
};

/// In: any graph. Out: no `isnan(p)` with `p = e / s`, `e = exp(x − m)`, `m = max x`, `s = Σ e` over the same axes: it is
/// `isnan(s)`; and no "all `x` = −∞" or "some `x` ≠ −∞" over the axes of such a maximum: it is `m = −∞` or its negation. A guard
/// that exporters put on probabilities is then constant along the row, and can move behind what reads the row.
///
/// Why `isnan(e / s) = isnan(s)` for every element of a row (with at least one element; without one there is nothing to say):
/// - some `x` is NaN: `m` is NaN, hence every `e`, hence `s`: both sides hold;
/// - `m = +∞`: the elements that are +∞ have `e = exp(∞ − ∞)` = NaN, hence `s` is NaN, and so is every quotient by it: both hold;
/// - `m = −∞`: every `x` is −∞, so every `e` is exp(−∞ + ∞) = NaN, hence `s`: both hold;
/// - `m` is finite: `x − m` ≤ 0, so that every `e` is in [0, 1], and 1 for an element that is `m`; hence `s` is at least 1 and not
///   NaN (in a narrow type it may be +∞), and `e / s` is a number: neither holds.
///
/// The same holds for `e · (1 / s)`, and `isnan(1 / s)` is `isnan(s)`.
///
/// Why "all `x` = −∞" is `m = −∞`: `max` gives NaN if an element is NaN, which makes both false; without NaN it is the definition
/// of a maximum; over no elements it is −∞, and "all" is true.
///
/// By the cases above a probability is NaN or a number from 0 to 1: sums of numbers that are not negative are, however they are rounded, no
/// less than each of them. (A product with `1 / s` may be above 1 by what it is rounded.) Nor can a choice between such numbers be anything
/// else. So `p = c` with another `c` is false, and `min(p, c)` and `max(p, c)` with a `c` above or below are `p`: what is left of
/// `nan_to_num`, and of a clip from 0 to 1.
fn run(graph: &Graph, facts: &Facts, permit: &mut Permit<'_>) -> Result<Option<Graph>> {
    sites(graph, facts, |id| find(graph, id, permit), |rebuild, id, found| apply(graph, rebuild, id, found))
}

enum Found {
    /// the step of a map that asks, and the sum at the same coordinates
    IsNan(usize, Step),
    /// a reduction over `x = −∞` or its negation, by its `x`
    Masked { x: Step, negated: bool },
    /// the step of a map that keeps a probability where it is: the operand that it is
    Kept(usize, usize),
    /// the step of a map that asks whether a probability is what it cannot be
    Never(usize),
}

fn find(graph: &Graph, id: usize, permit: &mut Permit<'_>) -> Option<Found> {
    let node = &graph.nodes()[id];
    let (found, producer, flops_saved, what) = match node.prim() {
        Prim::Map(row) => {
            let value = Value::new(id, 0);
            let find = |k: usize| match row.expr.nodes()[k].0 {
                ExprNode::Apply(Scalar::IsNan, _) => {
                    let sum = asked_row(graph, value, k)?;
                    Some((
                        Found::IsNan(k, sum),
                        sum.node(),
                        "whether a probability is NaN is asked of the sum of its row",
                    ))
                }
                ExprNode::Apply(Scalar::Eq | Scalar::Min | Scalar::Max, _) => bounded(graph, value, k),
                _ => None,
            };
            let (found, producer, what) = (0..row.expr.nodes().len()).find_map(find)?;
            (found, producer, Dim::int(0), what)
        }
        Prim::Reduce(row) => {
            let (x, negated) = masked(graph, row, node.args()[0])?;
            let what = "whether a row is masked everywhere is asked of its maximum";
            (Found::Masked { x, negated }, x.node(), graph.ty(node.args()[0]).shape.count() * 2, what)
        }
        _ => return None,
    };
    let site = Site {
        rule: REWRITE.name,
        producer,
        consumer: id,
        flops_saved,
        bytes_saved: Dim::int(0),
        is_sure: false,
        what: what.to_owned(),
    };
    permit.allow(graph, site).then_some(found)
}

/// For a step `isnan(p)` of a map, where `p` is a probability of a softmax: the sum of the row, at the coordinates of `p`.
fn asked_row(graph: &Graph, value: Value, position: usize) -> Option<Step> {
    let [mut p] = Step::at(graph, value, position as u32).call(graph, Scalar::IsNan)?;
    // Conversions between types that have infinities keep what is NaN; a probability is never too large.
    while let Kind::Cast(inner) = p.kind(graph) {
        p = Some(inner).filter(|x| has_infinities(x.dtype(graph)) && has_infinities(p.dtype(graph)))?;
    }
    softmax::normalised(graph, p).map(|(_, sum)| sum)
}

/// For a step `p = c`, `min(p, c)` or `max(p, c)` of a map whose answer is known because `p` is made of probabilities: what it is, and the node
/// that makes `p`.
fn bounded(graph: &Graph, value: Value, position: usize) -> Option<(Found, usize, &'static str)> {
    let step = Step::at(graph, value, position as u32);
    let Kind::Call(op, operands) = step.kind(graph) else { return None };
    let (at, bound) = (0..2).find_map(|k| Some((1 - k, operands[k].float(graph)?)))?;
    // Most numbers are compared with others.
    let is_outside = match op {
        Scalar::Eq => !(0.0..=1.0).contains(&bound),
        Scalar::Min => bound >= 1.0,
        Scalar::Max => bound <= 0.0,
        _ => false,
    };
    let most = most_of(graph, *operands.get(at).filter(|_| is_outside)?, MOST_CHOICES)?;
    let producer = operands[at].node();
    match op {
        Scalar::Eq => (bound < 0.0 || bound > most).then_some((
            Found::Never(position),
            producer,
            "a probability is compared with what none is",
        )),
        _ => (bound <= 0.0 || bound >= most).then_some((
            Found::Kept(position, at),
            producer,
            "a probability is kept where it is anyway",
        )),
    }
}

/// Choices within choices that are looked at.
const MOST_CHOICES: usize = 6;

/// The most that a step can be which is never negative, if it is made of probabilities and of numbers between 0 and 1.
fn most_of(graph: &Graph, step: Step, depth: usize) -> Option<f64> {
    /// What `1 / s` and the product with it are rounded by is less.
    const ROUNDED: f64 = 1.25;
    if let Some(number) = step.float(graph) {
        return (0.0..=1.0).contains(&number).then_some(number);
    }
    if depth == 0 {
        return None;
    }
    match step.kind(graph) {
        Kind::Cast(inner) => {
            let both = has_infinities(inner.dtype(graph)) && has_infinities(step.dtype(graph));
            most_of(graph, Some(inner).filter(|_| both)?, depth - 1)
        }
        Kind::Call(Scalar::Select, operands) => {
            let [a, b] = [1, 2].map(|k| most_of(graph, operands[k], depth - 1));
            Some(a?.max(b?))
        }
        Kind::Call(Scalar::Div, _) => softmax::normalised(graph, step).map(|_| 1.0),
        Kind::Call(Scalar::Mul, _) => softmax::normalised(graph, step).map(|_| ROUNDED),
        _ => None,
    }
}

fn has_infinities(dtype: DType) -> bool {
    matches!(dtype, DType::F16 | DType::BF16 | DType::F32 | DType::F64)
}

/// For a reduction that says whether all elements are −∞ (or, negated, whether some are not), as a bool or a number: the elements,
/// if the graph computes their maximum.
fn masked(graph: &Graph, row: &Reduce, operand: Value) -> Option<(Step, bool)> {
    let mut condition = Step::of(graph, operand);
    while let Kind::Cast(inner) = condition.kind(graph) {
        condition = inner;
    }
    let negated = condition.call::<1>(graph, Scalar::Not).filter(|_| condition.dtype(graph) == DType::Bool);
    let all = negated.is_none();
    let fits = match row.monoid {
        Monoid::Min => all,
        Monoid::Prod => all,
        Monoid::Max => !all,
        _ => false,
    };
    let [x, least] = negated.map_or(condition, |[c]| c).call(graph, Scalar::Eq).filter(|_| fits)?;
    if least.float(graph) != Some(f64::NEG_INFINITY) {
        return None;
    }
    Some((maximum_taken(graph, x, &row.axes)?, !all))
}

/// The elements, or these in another type that has infinities, whichever the graph takes the maximum of.
fn maximum_taken(graph: &Graph, x: Step, axes: &[usize]) -> Option<Step> {
    let is_same = |folded: &Step| match folded.kind(graph) {
        Kind::Cast(inner) => *folded == x || (inner == x && is_wider(folded.dtype(graph), inner.dtype(graph))),
        _ => *folded == x,
    };
    let folded = |node: &Node| match node.prim() {
        Prim::Reduce(row) if row.monoid == Monoid::Max && row.axes == axes => Some(Step::of(graph, node.args()[0])),
        _ => None,
    };
    graph.nodes().iter().filter_map(folded).find(is_same)
}

/// Whether a conversion makes no infinity of a number.
fn is_wider(to: DType, from: DType) -> bool {
    has_infinities(to) && has_infinities(from) && to.max_float() >= from.max_float()
}

fn apply(graph: &Graph, rebuild: &mut Rebuild<'_>, id: usize, found: &Found) -> Result<Option<Values>> {
    let node = &graph.nodes()[id];
    match (found, node.prim()) {
        (Found::IsNan(position, sum), Prim::Map(_)) => {
            let sum = sum.rebuilt(graph, rebuild)?;
            replaced(with_step(graph, rebuild, (id, *position), sum, |sum, _| sum.apply(Scalar::IsNan))?)
        }
        (Found::Kept(position, at), Prim::Map(_)) => {
            let first = rebuild.moved(node.args()[0]);
            replaced(with_step(graph, rebuild, (id, *position), first, |_, operands| operands[*at])?)
        }
        (Found::Never(position), Prim::Map(row)) => {
            let expr = Expr::build(&[], |scope, _| scope.constant(DType::Bool, Number::Int(0)));
            let never = rebuild.add(Map { expr, shape: row.shape.clone() }, &[])?;
            replaced(with_step(graph, rebuild, (id, *position), never, |never, _| never)?)
        }
        (Found::Masked { x, negated }, Prim::Reduce(row)) => {
            let x = x.rebuilt(graph, rebuild)?;
            let max = rebuild.add(Reduce { monoid: Monoid::Max, axes: row.axes.clone() }, &[x])?;
            let ty = &node.types()[0];
            let expr = Expr::build(&[rebuild.graph().ty(max).dtype], |scope, m| {
                let least = Term::call(Scalar::Eq, &[m[0], scope.float(m[0], f64::NEG_INFINITY)]);
                let holds = if *negated { least.apply(Scalar::Not) } else { least };
                if ty.dtype == DType::Bool { holds } else { holds.cast(ty.dtype) }
            });
            replaced(rebuild.add(Map { expr, shape: ty.shape.clone() }, &[max])?)
        }
        _ => Ok(None),
    }
}
