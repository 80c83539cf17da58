//! Ways to combine groups into one kernel, one file each.
//!
//! A rule knows which groups could be one kernel; whether they can is found by lowering them, whether they should by
//! their price. It sees kinds, shapes and who reads whom, never a name.

mod attention;
mod contract;
mod map;
mod reduce;
mod siblings;

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
    /// the first group is computed in each of the others, and vanishes
    Copy,
}

/// One way to combine groups.
pub trait Rule: Sync {
    /// its name in reports
    fn name(&self) -> &'static str;

    /// what it does, in a sentence
    fn doc(&self) -> &'static str;

    /// Whether it waits until the other rules have nothing left to do. What is done to a result on its way to memory should
    /// not be taken by its reader before its maker could.
    fn is_late(&self) -> bool {
        false
    }

    /// What could be combined with this group, which produces (for pairs) or comes last (for larger sets).
    fn propose(&self, context: &FuseContext<'_>, group: GroupId) -> Vec<Proposal>;
}

/// The rules.
pub const RULES: &[&dyn Rule] = &[
    &attention::Attention,
    &map::Map,
    &reduce::Reduce,
    &contract::Epilogue,
    &contract::Prologue,
    &contract::Dual,
    &siblings::Siblings,
];

/// A group with each of its consumers for which `fits` holds, and, where that is all of several, copied into all.
fn with_consumers(
    rule: &'static str,
    context: &FuseContext<'_>,
    producer: GroupId,
    fits: impl Fn(GroupId) -> bool,
) -> Vec<Proposal> {
    let consumers = context.consumers(producer);
    let mut proposals = Vec::new();
    for consumer in consumers.iter().filter(|c| fits(**c)) {
        let groups = [producer, *consumer].into_iter().collect();
        proposals.push(Proposal { rule, groups, form: Form::Join });
    }
    // A copy must not read more than what it saves from being stored: sums of sums would be read over and over.
    let several = (2..=MOST_COPIES).contains(&consumers.len()) && context.shrinks(producer);
    if several && consumers.iter().all(|c| fits(*c)) {
        let groups = std::iter::once(producer).chain(consumers.iter().copied()).collect();
        proposals.push(Proposal { rule, groups, form: Form::Copy });
    }
    proposals
}

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
