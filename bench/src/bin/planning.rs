//! How long planning takes: `cargo run --release -p fuseline-bench --bin planning [MODEL.onnx …]`
//!
//! For every network, the time from the file to the graph, through passes and rewrites, and from the verified graph to
//! plan and log: the median and the least of several runs, on a CPU and on a GPU. Without arguments, the networks without
//! weights of the tests.

use std::path::PathBuf;
use std::time::Instant;

use fuseline::compile::plan_program;
use fuseline::device::DeviceSpec;
use fuseline::error::Result;
use fuseline::fuse::{PlanOptions, plan};
use fuseline_frontend::Model;

const RUNS: usize = 9;

fn main() -> Result<()> {
    let mut files: Vec<PathBuf> = std::env::args_os().skip(1).map(PathBuf::from).collect();
    if files.is_empty() {
        files = networks();
    }
    println!(
        "{:32} {:6} {:>7} {:>9} {:>10} {:>16} {:>9} {:>8}",
        "network", "target", "nodes", "import ms", "program ms", "plan ms (least)", "effort", "kernels"
    );
    for file in files {
        let start = Instant::now();
        let model = Model::open(&file)?;
        let graph = model.graph()?.clone();
        let import = ms(start);
        for target in ["cpu", "h200"] {
            let options = PlanOptions::on(DeviceSpec::find(target)?);
            let start = Instant::now();
            let planned = plan_program(graph.clone(), &options, &mut |_| {})?;
            let program = ms(start);
            let run = planned.program.run();
            let mut times: Vec<f64> = Vec::with_capacity(RUNS);
            for _ in 0..RUNS {
                let start = Instant::now();
                plan(run, &options)?;
                times.push(ms(start));
            }
            times.sort_by(f64::total_cmp);
            let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
            let (median, least) = (times[RUNS / 2], times[0]);
            let (effort, kernels) = (planned.run.effort, planned.run.kernels.len());
            let plan = format!("{median:.1} ({least:.1})");
            println!(
                "{name:32} {target:6} {:7} {import:9.1} {program:10.1} {plan:>16} {effort:9} {kernels:8}",
                run.nodes().len()
            );
        }
    }
    Ok(())
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
