//! Functions of real numbers, and the powers that have another form.

use std::rc::Rc;

use smallvec::SmallVec;

use super::number::computed;
use super::product::{Factor, Product};
use super::sum::Real;
use super::{Normalizer, Numerics};
use crate::ops::range::is_normal;
use crate::ops::{ExprNode, Number, Scalar, Term};
use crate::tensor::{Class, DType};

use Scalar::{
    Abs, Add, Asin, Asinh, Atan, Atanh, Cos, Cosh, Div, Erf, Exp, Exp2, Expm1, Le, Log, Log1p, Lt, Max, Min, Mul, Neg,
    Pow, Select, Sigmoid, Sign, Sin, Sinh, Sqrt, Sub, Tan, Tanh,
};

/// Powers by integers and halves up to this are products and roots.
const MOST_POWER: f64 = 8.0;

impl<'s> Normalizer<'s> {
    /// A function of real numbers, other than `select`.
    pub(super) fn function(&mut self, op: Scalar, dtype: DType, operands: &[Rc<Real<'s>>]) -> Real<'s> {
        let numbers: SmallVec<[f64; 3]> = operands.iter().filter_map(|x| x.as_constant()).collect();
        if let (true, Some(value)) = (numbers.len() == operands.len(), op.def().float) {
            return Product::constant(self.scope, dtype, computed(value(&numbers))).into();
        }
        let (x, last) = (&operands[0], &operands[operands.len() - 1]);
        match op {
            Add => self.add(dtype, &[(1.0, x), (1.0, last)]),
            Sub => self.add(dtype, &[(1.0, x), (-1.0, last)]),
            Neg => self.multiple_of(x, -1.0),
            Mul if x.as_constant().is_some() => self.multiple_of(last, numbers[0]),
            Mul if last.as_constant().is_some() => self.multiple_of(x, numbers[0]),
            Div if last.as_constant().is_some_and(|c| is_normal(1.0 / c, dtype)) => {
                self.multiple_of(x, computed(1.0 / numbers[0]))
            }
            _ => {
                let products: SmallVec<[Rc<Product<'s>>; 2]> = operands.iter().map(|x| self.product(x)).collect();
                self.function_of_products(op, &products).into()
            }
        }
    }

    fn function_of_products(&mut self, op: Scalar, operands: &[Rc<Product<'s>>]) -> Product<'s> {
        let (x, last) = (&operands[0], &operands[operands.len() - 1]);
        match op {
            Mul => self.times(x, last),
            Div => self.quotient(x, last),
            Pow => self.general_power(x, last),
            Sqrt => self.root(x),
            Exp => self.exponential(x),
            Log => self.logarithm(x),
            Log1p => self.logarithm_from_one(x),
            Abs => self.magnitude(x),
            Max | Min => self.extremum(op, operands),
            Sign | Erf | Tanh | Sin | Tan | Asin | Atan | Sinh | Asinh | Atanh if x.coefficient <= 0.0 => {
                // 0 · x is 0, or NaN as x is infinite or NaN.
                let is_zero = x.coefficient == 0.0;
                if is_zero { (**x).clone() } else { self.function_of_products(op, &[Rc::new(x.negated())]).negated() }
            }
            Cos | Cosh if x.coefficient < 0.0 => self.atom(op, &[&x.negated()]),
            Sign if x.has_scale() => self.atom(op, &[&x.monomial()]),
            _ => {
                let operands: SmallVec<[&Product<'s>; 2]> = operands.iter().map(|p| &**p).collect();
                self.atom(op, &operands)
            }
        }
    }

    /// A function as it is.
    fn atom(&mut self, op: Scalar, operands: &[&Product<'s>]) -> Product<'s> {
        let operands: SmallVec<[Term<'s>; 2]> = operands.iter().map(|p| self.write(p)).collect();
        Product::atom(Term::call(op, &operands))
    }

    fn general_power(&mut self, x: &Product<'s>, exponent: &Product<'s>) -> Product<'s> {
        match exponent.as_constant().filter(|e| e.abs() <= MOST_POWER && (2.0 * e).fract() == 0.0) {
            Some(e) if e.fract() == 0.0 => self.power(x, e as i32),
            // The power ½ of −∞ is ∞, its root is none.
            Some(e) if self.is_nonnegative_product(x) => {
                let root = self.root(x);
                self.power(&root, (2.0 * e) as i32)
            }
            _ => self.atom(Pow, &[x, exponent]),
        }
    }

    /// The square root: even powers leave it as magnitudes, a positive constant leaves it unless it scales a sum.
    fn root(&mut self, x: &Product<'s>) -> Product<'s> {
        if x.coefficient <= 0.0 {
            return self.atom(Sqrt, &[x]);
        }
        let (mut inside, mut outside) = (x.clone(), Product::constant(self.scope, x.dtype, 1.0));
        for factor in &mut inside.factors {
            let pairs = factor.exponent / 2;
            if pairs != 0 {
                let base = self.product_of(factor.base);
                let size = self.magnitude(&base);
                let size = self.power(&size, pairs);
                outside = self.times(&outside, &size);
                factor.exponent %= 2;
            }
        }
        inside.factors.retain(|f| f.exponent != 0);
        let below = !inside.factors.is_empty() && inside.factors.iter().all(|f| f.exponent < 0);
        if below && is_normal(1.0 / inside.coefficient, x.dtype) {
            inside.coefficient = 1.0 / inside.coefficient;
            inside.factors.iter_mut().for_each(|f| f.exponent = -f.exponent);
        }
        let scales_sum = inside.as_base().is_some_and(|base| self.sums.contains_key(&base.place()));
        if !scales_sum {
            let scale = inside.coefficient.sqrt();
            outside = self.scaled(&outside, if below { 1.0 / scale } else { scale });
            inside.coefficient = 1.0;
        }
        if inside.factors.is_empty() {
            return outside;
        }
        let root = self.atom(Sqrt, &[&inside]);
        let root = if below { self.power(&root, -1) } else { root };
        self.times(&root, &outside)
    }

    /// `exp(x)`; the logarithm of an argument that is added to `x` is a factor: `exp(x − log(y))` is `exp(x) / y`. Not where
    /// `exp(x)` could overflow, unless numerics are fast.
    fn exponential(&mut self, x: &Product<'s>) -> Product<'s> {
        let mut addends = vec![(x.coefficient, self.write(&x.monomial()))];
        let mut constant = 0.0;
        if let Some(sum) = x.as_base().and_then(|base| self.sums.get(&base.place()).cloned()) {
            addends = sum.terms.iter().map(|(term, c)| (c * x.coefficient, *term)).collect();
            constant = sum.constant * x.coefficient;
        }
        let mut factors: Vec<(Term<'s>, i32)> = Vec::new();
        addends.retain(|(c, term)| {
            let inside = argument(*term, Log).filter(|_| c.fract() == 0.0 && c.abs() <= MOST_POWER);
            let is_argument = |inside: &Term<'s>| matches!(inside.node(), ExprNode::Arg(_));
            let inside = inside.filter(is_argument).filter(|inside| self.is_nonnegative(*inside));
            let Some(inside) = inside else { return true };
            factors.push((inside, *c as i32));
            false
        });
        if factors.is_empty() {
            return self.atom(Exp, &[x]);
        }
        let mut parts: Vec<_> = addends.iter().map(|(c, term)| (*c, self.product_of(*term))).collect();
        parts.push((constant, Rc::new(Product::constant(self.scope, x.dtype, 1.0))));
        let rest = self.add_products(x.dtype, &parts);
        if self.numerics != Numerics::Fast && !self.is_nonpositive(&rest) {
            return self.atom(Exp, &[x]);
        }
        let mut product = match rest.as_constant() {
            Some(c) => Product::constant(self.scope, x.dtype, computed(c.exp())),
            None => self.atom(Exp, &[&rest]),
        };
        for (inside, exponent) in factors {
            let factor = self.power(&self.product_of(inside), exponent);
            product = self.times(&product, &factor);
        }
        product
    }

    /// Whether a product is surely not positive: a number, or something less what is nowhere less than it.
    fn is_nonpositive(&mut self, x: &Product<'s>) -> bool {
        if let Some(constant) = x.as_constant() {
            return constant <= 0.0;
        }
        let Some(sum) = x.as_base().and_then(|base| self.sums.get(&base.place()).cloned()) else { return false };
        sum.terms.iter().enumerate().any(|(k, (term, c))| {
            let ExprNode::Arg(argument) = term.node() else { return false };
            let bound = self.knowledge.above.get(&argument).filter(|_| c * x.coefficient == -1.0).copied();
            let Some(bound) = bound.filter(|_| sum.constant == 0.0) else { return false };
            let others = sum.terms.iter().enumerate().filter(|(j, _)| *j != k);
            let parts: Vec<_> = others.map(|(_, (t, c))| (c * x.coefficient, self.product_of(*t))).collect();
            let minuend = self.add_products(x.dtype, &parts);
            self.write(&minuend).place() == bound
        })
    }

    fn logarithm(&mut self, x: &Product<'s>) -> Product<'s> {
        let sum = x.as_base().and_then(|base| self.sums.get(&base.place()).cloned());
        let Some(sum) = sum.filter(|s| (s.constant * x.coefficient - 1.0).abs() <= x.dtype.epsilon()) else {
            return self.atom(Log, &[x]);
        };
        let parts: Vec<_> = sum.terms.iter().map(|(t, c)| (c * x.coefficient, self.product_of(*t))).collect();
        let rest = self.add_products(x.dtype, &parts);
        self.logarithm_from_one(&rest)
    }

    /// `log1p(x)`; of an exponential in the form that does not overflow.
    fn logarithm_from_one(&mut self, x: &Product<'s>) -> Product<'s> {
        let exponential = x.as_base().filter(|_| x.coefficient == 1.0).and_then(|base| argument(base, Exp));
        let Some(argument) = exponential.map(|t| self.product_of(t)) else { return self.atom(Log1p, &[x]) };
        if self.is_nonnegative_product(&argument.negated()) {
            return self.atom(Log1p, &[x]);
        }
        let zero = Rc::new(Product::constant(self.scope, x.dtype, 0.0));
        let above = self.extremum(Max, &[argument.clone(), zero]);
        let size = self.magnitude(&argument);
        let decay = self.atom(Exp, &[&size.negated()]);
        let rest = self.atom(Log1p, &[&decay]);
        self.add_products(x.dtype, &[(1.0, Rc::new(above)), (1.0, Rc::new(rest))])
    }

    fn magnitude(&mut self, x: &Product<'s>) -> Product<'s> {
        if self.is_nonnegative_product(x) {
            return x.clone();
        }
        let positive = Product { coefficient: x.coefficient.abs(), ..x.clone() };
        if self.is_nonnegative_product(&positive) {
            return positive;
        }
        let size = self.atom(Abs, &[&x.monomial()]);
        self.scaled(&size, x.coefficient.abs())
    }

    /// The largest or smallest of several: a set, constants joined, a common scale outside, `min(max(x, low), high)` for a clip.
    fn extremum(&mut self, op: Scalar, operands: &[Rc<Product<'s>>]) -> Product<'s> {
        let dtype = operands[0].dtype;
        let pick = op.def().float.expect("a function of floats");
        let flipped = if op == Max { Min } else { Max };
        let (mut terms, mut bound): (Vec<Term<'s>>, Option<f64>) = (Vec::new(), None);
        let mut todo: Vec<Rc<Product<'s>>> = operands.to_vec();
        while let Some(product) = todo.pop() {
            let inner = if product.coefficient < 0.0 { flipped } else { op };
            if let Some(x) = product.as_constant().or_else(|| infinity(&product)) {
                bound = Some(bound.map_or(x, |bound| pick(&[bound, x])));
            } else if let Some(base) = product.as_base().filter(|b| product.coefficient != 0.0 && calls(*b, inner)) {
                // Scaled operands of a scaled extremum: they may share a scale with the others.
                for operand in base.operands() {
                    todo.push(Rc::new(self.scaled(&self.product_of(operand), product.coefficient)));
                }
            } else {
                terms.push(self.write(&product));
            }
        }
        let order = &mut self.order;
        terms.sort_by(|a, b| order.compare(*a, *b));
        terms.dedup();
        self.drop_below_magnitude(op, &mut terms);
        let found = terms.iter().enumerate().find_map(|(k, term)| Some((k, either(op, *term)?)));
        if let Some((k, [condition, yes, no])) = found.filter(|_| terms.len() > 1) {
            terms.remove(k);
            let mut parts: Vec<Rc<Product<'s>>> = terms.iter().map(|t| self.product_of(*t)).collect();
            parts.extend(bound.map(|b| Rc::new(Product::constant(self.scope, dtype, b))));
            let rest = self.extremum(op, &parts);
            let rest = self.write(&rest);
            let chosen = |t: Term<'s>| if t.as_const() == Some(idle(op)) { rest } else { t };
            return self.select(condition, chosen(yes), chosen(no));
        }
        if let Some(k) = terms.iter().position(|t| self.has_opposite(*t, &terms)) {
            let product = self.product_of(terms[k]);
            let size = self.magnitude(&product);
            let opposite = self.write(&product.negated());
            let mut parts = vec![Rc::new(if op == Max { size } else { size.negated() })];
            parts.extend(terms.iter().filter(|t| **t != terms[k] && **t != opposite).map(|t| self.product_of(*t)));
            parts.extend(bound.map(|b| Rc::new(Product::constant(self.scope, dtype, b))));
            return self.extremum(op, &parts);
        }
        let bound = bound.filter(|b| *b != if op == Max { f64::NEG_INFINITY } else { f64::INFINITY });
        let scale = self.common_scale(op, &terms, bound, dtype);
        if scale != 1.0 {
            let mut parts: SmallVec<[Rc<Product<'s>>; 2]> = SmallVec::new();
            for term in terms {
                let product = self.product_of(term);
                let coefficient = product.coefficient / scale + 0.0; // −0 becomes 0
                parts.push(Rc::new(Product { coefficient, ..(*product).clone() }));
            }
            parts.extend(bound.map(|b| Rc::new(Product::constant(self.scope, dtype, computed(b / scale)))));
            let rest = self.extremum(if scale < 0.0 { flipped } else { op }, &parts);
            return self.scaled(&rest, scale);
        }
        if let ([term], Some(low), Max) = (terms.as_slice(), bound, op)
            && let Some((x, high)) = self.bounded_above(*term).filter(|(_, high)| dtype.round(low) <= *high)
        {
            let low = Rc::new(Product::constant(self.scope, dtype, low));
            let high = Rc::new(Product::constant(self.scope, dtype, high));
            let x = self.product_of(x);
            let raised = self.extremum(Max, &[x, low]);
            return self.extremum(Min, &[Rc::new(raised), high]);
        }
        if let Some(bound) = bound {
            let bound = Product::constant(self.scope, dtype, bound);
            terms.push(self.write(&bound));
        }
        let chain = terms.into_iter().reduce(|a, b| Term::call(op, &[a, b])).expect("of at least one operand");
        (*self.product_of(chain)).clone()
    }

    /// `max(|x|, x)` is `|x|`, and so is `max(|x|, −x)`.
    fn drop_below_magnitude(&mut self, op: Scalar, terms: &mut Vec<Term<'s>>) {
        for term in terms.clone() {
            let product = self.product_of(term);
            let outermost = if op == Max { product.coefficient > 0.0 } else { product.coefficient < 0.0 };
            if let Some(inside) = product.as_base().filter(|_| outermost).and_then(|base| argument(base, Abs)) {
                let inside = self.product_of(inside);
                for scale in [product.coefficient, -product.coefficient] {
                    let inside = self.scaled(&inside, scale);
                    let inside = self.write(&inside);
                    terms.retain(|t| *t != inside);
                }
            }
        }
    }

    /// Whether a term is negative by its coefficient and its opposite is there too.
    fn has_opposite(&mut self, term: Term<'s>, terms: &[Term<'s>]) -> bool {
        let product = self.product_of(term);
        product.coefficient < 0.0 && terms.contains(&self.write(&product.negated()))
    }

    /// What terms and bound are divided by: the size of their coefficients, if they share one, with the sign that the first of
    /// them, coefficients aside, has.
    fn common_scale(&mut self, op: Scalar, terms: &[Term<'s>], bound: Option<f64>, dtype: DType) -> f64 {
        let mut first: Option<(Term<'s>, f64)> = None;
        let mut size: Option<f64> = None;
        for term in terms {
            let product = self.product_of(*term);
            let monomial = self.write(&product.monomial());
            // Of several multiples the largest decides.
            let is_first = first.is_none_or(|(least, c)| {
                let order = self.order.compare(monomial, least);
                order.is_lt() || order.is_eq() && product.coefficient.abs() > c.abs()
            });
            if is_first && product.coefficient != 0.0 {
                first = Some((monomial, product.coefficient));
            }
            let coefficient = product.coefficient.abs();
            let shared = coefficient != 0.0 && size.is_none_or(|size| size == coefficient);
            size = Some(if shared { coefficient } else { 1.0 });
        }
        // Zeros have no sign: of them only the largest is taken.
        let sign = if first.map_or(op == Min && !terms.is_empty(), |(_, c)| c < 0.0) { -1.0 } else { 1.0 };
        let size = size.unwrap_or(1.0);
        let divides = bound.is_none_or(|b| b == 0.0 || b.is_infinite() || is_normal(b / size, dtype));
        if divides { size * sign } else { sign }
    }

    /// The operand and the bound of `min(x, bound)`.
    fn bounded_above(&self, term: Term<'s>) -> Option<(Term<'s>, f64)> {
        let Some(Min) = term.as_call() else { return None };
        let operands = term.operands();
        Some((operands[0], operands[1].as_const()?.to_f64()))
    }

    /// `select` of real numbers.
    pub(super) fn select(&mut self, condition: Term<'s>, yes: Term<'s>, no: Term<'s>) -> Product<'s> {
        // With a constant bound the comparison is false for NaN, which then is the result, as max and min have it.
        if let Some(Lt | Le) = condition.as_call()
            && let [a, b] = *condition.operands()
            && a.dtype() == yes.dtype()
        {
            let (a_is_bound, b_is_bound) = (is_bound(a), is_bound(b));
            if b_is_bound && yes == b && no == a {
                return self.extremum(Max, &[self.product_of(a), self.product_of(b)]);
            }
            if a_is_bound && yes == a && no == b {
                return self.extremum(Min, &[self.product_of(b), self.product_of(a)]);
            }
        }
        let operands = [condition, yes, no];
        let node = ExprNode::Apply(Select, operands.iter().map(|t| t.place()).collect());
        let term = self.exact(&node, yes.dtype(), &operands);
        match self.negated_signs(term) {
            Some(opposite) => Product::atom(opposite).negated(),
            None => (*self.product_of(term)).clone(),
        }
    }

    /// Of a choice between a positive number and a negative one, the opposite: of `c ? 1 : −1` and `c ? −1 : 1` only one is written.
    fn negated_signs(&mut self, term: Term<'s>) -> Option<Term<'s>> {
        let Some(Select) = term.as_call() else { return None };
        let [condition, yes, no] = term.operands()[..] else { return None };
        let (first, second) = (yes.as_const()?.to_f64(), no.as_const()?.to_f64());
        let signs = first > 0.0 && second < 0.0 && first.is_finite() && second.is_finite();
        let negated = |x: f64| self.scope.constant(term.dtype(), Number::new(term.dtype(), -x));
        signs.then(|| condition.select(negated(first), negated(second)))
    }

    /// The form of one of the factors of a product, if there is a plainer one. May change the other factors.
    pub(super) fn another_form(
        &mut self,
        coefficient: f64,
        factors: &mut [Factor<'s>],
        k: usize,
    ) -> Option<Product<'s>> {
        let Factor { base, exponent } = factors[k];
        let op = base.as_call()?;
        match op {
            Exp if exponent < 0 => {
                // What is small by itself may be divided by an exponential whose inverse overflows.
                let in_range = factors.len() == 1 && coefficient.abs() >= 1.0;
                if !in_range && self.numerics != Numerics::Fast {
                    return None;
                }
                let inverse = self.exponential_of_negated(base);
                Some(self.power(&inverse, -exponent))
            }
            Exp => self.logistic_quotient(factors, k),
            Sqrt if exponent.abs() > 1 => {
                let inside = argument(base, Sqrt).filter(|x| self.is_nonnegative(*x))?;
                let whole = self.power(&self.product_of(inside), exponent / 2);
                let rest = self.power(&Product::atom(base), exponent % 2);
                Some(self.times(&whole, &rest))
            }
            Abs if exponent.abs() > 1 => {
                let inside = argument(base, Abs)?;
                let pairs = self.power(&self.product_of(inside), exponent / 2 * 2);
                let rest = self.power(&Product::atom(base), exponent % 2);
                Some(self.times(&pairs, &rest))
            }
            _ if exponent < 0 => {
                let logistic = self.one_plus_exponential(base)?;
                let argument = self.product_of(logistic).negated();
                let sigmoid = self.atom(Sigmoid, &[&argument]);
                Some(self.power(&sigmoid, -exponent))
            }
            _ => None,
        }
    }

    fn exponential_of_negated(&mut self, base: Term<'s>) -> Product<'s> {
        let argument = self.product_of(argument(base, Exp).expect("an exponential")).negated();
        self.atom(Exp, &[&argument])
    }

    /// `exp(x) · sigmoid(−x)` is `sigmoid(x)`.
    fn logistic_quotient(&mut self, factors: &mut [Factor<'s>], k: usize) -> Option<Product<'s>> {
        let is_sigmoid = |f: &Factor<'s>| f.exponent > 0 && argument(f.base, Sigmoid).is_some();
        if !factors.iter().any(is_sigmoid) {
            return None;
        }
        let x = self.product_of(argument(factors[k].base, Exp)?);
        let mirrored = self.atom(Sigmoid, &[&x.negated()]).as_base()?;
        let partner = factors.iter().position(|f| f.exponent > 0 && f.base == mirrored)?;
        let shared = factors[k].exponent.min(factors[partner].exponent);
        let sigmoid = self.atom(Sigmoid, &[&x]);
        let sigmoid = self.power(&sigmoid, shared);
        let left = [Factor { exponent: factors[k].exponent - shared, ..factors[k] }];
        factors[partner] = Factor { exponent: factors[partner].exponent - shared, ..factors[partner] };
        let mut product = sigmoid;
        product.factors.extend(left.into_iter().filter(|f| f.exponent != 0));
        Some(product)
    }

    /// The `x` of `1 + exp(x)`.
    fn one_plus_exponential(&self, base: Term<'s>) -> Option<Term<'s>> {
        let sum = self.sums.get(&base.place())?;
        let [(term, 1.0)] = sum.terms[..] else { return None };
        argument(term, Exp).filter(|_| sum.constant == 1.0)
    }

    fn is_nonnegative_product(&mut self, product: &Product<'s>) -> bool {
        product.coefficient >= 0.0 && product.factors.iter().all(|f| f.exponent % 2 == 0 || self.is_nonnegative(f.base))
    }

    /// Whether a normal term is surely not negative.
    pub fn is_nonnegative(&mut self, term: Term<'s>) -> bool {
        if let Some(known) = self.nonnegative.get(&term.place()) {
            return *known;
        }
        let product = self.product_of(term);
        let holds = if let Some(sum) = self.sums.get(&term.place()).cloned() {
            sum.constant >= 0.0 && sum.terms.iter().all(|(t, c)| *c >= 0.0 && self.is_nonnegative(*t))
        } else if product.as_base() != Some(term) {
            self.is_nonnegative_product(&product)
        } else {
            match term.node() {
                ExprNode::Apply(Exp | Exp2 | Sigmoid | Sqrt | Abs | Cosh, _) => true,
                ExprNode::Apply(Max, _) => term.operands().iter().any(|o| self.is_nonnegative(*o)),
                ExprNode::Apply(Min, _) => term.operands().iter().all(|o| self.is_nonnegative(*o)),
                ExprNode::Apply(Select, _) => term.operands()[1..].iter().all(|o| self.is_nonnegative(*o)),
                ExprNode::Apply(Log1p | Expm1 | Scalar::Kept, _) => self.is_nonnegative(term.operands()[0]),
                ExprNode::Cast(_) => {
                    let from = term.operands()[0];
                    matches!(from.dtype().class(), Class::Bool | Class::Unsigned)
                        || matches!(from.node(), ExprNode::Size(_) | ExprNode::Coord(_))
                }
                ExprNode::Const(number) => number.to_f64() >= 0.0,
                ExprNode::Arg(k) => self.knowledge.nonnegative.contains(&k),
                _ => false,
            }
        };
        self.nonnegative.insert(term.place(), holds);
        holds
    }
}

/// The operand of a function of one operand.
fn argument(term: Term<'_>, op: Scalar) -> Option<Term<'_>> {
    calls(term, op).then(|| term.operands()[0])
}

fn calls(term: Term<'_>, op: Scalar) -> bool {
    term.as_call() == Some(op)
}

/// The number that bounds nothing in an extremum.
fn idle(op: Scalar) -> Number {
    Number::Float(if op == Max { f64::NEG_INFINITY } else { f64::INFINITY }.to_bits())
}

/// A choice between either infinity: as an operand of an extremum, between all and nothing of the others.
fn either(op: Scalar, term: Term<'_>) -> Option<[Term<'_>; 3]> {
    let Some(Select) = term.as_call() else { return None };
    let [condition, yes, no] = term.operands()[..] else { return None };
    let other = idle(if op == Max { Min } else { Max });
    let values = [yes.as_const()?, no.as_const()?];
    (values == [idle(op), other] || values == [other, idle(op)]).then_some([condition, yes, no])
}

/// The infinity that a product is.
fn infinity(product: &Product<'_>) -> Option<f64> {
    let x = product.as_base()?.as_const()?.to_f64() * product.coefficient;
    x.is_infinite().then_some(x)
}

/// Whether a term is a constant that is a number.
fn is_bound(term: Term<'_>) -> bool {
    term.as_const().is_some_and(|n| !n.to_f64().is_nan())
}
