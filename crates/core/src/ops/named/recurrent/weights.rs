//! The weights of a recurrent layer: floats, or 8-bit integers with a scale.

use super::super::quantization::{Dynamic, centred, dynamic_u8_by, saturated};
use super::{Call, Step, shaped};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::tensor::{DType, Dim};

/// Weights `[directions, gates·hidden, inner]`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Weights<'b> {
    /// floats, or integers less their zero point as i32
    pub values: Tensor<'b>,
    /// for integers: the scale, `[directions, 1, gates·hidden]` or `[directions, 1, 1]`
    scale: Option<Tensor<'b>>,
}

impl<'b> Weights<'b> {
    /// The weights in operand `k`. Integers lie as `[directions, inner, gates·hidden]`; their scale is operand
    /// `parameters`, their zero point the one behind it, each a number for a direction or for a row of it.
    pub fn of(call: &Call<'_, 'b>, k: usize, parameters: usize) -> Result<Weights<'b>> {
        let values = call.input(k)?;
        let rank = values.rank()?;
        if rank != 3 {
            return Err(Error::invalid(format!("{} with weights of shape {}", call.op.name, values.shape()?)));
        }
        if values.dtype()?.is_float() {
            return Ok(Weights { values, scale: None });
        }
        let spread = |parameter: Tensor<'b>| match parameter.rank()? {
            1 => Ok(parameter.insert_axes(&[1, 2])),
            2 => Ok(parameter.insert_axes(&[1])),
            _ => Err(Error::invalid(format!("a scale or zero point {} of weights", parameter.ty()?))),
        };
        let zero = call.optional(parameters + 1).map(spread).transpose()?;
        let values = centred(values, zero)?.permute(&[0, 2, 1]);
        Ok(Weights { values, scale: Some(spread(call.input(parameters)?)?) })
    }

    /// The same, each size demanded.
    pub fn shaped(self, dims: &[&Dim], what: &str) -> Result<Weights<'b>> {
        Ok(Weights { values: shaped(self.values, dims, what)?, ..self })
    }

    /// Some of the rows.
    pub fn rows(self, from: Dim, count: Dim) -> Weights<'b> {
        let whole = self.values.dim(1).is_ok_and(|rows| rows == count);
        let by_row = |scale: Tensor<'b>| {
            if whole || scale.dim(2).is_ok_and(|d| d.is(1)) {
                scale
            } else {
                scale.slice(2, from.clone(), count.clone(), 1)
            }
        };
        Weights { values: self.values.slice(1, from.clone(), count.clone(), 1), scale: self.scale.map(by_row) }
    }

    /// The weights seen from inside a loop.
    pub fn captured<'r>(self, inside: &Step<'r, 'b>) -> Result<Weights<'r>> {
        let scale = self.scale.map(|s| inside.capture(s)).transpose()?;
        Ok(Weights { values: inside.capture(self.values)?, scale })
    }

    /// `x` times the weights. With integer weights `x` is quantised first, by its range over `axes`.
    pub fn product(self, x: Tensor<'b>, axes: &[usize], subscripts: &str) -> Result<Tensor<'b>> {
        let Some(scale) = self.scale else { return Ok(x.contract(subscripts, self.values)) };
        let Dynamic { scale: own, zero, quotient } = dynamic_u8_by(x, |monoid| x.reduce_keep(monoid, axes))?;
        let quantised = centred(saturated(quotient, Some(zero), DType::U8)?, Some(zero))?;
        Ok(quantised.contract(subscripts, self.values).cast(x.dtype()?) * (own * scale))
    }
}
