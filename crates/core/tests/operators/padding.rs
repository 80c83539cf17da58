//! Pad against its meaning, for sizes known and unknown.

use fuseline::graph::Builder;
use fuseline::ops::named::Attribute;
use fuseline::tensor::{DType, Dim, Literal, Shape};

use crate::call::{counting, op, run};

/// Element `at` of the endless continuation of 0, 1, …, n − 1.
fn continued(mode: &str, at: i64, n: i64) -> f64 {
    let inside = |k: i64| k as f64;
    match mode {
        "constant" => {
            if (0..n).contains(&at) {
                inside(at)
            } else {
                -7.0
            }
        }
        "edge" => inside(at.clamp(0, n - 1)),
        "wrap" => inside(at.rem_euclid(n)),
        _ if n == 1 => 0.0,
        _ => {
            let k = at.rem_euclid(2 * (n - 1));
            inside(k.min(2 * (n - 1) - k))
        }
    }
}

#[test]
fn every_mode_continues_the_axis() {
    for mode in ["constant", "edge", "reflect", "wrap"] {
        for n in [1usize, 2, 4] {
            for (before, after) in [(0, 0), (1, 2), (3, 3), (9, 1), (-1, 2), (5, -1)] {
                let size = n as i64 + before + after;
                if size < 0 || (mode != "constant" && n as i64 + before.min(0) + after.min(0) < 1) {
                    continue;
                }
                // What is cut off stands for nothing outside.
                let (front, left) = ((-before).max(0), n as i64 + before.min(0) + after.min(0));
                let inside = |k: i64| match mode {
                    "constant" => continued(mode, k - before, n as i64),
                    _ => continued(mode, k - before.max(0), left) + front as f64,
                };
                let wanted: Vec<f64> = (0..size).map(inside).collect();
                let b = Builder::new("pad");
                let value = b.scalar(DType::F32, -7.0);
                let late = b.input("value", DType::F32, Shape::new([1usize]));
                let late_pads = b.input("pads", DType::I64, Shape::new([2usize]));
                for (name, dim) in [("known", Dim::from(n)), ("open", Dim::named("n"))] {
                    let x = b.input(name, DType::F32, Shape::new([Dim::int(2), dim]));
                    let pads = b.constant(Literal::i64s(&[before, after]));
                    let axes = b.constant(Literal::i64s(&[-1]));
                    for (value, pads) in [(value, pads), (late, pads), (value, late_pads), (late, late_pads)] {
                        let pad = op("Pad", &[x, pads, value, axes]).with("mode", Attribute::Str(mode.into()));
                        b.output("y", pad.one(&b));
                    }
                }
                let rows: Vec<f64> = (0..2 * n).map(|k| (k % n) as f64).collect();
                let x = Literal::from_f64s(DType::F32, [2, n], &rows).unwrap();
                let given = [("known", x.clone()), ("open", x), ("value", Literal::f32s(&[-7.0]))];
                let given = [given.as_slice(), &[("pads", Literal::i64s(&[before, after]))]].concat();
                for y in run(b, &given).unwrap() {
                    let both = [wanted.clone(), wanted.clone()].concat();
                    assert_eq!(y.to_f64s(), both, "{mode} of {n} by {before} and {after}");
                }
            }
        }
    }
}

#[test]
fn amounts_may_be_inputs_and_attributes() {
    let b = Builder::new("pad");
    let x = b.input("x", DType::F32, Shape::new([2usize]));
    let pads = b.input("pads", DType::I64, Shape::new([2usize]));
    b.output("a", op("Pad", &[x, pads]).one(&b));
    b.output("b", op("Pad", &[x]).with("pads", Attribute::Ints(vec![2, 1])).opset(2).one(&b));
    b.output("c", op("Pad", &[x]).with("paddings", Attribute::Ints(vec![2, 1])).opset(1).one(&b));
    let y = run(b, &[("x", Literal::f32s(&[5.0, 6.0])), ("pads", Literal::i64s(&[2, 1]))]).unwrap();
    assert!(y.iter().all(|y| y.to_f64s() == [0.0, 0.0, 5.0, 6.0, 0.0]));
}

#[test]
fn center_crop_and_pad_of_open_sizes() {
    for (n, wanted) in [
        (2usize, vec![0.0, 0.0, 1.0, 0.0, 0.0]),
        (5, (0..5).map(f64::from).collect()),
        (8, vec![1.0, 2.0, 3.0, 4.0, 5.0]),
    ] {
        let b = Builder::new("center");
        let x = b.input("x", DType::F32, Shape::new([Dim::named("n")]));
        let size = b.constant(Literal::i64s(&[5]));
        b.output("y", op("CenterCropPad", &[x, size]).one(&b));
        assert_eq!(run(b, &[("x", counting(&[n]))]).unwrap()[0].to_f64s(), wanted);
    }
}
