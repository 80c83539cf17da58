use fuseline::ops::named::Attribute;

use crate::call::{Op, f32s, op};

/// One tree: is x₀ ≤ 0.5? Yes: 10. No: is x₁ > 2? Yes: 20. No: 30 and, for the second target, 1.
fn regressor() -> Op {
    let modes = ["BRANCH_LEQ", "LEAF", "BRANCH_GT", "LEAF", "LEAF"];
    op("TreeEnsembleRegressor")
        .domain("ai.onnx.ml", 3)
        .int("n_targets", 2)
        .ints("nodes_treeids", &[0; 5])
        .ints("nodes_nodeids", &[0, 1, 2, 3, 4])
        .ints("nodes_featureids", &[0, 0, 1, 0, 0])
        .ints("nodes_truenodeids", &[1, 0, 3, 0, 0])
        .ints("nodes_falsenodeids", &[2, 0, 4, 0, 0])
        .ints("nodes_missing_value_tracks_true", &[0, 0, 1, 0, 0])
        .with("nodes_values", Attribute::Floats(vec![0.5, 0.0, 2.0, 0.0, 0.0]))
        .with("nodes_modes", Attribute::Strs(modes.iter().map(|m| m.to_string()).collect()))
        .ints("target_treeids", &[0; 4])
        .ints("target_nodeids", &[1, 3, 4, 4])
        .ints("target_ids", &[0, 0, 0, 1])
        .with("target_weights", Attribute::Floats(vec![10.0, 20.0, 30.0, 1.0]))
        .with("base_values", Attribute::Floats(vec![0.25, 0.5]))
}

#[test]
fn rows_walk_down_to_their_leaves() {
    let nan = f64::NAN;
    let x = f32s(&[5, 2], &[0.5, 9.0, 0.6, 2.5, 0.6, 2.0, 7.0, nan, nan, 0.0]);
    let y = regressor().arg(x).values();
    assert_eq!(y, [10.25, 0.5, 20.25, 0.5, 30.25, 1.5, 20.25, 0.5, 30.25, 1.5]);
}

#[test]
fn a_tree_that_leads_back_is_refused() {
    let x = f32s(&[1, 2], &[1.0, 1.0]);
    let looped = regressor().ints("nodes_falsenodeids", &[2, 0, 0, 0, 0]).arg(x.clone());
    assert!(looped.refusal().contains("leads back to itself"), "{}", looped.refusal());
    let lost = regressor().ints("nodes_falsenodeids", &[2, 0, 17, 0, 0]).arg(x);
    assert!(lost.refusal().contains("no node 17"), "{}", lost.refusal());
}
