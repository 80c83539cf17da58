//! What varies along a row.

use fuseline::ops::{ExprNode, Term};
use rustc_hash::FxHashMap;

/// Which terms of a scope vary along a row: those with a leaf that does. Every term is asked for once.
pub(super) struct Varying<'v> {
    /// whether a leaf does
    leaf: &'v dyn Fn(&ExprNode) -> bool,
    known: FxHashMap<u32, bool>,
}

impl<'v> Varying<'v> {
    pub fn of(leaf: &'v dyn Fn(&ExprNode) -> bool) -> Varying<'v> {
        Varying { leaf, known: FxHashMap::default() }
    }

    pub fn has(&mut self, term: Term<'_>) -> bool {
        if let Some(known) = self.known.get(&term.place()) {
            return *known;
        }
        let varies = (self.leaf)(&term.node()) || term.operands().into_iter().any(|operand| self.has(operand));
        self.known.insert(term.place(), varies);
        varies
    }
}
