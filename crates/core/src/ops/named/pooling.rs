//! Pools: folds over sliding windows, or over all spatial axes.

use super::windows::{Sliding, Window, channels_first, channels_last, kernel_shape, pads, positive, slide};
use super::{Attribute, Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::Number;
use crate::ops::prim::{Combine, Monoid, Scatter};
use crate::tensor::{DType, Dim, Shape, Symbol};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard(
        "MaxPool",
        1,
        &["auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "storage_order", "strides"],
        "the largest element of every window, and where it lies",
        max_pool,
    ),
    NamedOp::standard(
        "AveragePool",
        1,
        &["auto_pad", "ceil_mode", "count_include_pad", "dilations", "kernel_shape", "pads", "strides"],
        "the mean of every window, of its elements inside of the tensor or of the padded tensor",
        |call| Ok(vec![average_windows(call, call.input(0)?)?]),
    ),
    NamedOp::standard("GlobalAveragePool", 1, &[], "the mean over all spatial axes, which keep the size 1", |call| {
        let x = call.input(0)?;
        Ok(vec![x.mean(&spatial_axes(call, x)?)])
    }),
    NamedOp::standard(
        "GlobalMaxPool",
        1,
        &[],
        "the largest element over all spatial axes, which keep the size 1",
        |call| {
            let x = call.input(0)?;
            Ok(vec![x.reduce_keep(Monoid::Max, &spatial_axes(call, x)?)])
        },
    ),
    NamedOp::contributed(
        "NhwcMaxPool",
        &["auto_pad", "ceil_mode", "dilations", "kernel_shape", "pads", "strides"],
        "the largest element of every window, channels last",
        |call| {
            let x = channels_first(call.input(0)?)?;
            let windows = windows_of(call, x)?;
            let seen = slide(x, &windows, lowest(x.dtype()?))?;
            Ok(vec![channels_last(seen.reduce(Monoid::Max, &tap_axes(&windows)))?])
        },
    ),
    NamedOp::standard(
        "LpPool",
        1,
        &["auto_pad", "ceil_mode", "dilations", "kernel_shape", "p", "pads", "strides"],
        "the p-norm of every window",
        |call| {
            let x = call.input(0)?;
            let windows = windows_of(call, x)?;
            let seen = slide(x, &windows, Number::new(x.dtype()?, 0.0))?;
            Ok(vec![norm(seen, exponent(call)?, &tap_axes(&windows))])
        },
    ),
    NamedOp::standard("GlobalLpPool", 1, &["p"], "the p-norm over all spatial axes, which keep the size 1", |call| {
        let x = call.input(0)?;
        let axes = spatial_axes(call, x)?;
        Ok(vec![norm(x, exponent(call)?, &axes).insert_axes(&axes)])
    }),
    NamedOp::standard(
        "MaxUnpool",
        9,
        &["kernel_shape", "pads", "strides"],
        "elements put back to the flat positions that a max pool reported, zeros elsewhere",
        |call| Ok(vec![max_unpool(call)?]),
    ),
];

/// The exponent of a norm, which the first version writes as a float.
fn exponent(call: &Call<'_, '_>) -> Result<f64> {
    match call.attributes.get("p") {
        Some(Attribute::Float(p)) => Ok(*p),
        _ => Ok(call.int_or("p", 2)? as f64),
    }
}

/// The p-norm over axes, which disappear.
fn norm<'b>(x: Tensor<'b>, p: f64, axes: &[usize]) -> Tensor<'b> {
    match p {
        1.0 => x.abs().reduce(Monoid::Sum, axes),
        2.0 => x.square().reduce(Monoid::Sum, axes).sqrt(),
        _ => x.abs().pow(p).reduce(Monoid::Sum, axes).pow(1.0 / p),
    }
}

fn max_unpool<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let (x, positions) = (call.input(0)?, call.input(1)?);
    let rank = spatial_axes(call, x)?.len();
    let own = x.shape()?;
    let strides = positive(call, "strides", rank)?;
    let (before, after) = pads(call, rank)?;
    let mut dims = own.dims()[..2].to_vec();
    for (k, size) in kernel_shape(call, rank)?.iter().enumerate() {
        dims.push((&own[2 + k] - 1) * strides[k] + size - before[k] - after[k]);
    }
    let pooled = Shape::from(dims);
    let flat = Shape::new([pooled.count()]);
    let empty = call.builder.scalar(x.dtype()?, 0.0).expand(flat);
    let count = Shape::new([own.count()]);
    let places = positions.cast(DType::I64).with_shape(own).reshape(count.clone());
    let scatter = Scatter { combine: Combine::Replace, map: vec![Symbol::Read(0).into()] };
    let spread = empty.scatter(scatter, x.reshape(count), &[places]).reshape(pooled.clone());
    if call.optional(2).is_none() {
        return Ok(spread);
    }
    // A larger shape keeps the elements at their coordinates.
    let wanted = call.dims(2, "the output shape")?;
    if wanted.len() != pooled.rank() {
        return Err(Error::invalid(format!("an output shape of {} axes for {}", wanted.len(), x.ty()?)));
    }
    let none = vec![Dim::int(0); wanted.len()];
    let more: Vec<Dim> = wanted.iter().zip(pooled.dims()).map(|(wanted, dim)| wanted - dim).collect();
    Ok(spread.pad(&none, &more, 0.0))
}

/// The axes behind batch and channels.
pub(super) fn spatial_axes(call: &Call<'_, '_>, x: Tensor<'_>) -> Result<Vec<usize>> {
    let rank = x.rank()?;
    if rank < 2 {
        return Err(Error::invalid(format!("{} of a tensor {}", call.op.name, x.ty()?)));
    }
    Ok((2..rank).collect())
}

/// The windows of a pool over the spatial axes of `x`.
fn windows_of(call: &Call<'_, '_>, x: Tensor<'_>) -> Result<Vec<Window>> {
    let rank = spatial_axes(call, x)?.len();
    let mut sliding = Sliding::of(call, rank)?;
    sliding.ceil = call.flag("ceil_mode", false)?;
    Ok(sliding.windows(&x.shape()?.dims()[2..], &kernel_shape(call, rank)?))
}

/// The axes of the elements of windows in what [`slide`] gives.
fn tap_axes(windows: &[Window]) -> Vec<usize> {
    let places = 2 + windows.len();
    let taps = windows.iter().filter(|w| !w.is_single()).count();
    (places..places + taps).collect()
}

/// The neutral element of `max`.
fn lowest(dtype: DType) -> Number {
    match dtype.int_range() {
        Some((low, _)) => Number::from_int(dtype, i64::try_from(low).unwrap_or(0)),
        None => Number::new(dtype, f64::NEG_INFINITY),
    }
}

fn max_pool<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let windows = windows_of(call, x)?;
    let seen = slide(x, &windows, lowest(x.dtype()?))?;
    let taps = tap_axes(&windows);
    let largest = seen.reduce(Monoid::Max, &taps);
    if call.outputs < 2 {
        return Ok(vec![largest]);
    }
    let column_major = call.int_or("storage_order", 0)? == 1;
    Ok(vec![largest, max_positions(x, seen, &windows, column_major)?])
}

/// The flat position in `x` of the first largest element of every window.
fn max_positions<'b>(x: Tensor<'b>, seen: Tensor<'b>, windows: &[Window], column_major: bool) -> Result<Tensor<'b>> {
    let (builder, own) = (x.builder(), x.shape()?);
    let places = 2 + windows.len();
    let mut dims = seen.shape()?.dims()[..places].to_vec();
    let shape = Shape::from(dims.clone());
    let sizes: Shape = windows.iter().map(|w| w.size.clone()).collect();
    dims.push(sizes.count());
    let tap = seen.reshape(dims).reduce(Monoid::ArgMax, &[places]);

    // Positions are those of the channel's plane, rows or columns first, behind all planes before it.
    let plane = Shape::from(own.dims()[2..].to_vec());
    let strides = if column_major {
        (0..windows.len()).map(|k| plane.dims()[..k].iter().product()).collect()
    } else {
        plane.strides()
    };
    let planes = Dim::axis(0) * &own[1] + Dim::axis(1);
    let mut position = builder.index(&(planes * plane.count()), &shape);
    for (k, window) in windows.iter().enumerate() {
        let inner = &sizes.strides()[k];
        let at = (tap / inner).modulo(&window.size) * window.dilation;
        let start = builder.index(&window.index(&Dim::axis(2 + k), &Dim::int(0)), &shape);
        position = position + (at + start) * &strides[k];
    }
    Ok(position)
}

/// The mean of every window of a float tensor.
pub(super) fn average_windows<'b>(call: &Call<'_, 'b>, x: Tensor<'b>) -> Result<Tensor<'b>> {
    let windows = windows_of(call, x)?;
    let padded = call.flag("count_include_pad", false)?;
    let dtype = x.dtype()?;
    let sums = slide(x, &windows, Number::new(dtype, 0.0))?.reduce(Monoid::Sum, &tap_axes(&windows));
    if windows.iter().all(|w| w.stays_inside(padded)) {
        let count: Dim = windows.iter().map(|w| w.size.clone()).product();
        return Ok(sums / &count);
    }
    // The number of elements of a window is the product over its axes; each has its own short vector.
    let counts = windows.iter().enumerate().map(|(k, w)| {
        let places = Shape::new([w.count.clone()]);
        let count = x.builder().index(&w.inside(&Dim::axis(0), padded), &places);
        count.insert_axes(&(1..windows.len() - k).collect::<Vec<_>>())
    });
    let count = counts.reduce(|a, b| a * b);
    Ok(match count {
        Some(count) => sums / count.cast(dtype),
        None => sums,
    })
}
