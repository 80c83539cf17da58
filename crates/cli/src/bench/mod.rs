//! `fuseline bench`: what fusion gains, measured.

pub mod contender;
pub mod profile;
mod report;

use std::time::{Duration, Instant};

use fuseline::device::NamedTensors;
use fuseline::error::Result;
use fuseline::fuse::PlanOptions;
use fuseline::graph::Graph;

use crate::arguments::{Bench, Only};
use crate::device::{Means, bind_sizes};
use crate::failure::Outcome;
use crate::feed::{self, Feed};
use crate::machine;
use crate::model::Model;
use crate::screen;
use crate::waiting::Waiting;
use crate::written_plan::{PlanWishes, WrittenPlan};

pub use contender::{Contender, Kind};
use profile::Profile;

/// Measures a model.
pub fn bench(arguments: &Bench) -> Outcome {
    let written = arguments.plan.as_deref().map(WrittenPlan::read).transpose()?;
    let start = Instant::now();
    let model = Model::open(&arguments.model, arguments.dtype, &arguments.limits)?;
    let opened = start.elapsed();
    let budget = &arguments.limits.budget_of_each();
    let wishes = PlanWishes {
        target: arguments.target.as_deref(),
        usual: arguments.device.target(),
        numerics: arguments.numerics.map(|numerics| numerics.numerics()),
        precision: arguments.precision,
        budget,
    };
    let plan = WrittenPlan::options(written.as_ref(), &wishes)?;
    let feed = feed::assemble(&model, arguments.inputs.as_deref(), &arguments.sizes, arguments.seed)?;
    let contest = {
        let _waiting = Waiting::unless(arguments.quiet, &format!("measuring {}", model.name));
        let held = model.with_graph(&feed.tensors, |graph, inputs| Contest::hold(graph, &inputs, &plan, arguments));
        held.map_err(|error| match &written {
            Some(plan) => plan.failed(error.into()),
            None => feed.failed(error),
        })?
    };
    let measured = Measured { model: &model, arguments, plan: &plan, feed: &feed, opened, contest };
    if arguments.quiet {
        return Ok(());
    }
    if arguments.json {
        return screen::print_json(&report::to_json(&measured));
    }
    screen::print(&report::to_text(&measured))
}

/// Everything that was measured, and how.
struct Measured<'a> {
    model: &'a Model,
    arguments: &'a Bench,
    plan: &'a PlanOptions,
    feed: &'a Feed,
    /// how long the file took to open
    opened: Duration,
    contest: Contest,
}

/// Plans of one graph, run in turns.
struct Contest {
    contenders: Vec<Contender>,
    threads: usize,
    /// the most memory that the process had, after the first contender had run
    peak_bytes: Option<u64>,
    /// where the time of the first contender goes, if that was asked for
    profile: Option<Profile>,
}

impl Contest {
    fn hold(graph: &Graph, inputs: &NamedTensors, plan: &PlanOptions, arguments: &Bench) -> Result<Contest> {
        let mut plan = plan.clone();
        bind_sizes(graph, inputs, &mut plan.hints.env);
        let means = Means { options: arguments.limits.exact_run(), threads: arguments.threads };
        let device = machine::open(arguments.device, plan.clone(), &means)?;
        let kinds: &[Kind] = match arguments.only {
            None => &[Kind::Fused, Kind::PerNode, Kind::PerPrimitive],
            Some(Only::Fused) => &[Kind::Fused],
            Some(Only::Unfused) => &[Kind::PerNode, Kind::PerPrimitive],
        };
        let mut contenders = Vec::with_capacity(kinds.len());
        let mut peak_bytes = None;
        for kind in kinds {
            let mut contender = Contender::prepare(*kind, graph, &plan, &device)?;
            for _ in 0..arguments.warmup.max(1) {
                contender.run(inputs)?;
            }
            contender.times.clear();
            contenders.push(contender);
            peak_bytes = peak_bytes.or_else(most_memory);
        }
        // In turns, so that what disturbs the machine disturbs all alike.
        for _ in 0..arguments.iters.get() {
            for contender in &mut contenders {
                contender.run(inputs)?;
            }
        }
        contenders.iter_mut().for_each(|contender| contender.times.sort_unstable());
        let runs = arguments.iters.get();
        let profile = match contenders.first().filter(|_| arguments.kernels) {
            Some(first) => Some(first.profile(&plan, inputs, runs)?),
            None => None,
        };
        Ok(Contest { contenders, threads: device.threads(), peak_bytes, profile })
    }

    fn find(&self, kind: Kind) -> Option<&Contender> {
        self.contenders.iter().find(|contender| contender.kind == kind)
    }
}

/// The most memory that this process had at one time, where the system tells.
fn most_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
