//! Planned graphs, looked at once before they run, with what is made of their segments.

pub(super) use fuseline::run::{Origin, Slot, Way};

use super::specialize::Specials;

/// A graph with a plan of it that was checked.
pub(super) type LoadedGraph = fuseline::run::LoadedGraph<Specials>;

/// Consecutive kernels whose sizes are all known before the first of them runs.
pub(super) type Segment = fuseline::run::Segment<Specials>;
