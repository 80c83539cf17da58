//! Elementwise work with elementwise work.

use super::{FuseContext, GroupId, Proposal, Rule, with_consumers, with_producers};
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
