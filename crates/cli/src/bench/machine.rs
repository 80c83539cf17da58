//! Where plans are measured.

use std::time::{Duration, Instant};

use fuseline::compile::PlannedProgram;
use fuseline::device::{Executable, NamedTensors};
use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline_cpu::run::CpuDevice;
use fuseline_cuda::run::CudaDevice;

use crate::arguments::Measuring;
use crate::device::{Means, processor};
use crate::gpu;

/// A device that plans are measured on.
pub enum Machine {
    Cpu(CpuDevice),
    Cuda(CudaDevice),
}

impl Machine {
    /// The device that was asked for.
    pub fn open(which: Measuring, plan: PlanOptions, means: &Means) -> Result<Machine> {
        Ok(match which {
            Measuring::Cpu => Machine::Cpu(processor(plan, means)?),
            Measuring::Cuda if means.threads.is_some() => {
                return Err(Error::invalid("cuda has no threads of its own").at("--threads"));
            }
            Measuring::Cuda => Machine::Cuda(gpu::open(plan, means.options.limits)?),
        })
    }

    /// Makes a planned program ready.
    pub fn load(&self, planned: &PlannedProgram) -> Result<Session> {
        Ok(match self {
            Machine::Cpu(device) => Session::Cpu(device.load(planned)?),
            Machine::Cuda(device) => Session::Cuda(device.load(planned)?),
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

/// A program that is ready to be measured.
pub enum Session {
    Cpu(fuseline_cpu::run::Session),
    Cuda(fuseline_cuda::run::Session),
}

impl Session {
    /// How long a run takes. On a GPU that is the time of the device, with inputs and outputs where they are, unless the host stands between
    /// kernels: then it is the time of everything.
    pub fn time(&self, inputs: &NamedTensors) -> Result<Duration> {
        if let Session::Cuda(session) = self
            && let Some(timing) = session.time(inputs, 1)?
        {
            return Ok(Duration::from_secs_f64(timing.median() / 1e6));
        }
        let start = Instant::now();
        let outputs = match self {
            Session::Cpu(session) => session.run(inputs),
            Session::Cuda(session) => session.run(inputs),
        };
        let spent = start.elapsed();
        outputs.map(|_| spent)
    }

    /// How long making kernels took so far.
    pub fn making(&self) -> Duration {
        match self {
            Session::Cpu(session) => session.making(),
            Session::Cuda(session) => session.making().1,
        }
    }

    /// Kernels that the interpreter runs, each with the reason.
    pub fn refused(&self) -> Vec<String> {
        match self {
            Session::Cpu(session) => session.refused(),
            Session::Cuda(session) => session.refused(),
        }
    }
}
