//! What holds of every kernel. [`verify`] checks this list; the error says which step breaks which one.
//!
//! 1. Extents and sizes mention no coordinates; there are at most 64 axes; a layout orders the axes of its tensor.
//! 2. The operands of a step are earlier steps, of the types that it takes; coordinates mention axes of the kernel and
//!    steps that are read; a fill value goes with guards; positions fold one axis. Type and axes of a step follow from its
//!    operation.
//! 3. A load reads inside of its input wherever its guards hold. What can be refuted is refused here; what is neither
//!    refuted nor proven ([`Kernel::reads_inside`]) is left to the interpreter.
//! 4. A store writes a value of the output's type, at coordinates of axes alone, and the value varies over no axis that
//!    they lack. Every output is written. Every element is written exactly once: again what can be refuted is refused, and
//!    what is neither refuted nor proven ([`Kernel::covers`]) is left to the interpreter.
//! 5. The roles that the schedule gives to axes and steps agree with the steps:
//!    - map: nothing is folded;
//!    - row: folds are over the axes along;
//!    - column: folds are over the axes across and along, and what reads a fold across varies over no axis across;
//!    - contract: the dots sum over the same axes and share a factor; rows are axes of it, columns axes that only the
//!      others have. Other folds are over summed axes, or, where a worker owns whole rows, over columns;
//!    - attention: the second dot sums over the streamed axes, which are columns of the first one, on which it depends.
//!      Where a fold along the stream depends on another one, there is one correction for it. What depends on such a fold
//!      and varies along the stream is not stored;
//!    - host: nothing but a graph of the kernel's inputs and outputs.

mod access;
mod roles;

use super::infer::is_size;
use super::{AxisSet, Kernel, Param};
use crate::error::{Context, Error, Result};

/// Checks that a kernel keeps every invariant of the list above.
pub fn verify(kernel: &Kernel) -> Result<()> {
    verify_unread(kernel)?;
    verify_loads(kernel)
}

/// Checks the third invariant alone, of a kernel that keeps the others: it is up to whoever wrote what the kernel computes.
pub(crate) fn verify_loads(kernel: &Kernel) -> Result<()> {
    each_step(kernel, access::check_load)
}

/// Checks that a kernel which may never run keeps every invariant of the list above but the third: what it reads is wrong only
/// when it does.
pub(crate) fn verify_unread(kernel: &Kernel) -> Result<()> {
    check_sizes(kernel)?;
    each_step(kernel, check_step)?;
    access::check_stores(kernel)?;
    roles::check_schedule(kernel).at(|| format!("schedule {}", kernel.schedule.name()))
}

fn each_step(kernel: &Kernel, check: fn(&Kernel, usize) -> Result<()>) -> Result<()> {
    (0..kernel.steps.len()).try_for_each(|k| check(kernel, k).at(|| kernel.describe(k)))
}

impl Kernel {
    /// A step by number and operation, for messages.
    pub(super) fn describe(&self, step: usize) -> String {
        format!("step %{step} ({})", self.steps[step].op.name())
    }
}

fn check_sizes(kernel: &Kernel) -> Result<()> {
    if kernel.axes.len() > AxisSet::MOST {
        return Err(Error::limit(format!("a kernel of {} axes (the limit is {})", kernel.axes.len(), AxisSet::MOST)));
    }
    if let Some((k, extent)) = kernel.axes.iter().enumerate().find(|(_, extent)| !is_size(extent)) {
        return Err(Error::invalid(format!("the extent {extent} of axis i{k} mentions a coordinate")));
    }
    for (letter, params) in [('x', &kernel.inputs), ('y', &kernel.outputs)] {
        for (k, param) in params.iter().enumerate() {
            check_param(param).at(|| format!("tensor {letter}{k}"))?;
        }
    }
    Ok(())
}

fn check_param(param: &Param) -> Result<()> {
    param.ty.shape.check()?;
    if let Some(size) = param.ty.shape.dims().iter().find(|size| !is_size(size)) {
        return Err(Error::invalid(format!("the size {size} mentions a coordinate")));
    }
    if param.layout.rank() != param.ty.shape.rank() {
        return Err(Error::invalid(format!("a layout of {} axes for {}", param.layout.rank(), param.ty)));
    }
    Ok(())
}

fn check_step(kernel: &Kernel, k: usize) -> Result<()> {
    let step = &kernel.steps[k];
    let (dtype, axes) = kernel.infer(&step.op, k)?;
    if dtype != step.dtype {
        return Err(Error::invalid(format!("its type is {dtype}, not {}", step.dtype)));
    }
    if axes != step.axes {
        return Err(Error::invalid(format!("it varies over {axes}, not {}", step.axes)));
    }
    Ok(())
}
