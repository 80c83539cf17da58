//! `fuseline analyze`: fusion candidates among operations fed by hand.

use std::fmt::Write as _;

use fuseline::analysis::Scorecard;
use fuseline::analysis::scorecard;
use fuseline::analyzer::{Analysis, Analyzer, Candidate, Condition, Group, Totals, Verdict};
use fuseline::device::DeviceSpec;
use fuseline::error::{Context as _, Kind, Result};
use serde_json::{Value, json};

use crate::arguments::Analyze;
use crate::failure::{Failure, Outcome};
use crate::operations::{self, kind_name};
use crate::quantity::{self, significant};
use crate::screen::{self, Column, Table, heading};
use crate::target;

/// Analyzes a file of operations.
pub fn analyze(arguments: &Analyze) -> Outcome {
    let spec = target::find(&arguments.target)?;
    let remedy = "`fuseline analyze --help` shows a file and lists its fields";
    let analysis = analysis(arguments, &spec).map_err(|error| match error.kind() {
        Kind::Invalid => Failure::not_read(&arguments.operations, error, remedy),
        _ => Failure::from(error),
    })?;
    match arguments.json {
        true => screen::print_json(&to_json(&analysis, &spec)),
        false => screen::print(&to_text(&analysis, &spec)),
    }
}

fn analysis(arguments: &Analyze, spec: &DeviceSpec) -> Result<Analysis> {
    let mut analyzer = Analyzer::new();
    for operation in operations::read(&arguments.operations, &arguments.sizes)? {
        analyzer.add_operation(operation);
    }
    analyzer.set_policy(arguments.policy.policy());
    analyzer.analyze(spec).at(|| arguments.operations.display().to_string())
}

fn to_text(analysis: &Analysis, spec: &DeviceSpec) -> String {
    if analysis.operations.is_empty() {
        return "There is nothing to analyze: the file has no operations.\n".to_string();
    }
    let mut text = heading(&format!("Operations on {} ({})", spec.name, spec.doc));
    let mut table = Table::new([
        Column::left("operation").cut(12),
        Column::left("kind").goes(2),
        Column::left("bound").goes(3),
        Column::right("bytes"),
        Column::right("operations/byte").goes(1),
        Column::right("µs"),
        Column::left("time goes to").wrap(16),
    ]);
    for o in &analysis.operations {
        table.row(vec![
            o.name.clone(),
            kind_name(o.class).into(),
            o.bottleneck.name().into(),
            quantity::bytes(o.totals.bytes.round()),
            significant(o.intensity),
            significant(o.totals.us),
            o.bound.describe(spec),
        ]);
    }
    text.push_str(&table.text(screen::width()));
    write_candidates(&mut text, analysis);
    write_kernels(&mut text, analysis);
    if !analysis.assumptions.is_empty() {
        text.push_str(&format!("\n{}", heading("Assumed, because the file does not say")));
        analysis.assumptions.iter().for_each(|a| prose(&mut text, 2, &a.to_string()));
    }
    text
}

fn write_candidates(text: &mut String, analysis: &Analysis) {
    text.push_str(&format!("\n{}", heading("Candidates, the largest saving first")));
    if analysis.candidates.is_empty() {
        return line(text, "  none: no operation reads what another one writes");
    }
    let mut table = Table::new([
        Column::left("candidate").wrap(14),
        Column::left("decision"),
        Column::right("score").goes(3),
        Column::right("bytes").goes(2),
        Column::right("launches").goes(1),
        Column::right("µs").goes(4),
        Column::right("saved µs"),
    ]);
    for c in &analysis.candidates {
        let mut row = vec![c.name(), decision(c).into(), format!("{:.2}", c.scorecard.score)];
        row.extend(changes(&c.before, &c.after));
        row.push(significant(c.saved_us()));
        table.row(row);
    }
    text.push_str(&table.text(screen::width()));
    for c in &analysis.candidates {
        text.push('\n');
        match &c.verdict {
            Verdict::KeepApart(reason) => {
                prose(text, 2, &format!("{}: keep apart — {reason}", c.name()));
                company(analysis, c).into_iter().for_each(|words| prose(text, 6, &words));
            }
            Verdict::Fuse => prose(text, 2, &format!("{}: FUSE {:.2} — {}", c.name(), c.scorecard.score, savings(c))),
            Verdict::FuseIf(condition) => {
                prose(text, 2, &format!("{}: FUSE {:.2} {condition} — {}", c.name(), c.scorecard.score, savings(c)));
                let here =
                    if condition.holds { "it does at the sizes given" } else { "it does not at the sizes given" };
                prose(text, 6, here);
            }
        }
        if !matches!(c.verdict, Verdict::KeepApart(_)) {
            c.lifted.iter().for_each(|lifted| prose(text, 6, &lifted.to_string()));
        }
        if c.disagrees() {
            prose(text, 6, &format!("the scorecard says otherwise: {}", c.scorecard));
        }
        let (yes, no): (Vec<_>, Vec<_>) = c.scorecard.rules.iter().partition(|r| r.holds);
        let list = |rules: Vec<&scorecard::RuleOfThumb>| rules.iter().map(|r| r.rule).collect::<Vec<_>>().join("; ");
        [("hold", yes), ("do not", no)].into_iter().filter(|(_, rules)| !rules.is_empty()).for_each(|(word, rules)| {
            prose(text, 6, &format!("rules of thumb that {word}: {}", list(rules)));
        });
    }
}

/// With what the operations of a candidate run in one kernel: what is said of them is said of that.
fn company(analysis: &Analysis, candidate: &Candidate) -> Vec<String> {
    let of = |operation: &String| {
        let group = analysis.groups.iter().find(|group| group.operations.contains(operation))?;
        (group.operations.len() > 1)
            .then(|| format!("{operation} is part of the kernel {}, which this is about", group.name()))
    };
    [&candidate.producer, &candidate.consumer].into_iter().filter_map(of).collect()
}

/// A sentence, in as many lines as it takes.
fn prose(text: &mut String, indent: usize, words: &str) {
    text.push_str(&screen::wrapped(words, indent, screen::width()));
}

fn write_kernels(text: &mut String, analysis: &Analysis) {
    text.push_str(&format!("\n{}", heading("Kernels at the sizes given")));
    let mut table = Table::new([
        Column::left("kernel").wrap(14),
        Column::right("score").goes(1),
        Column::right("tensor accesses").goes(2),
        Column::right("bytes"),
        Column::right("launches").goes(3),
        Column::right("µs"),
    ]);
    let mut row = |name: String, score: String, before: &Totals, after: &Totals| {
        let mut cells = vec![name, score, change(before.accesses as f64, after.accesses as f64, quantity::count)];
        cells.extend(changes(before, after));
        table.row(cells);
    };
    for group in &analysis.groups {
        let score = group.scorecard.as_ref().map_or(String::new(), |card| format!("{:.2}", card.score));
        row(group.name(), score, &group.before, &group.after);
    }
    row("all".into(), String::new(), &analysis.before, &analysis.after);
    text.push_str(&table.text(screen::width()));
    let count = analysis.disagreements();
    if count > 0 {
        line(text, &format!("\n  the scorecard disagrees on {count} of {} candidates", analysis.candidates.len()));
    }
}

fn line(text: &mut String, words: &str) {
    writeln!(text, "{words}").expect("writing to a string succeeds");
}

fn decision(candidate: &Candidate) -> &'static str {
    match (&candidate.verdict, candidate.is_taken()) {
        (Verdict::Fuse, _) => "FUSE",
        (Verdict::FuseIf(_), true) => "FUSE (if)",
        (Verdict::FuseIf(_), false) => "not now (if)",
        (Verdict::KeepApart(_), _) => "keep apart",
    }
}

/// Bytes, launches and microseconds before and after.
fn changes(before: &Totals, after: &Totals) -> [String; 3] {
    [
        change(before.bytes.round(), after.bytes.round(), quantity::bytes),
        change(before.launches as f64, after.launches as f64, quantity::count),
        change(before.us, after.us, significant),
    ]
}

fn change(before: f64, after: f64, text: impl Fn(f64) -> String) -> String {
    if before == after { text(before) } else { format!("{} → {}", text(before), text(after)) }
}

/// What a candidate saves, in a sentence.
fn savings(candidate: &Candidate) -> String {
    let saved = saved_traffic(&candidate.before, &candidate.after);
    if saved > 0.0 { format!("{saved:.0} % less traffic, one launch less") } else { "one launch less".into() }
}

/// Traffic saved in percent.
fn saved_traffic(before: &Totals, after: &Totals) -> f64 {
    if before.bytes > 0.0 { 100.0 * (1.0 - after.bytes / before.bytes) } else { 0.0 }
}

fn to_json(analysis: &Analysis, spec: &DeviceSpec) -> Value {
    let operations = analysis.operations.iter().map(|o| {
        json!({
            "name": o.name,
            "kind": kind_name(o.class),
            "bound": o.bottleneck.name(),
            "intensity": o.intensity,
            "flops": o.totals.flops,
            "bytes": o.totals.bytes,
            "us": o.totals.us,
            "time_goes_to": o.bound.describe(spec),
        })
    });
    json!({
        "target": analysis.target,
        "target_fingerprint": format!("{:016x}", spec.fingerprint()),
        "operations": operations.collect::<Value>(),
        "candidates": analysis.candidates.iter().map(candidate_json).collect::<Value>(),
        "kernels": analysis.groups.iter().map(kernel_json).collect::<Value>(),
        "before": totals_json(&analysis.before),
        "after": totals_json(&analysis.after),
        "saved_traffic_percent": saved_traffic(&analysis.before, &analysis.after),
        "scorecard_disagreements": analysis.disagreements(),
        "assumptions": analysis.assumptions,
    })
}

fn candidate_json(candidate: &Candidate) -> Value {
    let (verdict, reason, why, condition) = match &candidate.verdict {
        Verdict::Fuse => ("fuse", json!("saves_time"), json!(savings(candidate)), Value::Null),
        Verdict::FuseIf(c) if c.holds => ("fuse_if", json!("saves_time_here"), json!(c.to_string()), condition_json(c)),
        Verdict::FuseIf(c) => ("fuse_if", json!("saves_no_time_here"), json!(c.to_string()), condition_json(c)),
        Verdict::KeepApart(r) => ("keep_apart", json!(r.name()), json!(r.to_string()), Value::Null),
    };
    json!({
        "producer": candidate.producer,
        "consumer": candidate.consumer,
        "tensors": candidate.tensors,
        "verdict": verdict,
        "taken": candidate.is_taken(),
        "reason": reason,
        "why": why,
        "condition": condition,
        "score": rounded(candidate.scorecard.score),
        "scorecard": scorecard_json(&candidate.scorecard),
        "before": totals_json(&candidate.before),
        "after": totals_json(&candidate.after),
        "saved_us": candidate.saved_us(),
        "saved_traffic_percent": saved_traffic(&candidate.before, &candidate.after),
        "allowed": candidate.lifted.iter().map(|l| json!({ "limit": l.refusal.name(), "because": l.because })).collect::<Value>(),
    })
}

fn condition_json(condition: &Condition) -> Value {
    json!({
        "kind": if condition.small { "small_batch" } else { "large_batch" },
        "break_even_batch": condition.batch,
        "break_even_rows": condition.rows,
        "break_even_bytes": condition.bytes,
        "recompute": condition.recompute,
        "holds": condition.holds,
    })
}

fn scorecard_json(card: &Scorecard) -> Value {
    let parts = card
        .parts
        .iter()
        .map(|p| json!({ "name": p.name, "weight": p.weight, "value": rounded(p.value), "passes": p.passes }));
    json!({
        "verdict": if card.verdict == scorecard::Verdict::Fuse { "fuse" } else { "keep_apart" },
        "parts": parts.collect::<Value>(),
        "refusals": card.refusals.iter().map(|r| json!({ "name": r.name(), "why": r.to_string() })).collect::<Value>(),
        "rules_of_thumb": card.rules.iter().map(|r| json!({ "rule": r.rule, "holds": r.holds })).collect::<Value>(),
    })
}

fn kernel_json(group: &Group) -> Value {
    json!({
        "operations": group.operations,
        "score": group.scorecard.as_ref().map(|card| rounded(card.score)),
        "before": totals_json(&group.before),
        "after": totals_json(&group.after),
    })
}

fn totals_json(totals: &Totals) -> Value {
    json!({
        "bytes": totals.bytes,
        "accesses": totals.accesses,
        "launches": totals.launches,
        "flops": totals.flops,
        "us": totals.us,
    })
}

/// Without the last digits, which sums of tenths do not have.
fn rounded(x: f64) -> f64 {
    (x * 1e6).round() / 1e6
}
