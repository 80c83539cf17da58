//! The nodes that kernels are made of, and who reads whom.

use std::hash::{Hash, Hasher};

use rustc_hash::FxHasher;
use smallvec::SmallVec;

use crate::graph::{Graph, Value};
use crate::lower::{gathered, is_opaque, is_transparent};
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
            // What is read as it is, is stored.
            let stored = match node.prim() {
                _ if cells.is_opaque[id] => node.args(),
                Prim::Gather(_) => &[gathered(graph, node.args()[0])],
                _ => &[],
            };
            for value in stored {
                cells.is_cell[value.node()] |= is_transparent(graph, value.node());
            }
        }
        cells.connect(graph, &live);
        cells
    }

    fn connect(&mut self, graph: &Graph, live: &[bool]) {
        let binders = Binders::of(graph);
        for (id, node) in graph.nodes().iter().enumerate() {
            if !live[id] || !self.is_cell[id] {
                continue;
            }
            let mut reads = Nodes::new();
            for k in 0..node.args().len() {
                match self.operand(graph, id, k).base {
                    Some(base) if self.is_cell[base.node()] => reads.push(base.node() as u32),
                    Some(base) if !self.readers[base.node()].contains(&(id as u32)) => {
                        self.readers[base.node()].push(id as u32);
                    }
                    _ => {}
                }
            }
            reads.sort_unstable();
            reads.dedup();
            let mut after = binders.before(id).clone();
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

    /// An operand of a node as the node reads it: an opaque one reads exactly what it is given, a gather only through views
    /// that read everywhere.
    pub fn operand(&self, graph: &Graph, node: usize, k: usize) -> Seen {
        let arg = graph.nodes()[node].args()[k];
        if self.is_opaque[node] {
            return Seen { base: Some(arg), form: 0 };
        }
        let is_data = k == 0 && matches!(graph.nodes()[node].prim(), Prim::Gather(_));
        let base = if is_data { gathered(graph, arg) } else { return self.look(arg) };
        if !is_transparent(graph, base.node()) {
            return self.look(arg);
        }
        let mut form = 0;
        let mut value = arg;
        while value != base {
            form = hash((form, self.form[value.node()]));
            value = graph.node_of(value).args()[0];
        }
        Seen { base: Some(base), form }
    }

    /// The cells, ascending.
    pub fn iter(&self) -> impl Iterator<Item = usize> {
        (0..self.is_cell.len()).filter(|id| self.is_cell[*id])
    }
}

/// For every node, the nodes that bind the sizes it mentions itself or through the views and formulas before it.
struct Binders(Vec<Nodes>);

impl Binders {
    fn of(graph: &Graph) -> Binders {
        let binders = graph.binders();
        let mut all: Vec<Nodes> = Vec::with_capacity(graph.nodes().len());
        for (id, node) in graph.nodes().iter().enumerate() {
            let mut before = Nodes::new();
            // What binds a size precedes what mentions it; a region may use the numbers of later ones for its own.
            let mut need = |dim: &Dim| {
                dim.for_each_symbol(&mut |s| {
                    if let Symbol::Value(n) = s {
                        before.extend(binders.get(n).filter(|b| **b < id).map(|b| *b as u32));
                    }
                });
            };
            node.prim().for_each_dim(&mut need);
            node.types().iter().flat_map(|ty| ty.shape.dims()).for_each(&mut need);
            for arg in node.args().iter().filter(|arg| is_transparent(graph, arg.node())) {
                before.extend_from_slice(&all[arg.node()]);
            }
            before.sort_unstable();
            before.dedup();
            all.push(before);
        }
        Binders(all)
    }

    fn before(&self, node: usize) -> &Nodes {
        &self.0[node]
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
