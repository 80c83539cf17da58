//! What rewrites are worth.
//!
//! A rewrite has no kernel of its own: what it is worth is the time that kernels take longer without it. Only those around it
//! do, so that a part of the graph is planned twice and not the whole; equal layers have equal parts, which are planned once.

use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHashSet, FxHasher};

use super::KernelRow;
use crate::compile::{PlannedProgram, plan_simplified, rewrite_id};
use crate::error::Result;
use crate::fuse::{Cost, DecisionId, Plan, PlanOptions};
use crate::graph::{Graph, Origin, Value};
use crate::ops::{ExprNode, Prim};
use crate::program::{Part, constant_nodes};
use crate::rewrites::Application;

/// Prices rewrites of one program.
pub(super) struct Appraiser<'a> {
    /// after the passes, before the rewrites
    graph: &'a Graph,
    options: &'a PlanOptions,
    is_constant: Vec<bool>,
    is_live: Vec<bool>,
    /// whether a node is part of no operator that a kernel is called by: a rewrite made it something else
    is_lost: Vec<bool>,
    kernels: Vec<Surroundings<'a>>,
    /// the structure of the part of the graph that some kernels are, by their numbers
    structures: FxHashMap<Vec<usize>, Option<u64>>,
    /// parts of the graph as they were planned, by their structure
    parts: FxHashMap<u64, Known>,
    /// what one of the rewrites of a rule is worth in a part
    worths: FxHashMap<(u64, &'static str), Option<Cost>>,
    /// what rewrites are worth that are in a part that was planned for another one
    priced: FxHashMap<DecisionId, Cost>,
}

/// A kernel of the plan.
struct Surroundings<'a> {
    operators: FxHashSet<&'a Origin>,
    /// the kernels from which it reads and those that read from it
    neighbours: Vec<usize>,
}

/// A part of the graph, planned.
struct Known {
    graph: Graph,
    planned: PlannedProgram,
}

impl<'a> Appraiser<'a> {
    /// For a plan of a run and its kernels as they are shown, made of `graph`.
    pub fn new(graph: &'a Graph, options: &'a PlanOptions, plan: &Plan, rows: &'a [KernelRow]) -> Appraiser<'a> {
        let own = rows.iter().filter(|row| row.inside.is_none());
        let kernels = own
            .zip(neighbours(plan))
            .map(|(row, neighbours)| Surroundings { operators: row.operators.iter().collect(), neighbours });
        let kernels: Vec<Surroundings<'_>> = kernels.collect();
        let known: FxHashSet<&Origin> = kernels.iter().flat_map(|kernel| &kernel.operators).copied().collect();
        let is_lost = |id: usize| !graph.origin(id).iter().any(|origin| known.contains(origin));
        Appraiser {
            graph,
            options,
            is_constant: constant_nodes(graph),
            is_live: graph.live_nodes(),
            is_lost: (0..graph.nodes().len()).map(is_lost).collect(),
            kernels,
            structures: FxHashMap::default(),
            parts: FxHashMap::default(),
            worths: FxHashMap::default(),
            priced: FxHashMap::default(),
        }
    }

    /// What a rewrite saves: a share, where its rule applies several times around it. None where that cannot be told.
    pub fn worth(&mut self, application: &Application) -> Option<Cost> {
        if let Some(known) = self.priced.get(&rewrite_id(application)) {
            return Some(*known);
        }
        let key = self.structure_around(application)?;
        if let Some(known) = self.worths.get(&(key, application.rule)) {
            return *known;
        }
        let part = &self.parts[&key];
        let applied = part.planned.rewrites.iter().filter(|a| a.rule == application.rule && a.refused.is_none());
        let ids: Vec<DecisionId> = applied.map(rewrite_id).collect();
        let worth = self.worth_in(part, &ids).ok().flatten();
        if let Some(worth) = worth {
            ids.into_iter().for_each(|id| _ = self.priced.entry(id).or_insert(worth));
        }
        self.worths.insert((key, application.rule), worth);
        worth
    }

    /// What some rewrites of a part save, each its share.
    fn worth_in(&self, part: &Known, ids: &[DecisionId]) -> Result<Option<Cost>> {
        if ids.is_empty() {
            return Ok(None);
        }
        let mut without = self.options.clone();
        without.pins.apart.extend(ids);
        let other = plan_simplified(part.graph.clone(), &without, &mut |_| {})?.run.cost;
        Ok(Some(share(other, part.planned.run.cost, ids.len() as f64)))
    }

    /// The structure of the part of the graph around a rewrite, which is planned.
    fn structure_around(&mut self, application: &Application) -> Option<u64> {
        let kernels = self.kernels_around(application);
        if let Some(known) = self.structures.get(&kernels) {
            return *known;
        }
        let found = self.plan_part(&kernels).ok();
        self.structures.insert(kernels, found);
        found
    }

    fn plan_part(&mut self, kernels: &[usize]) -> Result<u64> {
        let graph = self.part(kernels)?;
        let key = structure(&graph);
        if !self.parts.contains_key(&key) {
            let planned = plan_simplified(graph.clone(), self.options, &mut |_| {})?;
            self.parts.insert(key, Known { graph, planned });
        }
        Ok(key)
    }

    /// The kernels that a rewrite touches, and those next to them, ascending.
    fn kernels_around(&self, application: &Application) -> Vec<usize> {
        let touched: Vec<&Origin> = application.producer.iter().chain(application.consumer.iter()).collect();
        let touches = |kernel: &Surroundings<'_>| touched.iter().any(|origin| kernel.operators.contains(origin));
        let mut around: Vec<usize> = Vec::new();
        for (k, kernel) in self.kernels.iter().enumerate().filter(|(_, kernel)| touches(kernel)) {
            around.push(k);
            around.extend(&kernel.neighbours);
        }
        around.sort_unstable();
        around.dedup();
        around
    }

    /// The part of the graph that some kernels are, by their operators. What it reads from elsewhere are inputs, what is read
    /// elsewhere are outputs.
    fn part(&self, kernels: &[usize]) -> Result<Graph> {
        let operators: FxHashSet<&Origin> = kernels.iter().flat_map(|k| &self.kernels[*k].operators).copied().collect();
        let (graph, count) = (self.graph, self.graph.nodes().len());
        let inside = self.inside(&operators);
        let mut needed = inside.clone();
        let mut is_read = vec![false; count];
        for id in (0..count).rev().filter(|id| self.is_live[*id]) {
            for arg in graph.nodes()[id].args() {
                is_read[arg.node()] |= !needed[id];
                needed[arg.node()] |= needed[id] && self.is_constant[arg.node()];
            }
        }
        graph.outputs().iter().for_each(|o| is_read[o.value.node()] = true);
        let mut part = Part::new(graph);
        // They bind the sizes.
        graph.inputs().iter().try_for_each(|input| part.copy(graph, input.node()))?;
        for id in (0..count).filter(|id| needed[*id]) {
            for arg in graph.nodes()[id].args() {
                if !part.has(*arg) {
                    let name = format!("cut:{}", part.graph.inputs().len()).into();
                    part.add_input(graph, name, *arg)?;
                }
            }
            part.copy(graph, id)?;
        }
        for id in (0..count).filter(|id| inside[*id] && is_read[*id] && !self.is_constant[*id]) {
            for port in 0..graph.nodes()[id].types().len() {
                let value = part.moved(Value::new(id, port))?;
                let name = format!("cut:{}", part.graph.outputs().len());
                part.graph.add_output(&name, value);
            }
        }
        Ok(part.graph)
    }

    /// The nodes of some operators, and those between them that rewrites made something else.
    fn inside(&self, operators: &FxHashSet<&Origin>) -> Vec<bool> {
        let graph = self.graph;
        let count = graph.nodes().len();
        let is_input = |id: usize| matches!(graph.nodes()[id].prim(), Prim::Input(_));
        let is_part = |id: usize| graph.origin(id).iter().any(|origin| operators.contains(origin));
        let mut inside: Vec<bool> = (0..count).map(|id| self.is_live[id] && !is_input(id) && is_part(id)).collect();
        let may_be = |id: &usize| self.is_live[*id] && self.is_lost[*id] && !is_input(*id);
        let (mut below, mut above) = (inside.clone(), inside.clone());
        for id in (0..count).filter(may_be) {
            below[id] = graph.nodes()[id].args().iter().any(|arg| below[arg.node()]);
        }
        for id in (0..count).rev() {
            for arg in graph.nodes()[id].args() {
                above[arg.node()] |= above[id] && may_be(&arg.node());
            }
        }
        for (id, is_inside) in inside.iter_mut().enumerate() {
            *is_inside |= below[id] && above[id];
        }
        inside
    }
}

fn share(other: Cost, own: Cost, count: f64) -> Cost {
    Cost {
        us: (other.us - own.us) / count,
        bytes: (other.bytes - own.bytes) / count,
        flops: (other.flops - own.flops) / count,
        launches: (other.launches - own.launches) / count,
        ..own
    }
}

/// For every kernel, those from which it reads and those that read from it.
fn neighbours(plan: &Plan) -> Vec<Vec<usize>> {
    let mut makers: FxHashMap<Value, usize> = FxHashMap::default();
    for (k, kernel) in plan.kernels.iter().enumerate() {
        makers.extend(kernel.outputs.iter().map(|value| (*value, k)));
    }
    let mut neighbours = vec![Vec::new(); plan.kernels.len()];
    for (k, kernel) in plan.kernels.iter().enumerate() {
        for maker in kernel.inputs.iter().filter_map(|value| makers.get(value).copied()) {
            neighbours[k].push(maker);
            neighbours[maker].push(k);
        }
    }
    neighbours
}

/// A number that equal parts of a model have, such as its layers: all but where nodes come from and what constants hold, which
/// hardly matters to a price.
fn structure(graph: &Graph) -> u64 {
    let mut hasher = FxHasher::default();
    for node in graph.nodes() {
        match node.prim() {
            Prim::Const(_) => {}
            Prim::Map(row) => {
                for (step, dtype) in row.expr.nodes() {
                    dtype.hash(&mut hasher);
                    match step {
                        ExprNode::Const(_) => {}
                        step => step.hash(&mut hasher),
                    }
                }
            }
            other => other.hash(&mut hasher),
        }
        node.types().hash(&mut hasher);
        node.args().hash(&mut hasher);
    }
    graph.outputs().iter().for_each(|output| output.value.hash(&mut hasher));
    hasher.finish()
}
