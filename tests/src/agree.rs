//! Whether a graph means what another one means.

use fuseline::compare::{Agreement, compare};
use fuseline::graph::Graph;
use fuseline::ops::prim::Monoid;
use fuseline::ops::{ExprNode, Prim};
use fuseline::reference::{Limits, Options, Reading, evaluate};
use fuseline::tensor::{DType, Env};

use crate::generate::Case;

/// Panics unless a graph gives what the graph of a case gives, on its inputs.
pub fn same_meaning(case: &Case, after: &Graph, reading: Reading, agreement: impl Fn(usize) -> Agreement) {
    let options = Options { reading, limits: Limits::default() };
    let expected = evaluate(&case.graph, &case.inputs, &options).unwrap();
    let actual = evaluate(after, &case.inputs, &options).unwrap_or_else(|e| panic!("{e}\nin {after:?}"));
    for (k, (e, a)) in expected.iter().zip(&actual).enumerate() {
        if let Err(mismatch) = compare(e, a, &agreement(k)) {
            panic!("output {k}: {mismatch}\n{after:?}");
        }
    }
}

/// Whether outputs change little where values change little: no rounding, comparison or position stands between.
pub fn is_smooth(graph: &Graph) -> bool {
    let jumps = |node: &ExprNode| match node {
        ExprNode::Apply(op, _) => op.jumps(),
        ExprNode::Bits(_) => true,
        _ => false,
    };
    graph.nodes().iter().all(|node| match node.prim() {
        Prim::Map(row) => {
            let nodes = row.expr.nodes();
            let converts_with_a_jump = |node: &ExprNode, to: DType| match node {
                ExprNode::Cast(x) => {
                    nodes[*x as usize].1.is_float() && !to.is_float() || overflows(nodes[*x as usize].1, to)
                }
                _ => false,
            };
            !nodes.iter().any(|(node, dtype)| jumps(node) || converts_with_a_jump(node, *dtype))
        }
        Prim::Reduce(row) => {
            !matches!(row.monoid, Monoid::ArgMax | Monoid::ArgMin | Monoid::ArgMaxLast | Monoid::ArgMinLast)
        }
        Prim::Sort(_) | Prim::Host(_) | Prim::If(_) | Prim::Loop(_) => false,
        _ => true,
    })
}

/// Whether integers of one type may be infinite in another: without that rounding, which plans may leave out, they are not.
fn overflows(from: DType, to: DType) -> bool {
    from.int_range().zip(to.max_float()).is_some_and(|((low, high), most)| high as f64 > most || (low as f64) < -most)
}

/// The sizes that the inputs of a case bind.
pub fn sizes(case: &Case) -> Env {
    let mut env = Env::new();
    for input in case.graph.inputs() {
        let sizes = case.inputs[case.graph.input_name(*input)].sizes();
        for (dim, size) in case.graph.ty(*input).shape.dims().iter().zip(sizes) {
            if let Some(symbol) = dim.as_symbol() {
                env.bind(symbol.clone(), *size as i64);
            }
        }
    }
    env
}
