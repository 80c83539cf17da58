//! Attention in all its variety, planned and streamed.
//!
//! Each property is tried on 64 graphs. On many more: `PROPTEST_CASES=10000 cargo test --release -p fuseline-tests --test attention`.

use fuseline::compare::{Agreement, Meaning};
use fuseline::device::DeviceSpec;
use fuseline::passes::Numerics;
use fuseline::reference::{self, Limits, Reading, evaluate};
use fuseline::tile::interp::{self, Folds};
use fuseline_tests::attentions::attentions;
use fuseline_tests::drawn;
use fuseline_tests::planned::{agrees, choices, cut_small, planned, run, show};
use proptest::prelude::*;

fn devices() -> impl Strategy<Value = &'static str> {
    prop::sample::select(DeviceSpec::names().collect::<Vec<_>>())
}

proptest! {
    #![proptest_config(drawn::cases(64))]

    /// Streamed along pieces of two keys, attention gives what it means.
    #[test]
    fn attention_means_the_same_in_any_plan(case in attentions(), device in devices(), seed: u64, rounded: bool) {
        let meaning = Meaning::of(&case.graph, &case.inputs, Limits::default()).unwrap();
        let reading = if rounded { Reading::Rounded } else { Reading::Exact };
        let how = interp::Options { reading, folds: Folds::AsScheduled, ..interp::Options::default() };
        for options in choices(device, Numerics::Default, &[seed]) {
            let plan = planned(&case.graph, &options).unwrap_or_else(|e| panic!("{:?}: {e}", options.chooser));
            let plan = cut_small(plan);
            let outputs = run(&plan, &case.inputs, &how).unwrap_or_else(|e| panic!("{e}\n{}", show(&plan)));
            if let Err((k, why)) = meaning.check(&outputs) {
                panic!("{:?}: output {k}: {why}\n{}", options.chooser, show(&plan));
            }
        }
    }

    /// Without real algebra and with folds in one piece, every bit is the same.
    #[test]
    fn strict_attention_keeps_every_bit(case in attentions(), device in devices(), seed: u64) {
        let how = interp::Options { reading: Reading::Rounded, ..interp::Options::default() };
        let options = reference::Options { reading: Reading::Rounded, limits: Limits::default() };
        let expected = evaluate(&case.graph, &case.inputs, &options).unwrap();
        for options in choices(device, Numerics::Strict, &[seed]) {
            let plan = planned(&case.graph, &options).unwrap_or_else(|e| panic!("{:?}: {e}", options.chooser));
            let agreed = agrees(&plan, &case.inputs, &how, &expected, |_| Agreement::Exact);
            agreed.unwrap_or_else(|e| panic!("{:?}: {e}", options.chooser));
        }
    }
}
