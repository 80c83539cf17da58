//! Convolutions: contractions over sliding windows.

use super::windows::{Padding, Sliding, Window, channels_first, channels_last, slide};
use super::{Call, NamedOp, quantization};
use crate::error::{Error, Result};
use crate::graph::Tensor;
use crate::ops::Number;
use crate::ops::prim::{Guard, View};
use crate::tensor::{DType, Dim, Shape};

/// The attributes of a convolution.
const CONVOLUTION: &[&str] = &["auto_pad", "dilations", "group", "kernel_shape", "pads", "strides"];

pub(super) static OPS: &[NamedOp] = &[
    NamedOp::standard(
        "Conv",
        1,
        CONVOLUTION,
        "a contraction of the windows of the input with filters, plus a bias per filter",
        |call| {
            let y = convolve(call, call.input(0)?, call.input(1)?)?;
            Ok(vec![with_bias(y, call.optional(2))?])
        },
    ),
    NamedOp::standard(
        "ConvTranspose",
        1,
        &["auto_pad", "dilations", "group", "kernel_shape", "output_padding", "output_shape", "pads", "strides"],
        "the gradient of a convolution by its input: every element spreads a filter over the result",
        |call| {
            let y = spread(call, call.input(0)?, call.input(1)?)?;
            Ok(vec![with_bias(y, call.optional(2))?])
        },
    ),
    NamedOp::standard(
        "ConvInteger",
        10,
        CONVOLUTION,
        "a convolution of 8-bit integers less their zero points, in i32",
        |call| {
            let x = quantization::centred(call.input(0)?, call.optional(2))?;
            let w = call.input(1)?;
            let zero = call.optional(3).map(|z| quantization::along_axis(z, w.rank()?, 0)).transpose()?;
            Ok(vec![convolve(call, x, quantization::centred(w, zero)?)?])
        },
    ),
    NamedOp::standard(
        "CausalConvWithState",
        27,
        &["activation"],
        "a depthwise convolution over the past, whose last elements are a second result",
        |call| Ok(causal_convolution(call, call.input(0)?, call.optional(3), 1)?.into()),
    ),
    NamedOp::contributed(
        "CausalConvWithState",
        &["activation", "channels_last", "dilation", "ndim", "state_window"],
        "a depthwise convolution over the past, whose last elements are a second result",
        |call| {
            for (name, known) in [("ndim", 1), ("state_window", 0)] {
                let given = call.int_or(name, known)?;
                if given != known {
                    return Err(call.unsupported(name, given));
                }
            }
            let (x, past, dilation) = (call.input(0)?, call.optional(3), call.int_or("dilation", 1)?.max(1));
            if !call.flag("channels_last", false)? {
                return Ok(causal_convolution(call, x, past, dilation)?.into());
            }
            let past = past.map(channels_first).transpose()?;
            let results = causal_convolution(call, channels_first(x)?, past, dilation)?;
            results.into_iter().map(channels_last).collect()
        },
    ),
];

/// Labels of spatial axes: places of windows, elements of windows, and phases of a transposed convolution.
const PLACES: [char; 6] = ['x', 'y', 'z', 'u', 'v', 'w'];
const TAPS: [char; 6] = ['i', 'j', 'k', 'l', 'p', 'q'];
const PHASES: [char; 6] = ['r', 's', 't', 'a', 'b', 'd'];

/// Operands of a convolution with their channels split into groups, and the labels of the channels.
struct Grouped<'b> {
    x: Tensor<'b>,
    w: Tensor<'b>,
    /// labels before the spatial axes
    x_labels: Vec<char>,
    w_labels: Vec<char>,
    out_labels: Vec<char>,
    /// sizes of the result before the spatial axes, groups and channels of a group joined
    out_dims: Vec<Dim>,
}

/// The convolution of `x` `[N, C, spatial…]` with filters `w` `[M, C / group, window…]`, in the operands' type.
pub(super) fn convolve<'b>(call: &Call<'_, 'b>, x: Tensor<'b>, w: Tensor<'b>) -> Result<Tensor<'b>> {
    let (xs, ws) = (x.shape()?, w.shape()?);
    let rank = spatial_rank(call, &xs, &ws)?;
    let sliding = Sliding::of(call, rank)?;
    let windows = sliding.windows(&xs.dims()[2..], &ws.dims()[2..]);
    let grouped = split_groups(call, x, w, &xs, &ws, Filters::First)?;
    contract_windows(grouped, &windows)
}

/// Slides windows over the spatial axes and contracts them with the filters.
fn contract_windows<'b>(grouped: Grouped<'b>, windows: &[Window]) -> Result<Tensor<'b>> {
    let lead = grouped.w_labels.len();
    let is_single = |k: &usize| windows[*k].is_single();
    let single: Vec<usize> = (0..windows.len()).filter(is_single).map(|k| lead + k).collect();
    let taps: Vec<char> = (0..windows.len()).filter(|k| !is_single(k)).map(|k| TAPS[k]).collect();
    let zero = Number::new(grouped.x.dtype()?, 0.0);
    let x = slide(grouped.x, windows, zero)?;
    let w = if single.is_empty() { grouped.w } else { grouped.w.remove_axes(&single) };
    let counts = windows.iter().map(|w| w.count.clone()).collect();
    Ok(contract_taps(Grouped { x, w, ..grouped }, counts, &taps))
}

/// Contracts windows, whose places and taps follow the channels, with the filters.
fn contract_taps<'b>(grouped: Grouped<'b>, counts: Vec<Dim>, taps: &[char]) -> Tensor<'b> {
    let Grouped { x, w, mut x_labels, mut w_labels, mut out_labels, mut out_dims } = grouped;
    let places = &PLACES[..counts.len()];
    x_labels.extend(places);
    x_labels.extend(taps);
    w_labels.extend(taps);
    out_labels.extend(places);
    out_dims.extend(counts);
    x.contract(&subscripts(&x_labels, &w_labels, &out_labels), w).reshape(out_dims)
}

/// The contraction of windows `[N, C, places…, taps…]` that were gathered one by one with filters `[M, C / group, taps…]`.
pub(super) fn contract_samples<'b>(call: &Call<'_, 'b>, seen: Tensor<'b>, w: Tensor<'b>) -> Result<Tensor<'b>> {
    let (xs, ws) = (seen.shape()?, w.shape()?);
    let rank = ws.rank() - 2;
    let grouped = split_groups(call, seen, w, &xs, &ws, Filters::First)?;
    Ok(contract_taps(grouped, xs.dims()[2..2 + rank].to_vec(), &TAPS[..rank]))
}

fn subscripts(a: &[char], b: &[char], out: &[char]) -> String {
    let text = |labels: &[char]| labels.iter().collect::<String>();
    format!("{},{}->{}", text(a), text(b), text(out))
}

/// The number of spatial axes of a convolution; checks the ranks and `kernel_shape`.
pub(super) fn spatial_rank(call: &Call<'_, '_>, x: &Shape, w: &Shape) -> Result<usize> {
    let name = call.op.name;
    if x.rank() < 3 || x.rank() != w.rank() {
        return Err(Error::invalid(format!("{name} of a tensor {x} with filters {w}")));
    }
    let rank = x.rank() - 2;
    if rank > PLACES.len() {
        return Err(Error::unsupported(format!("{name} over {rank} spatial axes")));
    }
    if let Some(given) = call.ints("kernel_shape")? {
        if given.len() != rank {
            return Err(Error::invalid(format!("attribute kernel_shape of {name} is {given:?} for filters {w}")));
        }
        for (given, actual) in given.iter().zip(&w.dims()[2..]) {
            call.builder.require_equal(&Dim::int(*given), actual, "kernel_shape")?;
        }
    }
    Ok(rank)
}

/// Which axis of the filters counts them; the other one of the first two counts channels.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Filters {
    /// `[M, C / group, …]`, each filter in one group
    First,
    /// `[C, M / group, …]`, as a transposed convolution has them
    Second,
}

/// Splits channels into groups. Depthwise convolutions (one channel, one filter a group) get no axes of size 1.
fn split_groups<'b>(
    call: &Call<'_, 'b>,
    x: Tensor<'b>,
    w: Tensor<'b>,
    xs: &Shape,
    ws: &Shape,
    filters: Filters,
) -> Result<Grouped<'b>> {
    let group = call.int_or("group", 1)?;
    if group < 1 {
        return Err(Error::invalid(format!("attribute group of {} is {group}", call.op.name)));
    }
    let g = Dim::int(group);
    let (channels, per_filter, count) = match filters {
        Filters::First => (&ws[1] * group, ws[0].floordiv(&g), ws[0].clone()),
        Filters::Second => (ws[0].clone(), ws[1].clone(), &ws[1] * group),
    };
    call.builder.require_equal(&xs[1], &channels, "channels of the input and of the filters")?;
    let channel = match filters {
        Filters::First => ws[1].clone(),
        Filters::Second => ws[0].floordiv(&g),
    };
    let out_dims = vec![xs[0].clone(), count];
    let order = |c: Option<char>, m: Option<char>| match filters {
        Filters::First => [m, c],
        Filters::Second => [c, m],
    };
    if group == 1 {
        let w_labels = order(Some('c'), Some('m')).into_iter().flatten().collect();
        return Ok(Grouped { x, w, x_labels: vec!['n', 'c'], w_labels, out_labels: vec!['n', 'm'], out_dims });
    }
    let c = (!channel.is(1)).then_some('c');
    let m = (!per_filter.is(1)).then_some('m');
    let size = |label: char| if label == 'c' { channel.clone() } else { per_filter.clone() };
    let w_inner: Vec<char> = order(c, m).into_iter().flatten().collect();
    let x_dims = [xs[0].clone(), g.clone()].into_iter().chain(c.map(size)).chain(xs.dims()[2..].iter().cloned());
    let w_dims = std::iter::once(g).chain(w_inner.iter().map(|l| size(*l))).chain(ws.dims()[2..].iter().cloned());
    Ok(Grouped {
        x: x.reshape(x_dims.collect::<Shape>()),
        w: w.reshape(w_dims.collect::<Shape>()),
        x_labels: ['n', 'g'].into_iter().chain(c).collect(),
        w_labels: std::iter::once('g').chain(w_inner).collect(),
        out_labels: ['n', 'g'].into_iter().chain(m).collect(),
        out_dims,
    })
}

/// The result plus a bias per channel.
pub(super) fn with_bias<'b>(y: Tensor<'b>, bias: Option<Tensor<'b>>) -> Result<Tensor<'b>> {
    let Some(bias) = bias else { return Ok(y) };
    let rank = y.rank()?;
    Ok(y + quantization::along_axis(bias, rank, 1)?)
}

/// A depthwise convolution in which an element sees itself and those before it; what came before the first element is
/// `past_state`, or zeros. Results: the convolution, and the past that the next call needs.
fn causal_convolution<'b>(
    call: &Call<'_, 'b>,
    x: Tensor<'b>,
    past: Option<Tensor<'b>>,
    dilation: i64,
) -> Result<[Tensor<'b>; 2]> {
    let w = call.input(1)?;
    let (xs, ws) = (x.shape()?, w.shape()?);
    let ([_, _, length], [_, _, size]) = (xs.dims(), ws.dims()) else {
        return Err(Error::invalid(format!("{} of {} with filters {}", call.op.name, x.ty()?, w.ty()?)));
    };
    let state = (size - 1) * dilation;
    let padded = match past {
        Some(past) => call.builder.concat(&[past, x], 2),
        None => x.pad(&[Dim::int(0), Dim::int(0), state.clone()], &vec![Dim::int(0); 3], 0.0),
    };
    let window = Window {
        input: length + &state,
        size: size.clone(),
        stride: 1,
        dilation,
        before: Dim::int(0),
        after: Dim::int(0),
        count: length.clone(),
        overhangs: false,
    };
    let seen = slide(padded, std::slice::from_ref(&window), Number::new(x.dtype()?, 0.0))?;
    let y = match window.is_single() {
        true => seen.contract("ncx,c->ncx", w.remove_axes(&[1, 2])),
        false => seen.contract("ncxi,ci->ncx", w.remove_axes(&[1])),
    };
    let y = with_bias(y, call.optional(2))?;
    let y = match call.str_or("activation", "none")? {
        "none" | "" => y,
        "silu" | "swish" => {
            let wide = y.cast(if x.dtype()? == DType::F64 { DType::F64 } else { DType::F32 });
            (wide * wide.sigmoid()).cast(x.dtype()?)
        }
        other => return Err(Error::invalid(format!("attribute activation of {} is \"{other}\"", call.op.name))),
    };
    Ok([y, padded.slice(2, length.clone(), state, 1)])
}

/// One spatial axis of a transposed convolution.
///
/// Element `o` of the result collects `x[i] · w[k]` over all `i · stride + k · dilation = o + before`. With
/// `o + before = q · stride + t` that is, for each phase `t`, an ordinary convolution at stride 1 with every `stride`-th
/// element of the dilated filter: `Σⱼ x[q − j] · w'[j · stride + t]`. No product with a stuffed zero is computed.
struct Spread {
    /// windows of `x` that end at `q`
    window: Window,
    /// number of phases
    stride: i64,
    /// distance between elements of the filter
    dilation: i64,
    /// elements of the filter
    size: Dim,
    /// place of the result's first element in phase-major order
    start: Dim,
    /// elements of the result
    output: Dim,
}

impl Spread {
    /// The axis of extent `input` and a filter of `size` elements, when `before` elements are cut off.
    fn new(input: &Dim, size: &Dim, stride: i64, dilation: i64, before: &Dim, output: &Dim) -> Spread {
        let step = Dim::int(stride);
        let first = before.floordiv(&step);
        let last = (before + output - 1).floordiv(&step);
        // At stride 1 the filter keeps its dilation; otherwise it is filled up with zeros.
        let (taps, tap_step) =
            if stride == 1 { (size.clone(), dilation) } else { (((size - 1) * dilation + 1).ceildiv(&step), 1) };
        let window = Window {
            input: input.clone(),
            stride: 1,
            dilation: tap_step,
            before: (&taps - 1) * tap_step - &first,
            after: &last + 1 - input,
            count: last + 1 - &first,
            size: taps,
            overhangs: false,
        };
        Spread { window, stride, dilation, size: size.clone(), start: before - first * stride, output: output.clone() }
    }

    /// The element of the filter that meets element `tap` of a window in phase `t`, and the guards under which it exists.
    fn filter_index(&self, tap: &Dim, phase: &Dim) -> (Dim, Vec<Guard>) {
        let back = &self.window.size - 1 - tap;
        if self.stride == 1 {
            return (back, Vec::new());
        }
        let place = back * self.stride + phase;
        let step = Dim::int(self.dilation);
        let index = place.floordiv(&step);
        let mut guards = vec![Guard { index: index.clone(), bound: self.size.clone() }];
        if self.dilation > 1 {
            guards.push(Guard { index: place.modulo(&step), bound: Dim::int(1) });
        }
        (index, guards)
    }
}

/// The transposed convolution of `x` `[N, C, spatial…]` with filters `w` `[C, M / group, window…]`.
fn spread<'b>(call: &Call<'_, 'b>, x: Tensor<'b>, w: Tensor<'b>) -> Result<Tensor<'b>> {
    let (xs, ws) = (x.shape()?, w.shape()?);
    let rank = spatial_rank(call, &xs, &ws)?;
    let axes = spread_axes(call, &xs.dims()[2..], &ws.dims()[2..])?;
    let mut grouped = split_groups(call, x, w, &xs, &ws, Filters::Second)?;
    let phased: Vec<usize> = (0..rank).filter(|k| axes[*k].stride > 1).collect();

    // Filters by phase: [channels…, phases…, taps…].
    let filters = grouped.w.shape()?;
    let lead = grouped.w_labels.len();
    let mut dims = filters.dims()[..lead].to_vec();
    dims.extend(phased.iter().map(|k| Dim::int(axes[*k].stride)));
    dims.extend(axes.iter().map(|a| a.window.size.clone()));
    let mut map: Vec<Dim> = (0..lead).map(Dim::axis).collect();
    let mut guard = Vec::new();
    for (k, axis) in axes.iter().enumerate() {
        let phase = phased.iter().position(|p| *p == k).map_or(Dim::int(0), |p| Dim::axis(lead + p));
        let (index, guards) = axis.filter_index(&Dim::axis(lead + phased.len() + k), &phase);
        map.push(index);
        guard.extend(guards);
    }
    let zero = Number::new(grouped.w.dtype()?, 0.0);
    grouped.w = grouped.w.view(View::guarded(dims.into(), map, guard, zero));

    let phase_labels: Vec<char> = phased.iter().map(|k| PHASES[*k]).collect();
    let strides: Vec<Dim> = phased.iter().map(|k| Dim::int(axes[*k].stride)).collect();
    grouped.w_labels.extend(&phase_labels);
    grouped.out_labels.extend(&phase_labels);
    grouped.out_dims.extend(strides);
    let windows: Vec<Window> = axes.iter().map(|a| a.window.clone()).collect();
    let y = contract_windows(grouped, &windows)?;

    // [N, M, phases…, places…] to [N, M, spatial…].
    let mut dims = y.shape()?.dims()[..2].to_vec();
    dims.extend(axes.iter().map(|a| a.output.clone()));
    let mut map = vec![Dim::axis(0), Dim::axis(1)];
    let place = |k: usize| Dim::axis(2 + k) + &axes[k].start;
    map.extend(phased.iter().map(|k| place(*k).modulo(&Dim::int(axes[*k].stride))));
    map.extend((0..rank).map(|k| place(k).floordiv(&Dim::int(axes[k].stride))));
    Ok(y.view(View::new(dims.into(), map)))
}

/// The axes of a transposed convolution: what `pads`, `output_padding`, `output_shape` and `auto_pad` make of them.
fn spread_axes(call: &Call<'_, '_>, input: &[Dim], size: &[Dim]) -> Result<Vec<Spread>> {
    let rank = input.len();
    let sliding = Sliding::of(call, rank)?;
    let per_axis = |name: &str| -> Result<Option<&[i64]>> {
        match call.ints(name)? {
            // An output shape may name the batch and the channels too.
            Some(list) if name == "output_shape" && list.len() == rank + 2 => Ok(Some(&list[2..])),
            Some(list) if list.len() != rank => {
                Err(Error::invalid(format!("attribute {name} of {} is {list:?} for {rank} axes", call.op.name)))
            }
            list => Ok(list),
        }
    };
    let extra = per_axis("output_padding")?;
    let wanted = per_axis("output_shape")?;
    let mut axes = Vec::with_capacity(rank);
    for k in 0..rank {
        let (stride, dilation) = (sliding.strides[k], sliding.dilations[k]);
        let extra = extra.map_or(0, |e| e[k]);
        let full = (&input[k] - 1) * stride + (&size[k] - 1) * dilation + 1 + extra;
        let same = match wanted {
            Some(wanted) => Some(Dim::int(wanted[k])),
            None if matches!(sliding.padding, Padding::Explicit { .. }) => None,
            None => Some(&input[k] * stride),
        };
        let (before, output) = match (&sliding.padding, same) {
            (Padding::Explicit { before, after }, None) => (Dim::int(before[k]), full - before[k] - after[k]),
            (padding, output) => {
                let output = output.expect("automatic padding gives the size of the result");
                let total = (full - &output).max_with(&Dim::int(0));
                let half = total.floordiv(&Dim::int(2));
                // The formula of version 1 has the sides of an odd element the other way round, against its own text on
                // auto_pad; version 11 mended the formula, and everybody reads older models by it.
                (if *padding == Padding::SameUpper { half } else { total - half }, output)
            }
        };
        axes.push(Spread::new(&input[k], &size[k], stride, dilation, &before, &output));
    }
    Ok(axes)
}
