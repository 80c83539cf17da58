//! Whole plans, run kernel by kernel on the interpreter: by cost for every device, by chance, with real algebra and without.

use std::fmt::Display;

use fuseline::compare::{Agreement, Meaning, compare};
use fuseline::device::DeviceSpec;
use fuseline::fuse::{Chooser, PlanOptions};
use fuseline::gallery::{self, Entry};
use fuseline::graph::Graph;
use fuseline::passes::Numerics;
use fuseline::reference::{self, Limits, Reading, evaluate};
use fuseline::tensor::{DType, Env, Literal, Symbol};
use fuseline::tile::interp::{self, Folds};
use fuseline_tests::generate::Inputs;
use fuseline_tests::planned::{cut_small, planned, run, show};
use fuseline_tests::spellings;

/// A graph with inputs, and what must come out.
struct Subject {
    name: String,
    graph: Graph,
    inputs: Inputs,
    meaning: Meaning,
}

impl Subject {
    fn new(name: impl Display, graph: Graph, inputs: Inputs) -> Subject {
        let meaning = Meaning::of(&graph, &inputs, Limits::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        Subject { name: name.to_string(), graph, inputs, meaning }
    }

    /// Plans the graph and runs the plan, folds in small parts as they are scheduled; the outputs must be what the graph means.
    fn holds(&self, options: &PlanOptions, reading: Reading) {
        let what = format!("{} {:?} {reading:?} on {}", self.name, options.chooser, options.spec.name);
        let plan = cut_small(planned(&self.graph, options).unwrap_or_else(|e| panic!("{what}: {e}")));
        let how = interp::Options { reading, folds: Folds::AsScheduled, ..interp::Options::default() };
        let outputs = run(&plan, &self.inputs, &how).unwrap_or_else(|e| panic!("{what}: {e}\n{}", show(&plan)));
        if let Err((k, mismatch)) = self.meaning.check(&outputs) {
            panic!("{what}: output {k}: {mismatch}\n{}", show(&plan));
        }
    }

    /// Plans the graph without real algebra: every bit is the same.
    fn holds_strictly(&self, options: &PlanOptions) {
        let options = PlanOptions { numerics: Numerics::Strict, ..options.clone() };
        let what = format!("{} {:?} strictly on {}", self.name, options.chooser, options.spec.name);
        let reading = reference::Options { reading: Reading::Rounded, ..reference::Options::default() };
        let expected = evaluate(&self.graph, &self.inputs, &reading).unwrap_or_else(|e| panic!("{what}: {e}"));
        let plan = planned(&self.graph, &options).unwrap_or_else(|e| panic!("{what}: {e}"));
        let how = interp::Options { reading: Reading::Rounded, ..interp::Options::default() };
        let outputs = run(&plan, &self.inputs, &how).unwrap_or_else(|e| panic!("{what}: {e}\n{}", show(&plan)));
        for (k, (expected, actual)) in expected.iter().zip(&outputs).enumerate() {
            if let Err(mismatch) = compare(expected, actual, &Agreement::Exact) {
                panic!("{what}: output {k}: {mismatch}\n{}", show(&plan));
            }
        }
    }
}

fn on(device: &str, sizes: &Env) -> PlanOptions {
    let mut options = PlanOptions::on(DeviceSpec::find(device).unwrap());
    options.hints.env = sizes.clone();
    options
}

fn at_random(seed: u64, usual: &PlanOptions) -> PlanOptions {
    PlanOptions { chooser: Chooser::AtRandom(seed), ..usual.clone() }
}

/// Numbers that look random, different for every input, exact in every float type.
fn inputs(graph: &Graph, env: &Env, positive: &[&str]) -> Inputs {
    let mut state = 12345u64;
    let mut next = || {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (state >> 33) as i64 % 65 - 32
    };
    let input = |value: &fuseline::graph::Value| {
        let (name, ty) = (graph.input_name(*value), graph.ty(*value));
        let sizes = ty.shape.eval(env).unwrap();
        let values = (0..sizes.iter().product()).map(|_| match ty.dtype {
            DType::Bool => (next() > 0) as i64 as f64,
            DType::I8 => next() as f64 * 3.0,
            _ if positive.contains(&name.as_ref()) => (next().abs() + 1) as f64 / 16.0,
            _ => next() as f64 / 16.0,
        });
        let values: Vec<f64> = values.collect();
        (name.clone(), Literal::from_f64s(ty.dtype, sizes, &values).unwrap())
    };
    graph.inputs().iter().map(input).collect()
}

/// The sizes of an entry, one after the other from a list.
fn sizes(entry: &Entry, list: [i64; 5]) -> Env {
    entry.sizes.iter().zip(list).map(|((name, _), size)| (Symbol::name(name), size)).collect()
}

fn usual_sizes(entry: &Entry) -> Env {
    entry.sizes.iter().map(|(name, size)| (Symbol::name(name), *size)).collect()
}

fn subject(entry: &Entry, dtype: DType, env: &Env) -> Subject {
    let graph = entry.graph(dtype).unwrap();
    let inputs = inputs(&graph, env, entry.positive);
    Subject::new(format!("{} in {dtype}, {env:?},", entry.name), graph, inputs)
}

#[test]
fn the_gallery_runs_as_planned_for_every_device() {
    for entry in gallery::all() {
        let subject = subject(entry, DType::F32, &sizes(entry, [3, 4, 5, 6, 7]));
        for device in DeviceSpec::names() {
            subject.holds(&on(device, &usual_sizes(entry)), Reading::Exact);
        }
    }
}

#[test]
fn the_gallery_runs_in_short_types() {
    for (k, entry) in gallery::all().enumerate() {
        let devices: Vec<&str> = DeviceSpec::names().collect();
        for (j, dtype) in [DType::F16, DType::BF16].into_iter().enumerate() {
            let subject = subject(entry, dtype, &sizes(entry, [4, 5, 3, 6, 2]));
            let options = on(devices[(k + j) % devices.len()], &usual_sizes(entry));
            subject.holds(&options, Reading::Exact);
            subject.holds(&options, Reading::Rounded);
            subject.holds_strictly(&options);
        }
    }
}

#[test]
fn the_gallery_runs_however_it_is_planned() {
    for (k, entry) in gallery::all().enumerate() {
        let devices: Vec<&str> = DeviceSpec::names().collect();
        let env = sizes(entry, [2, 3, 5, 4, 3]);
        let subject = subject(entry, DType::F32, &env);
        for seed in 0..4 {
            let options = at_random(seed, &on(devices[(k + seed as usize) % devices.len()], &env));
            subject.holds(&options, Reading::Exact);
            subject.holds_strictly(&options);
        }
    }
}

#[test]
fn the_gallery_runs_with_nothing_and_with_one_of_everything() {
    for (k, entry) in gallery::all().enumerate() {
        let devices: Vec<&str> = DeviceSpec::names().collect();
        let options = on(devices[k % devices.len()], &usual_sizes(entry));
        for list in [[0, 3, 2, 4, 3], [1, 1, 1, 1, 1], [3, 0, 2, 4, 3], [2, 1, 1, 5, 3]] {
            let (graph, env) = (entry.graph(DType::F32).unwrap(), sizes(entry, list));
            let inputs = inputs(&graph, &env, entry.positive);
            let plan = cut_small(planned(&graph, &options).unwrap());
            let how = interp::Options { folds: Folds::AsScheduled, ..interp::Options::default() };
            let outcome = run(&plan, &inputs, &how);
            match (Meaning::of(&graph, &inputs, Limits::default()), outcome) {
                (Ok(meaning), Ok(outputs)) => {
                    meaning.check(&outputs).unwrap_or_else(|(_, why)| panic!("{} {list:?}: {why}", entry.name));
                }
                // There is no largest element of nothing.
                (Err(expected), Err(found)) => assert_eq!(expected.kind(), found.kind(), "{expected}; {found}"),
                (expected, found) => panic!("{} {list:?}: {expected:?}; {found:?}", entry.name),
            }
        }
    }
}

#[test]
fn spellings_run_as_planned() {
    let devices: Vec<&str> = DeviceSpec::names().collect();
    for (k, row) in spellings::all().enumerate() {
        let graph = row.graph().unwrap();
        let inputs = spellings::inputs(&graph);
        let subject = Subject::new(format!("{} / {} / {}", row.family, row.class, row.name), graph, inputs);
        let options = on(devices[k % devices.len()], &spellings::usual_sizes());
        subject.holds(&options, Reading::Exact);
        subject.holds(&at_random(k as u64, &options), Reading::Exact);
    }
}
