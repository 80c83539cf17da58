//! The mean of a row, and the sum of squares of what its numbers differ from the mean, found in one pass: both sums are taken of what numbers differ from
//! the first one of the row, so that little cancels where they are far from 0.
//!
//! The first number is one of the row: its own square is part of the sum, so that of `n` numbers no more than the factor `n` cancels, which leaves more than
//! narrow floats hold. For rows that lie in shared memory, where blocks meet often enough for the meetings to be what takes long.

use fuseline::error::Result;
use fuseline::ops::prim::Monoid;
use fuseline::ops::{ExprNode, Scalar};
use fuseline::tensor::DType;
use fuseline::tile::{AxisSet, Op, StepId};

use super::super::body::{Accumulator, Body};
use super::super::code::{Code, Rank};
use super::super::element;
use super::ends::end_name;
use super::hold::{Held, Place};
use super::{Pass, Plan};

/// A pass that adds up the numbers of a row, and the next one, which adds up squares of what they differ from their mean.
#[derive(Clone, Debug)]
pub(super) struct Moments {
    pub pass: usize,
    sum: StepId,
    squares: StepId,
    load: StepId,
    /// the difference, where it is a step of its own, and whether it is the mean less a number
    difference: Option<StepId>,
    is_mean_first: bool,
}

/// What a part of an expression is, but for widening.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Seen {
    /// a step that is no map
    Step(StepId),
    /// a node of a map
    Node(StepId, u32),
}

impl Plan<'_, '_> {
    /// Looks for two passes that become one.
    pub(super) fn find_moments(&mut self) {
        if !self.is_near || !self.brings() || self.place != Place::Registers {
            return;
        }
        let Some(moments) = (1..self.passes.len()).find_map(|next| self.moments_of(next - 1)) else { return };
        // What both passes have computed is not there for later ones, but for the difference.
        let next = moments.pass + 1;
        let is_taken_later = |held: &Held| self.passes[next + 1..].iter().any(|pass| pass.takes.contains(&held.step));
        let (kept, gone): (Vec<Held>, Vec<Held>) =
            self.held.iter().cloned().partition(|held| held.first > next || is_taken_later(held));
        let is_there = |held: &Held| held.first > next || Some(held.step) == moments.difference;
        if kept.iter().all(is_there) {
            for pass in &mut self.passes {
                pass.takes.retain(|step| !gone.iter().any(|held| held.step == *step));
            }
            self.held = kept;
            self.moments = Some(moments);
        }
    }

    fn moments_of(&self, number: usize) -> Option<Moments> {
        let is_alone = |pass: &Pass| pass.stores.is_empty() && pass.columns.is_empty();
        let (pass, next) = (&self.passes[number], &self.passes[number + 1]);
        let (&[sum], &[squares]) = (pass.folds.as_slice(), next.folds.as_slice()) else { return None };
        let sum_of = |fold: StepId| match self.nest.kernel.step(fold).op {
            Op::Reduce { monoid: Monoid::Sum, arg, .. } => self.seen_step(arg),
            _ => None,
        };
        let Seen::Step(load) = sum_of(sum)? else { return None };
        let product = sum_of(squares)?;
        let (Scalar::Mul, [a, b]) = self.applied(product)? else { return None };
        if a != b || !self.fetched.contains(&load) || !is_alone(pass) || !is_alone(next) {
            return None;
        }
        let (Scalar::Sub, [p, q]) = self.applied(a)? else { return None };
        let is_mean_first = match Seen::Step(load) {
            number if q == number && self.is_mean(p, sum) => true,
            number if p == number && self.is_mean(q, sum) => false,
            _ => return None,
        };
        let difference = match (a, product) {
            (Seen::Node(step, _), Seen::Node(outer, _)) if step != outer => Some(step),
            _ => None,
        };
        Some(Moments { pass: number, sum, squares, load, difference, is_mean_first })
    }

    /// What the result of a step is.
    fn seen_step(&self, step: StepId) -> Option<Seen> {
        match &self.nest.kernel.step(step).op {
            Op::Map { expr, .. } => self.seen(step, u32::try_from(expr.nodes().len()).ok()? - 1),
            _ => Some(Seen::Step(step)),
        }
    }

    /// What a node of a map is.
    fn seen(&self, step: StepId, node: u32) -> Option<Seen> {
        let Op::Map { expr, args } = &self.nest.kernel.step(step).op else { return None };
        match &expr.nodes()[node as usize] {
            (ExprNode::Cast(x), DType::F32) => self.seen(step, *x),
            (ExprNode::Arg(number), _) => self.seen_step(*args.get(*number as usize)?),
            _ => Some(Seen::Node(step, node)),
        }
    }

    /// The function that a node is of two others.
    fn applied(&self, seen: Seen) -> Option<(Scalar, [Seen; 2])> {
        let Seen::Node(step, node) = seen else { return None };
        let Op::Map { expr, .. } = &self.nest.kernel.step(step).op else { return None };
        let ExprNode::Apply(scalar, operands) = &expr.nodes()[node as usize].0 else { return None };
        let &[a, b] = operands.as_slice() else { return None };
        Some((*scalar, [self.seen(step, a)?, self.seen(step, b)?]))
    }

    /// Whether this is a sum over the row by the row's length.
    fn is_mean(&self, seen: Seen, sum: StepId) -> bool {
        let Some(length) = self.nest.count(self.along).as_int() else { return false };
        let number = |seen: Seen| {
            let Seen::Node(step, node) = seen else { return None };
            let Op::Map { expr, .. } = &self.nest.kernel.step(step).op else { return None };
            match &expr.nodes()[node as usize].0 {
                ExprNode::Size(size) => self.nest.dim(size).as_int().map(|size| size as f64),
                ExprNode::Const(number) => Some(number.to_f64()),
                _ => None,
            }
        };
        let of_sum = |a: Seen, b: Seen| if a == Seen::Step(sum) { number(b) } else { None };
        match self.applied(seen) {
            Some((Scalar::Div, [a, b])) => of_sum(a, b) == Some(length as f64),
            Some((Scalar::Mul, [a, b])) => {
                of_sum(a, b).or_else(|| of_sum(b, a)).is_some_and(|by| by as f32 == 1.0 / length as f32)
            }
            _ => false,
        }
    }

    /// Both passes as one; all threads of the row know both results.
    pub(super) fn print_moments(&self, body: &mut Body<'_>, moments: &Moments) -> Result<()> {
        let Moments { pass, sum, squares, load, difference, .. } = moments;
        let (m, q, length) = (sum.0, squares.0, body.index(&self.nest.count(self.along), &[]));
        let folds = [*sum, *squares];
        let accumulators = folds.map(|fold| Accumulator::of(self.nest, fold));
        body.line(format!("float s{m} = 0.0f, s{q} = 0.0f;"));
        // The pack that the first thread of the block has.
        let (turns, block) = (self.turns.unwrap_or(1), self.block());
        let first = Code::atom(format!("f{}[slot * {} - t].at[0]", load.0, turns * block));
        body.line(format!("const float base{m} = {};", element::widened(self.nest.load(*load).tensor.dtype, first)));
        body.open(self.along.without(AxisSet::of(self.lanes.axis)));
        let fills = self.fills(*pass);
        if fills {
            self.print_filled(body);
        }
        let inside = if fills { "if (inside) " } else { "" };
        self.print_fetched(body, &self.passes[*pass]);
        body.open_lanes();
        let number = body.value(*load)?;
        body.line(format!("const float d{m} = {number} - base{m};"));
        body.line(format!("{inside}s{m} = s{m} + d{m};"));
        body.line(format!("{inside}s{q} = s{q} + d{m} * d{m};"));
        for held in self.held.iter().filter(|held| Some(held.step) == *difference) {
            body.line(format!("{}[k].at[l] = d{m};", held.name()));
        }
        body.close_lanes();
        if fills {
            self.close_filled(body);
        } else {
            self.close_loop(body);
        }
        self.print_moments_of_ends(body, moments)?;
        self.print_folds(body, &folds, &accumulators);
        body.line(format!("const float off{m} = s{m} / {length}.0f;"));
        // Rounding may leave less than nothing.
        body.line(format!("s{q} = larger(s{q} - s{m} * off{m}, 0.0f);"));
        body.line(format!("s{m} = s{m} + base{m} * {length}.0f;"));
        self.bring_next(body, *pass)
    }

    /// The same of the elements at the ends of a row.
    fn print_moments_of_ends(&self, body: &mut Body<'_>, moments: &Moments) -> Result<()> {
        let Moments { sum: StepId(m), squares: StepId(q), load, difference, .. } = moments;
        if !self.is_alike() {
            return Ok(());
        }
        self.at_ends(body, |body| {
            self.know_ends(body);
            let number = body.value(*load)?;
            body.line(format!("const float d{m} = {number} - base{m};"));
            body.line(format!("s{m} = s{m} + d{m};"));
            body.line(format!("s{q} = s{q} + d{m} * d{m};"));
            for held in self.held.iter().filter(|held| Some(held.step) == *difference) {
                body.line(format!("{} = d{m};", end_name(held)));
            }
            Ok(())
        })
    }

    /// A number that is held: of a difference from the mean, what the number differs from the first one of its row is.
    pub(super) fn held_number(&self, held: &Held, code: Code) -> Code {
        match &self.moments {
            Some(moments) if moments.difference == Some(held.step) => {
                let off = Code::atom(format!("off{}", moments.sum.0));
                let (a, b) = if moments.is_mean_first { (off, code) } else { (code, off) };
                Code::infix("-", Rank::Sum, &a, &b)
            }
            _ => code,
        }
    }
}
