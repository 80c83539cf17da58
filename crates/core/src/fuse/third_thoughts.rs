//! Every decision the other way, where a graph is small enough to try.
//!
//! [Second thoughts](super::second_thoughts) look at kernels whose decisions saved less than they promised. What else went wrong shows only
//! when it is tried: of a small graph, each decision, taken or refused, is turned round by itself, and the whole is planned
//! again. As long as that finds a better plan, the best one is kept.

use rustc_hash::FxHashSet;

use super::candidate::{Candidate, Named};
use super::decision::{Cost, Decision, DecisionId, Reason, Verdict};
use super::driver::{Driver, LEAST_SAVED_US};
use super::evaluate::Kind;
use super::gain::Gain;
use super::options::{Pins, Policy};
use super::state::{GroupState, State};
use crate::error::Result;
use crate::graph::Value;

/// Trials look at no more than this in all.
const MOST_EFFORT: u64 = 48_000;

/// A graph is small if its first plan took no more than one part in so many of that.
const LEAST_TRIALS: u64 = 4;

/// A decision that was turned round.
#[derive(Clone, Debug, PartialEq)]
pub struct Turn {
    /// its name
    pub id: DecisionId,
    /// what it was before
    pub verdict: Verdict,
    /// of one that was taken: two nodes, by [name](super::node_names), that no kernel computes both of now
    pub divided: Option<[DecisionId; 2]>,
    /// what the plan gains in all
    pub gain: Gain,
    ends: (usize, usize),
    /// whether what second thoughts kept apart is so no more
    forgets: bool,
}

impl Turn {
    /// Adds what it says to what the user says.
    pub fn pin(&self, pins: &mut Pins) {
        match self.verdict {
            Verdict::Taken => pins.apart.insert(self.id),
            Verdict::Refused => pins.together.insert(self.id),
        };
        pins.divided.extend(self.divided);
    }
}

/// Whether a graph whose first plan took so much is small.
fn is_small(first_effort: u64) -> bool {
    LEAST_TRIALS * first_effort <= MOST_EFFORT
}

impl Driver<'_> {
    /// Plans a small graph again with the other of equally good candidates first, and goes on with the better plan.
    pub(super) fn try_other_ties(&mut self, first_effort: u64) -> Result<()> {
        if !is_small(first_effort) {
            return Ok(());
        }
        let (before, ties) = (self.cost(), self.ties);
        self.ties = ties.other();
        let first = self.start_over()?;
        self.by_stages()?;
        if self.gain_over(&first.state, before).worth_us <= LEAST_SAVED_US {
            self.ties = ties;
            self.resume(first);
        }
        Ok(())
    }

    /// Turns decisions round as long as the plan in all takes less, if the graph is small: `first_effort` is what its first plan took.
    /// Where the user has turned one round, the others stay: what it brings is asked.
    pub(super) fn third_thoughts(&mut self, first_effort: u64) -> Result<()> {
        let is_asked = self.options.policy == Policy::Microseconds && !self.has_users_choice();
        if !is_asked || !is_small(first_effort) {
            return Ok(());
        }
        let most = self.effort() + MOST_EFFORT;
        loop {
            let mut best: Option<Turn> = None;
            for mut turn in self.turns()? {
                self.options.budget.check()?;
                if self.effort() > most {
                    break;
                }
                self.weigh(&mut turn)?;
                let most_us = best.as_ref().map_or(LEAST_SAVED_US, |best| best.gain.worth_us);
                if turn.gain.worth_us > most_us {
                    best = Some(turn);
                }
            }
            let Some(turn) = best else { return Ok(()) };
            self.turn(turn);
            self.start_over()?;
            self.by_stages()?;
        }
    }

    /// Whether the user has something to say about fusions of this graph.
    fn has_users_choice(&self) -> bool {
        let Pins { apart, together, only, divided, rewrites: _ } = &self.options.pins;
        let cells: Vec<usize> = self.state.cells.iter().collect();
        let edges = || self.state.edges(&cells, &cells).into_iter().map(|edge| self.names.edge(edge));
        let sets = || self.decisions.iter().map(|decision| decision.id).chain(self.sets.keys().copied());
        // Others are about rewrites.
        let is_about_fusions = |id: DecisionId| apart.contains(&id) || together.contains(&id);
        let has_names = !(apart.is_empty() && together.is_empty());
        only.is_some() || !divided.is_empty() || (has_names && edges().chain(sets()).any(is_about_fusions))
    }

    /// What could be turned round: what was decided by time, the closest decisions first. Leaves everything as it was.
    fn turns(&mut self) -> Result<Vec<Turn>> {
        let (decisions, sets, stage) = (self.decisions.clone(), self.sets.clone(), self.stage);
        self.note_refusals()?;
        self.stage = stage;
        self.sets = sets;
        let all = std::mem::replace(&mut self.decisions, decisions);
        let mut unsure: Vec<(f64, Turn)> =
            all.iter().filter_map(|d| Some((d.saved_us().abs(), self.turn_of(d)?))).collect();
        unsure.sort_by(|(a, _), (b, _)| a.total_cmp(b));
        let mut known: FxHashSet<DecisionId> = FxHashSet::default();
        Ok(unsure.into_iter().map(|(_, turn)| turn).filter(|turn| known.insert(turn.id)).collect())
    }

    /// A decision, turned round; none where time did not decide it, or it was turned round before.
    fn turn_of(&self, decision: &Decision) -> Option<Turn> {
        let Decision { id, verdict, producer, consumer, edges, .. } = decision;
        let is_open = match (verdict, &decision.reason) {
            (Verdict::Taken, _) => {
                let is_in_function = edges.iter().any(|edge| self.state.cells.is_in_function(*edge));
                !is_in_function && !self.is_in_attention(decision)
            }
            (_, Some(Reason::Slower { .. } | Reason::PairsBetter { .. } | Reason::Outweighed { .. })) => true,
            _ => false,
        };
        if !is_open || self.turned.iter().any(|turn| turn.id == *id) {
            return None;
        }
        let touching = || self.state.edges(producer, consumer).first().copied();
        let last = || Some((*producer.last()?, *consumer.last()?));
        let ends = edges.first().copied().or_else(touching).or_else(last)?;
        let is_divided = *verdict == Verdict::Taken && ends.0 != ends.1;
        let divided = is_divided.then(|| [self.names.node(ends.0), self.names.node(ends.1)]);
        Some(Turn { id: *id, verdict: *verdict, divided, gain: Gain::default(), ends, forgets: false })
    }

    /// Scores that are not stored grow with the square of what sizes say: attention stays in one piece.
    fn is_in_attention(&self, decision: &Decision) -> bool {
        let nodes = || decision.producer.iter().chain(&decision.consumer);
        let mut groups = nodes().flat_map(|node| &self.state.inside[*node]);
        groups.any(|group| self.state.group(*group).priced.kind == Kind::Attention)
    }

    /// What the plan gains in all with a decision turned round: with what second thoughts kept apart, or without, whichever is more.
    fn weigh(&mut self, turn: &mut Turn) -> Result<()> {
        turn.gain = self.gain_with(turn)?;
        if !self.apart.is_empty() {
            let other = Turn { forgets: true, ..turn.clone() };
            let gain = self.gain_with(&other)?;
            if gain.worth_us > turn.gain.worth_us {
                *turn = Turn { gain, ..other };
            }
        }
        Ok(())
    }

    /// What the plan gains in all with a decision turned round. Leaves everything as it was.
    fn gain_with(&mut self, turn: &Turn) -> Result<Gain> {
        let (before, stage, pins, divided) = (self.cost(), self.stage, self.pins.clone(), self.divided.len());
        let apart = self.apart.clone();
        self.turn(turn.clone());
        let outcome = self.start_over()?;
        self.by_stages()?;
        let gain = self.gain_over(&outcome.state, before);
        self.resume(outcome);
        (self.stage, self.pins, self.apart) = (stage, pins, apart);
        self.divided.truncate(divided);
        self.turned.pop();
        // Nothing is combined at a loss.
        Ok(if turn.verdict == Verdict::Refused { gain.in_time() } else { gain })
    }

    /// What the plan gains in all over another state, which costs `before`.
    pub(super) fn gain_over(&self, other: &State<'_>, before: Cost) -> Gain {
        let after = self.cost();
        // What the kernels take that come, and what they save: what those took that go.
        self.gain(after, before, self.us_without(other) + before.us - after.us)
    }

    /// What those kernels take that another state does not have.
    fn us_without(&self, other: &State<'_>) -> f64 {
        fn kernel(group: &GroupState) -> (&[usize], &[Value]) {
            (&group.members, &group.outputs)
        }
        let known: FxHashSet<(&[usize], &[Value])> = other.iter().map(|group| kernel(other.group(group))).collect();
        let own = self.state.iter().map(|group| self.state.group(group));
        own.filter(|group| !known.contains(&kernel(group))).map(|group| group.priced.price.us).sum()
    }

    fn turn(&mut self, turn: Turn) {
        turn.pin(&mut self.pins);
        if turn.forgets {
            self.apart.clear();
        }
        self.divided.extend(turn.divided.map(|_| [turn.ends.0, turn.ends.1]));
        self.turned.push(turn);
    }

    /// What is gained by not doing what a candidate proposes, where that was found out by turning a decision round.
    pub(super) fn turned_apart(&self, candidate: &Candidate) -> Option<Gain> {
        let Named { edges, id } = candidate.named.as_ref()?;
        let is_about = |turn: &&Turn| {
            let named = || *id == turn.id || edges.iter().any(|edge| self.names.edge(*edge) == turn.id);
            let divided = || self.joins_divided(&candidate.proposal, &[[turn.ends.0, turn.ends.1]]);
            turn.verdict == Verdict::Taken && (named() || divided())
        };
        self.turned.iter().find(is_about).map(|turn| turn.gain)
    }

    /// What is gained by keeping the ends of an edge apart, where that was found out afterwards.
    pub(super) fn kept_apart(&self, edge: (usize, usize)) -> Option<Gain> {
        let turned = || self.turned.iter().find(|turn| turn.verdict == Verdict::Taken && turn.ends == edge);
        self.apart.get(&edge).copied().or_else(|| turned().map(|turn| turn.gain))
    }

    /// What the plan gains in all by what is proposed, where that was found out by turning a decision round.
    pub(super) fn turned_together(&self, edges: &[(usize, usize)], id: DecisionId) -> Option<Gain> {
        let is_about = |turn: &Turn| turn.id == id || edges.iter().any(|edge| self.names.edge(*edge) == turn.id);
        self.turned.iter().find(|turn| turn.verdict == Verdict::Refused && is_about(turn)).map(|turn| turn.gain)
    }
}
