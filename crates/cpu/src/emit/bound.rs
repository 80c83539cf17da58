//! A kernel with numbers for its sizes: where it reads and writes, as offsets.

use std::fmt;

use fuseline::error::{Context, Error, Result};
use fuseline::ops::{ExprNode, Number};
use fuseline::tensor::{DType, Dim, Env, Ranges, Symbol};
use fuseline::tile::{AxisSet, Kernel, Limit, Op, Param, Schedule, StepId};

use super::lanes::slope_along;

/// A kernel at fixed sizes. Every extent is at least 1: a kernel with nothing to do is not emitted.
#[derive(Debug)]
pub(super) struct Bound<'k> {
    pub kernel: &'k Kernel,
    pub extents: Vec<i64>,
    /// of every load, in the order of the steps
    loads: Vec<Option<Access>>,
    /// of every store
    pub stores: Vec<Access>,
    env: &'k Env,
}

/// Where elements of a tensor are read or written.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// what lies there
    pub dtype: DType,
    /// whether nothing lies there: then nothing is ever read
    pub is_empty: bool,
    /// the offset of an element, but for the coordinates that are checked
    pub offset: Dim,
    /// coordinates that must be checked: each with its size and its stride
    pub checked: Vec<Checked>,
    /// where it is read at all: 0 ≤ index < bound
    pub guards: Vec<(Dim, i64)>,
    /// the value elsewhere
    pub fill: Number,
    /// the steps whose values [`Symbol::Read`] stands for
    pub reads: Vec<StepId>,
    /// where it stands in the kernel
    pub place: InKernel,
}

/// A step or store, as paths of errors name it.
#[derive(Clone, Copy, Debug)]
pub(super) enum InKernel {
    Load(usize),
    Store(usize),
}

impl fmt::Display for InKernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InKernel::Load(k) => write!(f, "step %{k} (load)"),
            InKernel::Store(k) => write!(f, "store {k}"),
        }
    }
}

/// A coordinate that nothing but the data proves to be inside.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    pub index: Dim,
    pub stride: i64,
    pub limit: Limit,
}

impl<'k> Bound<'k> {
    pub fn new(kernel: &'k Kernel, env: &'k Env) -> Result<Bound<'k>> {
        let extents = kernel.axes.iter().map(|extent| extent.eval(env)).collect::<Result<Vec<i64>>>()?;
        let mut bound =
            Bound { kernel, extents, loads: Vec::with_capacity(kernel.steps.len()), stores: Vec::new(), env };
        let dims: Vec<Dim> = bound.extents.iter().map(|n| Dim::int(*n)).collect();
        let ranges = Ranges::of(&dims);
        for (k, step) in kernel.steps.iter().enumerate() {
            let load = match &step.op {
                Op::Load { input, index, guard, fill, reads } => {
                    let mut access = bound
                        .access(InKernel::Load(k), &kernel.inputs[*input], index, !guard.is_empty(), &ranges)
                        .at(|| format!("%{k}"))?;
                    for g in guard {
                        let index = env.apply(&g.index).simplify(&ranges);
                        let most = g.bound.eval(env)?;
                        if !ranges.is_below(&index, &Dim::int(most)) {
                            access.guards.push((index, most));
                        }
                    }
                    access.fill = fill.unwrap_or(Number::Int(0));
                    access.reads = reads.to_vec();
                    Some(access)
                }
                Op::Map { expr, .. } => {
                    // A size that is only a number of an expression may be too large for one.
                    for (node, _) in expr.nodes() {
                        if let ExprNode::Size(dim) = node {
                            dim.eval(env).at(|| format!("%{k}"))?;
                        }
                    }
                    None
                }
                _ => None,
            };
            bound.loads.push(load);
        }
        for (k, store) in kernel.stores.iter().enumerate() {
            let place = InKernel::Store(k);
            bound.stores.push(bound.access(place, &kernel.outputs[store.output], &store.index, false, &ranges)?);
        }
        if !matches!(kernel.schedule, Schedule::Attention { .. }) {
            bound.join_axes();
        }
        Ok(bound)
    }

    /// Axes that everything walks through as if they were one become one: the inner one has the points of both then, and the outer one
    /// a single point. Lines of a small picture are no vectors; the picture is.
    fn join_axes(&mut self) {
        let (told_apart, walked) = (self.told_apart(), self.walked());
        let axes: Vec<usize> = (0..self.extents.len()).filter(|axis| !told_apart.contains(*axis)).collect();
        for inner in axes.iter().copied() {
            while self.extents[inner] > 1 {
                let joins = |outer: &usize| {
                    let both = AxisSet::of(*outer).with(inner);
                    let together = |axes: AxisSet| axes.common(both).is_empty() || both.is_within(axes);
                    let steps = &self.kernel.steps;
                    *outer != inner
                        && self.extents[*outer] > 1
                        && steps.iter().all(|step| together(step.axes) && together(step.op.folds()))
                        && walked.iter().all(|dim| self.is_row(dim, *outer, inner))
                };
                let Some(outer) = axes.iter().copied().find(joins) else { break };
                self.extents[inner] *= self.extents[outer];
                self.extents[outer] = 1;
            }
        }
    }

    /// Whether a step along an outer axis is as far as all steps along an inner one.
    pub fn is_row(&self, dim: &Dim, outer: usize, inner: usize) -> bool {
        let mentioned = AxisSet::mentioned(dim);
        let slopes = || slope_along(self, dim, outer).zip(slope_along(self, dim, inner));
        let neither = !mentioned.contains(outer) && !mentioned.contains(inner);
        neither || slopes().is_some_and(|(far, near)| far == near * self.extents[inner])
    }

    /// Where elements lie, over the axes.
    fn walked(&self) -> Vec<Dim> {
        let loads = self.loads.iter().flatten().chain(&self.stores).map(|access| access.offset.clone());
        let draws = self.kernel.steps.iter().filter_map(|step| match &step.op {
            Op::Random { index, .. } => Some(self.dim(index)),
            _ => None,
        });
        loads.chain(draws).collect()
    }

    /// The axes whose coordinates are asked for, each by itself.
    pub fn told_apart(&self) -> AxisSet {
        let mut found = AxisSet::EMPTY;
        for access in self.loads.iter().flatten().chain(&self.stores) {
            let checked = access.checked.iter().map(|checked| &checked.index);
            let guards = access.guards.iter().map(|(index, _)| index);
            found = checked.chain(guards).fold(found, |found, dim| found.union(AxisSet::mentioned(dim)));
        }
        for step in &self.kernel.steps {
            found = match &step.op {
                Op::Map { expr, .. } => expr.nodes().iter().fold(found, |found, (node, _)| match node {
                    ExprNode::Coord(axis) => found.with(usize::from(*axis)),
                    _ => found,
                }),
                Op::Prefix { axis, .. } => found.with(*axis),
                Op::Reduce { monoid, over, .. } if monoid.is_position() => found.union(*over),
                _ => found,
            };
        }
        found
    }

    fn access(
        &self,
        place: InKernel,
        param: &Param,
        index: &[Dim],
        guarded: bool,
        ranges: &Ranges<'_>,
    ) -> Result<Access> {
        let sizes = param.ty.shape.dims().iter().map(|size| size.eval(self.env)).collect::<Result<Vec<i64>>>()?;
        let mut strides = vec![1; sizes.len()];
        let mut next = 1i64;
        for axis in param.layout.order().collect::<Vec<_>>().into_iter().rev() {
            strides[axis] = next;
            let too_large = || Error::limit("a tensor with more than 2^63 elements");
            next = next.checked_mul(sizes[axis].max(1)).ok_or_else(too_large)?;
        }
        let (mut offset, mut checked) = (Dim::int(0), Vec::new());
        for (axis, dim) in index.iter().enumerate() {
            let (size, stride) = (sizes[axis], strides[axis]);
            // Where a guard holds, coordinates are inside: that is what the verifier of kernels demands.
            let (dim, is_inside) = match self.extremes(dim) {
                Some((low, high)) => (dim.clone(), guarded || (low >= 0 && high < size)),
                None => {
                    let dim = self.env.apply(dim).simplify(ranges);
                    let read = dim.mentions(|s| matches!(s, Symbol::Read(_)));
                    let is_inside = !read && (guarded || ranges.is_below(&dim, &Dim::int(size)));
                    (dim, is_inside)
                }
            };
            if !is_inside {
                let limit = Limit::of(&dim, axis, size, ranges);
                checked.push(Checked { index: dim, stride, limit });
            } else {
                offset = offset + dim * stride;
            }
        }
        Ok(Access {
            dtype: param.ty.dtype,
            is_empty: sizes.contains(&0),
            offset: offset.simplify(ranges),
            checked,
            guards: Vec::new(),
            fill: Number::Int(0),
            reads: Vec::new(),
            place,
        })
    }

    /// The least and the greatest that a sum of multiples of coordinates may be: there is nothing to replace or to simplify in it, and
    /// nearly all are such sums. Nothing for any other.
    fn extremes(&self, dim: &Dim) -> Option<(i64, i64)> {
        let (mut low, mut high, mut is_sum) = (0i64, 0i64, true);
        let constant = dim.linear(|symbol, factor| match symbol {
            Symbol::Axis(axis) if self.extents[usize::from(*axis)] > 1 => {
                let last = factor.saturating_mul(self.extents[usize::from(*axis)] - 1);
                (low, high) = (low.saturating_add(last.min(0)), high.saturating_add(last.max(0)));
            }
            // of an axis of one point there is only the coordinate 0
            _ => is_sum = false,
        })?;
        is_sum.then(|| (low.saturating_add(constant), high.saturating_add(constant)))
    }

    /// Where a load reads.
    pub fn load(&self, id: StepId) -> &Access {
        self.loads[id.index()].as_ref().expect("who asks knows that the step is a load")
    }

    /// The number that a size is.
    pub fn size(&self, dim: &Dim) -> i64 {
        dim.eval(self.env).expect("sizes were evaluated when the kernel was bound")
    }

    /// An expression over axes with numbers for sizes.
    pub fn dim(&self, dim: &Dim) -> Dim {
        self.env.apply(dim)
    }

    /// How many elements an input has.
    pub fn input_count(&self, input: usize) -> i64 {
        self.kernel.inputs[input].ty.shape.count().eval(self.env).unwrap_or(i64::MAX)
    }

    /// The number of points along some axes.
    pub fn count(&self, axes: AxisSet) -> i64 {
        axes.iter().map(|axis| self.extents[axis]).product()
    }
}

/// Bytes of an element in memory.
pub(super) fn bytes_of(dtype: DType) -> i64 {
    dtype.bits().div_ceil(8) as i64
}

/// The least integer not below a / b, of numbers above 0.
pub(super) fn ceil_div(a: i64, b: i64) -> i64 {
    (a + b - 1) / b
}
