//! Rules about choices and truths: exporters nest them, negate them, and pass them through numbers.

use super::rules::{Step, at_most, call, float, fold, select, sides, unary};
use crate::ops::{ExprNode, Number, Scalar, Signature, Term};
use crate::tensor::DType;

use Scalar::{Add, And, Eq, IsNan, Le, Lt, Max, Min, Mul, Neg, Not, Or, Select, Sub};

/// The operands of a choice.
fn choice(term: Term<'_>) -> Option<[Term<'_>; 3]> {
    match term.node() {
        ExprNode::Apply(Select, _) => {
            let operands = term.operands();
            Some([operands[0], operands[1], operands[2]])
        }
        _ => None,
    }
}

/// `c ? (d ? x : y) : y` is a choice by both conditions, `c ? x : (d ? x : y)` by one of them; where one of them compares index expressions.
pub(super) fn choice_in_choice<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [c, yes, no] = select(s)?;
    let both = |op: Scalar, d: Term<'s>| in_order(s, op, [c, d]);
    let not = |d: Term<'s>| opposite(s, d).unwrap_or_else(|| d.apply(Not));
    // What was read may be a guard on a row, which is worth more by itself.
    let is_mask = |d: Term<'s>| sides(s, c).is_some() || sides(s, d).is_some();
    let choice = |term: Term<'s>| choice(term).filter(|[d, ..]| is_mask(*d));
    if let Some([d, x, y]) = choice(yes) {
        if y == no {
            return Some(both(And, d).select(x, no));
        }
        if x == no {
            return Some(both(And, not(d)).select(y, no));
        }
    }
    let [d, x, y] = choice(no)?;
    if x == yes {
        return Some(both(Or, d).select(yes, y));
    }
    (y == yes).then(|| both(Or, not(d)).select(yes, x))
}

/// `c ? (c ? x : y) : z` is `c ? x : z`, and `c ? z : (c ? x : y)` is `c ? z : y`.
pub(super) fn choice_again<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [c, yes, no] = select(s)?;
    let inner = |term: Term<'s>| choice(term).filter(|[d, ..]| *d == c);
    match (inner(yes), inner(no)) {
        (Some([_, x, _]), Some([.., y])) => Some(c.select(x, y)),
        (Some([_, x, _]), None) => Some(c.select(x, no)),
        (None, Some([.., y])) => Some(c.select(yes, y)),
        (None, None) => None,
    }
}

/// A choice of constants of which one is infinite, and the infinite one.
fn hiding(term: Term<'_>) -> Option<([Term<'_>; 3], [f64; 2])> {
    let found @ [_, yes, no] = choice(term)?;
    let (yes, no) = (float(yes)?, float(no)?);
    (yes.is_infinite() || no.is_infinite()).then_some((found, [yes, no]))
}

/// What hides by being taken away hides by being added.
pub(super) fn less_choice<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [x, mask] = call(s.term, Sub)?;
    let ([c, ..], [yes, no]) = hiding(mask)?;
    let negated = |x: f64| s.scope.float(s.term, -x);
    Some(Term::call(Add, &[x, c.select(negated(yes), negated(no))]))
}

/// What adds 0 or −∞ hides: what is hidden is −∞, also where it is NaN or +∞ itself.
pub(super) fn hide_by_choice<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [a, b] = call(s.term, Add)?;
    [(a, b), (b, a)].into_iter().find_map(|(x, mask)| {
        let ([c, yes, no], values) = hiding(mask)?;
        match values {
            [0.0, f64::NEG_INFINITY] => Some(c.select(x, no)),
            [f64::NEG_INFINITY, 0.0] => Some(c.select(yes, x)),
            _ => None,
        }
    })
}

/// A choice between a number and an infinity, times a constant, is one between the multiple and the infinity: masks hide scores before they are
/// scaled, or behind it.
pub(super) fn multiple_of_choice<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [inner, constant] = call(s.term, Mul).filter(|_| s.term.dtype().is_float())?;
    float(constant).filter(|k| k.is_finite() && *k != 0.0)?;
    let [c, yes, no] = choice(inner)?;
    let is_infinite = |t: Term<'s>| float(t).is_some_and(f64::is_infinite);
    let multiple = |t: Term<'s>| fold(&Step { term: t * constant, ..*s }).unwrap_or(t * constant);
    (is_infinite(yes) != is_infinite(no)).then(|| c.select(multiple(yes), multiple(no)))
}

/// Whether a product of integers is not zero is whether both factors are not, where one of them is a truth.
pub(super) fn truth_of_product<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let is_cast = |t: Term<'s>| t.is_cast();
    let product = s.term.operands().first().copied().filter(|_| s.term.dtype() == DType::Bool && is_cast(s.term))?;
    let [a, b] = call(product, Mul).filter(|_| product.dtype().is_int())?;
    let is_truth = |t: Term<'s>| is_cast(t) && t.operands()[0].dtype() == DType::Bool;
    let not_zero = |t: Term<'s>| if is_truth(t) { t.operands()[0] } else { t.cast(DType::Bool) };
    (is_truth(a) || is_truth(b)).then(|| in_order(s, And, [not_zero(a), not_zero(b)]))
}

/// The smaller of a number and either infinity is the number, or the negative one.
pub(super) fn bound_by_choice<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let Some(op @ (Min | Max)) = s.term.as_call() else { return None };
    let [a, b] = call(s.term, op)?;
    let (idle, bound) = if op == Min { (f64::INFINITY, f64::NEG_INFINITY) } else { (f64::NEG_INFINITY, f64::INFINITY) };
    let (x, [c, yes, no], [first, second]) = match (hiding(a), hiding(b)) {
        (None, Some((mask, values))) => (a, mask, values),
        (Some((mask, values)), None) => (b, mask, values),
        _ => return None,
    };
    match (first == idle && second == bound, first == bound && second == idle) {
        (true, _) => Some(c.select(x, no)),
        (_, true) => Some(c.select(yes, x)),
        _ => None,
    }
}

/// A choice by whether one integer is less than another is the other choice by whether that is at most the one; index expressions have a form of
/// their own, and comparisons with constants stay.
pub(super) fn choice_by_less<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    // Between constants it may be a truth, for which the other one is no plainer.
    let [c, yes, no] = select(s).filter(|[_, yes, no]| yes.as_const().is_none() || no.as_const().is_none())?;
    let varies = |t: &Term<'s>| t.dtype().is_int() && t.as_const().is_none();
    let [a, b] = call(c, Lt).filter(|operands| operands.iter().all(varies) && sides(s, c).is_none())?;
    Some(Term::call(Le, &[b, a]).select(no, yes))
}

/// A number or its opposite, by its place, is the number times a sign.
pub(super) fn choice_of_signs<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [c, yes, no] = select(s).filter(|_| s.term.dtype().is_float())?;
    sides(s, c)?;
    let sign = |first: f64, second: f64| c.select(s.scope.float(s.term, first), s.scope.float(s.term, second));
    if unary(yes, Neg) == Some(no) {
        return Some(sign(-1.0, 1.0) * no);
    }
    (unary(no, Neg) == Some(yes)).then(|| sign(1.0, -1.0) * yes)
}

/// What is at most −∞ is −∞. (What is above it is no NaN either, which `x ≠ −∞` does not say.)
pub(super) fn at_most_least<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [x, a] = call(s.term, Le)?;
    (float(a) == Some(f64::NEG_INFINITY)).then(|| Term::call(Eq, &[x, a]))
}

/// What is known before anything is read comes first.
pub(super) fn logic_order<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let Some(op @ (And | Or)) = s.term.as_call() else { return None };
    let operands = call(s.term, op).filter(|_| s.term.dtype() == DType::Bool)?;
    let new = in_order(s, op, operands);
    (new != s.term).then_some(new)
}

/// Two truths joined, a comparison of index expressions first.
fn in_order<'s>(s: &Step<'_, 's>, op: Scalar, [a, b]: [Term<'s>; 2]) -> Term<'s> {
    let is_last = sides(s, b).is_some() && sides(s, a).is_none();
    Term::call(op, &if is_last { [b, a] } else { [a, b] })
}

/// A choice between a truth and a constant one is `and` or `or`.
pub(super) fn choice_of_truths<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [c, yes, no] = select(s).filter(|_| s.term.dtype() == DType::Bool)?;
    (known(yes).is_some() != known(no).is_some()).then(|| chosen(s, c, yes, no))
}

/// The value of a constant truth.
fn known(term: Term<'_>) -> Option<bool> {
    match term.as_const()? {
        Number::Int(n) => Some(n != 0),
        Number::Float(_) => None,
    }
}

/// A choice between truths.
fn chosen<'s>(s: &Step<'_, 's>, c: Term<'s>, yes: Term<'s>, no: Term<'s>) -> Term<'s> {
    let not = |c: Term<'s>| opposite(s, c).unwrap_or_else(|| c.apply(Not));
    match (known(yes), known(no)) {
        (Some(a), Some(b)) if a == b => yes,
        (Some(true), Some(_)) => c,
        (Some(false), Some(_)) => not(c),
        (Some(true), None) => in_order(s, Or, [c, no]),
        (Some(false), None) => in_order(s, And, [not(c), no]),
        (None, Some(false)) => in_order(s, And, [c, yes]),
        (None, Some(true)) => in_order(s, Or, [not(c), yes]),
        (None, None) => c.select(yes, no),
    }
}

/// Whether a choice of numbers is not zero is a choice of whether each is not.
pub(super) fn truth_of_choice<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let inner = s.term.operands().first().copied().filter(|_| s.term.is_cast())?;
    choice(inner).filter(|_| s.term.dtype() == DType::Bool)?;
    truth(s, inner, MOST_CHOICES)
}

/// Choices inside of each other that are looked at.
const MOST_CHOICES: usize = 8;

/// Whether a constant, or a choice of such, is not zero.
fn truth<'s>(s: &Step<'_, 's>, term: Term<'s>, depth: usize) -> Option<Term<'s>> {
    if term.as_const().is_some() {
        return fold(&Step { term: term.cast(DType::Bool), ..*s });
    }
    let ([c, yes, no], depth) = (choice(term)?, depth.checked_sub(1)?);
    Some(chosen(s, c, truth(s, yes, depth)?, truth(s, no, depth)?))
}

/// A choice by one of two conditions, one of which is the opposite of something plain, is the other choice by both of their opposites.
pub(super) fn choice_by_either<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [c, yes, no] = select(s)?;
    let [p, q] = call(c, Or).filter(|_| c.dtype() == DType::Bool)?;
    let (p, q) = match (opposite(s, p), opposite(s, q)) {
        (Some(p), Some(q)) => (p, q),
        (Some(p), None) => (p, q.apply(Not)),
        (None, Some(q)) => (p.apply(Not), q),
        (None, None) => return None,
    };
    Some(in_order(s, And, [p, q]).select(no, yes))
}

/// The opposite of a condition, where it is as plain.
fn opposite<'s>(s: &Step<'_, 's>, condition: Term<'s>) -> Option<Term<'s>> {
    if let Some(inner) = unary(condition, Not) {
        return Some(inner);
    }
    // not (left ≤ right) is right + 1 ≤ left
    let (left, right) = sides(s, condition)?;
    let (over, under) = (&left - &right - 1).by_sign();
    Some(at_most(s, &under, &over))
}

/// A comparison of a truth as a number with constants, or a function of it, is a choice between what it gives for one and zero.
pub(super) fn function_of_truth<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let op = s.term.as_call()?;
    let operands = s.term.operands();
    let signature = op.def().signature;
    let is_function = operands.len() == 1 && signature != Signature::Compare && s.term.dtype().is_float();
    if !is_function && signature != Signature::Compare || matches!(op, Neg | Scalar::Abs) {
        return None;
    }
    let is_truth = |t: &Term<'s>| t.is_cast() && t.operands()[0].dtype() == DType::Bool;
    let place = operands.iter().position(is_truth)?;
    if operands.iter().enumerate().any(|(k, t)| k != place && t.as_const().is_none()) {
        return None;
    }
    let dtype = operands[place].dtype();
    let given = |n: i64| {
        let mut operands = operands.clone();
        operands[place] = s.scope.constant(dtype, Number::from_int(dtype, n));
        fold(&Step { term: s.scope.step(&s.term.node(), s.term.dtype(), &operands), ..*s })
    };
    Some(operands[place].operands()[0].select(given(1)?, given(0)?))
}

/// Arithmetic of a choice of constants, or of a truth as a number, with a constant is a choice of what it gives; a zero has no sign. Masks are made
/// so: `(1 − m) · −10000`.
pub(super) fn arithmetic_of_choice<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let op = s.term.as_call().filter(|op| matches!(op, Add | Sub | Mul | Scalar::Div))?;
    let operands = call(s.term, op).filter(|_| s.term.dtype() != DType::Bool)?;
    let place = operands.iter().position(|t| t.as_const().is_none())?;
    operands[1 - place].as_const()?;
    let dtype = s.term.dtype();
    let is_truth = |t: Term<'s>| t.is_cast() && t.operands()[0].dtype() == DType::Bool;
    let [c, yes, no] = match operands[place] {
        t if is_truth(t) => {
            let number = |n: i64| s.scope.constant(dtype, Number::from_int(dtype, n));
            [t.operands()[0], number(1), number(0)]
        }
        t => choice(t).filter(|[_, yes, no]| yes.as_const().is_some() && no.as_const().is_some())?,
    };
    let given = |branch: Term<'s>| {
        let mut operands = operands;
        operands[place] = branch;
        fold(&Step { term: Term::call(op, &operands), ..*s }).map(|result| without_sign(s, result))
    };
    Some(c.select(given(yes)?, given(no)?))
}

/// A constant that is 0 rather than −0.
fn without_sign<'s>(s: &Step<'_, 's>, constant: Term<'s>) -> Term<'s> {
    if float(constant) == Some(0.0) { s.scope.float(constant, 0.0) } else { constant }
}

/// Whether an integer as a float is not zero is whether it is not zero itself.
pub(super) fn truth_of_converted<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let number = s.term.operands().first().copied().filter(|_| s.term.is_cast() && s.term.dtype() == DType::Bool)?;
    let whole = number.operands().first().copied().filter(|_| number.is_cast() && number.dtype().is_float())?;
    // None of f16 or wider becomes 0.
    let is_wide = number.dtype().bits() >= 16 && whole.dtype().is_int();
    is_wide.then(|| if whole.dtype() == DType::Bool { whole } else { whole.cast(DType::Bool) })
}

/// What is equal to itself is a number.
pub(super) fn equal_to_itself<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let [a, b] = call(s.term, Eq)?;
    (a == b && a.dtype().is_float()).then(|| a.apply(IsNan).apply(Not))
}

/// A sum or difference of two index expressions as floats is that of the index expressions.
pub(super) fn add_converted<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let Some(op @ (Add | Sub)) = s.term.as_call() else { return None };
    let [a, b] = call(s.term, op).filter(|_| s.term.dtype().is_float())?;
    let index = |t: Term<'s>| match t.node() {
        ExprNode::Cast(_) => t.operands()[0].as_index(&s.ranges),
        _ => None,
    };
    let (a, b) = (index(a)?, index(b)?);
    let sum = if op == Add { a + b } else { a - b };
    Some(s.scope.index(&sum).cast(s.term.dtype()))
}

/// A comparison of two integers as floats is one of integers.
pub(super) fn compare_converted<'s>(s: &Step<'_, 's>) -> Option<Term<'s>> {
    let op = s.term.as_call()?;
    let operands = s.term.operands();
    if op.def().signature != Signature::Compare || operands.len() != 2 || !operands[0].dtype().is_float() {
        return None;
    }
    let whole = |t: Term<'s>| {
        let inner = t.operands().first().copied().filter(|_| t.is_cast())?;
        (inner.dtype().is_int() && inner.dtype() != DType::Bool).then_some(inner)
    };
    let (a, b) = (whole(operands[0])?, whole(operands[1])?);
    (a.dtype() == b.dtype()).then(|| Term::call(op, &[a, b]))
}
