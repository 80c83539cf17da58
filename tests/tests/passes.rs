//! Passes keep the meaning of random graphs.

use fuseline::compare::{Agreement, Tolerance, compare};
use fuseline::compile::compile;
use fuseline::device::{Device, ReferenceDevice};
use fuseline::graph::Graph;
use fuseline::ops::prim::Monoid;
use fuseline::ops::{ExprNode, Prim, Scalar, Signature};
use fuseline::passes::{Context, Numerics, PASSES, run_passes};
use fuseline::reference::{Limits, Options, Reading, evaluate};
use fuseline::tensor::Env;
use fuseline_tests::generate::{Case, cases};
use proptest::prelude::*;

const STRICT: Context = Context { numerics: Numerics::Strict, fold_bytes: 64 << 10, table_elements: 1 << 20 };

fn same_meaning(case: &Case, after: &Graph, reading: Reading, agreement: impl Fn(usize) -> Agreement) {
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
fn is_smooth(graph: &Graph) -> bool {
    let jumps = |node: &ExprNode| match node {
        ExprNode::Apply(op, _) => {
            let steps =
                [Scalar::Floor, Scalar::Ceil, Scalar::Round, Scalar::Trunc, Scalar::Sign, Scalar::Mod, Scalar::Rem];
            op.def().signature == Signature::Compare || steps.contains(op)
        }
        ExprNode::Bits(_) => true,
        _ => false,
    };
    graph.nodes().iter().all(|node| match node.prim() {
        Prim::Map(row) => {
            let nodes = row.expr.nodes();
            let to_int =
                |node: &ExprNode, to: bool| matches!(node, ExprNode::Cast(x) if nodes[*x as usize].1.is_float() && !to);
            !nodes.iter().any(|(node, dtype)| jumps(node) || to_int(node, dtype.is_float()))
        }
        Prim::Reduce(row) => {
            !matches!(row.monoid, Monoid::ArgMax | Monoid::ArgMin | Monoid::ArgMaxLast | Monoid::ArgMinLast)
        }
        Prim::Sort(_) | Prim::Host(_) | Prim::If(_) | Prim::Loop(_) => false,
        _ => true,
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_pass_keeps_every_bit_and_is_done_after_one_run(case in cases()) {
        for pass in PASSES {
            let after = (pass.run)(&case.graph, &STRICT).unwrap();
            same_meaning(&case, &after, Reading::Rounded, |_| Agreement::Exact);
            let again = (pass.run)(&after, &STRICT).unwrap();
            prop_assert_eq!(&again, &after, "{} is not idempotent", pass.name);
        }
    }

    #[test]
    fn all_passes_together_keep_every_bit_and_settle(case in cases()) {
        let mut rounds = 0;
        let after = run_passes(case.graph.clone(), &STRICT, &mut |step| rounds = rounds.max(step.round)).unwrap();
        same_meaning(&case, &after, Reading::Rounded, |_| Agreement::Exact);
        prop_assert!(rounds < 8, "{rounds} rounds for {after:?}");
        let again = run_passes(after.clone(), &STRICT, &mut |_| {}).unwrap();
        prop_assert_eq!(&again, &after);
    }

    #[test]
    fn a_compiled_program_computes_what_its_graph_means(case in cases()) {
        let options = Options { reading: Reading::Rounded, limits: Limits::default() };
        let program = compile(case.graph.clone(), &STRICT).unwrap();
        let loaded = ReferenceDevice { options }.load(&program).unwrap();
        let inputs = case.inputs.iter().map(|(name, literal)| (name.clone(), literal.clone())).collect();
        let expected = evaluate(&case.graph, &case.inputs, &options).unwrap();
        for (e, a) in expected.iter().zip(&loaded.run(&inputs).unwrap()) {
            prop_assert!(compare(e, a, &Agreement::Exact).is_ok());
        }
    }

    #[test]
    fn real_algebra_stays_within_the_tolerance(case in cases().prop_filter("smooth", |case| is_smooth(&case.graph))) {
        let after = run_passes(case.graph.clone(), &Context::default(), &mut |_| {}).unwrap();
        let mut env = Env::new();
        for input in case.graph.inputs() {
            let sizes = case.inputs[case.graph.input_name(*input)].sizes();
            for (dim, size) in case.graph.ty(*input).shape.dims().iter().zip(sizes) {
                if let Some(symbol) = dim.as_symbol() {
                    env.bind(symbol.clone(), *size as i64);
                }
            }
        }
        same_meaning(&case, &after, Reading::Exact, |k| Agreement::Within(Tolerance::of_output(&case.graph, k, &env)));
    }
}
