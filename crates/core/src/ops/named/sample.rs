//! GridSample and AffineGrid: images read at coordinates that are data.

use super::interpolate::cubic;
use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::prim::{Gather, View};
use crate::tensor::{DType, Dim, Shape, Symbol};

pub(super) static OPS: &[NamedOp] = &[
    NamedOp {
        name: "GridSample",
        domain: "",
        since: 16,
        attributes: &["align_corners", "mode", "padding_mode"],
        doc: "the image interpolated at the coordinates of a grid, which run from -1 to 1",
        expand: grid_sample,
    },
    NamedOp::contributed(
        "GridSample",
        &["align_corners", "mode", "padding_mode"],
        "GridSample of the standard operator set",
        grid_sample,
    ),
    NamedOp {
        name: "AffineGrid",
        domain: "",
        since: 20,
        attributes: &["align_corners"],
        doc: "the coordinates of an image under affine transformations",
        expand: affine_grid,
    },
];

/// What is read outside of the image.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Padding {
    Zeros,
    Border,
    Reflection,
}

/// One axis of the image, with the coordinates that the grid asks for.
struct GridAxis<'b> {
    size: Dim,
    places: Tensor<'b>,
    padding: Padding,
    aligned: bool,
}

/// A neighbour along one axis: its place inside of the image, its weight, and where it counts at all.
#[derive(Clone, Copy)]
struct Tap<'b> {
    place: Tensor<'b>,
    weight: Option<Tensor<'b>>,
    inside: Option<Tensor<'b>>,
}

fn grid_sample<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let (x, grid) = (call.input(0)?, call.input(1)?);
    let Some(axes) = x.rank()?.checked_sub(2).filter(|n| *n > 0 && grid.rank() == Ok(n + 2)) else {
        return Err(Error::invalid(format!("GridSample of {} at {}", x.ty()?, grid.ty()?)));
    };
    call.builder.require_equal(&grid.dim(axes + 1)?, &axes.into(), "GridSample takes a coordinate for each axis")?;
    call.builder.require_equal(&grid.dim(0)?, &x.dim(0)?, "the batches of GridSample")?;
    let padding = match call.str_or("padding_mode", "zeros")? {
        "zeros" => Padding::Zeros,
        "border" => Padding::Border,
        "reflection" => Padding::Reflection,
        other => return Err(Error::invalid(format!("GridSample with padding_mode {other}"))),
    };
    let aligned = call.flag("align_corners", false)?;
    let mode = call.str_or("mode", "linear")?;
    let dtype = x.dtype()?;
    let blends = mode != "nearest";
    let wide = if dtype == DType::F64 || !blends { dtype } else { DType::F32 };
    let mut taps: Vec<Vec<Tap<'b>>> = Vec::with_capacity(axes);
    for k in 0..axes {
        let size = x.dim(2 + k)?;
        // The grid names the last axis first.
        let places = denormalized(grid.element(axes + 1, axes - 1 - k), &size, aligned);
        let axis = GridAxis { size, places, padding, aligned };
        taps.push(match mode {
            "nearest" => axis.nearest(),
            "linear" | "bilinear" => axis.linear(wide),
            "cubic" | "bicubic" => axis.cubic(wide),
            other => return Err(Error::invalid(format!("GridSample with mode {other}"))),
        });
    }
    let x = x.cast(wide);
    let mut shape = x.shape()?.dims()[..2].to_vec();
    shape.extend_from_slice(&grid.shape()?.dims()[1..=axes]);
    let shape = Shape::from(shape);
    let mut sum: Option<Tensor<'b>> = None;
    for chosen in combinations(&taps) {
        let part = read(x, &shape, &chosen);
        sum = Some(sum.map_or(part, |s| s + part));
    }
    let sum = sum.ok_or_else(|| Error::bug("an axis without neighbours"))?;
    Ok(vec![sum.cast(dtype)])
}

/// Coordinates from -1 to 1 as places along an axis.
fn denormalized<'b>(coordinates: Tensor<'b>, size: &Dim, aligned: bool) -> Tensor<'b> {
    let shifted = coordinates + 1.0;
    if aligned { shifted * &(size - 1) / 2.0 } else { (shifted * size - 1.0) / 2.0 }
}

/// Every way to choose one neighbour along each axis.
fn combinations<'b>(taps: &[Vec<Tap<'b>>]) -> Vec<Vec<Tap<'b>>> {
    taps.iter().fold(vec![Vec::new()], |chosen, axis| {
        chosen.iter().flat_map(|c| axis.iter().map(move |tap| [c.as_slice(), &[*tap]].concat())).collect()
    })
}

/// The elements at one neighbour of every place, weighted.
fn read<'b>(x: Tensor<'b>, shape: &Shape, taps: &[Tap<'b>]) -> Tensor<'b> {
    // What is computed once for every place is the same for all channels.
    let places: Vec<Dim> = std::iter::once(0).chain(2..shape.rank()).map(Dim::axis).collect();
    let spread = |t: Tensor<'b>| t.view(View::new(shape.clone(), places.clone()));
    let mut map = vec![Dim::axis(0), Dim::axis(1)];
    map.extend((0..taps.len()).map(|k| Dim::from(Symbol::Read(k as u8))));
    let indices: Vec<Tensor<'b>> = taps.iter().map(|tap| spread(tap.place)).collect();
    let mut value = x.gather(Gather { shape: shape.clone(), map }, &indices);
    if let Some(inside) = taps.iter().filter_map(|tap| tap.inside).reduce(|a, b| a.and(b)) {
        value = spread(inside).select(value, 0.0);
    }
    match taps.iter().filter_map(|tap| tap.weight).reduce(|a, b| a * b) {
        Some(weight) => value * spread(weight),
        None => value,
    }
}

impl<'b> GridAxis<'b> {
    fn nearest(&self) -> Vec<Tap<'b>> {
        let place = self.bounded(self.places.round()).cast(DType::I64);
        vec![self.tap(place, None)]
    }

    fn linear(&self, dtype: DType) -> Vec<Tap<'b>> {
        let places = self.bounded(self.places);
        let (low, t) = (places.floor().cast(DType::I64), (places - places.floor()).cast(dtype));
        vec![self.tap(low, Some(-t + 1.0)), self.tap(low + 1, Some(t))]
    }

    fn cubic(&self, dtype: DType) -> Vec<Tap<'b>> {
        const SHARPNESS: f64 = -0.75;
        let places = self.bounded(self.places);
        let (low, t) = (places.floor().cast(DType::I64), (places - places.floor()).cast(dtype));
        (-1..=2i32).map(|k| self.tap(low + k, Some(cubic(t - f64::from(k), SHARPNESS)))).collect()
    }

    /// Places near enough to the image to be integers; those far outside are moved to where they read the same.
    fn bounded(&self, places: Tensor<'b>) -> Tensor<'b> {
        match self.padding {
            // Further out than any filter reaches.
            Padding::Zeros | Padding::Border => places.max(-4.0).min(&(&self.size + 4)),
            Padding::Reflection => {
                let (start, span) = if self.aligned { (0.0, &self.size - 1) } else { (-0.5, self.size.clone()) };
                let period = (&span * 2).max_with(&Dim::int(1));
                let distance = (places - start).modulo(&period);
                let mirrored = -distance + &(span * 2);
                distance.min(mirrored) + start
            }
        }
    }

    /// A neighbour, whose place may lie just outside.
    fn tap(&self, place: Tensor<'b>, weight: Option<Tensor<'b>>) -> Tap<'b> {
        let last = &self.size - 1;
        let clamped = |place: Tensor<'b>| place.max(0).min(&last);
        match self.padding {
            Padding::Zeros => {
                let inside = place.ge(0).and(place.lt(&self.size));
                Tap { place: clamped(place), weight, inside: Some(inside) }
            }
            Padding::Border => Tap { place: clamped(place), weight, inside: None },
            Padding::Reflection => {
                let span = if self.aligned { last.clone() } else { self.size.clone() };
                let period = (&span * 2).max_with(&Dim::int(1));
                let distance = place.modulo(&period);
                let mirrored = -distance + &(&span * 2 - i64::from(!self.aligned));
                Tap { place: clamped(distance.min(mirrored)), weight, inside: None }
            }
        }
    }
}

fn affine_grid<'b>(call: &Call<'_, 'b>) -> Result<Vec<Tensor<'b>>> {
    let theta = call.input(0)?;
    let size = call.dims(1, "the size")?;
    let axes = size.len().checked_sub(2).filter(|n| *n > 0);
    let axes = axes.ok_or_else(|| Error::invalid(format!("AffineGrid of {} sizes", size.len())))?;
    if theta.rank()? != 3 {
        return Err(Error::invalid(format!("AffineGrid with transformations {}", theta.ty()?)));
    }
    let matrices = Shape::new([size[0].clone(), axes.into(), (axes + 1).into()]);
    for (k, dim) in matrices.dims().iter().enumerate() {
        call.builder.require_equal(&theta.dim(k)?, dim, "the transformations of AffineGrid")?;
    }
    let theta = theta.with_shape(matrices);
    let aligned = call.flag("align_corners", false)?;
    let dtype = theta.dtype()?;
    let image = &size[2..];
    let mut dims = vec![size[0].clone()];
    dims.extend_from_slice(image);
    dims.push(axes.into());
    let shape = Shape::from(dims);
    // theta[n, k, j] at every place of the image.
    let column = |j: usize| {
        let column = theta.element(2, j);
        column.view(View::new(shape.clone(), vec![Dim::axis(0), Dim::axis(axes + 1)]))
    };
    let mut sum = column(axes);
    for j in 0..axes {
        let axis = axes - 1 - j; // the last axis comes first
        let (i, n) = (Dim::axis(1 + axis), &image[axis]);
        // From -1 to 1 between the outermost elements or their outer edges; one element lies in the middle.
        let (over, under) =
            if aligned { (i * 2 + 1 - n, (n - 1).max_with(&Dim::int(1))) } else { (i * 2 + 1 - n, n.clone()) };
        let place = call.builder.index(&over, &shape).cast(dtype) / call.builder.size(&under).cast(dtype);
        sum = sum + column(j) * place;
    }
    Ok(vec![sum])
}
