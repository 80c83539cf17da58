//! Graphs that are planned, loaded and timed on this processor.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use fuseline::compile::{PlannedProgram, plan_program};
use fuseline::device::{Executable, NamedTensors};
use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline::gallery::{self, NETWORKS};
use fuseline::graph::Graph;
use fuseline::program::Program;
use fuseline::reference::Limits;
use fuseline::tensor::{DType, Env, Literal, Symbol};
use fuseline_cpu::code::Isa;
use fuseline_cpu::run::{CpuDevice, Session};

/// A graph that is ready to run, and how long its runs took.
pub struct Case {
    /// how it is divided into kernels
    pub planned: PlannedProgram,
    /// what runs it
    pub session: Session,
    inputs: NamedTensors,
    times: Vec<f64>,
}

impl Case {
    /// Plans a graph for the sizes of the options and makes it ready. Inputs are numbers from −1 to 1; integers are 1.
    pub fn new(graph: Graph, options: &PlanOptions, threads: usize) -> Result<Case> {
        Case::made_for(graph, options, threads, Isa::detect())
    }

    /// The same for some instructions.
    pub fn made_for(graph: Graph, options: &PlanOptions, threads: usize, isa: Isa) -> Result<Case> {
        let planned = plan_program(graph, options, &mut |_| {})?;
        let session = CpuDevice::new(isa, threads, options.clone(), Limits::default())?.load(&planned)?;
        let inputs = inputs(&planned.program, &options.hints.env)?;
        Ok(Case { planned, session, inputs, times: Vec::new() })
    }

    /// Runs it once, and keeps how many microseconds that took.
    pub fn run(&mut self) -> Result<f64> {
        let start = Instant::now();
        let outputs = self.session.run(&self.inputs)?;
        let us = start.elapsed().as_secs_f64() * 1e6;
        drop(std::hint::black_box(outputs));
        self.times.push(us);
        Ok(us)
    }

    /// Runs it with inputs for other sizes; microseconds.
    pub fn run_at(&self, env: &Env) -> Result<f64> {
        let inputs = inputs(&self.planned.program, env)?;
        let start = Instant::now();
        drop(std::hint::black_box(self.session.run(&inputs)?));
        Ok(start.elapsed().as_secs_f64() * 1e6)
    }

    /// Forgets the runs so far.
    pub fn forget(&mut self) {
        self.times.clear();
    }

    /// The shortest run, in microseconds; infinite where there was none.
    pub fn least(&self) -> f64 {
        self.times.iter().copied().fold(f64::INFINITY, f64::min)
    }

    /// The run in the middle, in microseconds; infinite where there was none.
    pub fn median(&self) -> f64 {
        let mut times = self.times.clone();
        times.sort_by(f64::total_cmp);
        times.get(times.len() / 2).copied().unwrap_or(f64::INFINITY)
    }

    /// How many kernels a run has.
    pub fn kernels(&self) -> usize {
        self.planned.run.kernels.len()
    }
}

/// Inputs of a program at some sizes.
fn inputs(program: &Program, env: &Env) -> Result<NamedTensors> {
    let mut inputs = NamedTensors::new();
    for (name, ty) in program.inputs() {
        let sizes = ty.shape.eval(env)?;
        let count: usize = sizes.iter().product();
        let value = |k: usize| if ty.dtype.is_float() { ((k * 7919) % 2001) as f64 / 1000.0 - 0.9995 } else { 1.0 };
        let values: Vec<f64> = (0..count).map(value).collect();
        inputs.insert(Arc::clone(name), aligned(ty.dtype, sizes, values)?);
    }
    Ok(inputs)
}

/// Bytes to which frameworks align tensors.
const ALIGNMENT: usize = 64;

/// A tensor whose memory begins where a line of the cache does, as those of frameworks do: no vector that is read lies in two of them.
fn aligned(dtype: DType, sizes: Vec<usize>, mut values: Vec<f64>) -> Result<Literal> {
    let count = values.len();
    values.resize(count + ALIGNMENT, 0.0);
    let bytes = Literal::from_f64s(dtype, [values.len()], &values)?.bytes();
    let start = bytes.as_ptr().align_offset(ALIGNMENT);
    let length = bytes.len() / values.len() * count;
    Literal::new(dtype, sizes, bytes.slice(start..start + length))
}

/// Numbers for sizes from text such as `rows=4096,columns=768`; what is no such text is left out.
pub fn sizes(text: &str) -> Env {
    let size = |part: &str| {
        let (name, n) = part.split_once('=')?;
        Some((Symbol::name(name), n.parse().ok()?))
    };
    text.split(',').filter_map(size).collect()
}

/// The instructions that an option names, or the best there are.
pub fn isa(options: &BTreeMap<String, String>) -> Isa {
    match options.get("isa").map(String::as_str) {
        None => Isa::detect(),
        Some("avx512") => Isa::Avx512,
        Some("avx2") => Isa::Avx2,
        Some(name) => panic!("{name} is neither avx512 nor avx2"),
    }
}

/// The options `--NAME=VALUE` of the command line, and the other arguments.
pub fn arguments() -> (BTreeMap<String, String>, Vec<String>) {
    let (mut options, mut others) = (BTreeMap::new(), Vec::new());
    for argument in std::env::args().skip(1) {
        match argument.strip_prefix("--").and_then(|option| option.split_once('=')) {
            Some((name, value)) => drop(options.insert(name.to_string(), value.to_string())),
            None => others.push(argument),
        }
    }
    (options, others)
}

/// A graph of the gallery or a small network, by name, with the sizes that are usual for it.
pub fn networks_of_gallery(name: &str) -> Result<(Graph, Env)> {
    if let Some(network) = NETWORKS.iter().find(|network| network.name == name) {
        return Ok((network.graph()?, sizes("batch=1,tokens=128")));
    }
    let entry = gallery::find(name).ok_or_else(|| Error::invalid(format!("the gallery has no {name}")))?;
    let env = entry.sizes.iter().map(|(name, n)| (Symbol::name(name), *n)).collect();
    Ok((entry.graph(DType::F32)?, env))
}
