//! Operators about shapes: asking for them and changing them without moving elements.

use super::amount::{Amount, amounts};
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::{Builder, Tensor};
use crate::tensor::{Dim, Shape};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp {
        name: "Shape",
        domain: "",
        since: 1,
        attributes: &["start", "end"],
        doc: "the sizes from axis `start` up to axis `end`, as a vector",
        expand: shape,
    },
    NamedOp {
        name: "Size",
        domain: "",
        since: 1,
        attributes: &[],
        doc: "the number of elements",
        expand: |call| Ok(vec![call.builder.size(&call.input(0)?.shape()?.count())]),
    },
    NamedOp {
        name: "Reshape",
        domain: "",
        since: 1,
        attributes: &["shape", "allowzero", "consumed_inputs"],
        doc: "the same elements in row-major order under another shape; -1 is the size that fits, 0 copies a size",
        expand: reshape,
    },
    NamedOp {
        name: "Flatten",
        domain: "",
        since: 1,
        attributes: &["axis"],
        doc: "a matrix: the axes before `axis` become its rows, the others its columns",
        expand: flatten,
    },
    NamedOp {
        name: "Squeeze",
        domain: "",
        since: 1,
        attributes: &["axes"],
        doc: "without the axes given, or without every axis of size 1",
        expand: squeeze,
    },
    NamedOp {
        name: "Unsqueeze",
        domain: "",
        since: 1,
        attributes: &["axes"],
        doc: "with new axes of size 1 at the places given",
        expand: unsqueeze,
    },
    NamedOp::contributed("ExpandDims", &[], "one more axis of size 1 at the place given", |call| {
        let x = call.input(0)?;
        let given = call.constant_ints(1, "the axis")?.unwrap_or_default();
        let rank = x.rank()? as i64 + 1;
        Shape::check_rank(rank as usize)?;
        match given[..] {
            [axis] if (-rank..rank).contains(&axis) => Ok(vec![x.insert_axes(&[axis.rem_euclid(rank) as usize])]),
            _ => Err(Error::invalid(format!("ExpandDims at {given:?} of {rank} axes"))),
        }
    }),
    NamedOp { name: "Expand", domain: "", since: 8, attributes: &[], doc: "broadcast against a shape", expand },
];

fn shape<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let shape = call.input(0)?.shape()?;
    let rank = shape.rank() as i64;
    let at = |n: i64| (if n < 0 { n.saturating_add(rank) } else { n }).clamp(0, rank) as usize;
    let (start, end) = (at(call.int_or("start", 0)?), at(call.int_or("end", rank)?));
    Ok(vec![call.builder.sizes(shape.dims().get(start..end).unwrap_or(&[]))])
}

fn reshape<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let wanted = match call.ints("shape")? {
        Some(given) => given.iter().map(|n| Amount::Known(Dim::int(*n))).collect(),
        None => amounts(call.builder, call.input(1)?, "the shape")?,
    };
    let shape = resolve_shape(call.builder, &x.shape()?, wanted, call.flag("allowzero", false)?)?;
    Ok(vec![x.reshape(shape)])
}

/// The shape that a reshape of `own` asks for: -1 is the size that fits, 0 copies the size at its place.
fn resolve_shape(builder: &Builder, own: &Shape, wanted: Vec<Amount<'_>>, allow_zero: bool) -> Result<Shape> {
    let copied = |k: usize| {
        own.dims().get(k).cloned().ok_or_else(|| Error::invalid(format!("size 0 at place {k} of a reshape of {own}")))
    };
    let mut dims: Vec<Option<Dim>> = Vec::with_capacity(wanted.len());
    // Sizes that stand on both sides at one place need no division: it would be by zero where they are zero.
    let mut cancelled = Vec::new();
    for (k, amount) in wanted.iter().enumerate() {
        dims.push(match amount.as_int() {
            Some(-1) => None,
            Some(0) if !allow_zero => {
                cancelled.push(k);
                Some(copied(k)?)
            }
            Some(n) if n < -1 => return Err(Error::invalid(format!("size {n} in a reshape of {own}"))),
            _ => amount.known().cloned(),
        });
    }
    let inferred = wanted.iter().filter(|a| a.as_int() == Some(-1)).count();
    if inferred > 1 {
        return Err(Error::invalid(format!("a reshape of {own} with two sizes of -1")));
    }
    let unknown: Vec<usize> = (0..wanted.len()).filter(|k| wanted[*k].known().is_none()).collect();
    // Of one unknown size only the one that fits is valid, whether it is spelled out, copied or -1.
    if unknown.len() + inferred > 1 {
        for &k in &unknown {
            let size = run_time_size(builder, own, &wanted, k, allow_zero);
            dims[k] = Some(builder.bind(size)?);
        }
    }
    let rest: Dim = (0..own.rank()).filter(|k| !cancelled.contains(k)).map(|k| own[k].clone()).product();
    let given: Dim = (0..dims.len()).filter(|k| !cancelled.contains(k)).filter_map(|k| dims[k].clone()).product();
    if given.is(0) && dims.contains(&None) {
        return Err(Error::invalid(format!("a size of -1 beside a size of 0 in a reshape of {own}")));
    }
    Ok(dims.into_iter().map(|dim| dim.unwrap_or_else(|| rest.floordiv(&given))).collect())
}

/// Element `k` of a reshape's shape, computed at run time: 0 copies, -1 is what is left over.
fn run_time_size<'b>(
    builder: &'b Builder,
    own: &Shape,
    wanted: &[Amount<'b>],
    k: usize,
    allow_zero: bool,
) -> Tensor<'b> {
    let spelled = |k: usize| {
        let size = wanted[k].tensor(builder);
        match own.dims().get(k) {
            Some(dim) if !allow_zero => size.equal(0).select(builder.size(dim), size),
            _ => size,
        }
    };
    let others = (0..wanted.len()).filter(|j| *j != k).map(spelled);
    let product = others.fold(builder.size(&Dim::int(1)), |p, size| p * size);
    let size = spelled(k);
    size.equal(-1).select(builder.size(&own.count()) / product, size)
}

fn flatten<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let shape = x.shape()?;
    let axis = match call.int_or("axis", 1)? {
        axis if axis == shape.rank() as i64 => shape.rank(),
        axis => x.axis(axis)?,
    };
    let (rows, columns) = shape.dims().split_at(axis);
    Ok(vec![x.reshape(Shape::new([rows.iter().product::<Dim>(), columns.iter().product()]))])
}

fn squeeze<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    if let Some(axes) = call.ints_or_input("axes", 1)? {
        return Ok(vec![x.remove_axes(&x.axes(&axes)?)]);
    }
    let shape = x.shape()?;
    for dim in shape.dims().iter().filter(|d| d.as_int().is_none()) {
        // The rank is part of the structure: a size not known yet stays, and the run checks that it is not 1.
        let away = (dim - 1).max_with(&(-dim + 1)).min_with(&Dim::int(1));
        call.builder.suppose_equal(&away, &Dim::int(1), "squeeze without axes keeps sizes that are not constant")?;
    }
    let ones: Vec<usize> = (0..shape.rank()).filter(|k| shape[*k].is(1)).collect();
    Ok(vec![x.remove_axes(&ones)])
}

fn unsqueeze<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let axes = call.ints_or_input("axes", 1)?.ok_or_else(|| Error::invalid("Unsqueeze needs axes"))?;
    let rank = x.rank()? + axes.len();
    Shape::check_rank(rank)?;
    let rank = rank as i64;
    let mut places = Vec::with_capacity(axes.len());
    for axis in &axes {
        let place = if *axis < 0 { axis + rank } else { *axis };
        if !(0..rank).contains(&place) || places.contains(&(place as usize)) {
            return Err(Error::invalid(format!("Unsqueeze with axes {axes:?} to {rank} axes")));
        }
        places.push(place as usize);
    }
    Ok(vec![x.insert_axes(&places)])
}

fn expand<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let own = x.shape()?;
    let mut wanted = call.dims(1, "the shape")?;
    for (dim, mine) in wanted.iter_mut().rev().zip(own.dims().iter().rev()) {
        // A size of the tensor that is not 1 stays; a wanted size not known yet may be 1 as well as equal.
        if dim.as_int().is_none() && mine.as_int().is_some_and(|n| n != 1) {
            let fits = (&*dim - 1) * (&*dim - mine);
            call.builder.require_equal(&fits, &Dim::int(0), "a size must be 1 or equal to broadcast")?;
            *dim = mine.clone();
        }
    }
    let shape = call.builder.broadcast_shapes(&own, &wanted.into())?;
    Ok(vec![x.expand(shape)])
}
