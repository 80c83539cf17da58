//! What members of a kernel make of rows of numbers: the name of a normalisation follows from its values, as that of an activation does.
//!
//! A row is a few numbers, each as often as the others, so that a fold of any length is a fold of these. What a row meets
//! besides is *given*: parameters, masks, what other kernels compute.

use rustc_hash::FxHashMap;
use smallvec::SmallVec;

use super::attention::{apply, number_of};
use super::pattern::Parts;
use super::row_function::NORM_ROWS;
use crate::ops::prim::{Contract, Monoid};
use crate::ops::{Expr, ExprNode, Prim};

/// The numbers of a row.
pub(super) const LANES: usize = 4;

/// A row, or a number for all of it.
pub(super) type Row = [f64; LANES];

/// The other factor of a contraction along a row.
pub(super) const FACTOR: Row = [0.3, -1.1, 2.0, 0.7];

/// So many nodes are evaluated at most.
const MOST_NODES: usize = 96;

/// Where evaluation begins, and what it meets.
#[derive(Clone, Copy)]
pub(super) struct Sample {
    /// the node that is the row
    pub entry: usize,
    /// its numbers
    pub row: Row,
    /// what is taken for everything that is given
    pub given: f64,
    /// whether what other kernels compute is looked into
    pub everywhere: bool,
}

impl Sample {
    /// A large row, beside which what keeps norms from dividing by nothing is nothing.
    pub fn large(entry: usize) -> Sample {
        Sample { entry, row: NORM_ROWS[2], given: 1.0, everywhere: false }
    }
}

/// The values of nodes for one row.
pub(super) struct Sampled<'p, 'w, 'g> {
    parts: &'p Parts<'w, 'g>,
    sample: Sample,
    /// for nodes that follow from the row, their values; `None` for what is given
    known: FxHashMap<usize, Option<Row>>,
}

impl<'p, 'w, 'g> Sampled<'p, 'w, 'g> {
    pub fn new(parts: &'p Parts<'w, 'g>, sample: Sample) -> Sampled<'p, 'w, 'g> {
        Sampled { parts, sample, known: FxHashMap::default() }
    }

    /// The value of a node; `None` where it does not follow from the row.
    pub fn value(&mut self, node: usize) -> Option<Row> {
        if node == self.sample.entry {
            return Some(self.sample.row);
        }
        if let Some(known) = self.known.get(&node) {
            return *known;
        }
        let is_inside = self.sample.everywhere || self.parts.members.binary_search(&node).is_ok();
        let value = if is_inside && self.known.len() < MOST_NODES { self.computed(node) } else { None };
        self.known.insert(node, value);
        value
    }

    fn computed(&mut self, node: usize) -> Option<Row> {
        let graph = self.parts.wiring.graph;
        // Operands precede their readers: what follows from the row comes behind it.
        if node < self.sample.entry {
            return None;
        }
        let args = graph.nodes()[node].args();
        let operands: SmallVec<[Option<Row>; 3]> =
            args.iter().map(|arg| self.parts.wiring.base(*arg).and_then(|base| self.value(base))).collect();
        if operands.iter().all(Option::is_none) {
            return None;
        }
        let given = [self.sample.given; LANES];
        let count = |arg: usize, axes: &mut dyn Iterator<Item = usize>| -> f64 {
            let dims = graph.ty(args[arg]).shape.dims();
            axes.map(|axis| number_of(&dims[axis])).product::<f64>() / LANES as f64
        };
        let value = match graph.nodes()[node].prim() {
            Prim::Map(row) => {
                let at = |lane: usize| {
                    let numbers = operands.iter().map(|operand| operand.unwrap_or(given)[lane]);
                    evaluate(&row.expr, &numbers.collect::<SmallVec<[f64; 3]>>())
                };
                std::array::from_fn(at)
            }
            Prim::Reduce(row) => {
                let terms = operands[0]?;
                let fold = match row.monoid {
                    Monoid::Sum => terms.iter().sum::<f64>() * count(0, &mut row.axes.iter().copied()),
                    Monoid::Max => terms.into_iter().fold(f64::NEG_INFINITY, f64::max),
                    Monoid::Min => terms.into_iter().fold(f64::INFINITY, f64::min),
                    _ => f64::NAN,
                };
                [fold; LANES]
            }
            Prim::Contract(Contract { a, b, out, .. }) => {
                let (terms, of, labels) = match operands.as_slice() {
                    [Some(terms), None] => (terms, 0, a),
                    [None, Some(terms)] => (terms, 1, b),
                    _ => return Some([f64::NAN; LANES]),
                };
                let mut summed = (0..labels.len()).filter(|axis| !out.contains(&labels[*axis]));
                let sum: f64 = terms.iter().zip(FACTOR).map(|(term, factor)| term * factor).sum();
                [sum * count(of, &mut summed); LANES]
            }
            _ => [f64::NAN; LANES],
        };
        Some(value)
    }
}

/// An expression at these arguments; its free sizes are what [`number_of`] takes them for.
fn evaluate(expr: &Expr, args: &[f64]) -> f64 {
    let mut values: SmallVec<[f64; 16]> = SmallVec::new();
    for (node, _) in expr.nodes() {
        let operands: SmallVec<[f64; 3]> = node.operands().iter().map(|o| values[*o as usize]).collect();
        values.push(match node {
            ExprNode::Arg(k) => args[*k as usize],
            ExprNode::Const(number) => number.to_f64(),
            ExprNode::Cast(_) => operands[0],
            ExprNode::Apply(op, _) => apply(*op, &operands),
            ExprNode::Size(size) => number_of(size),
            ExprNode::Coord(_) | ExprNode::Bits(_) => f64::NAN,
        });
    }
    values.last().copied().unwrap_or(f64::NAN)
}
