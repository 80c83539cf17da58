//! What is known of the values of a graph before any is rounded.

use super::super::narrow;
use super::super::round_factors::gains;
use super::is_table;
use crate::graph::{Graph, Node};
use crate::lower::is_opaque;
use crate::ops::prim::Monoid;
use crate::ops::{ExprNode, Prim, Scalar, Signature};
use crate::tensor::DType;

/// What is known of every node.
pub(super) struct Facts {
    rounded: Vec<bool>,
    meets_constants: Vec<bool>,
    readers: Vec<Readers>,
}

/// Who reads a value, also through views and concats.
#[derive(Clone, Copy, Debug, Default)]
struct Readers {
    /// one of them
    one: Option<usize>,
    /// there are others
    several: bool,
    /// one folds along rows
    folds: bool,
    /// one is neither a map nor a fold: it wants the value in memory
    leaves: bool,
    /// an output of the graph is one
    output: bool,
}

/// How exactly a value is wanted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
enum Wanted {
    /// as it is stored
    #[default]
    Stored,
    /// not rounded behind the sum that it comes from
    Unrounded,
    /// nor there
    Exact,
}

impl Facts {
    pub fn of(graph: &Graph, dtype: DType) -> Facts {
        let readers = readers(graph, dtype);
        let (data, wanted) = (data(graph, dtype), wanted(graph, dtype));
        let count = graph.nodes().len();
        let mut facts = Facts { rounded: vec![false; count], meets_constants: vec![false; count], readers };
        // Values between a statistic of a row and the end of what is done with the row.
        let mut inner = vec![false; count];
        for (id, node) in graph.nodes().iter().enumerate() {
            let is_f32 = node.types().first().is_some_and(|ty| ty.dtype == DType::F32);
            let may = is_f32 && data[id] && wanted[id] < Wanted::Exact;
            let reads_inner = node.args().iter().any(|arg| inner[arg.node()] && !facts.rounded[arg.node()]);
            facts.rounded[id] = may
                && match node.prim() {
                    Prim::Contract(row) => {
                        gains(row, node, graph, node.args(), dtype) && facts.readers[id].one.is_some()
                    }
                    Prim::Gather(_) if wanted[id] == Wanted::Stored => {
                        let table = node.args()[0];
                        is_table(graph, table, dtype)
                            || facts.is_stored(graph, table.node())
                            || facts.readers[id].want_it_rounded(false)
                    }
                    Prim::Reduce(row)
                        if matches!(row.monoid, Monoid::Max | Monoid::Min) && wanted[id] == Wanted::Stored =>
                    {
                        facts.is_stored(graph, node.args()[0].node())
                    }
                    Prim::Map(_) if wanted[id] == Wanted::Stored && !narrow::is_rounded(node, dtype) => {
                        facts.readers[id].want_it_rounded(reads_inner)
                    }
                    _ => false,
                };
            facts.meets_constants[id] = may && wanted[id] == Wanted::Stored && !is_abrupt(node);
            inner[id] = match node.prim() {
                Prim::Reduce(_) => is_f32 && !facts.rounded[id],
                Prim::Map(_) | Prim::View(_) | Prim::Concat(_) => is_f32 && reads_inner,
                _ => false,
            };
        }
        facts
    }

    /// Whether the first result of a node is rounded.
    pub fn is_rounded(&self, id: usize) -> bool {
        self.rounded[id]
    }

    /// Whether a node is a map of data whose constants are rounded.
    pub fn meets_constants(&self, id: usize) -> bool {
        self.meets_constants[id]
    }

    /// Whether the first result of a node is an output of the graph, maybe through views.
    pub fn is_output(&self, id: usize) -> bool {
        self.readers[id].output
    }

    /// Whether a value, behind views, was rounded.
    fn is_stored(&self, graph: &Graph, mut id: usize) -> bool {
        while let Prim::View(_) = graph.nodes()[id].prim() {
            id = graph.nodes()[id].args()[0].node();
        }
        self.rounded[id]
    }
}

impl Readers {
    fn add(&mut self, other: Readers) {
        self.several |= other.several || matches!((self.one, other.one), (Some(a), Some(b)) if a != b);
        self.one = self.one.or(other.one);
        self.folds |= other.folds;
        self.leaves |= other.leaves;
        self.output |= other.output;
    }

    /// Whether a map with these readers is rounded. One that is read by another map alone, or by a fold alone, is never stored. Inside of a norm
    /// nothing is, until the row leaves it.
    fn want_it_rounded(&self, is_inner: bool) -> bool {
        self.leaves || (self.several && (!is_inner || self.folds))
    }
}

fn readers(graph: &Graph, dtype: DType) -> Vec<Readers> {
    let mut found = vec![Readers::default(); graph.nodes().len()];
    for output in graph.outputs() {
        found[output.value.node()].output = true;
    }
    let live = graph.live_nodes();
    for (id, node) in graph.nodes().iter().enumerate().rev().filter(|(id, _)| live[*id]) {
        let own = match node.prim() {
            Prim::View(_) | Prim::Concat(_) => found[id],
            // What it is rounded for are the readers of what is widened again.
            Prim::Map(_) if narrow::is_widened(node, dtype) => found[id],
            Prim::Map(_) if narrow::is_narrowing(node, dtype) => Readers { one: Some(id), output: false, ..found[id] },
            Prim::Map(_) => Readers { one: Some(id), ..Readers::default() },
            Prim::Reduce(_) | Prim::Prefix(_) => Readers { one: Some(id), folds: true, ..Readers::default() },
            prim if is_opaque(prim) => Readers::default(),
            _ => Readers { one: Some(id), leaves: true, ..Readers::default() },
        };
        for arg in node.args().iter().filter(|arg| arg.port() == 0) {
            found[arg.node()].add(own);
        }
    }
    found
}

/// Which values carry data of the network: those that depend on floats that came in, on long sums, or on tables that are looked up.
fn data(graph: &Graph, dtype: DType) -> Vec<bool> {
    let mut data = vec![false; graph.nodes().len()];
    for (id, node) in graph.nodes().iter().enumerate() {
        let is_float = node.types().iter().any(|ty| ty.dtype.is_float());
        let mut args = node.args().iter();
        data[id] = is_float
            && match node.prim() {
                Prim::Input(_) => true,
                Prim::Gather(_) => is_table(graph, node.args()[0], dtype) || data[node.args()[0].node()],
                Prim::Contract(row) if gains(row, node, graph, node.args(), dtype) => true,
                prim if is_opaque(prim) => true,
                _ => args.any(|arg| data[arg.node()]),
            };
    }
    data
}

/// How exactly every value is wanted.
fn wanted(graph: &Graph, dtype: DType) -> Vec<Wanted> {
    let softmax = softmax(graph);
    let mut wanted = vec![Wanted::Stored; graph.nodes().len()];
    let live = graph.live_nodes();
    for (id, node) in graph.nodes().iter().enumerate().rev().filter(|(id, _)| live[*id]) {
        if softmax[id] {
            wanted[id] = Wanted::Exact;
        }
        let of_args = match node.prim() {
            Prim::Map(_) if is_abrupt(node) => wanted[id].max(Wanted::Unrounded),
            Prim::Map(_) | Prim::View(_) | Prim::Concat(_) => wanted[id],
            // Few terms: angles are products of positions and frequencies.
            Prim::Contract(row) if !gains(row, node, graph, node.args(), dtype) => wanted[id],
            Prim::Reduce(row) if softmax[id] || is_position(row.monoid) => Wanted::Exact,
            Prim::Prefix(_) => Wanted::Exact,
            prim if is_opaque(prim) => Wanted::Exact,
            _ => Wanted::Stored,
        };
        for arg in node.args() {
            wanted[arg.node()] = wanted[arg.node()].max(of_args);
        }
    }
    wanted
}

/// The largest numbers of rows that exponentials are taken relative to, and what lies between them and the exponentials, these included.
fn softmax(graph: &Graph) -> Vec<bool> {
    let nodes = graph.nodes();
    let is_max = |node: &Node| matches!(node.prim(), Prim::Reduce(row) if row.monoid == Monoid::Max);
    let is_step = |node: &Node| matches!(node.prim(), Prim::Map(_) | Prim::View(_));
    let mut behind = vec![false; nodes.len()];
    for (id, node) in nodes.iter().enumerate() {
        let goes_on = |arg: usize| behind[arg] && !is_exponential(&nodes[arg]);
        behind[id] = is_max(node) || (is_step(node) && node.args().iter().any(|arg| goes_on(arg.node())));
    }
    let mut leads = vec![false; nodes.len()];
    for (id, node) in nodes.iter().enumerate().rev().filter(|(id, _)| behind[*id]) {
        leads[id] |= is_exponential(node);
        if leads[id] && !is_max(node) {
            node.args().iter().filter(|arg| behind[arg.node()]).for_each(|arg| leads[arg.node()] = true);
        }
    }
    leads
}

fn applies(node: &Node, wanted: impl Fn(Scalar) -> bool) -> bool {
    let Prim::Map(row) = node.prim() else { return false };
    row.expr.nodes().iter().any(|(step, _)| matches!(step, ExprNode::Apply(op, _) if wanted(*op)))
}

fn is_exponential(node: &Node) -> bool {
    applies(node, |op| matches!(op, Scalar::Exp | Scalar::Exp2))
}

/// Whether small changes of what a map reads may change its result by much: steps, comparisons, angles, conversions to integers.
fn is_abrupt(node: &Node) -> bool {
    let Prim::Map(row) = node.prim() else { return false };
    let steps = |op: Scalar| {
        use Scalar::{Ceil, Cos, Floor, IsNan, Mod, Rem, Round, Sign, Sin, Tan, Trunc};
        let compares = op.def().signature == Signature::Compare && op != IsNan;
        compares || matches!(op, Ceil | Cos | Floor | Mod | Rem | Round | Sign | Sin | Tan | Trunc)
    };
    let nodes = row.expr.nodes();
    let counts = |(step, dtype): &(ExprNode, DType)| {
        let of_float = |from: u32| nodes[from as usize].1.is_float();
        matches!(step, ExprNode::Cast(from) if of_float(*from) && !dtype.is_float())
    };
    applies(node, steps) || nodes.iter().any(counts)
}

fn is_position(monoid: Monoid) -> bool {
    !matches!(monoid, Monoid::Sum | Monoid::Prod | Monoid::Max | Monoid::Min)
}
