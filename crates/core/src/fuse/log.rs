//! What is written down: why groups stayed apart, and which decision each edge belongs to.

use rustc_hash::{FxHashMap, FxHashSet};

use super::candidate::{Candidate, Named};
use super::decision::{Decision, DecisionId, Note, Reason, Verdict};
use super::driver::{Driver, LEAST_SAVED_US};
use super::evaluate::Kind;
use super::options::Chooser;
use super::rules::{Form, Proposal, Stage};
use super::state::{GroupId, GroupState, Groups};
use super::textbook;
use crate::error::Result;
use crate::graph::Value;
use crate::lower::{self, Refusal};
use crate::ops::Prim;
use crate::ops::prim::View;
use crate::tile::AxisSet;

impl Driver<'_> {
    /// Notes why a set of groups is not combined. When its parts have been combined otherwise, nobody will ask again.
    pub(super) fn note_set(&mut self, candidate: &Candidate) {
        let Err(refused) = &candidate.after else { return };
        let groups = &candidate.proposal.groups;
        if self.stage == Stage::Last || groups.len() < 3 || candidate.proposal.form != Form::Join {
            return;
        }
        let id = self.set_name(&candidate.proposal);
        if self.sets.contains_key(&id) {
            return;
        }
        let decision = Decision {
            id,
            rule: candidate.proposal.rule,
            producer: self.state.group(groups[0]).members.clone(),
            consumer: self.state.union(&groups[1..]),
            verdict: Verdict::Refused,
            reason: Some(refused.reason.clone()),
            sides: candidate.sides,
            after: refused.cost,
            edges: Vec::new(),
            in_all_us: None,
            notes: Vec::new(),
        };
        self.sets.insert(id, decision);
    }

    /// Looks at every pair of neighbours that stayed apart, and at every other proposal that is left, and notes why.
    pub(super) fn note_refusals(&mut self) -> Result<()> {
        // Of three in a row, the pairs say why not.
        self.stage = Stage::Late;
        for group in self.state.iter().collect::<Vec<_>>() {
            self.options.budget.check()?;
            let mut looked_at: FxHashSet<GroupId> = FxHashSet::default();
            for proposal in self.proposals(group, usize::MAX) {
                if let ([first, other], Form::Join) = (proposal.groups.as_slice(), proposal.form)
                    && *first == group
                {
                    looked_at.insert(*other);
                }
                let candidate = self.assess(proposal);
                self.refuse(candidate);
            }
            for consumer in Groups::from_slice(&self.state.consumers(group)) {
                if !looked_at.contains(&consumer) {
                    let candidate = self.without_rule(group, consumer);
                    self.refuse(candidate);
                }
            }
        }
        let named: FxHashSet<DecisionId> = self.decisions.iter().map(|decision| decision.id).collect();
        for (id, decision) in std::mem::take(&mut self.sets) {
            let first = decision.producer[0];
            let together = |group: &GroupId| {
                let has = |node: &usize| self.state.inside[*node].contains(group);
                decision.producer.iter().chain(&decision.consumer).all(has)
            };
            if !self.state.inside[first].iter().any(together) && !named.contains(&id) {
                self.decisions.push(decision);
            }
        }
        self.settle_edges();
        Ok(())
    }

    /// Whether a kernel computes both ends of an edge.
    pub(super) fn is_inside(&self, (from, to): (usize, usize)) -> bool {
        self.state.inside[to].iter().any(|group| self.state.inside[from].contains(group))
    }

    /// Gives every edge to exactly one decision: one that was taken if a kernel has both ends in it, otherwise one that was
    /// refused. (Groups that overlap bring edges along; what a union does not need takes edges away.)
    pub(super) fn settle_edges(&mut self) {
        let mut owners: FxHashMap<(usize, usize), usize> = FxHashMap::default();
        for (k, decision) in self.decisions.iter().enumerate() {
            for edge in &decision.edges {
                if self.is_inside(*edge) == (decision.verdict == Verdict::Taken) {
                    owners.entry(*edge).or_insert(k);
                }
            }
        }
        for (k, decision) in self.decisions.iter_mut().enumerate() {
            decision.edges.retain(|edge| owners.get(edge) == Some(&k));
        }
        let cells: Vec<usize> = self.state.cells.iter().collect();
        let mut free = self.state.edges(&cells, &cells);
        free.retain(|edge| !owners.contains_key(edge));
        let about = self.decisions_about(free.iter().map(|edge| edge.1).collect());
        for edge in free {
            let wanted = if self.is_inside(edge) { Verdict::Taken } else { Verdict::Refused };
            let decides = |k: &&usize| {
                let decision = &self.decisions[**k];
                let has = |nodes: &[usize]| nodes.binary_search(&edge.0).is_ok();
                decision.verdict == wanted && (has(&decision.producer) || has(&decision.consumer))
            };
            if let Some(k) = about.get(&edge.1).and_then(|about| about.iter().rev().find(decides)) {
                self.decisions[*k].edges.push(edge);
            }
        }
    }

    /// For some nodes, the decisions about groups that have them, ascending.
    fn decisions_about(&self, nodes: FxHashSet<usize>) -> FxHashMap<usize, Vec<usize>> {
        let mut about: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        if nodes.is_empty() {
            return about;
        }
        for (k, decision) in self.decisions.iter().enumerate() {
            for node in decision.producer.iter().chain(&decision.consumer).filter(|node| nodes.contains(node)) {
                about.entry(*node).or_default().push(k);
            }
        }
        about
    }

    /// Two neighbours that no rule combines.
    pub(super) fn without_rule(&self, group: GroupId, consumer: GroupId) -> Candidate {
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
        let edges = self.candidate_edges(&proposal, &self.state.union(&proposal.groups));
        let sides = self.sides(&proposal.groups);
        let id = edges.first().map_or(DecisionId(0), |edge| self.names.edge(*edge));
        Candidate { proposal, sides, after: Err(reason.into()), named: Some(Named { edges, id }) }
    }

    pub(super) fn refuse(&mut self, candidate: Candidate) {
        let Candidate { proposal, sides, after, named } = candidate;
        let Named { edges, id } = named.unwrap_or_else(|| self.named(&proposal));
        let edges: Vec<(usize, usize)> = edges.into_iter().filter(|e| !self.is_inside(*e)).collect();
        let pair = proposal.form == Form::Join && proposal.groups.len() == 2;
        // What another decision has settled cannot be the name of this one.
        let id = edges.first().filter(|_| pair).map_or(id, |edge| self.names.edge(*edge));
        let is_edge = pair && !edges.is_empty() && {
            let consumer = self.state.group(proposal.groups[1]);
            edges.iter().any(|e| consumer.members.binary_search(&e.1).is_ok())
        };
        let before = sides[0] + sides[1];
        // A pair that was kept apart on purpose was once one kernel; others have taken it in since. Of a set, nobody knows.
        let outweighed = edges.iter().filter(|_| pair).find_map(|edge| self.kept_apart(*edge));
        let (reason, after) = match after {
            Err(refused) => match outweighed {
                Some(gain) if refused.reason.is_illegal() => (Reason::Outweighed { gain }, refused.cost),
                _ => (refused.reason, refused.cost),
            },
            Ok((_, after)) if before.us - after.us <= LEAST_SAVED_US => {
                (Reason::Slower { by_us: after.us - before.us }, Some(after))
            }
            Ok((_, after)) => match self.options.chooser {
                Chooser::AtRandom(_) => (Reason::Chance, Some(after)),
                Chooser::Replay(_) => (Reason::Pinned, Some(after)),
                Chooser::ByCost if self.options.fuel.is_some() => (Reason::Fuel, Some(after)),
                // Of a group with very many neighbours, not every one is looked at.
                Chooser::ByCost => (Reason::Effort, Some(after)),
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
            in_all_us: None,
            notes: Vec::new(),
        });
    }

    pub(super) fn notes(
        &self,
        proposal: &Proposal,
        [producer, consumer]: [&[usize]; 2],
        states: &[GroupState],
    ) -> Vec<Note> {
        let mut notes = Vec::new();
        if proposal.form == Form::Copy {
            notes.push(Note::ComputedAgain);
        } else if !self.state.edges(producer, consumer).is_empty()
            && states[0].outputs.iter().any(|v| producer.binary_search(&v.node()).is_ok())
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
        if textbook::changes_type(&self.state, proposal) {
            notes.push(Note::Converted);
        }
        if self.permutes(proposal, producer, consumer) {
            notes.push(Note::PermutedStore);
        }
        notes.extend(self.note_of_folds(proposal, states));
        notes
    }

    /// Whether what was computed is stored in another order of its axes.
    fn permutes(&self, proposal: &Proposal, producer: &[usize], consumer: &[usize]) -> bool {
        let graph = self.state.graph;
        let is_permuted = |view: &View| {
            let axes: Vec<usize> =
                view.map.iter().flat_map(|dim| AxisSet::mentioned(dim).iter().collect::<Vec<_>>()).collect();
            !axes.is_sorted()
        };
        // Views belong to no kernel: each is looked through until what it shows is somebody's.
        let reads_permuted = |arg: &Value| {
            let (mut value, mut permuted) = (*arg, false);
            while let Some(shown) = lower::looked_at(graph, value.node()) {
                permuted |= matches!(graph.node_of(value).prim(), Prim::View(view) if is_permuted(view));
                value = shown;
            }
            permuted && producer.binary_search(&value.node()).is_ok()
        };
        let kind = |group: &GroupId| self.state.group(*group).priced.kind;
        matches!(kind(&proposal.groups[0]), Kind::Map | Kind::Contract)
            && proposal.groups[1..].iter().all(|group| kind(group) == Kind::Map)
            && consumer.iter().any(|node| {
                // A view that is stored is a kernel's.
                let own = Value::new(*node, 0);
                reads_permuted(&own) || graph.nodes()[*node].args().iter().any(reads_permuted)
            })
    }

    /// What a contraction does with folds that came into its kernel.
    fn note_of_folds(&self, proposal: &Proposal, states: &[GroupState]) -> Option<Note> {
        let kind = |group: &GroupId| self.state.group(*group).priced.kind;
        let folds = |group: &GroupId| matches!(kind(group), Kind::Row | Kind::Column);
        match states.first()?.priced.kind {
            Kind::Attention if !proposal.groups.iter().any(|g| kind(g) == Kind::Attention) => Some(Note::Streamed),
            Kind::Contract if proposal.groups.first().is_some_and(folds) => Some(Note::FoldedOperand),
            Kind::Contract if proposal.groups.iter().any(folds) => Some(Note::WholeRows),
            _ => None,
        }
    }
}
