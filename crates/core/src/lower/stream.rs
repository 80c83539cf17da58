//! How the folds of two joined contractions follow each other when their axis is walked piece by piece.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::classify::Roles;
use super::draft::{Draft, Leaf, LeafOp, Place};
use super::refusal::Refusal;
use crate::ops::normal::Normalizer;
use crate::ops::normal::online::Correction;
use crate::ops::prim::Monoid;
use crate::ops::{Expr, ExprNode, Scalar, Scope, Term};
use crate::passes::Numerics;
use crate::tile::AxisSet;

/// That a fold follows an earlier one, on which its terms depend. Folds by their leaves.
#[derive(Clone, Debug)]
pub struct Follows {
    /// the fold
    pub(super) fold: usize,
    /// the earlier one
    pub(super) on: usize,
    /// what its partial result is multiplied by: an expression of the old and the new running result
    pub(super) factor: Expr,
    /// how its terms read the running result
    pub(super) read: Read,
}

/// How terms read a running result; where they do in several ways, the first of these.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Read {
    /// as it is
    AsIs,
    /// its logarithm
    Logarithm,
    /// itself where it is finite, otherwise 0
    Guarded,
}

/// What makes streaming right: for every fold along the stream, and every earlier fold that its terms depend on, how it
/// follows. Refused where one cannot, and for other schedules there is nothing to follow.
pub fn corrections(draft: &Draft, roles: &Roles, numerics: Numerics) -> Result<Vec<Follows>, Refusal> {
    let Roles::Attention { second, stream, .. } = roles else { return Ok(Vec::new()) };
    let streamed = |leaf: usize| !draft.leaves[leaf].op.folded().common(*stream).is_empty();
    let is_place = |op: &LeafOp| matches!(op, LeafOp::Reduce { monoid, .. } if monoid.is_position());
    if let Some(place) = draft.leaves.iter().position(|leaf| is_place(&leaf.op)) {
        return Err(if streamed(place) { Refusal::OrderStreamed } else { Refusal::NoSkeleton });
    }
    let mut found = Vec::new();
    for fold in (0..draft.leaves.len()).filter(|k| streamed(*k)) {
        let (terms, monoid) = match &draft.leaves[fold].op {
            op if op.folded() != *stream => return Err(Refusal::FoldAcrossTiles),
            LeafOp::Prefix { .. } => return Err(Refusal::OrderStreamed),
            LeafOp::Reduce { monoid, arg, .. } => (SmallVec::<[Place; 2]>::from_slice(&[*arg]), *monoid),
            LeafOp::Dot { a, b, .. } if fold == *second => (SmallVec::from_slice(&[*a, *b]), Monoid::Sum),
            _ => continue,
        };
        for term in terms {
            follow(draft, fold, term, monoid, *stream, numerics, &mut found)?;
        }
    }
    Ok(found)
}

/// Adds how a fold of a term follows each fold along the stream that the term reads.
fn follow(
    draft: &Draft,
    fold: usize,
    term: Place,
    monoid: Monoid,
    stream: AxisSet,
    numerics: Numerics,
    found: &mut Vec<Follows>,
) -> Result<(), Refusal> {
    let scope = Scope::default();
    let (term, reads) = looked_through(draft, &scope, term, stream);
    let varies = |node: &ExprNode| match node {
        ExprNode::Arg(k) => !draft.leaves[*k as usize].axes.common(stream).is_empty(),
        ExprNode::Coord(axis) => stream.contains(usize::from(*axis)),
        _ => false,
    };
    let mut normalizer = Normalizer::new(&scope, numerics);
    for (k, leaf) in draft.leaves.iter().enumerate() {
        if leaf.op.folded().common(stream).is_empty() || found.iter().any(|f| (f.fold, f.on) == (fold, k)) {
            continue;
        }
        let running = scope.argument(k, leaf.dtype);
        match normalizer.correction(term, running, monoid, &varies) {
            Ok(Correction::None) => {}
            // Other factors are 0 / 0 where a row begins masked.
            Ok(Correction::Factor(change))
                if change.others.is_empty() && change.is_exponential && begins_well(&change.expr, leaf) =>
            {
                let read = reads.get(&k).copied().unwrap_or(Read::AsIs);
                found.push(Follows { fold, on: k, factor: change.expr, read });
            }
            _ => return Err(Refusal::NotStreamable),
        }
    }
    Ok(())
}

/// Whether nothing becomes something that is no number when the first piece is done: of a running minimum, which begins at infinity, the
/// factor `exp(old − new)` is infinite then, and what it multiplies is 0.
fn begins_well(factor: &Expr, running: &Leaf) -> bool {
    let LeafOp::Reduce { monoid, .. } = &running.op else { return true };
    let begin = monoid.neutral(running.dtype).to_f64();
    // Sums whose logarithm is taken are positive.
    let firsts: &[f64] = if *monoid == Monoid::Sum { &[1.0] } else { &[1.0, -1.0] };
    firsts.iter().all(|first| factor.eval_f64(&[begin, *first]).is_finite())
}

/// A term with every value of its own that reads a fold along the stream replaced by what it is, and every running result by itself where
/// it was only read while it is finite; and how it reads running results.
fn looked_through<'s>(
    draft: &Draft,
    scope: &'s Scope,
    place: Place,
    stream: AxisSet,
) -> (Term<'s>, FxHashMap<usize, Read>) {
    let (mut copied, mut reads): (FxHashMap<Place, Term<'s>>, _) = (FxHashMap::default(), FxHashMap::default());
    let mut stack = vec![(place, false)];
    while let Some((next, expanded)) = stack.pop() {
        if copied.contains_key(&next) {
            continue;
        }
        let term = draft.scope.term(next);
        if let Some((fold, read)) = reading(draft, next).filter(|(fold, _)| is_along(draft, *fold, stream)) {
            reads.entry(fold).and_modify(|known: &mut Read| *known = read.min(*known)).or_insert(read);
            let running = scope.argument(fold, draft.leaves[fold].dtype);
            copied.insert(next, if read == Read::Logarithm { running.apply(Scalar::Log) } else { running });
            continue;
        }
        let inner = match term.node() {
            ExprNode::Arg(k) => match &draft.leaves[k as usize].op {
                LeafOp::Let { arg } if reads_stream(draft, *arg, stream) => Some(*arg),
                _ => None,
            },
            _ => None,
        };
        let operands: SmallVec<[Place; 3]> = match inner {
            Some(arg) => SmallVec::from_slice(&[arg]),
            None => term.operands().iter().map(|o| o.place()).collect(),
        };
        if !expanded {
            stack.push((next, true));
            stack.extend(operands.iter().rev().map(|o| (*o, false)));
            continue;
        }
        let terms: SmallVec<[Term<'s>; 3]> = operands.iter().map(|o| copied[o]).collect();
        let copy = if inner.is_some() { terms[0] } else { scope.step(&term.node(), term.dtype(), &terms) };
        copied.insert(next, copy);
    }
    (copied[&place], reads)
}

/// Whether a leaf folds along the stream.
fn is_along(draft: &Draft, leaf: usize, stream: AxisSet) -> bool {
    !draft.leaves[leaf].op.folded().common(stream).is_empty()
}

/// Which fold a term reads, and how, if it does nothing else.
pub(super) fn reading(draft: &Draft, place: Place) -> Option<(usize, Read)> {
    let term = draft.scope.term(place);
    let as_fold = |term: Term<'_>| match term.node() {
        ExprNode::Arg(k) => Some(k as usize).filter(|k| !draft.leaves[*k].op.folded().is_empty()),
        _ => None,
    };
    match term.node() {
        ExprNode::Arg(_) => Some((as_fold(term)?, Read::AsIs)),
        ExprNode::Apply(Scalar::Log, _) => Some((as_fold(term.operands()[0])?, Read::Logarithm)),
        ExprNode::Apply(Scalar::Select, _) => {
            let running = term.operands().into_iter().find(|o| as_fold(*o).is_some())?;
            is_guard(term, running).then(|| (as_fold(running).expect("a fold"), Read::Guarded))
        }
        _ => None,
    }
}

/// Whether a choice is a number where that is finite, otherwise 0: every spelling of it, for it is asked at numbers that tell.
fn is_guard(choice: Term<'_>, of: Term<'_>) -> bool {
    let (mut todo, mut count) = (vec![choice], 0);
    while let Some(term) = todo.pop() {
        count += 1;
        let is_arithmetic = matches!(term.node(), ExprNode::Apply(..) | ExprNode::Const(_));
        if term != of && !is_arithmetic || count > MOST_GUARD {
            return false;
        }
        if term != of {
            todo.extend(term.operands());
        }
    }
    let expr = Expr::of(choice, &[of]);
    let is = |x: f64, y: f64| expr.eval_f64(&[x]) == y;
    let largest = of.dtype().round(1e300).min(f64::from(f32::MAX));
    let finite = [0.0, 1.0, -1.0, 0.3, -700.0, 1e-6, largest.min(3e4), -largest.min(3e4)];
    [f64::INFINITY, f64::NEG_INFINITY].iter().all(|x| is(*x, 0.0)) && finite.iter().all(|x| is(*x, *x))
}

/// A choice of more steps is no guard.
const MOST_GUARD: usize = 16;

/// Whether a term reads a fold along the stream, also through values of their own.
pub(super) fn reads_stream(draft: &Draft, place: Place, stream: AxisSet) -> bool {
    draft.leaves_of(place).into_iter().any(|leaf| match &draft.leaves[leaf].op {
        LeafOp::Let { arg } => reads_stream(draft, *arg, stream),
        op => !op.folded().common(stream).is_empty(),
    })
}
