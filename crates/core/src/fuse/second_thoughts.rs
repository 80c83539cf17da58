//! Decisions that were taken, looked at again when all others are known.
//!
//! What saves the most is done first. So something may be combined for a little that would have saved more with another
//! neighbour later. Decisions that save much less than their launches and traffic promise are tried the other way: their
//! kernel is taken apart, and what is around it is planned again without them. What comes out better in all is kept apart when
//! the whole is planned once more.
//!
//! So is what several kernels compute, each for itself, and what a kernel between products computes: its readers are tried without it.
//! A sum that the next layer's norm takes in saves that norm a launch; that the layer behind has to add once more, or that the product
//! before could have added it, shows later.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use rustc_hash::FxHashMap;

use super::decision::{Cost, Decision, Verdict};
use super::driver::{Driver, LEAST_SAVED_US};
use super::evaluate::Kind;
use super::gain::Gain;
use super::rules::Stage;
use super::state::{GroupId, Groups};
use crate::device::Machine;
use crate::error::Result;

/// Trials look at so much more for every node.
const EFFORT_PER_NODE: u64 = 6;

/// A trial copies everything that is known of the nodes, which takes as much as looking at one in so many.
const COPIED_LIKE_ONE: u64 = 8;

/// Decisions that save less than this part of what launches and traffic promise are doubtful.
const DOUBTFUL: f64 = 0.5;

/// A kernel is taken apart at so many places.
const MOST_TRIED: usize = 16;

/// A pair of nodes, reader last.
type Edge = (usize, usize);

/// Kernels that are taken apart, and the pairs of nodes that are kept apart when they are planned again.
pub(super) struct Trial {
    groups: Groups,
    edges: Vec<Edge>,
}

impl Driver<'_> {
    /// Plans the whole again without what `trials` show to stand in the way of more, if they promise at least so many microseconds in all;
    /// they look at `effort`, and no more. Whether that is better; if not, all is as it was.
    pub(super) fn think_again(&mut self, trials: Vec<Trial>, effort: u64, least_us: f64) -> Result<bool> {
        let (better, promised_us) = self.second_thoughts(trials, effort)?;
        if better.is_empty() || promised_us < least_us {
            return Ok(false);
        }
        let (before, apart) = (self.cost(), self.apart.clone());
        self.apart.extend(better);
        let first = self.start_over()?;
        self.by_stages()?;
        let is_better = self.gain_over(&first.state, before).worth_us > LEAST_SAVED_US;
        if !is_better {
            self.apart = apart;
            self.resume(first);
        }
        Ok(is_better)
    }

    /// Pairs of nodes that are better kept apart, although combining them saved time when it was decided; with what a plan without them
    /// gains; and what that is worth in all.
    fn second_thoughts(&mut self, trials: Vec<Trial>, effort: u64) -> Result<(FxHashMap<Edge, Gain>, f64)> {
        let nodes = self.state.inside.len() as u64;
        let most = self.effort() + effort + EFFORT_PER_NODE * nodes;
        // Equal kernels among equal neighbours are tried once.
        let mut known: FxHashMap<Box<[u32]>, Gain> = FxHashMap::default();
        let mut best: BTreeMap<Groups, (Gain, Vec<Edge>)> = BTreeMap::new();
        for trial in trials {
            self.options.budget.check()?;
            let surroundings = self.surroundings(&trial);
            let gain = match known.get(&surroundings) {
                Some(gain) => *gain,
                None if self.effort() > most => continue,
                None => {
                    let gain = self.gain_without(&trial)?;
                    self.looked_at += nodes / COPIED_LIKE_ONE;
                    known.insert(surroundings, gain);
                    gain
                }
            };
            let is_best = best.get(&trial.groups).is_none_or(|(most, _)| gain.worth_us > most.worth_us);
            if gain.worth_us > LEAST_SAVED_US && is_best {
                best.insert(trial.groups, (gain, trial.edges));
            }
        }
        let promised_us = best.values().map(|(gain, _)| gain.worth_us).sum();
        let edges = best.into_values().flat_map(|(gain, edges)| edges.into_iter().map(move |edge| (edge, gain)));
        Ok((edges.collect(), promised_us))
    }

    /// The groups that doubtful decisions made, each with pairs of nodes at which it could be taken apart: where the decision put
    /// two together, then anywhere else, for what is wrong may be another border.
    pub(super) fn doubtful(&self) -> Vec<Trial> {
        let is_doubtful = |decision: &&Decision| {
            let is_pinned = || decision.edges.iter().any(|edge| self.is_kept_together(*edge));
            decision.verdict == Verdict::Taken
                && decision.saved_us() < DOUBTFUL * self.promised_us(decision)
                && !is_pinned()
        };
        let mut found: IndexMap<GroupId, Vec<Edge>> = IndexMap::new();
        for decision in self.decisions.iter().filter(is_doubtful) {
            let Some(edge) = decision.edges.first().copied() else { continue };
            if self.state.cells.is_in_function(edge) {
                continue;
            }
            let inside = &self.state.inside;
            let Some(group) = inside[edge.1].iter().copied().find(|g| inside[edge.0].contains(g)) else { continue };
            // Scores that are not stored grow with the square of what sizes say: attention stays in one piece.
            if self.state.group(group).priced.kind == Kind::Attention || self.is_wanted(group) {
                continue;
            }
            found.entry(group).or_default().push(edge);
        }
        for (group, edges) in &mut found {
            let members = &self.state.group(*group).members;
            for edge in self.state.edges(members, members) {
                let is_open = !self.state.cells.is_in_function(edge) && !self.is_kept_together(edge);
                if edges.len() < MOST_TRIED && !edges.contains(&edge) && is_open {
                    edges.push(edge);
                }
            }
        }
        let ranked = |(group, edges): (GroupId, Vec<Edge>)| {
            let trial = move |edge| Trial { groups: Groups::from_slice(&[group]), edges: vec![edge] };
            edges.into_iter().map(trial).enumerate()
        };
        let mut all: Vec<(usize, Trial)> = found.into_iter().flat_map(ranked).collect();
        // Every kernel's likeliest border before the next one of any.
        all.sort_by_key(|(rank, _)| *rank);
        all.into_iter().map(|(_, trial)| trial).collect()
    }

    /// What could be stored for those that read it in the same kernel: what several kernels compute, and what a kernel computes that lies
    /// between others, both sides of which these might take in. Attention stays in one piece, and what somebody wants together.
    pub(super) fn storable(&self) -> Vec<Trial> {
        let kind = |group: &GroupId| self.state.group(*group).priced.kind;
        let is_between = |group: &GroupId| {
            let is_memory_bound = matches!(kind(group), Kind::Map | Kind::Row | Kind::Column);
            let has = |neighbours: &[GroupId]| neighbours.iter().any(|other| kind(other) == Kind::Contract);
            is_memory_bound
                && has(&self.state.producers(*group))
                && has(&self.state.first_consumers(*group, MOST_TRIED))
        };
        let is_open = |group: &GroupId| kind(group) != Kind::Attention && !self.is_wanted(*group);
        let trial = |node: usize| {
            let groups = &self.state.inside[node];
            let is_doubted = groups.len() > 1 || groups.iter().any(is_between);
            if !is_doubted || !groups.iter().all(is_open) {
                return None;
            }
            let edges = self.state.edges(&[node], &self.state.union(groups));
            let is_kept =
                edges.iter().any(|edge| self.state.cells.is_in_function(*edge) || self.is_kept_together(*edge));
            (!edges.is_empty() && !is_kept).then(|| Trial { groups: groups.clone(), edges })
        };
        (0..self.state.inside.len()).filter_map(trial).collect()
    }

    /// Whether a group was made by combining a set of groups because somebody wants that.
    fn is_wanted(&self, group: GroupId) -> bool {
        let together = &self.pins.together;
        let made = |decision: &Decision| {
            let is_inside =
                |(from, to): &Edge| [from, to].iter().all(|node| self.state.inside[**node].contains(&group));
            decision.verdict == Verdict::Taken
                && together.contains(&decision.id)
                && decision.edges.iter().any(is_inside)
        };
        !together.is_empty() && self.decisions.iter().any(made)
    }

    fn is_kept_together(&self, edge: Edge) -> bool {
        let together = &self.pins.together;
        !together.is_empty() && together.contains(&self.names.edge(edge))
    }

    /// What the launches and the traffic that a decision saves take by themselves.
    fn promised_us(&self, decision: &Decision) -> f64 {
        let Some(after) = decision.after else { return 0.0 };
        let (spec, before) = (self.evaluator.spec, decision.before());
        let meets = if spec.kind == Machine::Cpu { spec.costs.join_us } else { 0.0 };
        let launches = (before.launches - after.launches).max(0.0) * (spec.costs.launch_us + meets);
        launches + spec.main_memory().us((before.bytes - after.bytes).max(0.0))
    }

    /// Groups by their structure, the ends of edges in them, and the structures around them.
    fn surroundings(&self, trial: &Trial) -> Box<[u32]> {
        let structure = |id: &GroupId| self.state.group(*id).priced.structure;
        let mut words = Vec::new();
        for group in &trial.groups {
            let own = self.state.group(*group);
            let place = |node: usize| own.members.binary_search(&node).map_or(u32::MAX, |place| place as u32);
            words.push(own.priced.structure);
            words.extend(trial.edges.iter().flat_map(|(from, to)| [place(*from), place(*to)]));
            for neighbours in [self.state.producers(*group), self.state.consumers(*group)] {
                let mut around: Vec<u32> = neighbours.iter().map(structure).collect();
                around.sort_unstable();
                words.push(around.len() as u32);
                words.extend(around);
            }
        }
        words.into_boxed_slice()
    }

    /// What a plan gains in all that takes groups apart, keeps the ends of edges apart, and goes on from there. Leaves
    /// everything as it was.
    fn gain_without(&mut self, Trial { groups, edges }: &Trial) -> Result<Gain> {
        let (state, joined, sets) = (self.state.clone(), self.joined.clone(), std::mem::take(&mut self.sets));
        // The numbers of groups that come up are given again.
        let memory = std::mem::take(&mut self.memory);
        let (decisions, taken, stage, before) = (self.decisions.len(), self.taken, self.stage, self.cost());
        let own_us = groups.iter().map(|group| self.state.group(*group).priced.price.us).sum();
        let apart = self.apart.clone();
        self.apart.extend(edges.iter().map(|edge| (*edge, Gain::default())));
        let first = state.groups.len() as GroupId;
        let mut after = before;
        if self.state.shatter(groups, &mut self.evaluator) {
            for stage in Stage::ALL {
                self.stage = stage;
                let groups = self.since(first);
                self.until_settled(&groups)?;
            }
            after = self.cost();
        }
        self.apart = apart;
        (self.state, self.joined, self.sets, self.taken, self.stage) = (state, joined, sets, taken, stage);
        self.memory = memory;
        self.decisions.truncate(decisions);
        Ok(self.gain(after, before, own_us))
    }

    /// What a plan gains over another; `changed_us` is what those kernels of the other take in whose place it has others.
    pub(super) fn gain(&self, after: Cost, before: Cost, changed_us: f64) -> Gain {
        Gain::of(after, before, changed_us, self.evaluator.spec)
    }

    /// The groups that have come up since, and their neighbours, ascending.
    fn since(&self, first: GroupId) -> Groups {
        let mut groups: Groups = self.state.iter().skip_while(|group| *group < first).collect();
        for group in groups.clone() {
            groups.extend(self.state.producers(group));
            groups.extend(self.state.consumers(group));
        }
        groups.sort_unstable();
        groups.dedup();
        groups
    }

    /// What all kernels take.
    pub(super) fn total_us(&self) -> f64 {
        self.state.iter().map(|group| self.state.group(group).priced.price.us).sum()
    }

    /// What all kernels cost.
    pub(super) fn cost(&self) -> Cost {
        let costs = self.state.iter().map(|group| self.state.group(group).priced.cost());
        costs.fold(Cost::default(), |sum, cost| sum + cost)
    }
}
