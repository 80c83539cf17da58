//! The same elements at other coordinates.

use super::{Builder, Tensor};
use crate::error::{Error, Result};
use crate::ops::Number;
use crate::ops::prim::{Concat, Guard, View, identity_map};
use crate::tensor::{Dim, Shape};

impl Builder {
    /// Tensors behind one another along an axis; other sizes must agree.
    pub fn concat<'b>(&'b self, tensors: &[Tensor<'b>], axis: i64) -> Tensor<'b> {
        let build = || -> Result<Tensor<'b>> {
            let Some(first) = tensors.first() else { return Err(Error::invalid("concat of nothing")) };
            let axis = first.axis(axis)?;
            let wanted = first.shape()?;
            let mut aligned = Vec::with_capacity(tensors.len());
            for tensor in tensors {
                let mut dims = tensor.shape()?.dims().to_vec();
                if dims.len() != wanted.rank() {
                    return Err(Error::invalid(format!("concat of tensors {} and {}", first.ty()?, tensor.ty()?)));
                }
                for (k, dim) in dims.iter_mut().enumerate().filter(|(k, _)| *k != axis) {
                    self.require_equal(&wanted[k], dim, "concat")?;
                    *dim = wanted[k].clone();
                }
                aligned.push(tensor.with_shape(dims.into()));
            }
            if let [only] = aligned.as_slice() {
                return Ok(*only);
            }
            Ok(self.add(Concat { axis }, &aligned))
        };
        self.settle(build())
    }
}

/// One axis of sliding windows.
#[derive(Clone, Debug)]
pub struct WindowAxis {
    /// elements in a window
    pub size: Dim,
    /// distance between windows
    pub stride: i64,
    /// distance between elements of a window
    pub dilation: i64,
    /// elements before the first one
    pub before: Dim,
    /// number of windows
    pub count: Dim,
}

impl<'b> Tensor<'b> {
    /// Seen through a view.
    pub fn view(self, view: View) -> Tensor<'b> {
        self.build(|| {
            if view.is_identity(&self.shape()?) {
                return Ok(self);
            }
            Ok(self.builder.add(view, &[self]))
        })
    }

    /// Broadcast to a shape: aligned at the end, sizes of 1 repeat.
    pub fn expand(self, shape: impl Into<Shape>) -> Tensor<'b> {
        let shape = shape.into();
        self.build(|| {
            let own = self.shape()?;
            let skip = shape.rank().checked_sub(own.rank());
            let skip = skip.ok_or_else(|| Error::invalid(format!("shape {own} does not broadcast to {shape}")))?;
            let mut map = Vec::with_capacity(own.rank());
            for (k, dim) in own.dims().iter().enumerate() {
                if dim.is(1) {
                    map.push(Dim::int(0));
                } else {
                    self.builder.require_equal(dim, &shape[skip + k], "broadcasting")?;
                    map.push(Dim::axis(skip + k));
                }
            }
            Ok(self.view(View::new(shape.clone(), map)))
        })
    }

    /// The same elements in row-major order with another shape of the same count.
    pub fn reshape(self, shape: impl Into<Shape>) -> Tensor<'b> {
        let shape = shape.into();
        self.build(|| {
            let own = self.shape()?;
            if own == shape {
                return Ok(self);
            }
            shape.check()?;
            self.builder.require_equal(&own.count(), &shape.count(), &format!("reshape of {own} to {shape}"))?;
            Ok(self.view(View::reshape(&own, shape)))
        })
    }

    /// The same tensor under a shape that is equal size by size, as far as can be known.
    pub fn with_shape(self, shape: Shape) -> Tensor<'b> {
        self.build(|| {
            let rank = self.rank()?;
            Ok(if self.shape()? == shape { self } else { self.view(View::new(shape, identity_map(rank))) })
        })
    }

    /// New axes of size 1 at these places of the result (ascending).
    pub fn insert_axes(self, axes: &[usize]) -> Tensor<'b> {
        self.build(|| {
            let own = self.shape()?;
            let rank = own.rank() + axes.len();
            Shape::check_rank(rank)?;
            let mut old = own.dims().iter();
            let mut dims = Vec::with_capacity(rank);
            let mut map = Vec::with_capacity(own.rank());
            for k in 0..rank {
                if axes.contains(&k) {
                    dims.push(Dim::int(1));
                } else {
                    let dim = old
                        .next()
                        .ok_or_else(|| Error::invalid(format!("no place for new axes {axes:?} in shape {own}")))?;
                    dims.push(dim.clone());
                    map.push(Dim::axis(k));
                }
            }
            Ok(self.view(View::new(dims.into(), map)))
        })
    }

    /// Without the axes given, which must have the size 1.
    pub fn remove_axes(self, axes: &[usize]) -> Tensor<'b> {
        self.build(|| {
            let own = self.shape()?;
            for axis in axes {
                let dim = own.dims().get(*axis).ok_or_else(|| Error::invalid(format!("axis {axis} of shape {own}")))?;
                self.builder.require_equal(dim, &Dim::int(1), "removing an axis")?;
            }
            let kept: Vec<usize> = (0..own.rank()).filter(|k| !axes.contains(k)).collect();
            let mut map = vec![Dim::int(0); own.rank()];
            for (to, from) in kept.iter().enumerate() {
                map[*from] = Dim::axis(to);
            }
            let shape: Shape = kept.iter().map(|k| own[*k].clone()).collect();
            Ok(self.view(View::new(shape, map)))
        })
    }

    /// A reduced tensor spread over the axes it lost; `full` is the shape before the reduction.
    pub fn restore_axes(self, axes: &[usize], full: &Shape) -> Tensor<'b> {
        let kept = (0..full.rank()).filter(|k| !axes.contains(k));
        self.view(View::new(full.clone(), kept.map(Dim::axis).collect()))
    }

    /// Axes in another order: axis `k` of the result is axis `order[k]`.
    pub fn permute(self, order: &[usize]) -> Tensor<'b> {
        self.build(|| {
            let own = self.shape()?;
            let mut sorted = order.to_vec();
            sorted.sort_unstable();
            if !sorted.iter().copied().eq(0..own.rank()) {
                return Err(Error::invalid(format!("{order:?} is not an order of the axes of shape {own}")));
            }
            let mut map = vec![Dim::int(0); own.rank()];
            for (to, from) in order.iter().enumerate() {
                map[*from] = Dim::axis(to);
            }
            Ok(self.view(View::new(order.iter().map(|k| own[*k].clone()).collect(), map)))
        })
    }

    /// The last two axes exchanged.
    pub fn transpose(self) -> Tensor<'b> {
        self.build(|| {
            let mut order: Vec<usize> = (0..self.rank()?).collect();
            let n = order.len();
            if n < 2 {
                return Err(Error::invalid(format!("transpose of a tensor of shape {}", self.shape()?)));
            }
            order.swap(n - 2, n - 1);
            Ok(self.permute(&order))
        })
    }

    /// `len` elements along an axis from `start` on, every `step`-th (a negative step walks back).
    pub fn slice(self, axis: usize, start: impl Into<Dim>, len: impl Into<Dim>, step: i64) -> Tensor<'b> {
        let (start, len) = (start.into(), len.into());
        self.build(|| {
            let mut dims = self.shape()?.dims().to_vec();
            let mut map = identity_map(dims.len());
            let slot = dims.get_mut(axis).ok_or_else(|| Error::invalid(format!("slice along axis {axis}")))?;
            *slot = len;
            map[axis] = Dim::axis(axis) * step + start;
            Ok(self.view(View::new(dims.into(), map)))
        })
    }

    /// One place along an axis, which disappears.
    pub fn element(self, axis: usize, at: impl Into<Dim>) -> Tensor<'b> {
        self.slice(axis, at, 1usize, 1).remove_axes(&[axis])
    }

    /// The elements along an axis in reverse order.
    pub fn flip(self, axis: usize) -> Tensor<'b> {
        self.build(|| {
            let len = self.dim(axis)?;
            Ok(self.slice(axis, &len - 1, len, -1))
        })
    }

    /// Filled up with `fill` before and after each axis; negative amounts cut off.
    pub fn pad(self, before: &[Dim], after: &[Dim], fill: f64) -> Tensor<'b> {
        self.build(|| {
            let ty = self.ty()?;
            let own = ty.shape;
            if before.len() != own.rank() || after.len() != own.rank() {
                return Err(Error::invalid(format!("padding of {} axes for shape {own}", before.len())));
            }
            let mut dims = Vec::new();
            let mut map = Vec::new();
            let mut guard = Vec::new();
            for k in 0..own.rank() {
                dims.push(&own[k] + &before[k] + &after[k]);
                let index = Dim::axis(k) - &before[k];
                guard.push(Guard { index: index.clone(), bound: own[k].clone() });
                map.push(index);
            }
            Ok(self.view(View::guarded(dims.into(), map, guard, Number::new(ty.dtype, fill))))
        })
    }

    /// Sliding windows over the last axes: shape `[leading…, counts…, window sizes…]`; outside of the tensor is `fill`.
    pub fn windows(self, axes: &[WindowAxis], fill: f64) -> Tensor<'b> {
        self.build(|| {
            let ty = self.ty()?;
            let own = ty.shape;
            let leading = own.rank().checked_sub(axes.len());
            let leading =
                leading.ok_or_else(|| Error::invalid(format!("{} window axes for shape {own}", axes.len())))?;
            let mut dims: Vec<Dim> = own.dims()[..leading].to_vec();
            dims.extend(axes.iter().map(|a| a.count.clone()));
            dims.extend(axes.iter().map(|a| a.size.clone()));
            let mut map = identity_map(leading);
            let mut guard = Vec::new();
            for (k, axis) in axes.iter().enumerate() {
                let (place, inside) = (Dim::axis(leading + k), Dim::axis(leading + axes.len() + k));
                let index = place * axis.stride + inside * axis.dilation - &axis.before;
                guard.push(Guard { index: index.clone(), bound: own[leading + k].clone() });
                map.push(index);
            }
            Ok(self.view(View::guarded(dims.into(), map, guard, Number::new(ty.dtype, fill))))
        })
    }
}
