//! How fast the reference interpreter is: `cargo run --release -p fuseline --example reference_speed`.

use std::sync::Arc;
use std::time::Instant;

use fuseline::error::Result;
use fuseline::graph::{Builder, Graph, Tensor};
use fuseline::ops::prim::Monoid;
use fuseline::reference::{Options, evaluate};
use fuseline::tensor::{DType, Literal, Shape};

fn main() -> Result<()> {
    contraction()?;
    for (what, graph) in [("softmax", softmax()?), ("layernorm + gelu", normalise()?), ("attention", attention()?)] {
        let seconds = time(&graph)?;
        println!("{what:18} {:9.1} ms", seconds * 1e3);
    }
    Ok(())
}

fn contraction() -> Result<()> {
    let (m, k, n) = (512usize, 768, 3072);
    let b = Builder::new("contraction");
    let x = b.input("x", DType::F32, Shape::new([m, k]));
    let w = b.constant(filled(&[k, n]));
    b.output("y", x.matmul(w));
    let seconds = time(&b.finish()?)?;
    let flops = 2.0 * (m * k * n) as f64;
    println!("contraction {m}x{k}x{n} {:9.1} ms  {:.2} GFLOP/s", seconds * 1e3, flops / seconds * 1e-9);
    Ok(())
}

fn softmax() -> Result<Graph> {
    let b = Builder::new("softmax");
    let x = b.input("x", DType::F32, Shape::new([12usize, 512, 512]));
    let e = (x - x.reduce_keep(Monoid::Max, &[2])).exp();
    b.output("y", e / e.sum(&[2]));
    b.finish()
}

fn normalise() -> Result<Graph> {
    let b = Builder::new("layernorm + gelu");
    let x = b.input("x", DType::F32, Shape::new([512usize, 3072]));
    let centred = x - x.mean(&[1]);
    let y = centred / ((centred * centred).mean(&[1]) + 1e-5).sqrt();
    b.output("y", y * 0.5 * ((y / std::f64::consts::SQRT_2).erf() + 1.0));
    b.finish()
}

fn attention() -> Result<Graph> {
    let b = Builder::new("attention");
    let heads = |t: Tensor<'_>| t.reshape(Shape::new([256usize, 12, 64])).permute(&[1, 0, 2]).value();
    let [q, k, v] = ["q", "k", "v"].map(|name| heads(b.input(name, DType::F32, Shape::new([256usize, 768]))));
    let scores = b.tensor(q).contract("hsd,htd->hst", b.tensor(k)) / 8.0;
    let e = (scores - scores.reduce_keep(Monoid::Max, &[2])).exp();
    let mixed = (e / e.sum(&[2])).contract("hst,htd->hsd", b.tensor(v));
    b.output("y", mixed.permute(&[1, 0, 2]).reshape(Shape::new([256usize, 768])));
    b.finish()
}

fn filled(sizes: &[usize]) -> Literal {
    let count: usize = sizes.iter().product();
    let values: Vec<f64> = (0..count).map(|k| (k % 257) as f64 / 128.0 - 1.0).collect();
    Literal::from_f64s(DType::F32, sizes.to_vec(), &values).expect("the sizes fit the values")
}

/// Seconds of the faster of two runs.
fn time(graph: &Graph) -> Result<f64> {
    let inputs = graph.inputs().iter().map(|v| {
        let sizes = graph.ty(*v).shape.as_ints().expect("the sizes are numbers");
        (Arc::clone(graph.input_name(*v)), filled(&sizes))
    });
    let inputs = inputs.collect();
    let mut best = f64::INFINITY;
    for _ in 0..2 {
        let start = Instant::now();
        evaluate(graph, &inputs, &Options::default())?;
        best = best.min(start.elapsed().as_secs_f64());
    }
    Ok(best)
}
