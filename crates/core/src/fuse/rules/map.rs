//! Elementwise work with elementwise work.

use super::{FuseContext, GroupId, Proposal, Rule, Stage, with_consumers, with_producers};
use crate::fuse::Kind;

/// Elementwise groups are one loop.
pub(super) struct Map;

impl Rule for Map {
    fn name(&self) -> &'static str {
        "map"
    }

    fn doc(&self) -> &'static str {
        "Elementwise work runs in the loop of its elementwise readers, whatever views lie between; further readers get a second \
         output, or compute it again."
    }

    fn propose(&self, context: &FuseContext<'_>, group: GroupId) -> Vec<Proposal> {
        if context.kind(group) != Kind::Map {
            return Vec::new();
        }
        let is_map = |other: GroupId| context.kind(other) == Kind::Map;
        let mut proposals = with_consumers(self.name(), context, group, is_map);
        proposals.extend(with_producers(self.name(), context, group, is_map));
        proposals
    }
}

/// The parts of a function of one tensor are one loop before anything else is: an activation is not divided between kernels.
pub(super) struct Function;

impl Rule for Function {
    fn name(&self) -> &'static str {
        "function"
    }

    fn doc(&self) -> &'static str {
        "What computes a function of one tensor, element by element, is one loop before anything else is decided: an activation is not \
         divided between kernels, however it is written."
    }

    fn stage(&self) -> Stage {
        Stage::Whole
    }

    fn propose(&self, context: &FuseContext<'_>, group: GroupId) -> Vec<Proposal> {
        with_consumers(self.name(), context, group, |reader| context.is_one_function(group, reader))
    }
}
