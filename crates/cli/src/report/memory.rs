//! Memory over the time of a run: which values are there when, and where they lie.

use fuseline::fuse::{Plan, PlanOptions};
use fuseline::graph::{Graph, Value};
use fuseline::run::memory::{Spacing, Wish, place};
use fuseline::tensor::Env;
use indexmap::IndexMap;
use serde_json::{Value as Json, json};

/// A value that kernels hand on.
#[derive(Clone, Copy, Debug)]
struct Kept {
    bytes: usize,
    first: usize,
    last: usize,
    is_output: bool,
}

/// What the values between the kernels of a plan take: bytes that are there during every kernel, and a place for each value as the
/// memory plan gives it. Values whose sizes are known only in a run are left out and counted.
pub fn to_json(graph: &Graph, plan: &Plan, options: &PlanOptions) -> Json {
    let (kept, unknown) = kept(graph, plan, &options.hints.env);
    let steps = plan.kernels.len();
    let mut live = vec![0usize; steps];
    for value in &kept {
        live[value.first..=value.last].iter_mut().for_each(|bytes| *bytes += value.bytes);
    }
    let shared: Vec<&Kept> = kept.iter().filter(|value| !value.is_output).collect();
    let wish = |value: &&Kept| Wish { bytes: value.bytes, first: value.first, last: value.last, heir_of: None };
    let placement = place(&shared.iter().map(wish).collect::<Vec<_>>(), Spacing::of(options.spec.kind));
    let values = shared.iter().zip(&placement.offsets);
    json!({
        "arena": placement.bytes,
        "all": kept.iter().map(|value| value.bytes).sum::<usize>(),
        "outputs": kept.iter().filter(|value| value.is_output).map(|value| value.bytes).sum::<usize>(),
        "unknown": unknown,
        "live": live,
        "values": values.map(|(v, offset)| json!([v.first, v.last, offset, v.bytes])).collect::<Vec<_>>(),
    })
}

fn kept(graph: &Graph, plan: &Plan, env: &Env) -> (Vec<Kept>, usize) {
    let mut found: IndexMap<Value, Kept> = IndexMap::new();
    let mut unknown = 0;
    for (k, kernel) in plan.kernels.iter().enumerate() {
        for value in &kernel.inputs {
            if let Some(kept) = found.get_mut(value) {
                kept.last = k;
            }
        }
        for value in &kernel.outputs {
            let ty = graph.ty(*value);
            let count = ty.shape.eval(env).map(|sizes| sizes.iter().product::<usize>());
            match count.ok().and_then(|count| ty.dtype.bytes(count)) {
                Some(bytes) => {
                    found.insert(*value, Kept { bytes, first: k, last: k, is_output: false });
                }
                None => unknown += 1,
            }
        }
    }
    for output in graph.outputs() {
        if let Some(kept) = found.get_mut(&output.value) {
            kept.last = plan.kernels.len() - 1;
            kept.is_output = true;
        }
    }
    (found.into_values().collect(), unknown)
}
