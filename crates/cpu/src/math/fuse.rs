//! Which steps of an expression become one instruction.

use fuseline::ops::{Expr, ExprNode, Number, Scalar};
use fuseline::tile::Rounding;

use crate::vector::FmaOp;

/// How a step is computed.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Form {
    /// by itself
    Alone,
    /// as part of the one step that reads it
    Part,
    /// as a fused multiply-add of other steps
    Fused(FmaOp, [u32; 3]),
}

/// How every step is computed. Where every result is rounded, every step is by itself.
///
/// A product that one sum reads is fused with it, of two such products the first; and so is, of a GELU, the sum with 1 that the
/// product reads: x·(y + 1) is x·y + x.
pub(super) fn forms(expr: &Expr, rounding: Rounding) -> Vec<Form> {
    let nodes = expr.nodes();
    let mut forms = vec![Form::Alone; nodes.len()];
    if rounding == Rounding::Every {
        return forms;
    }
    let mut readers = vec![0u32; nodes.len()];
    for operand in nodes.iter().flat_map(|(node, _)| node.operands()) {
        readers[*operand as usize] += 1;
    }
    for (k, (node, dtype)) in nodes.iter().enumerate() {
        let ExprNode::Apply(op, operands) = node else { continue };
        if !dtype.is_float() {
            continue;
        }
        let free = |o: u32, wanted: Scalar| match &nodes[o as usize].0 {
            ExprNode::Apply(op, operands)
                if *op == wanted && readers[o as usize] == 1 && forms[o as usize] == Form::Alone =>
            {
                Some((o, [operands[0], operands[1]]))
            }
            _ => None,
        };
        let found = match (op, operands.as_slice()) {
            (Scalar::Add, &[x, y]) => free(x, Scalar::Mul)
                .map(|(o, [a, b])| (o, FmaOp::Add, [a, b, y]))
                .or_else(|| free(y, Scalar::Mul).map(|(o, [a, b])| (o, FmaOp::Add, [a, b, x]))),
            (Scalar::Sub, &[x, y]) => free(x, Scalar::Mul)
                .map(|(o, [a, b])| (o, FmaOp::Sub, [a, b, y]))
                .or_else(|| free(y, Scalar::Mul).map(|(o, [a, b])| (o, FmaOp::NegAdd, [a, b, x]))),
            (Scalar::Mul, &[x, y]) => [(x, y), (y, x)].into_iter().find_map(|(x, y)| {
                let is_one = |o: u32| matches!(&nodes[o as usize].0, ExprNode::Const(Number::Float(n)) if f64::from_bits(*n) == 1.0);
                let (o, op, y) = match (free(y, Scalar::Add), free(y, Scalar::Sub)) {
                    (Some((o, [a, b])), _) if is_one(b) => (o, FmaOp::Add, a),
                    (Some((o, [a, b])), _) if is_one(a) => (o, FmaOp::Add, b),
                    (_, Some((o, [a, b]))) if is_one(b) => (o, FmaOp::Sub, a),
                    (_, Some((o, [a, b]))) if is_one(a) => (o, FmaOp::NegAdd, b),
                    _ => return None,
                };
                is_step_of(expr, y, x).then_some((o, op, [x, y, x]))
            }),
            _ => None,
        };
        if let Some((part, op, operands)) = found {
            forms[part as usize] = Form::Part;
            forms[k] = Form::Fused(op, operands);
        }
    }
    forms
}

/// Whether y goes from −1 to 1 with x, as in a GELU, so that it is one of both where x is infinite. Of another y, ∞·y + ∞ may be no
/// number where ∞·(y + 1) is ∞.
fn is_step_of(expr: &Expr, y: u32, x: u32) -> bool {
    let is_step = matches!(&expr.nodes()[y as usize].0, ExprNode::Apply(Scalar::Erf | Scalar::Tanh, _));
    is_step && leaves(expr, x) == leaves(expr, y)
}

/// The steps without operands, constants aside, from which a step is computed.
fn leaves(expr: &Expr, root: u32) -> Vec<u32> {
    let nodes = expr.nodes();
    let mut reached = vec![false; root as usize + 1];
    reached[root as usize] = true;
    // Operands stand before those that read them.
    for k in (0..=root as usize).rev() {
        if reached[k] {
            nodes[k].0.operands().iter().for_each(|o| reached[*o as usize] = true);
        }
    }
    let is_leaf = |(node, _): &(ExprNode, _)| node.operands().is_empty() && !matches!(node, ExprNode::Const(_));
    (0..=root).filter(|k| reached[*k as usize] && is_leaf(&nodes[*k as usize])).collect()
}
