//! Any legal plan is right: random graphs, planned by chance, by cost and not at all, run on the interpreter of kernels.
//!
//! Each property is tried on 64 graphs, the same ones every time. On ten thousand others:
//! `PROPTEST_CASES=10000 PROPTEST_RNG_SEED=7 cargo test --release -p fuseline-tests --test suites plans::`.

use fuseline::compare::{Agreement, Tolerance};
use fuseline::device::DeviceSpec;
use fuseline::passes::Numerics;
use fuseline::reference::{self, Reading, evaluate};
use fuseline::tile::interp::{self, Folds};
use fuseline_tests::agree::{is_smooth, sizes};
use fuseline_tests::drawn;
use fuseline_tests::generate::{Case, cases};
use fuseline_tests::planned::{agrees, choices, obeyed, planned};
use proptest::prelude::*;

fn devices() -> impl Strategy<Value = &'static str> {
    prop::sample::select(DeviceSpec::names().collect::<Vec<_>>())
}

fn numerics() -> impl Strategy<Value = Numerics> {
    prop::sample::select(vec![Numerics::Default, Numerics::Strict, Numerics::Fast])
}

/// Of how many elements pieces of loops are at most.
fn pieces() -> impl Strategy<Value = usize> {
    prop::sample::select(vec![interp::Options::default().piece, 3])
}

/// Every plan of a case gives what the reference gives.
fn check(
    case: &Case,
    device: &str,
    seeds: &[u64],
    numerics: Numerics,
    run: &interp::Options,
    agreement: impl Fn(usize) -> Agreement,
) {
    let options = reference::Options { reading: run.reading, limits: run.limits };
    let expected = evaluate(&case.graph, &case.inputs, &options).unwrap();
    for options in choices(device, numerics, seeds) {
        let planned = planned(&case.graph, &options).unwrap_or_else(|e| panic!("{:?}: {e}", options.chooser));
        let agreed = agrees(&planned, &case.inputs, run, &expected, &agreement);
        agreed.unwrap_or_else(|e| panic!("{:?}: {e}", options.chooser));
    }
}

proptest! {
    #![proptest_config(drawn::cases(64))]

    /// Without real algebra and with folds in one piece, every bit is the same.
    #[test]
    fn strict_plans_keep_every_bit(case in cases(), device in devices(), seeds: [u64; 2], piece in pieces()) {
        let run = interp::Options { reading: Reading::Rounded, piece, ..interp::Options::default() };
        check(&case, device, &seeds, Numerics::Strict, &run, |_| Agreement::Exact);
    }

    /// Real algebra, split folds and streamed attention stay within the tolerance.
    #[test]
    fn plans_stay_within_the_tolerance(
        case in cases().prop_filter("smooth", |case| is_smooth(&case.graph)),
        device in devices(),
        seeds: [u64; 2],
        piece in pieces(),
    ) {
        let env = sizes(&case);
        let run = interp::Options { folds: Folds::AsScheduled, piece, ..interp::Options::default() };
        let agreement = |k| Agreement::Within(Tolerance::of_output(&case.graph, k, &env));
        check(&case, device, &seeds, Numerics::Default, &run, agreement);
    }

    /// The same graph and options give the same plan.
    #[test]
    fn plans_are_the_same_twice(case in cases(), device in devices(), seed: u64) {
        for options in choices(device, Numerics::Default, &[seed]) {
            let [first, second] = [(), ()].map(|()| planned(&case.graph, &options).unwrap());
            prop_assert_eq!(format!("{first:?}"), format!("{second:?}"));
        }
    }

    /// Whatever was planned can be written down and is obeyed.
    #[test]
    fn written_plans_are_obeyed(case in cases(), device in devices(), numerics in numerics(), seeds: [u64; 2]) {
        for options in choices(device, numerics, &seeds) {
            let first = planned(&case.graph, &options).unwrap();
            obeyed(&case.graph, &first, &options).unwrap_or_else(|e| panic!("{:?}: {e}", options.chooser));
        }
    }
}
