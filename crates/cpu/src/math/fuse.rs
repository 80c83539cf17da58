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
/// A product that one sum reads is fused with it, of two such products the first; and so is a sum with 1 that one product reads:
/// x·(y + 1) is x·y + x.
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
                match (free(y, Scalar::Add), free(y, Scalar::Sub)) {
                    (Some((o, [a, b])), _) if is_one(b) => Some((o, FmaOp::Add, [x, a, x])),
                    (Some((o, [a, b])), _) if is_one(a) => Some((o, FmaOp::Add, [x, b, x])),
                    (_, Some((o, [a, b]))) if is_one(b) => Some((o, FmaOp::Sub, [x, a, x])),
                    (_, Some((o, [a, b]))) if is_one(a) => Some((o, FmaOp::NegAdd, [x, b, x])),
                    _ => None,
                }
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
