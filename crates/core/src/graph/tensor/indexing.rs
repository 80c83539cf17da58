//! Elements at coordinates that come from data.

use super::super::Known;
use super::Tensor;
use crate::ops::prim::{Gather, Scatter, View};
use crate::tensor::{DType, Dim, Symbol};

impl<'b> Tensor<'b> {
    /// Elements at coordinates given by a map that may read index operands (`@k`), which have the result's shape.
    pub fn gather(self, gather: Gather, indices: &[Tensor<'b>]) -> Tensor<'b> {
        let args: Vec<_> = std::iter::once(self).chain(indices.iter().copied()).collect();
        self.builder.add(gather, &args)
    }

    /// Slices along an axis at the places that `indices` (i64) holds; negative places count from the end.
    pub fn take(self, axis: usize, indices: Tensor<'b>) -> Tensor<'b> {
        self.build(|| {
            let (own, places) = (self.shape()?, indices.shape()?);
            let size = self.dim(axis)?;
            let dims: Vec<Dim> = [&own.dims()[..axis], places.dims(), &own.dims()[axis + 1..]].concat();
            let spread = View::new(dims.clone().into(), (0..places.rank()).map(|k| Dim::axis(axis + k)).collect());
            let index = indices.cast(DType::I64).wrap_index(&size).view(spread);
            let map = (0..own.rank()).map(|k| match k {
                k if k < axis => Dim::axis(k),
                k if k == axis => Symbol::Read(0).into(),
                k => Dim::axis(k - 1 + places.rank()),
            });
            Ok(self.gather(Gather { shape: dims.into(), map: map.collect() }, &[index]))
        })
    }

    /// Indices along an axis of this size, those below zero counted from the end. What lies outside stays as it is, so that it is told as it was given.
    pub fn wrap_index(self, size: &Dim) -> Tensor<'b> {
        let known = self.builder.contents(self);
        let nonnegative = |k: &Known| matches!(k, Known::Int(d) if d.is_nonnegative());
        if known.is_some_and(|c| c.iter().all(nonnegative)) {
            return self;
        }
        let from_end = self + size;
        self.lt(0i64).select(from_end.lt(0i64).select(self, from_end), self)
    }

    /// This tensor with `updates` combined into it.
    pub fn scatter(self, scatter: Scatter, updates: Tensor<'b>, indices: &[Tensor<'b>]) -> Tensor<'b> {
        let args: Vec<_> = [self, updates].into_iter().chain(indices.iter().copied()).collect();
        self.builder.add(scatter, &args)
    }
}
