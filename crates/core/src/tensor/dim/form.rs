//! Forms in which the rest of the compiler reads an expression: apart by axis or by sign, as a stride, as quotients of an axis.

use super::{Atom, Dim, Symbol, Term, inner_divisor};

impl Dim {
    /// The expression as a sum of parts that each mention one axis only: a part per axis (of `rank`), then the rest.
    /// `None` when one term mentions several axes or an axis beyond the rank.
    pub fn separate(&self, rank: usize) -> Option<(Vec<Dim>, Dim)> {
        let mut parts = vec![Dim::int(0); rank];
        let mut rest = Dim::int(self.constant());
        for term in self.terms() {
            let part = Dim::from_terms(vec![term.clone()], 0);
            let mut axis = None;
            let mut single = true;
            part.for_each_symbol(&mut |s| {
                if let Symbol::Axis(a) = s {
                    single &= axis.replace(*a).is_none_or(|old| old == *a);
                }
            });
            match axis {
                Some(_) if !single => return None,
                Some(a) => {
                    let slot = parts.get_mut(usize::from(a))?;
                    *slot = &*slot + part;
                }
                None => rest = rest + part,
            }
        }
        Some((parts, rest))
    }

    /// The terms that are added and the terms that are subtracted, as two sums without a negative coefficient: their
    /// difference is the expression.
    pub fn by_sign(&self) -> (Dim, Dim) {
        let part = |sign: i64| {
            let terms = self.terms().iter().filter(|t| t.coefficient.signum() == sign);
            let terms = terms.map(|t| Term { coefficient: t.coefficient.saturating_mul(sign), ..t.clone() });
            Dim::from_terms(terms.collect(), self.constant().saturating_mul(sign).max(0))
        };
        (part(1), part(-1))
    }

    /// The coefficient `c` when the expression is `c * axis` with a constant `c`.
    pub fn as_stride(&self, axis: usize) -> Option<i64> {
        match self.terms() {
            [] => (self.constant() == 0).then_some(0),
            [Term { factors, coefficient }] if self.constant() == 0 => match factors.as_slice() {
                [Atom::Symbol(Symbol::Axis(a))] if usize::from(*a) == axis => Some(*coefficient),
                _ => None,
            },
            _ => None,
        }
    }

    /// The expression `x` and the constant `c` when the expression is `x // c`.
    pub fn as_quotient(&self) -> Option<(&Dim, i64)> {
        match self.as_atom()? {
            Atom::FloorDiv(x, by) => Some((x, by.as_int()?)),
            _ => None,
        }
    }

    /// The constant `c` when the axis occurs, and only ever as `axis // c` or `axis % c`.
    pub fn divisor_of(&self, axis: usize) -> Option<i64> {
        let symbol = Symbol::Axis(axis as u8);
        let mut divisor = None;
        for atom in self.terms().iter().flat_map(|t| &t.factors) {
            if !Dim::from(atom.clone()).mentions(|s| *s == symbol) {
                continue;
            }
            let found = match atom {
                Atom::FloorDiv(x, y) | Atom::Mod(x, y) if x.as_symbol() == Some(&symbol) => y.as_int()?,
                _ => return None,
            };
            if divisor.replace(found).is_some_and(|old| old != found) {
                return None;
            }
        }
        divisor
    }

    /// The constant `c` when the axis occurs, and only ever by what `axis // c` and `axis % c` are: as quotients by multiples of `c`, remainders of
    /// divisions by them, or a digit between two of them.
    pub fn least_divisor_of(&self, axis: usize) -> Option<i64> {
        let symbol = Symbol::Axis(axis as u8);
        let is_digit = |x: &Dim, by: i64| match x.as_atom() {
            Some(Atom::Mod(x, y)) => x.as_symbol() == Some(&symbol) && y.as_int().is_some_and(|y| y % by == 0),
            _ => false,
        };
        let mut divisor: Option<i64> = None;
        for atom in self.terms().iter().flat_map(|t| &t.factors) {
            if !Dim::from(atom.clone()).mentions(|s| *s == symbol) {
                continue;
            }
            let (Atom::FloorDiv(x, y) | Atom::Mod(x, y)) = atom else { return None };
            let found = y.as_int().filter(|by| *by > 0)?;
            if x.as_symbol() != Some(&symbol) && !is_digit(x, found) {
                return None;
            }
            divisor = Some(divisor.map_or(Some(found), |old| inner_divisor(old, found))?);
        }
        divisor
    }

    /// Calls `f` with the size of the inner part of an axis wherever the expression takes quotient or remainder of it.
    pub fn for_each_cut(&self, axis: usize, f: &mut dyn FnMut(Dim)) {
        let is_axis = |x: &Dim| *x == Dim::axis(axis);
        for atom in self.terms().iter().flat_map(|t| &t.factors) {
            if let Atom::FloorDiv(x, y) | Atom::Mod(x, y) = atom {
                match x.as_atom() {
                    _ if is_axis(x) => f(y.clone()),
                    Some(Atom::FloorDiv(x, inner)) if is_axis(x) && matches!(atom, Atom::Mod(..)) => f(y * inner),
                    _ => {}
                }
                x.for_each_cut(axis, f);
                y.for_each_cut(axis, f);
            }
        }
    }
}
