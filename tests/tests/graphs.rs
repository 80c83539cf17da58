//! Properties of random graphs.

use std::collections::BTreeSet;

use fuseline::gallery;
use fuseline::graph::Graph;
use fuseline::ops::Prim;
use fuseline::reference::{Options, evaluate};
use fuseline::tensor::DType;
use fuseline_tests::generate::cases;
use fuseline_tests::round_trip;
use proptest::prelude::*;
use proptest::strategy::ValueTree;
use proptest::test_runner::TestRunner;

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_graph_means_one_thing(case in cases()) {
        let first = evaluate(&case.graph, &case.inputs, &Options::default()).unwrap();
        let second = evaluate(&case.graph, &case.inputs, &Options::default()).unwrap();
        prop_assert_eq!(first, second);
    }

    #[test]
    fn a_graph_keeps_its_invariants_and_survives_its_text(case in cases()) {
        round_trip::check(&case.graph).map_err(|e| TestCaseError::fail(e.to_string()))?;
    }
}

#[test]
fn so_do_the_graphs_of_the_gallery() {
    for entry in gallery::all() {
        for dtype in [DType::F32, DType::F16] {
            let graph = entry.graph(dtype).unwrap();
            round_trip::check(&graph).unwrap_or_else(|e| panic!("{}: {e}", entry.name));
        }
    }
}

#[test]
fn random_graphs_have_every_primitive() {
    fn collect(graph: &Graph, names: &mut BTreeSet<&'static str>) {
        for node in graph.nodes() {
            names.insert(node.prim().name());
            match node.prim() {
                Prim::If(row) => [&row.then, &row.otherwise].iter().for_each(|region| collect(region, names)),
                Prim::Loop(row) => collect(&row.body, names),
                _ => {}
            }
        }
    }
    let mut runner = TestRunner::deterministic();
    let mut names = BTreeSet::new();
    for _ in 0..300 {
        collect(&cases().new_tree(&mut runner).expect("no case is refused").current().graph, &mut names);
    }
    let all: BTreeSet<&str> = Prim::TABLE.iter().map(|(name, ..)| *name).collect();
    assert_eq!(names, all);
}
