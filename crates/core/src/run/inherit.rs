//! Which results of a kernel may be written over what it reads.

use crate::tensor::{Dim, TensorType};
use crate::tile::{Kernel, Op, Schedule};

/// Whether an output may have the memory of an input that nobody reads afterwards: every element of the input is read at the point
/// alone that writes the element of the output in its place, and before that. True of kernels that run in one phase, whose tasks
/// own points or rows, and which write a point when everything there has been read.
pub fn may_inherit(kernel: &Kernel, output: usize, input: usize) -> bool {
    // What is stored in one pass over a row could be read in the next one.
    let in_one_pass = match &kernel.schedule {
        Schedule::Map => true,
        Schedule::Row { .. } => kernel.stores.len() == 1,
        _ => false,
    };
    let mut stores = kernel.stores.iter().filter(|store| store.output == output);
    let (Some(store), None) = (stores.next(), stores.next()) else { return false };
    let (to, from) = (&kernel.outputs[output].ty, &kernel.inputs[input].ty);
    if !in_one_pass || to.dtype.bits() != from.dtype.bits() {
        return false;
    }
    let written = offset(to, &store.index);
    kernel.steps.iter().all(|step| match &step.op {
        Op::Load { input: read, index, guard, reads, .. } if *read == input => {
            guard.is_empty() && reads.is_empty() && offset(from, index) == written
        }
        _ => true,
    })
}

/// The element at a coordinate, counted from the first.
fn offset(ty: &TensorType, index: &[Dim]) -> Dim {
    ty.shape.dims().iter().zip(index).fold(Dim::int(0), |before, (size, at)| before * size + at)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tile::parse;

    fn inherits(kernel: &str) -> Vec<bool> {
        let kernel = parse(&format!("kernel {{ {kernel} }}")).unwrap();
        (0..kernel.inputs.len()).map(|input| may_inherit(&kernel, 0, input)).collect()
    }

    #[test]
    fn elements_that_are_read_where_they_are_written() {
        let add = "axes i0: n, i1: m in a: f32[n, m], b: f32[m], c: f16[n, m] out y: f32[n, m] schedule map \
                   %0 = load a[i0, i1] %1 = load b[i1] %2 = load c[i0, i1] %3 = map(%0, %1, %2) a + b * f32(c) \
                   store y[i0, i1] = %3";
        assert_eq!(inherits(add), [true, false, false], "neither a row for all nor narrower elements");
        let flat = "axes i0: n, i1: 8 in a: f32[n, 8] out y: f32[8*n] schedule map \
                    %0 = load a[i0, i1] %1 = map(%0) -a store y[8*i0 + i1] = %1";
        assert_eq!(inherits(flat), [true], "the shape does not matter");
    }

    #[test]
    fn elements_that_are_read_elsewhere_too() {
        let turned = "axes i0: n, i1: n in a: f32[n, n] out y: f32[n, n] schedule map \
                      %0 = load a[i0, i1] %1 = load a[i1, i0] %2 = map(%0, %1) a + b store y[i0, i1] = %2";
        assert_eq!(inherits(turned), [false]);
        let padded = "axes i0: n in a: f32[n] out y: f32[n] schedule map %0 = load a[i0] where 0 <= i0 - 2 < n else 0.0 \
                      store y[i0] = %0";
        assert_eq!(inherits(padded), [false]);
    }

    #[test]
    fn rows_are_written_when_they_have_been_folded() {
        let softmax = "axes i0: n, i1: m in x: f32[n, m] out y: f32[n, m] schedule row along=[i1] placement=registers \
                       %0 = load x[i0, i1] %1 = reduce.max %0 over [i1] %2 = map(%0, %1) exp(a - b) \
                       %3 = reduce.sum %2 over [i1] %4 = map(%2, %3) a / b store y[i0, i1] = %4";
        assert_eq!(inherits(softmax), [true]);
        let two = "axes i0: n, i1: m in x: f32[n, m] out y: f32[n, m], z: f32[n] schedule row along=[i1] placement=registers \
                   %0 = load x[i0, i1] %1 = reduce.max %0 over [i1] %2 = map(%0, %1) a - b \
                   %3 = reduce.sum %2 over [i1] store y[i0, i1] = %2 store z[i0] = %3";
        assert_eq!(inherits(two), [false], "the sum may be computed after the differences were written");
    }
}
