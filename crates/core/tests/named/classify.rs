use fuseline::ops::named::Attribute;
use fuseline::tensor::{DType, Literal};

use crate::call::{Op, f32s, op};

fn floats(values: &[f64]) -> Attribute {
    Attribute::Floats(values.to_vec())
}

fn texts(values: &[&str]) -> Attribute {
    Attribute::Strs(values.iter().map(|text| text.to_string()).collect())
}

fn rows() -> Literal {
    f32s(&[3, 2], &[0.25, -1.0, -2.0, 1.0, 0.5, 2.0])
}

fn linear(coefficients: &[f64], intercepts: &[f64]) -> Op {
    let call = op("LinearClassifier").domain("ai.onnx.ml", 1).outputs(2).arg(rows());
    call.with("coefficients", floats(coefficients)).with("intercepts", floats(intercepts))
}

fn sigmoid(x: f64) -> f64 {
    f64::from((1.0 / (1.0 + (-x).exp())) as f32)
}

#[test]
fn the_largest_score_gives_the_label() {
    let call = linear(&[1.0, 0.5, -1.0, -0.5, 0.0, 2.0], &[0.0, 0.0, 0.25]);
    let y = call.with("classlabels_strings", texts(&["a", "bb", "c"])).run();
    assert_eq!(y[0].to_texts().unwrap(), ["bb", "c", "c"]);
    assert_eq!(y[1].to_f64s(), [-0.25, 0.25, -1.75, -1.5, 1.5, 2.25, 1.5, -1.5, 4.25]);
}

#[test]
fn one_score_stands_for_two_classes() {
    let call = linear(&[1.0, 0.5], &[0.0]).ints("classlabels_ints", &[3, 7]);
    let y = call.run();
    assert_eq!((y[0].dtype(), y[0].to_ints()), (DType::I64, vec![3, 3, 7]));
    assert_eq!(y[1].to_f64s(), [1.25, -0.25, 2.5, -1.5, -0.5, 1.5]);
    let y = call.str("post_transform", "LOGISTIC").run();
    let expected: Vec<f64> = [-0.25, -1.5, 1.5].iter().flat_map(|x| [sigmoid(-x), sigmoid(*x)]).collect();
    assert_eq!(y[1].to_f64s(), expected);
    let refused = linear(&[1.0, 0.5], &[0.0]).ints("classlabels_ints", &[3, 7]).str("post_transform", "SOFTMAX");
    assert!(refused.refusal().contains("SOFTMAX") || refused.refusal().contains("Softmax"), "{}", refused.refusal());
    assert!(linear(&[1.0, 0.5], &[0.0]).refusal().contains("no labels"));
}

#[test]
fn what_is_zero_stays_out_of_a_softmax() {
    let call = linear(&[1.0, 0.0, 0.0, 0.0, 0.0, 1.0], &[0.0, 0.0, 0.0]).ints("classlabels_ints", &[0, 1, 2]);
    let y = call.str("post_transform", "SOFTMAX_ZERO").run()[1].to_f64s();
    assert!(y[1] == 0.0 && y[4] == 0.0 && (y[0] + y[2] - 1.0).abs() < 1e-6, "{y:?}");
    assert!((y[0] / y[2] - 1.25f64.exp()).abs() < 1e-5, "{y:?}");
}

/// A tree of one question, x0 <= 0, whose leaves vote.
fn tree(votes: &[(i64, i64, f64)]) -> Op {
    let list = |of: fn(&(i64, i64, f64)) -> i64| votes.iter().map(of).collect::<Vec<i64>>();
    op("TreeEnsembleClassifier")
        .domain("ai.onnx.ml", 1)
        .outputs(2)
        .ints("nodes_treeids", &[0; 3])
        .ints("nodes_nodeids", &[0, 1, 2])
        .ints("nodes_featureids", &[0; 3])
        .with("nodes_modes", texts(&["BRANCH_LEQ", "LEAF", "LEAF"]))
        .with("nodes_values", floats(&[0.0; 3]))
        .ints("nodes_truenodeids", &[1, 0, 0])
        .ints("nodes_falsenodeids", &[2, 0, 0])
        .ints("class_treeids", &vec![0; votes.len()])
        .ints("class_nodeids", &list(|vote| vote.0))
        .ints("class_ids", &list(|vote| vote.1))
        .with("class_weights", floats(&votes.iter().map(|vote| vote.2).collect::<Vec<f64>>()))
        .arg(rows())
}

#[test]
fn trees_vote_for_classes() {
    let call = tree(&[(1, 0, 0.25), (1, 1, 0.75), (2, 2, 0.5), (2, 1, -0.25)]).ints("classlabels_int64s", &[3, 7, 9]);
    let y = call.clone().run();
    assert_eq!(y[0].to_ints(), [9, 7, 9]);
    assert_eq!(y[1].to_f64s(), [0.0, -0.25, 0.5, 0.25, 0.75, 0.0, 0.0, -0.25, 0.5]);
    let y = call.with("base_values", floats(&[1.0, 0.0, 0.0])).run();
    assert_eq!(y[0].to_ints(), [3, 3, 3]);
}

#[test]
fn two_classes_with_votes_of_their_own_are_as_many() {
    let y = tree(&[(1, 0, 0.25), (1, 1, 0.75), (2, 0, 1.0)]).with("classlabels_strings", texts(&["no", "yes"])).run();
    assert_eq!(y[0].to_texts().unwrap(), ["no", "yes", "no"]);
    assert_eq!(y[1].to_f64s(), [1.0, 0.0, 0.25, 0.75, 1.0, 0.0]);
}

#[test]
fn votes_for_one_class_are_shares_or_scores() {
    let share = tree(&[(1, 0, 0.25), (2, 0, 0.75)]).ints("classlabels_int64s", &[3, 7]).run();
    assert_eq!(share[0].to_ints(), [7, 3, 7]);
    assert_eq!(share[1].to_f64s(), [0.25, 0.75, 0.75, 0.25, 0.25, 0.75]);
    let score = tree(&[(1, 0, -0.25), (2, 0, 0.25)]).ints("classlabels_int64s", &[3, 7]);
    assert_eq!(score.clone().run()[1].to_f64s(), [-0.25, 0.25, 0.25, -0.25, -0.25, 0.25]);
    let y = score.str("post_transform", "LOGISTIC").run();
    assert_eq!((y[0].to_ints(), y[1].to_f64s()[1]), (vec![7, 3, 7], sigmoid(0.25)));
}

#[test]
fn features_are_filled_in_placed_and_joined() {
    let ml = |name| op(name).domain("ai.onnx.ml", 1);
    let holes = f32s(&[2, 2], &[f64::NAN, 1.0, 2.0, f64::NAN]);
    let filled =
        ml("Imputer").with("imputed_value_floats", floats(&[5.0, 6.0])).float("replaced_value_float", f64::NAN);
    assert_eq!(filled.arg(holes).values(), [5.0, 1.0, 2.0, 6.0]);
    let whole = ml("Imputer").ints("imputed_value_int64s", &[9]).int("replaced_value_int64", -1);
    assert_eq!(whole.arg(Literal::i64s(&[4, -1])).run()[0].to_ints(), [4, 9]);
    let hot = ml("OneHotEncoder").ints("cats_int64s", &[4, 2]).arg(Literal::i64s(&[2, 3, 4])).run();
    assert_eq!((hot[0].sizes(), hot[0].to_f64s()), (&[3, 2][..], vec![0.0, 1.0, 0.0, 0.0, 1.0, 0.0]));
    let words = Literal::texts([2], &["b", "long"]).unwrap();
    let hot = ml("OneHotEncoder").with("cats_strings", texts(&["long", "b"])).arg(words).values();
    assert_eq!(hot, [0.0, 1.0, 1.0, 0.0]);
    let joined = ml("FeatureVectorizer").ints("inputdimensions", &[2, 1]);
    assert_eq!(joined.arg(rows()).arg(f32s(&[3, 1], &[7.0, 8.0, 9.0])).values()[..4], [0.25, -1.0, 7.0, -2.0]);
}

#[test]
fn scores_by_label_are_a_table() {
    let call = op("ZipMap").domain("ai.onnx.ml", 1).arg(rows());
    assert_eq!(call.clone().ints("classlabels_int64s", &[0, 1]).values(), rows().to_f64s());
    assert!(call.ints("classlabels_int64s", &[0, 1, 2]).refusal().contains("ZipMap"));
}
