//! Where the time of a plan goes: kernel by kernel, measured beside predicted.

use std::borrow::Cow;
use std::time::Duration;

use fuseline::compile::PlannedProgram;
use fuseline::device::{DeviceSpec, NamedTensors};
use fuseline::error::{Error, Result};
use fuseline::explain::{KernelRow, kernel_rows};
use fuseline::fuse::{PlanOptions, expected};
use fuseline_cpu::run::Span;
use fuseline_cuda::gpu::Resources;
use serde_json::{Value, json};

use crate::machine::Program;

/// Where the time of some runs went.
#[derive(Debug)]
pub struct Profile {
    /// every kernel, in the order of the plan
    pub kernels: Vec<Measured>,
    /// the run that took the least time, as it went; empty on a GPU
    pub fastest: Vec<Span>,
}

impl Profile {
    /// The kernels for programs, in the order of the plan.
    pub fn to_json(&self) -> Value {
        to_json(&self.kernels)
    }
}

/// A kernel of the plan, as it was measured.
#[derive(Debug)]
pub struct Measured {
    /// the kernel as it was planned, with the price that candidates were compared by
    pub row: KernelRow,
    /// how long it is expected to take, in microseconds: priced again with all that is done, for as many threads as a run has
    pub expected_us: f64,
    /// the number of the first kernel that is equal to it, itself otherwise
    pub model: usize,
    /// what it is made of, in order
    pub phases: Vec<Phase>,
}

/// A part of a kernel, as it was measured: a phase on a processor, a launch on a GPU.
#[derive(Clone, Debug)]
pub struct Phase {
    /// what it is called; none where the interpreter of kernels runs it
    pub name: Option<Cow<'static, str>>,
    /// how long it took in microseconds: the least time on a processor, the median on a GPU
    pub us: f64,
    /// what it takes of a GPU's multiprocessors, where it is a function of ours
    pub resources: Option<Resources>,
}

impl Measured {
    /// How long it took, in microseconds.
    pub fn us(&self) -> f64 {
        self.phases.iter().map(|phase| phase.us).sum()
    }

    /// How far what is expected is from what was measured, as a part of that; none where nothing was.
    pub fn error(&self) -> Option<f64> {
        (self.us() > 0.0).then(|| (self.expected_us / self.us() - 1.0).abs())
    }
}

/// The error that half of all kernels stay below; none where nothing was measured.
pub fn median_error(kernels: &[Measured]) -> Option<f64> {
    let mut errors: Vec<f64> = kernels.iter().filter_map(Measured::error).collect();
    errors.sort_by(f64::total_cmp);
    match errors.len() {
        0 => None,
        n if n % 2 == 1 => Some(errors[n / 2]),
        n => Some((errors[n / 2 - 1] + errors[n / 2]) / 2.0),
    }
}

/// Runs a program so many times and takes the time of every kernel. What is expected is for as many threads as a run has, and for the device
/// as it is: the plan may have been made for more threads, so that results do not hang on their number, and for a device as it should be.
pub fn measure(
    program: &Program,
    planned: &PlannedProgram,
    plan: &PlanOptions,
    device: &DeviceSpec,
    inputs: &NamedTensors,
    runs: usize,
) -> Result<Profile> {
    let on = |spec: &DeviceSpec| match program {
        Program::Cpu(session) => PlanOptions { spec: spec.scaled(session.threads(), &[]), ..plan.clone() },
        Program::Cuda(_) => PlanOptions { spec: spec.clone(), ..plan.clone() },
    };
    let (plan, as_it_is) = (&on(&plan.spec), &on(device));
    let kernels = &planned.run.kernels;
    let is_equal = |k: usize, other: usize| std::sync::Arc::ptr_eq(&kernels[k].kernel, &kernels[other].kernel);
    let graph = planned.program.run();
    // What is measured is compared with all that is done, not with what candidates were compared by.
    let mut expected_us: Vec<f64> = kernels.iter().map(|kernel| expected(graph, kernel, as_it_is).us).collect();
    if let Program::Cuda(session) = program {
        // How a kernel is cut into launches, only those know that print them.
        for (expected, us) in expected_us.iter_mut().zip(session.predict(inputs, &plan.spec)?) {
            *expected = us.unwrap_or(*expected);
        }
    }
    let rows = kernel_rows(graph, &planned.run, plan).into_iter().zip(expected_us).enumerate();
    let model = |k: usize| (0..k).find(|other| is_equal(k, *other)).unwrap_or(k);
    let measured =
        rows.map(|(k, (row, expected_us))| Measured { row, expected_us, model: model(k), phases: Vec::new() });
    let mut measured: Vec<Measured> = measured.collect();
    let fastest = match program {
        Program::Cpu(session) => measure_phases(session, inputs, runs, &mut measured)?,
        Program::Cuda(session) => {
            let launches = session.profile(inputs, runs)?;
            let between = || Error::unsupported("the time of single kernels where the host stands between them");
            for launch in launches.ok_or_else(between)? {
                let name = if launch.resources.is_none() { "cuBLASLt".into() } else { launch.name.into() };
                let phase = Phase { name: Some(name), us: launch.us, resources: launch.resources };
                measured[launch.kernel].phases.push(phase);
            }
            Vec::new()
        }
    };
    Ok(Profile { kernels: measured, fastest })
}

/// Keeps the least time of every phase; the fastest run.
fn measure_phases(
    session: &fuseline_cpu::run::Session,
    inputs: &NamedTensors,
    runs: usize,
    measured: &mut [Measured],
) -> Result<Vec<Span>> {
    let mut fastest: Vec<Span> = Vec::new();
    let end = |spans: &[Span]| spans.last().map_or(Duration::MAX, |span| span.begin + span.took);
    for run in 0..runs {
        let (_, spans) = session.run_recorded(inputs)?;
        for phases in spans.chunk_by(|a, b| a.kernel == b.kernel) {
            let times = phases.iter().map(|span: &Span| (span.phase, span.took.as_secs_f64() * 1e6));
            let kept = &mut measured[phases[0].kernel].phases;
            let phase =
                |(name, us): (Option<&'static str>, f64)| Phase { name: name.map(Cow::Borrowed), us, resources: None };
            match run {
                0 => kept.extend(times.map(phase)),
                _ => kept.iter_mut().zip(times).for_each(|(kept, (_, us))| kept.us = kept.us.min(us)),
            }
        }
        if end(&spans) < end(&fastest) {
            fastest = spans;
        }
    }
    Ok(fastest)
}

/// The same as JSON, in the order of the plan.
pub fn to_json(kernels: &[Measured]) -> Value {
    let phase = |phase: &Phase| {
        let mut value = json!({ "name": phase.name.as_deref().unwrap_or("interpreted"), "us": phase.us });
        if let Some(resources) = &phase.resources {
            value["blocks"] = json!(resources.grid.blocks);
            value["threads"] = json!(resources.grid.threads);
            value["registers"] = json!(resources.registers);
            value["spilled_bytes"] = json!(resources.spilled);
            value["shared_bytes"] = json!(resources.shared);
            value["resident_blocks"] = json!(resources.resident);
            value["occupancy"] = json!(resources.occupancy);
        }
        value
    };
    let kernel = |kernel: &Measured| {
        json!({
            "pattern": kernel.row.pattern,
            "kind": kernel.row.kind.name(),
            "equal_to": kernel.model,
            "us": kernel.us(),
            "predicted_us": kernel.row.us,
            "expected_us": kernel.expected_us,
            "bytes": kernel.row.bytes,
            "flops": kernel.row.flops,
            "phases": kernel.phases.iter().map(phase).collect::<Vec<_>>(),
        })
    };
    kernels.iter().map(kernel).collect()
}
