//! Sums and products of integers, which wrap around: exact in any order; as real numbers where they cannot.

use std::rc::Rc;

use smallvec::SmallVec;

use super::Normalizer;
use super::product::Product;
use super::sum::Real;
use crate::ops::{ExprNode, Number, Scalar, Term};
use crate::tensor::{Class, DType};

/// `Σ coefficient · term + constant`, modulo the width of the type.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Combination<'s> {
    terms: Vec<(Term<'s>, i64)>,
    constant: i64,
}

/// A sum or product of more parts than this is a part of a larger one.
const MOST_PARTS: usize = 64;

impl<'s> Normalizer<'s> {
    /// A sum, difference, product or negation of integers.
    pub(super) fn whole(&mut self, op: Scalar, dtype: DType, operands: &[Term<'s>]) -> Term<'s> {
        let a = self.combination_of(operands[0]);
        let b = self.combination_of(*operands.last().expect("functions have operands"));
        let combination = match op {
            Scalar::Add => self.combined(dtype, &[(1, &a), (1, &b)]),
            Scalar::Sub => self.combined(dtype, &[(1, &a), (-1, &b)]),
            Scalar::Neg => self.combined(dtype, &[(-1, &a)]),
            _ => self.multiplied(dtype, operands, &a, &b),
        };
        self.write_whole(dtype, combination)
    }

    /// A division of integers. `(a − a mod b) / b` stays as it is written: it is how the floor of a quotient is known.
    pub(super) fn whole_division(&mut self, a: Term<'s>, b: Term<'s>) -> Term<'s> {
        let numerator = self.combination_of(a);
        let is_remainder = |(t, c): &&(Term<'s>, i64)| {
            *c == a.dtype().wrap(-1) as i64 && t.as_call() == Some(Scalar::Mod) && t.operands()[1] == b
        };
        for (remainder, _) in numerator.terms.iter().filter(is_remainder) {
            let dividend = remainder.operands()[0];
            let rest = self.combination_of(dividend);
            let part = self.combination_of(*remainder);
            if self.combined(a.dtype(), &[(1, &rest), (-1, &part)]) == *numerator {
                return (dividend - *remainder) / b;
            }
        }
        a / b
    }

    /// An integer converted to a float type, if the conversion of a sum is the sum of conversions: where no part of it can
    /// leave the integers that the type holds. So are zero points subtracted before or after a conversion.
    pub(super) fn converted_sum(&mut self, term: Term<'s>, dtype: DType) -> Option<Real<'s>> {
        let whole = self.combinations.get(&term.place()).filter(|_| term.dtype().class() == Class::Signed).cloned()?;
        let (low, high) = bounds(term, 0)?;
        let largest = 1i128 << (dtype.format()?.mantissa_bits + 1);
        if low < -largest || high > largest {
            return None;
        }
        let mut parts: Vec<(f64, Rc<Product<'s>>)> = Vec::with_capacity(whole.terms.len() + 1);
        for (part, coefficient) in &whole.terms {
            let part = self.convert(*part, dtype);
            parts.push((signed(*coefficient, term.dtype()) as f64, Rc::new(Product::atom(part))));
        }
        let constant = signed(whole.constant, term.dtype()) as f64;
        parts.push((1.0, Rc::new(Product::constant(self.scope, dtype, constant))));
        Some(self.add_products(dtype, &parts).into())
    }

    /// Coordinates and sizes added and taken away, converted to a float type: the sign of the first is outside, so that `j − i` is
    /// `−(i − j)`. They are far from the number that has no opposite.
    pub(super) fn converted_difference(&mut self, term: Term<'s>, dtype: DType) -> Option<Real<'s>> {
        const MOST: u64 = 1 << 20;
        let whole = self.combinations.get(&term.place()).filter(|_| term.dtype() == DType::I64).cloned()?;
        let is_place = |(part, factor): &(Term<'s>, i64)| {
            matches!(part.node(), ExprNode::Coord(_) | ExprNode::Size(_)) && factor.unsigned_abs() <= MOST
        };
        let all = whole.terms.iter().all(is_place) && whole.constant.unsigned_abs() <= MOST;
        if !all || whole.terms.first()?.1 > 0 {
            return None;
        }
        let opposite = self.combined(term.dtype(), &[(-1, &*whole)]);
        let opposite = self.write_whole(term.dtype(), opposite).cast(dtype);
        Some(self.add_products(dtype, &[(-1.0, Rc::new(Product::atom(opposite)))]).into())
    }

    fn combination_of(&self, term: Term<'s>) -> Rc<Combination<'s>> {
        if let Some(known) = self.combinations.get(&term.place()) {
            return known.clone();
        }
        Rc::new(match term.as_const() {
            Some(Number::Int(n)) => Combination { terms: Vec::new(), constant: n },
            _ => Combination { terms: vec![(term, 1)], constant: 0 },
        })
    }

    fn combined(&mut self, dtype: DType, parts: &[(i64, &Combination<'s>)]) -> Combination<'s> {
        let wrap = |x: i64| dtype.wrap(i128::from(x)) as i64;
        let (mut terms, mut constant): (Vec<(Term<'s>, i64)>, i64) = (Vec::new(), 0);
        for (sign, part) in parts {
            terms.extend(part.terms.iter().map(|(t, c)| (*t, c.wrapping_mul(*sign))));
            constant = constant.wrapping_add(part.constant.wrapping_mul(*sign));
        }
        let order = &mut self.order;
        terms.sort_by(|a, b| order.compare(a.0, b.0));
        terms.dedup_by(|b, a| {
            let same = a.0 == b.0;
            a.1 = a.1.wrapping_add(if same { b.1 } else { 0 });
            same
        });
        terms.iter_mut().for_each(|(_, c)| *c = wrap(*c));
        terms.retain(|(_, c)| *c != 0);
        Combination { terms, constant: wrap(constant) }
    }

    fn multiplied(
        &mut self,
        dtype: DType,
        operands: &[Term<'s>],
        a: &Combination<'s>,
        b: &Combination<'s>,
    ) -> Combination<'s> {
        let (mut coefficient, mut factors): (i64, SmallVec<[Term<'s>; 4]>) = (1, SmallVec::new());
        for (operand, combination) in operands.iter().zip([a, b]) {
            match (combination.terms.as_slice(), combination.constant) {
                ([], n) => coefficient = coefficient.wrapping_mul(n),
                ([(term, c)], 0) => {
                    coefficient = coefficient.wrapping_mul(*c);
                    self.factors(*term, &mut factors);
                }
                _ => factors.push(*operand),
            }
        }
        let order = &mut self.order;
        factors.sort_by(|a, b| order.compare(*a, *b));
        let constant = dtype.wrap(i128::from(coefficient)) as i64;
        match factors.into_iter().reduce(|a, b| a * b) {
            None => Combination { terms: Vec::new(), constant },
            Some(_) if constant == 0 => Combination { terms: Vec::new(), constant },
            Some(product) if constant == 1 => (*self.combination_of(product)).clone(),
            Some(product) => Combination { terms: vec![(product, constant)], constant: 0 },
        }
    }

    /// The factors of a product without constants.
    fn factors(&self, term: Term<'s>, found: &mut SmallVec<[Term<'s>; 4]>) {
        let mut todo = vec![term];
        while let Some(term) = todo.pop() {
            match term.node() {
                ExprNode::Apply(Scalar::Mul, _) if found.len() + todo.len() < MOST_PARTS => {
                    todo.extend(term.operands())
                }
                _ => found.push(term),
            }
        }
    }

    fn write_whole(&mut self, dtype: DType, combination: Combination<'s>) -> Term<'s> {
        let constant = |n: i64| self.scope.constant(dtype, Number::Int(n));
        let signed = |c: i64| signed(c, dtype);
        let multiple =
            |term: Term<'s>, c: i64| if c == 1 { term } else { term * constant(dtype.wrap(i128::from(c)) as i64) };
        // The smallest number has no opposite: it is added as it is.
        let is_taken_away = |c: i64| signed(c) < 0 && signed(signed(c).wrapping_neg()) > 0;
        let mut total: Option<Term<'s>> = None;
        for (term, c) in combination.terms.iter().filter(|(_, c)| !is_taken_away(*c)) {
            let part = multiple(*term, *c);
            total = Some(total.map_or(part, |total| total + part));
        }
        let n = combination.constant;
        if n != 0 || combination.terms.is_empty() {
            let below = dtype.class() == Class::Signed && is_taken_away(n);
            total = Some(match total {
                Some(total) if below => total - constant(-n),
                Some(total) => total + constant(n),
                None => constant(n),
            });
        }
        for (term, c) in combination.terms.iter().filter(|(_, c)| is_taken_away(*c)) {
            let size = -signed(*c);
            total = Some(match total {
                Some(total) => total - multiple(*term, size),
                None if size == 1 => -*term,
                None => multiple(*term, -size),
            });
        }
        let total = total.expect("a combination has a term or a constant");
        if total.as_const().is_none() && combination.terms.len() <= MOST_PARTS {
            self.combinations.entry(total.place()).or_insert_with(|| Rc::new(combination));
        }
        total
    }
}

/// A coefficient as the number nearest to 0 that it is, modulo the width of the type.
fn signed(coefficient: i64, dtype: DType) -> i64 {
    let unused = 64 - dtype.bits() as u32;
    coefficient << unused >> unused
}

/// Smallest and largest value of an integer, by types and constants; `None` where it may wrap around on the way.
fn bounds(term: Term<'_>, depth: usize) -> Option<(i128, i128)> {
    const MOST_DEPTH: usize = 12;
    let (least, most) = term.dtype().int_range()?;
    let within = |(low, high): (i128, i128)| (least <= low && high <= most).then_some((low, high));
    let operands = term.operands();
    let of = |k: usize| bounds(operands[k], depth + 1);
    match term.node() {
        _ if depth > MOST_DEPTH => None,
        ExprNode::Const(Number::Int(n)) => Some((n.into(), n.into())),
        ExprNode::Cast(_) if operands[0].dtype().is_int() => of(0).and_then(within).or(Some((least, most))),
        ExprNode::Apply(Scalar::Add, _) => {
            let ((a, b), (c, d)) = (of(0)?, of(1)?);
            within((a + c, b + d))
        }
        ExprNode::Apply(Scalar::Sub, _) => {
            let ((a, b), (c, d)) = (of(0)?, of(1)?);
            within((a - d, b - c))
        }
        ExprNode::Apply(Scalar::Neg, _) => of(0).and_then(|(low, high)| within((-high, -low))),
        ExprNode::Apply(Scalar::Mul, _) => {
            let ((a, b), (c, d)) = (of(0)?, of(1)?);
            let corners = [a.checked_mul(c)?, a.checked_mul(d)?, b.checked_mul(c)?, b.checked_mul(d)?];
            within((*corners.iter().min()?, *corners.iter().max()?))
        }
        _ => Some((least, most)),
    }
}
