//! Zero points behind integer contractions.

use super::operand::{at_result, labels, summed_axes};
use super::peel::call;
use super::seen::Seen;
use super::step::{Kind, Step};
use super::{Facts, Permit, Rewrite, Site, sites};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Node, Value};
use crate::ops::prim::{Contract, Map, Monoid, Reduce, View};
use crate::ops::{Expr, Number, Prim, Scalar};
use crate::passes::Tier;
use crate::tensor::{Dim, Shape};

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "defer-zero-points",
    doc: "A contraction of (x − z) with short integers x is one of x, less z times the sums of the other operand.",
    tier: Tier::Exact,
    run,
};

/// In: any graph. Out: no integer contraction reads `x − z` with `x` a conversion of integers of up to 8 bits and `z` constant along
/// the summed axes: it reads `x`, as it is stored, and `z · Σ b` is subtracted from its result, where `b` is the other operand; with
/// two zero points, `Σ (a − y)(b − z) = Σ a·b − y · (Σ b − k·z) − z · Σ a` for sums over `k` elements. Sums of constant weights are
/// constants. Integers wrap around, and in such arithmetic this holds without exception.
///
/// Padding: a view that fills `x − z` with 0 fills `x` with `z`, if `z` is a number.
fn run(graph: &Graph, facts: &Facts, permit: &mut Permit<'_>) -> Result<Option<Graph>> {
    sites(graph, facts, |id| find(graph, id, permit), |rebuild, id, found| apply(graph, rebuild, id, found))
}

/// An operand `x − z` behind views.
struct Centred {
    /// the views, the outermost first, of `x`
    views: Vec<View>,
    x: Step,
    /// from the coordinates of the operand
    z: Seen,
}

type Found = [Option<Centred>; 2];

fn find(graph: &Graph, id: usize, permit: &mut Permit<'_>) -> Option<Found> {
    let node = &graph.nodes()[id];
    let Prim::Contract(row) = node.prim() else { return None };
    if !node.types()[0].dtype.is_int() {
        return None;
    }
    let found = [0, 1].map(|operand| centred(graph, node, row, operand));
    let moved: Vec<usize> = (0..2).filter(|k| found[*k].is_some()).collect();
    let first = *moved.first()?;
    let count = |k: usize| graph.ty(node.args()[k]).shape.count();
    // Less the subtractions, more the sums of the other operands and what is done with them.
    let saved = |k: &usize| count(*k) - count(1 - k) - node.types()[0].shape.count() * 2;
    let site = Site {
        rule: REWRITE.name,
        producer: node.args()[first].node(),
        consumer: id,
        flops_saved: moved.iter().map(saved).sum(),
        bytes_saved: moved.iter().map(|k| count(*k) * 3).sum(),
        is_sure: false,
        what: "zero points act on sums instead of elements".to_owned(),
    };
    permit.allow(graph, site).then_some(found)
}

fn centred(graph: &Graph, node: &Node, row: &Contract, operand: usize) -> Option<Centred> {
    let mut seen = Seen::whole(graph, node.args()[operand]);
    let mut views: Vec<View> = Vec::new();
    loop {
        match seen.step.kind(graph) {
            Kind::Value(value) => {
                let Prim::View(view) = graph.node_of(value).prim() else { return None };
                seen = seen.behind(graph)?;
                views.push(view.clone());
            }
            Kind::Call(Scalar::Sub, operands) => {
                let (x, z) = (operands[0], seen.with(operands[1]));
                let fill = padding(graph, &views, operands[1])?;
                for view in &mut views {
                    view.fill = view.fill.map(|_| fill);
                }
                // A number is the same inside and outside of padding.
                let z = if seen.view.guard.is_empty() { z } else { Seen::at(graph, operands[1]) };
                let fits = is_short(graph, x) && is_number_or_free(graph, &z, summed_axes(row, operand));
                return fits.then_some(Centred { views, x, z });
            }
            _ => return None,
        }
    }
}

fn is_number_or_free(graph: &Graph, z: &Seen, summed: u64) -> bool {
    match z.step.kind(graph) {
        Kind::Const(Number::Int(n)) => n != 0,
        _ => z.is_free_of(graph, summed),
    }
}

/// Whether a step is a conversion of integers of up to 8 bits.
fn is_short(graph: &Graph, step: Step) -> bool {
    let seen = Seen::at(graph, step).behind_views(graph);
    match seen.step.kind(graph) {
        Kind::Cast(x) => x.dtype(graph).is_int() && x.dtype(graph).bits() <= 8,
        _ => false,
    }
}

/// What views that fill `x − z` with 0 fill `x` with; `None` where that cannot be said.
fn padding(graph: &Graph, views: &[View], z: Step) -> Option<Number> {
    let zero = Number::Int(0);
    if views.iter().all(|view| view.guard.is_empty()) {
        return Some(zero);
    }
    let filled = views.iter().all(|view| view.fill.is_none_or(|fill| fill == zero));
    match z.kind(graph) {
        Kind::Const(number) if filled => Some(number),
        _ => None,
    }
}

fn apply(graph: &Graph, rebuild: &mut Rebuild<'_>, id: usize, found: &Found) -> Result<Option<Values>> {
    let node = &graph.nodes()[id];
    let Prim::Contract(row) = node.prim() else { return Ok(None) };
    let mut operands = [rebuild.moved(node.args()[0]), rebuild.moved(node.args()[1])];
    for (operand, centred) in operands.iter_mut().zip(found) {
        if let Some(centred) = centred {
            *operand = centred.x.rebuilt(graph, rebuild)?;
            for view in centred.views.iter().rev() {
                *operand = rebuild.add(view.clone(), &[*operand])?;
            }
        }
    }
    let zero = |rebuild: &mut Rebuild<'_>, k: usize| match &found[k] {
        Some(centred) => at_result_or_number(graph, rebuild, node, row, k, &centred.z).map(Some),
        None => Ok(None),
    };
    let mut result = rebuild.add(row.clone(), &operands)?;
    let (y, z) = (zero(rebuild, 0)?, zero(rebuild, 1)?);
    if let Some(y) = y {
        let mut sums = sums(rebuild, node, row, 1, operands[1])?;
        if let Some(z) = z {
            let length = summed_length(graph, node, row);
            let ty = node.types()[0].clone();
            let expr = Expr::build(&[ty.dtype; 2], |scope, x| x[0] - x[1] * scope.size(length).cast(ty.dtype));
            sums = rebuild.add(Map { expr, shape: ty.shape }, &[sums, z])?;
        }
        let correction = call(rebuild, Scalar::Mul, &[y, sums])?;
        result = call(rebuild, Scalar::Sub, &[result, correction])?;
    }
    if let Some(z) = z {
        let sums = sums(rebuild, node, row, 0, operands[0])?;
        let correction = call(rebuild, Scalar::Mul, &[z, sums])?;
        result = call(rebuild, Scalar::Sub, &[result, correction])?;
    }
    replaced(result)
}

/// A zero point at the coordinates of the result.
fn at_result_or_number(
    graph: &Graph,
    rebuild: &mut Rebuild<'_>,
    node: &Node,
    row: &Contract,
    operand: usize,
    z: &Seen,
) -> Result<Value> {
    match z.step.kind(graph) {
        Kind::Const(number) => {
            let ty = &node.types()[0];
            let expr = Expr::build(&[], |scope, _| scope.constant(ty.dtype, number));
            rebuild.add(Map { expr, shape: ty.shape.clone() }, &[])
        }
        _ => at_result(graph, rebuild, (node, row, operand), z),
    }
}

/// How many elements are summed.
fn summed_length(graph: &Graph, node: &Node, row: &Contract) -> Dim {
    let types = [graph.ty(node.args()[0]).clone(), graph.ty(node.args()[1]).clone()];
    row.summed().iter().filter_map(|label| row.extent(&types, *label)).product()
}

/// The sums of an operand over the summed axes, at the coordinates of the result.
fn sums(rebuild: &mut Rebuild<'_>, node: &Node, row: &Contract, operand: usize, value: Value) -> Result<Value> {
    let labels = labels(row, operand);
    let axes: Vec<usize> = (0..labels.len()).filter(|k| !row.out.contains(&labels[*k])).collect();
    let kept = labels.iter().filter(|label| row.out.contains(label));
    let place = |label: &char| row.out.iter().position(|l| l == label).map_or(Dim::int(0), Dim::axis);
    let map = kept.map(place).collect();
    let shape: Shape = node.types()[0].shape.clone();
    let sums = if axes.is_empty() { value } else { rebuild.add(Reduce { monoid: Monoid::Sum, axes }, &[value])? };
    rebuild.add(View::new(shape, map), &[sums])
}
