//! Scales of quantised weights behind contractions.

use super::contract_integers::{Integer, quantised};
use super::hoist_scales::{wider, with_range};
use super::operand::acted_on;
use super::peel::{Factor, Peeled, cast};
use super::{Facts, Permit, Rewrite, Site, sites};
use crate::error::Result;
use crate::graph::rewrite::{Rebuild, Values, replaced};
use crate::graph::{Graph, Node};
use crate::ops::Prim;
use crate::ops::prim::Contract;
use crate::passes::Tier;
use crate::tensor::Dim;

pub(super) const REWRITE: Rewrite = Rewrite {
    name: "defer-scales",
    doc: "The scales of an operand of stored 8-bit integers act on the result of a contraction of floats.",
    tier: Tier::Real,
    run,
};

/// In: any graph. Out: no contraction of floats reads a product of stored integers of up to 8 bits (less a zero point), converted,
/// with scales that are constant along the summed axes: it reads the integers, converted, and the scales act on its result.
/// Weights stay as short as they are stored, and what is done to each of them is a conversion. Scales in blocks along a
/// summed axis stay.
///
/// Types: see `hoist-scales`.
fn run(graph: &Graph, facts: &Facts, permit: &mut Permit<'_>) -> Result<Option<Graph>> {
    sites(graph, facts, |id| find(graph, id, permit), |rebuild, id, found| apply(graph, rebuild, id, found))
}

/// The operands that are scaled integers.
type Found = [Option<(Peeled, Integer)>; 2];

fn find(graph: &Graph, id: usize, permit: &mut Permit<'_>) -> Option<Found> {
    let node = &graph.nodes()[id];
    let Prim::Contract(row) = node.prim() else { return None };
    if !node.types()[0].dtype.is_float() {
        return None;
    }
    let found = [0, 1].map(|operand| scaled(graph, node, row, operand));
    let moved: Vec<usize> = (0..2).filter(|k| found[*k].is_some()).collect();
    let first = *moved.first()?;
    let counts = moved.iter().map(|k| graph.ty(node.args()[*k]).shape.count()).sum::<Dim>();
    let site = Site {
        rule: REWRITE.name,
        producer: node.args()[first].node(),
        consumer: id,
        flops_saved: &counts - node.types()[0].shape.count(),
        bytes_saved: counts * 3,
        is_sure: false,
        what: "the scales of quantised weights act on the result".to_owned(),
    };
    let factors = found.iter().flatten().flat_map(|(peeled, _)| &peeled.factors).map(Factor::moved);
    permit.allow_move(graph, site, factors).then_some(found)
}

fn scaled(graph: &Graph, node: &Node, row: &Contract, operand: usize) -> Option<(Peeled, Integer)> {
    let (peeled, integer) = quantised(graph, node, row, operand)?;
    (integer.is_short(graph) && !peeled.factors.is_empty()).then_some((peeled, integer))
}

fn apply(graph: &Graph, rebuild: &mut Rebuild<'_>, id: usize, found: &Found) -> Result<Option<Values>> {
    let node = &graph.nodes()[id];
    let Prim::Contract(row) = node.prim() else { return Ok(None) };
    let dtype = node.types()[0].dtype;
    let wide = with_range(dtype);
    let mut operands = [rebuild.moved(node.args()[0]), rebuild.moved(node.args()[1])];
    for (operand, scaled) in operands.iter_mut().zip(found) {
        *operand = match scaled {
            Some((_, integer)) => integer.rebuilt(graph, rebuild, wide)?,
            None => cast(rebuild, *operand, wide)?,
        };
    }
    let product = Contract { accumulator: wider(row.accumulator, wide), ..row.clone() };
    let mut result = rebuild.add(product, &operands)?;
    for (operand, scaled) in found.iter().enumerate() {
        if let Some((peeled, _)) = scaled {
            result = acted_on(graph, rebuild, (node, row, operand), &peeled.factors, result)?;
        }
    }
    replaced(cast(rebuild, result, dtype)?)
}
