//! Planned graphs, looked at once before they run, with what is made of their segments.

use fuseline::run::BySize;
pub(super) use fuseline::run::{Origin, Slot, Way};

use super::specialize::Special;

/// A graph with a plan of it that was checked.
pub(super) type LoadedGraph = fuseline::run::LoadedGraph<BySize<Special>>;

/// Consecutive kernels whose sizes are all known before the first of them runs.
pub(super) type Segment = fuseline::run::Segment<BySize<Special>>;
