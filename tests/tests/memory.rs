//! How much memory models take that are made to take much. Imported and planned: no more than a gigabyte for a file of a megabyte, and less
//! for smaller ones. Run: little more than the limit on values says, whether the run ends with an answer or with that limit. Each is
//! taken in a process of its own, whose peak the system knows.

use std::process::Command;
use std::sync::Arc;

use fuseline::compile::plan_program;
use fuseline::device::{DeviceSpec, Executable};
use fuseline::error::{self, Kind};
use fuseline::fuse::PlanOptions;
use fuseline::reference::{self, Limits};
use fuseline::tensor::{DType, Literal};
use fuseline_cpu::code::Isa;
use fuseline_cpu::run::CpuDevice;
use fuseline_frontend::{Model, Tensors};
use fuseline_tests::malicious::{CROWDS, LARGE, LISTS, MALICES, Malice};
use fuseline_tests::model_maker::bytes;
use libtest_mimic::{Arguments, Failed, Trial};

/// How the program is called to import and plan one model, by its place in the list.
const TAKE: &str = "--take";

/// How the program is called to run one, by its place in the other list, on a device, with values of so many elements.
const RUN: &str = "--run";

/// About so many nodes.
const COUNT: usize = 100;

/// What a process has before it reads anything, its own code among it.
const LEAST: usize = 96 << 20;

/// Bytes of memory for a byte of the file.
const SHARE: usize = 1 << 10;

/// The limit on values of runs, small so that they take little time.
const LIMIT: usize = 64 << 20;

/// What a run may take besides, for which nobody asked: less than the least limit of a file of a megabyte leaves of a gigabyte.
const BESIDES: usize = LIMIT / 5;

/// Values around the limit: below it in elements of four bytes and of eight, and above.
const ELEMENTS: [usize; 5] = [LIMIT / 48, LIMIT / 24, LIMIT / 12, LIMIT / 6, LIMIT / 3];

const DEVICES: [&str; 2] = ["reference", "cpu"];

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments.as_slice() {
        [_, TAKE, place] => {
            let (_, malice) = taken().nth(place.parse().expect("a place")).expect("one of them");
            return tell(take_model(bytes(&malice(COUNT))));
        }
        [_, RUN, place, device, count] => {
            let (_, malice) = LARGE[place.parse::<usize>().expect("a place")];
            return tell(run_model(bytes(&malice(count.parse().expect("a number"))), device));
        }
        _ => {}
    }
    let taken = taken().enumerate().map(|(place, (name, malice))| {
        let most = LEAST + SHARE * bytes(&malice(COUNT)).len();
        Trial::test(name, move || judge(&[TAKE, &place.to_string()], most).map_err(Failed::from))
    });
    let run = LARGE.iter().enumerate().flat_map(|(place, (name, _))| {
        DEVICES.map(|device| {
            Trial::test(format!("{name} on {device}"), move || judge_runs(place, device).map_err(Failed::from))
        })
    });
    let trials = if cfg!(target_os = "linux") { taken.chain(run).collect() } else { Vec::new() };
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// The kinds that take memory when they are imported and planned.
fn taken() -> impl Iterator<Item = (&'static str, Malice)> {
    MALICES.iter().chain(CROWDS).chain(LISTS).copied()
}

/// Imports and plans a model.
fn take_model(file: Vec<u8>) -> error::Result<()> {
    let model = Model::from_bytes(file, "malicious.onnx")?;
    let options = PlanOptions::on(DeviceSpec::find("cpu")?);
    plan_program(model.graph()?.clone(), &options, &mut |_| {}).map(|_| ())
}

/// Runs a model within the limit; its only input, where it has one, is a number.
fn run_model(file: Vec<u8>, device: &str) -> error::Result<()> {
    let limits = Limits { bytes: LIMIT as u64, ..Limits::default() };
    let model = Model::from_bytes(file, "malicious.onnx")?;
    let inputs = model.signature().inputs.iter().map(|port| port.name.to_string());
    let one = Literal::from_f64s(DType::F32, vec![1], &[1.0])?;
    let inputs: Tensors = inputs.map(|name| (name, one.clone())).collect();
    model.specialise(&inputs, |special| {
        let inputs = special.inputs.iter().map(|(name, x)| (Arc::from(name.as_str()), x.clone()));
        if device == "reference" {
            let options = reference::Options { limits, ..reference::Options::default() };
            return reference::evaluate(special.graph, &inputs.collect(), &options).map(|_| ());
        }
        let options = PlanOptions::on(DeviceSpec::find("cpu")?);
        let planned = plan_program(special.graph.clone(), &options, &mut |_| {})?;
        CpuDevice::new(Isa::detect(), 4, options, limits)?.load(&planned)?.run(&inputs.collect()).map(|_| ())
    })
}

/// Prints the most memory that the process had, unless the outcome is our fault.
fn tell(outcome: error::Result<()>) {
    if let Err(error) = outcome {
        assert!(error.kind() != Kind::Bug, "{error}");
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("the system tells");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the peak is listed");
    println!("{}", peak.trim().trim_end_matches(" kB"));
}

fn judge_runs(place: usize, device: &str) -> Result<(), String> {
    for count in ELEMENTS {
        let outcome = judge(&[RUN, &place.to_string(), device, &count.to_string()], LEAST + LIMIT + BESIDES);
        outcome.map_err(|why| format!("{count} elements: {why}"))?;
    }
    Ok(())
}

fn judge(arguments: &[&str], most: usize) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let done = Command::new(program).args(arguments).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&done.stdout);
    let peak: usize = said.trim().parse().map_err(|_| String::from_utf8_lossy(&done.stderr).into_owned())?;
    match peak << 10 <= most {
        true => Ok(()),
        false => Err(format!("{} bytes; {most} are allowed", peak << 10)),
    }
}
