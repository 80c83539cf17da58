//! Which symbols are bound at a place of a graph.

use rustc_hash::FxHashSet;

use super::Symbol;

/// The symbols that are bound at a place: those around it, and its own. Regions look outwards instead of having copies, since there may be
/// very many of either.
#[derive(Debug, Default)]
pub(crate) struct Bound<'o> {
    outer: Option<&'o Bound<'o>>,
    own: FxHashSet<Symbol>,
}

impl<'o> Bound<'o> {
    /// Those of a region at this place: what it binds is not bound outside.
    pub fn inside(outer: &'o Bound<'o>) -> Bound<'o> {
        Bound { outer: Some(outer), own: FxHashSet::default() }
    }

    /// Whether a symbol is bound.
    pub fn has(&self, symbol: &Symbol) -> bool {
        let mut here = Some(self);
        while let Some(bound) = here {
            if bound.own.contains(symbol) {
                return true;
            }
            here = bound.outer;
        }
        false
    }

    /// Binds a symbol; says whether it was free.
    pub fn bind(&mut self, symbol: Symbol) -> bool {
        !self.outer.is_some_and(|outer| outer.has(&symbol)) && self.own.insert(symbol)
    }

    /// Binds symbols that may be bound already.
    pub fn extend(&mut self, symbols: impl Iterator<Item = Symbol>) {
        for symbol in symbols {
            self.bind(symbol);
        }
    }
}
