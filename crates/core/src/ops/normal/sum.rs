//! Sums of products: collected and made primitive.

use std::borrow::Cow;
use std::cell::OnceCell;
use std::rc::Rc;

use smallvec::SmallVec;

use super::Normalizer;
use super::number::{is_same, read_back};
use super::product::{Factor, Product};
use crate::ops::range::{DROWNING, is_normal, may_add};
use crate::ops::{ExprNode, Number, Scalar, Term};
use crate::tensor::DType;

/// `Σ coefficient · monomial + constant`: at least two terms, or one and a constant.
#[derive(Clone, Debug)]
pub(super) struct Sum<'s> {
    /// products without coefficient, as terms, in order; a coefficient is a normal number of the type, or 0
    pub(super) terms: Vec<(Term<'s>, f64)>,
    pub(super) constant: f64,
    /// the base and the degree, if every term is a power of one base
    pub(super) polynomial: Option<(Term<'s>, i32)>,
}

/// A real number: a product, or a sum that may still grow.
#[derive(Debug)]
pub(super) struct Real<'s> {
    pub(super) dtype: DType,
    /// the addends; common factors are taken out where the sum is read as a product, not before: of `x·y + x·z + w` they
    /// would be taken out of a part
    sum: Option<Sum<'s>>,
    product: OnceCell<Rc<Product<'s>>>,
}

impl<'s> From<Product<'s>> for Real<'s> {
    fn from(product: Product<'s>) -> Real<'s> {
        Real { dtype: product.dtype, sum: None, product: OnceCell::from(Rc::new(product)) }
    }
}

impl Real<'_> {
    /// The number, if it is one.
    pub(super) fn as_constant(&self) -> Option<f64> {
        self.product.get()?.as_constant()
    }
}

/// A choice between −∞ and something else, or what is one when it is negated: a mask.
struct Hiding<'s> {
    condition: Term<'s>,
    /// which outcome of the condition hides
    when: bool,
    seen: Term<'s>,
}

impl<'s> Hiding<'s> {
    fn of((term, coefficient): (Term<'s>, f64)) -> Option<Hiding<'s>> {
        let Some(Scalar::Select) = term.as_call() else { return None };
        let [condition, yes, no] = term.operands()[..] else { return None };
        let least = |bits: u64| f64::from_bits(bits) * coefficient == f64::NEG_INFINITY;
        let hides = |t: Term<'s>| matches!(t.as_const(), Some(Number::Float(bits)) if least(bits));
        match (hides(yes), hides(no)) {
            _ if coefficient.abs() != 1.0 => None,
            (true, false) => Some(Hiding { condition, when: true, seen: no }),
            (false, true) => Some(Hiding { condition, when: false, seen: yes }),
            _ => None,
        }
    }
}

/// Whether a term is the element of an argument, perhaps converted.
fn is_read(term: Term<'_>) -> bool {
    match term.node() {
        ExprNode::Arg(_) => true,
        ExprNode::Cast(_) => term.operands().iter().copied().all(is_read),
        _ => false,
    }
}

/// Products without coefficient, as terms, with theirs, and a constant.
type Terms<'s> = (Vec<(Term<'s>, f64)>, f64);

/// A sum of more terms than this is a term of a larger one.
const MOST_TERMS: usize = 64;

/// Polynomials up to this degree are multiplied out.
pub(super) const MOST_DEGREE: i32 = 8;

impl<'s> Normalizer<'s> {
    /// `Σ coefficient · x`.
    pub(super) fn add(&mut self, dtype: DType, parts: &[(f64, &Real<'s>)]) -> Real<'s> {
        match self.added(dtype, parts) {
            Some(sum) => sum,
            None => self.kept_apart(dtype, parts),
        }
    }

    /// `Σ coefficient · x` part by part, constants last: they must not be joined.
    fn kept_apart(&mut self, dtype: DType, parts: &[(f64, &Real<'s>)]) -> Real<'s> {
        let mut signed: Vec<(Term<'s>, bool)> = Vec::with_capacity(parts.len());
        for (scale, part) in parts {
            let product = self.product(part);
            let product = self.scaled(&product, *scale);
            let is_negative = product.coefficient < 0.0;
            signed.push((self.write(&if is_negative { product.negated() } else { product }), is_negative));
        }
        signed.sort_by_key(|(term, is_negative)| (term.as_const().is_some(), *is_negative));
        let total = signed.into_iter().fold(None, |total: Option<Term<'s>>, (size, is_negative)| {
            Some(match (total, is_negative) {
                (Some(total), true) => total - size,
                (Some(total), false) => total + size,
                (None, true) => -size,
                (None, false) => size,
            })
        });
        total.map_or_else(|| Product::constant(self.scope, dtype, 0.0), Product::atom).into()
    }

    /// `Σ coefficient · x`, flat; `None` where that would join constants that must stay apart.
    fn added(&mut self, dtype: DType, parts: &[(f64, &Real<'s>)]) -> Option<Real<'s>> {
        let (mut terms, mut constant): (Vec<(Term<'s>, f64)>, f64) = (Vec::with_capacity(parts.len() + 1), 0.0);
        let join = |constant: &mut f64, x: f64| {
            let may = may_add(*constant, x, dtype);
            *constant += x;
            may.then_some(())
        };
        for (sign, part) in parts {
            let spread = match &part.sum {
                Some(sum) => Some((*sign, Cow::Borrowed(sum))),
                None => {
                    let product = self.product(part);
                    let addends = self.addends(&product);
                    addends.map(|sum| (sign * product.coefficient, Cow::Owned(sum)))
                }
            };
            match spread {
                Some((scale, sum)) if terms.len() + sum.terms.len() <= MOST_TERMS && can_scale(&sum, scale, dtype) => {
                    terms.extend(sum.terms.iter().map(|(term, c)| (*term, c * scale)));
                    join(&mut constant, sum.constant * scale)?;
                }
                _ => {
                    let product = self.product(part);
                    match product.as_constant() {
                        Some(x) => join(&mut constant, sign * x)?,
                        None => terms.push((self.write(&product.monomial()), sign * product.coefficient)),
                    }
                }
            }
        }
        let order = &mut self.order;
        terms.sort_by(|a, b| order.compare(a.0, b.0));
        let mut joined = Some(());
        terms.dedup_by(|b, a| {
            let same = a.0 == b.0;
            if same {
                joined = joined.and_then(|()| join(&mut a.1, b.1));
            }
            same
        });
        joined?;
        // What is taken away and was read may be −∞ itself: the maximum of a row that is hidden everywhere, where −∞ − −∞ is NaN, which
        // guards ask for.
        let may_be_least = terms.iter().any(|(term, c)| *c < 0.0 && is_read(*term));
        let hiding = terms.iter().position(|term| Hiding::of(*term).is_some());
        if let Some(k) = hiding.filter(|_| !may_be_least) {
            let choice = terms.remove(k);
            return Some(self.add_behind(dtype, choice, &terms, constant));
        }
        Some(match terms.as_slice() {
            [] => Product::constant(self.scope, dtype, constant).into(),
            [(term, coefficient)] if constant == 0.0 => self.scaled(&self.product_of(*term), *coefficient).into(),
            _ => Real { dtype, sum: Some(Sum { terms, constant, polynomial: None }), product: OnceCell::new() },
        })
    }

    /// `select(c, x, −∞) + y` is `select(c, x + y, −∞)`: what is hidden stays hidden.
    fn add_behind(
        &mut self,
        dtype: DType,
        choice: (Term<'s>, f64),
        terms: &[(Term<'s>, f64)],
        constant: f64,
    ) -> Real<'s> {
        let hiding = Hiding::of(choice).expect("the choice hides");
        let mut parts = vec![(choice.1, self.product_of(hiding.seen))];
        for (term, coefficient) in terms {
            parts.push((*coefficient, self.product_of(*term)));
        }
        parts.push((1.0, Rc::new(Product::constant(self.scope, dtype, constant))));
        let sum = self.add_products(dtype, &parts);
        let seen = self.write(&sum);
        let hidden = self.write(&Product::constant(self.scope, dtype, f64::NEG_INFINITY));
        let (yes, no) = if hiding.when { (hidden, seen) } else { (seen, hidden) };
        self.select(hiding.condition, yes, no).into()
    }

    /// `Σ coefficient · product`.
    pub(super) fn add_products(&mut self, dtype: DType, parts: &[(f64, Rc<Product<'s>>)]) -> Product<'s> {
        let parts: Vec<_> = parts.iter().map(|(c, part)| (*c, Real::from((**part).clone()))).collect();
        let parts: Vec<_> = parts.iter().map(|(c, part)| (*c, part)).collect();
        let sum = self.add(dtype, &parts);
        (*self.product(&sum)).clone()
    }

    /// `c · x`.
    pub(super) fn multiple_of(&mut self, x: &Real<'s>, c: f64) -> Real<'s> {
        let product = self.product(x);
        let product = self.scaled(&product, c);
        let sum = x.sum.as_ref().filter(|sum| c != 0.0 && can_scale(sum, c, x.dtype)).map(|sum| Sum {
            terms: sum.terms.iter().map(|(term, coefficient)| (*term, coefficient * c)).collect(),
            constant: sum.constant * c,
            polynomial: None,
        });
        Real { dtype: x.dtype, sum, product: OnceCell::from(Rc::new(product)) }
    }

    /// The number as a product.
    pub(super) fn product(&mut self, x: &Real<'s>) -> Rc<Product<'s>> {
        if let Some(known) = x.product.get() {
            return known.clone();
        }
        let sum = x.sum.as_ref().expect("a number is a product or a sum");
        let product = Rc::new(self.primitive(x.dtype, sum.terms.clone(), sum.constant));
        x.product.get_or_init(|| product).clone()
    }

    /// The sum that a product, its coefficient aside, is or can be multiplied out to.
    fn addends(&mut self, product: &Product<'s>) -> Option<Sum<'s>> {
        if let Some(base) = product.as_base() {
            return self.sums.get(&base.place()).map(|sum| (**sum).clone());
        }
        let [a, b] = product.factors.as_slice() else { return None };
        let polynomial =
            |f: &Factor<'s>| self.sums.get(&f.base.place()).filter(|s| f.exponent == 1 && s.polynomial.is_some());
        let (power, sum) = match (polynomial(a), polynomial(b)) {
            (Some(sum), _) if sum.is_in(b.base) => (*b, sum.clone()),
            (_, Some(sum)) if sum.is_in(a.base) => (*a, sum.clone()),
            _ => return None,
        };
        let (_, degree) = sum.polynomial?;
        if power.exponent < 0 || degree + power.exponent > MOST_DEGREE {
            return None;
        }
        let factor = Product { dtype: product.dtype, coefficient: 1.0, factors: SmallVec::from_slice(&[power]) };
        let mut terms = Vec::with_capacity(sum.terms.len() + 1);
        for (term, coefficient) in &sum.terms {
            let term = self.times(&factor, &self.product_of(*term));
            terms.push((self.write(&term), *coefficient));
        }
        if sum.constant != 0.0 {
            terms.push((self.write(&factor), sum.constant));
        }
        Some(Sum { terms, constant: 0.0, polynomial: None })
    }

    /// A sum of sorted terms as a product: common factors and a common coefficient outside.
    fn primitive(&mut self, dtype: DType, mut terms: Vec<(Term<'s>, f64)>, mut constant: f64) -> Product<'s> {
        while let Some(fewer) = self.refolded(dtype, &terms, constant) {
            (terms, constant) = fewer;
        }
        if constant == 0.0
            && let Some(common) = self.common_factors(dtype, &terms)
        {
            let inverse = Product { factors: inverted(&common.factors), ..common.clone() };
            let parts: Vec<_> =
                terms.iter().map(|(term, c)| (*c, Rc::new(without(&self.product_of(*term), &inverse)))).collect();
            let rest = self.add_products(dtype, &parts);
            return self.times(&rest, &common);
        }
        if self.polynomial_of(&terms).is_none() {
            while let Some(fewer) = self.gathered(dtype, &terms) {
                if fewer.len() == 1 && constant == 0.0 {
                    return self.scaled(&self.product_of(fewer[0].0), fewer[0].1);
                }
                terms = fewer;
            }
        }
        if constant == 0.0 && terms.iter().all(|(_, c)| *c == 0.0) {
            terms.iter_mut().for_each(|(_, c)| *c = 1.0);
            let sum = self.primitive(dtype, terms, constant);
            return self.scaled(&sum, 0.0);
        }
        let content = content(&terms, constant, dtype);
        for (_, coefficient) in &mut terms {
            *coefficient = quotient(*coefficient, content, dtype);
        }
        let constant = quotient(constant, content, dtype);
        if let Some(product) = self.known_sum(&terms, constant, dtype) {
            return self.scaled(&product, content);
        }
        let polynomial = self.polynomial_of(&terms);
        let sum = Rc::new(Sum { terms, constant, polynomial });
        let base = self.write_sum(dtype, &sum, 1.0);
        self.sums.entry(base.place()).or_insert(sum);
        self.scaled(&Product::atom(base), content)
    }

    /// The terms and the constant with those as one that are a multiple of a sum which is a factor of another term: flat, `x + x³` with
    /// `x = a + b` is `a + b + (a + b)³`.
    fn refolded(&mut self, dtype: DType, terms: &[(Term<'s>, f64)], constant: f64) -> Option<Terms<'s>> {
        let factors = terms.iter().flat_map(|(term, _)| self.product_of(*term).factors.clone());
        let bases: SmallVec<[Term<'s>; 4]> = factors.filter(|f| f.exponent > 0).map(|f| f.base).collect();
        for base in bases {
            let Some(sum) = self.sums.get(&base.place()).cloned() else { continue };
            let coefficient = |term: Term<'s>| terms.iter().find(|(own, _)| *own == term).map_or(0.0, |(_, c)| *c);
            let Some((first, own)) = sum.terms.first() else { continue };
            let multiple = coefficient(*first) / own;
            let is_part = |x: f64, of: f64| is_same(x, of * multiple, dtype);
            let all = sum.terms.iter().all(|(term, c)| is_part(coefficient(*term), *c));
            let fits = multiple != 0.0 && is_normal(multiple, dtype);
            let is_there = coefficient(base) != 0.0;
            if !fits || !all || is_there || sum.constant != 0.0 && !is_part(constant, sum.constant) {
                continue;
            }
            let is_left = |(term, _): &&(Term<'s>, f64)| sum.terms.iter().all(|(part, _)| part != term);
            let mut fewer: Vec<(Term<'s>, f64)> = terms.iter().filter(is_left).copied().collect();
            fewer.push((base, multiple));
            let order = &mut self.order;
            fewer.sort_by(|a, b| order.compare(a.0, b.0));
            return Some((fewer, if sum.constant == 0.0 { constant } else { 0.0 }));
        }
        None
    }

    /// The terms with some that share factors gathered: `x·y + x·z + w` is `x·(y + z) + w`. Those that share most go first.
    fn gathered(&mut self, dtype: DType, terms: &[(Term<'s>, f64)]) -> Option<Vec<(Term<'s>, f64)>> {
        if terms.len() < 2 || terms.iter().any(|(_, c)| *c == 0.0) {
            return None;
        }
        let mut best: Option<(i32, Product<'s>)> = None;
        for k in 1..terms.len() {
            for before in 0..k {
                let Some(common) = self.common_factors(dtype, &[terms[before], terms[k]]) else { continue };
                if self.would_drown(&common, &[terms[before], terms[k]]) {
                    continue;
                }
                let weight = common.factors.iter().map(|f| f.exponent.abs()).sum();
                if best.as_ref().is_none_or(|(most, _)| weight > *most) {
                    best = Some((weight, common));
                }
            }
        }
        let (_, common) = best?;
        let inverse = Product { factors: inverted(&common.factors), ..common.clone() };
        let (mut inside, mut rest) = (Vec::new(), Vec::new());
        for (term, coefficient) in terms {
            let product = self.product_of(*term);
            let has = |f: &Factor<'s>| {
                let same = |o: &Factor<'s>| o.base == f.base && o.exponent.signum() == f.exponent.signum();
                product.factors.iter().any(|o| same(o) && o.exponent.abs() >= f.exponent.abs())
            };
            let mut drowns = || terms.iter().any(|other| self.would_drown(&common, &[(*term, *coefficient), *other]));
            if common.factors.iter().all(has) && !drowns() {
                inside.push((*coefficient, Rc::new(without(&product, &inverse))));
            } else {
                rest.push((1.0, Rc::new(self.scaled(&product, *coefficient))));
            }
        }
        // Where all but one would drown, nothing is gained, and nothing would be the next time.
        if inside.len() < 2 {
            return None;
        }
        let inside = self.add_products(dtype, &inside);
        let group = self.times(&inside, &common);
        let mut terms = vec![(self.write(&group.monomial()), group.coefficient)];
        terms.extend(rest.iter().map(|(_, product)| (self.write(&product.monomial()), product.coefficient)));
        let order = &mut self.order;
        terms.sort_by(|a, b| order.compare(a.0, b.0));
        Some(terms)
    }

    /// Whether two terms without common factors are a large constant and something small, whose digits the sum of both would
    /// not hold: of `s·m + 10000·m − 10000`, where m is 0 or 1, nothing may become `m·(s + 10000)`.
    fn would_drown(&mut self, common: &Product<'s>, terms: &[(Term<'s>, f64); 2]) -> bool {
        let is_constant = terms.map(|(term, _)| self.product_of(term).factors == common.factors);
        let [a, b] = terms.map(|(_, coefficient)| coefficient.abs());
        is_constant[0] && !is_constant[1] && a > DROWNING * b || is_constant[1] && !is_constant[0] && b > DROWNING * a
    }

    /// A sum of one function and a constant that is another function: `exp(x) − 1` is `expm1(x)`, `tanh(x) + 1` is
    /// `2 · sigmoid(2·x)` (which does not cancel), `sigmoid(x) − ½` is `½ · tanh(x / 2)`.
    fn known_sum(&mut self, terms: &[(Term<'s>, f64)], constant: f64, dtype: DType) -> Option<Product<'s>> {
        let [(term, 1.0)] = terms else { return None };
        let op = term.as_call()?;
        let is = |x: f64| is_same(constant, x, dtype);
        let mut of = |op: Scalar, scale: f64| {
            let argument = self.product_of(term.operands()[0]);
            let argument = self.scaled(&argument, scale);
            Product::atom(self.write(&argument).apply(op))
        };
        match op {
            Scalar::Exp if is(-1.0) => Some(of(Scalar::Expm1, 1.0)),
            Scalar::Tanh if is(1.0) => Some(Product { coefficient: 2.0, ..of(Scalar::Sigmoid, 2.0) }),
            Scalar::Tanh if is(-1.0) => Some(Product { coefficient: -2.0, ..of(Scalar::Sigmoid, -2.0) }),
            Scalar::Sigmoid if is(-0.5) => Some(Product { coefficient: 0.5, ..of(Scalar::Tanh, 0.5) }),
            _ => None,
        }
    }

    /// The factors that all terms have.
    fn common_factors(&mut self, dtype: DType, terms: &[(Term<'s>, f64)]) -> Option<Product<'s>> {
        let (first, rest) = terms.split_first()?;
        let mut common = self.product_of(first.0).factors.clone();
        for (term, _) in rest {
            let other = self.product_of(*term);
            common.retain(|f| {
                let same = |o: &&Factor<'s>| o.base == f.base && o.exponent.signum() == f.exponent.signum();
                let found = other.factors.iter().find(same);
                let shared = found.map_or(0, |o| o.exponent.abs().min(f.exponent.abs()));
                f.exponent = f.exponent.signum() * shared;
                shared > 0
            });
            if common.is_empty() {
                return None;
            }
        }
        Some(Product { dtype, coefficient: 1.0, factors: common })
    }

    fn polynomial_of(&self, terms: &[(Term<'s>, f64)]) -> Option<(Term<'s>, i32)> {
        let mut found: Option<(Term<'s>, i32)> = None;
        for (term, coefficient) in terms {
            let product = self.product_of(*term);
            let [Factor { base, exponent }] = *product.factors.as_slice() else { return None };
            let known = found.get_or_insert((base, exponent));
            if known.0 != base || exponent < 0 || *coefficient == 0.0 {
                return None;
            }
            known.1 = known.1.max(exponent);
        }
        found
    }
}

impl<'s> Sum<'s> {
    fn is_in(&self, base: Term<'s>) -> bool {
        self.polynomial.is_some_and(|(b, _)| b == base)
    }
}

pub(super) fn can_scale(sum: &Sum<'_>, scale: f64, dtype: DType) -> bool {
    let fits = |c: f64| c == 0.0 || is_normal(c * scale, dtype);
    sum.terms.iter().all(|(_, c)| fits(*c)) && fits(sum.constant)
}

fn inverted<'s>(factors: &[Factor<'s>]) -> SmallVec<[Factor<'s>; 2]> {
    factors.iter().map(|f| Factor { exponent: -f.exponent, ..*f }).collect()
}

/// A product without some of its factors, given by their inverses.
fn without<'s>(product: &Product<'s>, inverse: &Product<'s>) -> Product<'s> {
    let mut rest = product.clone();
    for taken in &inverse.factors {
        for factor in &mut rest.factors {
            if factor.base == taken.base && factor.exponent.signum() == -taken.exponent.signum() {
                factor.exponent += taken.exponent;
            }
        }
    }
    rest.factors.retain(|f| f.exponent != 0);
    rest
}

/// The coefficient that is taken out of a sum: the size that most terms share, of several the largest, with the sign of the
/// first term. 1 where a quotient by it would leave the range of the type.
pub(super) fn content(terms: &[(Term<'_>, f64)], constant: f64, dtype: DType) -> f64 {
    let mut sizes: SmallVec<[f64; 8]> = terms.iter().map(|(_, c)| c.abs()).filter(|c| *c != 0.0).collect();
    let Some(first) = terms.iter().map(|(_, c)| *c).find(|c| *c != 0.0) else { return 1f64.copysign(constant) };
    sizes.sort_by(|a, b| b.total_cmp(a));
    let (mut best, mut most) = (sizes[0], 0);
    for group in sizes.chunk_by(|a, b| is_same(*a, *b, dtype)) {
        if group.len() > most {
            (best, most) = (group[0], group.len());
        }
    }
    let fits = |c: f64| c == 0.0 || is_normal(c / best, dtype);
    let size = if sizes.iter().all(|c| fits(*c)) && fits(constant) { best } else { 1.0 };
    if is_same(size, 1.0, dtype) { first.signum() } else { size.copysign(first) }
}

/// A coefficient of a primitive sum, as it will be read when it has been written.
pub(super) fn quotient(x: f64, content: f64, dtype: DType) -> f64 {
    let x = x / content + 0.0; // −0 becomes 0
    if is_same(x.abs(), 1.0, dtype) { x.signum() } else { read_back(x, dtype) }
}
