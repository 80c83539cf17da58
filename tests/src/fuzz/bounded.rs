//! Models and kernels run with little memory and little work, so that a run ends soon.

use std::sync::Arc;

use fuseline::analysis::Footprints;
use fuseline::compare::Meaning;
use fuseline::compile::plan_program;
use fuseline::device::DeviceSpec;
use fuseline::error::{Error, Kind, Result};
use fuseline::fuse::PlanOptions;
use fuseline::graph::Graph;
use fuseline::passes::Numerics;
use fuseline::philox;
use fuseline::reference::{self, Buffer, Limits, Reading};
use fuseline::tensor::{DType, Dim, Env, Literal, Symbol};
use fuseline::tile::Kernel;
use fuseline::tile::interp::{self, Folds};
use fuseline_frontend::onnx::import::Port;
use fuseline_frontend::{Model, Tensors};

use crate::generate::Inputs;
use crate::planned;

/// What a run may use.
const LIMITS: Limits = Limits { trips: 100, bytes: 16 << 20, share: 0, text: 1 << 16 };

/// Graphs of more operations or bytes, counted before they run, are not run.
const MOST_WORK: i64 = 1 << 22;

/// Inputs and axes of kernels have at most this many points.
const MOST_POINTS: i64 = 5000;

/// What sizes without a number are.
const SIZE: i64 = 3;

/// Imports, plans and interprets a model, and compares the outputs with what they mean. Errors of the compiler about a graph
/// that the reference runs are errors of ours unless they name a limit or a gap.
pub fn compile_and_run(file: Vec<u8>) -> Result<()> {
    let (device, numerics) = choice(&file);
    let model = Model::from_bytes(file, "fuzz.onnx")?;
    let mut given = Tensors::new();
    for (k, port) in model.signature().inputs.iter().enumerate() {
        // A sequence has two elements; what may be left out is there.
        for place in 0..if port.form.is_sequence() { 2 } else { 1 } {
            given.insert(port.part_name(place), drawn(port, k as u64)?);
        }
    }
    model.specialise(&given, |special| {
        let inputs = special.inputs.iter().map(|(name, x)| (Arc::from(name.as_str()), x.clone())).collect();
        let options = PlanOptions { numerics, ..PlanOptions::on(DeviceSpec::find(device)?) };
        plan_and_run(special.graph, &inputs, &options)
    })
}

/// A device and how strict arithmetic is, by what the bytes are.
fn choice(file: &[u8]) -> (&'static str, Numerics) {
    let sum = file.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    let device = if sum.is_multiple_of(2) { "cpu" } else { "h200" };
    (device, if sum % 4 < 2 { Numerics::Strict } else { Numerics::Default })
}

fn plan_and_run(graph: &Graph, inputs: &Inputs, options: &PlanOptions) -> Result<()> {
    let planned = plan_program(graph.clone(), options, &mut |_| {})?;
    if work(graph, inputs).is_none_or(|work| work > MOST_WORK) {
        return Ok(());
    }
    let meaning = Meaning::of(graph, inputs, LIMITS)?;
    let how = interp::Options { limits: LIMITS, folds: Folds::AsScheduled, ..interp::Options::default() };
    let outputs = match planned::run(&planned, inputs, &how) {
        Err(error) if error.kind() == Kind::Limit => return Ok(()),
        outcome => outcome.map_err(|error| Error::bug(format!("{error}\n{}", planned::show(&planned))))?,
    };
    // Rewrites of the default numerics may lose what overflows or is not a number; tests of properties see to their accuracy.
    match meaning.check(&outputs) {
        Err((k, why)) if options.numerics == Numerics::Strict && is_kept_by_rounding(graph, inputs, &meaning) => {
            Err(Error::bug(format!("output {k}: {why}\n{graph}\n{}", planned::show(&planned))))
        }
        _ => Ok(()),
    }
}

/// Whether the outputs stay what they mean when every result is rounded to its type. Where they do not, because what is small vanishes or
/// what is large has no number, no plan can be blamed.
fn is_kept_by_rounding(graph: &Graph, inputs: &Inputs, meaning: &Meaning) -> bool {
    let rounded = reference::Options { reading: Reading::Rounded, limits: LIMITS };
    reference::evaluate(graph, inputs, &rounded).is_ok_and(|outputs| meaning.check(&outputs).is_ok())
}

/// The operations and bytes of a graph, every primitive by itself, where sizes without a number are small.
fn work(graph: &Graph, inputs: &Inputs) -> Option<i64> {
    let mut env = Env::new();
    for value in graph.inputs() {
        let sizes = inputs.get(graph.input_name(*value))?.sizes();
        for (dim, size) in graph.ty(*value).shape.dims().iter().zip(sizes) {
            if let Some(symbol) = dim.as_symbol() {
                env.bind(symbol.clone(), *size as i64);
            }
        }
    }
    let number = |dim: &Dim| env.apply(dim).eval_with(&|_| Some(SIZE * SIZE)).ok();
    Footprints::of(graph).nodes.iter().try_fold(0i64, |sum, node| {
        [&node.flops, &node.read, &node.written].into_iter().try_fold(sum, |sum, dim| sum.checked_add(number(dim)?))
    })
}

/// A value for an input: numbers between -2 and 2, not all of them whole.
fn drawn(port: &Port, stream: u64) -> Result<Literal> {
    let sizes: Vec<usize> = match &port.shape {
        Some(shape) => shape.dims().iter().map(|d| d.as_int().unwrap_or(SIZE).max(0) as usize).collect(),
        None => vec![SIZE as usize],
    };
    let count = sizes.iter().try_fold(1usize, |p, n| p.checked_mul(*n)).filter(|n| *n <= MOST_POINTS as usize);
    let count = count.ok_or_else(|| Error::limit("inputs of that size are not made"))?;
    let draw = |k: usize| {
        let word = philox::word(1, stream, k as u64);
        match port.dtype {
            DType::Bool => (word % 2) as f64,
            dtype if dtype.is_float() => (word % 17) as f64 / 4.0 - 2.0,
            dtype if dtype.int_range().is_some_and(|(least, _)| least < 0) => (word % 5) as f64 - 2.0,
            _ => (word % 5) as f64,
        }
    };
    Literal::from_f64s(port.dtype, sizes, &(0..count).map(draw).collect::<Vec<f64>>())
}

/// Runs a kernel on inputs of ones, whose every symbol is small, unless it is large.
pub fn interpret(kernel: &Kernel) -> Result<()> {
    let size = |dim: &Dim| dim.eval_with(&|s| matches!(s, Symbol::Name(_) | Symbol::Value(_)).then_some(SIZE));
    let shapes = kernel.inputs.iter().chain(&kernel.outputs).map(|param| param.ty.shape.dims());
    let is_small = |dims: &[Dim]| {
        let sizes: Option<Vec<i64>> = dims.iter().map(|dim| size(dim).ok()).collect();
        let count = sizes.and_then(|sizes| sizes.iter().try_fold(1i64, |n, size| n.checked_mul(*size)));
        count.is_some_and(|n| n < MOST_POINTS)
    };
    if !shapes.chain([kernel.axes.as_slice()]).all(is_small) {
        return Ok(());
    }
    let mut inputs = Vec::new();
    for param in &kernel.inputs {
        let sizes: Vec<usize> =
            param.ty.shape.dims().iter().map(|dim| size(dim).unwrap_or(0).max(0) as usize).collect();
        let count = sizes.iter().product();
        inputs.push(match param.ty.dtype {
            dtype if dtype.is_float() => Buffer::floats(dtype, sizes, vec![1.0; count]),
            dtype => Buffer::ints(dtype, sizes, vec![1; count]),
        });
    }
    let options = interp::Options { limits: LIMITS, ..interp::Options::default() };
    for (folds, piece) in [(Folds::Whole, 1 << 20), (Folds::AsScheduled, 4)] {
        interp::run(kernel, &inputs, &Env::new(), &interp::Options { folds, piece, ..options })?;
    }
    Ok(())
}
