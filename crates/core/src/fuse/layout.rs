//! How stored values lie in memory.

use std::collections::BTreeMap;

use super::plan::PlannedKernel;
use crate::graph::{Graph, Value};
use crate::tensor::Layout;

/// The layout of every value that a kernel stores or reads. Row-major throughout: inputs, constants and results have the
/// caller's layout, and every kernel can read any order, so that nothing has to be laid out anew.
pub(super) fn assign_layouts(graph: &Graph, kernels: &[PlannedKernel]) -> BTreeMap<Value, Layout> {
    let values = kernels.iter().flat_map(|kernel| kernel.inputs.iter().chain(&kernel.outputs));
    values.map(|value| (*value, Layout::row_major(graph.ty(*value).shape.rank()))).collect()
}
