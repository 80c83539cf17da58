//! What a graph needs: work and traffic, derived from the tables and never typed a second time.
//!
//! Comes in: a [`crate::graph::Graph`]. Goes out: [`Footprints`], expressions in the sizes of the graph.
//! Never here: devices, microseconds, decisions.

mod footprint;
mod operator;
mod stored;

pub use footprint::{Footprint, Footprints};
pub use operator::Operator;
