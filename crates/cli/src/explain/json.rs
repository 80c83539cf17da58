//! Comparisons of plans for programs that read them.

use fuseline_session::plan::json::{cost, decision, head, kernel};
use serde_json::{Value, json};

use super::compare::{Effect, Flipped};
use super::{Request, Story};

/// A comparison of two plans.
pub fn of_flip(request: &Request<'_>, story: &Story, flipped: &Flipped) -> Value {
    let side = |story: &Story| {
        let run = &story.explanation.run;
        let mut side = cost(&run.cost, run.count());
        side["kernels_list"] = run.kernels.iter().map(kernel).collect();
        side
    };
    let mut value = head(&request.setting());
    let (effect, why) = match (&flipped.after, flipped.effect(story)) {
        (None, _) => ("illegal", flipped.illegal.as_deref()),
        (_, Effect::Slower(_)) => ("slower", None),
        (_, Effect::Faster(_)) => ("faster", Some(flipped.why_not_found(story, &request.options))),
        (_, Effect::Equal) => ("equal", Some(flipped.why_equal(story))),
    };
    value["flip"] = json!({
        "decision": decision(&flipped.decision),
        "effect": effect,
        "why": why,
        "illegal": flipped.illegal,
        "before": side(story),
        "after": flipped.after.as_ref().map(side),
    });
    value
}
