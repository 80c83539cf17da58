//! Plans for people.

use std::fmt::Write as _;

use fuseline::analysis::{Scorecard, scorecard};
use fuseline::explain::{Apart, DecisionRow, Explanation, KernelRow};
use fuseline::fuse::{Cost, Verdict};
use fuseline::passes::Precision;
use indexmap::IndexMap;

use super::name::Shortener;
use super::{PER_NODE, PER_PRIMITIVE, Setting, size_list};
use crate::quantity::{self, significant};
use crate::table::{Cell, Column, Table, heading, title, wrapped};

/// How much is shown, and where.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// columns of a line
    pub width: usize,
    /// everything: what is prepared once, decisions inside of operators
    pub verbose: bool,
    /// how many decisions are shown otherwise
    pub top: usize,
    /// how sizes are chosen, and how all decisions are seen, in the words of who shows it
    pub remedies: Remedies,
}

/// What the reader can do, in the words of the command or the library that shows the plan.
#[derive(Clone, Copy, Debug)]
pub struct Remedies {
    /// about sizes that were assumed
    pub sizes: &'static str,
    /// about decisions that are not shown
    pub decisions: &'static str,
}

/// The whole plan.
pub fn of_plan(setting: &Setting<'_>, explanation: &Explanation, view: &View) -> String {
    let width = view.width;
    let names = Shortener::of(explanation);
    let mut text = head(setting, view);
    text.push_str(&section("Kernels"));
    text.push_str(&kernels(&explanation.run.kernels, &names, width));
    write_totals(&mut text, explanation, width);
    if view.verbose && !explanation.prepare.kernels.is_empty() {
        text.push_str(&section("Prepared once"));
        text.push_str(&kernels(&explanation.prepare.kernels, &names, width));
    }
    write_decisions(&mut text, explanation, &names, view);
    text
}

/// A heading behind an empty line.
pub fn section(title: &str) -> String {
    format!("\n{}", heading(title))
}

fn line(text: &mut String, words: &str) {
    writeln!(text, "{words}").expect("writing to a string succeeds");
}

/// What was planned, and for what.
pub fn head(setting: &Setting<'_>, view: &View) -> String {
    let options = setting.options;
    let mut text = title(&format!("{} on {}", setting.model, options.spec.name), view.width);
    text.push_str(&wrapped(&options.spec.doc, 2, view.width));
    let mut facts = vec![format!("numerics {}", options.numerics.name())];
    if options.precision != Precision::F32 {
        facts.push(format!("precision {}", options.precision.name()));
    }
    if !setting.given.is_empty() {
        facts.push(format!("sizes {}", size_list(setting.given)));
    }
    if !setting.assumed.is_empty() {
        facts.push(format!("sizes assumed: {} ({})", size_list(setting.assumed), view.remedies.sizes));
    }
    text.push_str(&wrapped(&facts.join("; "), 2, view.width));
    text
}

/// The kernels, a line each, the names of their nodes as long as there is room; where there is little, what can be told from other
/// columns goes first.
pub fn kernels(rows: &[KernelRow], names: &Shortener, width: usize) -> String {
    if rows.is_empty() {
        return "  none: nothing is left to compute\n".to_string();
    }
    let mut table = Table::new([
        Column::right(""),
        Column::left("kernel").cut(20),
        Column::left("kind"),
        Column::right("µs"),
        Column::right("bytes").goes(5),
        Column::right("flops").goes(4),
        Column::right("flops/B").goes(1),
        Column::right("score").goes(2),
        Column::left("bound by").goes(3),
        Column::left("from").cut(16),
    ]);
    for (k, row) in rows.iter().enumerate() {
        let inside = row.inside.as_ref().map_or(String::new(), |_| "  ".to_string());
        let score = row.scorecard.as_ref();
        let score =
            score.map_or("–".into(), |card| format!("{:.2}{}", card.score, if is_refused(card) { "≠" } else { "" }));
        let cells = [
            k.to_string(),
            format!("{inside}{}", row.pattern),
            row.kind.name().into(),
            significant(row.us),
            quantity::bytes(row.bytes.round()),
            quantity::count(row.flops.round()),
            row.intensity().map_or("–".into(), significant),
            score,
            short_bound(&row.bound),
        ];
        let from = Cell::fitted(|room| names.list(row, room));
        table.row(cells.into_iter().map(Cell::from).chain([from]));
    }
    table.text(width)
}

/// What bounds a kernel, without its element type.
fn short_bound(bound: &str) -> String {
    bound.split(" (").next().unwrap_or(bound).to_string()
}

/// Whether the textbooks would keep apart what is together.
fn is_refused(card: &Scorecard) -> bool {
    card.verdict == scorecard::Verdict::KeepApart
}

fn write_totals(text: &mut String, explanation: &Explanation, width: usize) {
    let Explanation { run, prepare, .. } = explanation;
    let mut table = Table::new([
        Column::left("").wrap(16),
        Column::right("kernels"),
        Column::right("µs"),
        Column::right("traffic"),
        Column::right(""),
    ]);
    let mut row = |name: &str, kernels: usize, cost: &Cost, is_other: bool| {
        let times = Some(cost.us / run.cost.us).filter(|times| is_other && times.is_finite());
        table.row([
            name.to_string(),
            kernels.to_string(),
            significant(cost.us),
            quantity::bytes(cost.bytes.round()),
            times.map_or(String::new(), |times| format!("{} × the time", significant(times))),
        ]);
    };
    row("as planned", run.count(), &run.cost, false);
    if let Some(Apart { per_node, per_primitive }) = &explanation.apart {
        row(PER_NODE, per_node.kernels, &per_node.cost, true);
        row(PER_PRIMITIVE, per_primitive.kernels, &per_primitive.cost, true);
    }
    if run.regions.kernels > 0 {
        row("in branches and loops, besides", run.regions.kernels, &run.regions.cost, false);
    }
    if !prepare.kernels.is_empty() {
        row("prepared once", prepare.count(), &prepare.cost, false);
    }
    text.push_str(&section("Totals"));
    text.push_str(&table.text(width));
}

fn write_decisions(text: &mut String, explanation: &Explanation, names: &Shortener, view: &View) {
    let all = &explanation.decisions;
    let taken = all.iter().filter(|d| d.verdict == Verdict::Taken).count();
    text.push_str(&section("Decisions, the largest effect first"));
    let disagreements = explanation.disagreements();
    let refused = all.len() - taken;
    let counts = format!("{taken} taken, {refused} refused; the scorecard says otherwise in {disagreements} cases (≠)");
    text.push_str(&wrapped(&counts, 2, view.width));
    let groups: Vec<Vec<&DecisionRow>> = match view.verbose {
        true => all.iter().map(|row| vec![row]).collect(),
        false => alike(all.iter().filter(|row| !is_detail(row))),
    };
    let top = if view.verbose { groups.len() } else { view.top.min(groups.len()) };
    for group in &groups[..top] {
        write_decision(text, group, names, view.width);
    }
    let inside = all.iter().filter(|row| is_detail(row)).count();
    let rest: usize = groups[top..].iter().map(Vec::len).sum();
    let parts = [(rest, "more"), (inside, "between parts of one operator")];
    let parts = parts.iter().filter(|(count, _)| *count > 0 && !view.verbose);
    let parts: Vec<String> = parts.map(|(count, what)| format!("{count} {what}")).collect();
    if !parts.is_empty() {
        text.push_str(&wrapped(&format!("… and {} ({})", parts.join(", "), view.remedies.decisions), 2, view.width));
    }
}

/// Whether nobody asks for a decision: parts of one operator that are together. Why they are apart is of interest.
fn is_detail(row: &DecisionRow) -> bool {
    row.is_inside && row.verdict == Verdict::Taken
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

/// A decision, and how many are like it.
pub fn write_decision(text: &mut String, group: &[&DecisionRow], names: &Shortener, width: usize) {
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
    let digits = if width < NARROW { 7 } else { 9 };
    let start = format!("  {}  {verdict:<7}  {saved:>digits$} µs  {score:>4}{mark} {:<17}  ", row.id, row.rule);
    // Where little room is left for names, they have a line of their own.
    let (indent, least) = if width < NARROW / 2 { (4, 6) } else { (16, 12) };
    let is_apart = width < start.chars().count() + LEAST_NAMES;
    let room = width.saturating_sub(3 + if is_apart { indent } else { start.chars().count() });
    let half = |name: &str, other: &str| {
        let other = names.short(other, usize::MAX).chars().count();
        names.short(name, (room / 2).max(room.saturating_sub(other)).max(least))
    };
    let (producer, consumer) = (half(&row.producer, &row.consumer), half(&row.consumer, &row.producer));
    match is_apart {
        true => line(text, &format!("{}\n{:indent$}{producer} → {consumer}", start.trim_end(), "")),
        false => line(text, &format!("{start}{producer} → {consumer}")),
    }
    let more = if group.len() > 1 { format!(" (and {} more like it)", group.len() - 1) } else { String::new() };
    text.push_str(&wrapped(&format!("{}{more}", row.reason), indent, width));
    if row.disagrees()
        && let Some(card) = &row.scorecard
    {
        text.push_str(&wrapped(&format!("scorecard: {card}"), indent, width));
    }
}

/// Below this width, numbers stand closer.
const NARROW: usize = 64;

/// Columns that two names have at least if they stand behind the numbers of a decision.
const LEAST_NAMES: usize = 40;

/// Microseconds with their sign.
pub fn signed(us: f64) -> String {
    let digits = significant(us.abs());
    match us {
        us if us < 0.0 => format!("−{digits}"),
        us if us > 0.0 => format!("+{digits}"),
        _ => digits,
    }
}
