//! Which nodes become one kernel, and why.
//!
//! Comes in: a graph after passes, a device as data, options. Goes out: a [`Plan`]: groups of nodes in the order in which they run, each
//! with its kernel and its price, and a log of every decision, taken or refused, with its reason. Never here: code
//! generation, devices that exist.
//!
//! Three questions are kept apart. *Legality*: do the nodes, lowered together, have a schedule, and does no path lead out
//! and back? *Profit*: what does that kernel cost in microseconds on the device, compared with the kernels it replaces?
//! *Order*: what saves the most is done first. Every legal plan is right, so tests may choose plans by chance.

mod candidate;
mod cell;
mod check;
mod consider;
mod context;
mod decision;
mod driver;
mod evaluate;
mod expect;
mod function;
mod gain;
mod knowledge;
mod layout;
mod lock;
mod log;
mod name;
mod neighbours;
mod options;
mod order;
mod plan;
mod replay;
pub mod rules;
mod schedule;
mod second_thoughts;
mod state;
mod structure;
mod textbook;
mod third_thoughts;

pub use context::FuseContext;
pub use decision::{Cost, Decision, DecisionId, Note, Reason, Verdict};
pub use evaluate::{Kind, Priced};
pub use expect::expected;
pub(crate) use gain::bytes_text;
pub use gain::{Gain, UNSURE};
pub(crate) use knowledge::Knowledge;
pub use lock::{Lock, LockedGraph, LockedKernel};
pub use options::{Chooser, Pins, PlanOptions, Policy};
pub use plan::{Plan, PlannedKernel, edge_names, node_names, plan};
pub(crate) use plan::{plan_knowing, price_knowing};
pub use schedule::scheduled;
pub use state::GroupId;
pub use third_thoughts::Turn;

use crate::graph::Graph;

/// Every pair of computing nodes of which the second reads a result of the first, through whatever views: what decisions
/// are about. Ascending by reader.
pub fn edges(graph: &Graph) -> Vec<(usize, usize)> {
    let cells = cell::Cells::of(graph, &mut structure::Numbering::default());
    let reads = |id: usize| cells.reads[id].iter().map(move |read| (*read as usize, id));
    cells.iter().flat_map(reads).collect()
}
