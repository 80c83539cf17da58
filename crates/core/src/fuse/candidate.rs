//! What a proposal would bring: the groups that would take the place of others, and their cost.

use super::decision::{Cost, DecisionId, Reason};
use super::driver::{Driver, LEAST_SAVED_US};
use super::evaluate::{Kind, Priced};
use super::options::{Pins, Policy};
use super::rules::{Form, Proposal};
use super::state::{GroupId, GroupState, Groups};
use super::textbook;
use crate::lower::Refusal;

/// A kernel has no more nodes than this.
const MOST_MEMBERS: usize = 256;

/// A rival stores what one kernel does not, and has to be better by this part at least: predictions know no less.
const TIED: f64 = 0.0025;

/// Groups that a rival of a proposal has made one kernel, its kind and its price.
struct Block {
    groups: Groups,
    kind: Kind,
    us: f64,
}

/// Whether a way leads from one block to another by a third, so that the two cannot be one kernel; `after` lists who waits for
/// each. No way leads out of all blocks and back.
fn leads_around(after: &[Vec<usize>], from: usize, to: usize) -> bool {
    let mut seen = vec![false; after.len()];
    let mut todo: Vec<usize> = after[from].iter().copied().filter(|next| *next != to).collect();
    while let Some(next) = todo.pop() {
        if next == to {
            return true;
        }
        if next != from && !std::mem::replace(&mut seen[next], true) {
            todo.extend(&after[next]);
        }
    }
    false
}

/// A proposal that was looked at.
pub(super) struct Candidate {
    pub proposal: Proposal,
    /// the first group, and all others together
    pub sides: [Cost; 2],
    /// the groups that would take the place of the proposed ones
    pub after: After,
    /// where somebody has asked
    pub named: Option<Named>,
}

/// What a proposal is about, and its name.
#[derive(Clone)]
pub(super) struct Named {
    pub edges: Vec<(usize, usize)>,
    pub id: DecisionId,
}

/// The groups that would take the place of others and what they cost, or why they do not.
pub(super) type After = Result<(Vec<GroupState>, Cost), Refused>;

/// Why a proposal is not followed, and what it would cost where a kernel could do it.
#[derive(Clone, Debug)]
pub(super) struct Refused {
    pub reason: Reason,
    pub cost: Option<Cost>,
}

impl From<Reason> for Refused {
    fn from(reason: Reason) -> Refused {
        Refused { reason, cost: None }
    }
}

impl Candidate {
    pub fn before(&self) -> Cost {
        self.sides[0] + self.sides[1]
    }

    pub fn saved_us(&self) -> f64 {
        self.after.as_ref().map_or(f64::NEG_INFINITY, |(_, after)| self.before().us - after.us)
    }

    /// What it is worth compared with proposals about other groups: the time saved, of a run of neighbours by each.
    pub fn worth_us(&self) -> f64 {
        match self.proposal.form {
            Form::Run => self.saved_us() / (self.proposal.groups.len() - 1) as f64,
            Form::Join | Form::Copy => self.saved_us(),
        }
    }

    /// What it weighs among proposals about one group: where neighbours are alike, longer runs of them weigh more.
    pub fn weight(&self) -> f64 {
        match self.proposal.form {
            Form::Run => self.worth_us() * (1.0 + 0.1 * f64::from((self.proposal.groups.len() - 1).ilog2())),
            Form::Join | Form::Copy => self.worth_us(),
        }
    }
}

impl Driver<'_> {
    pub(super) fn is_pinned(
        &self,
        candidate: &Candidate,
        list: impl Fn(&Pins) -> Option<&std::collections::BTreeSet<DecisionId>>,
    ) -> bool {
        let Some(list) = list(&self.pins) else { return false };
        let Some(Named { edges, id }) = candidate.named.as_ref().filter(|_| !list.is_empty()) else { return false };
        list.contains(id) || edges.iter().any(|e| list.contains(&self.names.edge(*e)))
    }

    /// Whether it matters what candidates are about: the user, or a second thought, has something to say.
    fn is_selective(&self) -> bool {
        self.pins != Pins::default() || !self.apart.is_empty()
    }

    /// Whether a candidate is among those that may be taken at all.
    pub(super) fn is_listed(&self, candidate: &Candidate) -> bool {
        let Some(only) = &self.pins.only else { return true };
        let Some(Named { edges, id }) = &candidate.named else { return false };
        let all = || !edges.is_empty() && edges.iter().all(|e| only.contains(&self.names.edge(*e)));
        only.contains(id) || (!only.is_empty() && all())
    }

    /// Whether a proposal has more nodes than a kernel can have, and is not worth a look.
    pub(super) fn is_too_large(&self, proposal: &Proposal) -> bool {
        let groups = &proposal.groups;
        let all: usize = groups.iter().map(|group| self.state.group(*group).members.len()).sum();
        // Groups may have nodes in common.
        let together = || self.state.union(groups).len();
        proposal.form != Form::Copy && all > MOST_MEMBERS && (all > 2 * MOST_MEMBERS || together() > MOST_MEMBERS)
    }

    /// What a proposal is about, and its name.
    pub(super) fn named(&self, proposal: &Proposal) -> Named {
        let edges = self.candidate_edges(proposal, &self.state.union(&proposal.groups));
        let id = match edges.first() {
            Some(edge) if proposal.groups.len() == 2 => self.names.edge(*edge),
            _ => self.set_name(proposal),
        };
        Named { edges, id }
    }

    /// The name of a proposal about more than a pair.
    pub(super) fn set_name(&self, proposal: &Proposal) -> DecisionId {
        self.names.set(proposal.rule, proposal.groups.iter().map(|g| self.state.group(*g).members[0]))
    }

    /// What a proposal would bring; without its name, unless that matters.
    pub(super) fn assess(&mut self, proposal: Proposal) -> Candidate {
        let sides = self.sides(&proposal.groups);
        let members = self.state.union(&proposal.groups);
        self.looked_at += members.len() as u64;
        let named = self.is_selective().then(|| self.named(&proposal));
        let mut candidate = Candidate { proposal, sides, after: Err(Reason::NoRule.into()), named };
        candidate.after = if !self.is_listed(&candidate) {
            Err(Reason::Pinned.into())
        } else if self.is_exhausted() {
            Err(Reason::Effort.into())
        } else {
            match candidate.proposal.form {
                Form::Join | Form::Run => {
                    let forced = self.is_pinned(&candidate, |pins| Some(&pins.together));
                    let rivals = candidate.proposal.form == Form::Join && !forced;
                    self.joined(&candidate.proposal.groups, members, rivals)
                }
                Form::Copy => self.copied(&candidate.proposal.groups),
            }
        };
        if let Ok((_, cost)) = &candidate.after
            && let Some(reason) = self.unwanted(&candidate)
        {
            candidate.after = Err(Refused { reason, cost: Some(*cost) });
        }
        candidate
    }

    /// Why something that can be done is not wanted, whatever it saves.
    fn unwanted(&self, candidate: &Candidate) -> Option<Reason> {
        let proposal = &candidate.proposal;
        if self.is_pinned(candidate, |pins| Some(&pins.apart)) || self.joins_divided(proposal, &self.divided) {
            return Some(match self.turned_apart(candidate) {
                Some(gain) => Reason::Outweighed { gain },
                None => Reason::Pinned,
            });
        }
        let forced = || self.is_pinned(candidate, |pins| Some(&pins.together));
        let edges = candidate.named.iter().flat_map(|named| &named.edges);
        let outweighed = edges.into_iter().find_map(|edge| self.apart.get(edge));
        if let Some(gain) = outweighed.filter(|_| !forced()) {
            return Some(Reason::Outweighed { gain: *gain });
        }
        let by_the_book = self.options.policy == Policy::Textbook && !forced();
        let refusal = by_the_book.then(|| textbook::refusal(&self.state, &candidate.proposal)).flatten();
        refusal.map(Reason::Textbook)
    }

    /// Whether a kernel would compute two nodes that are to be in different ones.
    pub(super) fn joins_divided(&self, proposal: &Proposal, divided: &[[usize; 2]]) -> bool {
        let has = |groups: &[GroupId], node: usize| groups.iter().any(|g| self.state.inside[node].contains(g));
        let both = |groups: &[GroupId]| divided.iter().any(|[a, b]| has(groups, *a) && has(groups, *b));
        match (proposal.form, proposal.groups.as_slice()) {
            (Form::Copy, [producer, readers @ ..]) => readers.iter().any(|reader| both(&[*producer, *reader])),
            (_, groups) => both(groups),
        }
    }

    /// What the first group costs, and what all others cost.
    pub(super) fn sides(&self, groups: &[GroupId]) -> [Cost; 2] {
        let cost = |g: &GroupId| self.state.group(*g).priced.cost();
        let rest = groups[1..].iter().map(cost).fold(Cost::default(), |sum, cost| sum + cost);
        [cost(&groups[0]), rest]
    }

    /// The edges that a proposal would put inside of a kernel: those between nodes that are not in one of its groups only.
    pub(super) fn candidate_edges(&self, proposal: &Proposal, members: &[usize]) -> Vec<(usize, usize)> {
        let groups = &proposal.groups;
        let homes = |node: usize| self.state.inside[node].iter().filter(|group| groups.contains(group));
        let mut edges = self.state.edges(members, members);
        edges.retain(|(from, to)| homes(*from).any(|k| homes(*to).any(|j| j != k)));
        edges
    }

    pub(super) fn joined(&mut self, groups: &[GroupId], members: Vec<usize>, rivals: bool) -> After {
        if members.len() > MOST_MEMBERS {
            return Err(Reason::Illegal(Refusal::TooLarge).into());
        }
        // Before any look at the kernel: most of the large sets that are proposed have a way around them.
        if self.state.makes_cycle(groups) {
            return Err(Reason::Cycle.into());
        }
        let outputs = self.state.outputs(&members, groups, &[]);
        let members = self.state.needed(members, &outputs);
        let priced = self.evaluator.evaluate(&members, &outputs).map_err(Reason::Illegal)?;
        let cost = priced.cost();
        if groups.len() > 2 && rivals {
            let rival_us = self.rival_us(groups, &members, &priced);
            if rival_us < cost.us * (1.0 - TIED) {
                let reason = Reason::PairsBetter { by_us: cost.us - rival_us };
                return Err(Refused { reason, cost: Some(cost) });
            }
        }
        Ok((vec![GroupState { members, outputs, priced }], cost))
    }

    /// What the groups of a kernel cost when they are combined two by two, the best pair first, never all of a set at once; of an
    /// attention also what it costs to begin with its core, so that each operand is made by whom it is made best.
    pub(super) fn rival_us(&mut self, groups: &[GroupId], members: &[usize], priced: &Priced) -> f64 {
        let is_attention = priced.kind == Kind::Attention;
        let makers = if is_attention { self.makers(groups) } else { Groups::new() };
        let key = self.division(groups, &makers, members, priced.structure);
        if let Some(known) = self.rivals.get(&key) {
            return *known;
        }
        let apart: Vec<Block> = groups.iter().map(|group| self.block(*group)).collect();
        let mut total = self.combined_us(apart);
        if let Some(mut around) = is_attention.then(|| self.around_core(groups)).flatten() {
            let outside: Vec<Block> = makers.iter().map(|maker| self.block(*maker)).collect();
            let outside_us: f64 = outside.iter().map(|block| block.us).sum();
            around.extend(outside);
            total = total.min(self.combined_us(around) - outside_us);
        }
        self.rivals.insert(key, total);
        total
    }

    fn block(&self, group: GroupId) -> Block {
        let Priced { kind, price, .. } = &*self.state.group(group).priced;
        Block { groups: [group].into_iter().collect(), kind: *kind, us: price.us }
    }

    /// What blocks cost when the best pair of neighbours is combined as long as that saves anything.
    fn combined_us(&mut self, mut blocks: Vec<Block>) -> f64 {
        while let Some((first, second, us)) = self.best_pair(&blocks) {
            let taken = blocks.remove(second);
            let block = &mut blocks[first];
            block.groups.extend(taken.groups);
            block.us = us;
            if taken.kind == Kind::Attention {
                block.kind = taken.kind;
            }
        }
        blocks.iter().map(|block| block.us).sum()
    }

    /// The groups of an attention as its core, from the first product on, and each of its operands, if it has any.
    fn around_core(&mut self, groups: &[GroupId]) -> Option<Vec<Block>> {
        let mut core: Groups =
            groups.iter().copied().filter(|g| self.state.group(*g).priced.kind == Kind::Contract).collect();
        let mut at = 0;
        while let Some(group) = core.get(at).copied() {
            at += 1;
            let next = self.state.consumers(group).into_iter().filter(|reader| groups.contains(reader));
            for reader in next {
                if !core.contains(&reader) {
                    core.push(reader);
                }
            }
        }
        core.sort_unstable();
        if core.len() == groups.len() || self.state.makes_cycle(&core) {
            return None;
        }
        let (us, kind) = self.together(&core)?;
        let operands = groups.iter().filter(|group| !core.contains(group));
        let mut blocks: Vec<Block> = operands.map(|group| self.block(*group)).collect();
        blocks.push(Block { groups: core, kind, us });
        Some(blocks)
    }

    /// The contractions that make what the first groups of an attention work on, each for one of them alone: a bias may be added where it is
    /// read, or where it is made.
    fn makers(&self, groups: &[GroupId]) -> Groups {
        let is_map = |group: &&GroupId| self.state.group(**group).priced.kind == Kind::Map;
        let before = groups.iter().filter(is_map).flat_map(|group| self.state.producers(*group));
        let mut makers: Groups = before.filter(|maker| !groups.contains(maker)).collect();
        makers.sort_unstable();
        makers.dedup();
        makers.retain(|maker| {
            let makes = self.state.group(*maker).priced.kind == Kind::Contract;
            makes && self.state.first_consumers(*maker, 2).len() == 1
        });
        makers
    }

    /// What one kernel of some groups costs, and its kind, if there is one.
    fn together(&mut self, groups: &[GroupId]) -> Option<(f64, Kind)> {
        let union = self.state.union(groups);
        let outputs = self.state.outputs(&union, groups, &[]);
        let members = self.state.needed(union, &outputs);
        let priced = self.evaluator.evaluate(&members, &outputs).ok()?;
        Some((priced.price.us, priced.kind))
    }

    /// A set of groups by structure: that of the kernel of all, that of each, and how they divide its nodes; and those that make what it reads.
    fn division(&self, groups: &[GroupId], makers: &[GroupId], members: &[usize], structure: u32) -> Box<[u32]> {
        let mut words = vec![structure];
        words.extend(makers.iter().map(|maker| self.state.group(*maker).priced.structure));
        for group in groups {
            let GroupState { members: own, priced, .. } = self.state.group(*group);
            words.extend([priced.structure, own.len() as u32]);
            // What the kernel of all does not need has no place in it.
            words.extend(own.iter().map(|node| members.binary_search(node).map_or(u32::MAX, |place| place as u32)));
        }
        words.into_boxed_slice()
    }

    /// The two neighbours among blocks of groups that save the most as one kernel, and what that costs.
    fn best_pair(&mut self, blocks: &[Block]) -> Option<(usize, usize, f64)> {
        let after: Vec<Vec<usize>> = blocks.iter().map(|block| self.followers_among(block, blocks)).collect();
        let mut best: Option<(f64, (usize, usize, f64))> = None;
        for first in 0..blocks.len() {
            for second in first + 1..blocks.len() {
                let neighbours = after[first].contains(&second) || after[second].contains(&first);
                if !neighbours || leads_around(&after, first, second) || leads_around(&after, second, first) {
                    continue;
                }
                let both: Groups = blocks[first].groups.iter().chain(&blocks[second].groups).copied().collect();
                let Some((us, kind)) = self.together(&both) else { continue };
                let saved = blocks[first].us + blocks[second].us - us;
                let better = best.as_ref().is_none_or(|(most, _)| saved > *most);
                let is_core = |block: &Block| block.kind == Kind::Attention;
                let is_new = kind == Kind::Attention && !is_core(&blocks[first]) && !is_core(&blocks[second]);
                if !is_new && saved > LEAST_SAVED_US && better {
                    best = Some((saved, (first, second, us)));
                }
            }
        }
        best.map(|(_, pair)| pair)
    }

    /// The blocks that must wait for a block.
    fn followers_among(&self, block: &Block, blocks: &[Block]) -> Vec<usize> {
        let followers: Groups = block.groups.iter().flat_map(|group| self.state.followers(*group)).collect();
        let reads = |other: &Block| other.groups.iter().any(|group| followers.contains(group));
        let all = blocks.iter().enumerate();
        all.filter(|(_, other)| other.groups != block.groups && reads(other)).map(|(k, _)| k).collect()
    }

    pub(super) fn copied(&mut self, groups: &[GroupId]) -> After {
        let (producer, readers) = groups.split_first().expect("a copy has a producer");
        debug_assert_eq!(
            *readers,
            *self.state.first_consumers(*producer, readers.len() + 1),
            "a reader would be left behind"
        );
        let copied = self.state.group(*producer).members.clone();
        if copied.iter().any(|node| self.state.cells.is_output[*node]) {
            return Err(Reason::Illegal(Refusal::OutputCopied).into());
        }
        let (mut states, mut total) = (Vec::with_capacity(readers.len()), Cost::default());
        for reader in readers {
            let members = self.state.union(&[*producer, *reader]);
            if members.len() > MOST_MEMBERS {
                return Err(Reason::Illegal(Refusal::TooLarge).into());
            }
            let outputs = self.state.outputs(&members, &[*producer, *reader], &copied);
            let members = self.state.needed(members, &outputs);
            let priced = self.evaluator.evaluate(&members, &outputs).map_err(Reason::Illegal)?;
            total = total + priced.cost();
            states.push(GroupState { members, outputs, priced });
        }
        Ok((states, total))
    }
}

#[cfg(test)]
mod tests {
    use super::leads_around;

    #[test]
    fn ways_around_are_those_by_a_third() {
        // 0 → 1 → 2 → 3, and 0 → 2.
        let after = [vec![1, 2], vec![2], vec![3], vec![]];
        assert!(leads_around(&after, 0, 2));
        assert!(!leads_around(&after, 0, 1) && !leads_around(&after, 1, 2) && !leads_around(&after, 2, 0));
        // What is merged already may lead in a circle: 0 and 1 wait for each other.
        let circle = [vec![1], vec![0, 2], vec![]];
        assert!(!leads_around(&circle, 0, 1) && !leads_around(&circle, 1, 2));
    }
}
