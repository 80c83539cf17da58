//! Stable sorting of lines.

use std::cmp::Ordering;

use super::Buffer;
use crate::tensor::DType;

/// The elements in order along an axis, and their old positions.
pub(crate) fn eval_sort(x: &Buffer, axis: usize, descending: bool) -> Vec<Buffer> {
    let (len, inner) = (x.sizes()[axis], x.sizes()[axis + 1..].iter().product::<usize>());
    let mut positions = vec![0i64; x.count()];
    let lines: Vec<usize> =
        (0..x.count() / (len * inner).max(1)).flat_map(|o| (0..inner).map(move |i| o * len * inner + i)).collect();
    let values = if x.dtype().is_float() {
        let values = x.to_floats();
        let compare = |a: &f64, b: &f64| match (a.is_nan(), b.is_nan()) {
            (false, false) => a.partial_cmp(b).expect("neither is NaN"),
            (a, b) => a.cmp(&b),
        };
        let sorted = sort_lines(&values, &lines, len, inner, descending, &mut positions, compare);
        Buffer::floats(x.dtype(), x.sizes().to_vec(), sorted)
    } else {
        let values = x.to_ints();
        let unsigned = x.dtype() == DType::U64;
        let compare = |a: &i64, b: &i64| if unsigned { (*a as u64).cmp(&(*b as u64)) } else { a.cmp(b) };
        let sorted = sort_lines(&values, &lines, len, inner, descending, &mut positions, compare);
        Buffer::ints(x.dtype(), x.sizes().to_vec(), sorted)
    };
    vec![values, Buffer::ints(DType::I64, x.sizes().to_vec(), positions)]
}

fn sort_lines<T: Copy>(
    values: &[T],
    lines: &[usize],
    len: usize,
    step: usize,
    descending: bool,
    positions: &mut [i64],
    compare: impl Fn(&T, &T) -> Ordering,
) -> Vec<T> {
    let mut sorted = values.to_vec();
    for line in lines {
        let at = |k: usize| line + k * step;
        let mut order: Vec<usize> = (0..len).collect();
        order.sort_by(|a, b| {
            let order = compare(&values[at(*a)], &values[at(*b)]);
            if descending { order.reverse() } else { order }
        });
        for (k, from) in order.into_iter().enumerate() {
            sorted[at(k)] = values[at(from)];
            positions[at(k)] = from as i64;
        }
    }
    sorted
}
