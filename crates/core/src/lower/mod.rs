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
use crate::ops::prim::Class;
use crate::passes::Numerics;
use crate::tensor::DType;
use crate::tile::Kernel;

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

/// What a gather reads its elements from: the data through views that read everywhere. A view with guards, or a formula,
/// is stored for it.
pub fn gathered(graph: &Graph, data: Value) -> Value {
    let mut base = data;
    while let Prim::View(view) = graph.node_of(base).prim()
        && view.guard.is_empty()
    {
        base = graph.node_of(base).args()[0];
    }
    base
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
