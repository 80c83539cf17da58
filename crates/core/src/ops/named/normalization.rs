//! Normalisation to a mean of 0 and a variance of 1, and its kin.

use super::activation::swish;
use super::elementwise::wider_float;
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::{Tensor, WindowAxis};
use crate::tensor::{DType, Dim, Shape};

/// The attributes of normalisations over the last axes.
const LAYER: &[&str] = &["axis", "epsilon", "stash_type"];
/// The attributes of BatchNormalization, of all versions.
const BATCH: &[&str] = &["epsilon", "momentum", "training_mode", "is_test", "spatial", "consumed_inputs"];

/// The attributes of ONNX Runtime's normalisations by groups.
const GROUP: &[&str] = &["activation", "channels_last", "epsilon", "groups"];

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard("LayerNormalization", 1, LAYER, "standardised over the last axes, scaled, shifted", layer),
    NamedOp::standard("RMSNormalization", 23, LAYER, "divided by the root mean square over the last axes, scaled", rms),
    NamedOp::standard("SimplifiedLayerNormalization", 1, LAYER, "as RMSNormalization", rms),
    NamedOp::contributed("SimplifiedLayerNormalization", LAYER, "as RMSNormalization", rms),
    NamedOp::contributed("SkipLayerNormalization", &["epsilon"], "LayerNormalization of a sum", skip_layer),
    NamedOp::contributed("SkipSimplifiedLayerNormalization", &["epsilon"], "RMSNormalization of a sum", skip_rms),
    NamedOp::standard("BatchNormalization", 1, BATCH, "standardised for every channel, scaled, shifted", batch),
    NamedOp::standard(
        "InstanceNormalization",
        1,
        &["epsilon", "consumed_inputs"],
        "standardised for every instance and channel, scaled, shifted",
        instance,
    ),
    NamedOp::standard(
        "GroupNormalization",
        18,
        &["epsilon", "num_groups", "stash_type"],
        "standardised for every instance and group of channels, scaled, shifted",
        group,
    ),
    NamedOp::contributed("GroupNorm", GROUP, "GroupNormalization, channels at the end, then an activation", |call| {
        Ok(vec![group_norm(call, call.input(0)?)?])
    }),
    NamedOp::contributed("SkipGroupNorm", GROUP, "GroupNorm of a sum, which is a result too", skip_group),
    NamedOp::contributed(
        "GatedRMSNorm",
        &["activation", "epsilon"],
        "RMSNormalization over groups of the last axis, times an activated gate",
        gated_rms,
    ),
    NamedOp::standard("MeanVarianceNormalization", 9, &["axes"], "standardised over axes", mean_variance),
    NamedOp::standard("LpNormalization", 1, &["axis", "p"], "divided by the 1-norm or 2-norm along an axis", lp),
    NamedOp::standard("LRN", 1, &["alpha", "beta", "bias", "size"], "divided by a power of squares near by", lrn),
];

/// A tensor with a mean of 0 and a variance of 1, and what it was before; the statistics keep axes of size 1.
#[derive(Clone, Copy, Debug)]
pub(super) struct Standardized<'b> {
    /// (x − mean) · inverse
    pub(super) normalized: Tensor<'b>,
    /// the mean
    pub(super) mean: Tensor<'b>,
    /// 1 / sqrt(variance + epsilon)
    pub(super) inverse: Tensor<'b>,
}

/// Brings a tensor to a mean of 0 and a variance of 1 over axes.
pub(super) fn standardize<'b>(x: Tensor<'b>, axes: &[usize], epsilon: f64) -> Standardized<'b> {
    let mean = x.mean(axes);
    let centred = x - mean;
    let inverse = (centred.square().mean(axes) + epsilon).sqrt().recip();
    Standardized { normalized: centred * inverse, mean, inverse }
}

/// A tensor divided by its root mean square over axes, and one divided by that.
pub(super) fn rms_normalize<'b>(x: Tensor<'b>, axes: &[usize], epsilon: f64) -> (Tensor<'b>, Tensor<'b>) {
    let inverse = (x.square().mean(axes) + epsilon).sqrt().recip();
    (x * inverse, inverse)
}

/// What normalisations over the last axes share: the axes, and the types to compute in.
struct Layer<'b> {
    /// the operand in the type to compute in
    x: Tensor<'b>,
    /// the type of the operand
    dtype: DType,
    /// the type of the statistics
    stash: DType,
    axes: Vec<usize>,
    epsilon: f64,
}

impl<'b> Layer<'b> {
    fn new(call: &Call<'_, 'b>, x: Tensor<'b>) -> Result<Layer<'b>> {
        let axes = (x.axis(call.int_or("axis", -1)?)?..x.rank()?).collect();
        let stash = call.dtype("stash_type")?.unwrap_or(DType::F32);
        let dtype = x.dtype()?;
        let epsilon = call.float_or("epsilon", 1e-5)?;
        // The stash type adds precision to narrow types; it takes none away from wider ones.
        Ok(Layer { x: x.cast(wider_float(dtype, stash)), dtype, stash, axes, epsilon })
    }

    /// Of a sum whose last axis is normalised, with the small epsilon of ONNX Runtime's operators.
    fn of_sum(call: &Call<'_, 'b>, sum: Tensor<'b>) -> Result<Layer<'b>> {
        let dtype = sum.dtype()?;
        let (axes, epsilon) = (vec![sum.axis(-1)?], call.float_or("epsilon", 1e-12)?);
        Ok(Layer { x: sum.cast(wider_float(dtype, DType::F32)), dtype, stash: DType::F32, axes, epsilon })
    }

    /// The second stage: back in the operand's type, scaled and shifted. The result has the type of the scale.
    fn finish(&self, normalized: Tensor<'b>, scale: Tensor<'b>, shift: Option<Tensor<'b>>) -> Result<Tensor<'b>> {
        let (shape, result) = (self.x.shape()?, scale.dtype()?);
        let scaled = normalized.cast(self.dtype).cast(result) * scale.expand(shape.clone());
        Ok(shift.map_or(scaled, |shift| scaled + shift.cast(result).expand(shape)))
    }
}

fn layer<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let layer = Layer::new(call, call.input(0)?)?;
    let s = standardize(layer.x, &layer.axes, layer.epsilon);
    let y = layer.finish(s.normalized, call.input(1)?, call.optional(2))?;
    Ok(vec![y, s.mean.cast(layer.stash), s.inverse.cast(layer.stash)])
}

fn rms<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let layer = Layer::new(call, call.input(0)?)?;
    let (normalized, inverse) = rms_normalize(layer.x, &layer.axes, layer.epsilon);
    Ok(vec![layer.finish(normalized, call.input(1)?, None)?, inverse.cast(layer.stash)])
}

/// The sum of operand, skip connection and, behind the parameters, an optional bias.
fn skip_sum<'b>(call: &Call<'_, 'b>, bias: usize) -> Result<Tensor<'b>> {
    let sum = call.input(0)? + call.input(1)?;
    Ok(call.optional(bias).map_or(sum, |bias| sum + bias))
}

fn skip_layer<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let sum = skip_sum(call, 4)?;
    let layer = Layer::of_sum(call, sum)?;
    let s = standardize(layer.x, &layer.axes, layer.epsilon);
    Ok(vec![layer.finish(s.normalized, call.input(2)?, call.optional(3))?, s.mean, s.inverse, sum])
}

fn skip_rms<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let sum = skip_sum(call, 3)?;
    let layer = Layer::of_sum(call, sum)?;
    let (normalized, inverse) = rms_normalize(layer.x, &layer.axes, layer.epsilon);
    // The mean, the second result, is not computed: nothing is subtracted.
    let mean = call.builder.scalar(inverse.dtype()?, 0.0).expand(inverse.shape()?);
    Ok(vec![layer.finish(normalized, call.input(2)?, None)?, mean, inverse, sum])
}

/// A value for every channel, seen from a tensor whose second axis counts the channels.
fn per_channel(parameter: Tensor<'_>, rank: usize) -> Tensor<'_> {
    parameter.insert_axes(&(1..rank.saturating_sub(1)).collect::<Vec<_>>())
}

fn batch<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let given = call.input(0)?;
    let (dtype, rank) = (given.dtype()?, given.rank()?);
    let parameters: Vec<Tensor<'b>> = (1..5).map(|k| call.input(k)).collect::<Result<_>>()?;
    let mut wide = dtype;
    for parameter in &parameters {
        wide = wider_float(wide, parameter.dtype()?);
    }
    let spatial = call.flag("spatial", true)?;
    let seen = |parameter: Tensor<'b>| match spatial {
        true => per_channel(parameter.cast(wide), rank),
        false => parameter.cast(wide),
    };
    let x = given.cast(wide);
    let (scale, shift) = (seen(parameters[0]), seen(parameters[1]));
    let (mean, variance) = (parameters[2], parameters[3]);
    let epsilon = call.float_or("epsilon", 1e-5)?;
    let apply =
        |mean: Tensor<'b>, variance: Tensor<'b>| ((x - mean) / (variance + epsilon).sqrt() * scale + shift).cast(dtype);
    if !is_training(call)? {
        return Ok(vec![apply(seen(mean), seen(variance))]);
    }
    let axes: Vec<usize> = if spatial { (0..rank).filter(|k| *k != 1).collect() } else { vec![0] };
    // Statistics of half precision are taken in f32, so that sums do not overflow.
    let exact = given.cast(wider_float(wide, DType::F32));
    let current_mean = exact.mean(&axes);
    let current_variance = (exact - current_mean).square().mean(&axes);
    let y = apply(current_mean.cast(wide), current_variance.cast(wide));
    let momentum = call.float_or("momentum", 0.9)?;
    let flat = |statistic: Tensor<'b>, like: Tensor<'b>| -> Result<Tensor<'b>> {
        Ok(statistic.cast(like.dtype()?).reshape(like.shape()?))
    };
    let running = |old: Tensor<'b>, new: Tensor<'b>| -> Result<Tensor<'b>> {
        Ok(old * momentum + flat(new, old)? * (1.0 - momentum))
    };
    Ok(vec![
        y,
        running(mean, current_mean)?,
        running(variance, current_variance)?,
        flat(current_mean, mean)?,
        flat(current_variance, variance)?,
    ])
}

/// Whether BatchNormalization uses the statistics of the batch. Before version 14 the number of results tells.
fn is_training(call: &Call<'_, '_>) -> Result<bool> {
    match call.opset {
        ..7 => Ok(call.outputs > 1 && !call.flag("is_test", false)?),
        7..14 => Ok(call.outputs > 1),
        14.. => call.flag("training_mode", false),
    }
}

fn instance<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let rank = x.rank()?;
    if rank < 2 {
        return Err(Error::invalid(format!("InstanceNormalization of a tensor with {rank} axes")));
    }
    let axes: Vec<usize> = (2..rank).collect();
    let s = standardize(x, &axes, call.float_or("epsilon", 1e-5)?);
    Ok(vec![s.normalized * per_channel(call.input(1)?, rank) + per_channel(call.input(2)?, rank)])
}

/// A tensor whose second axis, the channels, is split into groups and the members of a group.
fn split_channels<'b>(x: Tensor<'b>, groups: i64) -> Result<Tensor<'b>> {
    let shape = x.shape()?;
    let [batch, channels, rest @ ..] = shape.dims() else {
        return Err(Error::invalid(format!("groups of channels in a tensor of shape {shape}")));
    };
    let groups = Dim::int(groups);
    let members = channels.floordiv(&groups);
    x.builder().require_equal(channels, &(&groups * &members), "channels in groups of one size")?;
    Ok(x.reshape([batch.clone(), groups, members].iter().chain(rest).cloned().collect::<Shape>()))
}

fn number_of_groups(call: &Call<'_, '_>, name: &str) -> Result<i64> {
    let groups = call.int(name)?.filter(|n| *n > 0);
    groups.ok_or_else(|| Error::invalid(format!("{} needs the attribute {name}", call.op.name)))
}

fn group<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (x, scale, shift) = (call.input(0)?, call.input(1)?, call.input(2)?);
    let (dtype, groups) = (x.dtype()?, number_of_groups(call, "num_groups")?);
    // Version 18 says nothing of precision; version 21 has the stash type.
    let stash = if call.opset < 21 { dtype } else { call.dtype("stash_type")?.unwrap_or(DType::F32) };
    let grouped = split_channels(x.cast(wider_float(dtype, stash)), groups)?;
    let axes: Vec<usize> = (2..grouped.rank()?).collect();
    let normalized = standardize(grouped, &axes, call.float_or("epsilon", 1e-5)?).normalized.cast(dtype);
    // Parameters belong to groups in version 18 and to channels from version 21 on.
    let seen = |parameter: Tensor<'b>| -> Result<Tensor<'b>> {
        let each = call.opset < 21 && !parameter.dim(0)?.surely_differs(&Dim::int(groups));
        let members = if each { Dim::int(1) } else { grouped.dim(2)? };
        let ones = std::iter::repeat_n(Dim::int(1), axes.len() - 1);
        Ok(parameter.reshape([Dim::int(groups), members].into_iter().chain(ones).collect::<Shape>()))
    };
    Ok(vec![(normalized * seen(scale)? + seen(shift)?).reshape(x.shape()?)])
}

/// ONNX Runtime's GroupNorm of a tensor, which has the channels at the end unless told otherwise.
fn group_norm<'b>(call: &Call<'_, 'b>, x: Tensor<'b>) -> Result<Tensor<'b>> {
    let (dtype, rank) = (x.dtype()?, x.rank()?);
    if rank < 2 {
        return Err(Error::invalid(format!("{} of a tensor with {rank} axes", call.op.name)));
    }
    let last = call.flag("channels_last", true)?;
    let forth: Vec<usize> = [0, rank - 1].into_iter().chain(1..rank - 1).collect();
    let back: Vec<usize> = std::iter::once(0).chain(2..rank).chain([1]).collect();
    let first = x.cast(wider_float(dtype, DType::F32));
    let first = if last { first.permute(&forth) } else { first };
    let grouped = split_channels(first, number_of_groups(call, "groups")?)?;
    let axes: Vec<usize> = (2..grouped.rank()?).collect();
    let normalized = standardize(grouped, &axes, call.float_or("epsilon", 1e-5)?).normalized.reshape(first.shape()?);
    let seen = |k: usize| -> Result<Tensor<'b>> { Ok(per_channel(call.input(k)?.cast(normalized.dtype()?), rank)) };
    let affine = normalized * seen(1)? + seen(2)?;
    let activated = match call.int_or("activation", 0)? {
        0 => affine,
        1 => swish(affine, 1.0),
        other => return Err(call.unsupported("activation", other)),
    };
    Ok(if last { activated.permute(&back) } else { activated }.cast(dtype))
}

fn skip_group<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (x, skip) = (call.input(0)?, call.input(3)?);
    // A skip for every channel of every sample; channels lie at the end.
    let between: Vec<usize> = (1..x.rank()?.saturating_sub(1)).collect();
    let skip = if skip.rank()? == 2 { skip.insert_axes(&between) } else { skip };
    let sum = x + skip;
    let sum = call.optional(4).map_or(sum, |bias| sum + bias);
    Ok(vec![group_norm(call, sum)?, sum])
}

/// RMS over groups of the last axis that are as long as the scale, times an activated gate.
fn gated_rms<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (x, scale, gate) = (call.input(0)?, call.input(1)?, call.input(2)?.cast(DType::F32));
    let (shape, last) = (x.shape()?, x.axis(-1)?);
    let length = scale.dim(0)?;
    if length.is(0) {
        return Err(Error::invalid("GatedRMSNorm with a scale of no elements"));
    }
    let heads = shape[last].floordiv(&length);
    let split: Shape = shape.dims()[..last].iter().chain([&heads, &length]).cloned().collect();
    let heads = x.cast(DType::F32).reshape(split);
    let (normalized, _) = rms_normalize(heads, &[last + 1], call.float_or("epsilon", 1e-5)?);
    let scaled = (normalized * scale.cast(DType::F32)).reshape(shape);
    let gate = match call.str_or("activation", "silu")? {
        "silu" | "swish" => swish(gate, 1.0),
        "sigmoid" => gate.sigmoid(),
        other => return Err(call.unsupported("activation", other)),
    };
    Ok(vec![(scaled * gate).cast(x.dtype()?)])
}

fn mean_variance<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let axes = x.axes(call.ints("axes")?.unwrap_or(&[0, 2, 3]))?;
    let centred = x - x.mean(&axes);
    Ok(vec![centred / (centred.square().mean(&axes).sqrt() + 1e-9)])
}

fn lp<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let axis = x.axis(call.int_or("axis", -1)?)?;
    let norm = match call.int_or("p", 2)? {
        1 => x.abs().sum(&[axis]),
        2 => x.square().sum(&[axis]).sqrt(),
        p => return Err(Error::invalid(format!("attribute p of LpNormalization is {p}, not 1 or 2"))),
    };
    Ok(vec![norm.equal(0).select(norm, x / norm)])
}

fn lrn<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let rank = x.rank()?;
    let size = call.int("size")?.filter(|n| *n > 0);
    let size = size.ok_or_else(|| Error::invalid("LRN needs the attribute size"))?;
    let (alpha, beta) = (call.float_or("alpha", 0.0001)?, call.float_or("beta", 0.75)?);
    // Windows run over the last axis, so the channels go there and back.
    let channel = x.axis(1)?;
    let forth: Vec<usize> = (0..rank).filter(|k| *k != channel).chain([channel]).collect();
    let back: Vec<usize> = std::iter::once(0).chain([rank - 1]).chain(1..rank - 1).collect();
    let count = x.dim(channel)?;
    let near = WindowAxis { size: size.into(), stride: 1, dilation: 1, before: ((size - 1) / 2).into(), count };
    let squares = x.square().permute(&forth).windows(&[near], 0.0);
    let sum = squares.reduce(crate::ops::prim::Monoid::Sum, &[rank]).permute(&back);
    Ok(vec![x / (sum * (alpha / size as f64) + call.float_or("bias", 1.0)?).pow(beta)])
}
