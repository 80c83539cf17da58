//! Case files: graphs in `cases/**/*.ir`, kernels in `cases/**/*.tile`, one test each.
//!
//! The first line says what to do, the rest is input; what must come out stands after a line `----`.
//!
//! | first line             | input                                        | output                                           |
//! |------------------------|----------------------------------------------|--------------------------------------------------|
//! | `test print`           | a graph                                      | its text                                         |
//! | `test origins`         | a graph                                      | its text with origins                            |
//! | `test verify`          | a graph                                      | `ok`, or what the verifier says                  |
//! | `test error`           | a text that is no graph                      | what the parser says                             |
//! | `test run` [`rounded`] | values such as `x = [1.0] : f32[1]`, a graph | the values of the outputs, or the error          |
//! | `test pass NAME`       | a graph                                      | the graph after one pass                         |
//! | `test passes` [`strict`, `fast`, `bf16` or `bf16 storage`] | a graph   | the graph after all passes                       |
//! | `test rewrite NAME`    | a graph                                      | the graph after one rewrite                      |
//! | `test rewrites` [`strict` or `fast`] | a graph                        | what was looked at, the graph after all rewrites |
//!
//! For kernels:
//!
//! | first line             | input                                        | output                                           |
//! |------------------------|----------------------------------------------|--------------------------------------------------|
//! | `test print`           | a kernel                                     | its text                                         |
//! | `test types`           | a kernel                                     | its text with type and axes of every step        |
//! | `test verify`          | a kernel                                     | `ok`, or what the verifier says                  |
//! | `test error`           | a text that is no kernel                     | what the parser says                             |
//! | `test run` [`rounded`] | values of the inputs in order, a kernel      | the values of the outputs, or the error          |
//! | `test cuda` [`whole`] sizes such as `m=64` | a kernel                 | functions in CUDA C++ (`whole`: with what they call) for these sizes, or the error |
//!
//! A graph that is run must give the same however it is planned, on the interpreter of kernels.
//! A kernel that is run must give the same with its folds computed as its schedule says, and in small pieces.
//!
//! Every graph that is read is also sent through its text, and a pass must leave a graph that keeps its invariants.
//! `BLESS=1` writes what comes out into the files.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use fuseline::compare::Agreement;
use fuseline::error::Error;
use fuseline::graph::text::{parse_literal, print_literal};
use fuseline::graph::{Graph, verify};
use fuseline::passes::{Context, Narrowing, Numerics, PASSES, Precision, run_passes};
use fuseline::reference::{Buffer, Options, Reading, evaluate};
use fuseline::rewrites::{PLACEMENTS, Permit, REWRITES, apply_rewrites};
use fuseline::tensor::{Env, Symbol};
use fuseline::tile::{self, Kernel, interp};
use fuseline_cuda::print;
use fuseline_tests::generate::Inputs;
use fuseline_tests::{planned, round_trip};
use libtest_mimic::{Arguments, Failed, Trial};

fn main() -> ExitCode {
    let arguments = Arguments::from_args();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("cases");
    let bless = std::env::var_os("BLESS").is_some();
    let mut files = Vec::new();
    find_cases(&root, &mut files);
    files.sort();
    let trials = files.into_iter().map(|path| {
        let name = path.strip_prefix(&root).unwrap_or(&path).display().to_string();
        Trial::test(name, move || check(&path, bless))
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

fn find_cases(folder: &Path, files: &mut Vec<PathBuf>) {
    for path in std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path()) {
        if path.is_dir() {
            find_cases(&path, files);
        } else if path.extension().is_some_and(|e| e == "ir" || e == "tile") {
            files.push(path);
        }
    }
}

/// A kernel as CUDA C++.
fn printed_for_cuda(kernel: &Kernel, sizes: &[&str]) -> Result<String, Failed> {
    let (whole, sizes) = match sizes {
        ["whole", sizes @ ..] => (true, sizes),
        sizes => (false, sizes),
    };
    let (groups, sizes) = match sizes {
        ["groups", sizes @ ..] => (true, sizes),
        sizes => (false, sizes),
    };
    let mut fixed = Env::new();
    for size in sizes {
        let (name, number) = size.split_once('=').ok_or_else(|| format!("no size: {size}"))?;
        fixed.bind(Symbol::name(name), number.parse::<i64>()?);
    }
    let options = print::Options {
        name: kernel.schedule.name().to_owned(),
        fixed,
        wide: false,
        groups,
        asked: print::Asked::Nothing,
        processors: 132,
        about: Env::new(),
    };
    let printed = match print::print(kernel, &options) {
        Ok(printed) => printed,
        Err(error) => return Ok(error.to_string()),
    };
    let launches = printed.launches.iter().map(|launch| {
        let shared = if launch.shared == 0 { String::new() } else { format!(", {} bytes", launch.shared) };
        format!("launch {}<<<{}, {}{shared}>>>\n", launch.name, launch.blocks, launch.threads)
    });
    let text = if whole { printed.source() } else { printed.functions };
    Ok(format!("{}{text}", launches.collect::<String>()))
}

/// The line between input and output.
const BORDER: &str = "----\n";

fn check(path: &Path, bless: bool) -> Result<(), Failed> {
    let text = std::fs::read_to_string(path)?;
    let (input, wanted) = match text.split_once(&format!("\n{BORDER}")) {
        Some((input, wanted)) => (input, wanted),
        None => (text.trim_end(), ""),
    };
    let is_kernel = path.extension().is_some_and(|e| e == "tile");
    let outcome = if is_kernel { kernel_outcome(input)? } else { outcome(input)? };
    let actual = format!("{}\n", outcome.trim_end());
    if actual == wanted {
        return Ok(());
    }
    if bless {
        return Ok(std::fs::write(path, format!("{input}\n{BORDER}{actual}"))?);
    }
    Err(format!("wanted\n{wanted}\ngot\n{actual}\n(BLESS=1 accepts it)").into())
}

/// What comes out of an input.
fn outcome(input: &str) -> Result<String, Failed> {
    let command = input.lines().next().unwrap_or_default();
    let words: Vec<&str> = command.split_whitespace().collect();
    let (given, text) = split_values(input);
    match words[..] {
        ["test", "error"] => match Graph::parse(&text) {
            Ok(graph) => Err(format!("this is a graph:\n{graph}").into()),
            Err(error) => Ok(error.to_string()),
        },
        ["test", "verify"] => match verify(&parsed(&text)?) {
            Ok(()) => Ok("ok".to_owned()),
            Err(error) => Ok(error.to_string()),
        },
        ["test", "print"] => Ok(well_formed(&text)?.to_string()),
        ["test", "origins"] => Ok(format!("{:#}", well_formed(&text)?)),
        ["test", "run"] => run(&well_formed(&text)?, &given, Reading::Exact),
        ["test", "run", "rounded"] => run(&well_formed(&text)?, &given, Reading::Rounded),
        ["test", "pass", name] => {
            let pass = PASSES.iter().find(|p| p.name == name).ok_or_else(|| format!("there is no pass {name}"))?;
            let given = well_formed(&text)?;
            let graph = pass.apply(&given, &Context::default()).map_err(report)?.unwrap_or(given);
            round_trip::check(&graph).map_err(report)?;
            Ok(graph.to_string())
        }
        ["test", "passes"] => passed(&text, Numerics::Default),
        ["test", "passes", "strict"] => passed(&text, Numerics::Strict),
        ["test", "passes", "fast"] => passed(&text, Numerics::Fast),
        ["test", "passes", "bf16"] => {
            let context = Context { precision: Precision::Bf16, ..Context::default() };
            passed_by(&text, &context)
        }
        ["test", "passes", "bf16", "storage"] => {
            let narrowing = Narrowing::Storage;
            passed_by(&text, &Context { precision: Precision::Bf16, narrowing, ..Context::default() })
        }
        ["test", "rewrite", name] => {
            let rewrite = REWRITES
                .iter()
                .chain(PLACEMENTS)
                .find(|r| r.name == name)
                .ok_or_else(|| format!("there is no rewrite {name}"))?;
            let graph = well_formed(&text)?;
            let new = rewrite.apply(&graph, &mut Permit::everything()).map_err(report)?;
            let new = new.unwrap_or(graph);
            round_trip::check(&new).map_err(report)?;
            Ok(new.to_string())
        }
        ["test", "rewrites"] => rewritten(&text, Numerics::Default),
        ["test", "rewrites", "strict"] => rewritten(&text, Numerics::Strict),
        ["test", "rewrites", "fast"] => rewritten(&text, Numerics::Fast),
        _ => Err(format!("unknown command: {command}").into()),
    }
}

/// What comes out of an input that is a kernel.
fn kernel_outcome(input: &str) -> Result<String, Failed> {
    let command = input.lines().next().unwrap_or_default();
    let words: Vec<&str> = command.split_whitespace().collect();
    let (given, text) = split_values(input);
    match words[..] {
        ["test", "run"] => run_kernel(&well_formed_kernel(&text)?, &given, Reading::Exact),
        ["test", "run", "rounded"] => run_kernel(&well_formed_kernel(&text)?, &given, Reading::Rounded),
        ["test", "error"] => match tile::parse(&text) {
            Ok(kernel) => Err(format!("this is a kernel:\n{kernel}").into()),
            Err(error) => Ok(error.to_string()),
        },
        ["test", "cuda", ref sizes @ ..] => printed_for_cuda(&well_formed_kernel(&text)?, sizes),
        ["test", "verify"] => match tile::verify(&tile::parse(&text).map_err(report)?) {
            Ok(()) => Ok("ok".to_owned()),
            Err(error) => Ok(error.to_string()),
        },
        ["test", "print"] => Ok(well_formed_kernel(&text)?.to_string()),
        ["test", "types"] => Ok(format!("{:#}", well_formed_kernel(&text)?)),
        _ => Err(format!("unknown command: {command}").into()),
    }
}

fn run_kernel(kernel: &Kernel, given: &[&str], reading: Reading) -> Result<String, Failed> {
    let literals = given.iter().map(|line| parse_literal(line.split_once(" = ").map_or(*line, |(_, value)| value)));
    let inputs: Vec<Buffer> =
        literals.map(|literal| literal.map(|l| Buffer::from_literal(&l))).collect::<Result<_, _>>().map_err(report)?;
    let options = interp::Options { reading, ..interp::Options::default() };
    let outputs = match interp::run(kernel, &inputs, &Env::new(), &options) {
        Ok(outputs) => outputs,
        Err(error) => return Ok(error.to_string()),
    };
    let text = |buffer: &Buffer| buffer.to_literal().map(|literal| print_literal(&literal)).map_err(report);
    for folds in [interp::Folds::Whole, interp::Folds::AsScheduled] {
        for piece in [options.piece, 2] {
            let options = interp::Options { folds, piece, ..options };
            let others = interp::run(kernel, &inputs, &Env::new(), &options).map_err(report)?;
            for (output, other) in outputs.iter().zip(&others) {
                let near = |(x, y): (&f64, &f64)| x == y || (x - y).abs() <= 1e-9 * x.abs() || x.is_nan() && y.is_nan();
                if !output.to_floats().iter().zip(other.to_floats().iter()).all(near) {
                    return Err(format!("{}\nwith {folds:?}, {piece}: {}", text(output)?, text(other)?).into());
                }
            }
        }
    }
    let lines = outputs.iter().enumerate().map(|(k, output)| Ok(format!("y{k} = {}\n", text(output)?)));
    lines.collect()
}

/// A kernel that keeps its invariants and survives its text.
fn well_formed_kernel(text: &str) -> Result<Kernel, Failed> {
    let kernel = tile::parse(text).map_err(report)?;
    tile::verify(&kernel).map_err(report)?;
    if tile::parse(&kernel.to_string()).map_err(report)? != kernel {
        return Err(format!("this does not survive its text:\n{kernel}").into());
    }
    Ok(kernel)
}

fn report(error: Error) -> Failed {
    error.to_string().into()
}

fn parsed(text: &str) -> Result<Graph, Failed> {
    Graph::parse(text).map_err(report)
}

/// A graph that keeps its invariants and survives its text.
fn well_formed(text: &str) -> Result<Graph, Failed> {
    let graph = parsed(text)?;
    round_trip::check(&graph).map_err(report)?;
    Ok(graph)
}

fn passed(text: &str, numerics: Numerics) -> Result<String, Failed> {
    passed_by(text, &Context { numerics, ..Context::default() })
}

fn passed_by(text: &str, context: &Context) -> Result<String, Failed> {
    let graph = run_passes(well_formed(text)?, context, &mut |_| {}).map_err(report)?;
    round_trip::check(&graph).map_err(report)?;
    Ok(graph.to_string())
}

/// The graph after passes and rewrites, and before it, as comments, the applications that were looked at.
fn rewritten(text: &str, numerics: Numerics) -> Result<String, Failed> {
    let context = Context { numerics, ..Context::default() };
    let graph = run_passes(well_formed(text)?, &context, &mut |_| {}).map_err(report)?;
    let mut permit = Permit::everything();
    let graph = apply_rewrites(graph, &context, &mut permit, &mut |_| {}).map_err(report)?;
    round_trip::check(&graph).map_err(report)?;
    let mut lines = String::new();
    for application in permit.applications() {
        let refused = application.refused.map(|why| format!(" (refused: {why})")).unwrap_or_default();
        lines.push_str(&format!("# {}: {}{refused}\n", application.rule, application.what));
    }
    Ok(format!("{lines}{graph}"))
}

/// The lines before the graph that give values, and the text with the command and these lines left blank, so that
/// places in errors are those of the file.
fn split_values(input: &str) -> (Vec<&str>, String) {
    let mut values = Vec::new();
    let mut text = String::new();
    let mut in_graph = false;
    for (k, line) in input.lines().enumerate() {
        in_graph |= line.starts_with("graph") || line.starts_with("kernel");
        if k > 0 && (in_graph || line.trim_start().starts_with('#') || !line.contains(" = ")) {
            text.push_str(line);
        } else if k > 0 {
            values.push(line);
        }
        text.push('\n');
    }
    (values, text)
}

fn run(graph: &Graph, given: &[&str], reading: Reading) -> Result<String, Failed> {
    let mut inputs = Inputs::default();
    for line in given {
        let (name, value) = line.split_once(" = ").unwrap_or((line, ""));
        match parse_literal(value) {
            Ok(literal) => inputs.insert(Arc::from(name), literal),
            Err(error) => return Ok(format!("{name}: {error}")),
        };
    }
    let options = interp::Options { reading, ..interp::Options::default() };
    let outcome = evaluate(graph, &inputs, &Options { reading, ..Options::default() });
    for device in ["cpu", "h200"] {
        for choice in planned::choices(device, Numerics::Strict, &[1, 2]) {
            let planned = planned::planned(graph, &choice);
            match &outcome {
                Ok(values) => {
                    planned.and_then(|p| planned::agrees(&p, &inputs, &options, values, |_| Agreement::Exact))
                }
                Err(_) => match planned.and_then(|p| planned::run(&p, &inputs, &options)) {
                    Ok(values) => Err(Error::bug(format!("a plan gives {values:?}"))),
                    Err(_) => Ok(()),
                },
            }
            .map_err(|error| Failed::from(format!("{:?} on {device}: {error}", choice.chooser)))?;
        }
    }
    Ok(match outcome {
        Err(error) => error.to_string(),
        Ok(values) => {
            let lines = graph.outputs().iter().zip(&values);
            lines.map(|(output, value)| format!("{} = {}\n", output.name, print_literal(value))).collect()
        }
    })
}
