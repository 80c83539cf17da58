//! Products of powers: what a real term is, and how it is written.

use std::cmp::Ordering;
use std::rc::Rc;

use smallvec::SmallVec;

use super::number::{computed, is_same, read_back};
use super::{Normalizer, Numerics};
use crate::ops::range::is_normal;
use crate::ops::{Number, Scalar, Scope, Term};
use crate::tensor::{DType, gcd};

/// A base and its exponent, which is not 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Factor<'s> {
    pub(super) base: Term<'s>,
    pub(super) exponent: i32,
}

/// `coefficient · Π base^exponent`. Factors are sorted; a base occurs at most once above and once below the line.
#[derive(Clone, Debug)]
pub(super) struct Product<'s> {
    pub(super) dtype: DType,
    /// finite; a normal number of the type, or 0, where there are factors
    pub(super) coefficient: f64,
    pub(super) factors: SmallVec<[Factor<'s>; 2]>,
}

/// Powers beyond this are products of powers, each a base of its own.
const MOST_EXPONENT: i32 = 1 << 10;

/// A product of more factors than this is a base of its own.
const MOST_FACTORS: usize = 64;

impl<'s> Product<'s> {
    /// A number; an atom where it is none.
    pub(super) fn constant(scope: &'s Scope, dtype: DType, x: f64) -> Product<'s> {
        // −0 is 0: real numbers have one.
        let x = if x == 0.0 { 0.0 } else { x };
        if dtype.round(x).is_finite() {
            Product { dtype, coefficient: x, factors: SmallVec::new() }
        } else {
            Product::atom(scope.constant(dtype, Number::new(dtype, x)))
        }
    }

    pub(super) fn atom(term: Term<'s>) -> Product<'s> {
        let factor = Factor { base: term, exponent: 1 };
        Product { dtype: term.dtype(), coefficient: 1.0, factors: SmallVec::from_slice(&[factor]) }
    }

    /// The number, if it is one.
    pub(super) fn as_constant(&self) -> Option<f64> {
        self.factors.is_empty().then_some(self.coefficient)
    }

    /// The base, if it is a multiple of a single one.
    pub(super) fn as_base(&self) -> Option<Term<'s>> {
        match self.factors.as_slice() {
            [Factor { base, exponent: 1 }] => Some(*base),
            _ => None,
        }
    }

    /// The product without its coefficient.
    pub(super) fn monomial(&self) -> Product<'s> {
        Product { coefficient: 1.0, ..self.clone() }
    }

    pub(super) fn negated(&self) -> Product<'s> {
        Product { coefficient: if self.coefficient == 0.0 { 0.0 } else { -self.coefficient }, ..self.clone() }
    }

    /// Whether a constant can be taken out: it is a number that can be divided by.
    pub(super) fn has_scale(&self) -> bool {
        !self.factors.is_empty() && self.coefficient != 1.0 && self.coefficient != 0.0
    }
}

impl<'s> Normalizer<'s> {
    /// What a normal term is.
    pub(super) fn product_of(&self, term: Term<'s>) -> Rc<Product<'s>> {
        if let Some(known) = self.products.get(&term.place()) {
            return known.clone();
        }
        Rc::new(match term.as_const() {
            Some(number) => Product::constant(self.scope, term.dtype(), number.to_f64()),
            None => Product::atom(term),
        })
    }

    pub(super) fn times(&mut self, a: &Product<'s>, b: &Product<'s>) -> Product<'s> {
        if a.factors.len() + b.factors.len() > MOST_FACTORS {
            let (a, b) = (self.write(a), self.write(b));
            return Product::atom(self.commuted(Scalar::Mul, a, b));
        }
        let mut factors = a.factors.clone();
        factors.extend_from_slice(&b.factors);
        self.collect(a.dtype, &[a.coefficient, b.coefficient], factors)
    }

    /// `a / b`. Not `a` times the form of `1 / b`: that an exponential is below a line with something above it has to be seen.
    pub(super) fn quotient(&mut self, a: &Product<'s>, b: &Product<'s>) -> Product<'s> {
        let coefficient = computed(1.0 / b.coefficient);
        let inverse = if is_normal(coefficient, b.dtype) {
            let factors = b.factors.iter().map(|f| Factor { exponent: -f.exponent, ..*f }).collect();
            Product { dtype: b.dtype, coefficient, factors }
        } else {
            self.power(b, -1)
        };
        self.times(a, &inverse)
    }

    /// `product · x`.
    pub(super) fn scaled(&mut self, product: &Product<'s>, x: f64) -> Product<'s> {
        self.collect(product.dtype, &[product.coefficient, x], product.factors.clone())
    }

    /// `product ^ exponent`.
    pub(super) fn power(&mut self, product: &Product<'s>, exponent: i32) -> Product<'s> {
        let dtype = product.dtype;
        if exponent == 0 {
            return Product::constant(self.scope, dtype, 1.0);
        }
        let coefficient = computed(product.coefficient.powi(exponent));
        let fits = |f: &Factor<'_>| f.exponent.checked_mul(exponent).is_some_and(|e| e.abs() <= MOST_EXPONENT);
        if !product.factors.iter().all(fits)
            || !(is_normal(coefficient, dtype) || product.coefficient == 0.0 && exponent > 0)
        {
            let base = self.write(product);
            return self.collect(dtype, &[], SmallVec::from_slice(&[Factor { base, exponent }]));
        }
        let factors = product.factors.iter().map(|f| Factor { exponent: f.exponent * exponent, ..*f }).collect();
        self.collect(dtype, &[coefficient], factors)
    }

    /// Sorts and merges factors and brings those that have another form into it.
    fn collect(&mut self, dtype: DType, coefficients: &[f64], mut factors: SmallVec<[Factor<'s>; 2]>) -> Product<'s> {
        let mut coefficient = 1.0;
        for &c in coefficients {
            let product = coefficient * c;
            if factors.is_empty() && dtype.round(product).is_finite() || is_normal(product, dtype) || c == 0.0 {
                coefficient = product;
            } else if coefficient == 0.0 {
                // 0 times a constant is 0
            } else {
                let base = self.scope.constant(dtype, Number::new(dtype, c));
                factors.push(Factor { base, exponent: 1 });
            }
        }
        if coefficient == 0.0 {
            factors.retain(|f| f.base.as_const().is_none_or(|c| f.exponent < 0 || !c.to_f64().is_finite()));
        }
        if coefficients.iter().filter(|c| c.abs() != 1.0).count() > 1 {
            coefficient = computed(coefficient);
        }
        self.merge(&mut factors);
        for k in 0..factors.len() {
            if let Some(form) = self.another_form(coefficient, &mut factors, k) {
                factors.remove(k);
                factors.retain(|f| f.exponent != 0);
                factors.extend_from_slice(&form.factors);
                return self.collect(dtype, &[coefficient, form.coefficient], factors);
            }
        }
        Product { dtype, coefficient: coefficient + 0.0, factors } // −0 becomes 0
    }

    fn merge(&mut self, factors: &mut SmallVec<[Factor<'s>; 2]>) {
        if factors.len() < 2 {
            return;
        }
        let order = &mut self.order;
        factors.sort_by(|a, b| order.compare(a.base, b.base).then(b.exponent.signum().cmp(&a.exponent.signum())));
        let mut merged: SmallVec<[Factor<'s>; 2]> = SmallVec::new();
        let mut opaque = false;
        for factor in factors.drain(..) {
            match merged.last_mut() {
                Some(last) if last.base == factor.base && last.exponent.signum() == factor.exponent.signum() => {
                    let sum = last.exponent + factor.exponent;
                    if sum.abs() <= MOST_EXPONENT {
                        last.exponent = sum;
                    } else {
                        let (a, b) = (self.raised(*last), self.raised(factor));
                        let base = self.commuted(Scalar::Mul, a, b);
                        *last = Factor { base, exponent: sum.signum() };
                        opaque = true;
                    }
                }
                _ => merged.push(factor),
            }
        }
        *factors = merged;
        if opaque {
            self.merge(factors);
        }
    }

    /// The size of the exponent as repeated multiplication.
    fn raised(&mut self, factor: Factor<'s>) -> Term<'s> {
        let exponent = factor.exponent.unsigned_abs();
        if exponent <= 1 {
            return factor.base;
        }
        if exponent.is_multiple_of(2) {
            let half = self.raised(Factor { exponent: (exponent / 2) as i32, ..factor });
            half * half
        } else {
            let less = self.raised(Factor { exponent: exponent as i32 - 1, ..factor });
            self.commuted(Scalar::Mul, less, factor.base)
        }
    }

    /// A call of a commutative function, operands in order.
    pub(super) fn commuted(&mut self, op: Scalar, a: Term<'s>, b: Term<'s>) -> Term<'s> {
        match self.order.compare(a, b) {
            Ordering::Greater => Term::call(op, &[b, a]),
            _ => Term::call(op, &[a, b]),
        }
    }

    /// The product as a term.
    pub(super) fn write(&mut self, product: &Product<'s>) -> Term<'s> {
        if let (Some(base), 1.0) = (product.as_base(), product.coefficient) {
            return base;
        }
        let term = self.write_quotient(product);
        if term.as_const().is_none() {
            self.products.entry(term.place()).or_insert_with(|| Rc::new(product.clone()));
        }
        term
    }

    fn write_quotient(&mut self, product: &Product<'s>) -> Term<'s> {
        let (dtype, scope) = (product.dtype, self.scope);
        let constant = |x: f64| scope.constant(dtype, Number::new(dtype, x));
        if product.factors.is_empty() {
            return constant(read_back(product.coefficient, dtype));
        }
        let (coefficient, factors) = self.place_coefficient(product);
        let factors = self.with_powers_of_quotients(dtype, factors);
        let mut scale = (!is_same(coefficient.abs(), 1.0, dtype)).then_some(coefficient);
        let (mut above, mut below): (Option<Term<'s>>, SmallVec<[Term<'s>; 2]>) = (None, SmallVec::new());
        // Constants that did not fit into the coefficient come last, one by one: together they would be folded.
        let (numbers, factors): (SmallVec<[_; 2]>, SmallVec<[_; 2]>) =
            factors.into_iter().partition(|f| f.base.as_const().is_some());
        for factor in factors {
            let root = factor.base.as_call() == Some(Scalar::Sqrt);
            if factor.exponent < 0 && !root {
                below.push(self.raised(factor));
                continue;
            }
            // The reciprocal of a root is as far inside of the range of the type as the root.
            let base = if factor.exponent > 0 { factor.base } else { constant(1.0) / factor.base };
            let term = self.raised(Factor { base, ..factor });
            let term = scale.take().map_or(term, |scale| term * constant(scale));
            above = Some(above.map_or(term, |above| above * term));
        }
        let mut quotient = above;
        if self.numerics == Numerics::Fast {
            if let Some(below) = below.into_iter().reduce(|a, b| a * b) {
                let inverse = constant(scale.unwrap_or(1.0)) / below;
                quotient = Some(quotient.map_or(inverse, |above| above * inverse));
            }
        } else {
            for term in below {
                // One after the other: their product may leave the range of the type.
                quotient = Some(quotient.unwrap_or_else(|| constant(scale.unwrap_or(1.0))) / term);
            }
        }
        let mut quotient = quotient.unwrap_or_else(|| constant(scale.unwrap_or(1.0)));
        for Factor { base, exponent } in numbers {
            for _ in 0..exponent.abs() {
                quotient = if exponent > 0 { quotient * base } else { quotient / base };
            }
        }
        if is_same(coefficient, -1.0, dtype) { -quotient } else { quotient }
    }

    /// The same factors, where powers above and below the line are powers of one quotient: `(x / y)²` stays in range where `x²` and `y²`
    /// do not, and takes a multiplication less.
    fn with_powers_of_quotients(
        &mut self,
        dtype: DType,
        factors: SmallVec<[Factor<'s>; 2]>,
    ) -> SmallVec<[Factor<'s>; 2]> {
        // The reciprocal of a root stands above the line.
        let is_root = |f: &Factor<'s>| f.base.as_call() == Some(Scalar::Sqrt);
        let is_power = |f: &Factor<'s>| f.exponent.abs() > 1 && !is_root(f) && f.base.as_const().is_none();
        let (powers, mut others): (SmallVec<[Factor<'s>; 2]>, SmallVec<[Factor<'s>; 2]>) =
            factors.iter().copied().partition(|f| is_power(f));
        let common = powers.iter().map(|f| i64::from(f.exponent).abs()).reduce(gcd).unwrap_or(1);
        if common < 2 || !powers.iter().any(|f| f.exponent > 0) || !powers.iter().any(|f| f.exponent < 0) {
            return factors;
        }
        let exponent = common as i32;
        let roots = powers.iter().map(|f| Factor { exponent: f.exponent / exponent, ..*f }).collect();
        let base = self.write(&Product { dtype, coefficient: 1.0, factors: roots });
        others.insert(0, Factor { base, exponent });
        others
    }

    /// The coefficient and the factors as they are written: a sign, and a coefficient where that is better, goes into a sum.
    fn place_coefficient(&mut self, product: &Product<'s>) -> (f64, SmallVec<[Factor<'s>; 2]>) {
        let (coefficient, mut factors) = (product.coefficient, product.factors.clone());
        // So that a second look decides in the same way.
        let coefficient = read_back(coefficient, product.dtype);
        if coefficient == 1.0 || coefficient == 0.0 {
            return (coefficient, factors);
        }
        let is_sum = |f: &Factor<'s>| self.sums.contains_key(&f.base.place());
        if let Some(k) = factors.iter().position(|f| f.exponent == 1 && is_sum(f)) {
            let inside = self.is_better_inside(product.dtype, coefficient, factors[k].base);
            let share = if inside { coefficient } else { coefficient.signum() };
            factors[k].base = self.write_scaled_sum(factors[k].base, share);
            return (coefficient / share, factors);
        }
        if coefficient < 0.0
            && let Some(k) = factors.iter().position(|f| f.exponent % 2 != 0 && is_sum(f))
        {
            factors[k].base = self.write_scaled_sum(factors[k].base, -1.0);
            return (-coefficient, factors);
        }
        (coefficient, factors)
    }
}
