//! Graphs that are large in one direction: planning them takes about as much more as they have nodes more, and the plans are right.

use std::sync::Arc;

use fuseline::compare::Agreement;
use fuseline::compile::compile;
use fuseline::device::DeviceSpec;
use fuseline::fuse::{PlanOptions, plan};
use fuseline::passes::{Context, Numerics};
use fuseline::reference::{self, Reading, evaluate};
use fuseline::tensor::{DType, Literal};
use fuseline::tile::interp;
use fuseline_tests::extremes::{EXTREMES, Extreme};
use fuseline_tests::generate::Inputs;
use fuseline_tests::planned::{agrees, choices, planned};

fn effort(extreme: Extreme, count: usize) -> u64 {
    let program = compile(extreme(count), &Context::default()).unwrap();
    let plan = plan(program.run(), &PlanOptions::on(DeviceSpec::find("h200").unwrap())).unwrap();
    plan.check(program.run()).unwrap();
    plan.effort
}

#[test]
fn twice_as_many_nodes_take_about_twice_as_much() {
    for (name, extreme) in EXTREMES {
        let (once, twice) = (effort(*extreme, 1500), effort(*extreme, 3000));
        assert!(twice < 3 * once, "{name}: {once} becomes {twice}");
    }
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
