//! What leaves a sum: `Σ f·g = g·Σ f` where `g` does not vary along the summed axis.

use rustc_hash::{FxHashMap, FxHashSet};
use smallvec::SmallVec;

use super::Normalizer;
use super::product::{Factor, Product};
use crate::ops::range::may_move;
use crate::ops::{ExprNode, Scalar, Term};
use crate::passes::Numerics;

/// A term as a linear function of an element: `term = wrap(element)` with `wrap(a + b) = wrap(a) + wrap(b)`, so that a sum of terms,
/// or of their products with anything, is `wrap` of the sum of elements.
#[derive(Clone, Debug)]
pub struct Linear<'s> {
    /// what varies; of the type in which the term is computed
    pub element: Term<'s>,
    /// outermost first
    wraps: SmallVec<[Wrap<'s>; 2]>,
}

/// A linear function; its terms do not vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Wrap<'s> {
    Scale(Term<'s>),
    /// 0 where the condition holds
    ZeroIf(Term<'s>),
    /// 0 where the condition does not hold
    ZeroUnless(Term<'s>),
}

impl<'s> Linear<'s> {
    /// Whether the element is all of the term.
    pub fn is_plain(&self) -> bool {
        self.wraps.is_empty()
    }

    /// The function of another element, such as a sum, which has the type of the element.
    pub fn around(&self, normalizer: &mut Normalizer<'s>, element: Term<'s>) -> Term<'s> {
        let zero = normalizer.scope.float(element, 0.0);
        let wrapped = self.wraps.iter().rev().fold(element, |inner, wrap| match wrap {
            Wrap::Scale(row) => inner * *row,
            Wrap::ZeroIf(condition) => condition.select(zero, inner),
            Wrap::ZeroUnless(condition) => condition.select(inner, zero),
        });
        normalizer.normal(wrapped)
    }
}

impl<'s> Normalizer<'s> {
    /// A term as a linear function of an element that has as few factors as possible: those that read no varying leaf, and
    /// choices between 0 and something by a condition that reads none, go outside; constants only near 1. Under strict numerics, and where the term
    /// is not a float, the element is the term.
    ///
    /// `0 · x` counts as 0 also where `x` is infinite or NaN: a choice of 0 for a whole row stays 0 outside of the sum.
    pub fn split(&mut self, term: Term<'s>, varies: &dyn Fn(&ExprNode) -> bool) -> Linear<'s> {
        let mut linear = Linear { element: self.wide(term), wraps: SmallVec::new() };
        if self.numerics == Numerics::Strict || self.compute_type(linear.element.dtype()).is_none() {
            return linear;
        }
        let mut varying = Reads::new(varies);
        loop {
            let product = self.product_of(linear.element);
            let one = Product::constant(self.scope, product.dtype, 1.0);
            if product.coefficient == 0.0 || product.factors.is_empty() {
                return linear;
            }
            let (inner, outer): (SmallVec<[Factor<'s>; 2]>, SmallVec<[Factor<'s>; 2]>) =
                product.factors.iter().copied().partition(|f| varying.any(f.base) || f.base.as_const().is_some());
            let (inside, outside) =
                if may_move(product.coefficient) { (1.0, product.coefficient) } else { (product.coefficient, 1.0) };
            let row = Product { coefficient: outside, factors: outer, ..one.clone() };
            let element = Product { coefficient: inside, factors: inner, ..one };
            if row.coefficient != 1.0 || !row.factors.is_empty() {
                linear.wraps.push(Wrap::Scale(self.write(&row)));
                linear.element = self.write(&element);
            }
            let Some((wrap, chosen, k)) = self.choice(&element, &mut varying) else { return linear };
            linear.wraps.push(wrap);
            let mut rest = element;
            rest.factors.remove(k);
            let chosen = self.times(&rest, &self.product_of(chosen));
            linear.element = self.write(&chosen);
        }
    }

    /// A factor that is a choice between 0 and something by a condition that does not vary: the choice, the something, which
    /// factor.
    fn choice(&self, product: &Product<'s>, varying: &mut Reads<'_>) -> Option<(Wrap<'s>, Term<'s>, usize)> {
        for (k, Factor { base, exponent }) in product.factors.iter().enumerate() {
            if *exponent != 1 || base.as_call() != Some(Scalar::Select) {
                continue;
            }
            let operands = base.operands();
            let is_zero = |t: Term<'s>| t.as_const().is_some_and(|n| n.to_f64() == 0.0);
            let wrap = match (is_zero(operands[1]), is_zero(operands[2])) {
                _ if varying.any(operands[0]) => continue,
                (true, false) => (Wrap::ZeroIf(operands[0]), operands[2], k),
                (false, true) => (Wrap::ZeroUnless(operands[0]), operands[1], k),
                _ => continue,
            };
            return Some(wrap);
        }
        None
    }
}

/// Which terms read certain leaves.
pub(super) struct Reads<'a> {
    is_wanted: Box<dyn Fn(&ExprNode) -> bool + 'a>,
    known: FxHashMap<u32, bool>,
}

impl<'a> Reads<'a> {
    pub(super) fn new(is_wanted: impl Fn(&ExprNode) -> bool + 'a) -> Reads<'a> {
        Reads { is_wanted: Box::new(is_wanted), known: FxHashMap::default() }
    }

    /// Whether a term reads one of the leaves.
    pub(super) fn any(&mut self, root: Term<'_>) -> bool {
        let (mut found, mut seen, mut todo) = (Vec::new(), FxHashSet::default(), vec![root]);
        while let Some(term) = todo.pop() {
            if !self.known.contains_key(&term.place()) && seen.insert(term.place()) {
                found.push(term);
                todo.extend(term.operands());
            }
        }
        // An operand is made before the terms that read it.
        found.sort_unstable_by_key(|term| term.place());
        for term in found {
            let node = term.node();
            let leaf = matches!(node, ExprNode::Arg(_) | ExprNode::Coord(_) | ExprNode::Size(_));
            let reads = leaf && (self.is_wanted)(&node) || node.operands().iter().any(|o| self.known[o]);
            self.known.insert(term.place(), reads);
        }
        self.known[&root.place()]
    }
}
