//! Comparisons, logic and bits, element by element.

use super::elementwise::{BINARY_ATTRIBUTES, binary, operands};
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::Scalar;
use crate::ops::prim::Monoid;
use crate::tensor::DType;

pub(super) static OPS: &[NamedOp] = &[
    binary!("And", 1, And),
    binary!("Or", 1, Or),
    binary!("Xor", 1, Xor),
    NamedOp::standard("Not", 1, &[], "whether x is false", |call| Ok(vec![call.input(0)?.not()])),
    binary!("BitwiseAnd", 18, And),
    binary!("BitwiseOr", 18, Or),
    binary!("BitwiseXor", 18, Xor),
    NamedOp::standard("BitwiseNot", 18, &[], "all bits inverted", |call| Ok(vec![call.input(0)?.not()])),
    NamedOp::standard("BitShift", 11, &["direction"], "bits moved to the left or to the right", bit_shift),
    binary!("Equal", 1, Eq),
    binary!("Less", 1, Lt),
    binary!("LessOrEqual", 12, Le),
    NamedOp::standard("Greater", 1, BINARY_ATTRIBUTES, "whether a > b", |call| {
        let (a, b) = operands(call)?;
        Ok(vec![a.gt(b)])
    }),
    NamedOp::standard("GreaterOrEqual", 12, &[], "whether a ≥ b", |call| Ok(vec![call.input(0)?.ge(call.input(1)?)])),
    NamedOp::standard("Where", 9, &[], "a where the condition holds, otherwise b", |call| {
        Ok(vec![call.input(0)?.select(call.input(1)?, call.input(2)?)])
    }),
    NamedOp::standard("IsNaN", 9, &[], "whether x is not a number", |call| Ok(vec![call.input(0)?.is_nan()])),
    NamedOp::standard("IsInf", 10, &["detect_negative", "detect_positive"], "whether x is infinite", is_inf),
    NamedOp::contributed("IsAllFinite", &["isinf_only", "isnan_only"], "whether no element is infinite or NaN", finite),
];

fn bit_shift<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (x, amount) = (call.input(0)?, call.input(1)?);
    match call.str_or("direction", "")? {
        "LEFT" => Ok(vec![x << amount]),
        // So many bits that none is left leave the sign.
        "RIGHT" if x.dtype()?.int_range().is_some_and(|(least, _)| least < 0) => {
            let last = x.dtype()?.bits() as i64 - 1;
            let all = call.builder.int(x.dtype()?, last);
            let most = amount.gt(last).select(all, amount);
            Ok(vec![x >> amount.lt(0).select(all, most)])
        }
        "RIGHT" => Ok(vec![x >> amount]),
        other => Err(Error::invalid(format!("attribute direction of BitShift is \"{other}\", not LEFT or RIGHT"))),
    }
}

fn is_inf<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let (negative, positive) = (call.flag("detect_negative", true)?, call.flag("detect_positive", true)?);
    Ok(vec![match (negative, positive) {
        (true, true) => x.abs().equal(f64::INFINITY),
        (true, false) => x.equal(f64::NEG_INFINITY),
        (false, true) => x.equal(f64::INFINITY),
        (false, false) => call.builder.int(DType::Bool, 0).expand(x.shape()?),
    }])
}

fn finite<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (only_inf, only_nan) = (call.flag("isinf_only", false)?, call.flag("isnan_only", false)?);
    let mut all = call.builder.int(DType::Bool, 1);
    for x in call.present()? {
        let good = match (only_inf, only_nan) {
            (false, true) => x.is_nan().not(),
            (true, false) => x.abs().not_equal(f64::INFINITY),
            _ => x.abs().lt(f64::INFINITY),
        };
        all = all.and(good.reduce(Monoid::Min, &(0..x.rank()?).collect::<Vec<_>>()));
    }
    Ok(vec![all])
}
