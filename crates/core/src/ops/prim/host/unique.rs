//! Slices that differ from each other.

use std::cmp::Ordering;

use crate::reference::Buffer;
use crate::tensor::DType;

/// First places, kinds of all slices, and sizes of the kinds. NaN equals NaN and is larger than every number.
pub(super) fn unique(x: &Buffer, axis: usize, sorted: bool) -> Vec<Buffer> {
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
    let (slices, inner) = (x.sizes()[axis], x.sizes()[axis + 1..].iter().product::<usize>());
    let outer: usize = x.sizes()[..axis].iter().product();
    let position = |slice: usize, k: usize| (k / inner * slices + slice) * inner + k % inner;
    let compare = |a: usize, b: usize| {
        let elements = (0..outer * inner).map(|k| order(position(a, k), position(b, k)));
        elements.into_iter().find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
    };
    let mut ascending: Vec<usize> = (0..slices).collect();
    ascending.sort_by(|a, b| compare(*a, *b)); // stable: the first of a kind comes first
    let mut kinds: Vec<Vec<usize>> = Vec::new();
    for slice in ascending {
        match kinds.last_mut() {
            Some(kind) if compare(kind[0], slice).is_eq() => kind.push(slice),
            _ => kinds.push(vec![slice]),
        }
    }
    if !sorted {
        kinds.sort_by_key(|kind| kind[0]);
    }
    let mut kind_of = vec![0; slices];
    for (number, kind) in kinds.iter().enumerate() {
        kind.iter().for_each(|slice| kind_of[*slice] = number as i64);
    }
    let ints = |values: Vec<i64>| Buffer::ints(DType::I64, vec![values.len()], values);
    let first = kinds.iter().map(|kind| kind[0] as i64).collect();
    let counts = kinds.iter().map(|kind| kind.len() as i64).collect();
    vec![ints(first), ints(kind_of), ints(counts)]
}

fn floats(a: f64, b: f64) -> Ordering {
    a.partial_cmp(&b).unwrap_or_else(|| a.is_nan().cmp(&b.is_nan()))
}
