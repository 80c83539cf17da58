//! Attention of queries to keys: two contractions joined by a softmax, written so that masks, caches and shared heads
//! are index maps and scalar expressions.

use super::softmax::softmax;
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::{Builder, Tensor};
use crate::ops::prim::{Monoid, View};
use crate::tensor::{DType, Dim, Shape};

pub(super) static OPS: &[NamedOp] = &[NamedOp::standard(
    "Attention",
    23,
    &["is_causal", "kv_num_heads", "q_num_heads", "qk_matmul_output_mode", "scale", "softcap", "softmax_precision"],
    "scaled dot-product attention, heads shared by groups of queries, with mask, softcap and key/value cache",
    attention,
)];

/// `[batch, length, heads·size]` as `[batch, heads, length, size]`.
pub(super) fn split_heads<'b>(x: Tensor<'b>, heads: &Dim) -> Result<Tensor<'b>> {
    let shape = x.shape()?;
    if shape.rank() != 3 {
        return Err(Error::invalid(format!("heads of a tensor of shape {shape} (wanted: batch, length, heads·size)")));
    }
    let size = shape[2].floordiv(heads);
    Ok(x.reshape(vec![shape[0].clone(), shape[1].clone(), heads.clone(), size]).permute(&[0, 2, 1, 3]))
}

/// The inverse of [`split_heads`].
pub(super) fn merge_heads(x: Tensor<'_>) -> Result<Tensor<'_>> {
    let shape = x.shape()?;
    let merged = vec![shape[0].clone(), shape[2].clone(), &shape[1] * &shape[3]];
    Ok(x.permute(&[0, 2, 1, 3]).reshape(merged))
}

/// Keys or values `[batch, kv heads, length, size]` as each of `heads` query heads reads them: head `h` reads
/// `h floordiv (heads / kv heads)`.
pub(super) fn share_heads<'b>(x: Tensor<'b>, heads: &Dim) -> Result<Tensor<'b>> {
    let mut dims = x.shape()?.dims().to_vec();
    let [_, own, _, _] = dims.as_slice() else {
        return Err(Error::invalid(format!("keys or values of shape {}", x.shape()?)));
    };
    if own == heads {
        return Ok(x);
    }
    let group = heads.floordiv(own);
    x.builder().require_equal(&(own * &group), heads, "query heads are a multiple of the key heads")?;
    dims[1] = heads.clone();
    let map = vec![Dim::axis(0), Dim::axis(1).floordiv(&group), Dim::axis(2), Dim::axis(3)];
    Ok(x.view(View::new(dims.into(), map)))
}

/// The factor of the scores: the given one, or one over the root of the head size.
pub(super) fn scale_of<'b>(q: Tensor<'b>, given: Option<f64>) -> Result<Tensor<'b>> {
    let (builder, dtype) = (q.builder(), q.dtype()?);
    let size = q.dim(3)?;
    Ok(match (given, size.as_int()) {
        (Some(given), _) => builder.scalar(dtype, given),
        (None, Some(size)) => builder.scalar(dtype, (size as f64).sqrt().recip()),
        (None, None) => builder.size(&size).cast(DType::F64).sqrt().recip().cast(dtype),
    })
}

/// The scores `[batch, heads, queries, keys]` of scaled queries; the factor is on the queries, so that half precision
/// does not overflow.
pub(super) fn scores<'b>(q: Tensor<'b>, k: Tensor<'b>, scale: Tensor<'b>) -> Result<Tensor<'b>> {
    Ok((q * scale).contract("bhqe,bhke->bhqk", share_heads(k, &q.dim(1)?)?))
}

/// Scores bent into (−cap, cap).
pub(super) fn soften(scores: Tensor<'_>, cap: f64) -> Tensor<'_> {
    if cap > 0.0 { (scores / cap).tanh() * cap } else { scores }
}

/// What the probabilities make of the values.
pub(super) fn weigh<'b>(probabilities: Tensor<'b>, v: Tensor<'b>) -> Result<Tensor<'b>> {
    let v = share_heads(v, &probabilities.dim(1)?)?;
    Ok(probabilities.cast(v.dtype()?).contract("bhqk,bhke->bhqe", v))
}

/// Whether query `i` sees key `j`: `j <= i + past`, as `[queries, keys]`.
pub(super) fn causal<'b>(builder: &'b Builder, queries: &Dim, keys: &Dim, past: &Dim) -> Tensor<'b> {
    let shape = Shape::from(vec![queries.clone(), keys.clone()]);
    builder.index(&(Dim::axis(0) + past - Dim::axis(1)), &shape).ge(0i64)
}

/// Scores where `seen` holds, −∞ elsewhere. A query that sees no key becomes NaN in the softmax.
pub(super) fn hide<'b>(scores: Tensor<'b>, seen: Tensor<'b>) -> Tensor<'b> {
    seen.select(scores, f64::NEG_INFINITY)
}

/// What was seen before, with the new keys or values behind it.
pub(super) fn append<'b>(past: Option<Tensor<'b>>, new: Tensor<'b>) -> Tensor<'b> {
    match past {
        Some(past) => new.builder().concat(&[past, new], 2),
        None => new,
    }
}

/// Attention of `[batch, heads, length, size]` operands in which `change_scores` and `change_probabilities` stand before
/// and after the softmax. In between numbers have the type `precision`: f32 unless the operands are f64.
pub fn flex_attention<'b>(
    [q, k, v]: [Tensor<'b>; 3],
    scale: Option<f64>,
    precision: Option<DType>,
    change_scores: impl FnOnce(Tensor<'b>) -> Result<Tensor<'b>>,
    change_probabilities: impl FnOnce(Tensor<'b>) -> Result<Tensor<'b>>,
) -> Result<Tensor<'b>> {
    for operand in [q, k, v] {
        if operand.rank()? != 4 {
            return Err(Error::invalid(format!("FlexAttention of an operand of shape {}", operand.shape()?)));
        }
    }
    let dtype = q.dtype()?;
    let precision = precision.unwrap_or(if dtype == DType::F64 { DType::F64 } else { DType::F32 });
    let scores = change_scores(scores(q, k, scale_of(q, scale)?)?.cast(precision))?;
    let probabilities = change_probabilities(softmax(scores, &[3]))?;
    Ok(weigh(probabilities, v.cast(precision))?.cast(dtype))
}

fn attention<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let packed = call.input(0)?.rank()? == 3;
    let heads = |k: usize, attribute: &str| -> Result<Tensor<'b>> {
        let x = call.input(k)?;
        match (packed, x.rank()?) {
            (true, 3) => {
                let count = call.int(attribute)?.filter(|n| *n > 0);
                let count = count.ok_or_else(|| Error::invalid(format!("Attention needs attribute {attribute}")))?;
                split_heads(x, &Dim::int(count))
            }
            (false, 4) => Ok(x),
            _ => Err(Error::invalid(format!("operand {k} of Attention has shape {}", x.shape()?))),
        }
    };
    let (q, k, v) = (heads(0, "q_num_heads")?, heads(1, "kv_num_heads")?, heads(2, "kv_num_heads")?);
    let past = call.optional(4);
    let past_length = past.map_or(Ok(Dim::int(0)), |p| p.dim(2))?;
    let (k, v) = (append(past, k), append(call.optional(5), v));

    let product = scores(q, k, scale_of(q, call.float("scale")?)?)?;
    let softened = soften(product, call.float_or("softcap", 0.0)?);
    let biased = mask(call, softened, &past_length)?;
    let precision = call.dtype("softmax_precision")?.unwrap_or(biased.dtype()?);
    let mut probabilities = softmax(biased.cast(precision), &[3]);
    // A query that sees no key gives 0, as the text says since ONNX 1.23. By causality alone every query sees the first key.
    if call.optional(3).is_some() || call.optional(6).is_some() {
        let most = biased.reduce_keep(Monoid::Max, &[3]);
        probabilities = most.equal(f64::NEG_INFINITY).not().select(probabilities, 0.0);
    }
    let y = weigh(probabilities, v)?.cast(q.dtype()?);

    let observed = match call.int_or("qk_matmul_output_mode", 0)? {
        0 => product,
        1 => softened,
        2 => biased,
        3 => probabilities.cast(q.dtype()?),
        other => return Err(Error::invalid(format!("attribute qk_matmul_output_mode = {other} of Attention"))),
    };
    Ok(vec![if packed { merge_heads(y)? } else { y }, k, v, observed])
}

/// The scores with mask, causality and the lengths of the rows applied.
fn mask<'b>(call: &Call<'_, 'b>, mut scores: Tensor<'b>, past: &Dim) -> Result<Tensor<'b>> {
    let (queries, keys) = (scores.dim(2)?, scores.dim(3)?);
    if let Some(mask) = call.optional(3) {
        scores = match mask.dtype()? {
            DType::Bool => hide(scores, fill_mask(call, mask, &keys, 0.0)?),
            _ => scores + fill_mask(call, mask.cast(scores.dtype()?), &keys, f64::NEG_INFINITY)?,
        };
    }
    let is_causal = call.flag("is_causal", false)?;
    let Some(lengths) = call.optional(6) else {
        return Ok(if is_causal { hide(scores, causal(call.builder, &queries, &keys, past)) } else { scores });
    };
    let lengths = lengths.cast(DType::I64).insert_axes(&[1, 2, 3]);
    if is_causal {
        // The last query stands at the last of the keys that are there.
        let shape = Shape::from(vec![queries.clone(), keys.clone()]);
        let ahead = call.builder.index(&(Dim::axis(1) - Dim::axis(0) + &queries), &shape);
        scores = hide(scores, ahead.le(lengths));
    }
    let key = call.builder.coordinate(0, &vec![keys].into());
    Ok(hide(scores, key.lt(lengths)))
}

/// A mask for all keys: from version 24 on it may be shorter, and is `hidden` where it does not reach.
fn fill_mask<'b>(call: &Call<'_, 'b>, mask: Tensor<'b>, keys: &Dim, hidden: f64) -> Result<Tensor<'b>> {
    let rank = mask.rank()?;
    let Some(last) = rank.checked_sub(1) else { return Ok(mask) };
    let own = mask.dim(last)?;
    if call.opset < 24 || own == *keys {
        return Ok(mask);
    }
    let none = vec![Dim::int(0); rank];
    let mut after = none.clone();
    after[last] = keys - &own;
    Ok(mask.pad(&none, &after, hidden))
}
