//! What holds of every plan. [`Plan::check`] checks this list in its order, by looking at plan and graph alone: it shares
//! nothing with the planner, so that a mistake there does not hide itself. The error says which kernel breaks which one.
//!
//! 1. The plan was made for this graph.
//! 2. Members are nodes of the graph, ascending; inputs and constants are nobody's. What a kernel stores are results of its
//!    members. No value is stored twice.
//! 3. What a kernel reads is an input, a constant, or stored by an earlier kernel.
//! 4. Members are exactly what the stored values need, looking through views and formulas; what is read are values that
//!    members need. An opaque node is alone in its kernel, reads all of its operands as they are and stores all of its
//!    results.
//! 5. The kernel's parameters have the types of the values, its schedule is of the planned kind, and it keeps the list of
//!    [`tile::verify`].
//! 6. Every size that a kernel mentions is bound: by an input, or by a node of an earlier kernel.
//! 7. Control flow has one plan for each region, which keeps this list, given the sizes bound around it; but its kernels, which
//!    may never run, may read outside of tensors.
//! 8. Every result of the graph is an input, a constant, or stored; every size that a constraint mentions is bound.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use super::evaluate::Kind;
use super::name::Names;
use super::plan::{Plan, PlannedKernel};
use crate::budget::Budget;
use crate::error::{Context, Error, Result};
use crate::graph::{Graph, Node, Value};
use crate::lower::{gathered, is_opaque, is_transparent, looked_at};
use crate::ops::{ExprNode, Prim};
use crate::tensor::{Bound, Dim, Symbol};
use crate::tile::{self, Kernel, Op, Param, Schedule};

impl Plan {
    /// Proves that the plan computes the graph's results from its inputs, however it was found. What is left to trust is
    /// that each kernel computes what its members say.
    pub fn check(&self, graph: &Graph) -> Result<()> {
        self.check_within(graph, &Budget::UNLIMITED)
    }

    /// As [`Plan::check`], as long as the budget lasts.
    pub fn check_within(&self, graph: &Graph, budget: &Budget) -> Result<()> {
        Check::of(self, graph, Bound::default(), true, budget).and_then(Check::run)
    }
}

impl PlannedKernel {
    /// The kernel by its number in the plan, its kind and its last node, for the path of an error.
    pub fn describe(&self, number: usize, graph: &Graph) -> String {
        let node = self.members.last().filter(|id| **id < graph.nodes().len());
        let node = node.map_or("no node".to_owned(), |id| graph.describe(*id));
        format!("kernel {number} ({}, {node})", self.kind.name())
    }
}

struct Check<'p> {
    plan: &'p Plan,
    graph: &'p Graph,
    /// what lies behind the views before the first result of a node; `None` for what follows from coordinates
    base: Vec<Option<Value>>,
    /// the kernel that stores a value
    stored: FxHashMap<Value, usize>,
    bound: Bound<'p>,
    /// kernels that were looked at, by address: equal layers share theirs
    verified: FxHashSet<*const Kernel>,
    /// whether the kernels run for sure: what they read is wrong only when they do
    runs: bool,
    budget: &'p Budget,
}

impl<'p> Check<'p> {
    fn of(plan: &'p Plan, graph: &'p Graph, mut bound: Bound<'p>, runs: bool, budget: &'p Budget) -> Result<Check<'p>> {
        if plan.graph != Names::of(graph).graph(graph) {
            return Err(Error::bug("the plan was made for another graph"));
        }
        let sizes = graph.inputs().iter().flat_map(|v| graph.ty(*v).shape.dims());
        bound.extend(sizes.filter_map(Dim::as_symbol).cloned());
        let mut base: Vec<Option<Value>> = Vec::with_capacity(graph.nodes().len());
        for id in 0..graph.nodes().len() {
            budget.check()?;
            let behind = match looked_at(graph, id) {
                Some(operand) => behind(&base, operand),
                _ if is_transparent(graph, id) => None,
                _ => Some(Value::new(id, 0)),
            };
            base.push(behind);
        }
        let (stored, verified) = (FxHashMap::default(), FxHashSet::default());
        Ok(Check { plan, graph, base, stored, bound, verified, runs, budget })
    }

    fn run(mut self) -> Result<()> {
        let plan = self.plan;
        for (k, kernel) in plan.kernels.iter().enumerate() {
            self.nodes(k, kernel).at(|| kernel.describe(k, self.graph))?;
        }
        for (k, kernel) in plan.kernels.iter().enumerate() {
            self.budget.check()?;
            let place = || kernel.describe(k, self.graph);
            self.reads(k, kernel).at(place)?;
            self.needs(kernel).at(place)?;
            self.kernel(kernel).at(place)?;
            self.sizes(kernel).at(|| kernel.describe(k, self.graph))?;
        }
        self.results()
    }

    fn node(&self, id: usize) -> Result<&'p Node> {
        self.graph.nodes().get(id).ok_or_else(|| Error::bug(format!("%{id} is not in the graph")))
    }

    fn nodes(&mut self, k: usize, kernel: &PlannedKernel) -> Result<()> {
        if !kernel.members.is_sorted_by(|a, b| a < b) {
            return Err(Error::bug("its nodes are not in order"));
        }
        for id in &kernel.members {
            if is_source(self.node(*id)?) {
                return Err(Error::bug("nothing computes it").at(self.graph.describe(*id)));
            }
        }
        for value in &kernel.outputs {
            if kernel.members.binary_search(&value.node()).is_err() {
                return Err(Error::bug(format!("{value:?} is stored, but none of its nodes computes that")));
            }
            if value.port() >= self.node(value.node())?.types().len() {
                return Err(Error::bug(format!("{value:?} is stored, and is not in the graph")));
            }
            if let Some(other) = self.stored.insert(*value, k) {
                return Err(Error::bug(format!("{value:?} is stored here and by kernel {other}")));
            }
        }
        Ok(())
    }

    fn reads(&self, k: usize, kernel: &PlannedKernel) -> Result<()> {
        for value in &kernel.inputs {
            let node = self.node(value.node())?;
            let why = match self.stored.get(value) {
                _ if is_source(node) => continue,
                Some(earlier) if *earlier < k => continue,
                Some(later) => format!("{value:?} is read, and kernel {later} stores it"),
                None => format!("{value:?} is read, and nothing stores it"),
            };
            return Err(Error::bug(why).at(self.graph.describe(value.node())));
        }
        Ok(())
    }

    fn needs(&self, kernel: &PlannedKernel) -> Result<()> {
        if let Some(id) = kernel.members.iter().find(|id| is_opaque(self.graph.nodes()[**id].prim())) {
            return self.alone(kernel, *id).at(|| self.graph.describe(*id));
        }
        let mut reached = vec![false; kernel.members.len()];
        let mut outside: FxHashSet<Value> = FxHashSet::default();
        let mut todo: Vec<usize> = kernel.outputs.iter().map(|v| v.node()).collect();
        while let Some(id) = todo.pop() {
            let place = kernel.members.binary_search(&id).expect("only members are to do");
            if std::mem::replace(&mut reached[place], true) {
                continue;
            }
            for value in self.operands(&self.graph.nodes()[id]) {
                match kernel.members.binary_search(&value.node()) {
                    Ok(_) => todo.push(value.node()),
                    Err(_) => drop(outside.insert(value)),
                }
            }
        }
        if let Some(unread) = kernel.members.iter().zip(&reached).find(|(_, reached)| !**reached) {
            return Err(Error::bug("nothing that is stored needs it").at(self.graph.describe(*unread.0)));
        }
        match kernel.inputs.iter().find(|value| !outside.contains(value)) {
            Some(value) => Err(Error::bug(format!("{value:?} is read, and none of its nodes needs that"))),
            None => Ok(()),
        }
    }

    /// What a node reads through views and formulas; a gather reads at coordinates from data, and looks through no guards.
    fn operands(&self, node: &Node) -> Vec<Value> {
        let seen = node.args().iter().map(|arg| behind(&self.base, *arg));
        let mut seen: Vec<Option<Value>> = seen.collect();
        if let Prim::Gather(row) = node.prim() {
            seen[0] = Some(gathered(self.graph, row, node.args()[0]));
        }
        seen.into_iter().flatten().collect()
    }

    /// An opaque node: one portable implementation, or control flow.
    fn alone(&self, kernel: &PlannedKernel, id: usize) -> Result<()> {
        let node = &self.graph.nodes()[id];
        let results: Vec<Value> = (0..node.types().len()).map(|port| Value::new(id, port)).collect();
        if kernel.members.len() > 1 {
            return Err(Error::bug("it is not alone in its kernel"));
        }
        if kernel.inputs != node.args() || kernel.outputs != results {
            let (inputs, args) = (&kernel.inputs, node.args());
            return Err(Error::bug(format!(
                "{inputs:?} are read instead of {args:?}, or {:?} stored instead of {results:?}",
                kernel.outputs
            )));
        }
        let same = |graph: &Graph| graph.nodes().last().is_some_and(|last| last.prim() == node.prim());
        match &kernel.kernel.schedule {
            Schedule::Host(graph) if same(graph) => Ok(()),
            _ => Err(Error::bug("its kernel is another one")),
        }
    }

    fn kernel(&mut self, planned: &PlannedKernel) -> Result<()> {
        let kernel = &planned.kernel;
        self.parameters("read", &kernel.inputs, &planned.inputs)?;
        self.parameters("stored", &kernel.outputs, &planned.outputs)?;
        if planned.kind.name() != kernel.schedule.name() {
            return Err(Error::bug(format!("its schedule is {}", kernel.schedule.name())));
        }
        let opaque = planned.members.iter().any(|id| is_opaque(self.graph.nodes()[*id].prim()));
        if (planned.kind == Kind::Host) != opaque {
            return Err(Error::bug("loops over tensors have no host schedule"));
        }
        let fresh = self.verified.insert(Arc::as_ptr(kernel));
        let kept = || -> Result<()> {
            tile::verify_unread(kernel).map_err(Error::of_ours)?;
            // No bug of ours: a graph may read outside of a tensor.
            if self.runs { tile::verify_loads(kernel) } else { Ok(()) }
        };
        if fresh { kept().at(|| "it breaks the rules of kernels") } else { Ok(()) }
    }

    fn parameters(&self, what: &str, params: &[Param], values: &[Value]) -> Result<()> {
        if params.len() != values.len() {
            return Err(Error::bug(format!("{} values are {what}, by {} parameters", values.len(), params.len())));
        }
        for (param, value) in params.iter().zip(values) {
            let ty = self.graph.ty(*value);
            if param.ty != *ty {
                let why = format!("{value:?} is {ty}, and {what} as {}", param.ty);
                return Err(Error::bug(why).at(self.graph.describe(value.node())));
            }
        }
        Ok(())
    }

    fn sizes(&mut self, planned: &PlannedKernel) -> Result<()> {
        let graph = self.graph;
        for id in &planned.members {
            self.node_sizes(&graph.nodes()[*id], &planned.regions).at(|| graph.describe(*id))?;
        }
        let mut mentioned = Ok(());
        for_each_dim(&planned.kernel, &mut |dim| {
            if mentioned.is_ok() {
                mentioned = self.is_bound(dim);
            }
        });
        mentioned
    }

    fn node_sizes(&mut self, node: &Node, regions: &[Plan]) -> Result<()> {
        let inner = node.prim().regions();
        if inner.len() != regions.len() {
            return Err(Error::bug(format!("{} plans for {} regions", regions.len(), inner.len())));
        }
        for (plan, region) in regions.iter().zip(inner) {
            let check = Check::of(plan, region, Bound::inside(&self.bound), false, self.budget);
            check.and_then(Check::run).at(|| format!("region {}", region.name()))?;
        }
        let result_sizes = || node.types().iter().flat_map(|ty| ty.shape.dims());
        let values = result_sizes().filter_map(Dim::as_symbol).filter(|s| matches!(s, Symbol::Value(_)));
        match node.prim() {
            Prim::Bind(row) => drop(self.bound.bind(Symbol::Value(row.symbol))),
            Prim::Host(row) => self.bound.extend(row.kind.binds().map(Symbol::Value)),
            Prim::If(_) | Prim::Loop(_) => self.bound.extend(values.cloned()),
            _ => {}
        }
        result_sizes().try_for_each(|dim| self.is_bound(dim))
    }

    fn is_bound(&self, dim: &Dim) -> Result<()> {
        let mut free = None;
        dim.for_each_symbol(&mut |s| {
            if matches!(s, Symbol::Name(_) | Symbol::Value(_)) && !self.bound.has(s) {
                free.get_or_insert_with(|| s.clone());
            }
        });
        match free {
            Some(symbol) => Err(Error::bug(format!("no input and no earlier kernel binds {symbol}"))),
            None => Ok(()),
        }
    }

    fn results(&self) -> Result<()> {
        for output in self.graph.outputs() {
            if !is_source(self.graph.node_of(output.value)) && !self.stored.contains_key(&output.value) {
                let place = format!("output \"{}\", {}", output.name, self.graph.describe(output.value.node()));
                return Err(Error::bug(format!("no kernel stores {:?}", output.value)).at(place));
            }
        }
        for constraint in self.graph.constraints() {
            let place = || format!("constraint ({})", constraint.why);
            self.is_bound(&constraint.left).and_then(|()| self.is_bound(&constraint.right)).at(place)?;
        }
        Ok(())
    }
}

fn is_source(node: &Node) -> bool {
    matches!(node.prim(), Prim::Input(_) | Prim::Const(_))
}

fn behind(base: &[Option<Value>], value: Value) -> Option<Value> {
    if value.port() == 0 { base[value.node()] } else { Some(value) }
}

/// Calls `f` with every size and coordinate that a kernel of loops mentions.
fn for_each_dim(kernel: &Kernel, f: &mut dyn FnMut(&Dim)) {
    kernel.axes.iter().for_each(&mut *f);
    kernel.stores.iter().flat_map(|store| &store.index).for_each(&mut *f);
    for step in &kernel.steps {
        match &step.op {
            Op::Load { index, guard, .. } => {
                index.iter().for_each(&mut *f);
                guard.iter().flat_map(|guard| [&guard.index, &guard.bound]).for_each(&mut *f);
            }
            Op::Random { index, .. } => f(index),
            Op::Map { expr, .. } => expr.nodes().iter().for_each(|(node, _)| {
                if let ExprNode::Size(dim) = node {
                    f(dim);
                }
            }),
            Op::Reduce { .. } | Op::Prefix { .. } | Op::Dot { .. } => {}
        }
    }
}

#[cfg(test)]
mod tests;
