//! One official ONNX test: a model, and inputs with the outputs they must give.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use fuseline::compare::Meaning;
use fuseline::compile::compile;
use fuseline::device::{Device, Executable, NamedTensors, ReferenceDevice};
use fuseline::error::{Context as _, Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline::graph::Graph;
use fuseline::passes::{Context, Numerics};
use fuseline::reference::{Limits, Options, Reading, evaluate};
use fuseline::tensor::{DType, Literal};
use fuseline::tile::interp::{self, Folds};
use fuseline_cpu::code::Isa;
use fuseline_cpu::run::CpuDevice;
use fuseline_frontend::onnx::read_value;
use fuseline_frontend::{Model, Tensors};

use crate::generate::Inputs;
use crate::{planned, round_trip};

/// Runs every data set of a test folder on the reference device.
pub fn run(folder: &Path) -> Result<()> {
    each_set(folder, |model, inputs, wanted| {
        check_readings(model, inputs, wanted, &as_imported)?;
        check_readings(model, inputs, wanted, &compiled).at(|| "compiled")
    })
}

/// Runs every data set of a test folder planned, on the interpreter of kernels.
pub fn run_planned(folder: &Path, options: &PlanOptions) -> Result<()> {
    run_by(folder, options, &|graph, inputs, reading| planned(graph, inputs, reading, options))
}

/// Runs every data set of a test folder planned, on this processor.
pub fn run_on_processor(folder: &Path, options: &PlanOptions, isa: Isa) -> Result<()> {
    run_by(folder, options, &|graph, inputs, _| {
        let planned = planned::planned(graph, options)?;
        let device = CpuDevice::new(isa, 1, options.clone(), Limits::default())?;
        let run = || device.load(&planned)?.run(&inputs);
        run().at(|| planned::show(&planned))
    })
}

/// Looks at the graph of every data set of a test folder.
pub fn each_graph(folder: &Path, mut look: impl FnMut(&Graph)) -> Result<()> {
    each_set(folder, |model, inputs, _| {
        model.specialise(inputs, |special| {
            look(special.graph);
            Ok(())
        })
    })
}

fn run_by(folder: &Path, options: &PlanOptions, run: Runner<'_>) -> Result<()> {
    each_set(folder, |model, inputs, wanted| match check_readings(model, inputs, wanted, run) {
        // Where a result jumps, a plan that rounds less often than the model may give what the model means.
        Err(why) if options.numerics != Numerics::Strict => {
            let meant = model.specialise(inputs, |special| {
                let inputs = special.inputs.iter().map(|(n, x)| (Arc::from(n.as_str()), x.clone()));
                Meaning::of(special.graph, &inputs.collect(), Limits::default())
            })?;
            let actual: Vec<Literal> = results(model, inputs, run, Reading::Exact)?.into_values().collect();
            meant.check(&actual).map_err(|_| why)
        }
        outcome => outcome,
    })
}

fn each_set(folder: &Path, mut check: impl FnMut(&Model, &Tensors, &Tensors) -> Result<()>) -> Result<()> {
    let model = Model::open(folder.join("model.onnx"))?;
    let mut sets: Vec<PathBuf> = entries(folder)?.into_iter().filter(|p| p.is_dir()).collect();
    sets.sort();
    if sets.is_empty() {
        return Err(Error::invalid("the test has no data"));
    }
    for set in sets {
        let signature = model.signature();
        let mut inputs = Tensors::new();
        for (k, port) in signature.inputs.iter().enumerate() {
            inputs.extend(read_value(set.join(format!("input_{k}.pb")), port)?);
        }
        let mut wanted = Tensors::new();
        for (k, port) in signature.outputs.iter().enumerate() {
            wanted.extend(read_value(set.join(format!("output_{k}.pb")), port)?);
        }
        check(&model, &inputs, &wanted)?;
    }
    Ok(())
}

/// How a graph is run.
type Runner<'r> = &'r dyn Fn(&Graph, NamedTensors, Options) -> Result<Vec<Literal>>;

/// The meaning: the graph as the importer made it, which must also survive its text form.
fn as_imported(graph: &Graph, inputs: NamedTensors, options: Options) -> Result<Vec<Literal>> {
    round_trip::check(graph)?;
    evaluate(graph, &inputs.into_iter().collect(), &options)
}

/// The graph after all passes, loaded on the reference device.
fn compiled(graph: &Graph, inputs: NamedTensors, options: Options) -> Result<Vec<Literal>> {
    let program = compile(graph.clone(), &Context::default())?;
    ReferenceDevice { options }.load(&program)?.run(&inputs)
}

/// The graph planned; plans are checked, and folds are computed as they are scheduled where that may show.
fn planned(graph: &Graph, inputs: NamedTensors, options: Options, plan: &PlanOptions) -> Result<Vec<Literal>> {
    let inputs: Inputs = inputs.into_iter().collect();
    let folds = if plan.numerics == Numerics::Strict { Folds::Whole } else { Folds::AsScheduled };
    let run = interp::Options { reading: options.reading, limits: options.limits, folds, ..interp::Options::default() };
    let planned = planned::planned(graph, plan)?;
    planned::run(&planned, &inputs, &run).at(|| planned::show(&planned))
}

/// Where a result jumps (a tie in a quantisation), the official outputs are what rounded arithmetic made of it.
fn check_readings(model: &Model, inputs: &Tensors, wanted: &Tensors, run: Runner<'_>) -> Result<()> {
    let with = |reading| check(model, wanted, &results(model, inputs, run, reading)?);
    with(Reading::Exact).or_else(|why| with(Reading::Rounded).map_err(|_| why))
}

fn results(model: &Model, inputs: &Tensors, run: Runner<'_>, reading: Reading) -> Result<Tensors> {
    model.specialise(inputs, |special| {
        let inputs = special.inputs.iter().map(|(n, x)| (Arc::from(n.as_str()), x.clone())).collect();
        let values = run(special.graph, inputs, Options { reading, ..Options::default() })?;
        let names = special.graph.outputs().iter().map(|output| output.name.to_string());
        Ok(names.zip(values).collect())
    })
}

fn check(model: &Model, wanted: &Tensors, actual: &Tensors) -> Result<()> {
    if !wanted.keys().eq(actual.keys()) {
        let (wanted, actual): (Vec<_>, Vec<_>) = (wanted.keys().collect(), actual.keys().collect());
        return Err(Error::invalid(format!("outputs {actual:?} instead of {wanted:?}")));
    }
    let is_text = |name: &str| model.signature().outputs.iter().any(|port| port.is_text && port.has(name));
    for ((name, wanted), actual) in wanted.iter().zip(actual.values()) {
        // Texts are the same with more room for their bytes.
        let actual = &if is_text(name) { narrowed(actual)? } else { actual.clone() };
        compare(wanted, actual).map_err(|why| Error::invalid(why).at(format!("output \"{name}\"")))?;
    }
    Ok(())
}

/// Texts with room for the bytes of the longest one.
fn narrowed(texts: &Literal) -> Result<Literal> {
    let leading = texts.sizes().split_last().map_or(&[][..], |(_, leading)| leading);
    Literal::texts(leading, &texts.to_texts()?)
}

/// The official runner's comparison: relative 1e-3, absolute 1e-7; element types and sizes must be equal. A type with
/// less than 12 bits of precision may differ by one unit in its last place.
fn compare(wanted: &Literal, actual: &Literal) -> std::result::Result<(), String> {
    if wanted.dtype() != actual.dtype() || wanted.sizes() != actual.sizes() {
        return Err(format!("{} instead of {}", actual.ty(), wanted.ty()));
    }
    let dtype = wanted.dtype();
    let relative = f64::max(1e-3, dtype.epsilon());
    for k in 0..wanted.count() {
        let same = if dtype.is_float() {
            let (w, a) = (wanted.float(k), actual.float(k));
            w == a || (w.is_nan() && a.is_nan()) || (w - a).abs() <= 1e-7 + relative * w.abs()
        } else {
            wanted.int(k) == actual.int(k)
        };
        if !same {
            let show = |x: &Literal| {
                if dtype == DType::Bool || dtype.is_int() { x.int(k).to_string() } else { x.float(k).to_string() }
            };
            return Err(format!("element {k} is {} instead of {}", show(actual), show(wanted)));
        }
    }
    Ok(())
}

fn entries(folder: &Path) -> Result<Vec<PathBuf>> {
    let list = std::fs::read_dir(folder).map_err(|e| Error::invalid(e.to_string()).at(folder.display().to_string()))?;
    Ok(list.flatten().map(|e| e.path()).collect())
}
