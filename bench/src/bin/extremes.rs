//! How long graphs take that are large in one direction, and models made to take forever:
//! `cargo run --release -p fuseline-bench --bin extremes [KIND or COUNT …]`
//!
//! For every kind (all without arguments) and every count of nodes, seconds of the processor from the file to the graph, through the
//! passes, to plan and log, of the proof by itself, to machine code, and to the result; or the error that ends it. Behind each stage that takes
//! some time, the exponent with which it grows since the count before: 1 is linear, 2 a square. `--most SECONDS` ends a model that takes
//! longer (60). `--write FOLDER` writes the models into a folder instead, for the command.

use std::time::Duration;

use fuseline::error::{Error, Result};
use fuseline_tests::extremes::EXTREMES;
use fuseline_tests::growth::{STAGES, Taken, exponent, measure, measure_graph};
use fuseline_tests::malicious;
use fuseline_tests::model_maker::bytes;

fn main() -> Result<()> {
    let (mut counts, mut kinds): (Vec<usize>, Vec<String>) = (Vec::new(), Vec::new());
    let (mut folder, mut most) = (None, 60);
    let mut arguments = std::env::args().skip(1);
    while let Some(argument) = arguments.next() {
        match argument.parse() {
            Ok(count) => counts.push(count),
            Err(_) if argument == "--write" => folder = arguments.next(),
            Err(_) if argument == "--most" => {
                most = arguments.next().and_then(|text| text.parse().ok()).unwrap_or(most)
            }
            Err(_) => kinds.push(argument),
        }
    }
    if counts.is_empty() {
        counts = vec![1_000, 10_000, 100_000];
    }
    let wanted = |name: &str| kinds.is_empty() || kinds.iter().any(|kind| kind == name);
    if let Some(folder) = folder {
        return counts.iter().try_for_each(|count| write(&folder, *count, wanted));
    }
    let most = Duration::from_secs(most);
    print!("{:24} {:>7} {:>7} {:>9} {:>7}", "kind", "count", "nodes", "effort", "kernels");
    STAGES.iter().for_each(|stage| print!(" {:>14}", format!("{stage} s")));
    println!();
    for (name, extreme) in EXTREMES.iter().filter(|(name, _)| wanted(name)) {
        report(name, &counts, |count| measure_graph(&extreme(count), most));
    }
    for (name, malice) in malicious::all().filter(|(name, _)| wanted(name)) {
        report(name, &counts, |count| measure(bytes(&malice(count)), most));
    }
    Ok(())
}

/// Every model of a count as a file.
fn write(folder: &str, count: usize, wanted: impl Fn(&str) -> bool) -> Result<()> {
    for (name, malice) in malicious::all().filter(|(name, _)| wanted(name)) {
        let path = format!("{folder}/{}_{count}.onnx", name.replace(' ', "_"));
        std::fs::write(&path, bytes(&malice(count))).map_err(|error| Error::invalid(format!("{path}: {error}")))?;
    }
    Ok(())
}

/// Less than this says nothing about growth.
const LEAST_SECONDS: f64 = 0.02;

/// A row for every count.
fn report(name: &str, counts: &[usize], measure: impl Fn(usize) -> Taken) {
    let mut before: Option<(usize, Taken)> = None;
    for count in counts {
        let taken = measure(*count);
        print!("{name:24} {count:7} {:7} {:9} {:7}", taken.nodes, taken.effort, taken.kernels);
        for (stage, seconds) in taken.seconds.iter().enumerate() {
            let grown = before.as_ref().and_then(|(fewer, other)| {
                let times = *count as f64 / *fewer as f64;
                exponent(*other.seconds.get(stage)?, *seconds, times, LEAST_SECONDS)
            });
            let grown = grown.map_or(String::new(), |exponent| format!("^{exponent:.2}"));
            print!(" {seconds:8.3} {grown:5}");
        }
        match &taken.error {
            Some(error) => println!(" {}", error.to_string().chars().take(160).collect::<String>()),
            None => println!(),
        }
        before = Some((*count, taken));
    }
}
