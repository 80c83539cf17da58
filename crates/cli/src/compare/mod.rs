//! `fuseline compare`: a model beside other runtimes.

mod report;
mod rivals;

use std::path::Path;
use std::time::{Duration, Instant};

use fuseline::compile::plan_program;
use fuseline::device::NamedTensors;
use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline::graph::{Graph, Node};
use fuseline::ops::Prim;
use fuseline::passes::Numerics;
use fuseline::reference::{self, evaluate};
use fuseline_frontend::Tensors;
use fuseline_session::Output;
use fuseline_session::machine::Given;

use crate::arguments::{Compare, ModelName, RivalName};
use crate::device::{Means, bind_sizes};
use crate::failure::{Failure, Outcome};
use crate::feed::{self, Feed};
use crate::load::{self, Load};
use crate::machine::{self, Session};
use crate::model::{Content, Model};
use crate::screen;
use crate::target;
use crate::waiting::Waiting;

use rivals::{PYTHON, Rivals, State, Task};

/// Measures a model beside others.
pub fn compare(arguments: &Compare) -> Outcome {
    let model = Model::open(&arguments.model, None, &arguments.limits)?;
    let (ModelName::File(path), Content::Onnx(_)) = (&arguments.model, &model.content) else {
        let error = Error::invalid("other runtimes read ONNX files only").at(model.name.clone());
        return Err(Failure::with_help(error, "give an ONNX file; `fuseline bench` measures what is none"));
    };
    let feed = feed::assemble(&model, &arguments.inputs, &arguments.sizes, arguments.seed)?;
    let plan = PlanOptions {
        precision: arguments.precision.precision(Numerics::Default)?,
        budget: arguments.limits.budget_of_each(),
        ..PlanOptions::on(&target::find(arguments.device.target())?)
    };
    let load = load::tell(arguments.device);
    let waiting = Waiting::for_(&format!("opening {}", model.name));
    let contest = model.with_graph(&feed.tensors, |graph, inputs| {
        let mut plan = plan.clone();
        bind_sizes(graph, &inputs, &mut plan.hints.env);
        Contest::hold(&Setting { path, graph, inputs: &inputs, plan: &plan, feed: &feed, arguments, waiting: &waiting })
    });
    drop(waiting);
    let contest = contest.map_err(|error| match error.path() {
        [place, ..] if place == PYTHON => Failure::with_help(error, "install Python, or say with --python where it is"),
        _ => feed.failed(&model, error),
    })?;
    let compared = Compared { model: &model, arguments, feed: &feed, load, contest };
    match arguments.json {
        true => screen::print_json(&report::to_json(&compared)),
        false => screen::print(&report::to_text(&compared)),
    }?;
    compared.all_took_part()
}

impl Compared<'_> {
    /// An error where a rival was asked for by name and is not there: a script that reads the status alone is to know. That one does not
    /// run the model is what a comparison may find.
    fn all_took_part(&self) -> Outcome {
        for (rival, state) in &self.contest.absent {
            if let (true, State::Missing { why, install }) = (self.arguments.asks_for(*rival), state) {
                let error = Error::unsupported(format!("{} was asked for and is missing: {why}", rival.name()));
                let why = "the Python that runs it does not have it";
                return Err(Failure::explained(error, why, format!("install {install} there")));
            }
        }
        Ok(())
    }
}

/// Between turns: threads of who ran last may still be looking for work, and would take the processors from who is next.
const PAUSE: Duration = Duration::from_millis(50);

/// What is compared.
struct Setting<'a> {
    path: &'a Path,
    graph: &'a Graph,
    inputs: &'a NamedTensors,
    plan: &'a PlanOptions,
    feed: &'a Feed,
    arguments: &'a Compare,
    waiting: &'a Waiting,
}

/// What was compared, and how.
struct Compared<'a> {
    model: &'a Model,
    arguments: &'a Compare,
    feed: &'a Feed,
    /// other work on the machine
    load: Option<Load>,
    contest: Contest,
}

/// The contenders, Fuseline first.
struct Contest {
    threads: usize,
    contenders: Vec<Contender>,
    /// rivals that are not there, or do not take the model
    absent: Vec<(RivalName, State)>,
    /// whose outputs errors are taken to; none where there is nobody
    judge: Option<&'static str>,
    /// constants that are drawn from seeds: the file has the structure of a model without its weights
    random_weights: usize,
}

struct Contender {
    name: &'static str,
    version: String,
    /// loading the model and the first run
    seconds: f64,
    outputs: Tensors,
    /// of every run, in milliseconds, sorted at the end
    ms: Vec<f64>,
    error: Option<Difference>,
}

/// How far outputs are from others.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Difference {
    /// the root mean square of what differs, to that of the outputs, over all floats
    rms: f64,
    /// integers and truth values that differ
    unequal: usize,
    /// outputs whose type or sizes differ
    unlike: usize,
}

impl Contest {
    fn hold(setting: &Setting<'_>) -> Result<Contest> {
        let Setting { path, graph, inputs, plan, feed, arguments, waiting } = *setting;
        let mut rivals = Rivals::start(arguments.python.as_deref())?;
        let start = Instant::now();
        let means = Means { options: arguments.limits.exact_run(), threads: arguments.threads };
        let device = machine::open(arguments.device, plan.clone(), &means)?;
        let session = device.load(&plan_program(graph.clone(), plan, &mut |_| {})?)?;
        let names: Vec<&str> = graph.outputs().iter().map(|output| output.name.as_ref()).collect();
        let given = Given::resident(inputs, &device)?;
        let outputs = named(&names, session.run_given(&given)?)?;
        let seconds = start.elapsed().as_secs_f64();
        let version = env!("CARGO_PKG_VERSION").to_string();
        let ours = Contender { name: "fuseline", version, seconds, outputs, ms: Vec::new(), error: None };
        let random_weights = random_weights(graph);
        let mut contest = Contest {
            threads: device.threads(),
            contenders: vec![ours],
            absent: Vec::new(),
            judge: None,
            random_weights,
        };

        let wanted: Vec<&'static str> = arguments.rivals().iter().map(|rival| rival.name()).collect();
        waiting.say(format!("opening it in {}", wanted.join(", ")));
        let precision = plan.precision.name();
        let task = Task {
            model: path,
            feed: &feed.tensors,
            outputs: names,
            device: arguments.device.name(),
            threads: device.threads(),
            precision,
        };
        for (rival, state) in arguments.rivals().iter().zip(rivals.load(&wanted, &task)?) {
            match state {
                State::Ready { version, seconds, outputs } => {
                    let (name, ms) = (rival.name(), Vec::new());
                    contest.contenders.push(Contender { name, version, seconds, outputs, ms, error: None });
                }
                absent => contest.absent.push((*rival, absent)),
            }
        }
        for round in 0..arguments.rounds.get() {
            waiting.say(format!("measuring, round {} of {}", round + 1, arguments.rounds));
            waiting.done(round, arguments.rounds.get());
            contest.round(&session, &given, &mut rivals, arguments.iters.get())?;
        }
        contest.contenders.iter_mut().for_each(|contender| contender.ms.sort_by(f64::total_cmp));
        if arguments.exact {
            waiting.say("evaluating the reference".to_string());
        }
        contest.judge(graph, inputs, arguments.exact)?;
        Ok(contest)
    }

    /// Runs everybody a few times.
    fn round(&mut self, session: &Session, inputs: &Given, rivals: &mut Rivals, iters: usize) -> Result<()> {
        let [ours, others @ ..] = self.contenders.as_mut_slice() else { return Ok(()) };
        std::thread::sleep(PAUSE);
        session.run_given(inputs)?;
        for _ in 0..iters {
            let start = Instant::now();
            session.run_given(inputs)?;
            ours.ms.push(start.elapsed().as_secs_f64() * 1e3);
        }
        for other in others {
            std::thread::sleep(PAUSE);
            other.ms.extend(rivals.time(other.name, iters)?);
        }
        Ok(())
    }

    /// Takes everybody's error to the reference, or to the first rival.
    fn judge(&mut self, graph: &Graph, inputs: &NamedTensors, exact: bool) -> Result<()> {
        let (judge, expected) = match (exact, self.contenders.get(1)) {
            (true, _) => {
                let inputs = inputs.iter().map(|(name, x)| (name.clone(), x.clone())).collect();
                let values = evaluate(graph, &inputs, &reference::Options::default())?;
                let names = graph.outputs().iter().map(|output| output.name.to_string());
                ("reference", names.zip(values).collect())
            }
            (false, Some(first)) => (first.name, first.outputs.clone()),
            (false, None) => return Ok(()),
        };
        self.judge = Some(judge);
        for contender in &mut self.contenders {
            contender.error = Some(difference(&expected, &contender.outputs));
        }
        Ok(())
    }
}

/// How many constants of a graph are drawn from seeds.
fn random_weights(graph: &Graph) -> usize {
    let own = |node: &Node| match node.prim() {
        Prim::Const(constant) => usize::from(constant.literal.as_seeded().is_some()),
        other => other.regions().into_iter().map(|region| random_weights(region)).sum(),
    };
    graph.nodes().iter().map(own).sum()
}

fn named(names: &[&str], outputs: Vec<Output>) -> Result<Tensors> {
    names.iter().zip(outputs).map(|(name, output)| Ok((name.to_string(), output.into_literal()?))).collect()
}

fn difference(expected: &Tensors, actual: &Tensors) -> Difference {
    let (mut apart, mut size) = (0.0, 0.0);
    let mut difference = Difference { rms: 0.0, unequal: 0, unlike: 0 };
    for (name, wanted) in expected {
        let found = actual.get(name).filter(|x| x.dtype() == wanted.dtype() && x.sizes() == wanted.sizes());
        let Some(found) = found else {
            difference.unlike += 1;
            continue;
        };
        if !wanted.dtype().is_float() {
            difference.unequal += (0..wanted.count()).filter(|k| wanted.int(*k) != found.int(*k)).count();
            continue;
        }
        for (w, f) in wanted.to_f64s().into_iter().zip(found.to_f64s()) {
            // What both do not have as a number is no difference.
            if w.is_nan() && f.is_nan() || w == f {
                size += if w.is_finite() { w * w } else { 0.0 };
                continue;
            }
            apart += (w - f) * (w - f);
            size += w * w;
        }
    }
    difference.rms = if apart == 0.0 { 0.0 } else { (apart / size).sqrt() };
    difference
}

#[cfg(test)]
mod tests {
    use fuseline::tensor::Literal;

    use super::*;

    #[test]
    fn differences_are_relative_to_what_is_expected() {
        let tensors = |floats: &[f32], ints: &[i64]| {
            Tensors::from_iter([("y".to_string(), Literal::f32s(floats)), ("n".to_string(), Literal::i64s(ints))])
        };
        let expected = tensors(&[3.0, 4.0, f32::NAN, f32::INFINITY], &[1, 2]);
        assert_eq!(difference(&expected, &expected), Difference { rms: 0.0, unequal: 0, unlike: 0 });
        let other = difference(&expected, &tensors(&[3.0, 4.5, f32::NAN, f32::INFINITY], &[1, 3]));
        assert_eq!(other, Difference { rms: 0.1, unequal: 1, unlike: 0 });
        assert_eq!(difference(&expected, &tensors(&[3.0], &[1, 2])).unlike, 1);
        assert!(difference(&expected, &tensors(&[3.0, 4.0, 0.0, f32::INFINITY], &[1, 2])).rms.is_nan());
    }
}
