//! One decision the other way: what would it cost?

use fuseline::explain::{DecisionRow, Part, about};
use fuseline::fuse::{DecisionId, PlanOptions, Policy, UNSURE, Verdict};

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
        // Of branches and bodies of loops, one run each.
        let us = |story: &Story| story.explanation.run.cost.us + story.explanation.run.regions.cost.us;
        match us(after) - us(story) {
            us if us > LEAST_US => Effect::Slower(us),
            us if us < -LEAST_US => Effect::Faster(-us),
            _ => Effect::Equal,
        }
    }

    /// Why a plan with the decision the other way takes as long.
    pub fn why_equal(&self, story: &Story) -> &'static str {
        let after = self.after.as_ref().unwrap_or(story);
        let same = |part: fn(&Story) -> &Part| {
            let kernels = |story| part(story).kernels.iter().map(|k| (&k.members, k.us));
            kernels(story).eq(kernels(after))
        };
        let parts = (same(|story| &story.explanation.run), same(|story| &story.explanation.prepare));
        match (parts, self.decision.is_rewrite, self.decision.verdict) {
            ((true, false), ..) => "it is about what is prepared once, when a program is loaded",
            ((true, true), true, _) => "the kernels are the same: other rewrites bring about what this one does",
            ((true, true), false, _) => "the kernels are the same: it is about values of which none is stored",
            ((false, _), true, _) => "the other kernels take as long",
            ((false, _), false, Verdict::Taken) => {
                "the two are combined with other neighbours instead, which saves as much"
            }
            ((false, _), false, Verdict::Refused) if self.decision.saved_us < 0.0 => {
                "combined at once, with other neighbours than those that they have in this plan, they take as long"
            }
            ((false, _), false, Verdict::Refused) => "as much is lost elsewhere as it saves",
        }
    }

    /// Why a plan that is faster was not made.
    pub fn why_not_found(&self, story: &Story, options: &PlanOptions) -> &'static str {
        if options.policy != Policy::Microseconds {
            return "the textbook decides, not the time";
        }
        if options.fuel.is_some() || options.pins.only.is_some() {
            return "this plan may not take every decision";
        }
        if self.decision.is_rewrite && self.decision.verdict == Verdict::Refused {
            return "a second plan is made for what promises a thousandth of a run; --lock FILE writes the faster plan, --plan FILE obeys it";
        }
        if self.decision.rule == "attention" && self.decision.verdict == Verdict::Taken {
            return "attention stays in one piece, for what it does not store grows with the square of the sizes; --lock FILE \
                    writes the faster plan, --plan FILE obeys it";
        }
        if self.after.as_ref().is_some_and(|after| moves_more_for_little(after, story)) {
            return "it moves more bytes, and a gain that small is not believed; --lock FILE writes that plan, --plan FILE obeys it";
        }
        if self.decision.is_rewrite {
            return "rewrites are applied wherever they fit, and this one does not pay here; --lock FILE writes the faster plan, \
                    --plan FILE obeys it";
        }
        "what saves most is decided first, and what follows from it was not foreseen; --lock FILE writes the faster plan, \
         --plan FILE obeys it"
    }
}

/// Whether a plan moves more bytes than another, and saves no more of what changes than predictions are off by.
fn moves_more_for_little(after: &Story, before: &Story) -> bool {
    let bytes = |story: &Story| story.explanation.run.cost.bytes + story.explanation.run.regions.cost.bytes;
    let own = |story: &Story, other: &Story| -> f64 {
        let others = &other.explanation.run.kernels;
        let kernels = story.explanation.run.kernels.iter();
        kernels.filter(|kernel| others.iter().all(|k| k.members != kernel.members)).map(|kernel| kernel.us).sum()
    };
    let changed_us = own(before, after);
    bytes(after) > bytes(before) && changed_us - own(after, before) <= UNSURE * changed_us
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
    if !decision.is_rewrite {
        // One decision is turned round: the graph stays what it is, and no other rule may do what this one did.
        options.pins.rewrites = Some(story.planned.applied_rewrites());
        let taken = decision.verdict == Verdict::Taken;
        options.pins.divided.extend(about(&story.planned, id).filter(|_| taken));
    }
    let own = options.clone();
    if !decision.is_rewrite {
        // What the plan has turned round by itself stays so.
        let others = story.planned.turned().into_iter().filter(|turn| turn.id != id);
        others.for_each(|turn| turn.pin(&mut options.pins));
    }
    let row = |story: &Story| story.explanation.decisions.iter().find(|row| row.id == id).cloned();
    let mut after = request.plan(&options, &mut |_| {})?;
    let is_kept_apart = |row: DecisionRow| decision.verdict == Verdict::Refused && row.code == "pinned";
    if row(&after).is_some_and(is_kept_apart) && own.pins != options.pins {
        // What the plan keeps apart by itself is what would be combined.
        after = request.plan(&own, &mut |_| {})?;
    }
    // In another plan a pair may have become impossible.
    let now = row(&after);
    match now {
        Some(row) if row.verdict == decision.verdict && row.verdict == Verdict::Refused => {
            let illegal = Some(row.reason.clone());
            Ok(Flipped { decision, after: None, illegal })
        }
        _ => Ok(Flipped { decision, after: Some(after), illegal: None }),
    }
}
