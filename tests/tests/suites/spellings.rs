//! The corpus of spellings: rows of a class mean the same, and compile to programs that do.

use std::collections::BTreeSet;

use fuseline::compare::{Agreement, Tolerance, compare};
use fuseline::compile::compile;
use fuseline::device::{Device, ReferenceDevice};
use fuseline::graph::{Graph, verify};
use fuseline::passes::Context;
use fuseline::reference::{Options, evaluate};
use fuseline::tensor::Literal;
use fuseline_tests::round_trip;
use fuseline_tests::spellings::{Spelling, all, bindings, classes, inputs};

fn label(row: &Spelling) -> String {
    format!("{} / {} / {}", row.family, row.class, row.name)
}

fn graph(row: &Spelling) -> Graph {
    row.graph().unwrap_or_else(|e| panic!("{}: {e}", label(row)))
}

fn results(row: &Spelling, graph: &Graph) -> Vec<Literal> {
    evaluate(graph, &inputs(graph), &Options::default()).unwrap_or_else(|e| panic!("{}: {e}\n{graph}", label(row)))
}

/// What two graphs may differ by in an output: as much as either may err.
fn agreement(graphs: [&Graph; 2], output: usize) -> Agreement {
    let [a, b] = graphs.map(|g| Tolerance::of_output(g, output, &bindings()));
    Agreement::Within(if a.relative > b.relative { a } else { b })
}

#[test]
fn names_are_unique_and_every_family_has_enough_rows() {
    let labels: BTreeSet<String> = all().map(label).collect();
    assert_eq!(labels.len(), all().count());
    let least = [
        ("layer_norm", 6),
        ("rms_norm", 5),
        ("gelu_erf", 6),
        ("gelu_tanh", 3),
        ("silu", 3),
        ("swiglu", 3),
        ("softmax", 3),
        ("skip_layer_norm", 3),
        ("attention", 16),
        ("rope", 3),
    ];
    for (family, least) in least {
        assert!(all().filter(|row| row.family == family).count() >= least, "{family}");
    }
}

#[test]
fn every_row_verifies_and_keeps_its_text() {
    for row in all() {
        let graph = graph(row);
        verify(&graph).unwrap_or_else(|e| panic!("{}: {e}", label(row)));
        round_trip::check(&graph).unwrap_or_else(|e| panic!("{}: {e}", label(row)));
    }
}

#[test]
fn rows_of_a_class_agree() {
    for class in classes() {
        let first = graph(class[0]);
        let expected = results(class[0], &first);
        for row in &class[1..] {
            let graph = graph(row);
            let names = |g: &Graph| g.outputs().iter().map(|o| o.name.to_string()).collect::<Vec<_>>();
            assert_eq!(names(&first), names(&graph), "{}", label(row));
            for (k, (e, a)) in expected.iter().zip(&results(row, &graph)).enumerate() {
                if let Err(mismatch) = compare(e, a, &agreement([&first, &graph], k)) {
                    panic!("{} is not as {}: {mismatch}", label(row), class[0].name);
                }
            }
        }
    }
}

#[test]
fn compiled_rows_compute_what_they_mean() {
    for row in all() {
        let graph = graph(row);
        let program = compile(graph.clone(), &Context::default()).unwrap_or_else(|e| panic!("{}: {e}", label(row)));
        let loaded = ReferenceDevice { options: Options::default() }.load(&program).unwrap();
        let actual = loaded.run(&inputs(&graph).into_iter().collect()).unwrap();
        for (k, (e, a)) in results(row, &graph).iter().zip(&actual).enumerate() {
            if let Err(mismatch) = compare(e, a, &agreement([&graph, &graph], k)) {
                panic!("{} is not what it was: {mismatch}\n{graph}", label(row));
            }
        }
    }
}

#[test]
fn an_epsilon_outside_of_the_root_is_another_norm() {
    let of = |class: &str| {
        let row = all().find(|row| row.family == "layer_norm" && row.class == class).unwrap();
        results(row, &graph(row)).remove(0)
    };
    let (inside, outside) = (of("f32"), of("f32, epsilon outside of the root"));
    let near = Agreement::Within(Tolerance { relative: 1e-3, absolute: 0.0 });
    assert!(compare(&inside, &outside, &near).is_err());
}
