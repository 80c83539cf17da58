//! Scores that no weight can come of: keys behind a row's own place.

use crate::ops::{Expr, ExprNode, Number, Scalar};
use crate::tensor::DType;

/// If an expression is −∞ wherever `key ≥ row + n`, the least such n that is visible.
pub fn first_masked(expr: &Expr, key: usize, row: usize) -> Option<i64> {
    let nodes = expr.nodes();
    let (root, _) = nodes.last()?;
    let ExprNode::Apply(Scalar::Select, args) = root else { return None };
    let is_masked = |k: u32| match &nodes[k as usize].0 {
        ExprNode::Const(Number::Float(bits)) => f64::from_bits(*bits) == f64::NEG_INFINITY,
        _ => false,
    };
    is_masked(args[2]).then(|| first_false(expr, args[0], key, row)).flatten()
}

/// If an expression is lower than any score by a number that no score makes up for wherever `key ≥ row + n`: the least such n that is
/// visible, and that number. Where a row has another key, those weigh nothing; where it has none, they weigh as much as its own.
pub fn first_sunk(expr: &Expr, key: usize, row: usize) -> Option<(i64, f64)> {
    let nodes = expr.nodes();
    let chosen = |k: u32| match &nodes[k as usize].0 {
        ExprNode::Apply(Scalar::Select, args) => Some(args),
        _ => None,
    };
    let (root, dtype) = nodes.last()?;
    if *dtype != DType::F32 {
        return None;
    }
    let (truth, other) = match root {
        ExprNode::Apply(Scalar::Select, args) => (args[0], args[2]),
        ExprNode::Apply(Scalar::Add, sides) => {
            let args = sides.iter().find_map(|side| chosen(*side))?;
            number(expr, args[1]).filter(|seen| seen.abs() <= -LOWEST_SCORE)?;
            (args[0], args[2])
        }
        _ => return None,
    };
    let low = number(expr, other).filter(|low| low.is_finite() && *low <= 4.0 * LOWEST_SCORE)?;
    first_false(expr, truth, key, row).map(|from| (from, low))
}

/// Scores are not as low as this, nor as high as its opposite.
const LOWEST_SCORE: f64 = -2.5e29;

/// A constant, converted perhaps.
fn number(expr: &Expr, node: u32) -> Option<f64> {
    match &expr.nodes()[node as usize].0 {
        ExprNode::Const(Number::Float(bits)) => Some(f64::from_bits(*bits)),
        ExprNode::Const(Number::Int(n)) => Some(*n as f64),
        ExprNode::Cast(of) => number(expr, *of),
        _ => None,
    }
}

/// If a truth is false wherever `key ≥ row + n`, the least such n that is visible.
fn first_false(expr: &Expr, truth: u32, key: usize, row: usize) -> Option<i64> {
    let ExprNode::Apply(op, args) = &expr.nodes()[truth as usize].0 else { return None };
    let difference = || {
        let (a, b) = (linear(expr, args[0])?, linear(expr, args[1])?);
        let is = |terms: &[(usize, i64)], axis: usize| terms == [(axis, 1)];
        (is(&a.0, key) && is(&b.0, row)).then(|| b.1 - a.1)
    };
    match op {
        // key + a ≤ row + b fails from key = row + (b − a) + 1 on.
        Scalar::Le => difference().map(|d| d + 1),
        Scalar::Lt => difference(),
        Scalar::And | Scalar::Mul | Scalar::Min => {
            let sides = [args[0], args[1]].map(|side| first_false(expr, side, key, row));
            sides.into_iter().flatten().min()
        }
        _ => None,
    }
}

/// An expression as coordinates with factors, plus a number.
fn linear(expr: &Expr, node: u32) -> Option<(Vec<(usize, i64)>, i64)> {
    match &expr.nodes()[node as usize].0 {
        ExprNode::Coord(axis) => Some((vec![(usize::from(*axis), 1)], 0)),
        ExprNode::Const(Number::Int(n)) => Some((Vec::new(), *n)),
        ExprNode::Apply(Scalar::Add, args) => {
            let (mut a, b) = (linear(expr, args[0])?, linear(expr, args[1])?);
            a.0.extend(b.0);
            Some((a.0, a.1 + b.1))
        }
        ExprNode::Apply(Scalar::Sub, args) => {
            let (a, b) = (linear(expr, args[0])?, linear(expr, args[1])?);
            b.0.is_empty().then_some((a.0, a.1 - b.1))
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tile::{Op, text};

    /// What is found where scores `a` of rows `i0` and keys `i1` become this.
    fn found(expr: &str) -> (Option<i64>, Option<(i64, f64)>) {
        let kernel = text::parse(&format!(
            "kernel {{
              axes i0: n, i1: n
              in   x0: f32[n, n]
              out  y0: f32[n, n]
              schedule map
              %0 = load x0[i0, i1]
              %1 = map(%0) {expr}
              store y0[i0, i1] = %1
            }}"
        ))
        .expect("it is a kernel");
        let Op::Map { expr, .. } = &kernel.steps[1].op else { panic!("the second step is a map") };
        (first_masked(expr, 1, 0), first_sunk(expr, 1, 0))
    }

    #[test]
    fn masks_that_are_infinite_or_numbers_are_found() {
        assert_eq!(found("select(i1 <= i0, a, -inf)"), (Some(1), None));
        assert_eq!(found("select(i1 < i0, a, -3e38)"), (None, Some((0, f64::from(-3e38f32)))));
        assert_eq!(found("select(i1 <= i0, f32(0.0), f32(-1e30)) + a * 0.125").1.map(|(from, _)| from), Some(1));
    }

    #[test]
    fn numbers_that_scores_may_make_up_for_are_none() {
        assert_eq!(found("select(i1 <= i0, a, -10000.0)"), (None, None));
        assert_eq!(found("select(i0 <= i1, a, -3e38)"), (None, None));
        assert_eq!(found("select(i1 <= i0, f32(1e30), f32(-3e38)) + a"), (None, None));
    }
}
