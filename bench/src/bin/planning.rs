//! How long planning takes: `cargo run --release -p fuseline-bench --bin planning [--runs N] [--stages] [MODEL.onnx …]`
//!
//! For every network, the time from the file to the graph, from there to the program (passes, rewrites and every plan that is made to choose among
//! them) and from the verified graph to plan and log: the median and the least of several runs, on a CPU and on a GPU.
//! Without models, the networks without weights of the tests. One run is for those who count instructions;
//! `--stages` tells what every pass and rewrite takes.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Instant;

use fuseline::compile::plan_program;
use fuseline::device::DeviceSpec;
use fuseline::error::{Error, Result};
use fuseline::fuse::{PlanOptions, plan};
use fuseline::graph::Graph;
use fuseline_frontend::Model;

const RUNS: usize = 9;

fn main() -> Result<()> {
    let mut arguments = std::env::args_os().skip(1).peekable();
    let mut runs = RUNS;
    if arguments.next_if(|argument| argument == "--runs").is_some() {
        let count = arguments.next().and_then(|count| count.to_str()?.parse().ok());
        runs = count.filter(|count| *count > 0).ok_or_else(|| Error::invalid("--runs takes a number from 1 on"))?;
    }
    let stages = arguments.next_if(|argument| argument == "--stages").is_some();
    let mut files: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    if files.is_empty() {
        files = networks();
    }
    println!(
        "{:32} {:6} {:>7} {:>9} {:>18} {:>16} {:>9} {:>8}",
        "network", "target", "nodes", "import ms", "program ms (least)", "plan ms (least)", "effort", "kernels"
    );
    for file in files {
        let start = Instant::now();
        let model = Model::open(&file)?;
        let graph = model.graph()?.clone();
        let import = ms(start);
        for target in ["cpu", "h200"] {
            let options = PlanOptions::on(DeviceSpec::find(target)?);
            let mut planned = plan_program(graph.clone(), &options, &mut |_| {})?;
            let programs = times(runs, || {
                planned = plan_program(graph.clone(), &options, &mut |_| {})?;
                Ok(())
            })?;
            if stages {
                print_stages(runs, &graph, &options)?;
            }
            let run = planned.program.run();
            let plans = times(runs, || plan(run, &options).map(|_| ()))?;
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let (effort, kernels) = (planned.run.effort, planned.run.kernels.len());
            println!(
                "{name:32} {target:6} {:7} {import:9.1} {programs:>18} {plans:>16} {effort:9} {kernels:8}",
                run.nodes().len()
            );
        }
    }
    Ok(())
}

/// The passes and rewrites of a program by the time that they take in all, and how often they run.
fn print_stages(runs: usize, graph: &Graph, options: &PlanOptions) -> Result<()> {
    let mut stages: BTreeMap<&'static str, (f64, usize)> = BTreeMap::new();
    for _ in 0..runs {
        let mut last = Instant::now();
        plan_program(graph.clone(), options, &mut |step| {
            let stage = stages.entry(step.pass).or_default();
            *stage = (stage.0 + ms(last), stage.1 + 1);
            last = Instant::now();
        })?;
    }
    let mut stages: Vec<_> = stages.into_iter().collect();
    stages.sort_by(|a, b| b.1.0.total_cmp(&a.1.0));
    for (name, (ms, count)) in stages {
        println!("  {name:24} {:8.2} ms {:4} times", ms / runs as f64, count / runs);
    }
    Ok(())
}

/// The median and the least time of some runs, in milliseconds.
fn times(runs: usize, mut run: impl FnMut() -> Result<()>) -> Result<String> {
    let mut times: Vec<f64> = Vec::with_capacity(runs);
    for _ in 0..runs {
        let start = Instant::now();
        run()?;
        times.push(ms(start));
    }
    times.sort_by(f64::total_cmp);
    Ok(format!("{:.1} ({:.1})", times[runs / 2], times[0]))
}

fn ms(start: Instant) -> f64 {
    start.elapsed().as_secs_f64() * 1e3
}

fn networks() -> Vec<PathBuf> {
    let folder = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/models/structure"));
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut files: Vec<PathBuf> = entries.filter(|path| path.extension().is_some_and(|e| e == "onnx")).collect();
    files.sort();
    files
}
