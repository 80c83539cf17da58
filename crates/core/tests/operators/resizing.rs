//! Resize: known sizes, open sizes and scales that only the run knows say the same; GridSample of an identity grid is one.

use fuseline::graph::{Builder, Tensor};
use fuseline::ops::named::Attribute;
use fuseline::tensor::{DType, Dim, Literal, Shape};

use crate::call::{counting, op, run};

const MODES: &[&str] = &["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"];

fn text(value: &str) -> Attribute {
    Attribute::Str(value.into())
}

fn resize<'b>(b: &'b Builder, x: Tensor<'b>, by: [Option<Tensor<'b>>; 2], filter: &str, mode: &str) -> Tensor<'b> {
    let call = op("Resize", &[x]).and(None).and(by[0]).and(by[1]);
    let (filter, rest) = filter.split_once(' ').unwrap_or((filter, ""));
    let mut call = call.with("mode", text(filter)).with("coordinate_transformation_mode", text(mode));
    match rest {
        "antialias" => call = call.with("antialias", Attribute::Int(1)),
        "exclude" => call = call.with("exclude_outside", Attribute::Int(1)),
        "" => {}
        nearest => call = call.with("nearest_mode", text(nearest)),
    }
    call.one(b)
}

#[test]
fn known_open_and_late_scales_agree() {
    let filters = [
        "nearest round_prefer_floor",
        "nearest round_prefer_ceil",
        "nearest floor",
        "nearest ceil",
        "linear",
        "cubic",
        "cubic exclude",
        "linear antialias",
        "cubic antialias",
    ];
    for filter in filters {
        for mode in MODES {
            for (n, scale) in [(4usize, 2.0f32), (5, 0.75), (3, 1.5), (8, 0.25), (6, 3.0)] {
                let b = Builder::new("resize");
                let scales = b.constant(Literal::f32s(&[1.0, scale]));
                let late = b.input("scales", DType::F32, Shape::new([2usize]));
                let known = b.input("known", DType::F32, Shape::new([2usize, n]));
                let open = b.input("open", DType::F32, Shape::new([Dim::named("m"), Dim::named("n")]));
                b.output("known", resize(&b, known, [Some(scales), None], filter, mode));
                b.output("open", resize(&b, open, [Some(scales), None], filter, mode));
                b.output("late", resize(&b, open, [Some(late), None], filter, mode));
                let x = counting(&[2, n]);
                let given = [("scales", Literal::f32s(&[1.0, scale])), ("known", x.clone()), ("open", x)];
                let y = run(b, &given).unwrap();
                // Places between two elements are exact where the scale is known; floats may fall to the other side.
                let late = !filter.starts_with("nearest") || scale.log2().fract() == 0.0;
                for other in &y[1..if late { 3 } else { 2 }] {
                    assert_eq!(y[0].sizes(), other.sizes());
                    let far = y[0]
                        .to_f64s()
                        .iter()
                        .zip(other.to_f64s())
                        .find(|(a, b)| (*a - b).abs() > 1e-4)
                        .map(|(a, b)| (*a, b));
                    assert_eq!(far, None, "{filter} {mode} of {n} by {scale}");
                }
            }
        }
    }
}

#[test]
fn sizes_and_scales_agree() {
    for mode in MODES {
        let b = Builder::new("resize");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("m"), Dim::named("n")]));
        let scales = b.constant(Literal::f32s(&[2.0, 0.5]));
        let sizes = b.input("sizes", DType::I64, Shape::new([2usize]));
        b.output("scales", resize(&b, x, [Some(scales), None], "cubic", mode));
        b.output("sizes", resize(&b, x, [None, Some(sizes)], "cubic", mode));
        let y = run(b, &[("x", counting(&[3, 6])), ("sizes", Literal::i64s(&[6, 3]))]).unwrap();
        let apart = y[0].to_f64s().iter().zip(y[1].to_f64s()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        assert!(apart < 1e-5, "{mode}: {apart}");
    }
}

#[test]
fn doubling_by_repetition_is_a_plain_view() {
    for mode in ["half_pixel", "asymmetric"] {
        let b = Builder::new("resize");
        let n = Dim::named("n");
        let x = b.input("x", DType::F32, Shape::new([n.clone()]));
        let y = resize(&b, x, [Some(b.constant(Literal::f32s(&[2.0]))), None], "nearest floor", "asymmetric");
        let z = resize(&b, x, [Some(b.constant(Literal::f32s(&[2.0]))), None], "nearest", mode);
        assert_eq!(y.shape().unwrap(), Shape::new([n * 2]));
        let maps: Vec<String> = b.with_graph(|g| {
            let views = g.nodes().iter().filter_map(|node| match node.prim() {
                fuseline::ops::Prim::View(view) => Some(format!("{:?}", view.map)),
                _ => None,
            });
            views.collect()
        });
        assert!(maps.iter().any(|m| m == "[i0 // 2]"), "{maps:?}");
        assert!(!z.is_poisoned());
    }
}

#[test]
fn a_shrunk_gradient_keeps_its_mean() {
    let b = Builder::new("resize");
    let x = b.input("x", DType::F32, Shape::new([Dim::named("n")]));
    let scales = b.constant(Literal::f32s(&[0.25]));
    b.output("y", resize(&b, x, [Some(scales), None], "linear antialias", "half_pixel"));
    let y = run(b, &[("x", counting(&[16]))]).unwrap()[0].to_f64s();
    assert!((y.iter().sum::<f64>() / 4.0 - 7.5).abs() < 1e-5, "{y:?}");
}

#[test]
fn integers_are_rounded_and_saturate() {
    let b = Builder::new("resize");
    let x = b.constant(Literal::from_ints(DType::U8, [4], &[0, 255, 255, 0]).unwrap());
    let scales = b.constant(Literal::f32s(&[2.0]));
    let y = resize(&b, x, [Some(scales), None], "cubic", "half_pixel");
    b.output("y", y);
    let y = run(b, &[]).unwrap();
    assert_eq!(y[0].dtype(), DType::U8);
    assert!(y[0].to_ints().contains(&255));
}

#[test]
fn old_versions_repeat_and_blend() {
    let b = Builder::new("upsample");
    let x = b.input("x", DType::F32, Shape::new([Dim::int(1), Dim::int(1), Dim::named("h"), Dim::int(2)]));
    let scales = Attribute::Floats(vec![1.0, 1.0, 2.0, 1.0]);
    b.output("seven", op("Upsample", &[x]).with("scales", scales).opset(7).one(&b));
    let scales = b.constant(Literal::f32s(&[1.0, 1.0, 2.0, 1.0]));
    b.output("nine", op("Upsample", &[x, scales]).opset(9).one(&b));
    b.output("ten", op("Resize", &[x, scales]).opset(10).one(&b));
    b.output("linear", op("Resize", &[x, scales]).with("mode", text("linear")).opset(10).one(&b));
    let y = run(b, &[("x", counting(&[1, 1, 2, 2]))]).unwrap();
    for y in &y[..3] {
        assert_eq!(y.to_f64s(), [0.0, 1.0, 0.0, 1.0, 2.0, 3.0, 2.0, 3.0]);
    }
    assert_eq!(y[3].to_f64s(), [0.0, 1.0, 1.0, 2.0, 2.0, 3.0, 2.0, 3.0]);
}

#[test]
fn sampling_at_an_identity_grid_gives_the_image() {
    for mode in ["nearest", "linear", "cubic"] {
        for padding in ["zeros", "border", "reflection"] {
            for aligned in [0, 1] {
                let b = Builder::new("sample");
                let (h, w) = (Dim::named("h"), Dim::named("w"));
                let x = b.input("x", DType::F32, Shape::new([Dim::int(1), Dim::int(2), h, w]));
                let theta = Literal::f32s(&[1.0, 0.0, 0.0, 0.0, 1.0, 0.0]).reshaped([1, 2, 3]).unwrap();
                let size = op("Shape", &[x]).one(&b);
                let align = Attribute::Int(aligned);
                let grid = op("AffineGrid", &[b.constant(theta), size]).with("align_corners", align.clone()).one(&b);
                let sample = op("GridSample", &[x, grid]).with("align_corners", align);
                let sample = sample.with("mode", text(mode)).with("padding_mode", text(padding));
                b.output("y", sample.one(&b));
                let y = run(b, &[("x", counting(&[1, 2, 3, 4]))]).unwrap()[0].to_f64s();
                let apart = y.iter().zip(counting(&[24]).to_f64s()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
                assert!(apart < 1e-4, "{mode} {padding} {aligned}: {y:?}");
            }
        }
    }
}

/// Version 10 takes the floor where an axis grows and the ceiling where it shrinks, scales known or not.
#[test]
fn the_first_resize_rounds_outward() {
    let b = Builder::new("resize10");
    let x = b.input("x", DType::F32, Shape::new([2usize, 4]));
    let scales = b.input("scales", DType::F32, Shape::new([2usize]));
    let known = b.constant(Literal::f32s(&[1.5, 0.6]));
    b.output("known", op("Resize", &[x, known]).opset(10).one(&b));
    b.output("given", op("Resize", &[x, scales]).opset(10).one(&b));
    let values: Vec<f64> = (1..9).map(f64::from).collect();
    let x = Literal::from_f64s(DType::F32, [2, 4], &values).unwrap();
    for y in run(b, &[("x", x), ("scales", Literal::f32s(&[1.5, 0.6]))]).unwrap() {
        assert_eq!((y.sizes(), y.to_f64s()), (&[3, 2][..], vec![1.0, 3.0, 1.0, 3.0, 5.0, 7.0]));
    }
}
