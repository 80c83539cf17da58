//! The best candidate of a group. What was looked at before and is as it was is not looked at again.

use rustc_hash::FxHashMap;

use super::candidate::Candidate;
use super::driver::{Driver, Entry, LEAST_SAVED_US, MOST_CONSUMERS, Ties};
use super::options::Policy;
use super::rules::{Form, Proposal};
use super::state::GroupId;

/// A proposal that was looked at, and what it was worth.
struct Seen {
    proposal: Proposal,
    /// how many nodes were looked at
    nodes: u64,
    /// what it weighs among all proposals about the group; `None` where it is not worth taking, or cannot be
    weight: Option<f64>,
}

/// What was looked at, by the group for which it was proposed. Groups are not changed but replaced, and what some of them bring does not
/// hang on others, except on ways through them and on who stores what ([`Memory::forget`]).
#[derive(Default)]
pub(super) struct Memory {
    seen: FxHashMap<GroupId, (u32, Vec<Seen>)>,
    /// how often everything was forgotten
    age: u32,
}

impl Memory {
    /// Says that nodes are stored by others, or no longer: nothing is as it was.
    pub fn forget(&mut self) {
        self.age += 1;
    }

    /// Says that a group is gone.
    pub fn remove(&mut self, group: GroupId) {
        self.seen.remove(&group);
    }

    fn take(&mut self, group: GroupId) -> Vec<Seen> {
        let found = self.seen.remove(&group).filter(|(age, _)| *age == self.age);
        found.map_or_else(Vec::new, |(_, seen)| seen)
    }

    fn keep(&mut self, group: GroupId, seen: Vec<Seen>) {
        if !seen.is_empty() {
            self.seen.insert(group, (self.age, seen));
        }
    }
}

/// The best of the proposals about a group so far.
enum Choice {
    Fresh(Candidate),
    /// looked at before
    Known(Proposal),
}

impl Driver<'_> {
    /// Finds the best candidate of a group and puts it into the queue.
    pub(super) fn consider(&mut self, group: GroupId) {
        let before = self.memory.take(group);
        let last = self.best.remove(&group).map(|(_, candidate)| candidate);
        // What the user wants combined is no question of weight.
        let is_forcing = !self.pins.together.is_empty();
        // A textbook also looks at others than the proposed groups: readers that it minds may have become one.
        let by_the_book = self.options.policy == Policy::Textbook;
        let mut seen: Vec<Seen> = Vec::new();
        let mut best: Option<(f64, Choice)> = None;
        for proposal in self.proposals(group, MOST_CONSUMERS) {
            if self.is_too_large(&proposal) {
                continue;
            }
            let holds = |seen: &&Seen| !is_forcing && (seen.weight.is_some() || !by_the_book);
            let known = before.iter().find(|seen| seen.proposal == proposal).filter(holds);
            let (now, choice) = match known {
                Some(known) => (self.seen_again(known), Choice::Known(proposal)),
                None => {
                    let (now, candidate) = self.seen_first(proposal);
                    (now, Choice::Fresh(candidate))
                }
            };
            let forced = match &choice {
                Choice::Fresh(candidate) if is_forcing => self.is_forced(candidate),
                _ => false,
            };
            let weight = if forced { Some(f64::INFINITY) } else { now.weight };
            seen.push(now);
            if let Some(weight) = weight
                && best.as_ref().is_none_or(|(most, _)| weight > *most)
            {
                best = Some((weight, choice));
            }
            if forced {
                break;
            }
        }
        self.memory.keep(group, seen);
        let candidate = best.map(|(_, choice)| match choice {
            Choice::Fresh(candidate) => candidate,
            Choice::Known(proposal) => match last {
                Some(last) if last.proposal == proposal => last,
                _ => self.assess(proposal),
            },
        });
        self.enqueue(group, candidate);
    }

    fn enqueue(&mut self, group: GroupId, candidate: Option<Candidate>) {
        self.versions += 1;
        let Some(candidate) = candidate else { return };
        let worth_us = if self.is_forced(&candidate) { f64::INFINITY } else { candidate.worth_us() };
        let rank = match self.ties {
            Ties::FirstMade => self.state.group(group).members[0],
            Ties::Oldest => group as usize,
        };
        self.queue.push(Entry { worth_us, rank, anchor: group, version: self.versions });
        self.best.insert(group, (self.versions, candidate));
    }

    /// Whether the user wants it, and it can be done.
    fn is_forced(&self, candidate: &Candidate) -> bool {
        candidate.after.is_ok() && self.is_pinned(candidate, |pins| Some(&pins.together))
    }

    fn seen_first(&mut self, proposal: Proposal) -> (Seen, Candidate) {
        let before = self.looked_at;
        let candidate = self.assess(proposal);
        self.note_set(&candidate);
        let weight = (candidate.saved_us() > LEAST_SAVED_US).then(|| candidate.weight());
        let proposal = candidate.proposal.clone();
        (Seen { proposal, nodes: self.looked_at - before, weight }, candidate)
    }

    /// What was worth taking is so still if no way leads around it by now; what was not never will be.
    fn seen_again(&mut self, known: &Seen) -> Seen {
        let Seen { proposal, nodes, weight } = known;
        self.looked_at += nodes;
        let is_open = || proposal.form == Form::Copy || !self.state.makes_cycle(&proposal.groups);
        let weight = weight.filter(|_| !self.is_exhausted() && is_open());
        Seen { proposal: proposal.clone(), nodes: *nodes, weight }
    }
}
