//! Who computes from whom, with the views between looked through, and what nodes are called.

use std::sync::Arc;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::graph::{Graph, Origin, Value};
use crate::lower::{is_transparent, looked_at};
use crate::ops::Prim;

/// A graph whose views are looked through.
#[derive(Debug)]
pub(super) struct Wiring<'g> {
    pub graph: &'g Graph,
    /// for every node, what lies behind its first result; `None` for what follows from coordinates
    base: Vec<Option<Value>>,
    /// for every node, the computing nodes that read it, ascending
    readers: Vec<Vec<usize>>,
    is_output: Vec<bool>,
    /// for every operator of the user, the computing nodes that are parts of it, ascending
    parts: FxHashMap<&'g Origin, Vec<usize>>,
}

impl<'g> Wiring<'g> {
    pub fn of(graph: &'g Graph) -> Wiring<'g> {
        let count = graph.nodes().len();
        let mut base: Vec<Option<Value>> = Vec::with_capacity(count);
        for id in 0..count {
            base.push(match looked_at(graph, id) {
                Some(operand) => behind(&base, operand),
                _ if is_transparent(graph, id) => None,
                _ => Some(Value::new(id, 0)),
            });
        }
        let (readers, is_output) = (vec![Vec::new(); count], vec![false; count]);
        let mut wiring = Wiring { graph, base, readers, is_output, parts: FxHashMap::default() };
        graph.outputs().iter().for_each(|o| wiring.is_output[o.value.node()] = true);
        let live = graph.live_nodes();
        for id in (0..count).filter(|id| live[*id] && !is_transparent(graph, *id)) {
            if let Some(origin) = graph.origin(id).iter().next().filter(|_| !wiring.is_source(id)) {
                wiring.parts.entry(origin).or_default().push(id);
            }
            for read in wiring.operands(id).into_iter().flatten() {
                if wiring.readers[read].last() != Some(&id) {
                    wiring.readers[read].push(id);
                }
            }
        }
        wiring
    }

    /// The node behind each operand of a node.
    pub fn operands(&self, node: usize) -> Vec<Option<usize>> {
        let args = self.graph.nodes()[node].args();
        args.iter().map(|a| behind(&self.base, *a).map(Value::node)).collect()
    }

    /// The node behind a value.
    pub fn base(&self, value: Value) -> Option<usize> {
        behind(&self.base, value).map(Value::node)
    }

    /// The computing nodes that read a node, ascending.
    pub fn readers(&self, node: usize) -> &[usize] {
        &self.readers[node]
    }

    /// The computing nodes that are parts of an operator, ascending.
    pub fn parts(&self, operator: &Origin) -> &[usize] {
        self.parts.get(operator).map_or(&[], Vec::as_slice)
    }

    /// Whether a result of the graph lies there.
    pub fn is_output(&self, node: usize) -> bool {
        self.is_output[node]
    }

    /// Whether a node only holds data: an input or a constant.
    pub fn is_source(&self, node: usize) -> bool {
        matches!(self.graph.nodes()[node].prim(), Prim::Input(_) | Prim::Const(_))
    }

    /// The operators of the user's model that some nodes are part of, those of the views that they look through included,
    /// in the order of the graph.
    pub fn operators(&self, members: &[usize]) -> Vec<Origin> {
        let (mut nodes, mut todo) = (members.to_vec(), members.to_vec());
        let mut seen: FxHashSet<usize> = members.iter().copied().collect();
        while let Some(node) = todo.pop() {
            for arg in self.graph.nodes()[node].args() {
                if is_transparent(self.graph, arg.node()) && seen.insert(arg.node()) {
                    nodes.push(arg.node());
                    todo.push(arg.node());
                }
            }
        }
        nodes.sort_unstable();
        let mut found: Vec<Origin> = Vec::new();
        let mut known: FxHashSet<Arc<str>> = FxHashSet::default();
        for origin in nodes.iter().flat_map(|node| self.graph.origin(*node).iter()) {
            if known.insert(origin.name.clone()) {
                found.push(origin.clone());
            }
        }
        found
    }

    /// The operators that read what some nodes compute, or the results of the graph that it is: what a constant that no operator
    /// makes is for.
    pub fn served(&self, members: &[usize]) -> Vec<Origin> {
        let readers = members.iter().flat_map(|node| self.readers(*node).iter().copied());
        let found = self.operators(&readers.collect::<Vec<_>>());
        if !found.is_empty() {
            return found;
        }
        let stored = self.graph.outputs().iter().filter(|o| members.binary_search(&o.value.node()).is_ok());
        stored.map(|o| Origin { op: "Constant".into(), name: o.name.clone() }).collect()
    }

    /// A node in the user's words: the name of its operator, or what it is where it has none.
    pub fn name(&self, node: usize) -> String {
        match self.graph.origin(node).iter().next() {
            Some(origin) if !origin.name.is_empty() => origin.name.to_string(),
            Some(origin) => origin.op.to_string(),
            None => format!("%{node} {}", self.verb(node)),
        }
    }

    /// What a node does, in a word.
    pub fn verb(&self, node: usize) -> String {
        match self.graph.nodes()[node].prim() {
            Prim::Map(row) => {
                let applied = row.expr.nodes().iter().rev().find_map(|(step, _)| match step {
                    crate::ops::ExprNode::Apply(op, _) => Some(op.def().name),
                    _ => None,
                });
                let plain = match () {
                    () if row.expr.is_cast() => "cast",
                    () if self.graph.nodes()[node].args().is_empty() => "constant",
                    () => "copy",
                };
                applied.unwrap_or(plain).to_string()
            }
            Prim::Reduce(row) => row.monoid.name().to_string(),
            other => other.name().to_string(),
        }
    }
}

fn behind(base: &[Option<Value>], value: Value) -> Option<Value> {
    if value.port() == 0 { base[value.node()] } else { Some(value) }
}
