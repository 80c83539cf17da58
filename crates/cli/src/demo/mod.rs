//! `fuseline demo`: the whole way of a network, with nothing to download.

mod tell;

use fuseline::compile::{Grain, plan_apart};
use fuseline::device::NamedTensors;
use fuseline::error::{Error, Kind, Result};
use fuseline::explain::{KernelRow, kernel_rows};
use fuseline::fuse::{Cost, PlanOptions};
use fuseline::graph::Graph;
use fuseline::reference;
use serde_json::Value;

use crate::arguments::{Demo, Form, GivenInputs, Measuring, ModelLimits, ModelName};
use crate::bench::Contender;
use crate::ceiling::{self, Ceiling};
use crate::device::{Means, bind_sizes};
use crate::failure::{Failure, Outcome};
use crate::feed::{self, Feed};
use crate::given_sizes;
use crate::load::Load;
use crate::machine::{self, Machine};
use crate::model::Model;
use crate::report::{self, Measurement, Subject};
use crate::verify::{self, Setting, Verdict};
use crate::waiting::Waiting;
use crate::{file, load, screen, target};

/// Shows a network.
pub fn demo(arguments: &Demo) -> Outcome {
    if !arguments.no_report {
        file::check(&arguments.output, file::Content::Page, [])?;
    }
    if let Some(size) = arguments.sizes.iter().find(|size| size.size == 0) {
        let error =
            Error::invalid(format!("with {}=0 there is nothing to show", size.name.as_deref().unwrap_or("a size")))
                .at("--sizes");
        return Err(Failure::with_help(error, "give sizes above 0"));
    }
    let network = arguments.model.0;
    let model = Model::open(&ModelName::Demo(network.name.into()), None, &ModelLimits::default())?;
    let feed = feed::assemble(&model, &GivenInputs::default(), &arguments.sizes, 0).map_err(smaller)?;
    let load = load::tell(Measuring::Cpu);
    let waiting = Waiting::for_(&format!("building {}", model.name));
    let mut shown = Vec::new();
    let mut page = None;
    for device in verify::devices_here() {
        let plan = PlanOptions::on(&target::find(device.target())?);
        let threads = arguments.threads.filter(|_| device == Measuring::Cpu);
        let means = Means { options: reference::Options::default(), threads };
        let done = model.with_graph(&feed.tensors, |graph, inputs| {
            let mut plan = plan.clone();
            bind_sizes(graph, &inputs, &mut plan.hints.env);
            let machine = machine::open(device, plan.clone(), &means)?;
            let load = load.filter(|_| device == Measuring::Cpu);
            let stage =
                Stage { graph, inputs: &inputs, plan: &plan, machine: &machine, device, load, waiting: &waiting };
            let mut measurement = stage.measure(arguments)?;
            waiting.say("measuring the machine".into());
            let matrices = ceiling::matrices(&measurement.fused().planned.run, &plan.spec);
            let ceiling = Ceiling::of(device, machine.threads(), &plan.spec, matrices);
            stage.profile(&mut measurement, &ceiling)?;
            let data = match page.is_none() && !arguments.no_report {
                true => Some(stage.page(&model.name, &measurement, &ceiling)?),
                false => None,
            };
            Ok((stage.show(measurement, ceiling)?, data))
        });
        let done = done.map_err(|error| smaller(error.into()))?;
        shown.push(done.0);
        page = page.or(done.1);
    }
    drop(waiting);
    let (written, refused) = match page.map(|data| report::write(&data, &arguments.output)) {
        Some(Ok(bytes)) => (Some((arguments.output.as_path(), bytes)), Ok(())),
        Some(Err(failure)) => (None, Err(failure)),
        None => (None, Ok(())),
    };
    let mut sizes = given_sizes::named(&arguments.sizes, &model.free_sizes(), "model")?;
    sizes.extend(feed.assumed.iter().cloned());
    let told = Told { network, model: &model, sizes: &sizes, feed: &feed, shown: &shown, load, written };
    match arguments.json {
        true => screen::print_json(&tell::to_json(&told))?,
        false => screen::print(&tell::to_text(&told))?,
    }
    // What was seen is told also where the page cannot be written.
    refused?;
    match shown.iter().any(|shown| shown.verdict.guilty.is_some()) {
        true => Err(Failure::Differs),
        false => Ok(()),
    }
}

/// Everything that is told.
pub struct Told<'a> {
    network: &'static fuseline::gallery::Network,
    model: &'a Model,
    /// all of them, given or assumed
    sizes: &'a [(String, i64)],
    feed: &'a Feed,
    shown: &'a [Shown],
    /// other work on the machine
    load: Option<Load>,
    /// the page, with its bytes
    written: Option<(&'a std::path::Path, usize)>,
}

/// What was seen on a device.
pub struct Shown {
    device: Measuring,
    threads: usize,
    /// the kernels of the fused plan
    kernels: Vec<KernelRow>,
    operators: usize,
    /// kernels where every primitive is one
    primitives: usize,
    fused: Run,
    unfused: Run,
    roofline: Position,
    verdict: Verdict,
}

/// What helps where a limit is reached: the networks of the demo are as large as their sizes.
fn smaller(failure: Failure) -> Failure {
    match failure {
        Failure::Work { error, help: None, .. } if matches!(error.kind(), Kind::Limit | Kind::Exhausted) => {
            Failure::with_help(error, "give smaller numbers with --sizes")
        }
        other => other,
    }
}

/// A plan that was run.
pub struct Run {
    kernels: usize,
    cost: Cost,
    ms: f64,
    /// how long it was expected to take, kernel by kernel as on the page; where single kernels are not measured, the plan's price
    expected_ms: f64,
}

/// Where a plan stands under the roofline.
pub struct Position {
    /// operations for each byte
    intensity: f64,
    gflops: f64,
    gbps: f64,
    /// what is possible at this intensity
    limit_gflops: f64,
    /// whether memory is the limit there, not arithmetic
    by_memory: bool,
    /// what the machine can do
    ceiling: Ceiling,
}

struct Stage<'a> {
    graph: &'a Graph,
    inputs: &'a NamedTensors,
    plan: &'a PlanOptions,
    machine: &'a Machine,
    device: Measuring,
    load: Option<Load>,
    waiting: &'a Waiting,
}

impl Stage<'_> {
    fn measure(&self, arguments: &Demo) -> Result<Measurement> {
        self.waiting.say(format!("measuring on {}", self.device.name()));
        report::measure(self.graph, self.inputs, self.plan, self.machine, arguments.iters.get())
    }

    fn show(&self, measurement: Measurement, ceiling: Ceiling) -> Result<Shown> {
        let run = |contender: &Contender, expected: Option<f64>| Run {
            kernels: contender.kernels(),
            cost: contender.cost(),
            ms: contender.median_ms(),
            expected_ms: expected.unwrap_or(contender.cost().us / 1e3),
        };
        let expected = measurement.expected_ms();
        let [fused, unfused] = [run(measurement.fused(), expected[0]), run(measurement.unfused(), expected[1])];
        let planned = &measurement.fused().planned;
        let kernels = kernel_rows(planned.program.run(), &planned.run, self.plan);
        let primitives = plan_apart(self.graph.clone(), self.plan, Grain::Primitive)?.run.kernels.len();
        let operators = unfused.kernels;
        let roofline = position(&fused, ceiling);
        drop(measurement);
        let Stage { graph, inputs, plan, machine, device, waiting, .. } = *self;
        let verdict = verify::judge(&Setting { graph, inputs, plan, machine, device, waiting })?;
        let threads = machine.threads();
        Ok(Shown { device, threads, kernels, operators, primitives, fused, unfused, roofline, verdict })
    }

    fn profile(&self, measurement: &mut Measurement, ceiling: &Ceiling) -> Result<()> {
        self.waiting.say("measuring kernels".into());
        measurement.profile(self.plan, ceiling, self.inputs, self.machine)
    }

    /// The page, about the runs that are told of.
    fn page(&self, name: &str, measurement: &Measurement, ceiling: &Ceiling) -> Result<Value> {
        let code = if self.device == Measuring::Cuda { Form::Cuda } else { Form::Asm };
        let (graph, plan, load) = (self.graph, self.plan, self.load);
        report::gather(&Subject { name, graph, plan, code, measurement: Some(measurement), ceiling, load })
    }
}

/// Where a plan stands under the roofline, for as many threads as there are; for all of a GPU.
fn position(run: &Run, ceiling: Ceiling) -> Position {
    let intensity = run.cost.flops / run.cost.bytes.max(1.0);
    let by_memory = ceiling.gbps * intensity < ceiling.gflops;
    let limit_gflops = (ceiling.gbps * intensity).min(ceiling.gflops);
    let per_ms = |amount: f64| amount / run.ms / 1e6;
    let (gflops, gbps) = (per_ms(run.cost.flops), per_ms(run.cost.bytes));
    Position { intensity, gflops, gbps, limit_gflops, by_memory, ceiling }
}
