//! Whole networks without their weights (`models/structure/*.onnx`), one test each: they are small, import, compile within
//! little memory and keep all invariants; the tiny ones answer as ONNX Runtime does (`NAME.K.npz`: inputs and outputs), on
//! the reference, and planned on the interpreter of kernels.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use fuseline::compare::Meaning;
use fuseline::compile::compile;
use fuseline::device::{Device, DeviceSpec, NamedTensors, ReferenceDevice};
use fuseline::error::Error;
use fuseline::fuse::{Chooser, PlanOptions};
use fuseline::graph::{Graph, verify};
use fuseline::ops::Prim;
use fuseline::passes::Context;
use fuseline::reference::Limits;
use fuseline::tensor::Literal;
use fuseline::tile::interp::{self, Folds};
use fuseline_frontend::npz::{ReadOptions, read_npz};
use fuseline_frontend::{Model, Tensors};
use fuseline_tests::generate::Inputs;
use fuseline_tests::planned::{cut_small, planned, run};
use fuseline_tests::round_trip;
use libtest_mimic::{Arguments, Failed, Trial};

/// The most that a file may take.
const MOST_BYTES: u64 = 300_000;

/// The most that the stored constants of a compiled network may take: small tables, and what folding leaves.
const MOST_STORED: usize = 1 << 20;

/// The most memory that this process may ever have held: many times less than the weights of one large network.
const MOST_HELD: usize = 256 << 20;

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("models/structure");
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|e| e.path()).collect();
    files.sort();
    let mut trials = vec![Trial::test("both_exporters", {
        let files = files.clone();
        move || both_exporters(&files)
    })];
    for file in files {
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        match file.extension().and_then(|e| e.to_str()) {
            Some("onnx") => trials.push(Trial::test(format!("compile/{name}"), move || compiles(&file))),
            Some("npz") => {
                let other = file.clone();
                trials.push(Trial::test(format!("answer/{name}"), move || answers(&file)));
                trials.push(Trial::test(format!("planned/{name}"), move || answers_as_planned(&other)));
            }
            _ => {}
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

fn both_exporters(files: &[PathBuf]) -> Result<(), Failed> {
    let names: Vec<_> = files.iter().filter_map(|f| f.file_name()?.to_str()).collect();
    for network in ["bert_base", "gpt2", "llama4l_hf", "vit_b16", "resnet50", "mobilenetv3l", "efficientnet_b0"] {
        for exporter in [".legacy", ".dynamo"] {
            if !names.iter().any(|name| name.starts_with(network) && name.contains(exporter)) {
                return Err(format!("there is no {network} from the exporter {exporter}").into());
            }
        }
    }
    Ok(())
}

fn constants(graph: &Graph) -> impl Iterator<Item = &Literal> {
    graph.nodes().iter().filter_map(|node| if let Prim::Const(row) = node.prim() { Some(&row.literal) } else { None })
}

fn compiles(file: &Path) -> Result<(), Failed> {
    let size = file.metadata()?.len();
    if size >= MOST_BYTES {
        return Err(format!("the file takes {size} bytes").into());
    }
    let model = Model::open(file)?;
    let graph = model.graph()?;
    if !constants(graph).any(|literal| literal.as_seeded().is_some()) {
        return Err("no weights are drawn from a seed".into());
    }
    let program = compile(graph.clone(), &Context::default())?;
    for part in [program.prepare(), program.run()] {
        verify(part)?;
        round_trip::check(part)?;
        let stored: usize = constants(part).filter(|l| l.as_seeded().is_none()).map(Literal::byte_count).sum();
        if stored > MOST_STORED {
            return Err(format!("{stored} bytes of stored constants").into());
        }
    }
    if graph.outputs().iter().map(|o| &o.name).ne(program.run().outputs().iter().map(|o| &o.name)) {
        return Err("the outputs of the program are not those of the model".into());
    }
    match most_held() {
        Some(held) if held > MOST_HELD => Err(format!("{held} bytes of memory were in use at one time").into()),
        _ => Ok(()),
    }
}

/// The most memory that this process has held so far, where the system tells.
fn most_held() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix(" kB")?.parse::<usize>().ok().map(|kib| kib << 10)
}

/// The answer of the compiled network, on the reference device.
fn answers(file: &Path) -> Result<(), Failed> {
    check_answer(file, |graph, given| {
        let program = compile(graph.clone(), &Context::default())?;
        ReferenceDevice::default().load(&program)?.run(&given)
    })
}

/// The answer of the network as it is planned, on the interpreter of kernels: by cost on a CPU and on a GPU, and by chance.
fn answers_as_planned(file: &Path) -> Result<(), Failed> {
    let how = interp::Options { folds: Folds::AsScheduled, ..interp::Options::default() };
    for (device, chooser) in [("cpu", Chooser::ByCost), ("h200", Chooser::ByCost), ("a100", Chooser::AtRandom(1))] {
        let options = PlanOptions { chooser, ..PlanOptions::on(DeviceSpec::find(device)?) };
        check_answer(file, |graph, given| {
            let inputs: Inputs = given.into_iter().collect();
            let plan = cut_small(planned(graph, &options)?);
            let outputs = run(&plan, &inputs, &how)?;
            let meaning = Meaning::of(graph, &inputs, Limits::default())?;
            meaning
                .check(&outputs)
                .map_err(|(k, why)| Error::bug(format!("output {k} is not what it means: {why}")))?;
            Ok(outputs)
        })
        .map_err(|why| format!("{device}: {}", why.message().unwrap_or("it fails")))?;
    }
    Ok(())
}

/// Runs a network in some way on the inputs of a file, and compares with the outputs there.
fn check_answer(
    file: &Path,
    run: impl Fn(&Graph, NamedTensors) -> fuseline::error::Result<Vec<Literal>>,
) -> Result<(), Failed> {
    let arrays = read_npz(file, &ReadOptions::default())?;
    // NAME.K.npz belongs to NAME.onnx.
    let model = Model::open(file.with_extension("").with_extension("onnx"))?;
    let takes = |name: &str| model.signature().inputs.iter().any(|port| port.name == name);
    let (inputs, wanted): (Tensors, Tensors) = arrays.into_iter().partition(|(name, _)| takes(name));
    let outputs = model.specialise(&inputs, |special| {
        let given: NamedTensors = special.inputs.iter().map(|(n, x)| (n.as_str().into(), x.clone())).collect();
        let names = special.graph.outputs().iter().map(|o| o.name.to_string());
        Ok(names.zip(run(special.graph, given)?).collect::<Tensors>())
    })?;
    if wanted.is_empty() {
        return Err("there is no answer to compare with".into());
    }
    for (name, wanted) in &wanted {
        let actual = outputs.get(name).ok_or_else(|| format!("there is no output {name}"))?;
        agree(wanted, actual).map_err(|why| format!("{name}: {why}"))?;
    }
    Ok(())
}

/// ONNX Runtime computes in single precision, so that errors grow with the depth of a network.
fn agree(wanted: &Literal, actual: &Literal) -> Result<(), String> {
    if wanted.ty() != actual.ty() {
        return Err(format!("{}, wanted {}", actual.ty(), wanted.ty()));
    }
    let (wanted, actual) = (wanted.to_f64s(), actual.to_f64s());
    let largest = wanted.iter().fold(0.0, |m: f64, x| m.max(x.abs()));
    let error = wanted.iter().zip(&actual).fold(0.0, |m: f64, (x, y)| m.max((x - y).abs()));
    if error <= 1e-4 * largest { Ok(()) } else { Err(format!("off by {error:e}, the largest element is {largest:e}")) }
}
