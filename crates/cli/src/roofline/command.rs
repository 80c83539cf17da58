//! The command itself: whose roofline, with what on it, shown how.

use std::fmt::Write as _;
use std::num::NonZeroUsize;

use fuseline::device::DeviceSpec;
use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline_cpu::here;
use serde_json::{Value, json};

use super::graphics::Graphics;
use super::kernels::{self, Plotted};
use super::processor::Processor;
use super::{ANY_UNIT, Roofline, graphics, plot, png, processor, svg, terminal};
use crate::arguments::{Measuring, ModelName, RooflineArguments};
use crate::failure::{Failure, GPU, Outcome};
use crate::file::{self, Content};
use crate::load::Load;
use crate::model::Model;
use crate::quantity::{self, significant};
use crate::screen::{Column, Table, title};
use crate::waiting::Waiting;
use crate::{load, screen, target};

/// Whose roofline it is.
enum Subject {
    /// this processor, measured, perhaps beside other work
    Processor(Processor, Option<Load>),
    /// this machine's GPU, measured
    Graphics(Graphics),
    /// a device that is described
    Described(Box<DeviceSpec>),
    /// two numbers
    Given { gbps: f64, gflops: f64 },
}

/// Shows a roofline.
pub fn roofline(arguments: &RooflineArguments) -> Outcome {
    if let Some(path) = &arguments.write
        && path.extension().is_none_or(|extension| extension != "spec")
    {
        let error = Error::invalid("a device is described in a file called .spec").at(path.display().to_string());
        return Err(Failure::with_help(error, "--write here.spec, and then --target here.spec"));
    }
    let read = [arguments.model.as_ref().and_then(ModelName::file), arguments.inputs.file.as_deref()];
    let written =
        [(&arguments.write, Content::Device), (&arguments.svg, Content::Lines), (&arguments.png, Content::Points)];
    for (path, content) in written.into_iter().filter_map(|(path, content)| Some((path.as_ref()?, content))) {
        file::check(path, content, read.into_iter().flatten())?;
    }
    // What is wrong with the model is told before the machine is measured.
    let model = match &arguments.model {
        Some(name) => Some(Model::open(name, arguments.dtype, &arguments.limits)?),
        None => None,
    };
    let subject = subject(arguments)?;
    let spec = subject.spec()?;
    let mut roofline = match (&subject, &spec) {
        (Subject::Given { gbps, gflops }, _) => Roofline {
            name: format!("{}B/s and {}FLOP/s", quantity::count(gbps * 1e9), quantity::count(gflops * 1e9)),
            memories: vec![("memory".into(), *gbps)],
            peaks: vec![(ANY_UNIT.into(), *gflops)],
            points: Vec::new(),
        },
        (Subject::Graphics(graphics), _) => graphics.roofline(),
        (_, Some(spec)) => Roofline::of(spec),
        (_, None) => return Err(Error::bug("a roofline of nothing").into()),
    };
    let plotted = plotted(arguments, model.as_ref(), &subject, spec.as_ref(), &roofline)?;
    roofline.points = plotted.iter().enumerate().map(|(k, kernel)| kernel.point(k)).collect();
    if let (Some(path), Some(spec)) = (&arguments.write, &spec) {
        let text = format!("# Written by `fuseline roofline`; `--target {}` plans for it.\n\n{spec}", path.display());
        file::write(path, text.as_bytes())?;
    }
    let scene = plot::draw(&roofline, 960.0, 540.0, 12);
    if let Some(path) = &arguments.svg {
        file::write(path, svg::file(&scene).as_bytes())?;
    }
    if let Some(path) = &arguments.png {
        file::write(path, &png::file(&scene)?)?;
    }
    if arguments.json {
        return screen::print_json(&to_json(&subject, &roofline, &plotted));
    }
    screen::print(&to_text(&subject, &roofline, &plotted, arguments))
}

/// Says so where more threads are asked for than can work at once.
fn note_threads(arguments: &RooflineArguments) {
    let processors = std::thread::available_parallelism().map_or(1, NonZeroUsize::get);
    let asked = arguments.threads.filter(|threads| threads.get() > processors && arguments.device == Measuring::Cpu);
    if let Some(asked) = asked {
        let here = quantity::several(processors, "processor");
        screen::tell(&format!(
            "note: {asked} threads are asked for, and {processors} are measured: this machine has {here}, and more threads take turns"
        ));
    }
}

fn subject(arguments: &RooflineArguments) -> Outcome<Subject> {
    if let (Some(gbps), Some(gflops)) = (arguments.peak_bw, arguments.peak_flops) {
        return Ok(Subject::Given { gbps, gflops });
    }
    if let Some(name) = &arguments.target {
        return Ok(Subject::Described(Box::new(target::find(name)?)));
    }
    let mut waiting: Option<Waiting> = None;
    let mut tell = |what: &str| {
        // The line of what was done before goes first.
        waiting = None;
        waiting = Some(Waiting::for_(&format!("measuring {what}")));
    };
    note_threads(arguments);
    let load = load::tell(arguments.device);
    match arguments.device {
        Measuring::Cpu => Ok(Subject::Processor(processor::measure(arguments.threads, &mut tell)?, load)),
        Measuring::Cuda => Ok(Subject::Graphics(graphics::measure(&mut tell).map_err(|error| error.at(GPU))?)),
    }
}

/// The kernels of the model, if there is one. They are measured where the roofline is; elsewhere they are predicted.
fn plotted(
    arguments: &RooflineArguments,
    model: Option<&Model>,
    subject: &Subject,
    spec: Option<&DeviceSpec>,
    roofline: &Roofline,
) -> Outcome<Vec<Plotted>> {
    let Some(model) = model else { return Ok(Vec::new()) };
    let _waiting = Waiting::for_("placing kernels");
    let measures = matches!(subject, Subject::Processor(..)) && !arguments.no_run;
    // What is run is what every other command plans and runs here: rates that were measured a moment ago differ from run to run, and plans with them.
    let plan = PlanOptions::on(match spec {
        _ if measures => here::spec(),
        Some(spec) => spec,
        None => DeviceSpec::find("cpu")?,
    });
    let mut plotted = kernels::of_model(model, arguments, plan, measures)?;
    if let Subject::Given { gbps, .. } = subject {
        // Nothing is known of such a machine but its limits: kernels are as fast as these allow.
        for kernel in &mut plotted {
            let limit = kernel.intensity().and_then(|intensity| roofline.limit(intensity, kernel.matrices));
            let moving = kernel.bytes / gbps / 1e3;
            kernel.us =
                limit.filter(|limit| *limit > 0.0).map_or(moving, |limit| (kernel.flops / limit / 1e3).max(moving));
        }
    }
    Ok(plotted)
}

impl Subject {
    fn spec(&self) -> Result<Option<DeviceSpec>> {
        match self {
            Subject::Processor(processor, _) => processor.to_spec().map(Some),
            Subject::Graphics(graphics) => graphics.to_spec().map(Some),
            Subject::Described(spec) => Ok(Some(DeviceSpec::clone(spec))),
            Subject::Given { .. } => Ok(None),
        }
    }

    /// Other work on the machine while it was measured.
    fn load(&self) -> Option<Load> {
        match self {
            Subject::Processor(_, load) => *load,
            Subject::Graphics(_) | Subject::Described(_) | Subject::Given { .. } => None,
        }
    }

    fn measured(&self) -> Option<Value> {
        match self {
            Subject::Processor(processor, _) => Some(processor.to_json()),
            Subject::Graphics(graphics) => Some(graphics.to_json()),
            Subject::Described(_) | Subject::Given { .. } => None,
        }
    }
}

fn to_json(subject: &Subject, roofline: &Roofline, plotted: &[Plotted]) -> Value {
    let kernel = |kernel: &Plotted| {
        json!({
            "pattern": kernel.name,
            "kind": kernel.kind,
            "count": kernel.count,
            "bytes": kernel.bytes.round(),
            "flops": kernel.flops.round(),
            "us": kernel.us,
            "intensity": kernel.intensity(),
            "gflops": kernel.gflops(),
            "part_of_limit": kernel.part(roofline),
        })
    };
    json!({
        "name": roofline.name,
        "memories": roofline.memories.iter().map(|(name, gbps)| json!({ "name": name, "gbps": gbps })).collect::<Vec<_>>(),
        "peaks": roofline.peaks.iter().map(|(name, gflops)| json!({ "name": name, "gflops": gflops })).collect::<Vec<_>>(),
        "measured": subject.measured(),
        "load": subject.load().map(Load::to_json),
        "note": excess(subject, roofline, plotted),
        "kernels": plotted.iter().map(kernel).collect::<Vec<_>>(),
    })
}

/// How many kernels are listed below the plot.
const LISTED: usize = 26;

fn to_text(subject: &Subject, roofline: &Roofline, plotted: &[Plotted], arguments: &RooflineArguments) -> String {
    let mut text = title(&format!("Roofline of {}", roofline.name), screen::width());
    match subject {
        Subject::Processor(processor, _) => text.push_str(&processor.to_text()),
        Subject::Graphics(graphics) => text.push_str(&graphics.to_text()),
        Subject::Described(_) | Subject::Given { .. } => {
            let rates = roofline.memories.iter().map(|(name, gbps)| format!("{name} {} GB/s", significant(*gbps)));
            text.push_str(&screen::wrapped(&rates.collect::<Vec<_>>().join(", "), 2, screen::width()));
        }
    }
    text.push('\n');
    text.push_str(&terminal::draw(roofline, screen::width(), 20));
    if !plotted.is_empty() {
        text.push('\n');
        text.push_str(&table(roofline, plotted));
        if let Some(why) = excess(subject, roofline, &plotted[..plotted.len().min(LISTED)]) {
            text.push_str(&screen::wrapped(&why, 2, screen::width()));
        }
        if plotted.len() > LISTED {
            let more = plotted.len() - LISTED;
            writeln!(text, "  … and {more} more (--json lists all)").expect("writing to a string succeeds");
        }
    }
    for path in [&arguments.write, &arguments.svg, &arguments.png].into_iter().flatten() {
        writeln!(text, "written: {}", path.display()).expect("writing to a string succeeds");
    }
    text
}

/// Why kernels are above the limit, if one is.
fn excess(subject: &Subject, roofline: &Roofline, plotted: &[Plotted]) -> Option<String> {
    let is_above = |kernel: &Plotted| kernel.part(roofline).is_some_and(|part| (100.0 * part).round() > 100.0);
    plotted.iter().any(is_above).then(|| {
        let why = "above 100 %: what stays in caches comes faster than from memory, which the limit is of; not all that counts as an operation takes one of the units";
        let when = match (subject, subject.load()) {
            (Subject::Described(_) | Subject::Given { .. }, _) => String::new(),
            (_, None) => "; the limit was measured a moment before the kernels, and a machine that others use too is not always as fast".into(),
            (_, Some(load)) => format!(
                "; the limit was measured a moment before the kernels, beside other work (a load of {}), and is higher without it",
                load.average()
            ),
        };
        format!("{why}{when}")
    })
}

fn table(roofline: &Roofline, plotted: &[Plotted]) -> String {
    let mut table = Table::new([
        Column::left(""),
        Column::left("kernel").cut(14),
        Column::right("times").goes(2),
        Column::right("µs each"),
        Column::right("FLOP/byte").goes(3),
        Column::right("GFLOP/s"),
        Column::right("GB/s").goes(1),
        Column::right("of the limit"),
    ]);
    for (k, kernel) in plotted.iter().enumerate().take(LISTED) {
        let is_shown = kernel.flops > 0.0 && kernel.bytes > 0.0;
        table.row([
            if is_shown { terminal::sign(k).to_string() } else { String::new() },
            kernel.name.clone(),
            kernel.count.to_string(),
            significant(kernel.us),
            kernel.intensity().map_or("–".into(), significant),
            significant(kernel.gflops()),
            significant(kernel.bytes / kernel.us / 1e3),
            kernel.part(roofline).map_or("–".into(), |part| format!("{:.0} %", 100.0 * part)),
        ]);
    }
    table.text(screen::width())
}
