//! One spelling of guards against rows without a key.

use super::seen::Seen;
use super::softmax::{masks_row, normalised};
use super::step::{Step, with_step};
use super::{Facts, Permit, Rewrite, Site, sites};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Value};
use crate::ops::prim::Map;
use crate::ops::{Expr, ExprNode, Prim, Scalar, Term};
use crate::passes::Tier;
use crate::tensor::Dim;

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "guard-by-maximum",
    doc: "A softmax that is 0 where its row is NaN, or where a mask hides all of it, is 0 where the maximum of the row is −∞.",
    tier: Tier::Real,
    run,
};

/// In: any graph. Out: no choice between 0 and a probability `e / s` of a softmax by whether `s` is NaN, or by whether something else says that
/// all of the row is −∞: it is one by `m = −∞` for the maximum `m`. Of rows of real numbers and −∞ the sum is NaN exactly if all are −∞ (see `guard-rows`), so that
/// the guards that exporters write are one. Rows with NaN or +∞ that a guard made 0 are NaN: what is wrong in the data shows, and nothing that
/// was shown is hidden.
fn run(graph: &Graph, facts: &Facts, permit: &mut Permit<'_>) -> Result<Option<Graph>> {
    sites(graph, facts, |id| find(graph, id, permit), |rebuild, id, found| apply(graph, rebuild, id, found))
}

/// A choice by a step of a map.
struct Found {
    position: usize,
    /// which operand of the choice is the probability
    probability: usize,
    /// the maximum, at the coordinates of the probability
    max: Step,
}

fn find(graph: &Graph, id: usize, permit: &mut Permit<'_>) -> Option<Found> {
    let Prim::Map(row) = graph.nodes()[id].prim() else { return None };
    let chooses = |k: &usize| matches!(row.expr.nodes()[*k].0, ExprNode::Apply(Scalar::Select, _));
    let found = (0..row.expr.nodes().len()).filter(chooses).find_map(|k| guarded(graph, Value::new(id, 0), k))?;
    let site = Site {
        rule: REWRITE.name,
        producer: found.max.node(),
        consumer: id,
        flops_saved: Dim::int(0),
        bytes_saved: Dim::int(0),
        is_sure: false,
        what: "whether a row is masked everywhere is asked of its maximum".to_owned(),
    };
    permit.allow(graph, site).then_some(found)
}

fn guarded(graph: &Graph, value: Value, position: usize) -> Option<Found> {
    let [condition, yes, no] = Step::at(graph, value, position as u32).call(graph, Scalar::Select)?;
    let (probability, p) = match (yes.float(graph), no.float(graph)) {
        (Some(0.0), None) => (2, no),
        (None, Some(0.0)) => (1, yes),
        _ => return None,
    };
    let (e, sum) = normalised(graph, p)?;
    let power = e.call::<1>(graph, Scalar::Exp).or_else(|| e.call(graph, Scalar::Exp2))?;
    let [_, max] = power[0].call(graph, Scalar::Sub)?;
    let zero_where = asks_sum(graph, condition, sum).or_else(|| masks_row(graph, condition, e))?;
    let is_so = probability == 2
        && condition.call(graph, Scalar::Eq).is_some_and(|[m, least]| {
            let is_same = Seen::at(graph, m).behind_views(graph) == Seen::at(graph, max).behind_views(graph);
            is_same && least.float(graph) == Some(f64::NEG_INFINITY)
        });
    (zero_where == (probability == 2) && !is_so).then_some(Found { position, probability, max })
}

/// Whether a condition says that a sum is NaN (true), or that it is not (false).
fn asks_sum(graph: &Graph, condition: Step, sum: Step) -> Option<bool> {
    let (mut holds, mut seen) = (true, Seen::at(graph, condition).behind_views(graph));
    while let Some([inner]) = seen.step.call(graph, Scalar::Not) {
        (holds, seen) = (!holds, seen.with(inner).behind_views(graph));
    }
    let [asked] = seen.step.call(graph, Scalar::IsNan)?;
    (seen.with(asked).behind_views(graph) == Seen::at(graph, sum).behind_views(graph)).then_some(holds)
}

fn apply(graph: &Graph, rebuild: &mut Rebuild<'_>, id: usize, found: &Found) -> Result<Option<Values>> {
    let max = found.max.rebuilt(graph, rebuild)?;
    let ty = rebuild.graph().ty(max).clone();
    let expr =
        Expr::build(&[ty.dtype], |scope, m| Term::call(Scalar::Eq, &[m[0], scope.float(m[0], f64::NEG_INFINITY)]));
    let hidden = rebuild.add(Map { expr, shape: ty.shape }, &[max])?;
    let (yes, no) = (3 - found.probability, found.probability);
    replaced(with_step(graph, rebuild, (id, found.position), hidden, |hidden, operands| {
        hidden.select(operands[yes], operands[no])
    })?)
}
