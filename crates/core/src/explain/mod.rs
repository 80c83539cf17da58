//! Plans in the language of the user: kernels by what they do, decisions by the operators that they are about.
//!
//! Comes in: a planned program. Goes out: an [`Explanation`], rows of plain data that a command prints and a report
//! shows. This is the only place after import where names are read; nothing here decides anything.

mod activation;
mod attention;
mod decision;
mod gate;
mod norm;
mod pattern;
mod rotation;
mod row_function;
mod sample;
mod score;
mod wiring;
mod worth;

pub use decision::{DecisionRow, Edge};

use rustc_hash::{FxHashMap, FxHashSet};

use crate::analysis::Scorecard;
use crate::compile::{Grain, PlannedProgram, plan_apart};
use crate::error::Result;
use crate::fuse::{Chooser, Cost, DecisionId, Kind, Pins, Plan, PlanOptions, PlannedKernel, Policy, Verdict, plan};
use crate::graph::{Graph, Origin};
use crate::tensor::DType;
use score::Scorer;
use wiring::Wiring;

/// A kernel as it is shown.
#[derive(Clone, Debug)]
pub struct KernelRow {
    /// a name that no other kernel has
    pub name: String,
    /// the kind of its schedule
    pub kind: Kind,
    /// what it does, such as `LayerNorm + GELU`
    pub pattern: String,
    /// the operators of the model that it computes, or computes parts of; those that read it where no operator makes it
    pub operators: Vec<Origin>,
    /// the nodes of the graph that it computes, ascending
    pub members: Vec<usize>,
    /// bytes read and written, each counted once
    pub bytes: f64,
    /// arithmetic operations
    pub flops: f64,
    /// the type of what it multiplies in units for matrices, if it does
    pub matrices: Option<DType>,
    /// what most of its time goes to
    pub bound: String,
    /// predicted microseconds
    pub us: f64,
    /// what the textbooks would say of making its operators one kernel; none where it is of one operator
    pub scorecard: Option<Scorecard>,
    /// for kernels of a region: the operator that runs it
    pub inside: Option<String>,
}

impl KernelRow {
    /// Operations for each byte.
    pub fn intensity(&self) -> Option<f64> {
        (self.bytes > 0.0).then(|| self.flops / self.bytes)
    }
}

/// One graph of a program, explained.
#[derive(Clone, Debug, Default)]
pub struct Part {
    /// its kernels in the order in which they run; those of a region follow the kernel that runs it
    pub kernels: Vec<KernelRow>,
    /// every pair of nodes, one of which reads the other, with what was decided about it
    pub edges: Vec<Edge>,
    /// the same of its regions
    pub region_edges: Vec<RegionEdges>,
    /// what all kernels cost, without those of regions
    pub cost: Cost,
    /// what the kernels of branches and bodies of loops cost, each run once; not part of `cost`
    pub regions: Baseline,
}

/// What was decided inside of a branch or the body of a loop.
#[derive(Clone, Debug, PartialEq)]
pub struct RegionEdges {
    /// the operator that runs it
    pub inside: String,
    /// which of its regions it is
    pub region: usize,
    /// every pair of its nodes, one of which reads the other, with what was decided about it
    pub edges: Vec<Edge>,
}

/// What a plan is compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Baseline {
    /// how many kernels it has
    pub kernels: usize,
    /// what they cost
    pub cost: Cost,
}

/// A planned program, explained.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// what runs every time
    pub run: Part,
    /// what runs once
    pub prepare: Part,
    /// every decision, that with the largest effect first
    pub decisions: Vec<DecisionRow>,
    /// what it is compared with, once that is [priced](Explanation::price_apart)
    pub apart: Option<Apart>,
}

/// The model as it is written, without fusion and without rewrites: what every command compares a plan with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Apart {
    /// with one kernel for every node of the model
    pub per_node: Baseline,
    /// with one kernel for every primitive
    pub per_primitive: Baseline,
}

impl Part {
    /// How many kernels it has, without those of regions.
    pub fn count(&self) -> usize {
        self.kernels.iter().filter(|kernel| kernel.inside.is_none()).count()
    }
}

/// A rewrite that costs less than this costs nothing.
const LEAST_LOSS_US: f64 = 0.005;

impl Explanation {
    /// Explains a program that was planned with `options`.
    pub fn of(planned: &PlannedProgram, options: &PlanOptions) -> Result<Explanation> {
        let options = &PlanOptions { budget: options.budget.started(), ..options.clone() };
        let mut decisions = decision::of_rewrites(&planned.rewrites);
        let mut explain = |graph: &Graph, plan: &Plan| {
            let mut part = Part { cost: plan.cost, ..Part::default() };
            explain_plan(graph, plan, options, None, &mut part, &mut decisions)?;
            part.regions = plan.kernels.iter().flat_map(|k| &k.regions).map(whole).fold(Baseline::default(), added);
            name_kernels(&mut part.kernels);
            Ok(part)
        };
        let run = explain(planned.program.run(), &planned.run)?;
        let prepare = explain(planned.program.prepare(), &planned.prepare)?;
        // Equal regions ask the same questions.
        let mut seen = FxHashSet::default();
        decisions.retain(|row| seen.insert(row.id));
        decision::rank(&mut decisions);
        Ok(Explanation { run, prepare, decisions, apart: None })
    }

    /// Prices what runs every time of `graph`, the one after the passes, where nothing is fused.
    pub fn price_apart(&mut self, graph: &Graph, options: &PlanOptions) -> Result<()> {
        let options = PlanOptions { policy: Policy::Microseconds, fuel: None, ..options.clone() };
        let apart = plan_apart(graph.clone(), &options, Grain::Primitive)?;
        let per_node = plan_by_operator(apart.program.run(), &options)?;
        let baseline = |plan: &Plan| Baseline { kernels: plan.kernels.len(), cost: plan.cost };
        self.apart = Some(Apart { per_node: baseline(&per_node), per_primitive: baseline(&apart.run) });
        Ok(())
    }

    /// Prices the rewrites of `graph`, the one after the passes: a rewrite has no kernel of its own, and what it is worth is the time
    /// that a plan takes longer without it, or with it where it was refused. A plan that is written, drawn by chance or cut
    /// short is not made again, and its rewrites have no price.
    pub fn price_rewrites(&mut self, planned: &PlannedProgram, graph: &Graph, options: &PlanOptions) -> Result<()> {
        if !matches!(options.chooser, Chooser::ByCost) || options.fuel.is_some() {
            return Ok(());
        }
        // Begun here: where time is up, nothing is priced, instead of some rewrites only.
        let options = &PlanOptions { budget: options.budget.started(), ..options.clone() };
        let worths = worth::of_rewrites(planned, graph, options);
        options.budget.check()?;
        for row in self.decisions.iter_mut().filter(|row| row.is_rewrite) {
            let Some(worth) = worths.get(&row.id) else { continue };
            (row.saved_us, row.bytes_saved, row.flops_saved) = (worth.us, worth.bytes, worth.flops);
            row.is_priced = true;
            if row.verdict == Verdict::Taken && worth.us < -LEAST_LOSS_US {
                row.reason.push_str(
                    "; costs time here, but rewrites are applied wherever they fit: every spelling is one kernel",
                );
            }
            // One with all of its kind was slower, or it had promised nothing.
            if row.verdict == Verdict::Refused && worth.us > LEAST_LOSS_US {
                let what = row.reason.split(": ").next().unwrap_or_default();
                let why = "it had promised less, or others of its kind cost more";
                row.reason = format!("{what}: saves {:.2} µs: {why}", worth.us);
                row.code = "unforeseen";
            }
        }
        decision::rank(&mut self.decisions);
        Ok(())
    }

    /// The decisions in which the scorecard says the opposite of the microseconds.
    pub fn disagreements(&self) -> usize {
        self.decisions.iter().filter(|row| row.disagrees()).count()
    }
}

fn explain_plan(
    graph: &Graph,
    plan: &Plan,
    options: &PlanOptions,
    inside: Option<(&str, usize)>,
    part: &mut Part,
    decisions: &mut Vec<DecisionRow>,
) -> Result<()> {
    let wiring = Wiring::of(graph);
    let mut is_stored = vec![false; graph.nodes().len()];
    plan.kernels.iter().flat_map(|k| &k.outputs).for_each(|v| is_stored[v.node()] = true);
    let (mut is_computed, mut is_repeated) = (vec![false; graph.nodes().len()], vec![false; graph.nodes().len()]);
    for node in plan.kernels.iter().flat_map(|k| &k.members) {
        is_repeated[*node] = std::mem::replace(&mut is_computed[*node], true);
    }
    let scorer = Scorer { wiring: &wiring, spec: &options.spec, hints: &options.hints, is_stored, is_repeated };
    decisions.extend(decision::of_plan(plan, &scorer));
    let by_operator = plan_by_operator(graph, options)?;
    let edges = decision::edges(plan);
    match inside {
        None => part.edges = edges,
        Some((inside, region)) => part.region_edges.push(RegionEdges { inside: inside.to_owned(), region, edges }),
    }
    let starts = Starts::of(&by_operator);
    for kernel in &plan.kernels {
        options.budget.check()?;
        let apart = starts.within(kernel);
        let scorecard = scorer.kernel_card(kernel, &apart);
        part.kernels
            .push(KernelRow { scorecard, ..kernel_row(&wiring, kernel, options, inside.map(|(name, _)| name)) });
        let Some(only) = kernel.members.first().filter(|_| !kernel.regions.is_empty()) else { continue };
        let name = wiring.name(*only);
        for (k, (region, plan)) in graph.nodes()[*only].prim().regions().into_iter().zip(&kernel.regions).enumerate() {
            explain_plan(region, plan, options, Some((&name, k)), part, decisions)?;
        }
    }
    Ok(())
}

/// The kernels of a plan by their first members.
struct Starts<'p> {
    plan: &'p Plan,
    by_first: FxHashMap<usize, Vec<usize>>,
}

impl<'p> Starts<'p> {
    fn of(plan: &'p Plan) -> Starts<'p> {
        let mut by_first: FxHashMap<usize, Vec<usize>> = FxHashMap::default();
        for (k, kernel) in plan.kernels.iter().enumerate() {
            by_first.entry(kernel.members[0]).or_default().push(k);
        }
        Starts { plan, by_first }
    }

    /// Those all of whose members another kernel has, in order.
    fn within(&self, kernel: &PlannedKernel) -> Vec<&'p PlannedKernel> {
        let starting = kernel.members.iter().filter_map(|member| self.by_first.get(member));
        let mut found: Vec<usize> = starting.flatten().copied().collect();
        found.sort_unstable();
        let inside = |other: &&PlannedKernel| other.members.iter().all(|m| kernel.members.binary_search(m).is_ok());
        found.into_iter().map(|k| &self.plan.kernels[k]).filter(inside).collect()
    }
}

/// The kernels of a plan, those of its regions included.
fn whole(plan: &Plan) -> Baseline {
    let own = Baseline { kernels: plan.kernels.len(), cost: plan.cost };
    plan.kernels.iter().flat_map(|k| &k.regions).map(whole).fold(own, added)
}

fn added(a: Baseline, b: Baseline) -> Baseline {
    Baseline { kernels: a.kernels + b.kernels, cost: a.cost + b.cost }
}

/// The plan in which no kernel has parts of two operators.
fn plan_by_operator(graph: &Graph, options: &PlanOptions) -> Result<Plan> {
    let pins = Pins::within_operators(graph);
    let policy = Policy::Microseconds;
    plan(graph, &PlanOptions { pins, policy, chooser: Chooser::ByCost, fuel: None, ..options.clone() })
}

/// The two nodes, by name, that a taken fusion of a planned program is about: where its sides touch, of attention both contractions.
/// With these [divided](Pins::divided) no other way leads to what it does. None where the program has no such fusion.
pub fn about(planned: &PlannedProgram, id: DecisionId) -> Option<[DecisionId; 2]> {
    let parts = [(planned.program.run(), &planned.run), (planned.program.prepare(), &planned.prepare)];
    parts.into_iter().find_map(|(graph, plan)| decision::about(graph, plan, id))
}

/// The kernels of a plan as they are shown, in its order, without scorecards and without those of regions.
pub fn kernel_rows(graph: &Graph, plan: &Plan, options: &PlanOptions) -> Vec<KernelRow> {
    let wiring = Wiring::of(graph);
    let mut rows = plan.kernels.iter().map(|kernel| kernel_row(&wiring, kernel, options, None)).collect::<Vec<_>>();
    name_kernels(&mut rows);
    rows
}

fn kernel_row(wiring: &Wiring<'_>, kernel: &PlannedKernel, options: &PlanOptions, inside: Option<&str>) -> KernelRow {
    let own = wiring.operators(&kernel.members);
    KernelRow {
        name: String::new(),
        kind: kernel.kind,
        pattern: pattern::pattern(wiring, kernel),
        operators: if own.is_empty() { wiring.served(&kernel.members) } else { own },
        members: kernel.members.clone(),
        bytes: kernel.work.footprint(),
        flops: kernel.work.flops(),
        matrices: kernel.work.matrices(&options.spec),
        bound: kernel.price.bound.describe(&options.spec),
        us: kernel.price.us,
        scorecard: None,
        inside: inside.map(str::to_string),
    }
}

/// Names kernels by what they do and their place.
fn name_kernels(kernels: &mut [KernelRow]) {
    for (k, kernel) in kernels.iter_mut().enumerate() {
        let letters =
            kernel.pattern.chars().map(|c| if c.is_ascii_alphanumeric() { c.to_ascii_lowercase() } else { ' ' });
        let letters: String = letters.collect();
        let words: Vec<&str> = letters.split_whitespace().take(4).collect();
        kernel.name =
            format!("{}_{k}", if words.is_empty() { kernel.kind.name().to_string() } else { words.join("_") });
    }
}
