//! Functions of one tensor: activations, however many nodes they are written with.

use super::cell::{Cells, Nodes};
use crate::graph::{Graph, Value};
use crate::ops::Prim;

/// A function has no more nodes than this.
const MOST_NODES: usize = 32;

/// For every node, the last node of the function that it is a part of, if that has several.
///
/// A function reads one tensor, element by element, and stores one of its shape; nobody else reads what lies between. Nothing between is
/// narrower than both: what quantises is one function, what reads the result another, so that the narrow tensor may be stored.
pub(super) fn functions(graph: &Graph, cells: &Cells) -> Vec<Option<u32>> {
    let mut last_of: Vec<Option<u32>> = vec![None; graph.nodes().len()];
    for last in cells.iter().collect::<Vec<_>>().into_iter().rev() {
        if last_of[last].is_none() && is_map(graph, cells, last) {
            let nodes = function(graph, cells, last);
            for node in nodes.iter().filter(|_| nodes.len() > 1) {
                last_of[*node as usize] = Some(last as u32);
            }
        }
    }
    last_of
}

fn is_map(graph: &Graph, cells: &Cells, node: usize) -> bool {
    cells.is_cell[node] && matches!(graph.nodes()[node].prim(), Prim::Map(_))
}

/// The largest function that ends with a node; that node alone where there is none.
fn function(graph: &Graph, cells: &Cells, last: usize) -> Nodes {
    let bits = |value: Value| graph.ty(value).dtype.bits();
    let shape = |value: Value| &graph.ty(value).shape;
    let result = Value::new(last, 0);
    let (mut nodes, mut best): (Nodes, usize) = (Nodes::from_slice(&[last as u32]), 1);
    let mut narrowest = u32::MAX as usize;
    loop {
        let args = nodes.iter().flat_map(|node| graph.nodes()[*node as usize].args());
        let outside = args.filter(|value| !nodes.contains(&(value.node() as u32)));
        let is_between = |value: &Value| {
            let node = value.node();
            is_map(graph, cells, node)
                && !cells.is_output[node]
                && shape(*value) == shape(result)
                && cells.readers[node].iter().all(|reader| nodes.contains(reader))
        };
        let mut read = outside.clone();
        if let Some(first) = read.next()
            && shape(*first) == shape(result)
            && narrowest >= bits(*first).min(bits(result))
            && read.all(|other| other == first)
        {
            best = nodes.len();
        }
        // The latest first: its readers are all known then.
        let next = outside.copied().filter(is_between).max_by_key(|value| value.node());
        let Some(next) = next.filter(|_| nodes.len() < MOST_NODES) else { break };
        narrowest = narrowest.min(bits(next));
        nodes.push(next.node() as u32);
    }
    nodes.truncate(best);
    nodes
}
