//! What the form of an expression alone shows of its sign.

use super::{Atom, Dim, Symbol};

/// Of so many minima and maxima in a sum, both sides are tried to show that it is not negative.
const MOST_CHOICES: usize = 6;

impl Dim {
    /// Whether the form alone shows that the value cannot be negative (no means: not known).
    pub fn is_nonnegative(&self) -> bool {
        self.is_nonnegative_with(MOST_CHOICES)
    }

    fn is_nonnegative_with(&self, choices: usize) -> bool {
        let plainly = self.constant() >= 0
            && self
                .terms()
                .iter()
                .all(|t| t.coefficient > 0 && t.factors.iter().all(|atom| atom.is_nonnegative_with(choices)));
        plainly || (choices > 0 && self.is_nonnegative_by_choice(choices - 1))
    }

    /// Whether the expression stays non-negative when a subtracted minimum, or an added maximum, is replaced by one of
    /// the two that it is taken of: that makes it smaller, if anything.
    fn is_nonnegative_by_choice(&self, choices: usize) -> bool {
        let choice = self.terms().iter().find_map(|term| match (term.factors.as_slice(), term.coefficient < 0) {
            ([Atom::Min(x, y)], true) | ([Atom::Max(x, y)], false) => Some((term, x, y)),
            _ => None,
        });
        let Some((term, x, y)) = choice else { return false };
        let others = self - Dim::from_terms(vec![term.clone()], 0);
        [x, y].into_iter().any(|chosen| (&others + chosen * term.coefficient).is_nonnegative_with(choices))
    }

    /// Whether the two can be told apart for every binding of their symbols.
    pub fn surely_differs(&self, other: &Dim) -> bool {
        let d = self - other;
        d.as_int().is_some_and(|d| d != 0) || (&d - 1).is_nonnegative() || (-&d - 1).is_nonnegative()
    }
}

impl Atom {
    pub(super) fn is_nonnegative(&self) -> bool {
        self.is_nonnegative_with(MOST_CHOICES)
    }

    fn is_nonnegative_with(&self, choices: usize) -> bool {
        let [x, y] = match self {
            Atom::Symbol(symbol) => return symbol.is_nonnegative(),
            Atom::FloorDiv(x, y) | Atom::Mod(x, y) | Atom::Min(x, y) | Atom::Max(x, y) => {
                [x, y].map(|part| move || part.is_nonnegative_with(choices))
            }
        };
        match self {
            Atom::Mod(..) => y(),
            Atom::Max(..) => x() || y(),
            _ => x() && y(),
        }
    }
}

impl Symbol {
    /// Sizes and coordinates are never negative; an index read from data may be.
    fn is_nonnegative(&self) -> bool {
        !matches!(self, Symbol::Read(_))
    }
}
