//! What steps are computed from.

use fuseline::tile::{Kernel, StepId};

/// Some steps and all that they are computed from, each once; what is behind a step that `ends` is left out.
pub(super) fn reached(kernel: &Kernel, roots: &[StepId], ends: &dyn Fn(StepId) -> bool) -> Vec<StepId> {
    let mut seen = vec![false; kernel.steps.len()];
    let (mut todo, mut found) = (roots.to_vec(), Vec::new());
    while let Some(id) = todo.pop() {
        if std::mem::replace(&mut seen[id.index()], true) {
            continue;
        }
        found.push(id);
        if !ends(id) {
            todo.extend(kernel.step(id).op.operands());
        }
    }
    found
}
