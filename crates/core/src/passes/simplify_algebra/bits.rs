//! Unsigned integers by their bits.

use crate::ops::{ExprNode, Number, Scalar, Scope, Term};
use crate::tensor::Class;

use Scalar::{And, Div, Mod, Shr};

/// `x mod 2^k` and `x / 2^k` of an unsigned number as a mask and a shift.
pub(super) fn by_power_of_two<'s>(scope: &'s Scope, term: Term<'s>) -> Option<Term<'s>> {
    let constant = |c: i64| scope.constant(term.dtype(), Number::Int(c));
    let power = |c: i64| c > 0 && c & (c - 1) == 0;
    if term.dtype().class() != Class::Unsigned {
        return None;
    }
    if let Some((x, c)) = with_constant(term, Mod) {
        return power(c).then(|| Term::call(And, &[x, constant(c - 1)]));
    }
    let (x, c) = with_constant(term, Div)?;
    power(c).then(|| Term::call(Shr, &[x, constant(c.trailing_zeros().into())]))
}

/// A mask that leaves a number as it is.
pub(super) fn idle_mask(term: Term<'_>) -> Option<Term<'_>> {
    let (x, mask) = with_constant(term, And)?;
    mask_keeps(mask, x).then_some(x)
}

/// The operand and the constant of `op(x, c)`, for integers.
pub(in crate::passes) fn with_constant(term: Term<'_>, op: Scalar) -> Option<(Term<'_>, i64)> {
    match term.node() {
        ExprNode::Apply(found, _) if found == op => match term.operands()[1].as_const()? {
            Number::Int(c) => Some((term.operands()[0], c)),
            Number::Float(_) => None,
        },
        _ => None,
    }
}

/// Whether a mask of the lowest bits leaves an unsigned number as it is.
pub(in crate::passes) fn mask_keeps(mask: i64, term: Term<'_>) -> bool {
    let is_low = mask >= 0 && mask & mask.wrapping_add(1) == 0;
    is_low && largest(term, 0).is_some_and(|largest| largest <= i128::from(mask))
}

/// The largest value of an unsigned number, by types, masks and shifts.
fn largest(term: Term<'_>, depth: usize) -> Option<i128> {
    const MOST_DEPTH: usize = 8;
    let whole = term.dtype().int_range().filter(|(low, _)| *low >= 0)?.1;
    let of = |x: Term<'_>| largest(x, depth + 1);
    Some(match (with_constant(term, And), with_constant(term, Shr)) {
        _ if depth > MOST_DEPTH => whole,
        (Some((x, mask)), _) if mask >= 0 => of(x)?.min(mask.into()),
        (_, Some((x, bits))) => of(x)?.checked_shr(bits.try_into().ok()?).unwrap_or(0),
        _ => whole,
    })
}
