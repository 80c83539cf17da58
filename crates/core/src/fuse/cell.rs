//! The nodes that kernels are made of, and who reads whom.

use indexmap::IndexSet;
use rustc_hash::{FxBuildHasher, FxHashMap};
use smallvec::SmallVec;

use super::function::functions;
use super::structure::{Form, Numbering, Numbers};
use crate::graph::{Graph, Value};
use crate::lower::{gathered, is_opaque, is_transparent, looked_at};
use crate::ops::Prim;
use crate::tensor::{Dim, Symbol};

/// A list of nodes.
pub(super) type Nodes = SmallVec<[u32; 4]>;

/// What lies behind views, each once, in the order in which it came: a kernel may read very many.
pub(super) type Bases = IndexSet<Value, FxBuildHasher>;

/// What a value is, seen through the views before it: a stored value with the form of the views, or a formula.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    /// what lies behind the views; `None` for what follows from coordinates
    pub base: Option<Value>,
    /// the views, or the formula: equal ones have one number
    pub form: u32,
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
    /// for every node, its operation without operands: equal ones have one number
    pub form: Vec<u32>,
    /// for gathers whose data is a formula or a view with guards, the data as they read it
    data: FxHashMap<usize, Seen>,
    /// for every node, whether a result of it is a result of the graph
    pub is_output: Vec<bool>,
    /// for every node, the last one of its [function](functions), if that has several
    pub function: Vec<Option<u32>>,
}

/// Stands for what lies behind a formula: nothing.
const FORMULA: u32 = u32::MAX;

impl Cells {
    pub fn of(graph: &Graph, numbering: &mut Numbering) -> Cells {
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
            data: FxHashMap::default(),
            is_output: vec![false; count],
            function: Vec::new(),
        };
        let Numbering { forms, views, .. } = numbering;
        for output in graph.outputs() {
            cells.is_output[output.value.node()] = true;
        }
        for (id, node) in graph.nodes().iter().enumerate() {
            let form = forms.of(Form::of(node));
            cells.form.push(form);
            cells.seen.push(match looked_at(graph, id) {
                Some(operand) => {
                    let inner = cells.look(operand);
                    Seen { base: inner.base, form: views.of((form, inner.form)) }
                }
                _ if is_transparent(graph, id) => Seen { base: None, form: views.of((form, FORMULA)) },
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
                Prim::Gather(row) => &[gathered(graph, row, node.args()[0])],
                _ => &[],
            };
            for value in stored {
                cells.is_cell[value.node()] |= is_transparent(graph, value.node());
            }
            if let (Prim::Gather(_), [base]) = (node.prim(), stored)
                && is_transparent(graph, base.node())
            {
                let form = cells.form_between(graph, node.args()[0], *base, views);
                cells.data.insert(id, Seen { base: Some(*base), form });
            }
        }
        cells.connect(graph, &live);
        cells.function = functions(graph, &cells);
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
                    // Readers come in order: who has read it before is the last.
                    Some(base) if self.readers[base.node()].last() != Some(&(id as u32)) => {
                        self.readers[base.node()].push(id as u32);
                    }
                    _ => {}
                }
            }
            reads.sort_unstable();
            reads.dedup();
            let mut after = binders.before(id).clone();
            after.retain(|b| self.is_cell[*b as usize] && reads.binary_search(b).is_err());
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
        let data = if k == 0 { self.data.get(&node).copied() } else { None };
        data.unwrap_or_else(|| self.look(arg))
    }

    /// The views from a value back to one before it.
    fn form_between(&self, graph: &Graph, from: Value, base: Value, views: &mut Numbers<(u32, u32)>) -> u32 {
        let mut forms: SmallVec<[u32; 4]> = SmallVec::new();
        let mut value = from;
        while value != base {
            forms.push(self.form[value.node()]);
            value = graph.node_of(value).args()[0];
        }
        forms.into_iter().rev().fold(0, |inner, form| views.of((form, inner)))
    }

    /// Whether both ends of an edge are parts of one function.
    pub fn is_in_function(&self, (from, to): (usize, usize)) -> bool {
        self.function[from].is_some() && self.function[from] == self.function[to]
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
