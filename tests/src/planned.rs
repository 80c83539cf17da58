//! Plans of graphs, checked and run on the interpreter of kernels.

use std::sync::Arc;

use fuseline::compare::{Agreement, compare};
use fuseline::compile::{PlannedProgram, plan_program};
use fuseline::device::DeviceSpec;
use fuseline::error::{Context as _, Error, Result};
use fuseline::fuse::{Chooser, Lock, Plan, PlanOptions};
use fuseline::graph::Graph;
use fuseline::interpret;
use fuseline::passes::Numerics;
use fuseline::tensor::Literal;
use fuseline::tile::{self, Placement, Schedule, interp};

use crate::generate::Inputs;

/// Ways to plan for a device: by cost, without any fusion, and by chance.
pub fn choices(device: &str, numerics: Numerics, seeds: &[u64]) -> Vec<PlanOptions> {
    let spec = DeviceSpec::find(device).expect("a device that is shipped");
    let usual = PlanOptions { numerics, ..PlanOptions::on(spec) };
    let mut all = vec![usual.clone(), PlanOptions { fuel: Some(0), ..usual.clone() }];
    all.extend(seeds.iter().map(|seed| PlanOptions { chooser: Chooser::AtRandom(*seed), ..usual.clone() }));
    all
}

/// Compiles and plans a graph, and checks all that must hold of the plans.
pub fn planned(graph: &Graph, options: &PlanOptions) -> Result<PlannedProgram> {
    let planned = plan_program(graph.clone(), options, &mut |_| {})?;
    check(&planned.prepare, planned.program.prepare()).at(|| "what is prepared")?;
    check(&planned.run, planned.program.run())?;
    Ok(planned)
}

/// Checks a plan, and that its kernels survive their text.
pub fn check(plan: &Plan, graph: &Graph) -> Result<()> {
    plan.check(graph).at(|| format!("the plan of\n{graph}\n"))?;
    for kernel in &plan.kernels {
        let text = kernel.kernel.to_string();
        let parsed = tile::parse(&text).at(|| format!("in the text\n{text}\n"))?;
        if parsed != *kernel.kernel || parsed.to_string() != text {
            return Err(Error::bug(format!("the text\n{text}\nparses as\n{parsed}")));
        }
    }
    Ok(())
}

/// Whether a plan that is written down is read and obeyed: the same kernels, of the same nodes.
pub fn obeyed(graph: &Graph, planned: &PlannedProgram, options: &PlanOptions) -> Result<()> {
    let lock: Lock = planned.lock(options).to_string().parse()?;
    let written = PlanOptions { chooser: Chooser::Replay(Arc::new(lock)), ..options.clone() };
    let again = plan_program(graph.clone(), &written, &mut |_| {})?;
    let kernels = |planned: &PlannedProgram| -> Vec<_> {
        let plans = [&planned.prepare, &planned.run].into_iter().flat_map(Plan::with_regions);
        plans.flat_map(|plan| &plan.kernels).map(|k| (k.members.clone(), k.kind, k.kernel.to_string())).collect()
    };
    let (first, second) = (kernels(planned), kernels(&again));
    match first == second {
        true => Ok(()),
        false => Err(Error::bug(format!("planned as {first:#?}, obeyed as {second:#?}"))),
    }
}

/// A plan whose kernels take so little at a time that small inputs are cut into parts too: a streamed axis into pieces of two
/// elements and shared by two workers, a fold that can be split into three parts.
pub fn cut_small(mut planned: PlannedProgram) -> PlannedProgram {
    cut_plan(&mut planned.prepare);
    cut_plan(&mut planned.run);
    planned
}

fn cut_plan(plan: &mut Plan) {
    for kernel in &mut plan.kernels {
        match &mut Arc::make_mut(&mut kernel.kernel).schedule {
            Schedule::Attention { tile, parts, .. } => (tile.columns, *parts) = (2, 2),
            Schedule::Row { placement: placement @ Placement::Split(_), .. } => *placement = Placement::Split(3),
            Schedule::Column { parts, .. } => *parts = 3,
            _ => {}
        }
        kernel.regions.iter_mut().for_each(cut_plan);
    }
}

/// Runs a planned program on the interpreter of kernels.
pub fn run(planned: &PlannedProgram, inputs: &Inputs, options: &interp::Options) -> Result<Vec<Literal>> {
    let inputs = inputs.iter().map(|(name, literal)| (Arc::clone(name), literal.clone())).collect();
    interpret::load(planned, options)?.run(&inputs)
}

/// Runs a planned program and compares its outputs with what they should be.
pub fn agrees(
    planned: &PlannedProgram,
    inputs: &Inputs,
    options: &interp::Options,
    expected: &[Literal],
    agreement: impl Fn(usize) -> Agreement,
) -> Result<()> {
    let show = || show(planned);
    let actual = run(planned, inputs, options).at(show)?;
    for (k, (expected, actual)) in expected.iter().zip(&actual).enumerate() {
        compare(expected, actual, &agreement(k))
            .map_err(|mismatch| Error::bug(format!("output {k}: {mismatch}")).at(show()))?;
    }
    Ok(())
}

/// The graph that is run with its kernels, as text.
pub fn show(planned: &PlannedProgram) -> String {
    format!("{}\n{}", planned.program.run(), kernels(&planned.run))
}

/// The kernels of a plan, as text.
fn kernels(plan: &Plan) -> String {
    let text = |kernel: &fuseline::fuse::PlannedKernel| {
        let (inputs, outputs) = (&kernel.inputs, &kernel.outputs);
        format!("{:?} {inputs:?} -> {outputs:?}\n{}\n", kernel.members, kernel.kernel)
    };
    plan.kernels.iter().map(text).collect()
}
