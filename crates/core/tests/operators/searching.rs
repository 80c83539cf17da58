//! Finding and indexing: counts that only the run knows, and those that are known after all.

use fuseline::graph::Builder;
use fuseline::ops::named::Attribute;
use fuseline::tensor::{DType, Dim, Literal, Shape};

use crate::call::{counting, op, run};

fn ints(sizes: &[usize], values: &[i64]) -> Literal {
    Literal::from_ints(DType::I64, sizes.to_vec(), values).unwrap()
}

#[test]
fn the_largest_of_as_many_as_the_run_says() {
    let b = Builder::new("topk");
    let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(4)]));
    let k = b.input("k", DType::I64, Shape::new([1usize]));
    for y in op("TopK", &[x, k]).outputs(2).all(&b).unwrap() {
        b.output("largest", y);
    }
    let smallest = op("TopK", &[x, k]).outputs(2).with("largest", Attribute::Int(0)).with("axis", Attribute::Int(0));
    b.output("smallest", smallest.all(&b).unwrap()[1]);
    let x = Literal::f32s(&[3.0, 9.0, 9.0, 1.0, 0.0, 5.0, 2.0, 8.0]).reshaped([2, 4]).unwrap();
    let y = run(b, &[("x", x), ("k", ints(&[1], &[2]))]).unwrap();
    assert_eq!(y[0].to_f64s(), [9.0, 9.0, 8.0, 5.0]);
    assert_eq!(y[1].to_ints(), [1, 2, 3, 1]);
    assert_eq!(y[2].to_ints(), [1, 1, 1, 0, 0, 0, 0, 1]);
}

#[test]
fn too_many_of_the_largest_are_refused() {
    let b = Builder::new("topk");
    let x = b.input("x", DType::F32, Shape::new([Dim::named("n")]));
    let k = b.constant(ints(&[1], &[3]));
    b.output("y", op("TopK", &[x, k]).outputs(2).all(&b).unwrap()[0]);
    assert!(run(b, &[("x", counting(&[2]))]).is_err());
}

#[test]
fn one_hot_counts_from_both_ends_and_ignores_the_rest() {
    let b = Builder::new("onehot");
    let indices = b.input("i", DType::I64, Shape::new([Dim::named("n")]));
    let depth = b.input("depth", DType::F32, Shape::scalar());
    let values = b.constant(Literal::f32s(&[-1.0, 5.0]));
    b.output("y", op("OneHot", &[indices, depth, values]).with("axis", Attribute::Int(0)).one(&b));
    let depth = Literal::from_f64s(DType::F32, [], &[3.0]).unwrap();
    let y = run(b, &[("i", ints(&[4], &[0, -1, 3, -4])), ("depth", depth)]).unwrap();
    assert_eq!(y[0].sizes(), [3, 4]);
    assert_eq!(y[0].to_f64s(), [5., -1., -1., -1., -1., -1., -1., -1., -1., 5., -1., -1.]);
}

#[test]
fn what_is_not_zero_in_a_tensor_of_ones_is_everything() {
    let b = Builder::new("nonzero");
    let n = Dim::named("n");
    let x = b.input("x", DType::F32, Shape::new([n.clone(), Dim::int(2)]));
    let shape = op("Shape", &[x]).one(&b);
    let ones = op("ConstantOfShape", &[shape]).with("value", Attribute::Tensor(ints(&[1], &[1]))).one(&b);
    let all = op("NonZero", &[ones]).one(&b);
    assert_eq!(all.shape().unwrap(), Shape::new([Dim::int(2), n * 2]));
    b.output("all", all);
    b.output("some", op("NonZero", &[x]).one(&b));
    let y = run(b, &[("x", counting(&[3, 2]))]).unwrap();
    assert_eq!(y[0].to_ints(), [0, 0, 1, 1, 2, 2, 0, 1, 0, 1, 0, 1]);
    assert_eq!(y[1].to_ints(), [0, 1, 1, 2, 2, 1, 0, 1, 0, 1]);
}

#[test]
fn compress_takes_where_the_condition_holds() {
    let b = Builder::new("compress");
    let x = b.input("x", DType::F32, Shape::new([Dim::named("n"), Dim::int(3)]));
    let condition = b.input("c", DType::Bool, Shape::new([Dim::named("c")]));
    b.output("columns", op("Compress", &[x, condition]).with("axis", Attribute::Int(-1)).one(&b));
    b.output("flat", op("Compress", &[x, condition]).one(&b));
    let c = Literal::from_ints(DType::Bool, [3], &[0, 1, 1]).unwrap();
    let y = run(b, &[("x", counting(&[2, 3])), ("c", c)]).unwrap();
    assert_eq!(y[0].to_f64s(), [1.0, 2.0, 4.0, 5.0]);
    assert_eq!(y[1].to_f64s(), [1.0, 2.0]);
}

#[test]
fn unique_rows_in_order_of_appearance() {
    let b = Builder::new("unique");
    let x = b.input("x", DType::I64, Shape::new([Dim::named("n"), Dim::int(2)]));
    let unique = op("Unique", &[x]).with("axis", Attribute::Int(0)).with("sorted", Attribute::Int(0)).outputs(4);
    for y in unique.all(&b).unwrap() {
        b.output("y", y);
    }
    let y = run(b, &[("x", ints(&[4, 2], &[3, 1, 0, 2, 3, 1, 0, 1]))]).unwrap();
    assert_eq!(y[0].to_ints(), [3, 1, 0, 2, 0, 1]);
    assert_eq!(y[1].to_ints(), [0, 1, 3]);
    assert_eq!(y[2].to_ints(), [0, 1, 0, 2]);
    assert_eq!(y[3].to_ints(), [2, 1, 1]);
}

#[test]
fn slices_at_coordinates_of_each_batch() {
    let b = Builder::new("gathernd");
    let n = Dim::named("n");
    let x = b.input("x", DType::F32, Shape::new([n.clone(), Dim::int(2), Dim::named("w")]));
    let i = b.input("i", DType::I64, Shape::new([n.clone(), Dim::named("k"), Dim::int(1)]));
    let y = op("GatherND", &[x, i]).with("batch_dims", Attribute::Int(1)).one(&b);
    assert_eq!(y.shape().unwrap(), Shape::new([n, Dim::named("k"), Dim::named("w")]));
    b.output("y", y);
    let y = run(b, &[("x", counting(&[2, 2, 2])), ("i", ints(&[2, 1, 1], &[1, -2]))]).unwrap();
    assert_eq!(y[0].to_f64s(), [2.0, 3.0, 4.0, 5.0]);
}

#[test]
fn updates_are_combined_in_every_way() {
    for (reduction, wanted) in [("none", 5.0), ("add", 16.0), ("mul", 140.0), ("max", 7.0), ("min", 4.0)] {
        let b = Builder::new("scatter");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n")]));
        let i = b.input("i", DType::I64, Shape::new([2usize, 1]));
        let u = b.input("u", DType::F32, Shape::new([2usize]));
        let way = Attribute::Str(reduction.into());
        b.output("nd", op("ScatterND", &[x, i, u]).with("reduction", way.clone()).one(&b));
        let flat = op("Squeeze", &[i, b.constant(ints(&[1], &[1]))]).one(&b);
        b.output("elements", op("ScatterElements", &[x, flat, u]).with("reduction", way).one(&b));
        let given =
            [("x", Literal::f32s(&[4.0, 4.0])), ("i", ints(&[2, 1], &[-1, 1])), ("u", Literal::f32s(&[7.0, 5.0]))];
        let y = run(b, &given).unwrap();
        assert_eq!(y[0].to_f64s(), [4.0, wanted], "{reduction}");
        assert_eq!(y[1].to_f64s(), [4.0, wanted], "{reduction}");
    }
}

#[test]
fn a_size_written_into_a_shape_stays_known() {
    let b = Builder::new("shape");
    let n = Dim::named("n");
    let x = b.input("x", DType::F32, Shape::new([n.clone(), Dim::int(6)]));
    let extra = b.input("extra", DType::I64, Shape::new([1usize]));
    let shape = op("Shape", &[x]).one(&b);
    let two = b.constant(ints(&[1], &[2]));
    let at = b.constant(ints(&[1, 1], &[1]));
    let three = op("ScatterND", &[shape, at, two]).one(&b);
    let wanted = op("Concat", &[three, extra]).with("axis", Attribute::Int(0)).one(&b);
    // Of what is concatenated, one element is not known; it is what fits.
    assert_eq!(op("Reshape", &[x, wanted]).one(&b).shape().unwrap(), Shape::new([n, Dim::int(2), Dim::int(3)]));
}
