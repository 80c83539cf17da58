//! `fuseline verify`: fused against unfused against the reference, kernel by kernel.

mod judge;
mod report;

pub use judge::{Check, Setting, Verdict, judge, or_read};
pub use report::{blame, cells as check_cells, check_json};

use fuseline::fuse::PlanOptions;
use fuseline_cuda::gpu::Gpu;
use fuseline_cuda::nvrtc::Compiler;

use crate::arguments::{Measuring, Verify};
use crate::deadline::Deadline;
use crate::device::{Means, bind_sizes};
use crate::failure::{Failure, Outcome};
use crate::feed;
use crate::machine;
use crate::model::Model;
use crate::screen;
use crate::waiting::Waiting;
use crate::written_plan::{PlanWishes, WrittenPlan};

/// Judges a model.
pub fn verify(arguments: &Verify) -> Outcome {
    let _deadline = Deadline::within(&arguments.time);
    let written = arguments.plan.as_deref().map(WrittenPlan::read).transpose()?;
    let model = Model::open(&arguments.model, arguments.dtype, &arguments.limits)?;
    let feed = feed::assemble(&model, &arguments.inputs, &arguments.sizes, arguments.seed)?;
    let devices = match arguments.device.as_slice() {
        // A written plan, or one for a device by name, is for one of them.
        [] if arguments.plan.is_some() || arguments.target.is_some() => vec![Measuring::Cpu],
        [] => devices_here(),
        given => given.to_vec(),
    };
    let waiting = Waiting::for_(&format!("opening {}", model.name));
    let mut verdicts = Vec::with_capacity(devices.len());
    for device in devices {
        let plan = plan_options(arguments, device, written.as_ref())?;
        let means = Means { options: arguments.limits.exact_run(), threads: arguments.threads };
        let verdict = model.with_graph(&feed.tensors, |graph, inputs| {
            let mut plan = plan.clone();
            bind_sizes(graph, &inputs, &mut plan.hints.env);
            let machine = machine::open(device, plan.clone(), &means)?;
            judge(&Setting { graph, inputs: &inputs, plan: &plan, machine: &machine, device, waiting: &waiting })
        });
        verdicts.push(verdict.map_err(|error| match &written {
            Some(plan) => plan.failed(error.into()),
            None => feed.failed(&model, error),
        })?);
    }
    drop(waiting);
    match arguments.json {
        true => screen::print_json(&report::to_json(&model, arguments, &feed, &verdicts))?,
        false => screen::print(&report::to_text(&model, arguments, &feed, &verdicts))?,
    }
    match verdicts.iter().any(|verdict| verdict.guilty.is_some()) {
        true => Err(Failure::Differs),
        false => Ok(()),
    }
}

/// The processor, and the GPU where there is one that can be used.
pub fn devices_here() -> Vec<Measuring> {
    match Gpu::open(0).is_ok() && Compiler::find(&crate::gpu::libraries()).is_ok() {
        true => vec![Measuring::Cpu, Measuring::Cuda],
        false => vec![Measuring::Cpu],
    }
}

fn plan_options(arguments: &Verify, device: Measuring, written: Option<&WrittenPlan>) -> Outcome<PlanOptions> {
    let budget = &arguments.limits.budget_of_each();
    let wishes = PlanWishes {
        target: arguments.target.as_deref(),
        usual: device.target(),
        numerics: arguments.numerics.map(|numerics| numerics.numerics()),
        precision: arguments.precision,
        budget,
    };
    WrittenPlan::options(written, &wishes)
}
