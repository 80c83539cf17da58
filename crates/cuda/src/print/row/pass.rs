//! Walks along a row: each does all folds whose terms are known by then, and the stores whose values are.

use fuseline::tile::{AxisSet, StepId};

use super::super::nest::Nest;

/// What one walk does.
#[derive(Clone, Debug, Default)]
pub(super) struct Pass {
    pub folds: Vec<StepId>,
    /// folds across rows, one more term of each
    pub columns: Vec<StepId>,
    pub stores: Vec<usize>,
    /// what it takes from earlier passes
    pub takes: Vec<StepId>,
}

/// All axes of stores and of what they need, but for those that are folded.
pub(super) fn outer_axes(nest: &Nest<'_>, stores: &[usize]) -> AxisSet {
    stores.iter().fold(AxisSet::EMPTY, |all, store| all.union(nest.stores[*store].axes))
}

/// What every pass folds and stores, and the stores that have one element a row.
pub(super) fn passes(
    nest: &Nest<'_>,
    stores: &[usize],
    of_columns: &[usize],
    along: AxisSet,
) -> (Vec<Pass>, Vec<usize>) {
    let needed = nest.needed(&stores.iter().chain(of_columns).copied().collect::<Vec<usize>>());
    let mut depth = vec![0usize; needed.len()];
    let mut passes = vec![Pass::default()];
    for (k, step) in nest.kernel.steps.iter().enumerate().filter(|(k, _)| needed[*k]) {
        let below = step.op.operands().iter().map(|operand| depth[operand.index()]).max().unwrap_or(0);
        depth[k] = below;
        if step.op.is_fold() && nest.folds[k] != along {
            passes[below].columns.push(StepId(k as u32));
        } else if step.op.is_fold() {
            depth[k] = below + 1;
            passes.resize(passes.len().max(below + 2), Pass::default());
            passes[below].folds.push(StepId(k as u32));
        }
    }
    let mut of_rows = Vec::new();
    for store in stores {
        let written = &nest.stores[*store];
        if written.axes.common(along).is_empty() {
            of_rows.push(*store);
        } else {
            passes[depth[written.value.index()]].stores.push(*store);
        }
    }
    passes.retain(|pass| !pass.folds.is_empty() || !pass.columns.is_empty() || !pass.stores.is_empty());
    (passes, of_rows)
}
