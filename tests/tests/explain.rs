//! Plans in the user's language: what kernels are called, whatever the spelling, and that every edge has its decision.

use std::collections::BTreeSet;

use fuseline::compile::{PlannedProgram, plan_program};
use fuseline::device::DeviceSpec;
use fuseline::explain::Explanation;
use fuseline::fuse::{PlanOptions, edges};
use fuseline::graph::Graph;
use fuseline::tensor::{DType, Symbol};
use fuseline_tests::spellings::{Spelling, all};

fn explained(graph: &Graph, target: &str, sizes: &[(&str, i64)]) -> (PlannedProgram, Explanation) {
    let mut options = PlanOptions::on(DeviceSpec::find(target).unwrap());
    for (name, size) in sizes {
        options.hints.env.bind(Symbol::name(name), *size);
    }
    let planned = plan_program(graph.clone(), &options, &mut |_| {}).unwrap_or_else(|e| panic!("{e}"));
    let explanation = Explanation::of(&planned, &options).unwrap_or_else(|e| panic!("{e}"));
    (planned, explanation)
}

fn patterns(graph: &Graph, sizes: &[(&str, i64)]) -> Vec<String> {
    explained(graph, "cpu", sizes).1.run.kernels.into_iter().map(|k| k.pattern).collect()
}

#[test]
fn every_spelling_has_the_name_of_what_it_is() {
    let names = [
        ("layer_norm", "LayerNorm"),
        ("rms_norm", "RMSNorm"),
        ("gelu_erf", "GELU"),
        ("gelu_tanh", "GELU (tanh)"),
        ("silu", "SiLU"),
        ("softmax", "Softmax"),
        ("skip_layer_norm", "LayerNorm"),
        ("attention", "Attention"),
    ];
    let mut wrong = Vec::new();
    for (family, name) in names {
        for row in all().filter(|row| row.family == family) {
            let Spelling { class, name: spelling, .. } = row;
            let found = patterns(&row.graph().unwrap(), &[]);
            // What some call a steeper SiLU is the cheap form of a GELU.
            let name = if *class == "f32, steeper" { "GELU (sigmoid)" } else { name };
            if !found.iter().any(|pattern| pattern.contains(name)) {
                wrong.push(format!("{family} / {class} / {spelling}: {found:?}"));
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_gallery_is_called_by_its_operators() {
    for (name, wanted) in [
        ("layernorm_gelu", &["LayerNorm + GELU"][..]),
        ("layernorm_relu", &["LayerNorm + ReLU"]),
        ("softmax", &["Softmax"]),
        ("attention", &["Attention"]),
        ("add_gelu", &["Add + GELU"]),
    ] {
        let entry = fuseline::gallery::find(name).unwrap();
        assert_eq!(patterns(&entry.graph(DType::F32).unwrap(), entry.sizes), wanted, "{name}");
    }
}

#[test]
fn every_edge_has_one_decision_and_every_decision_one_row() {
    for entry in fuseline::gallery::all() {
        let graph = entry.graph(DType::F32).unwrap();
        for target in ["cpu", "h200"] {
            let (planned, explanation) = explained(&graph, target, entry.sizes);
            let ids: BTreeSet<_> = explanation.decisions.iter().map(|row| row.id).collect();
            assert_eq!(ids.len(), explanation.decisions.len(), "{}: an id twice", entry.name);
            let parts = [(planned.program.run(), &explanation.run), (planned.program.prepare(), &explanation.prepare)];
            for (graph, part) in parts {
                let wanted = edges(graph);
                let found: Vec<_> = part.edges.iter().map(|e| (e.producer, e.consumer)).collect();
                assert_eq!(found, wanted, "{} on {target}", entry.name);
                assert!(part.edges.iter().all(|e| ids.contains(&e.decision)), "{} on {target}", entry.name);
            }
            let us = |row: &fuseline::explain::DecisionRow| row.saved_us.abs();
            assert!(explanation.decisions.windows(2).all(|pair| us(&pair[0]) >= us(&pair[1])));
        }
    }
}
