//! What new sizes cost: `cargo run --release -p fuseline-bench --bin sizes -- [--threads=N] MODEL.onnx NAME=SIZE,… NAME=SIZE,… …`.
//!
//! A model with free sizes is loaded once, and run with each of the sizes in turn, then with all of them again. The first run at a size makes
//! kernels for it; the second tells what a run takes when they are there.

use std::path::Path;

use fuseline::device::DeviceSpec;
use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline::tensor::Env;
use fuseline_bench::{Case, arguments, sizes};
use fuseline_cpu::here;
use fuseline_frontend::Model;

/// Runs at a size when it is known, of which the shortest counts.
const RUNS: usize = 3;

fn main() -> Result<()> {
    let (options, others) = arguments();
    let threads = options.get("threads").map_or(1, |n| n.parse().expect("a number"));
    let Some((file, wanted)) = others.split_first().filter(|(_, wanted)| !wanted.is_empty()) else {
        return Err(Error::invalid("wanted a model and some sizes, such as batch=1,sequence=128"));
    };
    let model = Model::open(Path::new(file))?;
    let all: Vec<Env> = wanted.iter().map(|text| sizes(text)).collect();
    let spec: &DeviceSpec = here::spec();
    let mut plan = PlanOptions::on(spec);
    plan.hints.env = all[0].clone();
    let case = Case::new(model.graph()?.clone(), &plan, threads)?;
    let made = case.session.kernels_made();
    println!("{} kernels made in {:.1} ms while loading", made, case.session.making().as_secs_f64() * 1e3);
    println!(
        "{:32} {:>10} {:>10} {:>10} {:>12} {:>8}",
        "sizes", "first ms", "then ms", "new ms", "making ms", "kernels"
    );
    for (text, env) in wanted.iter().zip(&all) {
        let (before, kernels) = (case.session.making(), case.session.kernels_made());
        let first = case.run_at(env)? / 1e3;
        let making = (case.session.making() - before).as_secs_f64() * 1e3;
        let kernels = case.session.kernels_made() - kernels;
        let mut then = f64::INFINITY;
        for _ in 0..RUNS {
            then = then.min(case.run_at(env)? / 1e3);
        }
        println!("{text:32} {first:10.1} {then:10.1} {:10.1} {making:12.1} {kernels:8}", first - then);
    }
    let before = case.session.kernels_made();
    all.iter().try_for_each(|env| case.run_at(env).map(drop))?;
    println!("{} kernels made by the same sizes again", case.session.kernels_made() - before);
    Ok(())
}
