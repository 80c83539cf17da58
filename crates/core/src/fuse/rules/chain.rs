//! Three kernels in a row.

use super::{Form, FuseContext, GroupId, Proposal, Rule, Stage};
use crate::fuse::Kind;

/// A kernel with one that it reads and one that reads it.
pub(super) struct Chain;

/// Of the neighbours on either side, so many are tried.
const MOST_NEIGHBOURS: usize = 4;

impl Rule for Chain {
    fn name(&self) -> &'static str {
        "chain"
    }

    fn doc(&self) -> &'static str {
        "A kernel, one that it reads and one that reads it become one, where no two of them are better together but all three are."
    }

    /// When no pair is left that saves anything.
    fn stage(&self) -> Stage {
        Stage::Last
    }

    fn propose(&self, context: &FuseContext<'_>, group: GroupId) -> Vec<Proposal> {
        let contracts = |g: GroupId| usize::from(matches!(context.kind(g), Kind::Contract | Kind::Attention));
        let is_loop = |g: &GroupId| context.kind(*g) != Kind::Host;
        if !is_loop(&group) {
            return Vec::new();
        }
        let mut proposals = Vec::new();
        for first in context.producers(group).into_iter().filter(is_loop).take(MOST_NEIGHBOURS) {
            for last in context.consumers(group).into_iter().filter(is_loop).take(MOST_NEIGHBOURS) {
                // Two contractions are joined by what attention is, or not at all.
                if first != last && contracts(first) + contracts(group) + contracts(last) <= 1 {
                    let groups = [first, group, last].into_iter().collect();
                    proposals.push(Proposal { rule: self.name(), groups, form: Form::Join });
                }
            }
        }
        proposals
    }
}
