//! One decision the other way: what would it cost?

use fuseline::explain::DecisionRow;
use fuseline::fuse::{DecisionId, PlanOptions, Verdict};

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
