//! What is written: both plans, and the guilty kernel as a case of its own.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuseline::compile::{PlannedProgram, plan_program};
use fuseline::error::Error;
use fuseline::fuse::{Chooser, Lock, LockedKernel, Pins, PlanOptions};
use fuseline::graph::Graph;
use fuseline::reference::Limits;
use fuseline::run::Case;

use super::{Guilt, right};
use crate::failure::Outcome;
use crate::file;

/// Whether a kernel with a plan of its own is still wrong.
pub type Again<'a> = dyn Fn(&Case<'_>, &PlannedProgram, &PlanOptions) -> fuseline::error::Result<bool> + 'a;

/// The files that were written.
pub struct Written {
    pub plans: [PathBuf; 2],
    /// the guilty kernel: its graph, its inputs, its plan and its text; or why there is none
    pub kernel: Result<[PathBuf; 4], String>,
}

const GOOD: &str = "good.plan";
const BAD: &str = "bad.plan";

/// Whether something was written to a folder already.
pub fn holds_a_case(folder: &Path) -> bool {
    [GOOD, BAD].iter().any(|name| folder.join(name).exists())
}

/// Writes everything to a folder, which is made if need be.
/// `is_wrong_again` says whether a kernel that is planned by itself is still wrong: otherwise it is no case, and the plans are what is
/// left.
pub fn write(folder: &Path, guilt: &Guilt, is_wrong_again: &Again<'_>) -> Outcome<Written> {
    let refused = |error| Error::invalid(format!("cannot be made: {error}")).at(folder.display().to_string());
    std::fs::create_dir_all(folder).map_err(refused)?;
    let options = &guilt.options;
    let plans = [(GOOD, &guilt.guilty.good), (BAD, &guilt.guilty.bad)];
    for (name, planned) in plans {
        file::write(&folder.join(name), planned.lock(options).to_string().as_bytes())?;
    }
    let kernel = match case(guilt) {
        Err(why) => Err(why),
        Ok(case) => match one_kernel(&case, options) {
            Ok((planned, options)) => match is_wrong_again(&case, &planned, &options) {
                Ok(true) => Ok(write_kernel(folder, &case, &planned.lock(&options).to_string())?),
                Ok(false) => {
                    Err("planned and run by itself, the guilty kernel is right: the plans are the smallest case".into())
                }
                Err(error) => Err(format!("the guilty kernel cannot be run by itself: {error}")),
            },
            Err(error) => Err(format!("the guilty kernel cannot be planned by itself: {error}")),
        },
    };
    Ok(Written { plans: plans.map(|(name, _)| folder.join(name)), kernel })
}

/// Writes the guilty kernel as a case of its own.
fn write_kernel(folder: &Path, case: &Case<'_>, plan: &str) -> Outcome<[PathBuf; 4]> {
    let files = ["kernel.ir", "kernel.npz", "kernel.plan", "kernel.tile"].map(|name| folder.join(name));
    file::write(&files[0], format!("{}\n", case.graph).as_bytes())?;
    let mut named: Vec<_> = case.inputs.iter().map(|(name, literal)| (name.as_ref(), literal)).collect();
    named.sort_by_key(|(name, _)| *name);
    file::write_arrays(&files[1], named.into_iter())?;
    file::write(&files[2], plan.as_bytes())?;
    file::write(&files[3], format!("{}\n", case.kernel.kernel).as_bytes())?;
    Ok(files)
}

/// The kernel that is wrong by itself, otherwise the one that the decision made; or why there is none.
fn case(guilt: &Guilt) -> Result<Case<'_>, String> {
    let bad = &guilt.guilty.bad;
    let trace = guilt.trace.as_ref().ok_or("the bad plan does not run to its end, so that no kernel has inputs")?;
    let cases = trace.cases(bad.program.run(), &bad.run).map_err(|error| error.to_string())?;
    let is_wrong = |case: &Case<'_>| {
        let meaning = case.meaning(Limits::default());
        let meaning = meaning.and_then(|meaning| right(meaning, guilt.options.numerics));
        meaning.is_ok_and(|meaning| meaning.check(&case.stored).is_err())
    };
    let decision = bad.run.decisions.iter().find(|decision| Some(decision.id) == guilt.guilty.decision);
    let is_made = |case: &Case<'_>| {
        let members = &case.kernel.members;
        let has = |side: &Vec<usize>| side.iter().any(|node| members.contains(node));
        decision.is_none_or(|decision| has(&decision.producer) && has(&decision.consumer))
    };
    let made: Vec<Case<'_>> = cases.into_iter().map(|(_, case)| case).filter(is_made).collect();
    let made_by_fusion = made.first().filter(|_| decision.is_some());
    made.iter().find(|case| is_wrong(case)).or(made_by_fusion).cloned().ok_or_else(|| {
        let what = "the decision changes what is computed, and every kernel computes that rightly";
        format!("{what}: the plans differ, no single kernel is wrong")
    })
}

/// A plan of the case's graph in which everything is one kernel again.
fn one_kernel(case: &Case<'_>, options: &PlanOptions) -> fuseline::error::Result<(PlannedProgram, PlanOptions)> {
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
