//! Runs of the fused plan and of the unfused one, as they went.

use std::time::Duration;

use fuseline::device::NamedTensors;
use fuseline::error::Result;
use fuseline::fuse::PlanOptions;
use fuseline::graph::Graph;
use fuseline_cpu::run::Span;
use serde_json::{Value, json};

use super::data::short;
use crate::bench::contender::{Contender, Kind};
use crate::bench::profile::{Profile, measure_in_turns, median_error};
use crate::ceiling::Ceiling;
use crate::machine::Machine;

/// Runs that come before those that are measured.
const WARM_UP: usize = 3;

/// Both plans, run in turns.
pub struct Measurement {
    fused: Side,
    unfused: Side,
    threads: usize,
}

struct Side {
    contender: Contender,
    /// none where single kernels were not, or cannot be, measured
    profile: Option<Profile>,
}

/// Measures whole runs of a graph on a machine: of the fused plan, and of one with a kernel for every node of the model.
pub fn measure(
    graph: &Graph,
    inputs: &NamedTensors,
    plan: &PlanOptions,
    machine: &Machine,
    runs: usize,
) -> Result<Measurement> {
    let prepare = |kind: Kind| Contender::prepare(kind, graph, plan, machine);
    let mut sides = [prepare(Kind::Fused)?, prepare(Kind::PerNode)?];
    for side in &mut sides {
        for _ in 0..WARM_UP {
            side.run(inputs)?;
        }
        side.times.clear();
    }
    // In turns, so that what disturbs the machine disturbs both alike.
    for _ in 0..runs {
        for side in &mut sides {
            side.run(inputs)?;
        }
    }
    let [fused, unfused] = sides.map(|mut contender| {
        contender.times.sort_unstable();
        Side { contender, profile: None }
    });
    Ok(Measurement { fused, unfused, threads: machine.threads() })
}

impl Measurement {
    /// Measures single kernels as well, where a machine can do that.
    pub fn profile(
        &mut self,
        plan: &PlanOptions,
        ceiling: &Ceiling,
        inputs: &NamedTensors,
        machine: &Machine,
    ) -> Result<()> {
        if matches!(machine, Machine::Cuda(_)) {
            return Ok(());
        }
        let Measurement { fused, unfused, .. } = self;
        let runs = fused.contender.times.len();
        let subjects = [fused.contender.subject(), unfused.contender.subject()];
        let mut profiles = measure_in_turns(&subjects, plan, ceiling.rates(), inputs, runs)?.into_iter();
        (fused.profile, unfused.profile) = (profiles.next(), profiles.next());
        Ok(())
    }

    /// The fused plan with its times.
    pub fn fused(&self) -> &Contender {
        &self.fused.contender
    }

    /// The least time of every kernel of the fused plan, in microseconds.
    pub fn fused_times(&self) -> Option<Vec<f64>> {
        times(&self.fused)
    }

    /// How long every kernel of the fused plan is expected to take, on as many threads as ran, in microseconds.
    pub fn fused_expected(&self) -> Option<Vec<f64>> {
        let profile = self.fused.profile.as_ref()?;
        Some(profile.kernels.iter().map(|kernel| short(kernel.expected_us)).collect())
    }

    /// How long runs of the fused and of the unfused plan are expected to take: the sums of what kernels are, in milliseconds; none where
    /// single kernels were not measured.
    pub fn expected_ms(&self) -> [Option<f64>; 2] {
        let sum = |profile: &Profile| profile.kernels.iter().map(|kernel| kernel.expected_us).sum::<f64>() / 1e3;
        [&self.fused, &self.unfused].map(|side| side.profile.as_ref().map(sum))
    }

    /// The least time of every kernel of the unfused plan.
    pub fn unfused_times(&self) -> Option<Vec<f64>> {
        times(&self.unfused)
    }

    /// The unfused plan with its times.
    pub fn unfused(&self) -> &Contender {
        &self.unfused.contender
    }

    /// What was measured of both plans; `number` is that of a kernel of the fused plan in the report's list.
    pub fn to_json(&self, number: impl Fn(usize) -> usize) -> Value {
        json!({
            "threads": self.threads,
            "fused": side(&self.fused, number),
            "unfused": side(&self.unfused, |kernel| kernel),
        })
    }
}

fn times(side: &Side) -> Option<Vec<f64>> {
    let profile = side.profile.as_ref()?;
    Some(profile.kernels.iter().map(|kernel| short(kernel.us())).collect())
}

fn side(side: &Side, number: impl Fn(usize) -> usize) -> Value {
    let contender = &side.contender;
    let span = |span: &Span| {
        let us = |time: Duration| short(time.as_secs_f64() * 1e6);
        json!([number(span.kernel), us(span.begin), us(span.took), span.phase, span.tasks])
    };
    json!({
        "median_us": short(contender.median_ms() * 1e3),
        "min_us": short(contender.quantile_ms(0.0) * 1e3),
        "runs": contender.times.len(),
        "median_error": side.profile.as_ref().and_then(|profile| median_error(&profile.kernels)).map(short),
        "spans": side.profile.as_ref().map(|profile| profile.fastest.iter().map(span).collect::<Vec<_>>()),
        "most_bytes": contender.most_bytes(),
        "interpreted": contender.interpreted().len(),
    })
}
