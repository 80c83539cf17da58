//! What the planner makes of models, and how long it takes:
//! `cargo run --release -p fuseline-frontend --example plan_report -- [--target=NAME] [--kernels] [--decisions] model.onnx …`

use std::collections::BTreeMap;
use std::time::Instant;

use fuseline::device::DeviceSpec;
use fuseline::error::Result;
use fuseline::fuse::{PlanOptions, Verdict, plan};
use fuseline::passes::{Context, run_passes};
use fuseline::rewrites::{Permit, apply_rewrites};
use fuseline_frontend::Model;

fn main() -> Result<()> {
    let (options, files): (Vec<String>, Vec<String>) = std::env::args().skip(1).partition(|a| a.starts_with("--"));
    let has = |name: &str| options.iter().any(|o| o == name);
    let target = options.iter().find_map(|o| o.strip_prefix("--target=")).unwrap_or("cpu");
    for file in &files {
        let graph = run_passes(Model::open(file)?.graph()?.clone(), &Context::default(), &mut |_| {})?;
        let graph = apply_rewrites(graph, &Context::default(), &mut Permit::everything(), &mut |_| {})?;
        let mut chosen = PlanOptions::on(DeviceSpec::find(target)?);
        if let Some(n) = options.iter().find_map(|o| o.strip_prefix("--size=")) {
            chosen.hints.otherwise = n.parse().expect("a number");
        }
        let start = Instant::now();
        let plan = plan(&graph, &chosen)?;
        let ms = start.elapsed().as_secs_f64() * 1e3;
        let mut kinds: BTreeMap<&str, usize> = BTreeMap::new();
        for kernel in &plan.kernels {
            *kinds.entry(kernel.kind.name()).or_default() += 1;
        }
        let (taken, refused): (Vec<_>, Vec<_>) = plan.decisions.iter().partition(|d| d.verdict == Verdict::Taken);
        println!(
            "{file} on {target}: {} kernels {kinds:?}, {:.0} us (apart {:.0} us, {} kernels), {} taken, {} refused, planned in {ms:.1} ms",
            plan.kernels.len(),
            plan.cost.us,
            plan.apart.us,
            plan.apart.launches,
            taken.len(),
            refused.len()
        );
        if has("--kernels") {
            for (k, kernel) in plan.kernels.iter().enumerate() {
                let origins: Vec<String> = kernel
                    .members
                    .iter()
                    .flat_map(|m| graph.origin(*m).iter().map(|o| o.name.to_string()).collect::<Vec<_>>())
                    .collect();
                let outs: Vec<String> = kernel.outputs.iter().map(|v| format!("{v:?}:{}", graph.ty(*v))).collect();
                println!(
                    "  {k:3} {:9} {:8.2} us  -> {}  nodes {:?}  {}",
                    kernel.kind.name(),
                    kernel.price.us,
                    outs.join(" "),
                    kernel.members,
                    origins.last().cloned().unwrap_or_default()
                );
            }
        }
        if has("--text") {
            let mut seen = std::collections::HashSet::new();
            for kernel in &plan.kernels {
                if seen.insert(kernel.kernel.to_string()) {
                    println!("{}", kernel.kernel);
                }
            }
        }
        if has("--decisions") {
            for d in refused {
                println!(
                    "  {} {:18} {:?} -> {:?}: {} ({:.2})",
                    d.id,
                    d.rule,
                    d.producer,
                    d.consumer,
                    d.reason.as_ref().map_or(String::new(), |r| r.to_string()),
                    d.saved_us()
                );
            }
        }
    }
    Ok(())
}
