//! The table of algebraic rules.

use rustc_hash::FxHashSet;

use super::{bits, choices, sign};
use crate::ops::{Expr, Number, Prim, Scalar, Scope, Signature, Term, prim, range};
use crate::passes::Numerics;
use crate::reference::{Limits, Options, Reading, evaluate_prim};
use crate::tensor::{Class, DType, Dim, Ranges, Shape};

use Scalar::{
    Abs, Add, And, Ceil, Div, Eq, Exp, Exp2, Expm1, Floor, IsNan, Le, Log, Log1p, Lt, Max, Min, Mod, Mul, Neg, Not, Or,
    Pow, Round, Select, Sigmoid, Sqrt, Sub, Trunc,
};

/// What a rewrite may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Tier {
    /// nothing: the same bits for every operand, where every step rounds
    Exact,
    /// true of real numbers; rounding, signs of zero and the treatment of infinities may differ
    Real,
}

impl Tier {
    /// Whether rules of this tier apply.
    pub fn is_allowed(self, numerics: Numerics) -> bool {
        self == Tier::Exact || numerics != Numerics::Strict
    }
}

/// A step that a rule looks at.
#[derive(Clone, Copy, Debug)]
pub struct Step<'a, 's> {
    /// where new terms are made
    pub(crate) scope: &'s Scope,
    /// the step, already a term
    pub(crate) term: Term<'s>,
    /// the ranges of the coordinates
    pub(crate) ranges: Ranges<'a>,
    /// the arguments that are surely not negative
    pub(crate) nonnegative: &'a FxHashSet<u32>,
}

/// What a step is, as far as most rules need to know to leave it alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Head {
    /// a function
    Call(Scalar),
    /// a conversion
    Cast,
    /// anything else
    Other,
}

use Head::{Call, Cast};

/// One row of the table.
#[derive(Clone, Copy, Debug)]
pub struct Rule {
    /// its name, as reports print it
    pub name: &'static str,
    /// what it may change
    pub tier: Tier,
    /// what it says
    pub doc: &'static str,
    /// which steps it is about
    is_about: fn(Head) -> bool,
    /// the plainer term, if the rule applies
    apply: for<'a, 's> fn(&Step<'a, 's>) -> Option<Term<'s>>,
}

macro_rules! rules {
    ($($name:literal, $tier:ident, $head:pat, $doc:literal, |$s:ident| $body:expr;)+) => {
        /// The rules, in the order in which they are tried.
        pub const RULES: &[Rule] = &[$(Rule {
            name: $name,
            tier: Tier::$tier,
            doc: $doc,
            is_about: |head| matches!(head, $head),
            apply: { fn apply<'s>($s: &Step<'_, 's>) -> Option<Term<'s>> { $body } apply },
        }),+];
    };
}

rules! {
//  name                  tier   of which steps                     what it says
    "fold-step",          Exact, _,                                 "a function of constants is the constant it gives, rounded",                |s| fold(s);
    "constant-right",     Exact, Call(_),                           "c ∘ x is x ∘ c for a commutative function",                                |s| constant_right(s);
    "add-zero",           Exact, Call(Add | Sub),                   "x + 0 is x for integers; x + −0 and x − 0 are x for floats",               |s| add_zero(s);
    "mul-one",            Exact, Call(Mul | Div | Pow),             "x · 1, x / 1 and pow(x, 1) are x",                                         |s| mul_one(s);
    "mul-zero",           Exact, Call(Mul),                         "x · 0 is 0 for integers",                                                  |s| mul_zero(s);
    "mul-minus-one",      Exact, Call(Mul | Div),                   "x · −1 and x / −1 are −x",                                                 |s| mul_minus_one(s);
    "neg-neg",            Exact, Call(Neg | Not),                   "−(−x) and not(not x) are x",                                               |s| inverse_twice(s);
    "add-neg",            Exact, Call(Add | Sub),                   "x + (−y) is x − y, and x − (−y) is x + y",                                 |s| add_neg(s);
    "abs-neg",            Exact, Call(Abs),                         "abs(−x) and abs(abs x) are abs x; without a sign, abs x is x",             |s| abs_neg(s);
    "select-known",       Exact, Call(Select),                      "a choice by a constant, or between equal terms, is none",                  |s| select_known(s);
    "select-not",         Exact, Call(Select),                      "a choice by not c is the other choice by c",                               |s| select_not(s);
    "select-truth",       Exact, Call(Select),                      "a choice between true and false is the condition",                         |s| select_truth(s);
    "same-twice",         Exact, Call(Max | Min | And | Or),        "max, min, and, or of a term with itself is the term",                      |s| same_twice(s);
    "logic-known",        Exact, Call(And | Or),                    "and, or with a constant bool are the other operand or the constant",       |s| logic_known(s);
    "clip-clip",          Exact, Call(Max | Min),                   "max(max(x, a), b) is max(x, max(a, b)) for constants; so with min",         |s| clip_clip(s);
    "round-whole",        Exact, Call(Floor | Ceil | Round | Trunc), "floor, ceil, round, trunc of a whole number is the number",                |s| round_whole(s);
    "cast-cast",          Exact, Cast,                              "a conversion through a type that keeps every value is one conversion",     |s| cast_cast(s);
    "div-power-of-two",   Exact, Call(Div),                         "x / c is x · (1 / c) where c is a power of two",                           |s| div_power_of_two(s);
    "choice-of-constants", Exact, Cast | Call(Lt | Le | Eq | IsNan), "a conversion or comparison of a choice of constants is a choice of what they give", |s| choice_of_constants(s);
    "logic-order",        Exact, Call(And | Or),                    "of and, or, a comparison of index expressions is the first operand",        |s| choices::logic_order(s);
    "choice-in-choice",   Exact, Call(Select),                      "a choice between a choice and one of its branches is a choice by both conditions, or by either", |s| choices::choice_in_choice(s);
    "choice-of-truths",   Exact, Call(Select),                      "a choice between a truth and true or false is and, or",                    |s| choices::choice_of_truths(s);
    "truth-of-choice",    Exact, Cast,                              "whether a choice of numbers is not zero is a choice of whether each is not",  |s| choices::truth_of_choice(s);
    "choice-by-either",   Exact, Call(Select),                      "a choice by not a or b is the other choice by a and not b",                |s| choices::choice_by_either(s);
    "choice-again",       Exact, Call(Select),                      "inside of a choice its condition is known",                                 |s| choices::choice_again(s);
    "choice-by-less",     Exact, Call(Select),                      "c < d ? x : y is d ≤ c ? y : x for integers that are not index expressions",       |s| choices::choice_by_less(s);
    "multiple-of-choice", Exact, Call(Mul),                         "(c ? x : ∞) · k is c ? x · k : ±∞ for a constant k",                        |s| choices::multiple_of_choice(s);
    "less-choice",        Exact, Call(Sub),                         "x − (c ? a : ∞) is x + (c ? −a : −∞) for constants",                        |s| choices::less_choice(s);
    "hide-by-choice",     Real,  Call(Add),                         "x + (c ? 0 : −∞) is c ? x : −∞",                                           |s| choices::hide_by_choice(s);
    "function-of-truth",  Exact, Call(_),                           "a function of a truth as a number is a choice between what it gives for 1 and 0", |s| choices::function_of_truth(s);
    "truth-of-converted", Exact, Cast,                              "whether an integer as a float is not zero is whether it is not zero itself",   |s| choices::truth_of_converted(s);
    "at-most-least",      Exact, Call(Le),                          "x ≤ −∞ is x = −∞",                                                         |s| choices::at_most_least(s);
    "equal-to-itself",    Exact, Call(Eq),                          "x == x is not is_nan(x)",                                                  |s| choices::equal_to_itself(s);
    "zero-is-false",      Exact, Call(Eq),                          "x == 0 is not bool(x)",                                                    |s| zero_is_false(s);
    "compare-ranges",     Exact, Call(Lt | Le | Eq),                "a comparison of index expressions that their ranges decide is known",      |s| compare_ranges(s);
    "compare-indices",    Exact, Call(Lt | Le),                     "a comparison of index expressions is a ≤ of sums without subtraction",      |s| compare_indices(s);
    "choice-by-indices",  Exact, Call(Select),                      "of a comparison of index expressions and its opposite, a choice is by the plainer",   |s| choice_by_indices(s);
    "power-of-two",       Exact, Call(Mod | Div),                   "x mod 2^k and x / 2^k are a mask and a shift for unsigned integers",         |s| bits::by_power_of_two(s.scope, s.term);
    "idle-mask",          Exact, Call(And),                         "a mask of more low bits than an unsigned integer has leaves it as it is",      |s| bits::idle_mask(s.term);
    "sum-constants",      Exact, Call(Add | Mul),                   "(x ∘ a) ∘ b is x ∘ (a ∘ b) for integer sums and products with constants",  |s| if s.is_float() { None } else { constants_together(s) };
    "add-plus-zero",      Real,  Call(Add),                         "x + 0 is x, also for floats",                                              |s| add_plus_zero(s);
    "zero-minus",         Real,  Call(Sub),                         "0 − x is −x",                                                              |s| zero_minus(s);
    "log-exp",            Real,  Call(Log),                         "log(exp(x)) is x, and log(exp(x) / y) is x − log(y)",                      |s| log_exp(s);
    "div-constant",       Real,  Call(Div),                         "x / c is x · (1 / c) where the reciprocal is a normal number",             |s| div_constant(s);
    "pow-constant",       Real,  Call(Pow),                         "pow(x, c) for c of 0, 2, 3, −1 is 1, products and a reciprocal, for ±½ a root of what is not negative; pow(2, x) is exp2(x)", |s| pow_constant(s);
    "constants-together", Real,  Call(Add | Mul),                   "(x ∘ a) ∘ b is x ∘ (a ∘ b) for sums and products with constants that keep in range", |s| constants_together(s);
    "sigmoid",            Real,  Call(Div),                         "1 / (1 + exp(−x)) is sigmoid(x)",                                          |s| sigmoid(s);
    "other-tail",         Real,  Call(Sub),                         "1 − sigmoid(x) is sigmoid(−x)",                                            |s| other_tail(s);
    "truth-of-product",   Real,  Cast,                              "whether a product with a truth is not zero is and",                        |s| choices::truth_of_product(s);
    "add-converted",      Real,  Call(Add | Sub),                   "a sum or difference of two index expressions as floats is one of index expressions",  |s| choices::add_converted(s);
    "compare-converted",  Real,  Call(Lt | Le | Eq),                "a comparison of two integers as floats is one of integers",                |s| choices::compare_converted(s);
    "idle-bound",         Real,  Call(Max | Abs),                   "max(x, c) and abs(x) are x where x is surely not negative and c not positive", |s| idle_bound(s);
    "bound-by-choice",    Real,  Call(Min | Max),                   "min(x, c ? ∞ : −∞) is c ? x : −∞; so with max",                             |s| choices::bound_by_choice(s);
    "arithmetic-of-choice", Real, Call(Add | Sub | Mul | Div),       "(c ? a : b) ∘ k is c ? a ∘ k : b ∘ k for constants and sums, products, quotients; so of a truth as a number", |s| choices::arithmetic_of_choice(s);
    "choice-of-signs",    Real,  Call(Select),                      "c ? −x : x is (c ? −1 : 1) · x where c compares index expressions",         |s| choices::choice_of_signs(s);
    "log1p",              Real,  Call(Log | Add | Sub),             "log(1 + x) is log1p(x), and exp(x) − 1 is expm1(x)",                       |s| log1p(s);
}

/// The first rule that makes a step plainer, among those of some tiers, and what it makes of it.
pub(crate) fn plainer<'s>(s: &Step<'_, 's>, is_allowed: impl Fn(Tier) -> bool) -> Option<(&'static Rule, Term<'s>)> {
    let head = s.head();
    RULES.iter().filter(|rule| is_allowed(rule.tier)).find_map(|rule| {
        if !(rule.is_about)(head) {
            debug_assert!((rule.apply)(s).is_none(), "the rule {} is about more than it says", rule.name);
            return None;
        }
        (rule.apply)(s).map(|new| (rule, new))
    })
}

impl<'s> Step<'_, 's> {
    fn head(&self) -> Head {
        match self.term.as_call() {
            Some(op) => Call(op),
            None if self.term.is_cast() => Cast,
            None => Head::Other,
        }
    }

    /// The operands, if the step applies this function.
    fn call(&self, op: Scalar) -> Option<[Term<'s>; 2]> {
        call(self.term, op)
    }

    fn float(&self, x: f64) -> Term<'s> {
        self.scope.float(self.term, x)
    }

    fn int(&self, x: i64) -> Term<'s> {
        let dtype = self.term.dtype();
        self.scope.constant(dtype, Number::from_int(dtype, x))
    }

    fn is_float(&self) -> bool {
        self.term.dtype().is_float()
    }
}

/// The operands of a term that applies this function; the only one of a unary function counts twice.
pub(super) fn call(term: Term<'_>, op: Scalar) -> Option<[Term<'_>; 2]> {
    (term.as_call() == Some(op)).then(|| {
        let operands = term.operands();
        [operands[0], *operands.last().expect("functions have operands")]
    })
}

pub(super) fn unary(term: Term<'_>, op: Scalar) -> Option<Term<'_>> {
    call(term, op).map(|[x, _]| x)
}

/// The value of a constant of a float type.
pub(super) fn float(term: Term<'_>) -> Option<f64> {
    match term.as_const()? {
        Number::Float(bits) => Some(f64::from_bits(bits)),
        Number::Int(_) => None,
    }
}

/// The value of a constant of an integer type or bool.
fn int(term: Term<'_>) -> Option<i64> {
    match term.as_const()? {
        Number::Int(n) => Some(n),
        Number::Float(_) => None,
    }
}

/// Whether a term is the constant `n`, of whatever type; −0 is not 0.
fn is(term: Term<'_>, n: i64) -> bool {
    int(term) == Some(n) || float(term).is_some_and(|x| x.to_bits() == (n as f64).to_bits())
}

pub(super) fn fold<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let operands = s.term.operands();
    if operands.is_empty() || !operands.iter().all(|t| t.as_const().is_some()) {
        return None;
    }
    let map = prim::Map { expr: Expr::of(s.term, &[]), shape: Shape::scalar() };
    let options =
        Options { reading: Reading::Rounded, limits: Limits { trips: 0, bytes: 1 << 20, ..Limits::default() } };
    let value = evaluate_prim(&Prim::from(map), &[], &options).ok()?.pop()?;
    let dtype = s.term.dtype();
    let number = if dtype.is_float() { Number::Float(value.float(0).to_bits()) } else { Number::Int(value.int(0)) };
    Some(s.scope.constant(dtype, number))
}

fn constant_right<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let op = s.term.as_call()?;
    let [a, b] = s.call(op).filter(|_| op.is_commutative())?;
    (a.as_const().is_some() && b.as_const().is_none()).then(|| Term::call(op, &[b, a]))
}

fn add_zero<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let negative_zero = |t: Term<'_>| float(t).is_some_and(|x| x == 0.0 && x.is_sign_negative());
    if let Some([x, zero]) = s.call(Add) {
        return (int(zero) == Some(0) || negative_zero(zero)).then_some(x);
    }
    let [x, zero] = s.call(Sub)?;
    is(zero, 0).then_some(x)
}

fn mul_one<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [x, one] = s.call(Mul).or_else(|| s.call(Div)).or_else(|| s.call(Pow))?;
    is(one, 1).then_some(x)
}

fn mul_zero<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [_, zero] = s.call(Mul)?;
    (int(zero) == Some(0)).then_some(zero)
}

fn mul_minus_one<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [x, c] = s.call(Mul).or_else(|| s.call(Div))?;
    let signed = matches!(s.term.dtype().class(), Class::Float | Class::Signed);
    (signed && is(c, -1)).then(|| -x)
}

fn inverse_twice<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let twice = |op: Scalar| unary(unary(s.term, op)?, op);
    twice(Neg).or_else(|| twice(Not))
}

fn add_neg<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    if let Some([x, y]) = s.call(Sub) {
        return unary(y, Neg).map(|y| x + y);
    }
    let [x, y] = s.call(Add)?;
    match (unary(x, Neg), unary(y, Neg)) {
        (_, Some(y)) => Some(x - y),
        (Some(x), None) => Some(y - x),
        (None, None) => None,
    }
}

fn abs_neg<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let inner = unary(s.term, Abs)?;
    // There −x is a large number, and its own magnitude.
    if s.term.dtype().class() == Class::Unsigned {
        return Some(inner);
    }
    let x = unary(inner, Neg).or_else(|| unary(inner, Abs))?;
    Some(x.apply(Abs))
}

pub(super) fn select<'s>(s: &Step<'_, 's>) -> Option<[Term<'s>; 3]> {
    s.call(Select)?;
    let operands = s.term.operands();
    Some([operands[0], operands[1], operands[2]])
}

fn select_known<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [c, yes, no] = select(s)?;
    match int(c) {
        Some(0) => Some(no),
        Some(_) => Some(yes),
        None => (yes == no).then_some(yes),
    }
}

fn select_not<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [c, yes, no] = select(s)?;
    unary(c, Not).map(|c| c.select(no, yes))
}

fn select_truth<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [c, yes, no] = select(s).filter(|_| s.term.dtype() == DType::Bool)?;
    match (int(yes)?, int(no)?) {
        (1, 0) => Some(c),
        (0, 1) => Some(c.apply(Not)),
        _ => None,
    }
}

fn choice_of_constants<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let operands = s.term.operands();
    let is_choice =
        |t: &Term<'s>| t.as_call() == Some(Select) && t.operands()[1..].iter().all(|t| t.as_const().is_some());
    let compares = |op: Scalar| op.def().signature == Signature::Compare;
    let place = match s.term.as_call() {
        None if s.term.is_cast() => operands.iter().position(is_choice)?,
        Some(op) if compares(op) => {
            let place = operands.iter().position(is_choice)?;
            operands.iter().enumerate().all(|(k, t)| k == place || t.as_const().is_some()).then_some(place)?
        }
        _ => return None,
    };
    let choice = operands[place].operands();
    let given = |branch: Term<'s>| {
        let mut operands = operands.clone();
        operands[place] = branch;
        fold(&Step { term: s.scope.step(&s.term.node(), s.term.dtype(), &operands), ..*s })
    };
    Some(choice[0].select(given(choice[1])?, given(choice[2])?))
}

fn zero_is_false<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [x, zero] = s.call(Eq)?;
    let is_zero = int(zero) == Some(0) || float(zero) == Some(0.0);
    // Comparisons of coordinates have a form of their own.
    (is_zero && x.as_index(&s.ranges).is_none()).then(|| truth(x).apply(Not))
}

/// Whether a term is not zero, seen through conversions that keep every value.
fn truth(term: Term<'_>) -> Term<'_> {
    match term.is_cast() {
        _ if term.dtype() == DType::Bool => term,
        true if keeps_values(term.operands()[0].dtype(), term.dtype()) => truth(term.operands()[0]),
        _ => term.cast(DType::Bool),
    }
}

fn same_twice<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [a, b] = [Max, Min, And, Or].into_iter().find_map(|op| s.call(op))?;
    (a == b).then_some(a)
}

fn logic_known<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let Some(op @ (And | Or)) = s.term.as_call() else { return None };
    let [x, c] = s.call(op).filter(|_| s.term.dtype() == DType::Bool)?;
    let absorbs = i64::from(op == Or);
    int(c).map(|n| if n == absorbs { c } else { x })
}

fn clip_clip<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let Some(op @ (Max | Min)) = s.term.as_call() else { return None };
    let [inner, b] = s.call(op)?;
    let [x, a] = call(inner, op)?;
    let constant = fold(&Step { term: Term::call(op, &[a, b]), ..*s })?;
    Some(Term::call(op, &[x, constant]))
}

fn idle_bound<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [x, c] = s.call(Max).or_else(|| s.call(Abs)).filter(|_| s.is_float())?;
    let is_idle = c == x || float(c).is_some_and(|c| c < 0.0 || c.to_bits() == 0);
    (is_idle && sign::is_nonnegative_term(x, &|k| s.nonnegative.contains(&k))).then_some(x)
}

fn round_whole<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let rounding = [Floor, Ceil, Round, Trunc];
    let x = rounding.into_iter().find_map(|op| unary(s.term, op))?;
    let from_int = x.is_cast() && !x.operands()[0].dtype().is_float();
    (!s.is_float() || from_int || rounding.into_iter().any(|op| unary(x, op).is_some())).then_some(x)
}

/// Whether every value of one type is a value of the other.
fn keeps_values(from: DType, to: DType) -> bool {
    match (from.format(), to.format(), from.int_range(), to.int_range()) {
        (Some(a), Some(b), ..) => a.exponent_bits <= b.exponent_bits && a.mantissa_bits <= b.mantissa_bits,
        (None, Some(b), Some((low, high)), _) => {
            let largest = 1i128 << (b.mantissa_bits + 1);
            let finite = to.max_float().is_some_and(|m| m >= high as f64);
            finite && -largest <= low && high <= largest
        }
        (None, None, Some((low, high)), Some((least, most))) => to != DType::Bool && least <= low && high <= most,
        _ => from == to,
    }
}

fn cast_cast<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let middle = s.term.operands().first().copied().filter(|t| s.term.is_cast() && t.is_cast())?;
    let x = middle.operands()[0];
    keeps_values(x.dtype(), middle.dtype()).then(|| x.cast(s.term.dtype()))
}

/// The reciprocal of a constant divisor, if it is a normal number of the type.
fn reciprocal(s: &Step<'_, '_>, c: f64) -> Option<f64> {
    let is_normal = |x: f64| range::is_normal(x, s.term.dtype());
    let inverse = 1.0 / c;
    (is_normal(c) && is_normal(inverse)).then_some(inverse)
}

fn div_power_of_two<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [x, c] = s.call(Div)?;
    let c = float(c).filter(|c| c.is_finite() && c.to_bits() << 12 == 0)?;
    reciprocal(s, c).map(|r| x * s.float(r))
}

fn compare_ranges<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let Some(op @ (Lt | Le | Eq)) = s.term.as_call() else { return None };
    let [a, b] = s.call(op).filter(|[a, _]| a.dtype().is_int())?;
    let (a, b) = (a.as_index(&s.ranges)?, b.as_index(&s.ranges)?);
    let surely_at_least =
        |x: Dim, n: i64| s.ranges.bounds(&x.simplify(&s.ranges)).is_some_and(|r| (r.low - n).is_nonnegative());
    let (up, down) = (&b - &a, &a - &b);
    let truth = match op {
        Lt if surely_at_least(up.clone(), 1) => 1,
        Lt if surely_at_least(down.clone(), 0) => 0,
        Le if surely_at_least(up.clone(), 0) => 1,
        Le if surely_at_least(down.clone(), 1) => 0,
        Eq if up.is(0) => 1,
        Eq if surely_at_least(up, 1) || surely_at_least(down, 1) => 0,
        _ => return None,
    };
    Some(s.int(truth))
}

/// The sides `left ≤ right` of a comparison of index expressions, each a sum without subtraction.
pub(super) fn sides(s: &Step<'_, '_>, comparison: Term<'_>) -> Option<(Dim, Dim)> {
    let Some(op @ (Lt | Le)) = comparison.as_call() else { return None };
    let [a, b] = call(comparison, op)?;
    let difference = b.as_index(&s.ranges)? - a.as_index(&s.ranges)? - i64::from(op == Lt);
    let (right, left) = difference.with_same_sign().by_sign();
    Some((left, right))
}

pub(super) fn at_most<'s>(s: &Step<'_, 's>, left: &Dim, right: &Dim) -> Term<'s> {
    Term::call(Le, &[s.scope.index(left), s.scope.index(right)])
}

fn compare_indices<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let (left, right) = sides(s, s.term)?;
    let new = at_most(s, &left, &right);
    (new != s.term).then_some(new)
}

fn choice_by_indices<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [c, yes, no] = select(s)?;
    let (left, right) = sides(s, c)?;
    // not (left ≤ right) is right + 1 ≤ left
    let (over, under) = (&left - &right - 1).by_sign();
    let weight = |left: &Dim, right: &Dim| {
        (left.complexity() + right.complexity(), left.as_int().is_some(), left.clone(), right.clone())
    };
    (weight(&under, &over) < weight(&left, &right)).then(|| at_most(s, &under, &over).select(no, yes))
}

fn add_plus_zero<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [x, zero] = s.call(Add)?;
    is(zero, 0).then_some(x)
}

fn zero_minus<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [zero, x] = s.call(Sub)?;
    let signed = matches!(s.term.dtype().class(), Class::Float | Class::Signed);
    (signed && is(zero, 0)).then(|| -x)
}

fn log_exp<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let inside = unary(s.term, Log)?;
    if let Some(x) = unary(inside, Exp) {
        return Some(x);
    }
    let [power, y] = call(inside, Div)?;
    let x = unary(power, Exp)?;
    let rest = Step { term: y.apply(Log), ..*s };
    Some(x - log_exp(&rest).or_else(|| log1p(&rest)).unwrap_or(rest.term))
}

fn div_constant<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [x, c] = s.call(Div)?;
    reciprocal(s, float(c)?).map(|r| x * s.float(r))
}

fn pow_constant<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [x, exponent] = s.call(Pow)?;
    let Some(exponent) = float(exponent) else {
        return (float(x) == Some(2.0) && exponent.dtype() == x.dtype()).then(|| exponent.apply(Exp2));
    };
    // The power ½ of −∞ is ∞, its root is none.
    let has_root = || sign::is_nonnegative_term(x, &|k| s.nonnegative.contains(&k));
    Some(match exponent {
        0.0 => s.float(1.0),
        2.0 => x * x,
        3.0 => x * x * x,
        0.5 if has_root() => x.apply(Sqrt),
        -0.5 if has_root() => s.float(1.0) / x.apply(Sqrt),
        -1.0 => s.float(1.0) / x,
        _ => return None,
    })
}

fn constants_together<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let Some(op @ (Add | Mul)) = s.term.as_call() else { return None };
    let [inner, b] = s.call(op)?;
    let [x, a] = call(inner, op)?;
    if let Some((a, b)) = float(a).zip(float(b)) {
        let may_join = if op == Add { range::may_add } else { range::may_multiply };
        Some(()).filter(|()| may_join(a, b, s.term.dtype()))?;
    }
    let constant = fold(&Step { term: Term::call(op, &[a, b]), ..*s })?;
    Some(Term::call(op, &[x, constant]))
}

fn sigmoid<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [one, sum] = s.call(Div).filter(|[one, _]| is(*one, 1) && s.is_float())?;
    let [a, b] = call(sum, Add)?;
    let power = if is(b, 1) { a } else { Some(b).filter(|_| a == one)? };
    let x = unary(unary(power, Exp)?, Neg)?;
    Some(x.apply(Sigmoid))
}

fn other_tail<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [_, tail] = s.call(Sub).filter(|[one, _]| is(*one, 1) && s.is_float())?;
    let x = unary(tail, Sigmoid)?;
    Some(unary(x, Neg).unwrap_or_else(|| -x).apply(Sigmoid))
}

fn log1p<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    if let Some(sum) = unary(s.term, Log) {
        let [x, one] = call(sum, Add)?;
        return is(one, 1).then(|| x.apply(Log1p));
    }
    let difference = s.call(Sub).filter(|[_, c]| is(*c, 1)).or_else(|| s.call(Add).filter(|[_, c]| is(*c, -1)));
    let [power, _] = difference.filter(|_| s.is_float())?;
    unary(power, Exp).map(|x| x.apply(Expm1))
}
