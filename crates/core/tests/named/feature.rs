use fuseline::ops::named::Attribute;
use fuseline::tensor::{DType, Literal};

use crate::call::{f32s, op};

#[test]
fn a_binarizer_keeps_the_type_and_leaves_the_threshold_out() {
    let call = op("Binarizer").domain("ai.onnx.ml", 1).float("threshold", 1.5);
    let y = call.arg(f32s(&[3], &[1.0, 1.5, 2.0])).run();
    assert_eq!(y[0], f32s(&[3], &[0.0, 0.0, 1.0]));
    let whole = op("Binarizer").domain("ai.onnx.ml", 1).float("threshold", -1.5);
    let y = whole.arg(Literal::i64s(&[-2, -1, 0])).run();
    assert_eq!((y[0].dtype(), y[0].to_ints()), (DType::I64, vec![0, 1, 1]));
}

#[test]
fn features_are_shifted_scaled_and_normalised() {
    let x = f32s(&[2, 3], &[1.0, -2.0, 2.0, 0.0, 0.0, 0.0]);
    let ml = |name| op(name).domain("ai.onnx.ml", 1);
    let floats = |values: &[f64]| Attribute::Floats(values.to_vec());
    let scaled = ml("Scaler").with("offset", floats(&[1.0, 0.0, -1.0])).with("scale", floats(&[2.0]));
    assert_eq!(scaled.arg(x.clone()).values(), [0.0, -4.0, 6.0, -2.0, 0.0, 2.0]);
    let normalised = |norm: &str| ml("Normalizer").str("norm", norm).arg(x.clone()).values()[..3].to_vec();
    assert_eq!(normalised("MAX"), [0.5, -1.0, 1.0]);
    let negative = ml("Normalizer").arg(f32s(&[1, 2], &[-4.0, -2.0]));
    assert_eq!(negative.values(), [2.0, 1.0]);
    assert_eq!(normalised("L1"), [1.0, -2.0, 2.0].map(|x| f64::from((x / 5.0) as f32)));
    assert_eq!(normalised("L2"), [1.0, -2.0, 2.0].map(|x| f64::from((x / 3.0) as f32)));
    let linear = ml("LinearRegressor").int("targets", 2).with("intercepts", floats(&[0.0, 0.5]));
    let linear = linear.with("coefficients", floats(&[1.0, 1.0, 1.0, 2.0, 0.0, -1.0]));
    assert_eq!(linear.arg(x).values(), [1.0, 0.5, 0.0, 0.5]);
}
