//! Products of many factors, grouped so that they have as much as possible in common.
//!
//! A normal form writes every product in one order, whatever else is multiplied beside it: of `g·x·e`, `x·e` and `r·x·d·e` it shares nothing. Here
//! factors that do not vary along a row become one, which is computed once a row; then the two factors that most products have in common are
//! multiplied first, again and again. A sum all of whose terms have a factor of that kind takes one more into it for nothing.

use fuseline::ops::{ExprNode, Scalar, Scope, Term};
use fuseline::tensor::DType;
use rustc_hash::{FxHashMap, FxHashSet};

use super::varying::Varying;

/// Kernels with more products, or a product with more factors, are left as they are.
const MOST_PRODUCTS: usize = 128;
const MOST_FACTORS: usize = 16;

/// A product: its factors, those that it is divided by, and its sign.
#[derive(Clone, Debug, Default)]
struct Product {
    factors: Vec<u32>,
    divisors: Vec<u32>,
    is_negative: bool,
}

/// Terms that compute what others do, with fewer multiplications.
pub(super) struct Sharing<'s, 'v> {
    scope: &'s Scope,
    varying: Varying<'v>,
    /// all terms that are computed somewhere
    known: FxHashSet<u32>,
    /// products by their place: factors that are left, and divisors that vary
    products: FxHashMap<u32, Product>,
    /// terms that were written anew, and whether their negative is meant
    written: FxHashMap<u32, (Term<'s>, bool)>,
}

impl<'s, 'v> Sharing<'s, 'v> {
    /// The same terms with what their products have in common computed once; `varies` tells whether a leaf varies along a row.
    pub fn of(scope: &'s Scope, ends: &[u32], varies: &'v dyn Fn(&ExprNode) -> bool) -> Vec<u32> {
        let mut sharing = Sharing {
            scope,
            varying: Varying::of(varies),
            known: FxHashSet::default(),
            products: FxHashMap::default(),
            written: FxHashMap::default(),
        };
        let readers = readers(scope, ends);
        let mut absorbed = FxHashMap::default();
        let ends: Vec<u32> =
            ends.iter().map(|end| sharing.absorbed(scope.term(*end), &readers, &mut absorbed)).collect();
        sharing.known = self::readers(scope, &ends).into_keys().collect();
        if !sharing.find_products(&ends) {
            return ends;
        }
        sharing.share();
        ends.iter().map(|end| sharing.term(scope.term(*end)).place()).collect()
    }

    /// The product that a term is; none where it is no product.
    fn product(&mut self, term: Term<'s>) -> Option<Product> {
        is_product(term).then(|| {
            let mut product = Product::default();
            self.multiply(&mut product, term);
            product
        })
    }

    fn multiply(&mut self, product: &mut Product, term: Term<'s>) {
        match (term.node(), term.operands().as_slice()) {
            (ExprNode::Apply(Scalar::Neg, _), &[a]) if is_float(term) => {
                product.is_negative ^= true;
                self.multiply(product, a);
            }
            (ExprNode::Apply(Scalar::Mul, _), &[a, b]) if is_product(term) => {
                self.multiply(product, a);
                self.multiply(product, b);
            }
            (ExprNode::Apply(Scalar::Div, _), &[a, b]) if is_product(term) => {
                self.multiply(product, a);
                product.divisors.push(b.place());
            }
            // Of a difference and its negative, where there are both, the first.
            (ExprNode::Apply(Scalar::Sub, _), &[a, b]) if is_float(term) => {
                let other = (b - a).place();
                let is_other = other < term.place() && self.known.contains(&other);
                product.is_negative ^= is_other;
                product.factors.push(if is_other { other } else { term.place() });
            }
            _ => product.factors.push(term.place()),
        }
    }

    /// The same with factors that do not vary taken into sums that have such factors in all of their terms.
    fn absorbed(&mut self, term: Term<'s>, readers: &FxHashMap<u32, usize>, known: &mut FxHashMap<u32, u32>) -> u32 {
        if let Some(place) = known.get(&term.place()) {
            return *place;
        }
        let operands: Vec<Term<'s>> = term
            .operands()
            .into_iter()
            .map(|operand| self.scope.term(self.absorbed(operand, readers, known)))
            .collect();
        let mut same = if operands.is_empty() { term } else { self.scope.step(&term.node(), term.dtype(), &operands) };
        // The sum is read by this product alone: otherwise it would be computed twice.
        let is_own = |operand: &Term<'s>| summands(*operand).len() < 2 || readers.get(&operand.place()) == Some(&1);
        if is_product(term) && term.operands().iter().all(is_own) {
            same = self.taken_in(same).unwrap_or(same);
        }
        known.insert(term.place(), same.place());
        same.place()
    }

    /// A product of a sum and of what does not vary, as a sum of such products.
    fn taken_in(&mut self, term: Term<'s>) -> Option<Term<'s>> {
        let product = self.product(term)?;
        let (varying, others): (Vec<u32>, Vec<u32>) =
            product.factors.iter().partition(|place| self.varying.has(self.scope.term(**place)));
        let [sum] = varying[..] else { return None };
        let is_fixed = product.divisors.iter().all(|place| !self.varying.has(self.scope.term(*place)));
        let terms = summands(self.scope.term(sum));
        if !is_fixed || terms.len() < 2 || !terms.iter().all(|(term, _)| self.takes_factors(*term)) {
            return None;
        }
        let scaled = |term: Term<'s>| {
            let factors = others.iter().fold(term, |all, place| all * self.scope.term(*place));
            product.divisors.iter().fold(factors, |all, place| all / self.scope.term(*place))
        };
        let mut total: Option<Term<'s>> = None;
        for (term, is_negative) in terms {
            let term = scaled(term);
            total = Some(match (total, is_negative ^ product.is_negative) {
                (None, false) => term,
                (None, true) => -term,
                (Some(others), false) => others + term,
                (Some(others), true) => others - term,
            });
        }
        total
    }

    /// Whether one more factor that does not vary costs nothing.
    fn takes_factors(&mut self, term: Term<'s>) -> bool {
        if !self.varying.has(term) {
            return true;
        }
        let Some(product) = self.product(term) else { return false };
        product.factors.iter().chain(&product.divisors).any(|place| !self.varying.has(self.scope.term(*place)))
    }

    /// Finds all products below some terms, factors that do not vary being one; whether there are few enough.
    fn find_products(&mut self, ends: &[u32]) -> bool {
        let (mut seen, mut todo) = (FxHashSet::default(), ends.to_vec());
        while let Some(place) = todo.pop() {
            if !seen.insert(place) {
                continue;
            }
            let term = self.scope.term(place);
            let Some(product) = self.product(term) else {
                todo.extend(term.operands().iter().map(|operand| operand.place()));
                continue;
            };
            let product = self.with_fixed_as_one(term, product);
            todo.extend(product.factors.iter().chain(&product.divisors));
            if product.factors.len() > MOST_FACTORS || self.products.len() >= MOST_PRODUCTS {
                return false;
            }
            self.products.insert(place, product);
        }
        true
    }

    /// Factors and divisors that do not vary as one factor, where others do.
    fn with_fixed_as_one(&mut self, term: Term<'s>, product: Product) -> Product {
        if !self.varying.has(term) {
            return product;
        }
        let Product { factors, divisors, is_negative } = product;
        let split = |sharing: &mut Self, places: Vec<u32>| -> (Vec<u32>, Vec<u32>) {
            places.into_iter().partition(|place| sharing.varying.has(sharing.scope.term(*place)))
        };
        let ((mut factors, fixed), (mut divisors, fixed_divisors)) = (split(self, factors), split(self, divisors));
        match fixed.into_iter().map(|place| self.scope.term(place)).reduce(|a, b| a * b) {
            Some(fixed) => {
                let fixed = fixed_divisors.iter().fold(fixed, |all, by| all / self.scope.term(*by));
                factors.push(fixed.place());
            }
            // An inverse by itself may be no ordinary number.
            None => divisors.extend(fixed_divisors),
        }
        factors.sort_unstable();
        Product { factors, divisors, is_negative }
    }

    /// Multiplies, as long as there are any, the two factors first that most products have in common.
    fn share(&mut self) {
        let mut places: Vec<u32> = self.products.keys().copied().collect();
        places.sort_unstable();
        loop {
            let mut counts: FxHashMap<(u32, u32), (usize, bool)> = FxHashMap::default();
            for place in &places {
                let factors = &self.products[place].factors;
                let pairs: FxHashSet<(u32, u32)> = (0..factors.len())
                    .flat_map(|a| (a + 1..factors.len()).map(move |b| (a, b)))
                    .map(|(a, b)| (factors[a], factors[b]))
                    .collect();
                for pair in pairs {
                    let count = counts.entry(pair).or_default();
                    count.0 += 1;
                    // What somebody reads as it is has to be computed anyway.
                    count.1 |= factors.len() == 2;
                }
            }
            let best = counts.into_iter().filter(|(_, (count, _))| *count > 1);
            let Some(((a, b), _)) = best.max_by_key(|(pair, count)| (*count, std::cmp::Reverse(*pair))) else { return };
            let both = (self.scope.term(a) * self.scope.term(b)).place();
            for place in places.iter().filter(|place| **place != both) {
                let Some(product) = self.products.get_mut(place) else { continue };
                let at = product.factors.iter().position(|factor| *factor == a);
                let Some(first) = at else { continue };
                let Some(second) = (0..product.factors.len()).find(|k| *k != first && product.factors[*k] == b) else {
                    continue;
                };
                product.factors.remove(first.max(second));
                product.factors.remove(first.min(second));
                product.factors.push(both);
                product.factors.sort_unstable();
            }
            self.products.entry(both).or_insert(Product {
                factors: vec![a, b],
                divisors: Vec::new(),
                is_negative: false,
            });
        }
    }

    /// A term written anew.
    fn term(&mut self, term: Term<'s>) -> Term<'s> {
        match self.signed(term) {
            (term, true) => -term,
            (term, false) => term,
        }
    }

    /// A term, or its negative.
    fn signed(&mut self, term: Term<'s>) -> (Term<'s>, bool) {
        if let Some(known) = self.written.get(&term.place()) {
            return *known;
        }
        let written = match (self.products.get(&term.place()).cloned(), term.node(), term.operands().as_slice()) {
            (Some(product), ..) => self.multiplied(term, &product),
            (None, ExprNode::Apply(Scalar::Add, _), &[a, b]) if is_float(term) => self.added(a, b, false),
            (None, ExprNode::Apply(Scalar::Sub, _), &[a, b]) if is_float(term) => self.added(a, b, true),
            (None, _, []) => (term, false),
            (None, node, operands) => {
                let operands: Vec<Term<'s>> = operands.iter().map(|operand| self.term(*operand)).collect();
                (self.scope.step(&node, term.dtype(), &operands), false)
            }
        };
        self.written.insert(term.place(), written);
        written
    }

    fn added(&mut self, a: Term<'s>, b: Term<'s>, is_difference: bool) -> (Term<'s>, bool) {
        let ((a, a_negative), (b, b_negative)) = (self.signed(a), self.signed(b));
        match (a_negative, b_negative ^ is_difference) {
            (false, false) => (a + b, false),
            (false, true) => (a - b, false),
            (true, false) => (b - a, false),
            (true, true) => (a + b, true),
        }
    }

    fn multiplied(&mut self, term: Term<'s>, product: &Product) -> (Term<'s>, bool) {
        let mut is_negative = product.is_negative;
        let mut all: Option<Term<'s>> = None;
        for place in &product.factors {
            let (factor, negative) = self.signed(self.scope.term(*place));
            is_negative ^= negative;
            all = Some(all.map_or(factor, |others| others * factor));
        }
        let mut all = all.unwrap_or_else(|| self.scope.one(term));
        for place in &product.divisors {
            let (divisor, negative) = self.signed(self.scope.term(*place));
            is_negative ^= negative;
            all = all / divisor;
        }
        (all, is_negative)
    }
}

fn is_float(term: Term<'_>) -> bool {
    term.dtype() == DType::F32
}

/// Whether a term is a product of others that may be multiplied in any order. A square stays one.
fn is_product(term: Term<'_>) -> bool {
    match (term.node(), term.operands().as_slice()) {
        (ExprNode::Apply(Scalar::Mul, _), &[a, b]) => is_float(term) && a != b,
        (ExprNode::Apply(Scalar::Div, _), &[a, _]) => is_float(term) && a.as_const().is_none(),
        (ExprNode::Apply(Scalar::Neg, _), &[a]) => is_float(term) && is_product(a),
        _ => false,
    }
}

/// The terms that are added to a term, each with whether it is taken away.
pub(super) fn summands(term: Term<'_>) -> Vec<(Term<'_>, bool)> {
    let (mut found, mut todo) = (Vec::new(), vec![(term, false)]);
    while let Some((term, is_negative)) = todo.pop() {
        match (term.node(), term.operands().as_slice()) {
            (ExprNode::Apply(Scalar::Add, _), &[a, b]) => todo.extend([(b, is_negative), (a, is_negative)]),
            (ExprNode::Apply(Scalar::Sub, _), &[a, b]) => todo.extend([(b, !is_negative), (a, is_negative)]),
            (ExprNode::Apply(Scalar::Neg, _), &[a]) => todo.push((a, !is_negative)),
            _ => found.push((term, is_negative)),
        }
    }
    found
}

/// How many terms read each of those below some, which are read from outside.
fn readers(scope: &Scope, ends: &[u32]) -> FxHashMap<u32, usize> {
    let (mut readers, mut seen, mut todo) = (FxHashMap::default(), FxHashSet::default(), ends.to_vec());
    ends.iter().for_each(|end| *readers.entry(*end).or_default() += 1);
    while let Some(place) = todo.pop() {
        if seen.insert(place) {
            for operand in scope.term(place).operands() {
                *readers.entry(operand.place()).or_default() += 1;
                todo.push(operand.place());
            }
        }
    }
    readers
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How often each function is applied below some terms.
    fn count(scope: &Scope, ends: &[u32], op: Scalar) -> usize {
        let places = readers(scope, ends);
        places.keys().filter(|place| matches!(scope.term(**place).node(), ExprNode::Apply(own, _) if own == op)).count()
    }

    #[test]
    fn products_have_in_common_what_they_can() {
        let scope = Scope::default();
        let [g, x, m, e, r] = [0, 1, 2, 3, 4].map(|k| scope.argument(k, DType::F32));
        let ends = [g * x * e, x * e, r * (x * (e * (x - m))), g * (m - x) * r].map(|term| term.place());
        // The mean and the root are those of a row.
        let varies = |node: &ExprNode| matches!(node, ExprNode::Arg(0 | 1 | 3));
        let shared = Sharing::of(&scope, &ends, &varies);
        // x·e, g·(x·e), r·(m − x), and a product of two of these or of one with g.
        assert_eq!(count(&scope, &shared, Scalar::Mul), 5);
        assert_eq!(count(&scope, &shared, Scalar::Sub), 1);
    }

    #[test]
    fn factors_of_a_row_go_into_sums_that_have_some() {
        let scope = Scope::default();
        let [x, h, s, n] = [0, 1, 2, 3].map(|k| scope.argument(k, DType::F32));
        let varies = |node: &ExprNode| matches!(node, ExprNode::Arg(0 | 1));
        // Both terms have such a factor: nothing is divided for every element.
        let ends = [((x * s - s) / n + h).place()];
        let shared = Sharing::of(&scope, &ends, &varies);
        assert_eq!(count(&scope, &shared, Scalar::Div), 1);
        assert_eq!(count(&scope, &shared, Scalar::Mul), 1);
        // A sum that somebody else reads is computed once.
        let sum = x * s - s;
        let ends = [(sum / n).place(), sum.place()];
        assert_eq!(Sharing::of(&scope, &ends, &varies), ends);
        // Another sum has none: it is divided as a whole.
        let ends = [((x + h) / n).place()];
        assert_eq!(Sharing::of(&scope, &ends, &varies), ends);
    }
}
