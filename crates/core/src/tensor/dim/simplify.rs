//! What an expression is when its axes stay inside their extents.

use super::{Atom, Dim, Factors, Ranges, Repr, Symbol, Term, gcd};

/// `unit * count + rest`, with `rest` in `0..unit`, beside a divisor `unit * of`.
struct Units {
    unit: Dim,
    count: Dim,
    of: Dim,
    rest: Dim,
}

impl Dim {
    /// The expression simplified under the knowledge that every axis stays inside its range:
    /// `(i*S + j) // S` becomes `i` where `j` runs over `0..S`.
    pub fn simplify(&self, ranges: &Ranges<'_>) -> Dim {
        if self.is_polynomial_over(ranges) {
            return self.clone();
        }
        let simplified = self.rebuild(&mut |atom| match atom {
            Atom::Symbol(symbol) => match symbol {
                // An axis of extent one has only the coordinate 0.
                Symbol::Axis(axis) if ranges.extent(*axis).is_some_and(|e| e.is(1)) => Dim::int(0),
                _ => symbol.clone().into(),
            },
            Atom::FloorDiv(x, y) => {
                let (x, y) = (x.simplify(ranges), y.simplify(ranges));
                let (quotient, rest) = x.split_multiples(&y);
                match x.in_units(&y, ranges) {
                    _ if ranges.is_below(&rest, &y) => quotient,
                    Some(Units { count, of, .. }) => count.floordiv(&of).simplify(ranges),
                    None => x.floordiv(&y),
                }
            }
            Atom::Mod(x, y) => {
                let (x, y) = (x.simplify(ranges), y.simplify(ranges));
                let (_, rest) = x.split_multiples(&y);
                match x.in_units(&y, ranges) {
                    _ if ranges.is_below(&rest, &y) => rest,
                    Some(Units { unit, count, of, rest }) => (unit * count.modulo(&of)).simplify(ranges) + rest,
                    None => x.modulo(&y),
                }
            }
            Atom::Min(x, y) | Atom::Max(x, y) => {
                let (x, y) = (x.simplify(ranges), y.simplify(ranges));
                let (x, y) = if ranges.is_at_most(&y, &x) { (y, x) } else { (x, y) };
                let ordered = ranges.is_at_most(&x, &y);
                match atom {
                    Atom::Min(..) if ordered => x,
                    Atom::Min(..) => x.min_with(&y),
                    _ if ordered => y,
                    _ => x.max_with(&y),
                }
            }
        });
        let recombined = simplified.recombined();
        recombined.turned(ranges).unwrap_or(recombined)
    }

    /// Whether there is nothing to simplify: no quotients, remainders, minima and maxima, and no axis of one element.
    fn is_polynomial_over(&self, ranges: &Ranges<'_>) -> bool {
        let mut atoms = self.terms().iter().flat_map(|term| &term.factors);
        atoms.all(|atom| match atom {
            Atom::Symbol(Symbol::Axis(axis)) => !ranges.extent(*axis).is_some_and(|extent| extent.is(1)),
            Atom::Symbol(_) => true,
            _ => false,
        })
    }

    /// The expression in units that a divisor is a multiple of, where what is left over is less than a unit: so a quotient by
    /// `8*s` of `s*i + j`, with `j` in `0..s`, is one by 8 of `i`.
    fn in_units(&self, divisor: &Dim, ranges: &Ranges<'_>) -> Option<Units> {
        let whole = divisor.as_product()?;
        self.terms().iter().find_map(|term| {
            let coefficient = gcd(term.coefficient, whole.coefficient);
            let factors = shared(&term.factors, &whole.factors);
            let unit = Dim::from_terms(vec![Term { factors, coefficient }], 0);
            let (of, nothing) = divisor.split_multiples(&unit);
            let (count, rest) = self.split_multiples(&unit);
            let found = !unit.is(1) && !of.is(1) && nothing.is(0) && ranges.is_below(&rest, &unit);
            found.then_some(Units { unit, count, of, rest })
        })
    }

    /// The only term of a product.
    fn as_product(&self) -> Option<Term> {
        match (&self.0, self.terms()) {
            (Repr::Const(n), _) if *n > 0 => Some(Term { factors: Factors::new(), coefficient: *n }),
            (Repr::Sum(_), [term]) if self.constant() == 0 && term.coefficient > 0 => Some(term.clone()),
            _ => None,
        }
    }

    /// Two halves in the other order: `x % y - y*(x // y) + y` is `(x + y) % (2*y)` for `x` in `0..2*y`.
    fn turned(&self, ranges: &Ranges<'_>) -> Option<Dim> {
        self.terms().iter().find_map(|term| {
            let ([Atom::Mod(x, y)], 1) = (term.factors.as_slice(), term.coefficient) else { return None };
            let halves = x.modulo(y) - y * x.floordiv(y) + y;
            let rest = self - halves;
            let fits = rest.terms().len() + 2 <= self.terms().len() && ranges.is_below(x, &(y * 2));
            fits.then(|| (x + y).modulo(&(y * 2)) + rest)
        })
    }

    /// Quotients and remainders of one division put together again: `y*(x // y) + x % y` is `x`, and
    /// `a*((x // a) % b) + x % a` is `x % (a*b)`.
    fn recombined(self) -> Dim {
        let mut sum = self;
        while let Some(shorter) = sum.recombine_once() {
            sum = shorter;
        }
        sum
    }

    fn recombine_once(&self) -> Option<Dim> {
        let remainders = |dim: &Dim| -> Vec<(Dim, Dim, Dim)> {
            let mut found = Vec::new();
            for term in dim.terms() {
                for (k, atom) in term.factors.iter().enumerate() {
                    if let Atom::Mod(x, y) = atom {
                        let mut factors = term.factors.clone();
                        factors.remove(k);
                        let times = Dim::from_terms(vec![Term { factors, coefficient: term.coefficient }], 0);
                        found.push((x.clone(), y.clone(), times));
                    }
                }
            }
            found
        };
        let all = remainders(self);
        for (x, y, times) in &all {
            let quotient = x.floordiv(y);
            let without = self - times * x.modulo(y);
            let whole = &without - times * y * &quotient + times * x;
            if whole.terms().len() < self.terms().len() {
                return Some(whole);
            }
            for (_, b, _) in all.iter().filter(|(q, _, _)| *q == quotient) {
                let joined = &without - times * y * quotient.modulo(b) + times * x.modulo(&(y * b));
                if joined.terms().len() < self.terms().len() {
                    return Some(joined);
                }
            }
        }
        None
    }

    /// An expression that is nonnegative exactly where this one is, without a quotient by a number as a term: `c - x // 4` is
    /// nonnegative where `4*c + 3 - x` is.
    pub fn with_same_sign(&self) -> Dim {
        let by_number = |term: &Term| match (term.factors.as_slice(), term.coefficient) {
            ([Atom::FloorDiv(x, y)], 1 | -1) => y.as_int().filter(|n| *n > 0).map(|n| (x.clone(), n)),
            _ => None,
        };
        let found = self.terms().iter().find_map(|term| Some((term, by_number(term)?)));
        let Some((term, (x, n))) = found else { return self.clone() };
        let rest = self - Dim::from_terms(vec![term.clone()], 0);
        let sign = if term.coefficient > 0 { rest * n + x } else { rest * n + (n - 1) - x };
        sign.with_same_sign()
    }
}

/// The factors that two sorted lists have in common.
fn shared(a: &[Atom], b: &[Atom]) -> Factors {
    let mut left = b.to_vec();
    let is_in = |atom: &&Atom| match left.iter().position(|other| other == *atom) {
        Some(k) => {
            left.remove(k);
            true
        }
        None => false,
    };
    a.iter().filter(is_in).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn simplified(text: &str, extents: &[&str]) -> String {
        let extents: Vec<Dim> = extents.iter().map(|e| Dim::parse(e).unwrap()).collect();
        let dim = Dim::parse(text).unwrap();
        let simple = dim.simplify(&Ranges::of(&extents));
        for (i, j) in (0..6).flat_map(|i| (0..6).map(move |j| (i, j))) {
            let size = |s: &Symbol| (*s == Symbol::name("s")).then_some(3);
            let at = |s: &Symbol| {
                size(s).or(match s {
                    Symbol::Axis(0) => Some(i),
                    Symbol::Axis(1) => Some(j),
                    _ => None,
                })
            };
            let inside = |(k, x): (usize, i64)| extents.get(k).is_none_or(|e| x < e.eval_with(&size).unwrap());
            if [(0, i), (1, j)].into_iter().all(inside) {
                assert_eq!(dim.eval_with(&at).unwrap(), simple.eval_with(&at).unwrap(), "{dim} at {i}, {j}: {simple}");
            }
        }
        simple.to_string()
    }

    #[test]
    fn quotients_and_remainders_are_taken_in_units() {
        assert_eq!(simplified("(s*i0 + i1) // (8*s)", &["32", "s"]), "i0 // 8");
        assert_eq!(simplified("((s*i0 + i1) % (8*s)) // s", &["32", "s"]), "i0 % 8");
        assert_eq!(simplified("(4*i0 + i1) % 32", &["64", "4"]), "i1 + 4*(i0 % 8)");
        assert_eq!(simplified("(4*i0 + i1) // 32", &["8", "4"]), "0");
        assert_eq!(simplified("(4*i0 + i1) // 32", &["64", "5"]), "(4*i0 + i1) // 32");
    }

    #[test]
    fn halves_in_the_other_order_are_turned() {
        assert_eq!(simplified("i0 % 3 - 3*(i0 // 3) + 3", &["6"]), "(i0 + 3) % 6");
        assert_eq!(simplified("i0 % 3 - 3*(i0 // 3) + i1 + 4", &["6", "2"]), "i1 + (i0 + 3) % 6 + 1");
        assert_eq!(simplified("i0 % 3 - 3*(i0 // 3) + 6", &["9"]), "i0 % 3 - 3*(i0 // 3) + 6", "three parts");
    }

    #[test]
    fn a_sign_needs_no_quotient() {
        let sign = |text: &str| Dim::parse(text).unwrap().with_same_sign().to_string();
        assert_eq!(sign("1 - i0 // 4"), "7 - i0");
        assert_eq!(sign("i0 // 4 - 2"), "i0 - 8");
        assert_eq!(sign("i1 - i0 // 4"), "4*i1 - i0 + 3");
        for (text, axis) in [("1 - i0 // 4", 0), ("i0 // 4 - 2", 0), ("(i0 + 1) // 3 - 2", 0)] {
            let dim = Dim::parse(text).unwrap();
            for i in -20..20 {
                let at = |s: &Symbol| (*s == Symbol::Axis(axis)).then_some(i);
                let signs = [&dim, &dim.with_same_sign()].map(|d| d.eval_with(&at).unwrap() >= 0);
                assert_eq!(signs[0], signs[1], "{text} at {i}");
            }
        }
    }
}
