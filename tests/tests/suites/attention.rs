//! Attention in all its variety, planned and streamed.
//!
//! Each property is tried on 64 graphs. On many more: `PROPTEST_CASES=10000 cargo test --release -p fuseline-tests --test suites attention::`.

use fuseline::compare::{Agreement, Meaning};
use fuseline::compile::PlannedProgram;
use fuseline::device::DeviceSpec;
use fuseline::fuse::Plan;
use fuseline::graph::Graph;
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

/// Attention of the pixels of a picture, whose rows and columns are one axis to both products and two to everything around.
#[test]
fn attention_over_joined_axes_is_one_kernel() {
    let text = "graph pixels(q: f32[b, 16, 12, 10], k: f32[b, 16, 12, 10], v: f32[b, 16, 12, 10]) {
        %3 = view q[i0, i2, i1 // 10, i1 % 10] : f32[b, 120, 16]
        %4 = view k[i0, i1, i2 // 10, i2 % 10] : f32[b, 16, 120]
        %5 = contract(%3, %4) \"aik,akj->aij\" acc=f32 : f32[b, 120, 120]
        %6 = reduce.max %5 axes=[2] : f32[b, 120]
        %7 = view %6[i0, i1] : f32[b, 120, 120]
        %8 = map(%5, %7) exp(a - b) : f32[b, 120, 120]
        %9 = reduce.sum %8 axes=[2] : f32[b, 120]
        %10 = view %9[i0, i1] : f32[b, 120, 120]
        %11 = map(%8, %10) a / b : f32[b, 120, 120]
        %12 = view v[i0, i2, i1 // 10, i1 % 10] : f32[b, 120, 16]
        %13 = contract(%11, %12) \"aij,ajd->aid\" acc=f32 : f32[b, 120, 16]
        %14 = view %13[i0, 10*i2 + i3, i1] : f32[b, 16, 12, 10]
        return y = %14
    }";
    let graph = Graph::parse(text).unwrap();
    for options in choices("h200", Numerics::Default, &[]).into_iter().chain(choices("cpu", Numerics::Default, &[])) {
        if options.fuel.is_none() {
            let planned = planned(&graph, &options).unwrap();
            let names: Vec<&str> = planned.run.kernels.iter().map(|k| k.kernel.schedule.name()).collect();
            assert_eq!(names, ["attention"], "{}", show(&planned));
        }
    }
}

/// The schedules of the kernels that a graph becomes by cost.
fn schedules(text: &str, device: &str) -> Vec<&'static str> {
    schedules_of(&by_cost(text, device).run)
}

fn by_cost(text: &str, device: &str) -> PlannedProgram {
    let graph = Graph::parse(text).unwrap();
    let options = choices(device, Numerics::Default, &[]).into_iter().find(|options| options.fuel.is_none()).unwrap();
    planned(&graph, &options).unwrap()
}

fn schedules_of(plan: &Plan) -> Vec<&'static str> {
    plan.kernels.iter().map(|kernel| kernel.kernel.schedule.name()).collect()
}

/// Keys that are weighed each on its own, or by a sum alone: the scores are stored no more than those of a softmax.
#[test]
fn attention_without_a_maximum_is_one_kernel() {
    let parts = |between: &str| {
        format!(
            "graph heads(q: f32[8, 512, 64], k: f32[8, 512, 64], v: f32[8, 512, 64]) {{
            %3 = contract(q, k) \"bik,bjk->bij\" acc=f32 : f32[8, 512, 512]
            {between}
            %13 = contract(%11, v) \"bij,bjd->bid\" acc=f32 : f32[8, 512, 64]
            return y = %13
        }}"
        )
    };
    let each = parts("%11 = map(%3) sigmoid(a * 0.125) : f32[8, 512, 512]");
    let summed = parts(
        "%8 = map(%3) exp(a * 0.125) : f32[8, 512, 512]
        %9 = reduce.sum %8 axes=[2] : f32[8, 512]
        %10 = view %9[i0, i1] : f32[8, 512, 512]
        %11 = map(%8, %10) a / b : f32[8, 512, 512]",
    );
    for device in ["cpu", "avx2", "h200"] {
        assert_eq!(schedules(&each, device), ["attention"], "{device}");
        assert_eq!(schedules(&summed, device), ["attention"], "{device}");
    }
}

/// Two layers of a perceptron are two products, each with weights that are packed once.
#[test]
fn a_perceptron_is_no_attention() {
    let text = "graph perceptron(x: f32[512, 64], u: f32[64, 256], w: f32[256, 64]) {
        %3 = contract(x, u) \"ik,kj->ij\" acc=f32 : f32[512, 256]
        %4 = map(%3) max(a, 0.0) : f32[512, 256]
        %5 = contract(%4, w) \"ij,jd->id\" acc=f32 : f32[512, 64]
        return y = %5
    }";
    for device in ["cpu", "h200"] {
        assert_eq!(schedules(text, device), ["contract", "contract"], "{device}");
    }
}

/// Queries times what keys and values make together: a small matrix, which is stored sooner than made with all loops turned round.
#[test]
fn linear_attention_is_two_products() {
    let text = "graph linear(q: f32[8, 1024, 64], k: f32[8, 1024, 64], v: f32[8, 1024, 64]) {
        %3 = contract(k, v) \"bnd,bne->bde\" acc=f32 : f32[8, 64, 64]
        %4 = contract(q, %3) \"bid,bde->bie\" acc=f32 : f32[8, 1024, 64]
        return y = %4
    }";
    for device in ["cpu", "avx2", "h200"] {
        assert_eq!(schedules(text, device), ["contract", "contract"], "{device}");
    }
}

/// Attention of `q`, `k` and `v`: a value `%10`.
const ATTENTION: &str = "
    %3 = contract(q, k) \"aik,ajk->aij\" acc=f32 : f32[b, 512, 512]
    %4 = reduce.max %3 axes=[2] : f32[b, 512]
    %5 = view %4[i0, i1] : f32[b, 512, 512]
    %6 = map(%3, %5) exp(a - b) : f32[b, 512, 512]
    %7 = reduce.sum %6 axes=[2] : f32[b, 512]
    %8 = view %7[i0, i1] : f32[b, 512, 512]
    %9 = map(%6, %8) a / b : f32[b, 512, 512]
    %10 = contract(%9, v) \"aij,ajd->aid\" acc=f32 : f32[b, 512, 64]";

const INPUTS: &str = "q: f32[b, 512, 64], k: f32[b, 512, 64], v: f32[b, 512, 64]";

/// Also with what is read in front of the attention that it is combined with: which axes are summed does not hang on that.
#[test]
fn attention_and_what_it_is_made_of_are_one_kernel() {
    let with_queries = [("q, %10", "a + b"), ("%10, q", "a + b"), ("q, %10", "a - b"), ("q, %10", "max(a, b)")];
    for (args, formula) in with_queries.into_iter().chain([("k, %10", "a + b"), ("v, %10", "a * b")]) {
        for device in DeviceSpec::names() {
            let behind = format!("%11 = map({args}) {formula} : f32[b, 512, 64] return y = %11");
            let text = format!("graph gated({INPUTS}) {{ {ATTENTION} {behind} }}");
            assert_eq!(schedules(&text, device), ["attention"], "map({args}) {formula} on {device}");
        }
    }
}

/// Regions are rewritten and planned as what is around them.
#[test]
fn attention_in_branches_is_one_kernel() {
    let branch = |name: &str| format!("graph {name}({INPUTS}) {{ {ATTENTION} return y = %10 }}");
    let (then, otherwise) = (branch("then"), branch("else").replace("exp(a - b)", "exp((a - b) * 0.5)"));
    for device in DeviceSpec::names() {
        let text = format!(
            "graph branches(c: bool[], {INPUTS}) {{
                %4 = if c capture=(q, k, v) : f32[b, 512, 64] then {then} else {otherwise}
                return y = %4
            }}"
        );
        let planned = by_cost(&text, device);
        let regions = &planned.run.kernels[0].regions;
        assert_eq!(regions.iter().map(schedules_of).collect::<Vec<_>>(), [["attention"], ["attention"]], "on {device}");
    }
}
