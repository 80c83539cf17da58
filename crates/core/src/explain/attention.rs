//! The name of attention, with what sets it apart: `Attention (causal, dropout)`.
//!
//! What a query sees is found by trying it: the truths and penalties that places alone decide are evaluated for some queries and
//! keys.

use smallvec::SmallVec;

use crate::ops::{Expr, ExprNode, Scalar};
use crate::tensor::Dim;
use crate::tile::{AxisSet, Chain, Kernel, Op, StepId};

/// Attention with what sets it apart.
pub(super) fn name_of_attention(kernel: &Kernel, chain: &Chain) -> String {
    let Op::Dot { a, b, .. } = &kernel.step(chain.second).op else { return "Attention".into() };
    let scores = [*a, *b].map(|operand| between(kernel, operand, chain.first));
    let Some(steps) = scores.into_iter().flatten().next() else { return "Attention".into() };
    let masks = |step: &StepId| {
        let step = kernel.step(*step);
        matches!(step.op, Op::Load { .. }) && !step.axes.common(chain.stream).is_empty()
    };
    let draws = |step: &StepId| matches!(kernel.step(*step).op, Op::Random { .. });
    let mut qualities: Vec<&str> = Vec::new();
    for step in &steps {
        let Op::Map { expr, .. } = &kernel.step(*step).op else { continue };
        for view in views(kernel, expr, chain) {
            let name = view.name();
            if !qualities.contains(&name) {
                qualities.push(name);
            }
        }
    }
    if steps.iter().any(masks) {
        qualities.push("masked");
    }
    if steps.iter().any(draws) {
        qualities.push("dropout");
    }
    match qualities.as_slice() {
        [] => "Attention".into(),
        some => format!("Attention ({})", some.join(", ")),
    }
}

/// The steps that an operand of the second contraction computes from, without those of the first; `None` where it does not
/// compute from the first.
fn between(kernel: &Kernel, operand: StepId, first: StepId) -> Option<Vec<StepId>> {
    let (mut found, mut todo) = (Vec::new(), vec![operand]);
    let mut reaches = false;
    while let Some(step) = todo.pop() {
        if step == first {
            reaches = true;
        } else if !found.contains(&step) {
            found.push(step);
            todo.extend(kernel.step(step).op.operands());
        }
    }
    found.sort_unstable();
    reaches.then_some(found)
}

/// What places alone decide about a score.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum View {
    /// a query sees keys up to a place that moves with it
    Causal,
    /// so it does, and some of these come after its own
    Banded,
    /// a query sees keys from a place on that moves with it
    Backward,
    /// a query sees keys around a place that moves with it
    Window,
    /// some keys are hidden in another way
    Hidden,
    /// all keys are seen, some are preferred
    Biased,
}

impl View {
    fn name(self) -> &'static str {
        match self {
            View::Causal => "causal",
            View::Banded => "banded",
            View::Backward => "anti-causal",
            View::Window => "windowed",
            View::Hidden => "masked by place",
            View::Biased => "biased by place",
        }
    }

    /// The view by what two queries see, the second one further on.
    fn of(seen: [&[bool]; 2]) -> View {
        let runs = seen.map(|seen| {
            let (first, last) = (seen.iter().position(|s| *s)?, seen.iter().rposition(|s| *s)?);
            seen[first..=last].iter().all(|s| *s).then_some((first, last + 1 < seen.len()))
        });
        match runs {
            [Some((0, false)), Some((0, false))] => View::Biased,
            [Some((0, true)), Some((0, _))] if seen[0] != seen[1] => View::Causal,
            [Some((_, false)), Some((1.., false))] if seen[0] != seen[1] => View::Backward,
            [Some((_, true)), Some((1.., _))] if seen[0] != seen[1] => View::Window,
            _ => View::Hidden,
        }
    }
}

/// Places of keys that are tried.
const KEYS: i64 = 512;

/// Places of two queries that are tried.
const QUERIES: [i64; 2] = [40, 90];

/// What a free size is taken for.
const SIZE: i64 = 64;

/// What it is taken for where it is asked whether it matters.
const OTHER_SIZE: i64 = 48;

/// A score that is so much less than others has no weight.
const HIDDEN: f64 = -1e3;

/// What the largest parts of an expression that follow from the places of query and key alone make of a score.
fn views(kernel: &Kernel, expr: &Expr, chain: &Chain) -> Vec<View> {
    let nodes = expr.nodes();
    let places: Vec<Option<[bool; 2]>> = places(expr, chain);
    let both = |k: usize| places[k] == Some([true, true]);
    let mut found = Vec::new();
    for k in (0..nodes.len()).filter(|k| both(*k)) {
        let reader = nodes.iter().position(|(node, _)| node.operands().contains(&(k as u32)));
        if reader.is_some_and(&both) {
            continue;
        }
        let Some(hides) = hides_where(expr, k as u32, reader) else { continue };
        let seen =
            QUERIES.map(|query| (0..KEYS).map(|key| !hides(value(expr, k, chain, query, key))).collect::<Vec<_>>());
        let view = View::of([&seen[0], &seen[1]]);
        found.push(if view == View::Causal && sees_ahead(kernel, expr, k, chain, hides) { View::Banded } else { view });
    }
    found
}

/// Whether a query that sees keys up to a place sees some that come after its own. Where there are more keys than queries, these are the last
/// ones; and a place that moves with a free size is behind keys of the past.
fn sees_ahead(kernel: &Kernel, expr: &Expr, part: usize, chain: &Chain, hides: fn(f64) -> bool) -> bool {
    let ahead = |size: i64| {
        let seen = |key: &i64| !hides(value_at(expr, part, chain, [QUERIES[0], *key], size));
        (0..KEYS).rev().find(seen).map_or(0, |last| last - QUERIES[0])
    };
    let extent = |axes: AxisSet| {
        let is_asked = |axis: &usize| expr.nodes().iter().any(|(n, _)| *n == ExprNode::Coord(*axis as u8));
        let sizes = axes.iter().filter(is_asked).map(|axis| kernel.axes[axis].eval_with(&|_| Some(SIZE)).unwrap_or(0));
        sizes.product::<i64>()
    };
    let past = extent(chain.stream) - extent(chain.rows);
    let here = ahead(SIZE);
    here > 0 && here != past && ahead(OTHER_SIZE) == here
}

/// For every node that follows from places alone, whether it looks at the place of the query and of the key.
fn places(expr: &Expr, chain: &Chain) -> Vec<Option<[bool; 2]>> {
    let mut places: Vec<Option<[bool; 2]>> = Vec::with_capacity(expr.nodes().len());
    for (node, _) in expr.nodes() {
        let own = match node {
            ExprNode::Coord(axis) => {
                let within = |axes: AxisSet| axes.contains(usize::from(*axis));
                Some([within(chain.rows), within(chain.stream)])
            }
            ExprNode::Arg(_) => None,
            _ => node.operands().iter().try_fold([false; 2], |all, operand| {
                let theirs = places[*operand as usize]?;
                Some([all[0] | theirs[0], all[1] | theirs[1]])
            }),
        };
        places.push(own);
    }
    places
}

/// Which values of a part hide a key: of a truth those that choose a number with no weight, of a summand those that leave none.
/// `None` where the part does something else.
fn hides_where(expr: &Expr, part: u32, reader: Option<usize>) -> Option<fn(f64) -> bool> {
    let ExprNode::Apply(op, args) = &expr.nodes()[reader?].0 else { return None };
    let has_no_weight = |k: u32| {
        let ExprNode::Const(number) = expr.nodes()[k as usize].0 else { return false };
        number.to_f64() <= HIDDEN || number.to_f64().is_nan()
    };
    match op {
        Scalar::Add => Some(|value| value <= HIDDEN),
        Scalar::Sub if args[0] == part => Some(|value| value <= HIDDEN),
        Scalar::Sub => Some(|value| value >= -HIDDEN),
        Scalar::Select if args[0] == part => match (has_no_weight(args[1]), has_no_weight(args[2])) {
            (true, false) => Some(|truth| truth != 0.0),
            (false, true) => Some(|truth| truth == 0.0),
            _ => None,
        },
        _ => None,
    }
}

/// The value of a part of an expression for a query and a key.
fn value(expr: &Expr, part: usize, chain: &Chain, query: i64, key: i64) -> f64 {
    value_at(expr, part, chain, [query, key], SIZE)
}

/// As [`value`], where every free size is this one.
fn value_at(expr: &Expr, part: usize, chain: &Chain, [query, key]: [i64; 2], free: i64) -> f64 {
    let mut values: Vec<f64> = Vec::with_capacity(part + 1);
    for (node, _) in &expr.nodes()[..=part] {
        let operands: SmallVec<[f64; 3]> = node.operands().iter().map(|o| values[*o as usize]).collect();
        values.push(match node {
            ExprNode::Const(number) => number.to_f64(),
            ExprNode::Cast(_) => operands[0],
            ExprNode::Apply(op, _) => apply(*op, &operands),
            ExprNode::Coord(axis) if chain.stream.contains(usize::from(*axis)) => key as f64,
            ExprNode::Coord(_) => query as f64,
            ExprNode::Size(size) => size.eval_with(&|_| Some(free)).map_or(f64::NAN, |size| size as f64),
            ExprNode::Arg(_) | ExprNode::Bits(_) => f64::NAN,
        });
    }
    values[part]
}

/// A function of numbers, of which truths are 0 and 1.
pub(super) fn apply(op: Scalar, operands: &[f64]) -> f64 {
    let def = op.def();
    let (truths, integers) = (|| operands.iter().map(|x| *x != 0.0), || operands.iter().map(|x| *x as i128));
    match (def.float, def.bool, def.int) {
        (Some(float), _, _) => float(operands),
        (_, Some(bool), _) => f64::from(u8::from(bool(&truths().collect::<SmallVec<[bool; 3]>>()))),
        (_, _, Some(int)) => int(&integers().collect::<SmallVec<[i128; 3]>>()) as f64,
        _ => f64::NAN,
    }
}

pub(super) fn number_of(size: &Dim) -> f64 {
    size.eval_with(&|_| Some(SIZE)).map_or(f64::NAN, |size| size as f64)
}

#[cfg(test)]
mod tests {
    use super::View;

    #[test]
    fn views_are_told_by_what_is_seen() {
        let seen = |sees: fn(i64, i64) -> bool| {
            [40, 90].map(|query| (0..512).map(|key| sees(query, key)).collect::<Vec<bool>>())
        };
        let view = |sees: fn(i64, i64) -> bool| {
            let seen = seen(sees);
            View::of([&seen[0], &seen[1]])
        };
        assert_eq!(view(|query, key| key <= query), View::Causal);
        assert_eq!(view(|query, key| key <= query + 64), View::Causal);
        assert_eq!(view(|query, key| key >= query), View::Backward);
        assert_eq!(view(|query, key| (query - key).abs() < 8), View::Window);
        assert_eq!(view(|query, key| key <= query && key + 16 > query), View::Window);
        assert_eq!(view(|query, key| key != query), View::Hidden);
        assert_eq!(view(|_, key| key < 9), View::Hidden);
        assert_eq!(view(|_, _| true), View::Biased);
    }
}
