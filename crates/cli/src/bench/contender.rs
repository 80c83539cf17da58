//! A plan that is measured.

use std::time::{Duration, Instant};

use fuseline::compile::{Grain, PlannedProgram, plan_apart, plan_program};
use fuseline::device::NamedTensors;
use fuseline::error::Result;
use fuseline::fuse::{Cost, PlanOptions};
use fuseline::graph::Graph;
use fuseline_session::plan::{PER_NODE, PER_PRIMITIVE};
use fuseline_session::rates::Rates;

use super::profile::{self, Profile, Subject};
use crate::machine::{Machine, Session};

/// Which plan it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Fused,
    PerNode,
    PerPrimitive,
}

impl Kind {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Kind::Fused => "fused",
            Kind::PerNode => "per_node",
            Kind::PerPrimitive => "per_primitive",
        }
    }

    /// What it is, for people.
    pub fn title(self) -> &'static str {
        match self {
            Kind::Fused => "fused",
            Kind::PerNode => PER_NODE,
            Kind::PerPrimitive => PER_PRIMITIVE,
        }
    }
}

/// A plan that is measured.
pub struct Contender {
    pub kind: Kind,
    session: Session,
    /// the plan
    pub planned: PlannedProgram,
    /// passes, the plan, and making its kernels
    pub compiling: Duration,
    /// preparing constants and packing them
    pub loading: Duration,
    /// how long every run took
    pub times: Vec<Duration>,
}

impl Contender {
    /// Plans a graph and makes the plan ready.
    pub fn prepare(kind: Kind, graph: &Graph, plan: &PlanOptions, device: &Machine) -> Result<Contender> {
        let start = Instant::now();
        let planned = match kind {
            Kind::Fused => plan_program(graph.clone(), plan, &mut |_| {})?,
            Kind::PerNode => plan_apart(graph.clone(), plan, Grain::Operator)?,
            Kind::PerPrimitive => plan_apart(graph.clone(), plan, Grain::Primitive)?,
        };
        let planning = start.elapsed();
        let session = device.load(&planned)?;
        let loading = start.elapsed() - planning;
        let making = session.making();
        Ok(Contender {
            kind,
            session,
            planned,
            compiling: planning + making,
            loading: loading.saturating_sub(making),
            times: Vec::new(),
        })
    }

    /// Runs it once and takes the time.
    pub fn run(&mut self, inputs: &NamedTensors) -> Result<()> {
        self.times.push(self.session.time(inputs)?);
        Ok(())
    }

    /// How many kernels the plan has.
    pub fn kernels(&self) -> usize {
        self.planned.run.kernels.len()
    }

    /// What the plan is predicted to cost.
    pub fn cost(&self) -> Cost {
        self.planned.run.cost
    }

    /// Where the time of a run goes.
    pub fn profile(
        &self,
        plan: &PlanOptions,
        rates: Option<&Rates>,
        inputs: &NamedTensors,
        runs: usize,
    ) -> Result<Profile> {
        profile::measure(self.subject(), plan, rates, inputs, runs)
    }

    /// What runs and what it was made of, for who measures its kernels.
    pub fn subject(&self) -> Subject<'_> {
        Subject { program: &self.session, planned: &self.planned }
    }

    /// The most bytes that runs had at one time, besides constants as they came; none where nobody counts.
    pub fn most_bytes(&self) -> Option<usize> {
        match &self.session {
            Session::Cpu(session) => Some(session.most_bytes()),
            Session::Cuda(_) => None,
        }
    }

    /// Kernels that the interpreter runs, each with the reason.
    pub fn interpreted(&self) -> Vec<String> {
        self.session.refused()
    }

    /// The time below which this part of all runs stayed, in milliseconds; `times` must be sorted.
    pub fn quantile_ms(&self, part: f64) -> f64 {
        let last = self.times.len().saturating_sub(1);
        let place = part * last as f64;
        let (low, high) = (place.floor() as usize, place.ceil() as usize);
        let ms = |k: usize| self.times.get(k).map_or(f64::NAN, |time| time.as_secs_f64() * 1e3);
        ms(low) + (ms(high) - ms(low)) * place.fract()
    }

    pub fn median_ms(&self) -> f64 {
        self.quantile_ms(0.5)
    }

    /// Bytes that the plan moves, in GB/s of the median.
    pub fn gbps(&self) -> f64 {
        self.cost().bytes / (self.median_ms() * 1e6)
    }

    /// Arithmetic of the plan, in GFLOP/s of the median.
    pub fn gflops(&self) -> f64 {
        self.cost().flops / (self.median_ms() * 1e6)
    }
}
