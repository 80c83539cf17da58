//! Plans, run kernel by kernel on the interpreter of kernels.
//!
//! Comes in: a graph with a plan of it, and inputs. Goes out: outputs. What the reference says of a graph, this says of its
//! plan; where the two differ, planning or lowering is wrong. Never here: speed, devices that exist.

use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::compile::PlannedProgram;
use crate::device::{Device, Executable, NamedTensors, check_inputs};
use crate::error::{Allowance, Context, Error, Result};
use crate::fuse::{Plan, PlanOptions, plan};
use crate::graph::{Graph, Value};
use crate::ops::Prim;
use crate::ops::prim::Regions;
use crate::program::Program;
use crate::reference::{Buffer, Pending};
use crate::tensor::{Env, Literal, Symbol};
use crate::tile::interp::{self, Options};

/// The interpreter of kernels as a device: plans what it loads, and runs every kernel of the plan.
#[derive(Clone, Debug)]
pub struct InterpretDevice {
    /// how programs are planned
    pub plan: PlanOptions,
    /// how kernels are run
    pub run: Options,
}

impl Device for InterpretDevice {
    fn name(&self) -> &str {
        "interp"
    }

    fn load(&self, program: &Program) -> Result<Box<dyn Executable>> {
        let prepare = plan(program.prepare(), &self.plan).at(|| "the plan of what is prepared")?;
        let run = plan(program.run(), &self.plan).at(|| "the plan of a run")?;
        Ok(Box::new(InterpretProgram::new(program, prepare, run, &self.run)?))
    }
}

/// Makes a planned program ready.
pub fn load(planned: &PlannedProgram, options: &Options) -> Result<Box<dyn Executable>> {
    let PlannedProgram { program, prepare, run, .. } = planned;
    Ok(Box::new(InterpretProgram::new(program, prepare.clone(), run.clone(), options)?))
}

struct InterpretProgram {
    program: Program,
    prepared: Vec<(Arc<str>, Buffer)>,
    planned: PlannedGraph,
    options: Options,
}

impl InterpretProgram {
    fn new(program: &Program, prepare: Plan, run: Plan, options: &Options) -> Result<InterpretProgram> {
        let planned = |graph: &Graph, plan: Plan| PlannedGraph::new(Arc::new(graph.clone()), plan);
        let values = planned(program.prepare(), prepare)?.run(FxHashMap::default(), options)?;
        let names = program.prepare().outputs().iter().map(|o| o.name.clone());
        Ok(InterpretProgram {
            program: program.clone(),
            prepared: names.zip(values).collect(),
            planned: planned(program.run(), run)?,
            options: *options,
        })
    }
}

impl Executable for InterpretProgram {
    fn run(&self, inputs: &NamedTensors) -> Result<Vec<Literal>> {
        check_inputs(&self.program, inputs)?;
        let given = inputs.iter().map(|(name, x)| (name.clone(), Buffer::from_literal(x)));
        let all = given.chain(self.prepared.iter().cloned()).collect();
        self.planned.run(all, &self.options)?.iter().map(Buffer::to_literal).collect()
    }
}

/// A graph with a plan of it that was checked.
#[derive(Clone, Debug)]
pub struct PlannedGraph {
    graph: Arc<Graph>,
    plan: Plan,
    /// for every kernel, the values that nothing reads after it
    released: Vec<Vec<Value>>,
    /// for every kernel, its regions
    regions: Vec<Vec<PlannedGraph>>,
}

impl PlannedGraph {
    /// Checks a plan of a graph.
    pub fn new(graph: Arc<Graph>, plan: Plan) -> Result<PlannedGraph> {
        plan.check(&graph).at(|| "the plan")?;
        Ok(PlannedGraph::checked(graph, plan))
    }

    fn checked(graph: Arc<Graph>, plan: Plan) -> PlannedGraph {
        let mut last: FxHashMap<Value, usize> = FxHashMap::default();
        for (k, kernel) in plan.kernels.iter().enumerate() {
            last.extend(kernel.inputs.iter().chain(&kernel.outputs).map(|value| (*value, k)));
        }
        for output in graph.outputs() {
            last.remove(&output.value);
        }
        let mut released: Vec<Vec<Value>> = vec![Vec::new(); plan.kernels.len()];
        for (k, kernel) in plan.kernels.iter().enumerate() {
            let values = kernel.inputs.iter().chain(&kernel.outputs);
            released[k].extend(values.filter(|value| last.get(value) == Some(&k)));
        }
        let regions = plan.kernels.iter().map(|kernel| {
            let inner = graph.nodes()[kernel.members[0]].prim().regions().into_iter().zip(&kernel.regions);
            inner.map(|(region, plan)| PlannedGraph::checked(region.clone(), plan.clone())).collect()
        });
        let regions = regions.collect();
        PlannedGraph { graph, plan, released, regions }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// The outputs of the graph for inputs by name, in order, as the interpreter has them: floats are rounded neither on
    /// the way in nor on the way out.
    pub fn run(&self, inputs: FxHashMap<Arc<str>, Buffer>, options: &Options) -> Result<Vec<Buffer>> {
        let given = self.graph.inputs().iter().map(|value| {
            let name = self.graph.input_name(*value);
            inputs.get(name).cloned().ok_or_else(|| Error::invalid(format!("input \"{name}\" has no value")))
        });
        let given: Vec<Buffer> = given.collect::<Result<_>>()?;
        Run { options, env: Env::new(), trips: 0, live: 0 }.execute(self, &given)
    }
}

/// The state of a run.
struct Run<'o> {
    options: &'o Options,
    env: Env,
    /// trips of loops so far
    trips: u64,
    /// bytes of the values that are there
    live: u64,
}

impl Run<'_> {
    fn execute(&mut self, planned: &PlannedGraph, inputs: &[Buffer]) -> Result<Vec<Buffer>> {
        let graph = &*planned.graph;
        let mut values: FxHashMap<Value, Buffer> = FxHashMap::default();
        // The second time around, sizes such as 2*n are checked whose symbols only a later input has bound.
        for _ in 0..2 {
            for (value, input) in graph.inputs().iter().zip(inputs) {
                let place = || format!("input \"{}\"", graph.input_name(*value));
                graph.ty(*value).bind(input.dtype(), input.sizes(), &mut self.env).at(place)?;
                values.insert(*value, input.clone());
            }
        }
        // Before anything runs: kernels rely on sizes that must agree.
        let mut pending = Pending::of(graph, &self.env)?;
        for (k, kernel) in planned.plan.kernels.iter().enumerate() {
            let done = self.step(planned, k, &mut values).map_err(|error| kernel.blamed(graph, error));
            done.at(|| kernel.describe(k, graph))?;
            pending.check(&self.env)?;
            for dead in planned.released[k].iter().filter_map(|value| values.remove(value)) {
                self.live = self.live.saturating_sub(dead.owned_bytes() as u64);
            }
        }
        let outputs = graph.outputs().iter().map(|output| read(graph, &values, output.value));
        let outputs = outputs.collect();
        let stored = values.iter().filter(|(value, _)| !matches!(graph.node_of(**value).prim(), Prim::Input(_)));
        self.live = self.live.saturating_sub(stored.map(|(_, buffer)| buffer.owned_bytes() as u64).sum());
        outputs
    }

    /// Runs a kernel and keeps what it stores.
    fn step(&mut self, planned: &PlannedGraph, k: usize, values: &mut FxHashMap<Value, Buffer>) -> Result<()> {
        let (graph, kernel) = (&*planned.graph, &planned.plan.kernels[k]);
        let args = kernel.inputs.iter().map(|value| read(graph, values, *value));
        let args: Vec<Buffer> = args.collect::<Result<_>>()?;
        let mut regions = Inner { run: self, regions: &planned.regions[k] };
        let results = match graph.nodes()[kernel.members[0]].prim() {
            Prim::If(row) => row.run(&args, &mut regions)?,
            Prim::Loop(row) => row.run(&args, &mut regions)?,
            Prim::Bind(row) => {
                self.env.bind(Symbol::Value(row.symbol), args[0].to_ints()[0]);
                args
            }
            _ => interp::run(&kernel.kernel, &args, &self.env, &self.left())?,
        };
        for (value, result) in kernel.outputs.iter().zip(results) {
            graph.ty(*value).bind(result.dtype(), result.sizes(), &mut self.env)?;
            self.live = self.live.saturating_add(result.owned_bytes() as u64);
            values.insert(*value, result);
        }
        Ok(())
    }

    /// What is left for a kernel.
    fn left(&self) -> Options {
        let mut options = *self.options;
        options.limits.bytes = options.limits.bytes.saturating_sub(self.live);
        options.limits.trips = options.limits.trips.saturating_sub(self.trips);
        options
    }
}

/// A value that is an input, a constant, or was stored.
fn read(graph: &Graph, values: &FxHashMap<Value, Buffer>, value: Value) -> Result<Buffer> {
    match (values.get(&value), graph.node_of(value).prim()) {
        (Some(buffer), _) => Ok(buffer.clone()),
        (None, Prim::Const(row)) => Ok(Buffer::from_literal(&row.literal)),
        _ => Err(Error::bug(format!("{value:?} is read, and is not there"))),
    }
}

/// The regions of a node, run by their plans.
struct Inner<'a, 'o> {
    run: &'a mut Run<'o>,
    regions: &'a [PlannedGraph],
}

impl Regions for Inner<'_, '_> {
    fn count_trip(&mut self) -> Result<()> {
        self.run.trips += 1;
        let most = self.run.options.limits.trips;
        if self.run.trips > most {
            Err(Error::over(Allowance::Trips, format!("more than {most} loop trips")))
        } else {
            Ok(())
        }
    }

    fn hold(&mut self, before: u64, now: u64) -> Result<()> {
        let (live, limit) = (&mut self.run.live, self.run.options.limits.bytes);
        *live = live.saturating_sub(before).saturating_add(now);
        match *live > limit {
            true => Err(Error::over(
                Allowance::Memory,
                format!("values of {live} bytes at one time (the limit is {limit} bytes)"),
            )),
            false => Ok(()),
        }
    }

    fn region(&mut self, number: usize, operands: &[Buffer]) -> Result<Vec<Buffer>> {
        let outer = self.run.env.mark();
        let results = self.run.execute(&self.regions[number], operands);
        self.run.env.undo(outer);
        results
    }

    fn env(&self) -> &Env {
        &self.run.env
    }
}
