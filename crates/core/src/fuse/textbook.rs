//! What the textbooks refuse, for those who want to see it refused.

use super::evaluate::Kind;
use super::rules::{Form, Proposal};
use super::state::State;
use crate::tensor::TensorType;

/// Why a textbook would keep these groups apart, although one kernel can do it.
pub(super) fn refusal(state: &State<'_>, proposal: &Proposal) -> Option<&'static str> {
    let kinds: Vec<Kind> = proposal.groups.iter().map(|g| state.group(*g).priced.kind).collect();
    let has = |wanted: &[Kind]| kinds.iter().any(|k| wanted.contains(k));
    if has(&[Kind::Contract, Kind::Attention]) && has(&[Kind::Row, Kind::Column]) {
        return Some("compute-bound next to memory-bound: different bottlenecks");
    }
    if proposal.form == Form::Copy || is_wanted_elsewhere(state, proposal) {
        return Some("another consumer needs the intermediate result");
    }
    if changes_type(state, proposal) {
        return Some("different element types");
    }
    let (first, last) = stored(state, proposal)?;
    let contracts = matches!(kinds[0], Kind::Contract | Kind::Attention);
    if contracts && first.shape != last.shape {
        return Some("incompatible access patterns after a contraction");
    }
    None
}

/// What the first and the last of these groups store.
fn stored<'s>(state: &'s State<'_>, proposal: &Proposal) -> Option<(&'s TensorType, &'s TensorType)> {
    let stored = |g: u32| state.group(g).outputs.first().map(|v| state.graph.ty(*v));
    Some((stored(proposal.groups[0])?, stored(*proposal.groups.last()?)?))
}

/// Whether groups store numbers of different types.
pub(super) fn changes_type(state: &State<'_>, proposal: &Proposal) -> bool {
    stored(state, proposal).is_some_and(|(first, last)| first.dtype != last.dtype)
}

/// Whether something that the first group stores for the others is wanted by somebody else too: another group, or the caller.
fn is_wanted_elsewhere(state: &State<'_>, proposal: &Proposal) -> bool {
    let Some((first, others)) = proposal.groups.split_first() else { return false };
    state.group(*first).outputs.iter().any(|value| {
        let readers = state.readers_of(*value).iter().flat_map(|reader| &state.inside[*reader as usize]);
        let mut readers = readers.copied().filter(|group| group != first);
        let is_proposed = |group: u32| others.contains(&group);
        let is_own = readers.clone().any(is_proposed);
        is_own && (state.cells.is_output[value.node()] || !readers.all(is_proposed))
    })
}
