//! Why nodes cannot be one kernel.

use std::fmt;

/// Why a set of nodes is no kernel, whatever it would cost.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Refusal {
    /// a node has one portable implementation, or is control flow
    Opaque,
    /// coordinates read from data lead to elements that the same kernel would have to compute
    GatherOfFused,
    /// a running fold is wanted at other coordinates than its own
    PrefixMoved,
    /// more axes than a kernel has
    TooManyAxes,
    /// more steps than a kernel should have
    TooLarge,
    /// a fold runs across tiles that different workers own
    FoldAcrossTiles,
    /// contractions that share no factor
    NoSharedFactor,
    /// a result of the first of two contractions has another reader
    ProbabilitiesUsed,
    /// partial results cannot follow a changing running result
    NotStreamable,
    /// the place of an extremum, or a running fold, is wanted along the axis that is walked piece by piece
    OrderStreamed,
    /// whole rows of the result are too long for the block that one worker owns
    RowsTooLong {
        /// elements of a row
        need: u64,
        /// elements that fit
        have: u64,
    },
    /// a part of the kernel would run over other loops than the rest
    Unrelated,
    /// a sum of products inside of the operand of another
    NestedContraction,
    /// a result of the graph must be stored once, not computed in several places
    OutputCopied,
    /// the device has no schedule of this kind
    NoSkeleton,
    /// more tensors than a kernel takes on this device
    TooManyParameters {
        /// tensors of the kernel
        need: usize,
        /// tensors that the device takes
        have: usize,
    },
}

impl Refusal {
    /// One of each kind.
    pub const ALL: &'static [Refusal] = &[
        Refusal::Opaque,
        Refusal::GatherOfFused,
        Refusal::PrefixMoved,
        Refusal::TooManyAxes,
        Refusal::TooLarge,
        Refusal::FoldAcrossTiles,
        Refusal::NoSharedFactor,
        Refusal::ProbabilitiesUsed,
        Refusal::NotStreamable,
        Refusal::OrderStreamed,
        Refusal::RowsTooLong { need: 0, have: 0 },
        Refusal::Unrelated,
        Refusal::NestedContraction,
        Refusal::OutputCopied,
        Refusal::NoSkeleton,
        Refusal::TooManyParameters { need: 0, have: 0 },
    ];

    /// A word for it, for programs that read reports.
    pub fn code(&self) -> &'static str {
        match self {
            Refusal::Opaque => "opaque",
            Refusal::GatherOfFused => "gather-of-fused",
            Refusal::PrefixMoved => "prefix-moved",
            Refusal::TooManyAxes => "too-many-axes",
            Refusal::TooLarge => "too-large",
            Refusal::FoldAcrossTiles => "fold-across-tiles",
            Refusal::NoSharedFactor => "no-shared-factor",
            Refusal::ProbabilitiesUsed => "probabilities-used",
            Refusal::NotStreamable => "not-streamable",
            Refusal::OrderStreamed => "order-streamed",
            Refusal::RowsTooLong { .. } => "rows-too-long",
            Refusal::Unrelated => "unrelated",
            Refusal::NestedContraction => "nested-contraction",
            Refusal::OutputCopied => "output-copied",
            Refusal::NoSkeleton => "no-skeleton",
            Refusal::TooManyParameters { .. } => "too-many-parameters",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::Opaque => f.write_str("one of them is not a loop over tensors"),
            Refusal::GatherOfFused => f.write_str("coordinates read from data lead into the intermediate result"),
            Refusal::PrefixMoved => f.write_str("a running fold is read at other coordinates than its own"),
            Refusal::TooManyAxes => f.write_str("the kernel would have too many loops"),
            Refusal::TooLarge => f.write_str("the kernel would have too many steps"),
            Refusal::FoldAcrossTiles => f.write_str("a reduction runs across tiles of the contraction"),
            Refusal::NoSharedFactor => f.write_str("the contractions share no operand"),
            Refusal::ProbabilitiesUsed => f.write_str("the matrix between the two contractions has another reader"),
            Refusal::NotStreamable => f.write_str("partial results cannot be corrected when a running result changes"),
            Refusal::OrderStreamed => {
                f.write_str("a place or a running fold is wanted along the axis that would be walked piece by piece")
            }
            Refusal::RowsTooLong { need, have } => {
                write!(f, "whole rows of {need} elements do not fit the {have} of a block")
            }
            Refusal::Unrelated => f.write_str("a part of it would run over other loops than the rest"),
            Refusal::NestedContraction => {
                f.write_str("a contraction would be computed again for every tile of another")
            }
            Refusal::OutputCopied => f.write_str("a result of the graph is stored once"),
            Refusal::NoSkeleton => f.write_str("the device has no schedule of this kind"),
            Refusal::TooManyParameters { need, have } => {
                write!(f, "{need} tensors are more than the {have} that a kernel takes")
            }
        }
    }
}
