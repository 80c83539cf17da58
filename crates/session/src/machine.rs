//! The devices of this machine, and programs that are ready on them.

use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use fuseline::compile::PlannedProgram;
use fuseline::device::{Executable, NamedTensors};
use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline::reference::Limits;
use fuseline::run::Trace;
use fuseline::tensor::Literal;
use fuseline_cpu::code::Isa;
use fuseline_cpu::run::{CpuDevice, Owned};
use fuseline_cuda::memory::DeviceTensor;
use fuseline_cuda::run::{CudaDevice, NamedDeviceTensors};
use fuseline_frontend::mapping;

use crate::gpu;

/// A device.
#[derive(Clone, Debug)]
pub enum Machine {
    /// this processor
    Cpu(CpuDevice),
    /// the first GPU
    Cuda(CudaDevice),
}

/// How many threads run at once.
pub(crate) fn processors() -> NonZeroUsize {
    std::thread::available_parallelism().unwrap_or(NonZeroUsize::MIN)
}

/// The most threads that may be asked for: more than there are processors is slower, and very many do not end.
pub fn most_threads() -> NonZeroUsize {
    const ANYWHERE: NonZeroUsize = NonZeroUsize::new(64).expect("64 is not zero");
    processors().saturating_mul(const { NonZeroUsize::new(4).expect("4 is not zero") }).max(ANYWHERE)
}

/// Whether so many threads can be had.
pub fn check_threads(threads: NonZeroUsize) -> Result<()> {
    let most = most_threads();
    if threads > most {
        return Err(Error::invalid(format!("{threads} threads where at most {most} can be had")));
    }
    Ok(())
}

/// This processor, with so many threads; none: one for every processor.
pub fn processor(plan: PlanOptions, threads: Option<NonZeroUsize>, limits: Limits) -> Result<CpuDevice> {
    let threads = threads.unwrap_or_else(processors);
    check_threads(threads)?;
    let mut device = CpuDevice::new(Isa::detect(), threads.get(), plan, limits)?;
    device.release = mapping::release;
    Ok(device)
}

impl Machine {
    /// This processor, with so many threads; none: one for every processor.
    pub fn cpu(plan: PlanOptions, threads: Option<NonZeroUsize>, limits: Limits) -> Result<Machine> {
        processor(plan, threads, limits).map(Machine::Cpu)
    }

    /// The first GPU.
    pub fn cuda(plan: PlanOptions, limits: Limits) -> Result<Machine> {
        gpu::open(plan, limits).map(Machine::Cuda)
    }

    /// The same device, on which programs are made for these plans.
    pub fn with_plan(mut self, plan: PlanOptions) -> Machine {
        match &mut self {
            Machine::Cpu(device) => device.plan = plan,
            Machine::Cuda(device) => device.plan = plan,
        }
        self
    }

    /// Makes a planned program ready.
    pub fn load(&self, planned: &PlannedProgram) -> Result<Program> {
        Ok(match self {
            Machine::Cpu(device) => Program::Cpu(Box::new(device.load(planned)?)),
            Machine::Cuda(device) => Program::Cuda(Box::new(device.load(planned)?)),
        })
    }

    /// How many threads a run has.
    pub fn threads(&self) -> usize {
        match self {
            Machine::Cpu(device) => device.threads(),
            Machine::Cuda(_) => 1,
        }
    }
}

/// A program that is ready.
#[derive(Debug)]
pub enum Program {
    /// on a processor
    Cpu(Box<fuseline_cpu::run::Session>),
    /// on a GPU
    Cuda(Box<fuseline_cuda::run::Session>),
}

/// What a program is run with.
#[derive(Clone, Debug, Default)]
pub struct Given {
    /// inputs in main memory
    pub host: NamedTensors,
    /// inputs in the memory of the device
    pub device: NamedDeviceTensors,
    /// whether results stay in the memory of the device that computes them, where it has one of its own
    pub stays: bool,
}

impl Given {
    /// The same inputs where a machine has them at hand, and results that stay there.
    pub fn resident(inputs: &NamedTensors, machine: &Machine) -> Result<Given> {
        match machine {
            Machine::Cpu(_) => Ok(Given { host: inputs.clone(), stays: true, ..Given::default() }),
            Machine::Cuda(device) => {
                let tensors = inputs.iter().map(|(name, x)| Ok((name.clone(), DeviceTensor::of(device.gpu(), x)?)));
                Ok(Given { device: tensors.collect::<Result<_>>()?, stays: true, ..Given::default() })
            }
        }
    }
}

/// A result that belongs to the caller.
#[derive(Debug)]
pub enum Output {
    /// in memory of its own
    Owned(Owned),
    /// copied from a device
    Copied(Literal),
    /// left in the memory of a device
    Resident(DeviceTensor),
}

impl Output {
    /// As a tensor in main memory that is shared.
    pub fn into_literal(self) -> Result<Literal> {
        match self {
            Output::Owned(owned) => owned.into_literal(),
            Output::Copied(literal) => Ok(literal),
            Output::Resident(tensor) => tensor.literal(),
        }
    }
}

impl Program {
    /// The outputs, in the program's order.
    pub fn run(&self, inputs: &NamedTensors) -> Result<Vec<Output>> {
        Ok(match self {
            Program::Cpu(session) => session.run_owned(inputs)?.into_iter().map(Output::Owned).collect(),
            Program::Cuda(session) => session.run(inputs)?.into_iter().map(Output::Copied).collect(),
        })
    }

    /// The same where inputs may be on the device, and outputs may stay there.
    pub fn run_given(&self, inputs: &Given) -> Result<Vec<Output>> {
        let Given { host, device, stays } = inputs;
        Ok(match self {
            Program::Cpu(_) if device.is_empty() => return self.run(host),
            Program::Cpu(_) => return Err(Error::unsupported("a tensor in the memory of a GPU, on a processor")),
            Program::Cuda(session) if *stays => {
                session.run_resident(host, device)?.into_iter().map(Output::Resident).collect()
            }
            Program::Cuda(session) => session.run_given(host, device)?.into_iter().map(Output::Copied).collect(),
        })
    }

    /// The outputs as tensors that are shared.
    pub fn literals(&self, inputs: &NamedTensors) -> Result<Vec<Literal>> {
        match self {
            Program::Cpu(session) => session.run(inputs),
            Program::Cuda(session) => session.run(inputs),
        }
    }

    /// The outputs, and what every kernel stored on the way to them.
    pub fn run_traced(&self, inputs: &NamedTensors) -> Result<Trace> {
        match self {
            Program::Cpu(session) => session.run_traced(inputs),
            Program::Cuda(session) => session.run_traced(inputs),
        }
    }

    /// How long a run takes. On a GPU that is the time of the device, with inputs and outputs where they are, unless the host stands between
    /// kernels: then it is the time of everything.
    pub fn time(&self, inputs: &NamedTensors) -> Result<Duration> {
        if let Program::Cuda(session) = self
            && let Some(timing) = session.time(inputs, 1)?
        {
            return Ok(Duration::from_secs_f64(timing.median() / 1e6));
        }
        let start = Instant::now();
        let outputs = self.literals(inputs);
        let spent = start.elapsed();
        outputs.map(|_| spent)
    }

    /// How long making kernels took so far.
    pub fn making(&self) -> Duration {
        match self {
            Program::Cpu(session) => session.making(),
            Program::Cuda(session) => session.making().1,
        }
    }

    /// Kernels that the interpreter runs, each with the reason.
    pub fn refused(&self) -> Vec<String> {
        match self {
            Program::Cpu(session) => session.refused(),
            Program::Cuda(session) => session.refused(),
        }
    }
}
