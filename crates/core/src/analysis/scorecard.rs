//! The familiar weighted score of a fusion: the same numbers read by the formula that texts on kernel fusion give.
//!
//! | part | weight | value, from 0 to 1 | threshold |
//! |---|---|---|---|
//! | memory traffic | 0.4 | bytes saved over half of the bytes before; 0 below the threshold | 30 % saved |
//! | launches | 0.2 | launches saved over launches before; 0 below the threshold | 10 % saved |
//! | registers | 0.2 | 1 up to half of the limit, falling to 0 at the limit | 50 a thread |
//! | complexity | 0.1 | low 1, moderate 1/2, high 0 | moderate |
//! | maintainability | 0.1 | high 1, medium 1/2, low 0 | high |
//!
//! Traffic is full at one half because that is what two operators of equal size save when the tensor between them goes. The
//! verdict is to fuse where traffic or launches pass their threshold, registers stay within the limit and no [`Refusal`]
//! stands against it.
//!
//! LayerNorm + GELU: 4 N bytes become 2 N (half: 1), 2 launches 1 (half: 1/2), about 15 registers (1), a reduction with
//! everything around it (moderate: 1/2), one generated kernel (high: 1): 0.4 + 0.2 / 2 + 0.2 + 0.1 / 2 + 0.1 = 0.85.
//!
//! Microseconds decide ([`super::price`]); the score is shown beside them.

use std::fmt;

use crate::ops::prim::Class;
use crate::tensor::DType;

/// Traffic saved, as part of the traffic before, from which a fusion pays.
pub const TRAFFIC_THRESHOLD: f64 = 0.3;
/// Launches saved, as part of the launches before, from which a fusion pays.
pub const LAUNCH_THRESHOLD: f64 = 0.1;
/// Registers of a thread that a fused kernel may use.
pub const REGISTER_LIMIT: f64 = 50.0;
/// Operations for each byte below which an operator is a candidate by itself.
pub const LOW_INTENSITY: f64 = 10.0;
/// Operations for each byte above which an operator is better left to a library.
pub const LIBRARY_INTENSITY: f64 = 100.0;

/// The numbers of one way to run the operators.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Tally {
    /// bytes read and written
    pub bytes: f64,
    /// arithmetic operations
    pub flops: f64,
    /// kernels started
    pub launches: f64,
    /// registers of a thread, of the kernel that needs most
    pub registers: f64,
}

/// Which of two times of an operator is the longer one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Bottleneck {
    /// its bytes
    Memory,
    /// its operations
    Compute,
}

impl Bottleneck {
    /// `memory` or `compute`.
    pub fn name(self) -> &'static str {
        match self {
            Bottleneck::Memory => "memory",
            Bottleneck::Compute => "compute",
        }
    }
}

/// What is known of one of the two operators (or groups of operators).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Side {
    /// what it does with its elements; for a group the class that decides its kernel
    pub class: Class,
    /// what its time goes to
    pub bottleneck: Bottleneck,
    /// operations for each byte
    pub intensity: f64,
    /// element type that it computes with
    pub dtype: DType,
    /// threads of its blocks, where they are fixed
    pub block: Option<usize>,
}

/// A fusion to be scored: two operators with a tensor between them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Proposal {
    /// both apart
    pub before: Tally,
    /// both together
    pub after: Tally,
    /// the operator that writes the tensor
    pub producer: Side,
    /// the operator that reads it
    pub consumer: Side,
    /// bytes of the tensor
    pub intermediate: f64,
    /// bytes of the device's last cache
    pub cache: f64,
    /// whether somebody else reads the tensor too
    pub needed_elsewhere: bool,
    /// whether both run over the same elements
    pub same_data: bool,
    /// whether the consumer reads in the order in which the producer computes, or any order
    pub same_order: bool,
}

/// How hard a kernel is to write, test and tune.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Complexity {
    /// every element by itself
    Low,
    /// one reduction or one contraction with elementwise work around it
    Moderate,
    /// a contraction together with a reduction, two contractions, anything opaque
    High,
}

/// How easily a kernel is changed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Maintainability {
    /// somebody has to write it by hand
    Low,
    /// generated, with a skeleton that was made for it
    Medium,
    /// generated from the operators
    High,
}

/// Why texts on fusion say no.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// a compute-bound operator next to one that is bound by memory and is no elementwise epilogue or prologue of it
    DifferentBottlenecks,
    /// both have more operations for each byte than any fusion could save: libraries do them best
    LeftToLibrary {
        /// the lower of the two intensities
        intensity: f64,
    },
    /// the fused kernel needs more registers than the limit
    RegisterPressure {
        /// registers of a thread
        registers: f64,
    },
    /// the consumer reads in another order than the producer writes
    IncompatibleAccess,
    /// the tensor between them must be stored anyway
    IntermediateNeeded,
    /// their blocks have different sizes
    DifferentBlocks {
        /// threads of the producer's blocks
        producer: usize,
        /// threads of the consumer's blocks
        consumer: usize,
    },
    /// one of them decides at run time what to do
    ControlFlow,
    /// they compute with different element types
    DifferentTypes {
        /// the producer's
        producer: DType,
        /// the consumer's
        consumer: DType,
    },
    /// neither traffic nor launches fall by as much as their threshold
    TooLittleSaved,
}

impl Refusal {
    /// A name for tables and JSON.
    pub fn name(&self) -> &'static str {
        match self {
            Refusal::DifferentBottlenecks => "different_bottlenecks",
            Refusal::LeftToLibrary { .. } => "left_to_library",
            Refusal::RegisterPressure { .. } => "register_pressure",
            Refusal::IncompatibleAccess => "incompatible_access",
            Refusal::IntermediateNeeded => "intermediate_needed",
            Refusal::DifferentBlocks { .. } => "different_blocks",
            Refusal::ControlFlow => "control_flow",
            Refusal::DifferentTypes { .. } => "different_types",
            Refusal::TooLittleSaved => "too_little_saved",
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refusal::DifferentBottlenecks => f.write_str("different bottlenecks: compute-bound next to memory-bound"),
            Refusal::LeftToLibrary { intensity } => {
                write!(f, "better left to a library: both have {intensity:.0} operations for each byte or more")
            }
            Refusal::RegisterPressure { registers } => {
                write!(f, "register pressure: {registers:.0} registers where {REGISTER_LIMIT} are the limit")
            }
            Refusal::IncompatibleAccess => f.write_str("incompatible access patterns"),
            Refusal::IntermediateNeeded => f.write_str("the intermediate is needed elsewhere"),
            Refusal::DifferentBlocks { producer, consumer } => {
                write!(f, "different block sizes: {producer} and {consumer} threads")
            }
            Refusal::ControlFlow => f.write_str("control flow"),
            Refusal::DifferentTypes { producer, consumer } => {
                write!(f, "different element types: {} and {}", producer.name(), consumer.name())
            }
            Refusal::TooLittleSaved => f.write_str("too little saved"),
        }
    }
}

/// A rule of thumb and whether it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleOfThumb {
    /// the rule in words
    pub rule: &'static str,
    /// whether it speaks for the fusion
    pub holds: bool,
}

/// One part of the score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// what is judged
    pub name: &'static str,
    /// its share of the whole
    pub weight: f64,
    /// from 0 to 1
    pub value: f64,
    /// whether its threshold is met
    pub passes: bool,
}

/// What the score comes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Verdict {
    /// the fusion pays
    Fuse,
    /// it does not, or must not
    KeepApart,
}

/// A scored fusion.
#[derive(Clone, Debug, PartialEq)]
pub struct Scorecard {
    /// from 0 to 1
    pub score: f64,
    /// to fuse or not
    pub verdict: Verdict,
    /// memory traffic, launches, registers, complexity, maintainability
    pub parts: [Part; 5],
    /// what stands against it
    pub refusals: Vec<Refusal>,
    /// the rules of thumb
    pub rules: Vec<RuleOfThumb>,
}

impl Scorecard {
    /// Scores a fusion.
    pub fn of(proposal: &Proposal) -> Scorecard {
        let parts = parts(proposal);
        let score = parts.iter().map(|p| p.weight * p.value).sum();
        let refusals = refusals(proposal, &parts);
        let verdict = if refusals.is_empty() { Verdict::Fuse } else { Verdict::KeepApart };
        Scorecard { score, verdict, parts, refusals, rules: rules(proposal) }
    }
}

impl fmt::Display for Scorecard {
    /// `FUSE 0.85`, or `keep apart — different bottlenecks: …`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.refusals.first() {
            None => write!(f, "FUSE {:.2}", self.score),
            Some(first) => write!(f, "keep apart — {first}"),
        }
    }
}

fn parts(proposal: &Proposal) -> [Part; 5] {
    let (before, after) = (&proposal.before, &proposal.after);
    let saved = |before: f64, after: f64| if before > 0.0 { ((before - after) / before).max(0.0) } else { 0.0 };
    let traffic = saved(before.bytes, after.bytes);
    let launches = saved(before.launches, after.launches);
    let counted = |value: f64, passes: bool| if passes { value.min(1.0) } else { 0.0 };
    let (traffic_passes, launch_passes) = (traffic > TRAFFIC_THRESHOLD, launches > LAUNCH_THRESHOLD);
    let registers = (2.0 * (1.0 - after.registers / REGISTER_LIMIT)).clamp(0.0, 1.0);
    let (complexity, maintainability) = (complexity(proposal), maintainability(proposal));
    let complexity_value = match complexity {
        Complexity::Low => 1.0,
        Complexity::Moderate => 0.5,
        Complexity::High => 0.0,
    };
    let maintainability_value = match maintainability {
        Maintainability::High => 1.0,
        Maintainability::Medium => 0.5,
        Maintainability::Low => 0.0,
    };
    let part = |name, weight, value, passes| Part { name, weight, value, passes };
    [
        part("memory traffic", 0.4, counted(2.0 * traffic, traffic_passes), traffic_passes),
        part("launches", 0.2, counted(launches, launch_passes), launch_passes),
        part("registers", 0.2, registers, after.registers <= REGISTER_LIMIT),
        part("complexity", 0.1, complexity_value, complexity <= Complexity::Moderate),
        part("maintainability", 0.1, maintainability_value, maintainability == Maintainability::High),
    ]
}

/// How hard the fused kernel is, from the classes of its two sides.
fn complexity(proposal: &Proposal) -> Complexity {
    let weight = |class: Class| match class {
        Class::Source | Class::Map | Class::View => 0,
        Class::Reduce | Class::Index | Class::Contract => 1,
        Class::Control | Class::Opaque => 2,
    };
    let classes = [proposal.producer.class, proposal.consumer.class];
    let reduces_alone = classes.iter().all(|c| *c != Class::Contract);
    match classes.map(weight).iter().sum::<u32>() {
        0 => Complexity::Low,
        1 => Complexity::Moderate,
        // Reductions over the same rows share one loop over them.
        2 if reduces_alone && proposal.same_data && !classes.contains(&Class::Opaque) => Complexity::Moderate,
        _ => Complexity::High,
    }
}

/// Whether the fused kernel is generated from the operators alone.
fn maintainability(proposal: &Proposal) -> Maintainability {
    let classes = [proposal.producer.class, proposal.consumer.class];
    if classes.iter().any(|c| matches!(c, Class::Control | Class::Opaque)) {
        return Maintainability::Low;
    }
    let contracts = classes.iter().filter(|c| **c == Class::Contract).count();
    let others = classes.iter().filter(|c| matches!(c, Class::Reduce | Class::Index)).count();
    if contracts == 2 || contracts + others == 2 && contracts > 0 {
        Maintainability::Medium
    } else {
        Maintainability::High
    }
}

fn refusals(proposal: &Proposal, parts: &[Part; 5]) -> Vec<Refusal> {
    let (producer, consumer) = (&proposal.producer, &proposal.consumer);
    let mut refusals = Vec::new();
    let mut refuse = |when: bool, refusal: Refusal| {
        if when {
            refusals.push(refusal);
        }
    };
    let is = |class: Class| producer.class == class || consumer.class == class;
    refuse(is(Class::Control), Refusal::ControlFlow);
    // Elementwise work disappears beside a contraction, and what comes before one may be computed with its operands.
    let tail = producer.bottleneck == Bottleneck::Compute && consumer.bottleneck == Bottleneck::Memory;
    refuse(tail && matches!(consumer.class, Class::Reduce | Class::Index), Refusal::DifferentBottlenecks);
    refuse(!proposal.same_order || tail && consumer.class == Class::View, Refusal::IncompatibleAccess);
    let intensity = producer.intensity.min(consumer.intensity);
    refuse(intensity > LIBRARY_INTENSITY, Refusal::LeftToLibrary { intensity });
    let registers = proposal.after.registers;
    refuse(registers > REGISTER_LIMIT, Refusal::RegisterPressure { registers });
    refuse(proposal.needed_elsewhere, Refusal::IntermediateNeeded);
    if let (Some(a), Some(b)) = (producer.block, consumer.block) {
        refuse(a != b, Refusal::DifferentBlocks { producer: a, consumer: b });
    }
    let (a, b) = (producer.dtype, consumer.dtype);
    refuse(a != b, Refusal::DifferentTypes { producer: a, consumer: b });
    refuse(!parts[0].passes && !parts[1].passes, Refusal::TooLittleSaved);
    refusals
}

fn rules(proposal: &Proposal) -> Vec<RuleOfThumb> {
    let both = |holds: fn(&Side) -> bool| holds(&proposal.producer) && holds(&proposal.consumer);
    let rule = |rule, holds| RuleOfThumb { rule, holds };
    vec![
        rule("both are memory-bound", both(|s| s.bottleneck == Bottleneck::Memory)),
        rule("both have fewer than 10 operations for each byte", both(|s| s.intensity < LOW_INTENSITY)),
        rule("both are elementwise", both(|s| matches!(s.class, Class::Map | Class::View))),
        rule("both run over the same data", proposal.same_data),
        rule("the intermediate is small enough for a cache", proposal.intermediate <= proposal.cache),
        rule("neither has over 100 operations for each byte", both(|s| s.intensity <= LIBRARY_INTENSITY)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn side(class: Class, intensity: f64) -> Side {
        let bottleneck = if intensity > 50.0 { Bottleneck::Compute } else { Bottleneck::Memory };
        Side { class, bottleneck, intensity, dtype: DType::F32, block: None }
    }

    /// Two operators of one tensor each, `before` and `after` in bytes.
    fn proposal(producer: Side, consumer: Side, before: f64, after: f64, registers: f64) -> Proposal {
        Proposal {
            before: Tally { bytes: before, flops: 1e6, launches: 2.0, registers },
            after: Tally { bytes: after, flops: 1e6, launches: 1.0, registers },
            producer,
            consumer,
            intermediate: 1e6,
            cache: 60e6,
            needed_elsewhere: false,
            same_data: true,
            same_order: true,
        }
    }

    #[test]
    fn layernorm_and_gelu_score_0_85() {
        let n = 4e6;
        let card = Scorecard::of(&proposal(side(Class::Reduce, 2.0), side(Class::Map, 2.5), 4.0 * n, 2.0 * n, 15.0));
        assert_eq!(card.to_string(), "FUSE 0.85");
        assert!((card.score - 0.85).abs() < 1e-12);
        assert_eq!(card.parts.map(|p| p.value), [1.0, 0.5, 1.0, 0.5, 1.0]);
        assert!(card.parts.iter().all(|p| p.passes) && card.verdict == Verdict::Fuse);
        let holds: Vec<bool> = card.rules.iter().map(|r| r.holds).collect();
        assert_eq!(holds, [true, true, false, true, true, true]);
    }

    #[test]
    fn every_part_moves_the_score_by_its_weight() {
        let score = |p: &Proposal| Scorecard::of(p).score;
        let best = proposal(side(Class::Map, 1.0), side(Class::Map, 1.0), 4.0, 2.0, 10.0);
        assert!((score(&best) - 0.9).abs() < 1e-12);
        // Three launches become one: two thirds.
        let mut three = best;
        three.before.launches = 3.0;
        assert!((score(&three) - (0.8 + 0.2 * 2.0 / 3.0)).abs() < 1e-12);
        // A quarter of the traffic is below the threshold; a third is two thirds of a half.
        let mut little = best;
        little.after.bytes = 3.0;
        assert!((score(&little) - 0.5).abs() < 1e-12);
        little.after.bytes = 4.0 - 4.0 / 3.0;
        assert!((score(&little) - (0.5 + 0.4 * 2.0 / 3.0)).abs() < 1e-12);
        // Three quarters of the registers: half of the part.
        let mut full = best;
        full.after.registers = 37.5;
        assert!((score(&full) - 0.8).abs() < 1e-12);
        // A portable implementation is neither simple nor easily changed.
        let opaque = Proposal { consumer: side(Class::Opaque, 1.0), ..best };
        assert!((score(&opaque) - 0.7).abs() < 1e-12);
    }

    #[test]
    fn every_refusal_has_its_case() {
        let n = 4e6;
        let good = proposal(side(Class::Map, 2.0), side(Class::Map, 2.0), 4.0 * n, 2.0 * n, 15.0);
        let refused = |p: Proposal| {
            let card = Scorecard::of(&p);
            assert_eq!(card.verdict, Verdict::KeepApart);
            assert!(card.to_string().starts_with("keep apart — "), "{card}");
            card.refusals.iter().map(Refusal::name).collect::<Vec<_>>()
        };
        let matmul = side(Class::Contract, 400.0);
        assert_eq!(
            refused(Proposal { producer: matmul, consumer: side(Class::Reduce, 2.0), ..good }),
            ["different_bottlenecks"]
        );
        // A transpose after a matrix product.
        let transpose = Proposal { producer: matmul, consumer: side(Class::View, 0.0), ..good };
        assert_eq!(refused(transpose), ["incompatible_access"]);
        assert_eq!(refused(Proposal { same_order: false, ..good }), ["incompatible_access"]);
        assert_eq!(refused(Proposal { producer: matmul, consumer: matmul, ..good }), ["left_to_library"]);
        assert_eq!(refused(Proposal { after: Tally { registers: 51.0, ..good.after }, ..good }), ["register_pressure"]);
        assert_eq!(refused(Proposal { needed_elsewhere: true, ..good }), ["intermediate_needed"]);
        let block = |size| Side { block: Some(size), ..good.producer };
        assert_eq!(refused(Proposal { producer: block(128), consumer: block(256), ..good }), ["different_blocks"]);
        assert_eq!(refused(Proposal { consumer: side(Class::Control, 1.0), ..good }), ["control_flow"]);
        let half = Side { dtype: DType::F16, ..good.consumer };
        assert_eq!(refused(Proposal { consumer: half, ..good }), ["different_types"]);
        assert_eq!(refused(Proposal { after: good.before, ..good }), ["too_little_saved"]);
        // An elementwise epilogue of a matrix product is none of these.
        let epilogue = Scorecard::of(&Proposal { producer: matmul, ..good });
        assert_eq!(epilogue.verdict, Verdict::Fuse);
        assert!(!epilogue.rules[0].holds && !epilogue.rules[5].holds);
    }
}
