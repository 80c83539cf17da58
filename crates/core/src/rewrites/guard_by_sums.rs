//! One spelling of guards against rows without a key.

use super::softmax::{masks_row, normalised};
use super::step::{Step, with_step};
use super::{Facts, Permit, Rewrite, Site, sites};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Value};
use crate::ops::{ExprNode, Prim, Scalar};
use crate::passes::Tier;
use crate::tensor::Dim;

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "guard-by-sums",
    doc: "A softmax that is 0 where a row is all −∞ is 0 where the sum of the row is NaN.",
    tier: Tier::Real,
    run,
};

/// In: any graph. Out: no choice between 0 and a probability `e / s` of a softmax by whether the maximum of the row is −∞: it is one
/// by `isnan(s)`. Of rows of real numbers and −∞ the sum is NaN exactly if all are −∞ (see `guard-rows`), so that the two guards
/// that exporters write are one. Rows with NaN or +∞ were NaN and are 0.
fn run(graph: &Graph, facts: &Facts, permit: &mut Permit<'_>) -> Result<Option<Graph>> {
    sites(graph, facts, |id| find(graph, id, permit), |rebuild, id, found| apply(graph, rebuild, id, found))
}

/// A choice by a step of a map.
struct Found {
    position: usize,
    /// which operand of the choice is the probability
    probability: usize,
    sum: Step,
}

fn find(graph: &Graph, id: usize, permit: &mut Permit<'_>) -> Option<Found> {
    let Prim::Map(row) = graph.nodes()[id].prim() else { return None };
    let chooses = |k: &usize| matches!(row.expr.nodes()[*k].0, ExprNode::Apply(Scalar::Select, _));
    let found = (0..row.expr.nodes().len()).filter(chooses).find_map(|k| guarded(graph, Value::new(id, 0), k))?;
    let site = Site {
        rule: REWRITE.name,
        producer: found.sum.node(),
        consumer: id,
        flops_saved: Dim::int(0),
        bytes_saved: Dim::int(0),
        what: "whether a row is masked everywhere is asked of its sum".to_owned(),
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
    let zero_where = masks_row(graph, condition, e)?;
    (zero_where == (probability == 2)).then_some(Found { position, probability, sum })
}

fn apply(graph: &Graph, rebuild: &mut Rebuild<'_>, id: usize, found: &Found) -> Result<Option<Values>> {
    let sum = found.sum.rebuilt(graph, rebuild)?;
    let (yes, no) = (3 - found.probability, found.probability);
    replaced(with_step(graph, rebuild, (id, found.position), sum, |sum, operands| {
        sum.apply(Scalar::IsNan).select(operands[yes], operands[no])
    })?)
}
