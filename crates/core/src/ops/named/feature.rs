//! Features of classical models: one row of numbers in, one row out.

use super::softmax::softmax;
use super::text::{constant_texts, equal_texts};
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
        "Imputer",
        &["imputed_value_floats", "imputed_value_int64s", "replaced_value_float", "replaced_value_int64"],
        "features of which one number is replaced, by feature",
        imputer,
    ),
    row("FeatureVectorizer", &["inputdimensions"], "the features of all operands, side by side", |call| {
        call.ints("inputdimensions")?; // says what the shapes say
        let parts = call.present()?.into_iter().map(|x| rows_of(x.cast(DType::F32)));
        Ok(vec![call.builder.concat(&parts.collect::<Result<Vec<_>>>()?, 1)])
    }),
    row(
        "OneHotEncoder",
        &["cats_int64s", "cats_strings", "zeros"],
        "1 at the place of each category among those known, 0 elsewhere",
        one_hot_encoder,
    ),
    row(
        "LinearRegressor",
        &["coefficients", "intercepts", "post_transform", "targets"],
        "a product with coefficients, plus intercepts",
        linear_regressor,
    ),
];

/// A list of floats as a tensor that broadcasts against rows of features.
pub(super) fn by_feature<'b>(call: &Call<'_, 'b>, name: &str) -> Result<Option<Tensor<'b>>> {
    let Some(list) = call.floats(name)? else { return Ok(None) };
    Ok(Some(call.builder.constant(Literal::from_f64s(DType::F32, [list.len()], list)?)))
}

/// Features as rows `[rows, features]`; those of one row may come without its axis.
pub(super) fn rows_of(x: Tensor<'_>) -> Result<Tensor<'_>> {
    match x.rank()? {
        1 => Ok(x.insert_axes(&[0])),
        2 => Ok(x),
        rank => Err(Error::invalid(format!("features with {rank} axes"))),
    }
}

fn normalizer<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?.cast(DType::F32);
    let last = [x.axis(-1)?];
    let norm = match call.str_or("norm", "MAX")? {
        // The largest, not the farthest from 0: the text says X / max(X).
        "MAX" => x.reduce_keep(Monoid::Max, &last),
        "L1" => x.abs().sum(&last),
        "L2" => x.square().sum(&last).sqrt(),
        other => return Err(Error::invalid(format!("attribute norm = \"{other}\" of Normalizer"))),
    };
    Ok(vec![norm.equal(0.0).select(x, x / norm)])
}

fn imputer<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let dtype = x.dtype()?;
    let (literal, is_missing) = if dtype.is_float() {
        let list = call.floats("imputed_value_floats")?.unwrap_or_default();
        let old = call.float_or("replaced_value_float", 0.0)?;
        let is_missing = if old.is_nan() { x.is_nan() } else { x.equal(old) };
        (Literal::from_f64s(dtype, [list.len()], list)?, is_missing)
    } else {
        let list = call.ints("imputed_value_int64s")?.unwrap_or_default();
        let old = call.int_or("replaced_value_int64", 0)?;
        (Literal::from_ints(dtype, [list.len()], list)?, x.equal(old))
    };
    if literal.count() == 0 {
        return Err(Error::invalid("Imputer has no values to put in"));
    }
    let new = call.builder.constant(literal).expand(x.shape()?);
    Ok(vec![is_missing.select(new, x)])
}

fn one_hot_encoder<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    call.flag("zeros", true)?; // what is not known has no place either way; nothing fails at run time
    let (numbers, texts) = (call.ints("cats_int64s")?, call.strs("cats_strings")?);
    let found = match (numbers.unwrap_or_default(), texts.unwrap_or_default()) {
        ([], []) => return Err(Error::invalid("OneHotEncoder has no categories")),
        ([], texts) => equal_texts(x.insert_axes(&[x.rank()? - 1]), constant_texts(call.builder, texts)?)?,
        (numbers, []) => {
            x.cast(DType::I64).insert_axes(&[x.rank()?]).equal(call.builder.constant(Literal::i64s(numbers)))
        }
        _ => return Err(Error::invalid("OneHotEncoder has categories of two kinds")),
    };
    Ok(vec![found.cast(DType::F32)])
}

fn linear_regressor<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = rows_of(call.input(0)?.cast(DType::F32))?;
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
    /// softmax of the scores that are not zero, which stays zero
    SoftmaxZero,
}

impl PostTransform {
    /// The transform that attribute `post_transform` names.
    pub(super) fn of(call: &Call<'_, '_>) -> Result<PostTransform> {
        match call.str_or("post_transform", "NONE")? {
            "NONE" => Ok(PostTransform::None),
            "SOFTMAX" => Ok(PostTransform::Softmax),
            "LOGISTIC" => Ok(PostTransform::Logistic),
            "SOFTMAX_ZERO" => Ok(PostTransform::SoftmaxZero),
            other => Err(call.unsupported("post_transform", other)),
        }
    }

    pub(super) fn apply(self, scores: Tensor<'_>) -> Tensor<'_> {
        match self {
            PostTransform::None => scores,
            PostTransform::Softmax => softmax(scores, &[1]),
            PostTransform::Logistic => scores.sigmoid(),
            PostTransform::SoftmaxZero => softmax_zero(scores),
        }
    }
}

/// Softmax of what is not zero, give or take 1e-7: the rest stays out of the sum, and becomes zero.
fn softmax_zero(scores: Tensor<'_>) -> Tensor<'_> {
    let counts = scores.abs().gt(1e-7);
    let e = counts.select((scores - scores.reduce_keep(Monoid::Max, &[1])).exp(), 0.0);
    let sum = e.sum(&[1]);
    sum.equal(0.0).select(e, e / sum)
}
