//! Arithmetic and mathematical functions, element by element.

use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::Scalar;
use crate::tensor::{DType, Shape};

/// Rows that apply one scalar of table 1 to one operand.
macro_rules! unary {
    ($name:literal, $since:literal, $Scalar:ident) => {
        NamedOp::standard(
            $name,
            $since,
            &["consumed_inputs"],
            concat!("the scalar ", stringify!($Scalar), " at every element"),
            |call| Ok(vec![call.input(0)?.apply(Scalar::$Scalar)]),
        )
    };
}

/// Rows that apply one scalar of table 1 to two operands that broadcast.
macro_rules! binary {
    ($name:literal, $since:literal, $Scalar:ident) => {
        NamedOp::standard(
            $name,
            $since,
            $crate::ops::named::elementwise::BINARY_ATTRIBUTES,
            concat!("the scalar ", stringify!($Scalar), " at every element of operands that broadcast"),
            |call| {
                let (a, b) = $crate::ops::named::elementwise::operands(call)?;
                Ok(vec![a.apply2(Scalar::$Scalar, b)])
            },
        )
    };
}

/// Rows that fold one scalar of table 1 over any number of operands that broadcast.
macro_rules! variadic {
    ($name:literal, $Scalar:ident) => {
        NamedOp::standard(
            $name,
            1,
            &["consumed_inputs"],
            concat!("the scalar ", stringify!($Scalar), " folded over the operands, which broadcast"),
            |call| fold(call, Scalar::$Scalar).map(|y| vec![y]),
        )
    };
}

pub(super) use binary;

pub(super) static OPS: &[NamedOp] = &[
    binary!("Add", 1, Add),
    binary!("Sub", 1, Sub),
    binary!("Mul", 1, Mul),
    binary!("Div", 1, Div),
    NamedOp::standard("Pow", 1, BINARY_ATTRIBUTES, "a to the power of b, in the type of a", pow),
    NamedOp::standard(
        "Mod",
        10,
        &["fmod"],
        "the remainder, with the divisor's sign or, as C's fmod, the dividend's",
        modulo,
    ),
    variadic!("Max", Max),
    variadic!("Min", Min),
    variadic!("Sum", Add),
    NamedOp::standard("Mean", 1, &["consumed_inputs"], "the mean of the operands, which broadcast", |call| {
        let count = call.present()?.len() as i64;
        Ok(vec![fold(call, Scalar::Add)? / count])
    }),
    NamedOp::standard("Clip", 1, &["min", "max", "consumed_inputs"], "min(max(x, low), high)", clip),
    NamedOp::standard("Reciprocal", 1, &["consumed_inputs"], "1 / x", |call| Ok(vec![call.input(0)?.recip()])),
    NamedOp::standard("Erf", 9, &[], "the error function; integers truncate", |call| {
        let x = call.input(0)?;
        let dtype = x.dtype()?;
        Ok(vec![as_float(x)?.erf().cast(dtype)])
    }),
    unary!("Neg", 1, Neg),
    unary!("Abs", 1, Abs),
    unary!("Sign", 9, Sign),
    unary!("Floor", 1, Floor),
    unary!("Ceil", 1, Ceil),
    unary!("Round", 11, Round),
    unary!("Sqrt", 1, Sqrt),
    unary!("Exp", 1, Exp),
    unary!("Log", 1, Log),
    unary!("Sin", 7, Sin),
    unary!("Cos", 7, Cos),
    unary!("Tan", 7, Tan),
    unary!("Asin", 7, Asin),
    unary!("Acos", 7, Acos),
    unary!("Atan", 7, Atan),
    unary!("Sinh", 9, Sinh),
    unary!("Cosh", 9, Cosh),
    unary!("Tanh", 1, Tanh),
    unary!("Asinh", 9, Asinh),
    unary!("Acosh", 9, Acosh),
    unary!("Atanh", 9, Atanh),
    unary!("Sigmoid", 1, Sigmoid),
];

/// Attributes of operators on two operands before version 7.
pub(super) const BINARY_ATTRIBUTES: &[&str] = &["axis", "broadcast", "consumed_inputs"];

/// The two operands of a call. Before version 7 an attribute says at which axis of the first operand the axes of the
/// second begin; without it they are aligned at the end, as always from version 7 on.
pub(super) fn operands<'b>(call: &Call<'_, 'b>) -> Result<(Tensor<'b>, Tensor<'b>)> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    let axis = call.int("axis")?.filter(|axis| *axis != -1); // the last axis: aligned at the end
    let Some(axis) = axis.filter(|_| call.opset < 7) else { return Ok((a, b)) };
    let first = a.axis(axis)?;
    let (rank, behind) = (a.rank()?, first + b.rank()?);
    if behind > rank {
        let (a, b) = (a.shape()?, b.shape()?);
        return Err(Error::invalid(format!("shape {b} does not fit into {a} from axis {axis} on")));
    }
    let trailing: Vec<usize> = (b.rank()?..rank - first).collect();
    Ok((a, b.insert_axes(&trailing)))
}

/// A tensor of integers as floats that hold most of them; floats as they are.
pub(super) fn as_float(x: Tensor<'_>) -> Result<Tensor<'_>> {
    Ok(if x.dtype()?.is_float() { x } else { x.cast(DType::F64) })
}

fn fold<'b>(call: &Call<'_, 'b>, op: Scalar) -> Result<Tensor<'b>> {
    let folded = call.present()?.into_iter().reduce(|a, b| a.apply2(op, b));
    folded.ok_or_else(|| Error::invalid(format!("{} of no operands", call.op.name)))
}

fn pow<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (base, exponent) = operands(call)?;
    let result = base.dtype()?;
    let common = match (result, exponent.dtype()?) {
        (a, b) if a == b => a,
        (a, b) if a.is_float() && b.is_float() => wider_float(a, b),
        (a, _) if a.is_float() => a,
        (_, b) if b.is_float() => DType::F64,
        _ => DType::I64, // the low bits of a power do not depend on the width
    };
    Ok(vec![base.cast(common).pow(exponent.cast(common)).cast(result)])
}

/// The smallest float type that holds all numbers of two.
pub(super) fn wider_float(a: DType, b: DType) -> DType {
    match (a, b) {
        (a, b) if a == b => a,
        (DType::F64, _) | (_, DType::F64) => DType::F64,
        _ => DType::F32,
    }
}

fn modulo<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (a, b) = (call.input(0)?, call.input(1)?);
    if call.flag("fmod", false)? {
        return Ok(vec![a.apply2(Scalar::Rem, b)]);
    }
    let rest = a.apply2(Scalar::Mod, b);
    let dtype = rest.dtype()?;
    if !dtype.is_float() {
        return Ok(vec![rest]);
    }
    // A zero, too, has the divisor's sign.
    let zero = b.lt(0.0).select(call.builder.scalar(dtype, -0.0), call.builder.scalar(dtype, 0.0));
    Ok(vec![rest.equal(0.0).select(zero, rest)])
}

fn clip<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    // Where bounds are attributes with defaults, these are numbers: what is infinite is clipped by them.
    let farthest = (6..11).contains(&call.opset).then_some(f64::from(f32::MAX));
    let bound = |name: &str, k: usize, default: Option<f64>| -> Result<Option<Tensor<'b>>> {
        if let Some(number) = call.float(name)?.or(default) {
            return Ok(Some(call.builder.scalar(x.dtype()?, number)));
        }
        Ok(call.optional(k).map(|bound| bound.reshape(Shape::scalar())))
    };
    let (low, high) = (bound("min", 1, farthest.map(|x| -x))?, bound("max", 2, farthest)?);
    let raised = low.map_or(x, |low| x.max(low));
    Ok(vec![high.map_or(raised, |high| raised.min(high))])
}
