//! How long graphs take that are large in one direction, and models made to take forever:
//! `cargo run --release -p fuseline-bench --bin extremes [KIND or COUNT …]`
//!
//! For every kind (all without arguments) and every count of nodes, the time from the file to the graph, through the passes, and to
//! plan, log and proof; or the error that ends it. Where ten times as many nodes take a hundred times as long, something is
//! quadratic. `--write FOLDER` writes the models into a folder instead, for the command.

use std::time::Instant;

use fuseline::compile::compile;
use fuseline::device::DeviceSpec;
use fuseline::error::{Error, Result};
use fuseline::fuse::{PlanOptions, plan};
use fuseline::graph::Graph;
use fuseline::passes::Context;
use fuseline_frontend::Model;
use fuseline_tests::extremes::EXTREMES;
use fuseline_tests::malicious::{MALICES, Malice};
use fuseline_tests::model_maker::bytes;

fn main() -> Result<()> {
    let (mut counts, mut kinds): (Vec<usize>, Vec<String>) = (Vec::new(), Vec::new());
    let mut folder = None;
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.parse() {
            Ok(count) => counts.push(count),
            Err(_) if argument == "--write" => folder = arguments.next(),
            Err(_) => kinds.push(argument),
        }
    }
    if counts.is_empty() {
        counts = vec![1_000, 10_000, 100_000];
    }
    let wanted = |name: &str| kinds.is_empty() || kinds.iter().any(|kind| kind == name);
    if let Some(folder) = folder {
        return counts.iter().try_for_each(|count| write(&folder, *count, wanted));
    }
    let [kind, count, nodes, import, passes, plans, proof, effort, kernels] =
        ["kind", "count", "nodes", "import s", "passes s", "plan s", "proof s", "effort", "kernels"];
    println!("{kind:18} {count:>7} {nodes:>7} {import:>9} {passes:>9} {plans:>9} {proof:>9} {effort:>9} {kernels:>8}");
    for count in &counts {
        for (name, extreme) in EXTREMES.iter().filter(|(name, _)| wanted(name)) {
            print!("{name:18} {count:7}");
            report(|| Ok(extreme(*count)));
        }
        for (name, malice) in MALICES.iter().filter(|(name, _)| wanted(name)) {
            print!("{name:18} {count:7}");
            report(|| imported(*malice, *count));
        }
    }
    Ok(())
}

/// Every model of a count as a file.
fn write(folder: &str, count: usize, wanted: impl Fn(&str) -> bool) -> Result<()> {
    for (name, malice) in MALICES.iter().filter(|(name, _)| wanted(name)) {
        let path = format!("{folder}/{}_{count}.onnx", name.replace(' ', "_"));
        std::fs::write(&path, bytes(&malice(count))).map_err(|error| Error::invalid(format!("{path}: {error}")))?;
    }
    Ok(())
}

fn imported(malice: Malice, count: usize) -> Result<Graph> {
    let model = Model::from_bytes(bytes(&malice(count)), "malicious.onnx")?;
    Ok(model.graph()?.clone())
}

/// The rest of a row: as many times as there are stages that end well, then what the last one ended with.
fn report(graph: impl FnOnce() -> Result<Graph>) {
    if let Err(error) = measure(graph) {
        println!(" {error}");
    }
}

fn measure(graph: impl FnOnce() -> Result<Graph>) -> Result<()> {
    let start = Instant::now();
    let graph = graph();
    let import = start.elapsed().as_secs_f64();
    print!(" {:7} {import:9.2}", graph.as_ref().map_or(0, |graph| graph.nodes().len()));
    let start = Instant::now();
    let program = graph.and_then(|graph| compile(graph, &Context::default()));
    print!(" {:9.2}", start.elapsed().as_secs_f64());
    let (program, options) = (program?, PlanOptions::on(DeviceSpec::find("h200")?));
    let start = Instant::now();
    let planned = plan(program.run(), &options);
    print!(" {:9.2}", start.elapsed().as_secs_f64());
    let (start, planned) = (Instant::now(), planned?);
    planned.check(program.run())?;
    println!(" {:9.2} {:9} {:8}", start.elapsed().as_secs_f64(), planned.effort, planned.kernels.len());
    Ok(())
}
