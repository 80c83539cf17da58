//! What is known of an expression when its axes stay inside their extents.

use super::{Atom, Dim, Symbol};

/// Smallest and largest value of an expression, both included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Range {
    /// the smallest value
    pub low: Dim,
    /// the largest value
    pub high: Dim,
}

/// The ranges of the axes: axis `k` runs over `0..extents[k]`.
#[derive(Clone, Copy, Debug)]
pub struct Ranges<'a> {
    extents: &'a [Dim],
}

impl<'a> Ranges<'a> {
    /// The ranges of the coordinates of a domain.
    pub fn of(extents: &'a [Dim]) -> Ranges<'a> {
        Ranges { extents }
    }

    pub(super) fn extent(&self, axis: u8) -> Option<&'a Dim> {
        self.extents.get(usize::from(axis))
    }

    /// Whether `0 <= dim < bound` is certain.
    pub fn is_below(&self, dim: &Dim, bound: &Dim) -> bool {
        self.bounds(dim).is_some_and(|r| r.low.is_nonnegative() && (bound - 1 - r.high).is_nonnegative())
    }

    /// Whether `dim <= other` is certain.
    pub fn is_at_most(&self, dim: &Dim, other: &Dim) -> bool {
        self.bounds(&(other - dim)).is_some_and(|r| r.low.is_nonnegative())
    }

    /// Bounds of an expression; `None` when they are not known.
    pub fn bounds(&self, dim: &Dim) -> Option<Range> {
        let (mut low, mut high) = (Dim::int(dim.constant()), Dim::int(dim.constant()));
        for term in dim.terms() {
            let mut varying = None;
            let mut fixed = Dim::int(term.coefficient);
            let mut fixed_is_nonnegative = true;
            for atom in &term.factors {
                if atom.mentions_axis() {
                    if varying.replace(self.atom_bounds(atom)?).is_some() {
                        return None;
                    }
                } else {
                    fixed_is_nonnegative &= atom.is_nonnegative();
                    fixed = fixed * Dim::from(atom.clone());
                }
            }
            let Some(range) = varying else {
                low = low + &fixed;
                high = high + fixed;
                continue;
            };
            if !fixed_is_nonnegative {
                return None;
            }
            let (a, b) = (&fixed * range.low, &fixed * range.high);
            let (a, b) = if term.coefficient > 0 { (a, b) } else { (b, a) };
            low = low + a;
            high = high + b;
        }
        Some(Range { low, high })
    }

    fn atom_bounds(&self, atom: &Atom) -> Option<Range> {
        match atom {
            Atom::Symbol(Symbol::Axis(axis)) => Some(Range { low: Dim::int(0), high: self.extent(*axis)? - 1 }),
            Atom::Symbol(_) => None,
            Atom::FloorDiv(x, y) if y.is_nonnegative() => {
                let range = self.bounds(x)?;
                Some(Range { low: range.low.floordiv(y), high: range.high.floordiv(y) })
            }
            Atom::Mod(_, y) if y.is_nonnegative() => Some(Range { low: Dim::int(0), high: y - 1 }),
            Atom::Min(x, y) => {
                let (x, y) = (self.bounds(x)?, self.bounds(y)?);
                Some(Range { low: x.low.min_with(&y.low), high: x.high.min_with(&y.high) })
            }
            Atom::Max(x, y) => {
                let (x, y) = (self.bounds(x)?, self.bounds(y)?);
                Some(Range { low: x.low.max_with(&y.low), high: x.high.max_with(&y.high) })
            }
            Atom::FloorDiv(..) | Atom::Mod(..) => None,
        }
    }
}
