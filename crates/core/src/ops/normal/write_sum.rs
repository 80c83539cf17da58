//! How sums are written.

use std::cmp::Reverse;
use std::rc::Rc;

use smallvec::SmallVec;

use super::Normalizer;
use super::number::{is_same, is_short, read_back};
use super::product::{Factor, Product};
use super::sum::{MOST_DEGREE, Sum, can_scale, content, quotient};
use crate::ops::range::DROWNING;
use crate::ops::{Number, Scalar, Term};
use crate::tensor::DType;

impl<'s> Normalizer<'s> {
    /// Whether a product is better written with its coefficient inside of the sum: that saves a multiplication, or costs
    /// none and the constant of the sum was not written as it is.
    pub(super) fn is_better_inside(&self, dtype: DType, coefficient: f64, base: Term<'s>) -> bool {
        let sum = &self.sums[&base.place()];
        if is_same(coefficient.abs(), 1.0, dtype) {
            return true;
        }
        let multiplications =
            |scale: f64| sum.terms.iter().filter(|(_, c)| !is_same((c * scale).abs(), 1.0, dtype)).count();
        let (inside, outside) = (multiplications(coefficient), multiplications(1.0) + 1);
        let computed = sum.constant != 0.0 && !is_short(dtype.round(sum.constant));
        (inside < outside || inside == outside && computed) && can_be_read_back(sum, coefficient, dtype)
    }

    /// A primitive sum times a constant.
    pub(super) fn write_scaled_sum(&mut self, base: Term<'s>, scale: f64) -> Term<'s> {
        if scale == 1.0 {
            return base;
        }
        let sum = self.sums[&base.place()].clone();
        let term = self.write_sum(base.dtype(), &sum, scale);
        let product = Product { coefficient: scale, ..Product::atom(base) };
        self.products.entry(term.place()).or_insert_with(|| Rc::new(product));
        term
    }

    pub(super) fn write_sum(&mut self, dtype: DType, sum: &Sum<'s>, scale: f64) -> Term<'s> {
        let constant = dtype.round(sum.constant * scale);
        // In f64 the coefficients of a polynomial do not survive being multiplied out again.
        if let Some((base, degree)) = sum.polynomial
            && (2..=MOST_DEGREE).contains(&degree)
            && sum.terms.len() > 1
            && dtype != DType::F64
        {
            return self.write_polynomial(dtype, sum, scale, base);
        }
        let mut signed = Vec::with_capacity(sum.terms.len());
        for (term, coefficient) in &sum.terms {
            signed.push(self.with_sign(*term, dtype.round(coefficient * scale) + 0.0)); // −0 becomes 0
        }
        // Beside a difference a constant comes last, and before it what varies least: the terms may cancel, and what is small would be
        // lost in the first of them.
        let has_sign = |is_negative: bool| signed.iter().any(|(_, c)| (*c < 0.0) == is_negative);
        let comes_last = has_sign(true) && has_sign(false) && drowning(&signed).is_none();
        let (first, last) = if comes_last { (0.0, constant) } else { (constant, 0.0) };
        if comes_last {
            let order = &mut self.order;
            signed.sort_by_key(|(term, _)| Reverse(order.level(*term)));
        }
        let (used, mut total) = self.begin_sum(dtype, &signed, first);
        for (k, (term, coefficient)) in signed.iter().enumerate() {
            if Some(k) != used {
                let size = self.multiple(dtype, *term, coefficient.abs());
                total = if *coefficient < 0.0 { total - size } else { total + size };
            }
        }
        self.plus_constant(dtype, total, last)
    }

    /// The constant of a sum with the term that is written beside it, if one is, and which. That is the first that is not negative;
    /// but where small terms would drown in a large one, the large one meets the constant before they come: `10000·m − 10000`
    /// may be nothing.
    fn begin_sum(&mut self, dtype: DType, signed: &[(Term<'s>, f64)], constant: f64) -> (Option<usize>, Term<'s>) {
        let drowning = drowning(signed).filter(|_| constant != 0.0);
        let first = drowning.or_else(|| signed.iter().position(|(_, c)| *c >= 0.0));
        match first {
            Some(k) if signed[k].1 < 0.0 && constant > 0.0 => {
                let large = self.multiple(dtype, signed[k].0, signed[k].1.abs());
                (Some(k), self.scope.constant(dtype, Number::new(dtype, constant)) - large)
            }
            None if constant > 0.0 => (None, self.scope.constant(dtype, Number::new(dtype, constant))),
            _ => {
                let k = first.unwrap_or(0);
                let term = self.multiple(dtype, signed[k].0, signed[k].1);
                (Some(k), self.plus_constant(dtype, term, constant))
            }
        }
    }

    /// A monomial with a negative coefficient is one with a positive coefficient if it has a sum to change the sign of.
    fn with_sign(&mut self, monomial: Term<'s>, coefficient: f64) -> (Term<'s>, f64) {
        if coefficient >= 0.0 {
            return (monomial, coefficient);
        }
        let product = self.product_of(monomial);
        let is_sum = |f: &Factor<'s>| f.exponent % 2 != 0 && self.sums.contains_key(&f.base.place());
        if product.as_base().is_some() || !product.factors.iter().any(is_sum) {
            return (monomial, coefficient);
        }
        (self.write(&product.negated()), -coefficient)
    }

    fn write_polynomial(&mut self, dtype: DType, sum: &Sum<'s>, scale: f64, base: Term<'s>) -> Term<'s> {
        let mut powers: Vec<(i32, f64)> = Vec::with_capacity(sum.terms.len() + 1);
        for (term, coefficient) in &sum.terms {
            powers.push((self.product_of(*term).factors[0].exponent, dtype.round(coefficient * scale)));
        }
        powers.push((0, dtype.round(sum.constant * scale)));
        powers.sort_unstable_by_key(|(exponent, _)| Reverse(*exponent));
        let mut total: Option<Term<'s>> = None;
        for pair in powers.windows(2) {
            let [(high, leading), (low, next)] = *pair else { unreachable!("windows of two") };
            let factors = SmallVec::from_slice(&[Factor { base, exponent: high - low }]);
            let step = self.write(&Product { dtype, coefficient: 1.0, factors });
            let product = match total {
                Some(total) => self.commuted(Scalar::Mul, total, step),
                None => self.multiple(dtype, step, leading),
            };
            total = Some(self.plus_constant(dtype, product, next));
        }
        total.expect("a polynomial has a term")
    }

    fn multiple(&self, dtype: DType, term: Term<'s>, coefficient: f64) -> Term<'s> {
        match coefficient {
            1.0 => term,
            -1.0 => -term,
            c => term * self.scope.constant(dtype, Number::new(dtype, c)),
        }
    }

    fn plus_constant(&self, dtype: DType, term: Term<'s>, x: f64) -> Term<'s> {
        let size = self.scope.constant(dtype, Number::new(dtype, x.abs()));
        match x {
            0.0 => term,
            x if x < 0.0 => term - size,
            _ => term + size,
        }
    }
}

/// The largest term of a sum, if others would drown in it.
fn drowning(signed: &[(Term<'_>, f64)]) -> Option<usize> {
    let size = |k: &usize| signed[*k].1.abs();
    let largest = (0..signed.len()).max_by(|a, b| size(a).total_cmp(&size(b)).then(b.cmp(a)));
    largest.filter(|k| signed.iter().any(|(_, c)| c.abs() * DROWNING < size(k)))
}

/// Whether the coefficients of a sum, multiplied by a constant and rounded, give the sum and the constant back.
fn can_be_read_back(sum: &Sum<'_>, scale: f64, dtype: DType) -> bool {
    let terms: Vec<_> = sum.terms.iter().map(|(term, c)| (*term, read_back(c * scale, dtype))).collect();
    let constant = read_back(sum.constant * scale, dtype);
    let content = content(&terms, constant, dtype);
    let back = |c: f64, original: f64| {
        let read = quotient(c, content, dtype);
        is_same(read, original, dtype) && is_same(read * content, original * scale, dtype)
    };
    is_same(content, scale, dtype)
        && terms.iter().zip(&sum.terms).all(|((_, c), (_, original))| back(*c, *original))
        && back(constant, sum.constant)
        && can_scale(sum, scale, dtype)
}
