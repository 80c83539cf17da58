//! Operators that find elements: the largest, those that hold, those that differ.

use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::{Builder, Tensor};
use crate::ops::prim::{Host, HostKind};
use crate::ops::{Number, Prim};
use crate::tensor::{DType, Dim, Shape};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp {
        name: "TopK",
        domain: "",
        since: 1,
        attributes: &["axis", "k", "largest", "sorted"],
        doc: "the k largest (or smallest) elements along an axis, in order, and their places",
        expand: top_k,
    },
    NamedOp {
        name: "OneHot",
        domain: "",
        since: 9,
        attributes: &["axis"],
        doc: "a new axis with the second value at the place that an index names, the first value elsewhere",
        expand: one_hot,
    },
    NamedOp {
        name: "NonZero",
        domain: "",
        since: 9,
        attributes: &[],
        doc: "the coordinates of the elements that are not zero, one column each",
        expand: non_zero,
    },
    NamedOp {
        name: "Compress",
        domain: "",
        since: 9,
        attributes: &["axis"],
        doc: "the slices along an axis (or the elements) at which a condition holds",
        expand: compress,
    },
    NamedOp {
        name: "Unique",
        domain: "",
        since: 11,
        attributes: &["axis", "sorted"],
        doc: "the elements (or slices) that differ, where each is first, which each one is, and how often",
        expand: unique,
    },
    NamedOp::contributed(
        "Unique",
        &["axis", "sorted"],
        "the elements that differ, in their order, which each one is, and how often",
        |call| {
            let x = call.input(0)?;
            let x = x.reshape(Shape::new([x.shape()?.count()]));
            let kind = HostKind::Unique { axis: 0, sorted: false, count: call.builder.fresh_symbol() };
            let places = call.builder.add_multi(Host { kind }, &[x]);
            let [first, inverse, counts] = places[..] else { return Ok(places) };
            Ok(vec![x.take(0, first), inverse, counts])
        },
    ),
    NamedOp {
        name: "NonMaxSuppression",
        domain: "",
        since: 10,
        attributes: &["center_point_box"],
        doc: "the boxes with the best scores that do not overlap each other too much",
        expand: non_max_suppression,
    },
];

fn top_k<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let axis = x.axis(call.int_or("axis", -1)?)?;
    let k = match call.int("k")? {
        Some(k) => Dim::int(k),
        None => call.dims(1, "k")?.pop().ok_or_else(|| Error::invalid("TopK needs k"))?,
    };
    let size = x.dim(axis)?;
    if let (Some(k), Some(size)) = (k.as_int(), size.as_int())
        && !(0..=size).contains(&k)
    {
        return Err(Error::invalid(format!("TopK of {k} elements along an axis that has {size}")));
    }
    call.builder.require_equal(&k.max_with(&size), &size, "TopK takes no more elements than there are")?;
    let (values, places) = x.sort(axis, call.flag("largest", true)?);
    Ok(vec![values.slice(axis, 0usize, k.clone(), 1), places.slice(axis, 0usize, k, 1)])
}

fn one_hot<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (indices, depth, values) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let rank = indices.rank()? as i64 + 1;
    let axis = call.int_or("axis", -1)?;
    let place = if axis < 0 { axis + rank } else { axis };
    if !(0..rank).contains(&place) {
        return Err(Error::invalid(format!("OneHot with axis {axis} of {rank} axes")));
    }
    let place = place as usize;
    let depth = call.builder.bind(depth)?;
    let mut dims = indices.shape()?.dims().to_vec();
    dims.insert(place, depth.clone());
    let wrapped = indices.cast(DType::I64).wrap_index(&depth).insert_axes(&[place]);
    let hot = call.builder.coordinate(place, &Shape::from(dims)).equal(wrapped);
    Ok(vec![hot.select(values.element(0, 1usize), values.element(0, 0usize))])
}

/// The coordinates of what is not zero: `[axes, count]`.
fn nonzero<'b>(call: &Call<'_, 'b>, x: Tensor<'b>) -> Tensor<'b> {
    call.builder.add(Host { kind: HostKind::NonZero { count: call.builder.fresh_symbol() } }, &[x])
}

fn non_zero<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    // A scalar counts as a vector of one element.
    let x = if x.rank()? == 0 { x.insert_axes(&[0]) } else { x };
    if fill(call.builder, x).is_some_and(|n| n.to_f64() != 0.0) {
        return Ok(vec![all_coordinates(call.builder, &x.shape()?)]);
    }
    Ok(vec![nonzero(call, x)])
}

/// The number that every element of a repeated constant is.
fn fill(builder: &Builder, x: Tensor<'_>) -> Option<Number> {
    builder.with_graph(|graph| {
        let mut node = graph.node_of(x.value());
        loop {
            match node.prim() {
                Prim::View(view) if view.guard.is_empty() => node = graph.node_of(node.args()[0]),
                Prim::Map(map) => return map.expr.as_const(),
                Prim::Const(row) if row.literal.is_splat() => {
                    return Some(Number::new(row.literal.dtype(), row.literal.float(0)));
                }
                _ => return None,
            }
        }
    })
}

/// The coordinates of all elements of a shape, one column each: their number is no mystery.
fn all_coordinates<'b>(builder: &'b Builder, shape: &Shape) -> Tensor<'b> {
    let all = Shape::new([shape.count()]);
    let strides = shape.strides();
    let row = |k: usize| {
        let place = Dim::axis(0).floordiv(&strides[k]);
        let place = if k == 0 { place } else { place.modulo(&shape[k]) };
        builder.index(&place, &all).insert_axes(&[0])
    };
    builder.concat(&(0..shape.rank()).map(row).collect::<Vec<_>>(), 0)
}

fn compress<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (x, condition) = (call.input(0)?, call.input(1)?);
    if condition.rank()? != 1 {
        return Err(Error::invalid(format!("Compress with a condition {}", condition.ty()?)));
    }
    let places = nonzero(call, condition).remove_axes(&[0]);
    let (x, axis) = match call.int("axis")? {
        Some(axis) => (x, x.axis(axis)?),
        None => (x.reshape(Shape::new([x.shape()?.count()])), 0),
    };
    Ok(vec![x.take(axis, places)])
}

fn unique<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let (x, axis) = match call.int("axis")? {
        Some(axis) => (x, x.axis(axis)?),
        None => (x.reshape(Shape::new([x.shape()?.count()])), 0),
    };
    let kind = HostKind::Unique { axis, sorted: call.flag("sorted", true)?, count: call.builder.fresh_symbol() };
    let places = call.builder.add_multi(Host { kind }, &[x]);
    let [first, inverse, counts] = places[..] else { return Ok(places) };
    Ok(vec![x.take(axis, first), first, inverse, counts])
}

fn non_max_suppression<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let b = call.builder;
    let (boxes, scores) = (call.input(0)?, call.input(1)?);
    let scalar = |k: usize, dtype: DType, default: f64| match call.optional(k) {
        Some(given) => given.cast(dtype).reshape(Shape::scalar()),
        None => b.scalar(dtype, default),
    };
    let most = scalar(2, DType::I64, 0.0);
    let overlap = scalar(3, DType::F32, 0.0);
    let least = scalar(4, DType::F32, f64::NEG_INFINITY);
    let centered = call.flag("center_point_box", false)?;
    let kind = HostKind::NonMaxSuppression { centered, count: b.fresh_symbol() };
    Ok(vec![b.add(Host { kind }, &[boxes, scores, most, overlap, least])])
}
