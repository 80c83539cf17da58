//! `fuseline report`: a model, its plan and its runs as one page to look at.

mod data;
mod drawing;
mod layout;
mod measure;
mod memory;
mod operators;
mod page;
mod repeat;

use std::ffi::OsStr;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use fuseline::compile::{Grain, plan_apart, plan_simplified, simplified};
use fuseline::error::Result;
use fuseline::explain::Explanation;
use fuseline::fuse::PlanOptions;
use fuseline::graph::Graph;
use fuseline::passes::Numerics;
use fuseline::tensor::Symbol;
use serde_json::{Map, Value, json};

use crate::arguments::{Form, Measuring, Report};
use crate::ceiling::{self, Ceiling};
use crate::deadline::Deadline;
use crate::device::{Means, bind_sizes};
use crate::failure::Outcome;
use crate::load::Load;
use crate::model::Model;
use crate::roofline::{self, Point, Roofline, Series};
use crate::waiting::Waiting;
use crate::{feed, file, given_inputs, load, machine, quantity, screen, target};

use data::Planned;
pub use measure::{Measurement, measure};

/// What a report is made of.
pub struct Subject<'a> {
    /// what the model is called
    pub name: &'a str,
    /// the graph as it was imported
    pub graph: &'a Graph,
    /// how it is planned, with numbers for its sizes
    pub plan: &'a PlanOptions,
    /// as what kernels are shown, besides the language of kernels
    pub code: Form,
    /// its runs; none: it is planned only
    pub measurement: Option<&'a Measurement>,
    /// what the machine can do at most
    pub ceiling: &'a Ceiling,
    /// other work on the machine while it ran
    pub load: Option<Load>,
}

/// Writes the report of a model.
pub fn report(arguments: &Report) -> Outcome {
    let _deadline = Deadline::within(&arguments.time);
    if !arguments.json {
        let read = [arguments.model.file(), arguments.inputs.file.as_deref()];
        file::check(&arguments.output, file::Content::Page, read.into_iter().flatten())?;
    }
    let model = Model::open(&arguments.model, arguments.dtype, &arguments.limits)?;
    let numerics = arguments.numerics.map_or(Numerics::Default, |numerics| numerics.numerics());
    let plan = PlanOptions {
        numerics,
        precision: arguments.precision.precision(numerics)?,
        budget: arguments.limits.budget_of_each(),
        ..PlanOptions::on(&target::find(arguments.target.as_deref().unwrap_or(OsStr::new(arguments.device.target())))?)
    };
    let is_gpu = plan.spec.kind == fuseline::device::Machine::Gpu;
    // What is planned for another machine cannot be measured on this processor.
    let runs = !arguments.no_run && (arguments.device == Measuring::Cuda) == is_gpu;
    if !runs && !arguments.no_run {
        screen::tell(&format!("note: nothing is run: the plan is for {}", plan.spec.name));
    }
    let load = if runs { load::tell(arguments.device) } else { None };
    let data = {
        let waiting = |what: &str| Waiting::for_(&format!("{what} {}", model.name));
        if runs {
            let _waiting = waiting("measuring");
            measured(&model, arguments, plan, load)?
        } else {
            let _waiting = waiting("planning");
            planned(&model, arguments, plan)?
        }
    };
    if arguments.json {
        return screen::print_json(&data);
    }
    let bytes = write(&data, &arguments.output)?;
    screen::print(&format!("{}  {}\n", arguments.output.display(), quantity::bytes(bytes as f64)))
}

/// The data of a report of a model that is run.
fn measured(model: &Model, arguments: &Report, mut plan: PlanOptions, load: Option<Load>) -> Outcome<Value> {
    let feed = feed::assemble(model, &arguments.inputs, &arguments.sizes, arguments.seed)?;
    let means = Means { options: arguments.limits.exact_run(), threads: arguments.threads };
    let gathered = model.with_graph(&feed.tensors, |graph, inputs| {
        bind_sizes(graph, &inputs, &mut plan.hints.env);
        let machine = machine::open(arguments.device, plan.clone(), &means)?;
        let mut measurement = measure(graph, &inputs, &plan, &machine, arguments.iters.get())?;
        let (name, code) = (model.name.as_str(), arguments.form(&plan.spec));
        let matrices = ceiling::matrices(&measurement.fused().planned.run, &plan.spec);
        let ceiling = Ceiling::of(arguments.device, machine.threads(), &plan.spec, matrices);
        measurement.profile(&plan, &ceiling, &inputs, &machine)?;
        gather(&Subject { name, graph, plan: &plan, code, measurement: Some(&measurement), ceiling: &ceiling, load })
    });
    gathered.map_err(|error| feed.failed(model, error))
}

/// The data of a report of a model that is planned only.
fn planned(model: &Model, arguments: &Report, mut plan: PlanOptions) -> Outcome<Value> {
    let mut env = model.bind_sizes(&arguments.sizes)?;
    let inputs = given_inputs::read(model, &arguments.inputs, &mut env)?;
    let (graph, sizes) = model.graph_to_plan(&inputs, &env)?;
    plan.hints.env = sizes;
    let code = arguments.form(&plan.spec);
    // What is drawn of it are all units; no rate is held against one of them.
    let ceiling = Ceiling::described(&plan.spec, plan.spec.limits.cores, None);
    let (name, graph, plan, ceiling) = (model.name.as_str(), &*graph, &plan, &ceiling);
    Ok(gather(&Subject { name, graph, plan, code, measurement: None, ceiling, load: None })?)
}

/// Plans a model, and puts together what a report shows of it and of its runs. There is one plan that everything is compared with, in
/// times, kernels and bytes alike: a kernel for every node of the model, as it stands there.
pub fn gather(subject: &Subject<'_>) -> Result<Value> {
    let Subject { graph, plan, .. } = subject;
    let simple = simplified((*graph).clone(), plan, &mut |_| {})?;
    let planned = plan_simplified(simple.clone(), plan, &mut |_| {})?;
    let mut explanation = Explanation::of(&planned, plan)?;
    explanation.price_rewrites(&planned, &simple, plan)?;
    let story = Planned::new(graph, &planned, &explanation, plan);
    let mut data = head(subject);
    data.extend(story.to_json(subject.code)?);
    let apart;
    let (unfused, times) = match subject.measurement {
        Some(measurement) => {
            data.insert("measured".into(), measurement.to_json(|kernel| story.number(kernel)));
            add_times(&mut data, measurement, &story);
            (&measurement.unfused().planned, measurement.unfused_times())
        }
        None => {
            apart = plan_apart((*graph).clone(), plan, Grain::Operator)?;
            (&apart, None)
        }
    };
    data.insert("predicted".into(), data::predicted(&planned, unfused));
    data.insert("unfused".into(), data::unfused(unfused, plan, times.as_deref()));
    Ok(Value::Object(data))
}

fn head(subject: &Subject<'_>) -> Map<String, Value> {
    let spec = &subject.plan.spec;
    let mut sizes = Map::new();
    let shapes = subject.graph.inputs().iter().map(|input| &subject.graph.ty(*input).shape);
    for dim in shapes.flat_map(|shape| shape.dims()) {
        dim.for_each_symbol(&mut |symbol| {
            if let Some(size) = subject.plan.hints.env.get(symbol) {
                let name = match symbol {
                    Symbol::Name(name) => name.to_string(),
                    other => other.to_string(),
                };
                sizes.insert(name, json!(size));
            }
        });
    }
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    let value = json!({
        "model": subject.name,
        "version": env!("CARGO_PKG_VERSION"),
        "made": seconds,
        "target": { "name": spec.name, "doc": spec.doc, "cores": spec.limits.cores },
        "numerics": subject.plan.numerics.name(),
        "precision": subject.plan.precision.name(),
        "sizes": sizes,
        "machine": subject.ceiling.limits_json(),
        "load": subject.load.map(Load::to_json),
    });
    match value {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

/// Puts measured times beside the predicted ones, and what was expected of runs with as many threads.
fn add_times(data: &mut Map<String, Value>, measurement: &Measurement, story: &Planned<'_>) {
    let (Some(times), Some(expected)) = (measurement.fused_times(), measurement.fused_expected()) else { return };
    let Some(Value::Array(kernels)) = data.get_mut("kernels") else { return };
    for (kernel, (us, expected)) in times.into_iter().zip(expected).enumerate() {
        let shown = &mut kernels[story.number(kernel)];
        shown["measured_us"] = json!(us);
        shown["expected_us"] = json!(expected);
    }
}

/// Writes the page of a report; returns how many bytes it has.
pub fn write(data: &Value, path: &Path) -> Outcome<usize> {
    let page = page::page(data, &roofline_of(data));
    file::write(path, page.as_bytes())?;
    Ok(page.len())
}

/// The roofline of the machine with every kernel on it, fused and unfused.
fn roofline_of(data: &Value) -> String {
    let mut plot = Roofline::from_json(&data["machine"]);
    let number = |value: &Value, name: &str| value[name].as_f64();
    let mut add = |kernel: &Value, series: Series| {
        let us = number(kernel, "measured_us").or_else(|| number(kernel, "us")).unwrap_or(0.0);
        let (bytes, flops) = (number(kernel, "bytes").unwrap_or(0.0), number(kernel, "flops").unwrap_or(0.0));
        plot.points.push(Point {
            name: kernel["pattern"].as_str().unwrap_or_default().to_string(),
            intensity: flops / bytes,
            gflops: flops / us / 1e3,
            us,
            series,
        });
    };
    let unfused = data["unfused"]["kernels"].as_array();
    unfused.into_iter().flatten().enumerate().for_each(|(k, kernel)| add(kernel, Series::Unfused(k)));
    let kernels = data["kernels"].as_array().into_iter().flatten().enumerate();
    kernels.for_each(|(k, kernel)| add(kernel, Series::Fused(k, kernel["class"].as_u64().unwrap_or(0) as usize)));
    roofline::svg::element(&roofline::plot::draw(&plot, 960.0, 480.0, 0))
}
