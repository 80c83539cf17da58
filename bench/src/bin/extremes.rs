//! How long graphs take that are large in one direction: `cargo run --release -p fuseline-bench --bin extremes [KIND or COUNT …]`
//!
//! For every kind of graph (all without arguments) and every count of nodes, the time through passes and rewrites and the time to plan and log. Where
//! ten times as many nodes take a hundred times as long, something is quadratic.

use std::time::Instant;

use fuseline::compile::compile;
use fuseline::device::DeviceSpec;
use fuseline::error::Result;
use fuseline::fuse::{PlanOptions, plan};
use fuseline::passes::Context;
use fuseline_tests::extremes::EXTREMES;

fn main() -> Result<()> {
    let (mut counts, mut kinds): (Vec<usize>, Vec<String>) = (Vec::new(), Vec::new());
    for argument in std::env::args().skip(1) {
        match argument.parse() {
            Ok(count) => counts.push(count),
            Err(_) => kinds.push(argument),
        }
    }
    if counts.is_empty() {
        counts = vec![1_000, 10_000, 100_000];
    }
    let [graph, nodes, passes, plans, check, effort, kernels] =
        ["graph", "nodes", "passes s", "plan s", "check s", "effort/node", "kernels"];
    println!("{graph:16} {nodes:>8} {passes:>9} {plans:>9} {check:>9} {effort:>12} {kernels:>8}");
    let options = PlanOptions::on(DeviceSpec::find("h200")?);
    for (name, extreme) in EXTREMES.iter().filter(|(name, _)| kinds.is_empty() || kinds.iter().any(|k| k == name)) {
        for count in &counts {
            let graph = extreme(*count);
            let nodes = graph.nodes().len();
            let start = Instant::now();
            let program = compile(graph, &Context::default())?;
            let passes = start.elapsed().as_secs_f64();
            let start = Instant::now();
            let planned = plan(program.run(), &options)?;
            let planning = start.elapsed().as_secs_f64();
            let start = Instant::now();
            planned.check(program.run())?;
            let check = start.elapsed().as_secs_f64();
            let (effort, kernels) = (planned.effort / nodes as u64, planned.kernels.len());
            println!("{name:16} {nodes:8} {passes:9.2} {planning:9.2} {check:9.2} {effort:12} {kernels:8}");
        }
    }
    Ok(())
}
