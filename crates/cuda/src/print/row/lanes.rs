//! Along which axis of a row neighbouring elements are moved together, and in which order its axes are walked.

use fuseline::tensor::Dim;
use fuseline::tile::AxisSet;

use super::super::body::Lanes;
use super::super::element;
use super::super::nest::{Nest, is_multiple, slope};

/// Packs of 16 bytes.
const PACK_BYTES: i64 = 16;

/// The axis of a row along which most lies side by side, and how many elements of it are read at once.
pub(super) fn choose_lanes(nest: &Nest<'_>, along: AxisSet) -> Lanes {
    let is_in_line = |dim: &Dim, axis: usize| slope(dim, axis).is_some_and(|slope| slope.is(1));
    let accesses = || nest.loads().chain(nest.stores.iter().map(|store| &store.access));
    let bytes = |axis: usize| -> i64 {
        let in_line = accesses().filter(|access| is_in_line(&access.offset, axis));
        in_line.map(|access| element::bytes(access.tensor.dtype)).sum()
    };
    let axis = along.iter().max_by_key(|axis| (bytes(*axis), *axis)).unwrap_or(0);
    if let Some(lines) = &nest.lines {
        return Lanes { axis, count: lines.count };
    }
    let mut count = most_lanes(nest, axis);
    while count > 1 && !is_multiple(&nest.extents[axis], count) {
        count /= 2;
    }
    Lanes { axis, count }
}

/// How many elements along an axis fill the widest access.
pub(super) fn most_lanes(nest: &Nest<'_>, axis: usize) -> i64 {
    let accesses = nest.loads().chain(nest.stores.iter().map(|store| &store.access));
    let in_line = accesses.filter(|access| slope(&access.offset, axis).is_some_and(|slope| slope.is(1)));
    let narrowest = in_line.map(|access| element::bytes(access.tensor.dtype)).min();
    narrowest.map_or(1, |bytes| (PACK_BYTES / bytes).min(8))
}

/// The axes of a row, with the lanes innermost and what lies farther apart outside.
pub(super) fn order_axes(nest: &Nest<'_>, along: AxisSet, lanes: Lanes) -> Vec<usize> {
    let stride = |axis: usize| {
        let strides = nest.loads().filter_map(|access| slope(&access.offset, axis)?.as_int());
        strides.filter(|stride| *stride > 0).min().unwrap_or(i64::MAX)
    };
    let mut order: Vec<usize> = along.iter().collect();
    order.sort_by_key(|axis| (*axis == lanes.axis, std::cmp::Reverse(stride(*axis)), *axis));
    order
}
