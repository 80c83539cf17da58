//! Where the time of a plan goes: kernel by kernel, measured beside predicted.

use std::time::Duration;

use fuseline::compile::PlannedProgram;
use fuseline::device::NamedTensors;
use fuseline::error::Result;
use fuseline::explain::{KernelRow, kernel_rows};
use fuseline::fuse::PlanOptions;
use fuseline_cpu::run::{Session, Span};
use serde_json::{Value, json};

/// Where the time of some runs went.
#[derive(Debug)]
pub struct Profile {
    /// every kernel, in the order of the plan
    pub kernels: Vec<Measured>,
    /// the run that took the least time, as it went
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
    /// the kernel as it was planned
    pub row: KernelRow,
    /// the number of the first kernel that is equal to it, itself otherwise
    pub model: usize,
    /// its phases with the least time that each took, in microseconds
    pub phases: Vec<(Option<&'static str>, f64)>,
}

impl Measured {
    /// The least time that it took, in microseconds.
    pub fn us(&self) -> f64 {
        self.phases.iter().map(|(_, us)| us).sum()
    }

    /// How far the prediction is from what was measured, as a part of that; none where nothing was.
    pub fn error(&self) -> Option<f64> {
        (self.us() > 0.0).then(|| (self.row.us / self.us() - 1.0).abs())
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

/// Runs a session so many times and keeps the least time of every phase.
pub fn measure(
    session: &Session,
    planned: &PlannedProgram,
    plan: &PlanOptions,
    inputs: &NamedTensors,
    runs: usize,
) -> Result<Profile> {
    let kernels = &planned.run.kernels;
    let is_equal = |k: usize, other: usize| std::sync::Arc::ptr_eq(&kernels[k].kernel, &kernels[other].kernel);
    let rows = kernel_rows(planned.program.run(), &planned.run, plan).into_iter().enumerate();
    let model = |k: usize| (0..k).find(|other| is_equal(k, *other)).unwrap_or(k);
    let mut measured: Vec<Measured> =
        rows.map(|(k, row)| Measured { row, model: model(k), phases: Vec::new() }).collect();
    let mut fastest: Vec<Span> = Vec::new();
    let end = |spans: &[Span]| spans.last().map_or(Duration::MAX, |span| span.begin + span.took);
    for run in 0..runs {
        let (_, spans) = session.run_recorded(inputs)?;
        for phases in spans.chunk_by(|a, b| a.kernel == b.kernel) {
            let times = phases.iter().map(|span: &Span| (span.phase, span.took.as_secs_f64() * 1e6));
            let kept = &mut measured[phases[0].kernel].phases;
            match run {
                0 => kept.extend(times),
                _ => kept.iter_mut().zip(times).for_each(|((_, least), (_, us))| *least = least.min(us)),
            }
        }
        if end(&spans) < end(&fastest) {
            fastest = spans;
        }
    }
    Ok(Profile { kernels: measured, fastest })
}

/// The same as JSON, in the order of the plan.
pub fn to_json(kernels: &[Measured]) -> Value {
    let phase = |(name, us): &(Option<&str>, f64)| json!({ "name": name.unwrap_or("interpreted"), "us": us });
    let kernel = |kernel: &Measured| {
        json!({
            "pattern": kernel.row.pattern,
            "kind": kernel.row.kind.name(),
            "equal_to": kernel.model,
            "us": kernel.us(),
            "predicted_us": kernel.row.us,
            "bytes": kernel.row.bytes,
            "flops": kernel.row.flops,
            "phases": kernel.phases.iter().map(phase).collect::<Vec<_>>(),
        })
    };
    kernels.iter().map(kernel).collect()
}
