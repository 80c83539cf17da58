use fuseline::ops::named::Attribute;
use fuseline::tensor::{DType, Literal};

use crate::call::{at, coordinates, f32s, noise, op};

fn ints(dtype: DType, values: &[i64]) -> Literal {
    Literal::from_ints(dtype, [values.len()], values).unwrap()
}

fn floats(dtype: DType, values: &[f64]) -> Literal {
    Literal::from_f64s(dtype, [values.len()], values).unwrap()
}

#[test]
fn before_version_7_an_attribute_says_where_the_second_operand_lies() {
    let x = noise(&[2, 3, 4, 5], 1);
    let cases: &[(&[usize], Option<i64>, usize)] =
        &[(&[3, 4], Some(1), 1), (&[2], Some(0), 0), (&[3], Some(-3), 1), (&[4, 5], None, 2), (&[5], Some(-1), 3)];
    for (sizes, axis, first) in cases {
        let b = noise(sizes, 2);
        let mut call = op("Sub").opset(6).int("broadcast", 1).arg(x.clone()).arg(b.clone());
        if let Some(axis) = axis {
            call = call.int("axis", *axis);
        }
        let y = call.values();
        for (k, i) in coordinates(x.sizes()).iter().enumerate() {
            let place: Vec<i64> = i[*first..first + sizes.len()].iter().map(|i| *i as i64).collect();
            assert_eq!(y[k], x.float(k) - at(&b, &place).unwrap(), "{sizes:?} from {axis:?} at {i:?}");
        }
    }
    let outside = op("Sub").opset(6).int("axis", 3).arg(x).arg(noise(&[5, 1], 2)).refusal();
    assert!(outside.contains("does not fit"), "{outside}");
}

#[test]
fn powers_keep_the_type_of_the_base() {
    let run = |base: Literal, exponent: Literal| {
        let y = op("Pow").arg(base).arg(exponent).run().remove(0);
        (y.dtype(), y.to_f64s())
    };
    assert_eq!(run(ints(DType::I32, &[2, 9]), floats(DType::F32, &[0.5, 0.5])), (DType::I32, vec![1.0, 3.0]));
    assert_eq!(run(ints(DType::I8, &[2, -3]), ints(DType::I64, &[7, 3])), (DType::I8, vec![-128.0, -27.0]));
    assert_eq!(run(floats(DType::F32, &[2.0, 3.0]), ints(DType::I64, &[-1, 3])), (DType::F32, vec![0.5, 27.0]));
    let (dtype, y) = run(floats(DType::F16, &[2.0]), floats(DType::F32, &[0.1]));
    assert_eq!((dtype, y[0]), (DType::F16, DType::F16.round(2f64.powf(f64::from(0.1f32)))));
}

#[test]
fn integers_wrap_and_divide_as_stated() {
    let (a, b) = (ints(DType::I8, &[127, -128, -7, 7]), ints(DType::I8, &[1, -1, 2, -2]));
    let run = |name, fmod| op(name).int("fmod", fmod).arg(a.clone()).arg(b.clone()).values();
    assert_eq!(op("Add").arg(a.clone()).arg(b.clone()).values(), [-128.0, 127.0, -5.0, 5.0]);
    assert_eq!(op("Div").arg(a.clone()).arg(b.clone()).values(), [127.0, -128.0, -3.0, -3.0]);
    assert_eq!(run("Mod", 0), [0.0, 0.0, 1.0, -1.0]);
    assert_eq!(run("Mod", 1), [0.0, 0.0, -1.0, 1.0]);
    let shifted = op("BitShift").str("direction", "LEFT");
    let shifted = shifted.arg(ints(DType::U8, &[255, 1])).arg(ints(DType::U8, &[4, 8]));
    assert_eq!(shifted.values(), [240.0, 0.0]);
    // Since version 28: the sign is what is left of a number that is shifted too far, or by less than nothing.
    let (x, by) = (ints(DType::I8, &[-128, -5, -5, 5, 5, -5]), ints(DType::I8, &[3, 8, -1, 8, 1, 0]));
    let shifted = |direction: &str| op("BitShift").opset(28).str("direction", direction).arg(x.clone()).arg(by.clone());
    assert_eq!(shifted("RIGHT").values(), [-16.0, -1.0, -1.0, 0.0, 2.0, -5.0]);
    assert_eq!(shifted("LEFT").values(), [0.0, 0.0, 0.0, 0.0, 10.0, -5.0]);
}

#[test]
fn remainders_of_floats_have_the_divisors_sign() {
    let inf = f64::INFINITY;
    let cases = [
        (-5.0, 3.0, 1.0),
        (5.0, -3.0, -1.0),
        (-6.0, 3.0, 0.0),
        (6.0, -3.0, -0.0),
        (-0.0, 2.0, 0.0),
        (0.0, -2.0, -0.0),
        (0.0, -inf, -0.0),
        (2.0, inf, 2.0),
        (2.0, -inf, -inf),
        (inf, 2.0, f64::NAN),
        (2.0, 0.0, f64::NAN),
        (f64::NAN, 2.0, f64::NAN),
    ];
    let column = |of: fn(&(f64, f64, f64)) -> f64| floats(DType::F32, &cases.iter().map(of).collect::<Vec<_>>());
    let y = op("Mod").opset(28).arg(column(|c| c.0)).arg(column(|c| c.1)).values();
    for ((a, b, wanted), y) in cases.iter().zip(y) {
        let is_same = y.to_bits() == wanted.to_bits() || (y.is_nan() && wanted.is_nan());
        assert!(is_same, "{a} mod {b} is {wanted}, not {y}");
    }
}

#[test]
fn gates_and_what_they_let_through_have_one_shape() {
    let (a, b) = (noise(&[2, 3], 1), noise(&[2, 3], 2));
    let y = op("SwiGLU").opset(28).float("alpha", 1.5).arg(a.clone()).arg(b.clone()).values();
    for (k, y) in y.into_iter().enumerate() {
        let wanted = a.float(k) / (1.0 + (-1.5 * a.float(k)).exp()) * b.float(k);
        assert!((y - wanted).abs() < 1e-6, "{y} and {wanted}");
    }
    for other in [noise(&[3], 2), noise(&[2, 1], 2)] {
        let refused = op("SwiGLU").opset(28).arg(a.clone()).arg(other).refusal();
        assert!(refused.contains("one shape"), "{refused}");
    }
}

#[test]
fn blocks_become_channels_in_either_order() {
    let x = noise(&[1, 2, 4, 6], 3);
    for (mode, channel) in [
        ("DCR", (|c, i, j| (i * 2 + j) * 2 + c) as fn(usize, usize, usize) -> usize),
        ("CRD", |c, i, j| c * 4 + i * 2 + j),
    ] {
        let y = op("SpaceToDepth").opset(28).int("blocksize", 2).str("mode", mode).arg(x.clone()).values();
        for place in coordinates(&[1, 2, 4, 6]) {
            let [_, c, h, w] = place[..] else { unreachable!("four axes") };
            let to = (channel(c, h % 2, w % 2) * 2 + h / 2) * 3 + w / 2;
            assert_eq!(y[to], x.float((c * 4 + h) * 6 + w), "{mode} at {place:?}");
        }
    }
}

#[test]
fn bounds_of_clip_are_attributes_or_operands() {
    let x = f32s(&[5], &[-3.0, -1.0, 0.5, 2.0, f64::NAN]);
    let scalar = |x: f64| f32s(&[], &[x]);
    let old = op("Clip").opset(6).float("min", -1.0).float("max", 1.0).arg(x.clone()).values();
    let new = op("Clip").arg(x.clone()).arg(scalar(-1.0)).arg(scalar(1.0)).values();
    assert_eq!(old[..4], [-1.0, -1.0, 0.5, 1.0]);
    assert_eq!(old[..4], new[..4]);
    assert!(old[4].is_nan() && new[4].is_nan());
    assert_eq!(op("Clip").arg(x.clone()).no_arg().arg(scalar(1.0)).values()[..4], [-3.0, -1.0, 0.5, 1.0]);
    // The attributes of version 6 have numbers for defaults.
    let infinite = f32s(&[2], &[f64::NEG_INFINITY, f64::INFINITY]);
    let most = f64::from(f32::MAX);
    assert_eq!(op("Clip").opset(7).float("max", 1.0).arg(infinite.clone()).values(), [-most, 1.0]);
    assert_eq!(op("Clip").opset(6).arg(infinite).values(), [-most, most]);
    assert_eq!(op("Clip").arg(x.clone()).arg(scalar(1.0)).arg(scalar(-1.0)).values()[..4], [-1.0; 4]);
    assert_eq!(op("Clip").arg(f32s(&[], &[7.0])).no_arg().arg(f32s(&[1], &[1.0])).run()[0].sizes(), [0usize; 0]);
}

#[test]
fn slopes_belong_to_channels_or_broadcast() {
    let x = noise(&[2, 3, 2, 4], 1);
    let slope = f32s(&[3], &[0.5, 2.0, 4.0]);
    let expected: Vec<f64> = coordinates(x.sizes())
        .iter()
        .enumerate()
        .map(|(k, i)| if x.float(k) < 0.0 { x.float(k) * slope.float(i[1]) } else { x.float(k) })
        .collect();
    assert_eq!(op("PRelu").opset(6).arg(x.clone()).arg(slope.clone()).values(), expected);
    let column = slope.clone().reshaped([3, 1, 1]).unwrap();
    assert_eq!(op("PRelu").arg(x.clone()).arg(column).values(), expected);
    let single = op("PRelu").opset(6).arg(x.clone()).arg(f32s(&[1], &[2.0])).values();
    assert_eq!(single, x.to_f64s().iter().map(|x| if *x < 0.0 { 2.0 * x } else { *x }).collect::<Vec<_>>());
}

#[test]
fn activations_do_not_overflow() {
    let x = f32s(&[4], &[-1e4, -1.0, 1.0, 1e4]);
    assert_eq!(op("Softplus").arg(x.clone()).values()[3], 1e4);
    assert_eq!(op("Softplus").arg(x.clone()).values()[0], 0.0);
    let mish = op("Mish").arg(x.clone()).values();
    assert!(mish[0].abs() == 0.0 && mish[3] == 1e4);
    assert_eq!(op("Elu").arg(x.clone()).values()[0], -1.0);
    assert_eq!(op("Gelu").arg(x.clone()).values()[3], 1e4);
    assert_eq!(op("Gelu").with("approximate", Attribute::Str("tanh".into())).arg(x).values()[3], 1e4);
}

#[test]
fn softmax_of_old_versions_sees_a_matrix() {
    let x = noise(&[2, 3, 2], 1);
    let new = op("Softmax").arg(x.clone().reshaped([2, 6]).unwrap()).values();
    assert_eq!(op("Softmax").opset(12).arg(x.clone()).values(), new);
    assert_eq!(op("Softmax").opset(11).int("axis", -2).arg(x.clone()).values(), new);
    let hard = op("Hardmax").opset(1).arg(x.clone()).values();
    assert_eq!(hard, op("Hardmax").arg(x.clone().reshaped([2, 6]).unwrap()).values());
    assert_eq!(hard.iter().sum::<f64>(), 2.0);
    let log = op("LogSoftmax").opset(1).arg(f32s(&[1, 2], &[0.0, 1e4])).values();
    assert_eq!(log, [-1e4, 0.0]);
    assert_eq!(op("Softmax").opset(1).arg(f32s(&[3], &[1.0, 2.0, 3.0])).values(), [1.0; 3]);
}

#[test]
fn tensors_without_axes_or_elements_are_ordinary() {
    for name in ["Relu", "Softplus", "Selu", "Exp", "Mish", "HardSwish", "Identity"] {
        assert_eq!(op(name).arg(f32s(&[], &[0.5])).run()[0].sizes(), [0usize; 0], "{name}");
        assert_eq!(op(name).arg(f32s(&[3, 0], &[])).run()[0].sizes(), [3, 0], "{name}");
    }
    for name in ["Softmax", "LogSoftmax", "Hardmax"] {
        assert_eq!(op(name).arg(f32s(&[3, 0], &[])).run()[0].sizes(), [3, 0], "{name}");
        assert_eq!(op(name).arg(f32s(&[0, 3], &[])).run()[0].sizes(), [0, 3], "{name}");
    }
    assert_eq!(op("Add").arg(f32s(&[0, 1], &[])).arg(f32s(&[3], &[1.0; 3])).run()[0].sizes(), [0, 3]);
}

#[test]
fn one_bad_element_of_any_operand_is_found() {
    let call = |last: f64| {
        let call = op("IsAllFinite").domain("com.microsoft", 1);
        call.arg(f32s(&[2], &[1.0, -1e30])).arg(f32s(&[1, 2], &[0.0, last]))
    };
    assert_eq!(call(1.0).values(), [1.0]);
    for (bad, only) in [(f64::NAN, "isinf_only"), (f64::NEG_INFINITY, "isnan_only")] {
        assert_eq!((call(bad).values(), call(bad).int(only, 1).values()), (vec![0.0], vec![1.0]));
    }
}
