//! Integers that operators take as data: positions, lengths, counts.

use crate::error::{Error, Result};
use crate::graph::{Builder, Known, Tensor};
use crate::tensor::{Dim, MAX_RANK, Shape};

/// An integer operand, as far as it is known while the graph is built.
#[derive(Clone, Debug)]
pub(super) enum Amount<'b> {
    /// an expression in sizes
    Known(Dim),
    /// a scalar (i64) that only the run knows; it may be negative
    Unknown(Tensor<'b>),
}

impl<'b> Amount<'b> {
    /// The expression, if there is one.
    pub fn known(&self) -> Option<&Dim> {
        match self {
            Amount::Known(dim) => Some(dim),
            Amount::Unknown(_) => None,
        }
    }

    /// The number, if it is one.
    pub fn as_int(&self) -> Option<i64> {
        self.known().and_then(Dim::as_int)
    }

    /// The amount as an i64 scalar.
    pub fn tensor(&self, builder: &'b Builder) -> Tensor<'b> {
        match self {
            Amount::Known(dim) => builder.size(dim),
            Amount::Unknown(tensor) => *tensor,
        }
    }
}

/// The elements of an integer vector (or scalar) of known length.
pub(super) fn amounts<'b>(builder: &'b Builder, tensor: Tensor<'b>, what: &str) -> Result<Vec<Amount<'b>>> {
    let ty = tensor.ty()?;
    if !ty.dtype.is_int() || ty.shape.rank() > 1 {
        return Err(Error::invalid(format!("{what} must be a vector of integers, not {ty}")));
    }
    let count = ty.shape.count().as_int();
    if let Some(many) = count.filter(|n| *n > MAX_RANK as i64) {
        return Err(Error::invalid(format!(
            "{what} of {many} elements, more than a tensor may have axes ({MAX_RANK})"
        )));
    }
    let Some(count) = count else {
        return Err(builder.needs_value(tensor, &format!("the number of elements of {what} must be known")));
    };
    let known = builder.contents(tensor);
    let wide = tensor.cast(crate::tensor::DType::I64).reshape(Shape::new([count]));
    let amount = |k: i64| match known.as_ref().and_then(|c| c.get(k as usize)) {
        Some(Known::Int(dim)) => Amount::Known(dim.clone()),
        _ => Amount::Unknown(wide.element(0, k)),
    };
    Ok((0..count).map(amount).collect())
}
