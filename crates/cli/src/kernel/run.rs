//! A kernel's outputs, compared with those of its interpreter.

use std::path::Path;
use std::time::Instant;

use fuseline::compare::{Agreed, Agreement, Meaning, Tolerance, compare};
use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline::reference::{Buffer, Limits, Reading};
use fuseline::tensor::Literal;
use fuseline::tile::interp;
use fuseline_cpu::here;
use fuseline_session::machine::processor;
use fuseline_session::plan::size_list;
use serde_json::{Value, json};

use super::Written;
use super::feed::{self, Feed, USUAL_SIZE};
use crate::arguments::{Measuring, RunKernel};
use crate::failure::{Failure, GPU, Outcome};
use crate::file;
use crate::quantity::significant;
use crate::run::{Summary, to_table};
use crate::screen;
use crate::verify::{Check, check_cells};
use crate::waiting::Waiting;

/// Runs a kernel.
pub fn run(written: &Written, options: &RunKernel) -> Outcome {
    if let Some(path) = &options.outputs {
        let read = [Some(Path::new(&written.place)), options.inputs.as_deref()];
        file::check(path, file::Content::Arrays, read.into_iter().flatten())?;
    }
    let feed = feed::assemble(written, options.inputs.as_deref(), &options.sizes, USUAL_SIZE, options.seed)?;
    tell(&feed, options.seed);
    let waiting = Waiting::for_(&format!("running {}", written.name()));
    let start = Instant::now();
    let outputs = outputs(written, options, &feed)?;
    let seconds = start.elapsed().as_secs_f64();
    waiting.say("the interpreter of kernels".into());
    let expected = interpreted(written, &feed).map_err(|error| written.failure(error).or_help(INPUTS))?;
    drop(waiting);
    let kernel = &written.source.kernel;
    let checks = written.source.outputs.iter().enumerate().map(|(k, name)| {
        let within = Agreement::Within(Tolerance::of_kernel(kernel, k, &feed.env));
        let outcome = compare(&expected[k], &outputs[k], &within);
        let outcome = outcome.or_else(|differs| steep(written, &feed, k, &outputs[k]).ok_or(differs));
        Check { value: name.clone(), dtype: outputs[k].dtype(), outcome }
    });
    let checks: Vec<Check> = checks.collect();
    let named = || written.source.outputs.iter().map(String::as_str).zip(&outputs);
    if let Some(path) = &options.outputs {
        file::write_arrays(path, named())?;
    }
    let summaries: Vec<Summary<'_>> = named().map(|(name, literal)| Summary::of(name, literal)).collect();
    if options.json {
        screen::print_json(&to_json(written, options, &feed, &summaries, &checks))?;
    } else {
        screen::tell(&format!("ran on {} in {} s", options.device.name, significant(seconds)));
        screen::print(&to_table(&summaries).text(screen::width()))?;
        for check in &checks {
            let [error, ulp, used, place] = check_cells(check);
            let words = match &check.outcome {
                Ok(agreed) if agreed.worst.is_none() => format!("{} equals that of the interpreter", check.value),
                Ok(_) => {
                    format!(
                        "{} agrees with the interpreter: worst error {error}, {ulp} ulp at {place}, {used} of what is allowed",
                        check.value
                    )
                }
                Err(mismatch) => format!("{} differs from that of the interpreter: {mismatch}", check.value),
            };
            screen::print(&screen::wrapped(&words, 2, screen::width()))?;
        }
    }
    match checks.iter().all(|check| check.outcome.is_ok()) {
        true => Ok(()),
        false => Err(Failure::Differs),
    }
}

/// Whether an output that is beyond its tolerance is within what roundings become on the way to it, where that is known.
fn steep(written: &Written, feed: &Feed, output: usize, actual: &Literal) -> Option<Agreed> {
    let meaning = Meaning::of_kernel(&written.source.kernel, &feed.tensors, &feed.env, Limits::default());
    let meaning = meaning.ok().flatten()?;
    let known = meaning.measure(output, actual).ok();
    // What leaves the range of its type where every operation rounds does not do so in the interpreter.
    known.or_else(|| meaning.or_read(&[Reading::Rounded]).ok()?.measure(output, actual).ok())
}

/// Says what nobody gave.
pub fn tell(feed: &Feed, seed: u64) {
    if !feed.assumed.is_empty() {
        let sizes = size_list(&feed.assumed);
        screen::tell(&format!("note: free sizes taken as {sizes} (choose them with --sizes)"));
    }
    if !feed.random.is_empty() {
        screen::tell(&format!("note: random, seed {seed}: {}", feed.random.join(", ")));
    }
}

fn outputs(written: &Written, options: &RunKernel, feed: &Feed) -> Outcome<Vec<Literal>> {
    let plan = PlanOptions::on(here::spec());
    let kernel = |device: Measuring| written.kernel_to_run(device.target(), &feed.env);
    let limits = Limits::default();
    let done = match options.device.name {
        "interp" => interpreted(written, feed),
        "cpu" => {
            let device = processor(plan, options.threads, limits)?;
            device.load_kernel(kernel(Measuring::Cpu)?, &feed.env).and_then(|lone| lone.run(&feed.tensors))
        }
        "cuda" => {
            let device = crate::gpu::open(plan, limits).map_err(|error| error.at(GPU))?;
            device.load_kernel(kernel(Measuring::Cuda)?, &feed.env).and_then(|lone| lone.run(&feed.tensors))
        }
        other => Err(Error::bug(format!("{other} is no device of kernels"))),
    };
    done.map_err(|error| written.failure(error).or_help(INPUTS))
}

/// What helps where what a kernel is given does not fit it.
const INPUTS: &str = "check the place named above, and what is given with --inputs and --sizes";

fn interpreted(written: &Written, feed: &Feed) -> Result<Vec<Literal>> {
    written.source.kernel.check_positions(&feed.env)?;
    let inputs: Vec<Buffer> = feed.tensors.iter().map(Buffer::from_literal).collect();
    let outputs = interp::run(&written.source.kernel, &inputs, &feed.env, &interp::Options::default())?;
    outputs.iter().map(Buffer::to_literal).collect()
}

fn to_json(written: &Written, options: &RunKernel, feed: &Feed, summaries: &[Summary<'_>], checks: &[Check]) -> Value {
    let outputs = summaries.iter().zip(checks).map(|(summary, check)| {
        let mut output = summary.to_json();
        output["against_interpreter"] = crate::verify::check_json(check);
        output
    });
    json!({
        "kernel": written.name(),
        "device": options.device.name,
        "seed": options.seed,
        "random_inputs": feed.random,
        "sizes": sizes_json(written, feed),
        "agrees": checks.iter().all(|check| check.outcome.is_ok()),
        "outputs": outputs.collect::<Vec<_>>(),
    })
}

/// All sizes by name.
pub fn sizes_json(written: &Written, feed: &Feed) -> Value {
    let symbols = written.source.kernel.symbols();
    let sizes = symbols.iter().map(|symbol| (symbol.to_string(), json!(feed.env.get(symbol))));
    Value::Object(sizes.collect())
}
