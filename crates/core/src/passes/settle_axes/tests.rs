use super::super::testing::{applied, check, count};
use super::super::{Numerics, run_passes};
use super::*;
use crate::graph::Builder;
use crate::tensor::{DType, TensorType};

fn dims() -> [Dim; 3] {
    ["n", "s", "t"].map(Dim::named)
}

/// The types of what a graph computes.
fn computed(graph: &Graph) -> Vec<String> {
    let computed = |node: &&Node| !matches!(node.prim(), Prim::View(_) | Prim::Input(_) | Prim::Const(_));
    graph.nodes().iter().filter(computed).map(|node| node.types()[0].to_string()).collect()
}

/// A view between two others is composed first, as in the list of passes.
fn check_composed(graph: Graph) -> Graph {
    let strict = Context { numerics: Numerics::Strict, ..Context::default() };
    let after = check(&PASS, applied(&super::super::compose_views::PASS, &graph, &strict));
    let all = run_passes(graph, &strict, &mut |_| {}).unwrap();
    assert_eq!(run_passes(all.clone(), &strict, &mut |_| {}).unwrap(), all);
    after
}

#[test]
fn rows_that_are_flattened_and_unflattened_keep_their_axes() {
    let b = Builder::new("rows");
    let [n, s, _] = dims();
    let x = b.input("x", DType::F32, Shape::new([n.clone(), s.clone(), Dim::int(6)]));
    let w = b.input("w", DType::F32, Shape::new([6usize, 5]));
    let rows = x.reshape(Shape::new([&n * &s, Dim::int(6)]));
    let y = (rows - rows.mean(&[1])).contract("mk,kn->mn", w).exp();
    b.output("y", y.reshape(Shape::new([n, s, Dim::int(5)])));
    let after = check_composed(b.finish().unwrap());
    let flat = |ty: &TensorType| ty.shape.dims().contains(&(Dim::named("n") * Dim::named("s")));
    assert!(!after.nodes().iter().any(|node| node.types().iter().any(flat)), "{after}");
}

#[test]
fn rows_that_stay_flat_are_computed_flat() {
    let b = Builder::new("flat");
    let [n, s, _] = dims();
    let x = b.input("x", DType::F32, Shape::new([n.clone(), s.clone(), Dim::int(6)]));
    b.output("y", x.reshape(Shape::new([&n * &s, Dim::int(6)])).exp());
    let graph = b.finish().unwrap();
    assert_eq!(check_composed(graph.clone()), graph);
}

#[test]
fn batch_and_heads_that_a_product_joins_are_apart() {
    let b = Builder::new("heads");
    let [n, s, t] = dims();
    let heads = |name: &str, length: &Dim| {
        b.input(name, DType::F32, Shape::new([n.clone(), Dim::int(4), length.clone(), Dim::int(3)]))
    };
    let join = |x: crate::graph::Tensor<'_>, sizes: [&Dim; 2]| {
        Shape::new([x.dim(0).unwrap() * 4, sizes[0].clone(), sizes[1].clone()])
    };
    let (q, k) = (heads("q", &s), heads("k", &t));
    let three = Dim::int(3);
    let scores = q.reshape(join(q, [&s, &three])).contract("bqe,bke->bqk", k.reshape(join(k, [&t, &three])));
    let mask = b.input("mask", DType::F32, Shape::new([n.clone(), Dim::int(1), Dim::int(1), t.clone()]));
    let four = scores.reshape(Shape::new([n.clone(), Dim::int(4), s.clone(), t.clone()])) + mask;
    let y = four
        .exp()
        .reshape(Shape::new([&n * 4, s.clone(), t.clone()]))
        .contract("bqk,bke->bqe", k.reshape(join(k, [&t, &three])));
    b.output("y", y.reshape(Shape::new([n, Dim::int(4), s, three])));
    let after = check_composed(b.finish().unwrap());
    let types = ["f32[n, 4, s, t]", "f32[n, 4, s, t]", "f32[n, 4, s, t]", "f32[n, 4, s, 3]"];
    assert_eq!(computed(&after), types, "{after}");
    assert_eq!(count(&after, "view"), 1, "only the mask is repeated: {after}");
}

#[test]
fn a_norm_between_two_transposes_needs_none() {
    let b = Builder::new("channels");
    let [n, s, _] = dims();
    let x = b.input("x", DType::F32, Shape::new([n, s, Dim::int(6)]));
    let turned = x.permute(&[0, 2, 1]);
    let centred = turned - turned.mean(&[1]);
    let y = centred / (centred.square().mean(&[1]) + 1e-5).sqrt();
    b.output("y", y.permute(&[0, 2, 1]));
    let after = check_composed(b.finish().unwrap());
    let turned = |ty: &TensorType| ty.shape.rank() == 3 && ty.shape[1].is(6);
    assert!(!after.nodes().iter().any(|node| node.types().iter().any(turned)), "{after}");
    let axes = after.nodes().iter().filter_map(|node| match node.prim() {
        Prim::Reduce(row) => Some(row.axes.clone()),
        _ => None,
    });
    assert!(axes.eq([vec![2], vec![2]]), "{after}");
}

#[test]
fn axes_of_size_one_are_left_out_but_of_outputs() {
    let b = Builder::new("ones");
    let [n, s, _] = dims();
    let x = b.input("x", DType::F32, Shape::new([n.clone(), s.clone(), Dim::int(6)]));
    let mean = x.mean(&[2]);
    b.output("y", x - mean.exp());
    b.output("mean", mean);
    let w = b.input("w", DType::F32, Shape::new([1usize, 6, 4]));
    b.output("z", x.reshape(Shape::new([Dim::int(1), n, s, Dim::int(6)])).contract("hbqe,hev->hbqv", w).sum(&[2]));
    let after = check_composed(b.finish().unwrap());
    let types = ["f32[n, s]", "f32[n, s, 1]", "f32[n, s]", "f32[n, s, 6]", "f32[n, s, 4]", "f32[n, 4]"];
    let mut sorted = computed(&after);
    sorted.retain(|ty| ty != "f32[]");
    assert!(types.iter().all(|ty| sorted.contains(&ty.to_string())), "{after}");
    assert!(!sorted.contains(&"f32[1, n, s, 4]".to_owned()), "{after}");
}

#[test]
fn heads_that_are_merged_are_written_where_they_are_read() {
    let b = Builder::new("merge");
    let [n, s, t] = dims();
    let p = b.input("p", DType::F32, Shape::new([n.clone(), Dim::int(4), s.clone(), t.clone()]));
    let v = b.input("v", DType::F32, Shape::new([n.clone(), Dim::int(4), t, Dim::int(3)]));
    let w = b.input("w", DType::F32, Shape::new([12usize, 5]));
    let merged = p.contract("bhqk,bhke->bhqe", v).permute(&[0, 2, 1, 3]).reshape(Shape::new([n, s, Dim::int(12)]));
    b.output("y", merged.matmul(w));
    let after = check_composed(b.finish().unwrap());
    assert_eq!(computed(&after), ["f32[n, s, 4, 3]", "f32[n, s, 5]"], "{after}");
}

#[test]
fn a_projection_keeps_its_columns_together() {
    let b = Builder::new("projection");
    let [n, s, _] = dims();
    let x = b.input("x", DType::F32, Shape::new([n.clone(), s.clone(), Dim::int(6)]));
    let w = b.input("w", DType::F32, Shape::new([6usize, 12]));
    let heads = x.matmul(w).exp().reshape(Shape::new([n, s, Dim::int(4), Dim::int(3)])).permute(&[0, 2, 1, 3]);
    b.output("y", heads.sum(&[2]));
    let after = check_composed(b.finish().unwrap());
    assert!(computed(&after).starts_with(&["f32[n, s, 12]".into(), "f32[n, s, 12]".into()]), "{after}");
}

#[test]
fn a_fold_over_axes_that_were_joined_folds_each() {
    let b = Builder::new("columns");
    let [n, s, _] = dims();
    let x = b.input("x", DType::F32, Shape::new([n.clone(), s.clone(), Dim::int(6)]));
    let rows = x.reshape(Shape::new([&n * &s, Dim::int(6)]));
    b.output("sum", rows.exp().reduce(crate::ops::prim::Monoid::Sum, &[0]));
    b.output("largest", rows.reduce(crate::ops::prim::Monoid::ArgMax, &[0]));
    let after = check_composed(b.finish().unwrap());
    let folds: Vec<_> = after.nodes().iter().filter(|node| matches!(node.prim(), Prim::Reduce(_))).collect();
    let axes: Vec<_> = folds.iter().map(|node| after.ty(node.args()[0]).shape.to_string()).collect();
    assert_eq!(axes, ["[n, s, 6]", "[n*s, 6]"], "a position counts along one axis: {after}");
}

#[test]
fn a_fold_follows_the_order_of_its_operand() {
    let b = Builder::new("order");
    let [n, s, t] = dims();
    let q = b.input("q", DType::F32, Shape::new([n.clone(), s.clone(), Dim::int(4), Dim::int(3)]));
    let k = b.input("k", DType::F32, Shape::new([n, t, Dim::int(4), Dim::int(3)]));
    let scores = q.contract("bqhe,bkhe->bqhk", k).permute(&[0, 2, 1, 3]);
    let e = (scores - scores.reduce_keep(crate::ops::prim::Monoid::Max, &[3])).exp();
    b.output("y", (e / e.sum(&[3])).contract("bhqk,bkhe->bqhe", k));
    let after = check_composed(b.finish().unwrap());
    let views = after.nodes().iter().filter_map(|node| match node.prim() {
        Prim::View(view) => Some(view.map.len()),
        _ => None,
    });
    assert!(views.eq([3, 3, 4]), "two folds are repeated, a contraction reads in its order: {after}");
}
