//! Contractions of integers that stand for reals.

use super::hoist_scales::{wider, with_range};
use super::operand::{acted_on, summed_axes, unguarded};
use super::peel::{Action, Order, Peeled, Rest, cast, peel};
use super::seen::Seen;
use super::step::{Kind, Step};
use super::{Facts, Permit, Refusal, Rewrite, Site, sites};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Node, Value};
use crate::ops::prim::{Contract, View};
use crate::ops::{Number, Prim, Scalar};
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

/// Views, the outermost first, of a step that is an integer.
pub(super) struct Integer {
    views: Vec<View>,
    step: Step,
}

impl Integer {
    /// The element type of the integers.
    pub(super) fn dtype(&self, graph: &Graph) -> DType {
        self.step.dtype(graph)
    }

    /// The integers, converted to another type, as a value of the new graph.
    pub(super) fn rebuilt(&self, graph: &Graph, rebuild: &mut Rebuild, dtype: DType) -> Result<Value> {
        let mut value = self.step.rebuilt(graph, rebuild)?;
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
        what: "integers are contracted; their scales act on the result".to_owned(),
    };
    if !fits(graph, node, row, &found) {
        permit.refuse(graph, site, Refusal::MayOverflow);
        return None;
    }
    permit.allow(graph, site).then_some(found)
}

/// An operand as an integer and what scales it.
pub(super) fn quantised(graph: &Graph, node: &Node, row: &Contract, operand: usize) -> Option<(Peeled, Integer)> {
    let summed = summed_axes(row, operand);
    let wanted = |action: Action, seen: &Seen| {
        let scale = matches!(action, Action::Times | Action::Over);
        scale && unguarded(graph, seen).is_some_and(|seen| seen.is_free_of(graph, summed))
    };
    // What is left is an integer and needs no range.
    let mut peeled = peel(graph, node.args()[operand], Order { wanted: &wanted, is_small: true });
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
            let Integer { mut views, step } = integer(graph, rest)?;
            views.insert(0, in_integers(view));
            Some(Integer { views, step })
        }
        Rest::Product(..) | Rest::Acted(..) => None,
    }
}

/// The integer that a step is a conversion of, seen through views.
fn converted(graph: &Graph, seen: &Seen) -> Option<Integer> {
    match seen.step.kind(graph) {
        Kind::Cast(x) if x.dtype(graph).is_float() => converted(graph, &seen.with(x)),
        Kind::Cast(x) => {
            let is_short = range(graph, x, 0).is_some_and(|(low, high)| low >= -(1 << 16) && high <= 1 << 16);
            is_short.then(|| Integer { views: Vec::new(), step: x })
        }
        Kind::Value(value) => {
            let Prim::View(view) = graph.node_of(value).prim() else { return None };
            let zero = |fill: Number| fill.to_f64() == 0.0;
            let behind = seen.behind(graph).filter(|_| view.fill.is_none_or(zero))?;
            let Integer { mut views, step } = converted(graph, &behind)?;
            views.insert(0, in_integers(view));
            Some(Integer { views, step })
        }
        _ => None,
    }
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
    let largest = |integer: &Integer| range(graph, integer.step, 0).map(|(low, high)| low.abs().max(high.abs()));
    let types = [graph.ty(node.args()[0]).clone(), graph.ty(node.args()[1]).clone()];
    let length = row.summed().iter().map(|l| row.extent(&types, *l).cloned().unwrap_or(Dim::int(1))).product::<Dim>();
    let bound = || largest(&found[0].1)?.checked_mul(largest(&found[1].1)?)?.checked_mul(length.as_int()?.into());
    bound().is_some_and(|sum| sum <= i128::from(i32::MAX))
}

fn apply(graph: &Graph, rebuild: &mut Rebuild, id: usize, found: &Found) -> Result<Option<Values>> {
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
