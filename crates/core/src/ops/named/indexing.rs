//! Operators that read or write at places given by data.

use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::{Builder, Known, Tensor};
use crate::tensor::Dim;

pub(super) static OPS: &[NamedOp] = &[NamedOp {
    name: "Gather",
    domain: "",
    since: 1,
    attributes: &["axis"],
    doc: "slices along an axis at places given by indices",
    expand: gather,
}];

fn gather<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (x, indices) = (call.input(0)?, call.input(1)?);
    let axis = x.axis(call.int_or("axis", 0)?)?;
    if indices.rank()? <= 1
        && let Some(run) = Progression::of(call.builder, indices, &x.dim(axis)?)?
    {
        let slice = x.slice(axis, run.start, run.len, run.step);
        return Ok(vec![if indices.rank()? == 0 { slice.remove_axes(&[axis]) } else { slice }]);
    }
    Ok(vec![x.take(axis, indices)])
}

/// Places at one distance from each other: what a slice reads.
struct Progression {
    start: Dim,
    step: i64,
    len: i64,
}

impl Progression {
    /// The places that a scalar or vector of indices holds along an axis of the given size, where that can be told.
    fn of(builder: &Builder, indices: Tensor<'_>, size: &Dim) -> Result<Option<Progression>> {
        let Some(known) = builder.contents(indices) else { return Ok(None) };
        let mut places: Vec<Dim> = Vec::with_capacity(known.len());
        for index in known.iter() {
            let Known::Int(index) = index else { return Ok(None) };
            let front = match index.as_int() {
                Some(n) if n < 0 => size + n,
                _ if index.is_nonnegative() => index.clone(),
                _ => return Ok(None),
            };
            if (-&front - 1).is_nonnegative() || (&front - size).is_nonnegative() {
                return Err(Error::invalid(format!("index {index} is out of range for a size of {size}")));
            }
            places.push(front);
        }
        let step = match places.as_slice() {
            [] => return Ok(None),
            [_] => 1,
            [first, second, ..] => match (second - first).as_int() {
                Some(step) => step,
                None => return Ok(None),
            },
        };
        if places.windows(2).any(|w| !(&w[1] - &w[0]).is(step)) {
            return Ok(None);
        }
        for end in [&places[0], &places[places.len() - 1]] {
            // Where the size is not known yet, the run checks that both ends lie inside.
            builder.require_equal(&end.max_with(&Dim::int(0)), end, "an index lies inside of its axis")?;
            builder.require_equal(&(end + 1).max_with(size), size, "an index lies inside of its axis")?;
        }
        Ok(Some(Progression { start: places[0].clone(), step, len: places.len() as i64 }))
    }
}
