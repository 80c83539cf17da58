//! Names of decisions that follow from structure.

use std::collections::BTreeSet;
use std::hash::{Hash, Hasher};

use rustc_hash::{FxHashMap, FxHasher};

use super::decision::DecisionId;
use crate::graph::Graph;
use crate::ops::Prim;

/// A number for every node that follows from what it computes, all the way from inputs and constants, but not from where a
/// file lies.
pub(super) struct Names(Vec<u64>);

impl Names {
    pub fn of(graph: &Graph) -> Names {
        let mut names: Vec<u64> = Vec::with_capacity(graph.nodes().len());
        for node in graph.nodes() {
            let mut hasher = FxHasher::default();
            match node.prim() {
                Prim::Const(row) => {
                    node.types().hash(&mut hasher);
                    match row.literal.source() {
                        Some(source) => source.offset.hash(&mut hasher),
                        None => row.literal.hash(&mut hasher),
                    }
                }
                other => other.hash(&mut hasher),
            }
            for arg in node.args() {
                (names[arg.node()], arg.port()).hash(&mut hasher);
            }
            names.push(hasher.finish());
        }
        Names(names)
    }

    /// A node.
    pub fn node(&self, node: usize) -> DecisionId {
        self.set("node", std::iter::once(node))
    }

    /// The nodes of these names, pair by pair; those of other graphs are left out.
    pub fn pairs(&self, named: &BTreeSet<[DecisionId; 2]>) -> Vec<[usize; 2]> {
        if named.is_empty() {
            return Vec::new();
        }
        let nodes: FxHashMap<DecisionId, usize> = (0..self.0.len()).map(|node| (self.node(node), node)).collect();
        let found = |[a, b]: &[DecisionId; 2]| Some([*nodes.get(a)?, *nodes.get(b)?]);
        named.iter().filter_map(found).collect()
    }

    /// The decision about a pair of nodes.
    pub fn edge(&self, (from, to): (usize, usize)) -> DecisionId {
        self.set("edge", [from, to].into_iter())
    }

    /// The decision about some nodes by a rule.
    pub fn set(&self, rule: &str, nodes: impl Iterator<Item = usize>) -> DecisionId {
        let mut hasher = FxHasher::default();
        rule.hash(&mut hasher);
        nodes.for_each(|node| self.0[node].hash(&mut hasher));
        DecisionId(hasher.finish() >> 16)
    }

    /// The whole graph, whose names these are.
    pub fn graph(&self, graph: &Graph) -> u64 {
        let mut hasher = FxHasher::default();
        self.0.hash(&mut hasher);
        graph.outputs().iter().for_each(|o| (o.value.node(), o.value.port()).hash(&mut hasher));
        hasher.finish()
    }
}
