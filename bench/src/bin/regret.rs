//! How much better plans there are than the one that prices choose:
//! `cargo run --release -p fuseline-bench --bin regret -- [--plans=N] [--rounds=N] [--threads=N] [NAME…]`.
//!
//! Every graph is planned by cost and 200 times by chance. Random plans are timed a few times each; the fastest few are then
//! timed in turns with the plan by cost, so that luck in the first heat does not count. Regret is the shortest run of the plan
//! by cost over that of the best of the others.

use std::collections::BTreeSet;

use fuseline::error::Result;
use fuseline::fuse::{Chooser, PlanOptions};
use fuseline_bench::{Case, arguments, networks_of_gallery};
use fuseline_cpu::here;

/// Sub-graphs of networks: chains, rows, products with what is around them, attention, whole layers.
const GRAPHS: [&str; 20] = [
    "mul_add_relu",
    "swiglu",
    "bias_gelu",
    "scale_offset_power",
    "gelu_dropout_residual",
    "softmax_dropout",
    "layernorm_gelu",
    "layernorm_bias_gelu",
    "rmsnorm",
    "add_layernorm",
    "layernorm_dropout_residual",
    "linear_bias_gelu",
    "norm_linear",
    "rmsnorm_linear",
    "qkv",
    "transformer_sublayer",
    "feed_forward",
    "attention",
    "conv_bn_relu",
    "layernorm_quantize_int8",
];

/// Runs of a plan in the first heat, and plans that come into the second.
const FIRST_RUNS: usize = 5;
const FINALISTS: usize = 5;

fn main() -> Result<()> {
    let (options, names) = arguments();
    let number = |name: &str, usual: usize| options.get(name).map_or(usual, |n| n.parse().expect("a number"));
    let (plans, rounds, threads) = (number("plans", 200), number("rounds", 31), number("threads", 1));
    println!(
        "{:28} {:>6} {:>9} {:>8} {:>10} {:>8} {:>8}",
        "graph", "plans", "by cost", "kernels", "best other", "kernels", "regret"
    );
    for name in GRAPHS.iter().filter(|name| names.is_empty() || names.iter().any(|n| n == *name)) {
        let contest = Contest::hold(name, plans as u64, rounds, threads)?;
        println!(
            "{name:28} {:6} {:9.1} {:8} {:10.1} {:8} {:7.1}%",
            contest.distinct,
            contest.usual.least(),
            contest.usual.kernels(),
            contest.best.least(),
            contest.best.kernels(),
            (contest.usual.least() / contest.best.least() - 1.0) * 100.0
        );
    }
    Ok(())
}

/// A graph whose plans were timed.
struct Contest {
    /// how many different plans there were
    distinct: usize,
    usual: Case,
    best: Case,
}

impl Contest {
    fn hold(name: &str, plans: u64, rounds: usize, threads: usize) -> Result<Contest> {
        let (graph, env) = networks_of_gallery(name)?;
        let mut options = PlanOptions::on(here::spec());
        options.hints.env = env;
        let mut usual = Case::new(graph.clone(), &options, threads)?;
        let mut seen = BTreeSet::from([kernels_of(&usual)]);
        let mut fastest: Vec<Case> = Vec::new();
        for seed in 0..plans {
            let chance = PlanOptions { chooser: Chooser::AtRandom(seed), ..options.clone() };
            let mut case = Case::new(graph.clone(), &chance, threads)?;
            if !seen.insert(kernels_of(&case)) {
                continue;
            }
            for _ in 0..FIRST_RUNS {
                case.run()?;
            }
            fastest.push(case);
            fastest.sort_by(|a, b| a.least().total_cmp(&b.least()));
            fastest.truncate(FINALISTS);
        }
        fastest.iter_mut().for_each(Case::forget);
        usual.run()?;
        usual.forget();
        for _ in 0..rounds {
            usual.run()?;
            for case in &mut fastest {
                case.run()?;
            }
        }
        fastest.sort_by(|a, b| a.least().total_cmp(&b.least()));
        let distinct = seen.len();
        // Where there is but one plan, it has nothing to regret.
        let best = match fastest.into_iter().next() {
            Some(best) => best,
            None => {
                let mut same = Case::new(graph, &options, threads)?;
                for _ in 0..rounds {
                    same.run()?;
                }
                same
            }
        };
        Ok(Contest { distinct, usual, best })
    }
}

/// What tells plans apart: the kernels of a run, and those that run once.
fn kernels_of(case: &Case) -> String {
    let plans = [&case.planned.run, &case.planned.prepare];
    let kernels = plans.into_iter().flat_map(|plan| &plan.kernels);
    kernels.map(|kernel| kernel.kernel.to_string()).collect::<Vec<_>>().join("\n")
}
