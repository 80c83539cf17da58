//! What the planner makes of a row.

use fuseline::device::DeviceSpec;
use fuseline::error::Result;
use fuseline::fuse::{Plan, PlanOptions, plan};
use fuseline::graph::Graph;
use fuseline::passes::{Context, run_passes};
use fuseline::rewrites::{Permit, apply_rewrites};

use super::Spelling;

/// A plan with the graph that it divides.
#[derive(Debug)]
pub struct Planned {
    /// after passes and rewrites
    pub graph: Graph,
    /// its kernels
    pub plan: Plan,
}

impl Spelling {
    /// The graph after passes and rewrites, as planners see it.
    pub fn plain(&self) -> Result<Graph> {
        let context = Context::default();
        let graph = run_passes(self.graph()?, &context, &mut |_| {})?;
        apply_rewrites(graph, &context, &mut Permit::everything(), &mut |_| {})
    }

    /// The plan for a device, by its name.
    pub fn planned(&self, device: &str) -> Result<Planned> {
        let graph = self.plain()?;
        let plan = plan(&graph, &PlanOptions::on(DeviceSpec::find(device)?))?;
        Ok(Planned { graph, plan })
    }
}

impl Planned {
    /// The kernels as text, one after the other.
    pub fn kernels(&self) -> String {
        self.plan.kernels.iter().map(|k| k.kernel.to_string()).collect()
    }
}
