//! Interpolation along one axis: where each element of the result lies in the operand, and which elements it blends.
//!
//! Where scales are fractions, the places are integer expressions in the coordinates: elements are read through views
//! and only the weights are computed. Where a scale or a region is known only at run time, places are index tensors.

use super::ratio::{Ratio, along};
use crate::error::{Error, Result};
use crate::graph::{Builder, Tensor};
use crate::ops::prim::{Contract, Monoid, View, identity_map};
use crate::tensor::{DType, Dim, Shape};

/// How many times larger the result is.
#[derive(Clone, Debug)]
pub(super) enum Scale<'b> {
    /// a fraction
    Exact(Ratio),
    /// a float scalar that only the run knows
    Float(Tensor<'b>),
}

impl<'b> Scale<'b> {
    fn tensor(&self, builder: &'b Builder) -> Tensor<'b> {
        match self {
            Scale::Exact(ratio) => float(builder, &ratio.over) / float(builder, &ratio.under),
            Scale::Float(scale) => scale.cast(DType::F64),
        }
    }
}

/// A change of one axis.
#[derive(Clone, Debug)]
pub(super) struct Stretch<'b> {
    pub axis: usize,
    /// the old size
    pub from: Dim,
    /// the new size
    pub to: Dim,
    /// the new size before it was rounded to an integer; `None`: old size times scale
    pub width: Option<Ratio>,
    pub scale: Scale<'b>,
}

impl Stretch<'_> {
    /// Whether the axis stays as it is.
    pub fn keeps(&self) -> bool {
        self.from == self.to && matches!(&self.scale, Scale::Exact(ratio) if ratio.is_one())
    }

    fn shape(&self) -> Shape {
        Shape::new([self.to.clone()])
    }
}

/// Which neighbour is taken.
#[derive(Clone, Copy, Debug)]
pub(super) enum Nearest {
    Floor,
    Ceil,
    PreferFloor,
    PreferCeil,
    /// as version 10 has it: the floor where the axis grows, the ceiling where it shrinks
    Outward,
}

impl Nearest {
    /// The neighbour on an axis whose scale is a known number, or the mode itself where only the run knows it.
    fn on(self, scale: &Scale<'_>) -> Nearest {
        match (self, scale) {
            (Nearest::Outward, Scale::Exact(ratio)) if (&ratio.under - &ratio.over - 1).is_nonnegative() => {
                Nearest::Ceil
            }
            (Nearest::Outward, Scale::Exact(_)) => Nearest::Floor,
            (mode, _) => mode,
        }
    }
}

/// How neighbours are blended.
#[derive(Clone, Copy, Debug)]
pub(super) enum Filter {
    Nearest(Nearest),
    Linear,
    /// the cubic convolution with this parameter
    Cubic {
        a: f64,
    },
}

/// The place in the operand of every element of the result along an axis.
pub(super) enum Coordinates<'b> {
    /// a fraction over axis 0
    Exact(Ratio),
    /// a vector of f64 (rounding must not move a place to the other side of an element), and whether places outside of the operand are extrapolated
    Float { places: Tensor<'b>, extrapolates: bool },
}

/// Integer places along an axis.
enum Places<'b> {
    /// an expression over axis 0
    Exact(Dim),
    /// a vector of i64
    Given(Tensor<'b>),
}

fn float<'b>(builder: &'b Builder, dim: &Dim) -> Tensor<'b> {
    builder.size(dim).cast(DType::F64)
}

impl<'b> Coordinates<'b> {
    /// The coordinates of a transformation by its ONNX name; `region` holds the ends of the part that is cut out.
    pub fn of(
        builder: &'b Builder,
        way: &Stretch<'b>,
        mode: &str,
        region: Option<(Tensor<'b>, Tensor<'b>)>,
    ) -> Result<Coordinates<'b>> {
        let known = ["half_pixel", "half_pixel_symmetric", "pytorch_half_pixel", "align_corners", "asymmetric"];
        if !known.contains(&mode) && !["tf_crop_and_resize", "tf_half_pixel_for_nn"].contains(&mode) {
            return Err(Error::invalid(format!("Resize with coordinate_transformation_mode {mode}")));
        }
        if let (Scale::Exact(scale), Some(width), None) = (&way.scale, &way.width, region) {
            return Ok(Coordinates::Exact(exact(way, scale, width, mode)));
        }
        let i = builder.coordinate(0, &way.shape()).cast(DType::F64);
        let (from, to, scale) = (float(builder, &way.from), float(builder, &way.to), way.scale.tensor(builder));
        let width = match &way.width {
            Some(width) => float(builder, &width.over) / float(builder, &width.under),
            None => from * scale,
        };
        let single = width.equal(1.0);
        let half = (i + 0.5) / scale - 0.5;
        // A result of one element must not divide by zero.
        let steps = single.select(width, width - 1.0);
        let places = match (mode, region) {
            ("asymmetric", _) => i / scale,
            ("align_corners", _) => i * (from - 1.0) / steps,
            ("tf_half_pixel_for_nn", _) => (i + 0.5) / scale,
            ("pytorch_half_pixel", _) => to.equal(1.0).not().select(half, 0.0),
            ("half_pixel_symmetric", _) => half + (from - from * to / width) / 2.0,
            ("tf_crop_and_resize", Some((start, end))) => {
                let span = (end - start) * (from - 1.0);
                start * (from - 1.0) + single.select(span / 2.0, i * span / steps)
            }
            _ => half,
        };
        Ok(Coordinates::Float { places, extrapolates: region.is_some() })
    }

    /// Where the place lies outside of the operand and extrapolates; a vector.
    pub fn outside(&self, way: &Stretch<'b>) -> Option<Tensor<'b>> {
        match self {
            Coordinates::Float { places, extrapolates: true } => {
                let last = float(places.builder(), &(&way.from - 1));
                Some(places.lt(0.0).or(places.gt(last)))
            }
            _ => None,
        }
    }

    fn floor(&self) -> Places<'b> {
        match self {
            Coordinates::Exact(place) => Places::Exact(place.floor()),
            Coordinates::Float { places, .. } => Places::Given(places.floor().cast(DType::I64)),
        }
    }

    /// The distance from the floor, in `0..1`: a vector.
    fn fraction(&self, builder: &'b Builder, shape: &Shape, dtype: DType) -> Tensor<'b> {
        match self {
            Coordinates::Exact(place) => place.fraction(builder, shape, dtype),
            Coordinates::Float { places, .. } => (*places - places.floor()).cast(dtype),
        }
    }

    fn nearest(&self, mode: Nearest, scale: &Scale<'b>) -> Places<'b> {
        match self {
            Coordinates::Exact(place) => Places::Exact(match mode {
                Nearest::Floor | Nearest::Outward => place.floor(),
                Nearest::Ceil => place.ceil(),
                Nearest::PreferFloor => place.minus_half().ceil(),
                Nearest::PreferCeil => place.plus_half().floor(),
            }),
            Coordinates::Float { places, .. } => Places::Given(
                match mode {
                    Nearest::Floor => places.floor(),
                    Nearest::Ceil => places.ceil(),
                    Nearest::PreferFloor => (*places - 0.5).ceil(),
                    Nearest::PreferCeil => (*places + 0.5).floor(),
                    Nearest::Outward => {
                        let shrinks = scale.tensor(places.builder()).cast(DType::F32).lt(1.0);
                        shrinks.select(places.ceil(), places.floor())
                    }
                }
                .cast(DType::I64),
            ),
        }
    }
}

/// The place of element `i` (axis 0) as a fraction.
fn exact(way: &Stretch<'_>, scale: &Ratio, width: &Ratio, mode: &str) -> Ratio {
    let i = Dim::axis(0);
    let (up, down) = (&scale.over, &scale.under);
    let half = Ratio { over: (&i * 2 + 1) * down - up, under: up * 2 };
    match mode {
        "asymmetric" => Ratio { over: i * down, under: up.clone() },
        "align_corners" => {
            // A result of one element has only the place 0; its denominator must not be zero.
            let under = (&width.over - &width.under).max_with(&Dim::int(1));
            Ratio { over: i * (&way.from - 1) * &width.under, under }
        }
        "tf_half_pixel_for_nn" => Ratio { over: (i * 2 + 1) * down, under: up * 2 },
        "pytorch_half_pixel" => {
            // A result of one element has only the place 0.
            let several = (&way.to - 1).min_with(&Dim::int(1));
            Ratio { over: half.over * several, under: half.under }
        }
        "half_pixel_symmetric" => Ratio { over: half.over + &way.from * up - &way.to * down, under: half.under },
        _ => half,
    }
}

/// The operand with one axis stretched.
pub(super) fn stretch<'b>(
    x: Tensor<'b>,
    way: &Stretch<'b>,
    coordinates: &Coordinates<'b>,
    filter: Filter,
    antialias: bool,
    exclude_outside: bool,
) -> Result<Tensor<'b>> {
    if let Filter::Nearest(mode) = filter {
        return tap(x, way, &coordinates.nearest(mode.on(&way.scale), &way.scale), 0);
    }
    if antialias {
        return stretch_smoothly(x, way, coordinates, filter, exclude_outside);
    }
    let (b, dtype) = (x.builder(), x.dtype()?);
    let floor = coordinates.floor();
    let t = coordinates.fraction(b, &way.shape(), dtype);
    let trailing: Vec<usize> = (1..x.rank()? - way.axis).collect();
    let Filter::Cubic { a } = filter else {
        let t = t.insert_axes(&trailing);
        let (low, high) = (tap(x, way, &floor, 0)?, tap(x, way, &floor, 1)?);
        return Ok(low * (-t + 1.0) + high * t);
    };
    let mut weights: Vec<Tensor<'b>> = (-1..=2).map(|k| cubic(t - k as f64, a)).collect();
    if exclude_outside {
        for (k, weight) in (-1i64..).zip(&mut weights) {
            *weight = floor.inside(b, way, k).select(*weight, 0.0);
        }
        let total = weights.iter().copied().reduce(|a, b| a + b).expect("a cubic has four weights");
        weights.iter_mut().for_each(|w| *w = *w / total);
    }
    let mut sum = None;
    for (k, weight) in (-1i64..).zip(weights) {
        let part = tap(x, way, &floor, k)? * weight.insert_axes(&trailing);
        sum = Some(sum.map_or(part, |s| s + part));
    }
    Ok(sum.expect("a cubic has four parts"))
}

/// The weight of an element at a distance under the cubic convolution.
pub(super) fn cubic(distance: Tensor<'_>, a: f64) -> Tensor<'_> {
    let x = distance.abs();
    let near = ((x * (a + 2.0) - (a + 3.0)) * x) * x + 1.0;
    let far = ((x * a - 5.0 * a) * x + 8.0 * a) * x - 4.0 * a;
    x.le(1.0).select(near, x.lt(2.0).select(far, 0.0))
}

impl<'b> Places<'b> {
    /// Whether the places moved by `k` lie inside of the operand: a vector of bool.
    fn inside(&self, builder: &'b Builder, way: &Stretch<'b>, k: i64) -> Tensor<'b> {
        let at = match self {
            Places::Exact(dim) => builder.index(&(dim + k), &way.shape()),
            Places::Given(places) => *places + k,
        };
        at.ge(0).and(at.lt(&way.from))
    }
}

/// The elements at the places moved by `k`; places outside stand for the nearest one inside.
fn tap<'b>(x: Tensor<'b>, way: &Stretch<'b>, places: &Places<'b>, k: i64) -> Result<Tensor<'b>> {
    let last = &way.from - 1;
    match places {
        Places::Exact(place) => {
            let mut dims = x.shape()?.dims().to_vec();
            dims[way.axis] = way.to.clone();
            let mut map = identity_map(dims.len());
            map[way.axis] = (along(place, way.axis) + k).max_with(&Dim::int(0)).min_with(&last);
            Ok(x.view(View::new(dims.into(), map)))
        }
        Places::Given(places) => Ok(x.take(way.axis, (*places + k).max(0).min(&last))),
    }
}

/// Stretching with a filter that widens where the axis shrinks, so that every element counts.
fn stretch_smoothly<'b>(
    x: Tensor<'b>,
    way: &Stretch<'b>,
    coordinates: &Coordinates<'b>,
    filter: Filter,
    exclude_outside: bool,
) -> Result<Tensor<'b>> {
    let (b, dtype) = (x.builder(), x.dtype()?);
    let reach = if matches!(filter, Filter::Cubic { .. }) { 2 } else { 1 };
    // The filter covers `half` elements on each side.
    let (half, shrink) = match &way.scale {
        Scale::Exact(scale) => {
            let up = scale.over.min_with(&scale.under);
            let shrink = float(b, &up) / float(b, &scale.under);
            (Ratio { over: &scale.under * reach, under: up }.ceil(), shrink)
        }
        Scale::Float(scale) => {
            let shrink = scale.cast(DType::F64).min(1.0);
            (b.bind((shrink.recip() * reach as f64).ceil())?, shrink)
        }
    };
    let window = Shape::new([way.to.clone(), &half * 2]);
    let offset = Dim::axis(1) + 1 - &half;
    let t = coordinates.fraction(b, &way.shape(), dtype).insert_axes(&[1]);
    let distance = (b.index(&offset, &window).cast(dtype) - t) * shrink.cast(dtype);
    let mut weights = match filter {
        Filter::Cubic { a } => cubic(distance, a),
        _ => (-distance.abs() + 1.0).max(0.0),
    };
    let floor = coordinates.floor();
    if exclude_outside {
        let at = match &floor {
            Places::Exact(dim) => b.index(&(dim + &offset), &window),
            Places::Given(places) => places.insert_axes(&[1]) + b.index(&offset, &window),
        };
        weights = at.ge(0).and(at.lt(&way.from)).select(weights, 0.0);
    }
    let weights = weights / weights.reduce_keep(Monoid::Sum, &[1]);
    let windows = windows(x, way, &floor, &offset, &window)?;
    let axes: Vec<char> = ('a'..='z').chain('A'..='Z').take(x.rank()? + 1).collect();
    let (place, inside) = (axes[way.axis], axes[way.axis + 1]);
    let out = axes.iter().copied().filter(|l| *l != inside).collect();
    let spec = Contract { a: axes.clone(), b: vec![place, inside], out, accumulator: dtype };
    Ok(windows.contract_with(spec, weights))
}

/// The elements around every place, along a new axis behind the stretched one.
fn windows<'b>(
    x: Tensor<'b>,
    way: &Stretch<'b>,
    floor: &Places<'b>,
    offset: &Dim,
    window: &Shape,
) -> Result<Tensor<'b>> {
    let last = &way.from - 1;
    let own = x.shape()?;
    match floor {
        Places::Exact(place) => {
            let mut dims = own.dims().to_vec();
            dims.splice(way.axis..=way.axis, window.dims().iter().cloned());
            let mut map: Vec<Dim> = (0..own.rank()).map(|k| Dim::axis(if k > way.axis { k + 1 } else { k })).collect();
            let shift =
                offset.substitute(&|s| matches!(s, crate::tensor::Symbol::Axis(1)).then(|| Dim::axis(way.axis + 1)));
            map[way.axis] = (along(place, way.axis) + shift).max_with(&Dim::int(0)).min_with(&last);
            Ok(x.view(View::new(dims.into(), map)))
        }
        Places::Given(places) => {
            let places = places.insert_axes(&[1]) + x.builder().index(offset, window);
            Ok(x.take(way.axis, places.max(0).min(&last)))
        }
    }
}
