//! The reference interpreter: what every graph means.
//!
//! Comes in: a graph and the values of its inputs. Goes out: the values of its outputs. Four readings:
//! - [`Reading::Exact`] computes floats in f64 and rounds only where the graph says so (casts, inputs, outputs), and what decides: a
//!   comparison, a step such as `floor`, a conversion to an integer, an order or a position takes its operands as numbers of their type.
//!   Otherwise `8 · log(16) / 2.7725887`, where the model has rounded log 16, would be a little less than 8, as no f32 is, and `floor`
//!   of it 7;
//! - [`Reading::Rounded`] rounds every scalar result to its element type, as a strict execution would;
//! - [`Reading::Held`] is exact, but for conversions to f16 and bf16, which do not round either: what one kernel makes of a model, whose
//!   numbers then do not leave the range of these types;
//! - [`Reading::Drawn`] rounds every scalar result, at random: what another order of sums, or other functions as accurate, may come to.
//!
//! Integers are exact in all. Never here: speed at the price of meaning.

mod buffer;
mod contract;
mod drawn;
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
