//! A kernel as it is printed: where it reads and writes as offsets, and no more axes than are needed.

use fuseline::error::{Context, Result};
use fuseline::ops::prim::Guard;
use fuseline::ops::{ExprNode, Number};
use fuseline::tensor::{DType, Dim, Ranges, Symbol};
use fuseline::tile::{AxisSet, Kernel, Op, Param, Rounding, StepId, out_of_range};

use super::{Options, Parameter};

/// A tensor in the memory of the device.
#[derive(Clone, Debug)]
pub(super) struct Tensor {
    /// what it is to the kernel
    pub parameter: Parameter,
    /// what lies there
    pub dtype: DType,
}

/// Where elements of a tensor are read or written.
#[derive(Clone, Debug)]
pub(super) struct Access {
    /// the tensor
    pub tensor: Tensor,
    /// the offset of an element, but for the coordinates that are checked
    pub offset: Dim,
    /// coordinates that nothing but the data proves to be inside
    pub checked: Vec<Checked>,
    /// where it is read at all
    pub guards: Vec<Guard>,
    /// the value elsewhere
    pub fill: Number,
    /// the steps whose values [`Symbol::Read`] stands for
    pub reads: Vec<StepId>,
}

impl Access {
    /// Whether it is an element for every point, which nothing has to be asked for first.
    pub fn is_plain(&self) -> bool {
        self.checked.is_empty() && self.guards.is_empty() && self.reads.is_empty()
    }
}

/// A coordinate that is checked before it is used.
#[derive(Clone, Debug)]
pub(super) struct Checked {
    pub index: Dim,
    pub size: Dim,
    pub stride: Dim,
    /// what is said where it is outside
    pub message: String,
}

/// A store by what is written where.
#[derive(Clone, Debug)]
pub(super) struct Written {
    pub access: Access,
    pub value: StepId,
    /// one element is written at every point of these
    pub axes: AxisSet,
}

/// A kernel with numbers for the sizes that it is made for, and offsets for coordinates.
#[derive(Clone, Debug)]
pub(super) struct Nest<'k> {
    pub kernel: &'k Kernel,
    /// the extents of the axes; those that were joined to others, or have one point, are 1
    pub extents: Vec<Dim>,
    /// the axes over which steps vary
    pub axes: Vec<AxisSet>,
    /// the axes over which steps fold
    pub folds: Vec<AxisSet>,
    /// of every load
    loads: Vec<Option<Access>>,
    /// the index of every random word
    random: Vec<Option<Dim>>,
    pub stores: Vec<Written>,
    /// where packs of a row begin, if not where the row does
    pub lines: Option<Lines>,
    /// how it is printed
    pub options: &'k Options,
}

/// Lines of memory that rows along an axis lie in: so many elements a pack, the first one of a row being at `start`.
#[derive(Clone, Debug)]
pub(super) struct Lines {
    pub axis: usize,
    pub count: i64,
    pub start: Dim,
    /// where rows are divided into parts, of which all rows begin alike
    pub parts: Option<Parts>,
}

/// The axis that counts parts of the rows, and the one that counts rows; those so many rows apart begin alike, and there is a multiple of that many parts.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parts {
    pub part: usize,
    pub row: usize,
    pub alike: i64,
}

/// Whether an index hangs on data.
fn reads_data(dim: &Dim) -> bool {
    dim.mentions(|symbol| matches!(symbol, Symbol::Read(_)))
}

/// An index in which values that are read, and are nothing but coordinates, are these.
fn seen(kernel: &Kernel, reads: &[StepId], dim: &Dim) -> Dim {
    let coordinate = |id: StepId| match &kernel.step(id).op {
        Op::Map { expr, .. } => match expr.nodes() {
            [(ExprNode::Coord(axis), _)] => Some(Dim::axis(usize::from(*axis))),
            _ => None,
        },
        _ => None,
    };
    dim.substitute(&|symbol| match symbol {
        Symbol::Read(number) => coordinate(*reads.get(usize::from(*number))?),
        _ => None,
    })
}

impl<'k> Nest<'k> {
    /// The kernel for some sizes; other symbols stay. `parameters` says what its inputs and outputs are.
    pub fn new(kernel: &'k Kernel, options: &'k Options, parameters: &Parameters) -> Result<Nest<'k>> {
        let extents: Vec<Dim> = kernel.axes.iter().map(|extent| options.fixed.apply(extent)).collect();
        let single = single_points(&extents);
        let mut nest = Nest {
            kernel,
            extents,
            axes: kernel.steps.iter().map(|step| step.axes.without(single)).collect(),
            folds: kernel.steps.iter().map(|step| step.op.folds().without(single)).collect(),
            loads: Vec::with_capacity(kernel.steps.len()),
            random: Vec::with_capacity(kernel.steps.len()),
            stores: Vec::with_capacity(kernel.stores.len()),
            lines: None,
            options,
        };
        for (k, step) in kernel.steps.iter().enumerate() {
            let load = match &step.op {
                Op::Load { input, index, guard, fill, reads } => {
                    let tensor = parameters.input(*input, &kernel.inputs[*input]);
                    let place = || format!("%{k} reads x{input}");
                    let param = &kernel.inputs[*input];
                    let mut access = nest.access(tensor, param, index, reads, !guard.is_empty()).at(place)?;
                    let guard = guard.iter().map(|g| Guard { index: seen(kernel, reads, &g.index), ..g.clone() });
                    access.guards = nest.guards(&guard.collect::<Vec<_>>());
                    access.fill = fill.unwrap_or(Number::Int(0));
                    let indices = access.checked.iter().map(|c| &c.index).chain(access.guards.iter().map(|g| &g.index));
                    if indices.into_iter().any(reads_data) {
                        access.reads = reads.to_vec();
                    }
                    Some(access)
                }
                _ => None,
            };
            nest.loads.push(load);
            let random = match &step.op {
                Op::Random { index, .. } => Some(nest.dim(index)),
                _ => None,
            };
            nest.random.push(random);
        }
        for store in &kernel.stores {
            let param = &kernel.outputs[store.output];
            let access = nest.access(parameters.output(store.output, param), param, &store.index, &[], false)?;
            nest.stores.push(Written { access, value: store.value, axes: store.axes().without(single) });
        }
        Ok(nest)
    }

    /// Where a load reads.
    pub fn load(&self, id: StepId) -> &Access {
        self.loads[id.index()].as_ref().expect("who asks knows that the step is a load")
    }

    /// Where all loads read.
    pub fn loads(&self) -> impl Iterator<Item = &Access> {
        self.loads.iter().flatten()
    }

    /// The index of a random word.
    pub fn random(&self, id: StepId) -> &Dim {
        self.random[id.index()].as_ref().expect("who asks knows that the step is random")
    }

    /// A size or index with numbers for what is fixed, and 0 for coordinates of axes with one point.
    pub fn dim(&self, dim: &Dim) -> Dim {
        let single = single_points(&self.extents);
        let dim = self.options.fixed.apply(dim).substitute(&|symbol| match symbol {
            Symbol::Axis(axis) if single.contains(usize::from(*axis)) => Some(Dim::int(0)),
            _ => None,
        });
        dim.simplify(&Ranges::of(&self.extents))
    }

    /// The same with packs that begin where lines do.
    pub fn in_lines(&self, lines: Lines) -> Nest<'k> {
        Nest { lines: Some(lines), ..self.clone() }
    }

    /// How far an offset is behind where packs begin, but for whole packs.
    pub fn behind_packs(&self, start: Dim, axis: usize) -> Dim {
        match &self.lines {
            Some(Lines { axis: own, start: of_row, parts, .. }) if *own == axis => {
                // What a part writes begins as its rows do.
                let start = start.substitute(&|symbol| match (symbol, parts) {
                    (Symbol::Axis(axis), Some(parts)) if usize::from(*axis) == parts.part => Some(Dim::axis(parts.row)),
                    _ => None,
                });
                start - of_row
            }
            _ => start,
        }
    }

    /// The number of points along some axes.
    pub fn count(&self, axes: AxisSet) -> Dim {
        axes.iter().map(|axis| self.extents[axis].clone()).fold(Dim::int(1), |all, extent| all * extent)
    }

    fn guards(&self, guards: &[Guard]) -> Vec<Guard> {
        let ranges = Ranges::of(&self.extents);
        let guards =
            guards.iter().map(|g| Guard { index: self.dim(&g.index), bound: self.options.fixed.apply(&g.bound) });
        guards.filter(|g| !ranges.is_below(&g.index, &g.bound)).collect()
    }

    fn access(&self, tensor: Tensor, param: &Param, index: &[Dim], reads: &[StepId], guarded: bool) -> Result<Access> {
        let sizes: Vec<Dim> = param.ty.shape.dims().iter().map(|size| self.options.fixed.apply(size)).collect();
        let mut strides = vec![Dim::int(1); sizes.len()];
        let mut next = Dim::int(1);
        for axis in param.layout.order().collect::<Vec<_>>().into_iter().rev() {
            strides[axis] = next.clone();
            next = next * &sizes[axis];
        }
        let ranges = Ranges::of(&self.extents);
        let (mut offset, mut checked) = (Dim::int(0), Vec::new());
        for (axis, dim) in index.iter().enumerate() {
            let is_data = reads_data(dim);
            let dim = self.dim(&seen(self.kernel, reads, dim));
            let (size, stride) = (sizes[axis].clone(), strides[axis].clone());
            let unproven = reads_data(&dim) || (is_data && !ranges.is_below(&dim, &size));
            // Coordinates that data do not change are inside wherever guards hold: that is what kernels promise.
            if unproven || (!guarded && !ranges.is_below(&dim, &size) && dim.as_symbol().is_none()) {
                let message = out_of_range(axis, &size);
                checked.push(Checked { index: dim, size, stride, message });
            } else {
                offset = offset + dim * stride;
            }
        }
        let offset = offset.simplify(&ranges);
        let (guards, fill, reads) = (Vec::new(), Number::Int(0), Vec::new());
        Ok(Access { tensor, offset, checked, guards, fill, reads })
    }

    /// Joins neighbouring axes that every step walks as one, so that fewer indices are computed and more lies side by side.
    pub fn join_axes(&mut self) {
        for inner in (1..self.extents.len()).rev() {
            for outer in (0..inner).rev() {
                if self.extents[outer].is(1) || self.extents[inner].is(1) {
                    continue;
                }
                if self.is_one_walk(outer, inner) {
                    self.join(outer, inner);
                }
            }
        }
    }

    fn is_one_walk(&self, outer: usize, inner: usize) -> bool {
        let agree = |set: &AxisSet| set.contains(outer) == set.contains(inner);
        let whole = self.axes.iter().all(agree) && self.folds.iter().all(agree);
        if !whole || !self.stores.iter().all(|store| agree(&store.axes)) {
            return false;
        }
        let mentions = |dim: &Dim| {
            let axes = AxisSet::mentioned(dim);
            axes.contains(outer) || axes.contains(inner)
        };
        let both = AxisSet::of(outer).with(inner);
        let is_walked = |dim: &Dim| match (slope(dim, outer), slope(dim, inner)) {
            (Some(far), Some(near)) => {
                AxisSet::mentioned(&far).union(AxisSet::mentioned(&near)).common(both).is_empty()
                    && far == &near * &self.extents[inner]
            }
            _ => false,
        };
        let accesses = self.loads.iter().flatten().chain(self.stores.iter().map(|store| &store.access));
        for access in accesses {
            let others = access.checked.iter().map(|c| &c.index).chain(access.guards.iter().map(|g| &g.index));
            if !is_walked(&access.offset) || others.into_iter().any(mentions) {
                return false;
            }
        }
        if !self.random.iter().flatten().all(is_walked) {
            return false;
        }
        // A coordinate in an expression, and the position that a fold finds, is that of one axis.
        !self.kernel.steps.iter().any(|step| match &step.op {
            Op::Map { expr, .. } => {
                let is_one = |axis: u8| usize::from(axis) == outer || usize::from(axis) == inner;
                expr.nodes().iter().any(|(node, _)| matches!(node, ExprNode::Coord(axis) if is_one(*axis)))
            }
            Op::Reduce { monoid, over, .. } => monoid.is_position() && !over.common(both).is_empty(),
            Op::Prefix { .. } => true,
            _ => false,
        })
    }

    fn join(&mut self, outer: usize, inner: usize) {
        self.extents[inner] = &self.extents[outer] * &self.extents[inner];
        self.extents[outer] = Dim::int(1);
        let gone = AxisSet::of(outer);
        let drop = |set: &mut AxisSet| *set = set.without(gone);
        self.axes.iter_mut().for_each(drop);
        self.folds.iter_mut().for_each(drop);
        let zero = |dim: &mut Dim| {
            *dim = dim.substitute(&|s| match s {
                Symbol::Axis(axis) if usize::from(*axis) == outer => Some(Dim::int(0)),
                _ => None,
            });
        };
        self.loads.iter_mut().flatten().for_each(|access| zero(&mut access.offset));
        self.random.iter_mut().flatten().for_each(zero);
        for store in &mut self.stores {
            store.axes = store.axes.without(gone);
            zero(&mut store.access.offset);
        }
    }

    /// The same with all points of two axes counted along the outer one, which some stores are written along, side by side; the coordinate along the inner one
    /// is what is left over of it. For points alone: none where something is folded, or hangs on either coordinate but for where it lies.
    pub fn in_one_line(&self, stores: &[usize], outer: usize, inner: usize) -> Option<Nest<'k>> {
        let (length, both) = (self.extents[inner].as_int()?, AxisSet::of(outer).with(inner));
        let is_walked = |dim: &Dim| match (slope(dim, outer), slope(dim, inner)) {
            (Some(far), Some(near)) => far == &near * length && AxisSet::mentioned(&near).common(both).is_empty(),
            _ => false,
        };
        let is_free = |dim: &Dim| AxisSet::mentioned(dim).common(both).is_empty();
        let needed = self.needed(stores);
        let is_plain = |k: usize| match &self.kernel.steps[k].op {
            Op::Load { .. } => {
                let access = self.load(StepId(k as u32));
                let others = access.checked.iter().map(|c| &c.index).chain(access.guards.iter().map(|g| &g.index));
                access.reads.is_empty() && others.into_iter().all(is_free)
            }
            Op::Random { reads, .. } => reads.is_empty() && is_walked(self.random(StepId(k as u32))),
            Op::Map { expr, .. } => {
                let is_one = |axis: u8| both.contains(usize::from(axis));
                !expr.nodes().iter().any(|(node, _)| matches!(node, ExprNode::Coord(axis) if is_one(*axis)))
            }
            _ => false,
        };
        let is_in_line = |store: &usize| {
            let Written { access, axes, .. } = &self.stores[*store];
            let is_next = slope(&access.offset, inner).is_some_and(|slope| slope.is(1));
            is_next && is_walked(&access.offset) && both.is_within(*axes)
        };
        if !(0..needed.len()).all(|k| !needed[k] || is_plain(k)) || !stores.iter().all(is_in_line) {
            return None;
        }
        let place = |dim: &mut Dim| {
            let walked = is_walked(dim);
            *dim = dim.substitute(&|symbol| match symbol {
                Symbol::Axis(axis) if usize::from(*axis) == inner && walked => Some(Dim::axis(outer)),
                Symbol::Axis(axis) if usize::from(*axis) == outer && walked => Some(Dim::int(0)),
                Symbol::Axis(axis) if usize::from(*axis) == outer => Some(Dim::axis(outer).floordiv(&Dim::int(length))),
                _ => None,
            });
        };
        let mut nest = self.clone();
        nest.extents[outer] = &self.extents[outer] * length;
        nest.loads.iter_mut().flatten().for_each(|access| place(&mut access.offset));
        nest.random.iter_mut().flatten().for_each(place);
        nest.stores.iter_mut().for_each(|store| place(&mut store.access.offset));
        Some(nest)
    }

    /// Whether all floats that some stores read and write are narrow ones, so that functions between them need not be as exact as the scalar
    /// table says. What lies between stages does not count.
    pub fn is_near(&self, stores: &[usize]) -> bool {
        let needed = self.needed(stores);
        let read = self.loads.iter().zip(&needed).filter_map(|(load, needed)| load.as_ref().filter(|_| *needed));
        let written = stores.iter().map(|store| &self.stores[*store].access);
        let tensors = || read.clone().chain(written.clone()).map(|access| &access.tensor);
        let outside = || tensors().filter(|tensor| !matches!(tensor.parameter, Parameter::Scratch(_)));
        let is_narrow = |tensor: &Tensor| matches!(tensor.dtype, DType::F16 | DType::BF16);
        self.kernel.rounding == Rounding::Ends
            && outside().any(is_narrow)
            && outside().all(|tensor| is_narrow(tensor) || !tensor.dtype.is_float())
    }

    /// The steps that stores need, directly or not, by step.
    pub fn needed(&self, stores: &[usize]) -> Vec<bool> {
        let mut needed = vec![false; self.kernel.steps.len()];
        stores.iter().for_each(|store| needed[self.stores[*store].value.index()] = true);
        for k in (0..needed.len()).rev() {
            if needed[k] {
                self.kernel.steps[k].op.operands().iter().for_each(|operand| needed[operand.index()] = true);
            }
        }
        needed
    }
}

/// What inputs and outputs of a kernel are.
#[derive(Clone, Debug)]
pub(super) struct Parameters {
    pub inputs: Vec<Parameter>,
    pub outputs: Vec<Parameter>,
}

impl Parameters {
    fn input(&self, number: usize, param: &Param) -> Tensor {
        Tensor { parameter: self.inputs[number].clone(), dtype: param.ty.dtype }
    }

    fn output(&self, number: usize, param: &Param) -> Tensor {
        Tensor { parameter: self.outputs[number].clone(), dtype: param.ty.dtype }
    }
}

fn single_points(extents: &[Dim]) -> AxisSet {
    (0..extents.len()).filter(|axis| extents[*axis].is(1)).collect()
}

/// By how much an expression grows with an axis, where that is the same everywhere.
pub(super) fn slope(dim: &Dim, axis: usize) -> Option<Dim> {
    let symbol = Symbol::Axis(u8::try_from(axis).ok()?);
    if !dim.mentions(|s| *s == symbol) {
        return Some(Dim::int(0));
    }
    let next = dim.substitute(&|s| (*s == symbol).then(|| Dim::axis(axis) + 1));
    let slope = next - dim;
    (!slope.mentions(|s| *s == symbol)).then_some(slope)
}

/// Whether an expression is certainly a multiple of a number.
pub(super) fn is_multiple(dim: &Dim, of: i64) -> bool {
    dim.modulo(&Dim::int(of)).is(0)
}
