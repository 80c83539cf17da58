//! Integer expressions over symbols: the sizes of tensors and the coordinates of index maps.
//!
//! A [`Dim`] is kept in one canonical form, a sum of products with integer coefficients
//! (`2*B*S + 3`), whose factors are symbols or the atoms `x // y`, `x % y`, `min`, `max`. Equal sums therefore compare
//! equal, which is how the rest of the compiler decides that two shapes agree. `ceildiv` is `(x + n - 1) // n`, or
//! `-(-x // y)` where the divisor is not a number.
//!
//! The same algebra serves index maps: there the symbols [`Symbol::Axis`] stand for the coordinates of the
//! iteration domain and [`Symbol::Read`] for an element of an index operand.

mod arithmetic;
mod bound;
mod form;
mod interpret;
mod parse;
mod print;
mod range;
mod sign;
mod simplify;

pub(crate) use bound::Bound;
pub use interpret::{Algebra, Env};
pub use range::{Range, Ranges};

use std::sync::{Arc, LazyLock};

use smallvec::{SmallVec, smallvec};

use crate::error::{Error, Result};

/// A name for an integer that is not known yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Symbol {
    /// a size that the caller's inputs bind, such as `batch`
    Name(Arc<str>),
    /// a size that a value computed at run time binds, such as the count of non-zero elements
    Value(u32),
    /// a coordinate of the iteration domain (only inside index maps)
    Axis(u8),
    /// the element that an index operand holds at the current coordinate (only inside index maps of Gather and Scatter)
    Read(u8),
}

impl Symbol {
    /// A named size.
    pub fn name(name: &str) -> Symbol {
        Symbol::Name(name.into())
    }
}

/// An integer expression in canonical form.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Dim(Repr);

#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Repr {
    Const(i64),
    /// Never without terms: a sum without terms is a `Const`.
    Sum(Arc<Sum>),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Sum {
    /// Sorted by their factors, each list of factors once, no coefficient 0.
    terms: Vec<Term>,
    constant: i64,
    /// Follows from the others; see [`Dim::complexity`].
    complexity: u32,
}

impl Sum {
    fn new(terms: Vec<Term>, constant: i64) -> Sum {
        let atom = |atom: &Atom| match atom {
            Atom::Symbol(_) => 1,
            Atom::FloorDiv(x, y) | Atom::Mod(x, y) | Atom::Min(x, y) | Atom::Max(x, y) => {
                let parts = [x, y].map(|part| part.complexity().max(1));
                1u32.saturating_add(parts[0]).saturating_add(parts[1])
            }
        };
        let mut complexity = u32::from(constant != 0);
        for term in &terms {
            let scaled = u32::from(term.coefficient != 1);
            complexity = term.factors.iter().map(atom).fold(complexity.saturating_add(scaled), u32::saturating_add);
        }
        Sum { terms, constant, complexity }
    }
}

/// Most terms are one atom and a coefficient.
type Factors = SmallVec<[Atom; 1]>;

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct Term {
    /// Sorted; a power is a repetition.
    factors: Factors,
    coefficient: i64,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Atom {
    Symbol(Symbol),
    FloorDiv(Dim, Dim),
    Mod(Dim, Dim),
    Min(Dim, Dim),
    Max(Dim, Dim),
}

impl Dim {
    /// The number `n`.
    pub const fn int(n: i64) -> Dim {
        Dim(Repr::Const(n))
    }

    /// The size called `name`.
    pub fn named(name: &str) -> Dim {
        Symbol::name(name).into()
    }

    /// Coordinate `axis` of the iteration domain. Ranks are limited to 64 when a tensor is made: those beyond are of a shape that is about to be refused.
    pub fn axis(axis: usize) -> Dim {
        Symbol::Axis(u8::try_from(axis).unwrap_or(u8::MAX)).into()
    }

    /// The number, when the expression is one.
    pub fn as_int(&self) -> Option<i64> {
        match &self.0 {
            Repr::Const(n) => Some(*n),
            Repr::Sum(_) => None,
        }
    }

    /// The symbol, when the expression is exactly one.
    pub fn as_symbol(&self) -> Option<&Symbol> {
        match self.as_atom()? {
            Atom::Symbol(symbol) => Some(symbol),
            _ => None,
        }
    }

    /// How much the expression says: 0 for a number, 1 for a symbol, more for every part of a larger one.
    pub fn complexity(&self) -> u32 {
        match &self.0 {
            Repr::Const(_) => 0,
            Repr::Sum(sum) => sum.complexity,
        }
    }

    /// How many terms the sum has: those of a product of sums are the product of theirs.
    pub fn summands(&self) -> usize {
        self.terms().len() + usize::from(self.constant() != 0)
    }

    /// Two expressions without negative coefficients whose difference this one is.
    pub fn sides(&self) -> (Dim, Dim) {
        let constant = self.constant();
        let above = self.map_terms(|t| (t.coefficient > 0).then_some(t.coefficient)) + constant.max(0);
        let below = self.map_terms(|t| (t.coefficient < 0).then_some(t.coefficient.saturating_neg()));
        (above, below + constant.min(0).saturating_neg())
    }

    /// Whether the expression is the number `n`.
    pub fn is(&self, n: i64) -> bool {
        self.as_int() == Some(n)
    }

    /// The largest integer not above `self / divisor`.
    pub fn floordiv(&self, divisor: &Dim) -> Dim {
        if divisor.is(1) {
            return self.clone();
        }
        if let (Some(a), Some(b)) = (self.as_int(), divisor.as_int())
            && b != 0
        {
            return Dim::int(floor_div(a, b));
        }
        let (quotient, rest) = self.split_multiples(divisor);
        if rest.is(0) {
            return quotient;
        }
        if !quotient.is(0) {
            return quotient + rest.floordiv(divisor);
        }
        if let Some(Atom::FloorDiv(x, y)) = (self - self.constant()).as_atom() {
            // floor((floor(x / y) + c) / d) = floor((x + c·y) / (y·d))
            return (x + y * self.constant()).floordiv(&(y * divisor));
        }
        if let Some(b) = divisor.as_int().filter(|b| *b > 1) {
            // floor((g·x + c) / (g·y)) = floor((x + floor(c / g)) / y)
            let g = self.terms().iter().fold(b, |g, t| gcd(g, t.coefficient));
            if g > 1 {
                let inner = self.map_terms(|t| Some(t.coefficient / g)) + floor_div(self.constant(), g);
                return inner.floordiv(&Dim::int(b / g));
            }
        }
        Atom::FloorDiv(self.clone(), divisor.clone()).into()
    }

    /// The smallest integer not below `self / divisor`.
    pub fn ceildiv(&self, divisor: &Dim) -> Dim {
        match divisor.as_int() {
            Some(n) if n > 0 => (self + (n - 1)).floordiv(divisor),
            _ => -(-self).floordiv(divisor),
        }
    }

    /// `self - divisor * floordiv(self, divisor)`: in `0..divisor` for a positive divisor.
    pub fn modulo(&self, divisor: &Dim) -> Dim {
        if divisor.is(1) {
            return Dim::int(0);
        }
        let (_, rest) = self.split_multiples(divisor);
        if let (Some(a), Some(b)) = (rest.as_int(), divisor.as_int())
            && b != 0
        {
            return Dim::int(floor_mod(a, b));
        }
        if rest.is(0) {
            return rest;
        }
        if let Some(Atom::Mod(x, y)) = rest.as_atom()
            && y.split_multiples(divisor).1.is(0)
        {
            return x.modulo(divisor);
        }
        Atom::Mod(rest, divisor.clone()).into()
    }

    /// The smaller of two.
    pub fn min_with(&self, other: &Dim) -> Dim {
        if (self - other).is_nonnegative() {
            return other.clone();
        }
        if (other - self).is_nonnegative() {
            return self.clone();
        }
        // min(a, min(x, y)) = min(x, y) where a ≥ x
        for (a, nested) in [(self, other), (other, self)] {
            if let Some(Atom::Min(x, y)) = nested.as_atom()
                && [x, y].iter().any(|part| (a - *part).is_nonnegative())
            {
                return nested.clone();
            }
        }
        let (a, b) = if self < other { (self, other) } else { (other, self) };
        Atom::Min(a.clone(), b.clone()).into()
    }

    /// The larger of two.
    pub fn max_with(&self, other: &Dim) -> Dim {
        if (self - other).is_nonnegative() {
            return self.clone();
        }
        if (other - self).is_nonnegative() {
            return other.clone();
        }
        // max(a, max(x, y)) = max(x, y) where a ≤ x
        for (a, nested) in [(self, other), (other, self)] {
            if let Some(Atom::Max(x, y)) = nested.as_atom()
                && [x, y].iter().any(|part| (*part - a).is_nonnegative())
            {
                return nested.clone();
            }
        }
        let (a, b) = if self < other { (self, other) } else { (other, self) };
        Atom::Max(a.clone(), b.clone()).into()
    }

    /// Calls `f` with every symbol that occurs.
    pub fn for_each_symbol(&self, f: &mut dyn FnMut(&Symbol)) {
        for atom in self.terms().iter().flat_map(|t| &t.factors) {
            match atom {
                Atom::Symbol(symbol) => f(symbol),
                Atom::FloorDiv(x, y) | Atom::Mod(x, y) | Atom::Min(x, y) | Atom::Max(x, y) => {
                    x.for_each_symbol(f);
                    y.for_each_symbol(f);
                }
            }
        }
    }

    /// Whether some symbol satisfies `predicate`.
    pub fn mentions(&self, predicate: impl Fn(&Symbol) -> bool) -> bool {
        let mut found = false;
        self.for_each_symbol(&mut |s| found |= predicate(s));
        found
    }

    /// The expression with symbols replaced; `None` keeps a symbol.
    pub fn substitute(&self, replace: &dyn Fn(&Symbol) -> Option<Dim>) -> Dim {
        self.rebuild(&mut |atom| match atom {
            Atom::Symbol(symbol) => replace(symbol).unwrap_or_else(|| symbol.clone().into()),
            Atom::FloorDiv(x, y) => x.substitute(replace).floordiv(&y.substitute(replace)),
            Atom::Mod(x, y) => x.substitute(replace).modulo(&y.substitute(replace)),
            Atom::Min(x, y) => x.substitute(replace).min_with(&y.substitute(replace)),
            Atom::Max(x, y) => x.substitute(replace).max_with(&y.substitute(replace)),
        })
    }

    /// The expression with no divisor below 1: the same wherever it could be computed before, and some number elsewhere.
    /// For what is computed though nobody looks at it, such as coordinates in a tensor without elements.
    pub fn total(&self) -> Dim {
        let divisor = |y: &Dim| y.total().max_with(&Dim::int(1));
        self.rebuild(&mut |atom| match atom {
            Atom::Symbol(symbol) => symbol.clone().into(),
            Atom::FloorDiv(x, y) => x.total().floordiv(&divisor(y)),
            Atom::Mod(x, y) => x.total().modulo(&divisor(y)),
            Atom::Min(x, y) => x.total().min_with(&y.total()),
            Atom::Max(x, y) => x.total().max_with(&y.total()),
        })
    }

    /// The value under a binding of the symbols.
    pub fn eval(&self, env: &Env) -> Result<i64> {
        self.eval_with(&|symbol| env.get(symbol))
    }

    /// The value under a binding given as a function.
    pub fn eval_with(&self, lookup: &dyn Fn(&Symbol) -> Option<i64>) -> Result<i64> {
        let overflow = || Error::limit(format!("the size {self} does not fit into 64 bits"));
        let mut total = self.constant();
        for term in self.terms() {
            let mut product = term.coefficient;
            for atom in &term.factors {
                let value = match atom {
                    Atom::Symbol(symbol) => {
                        lookup(symbol).ok_or_else(|| Error::invalid(format!("the size {symbol} has no value")))?
                    }
                    Atom::FloorDiv(x, y) | Atom::Mod(x, y) => {
                        let (x, y) = (x.eval_with(lookup)?, y.eval_with(lookup)?);
                        if y == 0 {
                            return Err(Error::invalid(format!("division by zero in the size {self}")));
                        }
                        if matches!(atom, Atom::FloorDiv(..)) { floor_div(x, y) } else { floor_mod(x, y) }
                    }
                    Atom::Min(x, y) => x.eval_with(lookup)?.min(y.eval_with(lookup)?),
                    Atom::Max(x, y) => x.eval_with(lookup)?.max(y.eval_with(lookup)?),
                };
                product = product.checked_mul(value).ok_or_else(overflow)?;
            }
            total = total.checked_add(product).ok_or_else(overflow)?;
        }
        Ok(total)
    }

    fn terms(&self) -> &[Term] {
        match &self.0 {
            Repr::Const(_) => &[],
            Repr::Sum(sum) => &sum.terms,
        }
    }

    fn constant(&self) -> i64 {
        match &self.0 {
            Repr::Const(n) => *n,
            Repr::Sum(sum) => sum.constant,
        }
    }

    fn as_atom(&self) -> Option<&Atom> {
        match self.terms() {
            [Term { factors, coefficient: 1 }] if self.constant() == 0 && factors.len() == 1 => Some(&factors[0]),
            _ => None,
        }
    }

    /// `self = divisor * quotient + rest`, where the quotient collects the terms that are visibly multiples.
    fn split_multiples(&self, divisor: &Dim) -> (Dim, Dim) {
        let (coefficient, factors): (i64, &[Atom]) = match &divisor.0 {
            Repr::Const(0) => return (Dim::int(0), self.clone()),
            Repr::Const(n) => (*n, &[]),
            Repr::Sum(sum) => match sum.terms.as_slice() {
                [term] if sum.constant == 0 => (term.coefficient, &term.factors),
                _ if self == divisor => return (Dim::int(1), Dim::int(0)),
                _ => return (Dim::int(0), self.clone()),
            },
        };
        let mut quotient = Vec::new();
        let mut rest = Vec::new();
        for term in self.terms() {
            match (term.coefficient.wrapping_rem(coefficient) == 0).then(|| without(&term.factors, factors)).flatten() {
                Some(left) => {
                    quotient.push(Term { factors: left, coefficient: term.coefficient.wrapping_div(coefficient) })
                }
                None => rest.push(term.clone()),
            }
        }
        let (mut whole, mut constant) = (0, self.constant());
        if factors.is_empty() {
            whole = floor_div(constant, coefficient);
            constant = floor_mod(constant, coefficient);
        }
        (Dim::from_terms(quotient, whole), Dim::from_terms(rest, constant))
    }

    fn map_terms(&self, mut coefficient: impl FnMut(&Term) -> Option<i64>) -> Dim {
        let terms = self.terms().iter().filter_map(|t| Some(Term { coefficient: coefficient(t)?, ..t.clone() }));
        Dim::from_terms(terms.collect(), 0)
    }

    fn rebuild(&self, replace: &mut dyn FnMut(&Atom) -> Dim) -> Dim {
        let (mut terms, mut constant) = (Vec::with_capacity(self.terms().len()), self.constant());
        for term in self.terms() {
            let product = term.factors.iter().fold(Dim::int(term.coefficient), |p, atom| p * replace(atom));
            terms.extend_from_slice(product.terms());
            constant = constant.saturating_add(product.constant());
        }
        Dim::from_terms(terms, constant)
    }

    fn from_terms(mut terms: Vec<Term>, mut constant: i64) -> Dim {
        let is_canonical = |t: &[Term]| t[0].factors < t[1].factors;
        if terms.windows(2).all(is_canonical) && terms.iter().all(|t| t.coefficient != 0 && !t.factors.is_empty()) {
            return Dim::of_sum(terms, constant);
        }
        terms.sort();
        let mut merged: Vec<Term> = Vec::with_capacity(terms.len());
        for term in terms {
            if term.factors.is_empty() {
                constant = constant.saturating_add(term.coefficient);
                continue;
            }
            match merged.last_mut() {
                Some(last) if last.factors == term.factors => {
                    last.coefficient = last.coefficient.saturating_add(term.coefficient);
                }
                _ => merged.push(term),
            }
        }
        merged.retain(|t| t.coefficient != 0);
        Dim::of_sum(merged, constant)
    }

    /// The sum of terms in their canonical form.
    fn of_sum(terms: Vec<Term>, constant: i64) -> Dim {
        if terms.is_empty() { Dim::int(constant) } else { Dim(Repr::Sum(Arc::new(Sum::new(terms, constant)))) }
    }
}

impl Atom {
    fn mentions_axis(&self) -> bool {
        Dim::from(self.clone()).mentions(|s| matches!(s, Symbol::Axis(_)))
    }
}

impl From<Atom> for Dim {
    fn from(atom: Atom) -> Dim {
        Dim::from_terms(vec![Term { factors: smallvec![atom], coefficient: 1 }], 0)
    }
}

/// The first axes, made once: few expressions mention any other symbol, and every index map begins with them.
static AXES: LazyLock<[Dim; 8]> = LazyLock::new(|| std::array::from_fn(|k| Atom::Symbol(Symbol::Axis(k as u8)).into()));

impl From<Symbol> for Dim {
    fn from(symbol: Symbol) -> Dim {
        match symbol {
            Symbol::Axis(k) if usize::from(k) < AXES.len() => AXES[usize::from(k)].clone(),
            other => Atom::Symbol(other).into(),
        }
    }
}

impl From<i64> for Dim {
    fn from(n: i64) -> Dim {
        Dim::int(n)
    }
}

impl From<usize> for Dim {
    fn from(n: usize) -> Dim {
        Dim::int(i64::try_from(n).unwrap_or(i64::MAX))
    }
}

/// The smaller of two positive numbers, if it divides the larger.
pub(crate) fn inner_divisor(a: i64, b: i64) -> Option<i64> {
    let (small, large) = (a.min(b), a.max(b));
    (large % small == 0).then_some(small)
}

fn floor_div(a: i64, b: i64) -> i64 {
    let quotient = a.wrapping_div(b);
    if a.wrapping_rem(b) != 0 && (a < 0) != (b < 0) { quotient - 1 } else { quotient }
}

fn floor_mod(a: i64, b: i64) -> i64 {
    let rest = a.wrapping_rem(b);
    if rest != 0 && (rest < 0) != (b < 0) { rest + b } else { rest }
}

/// The greatest common divisor of a positive number and another.
pub fn gcd(a: i64, b: i64) -> i64 {
    let (mut x, mut y) = (a, (b % a).abs());
    while y != 0 {
        (x, y) = (y, x % y);
    }
    x
}

/// The sorted list `all` without the elements of `some`, or `None` if one is missing.
fn without(all: &[Atom], some: &[Atom]) -> Option<Factors> {
    let mut left: Factors = all.into();
    for atom in some {
        let at = left.iter().position(|a| a == atom)?;
        left.remove(at);
    }
    Some(left)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn named(s: &str) -> Dim {
        Dim::named(s)
    }

    #[test]
    fn sums_have_one_form() {
        let (a, b) = (named("a"), named("b"));
        assert_eq!((&a + &b) * (&a - &b), &a * &a - &b * &b);
        assert_eq!((&a + 3) - &a, Dim::int(3));
        assert_eq!(format!("{}", (&a * 2 + &b * &a - 7) * 3), "6*a + 3*a*b - 21");
    }

    #[test]
    fn division_takes_out_multiples() {
        let (b, s) = (named("b"), named("s"));
        assert_eq!((&b * &s * 768).floordiv(&Dim::int(64)), &b * &s * 12);
        assert_eq!((&b * &s * 768).floordiv(&(&s * 12)), &b * 64);
        assert_eq!((&b * 4 + 6).floordiv(&Dim::int(4)), &b + 1);
        assert_eq!((&b * 4 + 6).modulo(&Dim::int(4)), Dim::int(2));
        assert_eq!((&b * 6 + 3).floordiv(&Dim::int(4)).to_string(), "(3*b + 1) // 2");
        assert_eq!((&b * 2 + 3).floordiv(&Dim::int(4)).to_string(), "(b + 1) // 2");
        assert_eq!((&s + 1).ceildiv(&Dim::int(1)), &s + 1);
    }

    #[test]
    fn coordinates_fold_back_through_a_reshape() {
        let (b, s) = (named("b"), named("s"));
        let extents = [b.clone(), s.clone(), Dim::int(12), Dim::int(64)];
        let flat = Dim::axis(0) * &s * 768 + Dim::axis(1) * 768 + Dim::axis(2) * 64 + Dim::axis(3);
        let ranges = Ranges::of(&extents);
        let axis0 = flat.floordiv(&(&s * 768)).simplify(&ranges);
        let axis1 = flat.floordiv(&Dim::int(768)).modulo(&s).simplify(&ranges);
        assert_eq!(axis0, Dim::axis(0));
        assert_eq!(axis1, Dim::axis(1));
        assert_eq!(flat.modulo(&Dim::int(768)).simplify(&ranges), Dim::axis(2) * 64 + Dim::axis(3));
    }

    #[test]
    fn quotient_and_remainder_of_one_division_meet_again() {
        let (i, s) = (Dim::axis(0), named("s"));
        let none = Ranges::of(&[]);
        let low = i.modulo(&Dim::int(3));
        assert_eq!((i.floordiv(&Dim::int(3)) * 3 + &low).simplify(&none), i);
        let middle = i.floordiv(&Dim::int(3)).modulo(&s);
        assert_eq!((&middle * 3 + &low).simplify(&none), i.modulo(&(&s * 3)));
        let all = i.floordiv(&(&s * 3)) * &s * 6 + middle * 6 + low * 2;
        assert_eq!(all.simplify(&none), i * 2);
    }

    #[test]
    fn expressions_are_ordered_by_what_they_say() {
        let (p, s) = (named("p"), named("s"));
        let ascending = [Dim::int(7), s.clone(), &s + 1, &p + &s, (&p + &s).min_with(&Dim::int(32))];
        assert!(ascending.windows(2).all(|w| w[0].complexity() <= w[1].complexity()));
        assert!(s.complexity() < (&s * 2).complexity() && (&p + &s).complexity() < ascending[4].complexity());
    }

    #[test]
    fn many_minima_do_not_take_forever() {
        let cut = |k: usize| named(&format!("a{k}")).min_with(&named(&format!("b{k}")));
        let sum: Dim = (0..64).map(cut).sum();
        assert!(!(named("n") - &sum).is_nonnegative());
        assert!((&sum + 1).surely_differs(&sum));
        assert!(sum.complexity() >= 64 && sum.summands() == 64);
    }

    #[test]
    fn evaluation_is_checked() {
        let n = named("n");
        let env: Env = [(Symbol::name("n"), i64::MAX)].into_iter().collect();
        assert!((&n * 2).eval(&env).is_err());
        assert!(Dim::int(4).floordiv(&(&n - i64::MAX)).eval(&env).is_err());
        assert_eq!((-&n).floordiv(&Dim::int(2)).eval(&[(Symbol::name("n"), 5)].into_iter().collect()).unwrap(), -3);
    }

    #[test]
    fn order_is_decided_where_the_form_shows_it() {
        let n = named("n");
        assert_eq!((&n + 1).max_with(&n), &n + 1);
        assert_eq!(n.min_with(&Dim::int(0)), Dim::int(0));
        let (low, high) = (n.min_with(&Dim::int(512)), n.max_with(&Dim::int(2)));
        assert_eq!(low.min_with(&Dim::int(600)), low);
        assert_eq!((&n + 1).min_with(&low), low);
        assert_eq!(Dim::int(1).max_with(&high), high);
        assert_eq!(high.max_with(&n), high);
        assert_ne!(low.min_with(&Dim::int(500)), low);
        assert!((&n + 1).surely_differs(&Dim::int(0)));
        assert!(!n.surely_differs(&Dim::int(0)));
        let cut = n.min_with(&Dim::int(512));
        assert!((Dim::int(512) - &cut).is_nonnegative() && (&n - &cut).is_nonnegative());
        assert!(!(Dim::int(511) - &cut).is_nonnegative());
        assert!((n.max_with(&Dim::int(3)) - 3).is_nonnegative());
    }
}
