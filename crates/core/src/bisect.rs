//! The one decision that matters: plans that take ever more decisions, halved until two of them differ in one.
//!
//! Comes in: a graph after the passes, options, and a judge of plans. Goes out: the decision with which a plan becomes bad. Decisions
//! are taken in the same order whatever their number ([`PlanOptions::fuel`]), so that a plan of `n` decisions is one of
//! `n - 1` and one more. Never here: running plans, clocks.

use crate::compile::{PlannedProgram, plan_simplified, rewrite_id};
use crate::error::Result;
use crate::fuse::{DecisionId, PlanOptions, Verdict};
use crate::graph::Graph;

/// What a search has found.
#[derive(Debug)]
pub enum Found {
    /// the plan that takes every decision is not bad
    Nothing,
    /// the plan that takes none is bad already
    Before,
    /// a plan is bad, and is not without its last decision
    Guilty(Box<Guilty>),
}

/// Two plans that differ in one decision.
#[derive(Debug)]
pub struct Guilty {
    /// the decision, if it is about what is run every time
    pub decision: Option<DecisionId>,
    /// its number among those that are taken, from 1 on
    pub number: usize,
    /// the plan before it
    pub good: PlannedProgram,
    /// the plan with it
    pub bad: PlannedProgram,
}

/// Plans of one graph with any number of decisions.
#[derive(Clone, Copy, Debug)]
pub struct Ladder<'a> {
    /// after the passes
    pub graph: &'a Graph,
    /// how plans are made
    pub options: &'a PlanOptions,
}

impl Ladder<'_> {
    /// The plan that takes at most so many decisions.
    pub fn plan(&self, fuel: usize) -> Result<PlannedProgram> {
        let options = PlanOptions { fuel: Some(fuel), ..self.options.clone() };
        plan_simplified(self.graph.clone(), &options, &mut |_| {})
    }

    /// The plan that takes every decision, and how many that are.
    pub fn top(&self) -> Result<(PlannedProgram, usize)> {
        let planned = plan_simplified(self.graph.clone(), self.options, &mut |_| {})?;
        // What is prepared has the same number left as what is run.
        let prepare = applied(&planned).count() + fused(&planned.prepare).count();
        let count = taken(&planned).len().max(prepare);
        Ok((planned, count))
    }

    /// The decision with which plans become bad: the first where all after it are bad as well, some one otherwise.
    pub fn first_bad(&self, is_bad: &mut dyn FnMut(&PlannedProgram) -> Result<bool>) -> Result<Found> {
        let (top, count) = self.top()?;
        if !is_bad(&top)? {
            return Ok(Found::Nothing);
        }
        let bottom = self.plan(0)?;
        if is_bad(&bottom)? {
            return Ok(Found::Before);
        }
        let (mut good, mut bad) = ((0, bottom), (count, top));
        while bad.0 - good.0 > 1 {
            let middle = good.0 + (bad.0 - good.0) / 2;
            let planned = self.plan(middle)?;
            match is_bad(&planned)? {
                true => bad = (middle, planned),
                false => good = (middle, planned),
            }
        }
        Ok(Found::Guilty(Box::new(Guilty::between(good.1, bad))))
    }

    /// The step at which what is measured grows most: of some plans the pair with the largest growth, then of plans between
    /// them, until two differ in one decision. Nothing where no step grows by more than this part.
    pub fn steepest(&self, least: f64, measure: &mut dyn FnMut(&PlannedProgram) -> Result<f64>) -> Result<Found> {
        let (top, count) = self.top()?;
        let mut known = vec![(0, measure(&self.plan(0)?)?), (count, measure(&top)?)];
        let (mut low, mut high) = (0, count);
        while high - low > 1 {
            let pieces = (high - low).min(PIECES);
            for k in 1..pieces {
                let fuel = low + (high - low) * k / pieces;
                known.push((fuel, measure(&self.plan(fuel)?)?));
            }
            known.sort_by_key(|(fuel, _)| *fuel);
            known.dedup_by_key(|(fuel, _)| *fuel);
            let inside = known.windows(2).filter(|pair| pair[0].0 >= low && pair[1].0 <= high);
            let growth = |pair: &&[(usize, f64)]| pair[1].1 - pair[0].1;
            let Some(steepest) = inside.max_by(|a, b| growth(a).total_cmp(&growth(b))) else { break };
            if growth(&steepest) <= least * steepest[0].1 {
                return Ok(Found::Nothing);
            }
            (low, high) = (steepest[0].0, steepest[1].0);
        }
        if high == low {
            return Ok(Found::Nothing);
        }
        let bad = (high, self.plan(high)?);
        Ok(Found::Guilty(Box::new(Guilty::between(self.plan(low)?, bad))))
    }
}

/// Between two plans so many steps are looked at.
const PIECES: usize = 8;

impl Guilty {
    fn between(good: PlannedProgram, (number, bad): (usize, PlannedProgram)) -> Guilty {
        let (before, after) = (taken(&good), taken(&bad));
        let decision = after.get(before.len()).copied().filter(|_| after.len() > before.len());
        Guilty { decision, number, good, bad }
    }
}

/// The decisions of what is run that were taken, in order: rewrites, then fusions.
pub fn taken(planned: &PlannedProgram) -> Vec<DecisionId> {
    applied(planned).chain(fused(&planned.run)).collect()
}

fn applied(planned: &PlannedProgram) -> impl Iterator<Item = DecisionId> {
    planned.rewrites.iter().filter(|application| application.refused.is_none()).map(rewrite_id)
}

fn fused(plan: &crate::fuse::Plan) -> impl Iterator<Item = DecisionId> {
    plan.decisions.iter().filter(|decision| decision.verdict == Verdict::Taken).map(|decision| decision.id)
}
