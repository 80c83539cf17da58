//! Verdicts, for people and for programs.

use std::fmt::Write as _;

use fuseline::compare::{Mismatch, Worst};
use fuseline::passes::Numerics;
use fuseline::reference::Reading;
use fuseline_session::plan::name::cut_path;
use fuseline_session::plan::size_list;
use serde_json::{Map, Value, json};

use super::judge::{Check, KernelVerdict, Stage, Verdict};
use crate::arguments::{Measuring, Verify};
use crate::feed::Feed;
use crate::model::Model;
use crate::quantity::significant;
use crate::screen::{self, Column, Table, heading, title};

/// Everything that was compared, device by device.
pub fn to_text(model: &Model, arguments: &Verify, feed: &Feed, verdicts: &[Verdict]) -> String {
    let mut text = String::new();
    for verdict in verdicts {
        if !text.is_empty() {
            text.push('\n');
        }
        text.push_str(&of_device(model, arguments, feed, verdict));
    }
    text
}

fn of_device(model: &Model, arguments: &Verify, feed: &Feed, verdict: &Verdict) -> String {
    let place = match verdict.device {
        Measuring::Cpu if verdict.threads == 1 => "1 thread".to_owned(),
        Measuring::Cpu => format!("{} threads", verdict.threads),
        Measuring::Cuda => "the GPU".to_owned(),
    };
    let mut text = title(&format!("{} on {place}", model.name), screen::width());
    let mut facts = vec![format!("planned for {}", verdict.target)];
    match feed.random.len() {
        0 => facts.push("inputs as given".into()),
        _ => facts.push(format!("{} random, seed {}", feed.random.join(", "), arguments.seed)),
    }
    if !feed.assumed.is_empty() {
        facts.push(format!("sizes assumed: {} (choose them with --sizes)", size_list(&feed.assumed)));
    }
    text.push_str(&screen::wrapped(&facts.join("; "), 2, screen::width()));
    text.push_str(&format!("\n{}", heading("Outputs, against the reference")));
    text.push_str(&outputs(verdict).text(screen::width()));
    text.push_str(&format!("\n{}", heading("Kernels, each against what its nodes make of what it read")));
    text.push_str(&kernels(verdict, arguments.top));
    text.push('\n');
    for words in conclusion(verdict) {
        text.push_str(&screen::wrapped(&words, 2, screen::width()));
    }
    text
}

fn outputs(verdict: &Verdict) -> Table<'static> {
    let mut table = Table::new([
        Column::left(""),
        Column::left("output").cut(8),
        Column::right("worst error"),
        Column::right("ulp").goes(2),
        Column::right("of allowed"),
        Column::left("where").wrap(8).goes(1),
    ]);
    let prepared = verdict.prepared.as_slice();
    let stages = [
        ("after passes", &verdict.passes[..]),
        ("by rounding", &verdict.rounding),
        ("prepared once", prepared),
        ("fused", &verdict.fused),
        ("unfused", &verdict.unfused),
    ];
    for (stage, checks) in stages {
        for check in checks {
            let [error, ulp, used, place] = cells(check);
            // What was asked for is not an error.
            let used = if stage == "by rounding" { "–".into() } else { used };
            table.row([stage.to_string(), check.value.clone(), error, ulp, used, place]);
        }
    }
    table
}

/// Error, ulps, part of what is allowed, and where.
pub fn cells(check: &Check) -> [String; 4] {
    match (&check.outcome, check.worst()) {
        (Err(mismatch @ Mismatch::Types { .. }), _) => ["–".into(), "–".into(), "differs".into(), mismatch.to_string()],
        (_, None) => ["0".into(), "0".into(), "0 %".into(), "–".into()],
        (_, Some(worst)) => [
            format!("{:.1e}", worst.distance()),
            significant(worst.ulps(check.dtype)),
            percent(check.used()),
            format!("{:?}", worst.index),
        ],
    }
}

fn percent(used: f64) -> String {
    match used {
        used if used > 1.0 && used < 1e4 => format!("{:.0} % !", 100.0 * used),
        used if used > 1.0 => "differs !".into(),
        used if used > 0.0 && used < 0.01 => "<1 %".into(),
        used => format!("{:.0} %", 100.0 * used),
    }
}

/// The kernels, those that use most of what is allowed first.
fn kernels(verdict: &Verdict, top: usize) -> String {
    let most = |kernel: &KernelVerdict| kernel.fused.used().max(kernel.interpreted.used());
    let mut order: Vec<&KernelVerdict> = verdict.kernels.iter().collect();
    order.sort_by(|a, b| most(b).total_cmp(&most(a)));
    let mut table = Table::new([
        Column::right(""),
        Column::left("kernel").cut(16),
        Column::left("kind").goes(3),
        Column::right("worst error"),
        Column::right("fused ulp").goes(6),
        Column::right("unfused").goes(5),
        Column::right("interp").goes(4),
        Column::right("of allowed"),
        Column::left("value").cut_by(12, cut_path).goes(2),
        Column::left("where").goes(1),
    ]);
    for kernel in order.iter().take(top) {
        let [error, ulp, _, place] = cells(&kernel.fused);
        let unfused = match &kernel.unfused {
            Some(Ok(check)) => cells(check)[1].clone(),
            _ => "–".into(),
        };
        let of_allowed = percent(most(kernel));
        table.row([
            kernel.number.to_string(),
            kernel.row.pattern.clone(),
            kernel.row.kind.name().to_string(),
            error,
            ulp,
            unfused,
            cells(&kernel.interpreted)[1].clone(),
            of_allowed,
            kernel.fused.value.clone(),
            place,
        ]);
    }
    let mut text = table.text(screen::width());
    if order.len() > top {
        writeln!(text, "  … and {} more that use less (--top lists them)", order.len() - top)
            .expect("writing to a string succeeds");
    }
    text
}

/// What follows, a sentence a line.
fn conclusion(verdict: &Verdict) -> Vec<String> {
    let mut lines = Vec::new();
    if let Some(first) = verdict.without_code.first() {
        let more = verdict.without_code.len() - 1;
        let others = if more > 0 { format!(", and {more} more") } else { String::new() };
        lines.push(format!("without code of their own, interpreted: {first}{others}"));
    }
    lines.extend(verdict.fused.iter().filter_map(steps));
    lines.extend(verdict.fused.iter().filter_map(no_numbers));
    lines.extend(verdict.fused.iter().filter_map(anything_goes));
    match (verdict.guilty, verdict.evidence()) {
        (Some(stage), Some(check)) => {
            lines.push(format!("differs: {}", describe(stage, verdict)));
            let what = match &check.outcome {
                Err(mismatch) => mismatch.to_string(),
                Ok(_) => String::new(),
            };
            lines.push(format!("{}: {what}", check.value));
            lines.extend(advice(verdict));
        }
        _ => {
            let outputs = match verdict.fused.len() {
                1 => "the output agrees".to_owned(),
                count => format!("all {count} outputs agree"),
            };
            lines.push(match verdict.kernels.len() {
                _ if verdict.is_rounded => format!("{outputs} with {}", readings(verdict)),
                0 => outputs,
                1 => format!("{outputs}, and so does the kernel"),
                count => format!("{outputs}, and so do all {count} kernels"),
            });
        }
    }
    lines
}

/// What outputs agree with, in words, where the model comes to something else with every operation rounded than with exact arithmetic.
fn readings(verdict: &Verdict) -> &'static str {
    let reads = |checks: &[Check], reading: Reading| {
        checks.iter().any(|check| check.outcome.as_ref().is_ok_and(|agreed| agreed.reading == reading))
    };
    if reads(&verdict.fused, Reading::Rounded) {
        "the model as it is written, every operation rounded; exact arithmetic comes to something else"
    } else if reads(&verdict.fused, Reading::Held) {
        "the model where numbers of narrow types are held wider inside of kernels; as it is written, every operation rounded, it comes to \
         something else (`--numerics strict` does that)"
    } else {
        "exact arithmetic; as the model is written, every operation rounded, it comes to something else (`--numerics strict` does that)"
    }
}

/// What `--numerics strict` would change, in words; nothing where that is not known to help.
fn advice(verdict: &Verdict) -> Option<String> {
    if verdict.strict_agrees != Some(true) {
        return None;
    }
    let agrees = "with `--numerics strict` the outputs agree";
    // Code that differs from its kernel is at fault whatever the order.
    let is_order = match verdict.guilty {
        Some(Stage::Passes | Stage::Lowering(_) | Stage::Written) => true,
        Some(Stage::Code(k)) => verdict.kernels[k].leaves_range,
        _ => false,
    };
    Some(match verdict.numerics {
        Numerics::Fast => format!(
            "{agrees}: fast numerics may leave the range of a type, and lose subnormal numbers, where the model does not"
        ),
        _ if is_order && verdict.evidence().is_some_and(Check::leaves_range) => format!(
            "{agrees}, which gives the model's own answer here: in the order in which numbers are multiplied and added by default, some leave \
             the range of their type"
        ),
        _ => agrees.into(),
    })
}

/// That elements which are equal are no numbers: nothing else can be told of them.
fn no_numbers(check: &Check) -> Option<String> {
    let nan = check.outcome.as_ref().ok().map(|agreed| agreed.nan).filter(|nan| *nan > 0)?;
    let (are, they) = if nan == 1 { ("element is", "it says") } else { ("elements are", "they say") };
    Some(format!("{}: {nan} {are} NaN in the reference too, and {they} nothing of errors", check.value))
}

/// That elements which agree may come to anything: roundings alone move them by more than they are.
fn anything_goes(check: &Check) -> Option<String> {
    let loose = check.outcome.as_ref().ok().map(|agreed| agreed.loose).filter(|loose| *loose > 0)?;
    let (elements, they, them) = if loose == 1 { ("element", "it is", "it") } else { ("elements", "they are", "them") };
    let moved = format!("roundings may move {loose} {elements} by more than {they}");
    Some(format!("{}: {moved}, so that to agree says nothing of {them}", check.value))
}

/// Where an output stands on the other side of a step, in words.
fn steps(check: &Check) -> Option<String> {
    let stepped = check.stepped()?;
    let (farthest, count, of) = (&stepped.farthest, stepped.count, stepped.of);
    let (differ, they) =
        if count == 1 { ("element of {of} differs", "it stands") } else { ("elements of {of} differ", "they stand") };
    let differ = differ.replace("{of}", &of.to_string());
    Some(format!(
        "{}: {count} {differ} by up to {:.1e} (at {:?}), because {they} behind a rounding, a comparison or a conversion to an \
         integer that the smallest error decides; either side is right, so that this says nothing of elements like {}",
        check.value,
        farthest.distance(),
        farthest.index,
        if count == 1 { "it" } else { "them" },
    ))
}

/// Who is guilty, in words; nobody where everything agrees.
pub fn blame(verdict: &Verdict) -> Option<String> {
    verdict.guilty.map(|stage| describe(stage, verdict))
}

/// Who is guilty, in words.
fn describe(stage: Stage, verdict: &Verdict) -> String {
    let kernel = |k: usize| {
        let KernelVerdict { number, row, .. } = &verdict.kernels[k];
        let last = row.operators.last().map_or(String::new(), |operator| format!(", {}", operator.name));
        format!("kernel {number} ({}{last})", row.pattern)
    };
    let device = verdict.device.name();
    match stage {
        Stage::Passes => "passes or rewrites: the reference comes to something else after them, exact or with every operation rounded".into(),
        Stage::Prepared => format!("what {device} computes once from constants"),
        Stage::Lowering(k) => format!("lowering: the interpreter of kernels comes to something else for {}", kernel(k)),
        Stage::Code(k) if verdict.kernels[k].leaves_range => {
            format!("the order of operations in {}: numbers leave the range of their type there", kernel(k))
        }
        Stage::Code(k) => format!("the code of {device} for {}; its interpreter agrees", kernel(k)),
        Stage::Run => {
            format!("the run on {device} as a whole: every kernel is right by itself, and the outputs are not")
        }
        Stage::Unfused => format!("the plan without fusion on {device}; the fused one agrees"),
        Stage::Written => format!(
            "the model as it is written: with every operation rounded the reference comes to something else than with exact arithmetic, and {device} to neither"
        ),
    }
}

impl Stage {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Stage::Passes => "passes",
            Stage::Prepared => "prepared",
            Stage::Lowering(_) => "lowering",
            Stage::Code(_) => "code",
            Stage::Run => "run",
            Stage::Unfused => "unfused",
            Stage::Written => "written",
        }
    }
}

/// The same as JSON.
pub fn to_json(model: &Model, arguments: &Verify, feed: &Feed, verdicts: &[Verdict]) -> Value {
    let sizes: Map<String, Value> = feed.assumed.iter().map(|(name, size)| (name.clone(), json!(size))).collect();
    let device = |verdict: &Verdict| {
        let list = |checks: &[Check]| checks.iter().map(check_json).collect::<Vec<_>>();
        let guilty = verdict.guilty.map(|stage| {
            let kernel = match stage {
                Stage::Lowering(k) | Stage::Code(k) => Some(verdict.kernels[k].number),
                _ => None,
            };
            json!({
                "stage": stage.name(),
                "kernel": kernel,
                "why": describe(stage, verdict),
                "strict_agrees": verdict.strict_agrees,
                "help": advice(verdict),
            })
        });
        json!({
            "device": verdict.device.name(),
            "target": verdict.target,
            "threads": verdict.threads,
            "agrees": verdict.guilty.is_none(),
            "conclusion": conclusion(verdict),
            "guilty": guilty,
            "outputs": {
                "passes": list(&verdict.passes),
                "rounding": list(&verdict.rounding),
                "fused": list(&verdict.fused),
                "unfused": list(&verdict.unfused),
            },
            "prepared": verdict.prepared.as_ref().map(check_json),
            "kernels": verdict.kernels.iter().map(kernel_json).collect::<Vec<_>>(),
            "without_code": verdict.without_code,
        })
    };
    json!({
        "model": model.name,
        "agrees": verdicts.iter().all(|verdict| verdict.guilty.is_none()),
        "seed": arguments.seed,
        "random_inputs": feed.random,
        "sizes_assumed": sizes,
        "devices": verdicts.iter().map(device).collect::<Vec<_>>(),
    })
}

fn kernel_json(kernel: &KernelVerdict) -> Value {
    let operators = kernel.row.operators.iter().map(|operator| operator.name.to_string());
    let unfused = match &kernel.unfused {
        Some(Ok(check)) => check_json(check),
        Some(Err(error)) => json!({ "error": error.to_string() }),
        None => Value::Null,
    };
    json!({
        "number": kernel.number,
        "kernel": kernel.row.pattern,
        "kind": kernel.row.kind.name(),
        "operators": operators.collect::<Vec<_>>(),
        "fused": check_json(&kernel.fused),
        "interpreted": check_json(&kernel.interpreted),
        "unfused": unfused,
    })
}

/// A check as JSON.
pub fn check_json(check: &Check) -> Value {
    let worst = check.worst();
    let number = |of: &dyn Fn(&Worst) -> f64| worst.map_or(0.0, of);
    let (beyond, why) = match &check.outcome {
        Ok(_) => (0, None),
        Err(mismatch @ Mismatch::Elements { beyond, .. }) => (*beyond, Some(mismatch.to_string())),
        Err(mismatch) => (0, Some(mismatch.to_string())),
    };
    json!({
        "value": check.value,
        "dtype": check.dtype.name(),
        "agrees": check.outcome.is_ok(),
        "error": number(&Worst::distance),
        "ulp": number(&|worst| worst.ulps(check.dtype)),
        "allowed": worst.map(|worst| worst.bound),
        "index": worst.map(|worst| &worst.index),
        "expected": worst.map(|worst| worst.expected),
        "actual": worst.map(|worst| worst.actual),
        "beyond": beyond,
        "nan": check.outcome.as_ref().map_or(0, |agreed| agreed.nan),
        "loose": check.outcome.as_ref().map_or(0, |agreed| agreed.loose),
        "stepped": check.stepped().map_or(0, |stepped| stepped.count),
        "why": why,
    })
}
