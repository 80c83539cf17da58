//! Graphs built by hand, and what the reference says of them.

use std::sync::Arc;

use fuseline::error::Result;
use fuseline::graph::Builder;
use fuseline::ops::prim::Monoid;
use fuseline::reference::{Options, evaluate};
use fuseline::tensor::{DType, Dim, Literal, Shape};

fn run(builder: Builder, inputs: &[(&str, Literal)]) -> Result<Vec<Literal>> {
    let graph = builder.finish()?;
    let inputs = inputs.iter().map(|(n, l)| (Arc::from(*n), l.clone())).collect();
    evaluate(&graph, &inputs, &Options::default())
}

fn f32s(sizes: &[usize], values: &[f64]) -> Literal {
    Literal::from_f64s(DType::F32, sizes.to_vec(), values).unwrap()
}

#[test]
fn softmax_sums_to_one_for_any_size() {
    let b = Builder::new("softmax");
    let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(3)]));
    let e = (x - x.reduce_keep(Monoid::Max, &[1])).exp();
    b.output("y", e / e.sum(&[1]));
    let y = run(b, &[("x", f32s(&[2, 3], &[1.0, 2.0, 3.0, 0.0, 0.0, 0.0]))]).unwrap();
    let y = y[0].to_f64s();
    assert!((y[..3].iter().sum::<f64>() - 1.0).abs() < 1e-6 && (y[4] - 1.0 / 3.0).abs() < 1e-7, "{y:?}");
}

#[test]
fn a_reshape_of_a_transpose_reads_the_right_elements() {
    let b = Builder::new("heads");
    let (n, s) = (Dim::named("n"), Dim::named("s"));
    let x = b.input("x", DType::F32, Shape::new([n.clone(), s.clone(), Dim::int(6)]));
    let heads = x.reshape(Shape::new([n.clone(), s.clone(), Dim::int(2), Dim::int(3)])).permute(&[0, 2, 1, 3]);
    let back = heads.permute(&[0, 2, 1, 3]).reshape(Shape::new([&n * &s, Dim::int(6)]));
    b.output("heads", heads.reshape(Shape::new([n * s * 6])));
    b.output("back", back);
    let values: Vec<f64> = (0..24).map(f64::from).collect();
    let y = run(b, &[("x", f32s(&[2, 2, 6], &values))]).unwrap();
    assert_eq!(y[0].to_f64s()[..12], [0., 1., 2., 6., 7., 8., 3., 4., 5., 9., 10., 11.]);
    assert_eq!(y[1].to_f64s(), values);
}

#[test]
fn a_convolution_is_a_contraction_of_windows() {
    use fuseline::graph::WindowAxis;
    let b = Builder::new("conv");
    let x = b.input("x", DType::F32, Shape::new([1usize, 1, 4]));
    let w = b.input("w", DType::F32, Shape::new([1usize, 1, 3]));
    let axis = WindowAxis { size: 3usize.into(), stride: 1, dilation: 1, before: 1usize.into(), count: 4usize.into() };
    b.output("y", x.windows(&[axis], 0.0).contract("ncxk,ock->nox", w));
    let y = run(b, &[("x", f32s(&[1, 1, 4], &[1., 2., 3., 4.])), ("w", f32s(&[1, 1, 3], &[1., 10., 100.]))]).unwrap();
    assert_eq!(y[0].to_f64s(), [210., 321., 432., 43.]);
}

#[test]
fn errors_name_what_does_not_fit() {
    let b = Builder::new("bad");
    let x = b.input("x", DType::F32, Shape::new([2usize, 3]));
    let y = b.input("y", DType::F32, Shape::new([4usize]));
    b.output("z", (x + y).exp());
    assert_eq!(b.finish().unwrap_err().message(), "shapes [2, 3] and [4] do not broadcast");
}

#[test]
fn sizes_that_differ_at_run_time_are_refused() {
    let b = Builder::new("sizes");
    let x = b.input("x", DType::F32, Shape::new([Dim::named("a")]));
    let y = b.input("y", DType::F32, Shape::new([Dim::named("b")]));
    b.output("z", x + y);
    let error = run(b, &[("x", f32s(&[2], &[1., 2.])), ("y", f32s(&[3], &[1., 2., 3.]))]).unwrap_err();
    assert!(error.message().contains("a = 2 and b = 3 must be equal"), "{error}");
}
