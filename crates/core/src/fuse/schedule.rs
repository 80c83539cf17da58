//! Schedules for kernels that were not planned.

use super::evaluate::{best_tiles, factor_type};
use crate::device::DeviceSpec;
use crate::lower::{self, Draft, Hints, Limits, Refusal};
use crate::passes::Numerics;
use crate::tile::{Kernel, Rounding, verify};

/// A kernel with the schedule that a plan gives to such steps on a device, and with what that schedule needs (how streamed folds follow each
/// other); why not, where a plan has none. What it computes is the same.
pub fn scheduled(kernel: &Kernel, spec: &DeviceSpec, hints: &Hints) -> Result<Kernel, Refusal> {
    let numerics = if kernel.rounding == Rounding::Every { Numerics::Strict } else { Numerics::Default };
    let draft = Draft::of_kernel(kernel).ok_or(Refusal::NoSkeleton)?;
    let dtype = factor_type(&draft);
    let largest = Limits::of(spec, dtype);
    let roles = lower::classify(&draft, &largest, hints)?;
    let best = best_tiles(&draft, &roles, (&largest, dtype), (spec, hints), &|_| false);
    let limits = best.map_or(largest, |(limits, ..)| limits);
    let roles = lower::classify(&draft, &limits, hints)?;
    let scheduled = lower::finish(&draft, &roles, &limits, numerics)?;
    verify(&scheduled).map_err(|_| Refusal::NoSkeleton)?;
    Ok(scheduled)
}
