//! Work that shares an operand.

use super::{Form, FuseContext, GroupId, Proposal, Rule, Stage};
use crate::fuse::Kind;

/// Contractions of one operand, and folds of one tensor.
pub(super) struct Siblings;

impl Rule for Siblings {
    fn name(&self) -> &'static str {
        "siblings"
    }

    fn doc(&self) -> &'static str {
        "Contractions that share an operand (queries, keys and values; gate and up) are one wide contraction; folds of one tensor \
         are one pass over it."
    }

    fn propose(&self, context: &FuseContext<'_>, group: GroupId) -> Vec<Proposal> {
        let others = match context.kind(group) {
            Kind::Contract => context.contraction_siblings(group),
            Kind::Row | Kind::Column => context.fold_siblings(group),
            _ => return Vec::new(),
        };
        let pair =
            |o: &GroupId| Proposal { rule: self.name(), groups: [group, *o].into_iter().collect(), form: Form::Join };
        others.iter().map(pair).collect()
    }
}

/// Elementwise work on one tensor.
pub(super) struct MapSiblings;

impl Rule for MapSiblings {
    fn name(&self) -> &'static str {
        "map-siblings"
    }

    fn doc(&self) -> &'static str {
        "Elementwise work over the points of other work that reads one of the same tensors runs in its loop: the tensor is read once."
    }

    /// Readers and makers have a stronger claim: they save a tensor from being stored.
    fn stage(&self) -> Stage {
        Stage::Late
    }

    fn propose(&self, context: &FuseContext<'_>, group: GroupId) -> Vec<Proposal> {
        let pair = |first: GroupId, second: GroupId| Proposal {
            rule: self.name(),
            groups: [first, second].into_iter().collect(),
            form: Form::Join,
        };
        let others = context.loop_siblings(group);
        others.into_iter().map(|other| pair(group, other)).collect()
    }
}
