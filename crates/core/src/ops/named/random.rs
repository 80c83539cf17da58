//! Random numbers, and what drops or draws by them.
//!
//! Every use is a stream of its own, keyed by the seed that the model gives, or by 0: a program draws the same numbers
//! each time it runs.

use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::Monoid;
use crate::tensor::{DType, Shape};

/// The attributes of Dropout, of all versions.
const DROPOUT: &[&str] = &["ratio", "is_test", "seed", "consumed_inputs"];

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard(
        "Dropout",
        1,
        DROPOUT,
        "in training, elements set to 0 at random and the others scaled",
        |call| {
            let x = call.input(0)?;
            let (y, mask) = dropout(call, x, 1)?;
            let mask_type = if call.opset < 10 { x.dtype()? } else { DType::Bool };
            Ok(vec![y, mask.cast(mask_type)])
        },
    ),
    NamedOp::contributed("BiasDropout", &["seed"], "Dropout of a sum, then a skip connection added", |call| {
        let (y, mask) = dropout(call, call.input(0)? + call.input(1)?, 3)?;
        Ok(vec![call.optional(2).map_or(y, |skip| y + skip), mask])
    }),
    NamedOp::standard("Bernoulli", 15, &["dtype", "seed"], "1 with the given probability, otherwise 0", |call| {
        let p = call.input(0)?;
        let ty = p.ty()?;
        let drawn = call.builder.uniform(seed(call)?, ty.dtype, ty.shape).lt(p);
        Ok(vec![drawn.cast(call.dtype("dtype")?.unwrap_or(ty.dtype))])
    }),
    NamedOp::standard(
        "RandomUniform",
        1,
        &["dtype", "shape", "seed", "high", "low"],
        "uniform between low and high",
        |call| Ok(vec![uniform(call, DType::F32, shape(call)?)?]),
    ),
    NamedOp::standard(
        "RandomUniformLike",
        1,
        &["dtype", "seed", "high", "low"],
        "uniform between low and high, of the shape of another tensor",
        |call| {
            let like = call.input(0)?.ty()?;
            Ok(vec![uniform(call, like.dtype, like.shape)?])
        },
    ),
    NamedOp::standard(
        "RandomNormal",
        1,
        &["dtype", "shape", "seed", "mean", "scale"],
        "normally distributed around mean",
        |call| Ok(vec![normal(call, DType::F32, shape(call)?)?]),
    ),
    NamedOp::standard(
        "RandomNormalLike",
        1,
        &["dtype", "seed", "mean", "scale"],
        "normally distributed around mean, of the shape of another tensor",
        |call| {
            let like = call.input(0)?.ty()?;
            Ok(vec![normal(call, like.dtype, like.shape)?])
        },
    ),
    NamedOp::standard(
        "Multinomial",
        7,
        &["dtype", "sample_size", "seed"],
        "classes drawn by their unnormalised log-probabilities",
        multinomial,
    ),
];

/// The seed of a call, by the bits of the float that it is.
fn seed<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let given = call.float("seed")?.map_or(0, |seed| (seed as f32).to_bits());
    Ok(call.builder.int(DType::I64, i64::from(given)))
}

/// Dropout and its mask (bool); `ratio` is the operand that gives the ratio, the next one says whether to train.
fn dropout<'b>(call: &Call<'_, 'b>, x: Tensor<'b>, ratio: usize) -> Result<(Tensor<'b>, Tensor<'b>)> {
    let (b, ty) = (call.builder, x.ty()?);
    let old = call.op.attributes.contains(&"ratio");
    let explicit = if old { call.int("is_test")? } else { None };
    // Models before version 7 are trained only when they say so; until version 12 they are not trained at all.
    let training = match call.optional(ratio + 1) {
        Some(training) => training.cast(DType::Bool).reshape(Shape::scalar()),
        None => b.int(DType::Bool, i64::from(call.opset < 7 && explicit == Some(0))),
    };
    if b.constant_of(training).is_some_and(|known| known.int(0) == 0) {
        return Ok((x, b.int(DType::Bool, 1).expand(ty.shape)));
    }
    let ratio = match call.optional(ratio) {
        Some(ratio) => ratio.cast(ty.dtype).reshape(Shape::scalar()),
        None => b.scalar(ty.dtype, if old { call.float_or("ratio", 0.5)? } else { 0.5 }),
    };
    let ratio = training.select(ratio, 0);
    let kept = b.uniform(seed(call)?, ty.dtype, ty.shape).ge(ratio);
    Ok((kept.select(x / (-ratio + 1), 0), kept))
}

fn shape(call: &Call<'_, '_>) -> Result<Shape> {
    let sizes = call.ints("shape")?.ok_or_else(|| Error::invalid(format!("{} needs a shape", call.op.name)))?;
    Ok(sizes.iter().copied().collect())
}

fn uniform<'b>(call: &Call<'_, 'b>, default: DType, shape: Shape) -> Result<Tensor<'b>> {
    let dtype = call.dtype("dtype")?.unwrap_or(default);
    let (low, high) = (call.float_or("low", 0.0)?, call.float_or("high", 1.0)?);
    Ok((call.builder.uniform(seed(call)?, DType::F32, shape) * (high - low) + low).cast(dtype))
}

/// The transform of Box and Muller of two uniform numbers.
fn normal<'b>(call: &Call<'_, 'b>, default: DType, shape: Shape) -> Result<Tensor<'b>> {
    let dtype = call.dtype("dtype")?.unwrap_or(default);
    let (mean, scale) = (call.float_or("mean", 0.0)?, call.float_or("scale", 1.0)?);
    let draw = || -> Result<Tensor<'b>> { Ok(call.builder.uniform(seed(call)?, DType::F32, shape.clone())) };
    // 1 − u lies above 0, so that the logarithm is finite.
    let radius = ((-draw()? + 1).log() * -2).sqrt();
    let angle = draw()? * std::f64::consts::TAU;
    Ok((radius * angle.cos() * scale + mean).cast(dtype))
}

/// The class where the running sum of probabilities passes a uniform number.
fn multinomial<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let dtype = call.dtype("dtype")?.unwrap_or(DType::I32);
    let shape = x.shape()?;
    let [batch, classes] = shape.dims() else {
        return Err(Error::invalid(format!("Multinomial of a tensor of shape {shape}")));
    };
    let samples = call.int_or("sample_size", 1)?;
    let likely = (x - x.reduce_keep(Monoid::Max, &[1])).exp();
    let passed = likely.prefix(Monoid::Sum, 1, false).insert_axes(&[1]);
    let drawn = call.builder.uniform(seed(call)?, x.dtype()?, Shape::new([batch.clone(), samples.into()]));
    let threshold = (drawn * likely.sum(&[1])).insert_axes(&[2]);
    let class = passed.le(threshold).cast(DType::I64).reduce(Monoid::Sum, &[2]);
    Ok(vec![class.min(&(classes - 1)).cast(dtype)])
}
