//! Plans: kernels in the order in which they run, and every decision that led to them.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::cell::{Bases, Cells};
use super::decision::{Cost, Decision, DecisionId};
use super::driver::Driver;
use super::evaluate::{Evaluator, Kind, best_tiles, factor_type};
use super::knowledge::Knowledge;
use super::layout::assign_layouts;
use super::lock::{LockedGraph, LockedKernel};
use super::name::Names;
use super::options::{Chooser, PlanOptions};
use super::replay::check_kinds;
use super::state::{GroupState, State};
use super::third_thoughts::Turn;
use crate::analysis::{Price, Work};
use crate::error::{Error, Result};
use crate::graph::{Graph, OriginSet, Value};
use crate::lower::{self, Draft, Group, Limits, Roles};
use crate::ops::Prim;
use crate::ops::prim::Input;
use crate::tensor::Layout;
use crate::tile::{Kernel, Param, Rounding, Schedule};

/// A kernel with its place in the graph.
#[derive(Clone, Debug)]
pub struct PlannedKernel {
    /// the nodes that it computes, ascending
    pub members: Vec<usize>,
    /// the values that it reads, in the order of the kernel's inputs
    pub inputs: Vec<Value>,
    /// the values that it stores, in the order of the kernel's outputs
    pub outputs: Vec<Value>,
    /// the kind of the kernel's schedule
    pub kind: Kind,
    /// the kernel; equal layers share it
    pub kernel: Arc<Kernel>,
    /// what it does
    pub work: Work,
    /// what that costs
    pub price: Price,
    /// for control flow: the plans of its regions
    pub regions: Vec<Plan>,
}

/// A graph divided into kernels.
#[derive(Clone, Debug)]
pub struct Plan {
    /// the kernels, in the order in which they run
    pub kernels: Vec<PlannedKernel>,
    /// every decision, in the order in which it was taken, then what was refused
    pub decisions: Vec<Decision>,
    /// how stored values lie in memory
    pub layouts: BTreeMap<Value, Layout>,
    /// what all kernels cost
    pub cost: Cost,
    /// what one kernel for every node would cost
    pub apart: Cost,
    /// decisions that it turned round, because it takes less in all than if every one had been taken by what it saves
    pub turned: Vec<Turn>,
    /// the graph, as a hash of its structure
    pub graph: u64,
    /// how much was looked at to find it: nodes of proposals, groups on ways around them, terms and leaves of kernels; the same in
    /// every run
    pub effort: u64,
}

impl Plan {
    /// This plan and those of the regions inside of it, outer ones first.
    pub fn with_regions(&self) -> Vec<&Plan> {
        let inside = self.kernels.iter().flat_map(|kernel| &kernel.regions).flat_map(Plan::with_regions);
        std::iter::once(self).chain(inside).collect()
    }

    /// The kernels as they are written into a lock: those of this graph, then those of its regions.
    pub fn locked(&self) -> Vec<LockedGraph> {
        let kernel =
            |k: &PlannedKernel| LockedKernel { kind: k.kind, nodes: k.members.clone(), line: 0, note: String::new() };
        let own =
            LockedGraph { graph: self.graph, kernels: self.kernels.iter().map(kernel).collect(), note: String::new() };
        let regions = self.kernels.iter().flat_map(|k| &k.regions).flat_map(Plan::locked);
        std::iter::once(own).chain(regions).collect()
    }
}

/// The name of the decision about each of the [`edges`](super::edges) of a graph, in their order.
pub fn edge_names(graph: &Graph) -> Vec<DecisionId> {
    let names = Names::of(graph);
    super::edges(graph).into_iter().map(|edge| names.edge(edge)).collect()
}

/// The name of each node of a graph: follows from what it computes, as those of decisions do.
pub fn node_names(graph: &Graph) -> Vec<DecisionId> {
    let names = Names::of(graph);
    (0..graph.nodes().len()).map(|node| names.node(node)).collect()
}

/// Divides a graph into kernels. The graph should have gone through the passes.
pub fn plan(graph: &Graph, options: &PlanOptions) -> Result<Plan> {
    plan_knowing(graph, options, &mut Knowledge::default())
}

/// As [`plan`], with what plans before it have learnt for the same device, sizes and numerics.
pub(crate) fn plan_knowing(graph: &Graph, options: &PlanOptions, knowledge: &mut Knowledge) -> Result<Plan> {
    let cells = Cells::of(graph, &mut knowledge.numbering);
    let mut driver = undecided(graph, &cells, options, std::mem::take(knowledge))?;
    let apart = driver.cost();
    driver.run()?;
    driver.note_refusals()?;
    let (order, effort) = (driver.ordered()?, driver.effort());
    let Driver { state, evaluator, decisions, turned, graph: name, .. } = driver;
    *knowledge = evaluator.into_knowledge();
    let mut kernels = Vec::new();
    for id in order {
        options.budget.check()?;
        kernels.push(planned(graph, state.group(id), &cells, options, knowledge)?);
    }
    if let Chooser::Replay(lock) = &options.chooser
        && let Some(part) = lock.graph(name)
    {
        check_kinds(&part.kernels, &kernels)?;
    }
    let cost = kernels.iter().map(cost).fold(Cost::default(), |sum, cost| sum + cost);
    let layouts = assign_layouts(graph, &kernels);
    Ok(Plan { kernels, layouts, decisions, cost, apart, turned, graph: name, effort })
}

/// What the kernels of a plan cost: as [`plan_knowing`], without its kernels and its log.
pub(crate) fn price_knowing(graph: &Graph, options: &PlanOptions, knowledge: &mut Knowledge) -> Result<Cost> {
    let cells = Cells::of(graph, &mut knowledge.numbering);
    let mut driver = undecided(graph, &cells, options, std::mem::take(knowledge))?;
    driver.run()?;
    let cost = driver.cost();
    *knowledge = driver.evaluator.into_knowledge();
    Ok(cost)
}

/// Every cell by itself, and nothing decided.
fn undecided<'g>(
    graph: &'g Graph,
    cells: &'g Cells,
    options: &'g PlanOptions,
    knowledge: Knowledge,
) -> Result<Driver<'g>> {
    let names = Names::of(graph);
    if let Chooser::Replay(lock) = &options.chooser
        && lock.graph(names.graph(graph)).is_none()
    {
        return Err(Error::invalid("the plan was made for another graph, or with other passes or rewrites"));
    }
    let mut evaluator = Evaluator::new(graph, cells, options, knowledge);
    let state = State::apart(graph, cells, &mut evaluator)?;
    Ok(Driver::new(state, evaluator, options, names))
}

fn cost(kernel: &PlannedKernel) -> Cost {
    Cost {
        us: kernel.price.us,
        bytes: kernel.work.footprint(),
        flops: kernel.work.flops(),
        launches: kernel.work.launches,
        registers: kernel.work.registers,
    }
}

/// A kernel, and which of the values outside of its group are its inputs: as positions in the order in which they are
/// first read.
pub(super) struct Finished {
    kernel: Arc<Kernel>,
    inputs: Vec<usize>,
}

fn planned(
    graph: &Graph,
    group: &GroupState,
    cells: &Cells,
    options: &PlanOptions,
    knowledge: &mut Knowledge,
) -> Result<PlannedKernel> {
    let GroupState { members, outputs, priced } = group;
    let (kernel, inputs) = match (priced.kind, members.as_slice()) {
        (Kind::Host, [only]) => (Arc::new(host_kernel(graph, *only)?), graph.nodes()[*only].args().to_vec()),
        _ => {
            let outside = outside(graph, cells, members);
            let kernels = &mut knowledge.kernels;
            if !kernels.contains_key(&priced.structure) || has_random(graph, members) {
                kernels.insert(priced.structure, finished(graph, group, cells, options, &outside)?);
            }
            let found = &kernels[&priced.structure];
            (found.kernel.clone(), found.inputs.iter().map(|k| outside[*k]).collect())
        }
    };
    let regions = match members.as_slice() {
        [only] => regions(graph, *only, options, knowledge)?,
        _ => Vec::new(),
    };
    Ok(PlannedKernel {
        members: members.clone(),
        inputs,
        outputs: outputs.clone(),
        kind: Kind::of_schedule(&kernel.schedule),
        kernel,
        work: priced.work.clone(),
        price: priced.price,
        regions,
    })
}

/// Streams of random numbers are part of a kernel but not of the structure by which kernels are shared.
fn has_random(graph: &Graph, members: &[usize]) -> bool {
    members.iter().any(|id| matches!(graph.nodes()[*id].prim(), Prim::Random(_)))
}

/// The values that members read from outside, in the order in which they are first read.
fn outside(graph: &Graph, cells: &Cells, members: &[usize]) -> Bases {
    let mut found = Bases::default();
    for id in members {
        let of_args = (0..graph.nodes()[*id].args().len()).filter_map(|k| cells.operand(graph, *id, k).base);
        let is_view = matches!(graph.nodes()[*id].prim(), Prim::View(_));
        let of_view = is_view.then(|| cells.look(Value::new(*id, 0)).base).flatten();
        found.extend(of_args.chain(of_view).filter(|base| members.binary_search(&base.node()).is_err()));
    }
    found
}

fn finished(
    graph: &Graph,
    group: &GroupState,
    cells: &Cells,
    options: &PlanOptions,
    outside: &Bases,
) -> Result<Finished> {
    let place = || graph.describe(group.members[0]);
    let refused = |refusal| Error::bug(format!("a planned group has no kernel: {refusal}")).at(place());
    let draft = lower::lower(&Group { graph, members: &group.members, outputs: &group.outputs }).map_err(refused)?;
    let PlanOptions { spec, hints, numerics, .. } = options;
    // What was priced is the group as it was written down; its tiles are those of what it becomes.
    let choose = |draft: &Draft, roles: &Roles| {
        let dtype = factor_type(draft);
        let is_fresh = |value: Value| cells.is_cell[value.node()];
        best_tiles(draft, roles, (&Limits::of(spec, dtype), dtype), (spec, hints), &is_fresh).map(|(limits, ..)| limits)
    };
    let (draft, kernel) = lower::write_with(draft, &group.priced.limits, &choose, hints, *numerics).map_err(refused)?;
    let position = |value: &Value| {
        outside.get_index_of(value).ok_or_else(|| Error::bug(format!("{value:?} is read but not listed")))
    };
    let inputs = draft.inputs.iter().map(|(value, _)| position(value)).collect::<Result<Vec<usize>>>()?;
    Ok(Finished { kernel: Arc::new(kernel), inputs })
}

/// One node as a kernel of its own, run by its portable implementation.
fn host_kernel(graph: &Graph, id: usize) -> Result<Kernel> {
    let node = &graph.nodes()[id];
    let none = OriginSet::default();
    let mut alone = Graph::new("host");
    alone.reserve_symbols(graph.value_symbols());
    let mut args = Vec::with_capacity(node.args().len());
    for (k, arg) in node.args().iter().enumerate() {
        let input = Input { name: format!("x{k}").into(), ty: graph.ty(*arg).clone() };
        args.push(Value::new(alone.add(input, &[], &none)?, 0));
    }
    let new = alone.add(node.prim().clone(), &args, &none)?;
    for port in 0..node.types().len() {
        alone.add_output(&format!("y{port}"), Value::new(new, port));
    }
    let param = |ty: &crate::tensor::TensorType| Param::row_major(ty.clone());
    Ok(Kernel {
        axes: Vec::new(),
        inputs: node.args().iter().map(|a| param(graph.ty(*a))).collect(),
        outputs: node.types().iter().map(param).collect(),
        steps: Vec::new(),
        stores: Vec::new(),
        schedule: Schedule::Host(Arc::new(alone)),
        rounding: Rounding::Ends,
    })
}

/// The plans of the regions of control flow; no fusion crosses their border.
fn regions(graph: &Graph, id: usize, options: &PlanOptions, knowledge: &mut Knowledge) -> Result<Vec<Plan>> {
    let inner = PlanOptions {
        chooser: match &options.chooser {
            Chooser::AtRandom(seed) => Chooser::AtRandom(seed.wrapping_add(id as u64 + 1)),
            other => other.clone(),
        },
        ..options.clone()
    };
    graph.nodes()[id].prim().regions().into_iter().map(|region| plan_knowing(region, &inner, knowledge)).collect()
}
