//! Folds with what comes before, between and after.

use super::{FuseContext, GroupId, Proposal, Rule, with_consumers};
use crate::fuse::Kind;

/// Folds along rows or columns take in their operands' work and their readers' work.
pub(super) struct Reduce;

impl Rule for Reduce {
    fn name(&self) -> &'static str {
        "reduce"
    }

    fn doc(&self) -> &'static str {
        "A fold, the elementwise work on its operand, other folds of the same rows and the work on its result are one pass over \
         the rows: softmax, norms, norms that quantise."
    }

    fn propose(&self, context: &FuseContext<'_>, group: GroupId) -> Vec<Proposal> {
        let is_fold = |g: GroupId| matches!(context.kind(g), Kind::Row | Kind::Column);
        let loops = |g: GroupId| is_fold(g) || context.kind(g) == Kind::Map;
        if !loops(group) {
            return Vec::new();
        }
        with_consumers(self.name(), context, group, |c| loops(c) && (is_fold(group) || is_fold(c)))
    }
}
