//! Operators that read at places given by data.

use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::{Builder, Known, Tensor};
use crate::ops::prim::{Gather, View, identity_map};
use crate::tensor::{DType, Dim, Shape, Symbol};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp {
        name: "Gather",
        domain: "",
        since: 1,
        attributes: &["axis"],
        doc: "slices along an axis at places given by indices",
        expand: gather,
    },
    NamedOp {
        name: "GatherElements",
        domain: "",
        since: 11,
        attributes: &["axis"],
        doc: "elements along an axis at places given by indices of the result's shape",
        expand: gather_elements,
    },
    NamedOp::contributed("GatherND", &["batch_dims"], "GatherND of the standard operator set", gather_nd),
    NamedOp {
        name: "GatherND",
        domain: "",
        since: 11,
        attributes: &["batch_dims"],
        doc: "slices at coordinates given by the last axis of the indices",
        expand: gather_nd,
    },
    NamedOp {
        name: "ArrayFeatureExtractor",
        domain: "ai.onnx.ml",
        since: 1,
        attributes: &[],
        doc: "the columns given by indices",
        expand: array_feature_extractor,
    },
];

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

fn gather_elements<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (x, indices) = (call.input(0)?, call.input(1)?);
    let axis = x.axis(call.int_or("axis", 0)?)?;
    let shape = indices.shape()?;
    if shape.rank() != x.rank()? {
        return Err(Error::invalid(format!("GatherElements of {} at {}", x.ty()?, indices.ty()?)));
    }
    let indices = indices.cast(DType::I64).wrap_index(&x.dim(axis)?);
    let mut map = identity_map(shape.rank());
    map[axis] = Symbol::Read(0).into();
    Ok(vec![x.gather(Gather { shape, map }, &[indices])])
}

fn gather_nd<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (x, indices) = (call.input(0)?, call.input(1)?);
    let batch = usize::try_from(call.int_or("batch_dims", 0)?).ok();
    let batch = batch.filter(|b| indices.rank().is_ok_and(|r| *b < r));
    let batch = batch.ok_or_else(|| Error::invalid("GatherND with batch_dims out of range"))?;
    let own = x.shape()?;
    for k in 0..batch {
        call.builder.require_equal(&x.dim(k)?, &indices.dim(k)?, "the batches of GatherND")?;
    }
    let coordinates = Coordinates::of(x, indices, batch)?;
    let rest = own.dims()[batch + coordinates.len()..].to_vec();
    let shape = Shape::from([coordinates.places.as_slice(), &rest].concat());
    let map = coordinates.map(batch, own.rank());
    Ok(vec![x.gather(Gather { shape: shape.clone(), map }, &coordinates.spread(&shape))])
}

/// Index tuples along the last axis of a tensor, apart from each other.
pub(super) struct Coordinates<'b> {
    parts: Vec<Tensor<'b>>,
    /// the shape of each part: one place per tuple
    pub places: Vec<Dim>,
}

impl<'b> Coordinates<'b> {
    /// The coordinates of the axes of `data` from `first` on.
    pub fn of(data: Tensor<'b>, indices: Tensor<'b>, first: usize) -> Result<Coordinates<'b>> {
        let mut places = indices.shape()?.dims().to_vec();
        let count = places.pop().ok_or_else(|| Error::invalid("indices that are a scalar"))?;
        let last = places.len();
        // The rank of the result hangs on it.
        let Some(count) = count.as_int() else {
            let message = format!("the number of coordinates of an index, {count}, must be known");
            return Err(Error::needs_value(message, Vec::new()));
        };
        let fits = |n: &usize| data.rank().is_ok_and(|r| first + n <= r);
        let count = usize::try_from(count)
            .ok()
            .filter(fits)
            .ok_or_else(|| Error::invalid(format!("indices with {count} coordinates each into {:?}", data.ty())))?;
        let indices = indices.cast(DType::I64);
        let part = |k: usize| Ok(indices.element(last, k).wrap_index(&data.dim(first + k)?));
        let parts = (0..count).map(part).collect::<Result<Vec<_>>>()?;
        Ok(Coordinates { parts, places })
    }

    /// Number of axes that a tuple names.
    pub fn len(&self) -> usize {
        self.parts.len()
    }

    /// The data's coordinates over a domain of the places followed by the data's remaining axes.
    pub fn map(&self, first: usize, rank: usize) -> Vec<Dim> {
        let read = |k: usize| Symbol::Read((k - first) as u8).into();
        let after = first + self.len();
        (0..rank)
            .map(|k| match k {
                k if k < first => Dim::axis(k),
                k if k < after => read(k),
                k => Dim::axis(self.places.len() + k - after),
            })
            .collect()
    }

    /// The parts over the whole domain, whose first axes are the places.
    pub fn spread(&self, domain: &Shape) -> Vec<Tensor<'b>> {
        let view = View::new(domain.clone(), identity_map(self.places.len()));
        self.parts.iter().map(|part| part.view(view.clone())).collect()
    }
}

fn array_feature_extractor<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (x, indices) = (call.input(0)?, call.input(1)?);
    let x = if x.rank()? == 1 { x.insert_axes(&[0]) } else { x };
    let last = x.axis(-1)?;
    let count = indices.shape()?.count();
    Ok(vec![x.take(last, indices.reshape(Shape::new([count])))])
}
