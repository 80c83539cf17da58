//! Operators of classical machine learning.

use super::NamedOp;

pub(super) static OPS: &[NamedOp] = &[NamedOp {
    name: "Binarizer",
    domain: "ai.onnx.ml",
    since: 1,
    attributes: &["threshold"],
    doc: "1 where x is above the threshold, otherwise 0",
    expand: |call| {
        let (x, threshold) = (call.input(0)?, call.float_or("threshold", 0.0)?);
        let dtype = x.dtype()?;
        // An integer is above a number exactly when it is above its floor.
        let above = x.gt(if dtype.is_float() { threshold } else { threshold.floor() });
        Ok(vec![above.cast(dtype)])
    },
}];
