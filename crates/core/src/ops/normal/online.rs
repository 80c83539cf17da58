//! Folds that depend on an earlier fold along the same axis, piece by piece.
//!
//! While a row is read in pieces, an earlier fold (a maximum, a sum) has a *running* result `r` that changes from piece to
//! piece. A later fold of terms `f(x, r)` can keep its own partial result if that follows from the change of `r` alone:
//! - `f = g(x)·h(r)` under a sum: the partial sum is multiplied by `h(new) / h(old)`;
//! - `f = exp(u(x) − r)·w(x)` under a sum: by `exp(old − new)`, which is softmax's sum and attention's product with the values;
//! - `f = g(x) + h(r)` under a maximum or minimum: `h(new) − h(old)` is added;
//! - `f = (x − m)²` with `m` the mean of `x`: count, mean and sum of squares are merged ([`Moments::merged`]).
//!
//! **Infinities.** A row may begin with pieces that are masked with −∞. Then the maximum is −∞ for a while, and `exp(x − m)` would be
//! `exp(−∞ + ∞)`, NaN, which no later piece repairs, though the row as a whole is fine. Therefore a factor is 1 where old and
//! new are equal, so that 0 stays 0; the terms are computed with 0 in the place of a running result that is not finite
//! ([`Streamed::element`]): of −∞ only, they are 0; and [`Streamed::finished`] makes NaN of a sum whose running result is
//! not finite in the end, which is what all of the row at once gives.
//!
//! Not covered, each with its own [`Refusal`]: a running result inside of other functions of the elements, sums whose
//! addends change differently, products, positions, sums of `g(x) + h(r)`, which need a count.

use std::fmt;
use std::rc::Rc;

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::factor::{Linear, Reads};
use super::product::{Factor, Product};
use super::{Normalizer, Numerics};
use crate::ops::prim::Monoid;
use crate::ops::{Expr, ExprNode, Scalar, Scope, Term};

/// How a partial fold follows a running result on which its terms depend.
#[derive(Clone, Debug)]
pub enum Correction<'s> {
    /// its terms do not depend on it
    None,
    /// it is multiplied
    Factor(Change<'s>),
    /// something is added to it
    Shift(Change<'s>),
    /// the terms are squares of deviations; see [`Moments`]
    Moments(Moments<'s>),
}

/// A function of the old and the new running result.
#[derive(Clone, Debug)]
pub struct Change<'s> {
    /// arguments: the old result, the new one, then `others`
    pub expr: Expr,
    /// other leaves that it reads; they do not vary along the axis
    pub others: Vec<Term<'s>>,
    /// whether it is a product of exponentials: a running result that was −∞ makes it 0, never 0 / 0
    pub is_exponential: bool,
}

/// Terms `(value − center)²`, to be folded as count, mean and sum of squared deviations if `center` is the mean of `value`,
/// which [`Normalizer::is_mean`] tells.
#[derive(Clone, Copy, Debug)]
pub struct Moments<'s> {
    /// what deviates
    pub value: Term<'s>,
    /// from what
    pub center: Term<'s>,
}

/// Why a fold cannot follow a running result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// numerics are strict: corrections are true of real numbers only
    Strict,
    /// the terms are not floats
    NotReal,
    /// this fold has no correction of that kind
    Fold(Monoid),
    /// the running result and the elements meet in this function
    Inside(Scalar),
    /// addends of a term change differently
    Addends,
    /// a condition reads the running result
    Condition,
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Strict => f.write_str("a correction is not exact"),
            Refusal::NotReal => f.write_str("the terms are not floats"),
            Refusal::Fold(monoid) => write!(f, "a {} does not follow from its parts", monoid.name()),
            Refusal::Inside(op) => {
                write!(f, "{} of an element and the running result does not come apart", op.def().name)
            }
            Refusal::Addends => f.write_str("addends change differently"),
            Refusal::Condition => f.write_str("a condition reads the running result"),
        }
    }
}

/// A sum whose terms are folded piece by piece.
#[derive(Clone, Debug)]
pub struct Streamed<'s> {
    /// what is summed, safe where a running result is not finite
    pub element: Term<'s>,
    /// for each running result, in the order given, what happens to the partial sum when it changes
    pub corrections: Vec<Correction<'s>>,
    /// the running results that elements read
    read: Vec<Term<'s>>,
    linear: Linear<'s>,
}

impl<'s> Streamed<'s> {
    /// The sum of the terms, from the sum of the elements and the final results.
    pub fn finished(&self, normalizer: &mut Normalizer<'s>, sum: Term<'s>) -> Term<'s> {
        // r · 0 is 0 where r is finite, otherwise NaN.
        let settled = self.read.iter().fold(sum, |sum, r| sum + r.cast(sum.dtype()) * normalizer.scope.float(sum, 0.0));
        self.linear.around(normalizer, settled)
    }
}

impl<'s> Normalizer<'s> {
    /// How a fold of `term` follows the running result `running`, a leaf. `varies` says which leaves vary along the axis.
    pub fn correction(
        &mut self,
        term: Term<'s>,
        running: Term<'s>,
        monoid: Monoid,
        varies: &dyn Fn(&ExprNode) -> bool,
    ) -> Result<Correction<'s>, Refusal> {
        let element = self.wide(term);
        let mut site = Site::new(running, varies);
        if !site.reads.any(element) {
            return Ok(Correction::None);
        }
        if self.numerics == Numerics::Strict {
            return Err(Refusal::Strict);
        }
        if self.compute_type(element.dtype()).is_none() {
            return Err(Refusal::NotReal);
        }
        let product = self.product_of(element);
        match monoid {
            Monoid::Sum => {
                if let Some(moments) = self.moments(&product, &mut site) {
                    return Ok(Correction::Moments(moments));
                }
                let ratio = self.ratio(&product, &mut site)?;
                Ok(Correction::Factor(self.factor(ratio, &site)))
            }
            Monoid::Max | Monoid::Min => match self.ratio(&product, &mut site) {
                Ok(ratio) if ratio.is_positive => Ok(Correction::Factor(self.factor(ratio, &site))),
                _ => self.shift(&product, &mut site).map(Correction::Shift).ok_or(Refusal::Fold(monoid)),
            },
            _ => Err(Refusal::Fold(monoid)),
        }
    }

    /// A sum of `term`, whose leaves `running` are running results along the same axis: what is summed, how partial sums are
    /// corrected, and what is left to do with the whole sum, with the final results.
    pub fn streamed(
        &mut self,
        term: Term<'s>,
        running: &[Term<'s>],
        varies: &dyn Fn(&ExprNode) -> bool,
    ) -> Result<Streamed<'s>, Refusal> {
        let linear = self.split(term, varies);
        let (mut element, mut corrections, mut read) = (linear.element, Vec::new(), Vec::new());
        for leaf in running {
            let correction = self.correction(linear.element, *leaf, Monoid::Sum, varies)?;
            if let Correction::Factor(_) = correction {
                let safe = self.finite_or_zero(*leaf);
                element = self.replaced(element, *leaf, safe);
                read.push(*leaf);
            }
            corrections.push(correction);
        }
        Ok(Streamed { element: self.wide(element), corrections, read, linear })
    }

    /// Whether the center of moments is the mean of their value: `sum`, a leaf, is the fold of `summed` over `count` elements.
    pub fn is_mean(&mut self, moments: &Moments<'s>, sum: Term<'s>, summed: Term<'s>, count: Term<'s>) -> bool {
        let dtype = moments.center.dtype();
        let mean = self.wide(sum.cast(dtype) / count.cast(dtype));
        self.wide(summed.cast(dtype)) == moments.value && mean == moments.center
    }

    fn finite_or_zero(&self, leaf: Term<'s>) -> Term<'s> {
        let infinity = self.scope.float(leaf, f64::INFINITY);
        leaf.apply(Scalar::Abs).lt(infinity).select(leaf, self.scope.float(leaf, 0.0))
    }

    /// The term with another one in the place of a leaf.
    fn replaced(&self, root: Term<'s>, leaf: Term<'s>, with: Term<'s>) -> Term<'s> {
        let mut known: FxHashMap<u32, Term<'s>> = FxHashMap::default();
        known.insert(leaf.place(), with);
        let mut todo = vec![root];
        while let Some(&term) = todo.last() {
            let operands = term.operands();
            let missing: SmallVec<[Term<'s>; 3]> =
                operands.iter().copied().filter(|o| !known.contains_key(&o.place())).collect();
            if !missing.is_empty() {
                todo.extend(missing);
                continue;
            }
            todo.pop();
            let operands: SmallVec<[Term<'s>; 3]> = operands.iter().map(|o| known[&o.place()]).collect();
            known.entry(term.place()).or_insert_with(|| self.scope.step(&term.node(), term.dtype(), &operands));
        }
        known[&root.place()]
    }

    /// The quotient of a product with the new result by that with the old one, if it does not vary.
    fn ratio(&mut self, product: &Product<'s>, site: &mut Site<'_, 's>) -> Result<Ratio<'s>, Refusal> {
        let mut ratio = Ratio { value: Product::constant(self.scope, product.dtype, 1.0), is_positive: true };
        for Factor { base, exponent } in &product.factors {
            if !site.reads.any(*base) {
                continue;
            }
            let change = self.base_ratio(*base, site)?;
            let power = self.power(&change.value, *exponent);
            ratio.value = self.times(&ratio.value, &power);
            ratio.is_positive &= change.is_positive;
        }
        Ok(ratio)
    }

    fn base_ratio(&mut self, base: Term<'s>, site: &mut Site<'_, 's>) -> Result<Ratio<'s>, Refusal> {
        if !site.varying.any(base) {
            let (old, new) = (self.with_leaf(base, site, Side::Old), self.with_leaf(base, site, Side::New));
            let inverse = self.power(&old, -1);
            return Ok(Ratio { value: self.times(&new, &inverse), is_positive: false });
        }
        if let Some(sum) = self.sums.get(&base.place()).cloned() {
            let constant =
                (sum.constant != 0.0).then(|| Rc::new(Product::constant(self.scope, base.dtype(), sum.constant)));
            let addends = sum.terms.iter().map(|(term, _)| self.product_of(*term)).chain(constant).collect::<Vec<_>>();
            return self.shared_ratio(&addends, site);
        }
        match base.node() {
            ExprNode::Apply(op @ (Scalar::Exp | Scalar::Exp2), _) => {
                let change = self.difference(base.operands()[0], site).ok_or(Refusal::Inside(op))?;
                let change = self.write(&change);
                Ok(Ratio { value: Product::atom(change.apply(op)), is_positive: true })
            }
            ExprNode::Apply(Scalar::Select, _) => {
                let operands = base.operands();
                if site.reads.any(operands[0]) {
                    return Err(Refusal::Condition);
                }
                let branches: Vec<_> = operands[1..].iter().map(|t| self.product_of(*t)).collect();
                self.shared_ratio(&branches, site)
            }
            ExprNode::Apply(op, _) => Err(Refusal::Inside(op)),
            _ => Err(Refusal::NotReal),
        }
    }

    /// The ratio that all products have; 0 has any.
    fn shared_ratio(&mut self, products: &[Rc<Product<'s>>], site: &mut Site<'_, 's>) -> Result<Ratio<'s>, Refusal> {
        let mut shared: Option<(Term<'s>, Ratio<'s>)> = None;
        for product in products.iter().filter(|p| p.as_constant() != Some(0.0)) {
            let ratio = self.ratio(product, site)?;
            let term = self.write(&ratio.value);
            match &shared {
                Some((known, _)) if *known != term => return Err(Refusal::Addends),
                Some(_) => {}
                None => shared = Some((term, ratio)),
            }
        }
        shared.map(|(_, ratio)| ratio).ok_or(Refusal::Addends)
    }

    /// What is added to a term when the running result changes, if that does not vary.
    fn difference(&mut self, term: Term<'s>, site: &mut Site<'_, 's>) -> Option<Product<'s>> {
        let product = self.product_of(term);
        let is_sum = |f: &Factor<'s>| f.exponent == 1 && self.sums.contains_key(&f.base.place());
        let mut addends: Vec<(Rc<Product<'s>>, f64)> = Vec::new();
        match product.factors.iter().position(|f| is_sum(f) && site.reads.any(f.base)) {
            Some(k) => {
                let mut rest = product.monomial();
                let sum = self.sums[&rest.factors.remove(k).base.place()].clone();
                for (term, coefficient) in &sum.terms {
                    let addend = self.times(&rest, &self.product_of(*term));
                    addends.push((Rc::new(addend), coefficient * product.coefficient));
                }
            }
            None => addends.push((Rc::new(product.monomial()), product.coefficient)),
        }
        let mut parts = Vec::new();
        for (addend, coefficient) in addends {
            let addend = self.write(&addend);
            if site.reads.any(addend) {
                if site.varying.any(addend) {
                    return None;
                }
                parts.push((coefficient, Rc::new(self.with_leaf(addend, site, Side::New))));
                parts.push((-coefficient, Rc::new(self.with_leaf(addend, site, Side::Old))));
            }
        }
        Some(self.add_products(term.dtype(), &parts))
    }

    fn with_leaf(&mut self, term: Term<'s>, site: &Site<'_, 's>, side: Side) -> Product<'s> {
        let with = side.argument(self.scope, site.running);
        let replaced = self.replaced(term, site.running, with);
        let wide = self.wide(replaced);
        (*self.product_of(wide)).clone()
    }

    fn factor(&mut self, ratio: Ratio<'s>, site: &Site<'_, 's>) -> Change<'s> {
        let value = self.write(&ratio.value);
        Change { is_exponential: ratio.is_positive, ..self.unless_equal(value, 1.0, site) }
    }

    fn shift(&mut self, product: &Product<'s>, site: &mut Site<'_, 's>) -> Option<Change<'s>> {
        let term = self.write(product);
        let change = self.difference(term, site)?;
        let change = self.write(&change);
        Some(self.unless_equal(change, 0.0, site))
    }

    /// `change`, but `neutral` where old and new result are equal, also if they are infinite.
    fn unless_equal(&mut self, change: Term<'s>, neutral: f64, site: &Site<'_, 's>) -> Change<'s> {
        let [old, new] = [Side::Old, Side::New].map(|side| side.argument(self.scope, site.running));
        let equal = Term::call(Scalar::Eq, &[old, new]);
        let change = equal.select(self.scope.float(change, neutral), change);
        let mut others: Vec<Term<'s>> = Vec::new();
        let (mut todo, mut seen) = (vec![change], rustc_hash::FxHashSet::default());
        while let Some(term) = todo.pop() {
            if seen.insert(term.place()) {
                if matches!(term.node(), ExprNode::Arg(_)) && term != old && term != new {
                    others.push(term);
                }
                todo.extend(term.operands());
            }
        }
        others.sort_by(|a, b| self.order.compare(*a, *b));
        let args: Vec<Term<'s>> = [old, new].into_iter().chain(others.iter().copied()).collect();
        Change { expr: Expr::of(change, &args), others, is_exponential: false }
    }

    /// `(value − center)²`, where the center reads the running result and does not vary.
    fn moments(&mut self, product: &Product<'s>, site: &mut Site<'_, 's>) -> Option<Moments<'s>> {
        let [Factor { base, exponent: 2 }] = *product.factors.as_slice() else { return None };
        let sum = self.sums.get(&base.place()).cloned().filter(|_| product.coefficient == 1.0)?;
        let (mut value, mut center) = (Vec::new(), Vec::new());
        for (term, coefficient) in &sum.terms {
            let part = (*coefficient, self.product_of(*term));
            match (site.reads.any(*term), site.varying.any(*term)) {
                (true, true) => return None,
                (true, false) => center.push((-part.0, part.1)),
                _ => value.push(part),
            }
        }
        if sum.constant != 0.0 {
            value.push((sum.constant, Rc::new(Product::constant(self.scope, base.dtype(), 1.0))));
        }
        let sign = if value.first()?.0 < 0.0 { -1.0 } else { 1.0 };
        let mut written = |mut parts: Vec<(f64, Rc<Product<'s>>)>| {
            parts.iter_mut().for_each(|(c, _)| *c *= sign);
            let sum = self.add_products(base.dtype(), &parts);
            self.write(&sum)
        };
        Some(Moments { value: written(value), center: written(center) })
    }
}

impl<'s> Moments<'s> {
    /// Count, mean and sum of squared deviations of two parts together; either may be empty, with all three 0.
    pub fn merged(scope: &'s Scope, a: [Term<'s>; 3], b: [Term<'s>; 3]) -> [Term<'s>; 3] {
        let count = a[0] + b[0];
        let delta = b[1] - a[1];
        // Where both are empty the share of b is 0 / 1.
        let share = b[0] / Term::call(Scalar::Max, &[count, scope.one(count)]);
        [count, a[1] + delta * share, a[2] + b[2] + delta * delta * share * a[0]]
    }
}

/// A quotient that does not vary, and whether it is surely positive.
struct Ratio<'s> {
    value: Product<'s>,
    is_positive: bool,
}

/// Whether the running result before or after a change is meant.
#[derive(Clone, Copy)]
enum Side {
    Old,
    New,
}

impl Side {
    /// The argument that stands for it, with a number that no leaf has.
    fn argument<'s>(self, scope: &'s Scope, like: Term<'s>) -> Term<'s> {
        let number = match self {
            Side::Old => u32::MAX - 1,
            Side::New => u32::MAX,
        };
        scope.argument(number as usize, like.dtype())
    }
}

/// What is asked about terms: whether they read the running result, and whether they vary.
struct Site<'a, 's> {
    running: Term<'s>,
    reads: Reads<'a>,
    varying: Reads<'a>,
}

impl<'a, 's> Site<'a, 's> {
    fn new(running: Term<'s>, varies: &'a dyn Fn(&ExprNode) -> bool) -> Site<'a, 's> {
        let node = running.node();
        Site { running, reads: Reads::new(move |leaf| *leaf == node), varying: Reads::new(varies) }
    }
}
