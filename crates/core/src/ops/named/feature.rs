//! Features of classical models: one row of numbers in, one row out.

use super::softmax::softmax;
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::Monoid;
use crate::tensor::{DType, Dim, Literal};

/// A row of the operator set of classical models.
const fn row(
    name: &'static str,
    attributes: &'static [&'static str],
    doc: &'static str,
    expand: super::Expand,
) -> NamedOp {
    NamedOp { name, domain: "ai.onnx.ml", since: 1, attributes, doc, expand }
}

pub(super) static OPS: &[NamedOp] = &[
    row("Binarizer", &["threshold"], "1 where x is above the threshold, otherwise 0", |call| {
        let (x, threshold) = (call.input(0)?, call.float_or("threshold", 0.0)?);
        let dtype = x.dtype()?;
        // An integer is above a number exactly when it is above its floor.
        let above = x.gt(if dtype.is_float() { threshold } else { threshold.floor() });
        Ok(vec![above.cast(dtype)])
    }),
    row("Scaler", &["offset", "scale"], "(x − offset) · scale, by feature", |call| {
        let x = call.input(0)?.cast(DType::F32);
        let shifted = by_feature(call, "offset")?.map_or(x, |offset| x - offset);
        Ok(vec![by_feature(call, "scale")?.map_or(shifted, |scale| shifted * scale)])
    }),
    row("Normalizer", &["norm"], "the features of a row divided by their norm, where that is not zero", normalizer),
    row(
        "LinearRegressor",
        &["coefficients", "intercepts", "post_transform", "targets"],
        "a product with coefficients, plus intercepts",
        linear_regressor,
    ),
];

/// A list of floats as a tensor that broadcasts against rows of features.
fn by_feature<'b>(call: &Call<'_, 'b>, name: &str) -> Result<Option<Tensor<'b>>> {
    let Some(list) = call.floats(name)? else { return Ok(None) };
    Ok(Some(call.builder.constant(Literal::from_f64s(DType::F32, [list.len()], list)?)))
}

fn normalizer<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?.cast(DType::F32);
    let last = [x.axis(-1)?];
    let norm = match call.str_or("norm", "MAX")? {
        "MAX" => x.abs().reduce_keep(Monoid::Max, &last),
        "L1" => x.abs().sum(&last),
        "L2" => x.square().sum(&last).sqrt(),
        other => return Err(Error::invalid(format!("attribute norm = \"{other}\" of Normalizer"))),
    };
    Ok(vec![norm.equal(0.0).select(x, x / norm)])
}

fn linear_regressor<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?.cast(DType::F32);
    let x = if x.rank()? == 1 { x.insert_axes(&[0]) } else { x };
    let targets = call.int_or("targets", 1)?;
    let coefficients = by_feature(call, "coefficients")?;
    let coefficients = coefficients.ok_or_else(|| Error::invalid("LinearRegressor needs attribute coefficients"))?;
    let coefficients = coefficients.reshape(vec![Dim::int(targets), x.dim(1)?]);
    let product = x.contract("nf,tf->nt", coefficients);
    let y = by_feature(call, "intercepts")?.map_or(product, |intercepts| product + intercepts);
    Ok(vec![PostTransform::of(call)?.apply(y)])
}

/// What becomes of the scores `[rows, targets]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PostTransform {
    None,
    Softmax,
    Logistic,
}

impl PostTransform {
    /// The transform that attribute `post_transform` names.
    pub(super) fn of(call: &Call<'_, '_>) -> Result<PostTransform> {
        match call.str_or("post_transform", "NONE")? {
            "NONE" => Ok(PostTransform::None),
            "SOFTMAX" => Ok(PostTransform::Softmax),
            "LOGISTIC" => Ok(PostTransform::Logistic),
            other => Err(call.unsupported("post_transform", other)),
        }
    }

    pub(super) fn apply(self, scores: Tensor<'_>) -> Tensor<'_> {
        match self {
            PostTransform::None => scores,
            PostTransform::Softmax => softmax(scores, &[1]),
            PostTransform::Logistic => scores.sigmoid(),
        }
    }
}
