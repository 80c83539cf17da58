//! Elements between the pixels: regions of interest and deformed windows.

use super::windows::Sliding;
use super::{Call, NamedOp, convolution};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::{Gather, Monoid, View};
use crate::tensor::{DType, Dim, Shape, Symbol};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard(
        "DeformConv",
        19,
        &["dilations", "group", "kernel_shape", "offset_group", "pads", "strides"],
        "a convolution whose windows are sampled at moved places, each weighed by a mask",
        |call| {
            let y = convolution::contract_samples(call, deformed_windows(call)?, call.input(1)?)?;
            Ok(vec![convolution::with_bias(y, call.optional(3))?])
        },
    ),
    NamedOp::standard(
        "RoiAlign",
        10,
        &["coordinate_transformation_mode", "mode", "output_height", "output_width", "sampling_ratio", "spatial_scale"],
        "regions of a feature map, each cut into bins; the mean or the largest of interpolated samples of every bin",
        |call| Ok(vec![roi_align(call)?]),
    ),
    NamedOp::standard(
        "MaxRoiPool",
        1,
        &["pooled_shape", "spatial_scale"],
        "regions of a feature map, each cut into bins; the largest element of every bin",
        |call| Ok(vec![max_roi_pool(call)?]),
    ),
    NamedOp::contributed(
        "CropAndResize",
        &["extrapolation_value", "mode"],
        "regions of images, each resized to one size by what lies between its corners",
        |call| Ok(vec![crop_and_resize(call)?]),
    ),
];

fn crop_and_resize<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let (x, regions, images, sizes) = (call.input(0)?, call.input(1)?, call.input(2)?, call.dims(3, "the crop size")?);
    let (own, count) = (x.shape()?, regions.dim(0)?);
    let (4, 2, [height, width]) = (own.rank(), regions.rank()?, &sizes[..]) else {
        return Err(Error::invalid(format!("CropAndResize of {} by {}", x.ty()?, regions.ty()?)));
    };
    let dtype = x.dtype()?;
    let shape = Shape::new([count.clone(), own[1].clone(), height.clone(), width.clone()]);
    let along = |low: usize, crop: &Dim, axis: usize| {
        let last = &own[axis] - 1;
        let [low, high] = [low, low + 2].map(|k| regions.element(1, k).cast(dtype).insert_axes(&[1, 2, 3]));
        let from = low * &last;
        let step = (high - low) * &last / &(crop - 1).max_with(&Dim::int(1));
        // A crop of one element lies in the middle.
        let middle = (low + high) * &last * 0.5;
        let is_single = call.builder.size(crop).equal(1i64);
        let place = call.builder.coordinate(axis, &shape).cast(dtype);
        let place = is_single.select(middle.expand(shape.clone()), from + place * step);
        let inside = place.ge(0.0).and(place.le(&last));
        (place.max(0.0).min(&last), inside)
    };
    let ((y, in_height), (x_place, in_width)) = (along(0, height, 2), along(1, width, 3));
    let image = images.cast(DType::I64).insert_axes(&[1, 2, 3]).expand(shape.clone());
    let read = |row: Tensor<'b>, column: Tensor<'b>| {
        let map = vec![Symbol::Read(0).into(), Dim::axis(1), Symbol::Read(1).into(), Symbol::Read(2).into()];
        let places = [image, row.cast(DType::I64), column.cast(DType::I64)];
        x.gather(Gather { shape: shape.clone(), map }, &places)
    };
    let value = match call.str_or("mode", "bilinear")? {
        "nearest" => read((y + 0.5).floor(), (x_place + 0.5).floor()),
        "bilinear" => {
            let (top, left) = (y.floor(), x_place.floor());
            let (bottom, right) = (y.ceil(), x_place.ceil());
            let [above, below] = [top, bottom].map(|row| {
                let (a, b) = (read(row, left), read(row, right));
                a + (b - a) * (x_place - left)
            });
            above + (below - above) * (y - top)
        }
        other => return Err(Error::invalid(format!("CropAndResize with mode {other}"))),
    };
    Ok(in_height.and(in_width).select(value, call.float_or("extrapolation_value", 0.0)?))
}

/// The type in which coordinates are computed.
fn coordinate_type(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// An axis on which a sample lies between two elements.
struct Between<'b> {
    low: Tensor<'b>,
    high: Tensor<'b>,
    /// how much of the higher one
    fraction: Tensor<'b>,
}

impl<'b> Between<'b> {
    /// Element and weight at the lower or the higher end.
    fn end(&self, high: bool) -> (Tensor<'b>, Tensor<'b>) {
        if high { (self.high, self.fraction) } else { (self.low, -self.fraction + 1.0) }
    }
}

/// The windows of a deformed convolution, `[N, C, places…, taps…]`: every element interpolated at its place plus an offset,
/// zero outside, times its mask.
fn deformed_windows<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let (x, w, offset) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let (xs, ws, dtype) = (x.shape()?, w.shape()?, x.dtype()?);
    let rank = convolution::spatial_rank(call, &xs, &ws)?;
    let windows = Sliding::of(call, rank)?.windows(&xs.dims()[2..], &ws.dims()[2..]);
    let groups = call.int_or("offset_group", 1)?;
    if groups < 1 {
        return Err(Error::invalid(format!("attribute offset_group of DeformConv is {groups}")));
    }
    let (taps, places) = (&ws.dims()[2..], windows.iter().map(|w| w.count.clone()).collect::<Vec<_>>());
    let lead = [xs[0].clone(), Dim::int(groups)];

    // Offsets and masks come with taps before places.
    let order: Vec<usize> = [0, 1].into_iter().chain(2 + rank..2 + 2 * rank).chain(2..2 + rank).collect();
    let offsets = offset.reshape([&lead[..], taps, &[Dim::from(rank)], &places].concat());
    let mask = call.optional(4).map(|m| m.reshape([&lead[..], taps, &places].concat()).permute(&order));
    let shape = Shape::from([&lead[..], &places, taps].concat());
    let wide = coordinate_type(dtype);
    let mut axes = Vec::with_capacity(rank);
    for (k, window) in windows.iter().enumerate() {
        let still = window.index(&Dim::axis(2 + k), &Dim::axis(2 + rank + k));
        let moved = offsets.element(2 + rank, k).permute(&order).cast(wide);
        let at = call.builder.index(&still, &shape).cast(wide) + moved;
        let low = at.floor().cast(DType::I64);
        axes.push(Between { low, high: low + 1, fraction: at - at.floor() });
    }

    // Channels share the places of their group.
    let full = Shape::from([&xs.dims()[..2], &places, taps].concat());
    let per_group = xs[1].floordiv(&Dim::int(groups));
    call.builder.require_equal(&xs[1], &(&per_group * groups), "channels in groups of offsets")?;
    let mut spread: Vec<Dim> = (0..full.rank()).map(Dim::axis).collect();
    spread[1] = Dim::axis(1).floordiv(&per_group);
    let spread = View::new(full.clone(), spread);
    let mut total: Option<Tensor<'b>> = None;
    for corner in 0..1usize << rank {
        let mut weight = mask.map(|m| m.cast(wide));
        let mut places = Vec::with_capacity(rank);
        for (k, axis) in axes.iter().enumerate() {
            let (place, share) = axis.end(corner >> k & 1 == 1);
            let size = &xs[2 + k];
            let share = place.ge(0i64).and(place.lt(size)).select(share, 0.0);
            weight = Some(weight.map_or(share, |w| w * share));
            places.push(place.max(0i64).min(&(size - 1)).view(spread.clone()));
        }
        let map = [0, 1].into_iter().map(Dim::axis).chain((0..rank).map(|k| Symbol::Read(k as u8).into()));
        let value = x.gather(Gather { shape: full.clone(), map: map.collect() }, &places);
        let weighed = weight.map_or(value, |w| value * w.cast(dtype).view(spread.clone()));
        total = Some(total.map_or(weighed, |t| t + weighed));
    }
    total.ok_or_else(|| Error::bug("a window without corners"))
}

/// How a region is sampled along one axis.
struct Sampling<'b> {
    between: Between<'b>,
    /// whether a sample counts: its number is below that of the region
    counts: Option<Tensor<'b>>,
    /// whether it lies on the map
    inside: Tensor<'b>,
    /// samples in a bin of each region
    number: Tensor<'b>,
    /// bins, and the most samples in one
    shape: [Dim; 2],
}

/// Samples of `bins` bins of the regions from `start` to `end` on an axis of `size` elements: tensors `[regions, bins,
/// samples]`. A `ratio` of 0 samples each region as densely as the map.
fn sample_axis<'b>(start: Tensor<'b>, extent: Tensor<'b>, size: &Dim, bins: i64, ratio: i64) -> Result<Sampling<'b>> {
    let builder = start.builder();
    let bin = extent / bins;
    let (number, most) = if ratio > 0 {
        (builder.int(DType::I64, ratio), Dim::int(ratio))
    } else {
        let number = bin.ceil().cast(DType::I64);
        let most = builder.bind(number.reduce(Monoid::Max, &[0]).max(1i64))?;
        (number, most)
    };
    let shape = Shape::new([start.dim(0)?, Dim::int(bins), most.clone()]);
    let wide = start.dtype()?;
    let by_region =
        |x: Tensor<'b>| -> Result<Tensor<'b>> { Ok(if x.rank()? == 0 { x } else { x.insert_axes(&[1, 2]) }) };
    let (p, s) = (builder.coordinate(1, &shape), builder.coordinate(2, &shape));
    let step = by_region(bin)?;
    let within = (s.cast(wide) + 0.5) * step / by_region(number)?.cast(wide);
    let at = by_region(start)? + p.cast(wide) * step + within;
    let inside = at.ge(-1.0).and(at.le(size));
    let at = at.max(0.0);
    let last = size - 1;
    let floor = at.floor().cast(DType::I64);
    let low = floor.min(&last);
    let fraction = floor.lt(&last).select(at - at.floor(), 0.0);
    let counts = if ratio > 0 { None } else { Some(s.lt(by_region(number)?)) };
    let between = Between { low, high: (low + 1i64).min(&last), fraction };
    Ok(Sampling { between, counts, inside, number, shape: [Dim::int(bins), most] })
}

fn roi_align<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let (x, rois, batch) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let (xs, dtype) = (x.shape()?, x.dtype()?);
    if xs.rank() != 4 || rois.rank()? != 2 || batch.rank()? != 1 {
        let (regions, owners) = (rois.ty()?, batch.ty()?);
        return Err(Error::invalid(format!("RoiAlign of {} with regions {regions} of {owners}", x.ty()?)));
    }
    let default = if call.opset >= 16 { "half_pixel" } else { "output_half_pixel" };
    let half = call.str_or("coordinate_transformation_mode", default)? == "half_pixel";
    let ratio = call.int_or("sampling_ratio", 0)?;
    let scale = call.float_or("spatial_scale", 1.0)?;
    let edge = |k: i64| rois.element(1, k).cast(coordinate_type(dtype)) * scale - if half { 0.5 } else { 0.0 };
    let along = |first: i64, size: &Dim, bins: &str| -> Result<Sampling<'b>> {
        let (start, end) = (edge(first), edge(first + 2));
        // Without the half pixel, a region that is too small counts as one element.
        let extent = if half { end - start } else { (end - start).max(1.0) };
        sample_axis(start, extent, size, call.int_or(bins, 1)?, ratio)
    };
    let (down, across) = (along(1, &xs[2], "output_height")?, along(0, &xs[3], "output_width")?);

    let regions = rois.dim(0)?;
    let [(bins_y, samples_y), (bins_x, samples_x)] = [&down, &across].map(|a| (a.shape[0].clone(), a.shape[1].clone()));
    let shape = Shape::new([regions, xs[1].clone(), bins_y, bins_x, samples_y, samples_x]);
    let spread =
        |t: Tensor<'b>, axes: &[usize]| t.view(View::new(shape.clone(), axes.iter().map(|a| Dim::axis(*a)).collect()));
    let image = spread(batch.cast(DType::I64), &[0]);
    let mut corners = Vec::with_capacity(4);
    for (bottom, right) in [(false, false), (false, true), (true, false), (true, true)] {
        let ((y, share_y), (column, share_x)) = (down.between.end(bottom), across.between.end(right));
        let map = vec![Symbol::Read(0).into(), Dim::axis(1), Symbol::Read(1).into(), Symbol::Read(2).into()];
        let places = [image, spread(y, &[0, 2, 4]), spread(column, &[0, 3, 5])];
        let value = x.gather(Gather { shape: shape.clone(), map }, &places);
        let share_y = down.inside.select(share_y, 0.0).cast(dtype);
        let share_x = across.inside.select(share_x, 0.0).cast(dtype);
        corners.push(value * (spread(share_y, &[0, 2, 4]) * spread(share_x, &[0, 3, 5])));
    }
    let counts = match (down.counts, across.counts) {
        (Some(y), Some(x)) => Some(spread(y, &[0, 2, 4]).and(spread(x, &[0, 3, 5]))),
        _ => None,
    };
    let number = (down.number * across.number).max(1i64);
    let number = if number.rank()? == 0 { number } else { number.insert_axes(&[1, 2, 3]) };
    let join = |f: fn(Tensor<'b>, Tensor<'b>) -> Tensor<'b>| corners.iter().copied().reduce(f);
    match call.str_or("mode", "avg")? {
        "avg" => {
            let sample = join(|a, b| a + b).ok_or_else(|| Error::bug("a sample has corners"))?;
            let sample = counts.map_or(sample, |c| c.select(sample, 0.0));
            Ok(sample.reduce(Monoid::Sum, &[4, 5]) / number.cast(dtype))
        }
        "max" => {
            let sample = join(|a, b| a.max(b)).ok_or_else(|| Error::bug("a sample has corners"))?;
            let Some(counts) = counts else { return Ok(sample.reduce(Monoid::Max, &[4, 5])) };
            let largest = counts.select(sample, f64::NEG_INFINITY).reduce(Monoid::Max, &[4, 5]);
            // A region without samples gives zeros.
            Ok(counts.reduce(Monoid::Max, &[4, 5]).select(largest, 0.0))
        }
        other => Err(Error::invalid(format!("attribute mode of RoiAlign is \"{other}\""))),
    }
}

fn max_roi_pool<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let (x, rois) = (call.input(0)?, call.input(1)?);
    let bins = call.ints("pooled_shape")?.unwrap_or_default();
    let xs = x.shape()?;
    let (&[rows, columns], [_, _, height, width]) = (bins, xs.dims()) else {
        return Err(Error::invalid(format!("MaxRoiPool of {} into bins {bins:?}", x.ty()?)));
    };
    let scale = call.float_or("spatial_scale", 1.0)?;
    let wide = coordinate_type(x.dtype()?);
    // The nearest pixel; halves move away from zero.
    let edge = |k: i64| {
        let at = rois.element(1, k).cast(wide) * scale;
        ((at.abs() + 0.5).floor() * at.sign()).cast(DType::I64)
    };
    // Which elements of an axis belong to which bin of which region: [regions, bins, size].
    let members = |first: i64, size: &Dim, bins: i64| -> Result<Tensor<'b>> {
        let (start, end) = (edge(first), edge(first + 2));
        let bin = (end - start + 1i64).max(1i64).cast(wide) / bins;
        let shape = Shape::new([rois.dim(0)?, Dim::int(bins), size.clone()]);
        let (p, at) = (call.builder.coordinate(1, &shape), call.builder.coordinate(2, &shape));
        let (start, bin) = (start.insert_axes(&[1, 2]), bin.insert_axes(&[1, 2]));
        let low = (p.cast(wide) * bin).floor().cast(DType::I64) + start;
        let high = ((p + 1i64).cast(wide) * bin).ceil().cast(DType::I64) + start;
        Ok(at.ge(low).and(at.lt(high)))
    };
    let (in_row, in_column) = (members(2, height, rows)?, members(1, width, columns)?);
    let lowest = f64::NEG_INFINITY;
    let images = x.take(0, rois.element(1, 0usize).cast(DType::I64));
    // [regions, C, rows, H, W], then [regions, C, rows, columns, W].
    let by_row = in_row.insert_axes(&[1, 4]).select(images.insert_axes(&[2]), lowest).reduce(Monoid::Max, &[3]);
    let by_bin = in_column.insert_axes(&[1, 2]).select(by_row.insert_axes(&[3]), lowest).reduce(Monoid::Max, &[4]);
    // A bin without elements gives zero.
    let full = in_row
        .reduce(Monoid::Max, &[2])
        .insert_axes(&[1, 3])
        .and(in_column.reduce(Monoid::Max, &[2]).insert_axes(&[1, 2]));
    Ok(full.select(by_bin, 0.0))
}
