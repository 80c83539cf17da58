//! Taking factors out of products.

use super::facts::Facts;
use super::seen::Seen;
use super::step::{Kind, Step};
use crate::error::Result;
use crate::graph::rewrite::Rebuild;
use crate::graph::{Graph, Value};
use crate::ops::prim::{Map, View};
use crate::ops::{Expr, Number, Prim, Scalar};
use crate::tensor::DType;

/// How a factor that was taken out acted on the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// rest · factor
    Times,
    /// rest / factor
    Over,
    /// 0 where the factor, a bool, holds, otherwise the rest
    Unless,
    /// the rest where the factor, a bool, holds, otherwise 0
    OnlyIf,
}

/// A factor that was taken out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Factor {
    /// how it acted
    pub(super) action: Action,
    /// the factor
    pub(super) seen: Seen,
}

impl Factor {
    /// How it acted, and what it is: what is asked before it moves.
    pub(super) fn moved(&self) -> (Action, Step) {
        (self.action, self.seen.step)
    }
}

/// What is left of a product.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// a step as it was
    Step(Step),
    /// a product of rests
    Product(Box<Rest>, Box<Rest>),
    /// a sum of rests, or a choice between them, that all had the same factors; the condition of a choice comes first, as it was
    Each(Scalar, Vec<Rest>),
    /// a rest on which a factor that was not taken out acts
    Acted(Action, Step, Box<Rest>),
    /// a rest converted
    Cast(DType, Box<Rest>),
    /// a rest looked at
    View(View, Box<Rest>),
}

/// A product taken apart.
#[derive(Clone, Debug)]
pub(super) struct Peeled {
    /// what is left
    pub(super) rest: Rest,
    /// what was taken out, from the outside to the inside; empty: nothing
    pub(super) factors: Vec<Factor>,
    /// the nodes between the whole and what is left
    pub(super) passed: Vec<usize>,
}

/// What is taken out of a product.
#[derive(Clone, Copy)]
pub(super) struct Order<'w> {
    /// which factors
    pub(super) wanted: &'w dyn Fn(Action, &Seen) -> bool,
    /// whether what is left of a product keeps in range of a narrower type
    pub(super) is_small: bool,
    /// whether nothing passes a choice by a condition that is computed from a reduction and not taken out: it may be what guards against a
    /// factor that is no number
    pub(super) heeds_guards: bool,
    /// whether what scales every term of a sum, and every side of a choice, is taken out of it: for factors that are numbers, the same
    /// everywhere
    pub(super) from_sums: bool,
}

/// Takes factors out of a value: through products, divisions, choices between it and 0, conversions between floats, and views
/// (with guards only if they fill with 0; it is up to the order whether a factor passes a guard, and whether it leaves a sum).
pub(super) fn peel(graph: &Graph, value: Value, order: Order<'_>) -> Peeled {
    let mut peeler = Peeler { graph, order, factors: Vec::new(), passed: Vec::new(), steps: MOST_STEPS };
    let rest = peeler.peel(&Seen::whole(graph, value));
    Peeled { rest, factors: peeler.factors, passed: peeler.passed }
}

struct Peeler<'g> {
    graph: &'g Graph,
    order: Order<'g>,
    factors: Vec<Factor>,
    passed: Vec<usize>,
    /// how many steps may still be looked at
    steps: usize,
}

/// What is behind more steps of a product stays where it is: a value squared again and again is one of more factors than there are
/// atoms.
const MOST_STEPS: usize = 256;

impl Peeler<'_> {
    fn peel(&mut self, seen: &Seen) -> Rest {
        let Some(left) = self.steps.checked_sub(1) else { return Rest::Step(seen.step) };
        self.steps = left;
        let before = (self.factors.len(), self.passed.len());
        self.passed.push(seen.step.node());
        match self.peel_inside(seen) {
            Some(rest) if self.factors.len() > before.0 => rest,
            _ => {
                self.passed.truncate(before.1);
                Rest::Step(seen.step)
            }
        }
    }

    fn peel_inside(&mut self, seen: &Seen) -> Option<Rest> {
        let at = |step: Step| seen.with(step);
        match seen.step.kind(self.graph) {
            Kind::Call(Scalar::Mul, operands) if seen.step.dtype(self.graph).is_float() => {
                let (a, b) = (operands[0], operands[1]);
                if self.take(Action::Times, at(a)) {
                    return Some(self.peel(&at(b)));
                }
                if self.take(Action::Times, at(b)) {
                    return Some(self.peel(&at(a)));
                }
                Some(Rest::Product(Box::new(self.peel(&at(a))), Box::new(self.peel(&at(b)))))
            }
            Kind::Call(Scalar::Div, operands) if seen.step.dtype(self.graph).is_float() => {
                self.peel_acted(Action::Over, at(operands[1]), &at(operands[0]))
            }
            Kind::Call(Scalar::Select, operands) => {
                let zero = |step: Step| step.float(self.graph) == Some(0.0);
                if zero(operands[1]) {
                    return self.peel_acted(Action::Unless, at(operands[0]), &at(operands[2]));
                }
                if zero(operands[2]) {
                    return self.peel_acted(Action::OnlyIf, at(operands[0]), &at(operands[1]));
                }
                self.peel_each(seen, Scalar::Select, &operands)
            }
            Kind::Call(op @ (Scalar::Add | Scalar::Sub | Scalar::Neg), operands) => self.peel_each(seen, op, &operands),
            Kind::Cast(x) => {
                let dtype = seen.step.dtype(self.graph);
                let from = x.dtype(self.graph);
                let keeps = keeps_range(from, dtype) || (self.order.is_small && from.is_float() && dtype.is_float());
                keeps.then(|| Rest::Cast(dtype, Box::new(self.peel(&at(x)))))
            }
            Kind::Value(value) => self.peel_view(seen, value),
            _ => None,
        }
    }

    fn peel_acted(&mut self, action: Action, factor: Seen, rest: &Seen) -> Option<Rest> {
        let step = factor.step;
        let chooses = matches!(action, Action::Unless | Action::OnlyIf);
        let is_guard = self.order.heeds_guards && chooses && !factor.reductions(self.graph).is_empty();
        if self.take(action, factor) {
            return Some(self.peel(rest));
        }
        if is_guard {
            return None;
        }
        Some(Rest::Acted(action, step, Box::new(self.peel(rest))))
    }

    /// Takes out what all terms of a sum, or both sides of a choice, have in common, if they have nothing else to take out. Not in a
    /// type of small range: the sum of what is not yet scaled may be beyond it.
    fn peel_each(&mut self, seen: &Seen, op: Scalar, operands: &[Step]) -> Option<Rest> {
        if !self.order.from_sums || !keeps_range(DType::BF16, seen.step.dtype(self.graph)) {
            return None;
        }
        let first = self.factors.len();
        let mut common: Option<Vec<Factor>> = None;
        let mut rests = Vec::with_capacity(operands.len());
        for (place, step) in operands.iter().enumerate() {
            if op == Scalar::Select && place == 0 {
                rests.push(Rest::Step(*step));
                continue;
            }
            rests.push(self.peel(&seen.with(*step)));
            let own = self.factors.split_off(first);
            if own.is_empty() || common.as_ref().is_some_and(|common| !are_same(self.graph, common, &own)) {
                return None;
            }
            common.get_or_insert(own);
        }
        self.factors.extend(common?);
        Some(Rest::Each(op, rests))
    }

    fn peel_view(&mut self, seen: &Seen, value: Value) -> Option<Rest> {
        let Prim::View(view) = self.graph.node_of(value).prim() else { return None };
        let zero = |fill: Number| matches!(fill, Number::Float(bits) if f64::from_bits(bits) == 0.0);
        let behind = seen.behind(self.graph).filter(|_| view.fill.is_none_or(zero))?;
        Some(Rest::View(view.clone(), Box::new(self.peel(&behind))))
    }

    fn take(&mut self, action: Action, seen: Seen) -> bool {
        let taken = (self.order.wanted)(action, &seen);
        if taken {
            self.factors.push(Factor { action, seen });
        }
        taken
    }
}

/// Whether two lists of numbers are the same, in any order.
fn are_same(graph: &Graph, some: &[Factor], others: &[Factor]) -> bool {
    let number = |factor: &Factor| factor.seen.step.uniform(graph);
    let mut left: Vec<&Factor> = others.iter().collect();
    let found = some.iter().all(|a| {
        let same = |b: &&Factor| a.action == b.action && number(a).is_some() && number(a) == number(b);
        left.iter().position(same).map(|place| left.swap_remove(place)).is_some()
    });
    found && left.is_empty()
}

/// Whether a conversion between float types cannot overflow.
fn keeps_range(from: DType, to: DType) -> bool {
    match (from.format(), to.format()) {
        (Some(from), Some(to)) => from.exponent_bits <= to.exponent_bits,
        _ => false,
    }
}

impl Rest {
    /// The rest as a value of the new graph.
    pub(super) fn rebuilt(&self, graph: &Graph, rebuild: &mut Rebuild<'_>) -> Result<Value> {
        match self {
            Rest::Step(step) => step.rebuilt(graph, rebuild),
            Rest::Product(a, b) => {
                let (a, b) = (a.rebuilt(graph, rebuild)?, b.rebuilt(graph, rebuild)?);
                call(rebuild, Scalar::Mul, &[a, b])
            }
            Rest::Each(op, rests) => {
                let rests: Vec<Value> = rests.iter().map(|rest| rest.rebuilt(graph, rebuild)).collect::<Result<_>>()?;
                call(rebuild, *op, &rests)
            }
            Rest::Acted(action, factor, rest) => {
                let (rest, factor) = (rest.rebuilt(graph, rebuild)?, factor.rebuilt(graph, rebuild)?);
                act(rebuild, *action, rest, factor)
            }
            Rest::Cast(dtype, rest) => {
                let rest = rest.rebuilt(graph, rebuild)?;
                cast(rebuild, rest, *dtype)
            }
            Rest::View(view, rest) => {
                let rest = rest.rebuilt(graph, rebuild)?;
                rebuild.add(view.clone(), &[rest])
            }
        }
    }
}

/// A function of values of one shape.
pub(super) fn call(rebuild: &mut Rebuild<'_>, op: Scalar, args: &[Value]) -> Result<Value> {
    let dtypes: Vec<DType> = args.iter().map(|a| rebuild.graph().ty(*a).dtype).collect();
    let shape = rebuild.graph().ty(args[0]).shape.clone();
    rebuild.add(Map { expr: Expr::call(op, &dtypes)?, shape }, args)
}

/// A value converted; itself where it has the type.
pub(super) fn cast(rebuild: &mut Rebuild<'_>, value: Value, dtype: DType) -> Result<Value> {
    let ty = rebuild.graph().ty(value).clone();
    if ty.dtype == dtype {
        return Ok(value);
    }
    rebuild.add(Map { expr: Expr::cast(ty.dtype, dtype), shape: ty.shape }, &[value])
}

/// A factor put back on a rest.
pub(super) fn act(rebuild: &mut Rebuild<'_>, action: Action, rest: Value, factor: Value) -> Result<Value> {
    let choose = |rebuild: &mut Rebuild<'_>, zero_first: bool| {
        let ty = rebuild.graph().ty(rest).clone();
        let expr = Expr::build(&[DType::Bool, ty.dtype], |scope, x| {
            let zero = scope.float(x[1], 0.0);
            if zero_first { x[0].select(zero, x[1]) } else { x[0].select(x[1], zero) }
        });
        rebuild.add(Map { expr, shape: ty.shape }, &[factor, rest])
    };
    match action {
        Action::Times => call(rebuild, Scalar::Mul, &[rest, factor]),
        Action::Over => call(rebuild, Scalar::Div, &[rest, factor]),
        Action::Unless => choose(rebuild, true),
        Action::OnlyIf => choose(rebuild, false),
    }
}

/// How many of some nodes are read by exactly one other.
pub(super) fn all_read_once(facts: &Facts, nodes: &[usize]) -> bool {
    nodes.iter().all(|node| facts.readers(*node) <= 1)
}
