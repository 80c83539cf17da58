//! Planned graphs, looked at once before they run: who reads what, what is constant, what can be made ready at one time.

use std::collections::BTreeSet;
use std::ops::Range;
use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::error::{Error, Result};
use crate::fuse::{Plan, PlannedKernel};
use crate::graph::{Graph, Value};
use crate::ops::Prim;
use crate::tensor::{Env, Literal, Symbol, TensorType};
use crate::tile::Schedule;

/// A constant by its number in a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConstantId(pub usize);

/// Where the constants of a session are kept.
pub trait ConstantPool {
    /// A literal of a graph; equal ones are one constant.
    fn add_literal(&mut self, literal: &Literal) -> ConstantId;

    /// Notes that somebody reads it.
    fn count_reader(&mut self, id: ConstantId);
}

/// A graph with a plan of it that was checked; of every segment, a device makes an `M`.
#[derive(Debug)]
pub struct LoadedGraph<M> {
    /// the graph
    pub graph: Arc<Graph>,
    /// the plan
    pub plan: Plan,
    /// every value that is there during a run: inputs, constants, what kernels store
    pub slots: Vec<Slot>,
    /// the slots of the inputs, in order
    pub inputs: Vec<usize>,
    /// the slots of the outputs, in order
    pub outputs: Vec<usize>,
    /// what is known of the plan's kernels
    pub kernels: Vec<LoadedKernel<M>>,
    /// consecutive kernels whose sizes are all known before the first of them runs
    pub segments: Vec<Segment<M>>,
}

/// A value that is there during a run.
#[derive(Debug)]
pub struct Slot {
    /// its type
    pub ty: TensorType,
    /// where it comes from
    pub origin: Origin,
    /// the last kernel that reads or writes it
    pub last: usize,
    /// whether the caller gets it
    pub is_output: bool,
}

/// Where a value comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// the caller
    Input,
    /// it is the same in every run
    Constant(ConstantId),
    /// a kernel
    Kernel(usize),
}

/// How a kernel is run.
#[derive(Clone, Debug)]
pub enum Way {
    /// by programs, if there are any for it
    Code,
    /// by the portable implementation of its node
    Host,
    /// a scalar becomes the value of a symbol
    Bind(u32),
    /// one of two regions
    If,
    /// a region, again and again
    Loop,
}

/// What is known of a kernel.
#[derive(Debug)]
pub struct LoadedKernel<M> {
    /// how it is run
    pub way: Way,
    /// the slots that it reads
    pub inputs: Vec<usize>,
    /// the slots that it writes
    pub outputs: Vec<usize>,
    /// the slots of kernels that nothing needs after it
    pub released: Vec<usize>,
    /// the regions of control flow
    pub regions: Vec<LoadedGraph<M>>,
}

/// Consecutive kernels whose sizes are all known before the first of them runs.
#[derive(Debug)]
pub struct Segment<M> {
    /// the kernels
    pub kernels: Range<usize>,
    /// the symbols on which their sizes depend
    pub symbols: Vec<Symbol>,
    /// what was made of it so far
    pub specials: M,
}

impl<M> Segment<M> {
    /// Numbers for its symbols.
    pub fn sizes(&self, env: &Env) -> Result<Vec<i64>> {
        let number = |symbol| env.get(symbol).ok_or_else(|| Error::bug(format!("the size {symbol} is not known")));
        self.symbols.iter().map(number).collect()
    }
}

impl Slot {
    /// The bytes of its value.
    pub fn bytes(&self, env: &Env) -> Result<usize> {
        let count = self.ty.shape.eval(env)?.iter().product();
        let bytes = self.ty.dtype.bytes(count);
        bytes.ok_or_else(|| Error::limit(format!("a tensor {} of more bytes than can be counted", self.ty)))
    }
}

impl<M: Default> LoadedGraph<M> {
    /// Looks at a plan of a graph. Inputs that are the same in every run are given as constants; other constants are added.
    pub fn new(
        graph: &Arc<Graph>,
        plan: &Plan,
        given: &[Option<ConstantId>],
        constants: &mut dyn ConstantPool,
    ) -> Result<LoadedGraph<M>> {
        let mut slots = Slots { graph, slots: Vec::new(), of: FxHashMap::default(), constants };
        let mut inputs = Vec::with_capacity(graph.inputs().len());
        for (k, value) in graph.inputs().iter().enumerate() {
            let constant = given.get(k).copied().flatten();
            inputs.push(slots.add(*value, constant.map_or(Origin::Input, Origin::Constant)));
        }
        let mut kernels = Vec::with_capacity(plan.kernels.len());
        for (k, kernel) in plan.kernels.iter().enumerate() {
            kernels.push(slots.kernel(k, kernel)?);
        }
        let mut outputs = Vec::with_capacity(graph.outputs().len());
        for output in graph.outputs() {
            let slot = slots.read(output.value)?;
            slots.slots[slot].is_output = true;
            outputs.push(slot);
        }
        let slots = slots.slots;
        for (slot, info) in slots.iter().enumerate() {
            if matches!(info.origin, Origin::Kernel(_)) && !info.is_output {
                kernels[info.last].released.push(slot);
            }
        }
        let segments = segments(graph, plan, &kernels);
        count_readers(&segments, &kernels, &slots, constants);
        Ok(LoadedGraph { graph: graph.clone(), plan: plan.clone(), slots, inputs, outputs, kernels, segments })
    }

    /// What a kernel is called in the path of an error.
    pub fn describe(&self, k: usize) -> String {
        self.plan.kernels[k].describe(k, &self.graph)
    }
}

/// The slots of a graph, as they are found.
struct Slots<'a> {
    graph: &'a Graph,
    slots: Vec<Slot>,
    of: FxHashMap<Value, usize>,
    constants: &'a mut dyn ConstantPool,
}

impl Slots<'_> {
    fn add(&mut self, value: Value, origin: Origin) -> usize {
        let slot = self.slots.len();
        self.slots.push(Slot { ty: self.graph.ty(value).clone(), origin, last: 0, is_output: false });
        self.of.insert(value, slot);
        slot
    }

    /// The slot of a value that is read: it is there already, or it is a constant.
    fn read(&mut self, value: Value) -> Result<usize> {
        match (self.of.get(&value), self.graph.node_of(value).prim()) {
            (Some(slot), _) => Ok(*slot),
            (None, Prim::Const(row)) => {
                let constant = self.constants.add_literal(&row.literal);
                Ok(self.add(value, Origin::Constant(constant)))
            }
            _ => Err(Error::bug(format!("{value:?} is read, and is not there"))),
        }
    }

    fn kernel<M: Default>(&mut self, k: usize, kernel: &PlannedKernel) -> Result<LoadedKernel<M>> {
        let inputs = kernel.inputs.iter().map(|value| self.read(*value)).collect::<Result<Vec<usize>>>()?;
        let outputs: Vec<usize> = kernel.outputs.iter().map(|value| self.add(*value, Origin::Kernel(k))).collect();
        for slot in inputs.iter().chain(&outputs) {
            self.slots[*slot].last = k;
        }
        let constant = |slot: &usize| match self.slots[*slot].origin {
            Origin::Constant(id) => Some(id),
            _ => None,
        };
        let constant: Vec<Option<ConstantId>> = inputs.iter().map(constant).collect();
        let prim = match (&kernel.kernel.schedule, kernel.members.as_slice()) {
            (Schedule::Host(_), [only]) => Some(self.graph.nodes()[*only].prim()),
            _ => None,
        };
        let mut regions = Vec::new();
        let way = match prim {
            None => Way::Code,
            Some(Prim::Bind(row)) => Way::Bind(row.symbol),
            Some(Prim::If(row)) => {
                regions = vec![(&row.then, constant[1..].to_vec()), (&row.otherwise, constant[1..].to_vec())];
                Way::If
            }
            Some(Prim::Loop(row)) => {
                // The number of the trip and what is carried differ from trip to trip.
                let varying = std::iter::repeat_n(None, 1 + row.carried);
                regions = vec![(&row.body, varying.chain(constant[2 + row.carried..].iter().copied()).collect())];
                Way::Loop
            }
            Some(_) => Way::Host,
        };
        let regions = regions.into_iter().zip(&kernel.regions);
        let regions =
            regions.map(|((region, given), plan)| LoadedGraph::new(region, plan, &given, &mut *self.constants));
        let regions = regions.collect::<Result<Vec<LoadedGraph<M>>>>()?;
        Ok(LoadedKernel { way, inputs, outputs, released: Vec::new(), regions })
    }
}

/// Cuts a plan where a kernel's sizes depend on what an earlier one of the same segment binds.
fn segments<M: Default>(graph: &Graph, plan: &Plan, kernels: &[LoadedKernel<M>]) -> Vec<Segment<M>> {
    let mut segments = Vec::new();
    let mut begin = 0;
    let mut symbols: BTreeSet<Symbol> = BTreeSet::new();
    // What the segment binds, which is not known when it begins.
    let mut late: FxHashSet<Symbol> = FxHashSet::default();
    let mut bound: FxHashSet<Symbol> = FxHashSet::default();
    let sizes = graph.inputs().iter().flat_map(|value| graph.ty(*value).shape.dims());
    bound.extend(sizes.filter_map(|dim| dim.as_symbol()).cloned());
    let cut = |kernels: Range<usize>, symbols: &mut BTreeSet<Symbol>| Segment {
        kernels,
        symbols: std::mem::take(symbols).into_iter().collect(),
        specials: M::default(),
    };
    for (k, (planned, loaded)) in plan.kernels.iter().zip(kernels).enumerate() {
        if matches!(loaded.way, Way::Code) {
            let needed = planned.kernel.symbols();
            if needed.iter().any(|symbol| late.contains(symbol)) {
                segments.push(cut(begin..k, &mut symbols));
                begin = k;
                late.clear();
            }
            symbols.extend(needed);
        }
        if let Way::Bind(symbol) = loaded.way {
            late.insert(Symbol::Value(symbol));
        }
        let sizes = planned.outputs.iter().flat_map(|value| graph.ty(*value).shape.dims());
        for symbol in sizes.filter_map(|dim| dim.as_symbol()) {
            if bound.insert(symbol.clone()) {
                late.insert(symbol.clone());
            }
        }
    }
    segments.push(cut(begin..kernels.len(), &mut symbols));
    segments
}

/// Counts, for every constant, the segments that read it and the outputs that show it.
fn count_readers<M>(
    segments: &[Segment<M>],
    kernels: &[LoadedKernel<M>],
    slots: &[Slot],
    constants: &mut dyn ConstantPool,
) {
    for segment in segments {
        let read = kernels[segment.kernels.clone()].iter().flat_map(|kernel| &kernel.inputs);
        let read: BTreeSet<usize> = read.copied().collect();
        for slot in read {
            if let Origin::Constant(id) = slots[slot].origin {
                constants.count_reader(id);
            }
        }
    }
    for slot in slots.iter().filter(|slot| slot.is_output) {
        if let Origin::Constant(id) = slot.origin {
            constants.count_reader(id);
        }
    }
}
