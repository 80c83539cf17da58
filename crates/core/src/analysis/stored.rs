//! Which values lie in memory, and which elements of them a reader touches.

use indexmap::IndexMap;

use crate::graph::{Graph, Value};
use crate::ops::Prim;
use crate::ops::prim::{Class, View};
use crate::tensor::{Dim, Shape, Symbol};

/// A stored value behind an operand, and at most how many of its elements are touched through it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Touched {
    /// what is stored
    pub value: Value,
    /// an upper bound of the number of distinct elements
    pub elements: Dim,
}

/// For every node, the stored values behind its first result: itself, what a view looks at, or nothing for what follows
/// from coordinates alone.
#[derive(Debug)]
pub(super) struct Stored(Vec<Vec<Touched>>);

impl Stored {
    pub fn of(graph: &Graph) -> Stored {
        let mut stored = Stored(Vec::with_capacity(graph.nodes().len()));
        for (id, node) in graph.nodes().iter().enumerate() {
            let behind = match node.prim() {
                Prim::View(view) => {
                    let operand = node.args()[0];
                    let distinct = distinct_elements(view, &graph.ty(operand).shape);
                    let mut behind = stored.behind(graph, operand);
                    behind.iter_mut().for_each(|t| t.elements = at_most(&t.elements, &distinct));
                    behind
                }
                Prim::Concat(_) => {
                    let parts = node.args().iter().flat_map(|a| stored.behind(graph, *a));
                    merged(graph, parts)
                }
                Prim::Sizes(_) => Vec::new(),
                Prim::Map(_) if node.args().iter().all(|a| stored.behind(graph, *a).is_empty()) => Vec::new(),
                _ => vec![whole(graph, Value::new(id, 0))],
            };
            stored.0.push(behind);
        }
        stored
    }

    /// The stored values behind a value.
    pub fn behind(&self, graph: &Graph, value: Value) -> Vec<Touched> {
        if value.port() == 0 { self.0[value.node()].clone() } else { vec![whole(graph, value)] }
    }

    /// Whether a node's results are written to memory by itself.
    pub fn is_stored(&self, node: usize) -> bool {
        matches!(self.0[node].as_slice(), [t] if t.value.node() == node)
    }
}

/// What a node touches of the values behind its operands, each value once.
pub(super) fn reads(graph: &Graph, node: usize, stored: &Stored) -> Vec<Touched> {
    let node = &graph.nodes()[node];
    let types: Vec<_> = node.args().iter().map(|a| graph.ty(*a).clone()).collect();
    let domain = node.prim().access(&types).map(|access| access.domain.count());
    let all = node.args().iter().flat_map(|a| stored.behind(graph, *a));
    let all = all.map(|t| match &domain {
        Some(domain) => Touched { elements: at_most(&t.elements, domain), ..t },
        None => t,
    });
    merged(graph, all)
}

/// Several reads of one value touch at most their sum, and at most all of it.
pub(super) fn merged(graph: &Graph, all: impl Iterator<Item = Touched>) -> Vec<Touched> {
    let mut sums: IndexMap<Value, Dim> = IndexMap::new();
    for Touched { value, elements } in all {
        let sum = sums.entry(value).or_insert(Dim::int(0));
        *sum = &*sum + elements;
    }
    let touched = sums.into_iter().map(|(value, sum)| {
        let elements = at_most(&sum, &graph.ty(value).shape.count());
        Touched { value, elements }
    });
    touched.collect()
}

/// The bytes of what is touched.
pub(super) fn bytes(graph: &Graph, touched: &[Touched]) -> Dim {
    touched.iter().map(|t| (&t.elements * graph.ty(t.value).dtype.bits() as i64).ceildiv(&Dim::int(8))).sum()
}

/// An upper bound of the number of different elements that a view reads of an operand of this shape.
pub(super) fn distinct_elements(view: &View, operand: &Shape) -> Dim {
    let along = |(size, index): (&Dim, &Dim)| {
        let mut axes: Vec<u8> = Vec::new();
        index.for_each_symbol(&mut |s| match s {
            Symbol::Axis(a) if !axes.contains(a) => axes.push(*a),
            _ => {}
        });
        let places = axes.iter().filter_map(|a| view.shape.dims().get(usize::from(*a))).product();
        at_most(size, &places)
    };
    let box_of_axes = operand.dims().iter().zip(&view.map).map(along).product();
    at_most(&box_of_axes, &view.shape.count())
}

/// Whether a node keeps every element at its row-major position; that counts are equal may be a constraint of the graph.
pub(super) fn is_reshape(graph: &Graph, node: usize) -> bool {
    let node = &graph.nodes()[node];
    let Prim::View(view) = node.prim() else { return false };
    let operand = &graph.ty(node.args()[0]).shape;
    let (from, to) = (operand.count(), view.shape.count());
    let demanded = || graph.constraints().iter().any(|c| (&c.left, &c.right) == (&from, &to));
    *view == View::reshape(operand, view.shape.clone()) && (from == to || demanded())
}

/// Whether a primitive only changes coordinates.
pub(super) fn is_view(prim: &Prim) -> bool {
    prim.class() == Class::View
}

fn whole(graph: &Graph, value: Value) -> Touched {
    Touched { value, elements: graph.ty(value).shape.count() }
}

/// The smaller of two counts. Where one is visibly a multiple of the other this is the other: that is an upper bound
/// even where the factor is 0, and keeps the expressions readable.
pub(super) fn at_most(a: &Dim, b: &Dim) -> Dim {
    if is_multiple(a, b) {
        b.clone()
    } else if is_multiple(b, a) {
        a.clone()
    } else {
        a.min_with(b)
    }
}

fn is_multiple(of: &Dim, divisor: &Dim) -> bool {
    !divisor.is(0) && &(of.floordiv(divisor) * divisor) == of
}
