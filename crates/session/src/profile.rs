//! Where the time of a plan goes: kernel by kernel, measured beside predicted.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use fuseline::compile::PlannedProgram;
use fuseline::device::NamedTensors;
use fuseline::error::{Error, Result};
use fuseline::explain::{KernelRow, kernel_rows};
use fuseline::fuse::{PlanOptions, expected};
use fuseline_cpu::run::Span;
use fuseline_cpu::run::delay::Delays;
use fuseline_cuda::gpu::Resources;
use serde_json::{Value, json};

use crate::machine::Program;
use crate::rates::Rates;

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

    /// Takes a run in: the least time of every phase is kept, and the fastest run.
    fn keep(&mut self, spans: Vec<Span>) {
        let end = |spans: &[Span]| spans.last().map_or(Duration::MAX, |span| span.begin + span.took);
        for phases in spans.chunk_by(|a, b| a.kernel == b.kernel) {
            let times = phases.iter().map(|span: &Span| (span.phase, span.took.as_secs_f64() * 1e6));
            let kept = &mut self.kernels[phases[0].kernel].phases;
            let phase =
                |(name, us): (Option<&'static str>, f64)| Phase { name: name.map(Cow::Borrowed), us, resources: None };
            match kept.is_empty() {
                true => kept.extend(times.map(phase)),
                false => kept.iter_mut().zip(times).for_each(|(kept, (_, us))| kept.us = kept.us.min(us)),
            }
        }
        if end(&spans) < end(&self.fastest) {
            self.fastest = spans;
        }
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
}

/// Kernels that take less than so many microseconds are calls more than work, and do not count in [`median_error`].
pub const COUNTS_US: f64 = 20.0;

/// How far what is expected is from what was measured, which half of the kernels stay below: those that take [`COUNTS_US`] or longer, equal ones
/// counted once. Where none does, all of them; none where nothing was measured.
pub fn median_error(kernels: &[Measured]) -> Option<f64> {
    median(errors(kernels, COUNTS_US)).or_else(|| median(errors(kernels, 0.0)))
}

/// The errors of kernels that take so many microseconds or longer; equal kernels are one, with the mean of their times.
pub fn errors(kernels: &[Measured], least_us: f64) -> Vec<f64> {
    let groups = groups(kernels);
    let means = groups.iter().map(|group| (group[0].expected_us, mean_us(group)));
    means.filter(|(_, us)| *us > 0.0 && *us >= least_us).map(|(expected, us)| (expected / us - 1.0).abs()).collect()
}

/// What half of some numbers stay below; none where there are none.
pub fn median(mut numbers: Vec<f64>) -> Option<f64> {
    numbers.sort_by(f64::total_cmp);
    match numbers.len() {
        0 => None,
        n if n % 2 == 1 => Some(numbers[n / 2]),
        n => Some((numbers[n / 2 - 1] + numbers[n / 2]) / 2.0),
    }
}

/// Equal kernels together, in the order of the first of them.
pub fn groups(kernels: &[Measured]) -> Vec<Vec<&Measured>> {
    let mut groups: BTreeMap<usize, Vec<&Measured>> = BTreeMap::new();
    kernels.iter().for_each(|kernel| groups.entry(kernel.model).or_default().push(kernel));
    groups.into_values().collect()
}

/// How long one of some equal kernels took, in microseconds: the mean.
pub fn mean_us(group: &[&Measured]) -> f64 {
    group.iter().map(|kernel| kernel.us()).sum::<f64>() / group.len().max(1) as f64
}

/// A program whose kernels are to be measured, and what it was made of.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'s> {
    /// what runs
    pub program: &'s Program,
    /// how it is divided into kernels
    pub planned: &'s PlannedProgram,
}

/// As [`measure_in_turns`], of one program.
pub fn measure(
    subject: Subject<'_>,
    plan: &PlanOptions,
    rates: Option<&Rates>,
    inputs: &NamedTensors,
    runs: usize,
) -> Result<Profile> {
    let mut profiles = measure_in_turns(&[subject], plan, rates, inputs, runs)?;
    profiles.pop().ok_or_else(|| Error::bug("a program without a profile"))
}

/// Runs programs of one device so many times, in turns, and takes the time of every kernel. What is expected is for as many threads as a run has, and, where
/// rates of the processor are known, for the processor as it is: at these rates or at those that it has behind the runs, whichever are better (kernels are
/// told by their least times, too), and as much longer as other programs make work of the same length that is done between the runs; for all programs
/// alike, so that they can be compared. The plan may have been made for more threads, so that results do not hang on their number, and for a device as it
/// should be.
pub fn measure_in_turns(
    subjects: &[Subject<'_>],
    plan: &PlanOptions,
    rates: Option<&Rates>,
    inputs: &NamedTensors,
    runs: usize,
) -> Result<Vec<Profile>> {
    let mut profiles: Vec<Profile> = subjects.iter().map(|subject| unmeasured(*subject, plan)).collect();
    let sessions: Option<Vec<_>> = subjects.iter().map(|subject| subject.session()).collect();
    let expected_us = match sessions {
        Some(sessions) => on_processor(&sessions, subjects, plan, rates, inputs, runs, &mut profiles)?,
        None => {
            let each = subjects.iter().zip(&mut profiles);
            each.map(|(subject, profile)| on_gpu(*subject, plan, inputs, runs, profile)).collect::<Result<_>>()?
        }
    };
    for (profile, expected_us) in profiles.iter_mut().zip(expected_us) {
        profile.kernels.iter_mut().zip(expected_us).for_each(|(kernel, us)| kernel.expected_us = us);
    }
    Ok(profiles)
}

impl<'s> Subject<'s> {
    /// What runs it, if that is the processor.
    fn session(self) -> Option<&'s fuseline_cpu::run::Session> {
        match self.program {
            Program::Cpu(session) => Some(session),
            Program::Cuda(_) => None,
        }
    }

    /// The plan of as many threads as a run has.
    fn scaled(self, plan: &PlanOptions) -> PlanOptions {
        match self.session() {
            Some(session) => PlanOptions { spec: plan.spec.scaled(session.threads(), &[]), ..plan.clone() },
            None => plan.clone(),
        }
    }
}

/// The kernels of a program, without a time.
fn unmeasured(subject: Subject<'_>, plan: &PlanOptions) -> Profile {
    let planned = subject.planned;
    let kernels = &planned.run.kernels;
    let is_equal = |k: usize, other: usize| Arc::ptr_eq(&kernels[k].kernel, &kernels[other].kernel);
    let model = |k: usize| (0..k).find(|other| is_equal(k, *other)).unwrap_or(k);
    let rows = kernel_rows(planned.program.run(), &planned.run, &subject.scaled(plan)).into_iter().enumerate();
    let kernel = |(k, row)| Measured { row, expected_us: 0.0, model: model(k), phases: Vec::new() };
    Profile { kernels: rows.map(kernel).collect(), fastest: Vec::new() }
}

/// Measures kernels on the processor; how long those of every program are expected to take.
fn on_processor(
    sessions: &[&fuseline_cpu::run::Session],
    subjects: &[Subject<'_>],
    plan: &PlanOptions,
    rates: Option<&Rates>,
    inputs: &NamedTensors,
    runs: usize,
    profiles: &mut [Profile],
) -> Result<Vec<Vec<f64>>> {
    let Some(session) = sessions.first() else { return Ok(Vec::new()) };
    let expect_all = |rates: Option<&Rates>| -> Vec<Vec<f64>> {
        subjects.iter().map(|subject| expect(subject.planned, &subject.scaled(plan), rates)).collect()
    };
    let delays = rates.map(|rates| {
        let alone = expect_all(Some(rates));
        let longest = alone.iter().flatten().copied().fold(0.0, f64::max);
        let all = alone.iter().map(|kernels| kernels.iter().sum()).fold(0.0, f64::max);
        Delays::new(session.gauge().quick(), longest * 1e-6, all * 1e-6)
    });
    let mut delays = delays.transpose()?;
    for _ in 0..runs {
        for (session, profile) in sessions.iter().zip(&mut *profiles) {
            let (_, spans) = session.run_recorded(inputs)?;
            profile.keep(spans);
        }
        if let Some(delays) = &mut delays {
            delays.take();
        }
    }
    let late = rates.and_then(|rates| Some(Rates::of(session.gauge()).ok()?.or_faster(rates)));
    let mut expected_us = expect_all(late.as_ref().or(rates));
    if let Some(delays) = delays {
        let rate = late.as_ref().or(rates).map_or(f64::NAN, |rates| rates.vectors * 1e9);
        let kernels = profiles.iter().flat_map(|profile| &profile.kernels);
        for (us, kernel) in expected_us.iter_mut().flatten().zip(kernels) {
            *us *= delay(&delays, rate, *us, kernel);
        }
    }
    Ok(expected_us)
}

/// Measures kernels on a GPU; how long they are expected to take.
fn on_gpu(
    subject: Subject<'_>,
    plan: &PlanOptions,
    inputs: &NamedTensors,
    runs: usize,
    profile: &mut Profile,
) -> Result<Vec<f64>> {
    let Program::Cuda(session) = subject.program else {
        return Err(Error::bug("programs of several devices are measured together"));
    };
    let launches = session.profile(inputs, runs)?;
    let between = || Error::unsupported("the time of single kernels where the host stands between them");
    for launch in launches.ok_or_else(between)? {
        let name = if launch.resources.is_none() { "cuBLASLt".into() } else { launch.name.into() };
        let phase = Phase { name: Some(name), us: launch.us, resources: launch.resources };
        profile.kernels[launch.kernel].phases.push(phase);
    }
    // How a kernel is cut into launches, only those know that print them.
    let predicted = session.predict(inputs, &plan.spec)?;
    let both = expect(subject.planned, plan, None).into_iter().zip(predicted);
    Ok(both.map(|(expected, us)| us.unwrap_or(expected)).collect())
}

/// How many times as long a kernel took that takes so many microseconds where vectors do so many operations in a second. Least times are those of its
/// phases: each has its part of them.
fn delay(delays: &Delays, rate: f64, us: f64, kernel: &Measured) -> f64 {
    let all = kernel.us();
    let parts = kernel.phases.iter().map(|phase| phase.us / all).filter(|part| *part > 0.0);
    parts.map(|part| part * delays.of(us * part * 1e-6, rate)).reduce(|sum, part| sum + part).unwrap_or(1.0)
}

/// How long every kernel is expected to take, in microseconds, with all that is done: on a device as it is planned for, or at rates that were measured.
fn expect(planned: &PlannedProgram, plan: &PlanOptions, rates: Option<&Rates>) -> Vec<f64> {
    let spec = rates.map_or_else(|| plan.spec.clone(), |rates| rates.on(&plan.spec));
    let options = PlanOptions { spec, ..plan.clone() };
    let (graph, kernels) = (planned.program.run(), &planned.run.kernels);
    let bytes: f64 = kernels.iter().map(|kernel| kernel.work.footprint()).sum();
    kernels.iter().map(|kernel| expected(graph, kernel, &options, bytes).us).collect()
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
