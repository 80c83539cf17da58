//! Takes decisions: what saves the most first, or by chance, or as written.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};
use std::rc::Rc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::candidate::{Candidate, Named};
use super::consider::Memory;
use super::context::FuseContext;
use super::decision::{Decision, DecisionId, Note, Verdict};
use super::evaluate::Evaluator;
use super::gain::Gain;
use super::name::Names;
use super::options::{Chooser, Pins, PlanOptions};
use super::rules::{Form, Proposal, RULES, Stage};
use super::state::{GroupId, GroupState, Groups, State};
use super::third_thoughts::Turn;
use crate::error::{Error, Result};
use crate::philox;

/// Less than this is no gain.
pub(super) const LEAST_SAVED_US: f64 = 1e-6;

/// So much more effort is allowed for every node: networks of equal layers take about as much, however many layers there are.
const EFFORT_PER_NODE: u64 = 100;

/// Of a group that more groups read than this, decisions look at the first ones, and at others when these are taken in.
pub(super) const MOST_CONSUMERS: usize = 64;

/// Of the neighbours of a new group, so many are looked at again at once; of others when it is their turn.
const MOST_AGAIN: usize = 16;

/// What could be stored is thought of so often.
const MOST_THOUGHTS: usize = 8;

/// A graph whose first plan took no more than this is planned again for any gain (a plan takes a few milliseconds); a larger one for this part of
/// its time. Second thoughts look at so much each time, of a graph that took little and of others.
const LITTLE_EFFORT: u64 = 30_000;
const WORTH_A_PLAN: f64 = 0.004;
const FREE_EFFORT_OF_LITTLE: u64 = 24_000;
const FREE_EFFORT: u64 = 6_000;

/// Graphs of no more nodes than this begin with the oldest of equals: what is small is tried in many ways, and the first plan must be cheap.
const FEW_NODES: usize = 64;

/// Which of equally good candidates is taken first. Where launches are all that counts, very many are equally good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ties {
    /// that of the group whose nodes come first: who makes something, before who reads it
    FirstMade,
    /// that of the group that is there the longest
    Oldest,
}

impl Ties {
    pub fn other(self) -> Ties {
        match self {
            Ties::FirstMade => Ties::Oldest,
            Ties::Oldest => Ties::FirstMade,
        }
    }
}

/// The best candidate of a group, in the queue.
pub(super) struct Entry {
    pub worth_us: f64,
    /// the first of equally good ones has the least
    pub rank: usize,
    pub anchor: GroupId,
    pub version: u32,
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        let rank = |entry: &Entry| Reverse((entry.rank, entry.anchor));
        self.worth_us.total_cmp(&other.worth_us).then_with(|| rank(self).cmp(&rank(other)))
    }
}

impl PartialOrd for Entry {
    fn partial_cmp(&self, other: &Entry) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl PartialEq for Entry {
    fn eq(&self, other: &Entry) -> bool {
        self.cmp(other) == Ordering::Equal
    }
}

impl Eq for Entry {}

/// The groups, what was decided about them, and who is next.
pub(super) struct Driver<'g> {
    pub state: State<'g>,
    pub evaluator: Evaluator<'g>,
    pub decisions: Vec<Decision>,
    pub(super) options: &'g PlanOptions,
    /// the graph, as a hash of its structure
    pub graph: u64,
    pub(super) names: Names,
    pub(super) best: FxHashMap<GroupId, (u32, Candidate)>,
    pub(super) queue: BinaryHeap<Entry>,
    pub(super) versions: u32,
    pub(super) memory: Memory,
    /// pairs of cells that are in one kernel by a decision
    pub(super) joined: FxHashSet<(usize, usize)>,
    pub(super) taken: usize,
    /// how many decisions may be taken
    fuel: Option<usize>,
    /// pairs of cells that are kept apart because the plan in all is better so, with what that gains
    pub(super) apart: FxHashMap<(usize, usize), Gain>,
    /// what the user has decided, and what was turned round since
    pub(super) pins: Pins,
    /// pairs of nodes that are wanted in different kernels
    pub(super) divided: Vec<[usize; 2]>,
    /// decisions that were turned round because the plan in all is better so
    pub turned: Vec<Turn>,
    /// how many nodes proposals had that were looked at
    pub(super) looked_at: u64,
    /// which of equally good candidates is taken first
    pub(super) ties: Ties,
    /// the rules up to this stage propose
    pub(super) stage: Stage,
    /// for sets of groups by their structure and division, the time of the best plan that combines them two by two
    pub(super) rivals: FxHashMap<Box<[u32]>, f64>,
    /// sets of groups that were not combined, by name, with why
    pub(super) sets: BTreeMap<DecisionId, Decision>,
}

/// Where decisions have led so far.
pub(super) struct Outcome<'g> {
    pub state: State<'g>,
    decisions: Vec<Decision>,
    joined: FxHashSet<(usize, usize)>,
    taken: usize,
    sets: BTreeMap<DecisionId, Decision>,
}

impl<'g> Driver<'g> {
    pub fn new(state: State<'g>, evaluator: Evaluator<'g>, options: &'g PlanOptions, names: Names) -> Driver<'g> {
        let graph = names.graph(state.graph);
        let divided = names.pairs(&options.pins.divided);
        Driver {
            state,
            evaluator,
            decisions: Vec::new(),
            options,
            graph,
            names,
            best: FxHashMap::default(),
            queue: BinaryHeap::new(),
            versions: 0,
            memory: Memory::default(),
            joined: FxHashSet::default(),
            taken: 0,
            fuel: options.fuel,
            apart: FxHashMap::default(),
            pins: options.pins.clone(),
            divided,
            turned: Vec::new(),
            looked_at: 0,
            ties: Ties::FirstMade,
            stage: Stage::Whole,
            rivals: FxHashMap::default(),
            sets: BTreeMap::new(),
        }
    }

    /// Takes decisions until none is left to take. What was not taken is for [`Driver::note_refusals`] to say.
    pub fn run(&mut self) -> Result<()> {
        match &self.options.chooser {
            Chooser::ByCost => self.by_cost()?,
            Chooser::AtRandom(seed) => self.at_random(*seed),
            Chooser::Replay(lock) => {
                let part = lock.graph(self.graph).ok_or_else(|| Error::bug("the lock has no part for the graph"))?;
                self.replay(&part.kernels)?;
            }
        }
        Ok(())
    }

    /// What saves the most first, then once more without what turned out to stand in the way of more. Whatever the fuel, the same
    /// decisions are taken in the same order.
    fn by_cost(&mut self) -> Result<()> {
        let fuel = self.fuel.take();
        // Kernels that grow from their first node on are looked at in every size, which takes longer.
        let is_short = self.state.iter().count() <= FEW_NODES;
        self.ties = if is_short { Ties::Oldest } else { Ties::FirstMade };
        self.by_stages()?;
        let first_effort = self.effort();
        if !is_short {
            self.try_other_ties(first_effort)?;
        }
        let is_little = first_effort <= LITTLE_EFFORT;
        let effort = if is_little { FREE_EFFORT_OF_LITTLE } else { FREE_EFFORT };
        self.think_again(self.doubtful(), effort, 0.0)?;
        // What is stored now may leave more to be stored.
        for _ in 0..MOST_THOUGHTS {
            let least_us = if is_little { 0.0 } else { WORTH_A_PLAN * self.total_us() };
            if !self.think_again(self.storable(), effort, least_us)? {
                break;
            }
        }
        self.third_thoughts(first_effort)?;
        if fuel.is_some() {
            self.fuel = fuel;
            self.start_over()?;
            self.by_stages()?;
        }
        Ok(())
    }

    /// Every cell by itself again; returns how far it had come.
    pub(super) fn start_over(&mut self) -> Result<Outcome<'g>> {
        let State { graph, cells, .. } = self.state;
        let apart = State::apart(graph, cells, &mut self.evaluator)?;
        apart.effort.set(self.state.effort.get());
        self.queue.clear();
        self.best.clear();
        self.memory = Memory::default();
        Ok(Outcome {
            state: std::mem::replace(&mut self.state, apart),
            decisions: std::mem::take(&mut self.decisions),
            joined: std::mem::take(&mut self.joined),
            taken: std::mem::take(&mut self.taken),
            sets: std::mem::take(&mut self.sets),
        })
    }

    /// Goes back to where it had come.
    pub(super) fn resume(&mut self, outcome: Outcome<'g>) {
        let Outcome { state, decisions, joined, taken, sets } = outcome;
        // What was looked at since counts.
        state.effort.set(self.state.effort.get());
        (self.state, self.decisions, self.joined, self.taken, self.sets) = (state, decisions, joined, taken, sets);
        self.queue.clear();
        self.best.clear();
        self.memory = Memory::default();
    }

    /// Stage by stage, until nothing is left to take.
    pub(super) fn by_stages(&mut self) -> Result<()> {
        for stage in Stage::ALL {
            self.stage = stage;
            let groups: Groups = self.state.iter().collect();
            self.until_settled(&groups)?;
        }
        Ok(())
    }

    /// What saves the most first, until nothing is left to take among some groups and those that come of them.
    pub(super) fn until_settled(&mut self, groups: &[GroupId]) -> Result<()> {
        for group in groups {
            self.options.budget.check()?;
            self.consider(*group);
        }
        while let Some(entry) = self.queue.pop() {
            self.options.budget.check()?;
            let current = self.best.get(&entry.anchor).is_some_and(|(version, _)| *version == entry.version);
            if !current {
                continue;
            }
            let (_, candidate) = self.best.remove(&entry.anchor).expect("it is there");
            if !self.is_current(&candidate.proposal) {
                if self.state.is_there(entry.anchor) {
                    self.consider(entry.anchor);
                }
                continue;
            }
            if !self.has_fuel() {
                break;
            }
            for group in self.take(candidate) {
                self.consider(group);
            }
        }
        Ok(())
    }

    /// Whether a proposal that was legal still is: decisions about others may have led a way out of its groups and back.
    fn is_current(&self, proposal: &Proposal) -> bool {
        proposal.groups.iter().all(|g| self.state.is_there(*g))
            && (proposal.form == Form::Copy || !self.state.makes_cycle(&proposal.groups))
    }

    /// How much was looked at so far: nodes of proposals, groups on ways around them, terms and leaves of kernels.
    pub fn effort(&self) -> u64 {
        self.looked_at + self.state.effort.get() + self.evaluator.effort.get()
    }

    /// Whether as much was looked at as is allowed; large graphs are allowed more.
    pub fn is_exhausted(&self) -> bool {
        self.effort() > self.options.effort.saturating_add(EFFORT_PER_NODE * self.state.inside.len() as u64)
    }

    fn has_fuel(&self) -> bool {
        self.fuel.is_none_or(|fuel| self.taken < fuel)
    }

    /// What rules propose for a group, looking at no more of its consumers than some.
    pub(super) fn proposals(&self, group: GroupId, most: usize) -> Vec<Proposal> {
        let context = FuseContext::new(&self.state, self.evaluator.hints, most);
        let is_asked = |name: &str| !self.options.without.contains(name);
        let rules = RULES.iter().filter(|rule| is_asked(rule.name()) && rule.stage() <= self.stage);
        rules.flat_map(|rule| rule.propose(&context, group)).collect()
    }

    /// Does what a candidate proposes, notes it, and returns the groups that must be looked at again.
    fn take(&mut self, candidate: Candidate) -> Groups {
        let Candidate { proposal, sides, after, named } = candidate;
        let Ok((states, after)) = after else { return Groups::new() };
        let Named { edges, id } = named.unwrap_or_else(|| self.named(&proposal));
        self.taken += 1;
        let producer = self.state.group(proposal.groups[0]).members.clone();
        let consumer = self.state.union(&proposal.groups[1..]);
        let mut notes = self.notes(&proposal, [&producer, &consumer], &states);
        let saves = (sides[0] + sides[1]).us - after.us > LEAST_SAVED_US;
        let in_all_us = self.turned_together(&edges, id).filter(|_| !saves).map(|gain| gain.us);
        notes.extend(in_all_us.map(|_| Note::PaysLater));
        let fresh: Vec<(usize, usize)> = edges.into_iter().filter(|e| self.joined.insert(*e)).collect();
        self.decisions.push(Decision {
            id,
            rule: proposal.rule,
            producer,
            consumer,
            verdict: Verdict::Taken,
            reason: None,
            sides,
            after: Some(after),
            edges: fresh,
            in_all_us,
            notes,
        });
        let added: Groups = match proposal.form {
            Form::Join | Form::Run => {
                states.into_iter().flat_map(|state| self.state.join(&proposal.groups, state)).collect()
            }
            Form::Copy => self.state.copy(&proposal.groups, states),
        };
        proposal.groups.iter().for_each(|group| self.memory.remove(*group));
        let refreshed = self.refresh(&added);
        if proposal.form == Form::Copy || !refreshed.is_empty() {
            self.memory.forget();
        }
        let mut again: Groups = added.clone();
        again.extend(refreshed);
        for group in &added {
            again.extend(self.state.producers(*group).into_iter().take(MOST_AGAIN));
            again.extend(self.state.first_consumers(*group, MOST_AGAIN));
        }
        again.sort_unstable();
        again.dedup();
        again
    }

    /// What other groups stored only for the new ones need not be stored any more where the new ones compute it.
    fn refresh(&mut self, added: &[GroupId]) -> Groups {
        let mut homes = Groups::new();
        for group in added {
            for node in &self.state.group(*group).members {
                let home = self.state.home[*node];
                if !added.contains(&home) && !homes.contains(&home) {
                    homes.push(home);
                }
            }
        }
        homes.retain(|home| {
            let members = self.state.group(*home).members.clone();
            let outputs = self.state.outputs(&members, &[*home], &[]);
            if outputs == self.state.group(*home).outputs {
                return false;
            }
            // Storing less never needs another schedule; should it, the values stay stored.
            let Ok(priced) = self.evaluator.evaluate(&members, &outputs) else { return false };
            self.state.groups[*home as usize] = Some(Rc::new(GroupState { members, outputs, priced }));
            true
        });
        homes
    }

    /// Legal candidates by chance. Every legal plan is right, so that tests may run any.
    fn at_random(&mut self, seed: u64) {
        self.stage = Stage::Last;
        let mut draws = 0u64;
        let mut draw = |below: usize| {
            draws += 1;
            philox::word(seed, 0, draws) as usize % below.max(1)
        };
        // Some plans stop early: what is half done must be right as well.
        let tries = draw(4 * self.state.iter().count() + 1);
        for _ in 0..tries {
            if !self.has_fuel() {
                return;
            }
            let groups: Vec<GroupId> = self.state.iter().collect();
            let Some(group) = groups.get(draw(groups.len())) else { return };
            let mut proposals = self.proposals(*group, MOST_CONSUMERS);
            if proposals.is_empty() {
                continue;
            }
            let proposal = proposals.swap_remove(draw(proposals.len()));
            let candidate = self.assess(proposal);
            if candidate.after.is_ok() && draw(8) != 0 {
                self.take(candidate);
            }
        }
    }

    /// The groups in an order in which what is read was stored before.
    pub fn ordered(&self) -> Result<Vec<GroupId>> {
        let order = self.state.ordered();
        match order.len() == self.state.iter().count() {
            true => Ok(order),
            false => Err(Error::invalid("the kernels of the plan wait for each other in a circle")),
        }
    }
}
