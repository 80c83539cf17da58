//! Support vector machines: rows are compared with vectors by a kernel, and what weights make of that is a score.

use super::classify::Labels;
use super::feature::{PostTransform, by_feature, rows_of};
use super::time_loop::{Stepped, over_time};
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::{Builder, Tensor};
use crate::ops::Scalar;
use crate::ops::prim::Monoid;
use crate::tensor::{DType, Dim, Literal};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp {
        name: "SVMRegressor",
        domain: "ai.onnx.ml",
        since: 1,
        attributes: &[
            "coefficients",
            "kernel_params",
            "kernel_type",
            "n_supports",
            "one_class",
            "post_transform",
            "rho",
            "support_vectors",
        ],
        doc: "a weighted sum of how like a row is to vectors; of one class, 1 where that is above 0, otherwise −1",
        expand: regressor,
    },
    NamedOp {
        name: "SVMClassifier",
        domain: "ai.onnx.ml",
        since: 1,
        attributes: &[
            "classlabels_ints",
            "classlabels_strings",
            "coefficients",
            "kernel_params",
            "kernel_type",
            "post_transform",
            "prob_a",
            "prob_b",
            "rho",
            "support_vectors",
            "vectors_per_class",
        ],
        doc: "the label that wins most pairs of classes, and the scores of pairs or the probabilities of classes",
        expand: classifier,
    },
];

/// Weights of all pairs of classes that a model may ask for, and classes whose probabilities are made of those of pairs.
const MOST_WEIGHTS: usize = 1 << 24;
const MOST_CLASSES: usize = 128;

/// How like two rows are.
#[derive(Clone, Copy, Debug)]
enum Likeness {
    Linear,
    Poly,
    Rbf,
    Sigmoid,
}

/// How like each row `[rows, features]` is to each of `count` vectors, the rows of attribute `support_vectors`.
fn likeness<'b>(call: &Call<'_, 'b>, x: Tensor<'b>, count: usize) -> Result<Tensor<'b>> {
    let kind = match call.str_or("kernel_type", "LINEAR")? {
        "LINEAR" => Likeness::Linear,
        "POLY" => Likeness::Poly,
        "RBF" => Likeness::Rbf,
        "SIGMOID" => Likeness::Sigmoid,
        other => return Err(Error::invalid(format!("attribute kernel_type = \"{other}\" of {}", call.op.name))),
    };
    let vectors = by_feature(call, "support_vectors")?.ok_or_else(|| missing(call, "support_vectors"))?;
    let vectors = vectors.reshape(vec![Dim::from(count), x.dim(1)?]);
    let (gamma, offset, degree) = match call.floats("kernel_params")?.unwrap_or_default() {
        [gamma, offset, degree] => (*gamma, *offset, *degree),
        [] => (0.0, 0.0, 0.0),
        other => return Err(Error::invalid(format!("{} has {} kernel_params, not 3", call.op.name, other.len()))),
    };
    let product = || x.contract("nf,vf->nv", vectors);
    Ok(match kind {
        Likeness::Linear => product(),
        Likeness::Poly => (product() * gamma + offset).pow(degree),
        Likeness::Sigmoid => (product() * gamma + offset).tanh(),
        Likeness::Rbf => {
            let apart = x.insert_axes(&[1]) - vectors.insert_axes(&[0]);
            (apart.square().reduce(Monoid::Sum, &[2]) * -gamma).exp()
        }
    })
}

fn missing(call: &Call<'_, '_>, name: &str) -> Error {
    Error::invalid(format!("{} needs attribute {name}", call.op.name))
}

fn regressor<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = rows_of(call.input(0)?.cast(DType::F32))?;
    let count = call.int_or("n_supports", 0)?;
    let weights = by_feature(call, "coefficients")?.ok_or_else(|| missing(call, "coefficients"))?;
    let rho = match call.floats("rho")?.unwrap_or_default() {
        [rho] => *rho,
        other => return Err(Error::invalid(format!("SVMRegressor has {} numbers rho, not 1", other.len()))),
    };
    if PostTransform::of(call)? != PostTransform::None {
        return Err(call.unsupported("post_transform", "of a regression"));
    }
    let likes = match usize::try_from(count) {
        // Without vectors the weights are those of features.
        Ok(0) | Err(_) => x,
        Ok(count) => likeness(call, x, count)?,
    };
    let y = likes.contract("nv,v->n", weights.reshape(vec![likes.dim(1)?])).insert_axes(&[1]) + rho;
    if call.flag("one_class", false)? {
        let one = call.builder.scalar(DType::F32, 1.0).expand(y.shape()?);
        return Ok(vec![y.gt(0.0).select(one, -1.0)]);
    }
    Ok(vec![y])
}

/// Pairs of classes, each with its first and its second one.
fn pairs(classes: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..classes).flat_map(move |first| (first + 1..classes).map(move |second| (first, second)))
}

fn classifier<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = rows_of(call.input(0)?.cast(DType::F32))?;
    let labels = Labels::of(call, "classlabels_ints")?;
    let classes = labels.count;
    let Some(owned) = call.ints("vectors_per_class")?.filter(|list| !list.is_empty()) else {
        return Err(call.unsupported("vectors_per_class", "left out: weights by feature"));
    };
    let owned: Vec<usize> = owned.iter().filter_map(|count| usize::try_from(*count).ok()).collect();
    if owned.len() != classes || classes < 2 {
        return Err(Error::invalid(format!(
            "SVMClassifier has vectors_per_class for {} of {classes} classes",
            owned.len()
        )));
    }
    let count = owned.iter().try_fold(0usize, |sum, count| sum.checked_add(*count));
    let count = count.filter(|count| *count <= MOST_WEIGHTS).ok_or_else(|| Error::limit("too many support vectors"))?;
    let scores = scores(call, likeness(call, x, count)?, &owned, count)?;
    let label = labels.of_largest(votes(scores, classes)?);
    let transform = PostTransform::of(call)?;
    let (a, b) = (by_feature(call, "prob_a")?, by_feature(call, "prob_b")?);
    let shown = match (a, b) {
        (Some(a), Some(b)) => transform.apply(probabilities(-(scores * a + b), classes)?),
        _ if classes > 2 => transform.apply(scores),
        _ => {
            let against = match transform {
                PostTransform::None => [-scores, scores],
                PostTransform::Logistic => [(-scores).sigmoid(), scores.sigmoid()],
                _ => [-scores + 1.0, scores],
            };
            call.builder.concat(&against, 1)
        }
    };
    Ok(vec![label, shown])
}

/// The scores `[rows, pairs]`: above 0 for the first class of a pair. A vector has one weight against each other class.
fn scores<'b>(call: &Call<'_, 'b>, likes: Tensor<'b>, owned: &[usize], count: usize) -> Result<Tensor<'b>> {
    let classes = owned.len();
    let given = call.floats("coefficients")?.ok_or_else(|| missing(call, "coefficients"))?;
    let number = pairs(classes).count();
    if given.len() != (classes - 1) * count {
        let wanted = (classes - 1) * count;
        return Err(Error::invalid(format!("SVMClassifier has {} coefficients, not {wanted}", given.len())));
    }
    if number.saturating_mul(count) > MOST_WEIGHTS {
        let what = format!("{number} pairs of classes with {count} support vectors");
        return Err(Error::limit(format!("{what} (the limit is {MOST_WEIGHTS} weights)")));
    }
    let starts: Vec<usize> = owned.iter().scan(0, |end, count| Some(std::mem::replace(end, *end + count))).collect();
    let mut weights = vec![0.0; number * count];
    for (row, (first, second)) in pairs(classes).enumerate() {
        for (class, against) in [(first, second - 1), (second, first)] {
            for vector in starts[class]..starts[class] + owned[class] {
                weights[row * count + vector] = given[against * count + vector];
            }
        }
    }
    let weights = call.builder.constant(Literal::from_f64s(DType::F32, [number, count], &weights)?);
    let rho = by_feature(call, "rho")?.ok_or_else(|| missing(call, "rho"))?;
    call.builder.require_equal(&rho.dim(0)?, &Dim::from(number), "numbers rho and pairs of SVMClassifier")?;
    Ok(likes.contract("nv,ev->ne", weights) + rho)
}

/// How many pairs each class wins.
fn votes(scores: Tensor<'_>, classes: usize) -> Result<Tensor<'_>> {
    let number = pairs(classes).count();
    let of = |wins: fn(usize, usize, usize) -> bool| -> Result<Tensor<'_>> {
        let cells =
            pairs(classes).flat_map(|(a, b)| (0..classes).map(move |class| f64::from(u8::from(wins(a, b, class)))));
        let cells: Vec<f64> = cells.collect();
        Ok(scores.builder().constant(Literal::from_f64s(DType::F32, [number, classes], &cells)?))
    };
    let (first, second) = (of(|a, _, class| a == class)?, of(|_, b, class| b == class)?);
    let won = scores.gt(0.0).cast(DType::F32);
    Ok(won.contract("ne,ek->nk", first) + (-won + 1.0).contract("ne,ek->nk", second))
}

/// The probabilities `[rows, classes]` that fit those of pairs best, given as what a logistic function makes probabilities of. This is the second way
/// of Wu, Lin and Weng ("Probability Estimates for Multi-class Classification by Pairwise Coupling", 2004), as LIBSVM has it.
fn probabilities(logits: Tensor<'_>, classes: usize) -> Result<Tensor<'_>> {
    const EDGE: f64 = 1e-7;
    const TRIPS: i64 = 100;
    let builder = logits.builder();
    let r = logits.sigmoid().apply2(Scalar::Max, EDGE).apply2(Scalar::Min, 1.0 - EDGE);
    let other = -r + 1.0;
    if classes > MOST_CLASSES {
        let what = format!("probabilities of {classes} classes (the limit is {MOST_CLASSES})");
        return Err(Error::limit(what));
    }
    let q = coupling(builder, r, other, classes)?;
    let even = builder.scalar(DType::F32, 1.0 / classes as f64).expand(vec![r.dim(0)?, Dim::from(classes)]);
    let fitted = over_time(builder, "probabilities", &Dim::int(TRIPS), &[even], |step, state| {
        let (q, p) = (step.capture(q)?, state[0]);
        let fitted = refined(q, p, classes)?;
        Ok(Stepped { state: vec![fitted], slices: Vec::new() })
    })?;
    Ok(fitted[0])
}

/// The matrices `[rows, classes, classes]` whose forms the probabilities make least.
fn coupling<'b>(builder: &'b Builder, r: Tensor<'b>, other: Tensor<'b>, classes: usize) -> Result<Tensor<'b>> {
    let number = pairs(classes).count();
    let mut places = vec![0i64; classes * classes];
    for (e, (a, b)) in pairs(classes).enumerate() {
        (places[a * classes + b], places[b * classes + a]) = (e as i64, (number + e) as i64);
    }
    let turned: Vec<i64> = (0..classes * classes).map(|k| places[k % classes * classes + k / classes]).collect();
    let both = builder.concat(&[r, other], 1);
    let matrix = |places: &[i64]| -> Result<Tensor<'b>> {
        Ok(both.take(1, builder.constant(Literal::from_ints(DType::I64, [classes, classes], places)?)))
    };
    let (own, across) = (matrix(&places)?, matrix(&turned)?);
    let eye: Vec<f64> = (0..classes * classes).map(|k| f64::from(u8::from(k / classes == k % classes))).collect();
    let eye = builder.constant(Literal::from_f64s(DType::F32, [classes, classes], &eye)?);
    let apart = -eye + 1.0;
    let diagonal = (across.square() * apart).reduce_keep(Monoid::Sum, &[2]);
    Ok(diagonal * eye - own * across * apart)
}

/// Probabilities after one more round over all classes; those of rows that fit well enough stay.
fn refined<'r>(q: Tensor<'r>, p: Tensor<'r>, classes: usize) -> Result<Tensor<'r>> {
    let enough = 0.005 / classes as f64;
    let mut product = q.contract("nij,nj->ni", p);
    let mut form = (p * product).sum(&[1]);
    let fits = (product - form).abs().reduce_keep(Monoid::Max, &[1]).lt(enough);
    let mut next = p;
    for class in 0..classes {
        let column = q.element(1, class as i64);
        let (own, at) = (column.slice(1, class as i64, 1usize, 1), product.slice(1, class as i64, 1usize, 1));
        let step = (form - at) / own;
        let whole = step + 1.0;
        let one: Vec<f64> = (0..classes).map(|k| f64::from(u8::from(k == class))).collect();
        let one = p.builder().constant(Literal::from_f64s(DType::F32, [1, classes], &one)?);
        next = (next + step * one) / whole;
        form = (form + step * (step * own + at * 2.0)) / whole / whole;
        product = (product + step * column) / whole;
    }
    Ok(fits.expand(p.shape()?).select(p, next))
}
