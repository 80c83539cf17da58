//! Graphs that are large in one direction.

use fuseline::graph::{Builder, Graph, Tensor};
use fuseline::ops::Scalar;
use fuseline::ops::prim::Monoid;
use fuseline::tensor::{DType, Dim, Shape};

/// A builder of a graph of about so many nodes.
pub type Extreme = fn(usize) -> Graph;

/// Every kind, by name.
pub const EXTREMES: &[(&str, Extreme)] = &[
    ("chain", chain),
    ("readers", readers),
    ("readers of two", readers_of_two),
    ("branches", branches),
    ("skips", skips),
    ("sums", sums),
    ("paddings", paddings),
    ("attentions", attentions),
];

/// Functions without inverses among them, so that no algebra makes a chain shorter.
const FUNCTIONS: [Scalar; 5] = [Scalar::Sin, Scalar::Tanh, Scalar::Erf, Scalar::Atan, Scalar::Cos];

fn function(x: Tensor<'_>, k: usize) -> Tensor<'_> {
    x.apply(FUNCTIONS[(k * k + k / 7) % FUNCTIONS.len()])
}

fn input<'b>(b: &'b Builder, name: &str) -> Tensor<'b> {
    b.input(name, DType::F32, Shape::new([Dim::named("n"), Dim::int(64)]))
}

fn finished(b: Builder) -> Graph {
    b.finish().expect("the graph is well-formed")
}

/// One elementwise node behind another.
pub fn chain(count: usize) -> Graph {
    let b = Builder::new("chain");
    let end = (0..count).fold(input(&b, "x"), function);
    b.output("y", end);
    finished(b)
}

/// One value with very many readers, all of them results.
pub fn readers(count: usize) -> Graph {
    let b = Builder::new("readers");
    let x = input(&b, "x").exp();
    for k in 0..count {
        b.output(&format!("y{k}"), function(x + (k + 1) as f64, k));
    }
    finished(b)
}

/// Very many readers of one value, each of which reads a value of its own too.
pub fn readers_of_two(count: usize) -> Graph {
    let b = Builder::new("readers_of_two");
    let (x, y) = (input(&b, "x").exp(), input(&b, "y"));
    for k in 0..count / 3 {
        let own = function(y.slice(1, (k % 64) as i64, 1usize, 1) + (k + 1) as f64, k).sum(&[1]);
        b.output(&format!("y{k}"), x.element(1, (k % 64) as i64) * own);
    }
    finished(b)
}

/// Very many chains side by side, put behind one another in the end.
pub fn branches(count: usize) -> Graph {
    let b = Builder::new("branches");
    let x = input(&b, "x");
    let parts: Vec<Tensor<'_>> = (0..count / 3).map(|k| function(function(x + k as f64, k), k + 1)).collect();
    b.output("y", b.concat(&parts, 1));
    finished(b)
}

/// A chain every node of which also reads the first one, and one far before.
pub fn skips(count: usize) -> Graph {
    let b = Builder::new("skips");
    let first = input(&b, "x").exp();
    let mut all = vec![first];
    for k in 0..count / 3 {
        let far = all[all.len() / 2];
        all.push(function(all[all.len() - 1] * first + far, k));
    }
    b.output("y", all[all.len() - 1]);
    finished(b)
}

/// A chain of norms: every row is divided by its own sum.
pub fn sums(count: usize) -> Graph {
    let b = Builder::new("sums");
    let mut x = input(&b, "x");
    for k in 0..count / 4 {
        x = function(x, k);
        x = x / (x * x).mean(&[1]);
    }
    b.output("y", x);
    finished(b)
}

/// Views that cannot be one: paddings with different numbers in turn.
pub fn paddings(count: usize) -> Graph {
    let b = Builder::new("paddings");
    let mut x = input(&b, "x");
    for k in 0..count {
        x = x.pad(&[Dim::int(0), Dim::int(0)], &[Dim::int(0), Dim::int(1)], (k % 2) as f64);
    }
    b.output("y", x.exp());
    finished(b)
}

/// Layers of attention behind one another that all read one mask.
pub fn attentions(count: usize) -> Graph {
    let b = Builder::new("attentions");
    let (mut x, y) = (input(&b, "x"), input(&b, "y").element(1, 0i64));
    let mask = y.insert_axes(&[1]).sin() - y.insert_axes(&[0]).cos();
    for k in 0..count / 7 {
        let scores = x.contract("ik,jk->ij", x) * 0.125 + mask;
        let e = (scores - scores.reduce_keep(Monoid::Max, &[1])).exp();
        x = function((e / e.sum(&[1])).contract("ij,jk->ik", x), k);
    }
    b.output("y", x);
    finished(b)
}
