//! What the planner makes of a row.

use fuseline::compile::plan_program;
use fuseline::device::DeviceSpec;
use fuseline::error::Result;
use fuseline::fuse::{Plan, PlanOptions};
use fuseline::graph::Graph;
use fuseline::passes::{Context, Numerics, run_passes};
use fuseline::rewrites::{Permit, apply_rewrites};
use fuseline::tensor::{Env, Symbol};

use super::Spelling;

/// Sizes as models have them, for the symbols that rows use: what a plan is priced for.
pub fn usual_sizes() -> Env {
    let sizes = [("n", 8), ("s", 1024), ("t", 1024), ("p", 256)];
    sizes.into_iter().map(|(name, size)| (Symbol::name(name), size)).collect()
}

/// One short sequence, and long ones: kernels that are the right ones for one are not for another.
pub fn other_sizes() -> Vec<Env> {
    let sizes = [[1, 128, 128, 64], [8, 2048, 2048, 2048], [2, 4096, 4096, 512]];
    let env = |sizes: [i64; 4]| ["n", "s", "t", "p"].map(Symbol::name).into_iter().zip(sizes).collect();
    sizes.into_iter().map(env).collect()
}

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
    pub fn plain(&self, numerics: Numerics) -> Result<Graph> {
        let context = Context { numerics, ..Context::default() };
        let graph = run_passes(self.graph()?, &context, &mut |_| {})?;
        apply_rewrites(graph, &context, &mut Permit::everything(), &mut |_| {})
    }

    /// The plan for a device, by its name.
    pub fn planned(&self, device: &str, numerics: Numerics) -> Result<Planned> {
        self.planned_at(device, numerics, usual_sizes())
    }

    /// The plan for a device at sizes.
    pub fn planned_at(&self, device: &str, numerics: Numerics, sizes: Env) -> Result<Planned> {
        let mut options = PlanOptions { numerics, ..PlanOptions::on(DeviceSpec::find(device)?) };
        options.hints.env = sizes;
        let planned = plan_program(self.graph()?, &options, &mut |_| {})?;
        Ok(Planned { graph: planned.program.run().clone(), plan: planned.run })
    }
}

impl Planned {
    /// The kernels as text, one after the other.
    pub fn kernels(&self) -> String {
        self.plan.kernels.iter().map(|k| k.kernel.to_string()).collect()
    }
}
