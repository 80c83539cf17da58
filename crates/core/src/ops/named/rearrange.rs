//! Operators that regroup elements: blocks and channels, columns and images, sequences and triangles.

use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::Number;
use crate::ops::prim::{Gather, Guard, Monoid, View, identity_map};
use crate::tensor::{DType, Dim, Shape, Symbol};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp {
        name: "DepthToSpace",
        domain: "",
        since: 1,
        attributes: &["blocksize", "mode"],
        doc: "channels moved into blocks of the image",
        expand: depth_to_space,
    },
    NamedOp {
        name: "SpaceToDepth",
        domain: "",
        since: 1,
        attributes: &["blocksize", "mode"],
        doc: "blocks of the image moved into channels",
        expand: space_to_depth,
    },
    NamedOp {
        name: "ReverseSequence",
        domain: "",
        since: 10,
        attributes: &["batch_axis", "time_axis"],
        doc: "the first elements along the time axis reversed, as many as each batch says",
        expand: reverse_sequence,
    },
    NamedOp {
        name: "Trilu",
        domain: "",
        since: 14,
        attributes: &["upper"],
        doc: "the upper or lower triangle of matrices, zeros elsewhere",
        expand: trilu,
    },
    NamedOp::contributed("Trilu", &["upper"], "Trilu of the standard operator set", trilu),
    NamedOp::contributed(
        "UnfoldTensor",
        &["dim", "size", "step"],
        "the runs of elements along an axis, every so many elements, each along a new last axis",
        unfold,
    ),
    NamedOp {
        name: "Col2Im",
        domain: "",
        since: 18,
        attributes: &["dilations", "pads", "strides"],
        doc: "columns of blocks added into the image that they overlap in",
        expand: col2im,
    },
];

/// An image batch `[n, c, h, w]` and a block size.
fn blocks<'b>(call: &Call<'_, 'b>) -> Result<(Tensor<'b>, [Dim; 4], i64)> {
    let x = call.input(0)?;
    let block = call.int("blocksize")?.filter(|b| *b > 0);
    let block = block.ok_or_else(|| Error::invalid(format!("{} needs a positive blocksize", call.op.name)))?;
    match x.shape()?.dims() {
        [n, c, h, w] => Ok((x, [n.clone(), c.clone(), h.clone(), w.clone()], block)),
        _ => Err(Error::invalid(format!("{} takes four axes, not {}", call.op.name, x.ty()?))),
    }
}

fn depth_to_space<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (x, [n, c, h, w], block) = blocks(call)?;
    let b = Dim::int(block);
    let depth = c.floordiv(&(&b * &b));
    let split = match call.str_or("mode", "DCR")? {
        "DCR" => x.reshape(Shape::new([&n, &b, &b, &depth, &h, &w].map(Dim::clone))).permute(&[0, 3, 4, 1, 5, 2]),
        "CRD" => x.reshape(Shape::new([&n, &depth, &b, &b, &h, &w].map(Dim::clone))).permute(&[0, 1, 4, 2, 5, 3]),
        other => return Err(Error::invalid(format!("DepthToSpace with mode {other}"))),
    };
    Ok(vec![split.reshape(Shape::new([n, depth, h * &b, w * &b]))])
}

fn space_to_depth<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (x, [n, c, h, w], block) = blocks(call)?;
    let b = Dim::int(block);
    let (rows, columns) = (h.floordiv(&b), w.floordiv(&b));
    let split = x.reshape(Shape::new([&n, &c, &rows, &b, &columns, &b].map(Dim::clone)));
    let depth = c * &b * &b;
    let order = match call.str_or("mode", "DCR")? {
        "DCR" => [0, 3, 5, 1, 2, 4],
        "CRD" => [0, 1, 3, 5, 2, 4],
        other => return Err(Error::invalid(format!("SpaceToDepth with mode {other}"))),
    };
    Ok(vec![split.permute(&order).reshape(Shape::new([n, depth, rows, columns]))])
}

fn reverse_sequence<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (x, lengths) = (call.input(0)?, call.input(1)?);
    let (batch, time) = (x.axis(call.int_or("batch_axis", 1)?)?, x.axis(call.int_or("time_axis", 0)?)?);
    let shape = x.shape()?;
    if lengths.rank()? != 1 || batch == time {
        return Err(Error::invalid(format!("ReverseSequence of {} with lengths {}", x.ty()?, lengths.ty()?)));
    }
    call.builder.require_equal(&lengths.dim(0)?, &shape[batch], "ReverseSequence takes a length for each batch")?;
    let length = lengths.cast(DType::I64).view(View::new(shape.clone(), vec![Dim::axis(batch)]));
    let place = call.builder.coordinate(time, &shape);
    let source = place.lt(length).select(length - place - 1, place);
    let mut map = identity_map(shape.rank());
    map[time] = Symbol::Read(0).into();
    Ok(vec![x.gather(Gather { shape, map }, &[source])])
}

fn trilu<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let shape = x.shape()?;
    let Some(row) = shape.rank().checked_sub(2) else {
        return Err(Error::invalid(format!("Trilu of {}, which is no matrix", x.ty()?)));
    };
    let diagonal = match call.optional(1) {
        Some(k) => k.cast(DType::I64).reshape(Shape::scalar()),
        None => call.builder.int(DType::I64, 0),
    };
    let offset = call.builder.index(&(Dim::axis(row + 1) - Dim::axis(row)), &shape);
    let kept = if call.flag("upper", true)? { offset.ge(diagonal) } else { offset.le(diagonal) };
    let zero = call.builder.scalar(x.dtype()?, 0.0);
    Ok(vec![kept.select(x, zero)])
}

fn unfold<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let axis = x.axis(call.int_or("dim", -1)?)?;
    let (size, step) = (call.int_or("size", 0)?, call.int_or("step", 1)?);
    if size < 1 || step < 1 {
        return Err(Error::invalid(format!("UnfoldTensor into runs of {size}, every {step}")));
    }
    let mut dims = x.shape()?.dims().to_vec();
    let mut map = identity_map(dims.len());
    map[axis] = Dim::axis(axis) * step + Dim::axis(dims.len());
    dims[axis] = (&dims[axis] - size).floordiv(&Dim::int(step)) + 1;
    dims.push(Dim::int(size));
    Ok(vec![x.view(View::new(dims.into(), map))])
}

fn col2im<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let x = call.input(0)?;
    let (image, block) = (call.dims(1, "the image's shape")?, call.dims(2, "the block's shape")?);
    let axes = image.len();
    let list = |name: &str, default: i64, count: usize| -> Result<Vec<i64>> {
        Ok(call.ints(name)?.map_or_else(|| vec![default; count], <[i64]>::to_vec))
    };
    let (dilations, strides, pads) =
        (list("dilations", 1, axes)?, list("strides", 1, axes)?, list("pads", 0, 2 * axes)?);
    let fits = block.len() == axes && dilations.len() == axes && strides.len() == axes && pads.len() == 2 * axes;
    let own = x.shape()?;
    if !fits || own.rank() != 3 || strides.iter().chain(&dilations).any(|n| *n < 1) {
        return Err(Error::invalid(format!("Col2Im of {} into an image of {axes} axes", x.ty()?)));
    }
    let channels = own[1].floordiv(&block.iter().product());
    let places = |k: usize| -> Dim {
        let span = &image[k] + (pads[k] + pads[axes + k]) - (&block[k] - 1) * dilations[k] - 1;
        span.floordiv(&Dim::int(strides[k])) + 1
    };
    let counts: Vec<Dim> = (0..axes).map(places).collect();
    let columns: Vec<Dim> = [own[0].clone(), channels.clone()]
        .into_iter()
        .chain(block.iter().cloned())
        .chain(counts.iter().cloned())
        .collect();
    let columns = x.reshape(Shape::from(columns));
    // Every element of the image looks back at the blocks that hold it: [n, c, image…, block…].
    let domain = [&[own[0].clone(), channels], image.as_slice(), block.as_slice()].concat();
    let mut map = identity_map(2);
    map.extend((0..axes).map(|k| Dim::axis(2 + axes + k)));
    let mut guard = Vec::new();
    for k in 0..axes {
        let stride = Dim::int(strides[k]);
        let offset = Dim::axis(2 + k) + pads[k] - Dim::axis(2 + axes + k) * dilations[k];
        guard.push(Guard { index: offset.modulo(&stride), bound: Dim::int(1) });
        guard.push(Guard { index: offset.floordiv(&stride), bound: counts[k].clone() });
        map.push(offset.floordiv(&stride));
    }
    let overlapping = columns.view(View::guarded(domain.into(), map, guard, Number::new(x.dtype()?, 0.0)));
    let summed: Vec<usize> = (2 + axes..2 + 2 * axes).collect();
    Ok(vec![overlapping.reduce(Monoid::Sum, &summed)])
}
