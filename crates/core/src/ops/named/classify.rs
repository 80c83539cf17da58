//! Classifiers of classical models: scores become labels, numbers or texts, and probabilities.

use super::feature::{PostTransform, by_feature, rows_of};
use super::text::constant_texts;
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::Monoid;
use crate::tensor::{DType, Dim, Literal};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp {
        name: "LinearClassifier",
        domain: "ai.onnx.ml",
        since: 1,
        attributes: &[
            "classlabels_ints",
            "classlabels_strings",
            "coefficients",
            "intercepts",
            "multi_class",
            "post_transform",
        ],
        doc: "the label of the largest product with coefficients, and all of these scores",
        expand: linear_classifier,
    },
    NamedOp {
        name: "ZipMap",
        domain: "ai.onnx.ml",
        since: 1,
        attributes: &["classlabels_int64s", "classlabels_strings"],
        doc: "scores by label: a table with a column for each of them",
        expand: zip_map,
    },
];

/// The labels of classes: numbers, or texts one a row.
pub(super) struct Labels<'b> {
    rows: Tensor<'b>,
    /// how many there are
    pub(super) count: usize,
}

impl<'b> Labels<'b> {
    /// Those that the attribute of numbers or `classlabels_strings` lists: just one of both.
    pub(super) fn of(call: &Call<'_, 'b>, numbers: &str) -> Result<Labels<'b>> {
        match (call.ints(numbers)?.unwrap_or_default(), call.strs("classlabels_strings")?.unwrap_or_default()) {
            ([], []) => Err(Error::invalid(format!("{} has no labels", call.op.name))),
            (ints, []) => Ok(Labels { rows: call.builder.constant(Literal::i64s(ints)), count: ints.len() }),
            ([], texts) => Ok(Labels { rows: constant_texts(call.builder, texts)?, count: texts.len() }),
            _ => Err(Error::invalid(format!("{} has labels of two kinds", call.op.name))),
        }
    }

    /// The labels of these classes.
    pub(super) fn take(&self, classes: Tensor<'b>) -> Tensor<'b> {
        self.rows.take(0, classes)
    }

    /// The label of the largest of the scores `[rows, classes]`, the first of equal ones.
    pub(super) fn of_largest(&self, scores: Tensor<'b>) -> Tensor<'b> {
        self.take(scores.reduce(Monoid::ArgMax, &[1]))
    }
}

/// Labels and scores where one score `[rows, 1]` speaks for the second of two classes: where it is above `threshold`, that is the label.
pub(super) fn binary<'b>(
    labels: &Labels<'b>,
    score: Tensor<'b>,
    threshold: f64,
    against: Tensor<'b>,
    transform: PostTransform,
) -> Vec<Tensor<'b>> {
    let label = labels.take(score.gt(threshold).cast(DType::I64).reduce(Monoid::Sum, &[1]));
    let both = match transform {
        PostTransform::Logistic => [(-score).sigmoid(), score.sigmoid()],
        _ => [against, score],
    };
    vec![label, score.builder().concat(&both, 1)]
}

fn linear_classifier<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = rows_of(call.input(0)?.cast(DType::F32))?;
    let labels = Labels::of(call, "classlabels_ints")?;
    call.int_or("multi_class", 0)?; // whether one score stands for two classes follows from the number of scores
    let coefficients = by_feature(call, "coefficients")?;
    let coefficients = coefficients.ok_or_else(|| Error::invalid("LinearClassifier needs attribute coefficients"))?;
    let intercepts = by_feature(call, "intercepts")?;
    let scores = match intercepts {
        Some(list) => list.dim(0)?,
        None => Dim::from(labels.count),
    };
    let product = x.contract("nf,tf->nt", coefficients.reshape(vec![scores.clone(), x.dim(1)?]));
    let y = intercepts.map_or(product, |intercepts| product + intercepts);
    let transform = PostTransform::of(call)?;
    if scores.is(1) && labels.count == 2 {
        return match transform {
            PostTransform::None | PostTransform::Logistic => Ok(binary(&labels, y, 0.0, -y + 1.0, transform)),
            other => Err(call.unsupported("post_transform", format!("{other:?} of one score for two classes"))),
        };
    }
    if !scores.is(labels.count as i64) {
        return Err(Error::invalid(format!("LinearClassifier has {scores} scores for {} labels", labels.count)));
    }
    Ok(vec![labels.of_largest(y), transform.apply(y)])
}

fn zip_map<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = rows_of(call.input(0)?)?;
    let labels = Labels::of(call, "classlabels_int64s")?;
    call.builder.require_equal(&x.dim(1)?, &Dim::from(labels.count), "scores and labels of ZipMap")?;
    Ok(vec![x])
}
