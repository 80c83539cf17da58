//! Where elements are not zero.

use crate::reference::Buffer;
use crate::tensor::DType;

/// The coordinates of the elements that are not zero, one column each, in row-major order.
pub(super) fn nonzero(x: &Buffer) -> Buffer {
    let hits: Vec<usize> = if x.dtype().is_float() {
        x.to_floats().iter().enumerate().filter(|(_, v)| **v != 0.0).map(|(k, _)| k).collect()
    } else {
        x.to_ints().iter().enumerate().filter(|(_, v)| **v != 0).map(|(k, _)| k).collect()
    };
    let sizes = x.sizes();
    let mut coordinates = Vec::with_capacity(sizes.len() * hits.len());
    for axis in 0..sizes.len() {
        let stride: usize = sizes[axis + 1..].iter().product();
        coordinates.extend(hits.iter().map(|k| (k / stride % sizes[axis]) as i64));
    }
    Buffer::ints(DType::I64, vec![sizes.len(), hits.len()], coordinates)
}
