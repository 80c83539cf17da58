//! How much memory models take that are made to take much: no more than a gigabyte for a file of a megabyte, and less for smaller ones. Each is
//! imported and planned in a process of its own, whose peak the system knows.

use std::process::Command;

use fuseline::compile::plan_program;
use fuseline::device::DeviceSpec;
use fuseline::error::Kind;
use fuseline::fuse::PlanOptions;
use fuseline_frontend::Model;
use fuseline_tests::malicious::MALICES;
use fuseline_tests::model_maker::bytes;
use libtest_mimic::{Arguments, Failed, Trial};

/// How the program is called to take one model, by its place in the list.
const TAKE: &str = "--take";

/// About so many nodes.
const COUNT: usize = 100;

/// What a process has before it reads anything, its own code among it.
const LEAST: usize = 96 << 20;

/// Bytes of memory for a byte of the file.
const SHARE: usize = 1 << 10;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, take, place] = arguments.as_slice()
        && take == TAKE
    {
        let (_, malice) = MALICES[place.parse::<usize>().expect("a place")];
        return take_model(bytes(&malice(COUNT)));
    }
    let trials = MALICES.iter().enumerate().map(|(place, (name, malice))| {
        Trial::test(*name, move || judge(place, bytes(&malice(COUNT)).len()).map_err(Failed::from))
    });
    let trials = if cfg!(target_os = "linux") { trials.collect() } else { Vec::new() };
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

/// Imports and plans a model, and prints the most memory that the process had.
fn take_model(file: Vec<u8>) {
    let outcome = Model::from_bytes(file, "malicious.onnx").and_then(|model| {
        let options = PlanOptions::on(DeviceSpec::find("cpu")?);
        plan_program(model.graph()?.clone(), &options, &mut |_| {}).map(|_| ())
    });
    if let Err(error) = outcome {
        assert!(matches!(error.kind(), Kind::Limit | Kind::NeedsValue), "{error}");
    }
    let status = std::fs::read_to_string("/proc/self/status").expect("the system tells");
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).expect("the peak is listed");
    println!("{}", peak.trim().trim_end_matches(" kB"));
}

fn judge(place: usize, file: usize) -> Result<(), String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    let done = Command::new(program).args([TAKE, &place.to_string()]).output().map_err(|error| error.to_string())?;
    let said = String::from_utf8_lossy(&done.stdout);
    let peak: usize = said.trim().parse().map_err(|_| String::from_utf8_lossy(&done.stderr).into_owned())?;
    let most = LEAST + SHARE * file;
    match peak << 10 <= most {
        true => Ok(()),
        false => Err(format!("{} bytes for a file of {file}; {most} are allowed", peak << 10)),
    }
}
