//! Attention without a softmax: a state of key × value, updated step by step.

use super::time_loop::{Stepped, over_time};
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::View;
use crate::tensor::{DType, Dim};

const ATTRIBUTES: &[&str] = &["chunk_size", "kv_num_heads", "q_num_heads", "scale", "state_window", "update_rule"];

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard(
        "LinearAttention",
        27,
        ATTRIBUTES,
        "linear attention: a loop over time that carries the matrix of keys and values",
        linear_attention,
    ),
    NamedOp::contributed(
        "LinearAttention",
        ATTRIBUTES,
        "linear attention; query heads may also share one query among several key heads",
        linear_attention,
    ),
];

/// How a step changes the state.
#[derive(Clone, Copy, Debug)]
struct Rule {
    /// the old state decays
    gated: bool,
    /// only the difference to what the state already holds for the key is written
    delta: bool,
}

impl Rule {
    fn of(call: &Call<'_, '_>) -> Result<Rule> {
        let (gated, delta) = match call.str_or("update_rule", "gated_delta")? {
            "linear" => (false, false),
            "gated" => (true, false),
            "delta" => (false, true),
            "gated_delta" => (true, true),
            other => return Err(Error::invalid(format!("attribute update_rule = \"{other}\" of LinearAttention"))),
        };
        for (wanted, k, name) in [(gated, 4, "decay"), (delta, 5, "beta")] {
            if wanted != call.optional(k).is_some() {
                let verb = if wanted { "needs" } else { "takes no" };
                return Err(Error::invalid(format!("LinearAttention with this update_rule {verb} operand {name}")));
            }
        }
        Ok(Rule { gated, delta })
    }
}

/// `[batch, time, heads·size]` as f32 `[time, batch, heads, size]`.
fn heads_in_time<'b>(x: Tensor<'b>, heads: &Dim) -> Result<Tensor<'b>> {
    if x.rank()? != 3 {
        return Err(Error::invalid(format!("LinearAttention of an operand of shape {}", x.shape()?)));
    }
    let size = x.dim(2)?.floordiv(heads);
    let split = x.reshape(vec![x.dim(0)?, x.dim(1)?, heads.clone(), size]);
    Ok(split.permute(&[1, 0, 2, 3]).cast(DType::F32))
}

fn heads(call: &Call<'_, '_>, name: &str) -> Result<i64> {
    let count = call.int(name)?;
    count.filter(|n| *n > 0).ok_or_else(|| Error::invalid(format!("LinearAttention needs attribute {name} above 0")))
}

fn linear_attention<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let rule = Rule::of(call)?;
    let (q_heads, kv_heads) = (heads(call, "q_num_heads")?, heads(call, "kv_num_heads")?);
    let out_heads = q_heads.max(kv_heads);
    if out_heads % q_heads != 0 || out_heads % kv_heads != 0 {
        return Err(Error::invalid(format!("{q_heads} query heads and {kv_heads} key heads do not share evenly")));
    }
    if call.int_or("state_window", 0)? != 0 {
        return Err(call.unsupported("state_window", call.int_or("state_window", 0)?));
    }
    let (kv, group) = (Dim::int(kv_heads), Dim::int(out_heads / kv_heads));
    let q = heads_in_time(call.input(0)?, &Dim::int(q_heads))?;
    let (time, batch, key_size) = (q.dim(0)?, q.dim(1)?, q.dim(3)?);
    // Output head `g` of key head `h` reads query head `h·group + g`, or one that several key heads share.
    let head = (Dim::axis(2) * &group + Dim::axis(3)).floordiv(&Dim::int(out_heads / q_heads));
    let shape = vec![time.clone(), batch.clone(), kv.clone(), group, key_size.clone()];
    let q = q.view(View::new(shape.into(), vec![Dim::axis(0), Dim::axis(1), head, Dim::axis(4)]));
    let k = heads_in_time(call.input(1)?, &kv)?;
    let v = heads_in_time(call.input(2)?, &kv)?;
    let value_size = v.dim(3)?;
    let kept = match call.optional(4).filter(|_| rule.gated) {
        None => None,
        Some(decay) => {
            if decay.dim(2)? != kv {
                call.builder.require_equal(&decay.dim(2)?, &(&kv * &key_size), "decay per key element")?;
            }
            Some(heads_in_time(decay, &kv)?.exp())
        }
    };
    let rate = match call.optional(5).filter(|_| rule.delta) {
        None => None,
        Some(beta) => Some(heads_in_time(beta, &beta.dim(2)?)?),
    };
    let shape = vec![batch, kv, key_size.clone(), value_size.clone()];
    let (state, state_dtype) = match call.optional(3) {
        Some(past) => (past.cast(DType::F32).expand(shape), past.dtype()?),
        None => (call.builder.scalar(DType::F32, 0.0).expand(shape), call.input(0)?.dtype()?),
    };
    let results = over_time(call.builder, "LinearAttention", &time, &[state], |inside, state| {
        let mut state = state[0];
        if let Some(kept) = kept {
            state = state * inside.slice(kept)?.insert_axes(&[3]);
        }
        let k = inside.slice(k)?;
        let mut v = inside.slice(v)?;
        if let Some(rate) = rate {
            v = inside.slice(rate)? * (v - k.contract("bhd,bhdm->bhm", state));
        }
        state = state + k.insert_axes(&[3]) * v.insert_axes(&[2]);
        let read = inside.slice(q)?.contract("bhgd,bhdm->bhgm", state);
        Ok(Stepped { state: vec![state], slices: vec![read] })
    })?;
    let scale = match call.float_or("scale", 0.0)? {
        0.0 => call.builder.size(&key_size).cast(DType::F32).sqrt().recip(),
        given => call.builder.scalar(DType::F32, given),
    };
    let query = call.input(0)?.ty()?;
    let y = (results[1] * scale).permute(&[1, 0, 2, 3, 4]);
    let y = y.reshape(vec![query.shape[0].clone(), query.shape[1].clone(), value_size * out_heads]);
    Ok(vec![y.cast(query.dtype), results[0].cast(state_dtype)])
}
