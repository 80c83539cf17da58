//! Candidates and what is decided on them.

use std::fmt;

use indexmap::IndexSet;

use super::Policy;
use super::kernel::Totals;
use super::network::{Known, Network};
use crate::analysis::scorecard::{self, Proposal, Refusal, Scorecard, Side, Tally};
use crate::device::Machine;
use crate::ops::prim::Class;

/// Rows up to which a break-even is looked for.
const MOST_ROWS: f64 = (1 << 24) as f64;

/// Two operations with a tensor between them, and what is decided on making them one kernel.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// the operation that writes
    pub producer: String,
    /// the operation that reads
    pub consumer: String,
    /// the tensors between them
    pub tensors: Vec<String>,
    /// both apart
    pub before: Totals,
    /// both together; as apart where no kernel could do it
    pub after: Totals,
    /// the weighted score, rules of thumb and textbook refusals
    pub scorecard: Scorecard,
    /// what is decided
    pub verdict: Verdict,
    /// what texts would refuse and we do not
    pub lifted: Vec<Lifted>,
}

impl Candidate {
    /// Microseconds that the fusion saves, below zero where it costs.
    pub fn saved_us(&self) -> f64 {
        self.before.us - self.after.us
    }

    /// `producer+consumer`.
    pub fn name(&self) -> String {
        format!("{}+{}", self.producer, self.consumer)
    }

    /// Whether the two are fused at the sizes given.
    pub fn is_taken(&self) -> bool {
        match &self.verdict {
            Verdict::Fuse => true,
            Verdict::FuseIf(condition) => condition.holds,
            Verdict::KeepApart(_) => false,
        }
    }

    /// Whether the scorecard says something else than the microseconds.
    pub fn disagrees(&self) -> bool {
        (self.scorecard.verdict == scorecard::Verdict::Fuse) == matches!(self.verdict, Verdict::KeepApart(_))
    }
}

/// What is decided on a candidate.
#[derive(Clone, Debug, PartialEq)]
pub enum Verdict {
    /// one kernel, at any size
    Fuse,
    /// one kernel where a condition holds
    FuseIf(Condition),
    /// two kernels
    KeepApart(Reason),
}

/// For which sizes a fusion pays.
#[derive(Clone, Debug, PartialEq)]
pub struct Condition {
    /// whether it pays up to the break-even, or from there on
    pub small: bool,
    /// the break-even in rows of the tensor between, where its shape is known
    pub rows: Option<f64>,
    /// the break-even in entries of its first axis, where its shape is known
    pub batch: Option<f64>,
    /// the break-even in bytes of the tensor between
    pub bytes: f64,
    /// whether it pays at the sizes given
    pub holds: bool,
    /// how many times the operands of a contraction are computed, which is what it costs
    pub recompute: f64,
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (size, bound) = if self.small { ("small", "up to") } else { ("large", "from") };
        match (self.batch, self.rows) {
            (Some(batch), Some(rows)) if batch >= 1.0 => {
                write!(f, "if {size} batch: {bound} {:.0}", batch.floor())?;
                if batch != rows { write!(f, " ({:.0} rows)", rows.floor()) } else { Ok(()) }
            }
            (_, Some(rows)) => write!(f, "if {size} batch: {bound} {:.0} rows", rows.floor()),
            _ => write!(f, "if {size} batch: {bound} {:.0} bytes between them", self.bytes.floor()),
        }?;
        if self.recompute > 1.0 {
            write!(f, "; each of {:.0} blocks of columns computes its operands again", self.recompute)?;
        }
        Ok(())
    }
}

/// Why two operations stay apart.
#[derive(Clone, Debug, PartialEq)]
pub enum Reason {
    /// as texts say
    Textbook(Refusal),
    /// the operation of this name lies between them
    Between(String),
    /// both sum products, in blocks that do not fit each other
    TwoContractions,
    /// the operation of this name is opaque
    Opaque(String),
    /// the work of one of them has already gone into this group
    Taken(String),
    /// the fused kernel would take so many microseconds more
    Slower(f64),
    /// what comes behind a contraction folds whole rows of its result, which are longer than a block of the device can own
    RowsTooLong {
        /// elements of a row
        need: u64,
        /// elements that a block can own
        have: u64,
    },
}

impl Reason {
    /// Whether no kernel could do it, so that there is nothing to price.
    fn is_impossible(&self) -> bool {
        !matches!(self, Reason::Textbook(_) | Reason::Taken(_) | Reason::Slower(_))
    }

    /// A name for tables and JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Reason::Textbook(refusal) => refusal.name(),
            Reason::Between(_) => "between",
            Reason::TwoContractions => "two_contractions",
            Reason::Opaque(_) => "opaque",
            Reason::Taken(_) => "taken",
            Reason::Slower(_) => "slower",
            Reason::RowsTooLong { .. } => "rows_too_long",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Textbook(refusal) => refusal.fmt(f),
            Reason::Between(name) => write!(f, "{name} lies between them"),
            Reason::TwoContractions => f.write_str("two contractions, whose blocks do not fit each other"),
            Reason::Opaque(name) => write!(f, "{name} is opaque"),
            Reason::Taken(group) => write!(f, "nothing left to save: {group} is one kernel"),
            Reason::Slower(us) => write!(f, "{us:.2} µs slower"),
            Reason::RowsTooLong { need, have } => {
                write!(f, "whole rows of {need} elements do not fit the {have} of a block")
            }
        }
    }
}

/// A limit of the texts that does not hold here.
#[derive(Clone, Debug, PartialEq)]
pub struct Lifted {
    /// the limit
    pub refusal: Refusal,
    /// why it does not hold
    pub because: &'static str,
}

impl fmt::Display for Lifted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: allowed, because {}", self.refusal, self.because)
    }
}

impl Network<'_> {
    /// Every pair of operations with tensors between them, in the order of the data.
    pub(super) fn pairs(&self) -> Vec<(usize, usize)> {
        let mut pairs = IndexSet::new();
        for (producer, operation) in self.operations.iter().enumerate() {
            for consumer in operation.outputs.iter().flat_map(|t| &self.tensors[*t].readers) {
                pairs.insert((producer, *consumer));
            }
        }
        pairs.into_iter().collect()
    }

    /// Decides on two operations as if there were no others to fuse with.
    pub(super) fn decide(&self, producer: usize, consumer: usize, policy: Policy) -> Candidate {
        let (members, [p, c]) = ([producer, consumer], [producer, consumer].map(|at| &self.operations[at]));
        let between: Vec<usize> = p.outputs.iter().copied().filter(|t| c.inputs.contains(t)).collect();
        let before = self.totals(&[producer]) + self.totals(&[consumer]);
        let after = self.totals(&members);
        let scorecard = Scorecard::of(&self.proposal(&members, &before, &after, &between));
        let (obstacle, lifted) = self.obstacle(&members, &scorecard, policy);
        let after = if obstacle.as_ref().is_some_and(Reason::is_impossible) { before } else { after };
        let verdict = obstacle.map_or_else(|| self.worth(&members, &between), Verdict::KeepApart);
        Candidate {
            producer: p.name.clone(),
            consumer: c.name.clone(),
            tensors: between.iter().map(|t| self.tensors[*t].name.clone()).collect(),
            before,
            after,
            scorecard,
            verdict,
            lifted,
        }
    }

    /// The numbers that the scorecard reads, for operations in the order of the data.
    pub(super) fn proposal(&self, members: &[usize], before: &Totals, after: &Totals, between: &[usize]) -> Proposal {
        let registers = |members: &[usize]| self.registers(members);
        let most = members.iter().map(|m| registers(&[*m])).fold(0.0, f64::max);
        let tally = |totals: &Totals, registers: f64| Tally {
            bytes: totals.bytes,
            flops: totals.flops,
            launches: totals.launches as f64,
            registers,
        };
        let domain = |o: &Known| {
            let own = o.inputs.iter().chain(&o.outputs).map(|t| &self.tensors[*t]).filter(|t| !t.is_constant);
            own.map(|t| t.bytes).fold(0.0, f64::max)
        };
        // Of more than two operations, those that decide how the kernel is built.
        let [producer, consumer] = heaviest(members, |at| self.operations[at].class).map(|at| &self.operations[at]);
        let same_data = members.windows(2).all(|w| domain(&self.operations[w[0]]) == domain(&self.operations[w[1]]));
        let is_needed = |t: &usize| self.tensors[*t].readers.iter().any(|r| members.binary_search(r).is_err());
        Proposal {
            before: tally(before, most),
            after: tally(after, registers(members)),
            producer: side(producer),
            consumer: side(consumer),
            intermediate: between.iter().map(|t| self.tensors[*t].bytes).sum(),
            cache: self.spec.last_cache().bytes as f64,
            needed_elsewhere: between.iter().any(is_needed),
            same_data,
            same_order: true,
        }
    }

    /// What forbids a fusion, and what only texts would forbid.
    fn obstacle(&self, members: &[usize; 2], card: &Scorecard, policy: Policy) -> (Option<Reason>, Vec<Lifted>) {
        let [p, c] = members.map(|at| &self.operations[at]);
        if let Some(at) = self.between(members) {
            return (Some(Reason::Between(self.operations[at].name.clone())), Vec::new());
        }
        if let Some(opaque) = [p, c].into_iter().find(|o| o.class == Class::Opaque) {
            return (Some(Reason::Opaque(opaque.name.clone())), Vec::new());
        }
        if policy == Policy::Textbook {
            return (card.refusals.first().cloned().map(Reason::Textbook), Vec::new());
        }
        if p.class == Class::Contract && c.class == Class::Contract {
            return (Some(Reason::TwoContractions), Vec::new());
        }
        if let Some(reason) = self.too_long(members) {
            return (Some(reason), Vec::new());
        }
        let mut lifted = Vec::new();
        for refusal in &card.refusals {
            match self.lift(refusal) {
                Some(because) => lifted.push(Lifted { refusal: refusal.clone(), because }),
                None => return (Some(Reason::Textbook(refusal.clone())), Vec::new()),
            }
        }
        (None, lifted)
    }

    /// Whether a kernel of these operations would have to own rows that are too long for a block.
    pub(super) fn too_long(&self, members: &[usize]) -> Option<Reason> {
        let cut = self.cut(members).filter(|cut| !cut.fits())?;
        Some(Reason::RowsTooLong { need: cut.columns as u64, have: cut.longest_row as u64 })
    }

    /// Why a limit of the texts does not hold, if it does not.
    fn lift(&self, refusal: &Refusal) -> Option<&'static str> {
        match refusal {
            Refusal::ControlFlow => None,
            Refusal::DifferentBottlenecks => Some("a block of the contraction owns whole rows"),
            Refusal::RegisterPressure { registers } => {
                let has_them = self.spec.kind == Machine::Gpu && *registers <= self.spec.limits.registers as f64;
                has_them.then_some("the device has more, and the price counts the threads that it costs")
            }
            Refusal::IncompatibleAccess => Some("the result is stored where the reader wants it"),
            Refusal::IntermediateNeeded => Some("it is stored as a second result, and not read again"),
            Refusal::DifferentBlocks { .. } => Some("the fused kernel has blocks of its own"),
            Refusal::DifferentTypes { .. } => Some("values are converted in registers"),
            Refusal::LeftToLibrary { .. } | Refusal::TooLittleSaved => Some("microseconds decide"),
        }
    }

    /// Whether a fusion pays, and for which sizes.
    fn worth(&self, members: &[usize; 2], between: &[usize]) -> Verdict {
        let gain = |scale: f64| {
            let apart: f64 = members.iter().map(|m| self.price(&[*m], scale).us).sum();
            apart - self.price(members, scale).us
        };
        let tensor = &self.tensors[between[0]];
        let (rows, batch) = match tensor.shape.as_deref() {
            Some([batch, inner @ ..]) if *batch > 0 && tensor.bytes > 0.0 => {
                let inner: usize = inner.split_last().map_or(1, |(_, outer)| outer.iter().product());
                (Some((batch * inner) as f64), Some(*batch as f64))
            }
            _ => (None, None),
        };
        // Without rows the tensor as given is in the middle of what is looked at.
        let least = rows.map_or(1.0 / 4096.0, |rows| 1.0 / rows);
        let pays_small = gain(least) > 0.0;
        let mut step = least;
        while step <= MOST_ROWS * least && (gain(step) > 0.0) == pays_small {
            step *= 2.0;
        }
        if step > MOST_ROWS * least {
            return if pays_small { Verdict::Fuse } else { Verdict::KeepApart(Reason::Slower(-gain(1.0))) };
        }
        let (mut same, mut other) = (step / 2.0, step);
        for _ in 0..40 {
            let middle = (same + other) / 2.0;
            if (gain(middle) > 0.0) == pays_small { same = middle } else { other = middle }
        }
        let at = if pays_small { same } else { other };
        let recompute = self.cut(members).filter(|cut| cut.anchor == members[1]).map_or(1.0, |cut| cut.across());
        Verdict::FuseIf(Condition {
            small: pays_small,
            rows: rows.map(|rows| rows * at),
            batch: batch.map(|batch| batch * at),
            bytes: tensor.bytes * at,
            holds: gain(1.0) > 0.0,
            recompute,
        })
    }
}

fn side(operation: &Known) -> Side {
    Side {
        class: operation.class,
        bottleneck: operation.bottleneck,
        intensity: operation.intensity(),
        dtype: operation.dtype,
        block: operation.block,
    }
}

/// The two members that decide how a kernel is built, in the order of the data.
fn heaviest(members: &[usize], class: impl Fn(usize) -> Class) -> [usize; 2] {
    let mut ranked = members.to_vec();
    let weight = |at: &usize| match class(*at) {
        Class::Source | Class::View => 0,
        Class::Map => 1,
        Class::Index | Class::Reduce => 2,
        Class::Contract => 3,
        Class::Control | Class::Opaque => 4,
    };
    ranked.sort_by_key(|at| std::cmp::Reverse(weight(at)));
    let mut two = [ranked[0], ranked.get(1).copied().unwrap_or(ranked[0])];
    two.sort_unstable();
    two
}
