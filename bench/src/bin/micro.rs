//! Small kernels against what the machine can do with the same bytes, in one process, in turn:
//! `cargo run --release -p fuseline-bench --bin micro -- [--threads=N] [--rounds=N] [--columns=N,…] [--isa=avx512|avx2] [NAME…]`.
//! With `--columns`, graphs of the gallery that work on rows of so many columns, against the nearest of 4, 8, 16 and 32.
//!
//! Elementwise kernels are compared with `a + b` written past the caches, rows with a copy of their input, contractions with the rate
//! of fused multiply-adds of the machine, products with one row with the rate at which it reads; both rates are measured before and
//! after every case. Behind the ratio of products stands that to multiply-adds which load their factors from the nearest cache: some processors
//! lower their clock for both together. `linear` has constant weights, as networks have, the other products are given theirs in every run.

use std::f64::consts::FRAC_1_SQRT_2;
use std::time::Instant;

use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline::gallery;
use fuseline::graph::{Builder, Graph};
use fuseline::tensor::{DType, Dim, Env, Literal, Shape, Symbol};
use fuseline_bench::{Case, arguments};
use fuseline_cpu::here;
use fuseline_cpu::run::gauge::{Access, Gauge};

/// What a kernel is compared with.
#[derive(Clone, Copy, PartialEq)]
enum Floor {
    /// `a + b` of as many elements
    Sum,
    /// a copy of as many elements
    Copy,
    /// so many multiplications and additions
    Products(f64),
    /// so many bytes, read
    Read(f64),
}

/// The cases: a graph of the gallery or one of [`linear`], its sizes, how many elements it writes, and its floor.
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
    ("linear_bias_gelu", "m=1,k=4096,n=4096", 0, Floor::Read(4.0 * 4096.0 * 4096.0)),
    ("linear", "m=512,k=768,n=3072", 0, Floor::Products(2.0 * 512.0 * 768.0 * 3072.0)),
    ("linear", "m=512,k=3072,n=768", 0, Floor::Products(2.0 * 512.0 * 768.0 * 3072.0)),
    ("linear, gelu", "m=512,k=768,n=3072", 0, Floor::Products(2.0 * 512.0 * 768.0 * 3072.0)),
    ("linear, gelu", "m=197,k=771,n=768", 0, Floor::Products(2.0 * 197.0 * 771.0 * 768.0)),
    ("linear, gelu", "m=1,k=4096,n=4096", 0, Floor::Read(4.0 * 4096.0 * 4096.0)),
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

/// Elements of rows that are compared with others.
const ELEMENTS: usize = 1 << 17;

/// Lengths of rows that others are compared with.
const ROUND: [usize; 4] = [4, 8, 16, 32];

/// A graph at some sizes, ready to run.
type Planned<'p> = dyn Fn(Graph, &str) -> Result<Case> + 'p;

fn main() -> Result<()> {
    let (options, names) = arguments();
    let number = |name: &str, usual: f64| options.get(name).map_or(usual, |n| n.parse().expect("a number"));
    let (threads, rounds) = (number("threads", 1.0) as usize, number("rounds", 31.0) as usize);
    let isa = fuseline_bench::isa(&options);
    let planned = |graph: Graph, text: &str| {
        let mut options = PlanOptions::on(here::spec());
        options.hints.env = fuseline_bench::sizes(text);
        Case::made_for(graph, &options, threads, isa)
    };
    if let Some(columns) = options.get("columns") {
        return compare_rows(&names, columns, rounds, &planned);
    }
    let gauge = Gauge::new(isa, threads)?;
    let titles = ["min µs", "median µs", "floor µs"];
    let [least, median, floor] = titles.map(|title| format!("{title:>10}"));
    println!("{:24} {:44} {least} {median} {floor} {:>7} {:>7}", "kernel", "sizes", "ratio", "loaded");
    let is_meant = |name: &str| names.is_empty() || names.iter().any(|n| n == name);
    for (name, sizes, elements, floor) in CASES.iter().filter(|(name, ..)| is_meant(name)) {
        let elements = *elements;
        let graph = match name.strip_prefix("linear").filter(|rest| !rest.starts_with('_')) {
            Some(rest) => linear(&fuseline_bench::sizes(sizes), !rest.is_empty())?,
            None => graph_of_gallery(name)?,
        };
        let mut case = planned(graph, sizes)?;
        let (mut ours, mut least) = (Vec::new(), Vec::new());
        let mut sum = match floor {
            Floor::Sum => Some(planned(sum_of_two()?, &format!("n={elements}"))?),
            _ => None,
        };
        // as the kernel's, both begin where a line of the cache does
        let (source, mut target) = (vec![1f32; elements + 16], vec![0f32; elements + 16]);
        let [from, to] = [&source, &target].map(|memory| memory.as_ptr().align_offset(64));
        let (source, target) = (&source[from..from + elements], &mut target[to..to + elements]);
        let before = limit(&gauge, *floor)?;
        for _ in 0..=rounds {
            ours.push(case.run()?);
            match (floor, &mut sum) {
                (Floor::Sum, Some(sum)) => least.push(sum.run()?),
                (Floor::Copy, _) => least.push(time(|| target.copy_from_slice(std::hint::black_box(source)))),
                _ => {}
            }
        }
        least.extend(before.into_iter().chain(limit(&gauge, *floor)?));
        // The first round warms up.
        let (ours, least) = (sorted(&ours[1..]), sorted(&least));
        let loaded = match floor {
            Floor::Products(flops) => format!("{:7.2}", ours[0] / (flops / gauge.loaded_multiply_adds()? * 1e6)),
            _ => String::new(),
        };
        println!(
            "{name:24} {sizes:44} {:10.1} {:10.1} {:10.1} {:7.2} {loaded}",
            ours[0],
            ours[ours.len() / 2],
            least[0],
            ours[0] / least[0]
        );
    }
    Ok(())
}

/// Graphs of the gallery that work on rows, of each of some numbers of columns, with as many elements. All lengths are run in turns, so that whoever shares
/// the machine takes from all of them.
fn compare_rows(names: &[String], columns: &str, rounds: usize, planned: &Planned<'_>) -> Result<()> {
    let columns: Vec<usize> = columns.split(',').map(|n| n.parse().expect("a number")).collect();
    println!("{:24} {:>7} {:>10} {:>12} {:>18}", "kernel", "columns", "ns a row", "ns a number", "of a round length");
    for name in names {
        let case = |n: &usize| planned(graph_of_gallery(name)?, &format!("rows={},columns={n}", ELEMENTS / n));
        let mut cases = columns.iter().map(case).collect::<Result<Vec<Case>>>()?;
        for round in 0..=rounds {
            for case in &mut cases {
                case.run()?;
                // The first round warms up.
                if round == 0 {
                    case.forget();
                }
            }
        }
        let least = |(columns, case): (&usize, &Case)| case.least() * 1e3 / (ELEMENTS / columns) as f64;
        let rows: Vec<f64> = columns.iter().zip(&cases).map(least).collect();
        for (n, ns) in columns.iter().zip(&rows) {
            let each = |place: usize| rows[place] / columns[place] as f64;
            let beside = ROUND.into_iter().filter(|_| *n > 2).min_by_key(|round| round.abs_diff(*n));
            let beside = beside.and_then(|round| columns.iter().position(|n| *n == round));
            let rate = beside.map_or(String::new(), |place| format!("{:.2}", each(place) * *n as f64 / ns));
            println!("{name:24} {n:7} {ns:10.2} {:12.3} {rate:>18}", ns / *n as f64);
        }
    }
    Ok(())
}

fn graph_of_gallery(name: &str) -> Result<Graph> {
    gallery::find(name).ok_or_else(|| Error::invalid(format!("the gallery has no {name}")))?.graph(DType::F32)
}

/// How long a case takes at the least by what the machine can do just now, in microseconds; none where something else runs in turn with it.
fn limit(gauge: &Gauge, floor: Floor) -> Result<Option<f64>> {
    Ok(match floor {
        Floor::Products(flops) => Some(flops / gauge.multiply_adds(DType::F32)? * 1e6),
        Floor::Read(bytes) => {
            let each = bytes as usize / gauge.threads();
            Some(bytes / gauge.bandwidth(Access::Read, each)? * 1e6)
        }
        Floor::Sum | Floor::Copy => None,
    })
}

/// `x · w + b` with constant weights, and perhaps the GELU of it.
fn linear(sizes: &Env, gelu: bool) -> Result<Graph> {
    let size = |name: &str| sizes.get(&Symbol::name(name)).ok_or_else(|| Error::invalid(format!("no size {name}")));
    let (k, n) = (size("k")? as usize, size("n")? as usize);
    let b = Builder::new("linear");
    let x = b.input("x", DType::F32, Shape::new([Dim::named("m"), Dim::int(k as i64)]));
    let weights: Vec<f64> = (0..k * n).map(|i| ((i * 7919) % 2003) as f64 / 2003.0 - 0.5).collect();
    let w = b.constant(Literal::from_f64s(DType::F32, [k, n], &weights)?);
    let bias = b.constant(Literal::from_f64s(DType::F32, [n], &vec![0.25; n])?);
    let y = x.matmul(w) + bias;
    b.output("y", if gelu { y * (y * FRAC_1_SQRT_2).erf() * 0.5 + y * 0.5 } else { y });
    b.finish()
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
