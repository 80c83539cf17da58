//! Attention of all sizes: one kernel on every device, whatever the type, and its matrix is never stored.
//!
//! A part of the sizes is looked at here; `EVERY_SIZE=1 cargo test --release -p fuseline-tests --test suites attention_sizes::` takes all.

use fuseline::compile::plan_program;
use fuseline::device::{DeviceSpec, Unit};
use fuseline::fuse::{Kind, Plan, PlanOptions, plan};
use fuseline::gallery;
use fuseline::graph::{Builder, Graph};
use fuseline::ops::prim::Monoid;
use fuseline::tensor::{DType, Dim, Shape, Symbol};
use fuseline::tile::Schedule;

const TARGETS: [&str; 5] = ["cpu", "avx2", "a100", "h100", "h200"];

/// What is run of an entry of the gallery, after passes and rewrites, which do not depend on device and sizes.
fn compiled(name: &str, dtype: DType) -> Graph {
    let graph = gallery::find(name).unwrap_or_else(|| panic!("{name} is gone")).graph(dtype).unwrap();
    rewritten(graph)
}

fn rewritten(graph: Graph) -> Graph {
    let options = PlanOptions::on(DeviceSpec::find("cpu").unwrap());
    plan_program(graph, &options, &mut |_| {}).unwrap().program.run().clone()
}

/// Heads, queries, keys, width of a head.
type Sizes = [i64; 4];

fn planned(graph: &Graph, target: &str, [heads, queries, keys, size]: Sizes) -> Plan {
    let mut options = PlanOptions::on(DeviceSpec::find(target).unwrap());
    let sizes =
        [("batch", 1), ("heads", heads), ("queries", queries), ("keys", keys), ("tokens", keys), ("size", size)];
    for (name, size) in sizes {
        options.hints.env.bind(Symbol::name(name), size);
    }
    let plan = plan(graph, &options).unwrap();
    plan.check(graph).unwrap();
    plan
}

/// What is wrong if the graph is more than one kernel.
fn apart(graph: &Graph, target: &str, sizes: Sizes) -> Option<String> {
    let plan = planned(graph, target, sizes);
    if plan.kernels.len() == 1 && plan.kernels[0].kind == Kind::Attention {
        return None;
    }
    let kinds: Vec<(&str, f64)> = plan.kernels.iter().map(|k| (k.kind.name(), k.price.us)).collect();
    let refused = plan.decisions.iter().filter(|d| d.rule == "attention");
    let why: Vec<String> = refused.filter_map(|d| d.reason.as_ref().map(ToString::to_string)).collect();
    Some(format!("on {target}, {sizes:?}: {kinds:?}: {why:?}"))
}

const TOKENS: [i64; 9] = [16, 64, 128, 197, 256, 512, 1024, 2048, 8192];
const WIDTHS: [i64; 5] = [16, 64, 80, 128, 256];
const HEADS: [i64; 4] = [1, 8, 12, 64];

/// Combinations of sizes, those whose number has the remainder if not all are wanted. The numbers of tokens, widths and heads
/// have no common factor with 13, so that each remainder has each of them.
fn sizes(remainder: usize) -> Vec<Sizes> {
    let every = std::env::var_os("EVERY_SIZE").is_some();
    let squares = |n: i64| WIDTHS.into_iter().flat_map(move |d| HEADS.into_iter().map(move |h| [h, n, n, d]));
    let all = TOKENS.into_iter().flat_map(squares).enumerate();
    all.filter(|(k, _)| every || k % 13 == remainder % 13).map(|(_, sizes)| sizes).collect()
}

#[test]
fn attention_of_every_size_is_one_kernel() {
    let (mut wrong, mut round) = (Vec::new(), 0);
    for name in ["attention", "causal_attention", "masked_attention"] {
        for dtype in [DType::F32, DType::F16, DType::BF16] {
            let graph = compiled(name, dtype);
            for target in TARGETS {
                round += 1;
                let found = sizes(round).into_iter().filter_map(|sizes| apart(&graph, target, sizes));
                wrong.extend(found.map(|why| format!("{name} in {dtype} {why}")));
            }
        }
    }
    assert!(wrong.is_empty(), "{} cases:\n{}", wrong.len(), wrong.join("\n"));
}

#[test]
fn workers_share_a_stream_where_there_are_few_rows() {
    let graph = compiled("attention", DType::F16);
    let parts = |target: &str, sizes: Sizes| {
        assert_eq!(apart(&graph, target, sizes), None);
        match &planned(&graph, target, sizes).kernels[0].kernel.schedule {
            Schedule::Attention { parts, .. } => *parts,
            other => panic!("{other:?}"),
        }
    };
    for target in ["a100", "h100", "h200"] {
        assert!(parts(target, [8, 1, 16384, 128]) >= 8, "one token after many, on {target}");
        assert_eq!(parts(target, [64, 4096, 4096, 128]), 1, "as many rows as anybody wants, on {target}");
        assert_eq!(parts(target, [8, 1, 128, 128]), 1, "nothing to share, on {target}");
    }
}

/// Attention as it is written where scores are weighed in f32 and rounded for the second product.
fn mixed(dtype: DType) -> Graph {
    let b = Builder::new("mixed");
    let input = |name: &str, length: &str| {
        b.input(name, dtype, ["heads", length, "size"].into_iter().map(Dim::named).collect::<Shape>())
    };
    let (q, k, v) = (input("q", "queries"), input("k", "keys"), input("v", "keys"));
    let scores = q.contract("hqd,hkd->hqk", k).cast(DType::F32) * 0.125;
    let e = (scores - scores.reduce_keep(Monoid::Max, &[2])).exp();
    let p = (e / e.sum(&[2])).cast(dtype);
    b.output("y", p.contract("hqk,hkd->hqd", v));
    rewritten(b.finish().unwrap())
}

#[test]
fn narrow_factors_are_multiplied_by_the_units_for_them() {
    for dtype in [DType::F16, DType::BF16] {
        for graph in [compiled("attention", dtype), mixed(dtype)] {
            let plan = planned(&graph, "h200", [16, 4096, 4096, 128]);
            let [kernel] = plan.kernels.as_slice() else { panic!("{graph}: {} kernels", plan.kernels.len()) };
            let units: Vec<Unit> = kernel.work.operations.iter().map(|(unit, _)| *unit).collect();
            let products = units.iter().filter(|u| matches!(u, Unit::Matrix(_) | Unit::Fma(_)));
            assert_eq!(products.collect::<Vec<_>>(), [&Unit::Matrix(dtype)], "{graph}\n{}", kernel.kernel);
        }
    }
    // What is f32 before it is rounded away is not narrow; neither is a product of two types.
    let b = Builder::new("wide");
    let square = |name: &str, dtype| b.input(name, dtype, Shape::new([1024usize, 1024]));
    let (x, w) = (square("x", DType::F32), square("w", DType::F16).cast(DType::F32));
    b.output("y", x.matmul(w));
    let plan = planned(&b.finish().unwrap(), "h200", [1; 4]);
    assert!(plan.kernels.iter().all(|k| !k.work.operations.iter().any(|(u, _)| matches!(u, Unit::Matrix(_)))));
}

#[test]
fn a_product_of_widened_factors_costs_what_the_narrow_one_costs() {
    for target in TARGETS {
        for dtype in [DType::F16, DType::BF16] {
            let time = |widen: bool| {
                let b = Builder::new("product");
                let square = |name: &str| b.input(name, dtype, Shape::new([2048usize, 2048]));
                let wide = |name: &str| if widen { square(name).cast(DType::F32) } else { square(name) };
                b.output("y", wide("x").matmul(wide("w")).cast(dtype));
                let plan = planned(&b.finish().unwrap(), target, [1; 4]);
                assert_eq!(plan.kernels.len(), 1, "{dtype} on {target}");
                plan.cost.us
            };
            assert!(
                (time(true) - time(false)).abs() < 0.01 * time(false),
                "{dtype} on {target}: {} {}",
                time(true),
                time(false)
            );
        }
    }
}

#[test]
fn long_attention_is_priced_as_it_is_known_to_run() {
    // 16 heads of 16384 tokens, width 128. Published: 225 TFLOP/s on an A100 (FlashAttention 2). Our kernel on an H200, 64 heads of
    // 4096 tokens: 398 (bench/results/gpu.md; cuDNN has 620).
    let graph = compiled("attention", DType::F16);
    for (target, known) in [("a100", 225.0), ("h200", 398.0)] {
        let plan = planned(&graph, target, [16, 16384, 16384, 128]);
        let flops = 4.0 * 16.0 * 16384.0 * 16384.0 * 128.0;
        let reached = flops / plan.cost.us / 1e6;
        assert!((reached / known - 1.0).abs() < 0.15, "{target}: {reached} TFLOP/s");
    }
}
