//! Operators that make tensors from nothing or from a few numbers.

use super::amount::{Amount, amounts};
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::{Builder, Tensor};
use crate::tensor::{DType, Dim, Literal, Shape};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp {
        name: "Constant",
        domain: "",
        since: 1,
        attributes: &["value", "value_float", "value_floats", "value_int", "value_ints"],
        doc: "a tensor given as an attribute",
        expand: constant,
    },
    NamedOp {
        name: "ConstantOfShape",
        domain: "",
        since: 9,
        attributes: &["value"],
        doc: "a tensor of the shape given, filled with one value",
        expand: constant_of_shape,
    },
    NamedOp {
        name: "Range",
        domain: "",
        since: 11,
        attributes: &[],
        doc: "the numbers from `start` on in steps of `delta`, before `limit`",
        expand: range,
    },
    NamedOp {
        name: "EyeLike",
        domain: "",
        since: 9,
        attributes: &["dtype", "k"],
        doc: "a matrix of the operand's shape with ones on a diagonal, zeros elsewhere",
        expand: eye_like,
    },
];

fn constant<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let literal = if let Some(value) = call.tensor("value")? {
        value.clone()
    } else if let Some(x) = call.float("value_float")? {
        Literal::from_f64s(DType::F32, [], &[x])?
    } else if let Some(list) = call.floats("value_floats")? {
        Literal::from_f64s(DType::F32, [list.len()], list)?
    } else if let Some(n) = call.int("value_int")? {
        Literal::from_ints(DType::I64, [], &[n])?
    } else if let Some(list) = call.ints("value_ints")? {
        Literal::i64s(list)
    } else {
        return Err(Error::invalid("Constant without a value"));
    };
    Ok(vec![call.builder.constant(literal)])
}

fn constant_of_shape<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let shape: Shape = call.dims(0, "the shape")?.into();
    let value = match call.tensor("value")? {
        Some(value) if value.count() == 1 => value.clone().reshaped([])?,
        Some(value) => return Err(Error::invalid(format!("ConstantOfShape with a value of type {}", value.ty()))),
        None => Literal::from_f64s(DType::F32, [], &[0.0])?,
    };
    Ok(vec![call.builder.constant(value).expand(shape)])
}

fn range<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let b = call.builder;
    let (start, limit, delta) = (scalar(call, 0)?, scalar(call, 1)?, scalar(call, 2)?);
    let dtype = start.dtype()?;
    if let Some((first, len, step)) = known_range(b, start, limit, delta)? {
        let len = Shape::new([len]);
        return Ok(vec![b.index(&(first + Dim::axis(0) * step), &len).cast(dtype)]);
    }
    let len = if dtype.is_float() {
        ((limit - start) / delta).ceil().max(0.0)
    } else {
        let (start, limit, delta) = (start.cast(DType::I64), limit.cast(DType::I64), delta.cast(DType::I64));
        // The distance in the direction of the steps, divided and rounded up.
        let distance = delta.lt(0).select(start - limit, limit - start);
        let step = delta.abs();
        (distance.max(0) + step - 1) / step
    };
    let shape = Shape::new([b.bind(len)?]);
    let place = b.coordinate(0, &shape).cast(dtype);
    Ok(vec![start + place * delta])
}

fn scalar<'b>(call: &Call<'_, 'b>, k: usize) -> Result<Tensor<'b>> {
    Ok(call.input(k)?.reshape(Shape::scalar()))
}

/// First element, length and step of an integer range whose bounds are known and whose step is a number.
fn known_range<'b>(
    b: &'b Builder,
    start: Tensor<'b>,
    limit: Tensor<'b>,
    delta: Tensor<'b>,
) -> Result<Option<(Dim, Dim, i64)>> {
    if !start.dtype()?.is_int() {
        return Ok(None);
    }
    let known = |t: Tensor<'b>| -> Result<Option<Dim>> { Ok(amounts(b, t, "a bound of Range")?[0].known().cloned()) };
    let (Some(start), Some(limit)) = (known(start)?, known(limit)?) else { return Ok(None) };
    let Some(step) = amounts(b, delta, "the step of Range")?.first().and_then(Amount::as_int) else { return Ok(None) };
    if step == 0 {
        return Err(Error::invalid("Range with a step of 0"));
    }
    let distance = if step > 0 { &limit - &start } else { &start - &limit };
    let len = distance.max_with(&Dim::int(0)).ceildiv(&Dim::int(step.saturating_abs()));
    Ok(Some((start, len, step)))
}

fn eye_like<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let like = call.input(0)?.ty()?;
    let shape = match like.shape.dims() {
        [n] => Shape::new([n.clone(), n.clone()]),
        [_, _] => like.shape,
        _ => return Err(Error::invalid(format!("EyeLike of {like}, which is no matrix"))),
    };
    let dtype = call.dtype("dtype")?.unwrap_or(like.dtype);
    let offset = call.builder.index(&(Dim::axis(1) - Dim::axis(0)), &shape);
    Ok(vec![offset.equal(call.int_or("k", 0)?).cast(dtype)])
}
