//! Properties of random graphs.

use std::collections::BTreeSet;

use fuseline::graph::Graph;
use fuseline::ops::Prim;
use fuseline::reference::{Options, evaluate};
use fuseline_tests::generate::cases;
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
    fn what_is_printed_parses_back(case in cases()) {
        let text = case.graph.to_string();
        let parsed = Graph::parse(&text).map_err(|e| TestCaseError::fail(format!("{e}\n{text}")))?;
        prop_assert_eq!(&parsed, &case.graph);
        prop_assert_eq!(parsed.to_string(), text);
        let with_origins = format!("{:#}", case.graph);
        prop_assert_eq!(format!("{:#}", Graph::parse(&with_origins).unwrap()), with_origins);
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
