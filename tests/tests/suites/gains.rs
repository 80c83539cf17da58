//! Nothing is done at a predicted loss: the log of every decision and rewrite that was taken, with its price.
//!
//! Networks, the gallery and all spellings, for every device that ships.

use std::path::Path;

use fuseline::compile::{plan_simplified, simplified};
use fuseline::device::DeviceSpec;
use fuseline::explain::{DecisionRow, Explanation};
use fuseline::fuse::{PlanOptions, Verdict};
use fuseline::gallery;
use fuseline::graph::Graph;
use fuseline::tensor::{DType, Symbol};
use fuseline_frontend::Model;
use fuseline_tests::spellings::{all, usual_sizes};

/// What costs less microseconds than this costs nothing.
const LEAST_LOSS_US: f64 = 0.005;

/// Rewrites that make one form of all spellings: beside another spelling of the same operands, a number may then stand where it takes a
/// little more. What a network computes is placed where it takes the least.
const ONE_FORM: [&str; 3] = ["hoist-scales", "defer-scales", "defer-zero-points"];

/// What a plan of a graph has taken at a loss.
fn losses(what: &str, graph: &Graph, options: &PlanOptions) -> Vec<String> {
    let fail = |e| -> ! { panic!("{what} on {}: {e}", options.spec.name) };
    let simple = simplified(graph.clone(), options, &mut |_| {}).unwrap_or_else(|e| fail(e));
    let planned = plan_simplified(simple.clone(), options, &mut |_| {}).unwrap_or_else(|e| fail(e));
    let mut explanation = Explanation::of(&planned, options).unwrap_or_else(|e| fail(e));
    explanation.price_rewrites(&planned, &simple, options).unwrap();
    let is_loss = |row: &&DecisionRow| row.verdict == Verdict::Taken && row.saved_us < -LEAST_LOSS_US;
    let rows = explanation.decisions.iter().filter(is_loss);
    let line = |row: &DecisionRow| {
        let (target, rule, saved) = (&options.spec.name, row.rule, row.saved_us);
        format!("{what} on {target}: {rule} {} → {} saves {saved} µs", row.producer, row.consumer)
    };
    rows.map(line).collect()
}

fn on_every_device(what: &str, graph: &Graph, bind: impl Fn(&mut PlanOptions)) -> Vec<String> {
    let on = |spec: &DeviceSpec| {
        let mut options = PlanOptions::on(spec);
        bind(&mut options);
        losses(what, graph, &options)
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
        found.extend(on_every_device(&name, model.graph().unwrap(), |_| {}));
    }
    // On a GPU with queries cut from one product (GPT-2), scores that are scaled take up to 0.4 % of the network longer than queries that
    // are, and no placement pays: it is what one form of all spellings costs there.
    found.retain(|line| {
        !(line.starts_with("gpt2") || line.starts_with("llama_tiny")) || !line.contains("00: hoist-scales ")
    });
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
            found.extend(on_every_device(&format!("{} in {dtype}", entry.name), &graph, bind));
        }
    }
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn spellings_take_nothing_at_a_loss() {
    let mut found = Vec::new();
    for row in all() {
        let what = format!("{} / {} / {}", row.family, row.class, row.name);
        found.extend(on_every_device(&what, &row.graph().unwrap(), |options| options.hints.env = usual_sizes()));
    }
    found.retain(|line| !ONE_FORM.iter().any(|rule| line.contains(&format!(": {rule} "))));
    assert!(found.is_empty(), "{}", found.join("\n"));
}
