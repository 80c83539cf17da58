//! A model on a device, ready for any inputs.

use std::collections::HashSet;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use bytes::Bytes;
use fuseline::budget::Budget;
use fuseline::compile::{Grain, PlannedProgram, plan_apart, plan_program};
use fuseline::device::{DeviceSpec, NamedTensors};
use fuseline::error::{Error, Kind, Result};
use fuseline::fuse::PlanOptions;
use fuseline::graph::Graph;
use fuseline::passes::{Numerics, Precision};
use fuseline::reference::Limits;
use fuseline::tensor::{Env, Literal, Symbol};
use fuseline_cpu::here;
use fuseline_cuda::gpu::Gpu;
use fuseline_cuda::memory::DeviceTensor;
use fuseline_frontend::onnx::import::{self, Pins};
use fuseline_frontend::{Offer, Sizes, Tensors};
use indexmap::IndexMap;

use crate::explain::Explained;
use crate::machine::{Given, Machine, Output, Program};
use crate::model::Model;
use crate::profile::{self, Profile};
use crate::rates::Rates;

/// Where a model runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// this processor, with so many threads; none: one for every processor
    Cpu(Option<NonZeroUsize>),
    /// the first GPU
    Cuda,
}

impl Place {
    /// The device that is planned for; on a processor with all of its cores, whatever the number of threads.
    pub fn target(self) -> Result<&'static DeviceSpec> {
        match self {
            Place::Cpu(_) => Ok(here::spec()),
            Place::Cuda => DeviceSpec::find("h200"),
        }
    }
}

/// How a model is run.
#[derive(Clone, Debug)]
pub struct Options {
    /// where
    pub place: Place,
    /// whether operators become one kernel where that pays; otherwise each is one of its own
    pub fuses: bool,
    /// how far arithmetic may be rearranged
    pub numerics: Numerics,
    /// the type in which a network of f32 is computed
    pub precision: Precision,
    /// sizes to plan for, by the names that the model gives them; other sizes can be run nevertheless
    pub sizes: Vec<(String, i64)>,
    /// what a run may use
    pub limits: Limits,
    /// what importing the model may use, and how long planning it may take
    pub import: import::Limits,
}

impl Options {
    /// As usual, at a place.
    pub fn at(place: Place) -> Options {
        let (numerics, precision, limits) = (Numerics::default(), Precision::default(), Limits::default());
        let import = import::Limits::default();
        Options { place, fuses: true, numerics, precision, sizes: Vec::new(), limits, import }
    }

    /// How programs are planned, for sizes that are known.
    pub fn plan(&self, target: &DeviceSpec, sizes: Env) -> PlanOptions {
        let mut plan = PlanOptions { numerics: self.numerics, precision: self.precision, ..PlanOptions::on(target) };
        plan.budget = self.import.budget.clone();
        plan.hints.env = sizes;
        plan
    }

    /// Plans a graph.
    pub fn planned(&self, graph: Graph, plan: &PlanOptions) -> Result<PlannedProgram> {
        match self.fuses {
            true => plan_program(graph, plan, &mut |_| {}),
            false => plan_apart(graph, plan, Grain::Operator),
        }
    }
}

/// Tensors in the memory of a device, by name.
pub type DeviceTensors = IndexMap<String, DeviceTensor>;

/// The inputs of a run. No name is in both places.
#[derive(Clone, Copy, Debug)]
pub struct Feed<'a> {
    /// those in main memory
    pub host: &'a Tensors,
    /// those in the memory of the device
    pub device: &'a DeviceTensors,
    /// whether results stay in the memory of the device that computes them, where it has one of its own
    pub stays: bool,
}

impl<'a> Feed<'a> {
    fn names(self) -> impl Iterator<Item = &'a String> + Clone {
        self.host.keys().chain(self.device.keys())
    }

    fn sizes(self, name: &str) -> Option<&'a [usize]> {
        let host = || self.host.get(name).map(Literal::sizes);
        self.device.get(name).map(DeviceTensor::sizes).or_else(host)
    }
}

impl Offer for Feed<'_> {
    fn sizes(&self) -> Sizes {
        let host = self.host.iter().map(|(name, x)| (name.clone(), x.sizes().to_vec()));
        host.chain(self.device.iter().map(|(name, x)| (name.clone(), x.sizes().to_vec()))).collect()
    }

    /// In memory of its own: it stays in a graph, and the caller may change the input after the run.
    fn value(&self, name: &str) -> Result<Literal> {
        match (self.device.get(name), self.host.get(name)) {
            (Some(x), _) => x.literal(),
            (None, Some(x)) => Literal::new(x.dtype(), x.sizes(), Bytes::copy_from_slice(&x.bytes())),
            (None, None) => Err(Error::bug(format!("there is no input \"{name}\""))),
        }
    }
}

/// A model on a device. It may be run from several threads at a time, with other sizes every time.
#[derive(Debug)]
pub struct Session {
    model: Model,
    machine: Machine,
    options: Options,
    target: DeviceSpec,
    /// what was made so far, the newest last
    ready: RwLock<Vec<Arc<Ready>>>,
    /// held by who makes something, so that nobody makes the same
    making: Mutex<()>,
}

/// Graphs whose structure hangs on values are made again for other values; no more than these are kept.
const MOST_READY: usize = 4;

/// A program and the inputs that it holds for.
#[derive(Debug)]
struct Ready {
    pins: Pins,
    /// the sizes that it was planned for
    sizes: Env,
    names: Vec<String>,
    planned: PlannedProgram,
    program: Program,
}

impl Session {
    /// Opens the device. Where every size is known the program is made here, otherwise by the first run; a model that cannot be
    /// imported is refused in either case.
    pub fn new(model: Model, options: Options) -> Result<Session> {
        if options.precision != Precision::F32 && options.numerics == Numerics::Strict {
            let name = options.precision.name();
            return Err(Error::invalid(format!("{name} rounds what strict numerics keep")));
        }
        let model = model.with_limits(options.import.clone())?;
        let target = options.place.target()?.clone();
        let plan = options.plan(&target, Env::new());
        let machine = match options.place {
            Place::Cpu(threads) => Machine::cpu(plan, threads, options.limits)?,
            Place::Cuda => Machine::cuda(plan, options.limits)?,
        };
        let (ready, making) = (RwLock::default(), Mutex::default());
        let session = Session { model, machine, options, target, ready, making };
        session.make_in_advance()?;
        Ok(session)
    }

    fn make_in_advance(&self) -> Result<()> {
        let mut env = Env::new();
        for (name, size) in &self.options.sizes {
            env.bind(Symbol::name(name), *size);
        }
        let graph = match self.model.graph(&Tensors::new(), &env) {
            // It is made for the inputs of a run.
            Err(error) if error.kind() == Kind::NeedsValue => return Ok(()),
            other => other?,
        };
        let mut shapes = self.model.signature.inputs.iter().map(|port| port.shape.as_ref());
        let is_known = shapes.all(|shape| shape.is_some_and(|shape| shape.eval(&env).is_ok()));
        // A graph that holds for given sizes only would refuse others.
        let is_general = matches!(graph, std::borrow::Cow::Borrowed(_));
        if is_known && is_general {
            match self.make(&graph, &Pins::default(), env, &self.options.import.budget.fork()) {
                Err(error) if error.kind() == Kind::NeedsValue => {}
                other => self.keep(Arc::new(other?)),
            }
        }
        Ok(())
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// How it is run.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// The GPU that it runs on, if it does.
    pub fn gpu(&self) -> Option<&Arc<Gpu>> {
        match &self.machine {
            Machine::Cpu(_) => None,
            Machine::Cuda(device) => Some(device.gpu()),
        }
    }

    /// How many threads a run has.
    pub fn threads(&self) -> usize {
        self.machine.threads()
    }

    /// The device that is planned for.
    pub fn target(&self) -> &DeviceSpec {
        &self.target
    }

    /// The outputs by name, in the model's order.
    ///
    /// The memory of the inputs is read while the run lasts, and not kept.
    pub fn run(&self, inputs: &Tensors) -> Result<Vec<(String, Output)>> {
        self.run_feed(Feed { host: inputs, device: &DeviceTensors::new(), stays: false })
    }

    /// The same where inputs may be on the device, and results may stay there.
    pub fn run_feed(&self, inputs: Feed<'_>) -> Result<Vec<(String, Output)>> {
        if let Some(done) = self.run_ready(inputs) {
            return done;
        }
        let _making = self.making.lock().unwrap_or_else(PoisonError::into_inner);
        // Somebody may have made it while this one waited.
        if let Some(done) = self.run_ready(inputs) {
            return done;
        }
        // One time for this program, whatever others took.
        let budget = self.options.import.budget.fork();
        self.model.specialise_for(&inputs, &budget, |graph, pins| {
            let mut env = Env::new();
            bind_sizes_of(graph, |name| inputs.sizes(name), &mut env);
            let ready = Arc::new(self.make(graph, pins, env, &budget)?);
            let outputs = ready.program.run_given(&ready.given(inputs));
            if !matches!(&outputs, Err(error) if error.kind() == Kind::NeedsValue) {
                self.keep(ready.clone());
            }
            Ok(ready.names.iter().cloned().zip(outputs?).collect())
        })
    }

    /// Where the time of so many runs goes, kernel by kernel.
    pub fn profile(&self, inputs: &Tensors, runs: usize) -> Result<Profile> {
        self.run(inputs)?;
        let inputs = Feed { host: inputs, device: &DeviceTensors::new(), stays: false };
        let ready = self.fitting(inputs).ok_or_else(|| Error::bug("what ran is not there"))?;
        let plan = self.options.plan(&self.target, ready.sizes.clone());
        let rates = match &ready.program {
            // A processor that a file describes is as that says.
            Program::Cpu(session) if plan.spec == *here::spec() => Rates::measure(session.threads()).ok(),
            _ => None,
        };
        let subject = profile::Subject { program: &ready.program, planned: &ready.planned };
        profile::measure(subject, &plan, rates.as_ref(), &ready.given(inputs).host, runs)
    }

    /// What is made already and holds for the inputs.
    fn fitting(&self, inputs: Feed<'_>) -> Option<Arc<Ready>> {
        let ready = self.ready.read().unwrap_or_else(PoisonError::into_inner);
        let defaults: HashSet<&str> = self.model.signature.defaults.iter().map(|port| port.name.as_str()).collect();
        let is_default = |name: &&String| defaults.contains(name.as_str());
        let replaced: Vec<&String> = inputs.names().filter(is_default).collect();
        let parts = self.model.signature.parts(inputs.names().map(String::as_str)).ok()?;
        let fits = |ready: &&Arc<Ready>| {
            ready.fits(inputs)
                && ready.pins.parts == parts
                && replaced.iter().all(|name| ready.pins.values.contains_key(*name))
        };
        ready.iter().rev().find(fits).cloned()
    }

    /// Runs what is made already, if that holds for the inputs.
    fn run_ready(&self, inputs: Feed<'_>) -> Option<Result<Vec<(String, Output)>>> {
        let fitting = self.fitting(inputs)?;
        match fitting.program.run_given(&fitting.given(inputs)) {
            Err(error) if error.kind() == Kind::NeedsValue => None,
            done => Some(done.map(|outputs| fitting.names.iter().cloned().zip(outputs).collect())),
        }
    }

    fn make(&self, graph: &Graph, pins: &Pins, sizes: Env, budget: &Budget) -> Result<Ready> {
        let plan = PlanOptions { budget: budget.clone(), ..self.options.plan(&self.target, sizes.clone()) };
        let planned = self.options.planned(graph.clone(), &plan)?;
        let program = self.machine.clone().with_plan(plan).load(&planned)?;
        let names = graph.outputs().iter().map(|output| output.name.to_string()).collect();
        Ok(Ready { pins: pins.clone(), sizes, names, planned, program })
    }

    fn keep(&self, ready: Arc<Ready>) {
        let mut all = self.ready.write().unwrap_or_else(PoisonError::into_inner);
        all.push(ready);
        if all.len() > MOST_READY {
            all.remove(0);
        }
    }

    /// What the newest program was made for: values and sizes of inputs, and the sizes that were planned for.
    fn newest(&self) -> Option<(Pins, Env)> {
        let ready = self.ready.read().unwrap_or_else(PoisonError::into_inner);
        ready.last().map(|ready| (ready.pins.clone(), ready.sizes.clone()))
    }

    /// The plan in words: for its own device or another one, and for the sizes of the newest program, where there is one.
    pub fn explain(&self, target: Option<&DeviceSpec>) -> Result<Explained> {
        let (pins, mut sizes) = self.newest().unwrap_or_default();
        for (name, size) in &self.options.sizes {
            if sizes.get(&Symbol::name(name)).is_none() {
                sizes.bind(Symbol::name(name), *size);
            }
        }
        Explained::of(&self.model, &self.options, target.unwrap_or(&self.target), &pins, sizes)
    }

    /// Kernels that the interpreter runs because there is no code for them, each with the reason.
    pub fn interpreted(&self) -> Vec<String> {
        let ready = self.ready.read().unwrap_or_else(PoisonError::into_inner);
        ready.iter().flat_map(|ready| ready.program.refused()).collect()
    }
}

impl Ready {
    /// The inputs that the program still takes.
    fn given(&self, inputs: Feed<'_>) -> Given {
        fn left<T: Clone>(inputs: &IndexMap<String, T>, pins: &Pins) -> IndexMap<Arc<str>, T> {
            let left = inputs.iter().filter(|(name, _)| !pins.values.contains_key(*name));
            left.map(|(name, x)| (name.as_str().into(), x.clone())).collect()
        }
        Given { host: left(inputs.host, &self.pins), device: left(inputs.device, &self.pins), stays: inputs.stays }
    }

    /// Whether it was made for these inputs, or for all.
    fn fits(&self, inputs: Feed<'_>) -> bool {
        let has_value = |(name, value): (&String, &Literal)| match inputs.device.get(name) {
            Some(x) => x.sizes() == value.sizes() && x.literal().is_ok_and(|x| x == *value),
            None => inputs.host.get(name) == Some(value),
        };
        let has_sizes = |(name, sizes): (&String, &Vec<usize>)| inputs.sizes(name) == Some(sizes.as_slice());
        self.pins.values.iter().all(has_value) && self.pins.sizes.iter().all(has_sizes)
    }
}

/// The sizes that inputs show: a plan is made for them.
pub fn bind_sizes(graph: &Graph, inputs: &NamedTensors, env: &mut Env) {
    bind_sizes_of(graph, |name| inputs.get(name).map(Literal::sizes), env);
}

fn bind_sizes_of<'a>(graph: &Graph, sizes: impl Fn(&str) -> Option<&'a [usize]>, env: &mut Env) {
    for value in graph.inputs() {
        let Some(given) = sizes(graph.input_name(*value)) else { continue };
        for (dim, size) in graph.ty(*value).shape.dims().iter().zip(given) {
            if let Some(symbol) = dim.as_symbol() {
                env.bind(symbol.clone(), i64::try_from(*size).unwrap_or(i64::MAX));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use fuseline::tensor::DType;

    use super::*;

    fn gallery(name: &str, options: Options) -> Session {
        Session::new(Model::gallery(name, DType::F32).unwrap(), options).unwrap()
    }

    fn place() -> Place {
        Place::Cpu(NonZeroUsize::new(2))
    }

    fn floats(sizes: &[usize]) -> Literal {
        let count: usize = sizes.iter().product();
        let values: Vec<f64> = (0..count).map(|k| (k % 13) as f64 * 0.25 - 1.5).collect();
        Literal::from_f64s(DType::F32, sizes, &values).unwrap()
    }

    fn values(output: Output) -> Vec<f32> {
        let Output::Owned(owned) = output else { panic!("a processor owns its results") };
        assert_eq!(owned.dtype(), DType::F32);
        let bytes = owned.into_literal().unwrap().bytes();
        bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().unwrap())).collect()
    }

    #[test]
    fn one_session_runs_any_sizes_from_any_thread() {
        let session = gallery("softmax", Options::at(place()));
        std::thread::scope(|scope| {
            for rows in 1..5 {
                let session = &session;
                scope.spawn(move || {
                    for columns in [1, 7, 33] {
                        let inputs = [("x".to_string(), floats(&[rows, columns]))].into_iter().collect();
                        let (name, output) = session.run(&inputs).unwrap().remove(0);
                        assert_eq!(name, "y");
                        let sums: Vec<f32> = values(output).chunks(columns).map(|row| row.iter().sum()).collect();
                        assert!(sums.len() == rows && sums.iter().all(|sum| (sum - 1.0).abs() < 1e-5), "{sums:?}");
                    }
                });
            }
        });
        assert_eq!(session.ready.read().unwrap().len(), 1, "one plan holds for all sizes");
    }

    #[test]
    fn nothing_is_fused_where_that_is_asked_for() {
        let kernels = |fuses: bool| {
            let session = gallery("layernorm_gelu", Options { fuses, ..Options::at(place()) });
            let json = session.explain(None).unwrap().to_json();
            json["kernels"].as_array().unwrap().len()
        };
        assert_eq!((kernels(true), kernels(false)), (1, 2));
    }

    #[test]
    fn sizes_that_are_given_are_made_in_advance() {
        let sizes = vec![("rows".to_string(), 4), ("columns".to_string(), 8)];
        let session = gallery("softmax", Options { sizes, ..Options::at(place()) });
        assert_eq!(session.ready.read().unwrap().len(), 1);
        let json = session.explain(None).unwrap().to_json();
        assert_eq!(json["sizes"], serde_json::json!({ "rows": 4, "columns": 8 }));
    }
}
