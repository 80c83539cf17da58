//! What is computed along the stream of keys: folds, each with the passes before it, and what is kept of the scores.

use fuseline::tile::{AxisSet, Chain, Op, StepId};

use super::Emission;
use super::bound::Bound;
use super::reach::reached;
use super::roles::Roles;

/// The roles of a contraction whose columns are those axes.
pub(super) fn joined(bound: &Bound<'_>, dot: StepId, columns: AxisSet) -> Option<Roles> {
    let sides = [0, 1].into_iter().filter_map(|side| super::roles::sides(bound, &[dot], side));
    sides.into_iter().find(|roles| roles.columns.iter().copied().collect::<AxisSet>() == columns)
}

/// The folds along the stream behind the first contraction, each with the number of passes before its own; `None` where some
/// fold is of another kind.
pub(super) fn folds(
    emission: &Emission<'_>,
    behind: &[bool],
    chain: &Chain,
    outer: AxisSet,
) -> Option<Vec<(StepId, usize)>> {
    let kernel = emission.bound.kernel;
    let mut found: Vec<(StepId, usize)> = Vec::new();
    for (k, step) in kernel.steps.iter().enumerate() {
        let id = StepId(k as u32);
        if !behind[k] || !step.op.is_fold() || id == chain.second {
            continue;
        }
        let Op::Reduce { monoid, over, .. } = &step.op else { return None };
        if *over != chain.stream || monoid.is_position() || !step.axes.is_within(outer) {
            return None;
        }
        let depth = depth(emission, id, &found);
        found.push((id, depth));
    }
    Some(found)
}

/// How many passes must be over before a step can be computed; of a fold, before its terms can.
pub(super) fn depth(emission: &Emission<'_>, id: StepId, folds: &[(StepId, usize)]) -> usize {
    let kernel = emission.bound.kernel;
    let own = |id: StepId| folds.iter().find(|(fold, _)| *fold == id).map(|(_, depth)| *depth);
    let needed = reached(kernel, &kernel.step(id).op.operands(), &|id| own(id).is_some());
    needed.into_iter().filter_map(own).map(|depth| depth + 1).max().unwrap_or(0)
}

/// The step that is kept of the scores: what the first fold folds, if nothing looks behind it.
pub(super) fn score(emission: &Emission<'_>, chain: &Chain, folds: &[(StepId, usize)], weight: StepId) -> StepId {
    let kernel = emission.bound.kernel;
    let Some((first, _)) = folds.first() else { return chain.first };
    let candidate = kernel.step(*first).op.operands()[0];
    // Whether a step can be computed without the contraction, given the candidate.
    let mut needs = vec![false; kernel.steps.len()];
    for (k, step) in kernel.steps.iter().enumerate() {
        let id = StepId(k as u32);
        let fold = folds.iter().any(|(fold, _)| *fold == id);
        needs[k] = id == chain.first
            || id != candidate && !fold && step.op.operands().iter().any(|operand| needs[operand.index()]);
    }
    let terms = folds.iter().flat_map(|(id, _)| kernel.step(*id).op.operands());
    let plain = kernel.step(candidate).axes.contains(chain.stream.iter().next().unwrap_or(0));
    if plain && terms.chain([weight]).all(|id| !needs[id.index()]) { candidate } else { chain.first }
}
