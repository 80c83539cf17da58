//! How a kernel runs: roles of axes, placement, tiles.

use std::sync::Arc;

use super::{AxisSet, StepId};
use crate::graph::Graph;
use crate::ops::Expr;

/// Where a row that is read more than once lies between its uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Placement {
    /// in registers
    Registers,
    /// in memory next to the core: shared memory, L1, L2
    OnChip,
    /// nowhere: it is read again from memory
    Reread,
    /// cut into this many parts, whose partial results are combined afterwards
    Split(u32),
}

/// The block of results that one worker computes at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tile {
    /// rows of the result
    pub rows: u32,
    /// columns of the result
    pub columns: u32,
    /// steps of the sum before the next part of the operands is fetched
    pub depth: u32,
}

/// What happens to a partial fold when the running result that its terms depend on changes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Correction {
    /// the fold (a reduce or dot along the streamed axis)
    pub fold: StepId,
    /// the earlier fold along the streamed axis on which its terms depend
    pub on: StepId,
    /// the factor, a float expression of the old and the new running result
    pub factor: Expr,
}

/// The axes of two contractions, the second of which sums over a free axis of the first.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Chain {
    /// the first contraction
    pub first: StepId,
    /// the second one
    pub second: StepId,
    /// rows of both results (queries)
    pub rows: AxisSet,
    /// columns of the first result, summed by the second (keys): streamed
    pub stream: AxisSet,
    /// summed by the first (the width of a head)
    pub inner: AxisSet,
    /// columns of the second result (the width of a value)
    pub columns: AxisSet,
}

/// How a kernel runs. Axes that no role names are independent of each other.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Schedule {
    /// every point by itself
    Map,
    /// folds along axes that one worker owns, with everything before, between and after
    Row {
        /// the axes that are folded
        along: AxisSet,
        /// where a row lies between its uses
        placement: Placement,
    },
    /// folds across rows: partial results in parts, combined afterwards; rows may be folded in the same pass
    Column {
        /// the axes that are folded across workers; no step that varies over them reads such a fold
        across: AxisSet,
        /// the axes that one worker owns
        along: AxisSet,
        /// into how many parts the work is cut
        parts: u32,
    },
    /// sums of products, tile by tile, with what comes before on the operands and after on the result
    Contract {
        /// the contractions, which share a factor and its axes
        dots: Vec<StepId>,
        /// axes of the shared factor that are not summed
        rows: AxisSet,
        /// axes of the other factors that are not summed
        columns: AxisSet,
        /// the summed axes
        sum: AxisSet,
        /// whether a worker owns whole rows of the result, because something folds along them
        whole_rows: bool,
        /// the block of results
        tile: Tile,
    },
    /// two contractions joined along a streamed axis, with folds along it between them
    Attention {
        /// the roles of the axes
        chain: Chain,
        /// how partial results follow a changed running result; empty where nothing depends on one
        corrections: Vec<Correction>,
        /// rows and streamed columns that are worked on at a time
        tile: Tile,
        /// into how many parts the stream is cut, which different workers walk; what each has found is corrected and combined
        /// afterwards
        parts: u32,
    },
    /// one portable implementation: the node of a graph with nothing but inputs beside it
    Host(Arc<Graph>),
}

impl Schedule {
    /// The name in text forms and reports.
    pub fn name(&self) -> &'static str {
        match self {
            Schedule::Map => "map",
            Schedule::Row { .. } => "row",
            Schedule::Column { .. } => "column",
            Schedule::Contract { .. } => "contract",
            Schedule::Attention { .. } => "attention",
            Schedule::Host(_) => "host",
        }
    }
}
