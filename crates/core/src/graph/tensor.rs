//! Handles that read like mathematics: `(x - x.mean(&[1])) / y`.

use super::{Builder, Value};
use crate::error::{Error, Result};
use crate::ops::prim::{
    Concat, Contract, Gather, Guard, Map, Monoid, Prefix, Reduce, Scatter, Sort, View, identity_map,
};
use crate::ops::{Expr, Number, Scalar};
use crate::tensor::{DType, Dim, Shape, Symbol, TensorType};

/// A value of a graph under construction.
#[derive(Clone, Copy, Debug)]
pub struct Tensor<'b> {
    builder: &'b Builder,
    value: Value,
}

/// What can stand beside a tensor in arithmetic: another tensor, or a number, which takes the tensor's type.
pub trait Operand<'b> {
    /// The operand as a tensor of the type of `like`.
    fn beside(self, like: Tensor<'b>) -> Tensor<'b>;
}

impl<'b> Operand<'b> for Tensor<'b> {
    fn beside(self, _: Tensor<'b>) -> Tensor<'b> {
        self
    }
}

impl<'b> Operand<'b> for f64 {
    fn beside(self, like: Tensor<'b>) -> Tensor<'b> {
        like.builder.filled(like, |dtype| Number::new(dtype, self))
    }
}

impl<'b> Operand<'b> for i64 {
    fn beside(self, like: Tensor<'b>) -> Tensor<'b> {
        like.builder.filled(like, |dtype| Number::from_int(dtype, self))
    }
}

impl<'b> Operand<'b> for i32 {
    fn beside(self, like: Tensor<'b>) -> Tensor<'b> {
        i64::from(self).beside(like)
    }
}

impl<'b> Operand<'b> for &Dim {
    fn beside(self, like: Tensor<'b>) -> Tensor<'b> {
        match like.dtype() {
            Ok(dtype) => like.builder.size(self).cast(dtype),
            Err(_) => like.builder.poison(),
        }
    }
}

impl Builder {
    /// A scalar constant of the type of a tensor.
    fn filled<'b>(&'b self, like: Tensor<'b>, number: impl Fn(DType) -> Number) -> Tensor<'b> {
        let Ok(dtype) = like.dtype() else { return self.poison() };
        let expr = Expr::build(&[], |scope, _| scope.constant(dtype, number(dtype)));
        self.add(Map { expr, shape: Shape::scalar() }, &[])
    }

    /// A function of tensors, broadcast against each other as numpy does.
    pub fn apply<'b>(&'b self, op: Scalar, args: &[Tensor<'b>]) -> Tensor<'b> {
        let build = || -> Result<Tensor<'b>> {
            let dtypes: Vec<DType> = args.iter().map(|a| a.dtype()).collect::<Result<_>>()?;
            let expr = Expr::call(op, &dtypes)?;
            let args = self.broadcast(args)?;
            Ok(self.map(&expr, &args))
        };
        self.settle(build())
    }

    /// The tensors with the one shape to which they broadcast.
    pub fn broadcast<'b>(&'b self, tensors: &[Tensor<'b>]) -> Result<Vec<Tensor<'b>>> {
        let mut shape = Shape::scalar();
        for tensor in tensors {
            shape = self.broadcast_shapes(&shape, &tensor.shape()?)?;
        }
        Ok(tensors.iter().map(|t| t.expand(shape.clone())).collect())
    }

    /// The shape to which two shapes broadcast: aligned at the end, a size of 1 gives way.
    /// Sizes that are not known to be equal are taken to be, and checked at run time.
    pub fn broadcast_shapes(&self, a: &Shape, b: &Shape) -> Result<Shape> {
        let rank = a.rank().max(b.rank());
        let one = Dim::int(1);
        let at = |shape: &Shape, k: usize| match (k + shape.rank()).checked_sub(rank) {
            Some(k) => shape[k].clone(),
            None => one.clone(),
        };
        let mut dims = Vec::with_capacity(rank);
        for k in 0..rank {
            let (x, y) = (at(a, k), at(b, k));
            dims.push(if x == y || y.is(1) {
                x
            } else if x.is(1) {
                y
            } else {
                if x.surely_differs(&y) {
                    return Err(Error::invalid(format!("shapes {a} and {b} do not broadcast")));
                }
                self.require_equal(&x, &y, "broadcasting")?;
                // A number says more than a symbol, and a symbol more than an expression.
                let rank = |d: &Dim| if d.as_int().is_some() { 0 } else { 1 + u8::from(d.as_symbol().is_none()) };
                if rank(&y) < rank(&x) { y } else { x }
            });
        }
        Ok(dims.into())
    }

    /// The tensor, or the poison that stands for the error, which is kept.
    pub fn settle<'b>(&'b self, result: Result<Tensor<'b>>) -> Tensor<'b> {
        result.unwrap_or_else(|error| self.fail(error))
    }

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

    /// A function of this tensor alone.
    pub fn apply(self, op: Scalar) -> Tensor<'b> {
        self.builder.apply(op, &[self])
    }

    /// A function of this tensor and another operand.
    pub fn apply2(self, op: Scalar, other: impl Operand<'b>) -> Tensor<'b> {
        self.builder.apply(op, &[self, other.beside(self)])
    }

    /// Converted to another element type.
    pub fn cast(self, dtype: DType) -> Tensor<'b> {
        self.build(|| match self.dtype()? {
            from if from == dtype => Ok(self),
            from => Ok(self.builder.map(&Expr::cast(from, dtype), &[self])),
        })
    }

    /// The stored bits read as another element type of the same width.
    pub fn bits(self, dtype: DType) -> Tensor<'b> {
        self.build(|| match self.dtype()? {
            from if from == dtype => Ok(self),
            from => Ok(self.builder.map(&Expr::bits(from, dtype)?, &[self])),
        })
    }

    /// `yes` where this bool holds, otherwise `no`.
    pub fn select(self, yes: Tensor<'b>, no: impl Operand<'b>) -> Tensor<'b> {
        self.builder.apply(Scalar::Select, &[self, yes, no.beside(yes)])
    }

    /// Whether the elements are not equal.
    pub fn not_equal(self, other: impl Operand<'b>) -> Tensor<'b> {
        self.equal(other).not()
    }

    /// Whether the elements are larger.
    pub fn gt(self, other: impl Operand<'b>) -> Tensor<'b> {
        let other = other.beside(self);
        self.builder.apply(Scalar::Lt, &[other, self])
    }

    /// Whether the elements are larger or equal.
    pub fn ge(self, other: impl Operand<'b>) -> Tensor<'b> {
        let other = other.beside(self);
        self.builder.apply(Scalar::Le, &[other, self])
    }

    /// The square.
    pub fn square(self) -> Tensor<'b> {
        self * self
    }

    /// One divided by the elements.
    pub fn recip(self) -> Tensor<'b> {
        1.0.beside(self) / self
    }

    /// Folded over axes, which disappear.
    pub fn reduce(self, monoid: Monoid, axes: &[usize]) -> Tensor<'b> {
        if axes.is_empty() && !monoid.is_position() {
            return self;
        }
        self.builder.add(Reduce { monoid, axes: axes.to_vec() }, &[self])
    }

    /// Folded over axes, which keep the size 1.
    pub fn reduce_keep(self, monoid: Monoid, axes: &[usize]) -> Tensor<'b> {
        self.reduce(monoid, axes).insert_axes(axes)
    }

    /// The sum over axes, which keep the size 1.
    pub fn sum(self, axes: &[usize]) -> Tensor<'b> {
        self.reduce_keep(Monoid::Sum, axes)
    }

    /// The mean over axes, which keep the size 1.
    pub fn mean(self, axes: &[usize]) -> Tensor<'b> {
        self.build(|| {
            let TensorType { dtype, shape } = self.ty()?;
            let count: Dim = axes.iter().map(|a| shape.dims().get(*a).cloned().unwrap_or(Dim::int(1))).product();
            let exact = |n: i64| Number::from_int(dtype, n).to_f64() == n as f64;
            // Half precision holds few counts; above 65504 an f16 would be infinite.
            let narrow = matches!(dtype, DType::F16 | DType::BF16) && !count.as_int().is_some_and(exact);
            let sum = if narrow { self.cast(DType::F32).sum(axes) } else { self.sum(axes) };
            Ok((sum / &count).cast(dtype))
        })
    }

    /// Running folds along an axis.
    pub fn prefix(self, monoid: Monoid, axis: usize, exclusive: bool) -> Tensor<'b> {
        self.builder.add(Prefix { monoid, axis, exclusive }, &[self])
    }

    /// Sorted along an axis: values and old positions.
    pub fn sort(self, axis: usize, descending: bool) -> (Tensor<'b>, Tensor<'b>) {
        match self.builder.add_multi(Sort { axis, descending }, &[self])[..] {
            [values, positions] => (values, positions),
            _ => (self.builder.poison(), self.builder.poison()),
        }
    }

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

    /// Indices along an axis of this size, those below zero counted from the end.
    pub fn wrap_index(self, size: &Dim) -> Tensor<'b> {
        let known = self.builder.contents(self);
        let nonnegative = |k: &super::Known| matches!(k, super::Known::Int(d) if d.is_nonnegative());
        if known.is_some_and(|c| c.iter().all(nonnegative)) {
            return self;
        }
        self.lt(0i64).select(self + size, self)
    }

    /// This tensor with `updates` combined into it.
    pub fn scatter(self, scatter: Scatter, updates: Tensor<'b>, indices: &[Tensor<'b>]) -> Tensor<'b> {
        let args: Vec<_> = [self, updates].into_iter().chain(indices.iter().copied()).collect();
        self.builder.add(scatter, &args)
    }

    /// A contraction from its subscripts, such as `bmk,bkn->bmn`; half precision accumulates in f32.
    pub fn contract(self, subscripts: &str, other: Tensor<'b>) -> Tensor<'b> {
        self.build(|| {
            let accumulator = accumulator_of(self.dtype()?);
            Ok(self.contract_with(Contract::parse(subscripts, accumulator)?, other))
        })
    }

    /// A contraction; sizes of one label that are not known to be equal are checked at run time.
    pub fn contract_with(self, spec: Contract, other: Tensor<'b>) -> Tensor<'b> {
        self.build(|| {
            let (a, b) = (self.shape()?, other.shape()?);
            let mut dims = b.dims().to_vec();
            for (k, label) in spec.a.iter().enumerate().take(a.rank()) {
                if let Some(j) = spec.b.iter().position(|l| l == label).filter(|j| *j < dims.len()) {
                    self.builder.require_equal(&a[k], &dims[j], &format!("contraction over {}", spec.subscripts()))?;
                    dims[j] = a[k].clone();
                }
            }
            Ok(self.builder.add(spec, &[self, other.with_shape(dims.into())]))
        })
    }

    /// The matrix product of the last two axes, the others broadcast, as numpy's `matmul`.
    pub fn matmul(self, other: Tensor<'b>) -> Tensor<'b> {
        self.build(|| {
            let (ra, rb) = (self.rank()?, other.rank()?);
            match (ra, rb) {
                (0, _) | (_, 0) => Err(Error::invalid("matmul of a scalar")),
                (1, 1) => Ok(self.contract("k,k->", other)),
                (1, _) => Ok(self.insert_axes(&[0]).matmul(other).remove_axes(&[rb - 2])),
                (_, 1) => Ok(self.matmul(other.insert_axes(&[1])).remove_axes(&[ra - 1])),
                _ => self.batched_matmul(other),
            }
        })
    }

    fn batched_matmul(self, other: Tensor<'b>) -> Result<Tensor<'b>> {
        let (sa, sb) = (self.shape()?, other.shape()?);
        let rank = sa.rank().max(sb.rank());
        let labels: Vec<char> = ('a'..='z').chain('A'..='Z').take(rank - 2).collect();
        let (m, k, n) = ('X', 'Y', 'Z');
        if rank - 2 > 40 {
            return Err(Error::unsupported(format!("matmul of tensors with {rank} axes")));
        }
        // A batch axis of size 1 is dropped where the other operand has the axis: it repeats at no cost.
        let trim = |tensor: Tensor<'b>, own: &Shape, other: &Shape| -> Result<(Tensor<'b>, Vec<char>)> {
            let skip = rank - own.rank();
            let mut dropped = Vec::new();
            let mut kept = Vec::new();
            for j in 0..own.rank() - 2 {
                let partner = (skip + j + other.rank()).checked_sub(rank).map(|p| &other[p]);
                if own[j].is(1) && partner.is_some_and(|p| !p.is(1)) {
                    dropped.push(j);
                } else {
                    kept.push(labels[skip + j]);
                }
            }
            Ok((if dropped.is_empty() { tensor } else { tensor.remove_axes(&dropped) }, kept))
        };
        let (a, mut la) = trim(self, &sa, &sb)?;
        let (b, mut lb) = trim(other, &sb, &sa)?;
        la.extend([m, k]);
        lb.extend([k, n]);
        let out = labels.iter().copied().filter(|l| la.contains(l) || lb.contains(l)).chain([m, n]).collect();
        let accumulator = accumulator_of(self.dtype()?);
        Ok(a.contract_with(Contract { a: la, b: lb, out, accumulator }, b))
    }
}

/// The type in which products of a type are summed.
fn accumulator_of(dtype: DType) -> DType {
    match dtype {
        DType::F16 | DType::BF16 => DType::F32,
        DType::I8 | DType::I16 => DType::I32,
        DType::U8 | DType::U16 => DType::U32,
        other => other,
    }
}

macro_rules! methods {
    ($($unary:ident = $Unary:ident,)+; $($binary:ident = $Binary:ident,)+) => {
        impl<'b> Tensor<'b> {
            $(#[doc = concat!("See [`Scalar::", stringify!($Unary), "`].")]
            #[allow(clippy::should_implement_trait, reason = "the methods are named after the scalar table")]
            pub fn $unary(self) -> Tensor<'b> { self.apply(Scalar::$Unary) })+
            $(#[doc = concat!("See [`Scalar::", stringify!($Binary), "`].")]
            pub fn $binary(self, other: impl Operand<'b>) -> Tensor<'b> { self.apply2(Scalar::$Binary, other) })+
        }
    };
}

methods! {
    abs = Abs, sign = Sign, floor = Floor, ceil = Ceil, round = Round, trunc = Trunc, sqrt = Sqrt, exp = Exp, exp2 = Exp2,
    log = Log, log2 = Log2, log1p = Log1p, expm1 = Expm1, sin = Sin, cos = Cos, tan = Tan, tanh = Tanh, erf = Erf,
    sigmoid = Sigmoid, is_nan = IsNan, not = Not,;
    pow = Pow, max = Max, min = Min, modulo = Mod, remainder = Rem, lt = Lt, le = Le, equal = Eq, and = And, or = Or, xor = Xor,
}

macro_rules! operators {
    ($($Trait:ident $method:ident $Op:ident;)+) => { $(
        impl<'b, R: Operand<'b>> std::ops::$Trait<R> for Tensor<'b> {
            type Output = Tensor<'b>;
            fn $method(self, other: R) -> Tensor<'b> { self.apply2(Scalar::$Op, other) }
        }
    )+ };
}

operators! { Add add Add; Sub sub Sub; Mul mul Mul; Div div Div; Shl shl Shl; Shr shr Shr; }

impl<'b> std::ops::Neg for Tensor<'b> {
    type Output = Tensor<'b>;
    fn neg(self) -> Tensor<'b> {
        self.apply(Scalar::Neg)
    }
}
