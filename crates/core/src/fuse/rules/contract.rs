//! Sums of products with the work on their operands and on their results.

use super::{Form, FuseContext, GroupId, MOST_COPIES, Proposal, Rule, Stage, with_consumers};
use crate::fuse::Kind;

/// A mask is copied into the attention of no more layers than this.
const MOST_MASKED: usize = 1024;

fn contracts(kind: Kind) -> bool {
    matches!(kind, Kind::Contract | Kind::Attention)
}

/// Work on the result of a contraction.
pub(super) struct Epilogue;

impl Rule for Epilogue {
    fn name(&self) -> &'static str {
        "contract-epilogue"
    }

    fn doc(&self) -> &'static str {
        "Elementwise work on the result of a contraction, with other operands, several results and permuted stores, runs on the \
         tile while it is in registers; folds along its rows too, where a tile owns whole rows."
    }

    fn propose(&self, context: &FuseContext<'_>, group: GroupId) -> Vec<Proposal> {
        if !contracts(context.kind(group)) {
            return Vec::new();
        }
        let fits = |c: GroupId| matches!(context.kind(c), Kind::Map | Kind::Row | Kind::Column);
        let mut proposals = with_consumers(self.name(), context, group, fits);
        // Computing a contraction several times is never what is wanted.
        proposals.retain(|p| p.form != Form::Copy);
        proposals
    }
}

/// Work on the operands of a contraction.
pub(super) struct Prologue;

impl Rule for Prologue {
    fn name(&self) -> &'static str {
        "contract-prologue"
    }

    fn doc(&self) -> &'static str {
        "Elementwise work on an operand of a contraction (dequantise, convert, gather, rotate, scale of a norm) is done while the \
         operand is fetched."
    }

    fn stage(&self) -> Stage {
        Stage::Late
    }

    fn propose(&self, context: &FuseContext<'_>, group: GroupId) -> Vec<Proposal> {
        if !matches!(context.kind(group), Kind::Map | Kind::Row | Kind::Column) {
            return Vec::new();
        }
        let mut proposals = with_consumers(self.name(), context, group, |c| contracts(context.kind(c)));
        // A mask that the attention of every layer reads, for every head again. Copied into some of its readers, it would be missed by the rest.
        let attends = |readers: &[GroupId]| readers.iter().all(|c| context.kind(*c) == Kind::Attention);
        let first = context.consumers(group);
        if first.len() > MOST_COPIES && attends(&first) && context.shrinks(group) {
            let readers = context.consumers_up_to(group, MOST_MASKED + 1);
            if readers.len() <= MOST_MASKED && attends(&readers) {
                let groups = std::iter::once(group).chain(readers).collect();
                proposals.push(Proposal { rule: self.name(), groups, form: Form::Copy });
            }
        }
        proposals
    }
}

/// A contraction that another one's epilogue reads.
pub(super) struct Dual;

impl Rule for Dual {
    fn name(&self) -> &'static str {
        "contract-dual"
    }

    fn doc(&self) -> &'static str {
        "Two contractions of one operand, where the work on the result of one reads the other, are computed tile by tile together: \
         gate and up of a gated layer."
    }

    fn propose(&self, context: &FuseContext<'_>, group: GroupId) -> Vec<Proposal> {
        if context.kind(group) != Kind::Contract {
            return Vec::new();
        }
        let siblings = context.contraction_siblings(group);
        let consumers = context.consumers(group);
        let both = |c: &&GroupId| {
            context.kind(**c) == Kind::Contract
                && (siblings.contains(c) || context.contraction_siblings(**c).contains(&group))
        };
        let pair =
            |c: &GroupId| Proposal { rule: self.name(), groups: [group, *c].into_iter().collect(), form: Form::Join };
        consumers.iter().filter(both).map(pair).collect()
    }
}
