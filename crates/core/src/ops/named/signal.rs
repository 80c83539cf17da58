//! Signals: Fourier transforms as contractions with tables of cosines, and the windows that go with them.

use std::f64::consts::{FRAC_PI_2, LN_10, TAU};

use super::{Call, NamedOp};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::Number;
use crate::ops::prim::{Guard, View};
use crate::tensor::{DType, Dim, Shape};

/// The attributes of a window.
const WINDOW: &[&str] = &["output_datatype", "periodic"];

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard(
        "DFT",
        17,
        &["axis", "inverse", "onesided"],
        "the discrete Fourier transform along an axis; the last axis holds real and imaginary parts",
        |call| Ok(vec![dft(call)?]),
    ),
    NamedOp::standard(
        "STFT",
        17,
        &["onesided"],
        "the Fourier transforms of the overlapping frames of a signal, each times a window",
        |call| Ok(vec![stft(call)?]),
    ),
    NamedOp::standard("HannWindow", 17, WINDOW, "(1 − cos(2πn / N)) / 2", |call| {
        Ok(vec![cosine_window(call, &[0.5, -0.5])?])
    }),
    NamedOp::standard("HammingWindow", 17, WINDOW, "25/46 − 21/46 · cos(2πn / N)", |call| {
        Ok(vec![cosine_window(call, &[25.0 / 46.0, -21.0 / 46.0])?])
    }),
    NamedOp::standard("BlackmanWindow", 17, WINDOW, "0.42 − cos(2πn / N) / 2 + 0.08 · cos(4πn / N)", |call| {
        Ok(vec![cosine_window(call, &[0.42, -0.5, 0.08])?])
    }),
    NamedOp::standard(
        "MelWeightMatrix",
        17,
        &["output_datatype"],
        "triangles over the bins of a spectrum, evenly spaced on the mel scale",
        |call| Ok(vec![mel_weights(call)?]),
    ),
];

/// A transform between signals and spectra of `length` elements, each an axis of elements and one of complex parts.
struct Transform {
    /// elements that are read
    from: Dim,
    /// elements that are computed
    to: Dim,
    length: Dim,
    inverse: bool,
    /// whether the half of a spectrum stands for a real signal
    half: bool,
    /// complex parts that are read and computed
    parts: [Dim; 2],
}

impl Transform {
    /// The transform of an axis of `size` elements with `parts` complex parts.
    fn new(size: &Dim, parts: Dim, length: Option<Dim>, inverse: bool, half: bool) -> Transform {
        let one_side = |length: &Dim| length.floordiv(&Dim::int(2)) + 1;
        let default = if inverse && half { (size - 1) * 2 } else { size.clone() };
        let length = length.unwrap_or(default);
        let (whole, side) = (length.clone(), one_side(&length));
        let (read, to, results) = match (inverse, half) {
            (true, true) => (side, whole, 1),
            (false, true) => (whole, side, 2),
            (_, false) => (whole.clone(), whole, 2),
        };
        Transform { from: read.min_with(size), to, length, inverse, half, parts: [parts, Dim::int(results)] }
    }

    /// The coefficients `[parts, from, to, parts]`.
    ///
    /// The real part of `exp(iθ)` times a number, and the imaginary one, are cosines of θ moved by quarter turns. Angles are
    /// counted in quarters of `1 / length` turns, so that whole quarters are taken off exactly and give exact zeros.
    fn coefficients<'b>(&self, call: &Call<'_, 'b>, dtype: DType) -> Tensor<'b> {
        let shape = Shape::new([self.parts[0].clone(), self.from.clone(), self.to.clone(), self.parts[1].clone()]);
        let [part, from, to, result] = [0, 1, 2, 3].map(Dim::axis);
        let turned = if self.inverse { part - result } else { result - part };
        let angle = from * to * 4 + turned * &self.length;
        let quarter = call.builder.index(&angle.floordiv(&self.length).modulo(&Dim::int(4)), &shape);
        let within = call.builder.index(&angle.modulo(&self.length), &shape).cast(dtype) * FRAC_PI_2 / &self.length;
        let magnitude = quarter.modulo(2i64).equal(0i64).select(within.cos(), within.sin());
        let negative = quarter.equal(1i64).or(quarter.equal(2i64));
        let cosine = negative.select(-magnitude, magnitude);
        if !self.inverse {
            return cosine;
        }
        if !self.half {
            return cosine / &self.length;
        }
        // A bin stands for its mirror image too, unless it is that itself.
        let bin = call.builder.coordinate(1, &shape);
        let alone = bin.equal(0i64).or((bin * 2i64).equal(&self.length));
        alone.select(cosine, cosine * 2.0) / &self.length
    }
}

/// The type in which coefficients are computed.
fn wide(dtype: DType) -> DType {
    if dtype == DType::F64 { DType::F64 } else { DType::F32 }
}

/// A scalar operand as a size, if it is there.
fn scalar_size(call: &Call<'_, '_>, k: usize) -> Result<Option<Dim>> {
    call.optional(k).map(|x| call.builder.bind(x)).transpose()
}

fn dft<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let x = call.input(0)?;
    let (shape, dtype) = (x.shape()?, x.dtype()?);
    let rank = shape.rank();
    let axis = match call.constant_ints(2, "the axis")?.as_deref() {
        Some(&[axis]) => axis,
        Some(_) => return Err(Error::invalid("the axis of DFT must be one number")),
        None => call.int_or("axis", if call.opset < 20 { 1 } else { -2 })?,
    };
    let axis = x.axis(axis)?;
    if rank < 2 || axis + 1 == rank || rank > 20 {
        return Err(Error::invalid(format!("DFT of {} along axis {axis}", x.ty()?)));
    }
    let (inverse, half) = (call.flag("inverse", false)?, call.flag("onesided", false)?);
    let length = scalar_size(call, 1)?;
    let transform = Transform::new(&shape[axis], shape[rank - 1].clone(), length, inverse, half);
    let read = x.slice(axis, 0usize, transform.from.clone(), 1);
    let table = transform.coefficients(call, wide(dtype)).cast(dtype);
    let labels: Vec<char> = ('a'..='t').take(rank - 2).collect();
    let (before, after): (String, String) = (labels[..axis].iter().collect(), labels[axis..].iter().collect());
    Ok(read.contract(&format!("{before}X{after}P,PXYQ->{before}Y{after}Q"), table))
}

fn stft<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let signal = call.input(0)?;
    let signal = if signal.rank()? == 2 { signal.insert_axes(&[2]) } else { signal };
    let (shape, dtype) = (signal.shape()?, signal.dtype()?);
    if shape.rank() != 3 {
        return Err(Error::invalid(format!("STFT of {}", signal.ty()?)));
    }
    let step = scalar_size(call, 1)?.ok_or_else(|| Error::invalid("STFT needs a frame step"))?;
    let window = call.optional(2);
    let length = match (scalar_size(call, 3)?, window) {
        (Some(length), _) => length,
        (None, Some(window)) => window.dim(0)?,
        (None, None) => shape[1].clone(),
    };
    let transform =
        Transform::new(&length, shape[2].clone(), Some(length.clone()), false, call.flag("onesided", true)?);
    let count = (&shape[1] - &length).floordiv(&step) + 1;
    let dims = vec![shape[0].clone(), count, transform.from.clone(), shape[2].clone()];
    let at = Dim::axis(1) * &step + Dim::axis(2);
    let guard = vec![Guard { index: at.clone(), bound: shape[1].clone() }];
    let view = View::guarded(dims.into(), vec![Dim::axis(0), at, Dim::axis(3)], guard, Number::new(dtype, 0.0));
    let mut table = transform.coefficients(call, wide(dtype));
    if let Some(window) = window {
        table = table * window.cast(wide(dtype)).slice(0, 0usize, transform.from.clone(), 1).insert_axes(&[1, 2]);
    }
    Ok(signal.view(view).contract("BFXP,PXYQ->BFYQ", table.cast(dtype)))
}

/// `Σ weights[k] · cos(2πkn / N)` over `size` elements; N is the size, or one less for a window that ends as it begins.
fn cosine_window<'b>(call: &Call<'_, 'b>, weights: &[f64]) -> Result<Tensor<'b>> {
    let size = call.builder.bind(call.input(0)?)?;
    let dtype = call.dtype("output_datatype")?.unwrap_or(DType::F32);
    let turn = if call.flag("periodic", true)? { size.clone() } else { &size - 1 };
    let shape = Shape::new([size]);
    let angle = call.builder.coordinate(0, &shape).cast(wide(dtype)) * TAU / &turn;
    let waves = weights.iter().enumerate().skip(1).map(|(k, w)| (angle * k as f64).cos() * *w);
    let sum = waves.reduce(|a, b| a + b).ok_or_else(|| Error::bug("a window without waves"))?;
    Ok((sum + weights[0]).cast(dtype))
}

fn mel_weights<'b>(call: &Call<'_, 'b>) -> Result<Tensor<'b>> {
    let builder = call.builder;
    let scalar = |k: usize| -> Result<Tensor<'b>> { Ok(call.input(k)?.reshape(Shape::scalar()).cast(DType::F64)) };
    let (bins, length) = (builder.bind(call.input(0)?)?, builder.bind(call.input(1)?)?);
    let (rate, low, high) = (scalar(2)?, scalar(3)?, scalar(4)?);
    // Decimal logarithms and powers, by the natural ones.
    let mel = |hertz: Tensor<'b>| (hertz / 700.0).log1p() * (2595.0 / LN_10);
    let edges = Shape::new([&bins + 2]);
    let spacing = (mel(high) - mel(low)) / &(&bins + 2);
    let hertz =
        ((builder.coordinate(0, &edges).cast(DType::F64) * spacing + mel(low)) * (LN_10 / 2595.0)).expm1() * 700.0;
    let edge = (hertz * &(&length + 1) / rate).floor();
    let column = |k: i64| edge.slice(0, k, bins.clone(), 1);
    let (left, centre, right) = (column(0), column(1), column(2));
    let shape = Shape::new([length.floordiv(&Dim::int(2)) + 1, bins.clone()]);
    let row = builder.coordinate(0, &shape).cast(DType::F64);
    // Where a triangle has no left side, its tip stands alone.
    let rising = left.lt(centre).select((row - left) / (centre - left), 1.0);
    let rises = row.ge(left).and(row.le(centre)).select(rising, 0.0);
    let falls = row.ge(centre).and(row.lt(right));
    let weights = falls.select((right - row) / (right - centre), rises);
    Ok(weights.cast(call.dtype("output_datatype")?.unwrap_or(DType::F32)))
}
