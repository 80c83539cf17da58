//! The pipeline, from a front end's graph to a program that a device can load.

use crate::error::Result;
use crate::graph::Graph;
use crate::passes::{Context, run_passes};
use crate::program::Program;

/// Compiles a graph: the stages in order.
pub fn compile(graph: Graph, context: &Context) -> Result<Program> {
    // Make the meaning plain: no planner should see shape arithmetic or views of views.
    let graph = run_passes(graph, context, &mut |_| {})?;
    // Split by time: only now is it known which constants are too large to have been folded.
    Program::new(&graph)
}
