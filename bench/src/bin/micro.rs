//! Small kernels against what the machine can do with the same bytes, in one process, in turn:
//! `cargo run --release -p fuseline-bench --bin micro -- [--threads=N] [--rounds=N] [NAME…]`.
//!
//! Elementwise kernels are compared with `a + b` written past the caches, rows with a copy of their input, contractions with
//! the rate of fused multiply-adds of the machine (given as `--gflops=N` for one thread, 178 unless said).

use std::time::Instant;

use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline::gallery;
use fuseline::graph::{Builder, Graph};
use fuseline::tensor::{DType, Dim, Shape};
use fuseline_bench::{Case, arguments};
use fuseline_cpu::here;

/// What a kernel is compared with.
#[derive(Clone, Copy, PartialEq)]
enum Floor {
    /// `a + b` of as many elements
    Sum,
    /// a copy of as many elements
    Copy,
    /// so many multiplications and additions
    Products(f64),
}

/// The cases: a graph of the gallery, its sizes, how many elements it writes, and its floor.
const CASES: &[(&str, &str, usize, Floor)] = &[
    ("add_gelu", "n=1000000", 1_000_000, Floor::Sum),
    ("add_gelu", "n=10000000", 10_000_000, Floor::Sum),
    ("swiglu", "rows=1024,columns=1024", 1 << 20, Floor::Sum),
    ("swiglu", "rows=4096,columns=4096", 1 << 24, Floor::Sum),
    ("bias_gelu", "rows=4096,columns=4096", 1 << 24, Floor::Copy),
    ("bias_dropout_residual", "rows=4096,columns=1024", 1 << 22, Floor::Sum),
    ("layernorm", "rows=4096,columns=768", 4096 * 768, Floor::Copy),
    ("layernorm", "rows=4096,columns=4096", 1 << 24, Floor::Copy),
    ("layernorm_gelu", "rows=4096,columns=768", 4096 * 768, Floor::Copy),
    ("rmsnorm", "rows=4096,columns=4096", 1 << 24, Floor::Copy),
    ("softmax", "rows=4096,columns=1024", 1 << 22, Floor::Copy),
    ("layernorm_quantize_int8", "rows=4096,columns=4096", 1 << 24, Floor::Copy),
    ("linear_bias_gelu", "m=512,k=768,n=3072", 0, Floor::Products(2.0 * 512.0 * 768.0 * 3072.0)),
    ("linear_bias_gelu", "m=197,k=771,n=768", 0, Floor::Products(2.0 * 197.0 * 771.0 * 768.0)),
    ("linear_bias_gelu", "m=1,k=4096,n=4096", 0, Floor::Products(2.0 * 4096.0 * 4096.0)),
    (
        "attention",
        "batch=1,heads=12,queries=512,keys=512,size=64",
        0,
        Floor::Products(4.0 * 12.0 * 512.0 * 512.0 * 64.0),
    ),
    (
        "causal_attention",
        "batch=1,heads=12,tokens=2048,size=64",
        0,
        Floor::Products(2.0 * 12.0 * 2048.0 * 2048.0 * 64.0),
    ),
];

fn main() -> Result<()> {
    let (options, names) = arguments();
    let number = |name: &str, usual: f64| options.get(name).map_or(usual, |n| n.parse().expect("a number"));
    let (threads, rounds) = (number("threads", 1.0) as usize, number("rounds", 31.0) as usize);
    let gflops = number("gflops", 178.0) * threads as f64;
    println!("{:24} {:44} {:>10} {:>10} {:>10} {:>7}", "kernel", "sizes", "min µs", "median µs", "floor µs", "ratio");
    for (name, sizes, elements, floor) in CASES {
        if !names.is_empty() && !names.iter().any(|n| n == name) {
            continue;
        }
        let entry = gallery::find(name).ok_or_else(|| Error::invalid(format!("the gallery has no {name}")))?;
        let planned = |graph: Graph, text: &str| {
            let mut options = PlanOptions::on(here::spec());
            options.hints.env = fuseline_bench::sizes(text);
            Case::new(graph, &options, threads)
        };
        let mut case = planned(entry.graph(DType::F32)?, sizes)?;
        let (mut ours, mut least) = (Vec::new(), Vec::new());
        let mut sum = match floor {
            Floor::Sum => Some(planned(sum_of_two()?, &format!("n={elements}"))?),
            _ => None,
        };
        let source = vec![1f32; *elements];
        let mut target = vec![0f32; *elements];
        for _ in 0..=rounds {
            ours.push(case.run()?);
            match (floor, &mut sum) {
                (Floor::Sum, Some(sum)) => least.push(sum.run()?),
                (Floor::Copy, _) => least.push(time(|| target.copy_from_slice(std::hint::black_box(&source)))),
                (Floor::Products(flops), _) => least.push(flops / gflops / 1e3),
                (Floor::Sum, None) => {}
            }
        }
        // The first round warms up.
        let (ours, least) = (sorted(&ours[1..]), sorted(&least[1..]));
        println!(
            "{name:24} {sizes:44} {:10.1} {:10.1} {:10.1} {:7.2}",
            ours[0],
            ours[ours.len() / 2],
            least[0],
            ours[0] / least[0]
        );
    }
    Ok(())
}

fn sum_of_two() -> Result<Graph> {
    let b = Builder::new("sum");
    let [x, y] = ["x", "y"].map(|name| b.input(name, DType::F32, Shape::new([Dim::named("n")])));
    b.output("z", x + y);
    b.finish()
}

fn time(work: impl FnOnce()) -> f64 {
    let start = Instant::now();
    work();
    start.elapsed().as_secs_f64() * 1e6
}

fn sorted(times: &[f64]) -> Vec<f64> {
    let mut times = times.to_vec();
    times.sort_by(f64::total_cmp);
    times
}
