//! Making kernels by hand: in tests, in lowering, and behind the parser.

use smallvec::SmallVec;

use super::{AxisSet, Kernel, Op, Param, Rounding, Schedule, Step, StepId, Store, verify};
use crate::error::{Error, Result};
use crate::ops::prim::{Guard, Monoid};
use crate::ops::{Expr, Number, Scope, Term};
use crate::tensor::{DType, Dim};

/// A kernel under construction. Steps are typed as they are added; [`Builder::finish`] verifies the whole.
///
/// ```
/// use fuseline::ops::Scalar;
/// use fuseline::ops::prim::Monoid;
/// use fuseline::tensor::{DType, Dim, TensorType};
/// use fuseline::tile::{AxisSet, Builder, Param, Placement, Schedule};
///
/// // softmax over the rows of a matrix
/// let (mut k, n) = (Builder::new(), Dim::named("n"));
/// let (row, column) = (k.axis(n.clone())?, k.axis(Dim::int(64))?);
/// let matrix = Param::row_major(TensorType::new(DType::F32, vec![n, Dim::int(64)]));
/// let (x, y) = (k.input(matrix.clone()), k.output(matrix));
/// let at = [Dim::axis(row), Dim::axis(column)];
///
/// let value = k.load(x, &at)?;
/// let largest = k.reduce(Monoid::Max, &[column], value)?;
/// let power = k.map(&[value, largest], |_, v| (v[0] - v[1]).apply(Scalar::Exp))?;
/// let sum = k.reduce(Monoid::Sum, &[column], power)?;
/// let share = k.map(&[power, sum], |_, v| v[0] / v[1])?;
/// k.store(y, &at, share);
/// let kernel = k.finish(Schedule::Row { along: AxisSet::of(column), placement: Placement::Registers })?;
/// assert_eq!(fuseline::tile::parse(&kernel.to_string())?, kernel);
/// # Ok::<(), fuseline::error::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    kernel: Kernel,
}

impl Default for Builder {
    fn default() -> Builder {
        Builder::new()
    }
}

impl Builder {
    /// A kernel without anything.
    pub fn new() -> Builder {
        let (axes, inputs, outputs, steps, stores) = (vec![], vec![], vec![], vec![], vec![]);
        let (schedule, rounding) = (Schedule::Map, Rounding::default());
        Builder { kernel: Kernel { axes, inputs, outputs, steps, stores, schedule, rounding } }
    }

    /// What has been built so far; nobody has verified it.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }

    /// One more loop.
    pub fn axis(&mut self, extent: Dim) -> Result<usize> {
        let axis = self.kernel.axes.len();
        if axis == AxisSet::MOST {
            return Err(Error::limit(format!("a kernel of more than {} axes", AxisSet::MOST)));
        }
        self.kernel.axes.push(extent);
        Ok(axis)
    }

    /// One more tensor to read.
    pub fn input(&mut self, param: Param) -> usize {
        self.kernel.inputs.push(param);
        self.kernel.inputs.len() - 1
    }

    /// One more tensor to write.
    pub fn output(&mut self, param: Param) -> usize {
        self.kernel.outputs.push(param);
        self.kernel.outputs.len() - 1
    }

    /// Where floats are rounded.
    pub fn rounding(&mut self, rounding: Rounding) {
        self.kernel.rounding = rounding;
    }

    /// One more step; its operands must be there.
    pub fn step(&mut self, op: Op) -> Result<StepId> {
        let (dtype, axes) = self.kernel.infer(&op, self.kernel.steps.len())?;
        let id = u32::try_from(self.kernel.steps.len()).map_err(|_| Error::limit("a kernel of 2^32 steps"))?;
        self.kernel.steps.push(Step { op, dtype, axes });
        Ok(StepId(id))
    }

    /// An element of an input at coordinates over the axes.
    pub fn load(&mut self, input: usize, index: &[Dim]) -> Result<StepId> {
        self.step(Op::Load { input, index: index.to_vec(), guard: Vec::new(), fill: None, reads: SmallVec::new() })
    }

    /// An element of an input where all guards hold, otherwise `fill`.
    pub fn load_where(&mut self, input: usize, index: &[Dim], guard: Vec<Guard>, fill: Number) -> Result<StepId> {
        let fill = (!guard.is_empty()).then_some(fill);
        self.step(Op::Load { input, index: index.to_vec(), guard, fill, reads: SmallVec::new() })
    }

    /// An element of an input at coordinates that may mention the values of `reads`.
    pub fn gather(&mut self, input: usize, index: &[Dim], reads: &[StepId]) -> Result<StepId> {
        let reads = SmallVec::from_slice(reads);
        self.step(Op::Load { input, index: index.to_vec(), guard: Vec::new(), fill: None, reads })
    }

    /// A scalar expression of earlier steps.
    pub fn map(
        &mut self,
        args: &[StepId],
        body: impl for<'s> FnOnce(&'s Scope, &[Term<'s>]) -> Term<'s>,
    ) -> Result<StepId> {
        let missing = |id: &StepId| Error::invalid(format!("there is no step {id:?}"));
        let dtypes = args.iter().map(|a| self.kernel.steps.get(a.index()).map(|s| s.dtype).ok_or_else(|| missing(a)));
        let dtypes: Vec<DType> = dtypes.collect::<Result<_>>()?;
        self.step(Op::Map { expr: Expr::build(&dtypes, body), args: SmallVec::from_slice(args) })
    }

    /// A fold over some axes.
    pub fn reduce(&mut self, monoid: Monoid, over: &[usize], arg: StepId) -> Result<StepId> {
        self.step(Op::Reduce { monoid, over: over.iter().copied().collect(), arg })
    }

    /// A sum of products over some axes.
    pub fn dot(&mut self, over: &[usize], a: StepId, b: StepId, accumulator: DType) -> Result<StepId> {
        self.step(Op::Dot { over: over.iter().copied().collect(), a, b, accumulator })
    }

    /// Writes the value of a step to an output.
    pub fn store(&mut self, output: usize, index: &[Dim], value: StepId) {
        self.kernel.stores.push(Store { output, index: index.to_vec(), value });
    }

    /// The kernel, verified.
    pub fn finish(self, schedule: Schedule) -> Result<Kernel> {
        let kernel = self.finish_unverified(schedule);
        verify(&kernel)?;
        Ok(kernel)
    }

    /// The kernel as it is, to be looked at.
    pub fn finish_unverified(self, schedule: Schedule) -> Kernel {
        Kernel { schedule, ..self.kernel }
    }
}
