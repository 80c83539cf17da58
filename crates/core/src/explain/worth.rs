//! What rewrites are worth.
//!
//! A rewrite has no kernel of its own: what it is worth is the time that a plan takes longer without it, or with it where it was refused. The
//! rewrites of equal layers are told by what they are and what they save; all that are equal are left out of one other plan, and each is
//! worth its share.

use indexmap::IndexMap;
use rustc_hash::FxHashMap;

use crate::compile::{PlannedProgram, plan_simplified_knowing, rewrite_id};
use crate::fuse::{Cost, DecisionId, Knowledge, PlanOptions};
use crate::graph::Graph;
use crate::rewrites::{Application, Refusal};
use crate::tensor::Dim;

/// So many other plans are made at most: of the rewrites of a graph with more kinds of them, the last have no price.
const MOST_PLANS: usize = 48;

/// So many nodes are planned again at most: prices of a large graph must not take many times as long as its plan.
const MOST_NODES: usize = 50_000;

/// What equal rewrites have in common; whether they were applied.
type Likeness<'a> = (&'static str, &'a Dim, &'a Dim, &'a str, bool);

/// What rewrites of a program save, or would save, that was planned from `graph`, the one after the passes.
pub(super) fn of_rewrites(
    planned: &PlannedProgram,
    graph: &Graph,
    options: &PlanOptions,
) -> FxHashMap<DecisionId, Cost> {
    let mut alike: IndexMap<Likeness<'_>, Vec<DecisionId>> = IndexMap::new();
    for application in &planned.rewrites {
        let Application { rule, flops_saved, bytes_saved, what, refused, .. } = application;
        if matches!(refused, None | Some(Refusal::Slower)) {
            let key = (*rule, flops_saved, bytes_saved, what.as_str(), refused.is_none());
            alike.entry(key).or_default().push(rewrite_id(application));
        }
    }
    let (mut worths, mut knowledge) = (FxHashMap::default(), Knowledge::default());
    for ((.., applied), ids) in alike.into_iter().take(MOST_PLANS.min(MOST_NODES / graph.nodes().len().max(1))) {
        let mut turned = options.clone();
        let pins = if applied { &mut turned.pins.apart } else { &mut turned.pins.together };
        pins.extend(&ids);
        // Without a rewrite a graph may be too much for a limit; then it has no price.
        let Ok(other) = plan_simplified_knowing(graph.clone(), &turned, &mut knowledge, &mut |_| {}) else { continue };
        let (longer, own) = if applied { (&other, planned) } else { (planned, &other) };
        let worth = share(longer.run.cost, own.run.cost, ids.len() as f64);
        worths.extend(ids.into_iter().map(|id| (id, worth)));
    }
    worths
}

fn share(longer: Cost, own: Cost, count: f64) -> Cost {
    Cost {
        us: (longer.us - own.us) / count,
        bytes: (longer.bytes - own.bytes) / count,
        flops: (longer.flops - own.flops) / count,
        launches: (longer.launches - own.launches) / count,
        ..own
    }
}
