//! Scales inside of weights.

use super::constants::constant_axes;
use super::facts::{Axes, axes, mentioned};
use super::hoist_scales::{is_scale, product_of};
use super::peel::{Order, Peeled, all_read_once, call, peel};
use super::seen::Seen;
use super::step::{Kind, Step};
use super::{Facts, Permit, Refusal, Rewrite, Site, sites};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Value};
use crate::ops::prim::{Map, View};
use crate::ops::{Expr, Prim, Scalar};
use crate::passes::{Context, Tier};
use crate::tensor::{Dim, Ranges, Shape, Symbol};

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "scale-weights",
    doc: "Constants that scale the result of a contraction with constant weights, or numbers that scale its other operand, scale the weights.",
    tier: Tier::Real,
    run,
};

/// In: any graph. Out: no contraction with a constant operand (weights) is read by nothing but a product with, or a quotient by, a
/// constant that varies along axes that the weights have, also behind views that split, join and permute axes; and no number
/// scales the other operand. The scaled weights are constants: folded where they are small, otherwise prepared once.
fn run(graph: &Graph, _: &Context, permit: &mut Permit<'_>) -> Result<Option<Graph>> {
    let facts = Facts::of(graph);
    sites(graph, |id| find(graph, &facts, id, permit), |rebuild, id, found| apply(graph, rebuild, id, found))
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

enum Found {
    /// a product of a contraction with a constant, or a quotient by it
    Result { op: Scalar, factor: Step, weights: Weights },
    /// a contraction, the operand that are weights, and the other one without its scales
    Operand { weights: usize, peeled: Peeled },
}

fn find(graph: &Graph, facts: &Facts, id: usize, permit: &mut Permit<'_>) -> Option<Found> {
    let node = &graph.nodes()[id];
    match node.prim() {
        Prim::Map(_) => {
            let (op, factor, weights) = scaled_result(graph, facts, id)?;
            let ty = &node.types()[0];
            let site = Site {
                rule: REWRITE.name,
                producer: weights.contract,
                consumer: id,
                flops_saved: ty.shape.count(),
                bytes_saved: ty.bytes() * 2,
                what: "constants scale the weights instead of the result".to_owned(),
            };
            permit.allow(graph, site).then_some(Found::Result { op, factor, weights })
        }
        Prim::Contract(_) => {
            let is_constant = |k: usize| facts.is_constant(node.args()[k].node());
            let weights = (0..2).find(|k| is_constant(*k) && !is_constant(1 - k))?;
            let operand = node.args()[1 - weights];
            let wanted = |action, seen: &Seen| is_scale(graph, action, seen);
            let peeled = peel(graph, operand, Order { wanted: &wanted, is_small: false });
            if peeled.factors.is_empty() || !graph.ty(operand).dtype.is_float() {
                return None;
            }
            let ty = graph.ty(operand);
            let site = Site {
                rule: REWRITE.name,
                producer: operand.node(),
                consumer: id,
                flops_saved: ty.shape.count(),
                bytes_saved: ty.bytes() * 2,
                what: "a number scales the weights instead of the other operand".to_owned(),
            };
            if !all_read_once(facts, &peeled.passed) {
                permit.refuse(graph, site, Refusal::UsedElsewhere);
                return None;
            }
            permit.allow(graph, site).then_some(Found::Operand { weights, peeled })
        }
        _ => None,
    }
}

fn scaled_result(graph: &Graph, facts: &Facts, id: usize) -> Option<(Scalar, Step, Weights)> {
    let Kind::Call(op @ (Scalar::Mul | Scalar::Div), operands) = Step::of(graph, Value::new(id, 0)).kind(graph) else {
        return None;
    };
    let (a, b) = (operands[0], operands[1]);
    if !a.dtype(graph).is_float() {
        return None;
    }
    let with = |x: Step, factor: Step| {
        let varying = constant_axes(graph, facts, factor)?;
        Some((op, factor, Weights::of(graph, facts, x, varying)?))
    };
    with(a, b).or_else(|| if op == Scalar::Mul { with(b, a) } else { None })
}

fn apply(graph: &Graph, rebuild: &mut Rebuild, id: usize, found: &Found) -> Result<Option<Values>> {
    match found {
        Found::Result { op, factor, weights: at } => {
            let node = &graph.nodes()[at.contract];
            let mut operands = [rebuild.moved(node.args()[0]), rebuild.moved(node.args()[1])];
            let shape = rebuild.graph().ty(operands[at.operand]).shape.clone();
            let map = at.places.iter().map(|place| place.clone().unwrap_or(Dim::int(0))).collect();
            let factor = Seen { step: *factor, view: View::new(shape, map) }.rebuilt(graph, rebuild)?;
            operands[at.operand] = call(rebuild, *op, &[operands[at.operand], factor])?;
            let mut value = rebuild.add(node.prim().clone(), &operands)?;
            for view in at.views.iter().rev() {
                value = rebuild.add(view.clone(), &[value])?;
            }
            replaced(value)
        }
        Found::Operand { weights, peeled } => {
            let node = &graph.nodes()[id];
            let mut operands = [rebuild.moved(node.args()[0]), rebuild.moved(node.args()[1])];
            operands[1 - weights] = peeled.rest.rebuilt(graph, rebuild)?;
            let ty = rebuild.graph().ty(operands[*weights]).clone();
            let factors: Vec<_> = peeled.factors.iter().collect();
            let expr = Expr::build(&[ty.dtype], |scope, x| product_of(graph, scope, x[0], &factors));
            operands[*weights] = rebuild.add(Map { expr, shape: ty.shape }, &[operands[*weights]])?;
            replaced(rebuild.add(node.prim().clone(), &operands)?)
        }
    }
}
