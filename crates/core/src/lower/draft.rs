//! A kernel before it has a schedule.

use smallvec::SmallVec;

use crate::graph::Value;
use crate::ops::prim::{Guard, Monoid};
use crate::ops::{ExprNode, Number, Scope};
use crate::tensor::{DType, Dim, TensorType};
use crate::tile::AxisSet;

/// The place of a term in the scope of a draft.
pub type Place = u32;

/// What the arithmetic of a draft starts from: loads, random words, folds. Leaf `k` is argument `k` of the scope.
#[derive(Clone, Debug)]
pub enum LeafOp {
    /// an element of an input
    Load {
        /// which input
        input: usize,
        /// coordinate of each axis; `Read(k)` is the value of `reads[k]`
        index: Vec<Dim>,
        /// where it is read
        guard: Vec<Guard>,
        /// the value elsewhere; present exactly when there are guards
        fill: Option<Number>,
        /// terms that coordinates mention
        reads: SmallVec<[Place; 1]>,
    },
    /// a random word
    Random {
        /// tells draws apart
        stream: u64,
        /// the seed
        seed: Place,
        /// the element index
        index: Dim,
    },
    /// a term with a value of its own, because it is folded and read again
    Let {
        /// what it is
        arg: Place,
    },
    /// a fold over axes
    Reduce {
        /// how to fold
        monoid: Monoid,
        /// the folded axes
        over: AxisSet,
        /// what is folded
        arg: Place,
    },
    /// a running fold
    Prefix {
        /// how to fold
        monoid: Monoid,
        /// along which axis
        axis: usize,
        /// without the element's own value
        exclusive: bool,
        /// what is folded
        arg: Place,
    },
    /// a sum of products
    Dot {
        /// the summed axes
        over: AxisSet,
        /// first factor
        a: Place,
        /// second factor
        b: Place,
        /// type of the sum
        accumulator: DType,
    },
}

impl LeafOp {
    /// The terms that it reads.
    pub fn operands(&self) -> SmallVec<[Place; 2]> {
        match self {
            LeafOp::Load { reads, .. } => reads.iter().copied().collect(),
            LeafOp::Random { seed, .. } => SmallVec::from_slice(&[*seed]),
            LeafOp::Let { arg } | LeafOp::Reduce { arg, .. } | LeafOp::Prefix { arg, .. } => {
                SmallVec::from_slice(&[*arg])
            }
            LeafOp::Dot { a, b, .. } => SmallVec::from_slice(&[*a, *b]),
        }
    }

    /// The same operation on other terms.
    pub(super) fn with_operands(&self, operands: &[Place]) -> LeafOp {
        let mut op = self.clone();
        match &mut op {
            LeafOp::Load { reads, .. } => *reads = operands.into(),
            LeafOp::Random { seed, .. } => *seed = operands[0],
            LeafOp::Let { arg } | LeafOp::Reduce { arg, .. } | LeafOp::Prefix { arg, .. } => *arg = operands[0],
            LeafOp::Dot { a, b, .. } => (*a, *b) = (operands[0], operands[1]),
        }
        op
    }

    /// The axes that it folds.
    pub fn folded(&self) -> AxisSet {
        match self {
            LeafOp::Reduce { over, .. } | LeafOp::Dot { over, .. } => *over,
            _ => AxisSet::EMPTY,
        }
    }

    /// Whether it is a sum of products.
    pub fn is_dot(&self) -> bool {
        matches!(self, LeafOp::Dot { .. })
    }

    /// Whether it folds its operand.
    pub fn is_fold(&self) -> bool {
        matches!(self, LeafOp::Reduce { .. } | LeafOp::Dot { .. } | LeafOp::Prefix { .. })
    }
}

/// A leaf with the type of its value and the axes over which that varies.
#[derive(Clone, Debug)]
pub struct Leaf {
    /// what it is
    pub op: LeafOp,
    /// the type of its value
    pub dtype: DType,
    /// the axes over which it varies
    pub axes: AxisSet,
}

/// A value written to an output.
#[derive(Clone, Debug)]
pub struct Sink {
    /// what is stored
    pub value: Value,
    /// its type
    pub ty: TensorType,
    /// coordinate of each of its axes
    pub index: Vec<Dim>,
    /// the term that computes it
    pub term: Place,
    /// the axes that the coordinates mention
    pub axes: AxisSet,
}

/// A kernel without a schedule: axes, leaves in an order in which operands precede readers, arithmetic between them as
/// one scope of shared terms, and what is stored.
#[derive(Debug)]
pub struct Draft {
    /// extents of the axes
    pub axes: Vec<Dim>,
    /// what is loaded, in the order in which it was first wanted
    pub inputs: Vec<(Value, TensorType)>,
    /// where arithmetic starts
    pub leaves: Vec<Leaf>,
    /// the arithmetic; argument `k` is leaf `k`
    pub scope: Scope,
    /// what is stored, in the order of the group's outputs
    pub sinks: Vec<Sink>,
    /// for every term, the axes over which it varies
    pub term_axes: Vec<AxisSet>,
}

/// Learns the axes of terms that were made since somebody last looked.
pub(super) fn note_axes(scope: &Scope, leaves: &[Leaf], axes: &mut Vec<AxisSet>) {
    scope.with_nodes(|nodes| {
        for (node, _) in &nodes[axes.len()..] {
            axes.push(match node {
                ExprNode::Arg(k) => leaves[*k as usize].axes,
                ExprNode::Coord(axis) => AxisSet::of(usize::from(*axis)),
                other => other.operands().iter().fold(AxisSet::EMPTY, |set, o| set.union(axes[*o as usize])),
            });
        }
    });
}

impl Draft {
    /// All axes.
    pub fn all_axes(&self) -> AxisSet {
        (0..self.axes.len()).collect()
    }

    /// The axes over which a term varies.
    pub fn axes_of(&self, place: Place) -> AxisSet {
        self.term_axes[place as usize]
    }

    /// The leaves that a term reads without another leaf between, ascending.
    pub fn leaves_of(&self, place: Place) -> Vec<usize> {
        let mut found = Vec::new();
        // Operands of a term stand before it.
        let mut seen = vec![false; place as usize + 1];
        let mut todo = vec![place];
        self.scope.with_nodes(|nodes| {
            while let Some(place) = todo.pop() {
                if std::mem::replace(&mut seen[place as usize], true) {
                    continue;
                }
                match &nodes[place as usize].0 {
                    ExprNode::Arg(k) => found.push(*k as usize),
                    node => todo.extend(node.operands()),
                }
            }
        });
        found.sort_unstable();
        found
    }

    /// The terms that are read as operands of leaves, and those that are stored: where arithmetic ends.
    pub fn ends(&self) -> impl Iterator<Item = Place> {
        let operands = self.leaves.iter().flat_map(|leaf| leaf.op.operands());
        operands.chain(self.sinks.iter().map(|s| s.term))
    }

    /// The type of a dot's factors as a matrix unit may take them: that of the narrow floats that both are widened from, where
    /// the sum is kept in f32 as such units keep it; otherwise the type that they have. Widening is exact, so that it may as
    /// well happen inside of the unit. `None` for a leaf that is no dot.
    pub fn factor_dtype(&self, leaf: usize) -> Option<DType> {
        let LeafOp::Dot { a, b, accumulator, .. } = &self.leaves[leaf].op else { return None };
        let dtype = self.scope.term(*a).dtype();
        let narrow = |place: Place| {
            let from = self.widened(place)?;
            (*accumulator == DType::F32).then(|| self.scope.term(from).dtype())
        };
        match (narrow(*a), narrow(*b)) {
            (Some(first), Some(second)) if first == second => Some(first),
            _ => Some(dtype),
        }
    }

    /// The term of a float of 16 bits or less that this one widens to f32, if it does nothing else.
    pub(super) fn widened(&self, place: Place) -> Option<Place> {
        let term = self.scope.term(place);
        let ExprNode::Cast(from) = term.node() else { return None };
        let narrow = self.scope.term(from).dtype();
        (term.dtype() == DType::F32 && narrow.is_float() && narrow.bits() <= 16).then_some(from)
    }

    /// The folds, as leaf numbers.
    pub fn folds(&self) -> impl Iterator<Item = usize> {
        (0..self.leaves.len()).filter(|k| self.leaves[*k].op.is_fold())
    }
}
