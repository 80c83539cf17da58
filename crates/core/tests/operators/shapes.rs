//! Shapes that travel as data stay symbolic; what is known only at run time is bound there.

use fuseline::graph::{Builder, Tensor};
use fuseline::ops::named::Attribute;
use fuseline::tensor::{DType, Dim, Literal, Shape};

use crate::call::{counting, op, run};

fn ints<'b>(b: &'b Builder, values: &[i64]) -> Tensor<'b> {
    b.constant(Literal::i64s(values))
}

fn at<'b>(b: &'b Builder, x: Tensor<'b>, axis: i64) -> Tensor<'b> {
    let shape = op("Shape", &[x]).one(b);
    let size = op("Gather", &[shape, b.int(DType::I64, axis)]).one(b);
    op("Unsqueeze", &[size, ints(b, &[0])]).one(b)
}

#[test]
fn a_shape_computed_from_sizes_is_known_before_run_time() {
    let b = Builder::new("heads");
    let (n, s) = (Dim::named("batch"), Dim::named("sequence"));
    let x = b.input("x", DType::F32, Shape::new([n.clone(), s.clone(), Dim::int(768)]));
    let wanted =
        op("Concat", &[at(&b, x, 0), at(&b, x, 1), ints(&b, &[12, -1])]).with("axis", Attribute::Int(0)).one(&b);
    let heads = op("Reshape", &[x, wanted]).one(&b);
    assert_eq!(heads.shape().unwrap(), Shape::new([n.clone(), s.clone(), Dim::int(12), Dim::int(64)]));
    let heads = op("Transpose", &[heads]).with("perm", Attribute::Ints(vec![0, 2, 1, 3])).one(&b);
    let rows = at(&b, heads, 0) * at(&b, heads, 1);
    let flat = op("Concat", &[rows, ints(&b, &[-1]), at(&b, heads, 3)]).with("axis", Attribute::Int(0)).one(&b);
    let flat = op("Reshape", &[heads, flat]).one(&b);
    assert_eq!(flat.shape().unwrap(), Shape::new([&n * 12, s, Dim::int(64)]));
    assert!(b.with_graph(|g| g.constraints().is_empty()));
}

#[test]
fn reshape_copies_and_infers() {
    let b = Builder::new("reshape");
    let (n, s) = (Dim::named("n"), Dim::named("s"));
    let x = b.input("x", DType::F32, Shape::new([n.clone(), s.clone(), Dim::int(6)]));
    let y = op("Reshape", &[x, ints(&b, &[0, -1])]).one(&b);
    assert_eq!(y.shape().unwrap(), Shape::new([n.clone(), &s * 6]));
    let y = op("Reshape", &[x, ints(&b, &[0, 0, 2, -1])]).one(&b);
    assert_eq!(y.shape().unwrap(), Shape::new([n.clone(), s.clone(), Dim::int(2), Dim::int(3)]));
    let empty = b.constant(Literal::f32s(&[]).reshaped([0, 3]).unwrap());
    assert_eq!(op("Reshape", &[empty, ints(&b, &[0, -1])]).one(&b).shape().unwrap(), Shape::new([0usize, 3]));
    let kept = op("Reshape", &[empty, ints(&b, &[3, 0])]).with("allowzero", Attribute::Int(1)).one(&b);
    assert_eq!(kept.shape().unwrap(), Shape::new([3usize, 0]));
    assert!(op("Reshape", &[empty, ints(&b, &[-1, -1])]).all(&b).is_err());
}

#[test]
fn reshape_to_a_shape_that_is_an_input() {
    for (wanted, sizes) in [([3, 4], [3, 4]), ([-1, 2], [6, 2]), ([0, 6], [2, 6]), ([0, -1], [2, 6])] {
        let b = Builder::new("reshape");
        let x = b.input("x", DType::F32, Shape::new([2usize, 6]));
        let shape = b.input("shape", DType::I64, Shape::new([2usize]));
        b.output("y", op("Reshape", &[x, shape]).one(&b));
        let y = run(b, &[("x", counting(&[2, 6])), ("shape", Literal::i64s(&wanted))]).unwrap();
        assert_eq!(y[0].sizes(), sizes);
        assert_eq!(y[0].to_f64s(), counting(&[12]).to_f64s());
    }
}

fn slice<'b>(b: &'b Builder, x: Tensor<'b>, [start, end, step]: [i64; 3]) -> Tensor<'b> {
    let list = [start, end, 0, step].map(|n| ints(b, &[n]));
    op("Slice", &[x, list[0], list[1], list[2], list[3]]).one(b)
}

const MAX: i64 = i64::MAX;
const MIN: i64 = i64::MIN;

#[test]
fn slices_of_symbolic_sizes_have_plain_sizes() {
    let b = Builder::new("slice");
    let n = Dim::named("n");
    let x = b.input("x", DType::F32, Shape::new([n.clone()]));
    let size = |bounds| slice(&b, x, bounds).dim(0).unwrap();
    assert_eq!(size([0, MAX, 1]), n);
    assert_eq!(size([0, i64::from(i32::MAX), 1]), n);
    assert_eq!(size([0, MAX, 2]), n.ceildiv(&Dim::int(2)));
    assert_eq!(size([0, 1_000_000_000, 1]), n);
    assert_eq!(size([-1, MAX, 1]), Dim::int(1));
    assert_eq!(size([0, 1, 1]), Dim::int(1));
    assert_eq!(size([1, MAX, 1]), size([0, -1, 1]));
    assert_eq!(size([-1, MIN, -1]), n);
    assert_eq!(size([0, 5, 1]), n.min_with(&Dim::int(5)));
}

/// The places that Slice takes of `0..n`: as Python's `range(n)[start:end:step]`, but a start before the axis is its first
/// element also when walking back.
fn taken(n: i64, [start, end, step]: [i64; 3]) -> Vec<f64> {
    let (low, high) = if step > 0 { (0, n) } else { (-1, n - 1) };
    let inside = |bound: i64, low: i64| (if bound < 0 { bound.saturating_add(n) } else { bound }).max(low).min(high);
    let (mut at, end) = (inside(start, 0), inside(end, low));
    let mut places = Vec::new();
    while (step > 0 && at < end) || (step < 0 && at > end) {
        places.push(at as f64);
        at = at.saturating_add(step);
    }
    places
}

#[test]
fn slices_take_what_their_bounds_say() {
    let bounds = [MIN, -9, -5, -1, 0, 2, 5, MAX];
    for start in bounds {
        for end in bounds {
            for step in [1, 3, -1, -2, MAX, MIN] {
                let b = Builder::new("slice");
                let known = b.input("known", DType::F32, Shape::new([5usize]));
                let symbolic = b.input("symbolic", DType::F32, Shape::new([Dim::named("n")]));
                let (first, last) =
                    (b.input("s", DType::I64, Shape::new([1usize])), b.input("e", DType::I64, Shape::new([1usize])));
                b.output("a", slice(&b, known, [start, end, step]));
                if (start, end) != (-1, MAX) {
                    b.output("b", slice(&b, symbolic, [start, end, step]));
                }
                b.output("c", op("Slice", &[symbolic, first, last, ints(&b, &[0]), ints(&b, &[step])]).one(&b));
                for n in [0, 1, 5] {
                    let given = [
                        ("known", counting(&[5])),
                        ("symbolic", counting(&[n])),
                        ("s", Literal::i64s(&[start])),
                        ("e", Literal::i64s(&[end])),
                    ];
                    let graph = b.with_graph(|g| g.clone());
                    let inputs = given.into_iter().map(|(n, l)| (n.into(), l)).collect();
                    let y = fuseline::reference::evaluate(&graph, &inputs, &Default::default()).unwrap();
                    assert_eq!(y[0].to_f64s(), taken(5, [start, end, step]));
                    for y in &y[1..] {
                        assert_eq!(y.to_f64s(), taken(n as i64, [start, end, step]), "{n} {start}:{end}:{step}");
                    }
                }
            }
        }
    }
}

#[test]
fn a_slice_bounded_by_sizes_of_unknown_order() {
    let b = Builder::new("window");
    let (q, k) = (Dim::named("q"), Dim::named("k"));
    let x = b.input("x", DType::F32, Shape::new([q.clone()]));
    let y = b.input("y", DType::F32, Shape::new([k.clone()]));
    let table = b.constant(counting(&[8]));
    let start = at(&b, y, 0) - at(&b, x, 0);
    b.output("w", op("Slice", &[table, start, at(&b, y, 0)]).one(&b));
    assert!(b.with_graph(|g| g.nodes().iter().all(|n| n.prim().name() != "bind")));
    let z = run(b, &[("x", counting(&[2])), ("y", counting(&[5]))]).unwrap();
    assert_eq!(z[0].to_f64s(), [3.0, 4.0]);
}

#[test]
fn gather_of_known_places_is_a_view() {
    let b = Builder::new("gather");
    let x = b.input("x", DType::F32, Shape::new([Dim::int(2), Dim::named("n")]));
    let axis = Attribute::Int(1);
    b.output("last", op("Gather", &[x, b.int(DType::I64, -1)]).with("axis", axis.clone()).one(&b));
    b.output("odd", op("Gather", &[x, ints(&b, &[3, 1])]).with("axis", axis.clone()).one(&b));
    b.output("any", op("Gather", &[x, ints(&b, &[0, -1, 0])]).with("axis", axis).one(&b));
    let graph = b.finish().unwrap();
    let gathers = graph.nodes().iter().filter(|n| n.prim().name() == "gather").count();
    assert_eq!(gathers, 1);
    let eval = |n: usize| {
        let inputs = [("x".into(), counting(&[2, n]))].into_iter().collect();
        fuseline::reference::evaluate(&graph, &inputs, &Default::default())
    };
    let y = eval(4).unwrap();
    assert_eq!(y[0].to_f64s(), [3.0, 7.0]);
    assert_eq!(y[1].to_f64s(), [3.0, 1.0, 7.0, 5.0]);
    assert_eq!(y[2].to_f64s(), [0.0, 3.0, 0.0, 4.0, 7.0, 4.0]);
    assert!(eval(3).is_err(), "index 3 of an axis of 3");
}

#[test]
fn a_range_over_a_size_is_symbolic() {
    let b = Builder::new("range");
    let n = Dim::named("n");
    let x = b.input("x", DType::F32, Shape::new([n.clone()]));
    let size = op("Squeeze", &[at(&b, x, 0)]).one(&b);
    let (zero, one) = (b.int(DType::I64, 0), b.int(DType::I64, 1));
    assert_eq!(op("Range", &[zero, size, one]).one(&b).shape().unwrap(), Shape::new([n]));
    let numbers = |start: i64, limit: i64, delta: i64| {
        let b = Builder::new("range");
        let names = ["start", "limit", "delta"];
        let bounds = names.map(|name| b.input(name, DType::I64, Shape::scalar()));
        b.output("run time", op("Range", &bounds).one(&b));
        let constants = [start, limit, delta].map(|n| b.int(DType::I64, n));
        b.output("known", op("Range", &constants).one(&b));
        b.output("floats", op("Range", &constants.map(|t| t.cast(DType::F32))).one(&b));
        let scalar = |n: i64| Literal::from_ints(DType::I64, [], &[n]).unwrap();
        let y = run(b, &[("start", scalar(start)), ("limit", scalar(limit)), ("delta", scalar(delta))]).unwrap();
        assert_eq!(y[0].to_ints(), y[1].to_ints());
        assert_eq!(y[0].to_f64s(), y[2].to_f64s());
        y[0].to_ints()
    };
    assert_eq!(numbers(2, 9, 3), [2, 5, 8]);
    assert_eq!(numbers(9, 2, -3), [9, 6, 3]);
    assert_eq!(numbers(3, 3, 1), []);
    assert_eq!(numbers(3, 0, 1), []);
}

#[test]
fn ranges_reach_to_the_ends_of_their_type() {
    let numbers = |start: i64, limit: i64, delta: i64| {
        let b = Builder::new("range");
        let bounds = ["start", "limit", "delta"].map(|name| b.input(name, DType::I64, Shape::scalar()));
        b.output("run time", op("Range", &bounds).one(&b));
        b.output("known", op("Range", &[start, limit, delta].map(|n| b.int(DType::I64, n))).one(&b));
        let scalar = |n: i64| Literal::from_ints(DType::I64, [], &[n]).unwrap();
        let given = [("start", scalar(start)), ("limit", scalar(limit)), ("delta", scalar(delta))];
        run(b, &given).map(|y| {
            assert_eq!(y[0].to_ints(), y[1].to_ints());
            y[0].to_ints()
        })
    };
    assert_eq!(numbers(MAX, MIN, MIN).unwrap(), [MAX, -1]);
    assert_eq!(numbers(MAX - 1, MAX, MAX).unwrap(), [MAX - 1]);
    assert_eq!(numbers(MIN, MIN + 3, 1).unwrap(), [MIN, MIN + 1, MIN + 2]);
    assert_eq!(numbers(MIN, MAX, 1 << 62).unwrap(), [MIN, -(1 << 62), 0, 1 << 62]);
    assert_eq!(numbers(MAX, MIN, -MAX).unwrap(), [MAX, 0, -MAX]);
    assert!(numbers(MIN, MAX, 1).is_err() && numbers(0, 5, 0).is_err());
}

#[test]
fn ranges_of_floats_have_as_many_elements_as_the_quotient_says() {
    let count = |start: f32, limit: f32, delta: f32| {
        let b = Builder::new("range");
        let bounds = ["start", "limit", "delta"].map(|name| b.input(name, DType::F32, Shape::scalar()));
        b.output("run time", op("Range", &bounds).one(&b));
        let constants = [start, limit, delta].map(|x| b.scalar(DType::F32, f64::from(x)));
        let known = op("Range", &constants).all(&b).map(|y| b.output("known", y[0]));
        let scalar = |x: f32| Literal::f32s(&[x]).reshaped([]).unwrap();
        let given = [("start", scalar(start)), ("limit", scalar(limit)), ("delta", scalar(delta))];
        match (run(b, &given), known) {
            (Ok(y), Ok(())) => {
                assert_eq!(y[0], y[1]);
                Some(y[0].count())
            }
            (Err(_), Err(_)) => None,
            other => panic!("{start} to {limit} by {delta}: {other:?}"),
        }
    };
    assert_eq!(count(0.0, 1.0, 0.25), Some(4));
    // 0.3 / 0.1 of f32 is a little more than 3 before it is rounded.
    assert_eq!(count(0.0, 0.3, 0.1), Some(4));
    assert_eq!(count(1.0, 0.0, -0.25), Some(4));
    assert_eq!(count(1.0, 0.0, f32::INFINITY), Some(0));
    for (start, limit, delta) in
        [(0.0, f32::NAN, 1.0), (f32::NAN, 1.0, 1.0), (0.0, 1.0, f32::NAN), (0.0, f32::INFINITY, 1.0), (0.0, 1.0, 0.0)]
    {
        assert_eq!(count(start, limit, delta), None, "{start} to {limit} by {delta}");
    }
}

#[test]
fn sizes_that_were_floats_for_a_while_are_known() {
    let b = Builder::new("floats");
    let n = Dim::named("n");
    let x = b.input("x", DType::F32, Shape::new([n.clone()]));
    let size = op("Squeeze", &[at(&b, x, 0)]).one(&b).cast(DType::F32);
    let (zero, one) = (b.scalar(DType::F32, 0.0), b.scalar(DType::F32, 1.0));
    assert_eq!(op("Range", &[zero, size, one]).one(&b).shape().unwrap(), Shape::new([n.clone()]));
    let doubled = (size * 2.0).floor().cast(DType::I64).reshape(Shape::new([1usize]));
    assert_eq!(op("ConstantOfShape", &[doubled]).one(&b).shape().unwrap(), Shape::new([&n * 2]));
    let tripled = (size * 3.0 / size).cast(DType::I64).reshape(Shape::new([1usize]));
    assert_eq!(op("ConstantOfShape", &[tripled]).one(&b).shape().unwrap(), Shape::new([3usize]));
}

#[test]
fn expand_keeps_what_is_larger() {
    let b = Builder::new("expand");
    let x = b.input("x", DType::F32, Shape::new([2usize, 1]));
    let shape = b.input("shape", DType::I64, Shape::new([3usize]));
    b.output("y", op("Expand", &[x, shape]).one(&b));
    let y = run(b, &[("x", counting(&[2, 1])), ("shape", Literal::i64s(&[2, 1, 3]))]).unwrap();
    assert_eq!(y[0].sizes(), [2, 2, 3]);
    assert_eq!(y[0].to_f64s()[..6], [0.0, 0.0, 0.0, 1.0, 1.0, 1.0]);
}

#[test]
fn split_into_uneven_pieces() {
    let b = Builder::new("split");
    let x = b.constant(counting(&[7]));
    let pieces = op("Split", &[x]).with("num_outputs", Attribute::Int(4)).outputs(4).all(&b).unwrap();
    let sizes: Vec<_> = pieces.iter().map(|p| p.dim(0).unwrap()).collect();
    assert_eq!(sizes, [2, 2, 2, 1].map(Dim::int));
    let pieces = op("Split", &[x, ints(&b, &[0, 7])]).outputs(2).all(&b).unwrap();
    assert_eq!(pieces[1].dim(0).unwrap(), Dim::int(7));
    assert!(op("Split", &[x]).opset(13).outputs(2).all(&b).is_err());
    let n = Dim::named("n");
    let y = b.input("y", DType::F32, Shape::new([&n * 3]));
    let thirds = op("Split", &[y]).outputs(3).with("num_outputs", Attribute::Int(3)).all(&b).unwrap();
    assert!(thirds.iter().all(|t| t.dim(0).unwrap() == n));
}
