//! Operators that make tensors from nothing or from a few numbers.

use super::amount::{Amount, amounts};
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::{Builder, Known, Tensor};
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
    NamedOp::contributed("Range", &[], "Range of the standard operator set, in steps of 1 unless it says", range),
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
    let (start, limit) = (scalar(call, 0)?, scalar(call, 1)?);
    let dtype = start.dtype()?;
    let delta = match call.optional(2) {
        None if !call.op.domain.is_empty() => b.int(dtype, 1),
        _ => scalar(call, 2)?,
    };
    let len = match known_range(b, start, limit, delta)? {
        Some(Length::Sizes { first, len, step }) => {
            let len = Shape::new([len]);
            return Ok(vec![b.index(&(first + Dim::axis(0) * step), &len).cast(dtype)]);
        }
        Some(Length::Number(len)) => Dim::int(len),
        None if dtype.is_float() => b.bind(float_length(b, start, limit, delta)?)?,
        None => {
            let (start, limit, delta) = (start.cast(DType::I64), limit.cast(DType::I64), delta.cast(DType::I64));
            // The distance in the direction of the steps, which an u64 always holds, divided and rounded up. A step of 0 has no length.
            let (is_down, is_zero) = (delta.lt(0), delta.equal(0));
            let distance = is_down.select(start - limit, limit - start).cast(DType::U64);
            let is_empty = is_down.select(start.le(limit), limit.le(start));
            let step = is_down.select(-delta, delta).cast(DType::U64);
            let steps = ((distance - 1) / step).cast(DType::I64) + 1;
            b.bind(is_zero.select(b.int(DType::I64, -1), is_empty.select(b.int(DType::I64, 0), steps)))?
        }
    };
    let place = b.coordinate(0, &Shape::new([len])).cast(dtype);
    Ok(vec![start + place * delta])
}

/// How many floats there are: the quotient as ONNX Runtime has it, the distance rounded and divided exactly. What is not a number is no
/// length; neither is what has no end.
fn float_length<'b>(b: &'b Builder, start: Tensor<'b>, limit: Tensor<'b>, delta: Tensor<'b>) -> Result<Tensor<'b>> {
    let known = |t: Tensor<'b>| b.constant_of(t).filter(|literal| literal.count() == 1).map(|literal| literal.float(0));
    if let (Some(from), Some(to), Some(step)) = (known(start), known(limit), known(delta)) {
        let len = (start.dtype()?.round(to - from) / step).ceil().max(0.0);
        let is_length = len.is_finite() && !(to - from).is_nan() && step != 0.0 && !step.is_nan();
        return match is_length {
            true => Ok(b.int(DType::I64, len as i64)),
            false => Err(Error::invalid(format!("Range from {from} to {to} in steps of {step}"))),
        };
    }
    // What is a size is one also where floats say so.
    let plain = ((limit - start) / delta).ceil().max(0.0).cast(DType::I64);
    if b.contents(plain).is_some_and(|contents| matches!(contents[0], Known::Int(_))) {
        return Ok(plain);
    }
    let len = ((limit - start).cast(DType::F64) / delta.cast(DType::F64)).ceil().max(0.0);
    Ok(len.is_nan().select(b.int(DType::I64, -1), len.cast(DType::I64)))
}

/// How many elements a range of integers has whose bounds and step are known.
enum Length {
    /// as an expression in sizes
    Sizes { first: Dim, len: Dim, step: i64 },
    /// of numbers whose distance may be more than an i64 holds
    Number(i64),
}

fn scalar<'b>(call: &Call<'_, 'b>, k: usize) -> Result<Tensor<'b>> {
    Ok(call.input(k)?.reshape(Shape::scalar()))
}

/// The length of an integer range whose bounds are known and whose step is a number.
fn known_range<'b>(b: &'b Builder, start: Tensor<'b>, limit: Tensor<'b>, delta: Tensor<'b>) -> Result<Option<Length>> {
    if !start.dtype()?.is_int() {
        return Ok(None);
    }
    let known = |t: Tensor<'b>| -> Result<Option<Dim>> { Ok(amounts(b, t, "a bound of Range")?[0].known().cloned()) };
    let (Some(start), Some(limit)) = (known(start)?, known(limit)?) else { return Ok(None) };
    let Some(step) = amounts(b, delta, "the step of Range")?.first().and_then(Amount::as_int) else { return Ok(None) };
    if step == 0 {
        return Err(Error::invalid("Range with a step of 0"));
    }
    if let (Some(from), Some(to)) = (start.as_int(), limit.as_int()) {
        let distance = if step > 0 { i128::from(to) - i128::from(from) } else { i128::from(from) - i128::from(to) };
        let (distance, step) = (distance.max(0), i128::from(step).abs());
        let len = (distance + step - 1) / step;
        // Expressions in sizes hold numbers of 64 bits; what is near their end is computed element by element, which wraps.
        let is_far = |n: i64| n.unsigned_abs() > 1 << 62;
        if distance + step > i128::from(i64::MAX) || is_far(from) || is_far(to) {
            let shown = || Error::limit(format!("a Range of {len} elements"));
            return i64::try_from(len).map(|len| Some(Length::Number(len))).map_err(|_| shown());
        }
    }
    let distance = if step > 0 { &limit - &start } else { &start - &limit };
    let len = distance.max_with(&Dim::int(0)).ceildiv(&Dim::int(step.saturating_abs()));
    Ok(Some(Length::Sizes { first: start, len, step }))
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
