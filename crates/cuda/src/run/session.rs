//! Programs on a GPU.

use std::path::PathBuf;
use std::sync::{Arc, PoisonError};
use std::time::Duration;

use fuseline::compile::PlannedProgram;
use fuseline::device::{Device, DeviceSpec, Executable, NamedTensors, check_types};
use fuseline::error::{Context, Error, Result};
use fuseline::fuse::{Chooser, Plan, PlanOptions, plan};
use fuseline::graph::Graph;
use fuseline::program::Program;
use fuseline::reference::Limits;
use fuseline::run::{ConstantId, Origin, Trace};
use fuseline::tensor::Literal;
use indexmap::IndexMap;

use super::constant::Constants;
use super::execute::{Engine, Run, suspects};
use super::profile::{self, LaunchProfile};
use super::specialize::LoadedGraph;
use super::tune::Tuned;
use super::value::Value;
use super::workshop::Workshop;
use crate::cache::Cache;
use crate::cublas::Cublas;
use crate::gpu::{Description, Gpu};
use crate::memory::DeviceTensor;
use crate::nvrtc::Compiler;

/// A GPU as a device. Clones share it.
#[derive(Clone, Debug)]
pub struct CudaDevice {
    /// how programs are planned
    pub plan: PlanOptions,
    /// what a run may use
    pub limits: Limits,
    gpu: Arc<Gpu>,
    workshop: Arc<Workshop>,
}

impl CudaDevice {
    /// The GPU with a number. The compiler is looked for in these folders, and then where the system has libraries; machine code is kept in a
    /// folder, if one is given.
    pub fn open(
        number: i32,
        libraries: &[PathBuf],
        cache: Option<PathBuf>,
        plan: PlanOptions,
        limits: Limits,
    ) -> Result<CudaDevice> {
        let gpu = Gpu::open(number)?;
        let (major, minor) = gpu.description.capability;
        if major < 8 {
            let name = &gpu.description.name;
            return Err(Error::unsupported(format!("{name}, of compute capability {major}.{minor}: 8.0 is needed")));
        }
        let compiler = Arc::new(Compiler::find(libraries)?);
        let library = Cublas::find(&gpu, libraries).map(Arc::new);
        let workshop = Arc::new(Workshop::new(gpu.clone(), compiler, cache.map(Cache::in_folder), library));
        Ok(CudaDevice { plan, limits, gpu, workshop })
    }

    /// What the GPU is.
    pub fn description(&self) -> &Description {
        &self.gpu.description
    }

    /// The GPU itself.
    pub fn gpu(&self) -> &Arc<Gpu> {
        &self.gpu
    }

    /// Where its kernels are made.
    pub(super) fn workshop(&self) -> &Arc<Workshop> {
        &self.workshop
    }

    /// Makes a planned program ready. What is constant is computed here. Where the plan is a written one that says how products are computed,
    /// they are.
    pub fn load(&self, planned: &PlannedProgram) -> Result<Session> {
        if let Chooser::Replay(lock) = &self.plan.chooser {
            for (name, choice) in &lock.tuned {
                self.workshop.choose(*name, choice.parse().at(|| format!("what is tuned as {name:016x}"))?);
            }
        }
        self.session(&planned.program, &planned.prepare, &planned.run)
    }

    fn session(&self, program: &Program, prepare: &Plan, run: &Plan) -> Result<Session> {
        let checked = |graph: &Graph, plan: &Plan| -> Result<Arc<Graph>> {
            plan.check_within(graph, &self.plan.budget.started()).at(|| "the plan")?;
            Ok(Arc::new(graph.clone()))
        };
        let engine =
            |constants: Constants| Engine::new(self.gpu.clone(), self.limits, self.workshop.clone(), constants);
        let mut constants = Constants::default();
        let graph = checked(program.prepare(), prepare)?;
        let loaded = LoadedGraph::new(&graph, prepare, &[], &mut constants)?;
        let once = Engine { runs_once: true, ..engine(constants)? };
        let prepared: Vec<Value> = Run::new(&once).execute_once(&loaded).at(|| "what is prepared")?;
        let mut refused = once.refused.into_inner().unwrap_or_else(PoisonError::into_inner);
        let mut constants = Constants::default();
        let given = std::iter::repeat_n(None, program.inputs().count());
        let prepared = prepared.into_iter().map(|value| Some(constants.add_prepared(value)));
        let given: Vec<Option<ConstantId>> = given.chain(prepared).collect();
        let graph = checked(program.run(), run)?;
        let loaded = LoadedGraph::new(&graph, run, &given, &mut constants)?;
        let engine = engine(constants)?;
        engine.refused.lock().unwrap_or_else(PoisonError::into_inner).append(&mut refused);
        Ok(Session { program: program.clone(), engine, run: loaded })
    }
}

impl Device for CudaDevice {
    fn name(&self) -> &str {
        "cuda"
    }

    fn load(&self, program: &Program) -> Result<Box<dyn Executable>> {
        let prepare = plan(program.prepare(), &self.plan).at(|| "the plan of what is prepared")?;
        let run = plan(program.run(), &self.plan).at(|| "the plan of a run")?;
        Ok(Box::new(self.session(program, &prepare, &run)?))
    }
}

/// Tensors on a device by name.
pub type NamedDeviceTensors = IndexMap<Arc<str>, DeviceTensor>;

/// A program that is ready to run on a GPU, from any number of threads, which take turns.
#[derive(Debug)]
pub struct Session {
    program: Program,
    engine: Engine,
    run: LoadedGraph,
}

/// How long a program takes on the device.
#[derive(Clone, Debug, PartialEq)]
pub struct Timing {
    /// microseconds of every run, in order, as the device measures them; without copies from and to the host
    pub us: Vec<f64>,
}

impl Timing {
    /// The middle one.
    pub fn median(&self) -> f64 {
        profile::median(self.us.clone())
    }
}

impl Session {
    /// Kernels that were run, or will be, by the interpreter of kernels because there is no code for them, each with the reason.
    pub fn refused(&self) -> Vec<String> {
        self.engine.refused.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many texts the device's compiler has compiled so far, and how long making kernels took.
    pub fn making(&self) -> (usize, Duration) {
        self.engine.workshop.spent()
    }

    /// Runs the program so many times on inputs that stay on the device; none where something of the host stands between kernels.
    pub fn time(&self, inputs: &NamedTensors, runs: usize) -> Result<Option<Timing>> {
        let given = self.given(inputs)?;
        let _turn = self.engine.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let us = Run::new(&self.engine).time(&self.run, &given, runs)?;
        Ok(us.map(|us| Timing { us }))
    }

    /// Every launch of the program, measured so many times; none where something of the host stands between kernels.
    pub fn profile(&self, inputs: &NamedTensors, runs: usize) -> Result<Option<Vec<LaunchProfile>>> {
        let given = self.given(inputs)?;
        let _turn = self.engine.turn.lock().unwrap_or_else(PoisonError::into_inner);
        Run::new(&self.engine).profile(&self.run, &given, runs)
    }

    /// How long every kernel of the program should take on a device, in microseconds; none of those that are no code.
    pub fn predict(&self, inputs: &NamedTensors, spec: &DeviceSpec) -> Result<Vec<Option<f64>>> {
        let given = self.given(inputs)?;
        Run::new(&self.engine).predict(&self.run, &given, spec)
    }

    /// Measures the large products of the program in all ways in which they can be computed; none where something of the host stands between
    /// kernels. What is fastest holds for programs that the device makes ready from here on.
    pub fn tune(&self, inputs: &NamedTensors) -> Result<Option<Vec<Tuned>>> {
        let given = self.given(inputs)?;
        let _turn = self.engine.turn.lock().unwrap_or_else(PoisonError::into_inner);
        Run::new(&self.engine).tune(&self.run, &given)
    }

    /// The outputs, and what every kernel stored on the way to them.
    pub fn run_traced(&self, inputs: &NamedTensors) -> Result<Trace> {
        let given = self.given(inputs)?;
        let _turn = self.engine.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let literal = |(slot, given): (&usize, &Option<Value>)| match (given, self.run.slots[*slot].origin) {
            (Some(value), _) => value.clone().literal(),
            (None, Origin::Constant(id)) => self.engine.constants.literal(id),
            _ => Err(Error::bug("an input has no value")),
        };
        let inputs = self.run.inputs.iter().zip(&given).map(literal).collect::<Result<Vec<Literal>>>()?;
        let mut run = Run::new(&self.engine).traced();
        let mut outputs = run.execute(&self.run, &given)?;
        let outputs = outputs.iter_mut().map(Value::literal).collect::<Result<_>>()?;
        Ok(Trace { inputs, kernels: run.into_values(), outputs })
    }

    /// The outputs for inputs of which some are on the device.
    pub fn run_given(&self, inputs: &NamedTensors, resident: &NamedDeviceTensors) -> Result<Vec<Literal>> {
        self.run_and_wait(inputs, resident, |run, given| {
            let mut outputs = run.execute(&self.run, given)?;
            outputs.iter_mut().map(Value::literal).collect()
        })
    }

    /// The same with outputs that stay on the device, each in memory of its own.
    pub fn run_resident(&self, inputs: &NamedTensors, resident: &NamedDeviceTensors) -> Result<Vec<DeviceTensor>> {
        self.run_and_wait(inputs, resident, |run, given| run.execute_resident(&self.run, given))
    }

    /// Runs, and waits until the device does not read inputs any more, also where something went wrong: they may be lent.
    fn run_and_wait<T>(
        &self,
        inputs: &NamedTensors,
        resident: &NamedDeviceTensors,
        work: impl FnOnce(&mut Run<'_>, &[Option<Value>]) -> Result<T>,
    ) -> Result<T> {
        let given = self.given_of(inputs, resident)?;
        let _turn = self.engine.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let done = work(&mut Run::new(&self.engine), &given);
        let waited = self.engine.gpu.synchronize().at(|| suspects(&self.run));
        done.and_then(|done| waited.map(|()| done))
    }

    fn given(&self, inputs: &NamedTensors) -> Result<Vec<Option<Value>>> {
        self.given_of(inputs, &NamedDeviceTensors::new())
    }

    fn given_of(&self, inputs: &NamedTensors, resident: &NamedDeviceTensors) -> Result<Vec<Option<Value>>> {
        let types = inputs.iter().map(|(name, given)| (name.clone(), given.ty()));
        let types = types.chain(resident.iter().map(|(name, given)| (name.clone(), given.ty())));
        check_types(&self.program, &types.collect())?;
        let given = self.program.inputs().map(|(name, _)| match resident.get(name) {
            Some(tensor) => Some(tensor.clone().into()),
            None => Some(inputs[name].clone().into()),
        });
        let prepared = self.run.inputs.len() - self.program.inputs().count();
        Ok(given.chain(std::iter::repeat_n(None, prepared)).collect())
    }
}

impl Executable for Session {
    fn run(&self, inputs: &NamedTensors) -> Result<Vec<Literal>> {
        let given = self.given(inputs)?;
        let _turn = self.engine.turn.lock().unwrap_or_else(PoisonError::into_inner);
        let mut outputs = Run::new(&self.engine).execute(&self.run, &given)?;
        outputs.iter_mut().map(Value::literal).collect::<Result<_>>().at(|| suspects(&self.run))
    }
}
