//! Decisions in the user's language, ranked.

use rustc_hash::FxHashMap;

use super::score::Scorer;
use super::wiring::Wiring;
use crate::analysis::Scorecard;
use crate::analysis::scorecard;
use crate::compile::rewrite_id;
use crate::fuse::{Decision, DecisionId, Note, Plan, PlannedKernel, Reason, Verdict, bytes_text, node_names, rules};
use crate::graph::{Graph, OriginSet};
use crate::ops::Prim;
use crate::rewrites::{Application, Refusal};

/// A decision as it is shown.
#[derive(Clone, Debug)]
pub struct DecisionRow {
    /// its name, which `--flip` takes
    pub id: DecisionId,
    /// the rule or rewrite that proposed it
    pub rule: &'static str,
    /// what comes first, by the name of its operator
    pub producer: String,
    /// what comes second
    pub consumer: String,
    /// whether it was done
    pub verdict: Verdict,
    /// a word for the reason
    pub code: &'static str,
    /// why, in a sentence
    pub reason: String,
    /// microseconds that it saves, or would save; negative where it would cost; 0 where it cannot be done
    pub saved_us: f64,
    /// bytes that it saves in memory
    pub bytes_saved: f64,
    /// arithmetic operations that it saves
    pub flops_saved: f64,
    /// whether it is a rewrite of the graph and not a fusion
    pub is_rewrite: bool,
    /// whether both sides are parts of one operator
    pub is_inside: bool,
    /// whether it has a price at all: no kernel, no price
    pub is_priced: bool,
    /// whether no choice of the user can change it
    pub is_illegal: bool,
    /// what the textbooks would say; none for rewrites
    pub scorecard: Option<Scorecard>,
}

impl DecisionRow {
    /// Whether the scorecard says the opposite of the microseconds.
    pub fn disagrees(&self) -> bool {
        let fuse = self.scorecard.as_ref().map(|card| card.verdict == scorecard::Verdict::Fuse);
        self.is_priced && fuse.is_some_and(|fuse| fuse != (self.saved_us > 0.0))
    }

    /// The score, from 0 to 1; 0 for rewrites.
    pub fn score(&self) -> f64 {
        self.scorecard.as_ref().map_or(0.0, |card| card.score)
    }
}

/// Which decision settled whether two nodes share a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Edge {
    /// the node that computes
    pub producer: usize,
    /// the node that reads it, perhaps through views
    pub consumer: usize,
    /// what was decided
    pub decision: DecisionId,
}

/// What became of every edge of a graph: the decision that joined its nodes, or the one that kept them apart.
pub(super) fn edges(plan: &Plan) -> Vec<Edge> {
    let mut finals: FxHashMap<(usize, usize), &Decision> = FxHashMap::default();
    for decision in &plan.decisions {
        for edge in &decision.edges {
            let known = finals.entry(*edge).or_insert(decision);
            if decision.verdict == Verdict::Taken && known.verdict == Verdict::Refused {
                *known = decision;
            }
        }
    }
    let edge = |((producer, consumer), decision): ((usize, usize), &Decision)| Edge {
        producer,
        consumer,
        decision: decision.id,
    };
    let mut edges: Vec<Edge> = finals.into_iter().map(edge).collect();
    edges.sort_unstable_by_key(|e| (e.consumer, e.producer));
    edges
}

/// The decisions of a plan, one for each id: the one that was taken, or the refusal that says most.
pub(super) fn of_plan(plan: &Plan, scorer: &Scorer<'_>) -> Vec<DecisionRow> {
    let rank = |d: &Decision| (d.verdict == Verdict::Taken, d.after.is_some(), !d.edges.is_empty());
    let mut places: FxHashMap<DecisionId, usize> = FxHashMap::default();
    let mut kept: Vec<&Decision> = Vec::new();
    for decision in &plan.decisions {
        let place = *places.entry(decision.id).or_insert(kept.len());
        match kept.get_mut(place) {
            Some(known) if rank(decision) > rank(known) => *known = decision,
            Some(_) => {}
            None => kept.push(decision),
        }
    }
    kept.into_iter().map(|decision| row(decision, scorer)).collect()
}

fn row(decision: &Decision, scorer: &Scorer<'_>) -> DecisionRow {
    let (from, to) = ends(decision, scorer.wiring);
    let (producer, consumer, is_inside) = names(from, to, scorer.wiring);
    let before = decision.before();
    let after = decision.after.unwrap_or(before);
    let reason = match &decision.reason {
        Some(reason) => reason.to_string(),
        None if decision.rule == "plan" => "as the plan says".to_string(),
        None => {
            // Other readers may have come into the same kernel since, and kernels that computed the same may have become one.
            let holds = |note: &&Note| match note {
                Note::SecondOutput => scorer.is_stored[from],
                Note::ComputedAgain => decision.producer.iter().any(|node| scorer.is_repeated[*node]),
                _ => true,
            };
            let notes: Vec<String> = decision.notes.iter().filter(holds).map(ToString::to_string).collect();
            let gain = gain(before.bytes - after.bytes, before.launches - after.launches);
            std::iter::once(gain).chain(notes).filter(|s| !s.is_empty()).collect::<Vec<_>>().join("; ")
        }
    };
    DecisionRow {
        id: decision.id,
        rule: decision.rule,
        producer,
        consumer,
        verdict: decision.verdict,
        code: decision.reason.as_ref().map_or("taken", Reason::code),
        reason,
        saved_us: decision.saved_us(),
        bytes_saved: before.bytes - after.bytes,
        flops_saved: before.flops - after.flops,
        is_rewrite: false,
        is_inside,
        is_priced: decision.after.is_some() && decision.rule != "plan",
        is_illegal: decision.reason.as_ref().is_some_and(Reason::is_illegal),
        scorecard: Some(scorer.card(decision)),
    }
}

/// What a taken decision brings, in words.
fn gain(bytes: f64, launches: f64) -> String {
    let launches = match launches {
        1.0 => "1 launch".to_string(),
        n => format!("{n} launches"),
    };
    match bytes.round() {
        n if n > 0.0 => format!("saves {launches} and {} of traffic", bytes_text(n)),
        n if n < 0.0 => format!("saves {launches}, for {} more traffic", bytes_text(-n)),
        _ => format!("saves {launches}"),
    }
}

/// The two nodes, by name, that a taken fusion of a plan or of its regions is about, if it has such a fusion.
pub(super) fn about(graph: &Graph, plan: &Plan, id: DecisionId) -> Option<[DecisionId; 2]> {
    if let Some(decision) = plan.decisions.iter().find(|d| d.id == id && d.verdict == Verdict::Taken) {
        let (from, to) = ends(decision, &Wiring::of(graph));
        let names = node_names(graph);
        return (from != to).then(|| [names[from], names[to]]);
    }
    let inner = |kernel: &PlannedKernel| {
        let node = *kernel.members.first().filter(|_| !kernel.regions.is_empty())?;
        let regions = graph.nodes()[node].prim().regions();
        regions.into_iter().zip(&kernel.regions).find_map(|(region, plan)| about(region, plan, id))
    };
    plan.kernels.iter().find_map(inner)
}

/// The nodes where the two sides touch, or with which they end.
fn ends(decision: &Decision, wiring: &Wiring<'_>) -> (usize, usize) {
    let ends = || (*decision.producer.last().unwrap_or(&0), *decision.consumer.last().unwrap_or(&0));
    if decision.rule == rules::ATTENTION {
        return contractions(decision, wiring).unwrap_or_else(ends);
    }
    let touching = decision.consumer.iter().find_map(|to| {
        let read = wiring.operands(*to).into_iter().flatten().find(|n| decision.producer.binary_search(n).is_ok());
        read.map(|from| (from, *to))
    });
    decision.edges.first().copied().or(touching).unwrap_or_else(ends)
}

/// The first and the last contraction of both sides, which attention is about.
fn contractions(decision: &Decision, wiring: &Wiring<'_>) -> Option<(usize, usize)> {
    let contracts = |node: &&usize| matches!(wiring.graph.nodes()[**node].prim(), Prim::Contract(_));
    let all = || decision.producer.iter().chain(&decision.consumer).filter(contracts);
    Some((*all().min()?, *all().max()?))
}

/// The names of two nodes, with what they do where they are parts of one operator.
fn names(from: usize, to: usize, wiring: &Wiring<'_>) -> (String, String, bool) {
    let (producer, consumer) = (wiring.name(from), wiring.name(to));
    let of = |node: usize| wiring.graph.origin(node).iter().next();
    match producer == consumer && of(from) == of(to) {
        true => (format!("{producer} ({})", wiring.verb(from)), format!("{consumer} ({})", wiring.verb(to)), true),
        false => (producer, consumer, false),
    }
}

/// The rewrites that were looked at, without prices.
pub(super) fn of_rewrites(applications: &[Application]) -> Vec<DecisionRow> {
    let name = |set: &OriginSet| {
        let first = set.iter().next();
        first.map_or("(no name)".to_string(), |o| if o.name.is_empty() { o.op.to_string() } else { o.name.to_string() })
    };
    let row = |application: &Application| DecisionRow {
        id: rewrite_id(application),
        rule: application.rule,
        producer: name(&application.producer),
        consumer: name(&application.consumer),
        verdict: if application.refused.is_none() { Verdict::Taken } else { Verdict::Refused },
        code: application.refused.map_or("taken", Refusal::code),
        reason: match application.refused {
            None => application.what.clone(),
            Some(why) => format!("{}: {why}", application.what),
        },
        saved_us: 0.0,
        bytes_saved: 0.0,
        flops_saved: 0.0,
        is_rewrite: true,
        is_inside: false,
        is_priced: false,
        is_illegal: application.refused.is_some_and(Refusal::is_illegal),
        scorecard: None,
    };
    applications.iter().map(row).collect()
}

/// Largest effect first; equal ones in the order in which they were decided.
pub(super) fn rank(rows: &mut [DecisionRow]) {
    rows.sort_by(|a, b| b.saved_us.abs().total_cmp(&a.saved_us.abs()));
}
