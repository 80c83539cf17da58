//! A rule, a rewrite or a kernel that is made wrong is found among all decisions.

use std::sync::Arc;

use fuseline::bisect::{Found, Guilty, Ladder, taken};
use fuseline::compare::Meaning;
use fuseline::compile::{PlannedProgram, rewrite_id, simplified};
use fuseline::device::DeviceSpec;
use fuseline::fuse::{PlanOptions, Verdict};
use fuseline::gallery;
use fuseline::graph::Graph;
use fuseline::interpret;
use fuseline::passes::Numerics;
use fuseline::reference::Limits;
use fuseline::tensor::{DType, Literal, Seeded};
use fuseline::tile::{self, Kernel, interp};
use rustc_hash::FxHashMap;

fn options(numerics: Numerics) -> PlanOptions {
    PlanOptions { numerics, ..PlanOptions::on(DeviceSpec::find("cpu").unwrap()) }
}

fn graph(name: &str, options: &PlanOptions) -> Graph {
    let graph = gallery::find(name).unwrap().graph(DType::F32).unwrap();
    simplified(graph, options, &mut |_| {}).unwrap()
}

/// Inputs for a graph whose free sizes are all small.
fn inputs(graph: &Graph) -> FxHashMap<Arc<str>, Literal> {
    let draw = |(k, value): (usize, &fuseline::graph::Value)| {
        let ty = graph.ty(*value);
        let sizes: Vec<usize> = ty.shape.dims().iter().map(|dim| dim.as_int().unwrap_or(6) as usize).collect();
        let seeded = Seeded { seed: k as u64, low: -1.0, high: 1.0 };
        (graph.input_name(*value).clone(), Literal::seeded(ty.dtype, &sizes[..], seeded).unwrap())
    };
    graph.inputs().iter().enumerate().map(draw).collect()
}

/// The kernel with something else in place of what it stores first: neither shifted nor scaled, which a norm behind it would hide.
fn wrong(kernel: &Kernel) -> Kernel {
    let text = kernel.to_string();
    let store = text.lines().find(|line| line.trim_start().starts_with("store ")).unwrap();
    let (place, value) = store.split_once(" = ").unwrap();
    let other = format!("  %wrong = map({value}) a * a + 1.0\n{place} = %wrong");
    tile::parse(&text.replacen(store, &other, 1)).unwrap()
}

/// Whether a plan comes to something else than the graph means, on the interpreter of kernels.
fn differs(planned: &PlannedProgram, inputs: &FxHashMap<Arc<str>, Literal>, meaning: &Meaning) -> bool {
    let inputs = inputs.iter().map(|(name, x)| (name.clone(), x.clone())).collect();
    let outputs = interpret::load(planned, &interp::Options::default()).unwrap().run(&inputs).unwrap();
    meaning.check(&outputs).is_err()
}

#[test]
fn a_kernel_that_is_wrong_where_two_nodes_meet_is_found() {
    for name in ["transformer_sublayer", "feed_forward", "add_layernorm"] {
        let options = options(Numerics::Strict);
        let graph = graph(name, &options);
        let inputs = inputs(&graph);
        let meaning = Meaning::of(&graph, &inputs, Limits::default()).unwrap();
        let ladder = Ladder { graph: &graph, options: &options };
        let (top, count) = ladder.top().unwrap();
        assert!(count > 3, "{name}");
        let fusions: Vec<_> = top.run.decisions.iter().filter(|d| d.verdict == Verdict::Taken).collect();
        for decision in fusions.iter().step_by(2) {
            let Some((from, to)) = decision.edges.first().copied() else { continue };
            let mut judged = 0;
            let found = ladder.first_bad(&mut |planned| {
                judged += 1;
                let mut planned = planned.clone();
                for kernel in &mut planned.run.kernels {
                    if kernel.members.contains(&from) && kernel.members.contains(&to) {
                        kernel.kernel = Arc::new(wrong(&kernel.kernel));
                    }
                }
                Ok(differs(&planned, &inputs, &meaning))
            });
            let Found::Guilty(guilty) = found.unwrap() else { panic!("{name}: {decision:?}") };
            assert_eq!(guilty.decision, Some(decision.id), "{name}");
            let Guilty { number, good, bad, .. } = *guilty;
            assert_eq!((taken(&good).len(), taken(&bad).len()), (number - 1, number), "{name}");
            assert!(judged <= 2 + count.ilog2() as usize + 1, "{name}: {judged} plans of {count}");
        }
    }
}

#[test]
fn a_rewrite_that_is_wrong_is_found() {
    let options = options(Numerics::Default);
    let graph = graph("attention", &options);
    let ladder = Ladder { graph: &graph, options: &options };
    let (top, _) = ladder.top().unwrap();
    let applied: Vec<_> = top.rewrites.iter().filter(|a| a.refused.is_none()).map(rewrite_id).collect();
    assert!(!applied.is_empty());
    for id in applied {
        let is_applied =
            |planned: &PlannedProgram| planned.rewrites.iter().any(|a| a.refused.is_none() && rewrite_id(a) == id);
        let found = ladder.first_bad(&mut |planned| Ok(is_applied(planned))).unwrap();
        let Found::Guilty(guilty) = found else { panic!("{id}") };
        assert_eq!(guilty.decision, Some(id));
    }
}

#[test]
fn the_step_that_costs_most_is_found() {
    let options = options(Numerics::Default);
    let graph = graph("masked_attention", &options);
    let ladder = Ladder { graph: &graph, options: &options };
    let (top, count) = ladder.top().unwrap();
    for slow in 1..=count {
        // Everything saves a little, one decision costs much.
        let time = |planned: &PlannedProgram| {
            let taken = taken(planned).len();
            100.0 - taken as f64 + if taken >= slow { 30.0 } else { 0.0 }
        };
        let found = ladder.steepest(0.05, &mut |planned| Ok(time(planned))).unwrap();
        let Found::Guilty(guilty) = found else { panic!("{slow}") };
        assert_eq!((guilty.number, guilty.decision), (slow, Some(taken(&top)[slow - 1])));
    }
    let found = ladder.steepest(0.05, &mut |planned| Ok(1000.0 - taken(planned).len() as f64)).unwrap();
    assert!(matches!(found, Found::Nothing));
}

#[test]
fn what_no_decision_changes_is_said() {
    let options = options(Numerics::Default);
    let graph = graph("softmax", &options);
    let ladder = Ladder { graph: &graph, options: &options };
    assert!(matches!(ladder.first_bad(&mut |_| Ok(false)).unwrap(), Found::Nothing));
    assert!(matches!(ladder.first_bad(&mut |_| Ok(true)).unwrap(), Found::Before));
}
