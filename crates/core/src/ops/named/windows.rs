//! The geometry of sliding windows, which convolutions and pools share.

use super::Call;
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::Number;
use crate::ops::prim::{Guard, View, identity_map};
use crate::tensor::Dim;

/// How windows slide over the spatial axes, as an operator's attributes say it.
#[derive(Clone, Debug)]
pub(super) struct Sliding {
    /// distance between windows, by axis
    pub strides: Vec<i64>,
    /// distance between elements of a window, by axis
    pub dilations: Vec<i64>,
    /// what lies around the tensor
    pub padding: Padding,
    /// whether a window that begins inside of the padded tensor but ends outside of it counts
    pub ceil: bool,
}

/// What lies around the spatial axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Padding {
    /// this many elements before and after each axis
    Explicit { before: Vec<i64>, after: Vec<i64> },
    /// as many as give a window per stride, the odd one after
    SameUpper,
    /// as many as give a window per stride, the odd one before
    SameLower,
}

/// The windows along one spatial axis.
#[derive(Clone, Debug)]
pub(super) struct Window {
    /// elements of the tensor along the axis
    pub input: Dim,
    /// elements in a window
    pub size: Dim,
    /// distance between windows
    pub stride: i64,
    /// distance between elements of a window
    pub dilation: i64,
    /// elements before the first one
    pub before: Dim,
    /// elements after the last one
    pub after: Dim,
    /// number of windows
    pub count: Dim,
    /// whether the last window may end behind the padded tensor
    pub overhangs: bool,
}

impl Sliding {
    /// Reads `strides`, `dilations`, `pads` and, where the operator has it, `auto_pad` of an operator with this many spatial axes.
    pub fn of(call: &Call<'_, '_>, rank: usize) -> Result<Sliding> {
        let strides = positive(call, "strides", rank)?;
        let dilations = positive(call, "dilations", rank)?;
        let automatic = call.op.attributes.contains(&"auto_pad");
        let padding = match if automatic { call.str_or("auto_pad", "NOTSET")? } else { "NOTSET" } {
            "NOTSET" | "" => {
                let (before, after) = pads(call, rank)?;
                Padding::Explicit { before, after }
            }
            "VALID" => Padding::Explicit { before: vec![0; rank], after: vec![0; rank] },
            "SAME_UPPER" => Padding::SameUpper,
            "SAME_LOWER" => Padding::SameLower,
            other => return Err(Error::invalid(format!("attribute auto_pad of {} is \"{other}\"", call.op.name))),
        };
        Ok(Sliding { strides, dilations, padding, ceil: false })
    }

    /// The windows of `sizes` over spatial axes of extents `input`.
    pub fn windows(&self, input: &[Dim], sizes: &[Dim]) -> Vec<Window> {
        let axes = input.iter().zip(sizes).enumerate();
        axes.map(|(k, (input, size))| self.window(k, input, size)).collect()
    }

    fn window(&self, k: usize, input: &Dim, size: &Dim) -> Window {
        let (stride, dilation) = (self.strides[k], self.dilations[k]);
        let step = Dim::int(stride);
        let span = (size - 1) * dilation + 1;
        let overhangs = self.ceil && stride > 1 && matches!(self.padding, Padding::Explicit { .. });
        let (before, after, count) = match &self.padding {
            Padding::Explicit { before, after } => {
                let (before, after) = (Dim::int(before[k]), Dim::int(after[k]));
                let room = input + &before + &after - span;
                let count = if overhangs {
                    // A window that would begin behind the last element is left out.
                    (room.ceildiv(&step) + 1).min_with(&(input + &before).ceildiv(&step))
                } else {
                    room.floordiv(&step) + 1
                };
                (before, after, count)
            }
            same => {
                let count = input.ceildiv(&step);
                let total = ((&count - 1) * stride + span - input).max_with(&Dim::int(0));
                let smaller = total.floordiv(&Dim::int(2));
                let larger = &total - &smaller;
                if *same == Padding::SameUpper { (smaller, larger, count) } else { (larger, smaller, count) }
            }
        };
        Window { input: input.clone(), size: size.clone(), stride, dilation, before, after, count, overhangs }
    }
}

impl Window {
    /// The place in the tensor of element `tap` of window `place`; outside of `0..input` lies padding.
    pub fn index(&self, place: &Dim, tap: &Dim) -> Dim {
        place * self.stride + tap * self.dilation - &self.before
    }

    /// The number of elements of window `place` that lie in the tensor, or in the padded one.
    pub fn inside(&self, place: &Dim, padded: bool) -> Dim {
        let dilation = Dim::int(self.dilation);
        let start = place * self.stride;
        let end = &self.input + &self.before;
        let end = if padded { end + &self.after } else { end };
        let last = (end - &start).ceildiv(&dilation).min_with(&self.size);
        if padded || self.before.is(0) {
            return last;
        }
        last - (&self.before - start).ceildiv(&dilation).max_with(&Dim::int(0))
    }

    /// Whether it is known that no window reaches beyond the tensor, or beyond the padded one.
    pub fn stays_inside(&self, padded: bool) -> bool {
        let unpadded = self.before.is(0) && self.after.is(0);
        !self.overhangs && (padded || unpadded)
    }

    /// Whether a window has one element only, so that it needs no axis.
    pub fn is_single(&self) -> bool {
        self.size.is(1)
    }
}

/// The windows of the last axes as one view: shape `[leading…, places…, taps…]`, where windows of a single element have no
/// tap axis; outside of the tensor is `fill`.
pub(super) fn slide<'b>(x: Tensor<'b>, windows: &[Window], fill: Number) -> Result<Tensor<'b>> {
    let own = x.shape()?;
    let leading = own.rank() - windows.len();
    let mut dims: Vec<Dim> = own.dims()[..leading].to_vec();
    dims.extend(windows.iter().map(|w| w.count.clone()));
    let mut map = identity_map(leading);
    let mut guard = Vec::new();
    for (k, window) in windows.iter().enumerate() {
        let tap = if window.is_single() {
            Dim::int(0)
        } else {
            dims.push(window.size.clone());
            Dim::axis(dims.len() - 1)
        };
        let index = window.index(&Dim::axis(leading + k), &tap);
        if !window.stays_inside(false) {
            guard.push(Guard { index: index.clone(), bound: own[leading + k].clone() });
        }
        map.push(index);
    }
    Ok(x.view(View::guarded(dims.into(), map, guard, fill)))
}

/// `[N, spatial…, C]` as `[N, C, spatial…]`.
pub(super) fn channels_first(x: Tensor<'_>) -> Result<Tensor<'_>> {
    let rank = x.rank()?;
    if rank < 2 {
        return Err(Error::invalid(format!("channels of a tensor {}", x.ty()?)));
    }
    Ok(x.permute(&[0, rank - 1].into_iter().chain(1..rank - 1).collect::<Vec<_>>()))
}

/// `[N, C, spatial…]` as `[N, spatial…, C]`.
pub(super) fn channels_last(x: Tensor<'_>) -> Result<Tensor<'_>> {
    let rank = x.rank()?;
    Ok(x.permute(&std::iter::once(0).chain(2..rank).chain([1]).collect::<Vec<_>>()))
}

/// Extents of windows as the attribute `kernel_shape` gives them.
pub(super) fn kernel_shape(call: &Call<'_, '_>, rank: usize) -> Result<Vec<Dim>> {
    let given = call.ints("kernel_shape")?;
    let given =
        given.ok_or_else(|| Error::invalid(format!("attribute kernel_shape of {} is missing", call.op.name)))?;
    if given.len() != rank {
        return Err(wrong_length(call, "kernel_shape", given.len(), rank));
    }
    if given.iter().any(|n| *n < 1) {
        return Err(Error::invalid(format!("attribute kernel_shape of {} is {given:?}", call.op.name)));
    }
    Ok(given.iter().map(|n| Dim::int(*n)).collect())
}

/// The attribute `pads`: elements before and after each spatial axis.
pub(super) fn pads(call: &Call<'_, '_>, rank: usize) -> Result<(Vec<i64>, Vec<i64>)> {
    match call.ints("pads")? {
        None => Ok((vec![0; rank], vec![0; rank])),
        Some(pads) if pads.len() == 2 * rank => Ok((pads[..rank].to_vec(), pads[rank..].to_vec())),
        Some(pads) => Err(wrong_length(call, "pads", pads.len(), 2 * rank)),
    }
}

/// A list of positive integers, one per spatial axis; ones where it is left out.
pub(super) fn positive(call: &Call<'_, '_>, name: &str, rank: usize) -> Result<Vec<i64>> {
    match call.ints(name)? {
        None => Ok(vec![1; rank]),
        Some(list) if list.len() != rank => Err(wrong_length(call, name, list.len(), rank)),
        Some(list) if list.iter().any(|n| *n < 1) => {
            Err(Error::invalid(format!("attribute {name} of {} is {list:?}", call.op.name)))
        }
        Some(list) => Ok(list.to_vec()),
    }
}

fn wrong_length(call: &Call<'_, '_>, name: &str, found: usize, wanted: usize) -> Error {
    Error::invalid(format!("attribute {name} of {} has {found} elements instead of {wanted}", call.op.name))
}
