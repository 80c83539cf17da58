//! The nodes that kernels are made of, and who reads whom.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;
use smallvec::SmallVec;

use crate::graph::{Graph, Value};
use crate::lower::{is_opaque, is_transparent};
use crate::ops::Prim;
use crate::tensor::{Dim, Symbol};

/// A list of nodes.
pub(super) type Nodes = SmallVec<[u32; 4]>;

/// What a value is, seen through the views before it: a stored value with the form of the views, or a formula.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// what lies behind the views; `None` for what follows from coordinates
    pub base: Option<Value>,
    /// the views, or the formula, as a hash of their structure
    pub form: u64,
}

/// The computing nodes of a graph. Views and formulas are no cells: their readers look through them. Where a view must be
/// stored (a result of the graph, an operand of an opaque node), it is one.
#[derive(Debug)]
pub(super) struct Cells {
    /// for every node, whether it is a cell
    pub is_cell: Vec<bool>,
    /// for every cell, whether it is opaque to fusion
    pub is_opaque: Vec<bool>,
    /// for every node, the cells whose results it reads, ascending
    pub reads: Vec<Nodes>,
    /// for every cell, input and constant, the cells that read it, ascending
    pub readers: Vec<Nodes>,
    /// for every cell, the cells that must run before it although it reads nothing of them: they bind its sizes
    pub after: Vec<Nodes>,
    /// the other direction of `after`
    pub before: Vec<Nodes>,
    /// for every node, its first result through the views before it
    pub seen: Vec<Seen>,
    /// for every node, its operation without operands, as a hash
    pub form: Vec<u64>,
    /// for every node, whether a result of it is a result of the graph
    pub is_output: Vec<bool>,
}

fn hash(of: impl Hash) -> u64 {
    let mut hasher = FxHasher::default();
    of.hash(&mut hasher);
    hasher.finish()
}

impl Cells {
    pub fn of(graph: &Graph) -> Cells {
        let count = graph.nodes().len();
        let live = graph.live_nodes();
        let mut cells = Cells {
            is_cell: vec![false; count],
            is_opaque: vec![false; count],
            reads: vec![Nodes::new(); count],
            readers: vec![Nodes::new(); count],
            after: vec![Nodes::new(); count],
            before: vec![Nodes::new(); count],
            seen: Vec::with_capacity(count),
            form: Vec::with_capacity(count),
            is_output: vec![false; count],
        };
        for output in graph.outputs() {
            cells.is_output[output.value.node()] = true;
        }
        for (id, node) in graph.nodes().iter().enumerate() {
            let form = form(node.prim());
            cells.form.push(form);
            cells.seen.push(match node.prim() {
                Prim::View(_) => {
                    let inner = cells.look(node.args()[0]);
                    Seen { base: inner.base, form: hash((form, inner.form)) }
                }
                _ if is_transparent(graph, id) => Seen { base: None, form },
                _ => Seen { base: Some(Value::new(id, 0)), form: 0 },
            });
            let source = matches!(node.prim(), Prim::Input(_) | Prim::Const(_));
            if !live[id] || source {
                continue;
            }
            cells.is_cell[id] |= !is_transparent(graph, id) || cells.is_output[id];
            cells.is_opaque[id] = is_opaque(node.prim());
            if cells.is_opaque[id] {
                for arg in node.args() {
                    let stored = is_transparent(graph, arg.node());
                    cells.is_cell[arg.node()] |= stored;
                }
            }
        }
        cells.connect(graph, &live);
        cells
    }

    fn connect(&mut self, graph: &Graph, live: &[bool]) {
        let binders = graph.binders();
        for (id, node) in graph.nodes().iter().enumerate() {
            if !live[id] || !self.is_cell[id] {
                continue;
            }
            let mut reads = Nodes::new();
            for arg in node.args() {
                // An opaque node reads exactly what it is given.
                let base = if self.is_opaque[id] { Some(*arg) } else { self.look(*arg).base };
                match base {
                    Some(base) if self.is_cell[base.node()] => reads.push(base.node() as u32),
                    Some(base) if !self.readers[base.node()].contains(&(id as u32)) => {
                        self.readers[base.node()].push(id as u32);
                    }
                    _ => {}
                }
            }
            reads.sort_unstable();
            reads.dedup();
            let mut after = Nodes::new();
            let mut need = |dim: &Dim| {
                dim.for_each_symbol(&mut |s| {
                    if let Symbol::Value(n) = s {
                        after.extend(binders.get(n).filter(|b| **b != id).map(|b| *b as u32));
                    }
                });
            };
            node.prim().for_each_dim(&mut need);
            node.types().iter().flat_map(|ty| ty.shape.dims()).for_each(&mut need);
            after.sort_unstable();
            after.dedup();
            after.retain(|b| self.is_cell[*b as usize] && !reads.contains(b));
            for read in &reads {
                self.readers[*read as usize].push(id as u32);
            }
            for binder in &after {
                self.before[*binder as usize].push(id as u32);
            }
            (self.reads[id], self.after[id]) = (reads, after);
        }
    }

    /// A value through the views before it.
    pub fn look(&self, value: Value) -> Seen {
        match value.port() {
            0 => self.seen[value.node()],
            _ => Seen { base: Some(value), form: 0 },
        }
    }

    /// The cells, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        (0..self.is_cell.len()).filter(|id| self.is_cell[*id])
    }
}

/// An operation without operands as a hash of what decides its kernel. Streams of random numbers differ without
/// changing the form.
fn form(prim: &Prim) -> u64 {
    match prim {
        Prim::Random(row) => hash(("random", &row.shape)),
        Prim::Input(_) | Prim::Const(_) => 0,
        other => hash(other),
    }
}
