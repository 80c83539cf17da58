//! Nothing is done at a predicted loss: the log of every decision and rewrite that was taken, with its price.
//!
//! Networks, the gallery and all spellings, for every device that ships.

use std::path::Path;
use std::sync::Arc;

use fuseline::compile::{plan_simplified, simplified};
use fuseline::device::{DeviceSpec, Machine};
use fuseline::explain::{DecisionRow, Explanation};
use fuseline::fuse::{PlanOptions, Verdict};
use fuseline::gallery;
use fuseline::graph::Graph;
use fuseline::tensor::{DType, Symbol};
use fuseline::tile::Kernel;
use fuseline_frontend::Model;
use fuseline_tests::spellings::{all, usual_sizes};

/// What costs less microseconds than this costs nothing.
const LEAST_LOSS_US: f64 = 0.005;

/// Rewrites that make one form of all spellings: beside another spelling, a number may then stand where it takes a little more.
const ONE_FORM: [&str; 3] = ["hoist-scales", "defer-scales", "defer-zero-points"];

/// What part of a plan the rewrites of one of these rules may cost where a network computes what is scaled: it is placed where it takes the
/// least, but not where a second plan would hardly save a thing.
const IN_NETWORKS: f64 = 0.005;

/// And where operands come from outside, so that nothing before them could scale them.
const FROM_OUTSIDE: f64 = 0.03;

/// What a plan of a graph has taken at a loss; to make one form of all spellings, at more of a loss than a part of it.
fn losses(what: &str, graph: &Graph, options: &PlanOptions, most: f64) -> Vec<String> {
    let fail = |e| -> ! { panic!("{what} on {}: {e}", options.spec.name) };
    let simple = simplified(graph.clone(), options, &mut |_| {}).unwrap_or_else(|e| fail(e));
    let planned = plan_simplified(simple.clone(), options, &mut |_| {}).unwrap_or_else(|e| fail(e));
    let mut explanation = Explanation::of(&planned, options).unwrap_or_else(|e| fail(e));
    explanation.price_rewrites(&planned, &simple, options).unwrap();
    let is_loss = |row: &&DecisionRow| row.verdict == Verdict::Taken && row.saved_us < -LEAST_LOSS_US;
    let is_more = |row: &&DecisionRow| {
        let same = explanation.decisions.iter().filter(|other| other.rule == row.rule).filter(is_loss);
        let lost = -same.map(|row| row.saved_us).sum::<f64>();
        !ONE_FORM.contains(&row.rule) || lost > most * planned.run.cost.us
    };
    let rows = explanation.decisions.iter().filter(is_loss).filter(is_more);
    let line = |row: &DecisionRow| {
        let (target, rule, saved) = (&options.spec.name, row.rule, row.saved_us);
        format!("{what} on {target}: {rule} {} → {} saves {saved} µs", row.producer, row.consumer)
    };
    rows.map(line).collect()
}

fn on_every_device(what: &str, graph: &Graph, most: f64, bind: impl Fn(&mut PlanOptions)) -> Vec<String> {
    let on = |spec: &DeviceSpec| {
        let mut options = PlanOptions::on(spec);
        bind(&mut options);
        losses(what, graph, &options, most)
    };
    DeviceSpec::all().iter().flat_map(on).collect()
}

/// Of every network one file; `FUSELINE_ALL_MODELS=1` takes all of them, which takes minutes.
#[test]
fn networks_take_nothing_at_a_loss() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/structure");
    let mut names: Vec<String> = std::fs::read_dir(&folder)
        .unwrap()
        .filter_map(|entry| entry.unwrap().file_name().into_string().ok()?.strip_suffix(".onnx").map(str::to_owned))
        .collect();
    names.sort();
    if std::env::var_os("FUSELINE_ALL_MODELS").is_none() {
        names.dedup_by_key(|name| name.split('.').next().unwrap_or_default().to_owned());
    }
    let mut found = Vec::new();
    for name in names {
        let model = Model::open(folder.join(format!("{name}.onnx"))).unwrap_or_else(|e| panic!("{e}"));
        found.extend(on_every_device(&name, model.graph().unwrap(), IN_NETWORKS, |_| {}));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn the_gallery_takes_nothing_at_a_loss() {
    let mut found = Vec::new();
    for entry in gallery::all() {
        for dtype in [DType::F32, DType::BF16] {
            let Ok(graph) = entry.graph(dtype) else { continue };
            let bind = |options: &mut PlanOptions| {
                entry.sizes.iter().for_each(|(name, size)| _ = options.hints.env.bind(Symbol::name(name), *size));
            };
            found.extend(on_every_device(&format!("{} in {dtype}", entry.name), &graph, FROM_OUTSIDE, bind));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// Where heads are wide, two products are most of attention, and what joins them saves little.
#[test]
fn wide_heads_take_nothing_at_a_loss() {
    let entry = gallery::all().find(|entry| entry.name == "attention").unwrap();
    let graph = entry.graph(DType::F32).unwrap();
    let mut found = Vec::new();
    for (tokens, size) in [(64, 256), (128, 256), (64, 512), (128, 512)] {
        let sizes = [("batch", 1), ("heads", 4), ("queries", tokens), ("keys", tokens), ("size", size)];
        let bind = |options: &mut PlanOptions| {
            sizes.iter().for_each(|(name, size)| _ = options.hints.env.bind(Symbol::name(name), *size));
        };
        found.extend(on_every_device(&format!("{tokens} tokens, {size} columns"), &graph, FROM_OUTSIDE, bind));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn spellings_take_nothing_at_a_loss() {
    let mut found = Vec::new();
    for row in all() {
        let what = format!("{} / {} / {}", row.family, row.class, row.name);
        let bind = |options: &mut PlanOptions| options.hints.env = usual_sizes();
        found.extend(on_every_device(&what, &row.graph().unwrap(), FROM_OUTSIDE, bind));
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

/// The kernels that a graph becomes.
fn kernels(text: &str, spec: &DeviceSpec) -> Vec<Arc<Kernel>> {
    let options = PlanOptions::on(spec);
    let simple = simplified(Graph::parse(text).unwrap(), &options, &mut |_| {}).unwrap();
    let planned = plan_simplified(simple, &options, &mut |_| {}).unwrap();
    planned.run.kernels.into_iter().map(|planned| planned.kernel).collect()
}

/// Their schedules.
fn schedules(text: &str, spec: &DeviceSpec) -> Vec<&'static str> {
    kernels(text, spec).iter().map(|kernel| kernel.schedule.name()).collect()
}

/// In one kernel every sum would be made again for each of the numbers that it is multiplied with.
#[test]
fn rows_are_folded_once() {
    let outer = "graph g(x: f32[64, 16384], w: f32[64]) {
        %2 = reduce.sum x axes=[1] : f32[64]
        %3 = view %2[i0] : f32[64, 64]
        %4 = view w[i1] : f32[64, 64]
        %5 = map(%3, %4) a * b : f32[64, 64]
        return y = %5
    }";
    for spec in DeviceSpec::all() {
        assert_eq!(schedules(outer, spec), ["row", "map"], "{}", spec.name);
    }
}

/// A processor would compute it in every row: what stays in the innermost loop is priced for that.
#[test]
fn functions_of_a_vector_are_not_computed_in_every_row() {
    let beside = "graph g(w: f32[4096], z: f32[512, 4096]) {
        %2 = map(w) exp(sin(a)) : f32[4096]
        %3 = view %2[i1] : f32[512, 4096]
        %4 = map(%3, z) a * b : f32[512, 4096]
        return y = %4
    }";
    for spec in DeviceSpec::all().iter().filter(|spec| spec.kind == Machine::Cpu) {
        assert_eq!(schedules(beside, spec), ["map", "map"], "{}", spec.name);
    }
}

/// A row that lies across what is read takes a line of memory for every element: columns are folded, or the tensor is turned before.
#[test]
fn processors_read_no_rows_across() {
    let own = "graph g(x: f32[1024, 512]) {
        %1 = view x[i1, i0] : f32[512, 1024]
        %2 = reduce.max %1 axes=[1] : f32[512]
        %3 = view %2[i0] : f32[512, 1024]
        %4 = map(%1, %3) a - b : f32[512, 1024]
        return y = %4
    }";
    let beside = "graph g(x: f32[1024, 512], z: f32[512, 1024]) {
        %2 = view x[i1, i0] : f32[512, 1024]
        %3 = map(%2, z) a * b : f32[512, 1024]
        %4 = reduce.max %3 axes=[1] : f32[512]
        %5 = view %4[i0] : f32[512, 1024]
        %6 = map(%3, %5) a - b : f32[512, 1024]
        return y = %6
    }";
    for spec in DeviceSpec::all().iter().filter(|spec| spec.kind == Machine::Cpu) {
        assert_eq!(schedules(own, spec), ["column", "map"], "{}", spec.name);
        assert_eq!(schedules(beside, spec), ["map", "row"], "{}", spec.name);
    }
}

/// A sum in f16 that is folded in f32 and read again is made once, not in every term that reads it.
#[test]
fn what_is_folded_in_a_wider_type_is_kept() {
    let centred = "graph g(x: f16[64, 1024], z: f16[64, 1024]) {
        %2 = map(x, z) a + b : f16[64, 1024]
        %3 = map(%2) f32(a) : f32[64, 1024]
        %4 = reduce.sum %3 axes=[1] : f32[64]
        %5 = view %4[i0] : f32[64, 1024]
        %6 = map(%3, %5) (a - b) * (a - b) : f32[64, 1024]
        %7 = reduce.sum %6 axes=[1] : f32[64]
        %8 = view %7[i0] : f32[64, 1024]
        %9 = map(%2, %8) f32(a) / b : f32[64, 1024]
        return y = %9
    }";
    let kernels = kernels(centred, DeviceSpec::find("h200").unwrap());
    let [kernel] = kernels.as_slice() else { panic!("{} kernels", kernels.len()) };
    let text = kernel.to_string();
    assert_eq!(text.matches("f32(a) + f32(b)").count(), 1, "{text}");
    assert_eq!(text.matches("f32(").count(), 2, "{text}");
}
