//! Rows of 96 numbers, which most norms of this corpus read.

use fuseline::graph::Tensor;

use super::Sheet;

/// The rows.
pub(super) fn x(s: &Sheet) -> Tensor<'_> {
    s.floats("x", "n, s, 96")
}

/// What scales and shifts every row.
pub(super) fn affine(s: &Sheet) -> [Tensor<'_>; 2] {
    ["scale", "shift"].map(|name| s.floats(name, "96"))
}

/// The mean of every row.
pub(super) fn mean<'s>(s: &'s Sheet, x: Tensor<'s>) -> Tensor<'s> {
    s.reduce("ReduceMean", x, -1)
}
