//! Plans on this processor: random graphs, attentions and the gallery, however they are planned, on every set of instructions
//! that it has, with one thread and with several.
//!
//! Each property is tried on a few graphs. On ten thousand:
//! `PROPTEST_CASES=10000 cargo test --release -p fuseline-tests --test processor`.

use std::sync::Arc;

use fuseline::compare::Meaning;
use fuseline::device::{DeviceSpec, Executable};
use fuseline::fuse::PlanOptions;
use fuseline::graph::Graph;
use fuseline::passes::Numerics;
use fuseline::reference::Limits;
use fuseline::tensor::Literal;
use fuseline_cpu::code::Isa;
use fuseline_cpu::run::CpuDevice;
use fuseline_tests::attentions::attentions;
use fuseline_tests::drawn;
use fuseline_tests::generate::{Inputs, cases};
use fuseline_tests::planned::{choices, planned, show};
use proptest::prelude::*;

/// The instruction sets that this processor has: one with wider vectors has the narrower ones too.
fn isas() -> Vec<Isa> {
    Isa::available().collect()
}

/// Runs a graph as it is planned.
fn run(graph: &Graph, inputs: &Inputs, options: &PlanOptions, isa: Isa, threads: usize) -> (Vec<Literal>, String) {
    let planned = planned(graph, options).unwrap_or_else(|e| panic!("{:?}: {e}", options.chooser));
    let device = CpuDevice::new(isa, threads, options.clone(), Limits::default()).unwrap();
    let session = device.load(&planned).unwrap_or_else(|e| panic!("{isa:?}: {e}\n{}", show(&planned)));
    let given = inputs.iter().map(|(name, literal)| (Arc::clone(name), literal.clone())).collect();
    let outputs = session.run(&given).unwrap_or_else(|e| panic!("{isa:?}: {e}\n{}", show(&planned)));
    (outputs, show(&planned))
}

/// Runs a graph in all these ways; the outputs must be what it means, with the same bits for any number of threads.
fn holds(graph: &Graph, inputs: &Inputs, ways: &[PlanOptions]) {
    let meaning = Meaning::of(graph, inputs, Limits::default()).unwrap();
    for options in ways {
        for isa in isas() {
            let (outputs, text) = run(graph, inputs, options, isa, 1);
            if let Err((k, mismatch)) = meaning.check(&outputs) {
                panic!("{isa:?} {:?} output {k}: {mismatch}\n{text}", options.chooser);
            }
            let (again, _) = run(graph, inputs, options, isa, 3);
            assert_eq!(bytes(&outputs), bytes(&again), "{isa:?} {:?}: threads differ\n{text}", options.chooser);
        }
    }
}

fn bytes(outputs: &[Literal]) -> Vec<Vec<u8>> {
    outputs.iter().map(|output| output.bytes().to_vec()).collect()
}

proptest! {
    #![proptest_config(drawn::cases(64))]

    #[test]
    fn random_graphs_run_as_planned(case in cases(), seed: u64, strict: bool) {
        let numerics = if strict { Numerics::Strict } else { Numerics::Default };
        holds(&case.graph, &case.inputs, &choices("cpu", numerics, &[seed]));
    }

}

proptest! {
    #![proptest_config(drawn::cases(16))]

    #[test]
    fn random_attentions_run_as_planned(case in attentions(), seed: u64) {
        holds(&case.graph, &case.inputs, &choices("cpu", Numerics::Default, &[seed]));
    }
}

#[test]
fn a_device_must_have_the_instructions() {
    let options = PlanOptions::on(DeviceSpec::find("cpu").unwrap());
    assert!(CpuDevice::new(Isa::Portable, 1, options, Limits::default()).is_ok());
}
