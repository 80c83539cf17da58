//! Handles that read like mathematics: `(x - x.mean(&[1])) / y`.

mod arithmetic;
mod contraction;
mod indexing;
mod views;

pub use arithmetic::Operand;
pub use views::WindowAxis;

use super::{Builder, Value};
use crate::error::{Error, Result};
use crate::tensor::{DType, Dim, Shape, TensorType};

/// A value of a graph under construction.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'b> {
    builder: &'b Builder,
    value: Value,
}

impl Builder {
    /// The tensor, or the poison that stands for the error, which is kept.
    pub fn settle<'b>(&'b self, result: Result<Tensor<'b>>) -> Tensor<'b> {
        result.unwrap_or_else(|error| self.fail(error))
    }
}

impl<'b> Tensor<'b> {
    pub(super) fn new(builder: &'b Builder, value: Value) -> Tensor<'b> {
        Tensor { builder, value }
    }

    /// The graph it belongs to.
    pub fn builder(self) -> &'b Builder {
        self.builder
    }

    /// Its place in the graph.
    pub fn value(self) -> Value {
        self.value
    }

    /// Whether it stands for a failed operation.
    pub fn is_poisoned(self) -> bool {
        self.value == Value::POISON
    }

    /// Its type; the kept error where it is poisoned.
    pub fn ty(self) -> Result<TensorType> {
        if self.is_poisoned() {
            let error = self.builder.take_error();
            let kept = error.clone().unwrap_or_else(|| Error::bug("a value that depends on an earlier error"));
            if let Some(error) = error {
                self.builder.fail(error);
            }
            return Err(kept);
        }
        Ok(self.builder.with_graph(|g| g.ty(self.value).clone()))
    }

    /// Its element type.
    pub fn dtype(self) -> Result<DType> {
        self.ty().map(|ty| ty.dtype)
    }

    /// Its shape.
    pub fn shape(self) -> Result<Shape> {
        self.ty().map(|ty| ty.shape)
    }

    /// Its number of axes.
    pub fn rank(self) -> Result<usize> {
        self.shape().map(|shape| shape.rank())
    }

    /// The size of an axis.
    pub fn dim(self, axis: usize) -> Result<Dim> {
        let shape = self.shape()?;
        shape
            .dims()
            .get(axis)
            .cloned()
            .ok_or_else(|| Error::invalid(format!("axis {axis} of a tensor of shape {shape}")))
    }

    /// The type, or that of a scalar where it is poisoned (the error is kept by the builder).
    pub(crate) fn ty_or_scalar(self) -> TensorType {
        self.ty().unwrap_or_else(|_| TensorType::new(DType::F32, Shape::scalar()))
    }

    pub(crate) fn dtype_or_f32(self) -> DType {
        self.ty_or_scalar().dtype
    }

    /// The number of an axis that may be counted from the end.
    pub fn axis(self, axis: i64) -> Result<usize> {
        let rank = self.rank()? as i64;
        let at = if axis < 0 { axis + rank } else { axis };
        if !(0..rank).contains(&at) {
            return Err(Error::invalid(format!("axis {axis} of a tensor with {rank} axes")));
        }
        Ok(at as usize)
    }

    /// The numbers of several axes that may be counted from the end, ascending, each once.
    pub fn axes(self, axes: &[i64]) -> Result<Vec<usize>> {
        let mut all: Vec<usize> = axes.iter().map(|a| self.axis(*a)).collect::<Result<_>>()?;
        all.sort_unstable();
        if all.windows(2).any(|w| w[0] == w[1]) {
            return Err(Error::invalid(format!("an axis is named twice in {axes:?}")));
        }
        Ok(all)
    }

    fn build(self, build: impl FnOnce() -> Result<Tensor<'b>>) -> Tensor<'b> {
        if self.is_poisoned() {
            return self;
        }
        self.builder.settle(build())
    }
}
