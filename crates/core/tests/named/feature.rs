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
