//! What a plan is made for.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::decision::DecisionId;
use super::lock::Lock;
use super::{edge_names, edges};
use crate::budget::Budget;
use crate::device::DeviceSpec;
use crate::graph::Graph;
use crate::lower::Hints;
use crate::passes::{Narrowing, Numerics, Precision};

/// How candidates are chosen.
#[derive(Clone, Debug, Default)]
pub enum Chooser {
    /// what saves the most time first, as long as it saves any
    #[default]
    ByCost,
    /// legal candidates by chance, whatever they cost
    AtRandom(u64),
    /// the kernels of a written plan
    Replay(Arc<Lock>),
}

/// Which reasons count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Policy {
    /// predicted microseconds alone
    #[default]
    Microseconds,
    /// also the refusals of the textbooks: a contraction beside a reduction, permuted stores, second outputs, changes of type
    Textbook,
}

/// Decisions that the user has taken.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pins {
    /// kept apart
    pub apart: BTreeSet<DecisionId>,
    /// combined wherever that is possible
    pub together: BTreeSet<DecisionId>,
    /// where present: nothing else is combined
    pub only: Option<BTreeSet<DecisionId>>,
    /// pairs of nodes, by [name](super::node_names), that no kernel computes both of, whichever rule proposes it
    pub divided: BTreeSet<[DecisionId; 2]>,
    /// where present: these rewrites are applied, and no others
    pub rewrites: Option<BTreeSet<DecisionId>>,
}

impl Pins {
    /// No kernel has parts of two operators of the user's model: what a runtime without fusion does.
    pub fn within_operators(graph: &Graph) -> Pins {
        let shared = |a: usize, b: usize| {
            let names = graph.origin(a);
            graph.origin(b).iter().any(|origin| names.iter().any(|other| other == origin))
        };
        let all = edges(graph).into_iter().zip(edge_names(graph));
        let inside = all.filter(|((from, to), _)| shared(*from, *to)).map(|(_, id)| id);
        Pins { only: Some(inside.collect()), ..Pins::default() }
    }

    /// Nothing is combined.
    pub fn apart() -> Pins {
        Pins { only: Some(BTreeSet::new()), ..Pins::default() }
    }
}

/// The usual limit of effort: seven times as much as any network of ours takes, and about a second.
const MOST_EFFORT: u64 = 1_000_000;

/// What a plan is made for; the same graph and options give the same plan.
#[derive(Clone, Debug)]
pub struct PlanOptions {
    /// the device
    pub spec: DeviceSpec,
    /// how far arithmetic may be rearranged
    pub numerics: Numerics,
    /// the type in which a network of f32 is computed
    pub precision: Precision,
    /// what of it
    pub narrowing: Narrowing,
    /// numbers for free sizes
    pub hints: Hints,
    /// how candidates are chosen
    pub chooser: Chooser,
    /// at most this many decisions are taken
    pub fuel: Option<usize>,
    /// nothing more is looked at after this much [effort](super::Plan::effort), and some for every node
    pub effort: u64,
    /// decisions of the user
    pub pins: Pins,
    /// rules and rewrites that are not asked, by name: to see what they are worth
    pub without: BTreeSet<String>,
    /// which reasons count
    pub policy: Policy,
    /// what all stages together may take
    pub budget: Budget,
}

impl PlanOptions {
    /// Everything as usual, on a device.
    pub fn on(spec: &DeviceSpec) -> PlanOptions {
        PlanOptions {
            spec: spec.clone(),
            numerics: Numerics::Default,
            precision: Precision::F32,
            narrowing: Narrowing::usual(spec.kind),
            hints: Hints::default(),
            chooser: Chooser::ByCost,
            fuel: None,
            effort: MOST_EFFORT,
            pins: Pins::default(),
            without: BTreeSet::new(),
            policy: Policy::Microseconds,
            budget: Budget::UNLIMITED,
        }
    }
}
