//! `fuseline bench`: what fusion gains, measured.

pub mod contender;
pub mod profile;
mod report;
mod sweep;

use std::time::{Duration, Instant};

use fuseline::compile::plan_program;
use fuseline::device::NamedTensors;
use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline::graph::Graph;
use fuseline_session::plan::size_list;
use serde_json::{Value, json};

use crate::arguments::{Bench, Only, SizeBinding};
use crate::ceiling::{self, Ceiling};
use crate::device::{Means, bind_sizes};
use crate::failure::{Failure, Outcome};
use crate::feed::{self, Feed};
use crate::given_sizes;
use crate::load::{self, Load};
use crate::machine;
use crate::model::Model;
use crate::screen;
use crate::waiting::Waiting;
use crate::written_plan::{PlanWishes, WrittenPlan};

pub use contender::{Contender, Kind};
use profile::Profile;
use sweep::Line;

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
    let named = given_sizes::named(&arguments.sizes, &model.free_sizes(), "model")?;
    let all = given_sizes::several(named)?;
    let mut sweep = Sweep { model, arguments, written, plan, opened, all, values: Vec::new(), lines: Vec::new() };
    sweep.check()?;
    let measured = sweep.measure();
    // What was measured is told, also where a later size fails.
    sweep.tell().and(measured)
}

/// A model at some sizes, and what was measured of them.
struct Sweep<'a> {
    model: Model,
    arguments: &'a Bench,
    written: Option<WrittenPlan>,
    plan: PlanOptions,
    /// how long the file took to open
    opened: Duration,
    /// the sizes that were given, one set after another
    all: Vec<Vec<(String, i64)>>,
    /// what was measured, where that is told as JSON
    values: Vec<Value>,
    /// what was measured, where it is not
    lines: Vec<Line>,
}

impl Sweep<'_> {
    fn feed(&self, given: &[(String, i64)]) -> Outcome<Feed> {
        let sizes: Vec<SizeBinding> =
            given.iter().map(|(name, size)| SizeBinding { name: Some(name.clone()), size: *size }).collect();
        feed::assemble(&self.model, &self.arguments.inputs, &sizes, self.arguments.seed)
    }

    fn failed(&self, feed: &Feed, error: Error) -> Failure {
        match &self.written {
            Some(plan) => plan.failed(error.into()),
            None => feed.failed(&self.model, error),
        }
    }

    /// Before any of several sizes is measured, which may take long: the model takes all of them, and the written plan fits.
    fn check(&self) -> Outcome {
        if self.all.len() < 2 {
            return Ok(());
        }
        for given in &self.all {
            let feed = self.feed(given)?;
            let fits = self.model.with_graph(&feed.tensors, |graph, inputs| {
                if self.written.is_none() || matches!(self.arguments.only, Some(Only::Unfused)) {
                    return Ok(());
                }
                let mut plan = self.plan.clone();
                bind_sizes(graph, &inputs, &mut plan.hints.env);
                plan_program(graph.clone(), &plan, &mut |_| {}).map(drop)
            });
            let sizes = || format!("--sizes {}", size_list(given));
            fits.map_err(|error| self.failed(&feed, error.at(sizes())))?;
        }
        Ok(())
    }

    fn measure(&mut self) -> Outcome {
        let mut ceiling = None;
        let load = load::tell(self.arguments.device);
        for (k, given) in self.all.clone().iter().enumerate() {
            let feed = self.feed(given)?;
            let contest = {
                let of_all =
                    if self.all.len() > 1 { format!(", {} of {}", k + 1, self.all.len()) } else { String::new() };
                let waiting = Waiting::for_(&format!("measuring {}{of_all}", self.model.name));
                if self.all.len() > 1 {
                    forget_most_memory();
                }
                let held = self.model.with_graph(&feed.tensors, |graph, inputs| {
                    Contest::hold(graph, &inputs, &self.plan, self.arguments, ceiling.as_ref(), &waiting)
                });
                held.map_err(|error| self.failed(&feed, error))?
            };
            ceiling = Some(contest.ceiling.clone());
            let (model, arguments, plan, opened) = (&self.model, self.arguments, &self.plan, self.opened);
            let measured = Measured { model, arguments, plan, feed: &feed, given, opened, load, contest };
            match arguments.json {
                true => self.values.push(report::to_json(&measured)),
                false => {
                    let blank = if k > 0 { "\n" } else { "" };
                    screen::print(&format!("{blank}{}", report::to_text(&measured)))?;
                    self.lines.push(Line::of(&measured));
                }
            }
        }
        Ok(())
    }

    fn tell(&self) -> Outcome {
        match (self.values.as_slice(), self.all.len()) {
            ([], _) if self.lines.len() > 1 => screen::print(&sweep::to_text(&self.lines)),
            ([], _) => Ok(()),
            // What was asked for once is told as it always was.
            ([only], 1) => screen::print_json(only),
            (values, _) => screen::print_json(&json!({ "sweep": values })),
        }
    }
}

/// Everything that was measured, and how.
struct Measured<'a> {
    model: &'a Model,
    arguments: &'a Bench,
    plan: &'a PlanOptions,
    feed: &'a Feed,
    /// the sizes that were given
    given: &'a [(String, i64)],
    /// how long the file took to open
    opened: Duration,
    /// other work on the machine
    load: Option<Load>,
    contest: Contest,
}

/// Plans of one graph, run in turns.
struct Contest {
    contenders: Vec<Contender>,
    threads: usize,
    /// what the machine can do at most
    ceiling: Ceiling,
    /// the most memory that the process had, after the first contender had run
    peak_bytes: Option<u64>,
    /// where the time of the first contender goes, if that was asked for
    profile: Option<Profile>,
}

impl Contest {
    /// Holds it; what the machine can do is measured afterwards, unless it is known.
    fn hold(
        graph: &Graph,
        inputs: &NamedTensors,
        plan: &PlanOptions,
        arguments: &Bench,
        known: Option<&Ceiling>,
        waiting: &Waiting,
    ) -> Result<Contest> {
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
        let (warmup, mut runs) = (arguments.warmup.max(1), 0);
        let all = warmup.saturating_add(arguments.iters.get()).saturating_mul(kinds.len());
        let mut count = || {
            runs += 1;
            waiting.done(runs, all);
        };
        for kind in kinds {
            let mut contender = Contender::prepare(*kind, graph, &plan, &device)?;
            for _ in 0..warmup {
                contender.run(inputs)?;
                count();
            }
            contender.times.clear();
            contenders.push(contender);
            peak_bytes = peak_bytes.or_else(most_memory);
        }
        // In turns, so that what disturbs the machine disturbs all alike.
        for _ in 0..arguments.iters.get() {
            for contender in &mut contenders {
                contender.run(inputs)?;
                count();
            }
        }
        contenders.iter_mut().for_each(|contender| contender.times.sort_unstable());
        let runs = arguments.iters.get();
        let units = contenders.first().and_then(|first| ceiling::matrices(&first.planned.run, &plan.spec));
        let ceiling = match known {
            Some(ceiling) => ceiling.clone(),
            None => Ceiling::of(arguments.device, device.threads(), &plan.spec, units),
        };
        let profile = match contenders.first().filter(|_| arguments.kernels) {
            Some(first) => Some(first.profile(&plan, ceiling.rates(), inputs, runs)?),
            None => None,
        };
        Ok(Contest { contenders, threads: device.threads(), ceiling, peak_bytes, profile })
    }

    fn find(&self, kind: Kind) -> Option<&Contender> {
        self.contenders.iter().find(|contender| contender.kind == kind)
    }
}

/// Counts the most memory from now on: what was had before, for other sizes, does not count. Where the system does not do that, it does.
fn forget_most_memory() {
    let _ = std::fs::write("/proc/self/clear_refs", "5");
}

/// The most memory that this process had at one time, where the system tells.
fn most_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}
