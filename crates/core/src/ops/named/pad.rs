//! Pad: more elements before and after each axis, or fewer.

use super::amount::{Amount, amounts};
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::Number;
use crate::ops::prim::{Guard, View};
use crate::tensor::{DType, Dim, Literal, Shape};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp {
        name: "Pad",
        domain: "",
        since: 1,
        attributes: &["pads", "paddings", "value", "mode"],
        doc: "elements added before and after axes (negative amounts cut off): constant, edge, reflect or wrap",
        expand: pad,
    },
    NamedOp::contributed("Pad", &["mode", "pads", "paddings", "value"], "Pad of the standard operator set", pad),
    NamedOp {
        name: "CenterCropPad",
        domain: "",
        since: 18,
        attributes: &["axes"],
        doc: "cut or filled up with zeros on both sides to the sizes given",
        expand: center_crop_pad,
    },
];

/// What is read outside of an axis.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    Constant,
    Edge,
    Reflect,
    Wrap,
}

fn pad<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let mode = match call.str_or("mode", "constant")? {
        "constant" => Mode::Constant,
        "edge" => Mode::Edge,
        "reflect" => Mode::Reflect,
        "wrap" => Mode::Wrap,
        other => return Err(Error::invalid(format!("Pad with mode {other}"))),
    };
    let (mut before, mut after) = amounts_by_axis(call, x)?;
    if mode == Mode::Constant {
        return Ok(vec![pad_constant(call, x, &before, &after)?]);
    }
    let x = cut(x, &mut before, &mut after)?;
    let own = x.shape()?;
    let mut dims = Vec::with_capacity(own.rank());
    let mut map = Vec::with_capacity(own.rank());
    for (k, size) in own.dims().iter().enumerate() {
        let at = Dim::axis(k) - &before[k];
        let untouched = before[k].is(0) && after[k].is(0);
        map.push(if untouched { at } else { inside(mode, &at, size, &before[k], &after[k]) });
        dims.push(size + &before[k] + &after[k]);
    }
    Ok(vec![x.view(View::new(dims.into(), map))])
}

/// The tensor less what negative amounts cut off, which nothing outside of it stands for; the amounts are those that are left.
fn cut<'b>(mut x: Tensor<'b>, before: &mut [Dim], after: &mut [Dim]) -> Result<Tensor<'b>> {
    let zero = Dim::int(0);
    for axis in 0..before.len() {
        let [front, back] = [&before[axis], &after[axis]].map(|amount| (-amount).max_with(&zero));
        if front.is(0) && back.is(0) {
            continue;
        }
        let size = x.dim(axis)? - &front - &back;
        if size.as_int().is_some_and(|size| size <= 0) {
            let (all, front, back) = (x.dim(axis)?, &before[axis], &after[axis]);
            return Err(Error::invalid(format!(
                "Pad by {front} and {back} leaves nothing of an axis of {all} to repeat"
            )));
        }
        x = x.slice(axis, front, size, 1);
        before[axis] = before[axis].max_with(&zero);
        after[axis] = after[axis].max_with(&zero);
    }
    Ok(x)
}

/// The place inside of an axis that stands for the place `at`, which may lie outside.
fn inside(mode: Mode, at: &Dim, size: &Dim, before: &Dim, after: &Dim) -> Dim {
    let last = size - 1;
    match mode {
        Mode::Constant | Mode::Edge => at.max_with(&Dim::int(0)).min_with(&last),
        Mode::Wrap => at.modulo(size),
        Mode::Reflect => {
            let period = &last * 2;
            let once = |amount: &Dim| (&last - amount).is_nonnegative();
            let distance =
                if once(before) && once(after) { at.max_with(&-at) } else { at.modulo(&period.max_with(&Dim::int(1))) };
            distance.min_with(&(period - &distance))
        }
    }
}

/// Amounts before and after every axis, from the attribute or the operands that give them.
fn amounts_by_axis<'b>(call: &Call<'_, 'b>, x: Tensor<'b>) -> Result<(Vec<Dim>, Vec<Dim>)> {
    let given = match (call.ints("pads")?, call.ints("paddings")?) {
        (Some(list), _) | (None, Some(list)) => list.iter().map(|n| Amount::Known(Dim::int(*n))).collect(),
        (None, None) => amounts(call.builder, call.input(1)?, "pads")?,
    };
    let axes = match call.constant_ints(3, "axes")? {
        Some(axes) => axes.iter().map(|a| x.axis(*a)).collect::<Result<Vec<_>>>()?,
        None => (0..x.rank()?).collect(),
    };
    if given.len() != 2 * axes.len() {
        return Err(Error::invalid(format!("Pad with {} amounts for {} axes", given.len(), axes.len())));
    }
    let mut before = vec![Dim::int(0); x.rank()?];
    let mut after = before.clone();
    // Symbols are sizes, and so are what is added and what is cut off.
    let amount = |k: usize| match &given[k] {
        Amount::Known(dim) => Ok(dim.clone()),
        Amount::Unknown(tensor) => {
            let [added, cut] = [*tensor, -*tensor].map(|amount| call.builder.bind(amount.max(0i64)));
            Ok(added? - cut?)
        }
    };
    for (k, axis) in axes.iter().enumerate() {
        before[*axis] = amount(k)?;
        after[*axis] = amount(axes.len() + k)?;
    }
    Ok((before, after))
}

fn pad_constant<'b>(call: &Call<'_, 'b>, x: Tensor<'b>, before: &[Dim], after: &[Dim]) -> Result<Tensor<'b>> {
    let dtype = x.dtype()?;
    let Some(value) = call.optional(2) else {
        let value = call.float("value")?.unwrap_or(0.0);
        return fill_around(x, before, after, Number::new(dtype, value));
    };
    if value.dtype()? != dtype {
        return Err(Error::invalid(format!("Pad of {} with a value of type {}", x.ty()?, value.ty()?)));
    }
    if let Some(literal) = call.builder.constant_of(value).filter(|l| l.count() == 1) {
        return fill_around(x, before, after, number(&literal));
    }
    // A value that only the run knows: where the padded tensor is not read, it is chosen.
    let padded = fill_around(x, before, after, Number::new(dtype, 0.0))?;
    let everywhere = call.builder.scalar(DType::Bool, 1.0).expand(x.shape()?);
    let inside = fill_around(everywhere, before, after, Number::Int(0))?;
    Ok(inside.select(padded, value.reshape(Shape::scalar())))
}

fn number(literal: &Literal) -> Number {
    if literal.dtype().is_float() {
        Number::new(literal.dtype(), literal.float(0))
    } else {
        Number::from_int(literal.dtype(), literal.int(0))
    }
}

fn fill_around<'b>(x: Tensor<'b>, before: &[Dim], after: &[Dim], fill: Number) -> Result<Tensor<'b>> {
    let own = x.shape()?;
    let mut dims = Vec::with_capacity(own.rank());
    let mut map = Vec::with_capacity(own.rank());
    let mut guard = Vec::with_capacity(own.rank());
    for (k, size) in own.dims().iter().enumerate() {
        let index = Dim::axis(k) - &before[k];
        guard.push(Guard { index: index.clone(), bound: size.clone() });
        map.push(index);
        dims.push(size + &before[k] + &after[k]);
    }
    Ok(x.view(View::guarded(dims.into(), map, guard, fill)))
}

fn center_crop_pad<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let own = x.shape()?;
    let wanted = call.dims(1, "the shape")?;
    let axes = match call.ints("axes")? {
        Some(axes) => axes.iter().map(|a| x.axis(*a)).collect::<Result<Vec<_>>>()?,
        None => (0..own.rank()).collect(),
    };
    if axes.len() != wanted.len() {
        return Err(Error::invalid(format!("CenterCropPad with {} sizes for {} axes", wanted.len(), axes.len())));
    }
    let (two, zero) = (Dim::int(2), Dim::int(0));
    let mut before = vec![zero.clone(); own.rank()];
    let mut after = before.clone();
    for (axis, size) in axes.into_iter().zip(wanted) {
        let more = &size - &own[axis];
        // Of an odd number of elements the larger half goes behind, whether they are added or cut.
        before[axis] = more.max_with(&zero).floordiv(&two) - (-&more).max_with(&zero).floordiv(&two);
        after[axis] = more - &before[axis];
    }
    Ok(vec![fill_around(x, &before, &after, Number::new(x.dtype()?, 0.0))?])
}
