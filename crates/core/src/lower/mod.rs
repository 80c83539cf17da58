//! From groups of nodes to kernels.
//!
//! Comes in: a graph, the nodes of one group and the values of it that must be stored. Goes out: a [`Draft`], which is a
//! kernel before it has a schedule, and from that a [`crate::tile::Kernel`]. Lowering looks at its own group only.
//!
//! It works by demand. A stored value is wanted at every point of its own axes, which become axes of the kernel; a map
//! wants its operands at the same coordinates; a view wants its operand at others; a fold wants its operand along an
//! axis more. What lies outside of the group is loaded. A draft is therefore right by construction: it computes at
//! every point what the graph says. Whether it is a *good* kernel is a question of its schedule and its price.

mod alike;
mod classify;
mod demand;
mod divide;
mod draft;
mod finish;
mod processor;
mod refusal;
mod root;
mod settle;
mod steady;
mod stream;
mod tiling;
mod work;
mod written;

pub use classify::{Hints, Limits, Roles, classify};
pub use draft::{Draft, Leaf, LeafOp, Place, Sink};
pub use finish::finish;
pub use refusal::Refusal;
pub use settle::settle;
pub use stream::corrections;
pub use tiling::tilings;
pub use work::{Facts, Whence, work, work_in_detail};

use crate::graph::{Graph, Value};
use crate::ops::Prim;
use crate::ops::prim::{Class, Gather, View};
use crate::passes::Numerics;
use crate::tensor::{DType, Dim, Ranges, Symbol};
use crate::tile::{AxisSet, Kernel, Scale};

/// The nodes of a kernel, ascending, and what of their results is stored, ascending.
#[derive(Clone, Copy, Debug)]
pub struct Group<'g> {
    /// the graph
    pub graph: &'g Graph,
    /// the nodes that the kernel computes, ascending
    pub members: &'g [usize],
    /// the values that it stores, ascending
    pub outputs: &'g [Value],
}

/// Whether a node belongs to no kernel, because every reader computes it from coordinates or looks through it.
pub fn is_transparent(graph: &Graph, node: usize) -> bool {
    let computed = &graph.nodes()[node];
    match computed.prim() {
        Prim::Sizes(_) => true,
        Prim::Map(_) if computed.args().is_empty() => true,
        _ => looked_at(graph, node).is_some(),
    }
}

/// What the readers of a node look at through it: what a view is of, and f16 or bf16 that is widened to f32, so that it is
/// stored, read and multiplied as what it is.
pub fn looked_at(graph: &Graph, node: usize) -> Option<Value> {
    let node = &graph.nodes()[node];
    let looks = match node.prim() {
        Prim::View(_) => true,
        Prim::Map(row) => {
            let from = row.expr.args().first();
            row.expr.is_cast() && row.expr.dtype() == DType::F32 && matches!(from, Some(DType::BF16 | DType::F16))
        }
        _ => false,
    };
    looks.then(|| node.args()[0])
}

/// Whether a node is one portable implementation (or control flow), which no kernel of loops contains.
pub fn is_opaque(prim: &Prim) -> bool {
    matches!(prim.class(), Class::Control | Class::Opaque) || matches!(prim, Prim::Scatter(_))
}

/// What a gather reads its elements from: the data through views that read everywhere, and through which an index that lies outside still
/// does. A view with guards, a part of a tensor or a formula is stored for it.
pub fn gathered(graph: &Graph, gather: &Gather, data: Value) -> Value {
    let is_read = |dim: &Dim| dim.mentions(|symbol| matches!(symbol, Symbol::Read(_)));
    let mut read: AxisSet = (0..gather.map.len()).filter(|axis| is_read(&gather.map[*axis])).collect();
    let mut base = data;
    while let Prim::View(view) = graph.node_of(base).prim()
        && view.guard.is_empty()
    {
        let operand = graph.node_of(base).args()[0];
        let sizes = graph.ty(operand).shape.dims();
        if !read.iter().all(|axis| keeps_outside(view, sizes, axis, read)) {
            break;
        }
        let is_moved = |dim: &Dim| !AxisSet::mentioned(dim).common(read).is_empty();
        read = (0..view.map.len()).filter(|axis| is_moved(&view.map[*axis])).collect();
        base = operand;
    }
    base
}

/// Whether a coordinate outside of an axis of a view, one of those whose coordinates are read from data, is outside of the operand too.
fn keeps_outside(view: &View, sizes: &[Dim], axis: usize, read: AxisSet) -> bool {
    let (symbol, whole) = (Symbol::Axis(axis as u8), &view.shape[axis]);
    let ranges = Ranges::of(view.shape.dims());
    view.map.iter().zip(sizes).any(|(dim, size)| match Scale::of(dim, &symbol, &ranges) {
        Some((Scale::Times(by), rest)) => *size == whole * by && AxisSet::mentioned(&rest).common(read).is_empty(),
        Some((Scale::Over(by), _)) => *whole == size * by,
        None => false,
    })
}

/// The kernel of a draft, and the draft in the form in which it was written.
pub fn write(draft: Draft, limits: &Limits, hints: &Hints, numerics: Numerics) -> Result<(Draft, Kernel), Refusal> {
    write_with(draft, limits, &|_, _| None, hints, numerics)
}

/// As [`write()`], with other tiles where `choose` finds better ones for the form in which a draft is written: however it was spelt, it has one schedule.
pub fn write_with(
    draft: Draft,
    limits: &Limits,
    choose: &dyn Fn(&Draft, &Roles) -> Option<Limits>,
    hints: &Hints,
    numerics: Numerics,
) -> Result<(Draft, Kernel), Refusal> {
    let settled = settle(&draft, numerics);
    let written = classify(&settled, limits, hints).and_then(|roles| match choose(&settled, &roles) {
        Some(other) if other != *limits => {
            let roles = classify(&settled, &other, hints)?;
            finish(&settled, &roles, &other, numerics)
        }
        _ => finish(&settled, &roles, limits, numerics),
    });
    match written {
        Ok(kernel) => Ok((settled, kernel)),
        // Algebra can make a fold vanish, and with it what held a schedule together; the draft as it was has one.
        Err(_) => {
            let roles = classify(&draft, limits, hints)?;
            let kernel = finish(&draft, &roles, limits, numerics)?;
            Ok((draft, kernel))
        }
    }
}

/// The draft of a group, or why there is none.
pub fn lower(group: &Group<'_>) -> Result<Draft, Refusal> {
    root::lower_roots(group)
}
