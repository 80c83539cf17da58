//! What rewrites ask about the nodes of a graph.

use smallvec::SmallVec;

use crate::budget::Budget;
use crate::graph::Graph;
use crate::ops::Prim;
use crate::ops::prim::Class;
use crate::program;
use crate::tensor::{Dim, Symbol};

/// Axes of a shape, one bit each.
pub(super) type Axes = u64;

/// The axes in a list.
pub(super) fn axes(list: impl IntoIterator<Item = usize>) -> Axes {
    list.into_iter().fold(0, |axes, axis| axes | 1 << axis)
}

/// Facts about every node of a graph.
#[derive(Debug)]
pub(super) struct Facts {
    live: Vec<bool>,
    readers: Vec<u32>,
    constant: Vec<bool>,
    literal: Vec<bool>,
    /// what looking at the graph and rebuilding it may take
    pub(super) budget: Budget,
}

impl Facts {
    /// The facts about a graph that is looked at within a budget.
    pub(super) fn of(graph: &Graph, budget: &Budget) -> Facts {
        let mut readers = vec![0; graph.nodes().len()];
        let live = graph.live_nodes();
        for (node, _) in graph.nodes().iter().zip(&live).filter(|(_, live)| **live) {
            let mut args: SmallVec<[usize; 3]> = node.args().iter().map(|a| a.node()).collect();
            args.sort_unstable();
            args.dedup();
            args.iter().for_each(|a| readers[*a] += 1);
        }
        graph.outputs().iter().for_each(|o| readers[o.value.node()] += 1);
        let mut literal: Vec<bool> = Vec::with_capacity(live.len());
        for node in graph.nodes() {
            let source =
                !matches!(node.prim(), Prim::Input(_) | Prim::Random(_)) && node.prim().class() != Class::Control;
            literal.push(source && node.args().iter().all(|a| literal[a.node()]));
        }
        Facts { live, readers, constant: program::constant_nodes(graph), literal, budget: budget.clone() }
    }

    /// Whether an output needs a node.
    pub(super) fn is_live(&self, node: usize) -> bool {
        self.live[node]
    }

    /// How many nodes and outputs read a node.
    pub(super) fn readers(&self, node: usize) -> u32 {
        self.readers[node]
    }

    /// Whether a node depends on nothing but literals, so that it can be computed before any run.
    pub(super) fn is_constant(&self, node: usize) -> bool {
        self.constant[node]
    }

    /// Whether a node depends on nothing but literals and sizes.
    pub(super) fn is_literal(&self, node: usize) -> bool {
        self.literal[node]
    }
}

/// The axes that an index expression mentions.
pub(super) fn mentioned(dim: &Dim) -> Axes {
    let mut axes = 0;
    dim.for_each_symbol(&mut |s| {
        if let Symbol::Axis(axis) = s {
            axes |= 1 << axis;
        }
    });
    axes
}
