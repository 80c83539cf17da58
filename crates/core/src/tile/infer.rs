//! What follows from an operation: the type of its value and the axes over which that varies.

use super::{AxisSet, Kernel, Op, Step, StepId};
use crate::error::{Error, Result};
use crate::ops::prim::{Guard, Monoid};
use crate::ops::{Expr, ExprNode, Number};
use crate::tensor::{DType, Dim, Symbol};

impl Kernel {
    /// Type and axes of an operation that stands behind the first `behind` steps; an error says why it cannot stand there.
    pub fn infer(&self, op: &Op, behind: usize) -> Result<(DType, AxisSet)> {
        let scope = Scope { kernel: self, steps: &self.steps[..behind.min(self.steps.len())] };
        match op {
            Op::Load { input, index, guard, fill, reads } => scope.load(*input, index, guard, *fill, reads),
            Op::Random { seed, index, reads, .. } => scope.random(*seed, index, reads),
            Op::Map { expr, args } => scope.map(expr, args),
            Op::Reduce { monoid, over, arg } => scope.reduce(*monoid, *over, *arg),
            Op::Prefix { monoid, axis, arg, .. } => scope.prefix(*monoid, *axis, *arg),
            Op::Dot { over, a, b, accumulator } => scope.dot(*over, *a, *b, *accumulator),
        }
    }
}

/// What an operation may refer to.
struct Scope<'k> {
    kernel: &'k Kernel,
    steps: &'k [Step],
}

impl Scope<'_> {
    fn load(
        &self,
        input: usize,
        index: &[Dim],
        guard: &[Guard],
        fill: Option<Number>,
        reads: &[StepId],
    ) -> Result<(DType, AxisSet)> {
        let param = self.kernel.inputs.get(input);
        let ty = &param.ok_or_else(|| Error::invalid(format!("there is no input x{input}")))?.ty;
        if index.len() != ty.shape.rank() {
            return Err(Error::invalid(format!("{} coordinates for {ty}", index.len())));
        }
        match fill {
            Some(_) if guard.is_empty() => {
                return Err(Error::invalid("a value for where no guard holds, and no guard"));
            }
            None if !guard.is_empty() => return Err(Error::invalid("guards, and no value for where one fails")),
            Some(fill) if !fill.is_of(ty.dtype) => {
                return Err(Error::invalid(format!("{fill:?} is not a number of type {}", ty.dtype)));
            }
            _ => {}
        }
        if let Some(guard) = guard.iter().find(|g| !is_size(&g.bound)) {
            return Err(Error::invalid(format!("the bound {} of a guard mentions a coordinate", guard.bound)));
        }
        let dims = index.iter().chain(guard.iter().map(|g| &g.index));
        Ok((ty.dtype, self.coordinates(dims, reads)?))
    }

    fn random(&self, seed: StepId, index: &Dim, reads: &[StepId]) -> Result<(DType, AxisSet)> {
        let seed = self.index_operand(seed)?;
        Ok((DType::U32, seed.union(self.coordinates(std::iter::once(index), reads)?)))
    }

    fn map(&self, expr: &Expr, args: &[StepId]) -> Result<(DType, AxisSet)> {
        if args.len() != expr.args().len() {
            return Err(Error::invalid(format!("{} operands for {} arguments", args.len(), expr.args().len())));
        }
        let mut axes = AxisSet::EMPTY;
        for (arg, wanted) in args.iter().zip(expr.args()) {
            let step = self.step(*arg)?;
            if step.dtype != *wanted {
                return Err(Error::invalid(format!("{arg:?} is {}, the expression takes {wanted}", step.dtype)));
            }
            axes = axes.union(step.axes);
        }
        for (node, dtype) in expr.nodes() {
            match node {
                ExprNode::Coord(axis) => axes = axes.with(self.axis(usize::from(*axis))?),
                ExprNode::Size(dim) if !is_size(dim) => {
                    return Err(Error::invalid(format!("the size {dim} mentions a coordinate")));
                }
                ExprNode::Const(number) if !number.is_of(*dtype) => {
                    return Err(Error::invalid(format!("{number:?} is not a number of type {dtype}")));
                }
                _ => {}
            }
        }
        Ok((expr.dtype(), axes))
    }

    fn reduce(&self, monoid: Monoid, over: AxisSet, arg: StepId) -> Result<(DType, AxisSet)> {
        let step = self.step(arg)?;
        if monoid.is_position() && over.len() != 1 {
            return Err(Error::invalid(format!("{} folds exactly one axis", monoid.name())));
        }
        Ok((monoid.result(step.dtype)?, step.axes.without(self.axes(over)?)))
    }

    fn prefix(&self, monoid: Monoid, axis: usize, arg: StepId) -> Result<(DType, AxisSet)> {
        let step = self.step(arg)?;
        if monoid.is_position() {
            return Err(Error::invalid(format!("running {}", monoid.name())));
        }
        Ok((monoid.result(step.dtype)?, step.axes.with(self.axis(axis)?)))
    }

    fn dot(&self, over: AxisSet, a: StepId, b: StepId, accumulator: DType) -> Result<(DType, AxisSet)> {
        let (x, y) = (self.step(a)?, self.step(b)?);
        if x.dtype != y.dtype || x.dtype == DType::Bool {
            return Err(Error::invalid(format!("products of {} and {}: wanted one numeric type", x.dtype, y.dtype)));
        }
        if x.dtype.is_float() != accumulator.is_float() || accumulator == DType::Bool {
            return Err(Error::invalid(format!("products of {} summed in {accumulator}", x.dtype)));
        }
        Ok((x.dtype, x.axes.union(y.axes).without(self.axes(over)?)))
    }

    fn step(&self, id: StepId) -> Result<&Step> {
        let missing = || Error::invalid(format!("the operand {id:?} does not precede its reader"));
        self.steps.get(id.index()).ok_or_else(missing)
    }

    /// The axes of an operand whose value is an index.
    fn index_operand(&self, id: StepId) -> Result<AxisSet> {
        let step = self.step(id)?;
        if step.dtype != DType::I64 {
            return Err(Error::invalid(format!("{id:?} is {}, an index is i64", step.dtype)));
        }
        Ok(step.axes)
    }

    /// The axes over which coordinates vary.
    fn coordinates<'d>(&self, dims: impl Iterator<Item = &'d Dim>, reads: &[StepId]) -> Result<AxisSet> {
        let mut axes = AxisSet::EMPTY;
        for read in reads {
            axes = axes.union(self.index_operand(*read)?);
        }
        for dim in dims {
            let mut missing = None;
            dim.for_each_symbol(&mut |symbol| match symbol {
                Symbol::Axis(axis) if usize::from(*axis) >= self.kernel.axes.len() => {
                    missing = Some(no_axis(usize::from(*axis)));
                }
                Symbol::Read(k) if usize::from(*k) >= reads.len() => {
                    missing = Some(Error::invalid(format!("@{k}, and {} steps are read", reads.len())));
                }
                _ => {}
            });
            if let Some(error) = missing {
                return Err(error);
            }
            axes = axes.union(AxisSet::mentioned(dim));
        }
        Ok(axes)
    }

    /// The axis, which must be there.
    fn axis(&self, axis: usize) -> Result<usize> {
        if axis < self.kernel.axes.len() { Ok(axis) } else { Err(no_axis(axis)) }
    }

    /// The axes, which must be there.
    fn axes(&self, axes: AxisSet) -> Result<AxisSet> {
        axes.iter().try_for_each(|axis| self.axis(axis).map(drop))?;
        Ok(axes)
    }
}

/// Whether an expression mentions neither axes nor values of steps.
pub(super) fn is_size(dim: &Dim) -> bool {
    !dim.mentions(|s| matches!(s, Symbol::Axis(_) | Symbol::Read(_)))
}

pub(super) fn no_axis(axis: usize) -> Error {
    Error::invalid(format!("there is no axis i{axis}"))
}
