//! Which values are surely not negative.

use smallvec::SmallVec;

use crate::graph::{Graph, Value};
use crate::ops::prim::Monoid;
use crate::ops::{ExprNode, Prim, Scalar, Term};
use crate::tensor::{Class, DType};

use Scalar::{Abs, Add, Cosh, Div, Exp, Exp2, Max, Min, Mul, Pow, Select, Sigmoid, Sqrt};

/// So many nodes behind a value are looked at in a line.
const MOST_DEPTH: usize = 8;

/// Whether no element of a value is negative (it may be NaN): squares, magnitudes, exponentials, and sums, means and views of them.
pub(super) fn is_nonnegative(graph: &Graph, value: Value) -> bool {
    known(graph, value, 0)
}

fn known(graph: &Graph, value: Value, depth: usize) -> bool {
    if depth > MOST_DEPTH {
        return false;
    }
    if is_unsigned(graph.ty(value).dtype) {
        return true;
    }
    let node = graph.node_of(value);
    let behind = |k: usize| known(graph, node.args()[k], depth + 1);
    match node.prim() {
        Prim::View(view) => view.fill.is_none_or(|fill| fill.to_f64() >= 0.0) && behind(0),
        Prim::Reduce(row) => matches!(row.monoid, Monoid::Sum | Monoid::Prod | Monoid::Max | Monoid::Min) && behind(0),
        Prim::Map(row) => {
            let mut signs: Vec<bool> = Vec::with_capacity(row.expr.nodes().len());
            for (node, dtype) in row.expr.nodes() {
                signs.push(match node {
                    ExprNode::Arg(k) => behind(*k as usize),
                    _ => of_step(node, *dtype, node.operands(), &|o| signs[o as usize]),
                });
            }
            signs.pop().unwrap_or(false)
        }
        _ => false,
    }
}

/// Whether a term is surely not negative, given that of its leaves.
pub(super) fn is_nonnegative_term(term: Term<'_>, leaf: &dyn Fn(u32) -> bool) -> bool {
    fn of(term: Term<'_>, leaf: &dyn Fn(u32) -> bool, depth: usize) -> bool {
        let operands = term.operands();
        let places: SmallVec<[u32; 3]> = operands.iter().map(|o| o.place()).collect();
        let behind = |place: u32| {
            let operand = operands.iter().find(|o| o.place() == place);
            depth < MOST_DEPTH && operand.is_some_and(|o| of(*o, leaf, depth + 1))
        };
        match term.node() {
            ExprNode::Arg(k) => leaf(k) || is_unsigned(term.dtype()),
            node => of_step(&node, term.dtype(), &places, &behind),
        }
    }
    of(term, leaf, 0)
}

/// Whether a step is surely not negative, given that of its operands.
fn of_step(node: &ExprNode, dtype: DType, operands: &[u32], of: &dyn Fn(u32) -> bool) -> bool {
    let all = || operands.iter().all(|o| of(*o));
    match node {
        _ if is_unsigned(dtype) => true,
        ExprNode::Const(number) => number.to_f64() >= 0.0,
        ExprNode::Coord(_) | ExprNode::Size(_) => true,
        ExprNode::Cast(_) | ExprNode::Apply(Scalar::Kept, _) => all(),
        ExprNode::Apply(Abs | Exp | Exp2 | Sqrt | Sigmoid | Cosh, _) => dtype.is_float(),
        ExprNode::Apply(Mul, _) if operands[0] == operands[1] => dtype.is_float(),
        ExprNode::Apply(Add | Mul | Div | Min, _) => dtype.is_float() && all(),
        ExprNode::Apply(Max, _) => operands.iter().any(|o| of(*o)),
        ExprNode::Apply(Pow, _) => of(operands[0]),
        ExprNode::Apply(Select, _) => operands[1..].iter().all(|o| of(*o)),
        _ => false,
    }
}

fn is_unsigned(dtype: DType) -> bool {
    matches!(dtype.class(), Class::Bool | Class::Unsigned)
}
