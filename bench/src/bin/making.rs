//! What making kernels costs: `cargo run --release -p fuseline-bench --bin making -- [--rounds=N] [--phases=all] [--sizes=NAME=SIZE,…] [--isa=avx512|avx2] [NAME…|MODEL.onnx…]`.
//!
//! Every different kernel of the plans of some graphs of the gallery (all unless named), or of models, is emitted and becomes machine code
//! again and again; the least time of either counts. Programs of a kernel that are equal become machine code once, as in a run. With `--phases=all`, what each program
//! takes. The last line of a graph with several kernels tells what one takes where all are made together, as when a graph is loaded: then equal programs of different
//! kernels become machine code once.

use std::path::Path;
use std::time::Instant;

use fuseline::compile::plan_program;
use fuseline::error::Result;
use fuseline::fuse::PlanOptions;
use fuseline::gallery;
use fuseline::graph::Graph;
use fuseline::tensor::Env;
use fuseline_bench::{arguments, networks_of_gallery, sizes};
use fuseline_cpu::code::{Code, Draft, Isa};
use fuseline_cpu::emit::{self, Phase};
use fuseline_cpu::here;
use fuseline_frontend::Model;
use rustc_hash::FxHashSet;

fn main() -> Result<()> {
    let (options, names) = arguments();
    let rounds = options.get("rounds").map_or(31, |n| n.parse().expect("a number"));
    let names = match names.is_empty() {
        true => gallery::all().map(|entry| entry.name.to_string()).collect(),
        false => names,
    };
    println!("{:28} {:>7} {:>8} {:>10} {:>10} {:>10}", "kernel", "phases", "values", "emit µs", "code µs", "sum µs");
    let mut totals = Vec::new();
    for name in &names {
        let (graph, mut env) = match name.ends_with(".onnx") {
            true => (Model::open(Path::new(name))?.graph()?.clone(), Env::default()),
            false => networks_of_gallery(name)?,
        };
        if let Some(text) = options.get("sizes") {
            env = sizes(text);
        }
        measure(
            name.rsplit('/').next().unwrap_or(name),
            graph,
            env,
            (rounds, options.contains_key("phases"), fuseline_bench::isa(&options)),
            &mut totals,
        )?;
    }
    totals.sort_by(f64::total_cmp);
    let (count, sum) = (totals.len(), totals.iter().sum::<f64>());
    println!(
        "{count} kernels: mean {:.0} µs, median {:.0}, most {:.0}",
        sum / count as f64,
        totals[count / 2],
        totals[count - 1]
    );
    Ok(())
}

/// Makes the kernels of a graph, and tells what each takes.
fn measure(
    name: &str,
    graph: Graph,
    env: Env,
    (rounds, show_phases, isa): (usize, bool, Isa),
    totals: &mut Vec<f64>,
) -> Result<()> {
    let target = emit::Target::new(isa, 2);
    let mut options = PlanOptions::on(here::spec());
    options.hints.env = env.clone();
    let planned = plan_program(graph, &options, &mut |_| {})?;
    let mut seen = Vec::new();
    for kernel in &planned.run.kernels {
        let kernel = &kernel.kernel;
        let known = kernel.symbols().iter().all(|symbol| env.get(symbol).is_some());
        if seen.contains(&kernel) || !known || emit::emit(kernel, &env, &target).is_err() {
            continue;
        }
        seen.push(kernel);
        let (mut emitting, mut coding) = (f64::INFINITY, f64::INFINITY);
        let (mut phases, mut values) = (0, 0);
        for _ in 0..rounds {
            let start = Instant::now();
            let emitted = emit::emit(kernel, &env, &target)?;
            emitting = emitting.min(start.elapsed().as_secs_f64() * 1e6);
            let start = Instant::now();
            let different = different(&emitted.phases);
            let drafts = different.iter().map(|phase| Draft::new(&phase.program, isa)).collect::<Result<Vec<_>>>()?;
            let codes = Code::all(drafts)?;
            coding = coding.min(start.elapsed().as_secs_f64() * 1e6);
            phases = emitted.phases.len();
            values = different.iter().map(|phase| phase.program.types.len()).sum();
            drop(codes);
        }
        totals.push(emitting + coding);
        println!("{name:28} {phases:7} {values:8} {emitting:10.1} {coding:10.1} {:10.1}", emitting + coding);
        if show_phases {
            let emitted = emit::emit(kernel, &env, &target)?;
            for phase in different(&emitted.phases) {
                let time = || {
                    let start = Instant::now();
                    Code::new(&phase.program, isa).map(|_| start.elapsed().as_secs_f64() * 1e6)
                };
                let times = (0..rounds).map(|_| time()).collect::<Result<Vec<_>>>()?;
                let least = times.into_iter().fold(f64::INFINITY, f64::min);
                println!("  {:34} {:8} {least:21.1}", phase.name, phase.program.types.len());
            }
        }
    }
    if seen.len() > 1 {
        let mut together = f64::INFINITY;
        for _ in 0..rounds {
            let start = Instant::now();
            let emitted = seen.iter().map(|kernel| emit::emit(kernel, &env, &target)).collect::<Result<Vec<_>>>()?;
            let different = different(emitted.iter().flat_map(|emitted| &emitted.phases));
            let drafts = different.iter().map(|phase| Draft::new(&phase.program, isa)).collect::<Result<Vec<_>>>()?;
            let codes = Code::all(drafts)?;
            together = together.min(start.elapsed().as_secs_f64() * 1e6);
            drop(codes);
        }
        println!("{name:28} {} kernels together: {:.1} µs for one", seen.len(), together / seen.len() as f64);
    }
    Ok(())
}

/// Phases whose programs differ.
fn different<'p>(phases: impl IntoIterator<Item = &'p Phase>) -> Vec<&'p Phase> {
    let mut seen = FxHashSet::default();
    phases.into_iter().filter(|phase| seen.insert(&phase.program)).collect()
}
