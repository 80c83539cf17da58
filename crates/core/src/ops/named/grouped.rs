//! GroupQueryAttention of ONNX Runtime: attention with a cache whose rows have lengths of their own.

use super::attention::{hide, merge_heads, scale_of, scores, soften, split_heads, weigh};
use super::normalization::rms_normalize;
use super::rotary::rotate;
use super::softmax::softmax;
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::{Gather, Monoid};
use crate::tensor::{DType, Dim, Shape, Symbol};

pub(super) static OPS: &[NamedOp] = &[NamedOp::contributed(
    "GroupQueryAttention",
    &[
        "causal",
        "do_rotary",
        "k_quant_type",
        "kv_cache_bit_width",
        "kv_num_heads",
        "local_window_size",
        "num_heads",
        "qk_norm_epsilon",
        "qk_output",
        "rotary_interleaved",
        "scale",
        "sliding_window_cache",
        "smooth_softmax",
        "softcap",
        "v_quant_type",
    ],
    "attention with keys shared by groups of query heads, a cache with lengths by row, and rotary embeddings",
    group_query_attention,
)];

const PAST_KEY: usize = 3;
const PAST_VALUE: usize = 4;
const LENGTHS: usize = 5;
const TOTAL_LENGTH: usize = 6;

/// The projected operands, `[batch, heads, length, size]`.
struct Projected<'b> {
    q: Tensor<'b>,
    k: Tensor<'b>,
    v: Tensor<'b>,
}

/// Where the new keys go.
struct Cache<'b> {
    /// keys of each row before the new ones, i64 `[batch]`
    before: Tensor<'b>,
    /// the last key of each row after the new ones came in, i64 `[batch]`
    last: Tensor<'b>,
    /// number of places then
    length: Dim,
}

fn group_query_attention<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    refuse_variants(call)?;
    let Projected { q, k, v } = project(call)?;
    let (batch, length) = (q.dim(0)?, q.dim(2)?);
    let cache = cache_of(call, &batch, &length)?;
    let (q, k) = position(call, q, k, &cache)?;
    let k = store(call.optional(PAST_KEY), k, &cache)?;
    let v = store(call.optional(PAST_VALUE), v, &cache)?;

    let given = call.float("scale")?.filter(|s| *s != 0.0);
    let product = soften(scores(q, k, scale_of(q, given)?)?, call.float_or("softcap", 0.0)?);
    let biased = match call.optional(10) {
        Some(bias) => product + bias,
        None => product,
    };
    let seen = visible(call, &cache, &length)?;
    let masked = hide(biased, seen);
    let sink = match call.optional(11) {
        Some(sink) => Some(sink.insert_axes(&[1, 2])),
        None if call.int_or("smooth_softmax", -1)? == 1 => Some(call.builder.scalar(masked.dtype()?, 0.0)),
        None => None,
    };
    let probabilities = match sink {
        Some(sink) => softmax_with_sink(masked, sink),
        None => softmax(masked, &[3]),
    };
    let observed = if call.int_or("qk_output", 0)? == 2 { probabilities } else { seen.select(biased, 0.0) };
    Ok(vec![merge_heads(weigh(probabilities, v)?)?, k, v, observed])
}

fn refuse_variants(call: &Call<'_, '_>) -> Result<()> {
    for name in ["k_quant_type", "v_quant_type"] {
        let kind = call.str_or(name, "NONE")?;
        if kind != "NONE" {
            return Err(call.unsupported(name, kind));
        }
    }
    if call.flag("sliding_window_cache", false)? {
        return Err(call.unsupported("sliding_window_cache", 1));
    }
    Ok(())
}

/// Queries, keys and values by heads, normalised where weights for that are given.
fn project<'b>(call: &Call<'_, 'b>) -> Result<Projected<'b>> {
    let count = |name: &str| -> Result<i64> {
        let count = call.int(name)?.filter(|n| *n > 0);
        count.ok_or_else(|| Error::invalid(format!("GroupQueryAttention needs attribute {name}")))
    };
    let (heads, kv_heads) = (count("num_heads")?, count("kv_num_heads")?);
    let (q_heads, kv) = (Dim::int(heads), Dim::int(kv_heads));
    let first = call.input(0)?;
    let (q, k, v) = match (call.optional(1), call.optional(2)) {
        (Some(k), Some(v)) => (split_heads(first, &q_heads)?, split_heads(k, &kv)?, split_heads(v, &kv)?),
        _ => {
            let all = split_heads(first, &Dim::int(heads.saturating_add(kv_heads.saturating_mul(2))))?;
            let part = |from: i64, count: &Dim| all.slice(1, from, count.clone(), 1);
            (part(0, &q_heads), part(heads, &kv), part(heads.saturating_add(kv_heads), &kv))
        }
    };
    let epsilon = call.float_or("qk_norm_epsilon", 1e-6)?;
    let normalised = |x: Tensor<'b>, weight: Option<Tensor<'b>>| match weight {
        Some(weight) => rms_normalize(x, &[3], epsilon).0 * weight,
        None => x,
    };
    Ok(Projected { q: normalised(q, call.optional(14)), k: normalised(k, call.optional(15)), v })
}

/// The state of the cache: the lengths count the new keys too, save in the first step, in which they may count fewer.
fn cache_of<'b>(call: &Call<'_, 'b>, batch: &Dim, length: &Dim) -> Result<Cache<'b>> {
    let last = call.input(LENGTHS)?.cast(DType::I64).reshape(vec![batch.clone()]);
    let none = call.builder.int(DType::I64, 0).expand(vec![batch.clone()]);
    let Some(past) = call.optional(PAST_KEY) else {
        return Ok(Cache { before: none, last, length: length.clone() });
    };
    let total = call.builder.bind(call.input(TOTAL_LENGTH)?)?;
    let first = call.builder.size(&total).equal(length);
    let before = first.select(none, last + &(Dim::int(1) - length));
    Ok(Cache { before, last, length: past.dim(2)?.max_with(&total) })
}

/// Queries and keys rotated to their positions.
fn position<'b>(
    call: &Call<'_, 'b>,
    q: Tensor<'b>,
    k: Tensor<'b>,
    cache: &Cache<'b>,
) -> Result<(Tensor<'b>, Tensor<'b>)> {
    if !call.flag("do_rotary", false)? {
        return Ok((q, k));
    }
    let positions = match call.optional(9) {
        Some(given) => given.cast(DType::I64),
        None => {
            let step = call.builder.coordinate(1, &vec![Dim::int(1), q.dim(2)?].into());
            cache.before.insert_axes(&[1]) + step
        }
    };
    let (cos, sin) = (call.input(7)?, call.input(8)?);
    let rotated = cos.dim(1)? * 2;
    let interleaved = call.flag("rotary_interleaved", false)?;
    let (cos, sin) = (cos.take(0, positions), sin.take(0, positions));
    let turn = |x: Tensor<'b>| rotate(x, cos, sin, Some(rotated.clone()), interleaved);
    Ok((turn(q)?, turn(k)?))
}

/// The cache with the new keys or values behind those that each row had before; zeros behind them.
fn store<'b>(past: Option<Tensor<'b>>, new: Tensor<'b>, cache: &Cache<'b>) -> Result<Tensor<'b>> {
    let Some(past) = past else { return Ok(new) };
    let mut shape = new.shape()?.dims().to_vec();
    let count = std::mem::replace(&mut shape[2], cache.length.clone());
    let shape = Shape::from(shape);
    let place = new.builder().coordinate(2, &vec![Dim::int(1), Dim::int(1), cache.length.clone(), Dim::int(1)].into());
    let step = place - cache.before.insert_axes(&[1, 2, 3]);
    let inside = step.max(0i64).min(&(&count - 1)).expand(shape.clone());
    let map = vec![Dim::axis(0), Dim::axis(1), Symbol::Read(0).into(), Dim::axis(3)];
    let moved = new.gather(Gather { shape: shape.clone(), map }, &[inside]);
    let none = vec![Dim::int(0); 4];
    let mut after = none.clone();
    after[2] = &cache.length - past.dim(2)?;
    let kept = past.pad(&none, &after, 0.0).with_shape(shape);
    Ok(step.lt(0i64).select(kept, step.lt(&count).select(moved, 0.0)))
}

/// Which keys each query sees, a bool that broadcasts to `[batch, heads, queries, keys]`.
fn visible<'b>(call: &Call<'_, 'b>, cache: &Cache<'b>, length: &Dim) -> Result<Tensor<'b>> {
    let shape = Shape::from(vec![length.clone(), cache.length.clone()]);
    let key = call.builder.coordinate(1, &shape);
    let filled = key.le(cache.last.insert_axes(&[1, 2, 3]));
    if !call.flag("causal", true)? {
        return Ok(filled);
    }
    // How far back a key lies from its query.
    let distance = call.builder.coordinate(0, &shape) - key + cache.before.insert_axes(&[1, 2, 3]);
    let seen = filled.and(distance.ge(0i64));
    Ok(match call.int_or("local_window_size", -1)? {
        window if window > 0 => seen.and(distance.lt(window)),
        _ => seen,
    })
}

/// Softmax over the last axis with one more score that takes its share and gives nothing.
fn softmax_with_sink<'b>(x: Tensor<'b>, sink: Tensor<'b>) -> Tensor<'b> {
    let largest = x.reduce_keep(Monoid::Max, &[3]).max(sink);
    let e = (x - largest).exp();
    e / (e.sum(&[3]) + (sink - largest).exp())
}
