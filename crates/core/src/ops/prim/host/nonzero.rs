//! Where elements are not zero.

use crate::error::Result;
use crate::reference::{Buffer, Run};
use crate::tensor::DType;

/// Elements looked at at a time.
const BLOCK: usize = 1 << 12;

/// The coordinates of the elements that are not zero, one column each, in row-major order.
pub(super) fn nonzero(x: &Buffer, run: &Run<'_>) -> Result<Buffer> {
    let mut count = 0;
    for_each_hit(x, |_| count += 1)?;
    let sizes = x.sizes();
    run.reserve_work(&[], sizes.len().saturating_mul(count))?;
    let mut coordinates = vec![0; sizes.len() * count];
    let mut column = 0;
    for_each_hit(x, |position| {
        let mut rest = position;
        for axis in (0..sizes.len()).rev() {
            coordinates[axis * count + column] = (rest % sizes[axis]) as i64;
            rest /= sizes[axis];
        }
        column += 1;
    })?;
    Ok(Buffer::ints(DType::I64, vec![sizes.len(), count], coordinates))
}

/// Calls for the position of every element that is not zero. Nothing is converted as a whole.
fn for_each_hit(x: &Buffer, mut call: impl FnMut(usize)) -> Result<()> {
    let (mut floats, mut ints) = (vec![0.0; BLOCK], vec![0; BLOCK]);
    for start in (0..x.count()).step_by(BLOCK) {
        let length = BLOCK.min(x.count() - start);
        if x.dtype().is_float() {
            x.read_floats(start, &mut floats[..length])?;
            floats[..length].iter().enumerate().filter(|(_, v)| **v != 0.0).for_each(|(k, _)| call(start + k));
        } else {
            x.read_ints(start, &mut ints[..length])?;
            ints[..length].iter().enumerate().filter(|(_, v)| **v != 0).for_each(|(k, _)| call(start + k));
        }
    }
    Ok(())
}
