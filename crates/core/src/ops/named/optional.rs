//! Optional values that are tensors, or not there at all.

use super::NamedOp;
use crate::tensor::DType;

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard("OptionalHasElement", 15, &[], "whether a value is there", |call| {
        Ok(vec![call.builder.int(DType::Bool, i64::from(call.optional(0).is_some()))])
    }),
    NamedOp::standard("OptionalGetElement", 15, &[], "the value that is there", |call| Ok(vec![call.input(0)?])),
];
