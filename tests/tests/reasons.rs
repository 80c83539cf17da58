//! Why not: for every reason a graph and a device where it is the true one, and what the other choice would bring.

use std::collections::BTreeSet;

use fuseline::compile::plan_program;
use fuseline::device::DeviceSpec;
use fuseline::fuse::{Chooser, Decision, Plan, PlanOptions, Policy, Verdict};
use fuseline::graph::{Builder, Graph, Tensor};
use fuseline::ops::Scalar;
use fuseline::ops::prim::Monoid;
use fuseline::tensor::{DType, Literal, Shape};

fn plan(graph: &Graph, options: &PlanOptions) -> Plan {
    plan_program(graph.clone(), options, &mut |_| {}).unwrap_or_else(|e| panic!("{e}")).run
}

fn on(target: &str) -> PlanOptions {
    PlanOptions::on(DeviceSpec::find(target).unwrap())
}

fn refusals<'p>(plan: &'p Plan, code: &str) -> Vec<&'p Decision> {
    let is = |d: &&Decision| d.reason.as_ref().is_some_and(|r| r.code() == code);
    plan.decisions.iter().filter(|d| d.verdict == Verdict::Refused).filter(is).collect()
}

fn codes(plan: &Plan) -> Vec<String> {
    plan.decisions.iter().filter_map(|d| Some(format!("{} {}", d.rule, d.reason.as_ref()?.code()))).collect()
}

/// The reason occurs, and deciding the other way is impossible or costs time.
fn assert_reason(graph: &Graph, options: &PlanOptions, code: &str) {
    let plain = plan(graph, options);
    let found = refusals(&plain, code);
    let Some(decision) = found.first() else { panic!("no refusal is {code}: {:?}", codes(&plain)) };
    let mut flipped = options.clone();
    flipped.pins.together = BTreeSet::from([decision.id]);
    let other = plan(graph, &flipped);
    let illegal = decision.reason.as_ref().is_some_and(|r| r.is_illegal());
    if illegal {
        assert_eq!(other.kernels.len(), plain.kernels.len(), "{code}: it is illegal and was done");
    } else {
        assert!(other.cost.us > plain.cost.us, "{code}: {} us, the other way {} us", plain.cost.us, other.cost.us);
    }
}

fn matrix<'b>(b: &'b Builder, name: &str, rows: usize, columns: usize) -> Tensor<'b> {
    b.input(name, DType::F32, Shape::new([rows, columns]))
}

fn drawn(draw: impl Fn(&Builder)) -> Graph {
    let b = Builder::new("case");
    draw(&b);
    b.finish().unwrap()
}

fn norm(x: Tensor<'_>) -> Tensor<'_> {
    let centred = x - x.mean(&[1]);
    centred / ((centred * centred).mean(&[1]) + 1e-5).sqrt()
}

#[test]
fn a_sort_is_not_a_loop_over_tensors() {
    let graph = drawn(|b| {
        let x = matrix(b, "x", 64, 64).exp();
        b.output("y", x.sort(1, true).0);
    });
    assert_reason(&graph, &on("cpu"), "opaque");
}

#[test]
fn rows_read_from_a_computed_table_need_the_whole_table() {
    let graph = drawn(|b| {
        let table = matrix(b, "table", 1000, 64).exp();
        let ids = b.input("ids", DType::I64, Shape::new([500usize]));
        b.output("y", table.take(0, ids));
    });
    assert_reason(&graph, &on("h200"), "gather-of-fused");
}

#[test]
fn a_running_sum_read_somewhere_else_is_not_computed_twice() {
    let graph = drawn(|b| {
        let sums = matrix(b, "x", 64, 64).prefix(Monoid::Sum, 1, false);
        b.output("y", sums.slice(1, 1usize, 63usize, 1) - sums.slice(1, 0usize, 63usize, 1));
    });
    assert_reason(&graph, &on("cpu"), "prefix-moved");
}

#[test]
fn rows_longer_than_a_tile_are_not_normalised_in_it() {
    let graph = drawn(|b| b.output("y", norm(matrix(b, "x", 512, 768).matmul(matrix(b, "w", 768, 768)))));
    assert_reason(&graph, &on("h200"), "rows-too-long");
    let short = drawn(|b| b.output("y", norm(matrix(b, "x", 512, 768).matmul(matrix(b, "w", 768, 64)))));
    assert!(refusals(&plan(&short, &on("h200")), "rows-too-long").is_empty());
}

#[test]
fn a_fold_across_the_rows_of_a_product_crosses_tiles() {
    let graph = drawn(|b| {
        let y = matrix(b, "x", 4096, 64).matmul(matrix(b, "w", 64, 64));
        b.output("y", y.reduce(Monoid::Max, &[0]));
        b.output("z", y);
    });
    assert_reason(&graph, &on("h200"), "fold-across-tiles");
}

#[test]
fn two_layers_are_two_contractions() {
    let graph = drawn(|b| {
        let hidden = matrix(b, "x", 128, 256).matmul(matrix(b, "w", 256, 1024)).max(0.0);
        b.output("y", hidden.matmul(matrix(b, "v", 1024, 256)));
    });
    assert_reason(&graph, &on("cpu"), "nested-contraction");
}

/// Attention with a function of the scores and their largest in a row, and whether its matrix is a result.
fn attention(weigh: impl Fn(Tensor<'_>, Tensor<'_>) -> String, keep: bool) -> Graph {
    let b = Builder::new("attention");
    let [q, k, v] = ["q", "k", "v"].map(|name| b.input(name, DType::F32, Shape::new([4usize, 256, 64])));
    let scores = q.matmul(k.permute(&[0, 2, 1]));
    let most = scores.reduce_keep(Monoid::Max, &[2]);
    let e = match weigh(scores, most).as_str() {
        "exp" => (scores - most).exp(),
        _ => (scores - most).apply(Scalar::Tanh) + 2.0,
    };
    let p = e / e.sum(&[2]);
    b.output("y", p.matmul(v));
    if keep {
        b.output("p", p);
    }
    b.finish().unwrap()
}

#[test]
fn a_matrix_that_is_a_result_is_stored() {
    assert_reason(&attention(|_, _| "exp".into(), true), &on("h200"), "probabilities-used");
}

#[test]
fn weights_that_do_not_follow_the_running_maximum_are_not_streamed() {
    assert_reason(&attention(|_, _| "tanh".into(), false), &on("h200"), "not-streamable");
    let streamed = plan(&attention(|_, _| "exp".into(), false), &on("h200"));
    assert_eq!(streamed.kernels.len(), 1, "{:?}", codes(&streamed));
}

#[test]
fn what_must_run_between_keeps_two_apart() {
    let graph = drawn(|b| {
        let x = matrix(b, "x", 64, 64).exp();
        let sorted = x.sort(1, true).0;
        b.output("y", x + sorted);
    });
    assert_reason(&graph, &on("cpu"), "cycle");
}

#[test]
fn a_kernel_has_an_end() {
    let graph = drawn(|b| {
        let mut x = matrix(b, "x", 64, 64);
        for k in 0..400 {
            x = (x + f64::from(k)).sqrt();
        }
        b.output("y", x);
    });
    assert_reason(&graph, &on("h200"), "too-large");
}

#[test]
fn a_device_says_what_it_takes() {
    let graph = drawn(|b| {
        let [x, y, z, w] = ["x", "y", "z", "w"].map(|name| matrix(b, name, 64, 64));
        b.output("sum", (x + y) * (z - w));
    });
    let mut narrow = on("h200");
    narrow.spec.limits.parameters = 3;
    assert_reason(&graph, &narrow, "too-many-parameters");
    let mut plain = on("h200");
    plain.spec.skeletons.retain(|s| s.name() != "row");
    let rows = drawn(|b| {
        let x = matrix(b, "x", 64, 64);
        b.output("y", x.exp() * x.reduce_keep(Monoid::Max, &[0]));
    });
    assert_reason(&rows, &plain, "no-skeleton");
}

#[test]
fn a_norm_in_front_of_a_large_product_is_computed_once_but_not_for_every_tile() {
    let graph = |rows: usize| {
        drawn(|b| {
            let y = norm(matrix(b, "x", rows, 1024));
            b.output("y", y.matmul(matrix(b, "w", 1024, 8192)));
        })
    };
    assert_reason(&graph(16384), &on("h200"), "slower");
    let few = plan(&graph(8), &on("h200"));
    assert_eq!(few.kernels.len(), 1, "for few rows it pays: {:?}", codes(&few));
}

#[test]
fn users_and_books_are_obeyed() {
    let graph = drawn(|b| {
        let x = matrix(b, "x", 64, 64);
        let y = x.exp();
        b.output("y", y * y.sum(&[1]));
    });
    let free = plan(&graph, &on("h200"));
    assert_eq!(free.kernels.len(), 1);
    let mut apart = on("h200");
    let taken = free.decisions.iter().filter(|d| d.verdict == Verdict::Taken).map(|d| d.id);
    apart.pins.apart = taken.collect();
    let pinned = plan(&graph, &apart);
    assert!(pinned.kernels.len() > 1 && !refusals(&pinned, "pinned").is_empty(), "{:?}", codes(&pinned));
    assert!(pinned.cost.us > free.cost.us);
    let mut nothing = on("h200");
    nothing.fuel = Some(0);
    assert!(!refusals(&plan(&graph, &nothing), "fuel").is_empty());
    let mut books = on("cpu");
    let product = drawn(|b| b.output("y", norm(matrix(b, "x", 128, 256).matmul(matrix(b, "w", 256, 256)))));
    assert_eq!(plan(&product, &books).kernels.len(), 1);
    books.policy = Policy::Textbook;
    let bookish = plan(&product, &books);
    assert!(!refusals(&bookish, "textbook").is_empty(), "{:?}", codes(&bookish));
    let mut chance = on("h200");
    let seeds = (0..32).map(|seed| {
        chance.chooser = Chooser::AtRandom(seed);
        refusals(&plan(&product, &chance), "chance").len()
    });
    assert!(seeds.max() > Some(0));
}

#[test]
fn a_small_constant_is_no_reason() {
    // What follows from coordinates or small constants never keeps a kernel apart.
    let graph = drawn(|b| {
        let scale = b.constant(Literal::f32s(&[1.0, 2.0, 3.0, 4.0]));
        b.output("y", (matrix(b, "x", 64, 4) * scale).exp());
    });
    assert_eq!(plan(&graph, &on("cpu")).kernels.len(), 1);
}
