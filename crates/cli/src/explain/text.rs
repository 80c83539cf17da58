//! Plans for people.

use std::fmt::Write as _;

use fuseline::analysis::{Scorecard, scorecard};
use fuseline::explain::{DecisionRow, Explanation, KernelRow, Part};
use fuseline::fuse::{Cost, Verdict};
use fuseline::passes::Precision;
use indexmap::IndexMap;

use super::compare::Flipped;
use super::name::{Shortener, cut_back};
use super::{Request, Story};
use crate::arguments::Explain;
use crate::quantity::{self, significant};
use crate::screen::{self, Side, Table, heading};

/// The whole plan.
pub fn of_story(request: &Request<'_>, story: &Story, arguments: &Explain) -> String {
    let explanation = &story.explanation;
    let width = screen::width();
    let names = Shortener::of(explanation);
    let mut text = head(request);
    text.push_str(&section("Kernels"));
    text.push_str(&kernels(&explanation.run.kernels, &names, width));
    write_totals(&mut text, explanation);
    if arguments.verbose && !explanation.prepare.kernels.is_empty() {
        text.push_str(&section("Prepared once"));
        text.push_str(&kernels(&explanation.prepare.kernels, &names, width));
    }
    write_decisions(&mut text, explanation, &names, arguments, width);
    text
}

fn section(title: &str) -> String {
    format!("\n{}", heading(title))
}

fn line(text: &mut String, words: &str) {
    writeln!(text, "{words}").expect("writing to a string succeeds");
}

fn head(request: &Request<'_>) -> String {
    let options = &request.options;
    let mut text = heading(&format!("{} on {}", request.model.name, options.spec.name));
    line(&mut text, &format!("  {}", options.spec.doc));
    let list = |sizes: &[(String, i64)]| sizes.iter().map(|(n, s)| format!("{n}={s}")).collect::<Vec<_>>().join(",");
    let mut facts = vec![format!("numerics {}", options.numerics.name())];
    if options.precision != Precision::F32 {
        facts.push(format!("precision {}", options.precision.name()));
    }
    if !request.given.is_empty() {
        facts.push(format!("sizes {}", list(&request.given)));
    }
    if !request.assumed.is_empty() {
        facts.push(format!("sizes assumed: {} (choose them with --sizes)", list(&request.assumed)));
    }
    line(&mut text, &format!("  {}", facts.join("; ")));
    text
}

/// The kernels, a line each, the names of their nodes as long as there is room.
fn kernels(rows: &[KernelRow], names: &Shortener, width: usize) -> String {
    if rows.is_empty() {
        return "  none: nothing is left to compute\n".to_string();
    }
    let columns = ["bytes", "flops", "flops/B", "score"].map(|name| (name, Side::Right));
    let first = [("", Side::Right), ("kernel", Side::Left), ("kind", Side::Left), ("µs", Side::Right)];
    let head = [&first[..], &columns[..], &[("bound by", Side::Left), ("from", Side::Left)]].concat();
    let mut cells: Vec<Vec<String>> = Vec::with_capacity(rows.len());
    for (k, row) in rows.iter().enumerate() {
        let inside = row.inside.as_ref().map_or(String::new(), |_| "  ".to_string());
        cells.push(vec![
            k.to_string(),
            format!("{inside}{}", cut_back(&row.pattern, width / 3)),
            row.kind.name().into(),
            significant(row.us),
            quantity::bytes(row.bytes.round()),
            quantity::count(row.flops.round()),
            row.intensity().map_or("–".into(), significant),
            row.scorecard
                .as_ref()
                .map_or("–".into(), |card| format!("{:.2}{}", card.score, if is_refused(card) { "≠" } else { "" })),
            short_bound(&row.bound),
        ]);
    }
    let longest = |column: usize| {
        let longest = cells.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
        longest.max(head[column].0.chars().count()) + 2
    };
    let taken: usize = (0..9).map(longest).sum();
    let room = width.saturating_sub(taken + 2).max(16);
    let mut table = Table::new(&head);
    for (mut cells, row) in cells.into_iter().zip(rows) {
        cells.push(names.list(row, room));
        table.row(cells);
    }
    table.text()
}

/// What bounds a kernel, without its element type.
fn short_bound(bound: &str) -> String {
    bound.split(" (").next().unwrap_or(bound).to_string()
}

/// Whether the textbooks would keep apart what is together.
fn is_refused(card: &Scorecard) -> bool {
    card.verdict == scorecard::Verdict::KeepApart
}

fn write_totals(text: &mut String, explanation: &Explanation) {
    let Explanation { run, prepare, .. } = explanation;
    let columns = ["kernels", "µs", "traffic", ""].map(|name| (name, Side::Right));
    let mut table = Table::new(&[&[("", Side::Left)], &columns[..]].concat());
    let mut row = |name: &str, kernels: usize, cost: &Cost, is_other: bool| {
        let times = Some(cost.us / run.cost.us).filter(|times| is_other && times.is_finite());
        table.row(vec![
            name.into(),
            kernels.to_string(),
            significant(cost.us),
            quantity::bytes(cost.bytes.round()),
            times.map_or(String::new(), |times| format!("{} × the time", significant(times))),
        ]);
    };
    row("as planned", run.count(), &run.cost, false);
    row("no two operators together", run.by_operator.kernels, &run.by_operator.cost, true);
    row("every primitive by itself", run.by_primitive.kernels, &run.by_primitive.cost, true);
    if run.regions.kernels > 0 {
        row("in branches and loops, besides", run.regions.kernels, &run.regions.cost, false);
    }
    if !prepare.kernels.is_empty() {
        row("prepared once", prepare.count(), &prepare.cost, false);
    }
    text.push_str(&section("Totals"));
    text.push_str(&table.text());
}

fn write_decisions(text: &mut String, explanation: &Explanation, names: &Shortener, arguments: &Explain, width: usize) {
    let all = &explanation.decisions;
    let taken = all.iter().filter(|d| d.verdict == Verdict::Taken).count();
    text.push_str(&section("Decisions, the largest effect first"));
    let disagreements = explanation.disagreements();
    line(
        text,
        &format!(
            "  {taken} taken, {} refused; the scorecard says otherwise in {disagreements} cases (≠)",
            all.len() - taken
        ),
    );
    let groups: Vec<Vec<&DecisionRow>> = match arguments.verbose {
        true => all.iter().map(|row| vec![row]).collect(),
        false => alike(all.iter().filter(|row| !row.is_inside)),
    };
    let top = if arguments.verbose { groups.len() } else { arguments.top.min(groups.len()) };
    for group in &groups[..top] {
        write_decision(text, group, names, width);
    }
    let inside = all.iter().filter(|row| row.is_inside).count();
    let rest: usize = groups[top..].iter().map(Vec::len).sum();
    let parts = [(rest, "more"), (inside, "between parts of one operator")];
    let parts = parts.iter().filter(|(count, _)| *count > 0 && !arguments.verbose);
    let parts: Vec<String> = parts.map(|(count, what)| format!("{count} {what}")).collect();
    if !parts.is_empty() {
        line(text, &format!("  … and {} (--verbose and --json list all)", parts.join(", ")));
    }
}

/// Decisions that differ in nothing but numbers in names, such as those of equal layers.
fn alike<'r>(rows: impl Iterator<Item = &'r DecisionRow>) -> Vec<Vec<&'r DecisionRow>> {
    let plain = |name: &str| {
        let mut text: String = name.chars().map(|c| if c.is_ascii_digit() { '#' } else { c }).collect();
        while text.contains("##") {
            text = text.replace("##", "#");
        }
        // Exporters number operators that have no name of their own: Add, Add_1, Add_2.
        text.replace("_#", "")
    };
    let mut groups: IndexMap<_, Vec<&DecisionRow>> = IndexMap::new();
    for row in rows {
        let key = (
            row.rule,
            plain(&row.producer),
            plain(&row.consumer),
            row.verdict == Verdict::Taken,
            row.reason.clone(),
            (row.saved_us * 100.0).round() as i64,
        );
        groups.entry(key).or_default().push(row);
    }
    groups.into_values().collect()
}

fn write_decision(text: &mut String, group: &[&DecisionRow], names: &Shortener, width: usize) {
    let row = group[0];
    let verdict = if row.verdict == Verdict::Taken { "taken" } else { "refused" };
    let saved = match (row.is_priced, row.is_rewrite) {
        (true, false) => signed(row.saved_us),
        // The share of one of several equal ones.
        (true, true) => format!("≈{}", signed(row.saved_us)),
        // No kernel, no price.
        (false, _) => "–".into(),
    };
    let score = row.scorecard.as_ref().map_or("–".into(), |card| format!("{:.2}", card.score));
    let mark = if row.disagrees() { "≠" } else { " " };
    let start = format!("  {}  {verdict:<7}  {saved:>9} µs  {score:>4}{mark} {:<17}  ", row.id, row.rule);
    let room = width.saturating_sub(start.chars().count() + 3);
    let half = |name: &str, other: &str| {
        let other = names.short(other, usize::MAX).chars().count();
        names.short(name, (room / 2).max(room.saturating_sub(other)).max(12))
    };
    let (producer, consumer) = (half(&row.producer, &row.consumer), half(&row.consumer, &row.producer));
    line(text, &format!("{start}{producer} → {consumer}"));
    let more = if group.len() > 1 { format!(" (and {} more like it)", group.len() - 1) } else { String::new() };
    let indent = " ".repeat(16);
    line(text, &format!("{indent}{}{more}", row.reason));
    if row.disagrees()
        && let Some(card) = &row.scorecard
    {
        line(text, &format!("{indent}scorecard: {card}"));
    }
}

fn signed(us: f64) -> String {
    let digits = significant(us.abs());
    match us {
        us if us < 0.0 => format!("−{digits}"),
        us if us > 0.0 => format!("+{digits}"),
        _ => digits,
    }
}

/// Two plans that differ in one decision.
pub fn of_flip(request: &Request<'_>, story: &Story, flipped: &Flipped) -> String {
    let row = &flipped.decision;
    let width = screen::width();
    let names = Shortener::of(&story.explanation);
    let mut text = head(request);
    text.push_str(&section(&format!("Flip {}", row.id)));
    write_decision(&mut text, &[row], &names, width);
    let Some(after) = &flipped.after else {
        line(&mut text, &format!("\n  illegal: {}", flipped.illegal.as_deref().unwrap_or("it cannot be done")));
        return text;
    };
    let word = if row.verdict == Verdict::Taken { "not done" } else { "done" };
    let [one, two] = [&story.explanation.run, &after.explanation.run];
    let columns = [("", Side::Left), ("as planned", Side::Right), (word, Side::Right), ("difference", Side::Right)];
    let mut table = Table::new(&columns);
    let difference = two.cost.us - one.cost.us;
    table.row(vec!["predicted µs".into(), significant(one.cost.us), significant(two.cost.us), signed(difference)]);
    let count = |part: &Part| part.count();
    let kernels_more = count(two) as f64 - count(one) as f64;
    table.row(vec!["kernels".into(), count(one).to_string(), count(two).to_string(), format!("{kernels_more:+}")]);
    let bytes = |part: &Part| quantity::bytes(part.cost.bytes.round());
    table.row(vec!["traffic".into(), bytes(one), bytes(two)]);
    text.push('\n');
    text.push_str(&table.text());
    let verdict = match difference {
        d if d > 0.005 => format!("slower by {} µs", significant(d)),
        d if d < -0.005 => format!("faster by {} µs", significant(-d)),
        _ => "as fast as before".to_string(),
    };
    line(&mut text, &format!("\n  {verdict}"));
    write_changed(&mut text, one, two, &names, width);
    text
}

/// The kernels that only one of two plans has.
fn write_changed(text: &mut String, one: &Part, two: &Part, names: &Shortener, width: usize) {
    let only = |here: &Part, there: &Part| {
        let same = |row: &KernelRow| there.kernels.iter().any(|k| k.members == row.members && k.us == row.us);
        here.kernels.iter().filter(|row| !same(row)).cloned().collect::<Vec<_>>()
    };
    for (title, rows) in [("Kernels that go", only(one, two)), ("Kernels that come", only(two, one))] {
        if !rows.is_empty() {
            text.push_str(&section(title));
            text.push_str(&kernels(&rows, names, width));
        }
    }
}
