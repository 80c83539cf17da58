//! Scales inside of weights.

use super::constants::constant_axes;
use super::contract_integers::converted;
use super::facts::{Axes, axes, mentioned};
use super::peel::{Action, call};
use super::seen::Seen;
use super::step::{Kind, Step};
use super::{Facts, Permit, Refusal, Rewrite, Site, sites};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Value};
use crate::ops::prim::View;
use crate::ops::{Prim, Scalar};
use crate::passes::Tier;
use crate::tensor::{Dim, Ranges, Shape, Symbol};

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "scale-weights",
    doc: "Constants that scale the result of a contraction with constant weights scale the weights.",
    tier: Tier::Real,
    run,
};

/// In: any graph. Out: no contraction with a constant operand (weights) is read by nothing but a product with, or a quotient by, a
/// constant that varies along axes that the weights have, also behind views that split, join and permute axes. The scaled weights
/// are constants: folded where they are small, otherwise prepared once.
fn run(graph: &Graph, facts: &Facts, permit: &mut Permit<'_>) -> Result<Option<Graph>> {
    sites(graph, facts, |id| find(graph, facts, id, permit), |rebuild, _, found| apply(graph, rebuild, found))
}

/// A contraction with weights, seen from the coordinates of a step that is it, or a view of it.
pub(super) struct Weights {
    /// the contraction
    contract: usize,
    /// which of its operands are the weights
    operand: usize,
    /// the views between the contraction and the step, the last first
    views: Vec<View>,
    /// for each axis of the step that was asked about, where it is in the weights
    places: Vec<Option<Dim>>,
}

impl Weights {
    /// The weights that could take a factor that varies along some axes of a step; nobody else reads the contraction.
    pub(super) fn of(graph: &Graph, facts: &Facts, step: Step, varying: Axes) -> Option<Weights> {
        let rank = step.shape(graph).rank();
        let mut places: Vec<Option<Dim>> =
            (0..rank).map(|axis| (varying >> axis & 1 == 1).then(|| Dim::axis(axis))).collect();
        let Kind::Value(mut value) = step.kind(graph) else { return None };
        let mut views = Vec::new();
        loop {
            let node = graph.node_of(value);
            if facts.readers(value.node()) > 1 || value.port() != 0 {
                return None;
            }
            match node.prim() {
                Prim::View(view) if view.guard.is_empty() => {
                    value = node.args()[0];
                    let inner = &graph.ty(value).shape;
                    places = moved(&places, &|axis| inverse(view, inner, axis))?;
                    views.push(view.clone());
                }
                Prim::Contract(row) => {
                    let is_constant = |k: usize| facts.is_constant(node.args()[k].node());
                    let operand = (0..2).find(|k| is_constant(*k) && !is_constant(1 - k))?;
                    if is_quantised(graph, node.args()[operand]) {
                        return None;
                    }
                    let labels = [&row.a, &row.b][operand];
                    let place = |axis: usize| labels.iter().position(|l| *l == row.out[axis]).map(Dim::axis);
                    let places = moved(&places, &place)?;
                    return Some(Weights { contract: value.node(), operand, views, places });
                }
                _ => return None,
            }
        }
    }
}

/// Whether weights are short integers that are only converted: scaled, they would no longer be short.
fn is_quantised(graph: &Graph, weights: Value) -> bool {
    converted(graph, &Seen::whole(graph, weights)).is_some_and(|integer| integer.is_short(graph))
}

/// Expressions over axes with every axis replaced; `None` if one has no replacement.
fn moved(places: &[Option<Dim>], place: &dyn Fn(usize) -> Option<Dim>) -> Option<Vec<Option<Dim>>> {
    let needed = places.iter().flatten().fold(0, |axes, dim| axes | mentioned(dim));
    let replacement: Vec<Option<Dim>> =
        (0..64).map(|axis| if needed >> axis & 1 == 1 { place(axis) } else { None }).collect();
    if axes((0..64).filter(|axis| replacement[*axis].is_some())) != needed {
        return None;
    }
    let replaced = |dim: &Dim| {
        dim.substitute(&|s| match s {
            Symbol::Axis(axis) => replacement[usize::from(*axis)].clone(),
            _ => None,
        })
    };
    Some(places.iter().map(|place| place.as_ref().map(replaced)).collect())
}

/// An axis of a view as an expression over the axes of what it looks at, where it can be told from there.
fn inverse(view: &View, operand: &Shape, axis: usize) -> Option<Dim> {
    let parts = (0..operand.rank()).filter(|k| mentioned(&view.map[*k]) == 1 << axis);
    let parts: Vec<usize> = parts.collect();
    // The position that the parts make, the last one running fastest.
    let position = |part: &dyn Fn(usize) -> Dim| parts.iter().fold(Dim::int(0), |at, k| at * &operand[*k] + part(*k));
    let ranges = Ranges::of(view.shape.dims());
    let seen = position(&|k| view.map[k].clone()).simplify(&ranges);
    let whole =
        seen == Dim::axis(axis) && parts.iter().map(|k| operand[*k].clone()).product::<Dim>() == view.shape[axis];
    whole.then(|| position(&Dim::axis))
}

/// A product of a contraction with a constant, or a quotient by it.
struct Found {
    op: Scalar,
    factor: Step,
    weights: Weights,
}

fn find(graph: &Graph, facts: &Facts, id: usize, permit: &mut Permit<'_>) -> Option<Found> {
    let node = &graph.nodes()[id];
    let Prim::Map(_) = node.prim() else { return None };
    let found = scaled_result(graph, facts, id)?;
    let ty = &node.types()[0];
    let site = Site {
        rule: REWRITE.name,
        producer: found.weights.contract,
        consumer: id,
        flops_saved: ty.shape.count(),
        bytes_saved: ty.bytes() * 2,
        is_sure: false,
        what: "constants scale the weights instead of the result".to_owned(),
    };
    // A second copy of large weights costs more than a product with a number.
    let is_number = constant_axes(graph, facts, found.factor) == Some(0);
    let weights = graph.nodes()[found.weights.contract].args()[found.weights.operand];
    if is_number && facts.readers(weights.node()) > 1 {
        permit.refuse(graph, site, Refusal::UsedElsewhere);
        return None;
    }
    permit.allow_move(graph, site, [(Action::Times, found.factor)]).then_some(found)
}

fn scaled_result(graph: &Graph, facts: &Facts, id: usize) -> Option<Found> {
    let Kind::Call(op @ (Scalar::Mul | Scalar::Div), operands) = Step::of(graph, Value::new(id, 0)).kind(graph) else {
        return None;
    };
    let (a, b) = (operands[0], operands[1]);
    if !a.dtype(graph).is_float() {
        return None;
    }
    let with = |x: Step, factor: Step| {
        let varying = constant_axes(graph, facts, factor)?;
        Some(Found { op, factor, weights: Weights::of(graph, facts, x, varying)? })
    };
    with(a, b).or_else(|| if op == Scalar::Mul { with(b, a) } else { None })
}

fn apply(graph: &Graph, rebuild: &mut Rebuild<'_>, found: &Found) -> Result<Option<Values>> {
    let at = &found.weights;
    let node = &graph.nodes()[at.contract];
    let mut operands = [rebuild.moved(node.args()[0]), rebuild.moved(node.args()[1])];
    let shape = rebuild.graph().ty(operands[at.operand]).shape.clone();
    let map = at.places.iter().map(|place| place.clone().unwrap_or(Dim::int(0))).collect();
    let factor = Seen { step: found.factor, view: View::new(shape, map) }.rebuilt(graph, rebuild)?;
    operands[at.operand] = call(rebuild, found.op, &[operands[at.operand], factor])?;
    let mut value = rebuild.add_for(graph.origin(at.contract), node.prim().clone(), &operands)?;
    for view in at.views.iter().rev() {
        value = rebuild.add(view.clone(), &[value])?;
    }
    replaced(value)
}
