//! What the textbooks refuse, for those who want to see it refused.

use super::evaluate::Kind;
use super::rules::{Form, Proposal};
use super::state::State;

/// Why a textbook would keep these groups apart, although one kernel can do it.
pub(super) fn refusal(state: &State<'_>, proposal: &Proposal) -> Option<&'static str> {
    let kinds: Vec<Kind> = proposal.groups.iter().map(|g| state.group(*g).priced.kind).collect();
    let has = |wanted: &[Kind]| kinds.iter().any(|k| wanted.contains(k));
    if has(&[Kind::Contract, Kind::Attention]) && has(&[Kind::Row, Kind::Column]) {
        return Some("compute-bound next to memory-bound: different bottlenecks");
    }
    if proposal.form == Form::Copy || state.first_consumers(proposal.groups[0], 2).len() > 1 {
        return Some("another consumer needs the intermediate result");
    }
    let stored = |g: u32| state.group(g).outputs.first().map(|v| state.graph.ty(*v).clone());
    let (first, last) = (stored(proposal.groups[0])?, stored(*proposal.groups.last()?)?);
    if first.dtype != last.dtype {
        return Some("different element types");
    }
    let contracts = matches!(kinds[0], Kind::Contract | Kind::Attention);
    if contracts && first.shape != last.shape {
        return Some("incompatible access patterns after a contraction");
    }
    None
}
