//! Ways to combine groups into one kernel, one file each.
//!
//! A rule knows which groups could be one kernel; whether they can is found by lowering them, whether they should by
//! their price. It sees kinds, shapes and who reads whom, never a name.

mod attention;
mod chain;
mod contract;
mod map;
mod reduce;
mod siblings;

pub(crate) use attention::NAME as ATTENTION;

use super::context::FuseContext;
use super::state::{GroupId, Groups};

/// Groups that could be one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proposal {
    /// the rule
    pub rule: &'static str,
    /// the groups: for pairs the producer first
    pub groups: Groups,
    /// what would become of them
    pub form: Form,
}

/// What becomes of proposed groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Form {
    /// one kernel of all
    Join,
    /// one kernel of a group with several of its very many neighbours, each of which could be joined with it alone
    Run,
    /// the first group is computed in each of the others, and vanishes
    Copy,
}

/// When rules are asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Stage {
    /// before all others: a function stays whole
    Whole,
    /// from the start
    First,
    /// when those have nothing left to do: what is done to a result on its way to memory should not be taken by its reader before
    /// its maker could
    Late,
    /// when no pair is left that saves anything
    Last,
}

impl Stage {
    /// One after the other.
    pub const ALL: [Stage; 4] = [Stage::Whole, Stage::First, Stage::Late, Stage::Last];
}

/// One way to combine groups.
pub trait Rule: Sync {
    /// its name in reports
    fn name(&self) -> &'static str;

    /// what it does, in a sentence
    fn doc(&self) -> &'static str;

    /// When it is asked: it waits until the rules of earlier stages have nothing left to do.
    fn stage(&self) -> Stage {
        Stage::First
    }

    /// What could be combined with this group, which produces (for pairs) or comes last (for larger sets).
    fn propose(&self, context: &FuseContext<'_>, group: GroupId) -> Vec<Proposal>;
}

/// The rules.
pub const RULES: &[&dyn Rule] = &[
    &attention::Attention,
    &map::Function,
    &map::Map,
    &reduce::Reduce,
    &contract::Epilogue,
    &contract::Prologue,
    &contract::Dual,
    &siblings::Siblings,
    &siblings::MapSiblings,
    &chain::Chain,
];

/// A group with each of its consumers for which `fits` holds, and, where that is all of several, copied into all.
fn with_consumers(
    rule: &'static str,
    context: &FuseContext<'_>,
    producer: GroupId,
    fits: impl Fn(GroupId) -> bool,
) -> Vec<Proposal> {
    let consumers = context.consumers(producer);
    let fitting: Groups = consumers.iter().copied().filter(|c| fits(*c)).collect();
    let runs = runs(context, producer, fitting.len());
    let pairs = if runs.is_empty() { fitting.len() } else { MOST_PAIRS };
    let joined = |readers: &[GroupId], form: Form| {
        let groups = std::iter::once(producer).chain(readers.iter().copied()).collect();
        Proposal { rule, groups, form }
    };
    let mut proposals: Vec<Proposal> = fitting.iter().take(pairs).map(|c| joined(&[*c], Form::Join)).collect();
    proposals.extend(runs.into_iter().map(|length| joined(&fitting[..length], Form::Run)));
    // A copy must not read more than what it saves from being stored: sums of sums would be read over and over.
    let several = (2..=MOST_COPIES).contains(&consumers.len()) && context.shrinks(producer);
    if several && fitting.len() == consumers.len() {
        proposals.push(joined(&consumers, Form::Copy));
    }
    proposals
}

/// A group with several of its very many producers for which `fits` holds.
fn with_producers(
    rule: &'static str,
    context: &FuseContext<'_>,
    consumer: GroupId,
    fits: impl Fn(GroupId) -> bool,
) -> Vec<Proposal> {
    let fitting: Groups = context.producers(consumer).into_iter().filter(|p| fits(*p)).collect();
    let joined = |length: usize| {
        let groups = fitting[..length].iter().copied().chain([consumer]).collect();
        Proposal { rule, groups, form: Form::Run }
    };
    runs(context, consumer, fitting.len()).into_iter().map(joined).collect()
}

/// How many of the neighbours of a group are joined with it at once, if these are very many: as many as it has nodes, or fewer.
/// One by one, a kernel would be looked at in every size up to that of all.
fn runs(context: &FuseContext<'_>, hub: GroupId, neighbours: usize) -> Vec<usize> {
    if neighbours <= MANY || context.is_thorough() {
        return Vec::new();
    }
    let longest = neighbours.min(context.size(hub).max(MANY));
    std::iter::successors(Some(longest), |length| Some(length / 2)).take_while(|length| *length > 1).collect()
}

/// More neighbours than this are very many.
const MANY: usize = 8;

/// Of a group with very many neighbours, so many pairs are proposed.
const MOST_PAIRS: usize = 4;

/// A group is copied into no more readers than this.
const MOST_COPIES: usize = 8;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_documented() {
        for (k, rule) in RULES.iter().enumerate() {
            assert!(RULES[..k].iter().all(|r| r.name() != rule.name()), "{} twice", rule.name());
            assert!(!rule.doc().is_empty());
        }
    }
}
