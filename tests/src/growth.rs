//! What models take from the file to the result, stage by stage, and how it grows with their size.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fuseline::budget::{Account, Budget, Watch};
use fuseline::compile::{plan_simplified, simplified};
use fuseline::device::{DeviceSpec, Executable, NamedTensors};
use fuseline::error::{Error, Kind, Result};
use fuseline::fuse::PlanOptions;
use fuseline::graph::Graph;
use fuseline::reference;
use fuseline::tensor::{Env, Literal};
use fuseline_cpu::code::Isa;
use fuseline_cpu::run::CpuDevice;
use fuseline_frontend::onnx::import::{Form, Limits};
use fuseline_frontend::{Model, Tensors};

/// The stages in order: file to graph; passes; rewrites, plan and log; the proof of a plan by itself; machine code; the result.
pub const STAGES: [&str; 6] = ["import", "passes", "plan", "proof", "kernels", "run"];

/// What a model took.
#[derive(Clone, Debug, Default)]
pub struct Taken {
    /// seconds of the processor, of the stages that were reached
    pub seconds: Vec<f64>,
    /// how often somebody asked whether the work may go on, stage by stage: the same in every run
    pub steps: Vec<u64>,
    /// nodes of the graph
    pub nodes: usize,
    /// what the planner looked at: the same in every run
    pub effort: u64,
    /// kernels of the plan
    pub kernels: usize,
    /// what ended it early
    pub error: Option<Error>,
}

impl Taken {
    /// Whether it ended with a result, or with an error that says what is wrong with the model.
    pub fn is_clear(&self) -> bool {
        self.error.as_ref().is_none_or(|error| error.kind() != Kind::Bug)
    }
}

/// An account that counts questions, and ends work that takes longer than it may.
#[derive(Debug)]
struct Meter {
    start: Instant,
    /// when it began, by the clock of the processor
    since: f64,
    most: Duration,
    steps: AtomicU64,
}

/// A clock is read once in so many questions.
const ASKED: u64 = 4096;

impl Account for Meter {
    fn begin(self: Arc<Self>) -> Watch {
        Arc::new(move || {
            let steps = self.steps.fetch_add(1, Ordering::Relaxed);
            let is_over = || busy(self.start) - self.since > self.most.as_secs_f64();
            match steps % ASKED == ASKED - 1 && is_over() {
                true => Err(Error::limit(format!("it takes longer than {:?}", self.most))),
                false => Ok(()),
            }
        })
    }

    fn fork(&self) -> Arc<dyn Account> {
        let steps = AtomicU64::new(self.steps.load(Ordering::Relaxed));
        Arc::new(Meter { start: self.start, since: self.since, most: self.most, steps })
    }
}

/// Seconds that this thread has had a processor, where the system tells; otherwise those on the wall.
pub fn busy(start: Instant) -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok();
    let nanoseconds = text.and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok());
    nanoseconds.map_or_else(|| start.elapsed().as_secs_f64(), |n| n * 1e-9)
}

/// One measurement, stage by stage.
struct Watching {
    start: Instant,
    meter: Arc<Meter>,
    budget: Budget,
    since: f64,
    steps: u64,
    taken: Taken,
    /// whether it ends with the passes
    is_short: bool,
}

impl Watching {
    fn new(most: Duration) -> Watching {
        let start = Instant::now();
        let since = busy(start);
        let meter = Arc::new(Meter { start, since, most, steps: AtomicU64::new(0) });
        let budget = Budget::of(meter.clone()).started();
        Watching { start, meter, budget, since, steps: 0, taken: Taken::default(), is_short: false }
    }

    /// A stage has ended.
    fn end<T>(&mut self, outcome: Result<T>) -> Result<T> {
        let (now, steps) = (busy(self.start), self.meter.steps.load(Ordering::Relaxed));
        self.taken.seconds.push(now - self.since);
        self.taken.steps.push(steps - self.steps);
        (self.since, self.steps) = (now, steps);
        outcome
    }

    /// From the graph to the result.
    fn graph(&mut self, graph: &Graph, inputs: &NamedTensors) -> Result<()> {
        self.taken.nodes = graph.nodes().len();
        let mut options = PlanOptions { budget: self.budget.clone(), ..PlanOptions::on(DeviceSpec::find("cpu")?) };
        options.hints.env = sizes(graph, inputs);
        let plain = simplified(graph.clone(), &options, &mut |_| {});
        let plain = self.end(plain)?;
        if self.is_short {
            return Ok(());
        }
        let planned = plan_simplified(plain, &options, &mut |_| {});
        let planned = self.end(planned)?;
        (self.taken.effort, self.taken.kernels) = (planned.run.effort, planned.run.kernels.len());
        let proof = planned.run.check_within(planned.program.run(), &self.budget);
        self.end(proof)?;
        let device = CpuDevice::new(Isa::detect(), 1, options, reference::Limits::default());
        let loaded = device.and_then(|device| device.load(&planned));
        let loaded = self.end(loaded)?;
        let result = Executable::run(&loaded, inputs);
        self.end(result).map(|_| ())
    }
}

fn sizes(graph: &Graph, inputs: &NamedTensors) -> Env {
    let mut env = Env::new();
    for value in graph.inputs() {
        if let Some(given) = inputs.get(graph.input_name(*value)) {
            for (dim, size) in graph.ty(*value).shape.dims().iter().zip(given.sizes()) {
                if let Some(symbol) = dim.as_symbol() {
                    env.bind(symbol.clone(), *size as i64);
                }
            }
        }
    }
    env
}

/// What a model takes; sizes that are open are small, inputs are ones, and none takes longer than so long.
pub fn measure(file: Vec<u8>, most: Duration) -> Taken {
    let mut watching = Watching::new(most);
    if let Err(error) = model(file, &mut watching) {
        watching.taken.error = Some(error);
    }
    watching.taken
}

/// As [`measure`], to the end of the passes: what large models take there can be counted by programs that are not optimised too.
pub fn measure_passes(file: Vec<u8>) -> Taken {
    let mut watching = Watching { is_short: true, ..Watching::new(Duration::MAX) };
    if let Err(error) = model(file, &mut watching) {
        watching.taken.error = Some(error);
    }
    watching.taken
}

fn model(file: Vec<u8>, watching: &mut Watching) -> Result<()> {
    let opened = Model::from_bytes(file, "malicious.onnx");
    let limits = Limits { budget: watching.budget.clone(), ..Limits::default() };
    let model = match opened {
        Ok(model) => model.with_limits(limits),
        Err(error) => return watching.end(Err(error)),
    };
    let inputs = match given(&model) {
        Ok(inputs) => inputs,
        Err(error) => return watching.end(Err(error)),
    };
    let mut is_imported = false;
    let outcome = model.specialise(&inputs, |special| {
        if !is_imported {
            is_imported = true;
            watching.end(Ok(()))?;
        }
        let named = special.inputs.iter().map(|(name, x)| (Arc::from(name.as_str()), x.clone())).collect();
        watching.graph(special.graph, &named)
    });
    if is_imported { outcome } else { watching.end(outcome) }
}

/// Ones for every input that is not left out.
fn given(model: &Model) -> Result<Tensors> {
    // Products of very many sizes stay numbers.
    const SIZE: usize = 1;
    let mut tensors = Tensors::new();
    for port in model.signature().inputs.iter().filter(|port| port.form == Form::Tensor) {
        let dims = port.shape.iter().flat_map(|shape| shape.dims());
        let sizes: Vec<usize> = dims.map(|dim| dim.as_int().map_or(SIZE, |n| n as usize)).collect();
        let count: usize = sizes.iter().product();
        tensors.insert(port.name.clone(), Literal::from_f64s(port.dtype, sizes, &vec![1.0; count])?);
    }
    Ok(tensors)
}

/// What a graph takes.
pub fn measure_graph(graph: &Graph, most: Duration) -> Taken {
    let mut watching = Watching::new(most);
    let _ = watching.end(Ok(()));
    let input = |value: &fuseline::graph::Value| {
        let ty = graph.ty(*value);
        let sizes: Vec<usize> = ty.shape.dims().iter().map(|dim| dim.as_int().map_or(1, |n| n as usize)).collect();
        let ones = vec![1.0; sizes.iter().product()];
        Ok((graph.input_name(*value).clone(), Literal::from_f64s(ty.dtype, sizes, &ones)?))
    };
    let inputs: Result<NamedTensors> = graph.inputs().iter().map(input).collect();
    if let Err(error) = inputs.and_then(|inputs| watching.graph(graph, &inputs)) {
        watching.taken.error = Some(error);
    }
    watching.taken
}

/// The exponent with which something grows that was so much, and is so much for a model so many times as large; none where it is too little
/// to say.
pub fn exponent(before: f64, after: f64, times: f64, least: f64) -> Option<f64> {
    (after >= least).then(|| (after / before.max(least / times / times)).ln() / times.ln())
}

/// Counts that are this small say nothing about growth.
const LEAST_STEPS: u64 = 64;

/// So much more than n log n may be counted: what a few nodes have in common with many counts too.
const SLACK: f64 = 1.25;

/// What grows faster than n log n from a model of few nodes to one of many, in counts that are the same in every run.
pub fn faster_than_n_log_n(few: &Taken, many: &Taken, [before, after]: [usize; 2]) -> impl Iterator<Item = String> {
    let [before, after] = [before, after].map(|n| n as f64);
    let most = after * after.ln() / (before * before.ln()) * SLACK;
    let stages = few.steps.iter().zip(&many.steps).zip(STAGES).map(|((few, many), stage)| (stage, *few, *many));
    let all: Vec<(&str, u64, u64)> = stages.collect();
    let is_faster = move |(_, few, many): &(&str, u64, u64)| {
        *many > LEAST_STEPS && *many as f64 > most * (*few).max(LEAST_STEPS / 4) as f64
    };
    let told = move |(stage, few, many): (&str, u64, u64)| {
        format!("{stage} takes {few} steps, and {many} for {} times as many nodes", after / before)
    };
    all.into_iter().filter(is_faster).map(told)
}
