//! What every device that runs plans must know of them before they run: who reads what, what is constant, what can be made ready at one
//! time, and where values may lie.
//!
//! Comes in: a graph with a plan of it. Goes out: the same as lists by number. What was made for sizes is kept here too
//! ([`BySize`]), and what a run had in its hands ([`Trace`]). Never here: memory, threads, a device.

mod blame;
mod by_size;
mod inherit;
mod load;
pub mod memory;
mod trace;

pub use by_size::BySize;
pub use inherit::may_inherit;
pub use load::{ConstantId, ConstantPool, LoadedGraph, LoadedKernel, Origin, Segment, Slot, Way};
pub use trace::{Case, Trace};
