//! One decision the other way: what would it cost?

use fuseline::explain::DecisionRow;
use fuseline::fuse::{DecisionId, PlanOptions, Policy, Verdict};

use super::{Request, Story, unknown};
use crate::failure::Outcome;

/// A decision, and what became of the plan when it was turned round.
pub struct Flipped {
    /// the decision as it was
    pub decision: DecisionRow,
    /// the other plan; none where it is impossible
    pub after: Option<Story>,
    /// why it is impossible
    pub illegal: Option<String>,
}

/// What a plan with one decision the other way is to the plan, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Effect {
    Slower(f64),
    Faster(f64),
    Equal,
}

/// Less than this is no difference.
const LEAST_US: f64 = 0.005;

impl Flipped {
    /// What turning the decision round does to the time.
    pub fn effect(&self, story: &Story) -> Effect {
        let after = self.after.as_ref().unwrap_or(story);
        match after.explanation.run.cost.us - story.explanation.run.cost.us {
            us if us > LEAST_US => Effect::Slower(us),
            us if us < -LEAST_US => Effect::Faster(-us),
            _ => Effect::Equal,
        }
    }

    /// Why a plan that is faster was not made.
    pub fn why_not_found(&self, options: &PlanOptions) -> &'static str {
        if options.policy != Policy::Microseconds {
            return "the textbook decides, not the time";
        }
        if options.fuel.is_some() || options.pins.only.is_some() {
            return "this plan may not take every decision";
        }
        if self.decision.is_rewrite {
            return "rewrites are applied wherever they fit, and this one does not pay here; --lock FILE writes the faster plan, \
                    --plan FILE obeys it";
        }
        "what saves most is decided first, and what follows from it was not foreseen; --lock FILE writes the faster plan, \
         --plan FILE obeys it"
    }
}

/// Plans again with one decision the other way.
pub fn flip(request: &Request<'_>, story: &Story, id: DecisionId) -> Outcome<Flipped> {
    let decisions = &story.explanation.decisions;
    let decision = decisions.iter().find(|row| row.id == id).ok_or_else(|| unknown(id, story).at("--flip"))?.clone();
    if decision.is_illegal {
        let illegal = Some(decision.reason.clone());
        return Ok(Flipped { decision, after: None, illegal });
    }
    let mut options: PlanOptions = request.options.clone();
    match decision.verdict {
        Verdict::Taken => options.pins.apart.insert(id),
        Verdict::Refused => options.pins.together.insert(id),
    };
    let after = request.tell(&options, &mut |_| {})?;
    // In another plan a pair may have become impossible.
    let now = after.explanation.decisions.iter().find(|row| row.id == id);
    match now {
        Some(row) if row.verdict == decision.verdict && row.verdict == Verdict::Refused => {
            let illegal = Some(row.reason.clone());
            Ok(Flipped { decision, after: None, illegal })
        }
        _ => Ok(Flipped { decision, after: Some(after), illegal: None }),
    }
}
