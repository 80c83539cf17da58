//! Passes keep the meaning of random graphs.

use fuseline::budget::Budget;
use fuseline::compare::{Agreement, Tolerance, compare};
use fuseline::compile::compile;
use fuseline::device::{Device, ReferenceDevice};
use fuseline::graph::Graph;
use fuseline::passes::{Context, Narrowing, Numerics, PASSES, Precision, run_passes};
use fuseline::reference::{Limits, Options, Reading, evaluate};
use fuseline_tests::agree::{is_smooth, same_meaning, sizes};
use fuseline_tests::drawn;
use fuseline_tests::generate::cases;
use proptest::prelude::*;

const STRICT: Context = Context {
    numerics: Numerics::Strict,
    precision: Precision::F32,
    narrowing: Narrowing::Factors,
    fold_bytes: 64 << 10,
    table_elements: 1 << 20,
    budget: Budget::UNLIMITED,
};

proptest! {
    #![proptest_config(drawn::cases(256))]

    #[test]
    fn every_pass_keeps_every_bit_and_is_done_after_one_run(case in cases()) {
        for pass in PASSES {
            let after = pass.apply(&case.graph, &STRICT).unwrap().unwrap_or_else(|| case.graph.clone());
            same_meaning(&case, &after, Reading::Rounded, |_| Agreement::Exact);
            let again = pass.apply(&after, &STRICT).unwrap();
            prop_assert_eq!(again, None, "{} is not idempotent", pass.name);
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
        let env = sizes(&case);
        same_meaning(&case, &after, Reading::Exact, |k| Agreement::Within(Tolerance::of_output(&case.graph, k, &env)));
    }
}

/// Two passes that each had their own order of a view and a conversion of sizes took turns for ever.
#[test]
fn conversions_of_viewed_sizes_settle() {
    let graph = Graph::parse(
        "graph sizes(x: f32[p]) { %1 = sizes [p, p] : i64[2] %2 = view %1[i1] : i64[1, 2] %3 = map(%2) i32(a) : i32[1, 2] \
         %4 = const 1 : i64[] %5 = const true : bool[] %6 = loop trips=%4 start=%5 carry=(%3) capture=(%3) : i32[1, 2] \
         body graph body(c0: i64[], c1: i32[1, 2], c2: i32[1, 2]) { %3 = const true : bool[] return go_on = %3, next = c2 } \
         return y = %6 }",
    );
    let mut rounds = 0;
    run_passes(graph.unwrap(), &STRICT, &mut |step| rounds = rounds.max(step.round)).unwrap();
    assert!(rounds < 8, "{rounds} rounds");
}
