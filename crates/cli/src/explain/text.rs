//! Comparisons of plans for people.

use fuseline::explain::{KernelRow, Part};
use fuseline::fuse::Verdict;
use fuseline_session::plan::name::Shortener;
use fuseline_session::plan::text::{head, kernels, section, signed, write_decision};

use super::compare::{Effect, Flipped};
use super::{Request, Story, view};
use crate::quantity::{self, significant};
use crate::screen::{Column, Table, wrapped};

/// Two plans that differ in one decision.
pub fn of_flip(request: &Request<'_>, story: &Story, flipped: &Flipped) -> String {
    let row = &flipped.decision;
    let view = view(false, 0);
    let width = view.width;
    let names = Shortener::of(&story.explanation);
    let mut text = head(&request.setting(), &view);
    text.push_str(&section(&format!("Flip {}", row.id)));
    write_decision(&mut text, &[row], &names, width);
    let Some(after) = &flipped.after else {
        let why = flipped.illegal.as_deref().unwrap_or("it cannot be done");
        text.push('\n');
        text.push_str(&wrapped(&format!("illegal: {why}"), 2, width));
        return text;
    };
    let word = if row.verdict == Verdict::Taken { "not done" } else { "done" };
    let [one, two] = [&story.explanation.run, &after.explanation.run];
    let columns = ["as planned", word, "difference"].map(Column::right);
    let mut table = Table::new([Column::left("")].into_iter().chain(columns));
    let difference = two.cost.us - one.cost.us;
    table.row(vec!["predicted µs".into(), significant(one.cost.us), significant(two.cost.us), signed(difference)]);
    let count = |part: &Part| part.count();
    let more = match (count(one), count(two)) {
        (before, after) if after < before => format!("−{}", before - after),
        (before, after) => format!("+{}", after - before),
    };
    table.row(vec!["kernels".into(), count(one).to_string(), count(two).to_string(), more]);
    let bytes = |part: &Part| quantity::bytes(part.cost.bytes.round());
    table.row(vec!["traffic".into(), bytes(one), bytes(two)]);
    text.push('\n');
    text.push_str(&table.text(width));
    let verdict = match flipped.effect(story) {
        Effect::Slower(us) => format!("slower by {} µs", significant(us)),
        Effect::Faster(us) => {
            format!("faster by {} µs: {}", significant(us), flipped.why_not_found(story, &request.options))
        }
        Effect::Equal => format!("as fast as before: {}", flipped.why_equal(story)),
    };
    text.push('\n');
    text.push_str(&wrapped(&verdict, 2, width));
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
