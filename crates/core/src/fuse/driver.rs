//! Takes decisions: what saves the most first, or by chance, or as written.

use std::cmp::{Ordering, Reverse};
use std::collections::{BTreeMap, BinaryHeap};

use rustc_hash::{FxHashMap, FxHashSet};

use super::context::FuseContext;
use super::decision::{Cost, Decision, DecisionId, Note, Reason, Verdict};
use super::evaluate::{Evaluator, Kind};
use super::lock::LockedKernel;
use super::name::Names;
use super::options::{Chooser, PlanOptions, Policy};
use super::rules::{Form, Proposal, RULES};
use super::state::{GroupId, GroupState, Groups, State};
use super::textbook;
use crate::error::{Error, Result};
use crate::lower::Refusal;
use crate::philox;

/// A kernel has no more nodes than this.
const MOST_MEMBERS: usize = 256;

/// Less than this is no gain.
const LEAST_SAVED_US: f64 = 1e-6;

/// A proposal that was looked at.
struct Candidate {
    proposal: Proposal,
    /// the first group, and all others together
    sides: [Cost; 2],
    /// the groups that would take the place of the proposed ones
    after: std::result::Result<(Vec<GroupState>, Cost), Reason>,
    edges: Vec<(usize, usize)>,
    id: DecisionId,
}

impl Candidate {
    fn before(&self) -> Cost {
        self.sides[0] + self.sides[1]
    }

    fn saved_us(&self) -> f64 {
        self.after.as_ref().map_or(f64::NEG_INFINITY, |(_, after)| self.before().us - after.us)
    }
}

/// The best candidate of a group, in the queue.
struct Entry {
    saved_us: f64,
    anchor: GroupId,
    version: u32,
}

impl Ord for Entry {
    fn cmp(&self, other: &Entry) -> Ordering {
        self.saved_us.total_cmp(&other.saved_us).then_with(|| Reverse(self.anchor).cmp(&Reverse(other.anchor)))
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
    options: &'g PlanOptions,
    /// the graph, as a hash of its structure
    graph: u64,
    names: Names,
    best: FxHashMap<GroupId, (u32, Candidate)>,
    queue: BinaryHeap<Entry>,
    versions: u32,
    /// pairs of cells that are in one kernel by a decision
    joined: FxHashSet<(usize, usize)>,
    taken: usize,
    /// whether late rules propose
    late: bool,
    /// for sets of groups by their structure, the time of the best plan that combines them two by two
    rivals: FxHashMap<(u64, u64), f64>,
    /// sets of groups that were not combined, by name, with why
    sets: BTreeMap<DecisionId, Decision>,
}

impl<'g> Driver<'g> {
    pub fn new(state: State<'g>, evaluator: Evaluator<'g>, options: &'g PlanOptions, graph: u64) -> Driver<'g> {
        let names = Names::of(state.graph);
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
            joined: FxHashSet::default(),
            taken: 0,
            late: false,
            rivals: FxHashMap::default(),
            sets: BTreeMap::new(),
        }
    }

    /// Takes decisions until none is left to take, then notes what was not.
    pub fn run(&mut self) -> Result<()> {
        match &self.options.chooser {
            Chooser::ByCost => self.by_cost(),
            Chooser::AtRandom(seed) => self.at_random(*seed),
            Chooser::Replay(lock) => {
                let part = lock.graph(self.graph).ok_or_else(|| Error::bug("the lock has no part for the graph"))?;
                self.replay(&part.kernels)?;
            }
        }
        self.note_refusals();
        Ok(())
    }

    /// What saves the most first; when nothing is left, once more with the rules that come late.
    fn by_cost(&mut self) {
        self.until_settled();
        self.late = true;
        self.until_settled();
    }

    fn until_settled(&mut self) {
        for group in self.state.iter().collect::<Vec<_>>() {
            self.consider(group);
        }
        while let Some(entry) = self.queue.pop() {
            let current = self.best.get(&entry.anchor).is_some_and(|(version, _)| *version == entry.version);
            if !current {
                continue;
            }
            let (_, candidate) = self.best.remove(&entry.anchor).expect("it is there");
            if candidate.proposal.groups.iter().any(|g| !self.state.is_there(*g)) {
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
    }

    fn has_fuel(&self) -> bool {
        self.options.fuel.is_none_or(|fuel| self.taken < fuel)
    }

    /// Finds the best candidate of a group and puts it into the queue.
    fn consider(&mut self, group: GroupId) {
        let mut best: Option<Candidate> = None;
        for proposal in self.proposals(group) {
            let candidate = self.evaluate(proposal);
            self.note_set(&candidate);
            let forced = candidate.after.is_ok() && self.is_pinned(&candidate, |pins| Some(&pins.together));
            let saved = if forced { f64::INFINITY } else { candidate.saved_us() };
            let better = best.as_ref().is_none_or(|b| saved > b.saved_us());
            if saved > LEAST_SAVED_US && better {
                best = Some(candidate);
                if forced {
                    break;
                }
            }
        }
        self.versions += 1;
        match best {
            Some(candidate) => {
                let forced = self.is_pinned(&candidate, |pins| Some(&pins.together));
                let saved_us = if forced { f64::INFINITY } else { candidate.saved_us() };
                self.queue.push(Entry { saved_us, anchor: group, version: self.versions });
                self.best.insert(group, (self.versions, candidate));
            }
            None => {
                self.best.remove(&group);
            }
        }
    }

    /// Notes why a set of groups is not combined. When its parts have been combined otherwise, nobody will ask again.
    fn note_set(&mut self, candidate: &Candidate) {
        let Err(reason) = &candidate.after else { return };
        let groups = &candidate.proposal.groups;
        if groups.len() < 3 || candidate.proposal.form != Form::Join || self.sets.contains_key(&candidate.id) {
            return;
        }
        let decision = Decision {
            id: candidate.id,
            rule: candidate.proposal.rule,
            producer: self.state.group(groups[0]).members.clone(),
            consumer: self.state.union(&groups[1..]),
            verdict: Verdict::Refused,
            reason: Some(reason.clone()),
            sides: candidate.sides,
            after: None,
            edges: Vec::new(),
            notes: Vec::new(),
        };
        self.sets.insert(candidate.id, decision);
    }

    fn proposals(&self, group: GroupId) -> Vec<Proposal> {
        let context = FuseContext::new(&self.state);
        let rules = RULES.iter().filter(|rule| self.late || !rule.is_late());
        rules.flat_map(|rule| rule.propose(&context, group)).collect()
    }

    fn is_pinned(
        &self,
        candidate: &Candidate,
        list: impl Fn(&super::options::Pins) -> Option<&std::collections::BTreeSet<DecisionId>>,
    ) -> bool {
        let Some(list) = list(&self.options.pins) else { return false };
        if list.is_empty() {
            return false;
        }
        list.contains(&candidate.id) || candidate.edges.iter().any(|e| list.contains(&self.names.edge(*e)))
    }

    /// Whether a candidate is among those that may be taken at all.
    fn is_listed(&self, candidate: &Candidate) -> bool {
        let Some(only) = &self.options.pins.only else { return true };
        let edges = &candidate.edges;
        let all = || !edges.is_empty() && edges.iter().all(|e| only.contains(&self.names.edge(*e)));
        only.contains(&candidate.id) || (!only.is_empty() && all())
    }

    fn evaluate(&mut self, proposal: Proposal) -> Candidate {
        let sides = self.sides(&proposal.groups);
        let members = self.state.union(&proposal.groups);
        let edges = self.candidate_edges(&proposal);
        let id = match edges.first() {
            Some(edge) if proposal.groups.len() == 2 => self.names.edge(*edge),
            _ => self.names.set(proposal.rule, proposal.groups.iter().map(|g| self.state.group(*g).members[0])),
        };
        let mut candidate = Candidate { proposal, sides, after: Err(Reason::NoRule), edges, id };
        let pinned = self.is_pinned(&candidate, |pins| Some(&pins.apart)) || !self.is_listed(&candidate);
        candidate.after = if pinned {
            Err(Reason::Pinned)
        } else {
            match candidate.proposal.form {
                Form::Join => {
                    let forced = self.is_pinned(&candidate, |pins| Some(&pins.together));
                    self.joined(&candidate.proposal.groups, members, forced)
                }
                Form::Copy => self.copied(&candidate.proposal.groups),
            }
        };
        if self.options.policy == Policy::Textbook
            && candidate.after.is_ok()
            && let Some(why) = textbook::refusal(&self.state, &candidate.proposal)
        {
            candidate.after = Err(Reason::Textbook(why));
        }
        candidate
    }

    /// What the first group costs, and what all others cost.
    fn sides(&self, groups: &[GroupId]) -> [Cost; 2] {
        let cost = |g: &GroupId| self.state.group(*g).priced.cost();
        let rest = groups[1..].iter().map(cost).fold(Cost::default(), |sum, cost| sum + cost);
        [cost(&groups[0]), rest]
    }

    /// The edges that a proposal would put inside of a kernel.
    fn candidate_edges(&self, proposal: &Proposal) -> Vec<(usize, usize)> {
        let mut edges = Vec::new();
        for (k, from) in proposal.groups.iter().enumerate() {
            for (j, to) in proposal.groups.iter().enumerate() {
                if k != j {
                    let (from, to) = (self.state.group(*from), self.state.group(*to));
                    edges.extend(self.state.edges(&from.members, &to.members));
                }
            }
        }
        edges.sort_unstable();
        edges.dedup();
        edges
    }

    fn joined(
        &mut self,
        groups: &[GroupId],
        members: Vec<usize>,
        forced: bool,
    ) -> std::result::Result<(Vec<GroupState>, Cost), Reason> {
        if members.len() > MOST_MEMBERS {
            return Err(Reason::Illegal(Refusal::TooLarge));
        }
        let outputs = self.state.outputs(&members, groups, &[]);
        let members = self.state.needed(members, &outputs);
        let priced = self.evaluator.evaluate(&members, &outputs).map_err(Reason::Illegal)?;
        if self.state.makes_cycle(groups) {
            return Err(Reason::Cycle);
        }
        let cost = priced.cost();
        if groups.len() > 2 && !forced {
            let rival_us = self.rival_us(groups, &members, &outputs);
            if rival_us < cost.us {
                return Err(Reason::PairsBetter { by_us: cost.us - rival_us });
            }
        }
        Ok((vec![GroupState { members, outputs, priced }], cost))
    }

    /// What some groups cost when they are combined two by two, the best pair first, never all of a set at once.
    fn rival_us(&mut self, groups: &[GroupId], members: &[usize], outputs: &[crate::graph::Value]) -> f64 {
        let key = self.evaluator.key(members, outputs);
        if let Some(known) = self.rivals.get(&key) {
            return *known;
        }
        let mut blocks: Vec<(Groups, f64)> =
            groups.iter().map(|g| ([*g].into_iter().collect(), self.state.group(*g).priced.price.us)).collect();
        while let Some((first, second, us)) = self.best_pair(&blocks) {
            let (taken, _) = blocks.remove(second);
            blocks[first].0.extend(taken);
            blocks[first].1 = us;
        }
        let total = blocks.iter().map(|(_, us)| us).sum();
        self.rivals.insert(key, total);
        total
    }

    /// The two neighbours among blocks of groups that save the most as one kernel, and what that costs.
    fn best_pair(&mut self, blocks: &[(Groups, f64)]) -> Option<(usize, usize, f64)> {
        let mut best: Option<(f64, (usize, usize, f64))> = None;
        for first in 0..blocks.len() {
            for second in first + 1..blocks.len() {
                let reads = |from: &Groups, to: &Groups| {
                    from.iter().any(|g| self.state.consumers(*g).iter().any(|c| to.contains(c)))
                };
                if !reads(&blocks[first].0, &blocks[second].0) && !reads(&blocks[second].0, &blocks[first].0) {
                    continue;
                }
                let both: Groups = blocks[first].0.iter().chain(&blocks[second].0).copied().collect();
                let union = self.state.union(&both);
                let outputs = self.state.outputs(&union, &both, &[]);
                let members = self.state.needed(union, &outputs);
                let Ok(priced) = self.evaluator.evaluate(&members, &outputs) else { continue };
                let saved = blocks[first].1 + blocks[second].1 - priced.price.us;
                let better = best.as_ref().is_none_or(|(most, _)| saved > *most);
                if priced.kind != Kind::Attention && saved > LEAST_SAVED_US && better {
                    best = Some((saved, (first, second, priced.price.us)));
                }
            }
        }
        best.map(|(_, pair)| pair)
    }

    fn copied(&mut self, groups: &[GroupId]) -> std::result::Result<(Vec<GroupState>, Cost), Reason> {
        let (producer, readers) = groups.split_first().expect("a copy has a producer");
        let copied = self.state.group(*producer).members.clone();
        if copied.iter().any(|node| self.state.cells.is_output[*node]) {
            return Err(Reason::Illegal(Refusal::OutputCopied));
        }
        let (mut states, mut total) = (Vec::with_capacity(readers.len()), Cost::default());
        for reader in readers {
            let members = self.state.union(&[*producer, *reader]);
            if members.len() > MOST_MEMBERS {
                return Err(Reason::Illegal(Refusal::TooLarge));
            }
            let outputs = self.state.outputs(&members, &[*producer, *reader], &copied);
            let members = self.state.needed(members, &outputs);
            let priced = self.evaluator.evaluate(&members, &outputs).map_err(Reason::Illegal)?;
            total = total + priced.cost();
            states.push(GroupState { members, outputs, priced });
        }
        Ok((states, total))
    }

    /// Does what a candidate proposes, notes it, and returns the groups that must be looked at again.
    fn take(&mut self, candidate: Candidate) -> Groups {
        let Candidate { proposal, sides, after, edges, id } = candidate;
        let Ok((states, after)) = after else { return Groups::new() };
        self.taken += 1;
        let producer = self.state.group(proposal.groups[0]).members.clone();
        let consumer = self.state.union(&proposal.groups[1..]);
        let notes = self.notes(&proposal, &producer, &states);
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
            notes,
        });
        let added = self.state.replace(&proposal.groups, states);
        let mut again = added.clone();
        again.extend(self.refresh(&added));
        for group in &added {
            again.extend(self.state.producers(*group));
            again.extend(self.state.consumers(*group));
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
            self.state.groups[*home as usize] = Some(GroupState { members, outputs, priced });
            true
        });
        homes
    }

    fn notes(&self, proposal: &Proposal, producer: &[usize], states: &[GroupState]) -> Vec<Note> {
        let mut notes = Vec::new();
        if proposal.form == Form::Copy {
            notes.push(Note::ComputedAgain);
        } else if states[0].outputs.iter().any(|v| producer.binary_search(&v.node()).is_ok())
            && states[0].outputs.len() > 1
        {
            notes.push(Note::SecondOutput);
        }
        let narrow = |node: &usize| {
            let dtype = self.state.graph.nodes()[*node].types()[0].dtype;
            dtype.is_float() && dtype.bits() < 32
        };
        let stored = |node: &usize| states.iter().any(|s| s.outputs.iter().any(|v| v.node() == *node));
        if self.options.numerics != crate::passes::Numerics::Strict && producer.iter().any(|n| narrow(n) && !stored(n))
        {
            notes.push(Note::RoundingRemoved);
        }
        let kinds: Vec<Kind> = proposal.groups.iter().map(|g| self.state.group(*g).priced.kind).collect();
        let has = |wanted: &[Kind]| kinds.iter().any(|k| wanted.contains(k));
        if has(&[Kind::Contract, Kind::Attention]) && has(&[Kind::Row, Kind::Column]) {
            notes.push(Note::ContractionWithReduction);
        }
        notes
    }

    /// Legal candidates by chance. Every legal plan is right, so that tests may run any.
    fn at_random(&mut self, seed: u64) {
        self.late = true;
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
            let mut proposals = self.proposals(*group);
            if proposals.is_empty() {
                continue;
            }
            let proposal = proposals.swap_remove(draw(proposals.len()));
            let candidate = self.evaluate(proposal);
            if candidate.after.is_ok() && draw(8) != 0 {
                self.take(candidate);
            }
        }
    }

    /// The kernels of a written plan.
    fn replay(&mut self, kernels: &[LockedKernel]) -> Result<()> {
        let nodes = self.state.graph.nodes().len();
        let wrong = |kernel: &LockedKernel, what: String| match kernel.line {
            0 => Error::invalid(format!("a kernel of the plan {what}")),
            line => Error::invalid(format!("line {line} of the plan: the kernel {what}")),
        };
        let mut states = Vec::with_capacity(kernels.len());
        let mut homes: Vec<Option<usize>> = vec![None; nodes];
        for (k, kernel) in kernels.iter().enumerate() {
            for node in &kernel.nodes {
                if *node >= nodes || !self.state.cells.is_cell[*node] {
                    return Err(wrong(kernel, format!("lists %{node}, which no kernel computes")));
                }
                homes[*node].get_or_insert(k);
            }
        }
        if let Some(missing) = self.state.cells.iter().find(|id| homes[*id].is_none()) {
            let place = self.state.graph.describe(missing);
            return Err(Error::invalid(format!("no kernel of the plan computes %{missing}")).at(place));
        }
        for (k, kernel) in kernels.iter().enumerate() {
            let members = &kernel.nodes;
            let read_elsewhere = |node: usize| {
                let readers = &self.state.cells.readers[node];
                kernels.iter().any(|other| {
                    other.nodes.binary_search(&node).is_err()
                        && readers.iter().any(|r| other.nodes.binary_search(&(*r as usize)).is_ok())
                })
            };
            let stored = |node: &&usize| {
                homes[**node] == Some(k)
                    && (self.state.cells.is_output[**node]
                        || self.state.cells.is_opaque[**node]
                        || read_elsewhere(**node))
            };
            let ports = |node: &usize| {
                let node = *node;
                (0..self.state.graph.nodes()[node].types().len()).map(move |port| crate::graph::Value::new(node, port))
            };
            let outputs: Vec<_> = members.iter().filter(stored).flat_map(ports).collect();
            let priced = self.evaluator.evaluate(members, &outputs);
            let priced = priced.map_err(|refusal| wrong(kernel, format!("cannot be: {refusal}")))?;
            states.push(GroupState { members: members.clone(), outputs, priced });
        }
        let old: Vec<GroupId> = self.state.iter().collect();
        self.state.replace(&old, states);
        for group in self.state.iter().collect::<Vec<_>>() {
            let members = self.state.group(group).members.clone();
            for edge in self.state.edges(&members, &members) {
                self.joined.insert(edge);
                let id = self.names.edge(edge);
                let cost = Cost::default();
                let (producer, consumer) = (vec![edge.0], vec![edge.1]);
                self.decisions.push(Decision {
                    id,
                    rule: "plan",
                    producer,
                    consumer,
                    verdict: Verdict::Taken,
                    reason: None,
                    sides: [cost; 2],
                    after: Some(cost),
                    edges: vec![edge],
                    notes: Vec::new(),
                });
            }
        }
        Ok(())
    }

    /// Looks at every pair of neighbours that stayed apart, and at every other proposal that is left, and notes why.
    fn note_refusals(&mut self) {
        self.late = true;
        for group in self.state.iter().collect::<Vec<_>>() {
            let mut candidates: Vec<Candidate> = Vec::new();
            for proposal in self.proposals(group) {
                candidates.push(self.evaluate(proposal));
            }
            for consumer in self.state.consumers(group) {
                let pair = [group, consumer];
                let is_pair = |c: &Candidate| c.proposal.groups.as_slice() == pair && c.proposal.form == Form::Join;
                if !candidates.iter().any(is_pair) {
                    candidates.push(self.without_rule(group, consumer));
                }
            }
            for candidate in candidates {
                self.refuse(candidate);
            }
        }
        for (id, decision) in std::mem::take(&mut self.sets) {
            let first = decision.producer[0];
            let together = |group: &GroupId| {
                let has = |node: &usize| self.state.inside[*node].contains(group);
                decision.producer.iter().chain(&decision.consumer).all(has)
            };
            if !self.state.inside[first].iter().any(together) && self.decisions.iter().all(|d| d.id != id) {
                self.decisions.push(decision);
            }
        }
        self.settle_edges();
    }

    /// Whether a kernel computes both ends of an edge.
    fn is_inside(&self, (from, to): (usize, usize)) -> bool {
        self.state.inside[to].iter().any(|group| self.state.inside[from].contains(group))
    }

    /// Gives every edge to exactly one decision: one that was taken if a kernel has both ends in it, otherwise one that was
    /// refused. (Groups that overlap bring edges along; what a union does not need takes edges away.)
    fn settle_edges(&mut self) {
        let mut owners: FxHashMap<(usize, usize), usize> = FxHashMap::default();
        for (k, decision) in self.decisions.iter().enumerate() {
            for edge in &decision.edges {
                if self.is_inside(*edge) == (decision.verdict == Verdict::Taken) {
                    owners.entry(*edge).or_insert(k);
                }
            }
        }
        let cells: Vec<usize> = self.state.cells.iter().collect();
        for edge in self.state.edges(&cells, &cells) {
            if owners.contains_key(&edge) {
                continue;
            }
            let wanted = if self.is_inside(edge) { Verdict::Taken } else { Verdict::Refused };
            let has = |nodes: &[usize], node: usize| nodes.binary_search(&node).is_ok();
            let about = |d: &Decision| {
                d.verdict == wanted
                    && (has(&d.producer, edge.0) || has(&d.consumer, edge.0))
                    && (has(&d.producer, edge.1) || has(&d.consumer, edge.1))
            };
            if let Some(k) = self.decisions.iter().rposition(about) {
                owners.insert(edge, k);
            }
        }
        for (k, decision) in self.decisions.iter_mut().enumerate() {
            decision.edges.retain(|edge| owners.get(edge) == Some(&k));
        }
        let mut given: Vec<((usize, usize), usize)> = owners.into_iter().collect();
        given.sort_unstable();
        for (edge, k) in given {
            if !self.decisions[k].edges.contains(&edge) {
                self.decisions[k].edges.push(edge);
            }
        }
    }

    /// Two neighbours that no rule combines.
    fn without_rule(&self, group: GroupId, consumer: GroupId) -> Candidate {
        let groups: Groups = [group, consumer].into_iter().collect();
        let host = groups.iter().any(|g| self.state.group(*g).priced.kind == Kind::Host);
        let nested =
            groups.iter().all(|g| matches!(self.state.group(*g).priced.kind, Kind::Contract | Kind::Attention));
        let reason = match (host, nested) {
            (true, _) => Reason::Illegal(Refusal::Opaque),
            (_, true) => Reason::Illegal(Refusal::NestedContraction),
            _ => Reason::NoRule,
        };
        let proposal = Proposal { rule: "none", groups, form: Form::Join };
        let edges = self.candidate_edges(&proposal);
        let sides = self.sides(&proposal.groups);
        let id = edges.first().map_or(DecisionId(0), |edge| self.names.edge(*edge));
        Candidate { proposal, sides, after: Err(reason), edges, id }
    }

    fn refuse(&mut self, candidate: Candidate) {
        let Candidate { proposal, sides, after, edges, id } = candidate;
        let edges: Vec<(usize, usize)> = edges.into_iter().filter(|e| !self.is_inside(*e)).collect();
        let pair = proposal.form == Form::Join && proposal.groups.len() == 2;
        // What another decision has settled cannot be the name of this one.
        let id = edges.first().filter(|_| pair).map_or(id, |edge| self.names.edge(*edge));
        let is_edge = pair && !edges.is_empty() && {
            let consumer = self.state.group(proposal.groups[1]);
            edges.iter().any(|e| consumer.members.binary_search(&e.1).is_ok())
        };
        let before = sides[0] + sides[1];
        let (reason, after) = match after {
            Err(reason) => (reason, None),
            Ok((_, after)) if before.us - after.us <= LEAST_SAVED_US => {
                (Reason::Slower { by_us: after.us - before.us }, Some(after))
            }
            Ok((_, after)) => match self.options.chooser {
                Chooser::AtRandom(_) => (Reason::Chance, Some(after)),
                Chooser::Replay(_) => (Reason::Pinned, Some(after)),
                Chooser::ByCost => (Reason::Fuel, Some(after)),
            },
        };
        self.decisions.push(Decision {
            id,
            rule: proposal.rule,
            producer: self.state.group(proposal.groups[0]).members.clone(),
            consumer: self.state.union(&proposal.groups[1..]),
            verdict: Verdict::Refused,
            reason: Some(reason),
            sides,
            after,
            // A set or a copy is another way to decide about edges that their pairs decide about.
            edges: if is_edge { edges } else { Vec::new() },
            notes: Vec::new(),
        });
    }

    /// The groups in an order in which what is read was stored before.
    pub fn ordered(&self) -> Result<Vec<GroupId>> {
        let groups: Vec<GroupId> = self.state.iter().collect();
        let mut waits: FxHashMap<GroupId, usize> = groups.iter().map(|g| (*g, 0)).collect();
        let mut followers: FxHashMap<GroupId, Groups> = FxHashMap::default();
        for group in &groups {
            let next = self.state.followers(*group);
            for later in &next {
                *waits.get_mut(later).expect("a follower is there") += 1;
            }
            followers.insert(*group, next);
        }
        let first = |g: &GroupId| self.state.group(*g).members[0];
        let mut ready: BinaryHeap<Reverse<(usize, GroupId)>> =
            groups.iter().filter(|g| waits[g] == 0).map(|g| Reverse((first(g), *g))).collect();
        let mut order = Vec::with_capacity(groups.len());
        while let Some(Reverse((_, group))) = ready.pop() {
            order.push(group);
            for later in &followers[&group] {
                let left = waits.get_mut(later).expect("a follower is there");
                *left -= 1;
                if *left == 0 {
                    ready.push(Reverse((first(later), *later)));
                }
            }
        }
        match order.len() == groups.len() {
            true => Ok(order),
            false => Err(Error::invalid("the kernels of the plan wait for each other in a circle")),
        }
    }
}
