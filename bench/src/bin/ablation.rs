//! What every rule and rewrite is worth:
//! `cargo run --release -p fuseline-bench --bin ablation -- [--rounds=N] [--threads=N] [NAME…]`.
//!
//! Every network is planned as usual, without any fusion, and without each rule and each rewrite in turn; all are timed in turns. Those without
//! which the plan is the same are not shown.

use fuseline::error::Result;
use fuseline::fuse::PlanOptions;
use fuseline::fuse::rules::RULES;
use fuseline::rewrites::{PLACEMENTS, REWRITES};
use fuseline_bench::{Case, arguments, networks_of_gallery};
use fuseline_cpu::here;

const NETWORKS: [&str; 8] =
    ["encoder", "llama", "opt", "resnet", "feed_forward", "qkv", "layernorm_gelu", "softmax_dropout"];

fn main() -> Result<()> {
    let (options, names) = arguments();
    let number = |name: &str, usual: usize| options.get(name).map_or(usual, |n| n.parse().expect("a number"));
    let (rounds, threads) = (number("rounds", 31), number("threads", 1));
    println!("{:20} {:28} {:>8} {:>10} {:>10} {:>7}", "network", "without", "kernels", "min µs", "median µs", "ratio");
    for name in NETWORKS.iter().filter(|name| names.is_empty() || names.iter().any(|n| n == *name)) {
        let mut cases = plans(name, threads)?;
        for round in 0..=rounds {
            for (_, case) in &mut cases {
                case.run()?;
            }
            if round == 0 {
                // The first round warms up.
                cases.iter_mut().for_each(|(_, case)| case.forget());
            }
        }
        let usual = cases[0].1.least();
        for (without, case) in &cases {
            let (least, median) = (case.least(), case.median());
            println!("{name:20} {without:28} {:8} {least:10.1} {median:10.1} {:7.2}", case.kernels(), least / usual);
        }
    }
    Ok(())
}

/// The plan as usual, that without fusion, and those that differ without one rule or rewrite.
fn plans(name: &str, threads: usize) -> Result<Vec<(&'static str, Case)>> {
    let (graph, env) = networks_of_gallery(name)?;
    let mut options = PlanOptions::on(here::spec());
    options.hints.env = env;
    let mut cases = vec![("nothing", Case::new(graph.clone(), &options, threads)?)];
    let apart = PlanOptions { fuel: Some(0), ..options.clone() };
    cases.push(("all", Case::new(graph.clone(), &apart, threads)?));
    let rewrites = REWRITES.iter().chain(PLACEMENTS).map(|rewrite| rewrite.name);
    for rule in RULES.iter().map(|rule| rule.name()).chain(rewrites) {
        let mut without = options.clone();
        without.without.insert(rule.to_string());
        let case = Case::new(graph.clone(), &without, threads)?;
        let kernels = |case: &Case| case.planned.run.kernels.iter().map(|k| k.kernel.clone()).collect::<Vec<_>>();
        if kernels(&case) != kernels(&cases[0].1) {
            cases.push((rule, case));
        }
    }
    Ok(cases)
}
