//! One spelling for equal computations.

use smallvec::SmallVec;

use super::{Context, Pass};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced, rewrite};
use crate::graph::{Graph, Value};
use crate::ops::prim::Map;
use crate::ops::{Expr, ExprNode, Prim, Scalar, Scope, Term};
use crate::tensor::DType;

pub(super) const PASS: Pass = Pass {
    name: "share-common",
    doc: "Maps name each operand once, in the order of use, and commutative functions order theirs, so that equal ones are shared.",
    run,
};

/// In: any graph. Out: every map reads each operand once and none in vain, operands in the order in which the expression
/// uses them; of two operands of a commutative function the earlier value stands first, of two truths one that follows from coordinates.
/// Graphs share equal nodes by construction, so that computations that differed only in spelling are now one.
fn run(graph: &Graph, context: &Context) -> Result<Option<Graph>> {
    rewrite(graph, &context.budget, |rebuild, node, args| match node.prim() {
        Prim::Map(row) => respell(rebuild, row, args),
        _ => Ok(None),
    })
}

fn respell(rebuild: &mut Rebuild<'_>, row: &Map, args: &[Value]) -> Result<Option<Values>> {
    let mut distinct: SmallVec<[Value; 3]> = args.into();
    distinct.sort_unstable();
    distinct.dedup();
    let scope = Scope::default();
    let graph = rebuild.graph();
    let leaves: SmallVec<[Term<'_>; 3]> =
        distinct.iter().enumerate().map(|(k, v)| scope.argument(k, graph.ty(*v).dtype)).collect();
    let place = |v: &Value| distinct.binary_search(v).expect("the list holds every operand");
    let mut terms: Vec<Term<'_>> = Vec::with_capacity(row.expr.nodes().len());
    for (node, dtype) in row.expr.nodes() {
        let mut operands: SmallVec<[Term<'_>; 3]> = node.operands().iter().map(|o| terms[*o as usize]).collect();
        terms.push(match node {
            ExprNode::Arg(k) => leaves[place(&args[*k as usize])],
            // What is known before anything is read comes first, as algebra has it.
            ExprNode::Apply(Scalar::And | Scalar::Or, _) if *dtype == DType::Bool => {
                operands.sort_by_key(|t| (!is_formula(*t), rank(*t)));
                scope.step(node, *dtype, &operands)
            }
            ExprNode::Apply(op, _) if op.is_commutative() => {
                operands.sort_by_key(|t| rank(*t));
                scope.step(node, *dtype, &operands)
            }
            _ => scope.step(node, *dtype, &operands),
        });
    }
    let root = *terms.last().expect("an expression has a result");
    let used = arguments_of(root);
    let expr = Expr::of(root, &used.iter().map(|k| leaves[*k]).collect::<SmallVec<[_; 3]>>());
    let respelt: SmallVec<[Value; 3]> = used.iter().map(|k| distinct[*k]).collect();
    if expr == row.expr && *respelt == *args {
        return Ok(None);
    }
    replaced(rebuild.add(Map { expr, shape: row.shape.clone() }, &respelt)?)
}

/// Operands in the order of values, then computed terms as they are, then constants.
fn rank(term: Term<'_>) -> (u8, u32) {
    match term.node() {
        ExprNode::Arg(k) => (0, k),
        ExprNode::Const(_) => (2, 0),
        _ => (1, 0),
    }
}

/// Whether a term is computed from coordinates and sizes alone.
fn is_formula(term: Term<'_>) -> bool {
    term.as_const().is_none() && arguments_of(term).is_empty()
}

/// The arguments that a term needs, in the order in which a walk from the left meets them.
fn arguments_of(root: Term<'_>) -> Vec<usize> {
    let mut found = Vec::new();
    let mut seen = rustc_hash::FxHashSet::default();
    let mut todo = vec![root];
    while let Some(term) = todo.pop() {
        if !seen.insert(term.place()) {
            continue;
        }
        if let ExprNode::Arg(k) = term.node() {
            found.push(k as usize);
        }
        todo.extend(term.operands().into_iter().rev());
    }
    found
}

#[cfg(test)]
mod tests {
    use super::super::testing::{check, count};
    use super::*;
    use crate::graph::Builder;
    use crate::passes::{Context, run_passes};
    use crate::tensor::Shape;

    #[test]
    fn truths_settle_in_one_order() {
        let b = Builder::new("mask");
        let x = b.input("x", DType::Bool, Shape::new([5usize, 5]));
        fn below(scope: &Scope) -> Term<'_> {
            Term::call(Scalar::Le, &[scope.coord(1), scope.coord(0)])
        }
        let before = Expr::build(&[DType::Bool], |scope, t| Term::call(Scalar::And, &[below(scope), t[0]]));
        let behind = Expr::build(&[DType::Bool], |scope, t| Term::call(Scalar::And, &[t[0], below(scope)]));
        b.output("a", b.map(&before, &[x]));
        b.output("b", b.map(&behind, &[x]));
        let mut changes = Vec::new();
        let mut observe = |step: &super::super::Step<'_>| {
            if step.changed {
                changes.push((step.pass, step.round));
            }
        };
        let after = run_passes(b.finish().unwrap(), &Context::default(), &mut observe).unwrap();
        assert_eq!(after.outputs()[0].value, after.outputs()[1].value);
        assert!(changes.iter().all(|(_, round)| *round < 2), "{changes:?}");
    }

    #[test]
    fn sums_in_another_order_are_shared() {
        let b = Builder::new("order");
        let x = b.input("x", DType::F32, Shape::new([3usize]));
        let y = b.input("y", DType::F32, Shape::new([3usize]));
        b.output("a", (x + y).exp());
        b.output("b", (y + x).exp());
        b.output("c", y - x);
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!(count(&after, "map"), 3);
        assert_eq!(after.outputs()[0].value, after.outputs()[1].value);
    }

    #[test]
    fn operands_are_named_once_and_not_in_vain() {
        let b = Builder::new("square");
        let x = b.input("x", DType::F32, Shape::new([3usize]));
        let y = b.input("y", DType::F32, Shape::new([3usize]));
        let expr = Expr::build(&[DType::F32; 3], |_, t| t[2] - t[1].apply(Scalar::Exp) * t[2]);
        b.output("z", b.map(&expr, &[y, x, x]));
        let after = check(&PASS, b.finish().unwrap());
        assert_eq!(after.node_of(after.outputs()[0].value).args(), &after.inputs()[..1]);
    }
}
