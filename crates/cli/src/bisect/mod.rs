//! `fuseline bisect`: the one decision that makes a result wrong, or a model slower.

mod again;
mod case;
mod report;

use std::ffi::OsStr;
use std::sync::Arc;

use fuseline::bisect::{Found, Guilty, Ladder};
use fuseline::compare::Meaning;
use fuseline::compile::{PlannedProgram, plan_simplified, simplified};
use fuseline::device::NamedTensors;
use fuseline::error::{Kind, Result};
use fuseline::explain::{DecisionRow, Explanation};
use fuseline::fuse::PlanOptions;
use fuseline::graph::Graph;
use fuseline::passes::{Numerics, Precision};
use fuseline::reference::{self, Limits};
use fuseline::run::Case;
use fuseline::tensor::Literal;
use rustc_hash::FxHashMap;

use crate::arguments::{Bisect, Metric};
use crate::deadline::Deadline;
use crate::device::{Means, bind_sizes};
use crate::failure::{Failure, Outcome};
use crate::feed;
use crate::file;
use crate::machine::{self, Machine};
use crate::model::Model;
use crate::screen;
use crate::target;
use crate::verify;
use crate::waiting::Waiting;

/// Looks for the guilty decision of a model.
pub fn bisect(arguments: &Bisect) -> Outcome {
    let _deadline = Deadline::within(&arguments.time);
    file::check_folder(&arguments.case)?;
    let model = Model::open(&arguments.model, arguments.dtype, &arguments.limits)?;
    let feed = feed::assemble(&model, &arguments.inputs, &arguments.sizes, arguments.seed)?;
    let numerics = arguments.numerics.map_or(Numerics::Default, |numerics| numerics.numerics());
    let target = arguments.target.as_deref().unwrap_or(OsStr::new(arguments.device.target()));
    let precision = arguments.precision.precision(numerics)?;
    let plan = PlanOptions {
        numerics,
        precision,
        budget: arguments.limits.budget_of_each(),
        ..PlanOptions::on(&target::find(target)?)
    };
    let means = Means { options: arguments.limits.exact_run(), threads: arguments.threads };
    let waiting = Waiting::for_(&format!("planning {}", model.name));
    let searched = model.with_graph(&feed.tensors, |graph, inputs| {
        let mut plan = plan.clone();
        bind_sizes(graph, &inputs, &mut plan.hints.env);
        let machine = machine::open(arguments.device, plan.clone(), &means)?;
        let search = Search { plan: &plan, machine: &machine, inputs: &inputs, waiting: &waiting };
        search.conduct(graph, arguments)
    });
    drop(waiting);
    let outcome = searched.map_err(|error| feed.failed(&model, error))?;
    let is_error = arguments.metric == Metric::Error;
    let written = match &outcome.guilt {
        Some(guilt) => Some(case::write(&arguments.case, guilt, &|case, planned, options| match is_error {
            true => is_wrong_again(case, &machine::open(arguments.device, options.clone(), &means)?, planned, numerics),
            // What takes long was measured in the whole plan.
            false => Ok(true),
        })?),
        None => {
            if case::holds_a_case(&arguments.case) {
                let folder = arguments.case.display();
                screen::tell(&format!(
                    "note: {folder} holds what an earlier search found; this one writes nothing there"
                ));
            }
            None
        }
    };
    match arguments.json {
        true => screen::print_json(&report::to_json(&model, arguments, &outcome, written.as_ref()))?,
        false => screen::print(&report::to_text(&model, arguments, &feed.assumed, &outcome, written.as_ref()))?,
    }
    match outcome.guilt.is_some() || outcome.before.is_some() {
        true => Err(Failure::Differs),
        false => Ok(()),
    }
}

/// What the outputs of a graph, or of a part of one, may be.
fn right(meaning: Meaning, numerics: Numerics) -> Result<Meaning> {
    match numerics {
        Numerics::Strict => meaning.as_written(),
        numerics => verify::or_read(meaning, numerics),
    }
}

/// Whether a kernel that was planned by itself stores what is wrong, as it did in its plan.
fn is_wrong_again(case: &Case<'_>, machine: &Machine, planned: &PlannedProgram, numerics: Numerics) -> Result<bool> {
    let meaning = right(case.meaning(Limits::default())?, numerics)?;
    let inputs = case.graph.inputs().iter().map(|value| case.graph.input_name(*value).clone());
    let inputs: NamedTensors = inputs.map(|name| (name.clone(), case.inputs[&name].clone())).collect();
    match machine.load(planned).and_then(|program| program.literals(&inputs)) {
        Ok(outputs) => Ok(meaning.check(&outputs).is_err()),
        Err(error) if error.kind() == Kind::Bug => Ok(true),
        Err(error) => Err(error),
    }
}

/// What was found.
pub struct Searched {
    /// how many plans were looked at
    pub plans: usize,
    /// how many decisions there are
    pub decisions: usize,
    /// where it is so without any decision: who is to blame then
    pub before: Option<String>,
    pub guilt: Option<Guilt>,
}

/// The guilty decision, and what shows it.
pub struct Guilt {
    pub guilty: Guilty,
    /// the decision in words, where it is about what is run every time
    pub row: Option<DecisionRow>,
    /// how the plans differ: what is wrong, or milliseconds before and after
    pub evidence: Evidence,
    /// the same of the whole plan without this one decision; none where it is not known by a name
    pub without: Option<Evidence>,
    pub options: PlanOptions,
    /// the run of the bad plan, if it gets to its end
    pub trace: Option<fuseline::run::Trace>,
}

/// What a plan was found to be.
#[derive(Clone, Debug)]
pub enum Evidence {
    /// everything agrees
    Right,
    /// why something does not
    Wrong(String),
    /// milliseconds before and after the decision
    Times(f64, f64),
    /// milliseconds of the whole plan with every decision but this one, and with all of them
    Whole(f64, f64),
}

/// How many plans of so many decisions a search looks at, at most: both ends, and those between which it halves, or cuts into eighths.
fn most_plans(metric: Metric, decisions: usize) -> usize {
    let rounds = |pieces: usize| {
        let left = std::iter::successors(Some(decisions), |left| (*left > 1).then(|| left.div_ceil(pieces)));
        left.count().saturating_sub(1)
    };
    2 + match metric {
        Metric::Error => rounds(2),
        Metric::Latency => 7 * rounds(8),
    }
}

struct Search<'a> {
    plan: &'a PlanOptions,
    machine: &'a Machine,
    inputs: &'a NamedTensors,
    waiting: &'a Waiting,
}

impl Search<'_> {
    fn conduct(&self, graph: &Graph, arguments: &Bisect) -> Result<Searched> {
        let simple = simplified(graph.clone(), self.plan, &mut |_| {})?;
        let ladder = Ladder { graph: &simple, options: self.plan };
        let decisions = ladder.top()?.1;
        let most = most_plans(arguments.metric, decisions);
        let mut plans = 0;
        let mut count = |planned: &PlannedProgram| {
            plans += 1;
            let kernels = planned.run.kernels.len();
            self.waiting.say(format!("plan {plans} of at most {most}, {kernels} kernels"));
            self.waiting.done(plans - 1, most);
        };
        let found = match arguments.metric {
            Metric::Error => {
                let judge = self.judge(graph)?;
                ladder.first_bad(&mut |planned| {
                    count(planned);
                    self.wrong(planned, &judge).map(|wrong| wrong.is_some())
                })?
            }
            Metric::Latency => ladder.steepest(arguments.above / 100.0, &mut |planned| {
                count(planned);
                self.milliseconds(planned, arguments.iters.get())
            })?,
        };
        let before = match found {
            Found::Before => Some(self.blame_without_decisions(graph, arguments)?),
            Found::Nothing | Found::Guilty(_) => None,
        };
        let guilt = match found {
            Found::Guilty(guilty) => self.guilt(graph, &simple, *guilty, arguments)?,
            Found::Nothing | Found::Before => None,
        };
        Ok(Searched { plans, decisions, before, guilt })
    }

    /// The stage that is wrong in the plan that takes no decision.
    fn blame_without_decisions(&self, graph: &Graph, arguments: &Bisect) -> Result<String> {
        let plan = PlanOptions { fuel: Some(0), ..self.plan.clone() };
        let Search { machine, inputs, waiting, .. } = *self;
        let verdict =
            verify::judge(&verify::Setting { graph, inputs, plan: &plan, machine, device: arguments.device, waiting })?;
        Ok(verify::blame(&verdict)
            .unwrap_or_else(|| "nobody, when looked at again: runs differ from each other".into()))
    }

    /// What outputs are compared with.
    fn judge(&self, graph: &Graph) -> Result<Meaning> {
        self.waiting.say("the reference".into());
        let mut given: FxHashMap<Arc<str>, Literal> =
            self.inputs.iter().map(|(name, x)| (name.clone(), x.clone())).collect();
        if self.plan.precision == Precision::F32 {
            let meaning = Meaning::of(graph, &given, Limits::default())?;
            return right(meaning, self.plan.numerics);
        }
        // The graph that has the roundings that were asked for.
        let planned = plan_simplified(simplified(graph.clone(), self.plan, &mut |_| {})?, self.plan, &mut |_| {})?;
        let prepare = planned.program.prepare();
        let prepared = reference::evaluate(prepare, &FxHashMap::default(), &reference::Options::default())?;
        given.extend(prepare.outputs().iter().map(|output| output.name.clone()).zip(prepared));
        Meaning::of(planned.program.run(), &given, Limits::default())
    }

    /// What is wrong with the outputs of a plan; a plan that does not get to its end is wrong too.
    fn wrong(&self, planned: &PlannedProgram, meaning: &Meaning) -> Result<Option<String>> {
        let outputs = self.machine.load(planned).and_then(|program| program.literals(self.inputs));
        match outputs {
            Ok(outputs) => Ok(meaning.check(&outputs).err().map(|(k, mismatch)| {
                let name = planned.program.run().outputs().get(k).map_or(String::new(), |o| o.name.to_string());
                format!("output {name}: {mismatch}")
            })),
            Err(error) if error.kind() == Kind::Bug => Ok(Some(error.to_string())),
            Err(error) => Err(error),
        }
    }

    /// The fastest of some runs.
    fn milliseconds(&self, planned: &PlannedProgram, iters: usize) -> Result<f64> {
        Ok(self.in_turns(&[planned], iters)?[0])
    }

    /// The fastest of some runs of every plan, in turns, so that what disturbs the machine disturbs all alike.
    fn in_turns(&self, plans: &[&PlannedProgram], iters: usize) -> Result<Vec<f64>> {
        let programs = plans.iter().map(|planned| self.machine.load(planned)).collect::<Result<Vec<_>>>()?;
        let mut best = vec![f64::INFINITY; programs.len()];
        for run in 0..=iters {
            for (program, best) in programs.iter().zip(&mut best) {
                let ms = program.time(self.inputs)?.as_secs_f64() * 1e3;
                // the first one is a warm-up
                *best = if run == 0 { *best } else { best.min(ms) };
            }
        }
        Ok(best)
    }

    /// Looks at both plans again, in turns, and at the whole plan without the decision; nothing where it was chance.
    fn guilt(&self, graph: &Graph, simple: &Graph, guilty: Guilty, arguments: &Bisect) -> Result<Option<Guilt>> {
        self.waiting.say("looking at the decision".into());
        let plan = |options: &PlanOptions| plan_simplified(simple.clone(), options, &mut |_| {});
        let without = guilty.decision.map(|id| {
            let mut options = self.plan.clone();
            options.pins.apart.insert(id);
            plan(&options)
        });
        let without = without.transpose()?;
        let (evidence, without) = match arguments.metric {
            Metric::Error => {
                let meaning = self.judge(graph)?;
                let wrong = |planned: &PlannedProgram| -> Result<Evidence> {
                    Ok(self.wrong(planned, &meaning)?.map_or(Evidence::Right, Evidence::Wrong))
                };
                (wrong(&guilty.bad)?, without.as_ref().map(wrong).transpose()?)
            }
            Metric::Latency => {
                let whole = without.as_ref().map(|_| plan(self.plan)).transpose()?;
                let plans: Vec<_> = [&guilty.good, &guilty.bad].into_iter().chain(&without).chain(&whole).collect();
                let iters = arguments.iters.get();
                // What is so by chance is not so twice.
                let halves = [self.in_turns(&plans, iters)?, self.in_turns(&plans, iters)?];
                let is_slower = |least: &Vec<f64>| least[1] > least[0] * (1.0 + arguments.above / 100.0);
                if !halves.iter().all(is_slower) {
                    return Ok(None);
                }
                let least: Vec<f64> = halves[0].iter().zip(&halves[1]).map(|(a, b)| a.min(*b)).collect();
                let whole = least.get(2).zip(least.get(3)).map(|(without, with)| Evidence::Whole(*without, *with));
                (Evidence::Times(least[0], least[1]), whole)
            }
        };
        let explanation = Explanation::of(&guilty.bad, self.plan)?;
        let row = explanation.decisions.into_iter().find(|row| Some(row.id) == guilty.decision);
        let traced = self.machine.load(&guilty.bad).and_then(|program| program.run_traced(self.inputs));
        Ok(Some(Guilt { guilty, row, evidence, without, options: self.plan.clone(), trace: traced.ok() }))
    }
}

#[cfg(test)]
mod tests {
    use fuseline::fuse::Verdict;
    use fuseline::gallery;
    use fuseline::tensor::{DType, Symbol};
    use fuseline::tile;

    use super::*;
    use crate::arguments::Measuring;

    #[test]
    fn searches_look_at_no_more_plans_than_is_told() {
        assert_eq!([0, 1, 2, 3, 8, 9].map(|n| most_plans(Metric::Error, n)), [2, 2, 3, 4, 5, 6]);
        assert_eq!([1, 2, 8, 9, 64, 65].map(|n| most_plans(Metric::Latency, n)), [2, 9, 9, 16, 16, 23]);
    }

    #[test]
    fn a_kernel_that_is_wrong_becomes_a_case() {
        let graph = gallery::find("layernorm_gelu").unwrap().graph(DType::F32).unwrap();
        let mut plan = PlanOptions::on(&target::find("cpu").unwrap_or_else(|_| panic!("cpu is known")));
        plan.hints.env = [(Symbol::name("rows"), 4), (Symbol::name("columns"), 24)].into_iter().collect();
        let mut dice = feed::Dice::new(1, Limits::default().bytes);
        let inputs = graph.inputs().iter().map(|value| {
            let sizes = graph.ty(*value).shape.eval(&plan.hints.env).unwrap();
            (graph.input_name(*value).clone(), dice.draw(DType::F32, sizes, false).unwrap())
        });
        let inputs: NamedTensors = inputs.collect();
        let means = Means { options: reference::Options::default(), threads: None };
        let machine = machine::open(Measuring::Cpu, plan.clone(), &means).unwrap();
        let waiting = Waiting::for_("");
        let search = Search { plan: &plan, machine: &machine, inputs: &inputs, waiting: &waiting };
        let simple = simplified(graph.clone(), &plan, &mut |_| {}).unwrap();
        let ladder = Ladder { graph: &simple, options: &plan };
        let meaning = search.judge(&graph).unwrap();
        // A wrong rule: whatever it makes of the last two nodes stores something else.
        let broken = |planned: &PlannedProgram| {
            let mut planned = planned.clone();
            let last = planned.run.decisions.iter().rfind(|d| d.verdict == Verdict::Taken && d.edges.len() == 1);
            let edge = last.and_then(|decision| decision.edges.first().copied());
            for kernel in &mut planned.run.kernels {
                if edge.is_some_and(|(from, to)| kernel.members.contains(&from) && kernel.members.contains(&to)) {
                    let text = kernel.kernel.to_string();
                    let store = text.lines().find(|line| line.contains("store ")).unwrap();
                    let (place, value) = store.split_once(" = ").unwrap();
                    let other = format!("  %wrong = map({value}) a * a + 1.0\n{place} = %wrong");
                    kernel.kernel = Arc::new(tile::parse(&text.replacen(store, &other, 1)).unwrap());
                }
            }
            planned
        };
        let found = ladder.first_bad(&mut |planned| Ok(search.wrong(&broken(planned), &meaning)?.is_some())).unwrap();
        let Found::Guilty(mut guilty) = found else { panic!("{found:?}") };
        assert!(guilty.decision.is_some());
        guilty.bad = broken(&guilty.bad);
        let trace = machine.load(&guilty.bad).unwrap().run_traced(&inputs).ok();
        let evidence = Evidence::Wrong(search.wrong(&guilty.bad, &meaning).unwrap().unwrap());
        let guilt = Guilt { guilty: *guilty, row: None, evidence, without: None, options: plan.clone(), trace };
        let folder = tempfile::tempdir().unwrap();
        let written = case::write(&folder.path().join("case"), &guilt, &|_, _, _| Ok(true))
            .unwrap_or_else(|_| panic!("it is written"));
        let [graph, _, plan, tile] = written
            .kernel
            .unwrap_or_else(|why| panic!("{why}"))
            .map(|path| std::fs::read_to_string(path).unwrap_or_default());
        assert!(graph.contains("return y0") && plan.starts_with("fuseline plan 1"), "{graph}\n{plan}");
        assert!(tile.contains("a * a + 1.0"), "{tile}");
        // Nothing is called a case that is right.
        let none = case::write(&folder.path().join("none"), &guilt, &|_, _, _| Ok(false));
        let why = none.unwrap_or_else(|_| panic!("it is written")).kernel.err();
        assert!(why.is_some_and(|why| why.contains("is right")) && !folder.path().join("none/kernel.ir").exists());
        let [good, bad] = written.plans.map(|path| std::fs::read_to_string(path).unwrap());
        assert_ne!(good, bad);
    }
}
