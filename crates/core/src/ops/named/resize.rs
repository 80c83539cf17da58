//! Resize and Upsample: sizes and scales, then one axis after the other.

use super::interpolate::{Coordinates, Filter, Nearest, Scale, Stretch, stretch};
use super::ratio::Ratio;
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::tensor::{DType, Dim};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp {
        name: "Resize",
        domain: "",
        since: 10,
        attributes: &[
            "antialias",
            "axes",
            "coordinate_transformation_mode",
            "cubic_coeff_a",
            "exclude_outside",
            "extrapolation_value",
            "keep_aspect_ratio_policy",
            "mode",
            "nearest_mode",
        ],
        doc: "an image of other sizes, its elements interpolated",
        expand: resize,
    },
    NamedOp {
        name: "Upsample",
        domain: "",
        since: 1,
        attributes: &["mode", "scales", "height_scale", "width_scale"],
        doc: "an image scaled, its elements repeated or interpolated linearly",
        expand: upsample,
    },
];

fn upsample<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let scales: Vec<f64> = if let Some(scales) = call.floats("scales")? {
        scales.to_vec()
    } else if let (Some(height), Some(width)) = (call.float("height_scale")?, call.float("width_scale")?) {
        vec![1.0, 1.0, height, width]
    } else {
        return stretch_by(call, x, call.input(1)?, &(0..x.rank()?).collect::<Vec<_>>(), filter(call, true)?);
    };
    let scales = scales.iter().map(|s| float_scale(*s)).collect::<Result<Vec<_>>>()?;
    scale_axes(call, x, scales, &(0..x.rank()?).collect::<Vec<_>>(), filter(call, true)?)
}

fn resize<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    if call.opset < 11 {
        return stretch_by(call, x, call.input(1)?, &(0..x.rank()?).collect::<Vec<_>>(), filter(call, true)?);
    }
    let axes = match call.ints("axes")? {
        Some(axes) => axes.iter().map(|a| x.axis(*a)).collect::<Result<Vec<_>>>()?,
        None => (0..x.rank()?).collect(),
    };
    let filter = filter(call, false)?;
    // A tensor of no elements is as good as none.
    let given = |k: usize| call.optional(k).filter(|t| t.shape().is_ok_and(|s| !s.count().is(0)));
    match (given(2), given(3)) {
        (Some(scales), None) => stretch_by(call, x, scales, &axes, filter),
        (None, Some(sizes)) => stretch_to(call, x, sizes, &axes, filter),
        _ => Err(Error::invalid("Resize takes either scales or sizes")),
    }
}

/// How elements are combined; `old` versions know less.
fn filter(call: &Call<'_, '_>, old: bool) -> Result<Filter> {
    let mode = call.str_or("mode", "nearest")?;
    if old {
        return match mode {
            "nearest" if call.op.name == "Resize" => Ok(Filter::Nearest(Nearest::Outward)),
            "nearest" => Ok(Filter::Nearest(Nearest::Floor)),
            "linear" | "bilinear" => Ok(Filter::Linear),
            other => Err(Error::invalid(format!("{} with mode {other}", call.op.name))),
        };
    }
    match mode {
        "nearest" => Ok(Filter::Nearest(match call.str_or("nearest_mode", "round_prefer_floor")? {
            "round_prefer_floor" => Nearest::PreferFloor,
            "round_prefer_ceil" => Nearest::PreferCeil,
            "floor" => Nearest::Floor,
            "ceil" => Nearest::Ceil,
            other => return Err(Error::invalid(format!("Resize with nearest_mode {other}"))),
        })),
        "linear" => Ok(Filter::Linear),
        "cubic" => Ok(Filter::Cubic { a: call.float_or("cubic_coeff_a", -0.75)? }),
        other => Err(Error::invalid(format!("Resize with mode {other}"))),
    }
}

fn float_scale<'b>(scale: f64) -> Result<Scale<'b>> {
    let ratio = Ratio::of_float(scale);
    ratio.map(Scale::Exact).ok_or_else(|| Error::invalid(format!("a scale of {scale}")))
}

/// Scaled by the elements of a tensor.
fn stretch_by<'b>(
    call: &Call<'_, 'b>,
    x: Tensor<'b>,
    scales: Tensor<'b>,
    axes: &[usize],
    filter: Filter,
) -> Result<Vec<Tensor<'b>>> {
    let scales: Vec<Scale<'b>> = match call.builder.constant_of(scales) {
        Some(literal) => literal.to_f64s().into_iter().map(float_scale).collect::<Result<_>>()?,
        None => {
            if scales.rank()? != 1 {
                return Err(Error::invalid(format!("{} with scales {}", call.op.name, scales.ty()?)));
            }
            call.builder.require_equal(&scales.dim(0)?, &axes.len().into(), "Resize takes a scale for each axis")?;
            let scales = scales.cast(DType::F32);
            (0..axes.len()).map(|k| Scale::Float(scales.element(0, k))).collect()
        }
    };
    scale_axes(call, x, scales, axes, filter)
}

fn scale_axes<'b>(
    call: &Call<'_, 'b>,
    x: Tensor<'b>,
    scales: Vec<Scale<'b>>,
    axes: &[usize],
    filter: Filter,
) -> Result<Vec<Tensor<'b>>> {
    if scales.len() != axes.len() {
        return Err(Error::invalid(format!("{} with {} scales for {} axes", call.op.name, scales.len(), axes.len())));
    }
    let mut stretches = Vec::with_capacity(axes.len());
    for (scale, axis) in scales.into_iter().zip(axes) {
        let from = x.dim(*axis)?;
        let (to, width) = match &scale {
            Scale::Exact(ratio) => {
                let width = Ratio { over: &from * &ratio.over, under: ratio.under.clone() };
                (width.floor(), Some(width))
            }
            Scale::Float(scale) => (call.builder.bind((*scale * &from).floor())?, None),
        };
        stretches.push(Stretch { axis: *axis, from, to, width, scale });
    }
    apply(call, x, stretches, filter)
}

/// Stretched to the sizes that a tensor holds.
fn stretch_to<'b>(
    call: &Call<'_, 'b>,
    x: Tensor<'b>,
    sizes: Tensor<'b>,
    axes: &[usize],
    filter: Filter,
) -> Result<Vec<Tensor<'b>>> {
    let sizes = call.builder.dims_of(sizes, "the sizes")?;
    if sizes.len() != axes.len() {
        return Err(Error::invalid(format!("Resize with {} sizes for {} axes", sizes.len(), axes.len())));
    }
    let mut stretches = Vec::with_capacity(axes.len());
    for (to, axis) in sizes.into_iter().zip(axes) {
        let from = x.dim(*axis)?;
        let width = Some(Ratio { over: to.clone(), under: Dim::int(1) });
        let scale = Scale::Exact(Ratio::new(to.clone(), from.clone()));
        stretches.push(Stretch { axis: *axis, from, to, width, scale });
    }
    let smaller = match call.str_or("keep_aspect_ratio_policy", "stretch")? {
        "stretch" => return apply(call, x, stretches, filter),
        "not_larger" => true,
        "not_smaller" => false,
        other => return Err(Error::invalid(format!("Resize with keep_aspect_ratio_policy {other}"))),
    };
    let one = one_ratio(call, &stretches, smaller)?;
    for stretch in &mut stretches {
        (stretch.to, stretch.width) = match &one {
            Scale::Exact(ratio) => {
                let width = Ratio { over: &stretch.from * &ratio.over, under: ratio.under.clone() };
                (width.plus_half().floor(), Some(width))
            }
            Scale::Float(scale) => (call.builder.bind((*scale * &stretch.from + 0.5).floor())?, None),
        };
        stretch.scale = one.clone();
    }
    apply(call, x, stretches, filter)
}

/// The smallest or largest of the ratios, for all axes.
fn one_ratio<'b>(call: &Call<'_, 'b>, stretches: &[Stretch<'b>], smallest: bool) -> Result<Scale<'b>> {
    let ratios: Vec<Ratio> = stretches.iter().map(|s| Ratio::new(s.to.clone(), s.from.clone())).collect();
    let first = ratios.first().ok_or_else(|| Error::invalid("Resize of no axes"))?;
    let chosen = ratios.iter().try_fold(first, |old, new| {
        let more = &new.over * &old.under - &old.over * &new.under;
        match (more.is_nonnegative(), (-more).is_nonnegative()) {
            (true, _) => Some(if smallest { old } else { new }),
            (_, true) => Some(if smallest { new } else { old }),
            _ => None,
        }
    });
    if let Some(ratio) = chosen {
        return Ok(Scale::Exact(ratio.clone()));
    }
    // Which one it is depends on sizes that are not known yet.
    let float = |dim: &Dim| call.builder.size(dim).cast(DType::F64);
    let scales = ratios.iter().map(|r| float(&r.over) / float(&r.under));
    let scale = scales.reduce(|a, b| if smallest { a.min(b) } else { a.max(b) });
    scale.map(Scale::Float).ok_or_else(|| Error::bug("no ratios"))
}

/// Interpolates along every axis that changes.
fn apply<'b>(
    call: &Call<'_, 'b>,
    x: Tensor<'b>,
    stretches: Vec<Stretch<'b>>,
    filter: Filter,
) -> Result<Vec<Tensor<'b>>> {
    let old = call.op.name == "Upsample" || call.opset < 11;
    let mode = if old { "asymmetric" } else { call.str_or("coordinate_transformation_mode", "half_pixel")? };
    let region = match mode {
        "tf_crop_and_resize" => Some(call.input(1)?.cast(DType::F64)),
        _ => None,
    };
    let (antialias, exclude_outside) =
        if old { (false, false) } else { (call.flag("antialias", false)?, call.flag("exclude_outside", false)?) };
    if antialias && matches!(filter, Filter::Nearest(_)) {
        return Err(Error::invalid("Resize with antialias and mode nearest"));
    }
    let dtype = x.dtype()?;
    let blends = !matches!(filter, Filter::Nearest(_));
    let wide = if dtype == DType::F64 || !blends { dtype } else { DType::F32 };
    let mut y = x.cast(wide);
    let count = stretches.len();
    for (k, way) in stretches.iter().enumerate() {
        let part = region.map(|r| (r.element(0, k), r.element(0, count + k)));
        let whole = part.is_none_or(|(a, b)| is_constant(a, 0.0) && is_constant(b, 1.0));
        if whole && way.keeps() {
            continue;
        }
        let coordinates = Coordinates::of(call.builder, way, mode, part)?;
        let stretched = stretch(y, way, &coordinates, filter, antialias, exclude_outside)?;
        y = match coordinates.outside(way) {
            Some(outside) => {
                let fill = call.builder.scalar(wide, call.float_or("extrapolation_value", 0.0)?);
                let rest = y.rank()? - 1 - way.axis;
                let outside = outside.insert_axes(&(1..=rest).collect::<Vec<_>>());
                call.builder.apply(crate::ops::Scalar::Select, &[outside, fill, stretched])
            }
            None => stretched,
        };
    }
    Ok(vec![narrowed(y, dtype)])
}

fn is_constant(x: Tensor<'_>, value: f64) -> bool {
    x.builder().constant_of(x).is_some_and(|l| l.count() == 1 && l.float(0) == value)
}

/// Blended elements in the operand's type; integers are rounded and saturate.
fn narrowed(y: Tensor<'_>, dtype: DType) -> Tensor<'_> {
    match dtype.int_range() {
        Some((low, high)) if y.dtype().is_ok_and(DType::is_float) => {
            y.round().max(low as f64).min(high as f64).cast(dtype)
        }
        _ => y.cast(dtype),
    }
}
