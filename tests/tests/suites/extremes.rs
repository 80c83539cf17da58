//! Graphs that are large in one direction: planning them takes about as much more as they have nodes more, and the plans are right.

use std::sync::Arc;

use fuseline::compare::Agreement;
use fuseline::compile::compile;
use fuseline::device::DeviceSpec;
use fuseline::fuse::{Plan, PlanOptions, Reason, plan};
use fuseline::graph::Graph;
use fuseline::passes::{Context, Numerics};
use fuseline::reference::{self, Reading, evaluate};
use fuseline::tensor::{DType, Literal};
use fuseline::tile::interp;
use fuseline_tests::extremes::EXTREMES;
use fuseline_tests::generate::Inputs;
use fuseline_tests::planned::{agrees, choices, planned};

fn planned_with(effort: u64, graph: Graph) -> Plan {
    let program = compile(graph, &Context::default()).unwrap();
    let options = PlanOptions { effort, ..PlanOptions::on(DeviceSpec::find("h200").unwrap()) };
    let plan = plan(program.run(), &options).unwrap();
    plan.check(program.run()).unwrap();
    plan
}

#[test]
fn twice_as_many_nodes_take_about_twice_as_much() {
    for (name, extreme) in EXTREMES {
        let [once, twice] = [250, 500].map(|count| planned_with(20_000, extreme(count)).effort);
        assert!(twice < 3 * once, "{name}: {once} becomes {twice}");
    }
}

#[test]
fn what_is_not_looked_at_any_more_says_so() {
    let (_, skips) = EXTREMES.iter().find(|(name, _)| *name == "skips").unwrap();
    let cut = |plan: &Plan| plan.decisions.iter().filter(|d| d.reason == Some(Reason::Effort)).count();
    let [none, all] = [0, u64::MAX].map(|effort| planned_with(effort, skips(150)));
    assert!(cut(&none) > 0 && cut(&all) == 0);
    assert!(none.effort < all.effort && none.kernels.len() > all.kernels.len());
}

#[test]
fn plans_of_very_many_neighbours_are_right() {
    let values: Vec<f64> = (0..3 * 64).map(|k| (k * 7 % 29) as f64 * 0.1 - 1.4).collect();
    let literal = Literal::from_f64s(DType::F32, [3, 64], &values).unwrap();
    let strict = reference::Options { reading: Reading::Rounded, ..reference::Options::default() };
    let run = interp::Options { reading: Reading::Rounded, ..interp::Options::default() };
    for (name, extreme) in EXTREMES {
        let graph = extreme(120);
        let given = graph.inputs().iter().map(|v| (Arc::clone(graph.input_name(*v)), literal.clone()));
        let inputs: Inputs = given.collect();
        let expected = evaluate(&graph, &inputs, &strict).unwrap();
        for options in choices("cpu", Numerics::Strict, &[1, 2]) {
            let planned = planned(&graph, &options).unwrap();
            agrees(&planned, &inputs, &run, &expected, |_| Agreement::Exact)
                .unwrap_or_else(|error| panic!("{name}, {:?}: {error}", options.chooser));
        }
    }
}
