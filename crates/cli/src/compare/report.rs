//! What was compared, for people and for programs.

use serde_json::{Value, json};

use super::rivals::State;
use super::{Compared, Contender, Difference};
use crate::arguments::Measuring;
use crate::load::Load;
use crate::quantity::{several, significant};
use crate::screen::{self, Column, Table, title};
use fuseline_session::plan::size_list;

impl Contender {
    fn least(&self) -> f64 {
        self.ms.first().copied().unwrap_or(f64::NAN)
    }

    fn median(&self) -> f64 {
        self.ms.get(self.ms.len() / 2).copied().unwrap_or(f64::NAN)
    }
}

/// A table of the contenders, and who is not there.
pub fn to_text(compared: &Compared<'_>) -> String {
    let Compared { model, arguments, feed, contest, .. } = compared;
    let (threads, width) = (contest.threads, screen::width());
    let place = match arguments.device {
        Measuring::Cpu => format!("{threads} thread{}", if threads == 1 { "" } else { "s" }),
        Measuring::Cuda => "the GPU, inputs and results in its memory".to_string(),
    };
    let mut text = title(&format!("{} on {place}", model.name), screen::width());
    let mut line = |words: String| text.push_str(&screen::wrapped(&words, 2, width));
    let sizes = match feed.assumed.is_empty() {
        true => String::new(),
        false => format!("; sizes assumed: {} (choose them with --sizes)", size_list(&feed.assumed)),
    };
    let (rounds, runs) = (several(arguments.rounds.get(), "round"), several(arguments.iters.get(), "run"));
    line(format!("{rounds} of {runs} each, in turns{sizes}"));
    if contest.random_weights > 0 {
        line(format!(
            "the model's weights are random: {} of the file are drawn from seeds, and errors say how well such weights are computed, not trained ones",
            several(contest.random_weights, "tensor")
        ));
    }
    text.push('\n');
    text.push_str(&table(compared).text(width));
    let mut line = |words: String| text.push_str(&screen::wrapped(&words, 2, width));
    for (rival, state) in &contest.absent {
        match state {
            State::Missing { why, install } => {
                let python = arguments.python.as_ref().map_or("python3".into(), |path| path.display().to_string());
                line(format!("{} is missing: {why}; `{python} -m pip install {install}`", rival.name()));
            }
            State::Failed { why } => line(format!("{} does not run the model: {why}", rival.name())),
            State::Ready { .. } => {}
        }
    }
    text
}

fn table(compared: &Compared<'_>) -> Table<'static> {
    let contest = &compared.contest;
    let mut table = Table::new([
        Column::left("contender"),
        Column::left("version").cut(7).goes(2),
        Column::right("load s").goes(1),
        Column::right("min ms").goes(3),
        Column::right("median ms"),
        Column::right("times Fuseline"),
        Column::right("error"),
        Column::left("").wrap(10),
    ]);
    let ours = contest.contenders.first().map_or(f64::NAN, Contender::median);
    for contender in &contest.contenders {
        table.row([
            contender.name.to_string(),
            contender.version.clone(),
            significant(contender.seconds),
            three_digits(contender.least()),
            three_digits(contender.median()),
            significant(contender.median() / ours),
            contender.error.map_or("–".into(), |error| error_text(error.rms)),
            remark(contender, contest.judge),
        ]);
    }
    table
}

/// An error that rounding does not usually make.
const LARGE: f64 = 1e-3;

fn remark(contender: &Contender, judge: Option<&str>) -> String {
    let is_judge = judge == Some(contender.name);
    match contender.error {
        _ if is_judge => "errors are taken to this one".into(),
        Some(Difference { unlike, .. }) if unlike > 0 => format!("{unlike} outputs of another type or size"),
        Some(Difference { unequal, .. }) if unequal > 0 => format!("{unequal} integers differ"),
        // Who is nearer to what is meant, another contender does not know.
        Some(Difference { rms, .. }) if rms > LARGE && judge != Some("reference") => {
            "--exact takes errors to the reference".into()
        }
        _ => String::new(),
    }
}

/// How large an error is; none at all is told without an exponent.
fn error_text(rms: f64) -> String {
    if rms == 0.0 { "0".into() } else { format!("{rms:.1e}") }
}

/// A number with three digits that count, however small it is.
fn three_digits(x: f64) -> String {
    if x == 0.0 || !x.is_finite() {
        return x.to_string();
    }
    let after = 2 - x.abs().log10().floor() as i32;
    format!("{x:.*}", usize::try_from(after).unwrap_or(0))
}

/// The same as JSON.
pub fn to_json(compared: &Compared<'_>) -> Value {
    let Compared { model, arguments, feed, load, contest } = compared;
    let contender = |contender: &Contender| {
        json!({
            "name": contender.name,
            "version": contender.version,
            "load_s": contender.seconds,
            "min_ms": contender.least(),
            "median_ms": contender.median(),
            "ms": contender.ms,
            "error": contender.error.map(|error| json!({ "rms": error.rms, "unequal": error.unequal, "unlike": error.unlike })),
        })
    };
    let absent = contest.absent.iter().map(|(rival, state)| match state {
        State::Missing { why, install } => {
            json!({ "name": rival.name(), "state": "missing", "why": why, "install": install })
        }
        State::Failed { why } => json!({ "name": rival.name(), "state": "failed", "why": why }),
        State::Ready { .. } => json!({ "name": rival.name(), "state": "ready" }),
    });
    json!({
        "model": model.name,
        "device": arguments.device.name(),
        "threads": contest.threads,
        "rounds": arguments.rounds,
        "iters": arguments.iters,
        "seed": arguments.seed,
        "assumed_sizes": feed.assumed.iter().map(|(name, size)| (name.clone(), json!(size))).collect::<serde_json::Map<_, _>>(),
        "random_inputs": feed.random,
        "random_weights": contest.random_weights,
        "load": load.map(Load::to_json),
        "errors_to": contest.judge,
        "contenders": contest.contenders.iter().map(contender).collect::<Vec<_>>(),
        "absent": absent.collect::<Vec<_>>(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_error_is_nothing() {
        assert_eq!([0.0, -0.0, 3.21e-7, 2.0, f64::NAN].map(error_text), ["0", "0", "3.2e-7", "2.0e0", "NaN"]);
    }
}
