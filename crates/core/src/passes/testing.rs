//! What the tests of passes share: a pass keeps the meaning of a graph and changes nothing when it runs again.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use super::{Context, Numerics, Pass};
use crate::compare::{Agreement, Tolerance, compare};
use crate::graph::Graph;
use crate::ops::Prim;
use crate::reference::{Limits, Options, Reading, evaluate};
use crate::tensor::{DType, Env, Literal};

/// Runs an exact pass under strict numerics and compares both graphs bit by bit, in both readings, on everyday and on
/// special numbers; returns the result.
pub(super) fn check(pass: &Pass, graph: Graph) -> Graph {
    let context = Context { numerics: Numerics::Strict, ..Context::default() };
    let after = run_twice(pass, &graph, &context);
    for special in [false, true] {
        for reading in [Reading::Rounded, Reading::Exact] {
            same_meaning(&graph, &after, special, reading, |_, _| Agreement::Exact);
        }
    }
    after
}

/// Runs a pass under default numerics and compares both graphs within the tolerance of the original one.
pub(super) fn check_real(pass: &Pass, graph: Graph) -> Graph {
    let after = run_twice(pass, &graph, &Context::default());
    let agreement = |env: &Env, output: usize| Agreement::Within(Tolerance::of_output(&graph, output, env));
    same_meaning(&graph, &after, false, Reading::Exact, agreement);
    after
}

fn run_twice(pass: &Pass, graph: &Graph, context: &Context) -> Graph {
    let after = applied(pass, graph, context);
    assert_eq!(pass.apply(&after, context).unwrap(), None, "{} is not idempotent", pass.name);
    after
}

/// The graph after a pass, changed or not.
pub(super) fn applied(pass: &Pass, graph: &Graph, context: &Context) -> Graph {
    pass.apply(graph, context).unwrap().unwrap_or_else(|| graph.clone())
}

fn same_meaning(
    before: &Graph,
    after: &Graph,
    special: bool,
    reading: Reading,
    agreement: impl Fn(&Env, usize) -> Agreement,
) {
    let (inputs, env) = made_up_inputs(before, special);
    let options = Options { reading, limits: Limits::default() };
    let expected = evaluate(before, &inputs, &options).unwrap();
    let actual = evaluate(after, &inputs, &options).unwrap();
    for (k, (e, a)) in expected.iter().zip(&actual).enumerate() {
        if let Err(mismatch) = compare(e, a, &agreement(&env, k)) {
            panic!("{reading:?} reading, output {k}: {mismatch}\n{before:?}\nbecame\n{after:?}");
        }
    }
}

/// How many nodes of a kind a graph has.
pub(super) fn count(graph: &Graph, name: &str) -> usize {
    graph.nodes().iter().filter(|n| n.prim().name() == name).count()
}

const SPECIAL: [f64; 9] = [0.0, -0.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e-42, -1.0, 1e38, f64::MIN_POSITIVE];

/// Values for every input: free symbols are 2, 3, 4 … in order of appearance, elements small and distinct or special.
pub(super) fn made_up_inputs(graph: &Graph, special: bool) -> (FxHashMap<Arc<str>, Literal>, Env) {
    let mut env = Env::new();
    let mut next = 2;
    let mut inputs = FxHashMap::default();
    for (n, value) in graph.inputs().iter().enumerate() {
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
            DType::Bool => f64::from(u8::from((k + n) % 3 == 1)),
            d if d.is_float() && special => SPECIAL[(k * (n + 1) + n) % SPECIAL.len()],
            d if d.is_float() => ((k * 7 + n * 5 + 3) % 19) as f64 * 0.37 - 2.5,
            _ => ((k * 7 + n + 3) % 5) as f64,
        };
        let values: Vec<f64> = (0..count).map(value).collect();
        inputs.insert(row.name.clone(), Literal::from_f64s(row.ty.dtype, sizes, &values).unwrap());
    }
    (inputs, env)
}
