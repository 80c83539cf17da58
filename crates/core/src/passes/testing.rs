//! What the tests of passes share: a pass keeps the meaning of a graph and changes nothing when it runs again.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Context, Numerics, Pass};
use crate::graph::Graph;
use crate::ops::Prim;
use crate::reference::{Limits, Options, Reading, evaluate};
use crate::tensor::{DType, Env, Literal};

/// Runs an exact pass under strict numerics, compares both graphs on made-up inputs bit by bit in the rounded reading,
/// and returns the result.
pub(super) fn check(pass: &Pass, graph: Graph) -> Graph {
    let context = Context { numerics: Numerics::Strict, ..Context::default() };
    let after = (pass.run)(&graph, &context).unwrap();
    assert_eq!((pass.run)(&after, &context).unwrap(), after, "{} is not idempotent", pass.name);
    let inputs = made_up_inputs(&graph);
    for reading in [Reading::Rounded, Reading::Exact] {
        let options = Options { reading, limits: Limits::default() };
        let (a, b) = (evaluate(&graph, &inputs, &options).unwrap(), evaluate(&after, &inputs, &options).unwrap());
        let same = |(a, b): (&Literal, &Literal)| a.ty() == b.ty() && a.bytes() == b.bytes();
        assert!(a.iter().zip(&b).all(same), "{reading:?} reading: {a:?} became {b:?} in {after:?}");
    }
    after
}

/// How many nodes of a kind a graph has.
pub(super) fn count(graph: &Graph, name: &str) -> usize {
    graph.nodes().iter().filter(|n| n.prim().name() == name).count()
}

/// Values for every input: free symbols are 2, 3, 4 … in order of appearance, elements small and distinct.
pub(super) fn made_up_inputs(graph: &Graph) -> FxHashMap<Arc<str>, Literal> {
    let mut env = Env::new();
    let mut next = 2;
    let mut inputs = FxHashMap::default();
    for value in graph.inputs() {
        let Prim::Input(row) = graph.node_of(*value).prim() else { unreachable!("an input is an input") };
        for dim in row.ty.shape.dims() {
            dim.for_each_symbol(&mut |s| {
                if env.get(s).is_none() {
                    env.bind(s.clone(), next);
                    next += 1;
                }
            });
        }
        let sizes = row.ty.shape.eval(&env).unwrap();
        let count: usize = sizes.iter().product();
        let value = |k: usize| match row.ty.dtype {
            DType::Bool => f64::from(u8::from(k % 3 == 1)),
            d if d.is_float() => ((k * 7 + 3) % 19) as f64 * 0.37 - 2.5,
            _ => ((k * 7 + 3) % 5) as f64,
        };
        let values: Vec<f64> = (0..count).map(value).collect();
        inputs.insert(row.name.clone(), Literal::from_f64s(row.ty.dtype, sizes, &values).unwrap());
    }
    inputs
}
