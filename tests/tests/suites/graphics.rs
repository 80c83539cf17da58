//! Random graphs as a GPU would run them, however they are planned: printed, made PTX by NVRTC, and run on the host, kernel by kernel.
//!
//! On five hundred: `PROPTEST_CASES=500 cargo test --release -p fuseline-tests --test suites graphics::`.

use std::sync::OnceLock;

use fuseline::compare::Meaning;
use fuseline::passes::Numerics;
use fuseline::reference::Limits;
use fuseline_cuda::nvrtc::Compiler;
use fuseline_ptx::Order;
use fuseline_tests::attentions::attentions;
use fuseline_tests::generate::{Case, cases};
use fuseline_tests::planned::{choices, planned, show};
use fuseline_tests::{agree, drawn, nvrtc, ptx};
use proptest::prelude::*;

fn compiler() -> &'static Compiler {
    static FOUND: OnceLock<Compiler> = OnceLock::new();
    FOUND.get_or_init(|| {
        let folder = nvrtc::folder().unwrap_or_else(|why| panic!("NVRTC (package nvidia-cuda-nvrtc, by pip): {why}"));
        Compiler::find(&[folder]).unwrap()
    })
}

/// Runs a graph in all ways to plan it; the outputs must be what it means.
fn holds(case: &Case, numerics: Numerics, seed: u64) {
    let Case { graph, inputs, .. } = case;
    let meaning = Meaning::of(graph, inputs, Limits::default()).unwrap();
    let about = agree::sizes(case);
    for options in choices("h200", numerics, &[seed]) {
        let planned = planned(graph, &options).unwrap_or_else(|e| panic!("{:?}: {e}", options.chooser));
        // What is left to the host is tested elsewhere.
        if !ptx::is_code(&planned) {
            continue;
        }
        let order = if seed.is_multiple_of(2) { Order::Forward } else { Order::Backward };
        let device = ptx::Device { compiler: compiler(), about: &about, order };
        let place = || format!("{:?}\n{}", options.chooser, show(&planned));
        let outputs = match device.run(&planned, inputs) {
            Ok(outputs) => outputs,
            // Sines of f64 call what reduces their arguments.
            Err(why) if why.contains("a function that is called is not known here") => continue,
            Err(why) => panic!("{why}\n{}", place()),
        };
        if let Err((k, mismatch)) = meaning.check(&outputs) {
            panic!("output {k}: {mismatch}\n{}", place());
        }
    }
}

proptest! {
    #![proptest_config(drawn::cases(8))]

    #[test]
    fn random_graphs_run_as_printed(case in cases(), seed: u64, strict: bool) {
        holds(&case, if strict { Numerics::Strict } else { Numerics::Default }, seed);
    }

    #[test]
    fn random_attentions_run_as_printed(case in attentions(), seed: u64) {
        holds(&case, Numerics::Default, seed);
    }
}
