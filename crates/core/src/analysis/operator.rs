//! Footprints in the user's language: by operator of the model.

use indexmap::IndexMap;
use rustc_hash::FxHashSet;

use super::footprint::Footprint;
use super::stored::{self, Touched};
use crate::graph::{Graph, Origin, Value};
use crate::ops::Prim;

/// What one operator of the user's model needs.
#[derive(Clone, Debug)]
pub struct Operator {
    /// the operator; a node that belongs to none and costs something stands for itself, with the name of its primitive
    pub origin: Origin,
    /// its nodes, ascending; a node that several operators share belongs to each
    pub nodes: Vec<usize>,
    /// its primitives, each run by itself; shared ones count for their first operator only, so that the sum over the
    /// operators is the whole
    pub apart: Footprint,
    /// the operator run as one kernel: its own inputs read once, its results written once. This is what an unfused
    /// execution moves. An operator that only reshapes moves nothing, one that only permutes or slices is a copy.
    pub alone: Footprint,
}

/// The operators of a graph in the order in which they first occur.
pub(super) fn operators(
    graph: &Graph,
    live: &[bool],
    outputs: &FxHashSet<Value>,
    footprints: &[Footprint],
) -> Vec<Operator> {
    let mut groups: IndexMap<Origin, Vec<usize>> = IndexMap::new();
    let mut apart: IndexMap<Origin, Footprint> = IndexMap::new();
    for (id, node) in graph.nodes().iter().enumerate() {
        if !live[id] || is_source(node.prim()) {
            continue;
        }
        let mut origins: Vec<Origin> = graph.origin(id).iter().cloned().collect();
        if origins.is_empty() {
            if footprints[id] == Footprint::NOTHING {
                continue;
            }
            origins.push(Origin { op: node.prim().name().into(), name: format!("%{id}").into() });
        }
        *apart.entry(origins[0].clone()).or_insert(Footprint::NOTHING) += &footprints[id];
        for origin in origins {
            groups.entry(origin).or_default().push(id);
        }
    }
    let readers = readers(graph, live);
    let groups = groups.into_iter().map(|(origin, nodes)| {
        let alone = match nodes.as_slice() {
            [only] if graph.origin(*only).is_empty() => footprints[*only].clone(),
            nodes => alone(graph, nodes, &readers, outputs, footprints),
        };
        let apart = apart.get(&origin).cloned().unwrap_or(Footprint::NOTHING);
        Operator { origin, nodes, apart, alone }
    });
    groups.collect()
}

/// Inputs and constants belong to nobody: whoever needs them reads them.
fn is_source(prim: &Prim) -> bool {
    matches!(prim, Prim::Input(_) | Prim::Const(_))
}

fn readers(graph: &Graph, live: &[bool]) -> Vec<Vec<usize>> {
    let mut readers = vec![Vec::new(); graph.nodes().len()];
    for (id, node) in graph.nodes().iter().enumerate().filter(|(id, _)| live[*id]) {
        node.args().iter().for_each(|a| readers[a.node()].push(id));
    }
    readers
}

fn alone(
    graph: &Graph,
    nodes: &[usize],
    readers: &[Vec<usize>],
    outputs: &FxHashSet<Value>,
    footprints: &[Footprint],
) -> Footprint {
    let reshapes = |id: &usize| match graph.nodes()[*id].prim() {
        Prim::View(_) => stored::is_reshape(graph, *id),
        Prim::Sizes(_) | Prim::Bind(_) => true,
        _ => false,
    };
    let flops = nodes.iter().map(|id| footprints[*id].flops.clone()).sum();
    if nodes.iter().all(reshapes) {
        return Footprint { flops, ..Footprint::NOTHING };
    }
    let inside = |node: usize| nodes.binary_search(&node).is_ok();
    let read = stored::merged(graph, nodes.iter().flat_map(|id| reads_from_outside(graph, *id, &inside)));
    // Who has a value in an operator of its own does not need it from here.
    let takes = |reader: usize, value: Value| {
        let has_own = graph.origin(reader).iter().all(|o| graph.origin(value.node()).iter().any(|own| own == o));
        !inside(reader) && !has_own && graph.nodes()[reader].args().contains(&value)
    };
    let results = nodes.iter().flat_map(|id| (0..graph.nodes()[*id].types().len()).map(|port| Value::new(*id, port)));
    let leaving = results.filter(|v| outputs.contains(v) || readers[v.node()].iter().any(|reader| takes(*reader, *v)));
    let written = leaving.map(|value| graph.ty(value).bytes()).sum();
    Footprint { flops, read: stored::bytes(graph, &read), written }
}

/// What a node touches of operands that are made outside of its operator.
fn reads_from_outside(graph: &Graph, id: usize, inside: &dyn Fn(usize) -> bool) -> Vec<Touched> {
    let node = &graph.nodes()[id];
    let types: Vec<_> = node.args().iter().map(|a| graph.ty(*a).clone()).collect();
    let domain = node.prim().access(&types).map(|access| access.domain.count());
    let outside = node.args().iter().filter(|a| !inside(a.node()));
    let touched = outside.map(|value| {
        let shape = &graph.ty(*value).shape;
        let elements = match (node.prim(), &domain) {
            (Prim::View(view), _) => stored::distinct_elements(view, shape),
            (_, Some(domain)) => stored::at_most(&shape.count(), domain),
            (_, None) => shape.count(),
        };
        Touched { value: *value, elements }
    });
    touched.collect()
}
