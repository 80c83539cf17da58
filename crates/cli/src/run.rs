//! `fuseline run`: a model's outputs for given or random inputs.

use std::time::Instant;

use fuseline::reference::Options;
use fuseline::tensor::{Literal, Shape, Spread};
use fuseline_frontend::npz::Array;
use serde_json::{Value, json};

use crate::arguments::{ReadingName, Run};
use crate::deadline::Deadline;
use crate::device::{Means, Wishes};
use crate::failure::Outcome;
use crate::feed::{self, Feed};
use crate::file;
use crate::model::Model;
use crate::quantity;
use crate::screen::{self, Column, Table};
use crate::waiting::Waiting;
use crate::written_plan::WrittenPlan;

/// Runs a model.
pub fn run(arguments: &Run) -> Outcome {
    let written = arguments.plan.as_deref().map(WrittenPlan::read).transpose()?;
    let model = Model::open(&arguments.model, arguments.dtype, &arguments.limits)?;
    let reading = arguments.reading.unwrap_or(ReadingName::Exact);
    let options = Options { reading: reading.reading(), limits: arguments.limits.run() };
    let numerics = arguments.numerics.map(|numerics| numerics.numerics());
    let means = Means { options, threads: arguments.threads };
    let (target, precision, reads) = (arguments.target.as_deref(), arguments.precision, arguments.reading.is_some());
    let wishes =
        Wishes { target, numerics, precision, plan: written.as_ref(), reads, means, limits: &arguments.limits };
    let runner = arguments.device.runner(wishes)?;
    if let Some(path) = &arguments.outputs {
        let read = [arguments.model.file(), arguments.inputs.file.as_deref(), arguments.plan.as_deref()];
        file::check(path, file::Content::Arrays, read.into_iter().flatten())?;
    }
    let feed = feed::assemble(&model, &arguments.inputs, &arguments.sizes, arguments.seed)?;
    tell_assumptions(&feed, arguments.seed);
    let start = Instant::now();
    let outputs = {
        let _waiting = Waiting::for_(&format!("running {}", model.name));
        let _deadline = Deadline::after("the run", arguments.time());
        let outputs = model.evaluate(&feed.tensors, &runner);
        outputs.map_err(|error| match &written {
            Some(plan) => plan.failed(error.into()),
            None => feed.failed(&model, error),
        })?
    };
    let seconds = start.elapsed().as_secs_f64();
    if let Some(path) = &arguments.outputs {
        let is_text = model.returned_texts();
        let array = |name: &str, literal| {
            if is_text(name) { Array::Texts(literal) } else { Array::Numbers(literal) }
        };
        file::write_arrays(path, outputs.iter().map(|(name, literal)| (name.as_str(), array(name, literal))))?;
    }
    let is_text = model.returned_texts();
    let summary = |(name, literal)| {
        if is_text(name) { Summary::of_texts(name, literal) } else { Summary::of(name, literal) }
    };
    let summaries: Vec<Summary> = outputs.iter().map(|(name, literal)| summary((name.as_str(), literal))).collect();
    if arguments.json {
        return screen::print_json(&to_json(&model, arguments, &feed, &summaries));
    }
    screen::tell(&format!("ran on {} in {} s", arguments.device.name, quantity::significant(seconds)));
    screen::print(&to_table(&summaries).text(screen::width()))
}

/// More inputs and sizes than this are counted, not listed; `--json` lists them all.
const MOST_LISTED: usize = 32;

fn tell_assumptions(feed: &Feed, seed: u64) {
    if !feed.assumed.is_empty() {
        let listed: Vec<String> =
            feed.assumed.iter().take(MOST_LISTED).map(|(name, size)| format!("{name}={size}")).collect();
        let more = match feed.assumed.len() - listed.len() {
            0 => String::new(),
            more => format!(", and {more} more"),
        };
        screen::tell(&format!("note: free sizes taken as {}{more} (choose them with --sizes)", listed.join(",")));
    }
    for name in feed.random.iter().take(MOST_LISTED) {
        let ty = feed.tensors[name].ty();
        screen::tell(&format!("note: input {} is random: {ty}, seed {seed}", screen::spelt_out(name)));
    }
    match feed.random.len().saturating_sub(MOST_LISTED) {
        0 => {}
        1 => screen::tell(&format!("note: one more input is random, seed {seed}")),
        more => screen::tell(&format!("note: {more} more inputs are random, seed {seed}")),
    }
}

/// What an output looks like.
pub struct Summary<'a> {
    name: &'a str,
    literal: &'a Literal,
    spread: Spread,
    /// whether it holds texts: bytes with one axis more
    is_text: bool,
}

impl<'a> Summary<'a> {
    /// Looks at an output.
    pub fn of(name: &'a str, literal: &'a Literal) -> Summary<'a> {
        Summary { name, literal, spread: literal.spread(), is_text: false }
    }

    /// Texts, of which there is nothing to compute.
    fn of_texts(name: &'a str, literal: &'a Literal) -> Summary<'a> {
        let spread = Spread { range: None, nans: 0, infinities: 0 };
        Summary { name, literal, spread, is_text: true }
    }

    /// Element type and sizes as the user has them.
    fn ty(&self) -> (&'static str, &[usize]) {
        let sizes = self.literal.sizes();
        if self.is_text {
            ("string", &sizes[..sizes.len().saturating_sub(1)])
        } else {
            (self.literal.dtype().name(), sizes)
        }
    }
}

/// A line for every output.
pub fn to_table(summaries: &[Summary<'_>]) -> Table<'static> {
    let first = [Column::left("output").cut(8), Column::left("type").wrap(12)];
    let columns = ["min", "mean", "max", ""].map(Column::right);
    let mut table = Table::new(first.into_iter().chain(columns));
    for summary in summaries {
        let ty = match summary.is_text {
            true => format!("string{}", Shape::from_iter(summary.ty().1.iter().copied())),
            false => summary.literal.ty().to_string(),
        };
        let mut cells = vec![summary.name.to_string(), ty];
        match summary.spread.range {
            Some((low, mean, high)) => cells.extend([low, mean, high].map(number)),
            None => cells.extend(["–", "–", "–"].map(String::from)),
        }
        if summary.ty().1.contains(&0) {
            cells.push("empty".into());
        } else if summary.spread.nans > 0 {
            cells.push(format!("{} NaN", summary.spread.nans));
        }
        table.row(cells);
    }
    table
}

/// Five significant digits, without trailing zeros: in f32 the sixth depends on the machine.
fn number(x: f64) -> String {
    if x == 0.0 || !x.is_finite() {
        return format!("{x}");
    }
    let exponent = x.abs().log10().floor() as i32;
    if !(-4..9).contains(&exponent) {
        return format!("{x:.4e}");
    }
    let text = format!("{x:.*}", usize::try_from(4 - exponent).unwrap_or(0));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_string() } else { text }
}

impl Summary<'_> {
    /// The same as JSON.
    pub fn to_json(&self) -> Value {
        let (dtype, shape) = self.ty();
        json!({
            "name": self.name,
            "dtype": dtype,
            "shape": shape,
            "min": self.spread.range.map(|r| r.0),
            "mean": self.spread.range.map(|r| r.1),
            "max": self.spread.range.map(|r| r.2),
            "nan": self.spread.nans,
            "infinite": self.spread.infinities,
        })
    }
}

fn to_json(model: &Model, arguments: &Run, feed: &Feed, summaries: &[Summary<'_>]) -> Value {
    let inputs = feed.tensors.iter().map(|(name, literal)| {
        let is_in_words = || arguments.inputs.values.iter().any(|values| values.name == *name);
        let source = match feed.random.contains(name) {
            true => "random",
            false if is_in_words() => "argument",
            false => "file",
        };
        json!({ "name": name, "dtype": literal.dtype().name(), "shape": literal.sizes(), "source": source })
    });
    let outputs = summaries.iter().map(Summary::to_json);
    json!({
        "model": model.name,
        "device": arguments.device.name,
        "reading": arguments.reading.map(ReadingName::name),
        "seed": arguments.seed,
        "inputs": inputs.collect::<Vec<_>>(),
        "outputs": outputs.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        assert_eq!(number(0.0), "0");
        assert_eq!(number(1.0), "1");
        assert_eq!(number(-0.123456789), "-0.12346");
        assert_eq!(number(123456.0), "123456");
        assert_eq!(number(1e-9), "1.0000e-9");
        assert_eq!(number(f64::INFINITY), "inf");
    }
}
