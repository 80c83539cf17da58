//! Numbers that scale scores, where they take the least.
//!
//! `hoist-scales` puts every number that scales an operand of a contraction behind it, so that all spellings are one graph. From there it
//! can go to the operand with the fewest elements, and into the weights that the operand comes from. Whether that pays hangs on
//! sizes and on what becomes one kernel, so that this is offered, and done where a plan with it takes less time.

use rustc_hash::FxHashMap;

use super::facts::axes;
use super::operand::labels;
use super::peel::Action;
use super::product_parts::{Part, Views, product_with_weights};
use super::scaled_product::Scaled;
use super::seen::Fold;
use super::step::Kind;
use super::{Facts, Permit, Rewrite, Site, rebuilt_at};
use crate::device::Machine;
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Value};
use crate::ops::prim::{Map, View};
use crate::ops::{Expr, Prim, Scalar};
use crate::passes::Tier;
use crate::tensor::{DType, Dim};

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "place-scales",
    doc: "A number that scales scores scales the smaller of their factors instead, where that takes less time.",
    tier: Tier::Real,
    run,
};

/// In: a graph after `hoist-scales`, which would undo this. Out: no contraction of two computed tensors, the results of which are folded
/// along axes of one of them, is read by nothing but a product with (or a quotient by) a number that is the same everywhere: the number
/// scales the factor with fewer elements, below the views through which that is read. Not where the product is nothing but added to
/// something, which an instruction does for nothing; and only a factor that is computed, so that its kernel can scale it on the way. A
/// factor that is part of a product with weights (queries beside keys and values) is scaled there, where its columns are in the weights.
///
/// Not for types of 16 bits or less: the scaled factor would be rounded once more.
fn run(graph: &Graph, facts: &Facts, permit: &mut Permit<'_>) -> Result<Option<Graph>> {
    let scores = folded_scores(graph, facts);
    if scores.is_empty() {
        return Ok(None);
    }
    let views = Views::of(graph, facts);
    let mut changes: FxHashMap<usize, Change> = FxHashMap::default();
    for id in (0..graph.nodes().len()).filter(|id| facts.is_live(*id)) {
        facts.budget.check()?;
        // A product is scaled once.
        let part = |base: Value| views.part(graph, facts, base).filter(|p| !changes.contains_key(&p.product.node()));
        if let Some(found) = find(graph, facts, id, &scores, part, permit) {
            if let Place::Part(part) = &found.place {
                changes.insert(part.product.node(), Change::Scaled(found));
            }
            changes.insert(id, Change::Moved(found));
        }
    }
    rebuilt_at(graph, facts, &changes, |rebuild, _, change| match change {
        Change::Moved(found) => apply(graph, rebuild, found),
        Change::Scaled(found) => scale_part(graph, rebuild, found),
    })
}

/// What becomes of a node.
enum Change {
    /// a number that scales scores goes elsewhere
    Moved(Found),
    /// a part of the product is scaled
    Scaled(Found),
}

#[derive(Clone, Copy)]
struct Found {
    scaled: Scaled,
    place: Place,
}

/// What is scaled instead.
#[derive(Clone, Copy)]
enum Place {
    /// an operand, below so many views
    Operand { operand: usize, depth: usize },
    /// the part of a product that an operand is
    Part(Part),
}

/// For every map that scales scores which are folded: which operand of the contraction has the axes that are folded.
type Scores = FxHashMap<usize, usize>;

/// So many steps are looked at between scores and their fold.
const MOST_STEPS: usize = 64;

fn folded_scores(graph: &Graph, facts: &Facts) -> Scores {
    let mut scores = Scores::default();
    let live = (0..graph.nodes().len()).filter(|id| facts.is_live(*id));
    for fold in live.filter_map(|id| Fold::of(graph, Value::new(id, 0))) {
        let folded = axes(fold.axes.iter().copied());
        let mut todo = vec![fold.step];
        for _ in 0..MOST_STEPS {
            let Some(step) = todo.pop() else { break };
            if step.position(graph).is_none()
                && let Some(scaled) = scaled(graph, step.node())
                && let Prim::Contract(row) = graph.nodes()[scaled.contract].prim()
            {
                let has = |operand: usize| {
                    let own = (0..row.out.len()).filter(|k| labels(row, operand).contains(&row.out[*k]));
                    folded & !axes(own) == 0
                };
                if let ([true, false], streamed) | ([false, true], streamed) = ([has(0), has(1)], usize::from(has(1))) {
                    scores.insert(step.node(), streamed);
                }
                continue;
            }
            match step.kind(graph) {
                // What is added for nothing stays. (What is added and hides scores is a choice by now.)
                Kind::Call(Scalar::Add | Scalar::Sub, _) => {}
                Kind::Call(_, operands) => todo.extend(operands),
                Kind::Cast(x) => todo.push(x),
                _ => {}
            }
        }
    }
    scores
}

fn find(
    graph: &Graph,
    facts: &Facts,
    id: usize,
    scores: &Scores,
    part: impl Fn(Value) -> Option<Part>,
    permit: &mut Permit<'_>,
) -> Option<Found> {
    let streamed = *scores.get(&id)?;
    let scaled = scaled(graph, id)?;
    let node = &graph.nodes()[scaled.contract];
    let computed = node.args().iter().all(|arg| !facts.is_constant(arg.node()));
    if !computed || facts.readers(scaled.contract) > 1 {
        return None;
    }
    let bases = [0, 1].map(|k| smallest(graph, facts, node.args()[k], permit));
    let size = |k: usize| permit.size(&graph.ty(bases[k].0).shape.count());
    // A processor packs what is streamed anyway; a GPU reads it once for every tile of the others.
    let operand = match permit.machine() {
        Machine::Cpu if size(streamed) <= size(1 - streamed) => streamed,
        Machine::Cpu | Machine::Gpu => 1 - streamed,
    };
    let (base, depth) = bases[operand];
    if let Prim::Input(_) = graph.node_of(behind_views(graph, base, usize::MAX).0).prim() {
        return None;
    }
    let (out, factor) = (&graph.nodes()[id].types()[0], graph.ty(base));
    let place = part(base).map_or(Place::Operand { operand, depth }, Place::Part);
    // In weights, the number costs no run anything.
    let is_of_weights = facts.readers(base.node()) == 1 && product_with_weights(graph, facts, base).is_some();
    let is_left = !is_of_weights && matches!(place, Place::Operand { .. });
    let (left, left_bytes) = if is_left { (factor.shape.count(), factor.bytes()) } else { (Dim::int(0), Dim::int(0)) };
    let site = Site {
        rule: REWRITE.name,
        producer: id,
        consumer: scaled.contract,
        flops_saved: out.shape.count() - left,
        bytes_saved: (out.bytes() - left_bytes) * 2,
        is_sure: false,
        what: "a number scales a factor of the scores".to_owned(),
    };
    let number = [(scaled.action, scaled.number)];
    permit.allow_move(graph, site, number).then_some(Found { scaled, place })
}

/// The contraction of a wide type that a map scales by a number.
fn scaled(graph: &Graph, id: usize) -> Option<Scaled> {
    let is_wide = |scaled: &Scaled| matches!(scaled.dtype(graph), DType::F32 | DType::F64);
    Scaled::of(graph, id).filter(|scaled| is_wide(scaled) && scaled.product.node() == scaled.contract)
}

/// What is behind views, so many at most, and the views, the last first.
fn behind_views(graph: &Graph, value: Value, most: usize) -> (Value, Vec<&View>) {
    let (mut base, mut views) = (value, Vec::new());
    while views.len() < most
        && let Prim::View(view) = graph.node_of(base).prim()
        && view.guard.is_empty()
    {
        views.push(view);
        base = graph.node_of(base).args()[0];
    }
    (base, views)
}

/// The first of the smallest values from an operand down to what its views look at, and below how many views it is. What others read too
/// is not passed.
fn smallest(graph: &Graph, facts: &Facts, operand: Value, permit: &Permit<'_>) -> (Value, usize) {
    let (mut found, mut depth) = (operand, 0);
    loop {
        let (base, views) = behind_views(graph, found, 1);
        let size = |value: Value| permit.size(&graph.ty(value).shape.count());
        if views.is_empty() || facts.readers(found.node()) > 1 || size(base) > size(found) {
            return (found, depth);
        }
        (found, depth) = (base, depth + 1);
    }
}

fn scale_part(graph: &Graph, rebuild: &mut Rebuild<'_>, found: &Found) -> Result<Option<Values>> {
    let Found { scaled: Scaled { action, number, .. }, place: Place::Part(part) } = found else { return Ok(None) };
    let number = number.uniform(graph).expect("a number is the same everywhere");
    part.scaled(graph, rebuild, *action, &number)
}

fn apply(graph: &Graph, rebuild: &mut Rebuild<'_>, found: &Found) -> Result<Option<Values>> {
    let Found { scaled: Scaled { contract, action, number, .. }, place } = found;
    let node = &graph.nodes()[*contract];
    let mut operands = [rebuild.moved(node.args()[0]), rebuild.moved(node.args()[1])];
    let Place::Operand { operand, depth } = place else {
        return replaced(rebuild.add_for(graph.origin(*contract), node.prim().clone(), &operands)?);
    };
    // Below the views: what is there may be a contraction with weights, or have fewer elements.
    let (base, views) = behind_views(graph, node.args()[*operand], *depth);
    let ty = graph.ty(base).clone();
    let number = number.uniform(graph).expect("a number is the same everywhere");
    let expr = Expr::build(&[ty.dtype], |scope, x| {
        let number = number.inline(scope, &[]).cast(ty.dtype);
        if *action == Action::Over { x[0] / number } else { x[0] * number }
    });
    let base = rebuild.moved(base);
    let mut value = rebuild.add(Map { expr, shape: ty.shape }, &[base])?;
    for view in views.into_iter().rev() {
        value = rebuild.add(view.clone(), &[value])?;
    }
    operands[*operand] = value;
    replaced(rebuild.add_for(graph.origin(*contract), node.prim().clone(), &operands)?)
}
