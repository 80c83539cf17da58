//! How large factors are that would move.

use super::peel::Action;
use super::step::Step;
use crate::graph::Graph;
use crate::ops::{Expr, ExprNode, range};

/// Factors that follow from sizes are looked at for sizes of 1 and of this.
const LARGE_SIZE: f64 = (1u64 << 20) as f64;

/// Whether factors may move past a sum, each by itself and all together, as far as they are numbers: constants, or what follows
/// from sizes. Factors that vary are data, as weights are, and not looked at.
pub(super) fn may_move(graph: &Graph, factors: impl IntoIterator<Item = (Action, Step)>) -> bool {
    let (mut products, mut alone) = ([1.0; 2], true);
    for (action, step) in factors {
        let Some(sizes) = magnitude(graph, step).filter(|_| matches!(action, Action::Times | Action::Over)) else {
            continue;
        };
        for (product, size) in products.iter_mut().zip(sizes) {
            alone &= range::may_move(size);
            *product *= if action == Action::Over { 1.0 / size } else { size };
        }
    }
    alone && products.into_iter().all(range::may_move)
}

/// The number that a step is where all sizes are 1, and where they are large; `None` where it is none.
fn magnitude(graph: &Graph, step: Step) -> Option<[f64; 2]> {
    if let Some(x) = step.float(graph) {
        return Some([x, x]);
    }
    let expr = step.uniform(graph)?;
    // What cannot be computed here is beyond every range.
    Some([1.0, LARGE_SIZE].map(|size| value(&expr, size).unwrap_or(f64::INFINITY)))
}

/// The value of an expression of numbers and sizes where every size is this.
fn value(expr: &Expr, size: f64) -> Option<f64> {
    let mut values: Vec<f64> = Vec::with_capacity(expr.nodes().len());
    for (node, _) in expr.nodes() {
        let operands: Vec<f64> = node.operands().iter().map(|o| values[*o as usize]).collect();
        values.push(match node {
            ExprNode::Const(number) => number.to_f64(),
            ExprNode::Size(_) => size,
            ExprNode::Cast(_) => operands[0],
            ExprNode::Apply(op, _) => op.def().float.map(|f| f(&operands))?,
            ExprNode::Arg(_) | ExprNode::Coord(_) | ExprNode::Bits(_) => return None,
        });
    }
    values.pop()
}
