//! What is written: both plans, and the guilty kernel as a case of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuseline::compile::{PlannedProgram, plan_program};
use fuseline::error::{Error, Result};
use fuseline::fuse::{Chooser, Lock, LockedKernel, Pins, PlanOptions};
use fuseline::graph::Graph;
use fuseline::reference::Limits;
use fuseline::run::Case;

use super::Guilt;
use crate::failure::Outcome;
use crate::file;

/// The files that were written.
pub struct Written {
    pub plans: [PathBuf; 2],
    /// the guilty kernel: its graph, its inputs, its plan and its text; none for a decision that is about no single kernel
    pub kernel: Option<[PathBuf; 4]>,
}

/// Writes everything to a folder, which is made if need be.
pub fn write(folder: &Path, guilt: &Guilt) -> Outcome<Written> {
    let refused = |error| Error::invalid(format!("cannot be made: {error}")).at(folder.display().to_string());
    std::fs::create_dir_all(folder).map_err(refused)?;
    let options = &guilt.options;
    let plans = [("good.plan", &guilt.guilty.good), ("bad.plan", &guilt.guilty.bad)];
    for (name, planned) in plans {
        file::write(&folder.join(name), planned.lock(options).to_string().as_bytes())?;
    }
    let kernel = match case(guilt) {
        None => None,
        Some(case) => {
            let files = ["kernel.ir", "kernel.npz", "kernel.plan", "kernel.tile"].map(|name| folder.join(name));
            let plan = one_kernel(&case, options).map(|(planned, options)| planned.lock(&options).to_string());
            file::write(&files[0], format!("{}\n", case.graph).as_bytes())?;
            let mut named: Vec<_> = case.inputs.iter().map(|(name, literal)| (name.as_ref(), literal)).collect();
            named.sort_by_key(|(name, _)| *name);
            file::write_arrays(&files[1], named.into_iter())?;
            if let Ok(plan) = &plan {
                file::write(&files[2], plan.as_bytes())?;
            }
            file::write(&files[3], format!("{}\n", case.kernel.kernel).as_bytes())?;
            plan.is_ok().then_some(files)
        }
    };
    Ok(Written { plans: plans.map(|(name, _)| folder.join(name)), kernel })
}

/// The kernel that is wrong by itself, otherwise the one that the decision made.
fn case(guilt: &Guilt) -> Option<Case<'_>> {
    let (trace, bad) = (guilt.trace.as_ref()?, &guilt.guilty.bad);
    let cases = trace.cases(bad.program.run(), &bad.run).ok()?;
    let decision = bad.run.decisions.iter().find(|decision| Some(decision.id) == guilt.guilty.decision)?;
    let is_made = |case: &Case<'_>| {
        let members = &case.kernel.members;
        [&decision.producer, &decision.consumer].iter().all(|side| side.iter().any(|node| members.contains(node)))
    };
    let is_wrong =
        |case: &Case<'_>| case.meaning(Limits::default()).is_ok_and(|meaning| meaning.check(&case.stored).is_err());
    let made: Vec<Case<'_>> = cases.into_iter().map(|(_, case)| case).filter(is_made).collect();
    made.iter().find(|case| is_wrong(case)).or(made.first()).cloned()
}

/// A plan of the case's graph in which everything is one kernel again.
fn one_kernel(case: &Case<'_>, options: &PlanOptions) -> Result<(PlannedProgram, PlanOptions)> {
    let mut options = options.clone();
    options.hints.env = case.env.clone();
    let graph = |graph: &Graph| graph.clone();
    let apart = PlanOptions { pins: Pins::apart(), ..options.clone() };
    let apart = plan_program(graph(&case.graph), &apart, &mut |_| {})?;
    let mut lock: Lock = apart.lock(&options);
    for part in lock.graphs.iter_mut().filter(|part| part.graph == apart.run.graph) {
        let mut nodes: Vec<usize> = part.kernels.iter().flat_map(|kernel| kernel.nodes.iter().copied()).collect();
        nodes.sort_unstable();
        nodes.dedup();
        part.kernels = vec![LockedKernel { kind: case.kernel.kind, nodes, line: 0, note: String::new() }];
    }
    let obeying = PlanOptions { chooser: Chooser::Replay(Arc::new(lock)), ..options.clone() };
    Ok((plan_program(graph(&case.graph), &obeying, &mut |_| {})?, options))
}
