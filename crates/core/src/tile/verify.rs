//! What holds of every kernel. [`verify`] checks this list in its order; the error says which step breaks which one.
//!
//! 1. Extents and sizes mention no coordinates; there are at most 64 axes; a layout orders the axes of its tensor.
//! 2. The operands of a step are earlier steps, of the types that it takes; coordinates mention axes of the kernel and
//!    steps that are read; a fill value goes with guards; positions fold one axis. Type and axes of a step follow from its
//!    operation.

use super::infer::is_size;
use super::{AxisSet, Kernel, Param};
use crate::error::{Context, Error, Result};

/// Checks that a kernel keeps every invariant of the list above.
pub fn verify(kernel: &Kernel) -> Result<()> {
    check_sizes(kernel)?;
    for (k, step) in kernel.steps.iter().enumerate() {
        check_step(kernel, k).at(|| format!("step %{k} ({})", step.op.name()))?;
    }
    Ok(())
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
    if (dtype, axes) != (step.dtype, step.axes) {
        let (wrong, right) = ((step.dtype, step.axes), (dtype, axes));
        return Err(Error::invalid(format!("type and axes are {wrong:?}, they follow as {right:?}")));
    }
    Ok(())
}
