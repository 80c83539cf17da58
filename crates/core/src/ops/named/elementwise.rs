//! Operators that are one scalar expression at every element.

use super::{Call, NamedOp};
use crate::error::Result;
use crate::graph::Tensor;
use crate::ops::Scalar;

/// Rows that apply one scalar of table 1 to operands that broadcast.
macro_rules! scalar_rows {
    ($($name:literal, since $since:literal, $Scalar:ident;)+) => {
        &[$(NamedOp {
            name: $name,
            domain: "",
            since: $since,
            attributes: &[],
            doc: concat!("the scalar ", stringify!($Scalar), " at every element, operands broadcast"),
            expand: |call| Ok(vec![call.builder.apply(Scalar::$Scalar, &call.present()?)]),
        }),+]
    };
}

pub(super) static OPS: &[NamedOp] = scalar_rows! {
    "Add", since 7, Add;
    "Sub", since 7, Sub;
};

/// Softmax over one axis: written here once for every operator that contains it.
pub(super) fn softmax<'b>(x: Tensor<'b>, axis: usize) -> Result<Tensor<'b>> {
    let shifted = x - x.reduce_keep(crate::ops::prim::Monoid::Max, &[axis]);
    let e = shifted.exp();
    Ok(e / e.sum(&[axis]))
}

#[allow(unused_imports, reason = "rows with attributes need it")]
use Call as _;
