//! Where plans are measured and judged.

use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
pub use fuseline_session::machine::{Machine, Program as Session};

use crate::arguments::Measuring;
use crate::device::Means;
use crate::failure::GPU;

/// The device that was asked for.
pub fn open(which: Measuring, plan: PlanOptions, means: &Means) -> Result<Machine> {
    match which {
        Measuring::Cpu => Machine::cpu(plan, means.threads, means.options.limits),
        Measuring::Cuda if means.threads.is_some() => {
            Err(Error::invalid("cuda has no threads of its own").at("--threads"))
        }
        Measuring::Cuda => Machine::cuda(plan, means.options.limits).map_err(|error| error.at(GPU)),
    }
}
