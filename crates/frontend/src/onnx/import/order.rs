//! The order in which nodes can be imported, and what regions read from outside.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use fuseline::error::{Error, Result};
use indexmap::IndexSet;

use super::super::schema::{GraphProto, NodeProto};
use super::node_name;

/// The numbers of the nodes such that each comes after those that make what it reads; the model's own order where that
/// is possible. Names that no node makes belong to others.
pub(super) fn evaluation_order(nodes: &[NodeProto]) -> Result<Vec<usize>> {
    let mut maker: HashMap<&str, usize> = HashMap::default();
    for (id, node) in nodes.iter().enumerate() {
        for output in node.output.iter().filter(|o| !o.is_empty()) {
            if let Some(other) = maker.insert(output, id) {
                let (a, b) = (node_name(&nodes[other], other), node_name(node, id));
                return Err(Error::invalid(format!(
                    "two values are called \"{output}\": nodes \"{a}\" and \"{b}\" both make it"
                )));
            }
        }
    }
    let mut waiting = vec![0usize; nodes.len()];
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (id, node) in nodes.iter().enumerate() {
        let mut read: IndexSet<&str> = node.input.iter().map(String::as_str).collect();
        let regions = regions(node).flat_map(free_names).collect::<IndexSet<String>>();
        read.extend(regions.iter().map(String::as_str));
        read.extend(named_value(node));
        for made in read.into_iter().filter_map(|name| maker.get(name)) {
            waiting[id] += 1;
            readers[*made].push(id);
        }
    }
    let mut ready: BinaryHeap<Reverse<usize>> = (0..nodes.len()).filter(|id| waiting[*id] == 0).map(Reverse).collect();
    let mut order = Vec::with_capacity(nodes.len());
    while let Some(Reverse(id)) = ready.pop() {
        order.push(id);
        for reader in &readers[id] {
            waiting[*reader] -= 1;
            if waiting[*reader] == 0 {
                ready.push(Reverse(*reader));
            }
        }
    }
    match (0..nodes.len()).find(|id| waiting[*id] > 0) {
        Some(id) => Err(Error::invalid(format!("node \"{}\" depends on its own result", node_name(&nodes[id], id)))),
        None => Ok(order),
    }
}

/// The value that a node reads without taking it as an operand.
fn named_value(node: &NodeProto) -> Option<&str> {
    let differentiated = node.attribute.iter().find(|a| node.op_type == "Gradient" && a.name == "y");
    differentiated.and_then(|a| std::str::from_utf8(&a.s).ok())
}

/// The regions of a node.
pub(super) fn regions(node: &NodeProto) -> impl Iterator<Item = &GraphProto> {
    node.attribute.iter().flat_map(|a| a.g.as_deref().into_iter().chain(&a.graphs))
}

/// The names that a region reads and does not define, in the order in which they are met.
pub(super) fn free_names(graph: &GraphProto) -> IndexSet<String> {
    let mut own: IndexSet<&str> = graph.input.iter().map(|i| i.name.as_str()).collect();
    own.extend(graph.initializer.iter().map(|t| t.name.as_str()));
    own.extend(graph.node.iter().flat_map(|n| &n.output).map(String::as_str));
    let mut free = IndexSet::new();
    for node in &graph.node {
        free.extend(node.input.iter().filter(|i| !i.is_empty()).cloned());
        free.extend(regions(node).flat_map(free_names));
    }
    free.extend(graph.output.iter().map(|o| o.name.clone()));
    free.retain(|name| !own.contains(name.as_str()));
    free
}
