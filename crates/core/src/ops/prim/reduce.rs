//! Folding elements with a monoid.

use super::{Access, Class, OperandMap, Primitive, expect_args, identity_map};
use crate::error::{Error, Result};
use crate::graph::gradient::{Adjoint, NoGradient, OperandGradients};
use crate::ops::Number;
use crate::reference::{Buffer, Run, eval_prefix, eval_reduce};
use crate::tensor::{DType, Dim, Shape, TensorType};

/// An associative fold with a neutral element.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Monoid {
    /// a + b
    Sum,
    /// a · b
    Prod,
    /// the larger; NaN if any is; for bool: any
    Max,
    /// the smaller; NaN if any is; for bool: all
    Min,
    /// position of the first largest
    ArgMax,
    /// position of the first smallest
    ArgMin,
    /// position of the last largest
    ArgMaxLast,
    /// position of the last smallest
    ArgMinLast,
}

impl Monoid {
    /// Every monoid.
    pub const ALL: &'static [Monoid] = &[
        Monoid::Sum,
        Monoid::Prod,
        Monoid::Max,
        Monoid::Min,
        Monoid::ArgMax,
        Monoid::ArgMin,
        Monoid::ArgMaxLast,
        Monoid::ArgMinLast,
    ];

    /// The name in text forms.
    pub fn name(self) -> &'static str {
        match self {
            Monoid::Sum => "sum",
            Monoid::Prod => "prod",
            Monoid::Max => "max",
            Monoid::Min => "min",
            Monoid::ArgMax => "argmax",
            Monoid::ArgMin => "argmin",
            Monoid::ArgMaxLast => "argmax_last",
            Monoid::ArgMinLast => "argmin_last",
        }
    }

    /// The monoid with this name.
    pub fn from_name(name: &str) -> Option<Monoid> {
        Monoid::ALL.iter().copied().find(|m| m.name() == name)
    }

    /// The error where a position is wanted among no elements.
    pub fn of_nothing(self) -> Error {
        Error::invalid(format!("{} over an axis without elements", self.name()))
    }

    /// Whether the result is a position rather than a value.
    pub fn is_position(self) -> bool {
        matches!(self, Monoid::ArgMax | Monoid::ArgMin | Monoid::ArgMaxLast | Monoid::ArgMinLast)
    }

    /// The fold of no elements, as a number of the type; no element is any position.
    pub fn neutral(self, dtype: DType) -> Number {
        let (low, high) = match dtype.int_range() {
            Some((low, high)) => (Number::Int(low as i64), Number::Int(high as i64)),
            None => (Number::new(dtype, f64::NEG_INFINITY), Number::new(dtype, f64::INFINITY)),
        };
        match self {
            Monoid::Sum => Number::new(dtype, 0.0),
            Monoid::Prod => Number::new(dtype, 1.0),
            Monoid::Max => low,
            Monoid::Min => high,
            Monoid::ArgMax | Monoid::ArgMin | Monoid::ArgMaxLast | Monoid::ArgMinLast => Number::Int(-1),
        }
    }

    /// The type of a fold of elements of this type; an error where there is no such fold.
    pub fn result(self, dtype: DType) -> Result<DType> {
        match self {
            Monoid::Sum | Monoid::Prod if dtype == DType::Bool => {
                Err(Error::invalid(format!("{} is not defined for bool", self.name())))
            }
            _ if self.is_position() => Ok(DType::I64),
            _ => Ok(dtype),
        }
    }
}

/// The operand folded over some of its axes, which disappear.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Reduce {
    /// how to fold
    pub monoid: Monoid,
    /// the folded axes, ascending; positions take exactly one
    pub axes: Vec<usize>,
}

impl Primitive for Reduce {
    const NAME: &'static str = "reduce";
    const CLASS: Class = Class::Reduce;
    const DOC: &'static str =
        "The operand folded with a monoid over some axes, which disappear; no elements give the neutral one.";

    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_args(Self::NAME, args, 1)?;
        let rank = args[0].shape.rank();
        let ascending = self.axes.is_sorted_by(|a, b| a < b);
        if !ascending || self.axes.last().is_some_and(|a| *a >= rank) {
            return Err(Error::invalid(format!("reduction over axes {:?} of a tensor {}", self.axes, args[0])));
        }
        if self.monoid.is_position() && self.axes.len() != 1 {
            return Err(Error::invalid(format!("{} reduces exactly one axis", self.monoid.name())));
        }
        let kept = (0..rank).filter(|k| !self.axes.contains(k)).map(|k| args[0].shape[k].clone());
        Ok(vec![TensorType::new(self.monoid.result(args[0].dtype)?, kept.collect::<Shape>())])
    }

    fn access(&self, args: &[TensorType]) -> Option<Access> {
        let shape = &args[0].shape;
        let kept: Vec<usize> = (0..shape.rank()).filter(|k| !self.axes.contains(k)).collect();
        let order: Vec<usize> = kept.iter().chain(&self.axes).copied().collect();
        let mut index = vec![Dim::int(0); shape.rank()];
        for (position, axis) in order.iter().enumerate() {
            index[*axis] = Dim::axis(position);
        }
        Some(Access {
            domain: order.iter().map(|k| shape[*k].clone()).collect(),
            result: identity_map(kept.len()),
            operands: vec![OperandMap { index, guard: Vec::new() }],
        })
    }

    fn eval(&self, args: &[Buffer], run: &mut Run<'_>) -> Result<Vec<Buffer>> {
        eval_reduce(self.monoid, &self.axes, &args[0], run).map(|buffer| vec![buffer])
    }

    fn gradient<'b>(&self, at: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        crate::graph::gradient::of_reduce(self, at)
    }

    fn for_each_dim(&self, _: &mut dyn FnMut(&Dim)) {}

    fn flops(&self, args: &[TensorType]) -> Dim {
        args[0].shape.count()
    }
}

/// Running folds along an axis.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Prefix {
    /// how to fold
    pub monoid: Monoid,
    /// the axis to run along
    pub axis: usize,
    /// whether an element's own value is left out of its fold
    pub exclusive: bool,
}

impl Primitive for Prefix {
    const NAME: &'static str = "prefix";
    const CLASS: Class = Class::Reduce;
    const DOC: &'static str = "The fold of all elements up to each one along an axis, with or without itself.";

    fn infer(&self, args: &[TensorType]) -> Result<Vec<TensorType>> {
        expect_args(Self::NAME, args, 1)?;
        if self.axis >= args[0].shape.rank() || self.monoid.is_position() {
            return Err(Error::invalid(format!(
                "running {} along axis {} of a tensor {}",
                self.monoid.name(),
                self.axis,
                args[0]
            )));
        }
        self.monoid.result(args[0].dtype)?;
        Ok(args.to_vec())
    }

    fn access(&self, _: &[TensorType]) -> Option<Access> {
        None
    }

    fn eval(&self, args: &[Buffer], _: &mut Run<'_>) -> Result<Vec<Buffer>> {
        Ok(vec![eval_prefix(self.monoid, self.axis, self.exclusive, &args[0])])
    }

    fn gradient<'b>(&self, at: &Adjoint<'_, 'b>) -> std::result::Result<OperandGradients<'b>, NoGradient> {
        crate::graph::gradient::of_prefix(self, at)
    }

    fn for_each_dim(&self, _: &mut dyn FnMut(&Dim)) {}

    fn flops(&self, args: &[TensorType]) -> Dim {
        args[0].shape.count()
    }
}
