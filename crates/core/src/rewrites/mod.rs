//! Rewrites: changes of a graph that change its arithmetic, each of them a decision.
//!
//! Comes in: a graph after the passes. Goes out: the same computation with its parts elsewhere: scales behind contractions,
//! normalisers behind the products that they normalise, constants inside of weights. Passes make a meaning plain and always
//! run; a rewrite moves work, so every single application is asked for ([`Permit`]), recorded and can be switched off.
//! Any selection of them gives a graph of the same meaning.
//!
//! A rewrite matches structure: index maps, monoids, contractions. None looks at names or origins. Regions of control flow are graphs
//! of their own, which are rewritten as the graph around them is.

mod compose_affine;
mod constants;
mod contract_integers;
mod defer_normalizer;
mod defer_scales;
mod defer_zero_points;
mod facts;
mod guard_by_maximum;
mod guard_rows;
mod hoist_scales;
mod join_products;
mod magnitude;
mod operand;
mod part_softmax;
mod peel;
mod permit;
mod place_scales;
mod product_parts;
mod scale_weights;
mod scaled_product;
mod seen;
mod shift_by_maximum;
mod softmax;
mod step;

pub(crate) use permit::Record;
pub use permit::{Application, Permit, Refusal, Site};

use facts::Facts;
use rustc_hash::FxHashMap;

use crate::budget::Budget;
use crate::error::{Context as _, Result};
use crate::graph::rewrite::{Rebuild, Values, rewrite_outside_regions, rewrite_regions};
use crate::graph::{Graph, verify_open};
use crate::passes::{Context, Step, Tier, run_passes};

/// One row of the list.
#[derive(Clone, Copy, Debug)]
pub struct Rewrite {
    /// its name, as reports print it
    pub name: &'static str,
    /// what it does, in a sentence
    pub doc: &'static str,
    /// what it may change
    pub tier: Tier,
    /// the rewrite: the new graph, or `None` where it fits nowhere or is allowed nowhere
    run: fn(&Graph, &Facts, &mut Permit<'_>) -> Result<Option<Graph>>,
}

/// The rewrites in the order in which they run; the list is repeated until nothing changes.
pub const REWRITES: &[Rewrite] = &[
    contract_integers::REWRITE, // before scales move: it knows quantised operands by their scales
    defer_scales::REWRITE,      // after it: where only one side is quantised
    defer_zero_points::REWRITE, // after both: contractions that became integer ones have zero points too
    hoist_scales::REWRITE,      // before weights: a scale of two computed operands belongs behind their contraction
    join_products::REWRITE,     // behind scales: products are bare, and their scale is one
    shift_by_maximum::REWRITE,  // before parts: a logarithm taken away is that of a softmax
    part_softmax::REWRITE,      // before normalisers move: what is left is the softmax of a part
    guard_rows::REWRITE,        // before normalisers move: a guard on the row can move along
    guard_by_maximum::REWRITE,  // after it: conditions on rows are in one form
    defer_normalizer::REWRITE,  // after the guards
    compose_affine::REWRITE,    // before weights: it brings scales next to contractions
    scale_weights::REWRITE,     // last of the scales: what is left next to a contraction with weights
];

/// What is offered when the list has nothing left to do: each is applied only where a plan says that it pays, so that the permit decides.
pub const PLACEMENTS: &[Rewrite] = &[place_scales::REWRITE];

/// The rewrite that puts normalisers behind products. Where that does not make attention of the two, it may cost time.
pub const NORMALIZER: &str = defer_normalizer::REWRITE.name;

/// The rewrite that makes one scale and one shift of many. Where the scale does not go into weights ([`INTO_WEIGHTS`]), it may cost time: a
/// table of its own instead of two that are shared.
pub const AFFINE: &str = compose_affine::REWRITE.name;

/// The rewrite after which integers are multiplied instead of what they stand for.
pub const INTEGERS: &str = contract_integers::REWRITE.name;

/// The rewrite that puts scales into weights.
pub const INTO_WEIGHTS: &str = scale_weights::REWRITE.name;

/// What the placements leave to do.
const BEHIND_PLACEMENTS: &[Rewrite] = &[compose_affine::REWRITE, scale_weights::REWRITE];

/// The list is repeated at most this often; a rewrite never undoes another, so that few rounds do.
const MOST_ROUNDS: usize = 8;

/// The graph after all rewrites that numerics and permit allow, repeated until none of them changes it; passes run after
/// each round. What they made of it is verified; `observe` is called after every rewrite and pass.
pub fn apply_rewrites(
    graph: Graph,
    context: &Context,
    permit: &mut Permit<'_>,
    observe: &mut dyn FnMut(&Step<'_>),
) -> Result<Graph> {
    until_settled(graph, [REWRITES, REWRITES], context, permit, observe)
}

/// The graph after [`PLACEMENTS`], and what they leave to do. In: what [`apply_rewrites`] gave.
pub fn apply_placements(
    graph: Graph,
    context: &Context,
    permit: &mut Permit<'_>,
    observe: &mut dyn FnMut(&Step<'_>),
) -> Result<Graph> {
    until_settled(graph, [PLACEMENTS, BEHIND_PLACEMENTS], context, permit, observe)
}

/// The graph after some rewrites in turn, and passes, until nothing changes: first the ones, then the others again and again.
fn until_settled(
    graph: Graph,
    [first, then]: [&[Rewrite]; 2],
    context: &Context,
    permit: &mut Permit<'_>,
    observe: &mut dyn FnMut(&Step<'_>),
) -> Result<Graph> {
    let mut graph = graph;
    for round in 0..MOST_ROUNDS {
        let mut settled = true;
        let mut facts = Facts::of(&graph, &context.budget);
        let rewrites = if round == 0 { first } else { then };
        for rewrite in rewrites.iter().filter(|r| r.tier.is_allowed(context.numerics)) {
            context.budget.check()?;
            let new = rewrite.apply_throughout(&graph, &facts, permit)?;
            let changed = new.is_some();
            if let Some(new) = new {
                (settled, facts, graph) = (false, Facts::of(&new, &context.budget), new);
            }
            observe(&Step { pass: rewrite.name, round, changed, graph: &graph });
        }
        if settled {
            break;
        }
        graph = run_passes(graph, context, observe)?;
    }
    Ok(graph)
}

impl Rewrite {
    /// The graph with this rewrite applied wherever the permit allows; `None` where nothing changed.
    pub fn apply(&self, graph: &Graph, permit: &mut Permit<'_>) -> Result<Option<Graph>> {
        self.apply_knowing(graph, &Facts::of(graph, &Budget::UNLIMITED), permit)
    }

    /// As [`Rewrite::apply`], also inside of regions.
    fn apply_throughout(&self, graph: &Graph, facts: &Facts, permit: &mut Permit<'_>) -> Result<Option<Graph>> {
        let new = self.apply_knowing(graph, facts, permit)?;
        let inside = rewrite_regions(new.as_ref().unwrap_or(graph), &facts.budget, |region| {
            self.apply_throughout(region, &Facts::of(region, &facts.budget), permit)
        })?;
        Ok(inside.or(new))
    }

    fn apply_knowing(&self, graph: &Graph, facts: &Facts, permit: &mut Permit<'_>) -> Result<Option<Graph>> {
        let place = || format!("rewrite {}", self.name);
        permit.start_over();
        let new = (self.run)(graph, facts, permit).at(place)?;
        // The passes behind it verify what all rewrites made; who is wrong is found by builds that look for it.
        if let Some(new) = new.as_ref().filter(|_| cfg!(debug_assertions)) {
            verify_open(new).at(place)?;
        }
        Ok(new)
    }
}

/// Rebuilds a graph at the sites that `find` returns for its live nodes; `None` where there is none.
fn sites<S>(
    graph: &Graph,
    facts: &Facts,
    mut find: impl FnMut(usize) -> Option<S>,
    mut apply: impl FnMut(&mut Rebuild<'_>, usize, &S) -> Result<Option<Values>>,
) -> Result<Option<Graph>> {
    let mut found: FxHashMap<usize, S> = FxHashMap::default();
    for id in (0..graph.nodes().len()).filter(|id| facts.is_live(*id)) {
        facts.budget.check()?;
        found.extend(find(id).map(|site| (id, site)));
    }
    rebuilt_at(graph, facts, &found, |rebuild, id, site| apply(rebuild, id, site))
}

/// Rebuilds a graph at some of its nodes; `None` where there is none.
fn rebuilt_at<S>(
    graph: &Graph,
    facts: &Facts,
    found: &FxHashMap<usize, S>,
    mut apply: impl FnMut(&mut Rebuild<'_>, usize, &S) -> Result<Option<Values>>,
) -> Result<Option<Graph>> {
    if found.is_empty() {
        return Ok(None);
    }
    rewrite_outside_regions(graph, &facts.budget, |rebuild, id| match found.get(&id) {
        Some(site) => apply(rebuild, id, site),
        None => Ok(None),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_documented() {
        let all: Vec<&Rewrite> = REWRITES.iter().chain(PLACEMENTS).collect();
        for (k, rewrite) in all.iter().enumerate() {
            assert!(all[..k].iter().all(|r| r.name != rewrite.name), "{} twice", rewrite.name);
            assert!(!rewrite.doc.is_empty());
        }
    }
}
