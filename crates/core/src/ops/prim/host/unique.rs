//! Slices that differ from each other.

use std::cmp::Ordering;

use crate::error::Result;
use crate::reference::{Buffer, Run};
use crate::tensor::DType;

/// First places, kinds of all slices, and sizes of the kinds. NaN equals NaN and is larger than every number.
pub(super) fn unique(x: &Buffer, axis: usize, sorted: bool, run: &Run<'_>) -> Result<Vec<Buffer>> {
    let (slices, inner) = (x.sizes()[axis], x.sizes()[axis + 1..].iter().product::<usize>());
    // The order of slices and what sorting takes, where kinds begin and end, and three results.
    run.reserve_work(&[x], slices.saturating_mul(9))?;
    let order: Box<dyn Fn(usize, usize) -> Ordering + '_> = if x.dtype().is_float() {
        let values = x.to_floats();
        Box::new(move |a, b| floats(values[a], values[b]))
    } else if x.dtype() == DType::U64 {
        let values = x.to_ints();
        Box::new(move |a, b| (values[a] as u64).cmp(&(values[b] as u64)))
    } else {
        let values = x.to_ints();
        Box::new(move |a, b| values[a].cmp(&values[b]))
    };
    let outer: usize = x.sizes()[..axis].iter().product();
    let position = |slice: usize, k: usize| (k / inner * slices + slice) * inner + k % inner;
    let compare = |a: usize, b: usize| {
        let elements = (0..outer * inner).map(|k| order(position(a, k), position(b, k)));
        elements.into_iter().find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
    };
    let mut ascending: Vec<usize> = (0..slices).collect();
    ascending.sort_by(|a, b| compare(*a, *b)); // stable: the first of a kind comes first
    // Where each kind begins and ends among them.
    let mut kinds: Vec<(usize, usize)> = Vec::new();
    for k in 0..slices {
        match kinds.last_mut() {
            Some((begin, end)) if compare(ascending[*begin], ascending[k]).is_eq() => *end = k + 1,
            _ => kinds.push((k, k + 1)),
        }
    }
    if !sorted {
        kinds.sort_unstable_by_key(|(begin, _)| ascending[*begin]);
    }
    let mut kind_of = vec![0; slices];
    for (number, (begin, end)) in kinds.iter().enumerate() {
        ascending[*begin..*end].iter().for_each(|slice| kind_of[*slice] = number as i64);
    }
    let ints = |values: Vec<i64>| Buffer::ints(DType::I64, vec![values.len()], values);
    let first = kinds.iter().map(|(begin, _)| ascending[*begin] as i64).collect();
    let counts = kinds.iter().map(|(begin, end)| (end - begin) as i64).collect();
    Ok(vec![ints(first), ints(kind_of), ints(counts)])
}

fn floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}
