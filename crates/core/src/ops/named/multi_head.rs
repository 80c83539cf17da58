//! The attention operators of ONNX Runtime in which every query head has keys of its own.

use super::attention::{append, causal, hide, merge_heads, scale_of, scores, split_heads, weigh};
use super::softmax::softmax;
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::tensor::{DType, Dim, Shape};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::contributed(
        "Attention",
        &[
            "do_rotary",
            "mask_filter_value",
            "num_heads",
            "past_present_share_buffer",
            "qkv_hidden_sizes",
            "rotary_embedding_dim",
            "scale",
            "unidirectional",
        ],
        "self-attention with its input projection, mask and cache",
        attention,
    ),
    NamedOp::contributed(
        "MultiHeadAttention",
        &["mask_filter_value", "num_heads", "scale", "unidirectional"],
        "attention of projected queries, keys and values, with their biases, mask and cache",
        multi_head_attention,
    ),
    NamedOp::contributed(
        "DecoderMaskedMultiHeadAttention",
        &["mask_filter_value", "num_heads", "output_qk", "past_present_share_buffer", "scale"],
        "attention of one query for each row, behind the keys and values of a cache",
        decoder_attention,
    ),
];

/// Queries, keys and values, `[batch, heads, length, size]` each, and what changes the scores.
struct Operands<'b> {
    q: Tensor<'b>,
    k: Tensor<'b>,
    v: Tensor<'b>,
    /// keys that were there before those of the queries
    past: Dim,
    mask: Option<Tensor<'b>>,
    bias: Option<Tensor<'b>>,
    /// keys that are there at all, where a cache has room for more
    there: Option<Tensor<'b>>,
}

/// What [`attend`] returns: the merged heads, and the scores before their softmax.
struct Attended<'b> {
    y: Tensor<'b>,
    scores: Tensor<'b>,
}

fn attend<'b>(call: &Call<'_, 'b>, operands: &Operands<'b>) -> Result<Attended<'b>> {
    let Operands { q, k, v, past, mask, bias, there } = operands;
    let given = call.float("scale")?.filter(|s| *s != 0.0);
    let mut scores = scores(*q, *k, scale_of(*q, given)?)?;
    let (queries, keys) = (scores.dim(2)?, scores.dim(3)?);
    if let Some(mask) = mask {
        let filter = call.float_or("mask_filter_value", -10000.0)?;
        let seen = padding(*mask, &q.dim(0)?, &queries, &keys, past)?;
        scores = seen.select(scores, scores + filter);
    }
    if call.op.attributes.contains(&"unidirectional") && call.flag("unidirectional", false)? {
        scores = hide(scores, causal(call.builder, &queries, &keys, past));
    }
    if let Some(bias) = bias {
        scores = scores + *bias;
    }
    if let Some(there) = there {
        scores = hide(scores, *there);
    }
    Ok(Attended { y: merge_heads(weigh(softmax(scores, &[3]), *v)?)?, scores })
}

/// Which keys a mask lets through, as a bool that broadcasts to `[batch, heads, queries, keys]`. By its shape a mask holds
/// the lengths of the rows (`[batch]`), their ends and then their starts (`[2·batch]`), or truth values for keys
/// (`[batch, keys]`), for queries and keys (`[batch, queries, keys]`), or for more of both than there are (4 axes).
fn padding<'b>(mask: Tensor<'b>, batch: &Dim, queries: &Dim, keys: &Dim, past: &Dim) -> Result<Tensor<'b>> {
    let builder = mask.builder();
    let shape = mask.shape()?;
    let key = builder.coordinate(0, &vec![keys.clone()].into());
    let rows = |from: Dim| mask.cast(DType::I64).slice(0, from, batch.clone(), 1).insert_axes(&[1, 2, 3]);
    let holds = mask.gt(0i64);
    Ok(match shape.rank() {
        1 if shape[0] == batch * 2 && !batch.is(0) => key.lt(rows(Dim::int(0))).and(key.ge(rows(batch.clone()))),
        1 => {
            builder.require_equal(&shape[0], batch, "lengths of the rows of a mask")?;
            key.lt(rows(Dim::int(0)))
        }
        2 => holds.insert_axes(&[1, 2]),
        3 => holds.insert_axes(&[1]),
        4 => holds.slice(2, past.clone(), queries.clone(), 1).slice(3, 0usize, keys.clone(), 1),
        _ => return Err(Error::invalid(format!("an attention mask of shape {shape}"))),
    })
}

fn heads_of(call: &Call<'_, '_>) -> Result<Dim> {
    let heads = call.int("num_heads")?.filter(|n| *n > 0);
    heads.map(Dim::int).ok_or_else(|| Error::invalid(format!("{} needs attribute num_heads", call.op.name)))
}

fn attention<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let mut projected = call.input(0)?.contract("bli,id->bld", call.input(1)?);
    if let Some(bias) = call.optional(2) {
        projected = projected + bias;
    }
    attend_projected(call, projected, call.optional(3), call.optional(4), call.optional(5))
}

/// Self-attention of queries, keys and values that lie side by side, `[batch, length, sizes]`.
pub(super) fn attend_projected<'b>(
    call: &Call<'_, 'b>,
    projected: Tensor<'b>,
    mask: Option<Tensor<'b>>,
    past: Option<Tensor<'b>>,
    bias: Option<Tensor<'b>>,
) -> Result<Vec<Tensor<'b>>> {
    for name in ["do_rotary", "past_present_share_buffer"] {
        if call.flag(name, false)? {
            return Err(call.unsupported(name, 1));
        }
    }
    let heads = heads_of(call)?;
    let width = projected.dim(2)?;
    let sizes: Vec<Dim> = match call.ints("qkv_hidden_sizes")? {
        Some(&[q, k, v]) => vec![Dim::int(q), Dim::int(k), Dim::int(v)],
        Some(other) => {
            return Err(Error::invalid(format!("attribute qkv_hidden_sizes = {other:?} of {}", call.op.name)));
        }
        None => vec![width.floordiv(&Dim::int(3)); 3],
    };
    call.builder.require_equal(&width, &sizes.iter().cloned().sum(), "sizes of queries, keys and values")?;
    let part = |k: usize| {
        let from: Dim = sizes[..k].iter().cloned().sum();
        split_heads(projected.slice(2, from, sizes[k].clone(), 1), &heads)
    };
    let earlier = |k: usize| past.map(|p| p.element(0, k));
    let length = past.map_or(Ok(Dim::int(0)), |p| p.dim(3))?;
    let (k, v) = (append(earlier(0), part(1)?), append(earlier(1), part(2)?));
    let attended = attend(call, &Operands { q: part(0)?, k, v, past: length, mask, bias, there: None })?;
    let mut outputs = vec![attended.y];
    if call.outputs > 1 {
        outputs.push(call.builder.concat(&[k.insert_axes(&[0]), v.insert_axes(&[0])], 0));
    }
    Ok(outputs)
}

fn decoder_attention<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    if call.optional(8).is_some() || call.optional(9).is_some() {
        return Err(Error::unsupported("DecoderMaskedMultiHeadAttention with several beams"));
    }
    let heads = heads_of(call)?;
    let first = call.input(0)?;
    let parts = match (call.optional(1), call.optional(2)) {
        (Some(k), Some(v)) => [first, k, v],
        (None, None) => {
            let size = first.dim(2)?.floordiv(&Dim::int(3));
            [0, 1, 2].map(|k| first.slice(2, &size * k, size.clone(), 1))
        }
        _ => return Err(Error::invalid("DecoderMaskedMultiHeadAttention needs keys and values, or neither")),
    };
    let is_cached = parts[1].rank()? == 4;
    let mut sides = Vec::with_capacity(3);
    let mut from = Dim::int(0);
    for x in parts {
        let side = if x.rank()? == 4 { x } else { split_heads(x, &heads)? };
        let own = side.dim(3)?;
        let size = &heads * &own;
        let bias = call.optional(10).map(|bias| bias.slice(0, from.clone(), size.clone(), 1));
        let bias = bias.map(|bias| bias.reshape(vec![heads.clone(), Dim::int(1), own.clone()]));
        // Keys and values with heads apart come from a cache, with their biases in them.
        sides.push(bias.filter(|_| x.rank() != Ok(4)).map_or(side, |bias| side + bias));
        from = from + size;
    }
    let [q, k, v] = [sides[0], sides[1], sides[2]];
    let [mask, bias] = [call.optional(3), call.optional(4)];
    let (past, past_values) = (call.optional(5).filter(|_| !is_cached), call.optional(6).filter(|_| !is_cached));
    let operands = match (call.flag("past_present_share_buffer", false)?, past, past_values) {
        (true, Some(past), Some(past_values)) => {
            // A cache with room for more than is there: the new key goes behind those that are.
            let at = call.input(7)?.cast(DType::I64).reshape(Shape::scalar());
            let room = past.dim(2)?;
            let put = |cache: Tensor<'b>, new: Tensor<'b>| -> Result<Tensor<'b>> {
                let shape = cache.shape()?;
                Ok(call.builder.coordinate(2, &shape).equal(at).select(new.expand(shape), cache))
            };
            let filled = |x: Tensor<'b>| -> Result<Tensor<'b>> {
                let last = x.rank()? - 1;
                let none = vec![Dim::int(0); last + 1];
                let mut after = none.clone();
                after[last] = &room - x.dim(last)?;
                Ok(x.pad(&none, &after, 0.0))
            };
            let there = call.builder.coordinate(0, &Shape::new([room.clone()])).le(at);
            let (mask, bias) = (mask.map(filled).transpose()?, bias.map(filled).transpose()?);
            let (k, v) = (put(past, k)?, put(past_values, v)?);
            Operands { q, k, v, past: Dim::int(0), mask, bias, there: Some(there) }
        }
        _ => {
            let length = past.map_or(Ok(Dim::int(0)), |p| p.dim(2))?;
            let (k, v) = (append(past, k), append(past_values, v));
            Operands { q, k, v, past: length, mask, bias, there: None }
        }
    };
    let attended = attend(call, &operands)?;
    Ok(vec![attended.y, operands.k, operands.v, softmax(attended.scores, &[3])])
}

fn multi_head_attention<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    if call.optional(8).is_some() || call.optional(9).is_some() {
        return Err(Error::unsupported("MultiHeadAttention with a shared cache buffer"));
    }
    let heads = heads_of(call)?;
    let first = call.input(0)?;
    // Packed operands are [batch, length, heads, how many, size].
    let packed = |x: Tensor<'b>, k: usize| x.element(3, k).permute(&[0, 2, 1, 3]);
    let (q, k, v) = match (first.rank()?, call.optional(1), call.optional(2)) {
        (5, None, None) => (packed(first, 0), packed(first, 1), packed(first, 2)),
        (3, Some(both), None) if both.rank()? == 5 => (split_heads(first, &heads)?, packed(both, 0), packed(both, 1)),
        (3, Some(k), Some(v)) => {
            let side = |x: Tensor<'b>| if x.rank()? == 4 { Ok(x) } else { split_heads(x, &heads) };
            (split_heads(first, &heads)?, side(k)?, side(v)?)
        }
        _ => return Err(Error::invalid("MultiHeadAttention needs queries, keys and values")),
    };
    let (mut q, mut k, mut v) = (q, k, v);
    if let Some(bias) = call.optional(3) {
        let size = q.dim(3)?;
        let part = |from: Dim, size: &Dim| {
            bias.slice(0, from, &heads * size, 1).reshape(vec![heads.clone(), Dim::int(1), size.clone()])
        };
        q = q + part(Dim::int(0), &size);
        // Keys and values with heads apart come from a cache, with their biases in them.
        if call.optional(1).is_none_or(|k| k.rank() != Ok(4)) {
            k = k + part(&heads * &size, &size);
            v = v + part(&heads * &size * 2, &v.dim(3)?);
        }
    }
    let past = call.optional(6);
    let length = past.map_or(Ok(Dim::int(0)), |p| p.dim(2))?;
    let (k, v) = (append(past, k), append(call.optional(7), v));
    let (mask, bias) = (call.optional(4), call.optional(5));
    let attended = attend(call, &Operands { q, k, v, past: length, mask, bias, there: None })?;
    Ok(vec![attended.y, k, v, attended.scores])
}
