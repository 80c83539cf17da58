//! Products of matrices.

use super::{Call, NamedOp, quantization};
use crate::error::{Error, Result};
use crate::graph::Tensor;

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard("MatMul", 1, &[], "the product of the last two axes, the others broadcast", |call| {
        Ok(vec![call.input(0)?.matmul(call.input(1)?)])
    }),
    NamedOp::standard(
        "Gemm",
        1,
        &["alpha", "beta", "transA", "transB", "broadcast"],
        "alpha · A · B + beta · C, where A and B may be transposed",
        |call| Ok(vec![gemm(call)?]),
    ),
    NamedOp::standard(
        "MatMulInteger",
        10,
        &[],
        "the product of 8-bit integers less their zero points, in i32",
        |call| {
            let a = quantization::centred(call.input(0)?, call.optional(2).map(per_row).transpose()?)?;
            let b = quantization::centred(call.input(1)?, call.optional(3))?;
            Ok(vec![a.matmul(b)])
        },
    ),
];

/// A zero point or scale of the rows of a matrix: a vector gets an axis for the columns.
pub(super) fn per_row(zero: Tensor<'_>) -> Result<Tensor<'_>> {
    let shape = zero.shape()?;
    Ok(if shape.rank() == 1 && !shape[0].is(1) { zero.insert_axes(&[1]) } else { zero })
}

/// alpha · A · B + beta · C by the attributes of a call.
pub(super) fn gemm<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    if a.rank()? != 2 || b.rank()? != 2 {
        return Err(Error::invalid(format!("{} of {} and {}", call.op.name, a.ty()?, b.ty()?)));
    }
    let subscripts = general_subscripts((call.flag("transA", false)?, call.flag("transB", false)?));
    let product = scaled(call, a.contract(subscripts, b), "alpha")?;
    let Some(c) = call.optional(2) else { return Ok(product) };
    Ok(product + scaled(call, c, "beta")?.expand(product.shape()?))
}

/// The contraction of two matrices, each of which may be transposed.
pub(super) fn general_subscripts(transposed: (bool, bool)) -> &'static str {
    match transposed {
        (false, false) => "mk,kn->mn",
        (false, true) => "mk,nk->mn",
        (true, false) => "km,kn->mn",
        (true, true) => "km,nk->mn",
    }
}

/// A tensor times a float attribute whose default is 1.
pub(super) fn scaled<'b>(call: &Call<'_, 'b>, x: Tensor<'b>, name: &str) -> Result<Tensor<'b>> {
    let factor = call.float_or(name, 1.0)?;
    if factor == 1.0 {
        return Ok(x);
    }
    if x.dtype()?.is_int() && factor.fract() != 0.0 {
        return Err(call.unsupported(name, format!("{factor} for integers")));
    }
    Ok(x * factor)
}
