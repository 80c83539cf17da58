//! Contractions of integers that stand for reals.

use super::hoist_scales::{wider, with_range};
use super::operand::{acted_on, summed_axes, unguarded};
use super::peel::{Action, Factor, Order, Peeled, Rest, call, cast, peel};
use super::seen::Seen;
use super::step::{Kind, Step};
use super::{Facts, Permit, Refusal, Rewrite, Site, sites};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Node, Value};
use crate::ops::prim::{Contract, Map, View};
use crate::ops::{Expr, Number, Prim, Scalar};
use crate::passes::Tier;
use crate::tensor::{DType, Dim, Literal};

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "contract-integers",
    doc: "A contraction of (integer − zero point) · scale on both sides is one of integers, and the scales act on its result.",
    tier: Tier::Real,
    run,
};

/// In: any graph. Out: no contraction of floats has on both sides a product of converted short integers (up to 16 bits, less a zero
/// point) with scales that are constant along the summed axes, if its sums of integers stay in range of i32, which is
/// checked by the ranges of the types and the sizes of the summed axes. It is a contraction in i32, which is exact, and the
/// scales act on its result. Scales in blocks along a summed axis stay where they are.
fn run(graph: &Graph, facts: &Facts, permit: &mut Permit<'_>) -> Result<Option<Graph>> {
    sites(graph, facts, |id| find(graph, id, permit), |rebuild, id, found| apply(graph, rebuild, id, found))
}

/// Views, the outermost first, of a whole number.
pub(super) struct Integer {
    views: Vec<View>,
    whole: Whole,
}

/// A number that is an integer, whatever its type.
enum Whole {
    /// of an integer type
    Step(Step),
    /// `a − b`, computed in a float type
    Difference { a: Box<Integer>, b: Box<Integer> },
    /// a number of a float type, where a step is
    Number { at: Step, value: i64 },
}

impl Integer {
    fn plain(whole: Whole) -> Integer {
        Integer { views: Vec::new(), whole }
    }

    /// Smallest and largest value.
    fn range(&self, graph: &Graph) -> Option<(i128, i128)> {
        let (low, high) = match &self.whole {
            Whole::Step(step) => range(graph, *step, 0)?,
            Whole::Difference { a, b, .. } => {
                let ((a, b), (c, d)) = (a.range(graph)?, b.range(graph)?);
                (a - d, b - c)
            }
            Whole::Number { value, .. } => ((*value).into(), (*value).into()),
        };
        let is_filled = self.views.iter().any(|view| view.fill.is_some());
        Some(if is_filled { (low.min(0), high.max(0)) } else { (low, high) })
    }

    /// Whether float types hold it as it is.
    fn is_exact(&self, graph: &Graph) -> bool {
        self.range(graph).is_some_and(|(low, high)| low >= -(1 << 16) && high <= 1 << 16)
    }

    /// Whether it is stored in up to 8 bits, less a zero point of that type perhaps.
    pub(super) fn is_short(&self, graph: &Graph) -> bool {
        self.range(graph).is_some_and(|(low, high)| low >= -(1 << 8) && high <= 1 << 8)
    }

    /// The integers, converted to another type, as a value of the new graph.
    pub(super) fn rebuilt(&self, graph: &Graph, rebuild: &mut Rebuild<'_>, dtype: DType) -> Result<Value> {
        let mut value = match &self.whole {
            Whole::Step(step) => step.rebuilt(graph, rebuild)?,
            Whole::Difference { a, b, .. } => {
                let (a, b) = (a.rebuilt(graph, rebuild, DType::I32)?, b.rebuilt(graph, rebuild, DType::I32)?);
                call(rebuild, Scalar::Sub, &[a, b])?
            }
            Whole::Number { at, value } => {
                let expr = Expr::build(&[], |scope, _| scope.constant(DType::I32, Number::Int(*value)));
                rebuild.add(Map { expr, shape: at.shape(graph).clone() }, &[])?
            }
        };
        for view in self.views.iter().rev() {
            value = rebuild.add(view.clone(), &[value])?;
        }
        cast(rebuild, value, dtype)
    }
}

type Found = [(Peeled, Integer); 2];

fn find(graph: &Graph, id: usize, permit: &mut Permit<'_>) -> Option<Found> {
    let node = &graph.nodes()[id];
    let Prim::Contract(row) = node.prim() else { return None };
    if !node.types()[0].dtype.is_float() {
        return None;
    }
    let found = [quantised(graph, node, row, 0)?, quantised(graph, node, row, 1)?];
    let types = [graph.ty(node.args()[0]), graph.ty(node.args()[1])];
    let out = &node.types()[0];
    let saved = types[0].shape.count() + types[1].shape.count() - out.shape.count();
    let site = Site {
        rule: REWRITE.name,
        producer: node.args()[0].node(),
        consumer: id,
        flops_saved: saved,
        bytes_saved: (types[0].shape.count() + types[1].shape.count()) * 3,
        is_sure: false,
        what: "integers are contracted; their scales act on the result".to_owned(),
    };
    if !fits(graph, node, row, &found) {
        permit.refuse(graph, site, Refusal::MayOverflow);
        return None;
    }
    let factors = found.iter().flat_map(|(peeled, _)| &peeled.factors).map(Factor::moved);
    permit.allow_move(graph, site, factors).then_some(found)
}

/// An operand as an integer and what scales it.
pub(super) fn quantised(graph: &Graph, node: &Node, row: &Contract, operand: usize) -> Option<(Peeled, Integer)> {
    let summed = summed_axes(row, operand);
    let wanted = |action: Action, seen: &Seen| {
        let scale = matches!(action, Action::Times | Action::Over);
        scale && unguarded(graph, seen).is_some_and(|seen| seen.is_free_of(graph, summed))
    };
    // What is left is an integer and needs no range.
    let mut peeled = peel(
        graph,
        node.args()[operand],
        Order { wanted: &wanted, is_small: true, heeds_guards: false, from_sums: false },
    );
    let integer = integer(graph, &peeled.rest)?;
    for factor in &mut peeled.factors {
        factor.seen = unguarded(graph, &factor.seen)?;
    }
    Some((peeled, integer))
}

/// The integer that a rest is a conversion of.
fn integer(graph: &Graph, rest: &Rest) -> Option<Integer> {
    match rest {
        Rest::Step(step) => converted(graph, &Seen::at(graph, *step)),
        Rest::Cast(_, rest) => integer(graph, rest),
        Rest::View(view, rest) => {
            let mut integer = integer(graph, rest)?;
            integer.views.insert(0, in_integers(view));
            Some(integer)
        }
        Rest::Product(..) | Rest::Each(..) | Rest::Acted(..) => None,
    }
}

/// The integer that a step is a conversion of, seen through views.
pub(super) fn converted(graph: &Graph, seen: &Seen) -> Option<Integer> {
    const MOST_DEPTH: usize = 8;
    converted_within(graph, seen, MOST_DEPTH)
}

fn converted_within(graph: &Graph, seen: &Seen, depth: usize) -> Option<Integer> {
    let depth = depth.checked_sub(1)?;
    match seen.step.kind(graph) {
        Kind::Cast(x) if x.dtype(graph).is_float() => converted_within(graph, &seen.with(x), depth),
        Kind::Cast(x) => Some(Integer::plain(Whole::Step(x))).filter(|integer| integer.is_exact(graph)),
        Kind::Call(Scalar::Sub, operands) if seen.step.dtype(graph).is_float() => {
            let converted = |x: Step| converted_within(graph, &Seen::at(graph, x), depth);
            let part = |x: Step| whole_number(graph, x).or_else(|| converted(x));
            let difference = Whole::Difference { a: Box::new(part(operands[0])?), b: Box::new(part(operands[1])?) };
            Some(Integer::plain(difference)).filter(|integer| integer.is_exact(graph))
        }
        Kind::Value(value) => {
            let Prim::View(view) = graph.node_of(value).prim() else { return None };
            let zero = |fill: Number| fill.to_f64() == 0.0;
            let behind = seen.behind(graph).filter(|_| view.fill.is_none_or(zero))?;
            let mut integer = converted_within(graph, &behind, depth)?;
            integer.views.insert(0, in_integers(view));
            Some(integer)
        }
        _ => None,
    }
}

/// A constant of a float type that is an integer.
fn whole_number(graph: &Graph, at: Step) -> Option<Integer> {
    let value = at.float(graph).filter(|x| x.fract() == 0.0 && x.abs() <= f64::from(1 << 16))?;
    Some(Integer::plain(Whole::Number { at, value: value as i64 }))
}

/// A view that fills with 0, of integers.
fn in_integers(view: &View) -> View {
    View { fill: view.fill.map(|_| Number::Int(0)), ..view.clone() }
}

/// Smallest and largest value of an integer step, by types and constants.
fn range(graph: &Graph, step: Step, depth: usize) -> Option<(i128, i128)> {
    const MOST_DEPTH: usize = 8;
    let whole = step.dtype(graph).int_range()?;
    let within = |(low, high): (i128, i128)| if whole.0 <= low && high <= whole.1 { (low, high) } else { whole };
    if depth > MOST_DEPTH {
        return Some(whole);
    }
    let of = |step: Step| range(graph, step, depth + 1);
    Some(match step.kind(graph) {
        Kind::Const(Number::Int(n)) => (n.into(), n.into()),
        Kind::Cast(x) => of(x).map_or(whole, within),
        Kind::Call(Scalar::Sub, operands) => {
            let ((a, b), (c, d)) = (of(operands[0])?, of(operands[1])?);
            within((a - d, b - c))
        }
        Kind::Value(value) => match graph.node_of(value).prim() {
            Prim::View(view) => {
                let (low, high) = of(Step::of(graph, graph.node_of(value).args()[0]))?;
                match view.fill {
                    Some(Number::Int(fill)) => (low.min(fill.into()), high.max(fill.into())),
                    _ => (low, high),
                }
            }
            Prim::Const(row) => elements_range(&row.literal).unwrap_or(whole),
            _ => whole,
        },
        _ => whole,
    })
}

/// Smallest and largest element of a short table.
fn elements_range(literal: &Literal) -> Option<(i128, i128)> {
    const MOST_ELEMENTS: usize = 1 << 14;
    let elements = || (0..literal.count()).map(|k| i128::from(literal.int(k)));
    if literal.count() > MOST_ELEMENTS {
        return None;
    }
    Some((elements().min()?, elements().max()?))
}

/// Whether sums of products surely stay in range of i32.
fn fits(graph: &Graph, node: &Node, row: &Contract, found: &Found) -> bool {
    let largest = |integer: &Integer| integer.range(graph).map(|(low, high)| low.abs().max(high.abs()));
    let types = [graph.ty(node.args()[0]).clone(), graph.ty(node.args()[1]).clone()];
    let length = row.summed().iter().map(|l| row.extent(&types, *l).cloned().unwrap_or(Dim::int(1))).product::<Dim>();
    let bound = || largest(&found[0].1)?.checked_mul(largest(&found[1].1)?)?.checked_mul(length.as_int()?.into());
    bound().is_some_and(|sum| sum <= i128::from(i32::MAX))
}

fn apply(graph: &Graph, rebuild: &mut Rebuild<'_>, id: usize, found: &Found) -> Result<Option<Values>> {
    let node = &graph.nodes()[id];
    let Prim::Contract(row) = node.prim() else { return Ok(None) };
    let mut operands: Vec<Value> = Vec::with_capacity(2);
    for (_, integer) in found {
        operands.push(integer.rebuilt(graph, rebuild, DType::I32)?);
    }
    let sums = rebuild.add(Contract { accumulator: DType::I32, ..row.clone() }, &operands)?;
    let dtype = node.types()[0].dtype;
    let mut result = cast(rebuild, sums, wider(with_range(dtype), DType::F32))?;
    for (operand, (peeled, _)) in found.iter().enumerate() {
        result = acted_on(graph, rebuild, (node, row, operand), &peeled.factors, result)?;
    }
    replaced(cast(rebuild, result, dtype)?)
}
