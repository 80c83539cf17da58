//! How a GPU computes products best: measured, to be written into a plan.

use fuseline::compile::plan_program;
use fuseline::device::Machine;
use fuseline::error::Error;
use fuseline::reference;

use super::Request;
use crate::arguments::{Explain, Measuring};
use crate::device::{Means, bind_sizes};
use crate::failure::Outcome;
use crate::machine::Session;
use crate::waiting::Waiting;
use crate::{feed, machine};

/// Measures the large products of the plan on a GPU, by the library in all its ways and by kernels of our own; what is fastest, as a plan
/// that is written says it.
pub fn tuned(request: &Request<'_>, arguments: &Explain) -> Outcome<Vec<(u64, String)>> {
    if request.options.spec.kind != Machine::Gpu {
        return Err(Error::invalid("--tune measures products on a GPU: give one with --target, such as h200").into());
    }
    let model = request.model;
    let feed = feed::assemble(model, &arguments.inputs, &arguments.sizes, 0)?;
    let means = Means { options: reference::Options::default(), threads: None };
    let _waiting = Waiting::for_(&format!("tuning {}", model.name));
    Ok(model.with_graph(&feed.tensors, |graph, inputs| {
        let mut plan = request.options.clone();
        bind_sizes(graph, &inputs, &mut plan.hints.env);
        let machine = machine::open(Measuring::Cuda, plan.clone(), &means)?;
        let planned = plan_program(graph.clone(), &plan, &mut |_| {})?;
        let Session::Cuda(session) = machine.load(&planned)? else { return Err(Error::bug("a GPU that is none")) };
        let tuned = session
            .tune(&inputs)?
            .ok_or_else(|| Error::unsupported("tuning a plan in which the host stands between kernels"))?;
        Ok(tuned.into_iter().map(|tuned| (tuned.name, tuned.choice.to_string())).collect())
    })?)
}
