//! Decisions: what was looked at, what was decided, why, and what it is worth.

use std::fmt;
use std::str::FromStr;

use super::gain::Gain;
use crate::error::Error;
use crate::lower::Refusal;

/// The name of a decision: follows from the structure of what it is about, the same in every run.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DecisionId(pub u64);

impl fmt::Display for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:012x}", self.0 & 0xffff_ffff_ffff)
    }
}

impl fmt::Debug for DecisionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for DecisionId {
    type Err = Error;

    fn from_str(text: &str) -> Result<DecisionId, Error> {
        let parsed = (text.len() == 12).then(|| u64::from_str_radix(text, 16).ok()).flatten();
        parsed
            .map(DecisionId)
            .ok_or_else(|| Error::invalid(format!("\"{text}\" is no decision (12 hexadecimal digits)")))
    }
}

/// Whether something was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// it was
    Taken,
    /// it was not
    Refused,
}

/// Why a candidate was not taken.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// no kernel can do it, or none of this device
    Illegal(Refusal),
    /// a path leads from the one through something else to the other
    Cycle,
    /// it would take longer
    Slower {
        /// by how many microseconds
        by_us: f64,
    },
    /// combining them two by two is better than all at once
    PairsBetter {
        /// by how many microseconds
        by_us: f64,
    },
    /// it saves time, and a plan without it is better
    Outweighed {
        /// by how much, in all
        gain: Gain,
    },
    /// no way to combine these two is known
    NoRule,
    /// the user said so
    Pinned,
    /// as many decisions were taken as were allowed
    Fuel,
    /// as much was looked at as was allowed
    Effort,
    /// a plan by chance did not choose it
    Chance,
    /// the textbook policy refuses it
    Textbook(&'static str),
}

impl Reason {
    /// Every word that [`Reason::code`] has.
    pub fn codes() -> impl Iterator<Item = &'static str> {
        let own = [
            Reason::Cycle,
            Reason::Slower { by_us: 0.0 },
            Reason::PairsBetter { by_us: 0.0 },
            Reason::Outweighed { gain: Gain::default() },
            Reason::NoRule,
            Reason::Pinned,
            Reason::Fuel,
            Reason::Effort,
            Reason::Chance,
            Reason::Textbook(""),
        ];
        Refusal::ALL.iter().map(Refusal::code).chain(own.map(|reason| reason.code()))
    }

    /// A word for it, for programs that read reports.
    pub fn code(&self) -> &'static str {
        match self {
            Reason::Illegal(refusal) => refusal.code(),
            Reason::Cycle => "cycle",
            Reason::Slower { .. } => "slower",
            Reason::PairsBetter { .. } => "pairs-better",
            Reason::Outweighed { .. } => "outweighed",
            Reason::NoRule => "no-rule",
            Reason::Pinned => "pinned",
            Reason::Fuel => "fuel",
            Reason::Effort => "effort",
            Reason::Chance => "chance",
            Reason::Textbook(_) => "textbook",
        }
    }

    /// Whether no choice of the user can change it.
    pub fn is_illegal(&self) -> bool {
        matches!(self, Reason::Illegal(_) | Reason::Cycle | Reason::NoRule)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Illegal(refusal) => fmt::Display::fmt(refusal, f),
            Reason::Cycle => {
                f.write_str("the first reaches the second also through something else that must run between")
            }
            Reason::Slower { by_us } => write!(f, "one kernel would take {by_us:.2} µs longer"),
            Reason::PairsBetter { by_us } => write!(f, "combined two by two they take {by_us:.2} µs less"),
            Reason::Outweighed { gain } => write!(f, "a plan that keeps them apart {gain} in all"),
            Reason::NoRule => f.write_str("no rule combines kernels of these kinds"),
            Reason::Pinned => f.write_str("kept apart as asked"),
            Reason::Fuel => f.write_str("as many decisions were taken as allowed"),
            Reason::Effort => f.write_str("as much was looked at as allowed"),
            Reason::Chance => f.write_str("not chosen in this random plan"),
            Reason::Textbook(why) => write!(f, "the textbook policy: {why}"),
        }
    }
}

/// What something costs in all: time, traffic, work, launches.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct Cost {
    /// predicted microseconds
    pub us: f64,
    /// bytes read and written in memory
    pub bytes: f64,
    /// arithmetic operations
    pub flops: f64,
    /// kernels
    pub launches: f64,
    /// registers of a thread, the most of any kernel
    pub registers: f64,
}

impl std::ops::Add for Cost {
    type Output = Cost;
    fn add(self, other: Cost) -> Cost {
        Cost {
            us: self.us + other.us,
            bytes: self.bytes + other.bytes,
            flops: self.flops + other.flops,
            launches: self.launches + other.launches,
            registers: self.registers.max(other.registers),
        }
    }
}

/// A candidate that was looked at.
#[derive(Clone, Debug, PartialEq)]
pub struct Decision {
    /// its name
    pub id: DecisionId,
    /// the rule that proposed it
    pub rule: &'static str,
    /// the nodes that come first, ascending
    pub producer: Vec<usize>,
    /// the nodes that come second, ascending
    pub consumer: Vec<usize>,
    /// whether it was done
    pub verdict: Verdict,
    /// why not; `None` where it was
    pub reason: Option<Reason>,
    /// what the first and the second cost apart
    pub sides: [Cost; 2],
    /// what they cost together; `None` where no kernel can do it
    pub after: Option<Cost>,
    /// the pairs of nodes, reader last, that it decides about
    pub edges: Vec<(usize, usize)>,
    /// what the plan gains in all, in microseconds, by a decision that saves nothing by itself and was taken for that
    pub in_all_us: Option<f64>,
    /// what the user should know of a decision that was taken: a second output, work done twice, a rounding removed
    pub notes: Vec<Note>,
}

/// What a taken decision brings with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Note {
    /// the intermediate result has other readers and is written besides
    SecondOutput,
    /// the first is computed in several kernels instead of being stored
    ComputedAgain,
    /// a value that was rounded between the two stays wider
    RoundingRemoved,
    /// the two hold numbers of different types
    Converted,
    /// the result is written in another order than it is computed
    PermutedStore,
    /// folds of the result of a contraction are in its kernel
    WholeRows,
    /// folds of an operand of a contraction are in its kernel
    FoldedOperand,
    /// two contractions with folds between them are in one kernel
    Streamed,
    /// it saves no time by itself, and makes way for what does
    PaysLater,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Note::SecondOutput => "allowed, because the intermediate result becomes a second output",
            Note::ComputedAgain => "allowed, because computing it again is cheaper than storing it",
            Note::RoundingRemoved => "a rounding between the two is removed",
            Note::Converted => "allowed, because the kernel converts on the way",
            Note::PermutedStore => "allowed, because the store permutes",
            Note::WholeRows => "allowed, because a tile owns whole rows",
            Note::FoldedOperand => "allowed, because folding a row again for each tile costs less than storing it",
            Note::PaysLater => "taken, because the plan in all is better with it",
            Note::Streamed => "allowed, because the folds between the products follow each other along the stream",
        })
    }
}

impl Decision {
    /// Microseconds that it saves, with what it makes way for (or, refused, would save; negative where it would cost).
    pub fn saved_us(&self) -> f64 {
        let by_itself = || self.after.map_or(0.0, |after| self.before().us - after.us);
        self.in_all_us.unwrap_or_else(by_itself)
    }

    /// What both cost apart.
    pub fn before(&self) -> Cost {
        self.sides[0] + self.sides[1]
    }
}
