//! Heads of queries that share keys and values: their rows are rows of one matrix.

use std::borrow::Cow;

use fuseline::tensor::Dim;
use fuseline::tile::{AxisSet, Kernel, Op, Schedule, StepId, split_axis};

use super::reach::reached;

/// An attention kernel in which several heads read the same streamed factors, with the axis of heads cut into groups and
/// heads of a group; any other kernel as it is. What is packed is then packed once for a group, and a single query has as many
/// rows as there are heads in a group.
pub(super) fn grouped(kernel: &Kernel) -> Cow<'_, Kernel> {
    let Some((axis, heads)) = shared_heads(kernel) else { return Cow::Borrowed(kernel) };
    split_axis(kernel, axis, heads).map_or(Cow::Borrowed(kernel), Cow::Owned)
}

/// The axis of heads and how many neighbours read the same, where streamed factors tell that by `head // n` alone.
fn shared_heads(kernel: &Kernel) -> Option<(usize, i64)> {
    let Schedule::Attention { chain, .. } = &kernel.schedule else { return None };
    let streamed = [chain.first, chain.second].into_iter().flat_map(|dot| kernel.step(dot).op.operands());
    // The left factor of the second contraction stems from the first.
    let streamed: Vec<StepId> = streamed.filter(|id| is_streamed(kernel, *id, chain.stream, chain.first)).collect();
    chain.rows.iter().find_map(|axis| {
        let mut heads = None;
        for index in streamed.iter().flat_map(|id| coordinates(kernel, *id)) {
            if AxisSet::mentioned(index).contains(axis) {
                let own = index.divisor_of(axis)?;
                if heads.replace(own).is_some_and(|other| other != own) {
                    return None;
                }
            }
        }
        heads.map(|heads| (axis, heads))
    })
}

/// Whether a factor varies along the stream and is known before the first contraction.
fn is_streamed(kernel: &Kernel, id: StepId, stream: AxisSet, first: StepId) -> bool {
    let step = kernel.step(id);
    !step.axes.common(stream).is_empty() && !reached(kernel, &[id], &|_| false).contains(&first)
}

/// The coordinates at which a step, and what it is computed from, reads.
fn coordinates(kernel: &Kernel, id: StepId) -> impl Iterator<Item = &Dim> {
    reached(kernel, &[id], &|_| false).into_iter().flat_map(|id| match &kernel.step(id).op {
        Op::Load { index, .. } => index.as_slice(),
        _ => &[],
    })
}
