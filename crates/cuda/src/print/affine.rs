//! What is stored of a row as few multiply-adds.
//!
//! `r·(h − ((m − x)·s + t))`, of which `h` and `x` vary along a row, is four operations an element; `h·r + (x·(s·r) − (m·s + t)·r)` is two, and
//! the rest is computed once a row. Numbers may cancel that did not before, so this is for narrow floats that are loaded and stored: of such ones a
//! mean is not so much larger than what they differ by that single precision would not do.

use fuseline::ops::{ExprNode, Scalar, Scope, Term};
use fuseline::tensor::DType;
use rustc_hash::FxHashSet;

use super::varying::Varying;

/// Sums of more operations are left as they are.
const MOST_OPERATIONS: usize = 32;

/// A sum of varying terms, each times what does not vary, and of something that does not.
struct Affine<'s, 'v> {
    varying: Varying<'v>,
    known: &'v FxHashSet<u32>,
    /// terms that vary, their factors, and whether they are taken away
    parts: Vec<(Term<'s>, Option<Term<'s>>, bool)>,
    fixed: Option<Term<'s>>,
    /// operations on what varies in the sum as it was; a product that is added at once is none
    operations: usize,
}

/// The same term with fewer operations on what varies, if there is a way; `varies` tells whether a leaf does. What is `known` is computed for
/// others too, and stays what it is.
pub(super) fn affine(scope: &Scope, end: u32, varies: &dyn Fn(&ExprNode) -> bool, known: &FxHashSet<u32>) -> u32 {
    let term = scope.term(end);
    if let (ExprNode::Cast(_), &[inner]) = (term.node(), term.operands().as_slice()) {
        return scope.term(affine(scope, inner.place(), varies, known)).cast(term.dtype()).place();
    }
    let mut sum = Affine { varying: Varying::of(varies), known, parts: Vec::new(), fixed: None, operations: 0 };
    if term.dtype() != DType::F32 || !sum.varying.has(term) {
        return end;
    }
    sum.collect(term, None, false, false);
    if sum.parts.len() >= sum.operations || sum.operations > MOST_OPERATIONS {
        return end;
    }
    let mut total = sum.fixed;
    for (term, factor, is_negative) in sum.parts.into_iter().rev() {
        let term = factor.map_or(term, |factor| term * factor);
        total = Some(added(total, term, is_negative));
    }
    total.map_or(end, Term::place)
}

impl<'s> Affine<'s, '_> {
    /// Takes a term apart, a multiple of which is added or taken away; `is_added` where the product of both is no operation of its own.
    fn collect(&mut self, term: Term<'s>, factor: Option<Term<'s>>, is_negative: bool, is_added: bool) {
        // A sum of sums that are read more than once may have no end.
        if self.operations > MOST_OPERATIONS {
            return;
        }
        if !self.varying.has(term) {
            let term = factor.map_or(term, |factor| factor * term);
            self.fixed = Some(added(self.fixed, term, is_negative));
            return;
        }
        let times = |by: Term<'s>| Some(factor.map_or(by, |factor| factor * by));
        match (term.node(), term.operands().as_slice()) {
            _ if self.known.contains(&term.place()) => self.parts.push((term, factor, is_negative)),
            (ExprNode::Apply(op @ (Scalar::Add | Scalar::Sub), _), &[a, b]) => {
                self.operations += 1;
                self.collect(a, factor, is_negative, true);
                self.collect(b, factor, is_negative ^ (op == Scalar::Sub), true);
            }
            (ExprNode::Apply(Scalar::Neg, _), &[a]) => self.collect(a, factor, !is_negative, is_added),
            (ExprNode::Apply(Scalar::Mul, _), &[a, b]) if !self.varying.has(a) => {
                self.operations += usize::from(!is_added);
                self.collect(b, times(a), is_negative, false);
            }
            (ExprNode::Apply(Scalar::Mul, _), &[a, b]) if !self.varying.has(b) => {
                self.operations += usize::from(!is_added);
                self.collect(a, times(b), is_negative, false);
            }
            _ => self.parts.push((term, factor, is_negative)),
        }
    }
}

fn added<'s>(total: Option<Term<'s>>, term: Term<'s>, is_negative: bool) -> Term<'s> {
    match (total, is_negative) {
        (None, false) => term,
        (None, true) => -term,
        (Some(total), false) => total + term,
        (Some(total), true) => total - term,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_row_knows_is_multiplied_once_a_row() {
        let scope = Scope::default();
        let [x, h, m, s, t, r] = [0, 1, 2, 3, 4, 5].map(|k| scope.argument(k, DType::F32));
        let varies = |node: &ExprNode| matches!(node, ExprNode::Arg(0 | 1));
        let none = FxHashSet::default();
        let store = r * (h - ((m - x) * s + t));
        let written = scope.term(affine(&scope, store.cast(DType::BF16).place(), &varies, &none));
        // h·r + (x·(r·s) + …), rounded.
        assert_eq!(written.dtype(), DType::BF16);
        let sum = written.operands()[0];
        let factors = |term: Term<'_>| -> Vec<u32> { term.operands().iter().map(|factor| factor.place()).collect() };
        assert!(matches!(sum.node(), ExprNode::Apply(Scalar::Add, _)));
        assert_eq!(factors(sum.operands()[1]), [h.place(), r.place()]);
        let rest = sum.operands()[0];
        assert_eq!(factors(rest.operands()[1])[0], x.place());
        let factor = rest.operands()[1].operands()[1];
        assert_eq!(factors(factor), [r.place(), s.place()]);
        // A difference that others read too is not taken apart.
        let known = FxHashSet::from_iter([(m - x).place()]);
        let written = scope.term(affine(&scope, store.place(), &varies, &known));
        assert_eq!(factors(written.operands()[0].operands()[1])[0], (m - x).place());
        // Two products that are added are as few operations as there can be.
        let product = (h * x + s).place();
        assert_eq!(affine(&scope, product, &varies, &none), product);
        let fused = (x * s + t).place();
        assert_eq!(affine(&scope, fused, &varies, &none), fused);
        // A sum that doubles with every step is no reason to write it down.
        let doubled = (0..200).fold(m - x, |sum, _| sum + sum).place();
        assert_eq!(affine(&scope, doubled, &varies, &none), doubled);
    }
}
