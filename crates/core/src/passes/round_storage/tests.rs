use super::super::{Precision, run_passes};
use super::*;
use crate::graph::Builder;
use crate::ops::Scalar;
use crate::ops::prim::Monoid;
use crate::reference::{Options, evaluate};
use crate::tensor::{Dim, Literal, Shape};

fn stored_in(graph: &Graph, precision: Precision) -> Graph {
    let context = Context { precision, narrowing: Narrowing::Storage, ..Context::default() };
    let after = run_passes(graph.clone(), &context, &mut |_| {}).unwrap();
    let mut rounds = 0;
    let again = run_passes(after.clone(), &context, &mut |step| rounds = step.round).unwrap();
    assert_eq!((&again, rounds), (&after, 0), "the passes do not settle");
    after
}

fn in_bf16(graph: &Graph) -> Graph {
    stored_in(graph, Precision::Bf16)
}

/// The shapes of what is of a type, constants apart.
fn narrow(graph: &Graph, dtype: DType) -> Vec<String> {
    let is_narrow = |node: &&Node| node.types()[0].dtype == dtype && !matches!(node.prim(), Prim::Const(_));
    graph
        .nodes()
        .iter()
        .filter(is_narrow)
        .map(|node| format!("{} {}", node.prim().name(), node.types()[0].shape))
        .collect()
}

fn table<'b>(b: &'b Builder, sizes: &[usize]) -> crate::graph::Tensor<'b> {
    let count: usize = sizes.iter().product();
    let values: Vec<f64> = (0..count).map(|k| ((k * 37 % 101) as f64 - 50.0) / 64.3).collect();
    b.constant(Literal::from_f64s(DType::F32, sizes, &values).unwrap())
}

#[test]
fn a_residual_stream_is_narrow_and_its_statistics_are_not() {
    let b = Builder::new("norm");
    let mut h = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(512)]));
    for _ in 0..2 {
        let mean = h.mean(&[1]);
        let centred = h - mean;
        let scaled = centred / ((centred * centred).mean(&[1]) + 1e-5).sqrt() * table(&b, &[512]);
        h = h + scaled.matmul(table(&b, &[512, 512]));
    }
    b.output("y", h);
    let after = in_bf16(&b.finish().unwrap());
    for node in after.nodes().iter().filter(|node| matches!(node.prim(), Prim::Reduce(_))) {
        assert_eq!(node.types()[0].dtype, DType::F32, "{after:?}");
    }
    let narrow = narrow(&after, DType::BF16);
    // The norm of either layer, both products, and the sum between the layers.
    assert_eq!(narrow.iter().filter(|what| what.contains("[n, 512]")).count(), 5, "{narrow:?}\n{after:?}");
    assert_eq!(narrow.iter().filter(|what| what.starts_with("contract")).count(), 2, "{after:?}");
    assert_eq!(after.ty(after.outputs()[0].value).dtype, DType::F32);
}

#[test]
fn outputs_are_not_rounded() {
    let b = Builder::new("logits");
    let x = b.input("x", DType::F32, Shape::new([2usize, 64]));
    let logits = x.matmul(table(&b, &[64, 512]));
    b.output("logits", logits.reshape(Shape::new([2usize, 8, 64])));
    b.output("next", logits.apply(Scalar::Sigmoid).matmul(table(&b, &[512, 64])));
    let after = in_bf16(&b.finish().unwrap());
    let wide = |name: &str| {
        let output = after.outputs().iter().find(|output| output.name.as_ref() == name).unwrap();
        behind_views(&after, output.value).clone()
    };
    for name in ["logits", "next"] {
        assert!(matches!(wide(name).prim(), Prim::Contract(_)), "{after:?}");
        assert_eq!(wide(name).types()[0].dtype, DType::F32, "{after:?}");
    }
}

#[test]
fn positions_angles_and_numbers_that_are_counted_stay() {
    let b = Builder::new("rotary");
    let n = Dim::named("n");
    let place = b.input("place", DType::I64, Shape::new([n.clone()])).cast(DType::F32);
    let id = b.input("id", DType::F32, Shape::new([n.clone()]));
    let angles = place.reshape(Shape::new([n.clone(), Dim::int(1)])) * table(&b, &[1, 512]);
    let x = b.input("x", DType::F32, Shape::new([n.clone(), Dim::int(512)]));
    let turned = x.matmul(table(&b, &[512, 512])) * angles.cos();
    b.output("y", turned.matmul(table(&b, &[512, 64])));
    b.output("truth", (id + id).equal(b.scalar(DType::F32, 50257.0)));
    let after = in_bf16(&b.finish().unwrap());
    let narrow = narrow(&after, DType::BF16);
    // The two factors of data; the table of frequencies and the angles keep their digits.
    assert!(narrow.iter().all(|what| !what.ends_with("[n]") && !what.contains("[1, 512]")), "{narrow:?}\n{after:?}");
    let frequencies =
        after.nodes().iter().filter(|node| matches!(node.prim(), Prim::Const(row) if row.literal.count() == 512));
    assert!(frequencies.into_iter().all(|node| node.types()[0].dtype == DType::F32), "{after:?}");
}

#[test]
fn masks_survive_in_either_type() {
    let b = Builder::new("masked");
    let q = b.input("q", DType::F32, Shape::new([3usize, 32]));
    let keep = b.input("keep", DType::I64, Shape::new([3usize])).cast(DType::F32);
    let mask = (b.scalar(DType::F32, 1.0) - keep) * f64::from(f32::MIN);
    let scores = q.matmul(q.transpose()) * 0.2 + mask;
    let e = (scores - scores.reduce_keep(Monoid::Max, &[1])).exp();
    b.output("y", (e / e.sum(&[1])).matmul(q));
    let graph = b.finish().unwrap();
    let values: Vec<f64> = (0..96).map(|k| f64::from(k % 11) / 8.0 - 0.6).collect();
    for precision in [Precision::Bf16, Precision::F16] {
        let after = stored_in(&graph, precision);
        for keep in [[1.0, 0.0, 1.0], [0.0; 3]] {
            let inputs = [
                ("q".into(), Literal::from_f64s(DType::F32, [3usize, 32], &values).unwrap()),
                ("keep".into(), Literal::from_f64s(DType::I64, [3usize], &keep).unwrap()),
            ];
            let inputs = inputs.into_iter().collect();
            let [exact, rounded] =
                [&graph, &after].map(|graph| evaluate(graph, &inputs, &Options::default()).unwrap()[0].to_f64s());
            for (e, r) in exact.iter().zip(&rounded) {
                assert!((e - r).abs() < 0.02, "{precision:?}: {e} became {r}\n{after:?}");
            }
        }
    }
}

#[test]
fn what_would_become_infinite_stays() {
    let b = Builder::new("large");
    let x = b.input("x", DType::F32, Shape::new([2usize, 300])).matmul(table(&b, &[300, 300]));
    let mut values: Vec<f64> = (0..300).map(|k| f64::from(k * 37 % 101) / 64.3).collect();
    values[7] = 1e6;
    let large = b.constant(Literal::from_f64s(DType::F32, [300usize], &values).unwrap());
    b.output("y", (x + large).matmul(table(&b, &[300, 16])));
    let graph = b.finish().unwrap();
    let is_wide = |after: &Graph| {
        let find = |node: &&Node| matches!(node.prim(), Prim::Const(row) if row.literal.count() == 300);
        after.nodes().iter().filter(find).any(|node| node.types()[0].dtype == DType::F32)
    };
    assert!(is_wide(&stored_in(&graph, Precision::F16)));
    assert!(!is_wide(&stored_in(&graph, Precision::Bf16)));
}

#[test]
fn factors_alone_change_nothing_else() {
    let b = Builder::new("factors");
    let x = b.input("x", DType::F32, Shape::new([2usize, 64]));
    b.output("y", x.matmul(table(&b, &[64, 64])).apply(Scalar::Sigmoid).matmul(table(&b, &[64, 64])));
    let graph = b.finish().unwrap();
    let factors = Context { precision: Precision::Bf16, ..Context::default() };
    assert_eq!(PASS.apply(&graph, &factors).unwrap(), None);
    let strict = Context { numerics: Numerics::Strict, narrowing: Narrowing::Storage, ..factors };
    assert_eq!(PASS.apply(&graph, &strict).unwrap(), None);
}
