//! Whose index it is that lies outside.

use crate::error::Error;
use crate::fuse::PlannedKernel;
use crate::graph::Graph;
use crate::lower::gathered;
use crate::ops::Prim;
use crate::tile::Op;

impl PlannedKernel {
    /// An error of a run of the kernel, at the node that it is about. A kernel is called by its last node, and an index is that of another: the gather
    /// which reads what the step in the error's path loads, where there is one alone.
    pub fn blamed(&self, graph: &Graph, error: Error) -> Error {
        let place = self.gather_of(graph, &error).map(|node| graph.describe(node));
        match place.filter(|place| !self.describe(0, graph).contains(place.as_str())) {
            Some(place) => error.at(place),
            None => error,
        }
    }

    fn gather_of(&self, graph: &Graph, error: &Error) -> Option<usize> {
        let step = error.path().first()?.strip_prefix("step %")?;
        let step: usize = step.split(' ').next()?.parse().ok()?;
        let Op::Load { input, reads, .. } = &self.kernel.steps.get(step)?.op else { return None };
        let read = *self.inputs.get(*input).filter(|_| !reads.is_empty())?;
        let mut gathers = self.members.iter().copied().filter(|node| {
            let node = &graph.nodes()[*node];
            matches!(node.prim(), Prim::Gather(row) if gathered(graph, row, node.args()[0]) == read)
        });
        gathers.next().filter(|_| gathers.next().is_none())
    }
}
