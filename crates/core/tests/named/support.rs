//! Support vector machines. Expectations are what ONNX Runtime 1.31 answers.

use fuseline::ops::named::Attribute;
use fuseline::tensor::{DType, Literal};

use crate::call::{Op, f32s, op};

const WEIGHTS: [f64; 10] = [1.0, -0.5, 0.25, -2.0, 1.5, 0.75, -1.25, 0.5, 1.0, -0.25];

fn floats(values: &[f64]) -> Attribute {
    Attribute::Floats(values.to_vec())
}

fn near(found: &Literal, expected: &[f64]) {
    let found = found.to_f64s();
    assert_eq!(found.len(), expected.len(), "{found:?}");
    let close = |(a, b): (&f64, &f64)| (a - b).abs() <= 2e-6 * (1.0 + b.abs());
    assert!(found.iter().zip(expected).all(close), "{found:?} for {expected:?}");
}

fn machine(name: &'static str, kernel: &str) -> Op {
    let vectors = [0.5, -0.5, -1.0, 0.25, 0.75, 1.5, -0.25, -1.25, 1.25, 0.5];
    op(name)
        .domain("ai.onnx.ml", 1)
        .with("support_vectors", floats(&vectors))
        .str("kernel_type", kernel)
        .with("kernel_params", floats(&[0.5, 0.25, 3.0]))
        .arg(f32s(&[3, 2], &[0.25, -1.0, -2.0, 1.0, 0.5, 2.0]))
}

fn regressor(kernel: &str) -> Op {
    let call = machine("SVMRegressor", kernel).int("n_supports", 5).with("rho", floats(&[0.3]));
    call.with("coefficients", floats(&[1.0, -0.5, 0.25, 2.0, -1.5]))
}

fn two_classes() -> Op {
    let call = machine("SVMClassifier", "RBF").outputs(2).ints("vectors_per_class", &[2, 3]);
    let call = call.with("coefficients", floats(&WEIGHTS[..5])).with("rho", floats(&[0.1]));
    call.ints("classlabels_ints", &[3, 7])
}

fn three_classes() -> Op {
    let call = machine("SVMClassifier", "RBF").outputs(2).ints("vectors_per_class", &[2, 1, 2]);
    call.with("coefficients", floats(&WEIGHTS)).with("rho", floats(&[0.1, -0.2, 0.3]))
}

#[test]
fn regressions_by_every_kernel() {
    let expected = [
        ("LINEAR", [3.50312495, -0.824999988, -7.29374981]),
        ("POLY", [1.65684962, -0.491992176, -2.08958745]),
        ("RBF", [2.47555637, 0.118055776, 0.162755296]),
        ("SIGMOID", [1.85660338, 0.16321665, -2.46014428]),
    ];
    for (kernel, expected) in expected {
        near(&regressor(kernel).run()[0], &expected);
    }
    assert_eq!(regressor("LINEAR").int("one_class", 1).values(), [1.0, -1.0, -1.0]);
    assert!(regressor("COSINE").refusal().contains("COSINE"));
    let by_feature = op("SVMRegressor").domain("ai.onnx.ml", 1).with("rho", floats(&[0.5]));
    let by_feature = by_feature.with("coefficients", floats(&[2.0, -1.0])).arg(f32s(&[1, 2], &[3.0, 1.0]));
    assert_eq!(by_feature.values(), [5.5]);
}

#[test]
fn one_pair_has_a_score_for_either_class() {
    let y = two_classes().run();
    assert_eq!((y[0].dtype(), y[0].to_ints()), (DType::I64, vec![7, 7, 3]));
    near(&y[1], &[0.555089951, -0.555089951, 0.137302727, -0.137302727, -0.682580233, 0.682580233]);
    let y = two_classes().str("post_transform", "LOGISTIC").run();
    near(&y[1], &[0.635315716, 0.364684284, 0.534271896, 0.465728104, 0.33568567, 0.66431433]);
    let y = two_classes().with("prob_a", floats(&[-1.5])).with("prob_b", floats(&[0.2])).run();
    assert_eq!(y[0].to_ints(), [7, 7, 3]);
    near(&y[1], &[0.262571394, 0.737428546, 0.398987144, 0.601012826, 0.695057333, 0.304942727]);
}

#[test]
fn the_class_that_wins_most_pairs_is_the_label() {
    let y = three_classes().ints("classlabels_ints", &[3, 7, 9]).run();
    assert_eq!(y[0].to_ints(), [3, 7, 3]);
    let scores = [0.860233188, -1.2358284, 1.12550449, -0.109623492, -0.789272726, 0.326141745];
    near(&y[1], &[&scores[..], &[0.322667748, 0.105101369, 0.67024672]].concat());
    let y = three_classes().ints("classlabels_ints", &[3, 7, 9]).str("post_transform", "SOFTMAX").run();
    let shares = [0.412078112, 0.050660748, 0.537261128, 0.327553034, 0.166002154, 0.506444752];
    near(&y[1], &[&shares[..], &[0.310548365, 0.24982816, 0.439623505]].concat());
}

#[test]
fn probabilities_of_classes_fit_those_of_pairs() {
    let names = Attribute::Strs(["a", "bb", "c"].map(String::from).to_vec());
    let call = three_classes().with("classlabels_strings", names);
    let y = call.with("prob_a", floats(&[-1.5, -0.75, -2.0])).with("prob_b", floats(&[0.2, -0.1, 0.0])).run();
    assert_eq!(y[0].to_texts().unwrap(), ["a", "bb", "a"]);
    let expected = [0.404375583, 0.353853732, 0.241770834, 0.250802368, 0.459013909, 0.290183604];
    near(&y[1], &[&expected[..], &[0.409823328, 0.39479509, 0.195381641]].concat());
}

#[test]
fn numbers_that_do_not_fit_are_refused() {
    let labelled = || three_classes().ints("classlabels_ints", &[3, 7, 9]);
    assert!(labelled().with("coefficients", floats(&WEIGHTS[..9])).refusal().contains("9 coefficients"));
    assert!(labelled().ints("vectors_per_class", &[2, -1, 4]).refusal().contains("vectors_per_class"));
    assert!(labelled().ints("vectors_per_class", &[i64::MAX, 1, 4]).refusal().contains("support vectors"));
    assert!(labelled().with("rho", floats(&[0.1])).refusal().contains("rho"));
}
