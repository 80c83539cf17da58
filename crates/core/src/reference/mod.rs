//! The reference interpreter: what every graph means.
//!
//! Comes in: a graph and the values of its inputs. Goes out: the values of its outputs. Two readings:
//! - [`Reading::Exact`] computes floats in f64 and rounds only where the graph says so (casts, inputs, outputs);
//! - [`Reading::Rounded`] rounds every scalar result to its element type, as a strict execution would.
//!
//! Integers are exact in both. Never here: speed at the price of meaning.

mod buffer;
mod contract;
mod index;
mod map;
mod pending;
mod positions;
mod reduce;
mod run;
mod sort;

pub use buffer::Buffer;
pub use pending::Pending;
pub use run::{Limits, Options, Reading, Run, evaluate, evaluate_buffers, evaluate_prim, evaluate_under};

pub(crate) use contract::eval_contract;
pub(crate) use index::{eval_gather, eval_scatter, out_of_range};
pub(crate) use map::{eval_map, eval_map_within};
pub(crate) use positions::{IndexFn, Part, Positions, coordinates, row_major};
pub(crate) use reduce::{combine, eval_prefix, eval_reduce};
pub(crate) use sort::eval_sort;
