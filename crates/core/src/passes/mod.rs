//! Passes: pure functions from graph to graph that keep the meaning and make it plainer.
//!
//! Comes in: a graph as a front end built it. Goes out: the same computation with small constants folded, shape
//! arithmetic resolved, views composed, constants inside the expressions that read them, algebra simplified. Never here:
//! which nodes share a kernel, which device runs them; no pass looks at names or origins.
//!
//! Rewrites come in tiers. *Exact* ones give the same bits wherever every operation rounds (the rounded reading) and run
//! always; *real* ones are true of real numbers and run unless numerics are [`Numerics::Strict`].

mod align_contractions;
mod choose_branches;
mod compose_views;
mod drop_dead;
mod fold_constants;
mod formula;
mod inline_masks;
mod inline_splats;
mod join_parts;
mod keep_written;
mod narrow;
mod repeat_late;
mod round_factors;
mod round_storage;
mod settle_axes;
mod shape_arithmetic;
mod share_common;
mod simplify_algebra;
mod split_concats;

pub(crate) use formula::MOST_FLOPS as MOST_FORMULA_FLOPS;
pub use simplify_algebra::{RULES, Rule, Tier};
pub(crate) use simplify_algebra::{RuleStep, plainer};

use crate::budget::Budget;
use crate::device::Machine;
use crate::error::{Context as _, Result};
use crate::graph::{Graph, verify, verify_within};
use crate::tensor::DType;

/// How far arithmetic may be rearranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Numerics {
    /// every operation as written: only exact rewrites. In which order the terms of one sum are added up is left to devices
    Strict,
    /// rewrites that are true of real numbers, which have one zero, and mind ranges: constants are joined only where the joint one is a
    /// normal number of the type, and large ones that nearly cancel stay apart; numbers within 2⁻²⁰ … 2²⁰ only move past sums, so that
    /// no sum but one as near to the end of its range leaves it. Products and sums of varying numbers may be computed in another order,
    /// and inside of a kernel values of f16 and bf16 may be held as f32, so that they are neither rounded nor infinite where nothing is
    /// stored
    #[default]
    Default,
    /// also rewrites that can overflow or lose subnormal numbers where the original does not
    Fast,
}

impl Numerics {
    /// Every one, from the strictest.
    pub const ALL: &'static [Numerics] = &[Numerics::Strict, Numerics::Default, Numerics::Fast];

    /// The name in text forms and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Numerics::Strict => "strict",
            Numerics::Default => "default",
            Numerics::Fast => "fast",
        }
    }

    /// The one with this name.
    pub fn from_name(name: &str) -> Option<Numerics> {
        Numerics::ALL.iter().copied().find(|n| n.name() == name)
    }
}

/// The type of floats in which a network of f32 is computed; [`Narrowing`] says what of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Precision {
    /// as the model says
    #[default]
    F32,
    /// bf16, where f32 stands. Not under [`Numerics::Strict`]
    Bf16,
    /// f16, where f32 stands; numbers above 65,504 become infinite. Not under [`Numerics::Strict`]
    F16,
}

impl Precision {
    /// Every one.
    pub const ALL: &'static [Precision] = &[Precision::F32, Precision::Bf16, Precision::F16];

    /// The name in text forms and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Precision::F32 => "f32",
            Precision::Bf16 => "bf16",
            Precision::F16 => "f16",
        }
    }

    /// The one with this name.
    pub fn from_name(name: &str) -> Option<Precision> {
        Precision::ALL.iter().copied().find(|p| p.name() == name)
    }

    /// The narrow type, where there is one.
    pub fn narrow(self) -> Option<DType> {
        match self {
            Precision::F32 => None,
            Precision::Bf16 => Some(DType::BF16),
            Precision::F16 => Some(DType::F16),
        }
    }
}

/// What of a network a narrow [`Precision`] rounds. Sums, statistics and arithmetic inside of kernels are f32 in either case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Narrowing {
    /// the factors of contractions, and nothing else
    #[default]
    Factors,
    /// also what kernels hand on to each other, and constants: as if the model had been converted
    Storage,
}

impl Narrowing {
    /// What is usual on a machine: a GPU waits for memory, so that it gains by everything that is half as long; a processor gains by
    /// its units for narrow factors, and keeps the digits of the rest.
    pub fn usual(machine: Machine) -> Narrowing {
        match machine {
            Machine::Cpu => Narrowing::Factors,
            Machine::Gpu => Narrowing::Storage,
        }
    }
}

/// What every pass is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// how far arithmetic may be rearranged
    pub numerics: Numerics,
    /// the type in which a network of f32 is computed
    pub precision: Precision,
    /// what of it
    pub narrowing: Narrowing,
    /// constants are folded up to this size; larger constant subgraphs are left to the prepare phase of a program
    pub fold_bytes: usize,
    /// constant tables up to this many elements are tried for a formula in their coordinates
    pub table_elements: usize,
    /// what all passes together may take; whoever calls one has started it
    pub budget: Budget,
}

impl Default for Context {
    fn default() -> Context {
        Context {
            numerics: Numerics::Default,
            precision: Precision::F32,
            narrowing: Narrowing::Factors,
            fold_bytes: 64 << 10,
            table_elements: 16 << 20,
            budget: Budget::UNLIMITED,
        }
    }
}

/// One row of the list.
#[derive(Clone, Copy, Debug)]
pub struct Pass {
    /// its name, as reports print it
    pub name: &'static str,
    /// what it does, in a sentence
    pub doc: &'static str,
    /// the pass: pure, and a second run changes nothing; `None` where it changes nothing
    run: fn(&Graph, &Context) -> Result<Option<Graph>>,
}

impl Pass {
    /// The graph after the pass; `None` where it is the same.
    pub fn apply(&self, graph: &Graph, context: &Context) -> Result<Option<Graph>> {
        let new = (self.run)(graph, context).at(|| format!("pass {}", self.name))?;
        Ok(new.filter(|new| new != graph))
    }
}

/// The passes in the order in which they run; the list is repeated until nothing changes.
pub const PASSES: &[Pass] = &[
    drop_dead::PASS, // first: no pass spends time on what nobody reads (each drops what it makes dead itself)
    keep_written::PASS, // before anything computes: what it keeps is rounded as it is written from here on
    shape_arithmetic::PASS, // before folding: what it resolves are constants that folding can use
    choose_branches::PASS, // after shape arithmetic, which decides most conditions; before the passes that simplify what it leaves
    fold_constants::PASS,  // before views are composed: a constant seen through several views is one small constant
    compose_views::PASS,   // then every later pass sees at most one view between two computations
    inline_splats::PASS,   // after composing: a constant behind several views is behind one
    inline_masks::PASS,    // after splats: masks by coordinates are there already
    simplify_algebra::PASS, // after inlining: rules see constants as constants; before joining: parts are told apart by what they compute
    join_parts::PASS,       // after composing: a part is one view of what it looks at
    split_concats::PASS,    // after joining, which may leave no concat at all
    repeat_late::PASS,      // after joining: parts that are the same are one that is repeated
    settle_axes::PASS,      // after composing: readers are seen through one view
    align_contractions::PASS, // after composing: a permutation may hide behind another view
    round_factors::PASS,    // after algebra: what is rounded is what is multiplied in the end
    round_storage::PASS,    // after factors: a value that is rounded for one reader is rounded for others
    share_common::PASS,     // last: the others leave several spellings of one computation
];

/// The graph with what decides kept as it is written, as the importer of ONNX hands it over: so that every reading of it decides alike.
pub fn keep_written(graph: Graph, budget: &Budget) -> Result<Graph> {
    let context = Context { budget: budget.clone(), ..Context::default() };
    Ok(keep_written::PASS.apply(&graph, &context)?.unwrap_or(graph))
}

/// The list is repeated at most this often; every pass makes a graph smaller or plainer, so that few rounds do.
const MOST_ROUNDS: usize = 32;

/// What an observer sees after each pass.
#[derive(Clone, Copy, Debug)]
pub struct Step<'g> {
    /// the pass that ran
    pub pass: &'static str,
    /// how often the list was repeated before
    pub round: usize,
    /// whether the pass changed anything
    pub changed: bool,
    /// the graph after it
    pub graph: &'g Graph,
}

/// The graph after all passes, repeated until none of them changes it. What they made of it is verified; `observe` is
/// called after every pass; an error names the pass.
pub fn run_passes(graph: Graph, context: &Context, observe: &mut dyn FnMut(&Step<'_>)) -> Result<Graph> {
    run_passes_from(0, graph, context, observe)
}

/// As [`run_passes`], of a graph that went through them with the same numerics before anything was to be rounded: the passes that round go
/// first, for those before them would change nothing.
pub(crate) fn run_rounding(graph: Graph, context: &Context, observe: &mut dyn FnMut(&Step<'_>)) -> Result<Graph> {
    let first = PASSES.iter().position(|pass| pass.name == round_factors::PASS.name).unwrap_or(0);
    run_passes_from(first, graph, context, observe)
}

fn run_passes_from(first: usize, graph: Graph, context: &Context, observe: &mut dyn FnMut(&Step<'_>)) -> Result<Graph> {
    let before = graph.clone();
    let after = passed(first, graph, context, cfg!(debug_assertions), observe)?;
    let Err(error) = verify_within(&after, &context.budget) else { return Ok(after) };
    context.budget.check()?;
    // Who is wrong shows when each is looked at: whoever made the graph, or a pass.
    verify(&before).at(|| "the graph before the passes")?;
    Err(passed(first, before, context, true, &mut |_| {}).err().unwrap_or(error))
}

/// The graph after all passes, in the first round from a pass on; what each changed is verified where that is asked for.
fn passed(
    first: usize,
    graph: Graph,
    context: &Context,
    verifies: bool,
    observe: &mut dyn FnMut(&Step<'_>),
) -> Result<Graph> {
    let mut graph = graph;
    let axes = PASSES.iter().position(|pass| pass.name == settle_axes::PASS.name).unwrap_or(PASSES.len());
    // Which passes would change nothing: they saw the graph as it is, or made it what it is.
    let mut idle = [false; PASSES.len()];
    'rounds: for round in 0..MOST_ROUNDS {
        for k in if round == 0 { first } else { 0 }..PASSES.len() {
            // What chooses an order of axes sees a graph that is as plain as it gets: the choice stays.
            if k == axes && idle[..k].contains(&false) {
                continue 'rounds;
            }
            if idle[k] {
                continue;
            }
            context.budget.check()?;
            let pass = &PASSES[k];
            let new = pass.apply(&graph, context)?;
            let changed = new.is_some();
            if let Some(new) = new {
                if verifies {
                    verify(&new).at(|| format!("pass {}", pass.name))?;
                }
                idle.fill(false);
                graph = new;
            }
            idle[k] = true;
            observe(&Step { pass: pass.name, round, changed, graph: &graph });
            if !idle.contains(&false) {
                break 'rounds;
            }
        }
    }
    Ok(graph)
}

#[cfg(test)]
mod testing;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_documented() {
        for (k, pass) in PASSES.iter().enumerate() {
            assert!(PASSES[..k].iter().all(|p| p.name != pass.name), "{} twice", pass.name);
            assert!(!pass.doc.is_empty());
        }
    }
}
