//! The language of kernels.
//!
//! A [`Kernel`] is a nest of loops, its *axes*, and straight-line *steps*, each of which has one value at every point of
//! *some* of the axes: `load x[i0, i1]` varies over both, `reduce max over i1` of it over `i0` alone, and a map of both
//! over `i0` and `i1` again. Broadcasting is what happens along an axis that a step does not vary over; nothing else is
//! needed to say softmax, LayerNorm, a matrix product with its epilogue, or attention.
//!
//! What is computed stands in the steps and stores; how, in the [`Schedule`]: which axes are rows, which are summed, what
//! is kept where. Every schedule of a kernel gives the same result, so that the schedule can only be slow, never wrong.
//!
//! Comes in: kernels from lowering or from a user's text. Goes out: kernels that a backend emits, and what a kernel
//! computes as a graph. Never here: graphs of users, names of operators, devices.

mod build;
mod causal;
mod graph;
mod infer;
pub mod interp;
mod nothing;
mod outside;
mod schedule;
mod split;
mod text;
mod verify;

pub use build::Builder;
pub use causal::{first_masked, first_sunk};
pub use graph::graph_of;
pub(crate) use outside::Scale;
pub use outside::{Limit, out_of_range};
pub use schedule::{Chain, Correction, Placement, Schedule, Tile};
pub use split::split_axis;
pub use text::{Source, parse, place_of, read};
pub use verify::verify;
pub(crate) use verify::{verify_loads, verify_unread};

use std::collections::BTreeSet;
use std::fmt;

use smallvec::SmallVec;

use crate::ops::prim::{Guard, Monoid};
use crate::ops::{Expr, ExprNode, Number};
use crate::tensor::{DType, Dim, Layout, Symbol, TensorType};

/// A step by its place in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct StepId(pub u32);

impl StepId {
    /// Its place among the steps.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for StepId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.0)
    }
}

/// A set of axes of a kernel, which has at most 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub struct AxisSet(u64);

impl AxisSet {
    /// A kernel has no more axes than this.
    pub const MOST: usize = 64;

    /// No axis.
    pub const EMPTY: AxisSet = AxisSet(0);

    /// One axis.
    pub fn of(axis: usize) -> AxisSet {
        debug_assert!(axis < AxisSet::MOST);
        AxisSet(1 << axis)
    }

    /// The axes that an index expression mentions.
    pub fn mentioned(dim: &Dim) -> AxisSet {
        let mut set = AxisSet::EMPTY;
        dim.for_each_symbol(&mut |symbol| {
            if let Symbol::Axis(axis) = symbol {
                set = set.with(usize::from(*axis));
            }
        });
        set
    }

    /// Whether the axis is in the set.
    pub fn contains(self, axis: usize) -> bool {
        axis < AxisSet::MOST && self.0 >> axis & 1 == 1
    }

    /// The set with one axis more.
    pub fn with(self, axis: usize) -> AxisSet {
        self.union(AxisSet::of(axis))
    }

    /// The axes of either set.
    pub fn union(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 | other.0)
    }

    /// The axes of both sets.
    pub fn common(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 & other.0)
    }

    /// The axes of this set that the other lacks.
    pub fn without(self, other: AxisSet) -> AxisSet {
        AxisSet(self.0 & !other.0)
    }

    /// Whether no axis is in the set.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// Whether the other set has every axis of this one.
    pub fn is_within(self, other: AxisSet) -> bool {
        self.without(other).is_empty()
    }

    /// The number of axes.
    pub fn len(self) -> usize {
        self.0.count_ones() as usize
    }

    /// The axes, ascending.
    pub fn iter(self) -> impl Iterator<Item = usize> {
        let mut left = self.0;
        std::iter::from_fn(move || {
            let axis = left.trailing_zeros() as usize;
            // the lowest of them goes
            left &= left.checked_sub(1)?;
            Some(axis)
        })
    }
}

impl fmt::Display for AxisSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("[")?;
        for (k, axis) in self.iter().enumerate() {
            write!(f, "{}i{axis}", if k == 0 { "" } else { ", " })?;
        }
        f.write_str("]")
    }
}

impl FromIterator<usize> for AxisSet {
    fn from_iter<I: IntoIterator<Item = usize>>(axes: I) -> AxisSet {
        axes.into_iter().fold(AxisSet::EMPTY, AxisSet::with)
    }
}

/// A tensor that a kernel reads or writes, with how it lies in memory.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Param {
    /// element type and shape
    pub ty: TensorType,
    /// how it lies in memory
    pub layout: Layout,
}

impl Param {
    /// A row-major tensor.
    pub fn row_major(ty: TensorType) -> Param {
        let layout = Layout::row_major(ty.shape.rank());
        Param { ty, layout }
    }
}

/// What a step computes. Operands are earlier steps.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Op {
    /// An element of an input, where every guard holds; otherwise the fill value.
    Load {
        /// which input
        input: usize,
        /// coordinate of each of its axes: over the axes of the kernel, and [`Symbol::Read`]`(k)` for the value of `reads[k]`
        index: Vec<Dim>,
        /// where it is read at all; `index` need not be inside of the input elsewhere
        guard: Vec<Guard>,
        /// the value where it is not read; present exactly when there are guards
        fill: Option<Number>,
        /// the steps (i64) whose values coordinates and guards mention
        reads: SmallVec<[StepId; 1]>,
    },
    /// A random u32 word: Philox-4x32-10 at a logical element index.
    Random {
        /// tells independent draws of one program apart
        stream: u64,
        /// the seed, an i64
        seed: StepId,
        /// the element index, over the axes and `reads`
        index: Dim,
        /// the steps (i64) whose values the index mentions
        reads: SmallVec<[StepId; 1]>,
    },
    /// A scalar expression; its coordinates are axes of the kernel.
    Map {
        /// what to compute
        expr: Expr,
        /// its arguments
        args: SmallVec<[StepId; 3]>,
    },
    /// The operand folded over some of its axes; it need not vary over all of them (a sum of equal terms).
    Reduce {
        /// how to fold
        monoid: Monoid,
        /// the folded axes; positions take exactly one
        over: AxisSet,
        /// what is folded
        arg: StepId,
    },
    /// The running fold along one axis.
    Prefix {
        /// how to fold
        monoid: Monoid,
        /// the axis to run along
        axis: usize,
        /// whether an element's own value is left out of its fold
        exclusive: bool,
        /// what is folded
        arg: StepId,
    },
    /// The sum of products of two operands over some axes.
    Dot {
        /// the summed axes
        over: AxisSet,
        /// the first factor
        a: StepId,
        /// the second factor
        b: StepId,
        /// the type in which products are accumulated
        accumulator: DType,
    },
}

impl Op {
    /// The name in text forms.
    pub fn name(&self) -> &'static str {
        match self {
            Op::Load { .. } => "load",
            Op::Random { .. } => "random",
            Op::Map { .. } => "map",
            Op::Reduce { .. } => "reduce",
            Op::Prefix { .. } => "prefix",
            Op::Dot { .. } => "dot",
        }
    }

    /// Whether it folds; a fold over no axes is one too.
    pub fn is_fold(&self) -> bool {
        matches!(self, Op::Reduce { .. } | Op::Prefix { .. } | Op::Dot { .. })
    }

    /// The axes over which it folds; none for what folds nothing.
    pub fn folds(&self) -> AxisSet {
        match self {
            Op::Reduce { over, .. } | Op::Dot { over, .. } => *over,
            Op::Prefix { axis, .. } => AxisSet::of(*axis),
            Op::Load { .. } | Op::Random { .. } | Op::Map { .. } => AxisSet::EMPTY,
        }
    }

    /// The steps that it reads.
    pub fn operands(&self) -> SmallVec<[StepId; 3]> {
        match self {
            Op::Load { reads, .. } => SmallVec::from_slice(reads),
            Op::Random { seed, reads, .. } => std::iter::once(*seed).chain(reads.iter().copied()).collect(),
            Op::Map { args, .. } => args.clone(),
            Op::Reduce { arg, .. } | Op::Prefix { arg, .. } => SmallVec::from_slice(&[*arg]),
            Op::Dot { a, b, .. } => SmallVec::from_slice(&[*a, *b]),
        }
    }
}

/// A step: what it computes, the type of its value, and the axes over which that varies.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Step {
    /// what it computes
    pub op: Op,
    /// the type of its value; follows from the operation
    pub dtype: DType,
    /// the axes over which the value varies; follows from the operation
    pub axes: AxisSet,
}

/// The value of a step written to an output. Every element of an output is written exactly once.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Store {
    /// which output
    pub output: usize,
    /// coordinate of each of its axes over the axes of the kernel
    pub index: Vec<Dim>,
    /// what is written, at every point of the axes that `index` mentions; it varies over no others
    pub value: StepId,
}

impl Store {
    /// The axes that the coordinates mention: one element is written at every point of them.
    pub fn axes(&self) -> AxisSet {
        self.index.iter().map(AxisSet::mentioned).fold(AxisSet::EMPTY, AxisSet::union)
    }
}

/// Where floats inside of a kernel are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
pub enum Rounding {
    /// every result of every function, to its type
    Every,
    /// casts and stores only: what is between may be wider than its type
    #[default]
    Ends,
}

/// A kernel: loops, steps, stores, and how to run them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Kernel {
    /// the extents of the loops
    pub axes: Vec<Dim>,
    /// what it reads
    pub inputs: Vec<Param>,
    /// what it writes
    pub outputs: Vec<Param>,
    /// what it computes; operands precede their readers
    pub steps: Vec<Step>,
    /// what becomes of it
    pub stores: Vec<Store>,
    /// how it runs
    pub schedule: Schedule,
    /// where it rounds
    pub rounding: Rounding,
}

impl Kernel {
    /// A step.
    pub fn step(&self, id: StepId) -> &Step {
        &self.steps[id.index()]
    }

    /// The symbols on whose values its sizes, coordinates and expressions depend, ascending; axes are not among them.
    pub fn symbols(&self) -> BTreeSet<Symbol> {
        let mut symbols = BTreeSet::new();
        self.for_each_dim(&mut |dim| {
            dim.for_each_symbol(&mut |symbol| {
                if matches!(symbol, Symbol::Name(_) | Symbol::Value(_)) && !symbols.contains(symbol) {
                    symbols.insert(symbol.clone());
                }
            });
        });
        symbols
    }

    /// Looks at every size, coordinate and guard.
    fn for_each_dim(&self, f: &mut dyn FnMut(&Dim)) {
        self.axes.iter().for_each(&mut *f);
        let params = self.inputs.iter().chain(&self.outputs);
        params.flat_map(|param| param.ty.shape.dims()).for_each(&mut *f);
        for step in &self.steps {
            match &step.op {
                Op::Load { index, guard, .. } => {
                    index.iter().for_each(&mut *f);
                    guard.iter().flat_map(|guard| [&guard.index, &guard.bound]).for_each(&mut *f);
                }
                Op::Random { index, .. } => f(index),
                Op::Map { expr, .. } => sizes_of(expr).for_each(&mut *f),
                Op::Reduce { .. } | Op::Prefix { .. } | Op::Dot { .. } => {}
            }
        }
        self.stores.iter().flat_map(|store| &store.index).for_each(&mut *f);
        if let Schedule::Attention { corrections, .. } = &self.schedule {
            corrections.iter().flat_map(|correction| sizes_of(&correction.factor)).for_each(f);
        }
    }
}

fn sizes_of(expr: &Expr) -> impl Iterator<Item = &Dim> {
    expr.nodes().iter().filter_map(|(node, _)| if let ExprNode::Size(dim) = node { Some(dim) } else { None })
}
