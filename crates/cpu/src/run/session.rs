//! Programs on a processor.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use fuseline::compile::PlannedProgram;
use fuseline::device::{Device, Executable, NamedTensors, check_inputs, check_types};
use fuseline::error::{Context, Error, Result};
use fuseline::fuse::{Plan, PlanOptions, plan};
use fuseline::graph::Graph;
use fuseline::program::Program;
use fuseline::reference::Limits;
use fuseline::run::Trace;
use fuseline::tensor::{Env, Literal};
use indexmap::IndexMap;

use super::block::Blocks;
use super::constant::{ConstantId, Constants, Release};
use super::engine::Engine;
use super::execute::{Given, Run};
use super::gauge::Gauge;
use super::load::{LoadedGraph, Origin};
use super::owned::Owned;
use super::pack::Packs;
use super::pool::{Pool, Team};
use super::span::Span;
use super::workshop::{Emit, Workshop};
use crate::code::Isa;
use crate::emit::emit;

/// A processor as a device. Clones share its threads.
#[derive(Clone, Debug)]
pub struct CpuDevice {
    /// how programs are planned
    pub plan: PlanOptions,
    /// what a run may use
    pub limits: Limits,
    /// is told of bytes of a model that were copied into another form and will hardly be read again
    pub release: Release,
    /// for which instructions kernels are made; the processor has them
    isa: Isa,
    pool: Arc<Pool>,
    emit: Emit,
}

impl CpuDevice {
    /// A processor with so many threads, which must have the instructions.
    pub fn new(isa: Isa, threads: usize, plan: PlanOptions, limits: Limits) -> Result<CpuDevice> {
        let has = Isa::detect();
        if isa < has {
            return Err(Error::unsupported(format!("{isa:?} on a processor that has {has:?}")));
        }
        let refused = |error| Error::exhausted(format!("the system has no {threads} threads: {error}"));
        let pool = Arc::new(Pool::new(threads).map_err(refused)?);
        Ok(CpuDevice { isa, plan, limits, release: |_| {}, pool, emit })
    }

    /// The same with another emitter.
    #[cfg(test)]
    pub(super) fn with_emitter(self, emit: Emit) -> CpuDevice {
        CpuDevice { emit, ..self }
    }

    /// For which instructions kernels are made.
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Its threads.
    pub(super) fn pool(&self) -> &Arc<Pool> {
        &self.pool
    }

    /// Where kernels are made: for the cores that are planned for, however many threads there are.
    pub(super) fn workshop(&self) -> Workshop {
        Workshop::new(self.isa, self.plan.spec.limits.cores, self.emit)
    }

    /// How many threads a run has.
    pub fn threads(&self) -> usize {
        self.pool.threads()
    }

    /// Makes a planned program ready. What is constant is computed here, and kernels are made for the sizes of the plan's
    /// hints, as far as these are known.
    pub fn load(&self, planned: &PlannedProgram) -> Result<Session> {
        self.session(&planned.program, &planned.prepare, &planned.run)
    }

    fn session(&self, program: &Program, prepare: &Plan, run: &Plan) -> Result<Session> {
        let checked = |graph: &Graph, plan: &Plan| -> Result<Arc<Graph>> {
            plan.check_within(graph, &self.plan.budget.started()).at(|| "the plan")?;
            Ok(Arc::new(graph.clone()))
        };
        [program.prepare(), program.run()].into_iter().try_for_each(|graph| self.limits.check_drawn(graph))?;
        let mut constants = Constants::new(self.release);
        let graph = checked(program.prepare(), prepare)?;
        let loaded = LoadedGraph::new(&graph, prepare, &[], &mut constants)?;
        let once = self.engine(constants, None);
        let prepared =
            self.pool.enter(|team| Run::new(&once, team).within(&self.plan.budget).execute(&loaded, Vec::new()))?;
        let mut constants = Constants::new(self.release);
        let given = std::iter::repeat_n(None, program.inputs().count());
        let prepared = prepared.into_iter().enumerate().map(|(k, value)| Some(constants.add_prepared(k, value)));
        let given: Vec<Option<ConstantId>> = given.chain(prepared).collect();
        let graph = checked(program.run(), run)?;
        let loaded_run = LoadedGraph::new(&graph, run, &given, &mut constants)?;
        let engine = self.engine(constants, Some(Box::new((once, loaded))));
        let session = Session { program: program.clone(), engine, run: loaded_run };
        session.warm_up(&self.plan.hints.env)?;
        Ok(session)
    }

    fn engine(&self, constants: Constants, prepare: Option<Box<(Engine, LoadedGraph)>>) -> Engine {
        Engine {
            pool: self.pool.clone(),
            limits: self.limits,
            budget: self.plan.budget.clone(),
            workshop: self.workshop(),
            blocks: if prepare.is_some() { Blocks::new() } else { Blocks::once() },
            kept: Blocks::once(),
            constants,
            packs: Packs::default(),
            keeps_constants: prepare.is_some(),
            prepare,
            refused: Default::default(),
        }
    }
}

impl Device for CpuDevice {
    fn name(&self) -> &str {
        "cpu"
    }

    fn load(&self, program: &Program) -> Result<Box<dyn Executable>> {
        let prepare = plan(program.prepare(), &self.plan).at(|| "the plan of what is prepared")?;
        let run = plan(program.run(), &self.plan).at(|| "the plan of a run")?;
        Ok(Box::new(self.session(program, &prepare, &run)?))
    }
}

/// A program that is ready to run on a processor, from any number of threads.
#[derive(Debug)]
pub struct Session {
    program: Program,
    engine: Engine,
    run: LoadedGraph,
}

impl Session {
    /// Makes what can be made for these sizes, so that no run has to.
    fn warm_up(&self, env: &Env) -> Result<()> {
        let is_known = |symbols: &[_]| symbols.iter().all(|symbol| env.get(symbol).is_some());
        // One time for all of them.
        let budget = self.engine.budget.started();
        self.engine.pool.enter(|team| {
            let mut run = Run::with_sizes(&self.engine, team, env).within(&budget);
            for segment in self.run.segments.iter().filter(|segment| is_known(&segment.symbols)) {
                run.special(&self.run, segment)?;
            }
            Ok(())
        })
    }

    /// Kernels that were run, or will be, by the interpreter of kernels because there is no code for them, each with the
    /// reason.
    pub fn refused(&self) -> Vec<String> {
        let lines = |engine: &Engine| engine.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let mut all = lines(&self.engine);
        if let Some(prepare) = &self.engine.prepare {
            all.extend(lines(&prepare.0));
        }
        all
    }

    /// What its graphs and runs share.
    #[cfg(test)]
    pub(super) fn engine(&self) -> &Engine {
        &self.engine
    }

    /// What a run does.
    #[cfg(test)]
    pub(super) fn loaded(&self) -> &LoadedGraph {
        &self.run
    }

    /// How long making kernels took so far: emitting them, and machine code.
    pub fn making(&self) -> Duration {
        let prepare = self.engine.prepare.as_ref().map_or(Duration::ZERO, |prepare| prepare.0.workshop.spent());
        prepare + self.engine.workshop.spent()
    }

    /// How many kernels were made so far, each at some sizes; equal ones are made once.
    pub fn kernels_made(&self) -> usize {
        let prepare = self.engine.prepare.as_ref().map_or(0, |prepare| prepare.0.workshop.made());
        prepare + self.engine.workshop.made()
    }

    /// How many forms of constants are kept.
    pub fn packs(&self) -> usize {
        self.engine.packs.len()
    }

    /// The most bytes that runs, and what is kept for them, had at one time; constants as they came are not counted.
    pub fn most_bytes(&self) -> usize {
        self.engine.blocks.most_bytes() + self.engine.kept.most_bytes()
    }
}

impl Session {
    /// How many threads a run has.
    pub fn threads(&self) -> usize {
        self.engine.pool.threads()
    }

    /// What the processor does with the very threads of runs: where a system has put them, it leaves them for a while, also two of them on one processor.
    pub fn gauge(&self) -> Gauge {
        Gauge::on(Isa::detect(), self.engine.pool.clone())
    }

    /// The outputs, and where the time went: the spans of the run, in order.
    pub fn run_recorded(&self, inputs: &NamedTensors) -> Result<(Vec<Literal>, Vec<Span>)> {
        let given = self.given(inputs)?;
        self.engine.pool.enter(|team| {
            let mut run = self.begun(team, &given).recorded();
            let outputs = run.execute(&self.run, given)?;
            Ok((outputs, run.into_spans()))
        })
    }

    /// The outputs, and what every kernel stored on the way to them.
    pub fn run_traced(&self, inputs: &NamedTensors) -> Result<Trace> {
        let given = self.given(inputs)?;
        self.engine.pool.enter(|team| {
            let prepared = self.run.inputs.iter().skip(self.program.inputs().count()).map(|slot| {
                match self.run.slots[*slot].origin {
                    Origin::Constant(id) => self.engine.literal(id, team),
                    _ => Err(Error::bug("an input has no value")),
                }
            });
            let prepared = prepared.collect::<Result<Vec<Literal>>>()?;
            let mut run = self.begun(team, &given).traced();
            let outputs = run.execute(&self.run, given)?;
            let inputs = self.program.inputs().map(|(name, _)| inputs[name].clone()).chain(prepared).collect();
            Ok(Trace { inputs, kernels: run.into_values(), outputs })
        })
    }

    /// The outputs, each in memory of its own, which may be written.
    pub fn run_owned(&self, inputs: &NamedTensors) -> Result<Vec<Owned>> {
        let given = self.given(inputs)?;
        self.engine.pool.enter(|team| self.begun(team, &given).execute_owned(&self.run, given))
    }

    /// The same, where some inputs are given away: an output that is computed element by element from one of them lies in its memory, and
    /// one that is the input itself is not copied. So a state that goes from run to run, as the keys and values of a decoder do, takes no new
    /// memory. What nobody inherits is freed.
    pub fn run_donating(&self, inputs: &NamedTensors, mut donated: IndexMap<Arc<str>, Owned>) -> Result<Vec<Owned>> {
        if let Some(both) = donated.keys().find(|name| inputs.contains_key(*name)) {
            return Err(Error::invalid(format!("input \"{both}\" is given twice")));
        }
        let shared = inputs.iter().map(|(name, input)| (name.clone(), input.ty()));
        check_types(
            &self.program,
            &shared.chain(donated.iter().map(|(name, input)| (name.clone(), input.ty()))).collect(),
        )?;
        let given = self.program.inputs().map(|(name, _)| match donated.swap_remove(name) {
            Some(owned) => Some(Given::Donated(owned)),
            None => inputs.get(name).cloned().map(Given::Shared),
        });
        let given: Vec<Option<Given>> = given.collect();
        self.engine.pool.enter(|team| self.begun(team, &given).execute_owned(&self.run, given))
    }

    /// A run with these inputs.
    fn begun<'s, 't, 'p>(&'s self, team: &'t mut Team<'p>, given: &[Option<Given>]) -> Run<'s, 't, 'p> {
        Run::new(&self.engine, team).given(&self.run.graph, given)
    }

    /// The inputs in their order.
    fn given(&self, inputs: &NamedTensors) -> Result<Vec<Option<Given>>> {
        check_inputs(&self.program, inputs)?;
        Ok(self.program.inputs().map(|(name, _)| inputs.get(name).cloned().map(Given::Shared)).collect())
    }
}

impl Executable for Session {
    fn run(&self, inputs: &NamedTensors) -> Result<Vec<Literal>> {
        let given = self.given(inputs)?;
        self.engine.pool.enter(|team| self.begun(team, &given).execute(&self.run, given))
    }
}
