//! Slice: where it starts and how many elements it takes, for sizes and bounds known and unknown.

use super::amount::{Amount, amounts};
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::{Builder, Tensor};
use crate::ops::prim::{View, identity_map};
use crate::tensor::Dim;

pub(super) static OPS: &[NamedOp] = &[NamedOp {
    name: "Slice",
    domain: "",
    since: 1,
    attributes: &["starts", "ends", "axes"],
    doc: "every `step`-th element from `starts` up to `ends` along axes; bounds below zero count from the end",
    expand: slice,
}];

/// The elements that a slice takes from one axis; inside of the axis wherever `len` is not zero.
struct Taken {
    start: Dim,
    len: Dim,
}

/// Sizes stay below this.
const BEYOND: i64 = 1 << 48;

/// Whether a bound means "to the end" for a size not known yet: the largest number of 32 bits is written for it too.
fn is_beyond(bound: i64) -> bool {
    bound == i64::from(i32::MAX) || bound >= BEYOND
}

fn slice<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let bounds = |name: &str, k: usize| match call.ints(name)? {
        Some(given) => Ok(given.iter().map(|n| Amount::Known(Dim::int(*n))).collect()),
        None => amounts(call.builder, call.input(k)?, name),
    };
    let (starts, ends) = (bounds("starts", 1)?, bounds("ends", 2)?);
    let axes = match call.ints_or_input("axes", 3)? {
        Some(axes) => axes.iter().map(|a| x.axis(*a)).collect::<Result<Vec<_>>>()?,
        None => (0..starts.len()).collect(),
    };
    let steps = call.constant_ints(4, "steps")?.unwrap_or_else(|| vec![1; starts.len()]);
    let mut dims = x.shape()?.dims().to_vec();
    if [ends.len(), axes.len(), steps.len()] != [starts.len(); 3] || axes.iter().any(|a| *a >= dims.len()) {
        return Err(Error::invalid(format!("Slice of {} with {} starts", x.ty()?, starts.len())));
    }
    if (1..axes.len()).any(|k| axes[..k].contains(&axes[k])) {
        return Err(Error::invalid(format!("Slice names an axis twice in {axes:?}")));
    }
    let mut map = identity_map(dims.len());
    for (k, axis) in axes.into_iter().enumerate() {
        let step = steps[k].clamp(-BEYOND, BEYOND);
        let taken = match (&starts[k], &ends[k]) {
            _ if step == 0 => return Err(Error::invalid("Slice with a step of 0")),
            (Amount::Known(start), Amount::Known(end)) => take_known(call.builder, &dims[axis], start, end, step)?,
            (start, end) => take_unknown(call.builder, &dims[axis], start, end, step)?,
        };
        map[axis] = Dim::axis(axis) * step + taken.start;
        dims[axis] = taken.len;
    }
    Ok(vec![x.view(View::new(dims.into(), map))])
}

/// Bounds as expressions: the result is one too, and nothing has to run to know it.
fn take_known(builder: &Builder, size: &Dim, start: &Dim, end: &Dim, step: i64) -> Result<Taken> {
    if step < 0 {
        let last = size - 1;
        let inside = |bound: &Dim, lowest: i64| match bound.as_int() {
            Some(n) if is_beyond(n) => last.clone(),
            Some(n) if is_beyond(n.saturating_neg()) => Dim::int(lowest).min_with(&last),
            _ => match from_front(bound, size) {
                at if at == last => at,
                at => at.max_with(&Dim::int(lowest)).min_with(&last),
            },
        };
        // Walking back, a start before the axis is its first element; only an end may lie before it.
        let (start, end) = (inside(start, 0), inside(end, -1));
        let len = (&start - end).ceildiv(&Dim::int(-step)).max_with(&Dim::int(0));
        return Ok(Taken { start, len });
    }
    let to_end = reaches_end(builder, end, size)?;
    let single = (to_end && start.is(-1)) || (start.is(0) && end.is(1));
    if single && size.as_int().is_none() {
        // The first or last element: a size of 1 says more than min(1, size), so the run checks that there is one.
        builder.require_equal(&size.min_with(&Dim::int(1)), &Dim::int(1), "Slice takes the first or last element")?;
        return Ok(Taken { start: if to_end { size - 1 } else { Dim::int(0) }, len: Dim::int(1) });
    }
    let zero = Dim::int(0);
    let end = if to_end { size.clone() } else { from_front(end, size).min_with(size) };
    let from = from_front(start, size).max_with(&zero);
    let count = match start.as_int() {
        Some(n) if n < 0 && to_end => size.min_with(&Dim::int(n.saturating_neg())),
        _ => (end - &from).max_with(&zero),
    };
    Ok(Taken { start: from, len: count.ceildiv(&Dim::int(step)) })
}

/// Whether a bound lies at or behind the end of the axis.
fn reaches_end(builder: &Builder, end: &Dim, size: &Dim) -> Result<bool> {
    let Some(bound) = end.as_int().filter(|_| size.as_int().is_none()) else { return Ok(end == size) };
    if bound >= 1_000_000_000 && !is_beyond(bound) {
        // Another number that is written for "to the end": the run checks that it is.
        builder.require_equal(&size.min_with(end), size, "Slice goes to the end")?;
        return Ok(true);
    }
    Ok(is_beyond(bound))
}

/// A bound counted from the front; it may lie outside of the axis.
fn from_front(bound: &Dim, size: &Dim) -> Dim {
    if bound.is_nonnegative() {
        return bound.clone();
    }
    if (-bound - 1).is_nonnegative() {
        return bound + size;
    }
    // 1 where the bound is negative, otherwise 0
    let negative = (-bound).max_with(&Dim::int(0)).min_with(&Dim::int(1));
    bound + negative * size
}

/// Bounds that only the run knows: start and length are computed there and bound as sizes.
fn take_unknown<'b>(
    builder: &'b Builder,
    size: &Dim,
    start: &Amount<'b>,
    end: &Amount<'b>,
    step: i64,
) -> Result<Taken> {
    let extent = builder.size(size);
    let inside = |bound: &Amount<'b>, lowest: i64| {
        let bound = bound.tensor(builder);
        let bound = bound.lt(0).select(bound + extent, bound);
        bound.max(lowest).min(if step > 0 { extent } else { extent - 1 })
    };
    let (start, end) = (inside(start, 0), inside(end, if step > 0 { 0 } else { -1 }));
    let distance = if step > 0 { end - start } else { start - end };
    let len = (distance + (step.abs() - 1)).max(0) / step.abs();
    // A slice of an empty axis may start before it; sizes are not negative.
    Ok(Taken { start: builder.bind(start.max(0))?, len: builder.bind(len)? })
}
