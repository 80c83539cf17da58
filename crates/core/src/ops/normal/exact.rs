//! Rewrites that change no bit: the exact rules, and one order for operands that may be swapped.

use smallvec::SmallVec;

use super::Normalizer;
use crate::ops::{ExprNode, Scalar, Term};
use crate::passes::{RuleStep, Tier, plainer};
use crate::tensor::{DType, Ranges};

use Scalar::{Add, And, Div, Eq, Le, Lt, Max, Min, Mul, Neg, Not, Or, Sub};

/// Rules may fire this often on one term; each makes it plainer, so that few do.
const MOST_FIRINGS: usize = 32;

impl<'s> Normalizer<'s> {
    /// The step `node` applied to normal operands.
    pub(super) fn exact(&mut self, node: &ExprNode, dtype: DType, operands: &[Term<'s>]) -> Term<'s> {
        let mut term = self.arranged(node, dtype, operands);
        for _ in 0..MOST_FIRINGS {
            let Some(new) = self.fire(term) else { break };
            if operands.contains(&new) {
                return new;
            }
            term = match new.node() {
                node @ (ExprNode::Apply(..) | ExprNode::Cast(_)) => self.arranged(&node, new.dtype(), &new.operands()),
                _ => new,
            };
        }
        term
    }

    fn fire(&self, term: Term<'s>) -> Option<Term<'s>> {
        if !matches!(term.node(), ExprNode::Apply(..) | ExprNode::Cast(_)) {
            return None;
        }
        let nonnegative = &self.knowledge.nonnegative;
        let step = RuleStep { scope: self.scope, term, ranges: Ranges::of(&self.extents), nonnegative };
        let (_, new) = plainer(&step, |tier| tier == Tier::Exact)?;
        (new != term).then_some(new)
    }

    /// The step with its operands in order.
    fn arranged(&mut self, node: &ExprNode, dtype: DType, operands: &[Term<'s>]) -> Term<'s> {
        let ExprNode::Apply(op, _) = node else { return self.scope.step(node, dtype, operands) };
        match (*op, operands) {
            (Mul | Min, [_, _]) if dtype == DType::Bool => self.set(And, operands),
            (Max, [_, _]) if dtype == DType::Bool => self.set(Or, operands),
            (Add | Sub | Neg | Mul, _) if dtype.is_int() => self.whole(*op, dtype, operands),
            (Div, [a, b]) if dtype.is_int() => self.whole_division(*a, *b),
            (And | Or | Max | Min, _) => self.set(*op, operands),
            (Not, [x]) if dtype == DType::Bool => match negation(*x) {
                Some(opposite) => self.arranged(&opposite.node(), dtype, &opposite.operands()),
                None => x.apply(Not),
            },
            (Lt | Le | Eq, [a, b]) if a.dtype() == DType::I64 => self.index_comparison(*op, *a, *b),
            (op, [a, b]) if op.is_commutative() => self.commuted(op, *a, *b),
            _ => self.scope.step(node, dtype, operands),
        }
    }

    /// A comparison; of index expressions, the one form of `i < j + 1`, `i ≤ j` and `i − j ≤ 0`.
    fn index_comparison(&mut self, op: Scalar, a: Term<'s>, b: Term<'s>) -> Term<'s> {
        let ranges = Ranges::of(&self.extents);
        let Some((left, right)) = a.as_index(&ranges).zip(b.as_index(&ranges)) else {
            return if op == Eq { self.commuted(op, a, b) } else { Term::call(op, &[a, b]) };
        };
        let difference = right - left - i64::from(op == Lt);
        let difference = if op == Eq { difference } else { difference.with_same_sign() };
        let (above, below) = difference.sides();
        let [below, above] = [below, above].map(|side| self.scope.index(&side)).map(|side| self.wide(side));
        if op == Eq { self.commuted(op, below, above) } else { Term::call(Le, &[below, above]) }
    }

    /// A function of a set of operands: nested calls are one, in order, each operand once, constants last.
    fn set(&mut self, op: Scalar, operands: &[Term<'s>]) -> Term<'s> {
        let mut found: SmallVec<[Term<'s>; 4]> = SmallVec::new();
        let mut todo: SmallVec<[Term<'s>; 4]> = operands.into();
        while let Some(term) = todo.pop() {
            match term.node() {
                ExprNode::Apply(inner, _) if inner == op => todo.extend(term.operands()),
                _ => found.push(term),
            }
        }
        let order = &mut self.order;
        found.sort_by(|a, b| order.compare(*a, *b));
        found.dedup();
        found.into_iter().reduce(|a, b| Term::call(op, &[a, b])).expect("functions have operands")
    }
}

/// `not (a < b)` for operands of which one is always the smaller: not for floats, which may be NaN.
fn negation(condition: Term<'_>) -> Option<Term<'_>> {
    let Some(op @ (Lt | Le)) = condition.as_call() else { return None };
    let operands = condition.operands();
    let opposite = if op == Lt { Le } else { Lt };
    (!operands[0].dtype().is_float()).then(|| Term::call(opposite, &[operands[1], operands[0]]))
}
