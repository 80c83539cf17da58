//! Normalisers behind the products that they normalise.

use super::facts::Axes;
use super::hoist_scales::{wider, with_range};
use super::operand::{acted_on, summed_axes};
use super::peel::{Action, Order, Peeled, all_read_once, cast, peel};
use super::seen::Seen;
use super::softmax::shifted_exponential;
use super::step::{Kind, Step};
use super::{Facts, Permit, Refusal, Rewrite, Site, sites};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Value};
use crate::ops::prim::{Contract, Monoid};
use crate::ops::{Prim, Scalar};
use crate::passes::Tier;

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "defer-normalizer",
    doc: "A contraction of e / Σe is the contraction of e, divided by Σe; a condition on the row goes along.",
    tier: Tier::Real,
    run,
};

/// In: any graph. Out: no contraction reads `e · g` (or `e / g`), summed over an axis along which `g` is constant, where `g` is
/// computed from the sum of that very `e` over the axis: the contraction reads `e`, and `g` acts on its result. So do choices
/// between 0 and the product by a condition that is computed from a reduction and constant along the axis (the NaN guard of a
/// softmax). Factors in between that vary along the axis (a dropout mask) stay.
///
/// True of real numbers: a row of NaN that a dropout mask hides altogether gave 0 and gives NaN.
///
/// This is the condition under which the sum and the contraction can run in one loop over the axis: both fold the same `e`,
/// and only what is done with the two results comes after. Other factors of a row (the root of an RMSNorm) are not
/// sums of what is contracted and stay where they are.
///
/// Types: see `hoist-scales`; the sum of `e · v` before it is divided can be far larger than after. So `e` has a factor whose size
/// is known, or one that is an exponential, whose own sum would have left the range about as early.
fn run(graph: &Graph, facts: &Facts, permit: &mut Permit<'_>) -> Result<Option<Graph>> {
    sites(graph, facts, |id| find(graph, facts, id, permit), |rebuild, id, found| apply(graph, rebuild, id, found))
}

/// Which operand is a product with a normaliser, and its parts.
struct Found {
    operand: usize,
    peeled: Peeled,
    /// whether the product stays in range without what normalises it
    stays_in_range: bool,
}

fn find(graph: &Graph, facts: &Facts, id: usize, permit: &mut Permit<'_>) -> Option<Found> {
    let node = &graph.nodes()[id];
    let Prim::Contract(row) = node.prim() else { return None };
    let found = [0, 1].into_iter().find_map(|operand| {
        let (peeled, stays_in_range) = normalised(graph, node.args()[operand], summed_axes(row, operand))?;
        Some(Found { operand, peeled, stays_in_range })
    })?;
    let producer = node.args()[found.operand];
    let (probabilities, out) = (graph.ty(producer), &node.types()[0]);
    let site = Site {
        rule: REWRITE.name,
        producer: producer.node(),
        consumer: id,
        flops_saved: probabilities.shape.count() - out.shape.count(),
        bytes_saved: (probabilities.bytes() - out.bytes()) * 2,
        is_sure: false,
        what: "what normalises a row divides its product".to_owned(),
    };
    if !all_read_once(facts, &found.peeled.passed) {
        permit.refuse(graph, site, Refusal::UsedElsewhere);
        return None;
    }
    if !found.stays_in_range {
        permit.refuse(graph, site, Refusal::LeavesRange);
        return None;
    }
    permit.allow(graph, site).then_some(found)
}

/// The operand of a contraction without what normalises it, if something does, and whether it stays in range without.
fn normalised(graph: &Graph, operand: Value, summed: Axes) -> Option<(Peeled, bool)> {
    if !graph.ty(operand).dtype.is_float() {
        return None;
    }
    let mut parts = Vec::new();
    product_parts(graph, Step::of(graph, operand), &mut parts);
    let normalises = |seen: &Seen| {
        seen.reductions(graph).iter().any(|fold| fold.monoid == Monoid::Sum && parts.contains(&fold.step))
    };
    let wanted = |action: Action, seen: &Seen| {
        let fits = match action {
            Action::Times | Action::Over => normalises(seen),
            Action::Unless | Action::OnlyIf => !seen.reductions(graph).is_empty(),
        };
        fits && seen.view.guard.is_empty() && seen.is_free_of(graph, summed)
    };
    // exp(x − max x) is at most 1, also without its normaliser, so that any type holds it.
    let is_small = parts.iter().any(|part| shifted_exponential(graph, *part).is_some());
    let peeled = peel(graph, operand, Order { wanted: &wanted, is_small, heeds_guards: true, from_sums: false });
    let is_factor = |action: Action| matches!(action, Action::Times | Action::Over);
    let stays_in_range = is_small || parts.iter().any(|part| is_bounded(graph, *part));
    peeled.factors.iter().any(|f| is_factor(f.action)).then_some((peeled, stays_in_range))
}

/// Whether a step is at most 1 by what computes it, or an exponential.
fn is_bounded(graph: &Graph, step: Step) -> bool {
    use Scalar::{Erf, Exp, Exp2, Sigmoid, Tanh};
    matches!(step.kind(graph), Kind::Call(Erf | Exp | Exp2 | Sigmoid | Tanh, _))
}

/// The steps that a product is made of, itself and what is inside of its factors included.
fn product_parts(graph: &Graph, step: Step, parts: &mut Vec<Step>) {
    const MOST_PARTS: usize = 64;
    if parts.len() >= MOST_PARTS {
        return;
    }
    parts.push(step);
    match step.kind(graph) {
        Kind::Call(Scalar::Mul, operands) => operands.iter().for_each(|o| product_parts(graph, *o, parts)),
        Kind::Call(Scalar::Div, operands) => product_parts(graph, operands[0], parts),
        Kind::Call(Scalar::Select, operands) => operands[1..].iter().for_each(|o| product_parts(graph, *o, parts)),
        Kind::Cast(x) => product_parts(graph, x, parts),
        Kind::Value(value) => {
            if let Prim::View(_) = graph.node_of(value).prim() {
                product_parts(graph, Step::of(graph, graph.node_of(value).args()[0]), parts);
            }
        }
        _ => {}
    }
}

fn apply(graph: &Graph, rebuild: &mut Rebuild<'_>, id: usize, found: &Found) -> Result<Option<Values>> {
    let node = &graph.nodes()[id];
    let Prim::Contract(row) = node.prim() else { return Ok(None) };
    let dtype = node.types()[0].dtype;
    let factors = || found.peeled.factors.iter().map(|f| f.seen.step.dtype(graph)).filter(|d| d.is_float());
    let wide = factors().fold(with_range(dtype), wider);
    let mut operands = [rebuild.moved(node.args()[0]), rebuild.moved(node.args()[1])];
    operands[found.operand] = found.peeled.rest.rebuilt(graph, rebuild)?;
    for operand in &mut operands {
        *operand = cast(rebuild, *operand, wide)?;
    }
    let product = Contract { accumulator: wider(row.accumulator, wide), ..row.clone() };
    let result = rebuild.add(product, &operands)?;
    let result = acted_on(graph, rebuild, (node, row, found.operand), &found.peeled.factors, result)?;
    replaced(cast(rebuild, result, dtype)?)
}
