use fuseline::tensor::{DType, Literal};

use crate::call::{coordinates, f32s, noise, op};

fn i64s(values: &[i64]) -> Literal {
    Literal::i64s(values)
}

#[test]
fn axes_are_an_attribute_or_an_operand() {
    let x = noise(&[2, 3, 4], 1);
    let mut expected = vec![0.0; 6];
    for (k, i) in coordinates(x.sizes()).iter().enumerate() {
        expected[i[0] * 3 + i[1]] += x.float(k);
    }
    for axis in [-1, 2] {
        let old = op("ReduceSum").opset(11).ints("axes", &[axis]).arg(x.clone()).run().remove(0);
        assert_eq!((old.sizes(), old.to_f64s()), (&[2usize, 3, 1][..], expected.clone()));
        let flat = op("ReduceSum").opset(11).ints("axes", &[axis]).int("keepdims", 0).arg(x.clone()).run().remove(0);
        assert_eq!((flat.sizes(), flat.to_f64s()), (&[2usize, 3][..], expected.clone()));
    }
    let total = op("ReduceSum").arg(x.clone()).run().remove(0);
    assert_eq!((total.sizes(), total.float(0)), (&[1usize, 1, 1][..], expected.iter().sum()));
    assert!(op("ReduceSum").opset(11).ints("axes", &[1, -2]).arg(x.clone()).refusal().contains("named twice"));
    assert!(op("ReduceSum").opset(11).ints("axes", &[3]).arg(x).refusal().contains("axis 3"));
}

#[test]
fn no_axes_may_mean_no_reduction_of_a_function_that_still_applies() {
    let x = f32s(&[2, 1], &[-2.0, 3.0]);
    let run = |name| op(name).int("noop_with_empty_axes", 1).arg(x.clone()).run().remove(0);
    for (name, expected) in [
        ("ReduceSum", [-2.0, 3.0]),
        ("ReduceL1", [2.0, 3.0]),
        ("ReduceSumSquare", [4.0, 9.0]),
        ("ReduceL2", [2.0, 3.0]),
    ] {
        assert_eq!((run(name).sizes(), run(name).to_f64s()), (&[2usize, 1][..], expected.to_vec()), "{name}");
    }
}

#[test]
fn folds_of_nothing_are_neutral() {
    let nothing = || f32s(&[2, 0], &[]);
    let run = |name| op(name).opset(11).ints("axes", &[1]).arg(nothing()).values();
    assert_eq!((run("ReduceSum"), run("ReduceProd")), (vec![0.0; 2], vec![1.0; 2]));
    assert_eq!((run("ReduceMax"), run("ReduceMin")), (vec![f64::NEG_INFINITY; 2], vec![f64::INFINITY; 2]));
    assert_eq!((run("ReduceLogSum"), run("ReduceLogSumExp")), (vec![f64::NEG_INFINITY; 2], vec![f64::NEG_INFINITY; 2]));
    assert!(run("ReduceMean").iter().all(|x| x.is_nan()));
    let bytes = Literal::from_ints(DType::U8, [2, 0], &[]).unwrap();
    let run = |name| op(name).opset(11).ints("axes", &[1]).arg(bytes.clone()).values();
    assert_eq!((run("ReduceMax"), run("ReduceMin")), (vec![0.0; 2], vec![255.0; 2]));
}

#[test]
fn infinities_go_through_log_sum_exp() {
    let (inf, nan) = (f64::INFINITY, f64::NAN);
    let x = f32s(&[5, 2], &[inf, 1.0, -inf, -inf, -inf, 2.0, nan, 1.0, 1000.0, 1000.0]);
    let y = op("ReduceLogSumExp").opset(13).ints("axes", &[1]).arg(x).values();
    assert_eq!((y[0], y[1], y[2]), (inf, -inf, 2.0));
    assert!(y[3].is_nan() && (y[4] - 1000.0 - 2f64.ln()).abs() < 1e-3);
}

#[test]
fn the_mean_of_many_halves_is_finite() {
    let x = Literal::from_f64s(DType::F16, [70_000], &[2.0; 70_000]).unwrap();
    assert_eq!(op("ReduceMean").arg(x).values(), [2.0]);
    let wide = Literal::from_ints(DType::I32, [3], &[5, 5, 4]).unwrap();
    assert_eq!(op("ReduceMean").arg(wide).values(), [4.0]);
}

#[test]
fn the_first_or_the_last_of_equals_is_found() {
    let x = f32s(&[2, 3], &[1.0, 5.0, 5.0, 0.0, 0.0, -1.0]);
    let run = |name, last| op(name).int("axis", -1).int("select_last_index", last).arg(x.clone()).run().remove(0);
    assert_eq!((run("ArgMax", 0).to_ints(), run("ArgMax", 1).to_ints()), (vec![1, 0], vec![2, 1]));
    assert_eq!((run("ArgMin", 0).to_ints(), run("ArgMin", 0).sizes()), (vec![0, 2], &[2usize, 1][..]));
    let default = op("ArgMax").int("keepdims", 0).arg(x.clone()).run().remove(0);
    assert_eq!((default.dtype(), default.to_ints()), (DType::I64, vec![0, 0, 0]));
}

#[test]
fn running_folds_go_both_ways_with_or_without_the_element() {
    let x = f32s(&[4], &[1.0, 2.0, 3.0, 4.0]);
    let run = |name, exclusive, reverse| {
        let call = op(name).int("exclusive", exclusive).int("reverse", reverse).arg(x.clone());
        call.arg_constant(i64s(&[0])).values()
    };
    assert_eq!(run("CumSum", 0, 0), [1.0, 3.0, 6.0, 10.0]);
    assert_eq!(run("CumSum", 1, 0), [0.0, 1.0, 3.0, 6.0]);
    assert_eq!(run("CumSum", 0, 1), [10.0, 9.0, 7.0, 4.0]);
    assert_eq!(run("CumSum", 1, 1), [9.0, 7.0, 4.0, 0.0]);
    assert_eq!(run("CumProd", 1, 0), [1.0, 1.0, 2.0, 6.0]);
    assert_eq!(run("CumProd", 0, 1), [24.0, 24.0, 12.0, 4.0]);
}
