//! Elementwise functions, folds and sorting; operands broadcast.

use super::{Builder, Tensor};
use crate::error::{Error, Result};
use crate::ops::prim::{Map, Monoid, Prefix, Reduce, Sort};
use crate::ops::{Expr, Number, Scalar};
use crate::tensor::{DType, Dim, Shape, TensorType};

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
                if y.complexity() < x.complexity() { y } else { x }
            });
        }
        Ok(dims.into())
    }
}

impl<'b> Tensor<'b> {
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
