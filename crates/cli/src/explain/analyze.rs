//! Predicted against measured: the plan, run.

use fuseline::device::{DeviceSpec, Machine};
use serde_json::{Value, json};

use super::Request;
use crate::arguments::{Explain, Measuring};
use crate::bench::contender::{Contender, Kind};
use crate::bench::profile::{self, Profile};
use crate::ceiling::Ceiling;
use crate::device::{Means, bind_sizes};
use crate::failure::Outcome;
use crate::load::Load;
use crate::screen::heading;
use crate::waiting::Waiting;
use crate::{feed, load, machine};

/// Kernels that were measured, and what else was on the machine.
pub struct Measured {
    profile: Profile,
    /// whether what is expected is at rates that were measured with it
    at_measured_rates: bool,
    load: Option<Load>,
}

/// Runs of the plan that are not measured.
const WARM_UP: usize = 2;

/// Runs the plan that was asked for, on this processor or on a GPU, and takes the time of every kernel.
pub fn measure(request: &Request<'_>, arguments: &Explain) -> Outcome<Measured> {
    let device = match request.options.spec.kind {
        Machine::Gpu => Measuring::Cuda,
        Machine::Cpu => Measuring::Cpu,
    };
    let model = request.model;
    let feed = feed::assemble(model, &arguments.inputs, &arguments.sizes, 0)?;
    let means = Means { options: arguments.limits.exact_run(), threads: arguments.threads };
    let load = load::tell(device);
    let _waiting = Waiting::for_(&format!("measuring {}", model.name));
    let measured = model.with_graph(&feed.tensors, |graph, inputs| {
        let mut plan = request.options.clone();
        bind_sizes(graph, &inputs, &mut plan.hints.env);
        let machine = machine::open(device, plan.clone(), &means)?;
        let ceiling = Ceiling::of(device, machine.threads(), &plan.spec, None);
        let mut fused = Contender::prepare(Kind::Fused, graph, &plan, &machine)?;
        for _ in 0..WARM_UP {
            fused.run(&inputs)?;
        }
        let profile = fused.profile(&plan, ceiling.rates(), &inputs, arguments.iters.get())?;
        Ok((profile, ceiling.rates().is_some()))
    });
    let (profile, at_measured_rates) = measured.map_err(|error| feed.failed(model, error))?;
    Ok(Measured { profile, at_measured_rates, load })
}

/// A table of kernels, measured beside predicted.
pub fn to_text(measured: &Measured, spec: &DeviceSpec) -> String {
    format!(
        "\n{}{}",
        heading("Measured, the most time first"),
        profile::to_text(&measured.profile.kernels, spec, measured.at_measured_rates)
    )
}

/// The same as JSON.
pub fn to_json(measured: &Measured) -> Value {
    let kernels = &measured.profile.kernels;
    json!({
        "kernels": profile::to_json(kernels),
        "median_error": profile::median_error(kernels),
        "errors": profile::errors(kernels, profile::COUNTS_US),
        "median_error_of_all": profile::median(profile::errors(kernels, 0.0)),
        "rates": if measured.at_measured_rates { "measured" } else { "described" },
        "load": measured.load.map(Load::to_json),
    })
}
