//! What a graph needs, derived from the tables and never typed a second time, and what that costs.
//!
//! Comes in: a [`crate::graph::Graph`]. Goes out: [`Footprints`], expressions in the sizes of the graph. Of a kernel, as
//! numbers ([`Work`]): its [`Price`] on a device in microseconds. Never here: decisions.

mod cost;
mod footprint;
mod operator;
pub mod scorecard;
mod stored;

pub use cost::{Bound, Price, Stream, Work, price};
pub use footprint::{Footprint, Footprints};
pub use operator::Operator;
pub use scorecard::Scorecard;
