//! What was found, for people and for programs.

use fuseline::explain::DecisionRow;
use serde_json::{Value, json};

use super::case::Written;
use super::{Evidence, Guilt, Searched, again};
use crate::arguments::{Bisect, Metric};
use crate::model::Model;
use crate::quantity::{several, significant};
use crate::screen::{self, heading, title};

/// The decision and how to see it again. `assumed` are sizes that were taken for want of others.
pub fn to_text(
    model: &Model,
    arguments: &Bisect,
    assumed: &[(String, i64)],
    searched: &Searched,
    written: Option<&Written>,
) -> String {
    let mut text = title(&format!("{} on {}", model.name, arguments.device.name()), screen::width());
    let mut line = |words: String| text.push_str(&screen::wrapped(&words, 2, screen::width()));
    let decisions = several(searched.decisions, "decision");
    line(format!("{decisions}; plans that were run: {}", searched.plans));
    let (Some(guilt), Some(written)) = (&searched.guilt, written) else {
        line(match (arguments.metric, &searched.before) {
            (Metric::Error, None) => {
                "no output differs: no decision is guilty (`fuseline verify` also compares every kernel by itself)"
                    .into()
            }
            (Metric::Error, Some(blame)) => format!("outputs differ without any decision. To blame: {blame}"),
            (Metric::Latency, _) => format!(
                "no decision makes the model slower by more than {} %, as far as plans were measured",
                arguments.above
            ),
        });
        return text;
    };
    line(match name(guilt) {
        Some(name) => format!("decision {} of {} is guilty: {name}", guilt.guilty.number, searched.decisions),
        None => "guilty is a decision about what is prepared once, and none of these".into(),
    });
    match &guilt.evidence {
        Evidence::Wrong(why) => line(why.clone()),
        Evidence::Times(before, after) => {
            line(format!("{} ms before it, {} ms with it", significant(*before), significant(*after)));
        }
        Evidence::Right | Evidence::Whole(..) => {}
    }
    match &guilt.without {
        Some(Evidence::Right) => line("without it, and with every other decision, everything agrees".into()),
        Some(Evidence::Wrong(_)) => line("without it, other decisions are wrong as well".into()),
        Some(Evidence::Whole(without, with)) => {
            let times = [without, with].map(|ms| significant(*ms));
            line(format!("the whole plan, with every decision: {} ms, without this one: {} ms", times[1], times[0]));
            if *without * (1.0 + arguments.above / 100.0) > *with {
                line(format!("in the whole plan it matters by less than {} %", arguments.above));
            }
        }
        _ => {}
    }
    text.push_str(&format!("\n{}", heading("Written")));
    for path in written.plans.iter().chain(written.kernel.iter().flatten()) {
        text.push_str(&format!("  {}\n", path.display()));
    }
    if let Err(why) = &written.kernel {
        text.push_str(&screen::wrapped(&format!("no kernel as a case of its own: {why}"), 2, screen::width()));
    }
    text.push('\n');
    let mut command = |words: String| text.push_str(&format!("  {words}\n"));
    command(again::verify(arguments, &written.plans[1]));
    if let Ok([graph, inputs, plan, tile]) = &written.kernel {
        command(again::verify_case(arguments, [graph, inputs, plan]));
        command(again::emit(arguments, tile));
    }
    if let Some(id) = guilt.guilty.decision {
        command(again::explain(arguments, id, assumed));
    }
    text
}

/// The decision in words, if it is about what is run every time.
fn name(guilt: &Guilt) -> Option<String> {
    match &guilt.row {
        Some(DecisionRow { id, rule, producer, consumer, .. }) => {
            Some(format!("{id}, {rule}: {producer} → {consumer}"))
        }
        None => guilt.guilty.decision.map(|id| id.to_string()),
    }
}

/// The same as JSON.
pub fn to_json(model: &Model, arguments: &Bisect, searched: &Searched, written: Option<&Written>) -> Value {
    let evidence = |evidence: &Evidence| match evidence {
        Evidence::Right => json!({ "agrees": true }),
        Evidence::Wrong(why) => json!({ "agrees": false, "why": why }),
        Evidence::Times(before, after) => json!({ "ms_before": before, "ms_after": after }),
        Evidence::Whole(without, with) => json!({ "ms": without, "whole_ms": with }),
    };
    let guilty = searched.guilt.as_ref().map(|guilt| {
        json!({
            "decision": guilt.guilty.decision.map(|id| id.to_string()),
            "number": guilt.guilty.number,
            "rule": guilt.row.as_ref().map(|row| row.rule.to_string()),
            "producer": guilt.row.as_ref().map(|row| row.producer.to_string()),
            "consumer": guilt.row.as_ref().map(|row| row.consumer.to_string()),
            "evidence": evidence(&guilt.evidence),
            "without": guilt.without.as_ref().map(evidence),
        })
    });
    let files = written.map(|written| {
        let paths = written.plans.iter().chain(written.kernel.iter().flatten());
        paths.map(|path| path.display().to_string()).collect::<Vec<_>>()
    });
    json!({
        "model": model.name,
        "device": arguments.device.name(),
        "metric": match arguments.metric { Metric::Error => "error", Metric::Latency => "latency" },
        "decisions": searched.decisions,
        "plans": searched.plans,
        "differs_without_decisions": searched.before.is_some(),
        "to_blame": searched.before,
        "guilty": guilty,
        "written": files,
        "no_case": written.and_then(|written| written.kernel.as_ref().err()),
    })
}
