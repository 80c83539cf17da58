//! `fuseline kernels`: the kernels of a plan as code.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::sync::Arc;

use fuseline::compile::plan_program;
use fuseline::device::{DeviceSpec, Machine};
use fuseline::error::{Context, Error, Kind, Result};
use fuseline::fuse::{Plan, PlanOptions};
use fuseline::graph::Graph;
use fuseline::lower::Hints;
use fuseline::passes::Numerics;
use fuseline::tensor::Env;
use fuseline::tile::{Kernel, Param, Schedule};
use fuseline_cpu::code::{Code, Isa};
use fuseline_cpu::emit::{Target, emit};
use fuseline_cpu::here;
use fuseline_cuda::print::{self, Printed, sizes_to_fix_at};
use indexmap::IndexMap;
use serde_json::{Value, json};

use crate::arguments::{Form, Kernels};
use crate::failure::Outcome;
use crate::given_inputs;
use crate::model::Model;
use crate::screen::{self, heading};
use crate::target;

/// Shows the kernels of a model.
pub fn kernels(arguments: &Kernels) -> Outcome {
    let model = Model::open(&arguments.model, arguments.dtype, &arguments.limits)?;
    let mut env = model.bind_sizes(&arguments.sizes)?;
    let inputs = given_inputs::read(&model, &arguments.inputs, &mut env)?;
    let (graph, all) = model.graph_to_plan(&inputs, &env).map_err(|error| model.failed(error))?;
    let numerics = arguments.numerics.map_or(Numerics::Default, |numerics| numerics.numerics());
    let usual = if arguments.emit == Form::Cuda { USUAL_GPU } else { "cpu" };
    let options = PlanOptions {
        numerics,
        precision: arguments.precision.precision(numerics)?,
        hints: Hints { env: all.clone(), ..Hints::default() },
        budget: arguments.limits.budget(),
        ..PlanOptions::on(&target::find(arguments.target.as_deref().unwrap_or(OsStr::new(usual)))?)
    };
    let planned = plan_program(graph.into_owned(), &options, &mut |_| {})?;
    let parts = [(planned.program.run(), &planned.run), (planned.program.prepare(), &planned.prepare)];
    let kernels = parts.map(|(graph, plan)| distinct(graph, plan));
    // They are one text, and indices have one type in it.
    let wide = kernels.iter().flat_map(IndexMap::keys).any(|kernel| is_wide(kernel, &all));
    let of = |kernels, first| shown(kernels, first, &all, arguments.emit, (&options.spec, wide));
    let [run, once] = kernels;
    let run = of(run, 0)?;
    let once = of(once, run.len())?;
    if arguments.json {
        return screen::print_json(&json!({
            "model": model.name,
            "target": options.spec.name,
            "form": arguments.emit.name(),
            "run": run.iter().map(Shown::to_json).collect::<Vec<_>>(),
            "once": once.iter().map(Shown::to_json).collect::<Vec<_>>(),
        }));
    }
    let mut text = String::new();
    let (head, parts) = joined(run.iter().chain(&once))?;
    let mut parts = parts.into_iter();
    if !head.is_empty() {
        text.push_str(&format!("{}\n{head}\n", heading("// What kernels call")));
    }
    for (title, kernels) in [("Kernels of a run", run), ("Kernels that run once", once)] {
        if kernels.is_empty() {
            continue;
        }
        let comment = arguments.emit.comment();
        text.push_str(&heading(&format!("{comment} {title}")));
        for kernel in &kernels {
            text.push('\n');
            // One line, whatever operators are called: behind it, code begins.
            text.push_str(&heading(&format!("{comment} {}", screen::spelt_out(&describe(&kernel.places)))));
            let code = parts.next().ok_or_else(|| Error::bug("a kernel without code"))?;
            writeln!(text, "{}", code.trim_end()).expect("writing to a string succeeds");
        }
        text.push('\n');
    }
    screen::print_code(&text)
}

/// A kernel as code.
struct Shown {
    schedule: &'static str,
    /// where it stands: once, or several times
    places: Vec<String>,
    /// the text that stands for itself
    code: String,
    /// CUDA C++ with the name of the kernel there, which several kernels can be one text of
    printed: Option<(String, Printed)>,
}

/// What kernels call, once for all of them, and the code of each. As CUDA C++ they are one text that compiles.
fn joined<'s>(kernels: impl Iterator<Item = &'s Shown> + Clone) -> Result<(String, Vec<String>)> {
    let printed = kernels.clone().filter_map(|shown| shown.printed.as_ref().map(|(name, own)| (name.as_str(), own)));
    let (head, parts) = match printed.collect::<Vec<_>>().as_slice() {
        [] => (String::new(), Vec::new()),
        printed => print::together(printed)?,
    };
    let mut parts = parts.into_iter();
    let code = kernels.map(move |shown| match shown.printed {
        Some(_) => parts.next().unwrap_or_default(),
        None => shown.code.clone(),
    });
    Ok((head, code.collect()))
}

impl Shown {
    fn to_json(&self) -> Value {
        json!({ "places": self.places, "schedule": self.schedule, "code": self.code })
    }
}

/// Kernels as code; where they have names, those are numbered from `first` on. `wide`: whether indices have 64 bits.
fn shown(
    kernels: IndexMap<Arc<Kernel>, Vec<String>>,
    first: usize,
    env: &Env,
    form: Form,
    (spec, wide): (&DeviceSpec, bool),
) -> Result<Vec<Shown>> {
    let all = kernels.into_iter().enumerate().map(|(k, (kernel, places))| {
        let schedule = kernel.schedule.name();
        let name = format!("{schedule}_{}", first + k);
        let printed = match form {
            Form::Cuda if !stores_nothing(&kernel, env) => {
                let options = print::Options { wide, ..cuda_options(&kernel, &name, env, gpu(spec)?) };
                print::print(&kernel, &options).ok().map(|printed| (name.clone(), printed))
            }
            _ => None,
        };
        let code = match &printed {
            Some((_, printed)) => printed.source(),
            None => show_named(&kernel, &name, env, form, spec).at(|| places[0].clone())?,
        };
        Ok(Shown { schedule, places, code: code.trim_end().to_owned(), printed })
    });
    all.collect()
}

/// The kernels of a plan and its regions, equal ones once, with where each stands.
fn distinct(graph: &Graph, plan: &Plan) -> IndexMap<Arc<Kernel>, Vec<String>> {
    let mut found: IndexMap<Arc<Kernel>, Vec<String>> = IndexMap::new();
    for (k, planned) in plan.kernels.iter().enumerate() {
        if !matches!(planned.kernel.schedule, Schedule::Host(_)) {
            found.entry(planned.kernel.clone()).or_default().push(planned.describe(k, graph));
        }
        for (region, plan) in graph.nodes()[planned.members[0]].prim().regions().into_iter().zip(&planned.regions) {
            for (kernel, places) in distinct(region, plan) {
                let outer = planned.describe(k, graph);
                let places = places.into_iter().map(|place| format!("{outer}: {place}"));
                found.entry(kernel).or_default().extend(places);
            }
        }
    }
    found
}

fn describe(places: &[String]) -> String {
    match places {
        [only] => only.clone(),
        [first, others @ ..] => format!("{first}, and {} more", others.len()),
        [] => String::new(),
    }
}

/// A kernel as code.
pub fn show(kernel: &Kernel, env: &Env, form: Form, spec: &DeviceSpec) -> Result<String> {
    show_named(kernel, kernel.schedule.name(), env, form, spec)
}

/// A kernel as code in which it has a name; CUDA C++ is for a GPU, that one or the usual one.
pub fn show_named(kernel: &Kernel, name: &str, env: &Env, form: Form, spec: &DeviceSpec) -> Result<String> {
    if form == Form::Tile {
        return Ok(kernel.to_string());
    }
    if form == Form::Cuda {
        if stores_nothing(kernel, env) {
            return Ok(format!("// {}", no_element(kernel, env)));
        }
        return Ok(match print::print(kernel, &cuda_options(kernel, name, env, gpu(spec)?)) {
            Ok(printed) => printed.source(),
            Err(error) => interpreted(&error),
        });
    }
    if kernel.symbols().iter().any(|symbol| env.get(symbol).is_none()) {
        return Ok("its sizes are known only in a run".into());
    }
    let isa = Isa::detect();
    let emitted = match emit(kernel, env, &Target::new(isa, here::spec().limits.cores)) {
        Err(error) if error.kind() == Kind::Unsupported => return Ok(format!("interpreted: {error}")),
        other => other?,
    };
    if emitted.phases.is_empty() {
        return Ok(no_element(kernel, env));
    }
    let mut text = String::new();
    for phase in &emitted.phases {
        writeln!(text, "{}: {} tasks", phase.name, phase.tasks).expect("writing to a string succeeds");
        let code = match form {
            Form::Asm if isa != Isa::Portable => Code::new(&phase.program, isa)?.asm(),
            _ => phase.program.to_string(),
        };
        writeln!(text, "{}", code.trim_end()).expect("writing to a string succeeds");
    }
    Ok(text)
}

/// The GPU that text is for where none is meant.
pub const USUAL_GPU: &str = "h200";

/// That device, or the usual one where it is no GPU.
fn gpu(spec: &DeviceSpec) -> Result<&DeviceSpec> {
    if spec.kind == Machine::Gpu { Ok(spec) } else { DeviceSpec::find(USUAL_GPU) }
}

/// Compute capability 9.0 brought clusters of blocks, and more memory on the chip than any before it: 164 KiB.
const MOST_ON_CHIP_BEFORE_CLUSTERS: usize = 164 << 10;

/// As how many launches a kernel is printed; none where it is not.
pub fn launches(kernel: &Kernel, name: &str, env: &Env, spec: &DeviceSpec) -> Option<usize> {
    let options = cuda_options(kernel, name, env, gpu(spec).ok()?);
    print::print(kernel, &options).ok().map(|printed| printed.launches.len())
}

/// A kernel as CUDA C++ to be launched by hand: by a name that is free there, and with how it is launched on what, and a note if there is one.
pub fn show_launched(kernel: &Kernel, name: &str, env: &Env, spec: &DeviceSpec, note: &str) -> Result<String> {
    if stores_nothing(kernel, env) {
        return Ok(format!("// {}", no_element(kernel, env)));
    }
    let options = cuda_options(kernel, name, env, gpu(spec)?);
    let named = print::free_name(kernel, &options).map(|name| print::Options { name, ..options.clone() });
    let printed = match named.and_then(|options| print::print(kernel, &options)) {
        Ok(printed) => printed,
        Err(error) => return Ok(interpreted(&error)),
    };
    let mut text = match options.groups {
        true => "// compute capability 9.0: nvcc -arch=sm_90a\n".to_owned(),
        false => "// compute capability 8.0 or later: nvcc -arch=sm_80\n".to_owned(),
    };
    for launch in &printed.launches {
        let print::Launch { name, blocks, threads, shared, .. } = launch;
        let shared = if *shared > 0 { format!(", {shared}") } else { String::new() };
        writeln!(text, "// launched as {name}<<<{blocks}, {threads}{shared}>>>(…)")
            .expect("writing to a string succeeds");
    }
    if !note.is_empty() {
        writeln!(text, "// {note}").expect("writing to a string succeeds");
    }
    text.push_str(&printed.source());
    Ok(text)
}

/// Whether all outputs have no element at these sizes, whatever those are that nobody gave: there is nothing to launch.
fn stores_nothing(kernel: &Kernel, env: &Env) -> bool {
    let is_empty = |output: &Param| output.ty.shape.dims().iter().any(|dim| matches!(dim.eval(env), Ok(0)));
    kernel.outputs.iter().all(is_empty)
}

/// What is told instead of code where no element is stored.
fn no_element(kernel: &Kernel, env: &Env) -> String {
    let sizes = kernel.symbols().into_iter().filter_map(|symbol| Some(format!("{symbol}={}", env.get(&symbol)?)));
    format!("no code: it stores no element where {}", sizes.collect::<Vec<_>>().join(","))
}

fn interpreted(error: &Error) -> String {
    format!("// interpreted: {error}")
}

/// Whether indices of a kernel need 64 bits at these sizes; where some are not known, nobody can say, and 32 are enough for most.
fn is_wide(kernel: &Kernel, env: &Env) -> bool {
    print::is_wide(kernel, env).unwrap_or(false)
}

/// CUDA C++ for the sizes that it is better made for; others are arguments.
fn cuda_options(kernel: &Kernel, name: &str, env: &Env, gpu: &DeviceSpec) -> print::Options {
    let fixed = sizes_to_fix_at(kernel, env).into_iter().filter_map(|symbol| Some((symbol.clone(), env.get(&symbol)?)));
    print::Options {
        name: name.to_owned(),
        fixed: fixed.collect(),
        wide: is_wide(kernel, env),
        groups: gpu.limits.core_on_chip > MOST_ON_CHIP_BEFORE_CLUSTERS,
        asked: print::Asked::Nothing,
        processors: gpu.limits.cores as i64,
        about: print::sizes_about(kernel, env),
    }
}
