//! How long a kernel that was decided for will take: its price with all that is done, as far as core knows what that is.

use super::evaluate::Kind;
use super::options::PlanOptions;
use super::plan::PlannedKernel;
use crate::analysis::{Price, price};
use crate::device::Machine;
use crate::graph::{Graph, Value};
use crate::lower::{self, Group, Limits, Whence};
use crate::ops::Prim;
use crate::program::is_prepared;
use crate::tensor::DType;

/// The price of a kernel of a plan in detail. On a processor it counts what the code generator does besides: packing, gathering, tiles that are
/// not full, caches of other cores. `run_bytes` are those that a whole run touches: what one run has left in caches, the next one finds there. Candidates are compared by [`PlannedKernel::price`], which on other devices is all that is known here.
pub fn expected(graph: &Graph, kernel: &PlannedKernel, options: &PlanOptions, run_bytes: f64) -> Price {
    match (options.spec.kind, kernel.kind) {
        (Machine::Gpu, _) | (_, Kind::Host) => kernel.price,
        _ => in_detail(graph, kernel, options, run_bytes).unwrap_or(kernel.price),
    }
}

fn in_detail(graph: &Graph, kernel: &PlannedKernel, options: &PlanOptions, run_bytes: f64) -> Option<Price> {
    let (spec, hints) = (&options.spec, &options.hints);
    let draft = lower::lower(&Group { graph, members: &kernel.members, outputs: &kernel.outputs }).ok()?;
    let dtype = (0..draft.leaves.len()).find_map(|leaf| draft.factor_dtype(leaf)).unwrap_or(DType::F32);
    let limits = Limits::of(spec, dtype);
    let roles = lower::classify(&draft, &limits, hints).ok()?;
    let mut work = lower::work_in_detail(&draft, &roles, &limits, spec, hints, &|value| whence(graph, value));
    work.recur(run_bytes);
    Some(price(&work, spec))
}

/// Where what a kernel reads comes from.
fn whence(graph: &Graph, value: Value) -> Whence {
    match graph.node_of(value).prim() {
        Prim::Const(_) => Whence::Constant,
        Prim::Input(_) if is_prepared(graph.input_name(value)) => Whence::Constant,
        Prim::Input(_) => Whence::Given,
        _ => Whence::Fresh,
    }
}
