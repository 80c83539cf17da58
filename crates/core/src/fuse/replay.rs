//! Plans as written.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::decision::{Cost, Decision, Verdict};
use super::driver::Driver;
use super::evaluate::Kind;
use super::lock::LockedKernel;
use super::plan::PlannedKernel;
use super::state::GroupState;
use crate::error::{Error, Result};

/// Whether a kernel that was one kind can have become another: sizes decide whether folds run along rows or across them.
fn is_like(written: Kind, found: Kind) -> bool {
    let folds = |kind: Kind| matches!(kind, Kind::Row | Kind::Column);
    written == found || (folds(written) && folds(found))
}

fn wrong(kernel: &LockedKernel, what: String) -> Error {
    match kernel.line {
        0 => Error::invalid(format!("a kernel of the plan {what}")),
        line => Error::invalid(format!("line {line} of the plan: the kernel {what}")),
    }
}

/// The kernels of a written plan are of the kinds that it says. Kinds are those of finished kernels: algebra may leave no fold of
/// nodes that fold, and what a group is priced as does not know that.
pub(super) fn check_kinds(written: &[LockedKernel], found: &[PlannedKernel]) -> Result<()> {
    let found: FxHashMap<&[usize], Kind> =
        found.iter().map(|kernel| (kernel.members.as_slice(), kernel.kind)).collect();
    let kinds = written.iter().filter_map(|kernel| Some((kernel, *found.get(kernel.nodes.as_slice())?)));
    match kinds.into_iter().find(|(kernel, kind)| !is_like(kernel.kind, *kind)) {
        Some((kernel, kind)) => {
            Err(wrong(kernel, format!("is of the kind {}, not {}", kind.name(), kernel.kind.name())))
        }
        None => Ok(()),
    }
}

impl Driver<'_> {
    /// The kernels of a written plan.
    pub(super) fn replay(&mut self, kernels: &[LockedKernel]) -> Result<()> {
        let nodes = self.state.graph.nodes().len();
        let mut states = Vec::with_capacity(kernels.len());
        // For every node the kernels that compute it; the first one stores it.
        let mut inside: Vec<SmallVec<[usize; 1]>> = vec![SmallVec::new(); nodes];
        for (k, kernel) in kernels.iter().enumerate() {
            for node in &kernel.nodes {
                if *node >= nodes || !self.state.cells.is_cell[*node] {
                    return Err(wrong(kernel, format!("lists %{node}, which no kernel computes")));
                }
                inside[*node].push(k);
            }
        }
        if let Some(missing) = self.state.cells.iter().find(|id| inside[*id].is_empty()) {
            let place = self.state.graph.describe(missing);
            return Err(Error::invalid(format!("no kernel of the plan computes %{missing}")).at(place));
        }
        for (k, kernel) in kernels.iter().enumerate() {
            let members = &kernel.nodes;
            let read_elsewhere = |node: usize| {
                let readers = self.state.cells.readers[node].iter();
                readers.flat_map(|r| &inside[*r as usize]).any(|other| !inside[node].contains(other))
            };
            let stored = |node: &&usize| {
                inside[**node].first() == Some(&k)
                    && (self.state.cells.is_output[**node]
                        || self.state.cells.is_opaque[**node]
                        || read_elsewhere(**node))
            };
            let ports = |node: &usize| {
                let node = *node;
                (0..self.state.graph.nodes()[node].types().len()).map(move |port| crate::graph::Value::new(node, port))
            };
            let outputs: Vec<_> = members.iter().filter(stored).flat_map(ports).collect();
            let needed = self.state.needed(members.clone(), &outputs);
            if let Some(idle) = members.iter().find(|node| needed.binary_search(node).is_err()) {
                return Err(wrong(kernel, format!("computes %{idle}, of which it stores nothing and needs nothing")));
            }
            let priced = self.evaluator.evaluate(members, &outputs);
            let priced = priced.map_err(|refusal| wrong(kernel, format!("cannot be: {refusal}")))?;
            states.push(GroupState { members: members.clone(), outputs, priced });
        }
        self.state.replace_all(states);
        for group in self.state.iter().collect::<Vec<_>>() {
            let members = self.state.group(group).members.clone();
            for edge in self.state.edges(&members, &members) {
                self.joined.insert(edge);
                let id = self.names.edge(edge);
                let cost = Cost::default();
                let (producer, consumer) = (vec![edge.0], vec![edge.1]);
                self.decisions.push(Decision {
                    id,
                    rule: "plan",
                    producer,
                    consumer,
                    verdict: Verdict::Taken,
                    reason: None,
                    sides: [cost; 2],
                    after: Some(cost),
                    edges: vec![edge],
                    in_all_us: None,
                    notes: Vec::new(),
                });
            }
        }
        Ok(())
    }
}
