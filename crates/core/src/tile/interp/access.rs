//! Index expressions with numbers in them: where loads read, and whether that is inside.

use super::super::{AxisSet, Kernel, Limit, Op, StepId};
use super::Block;
use crate::error::{Context, Error, Result};
use crate::ops::Number;
use crate::reference::{Buffer, IndexFn, Part, Positions, out_of_range, row_major};
use crate::tensor::{Dim, Env, Ranges, Symbol};

/// An integer function of the coordinates and of values that are read.
#[derive(Clone, Debug)]
pub(super) enum Coordinate {
    /// a value that is read, as it is
    Read(usize),
    /// a function of coordinates alone
    Index(IndexFn),
    /// anything else, evaluated as written
    General(Dim),
}

impl Coordinate {
    pub(super) fn new(dim: &Dim, extents: &[usize], env: &Env) -> Result<Coordinate> {
        Ok(match dim.as_symbol() {
            Some(Symbol::Read(k)) => Coordinate::Read(usize::from(*k)),
            _ if dim.mentions(|s| matches!(s, Symbol::Read(_))) => Coordinate::General(env.apply(dim)),
            _ => Coordinate::Index(IndexFn::new(dim, extents, env)?),
        })
    }

    /// The value at coordinates `i`, where step `k` of those that are read has the value `read(k)`.
    pub(super) fn at(&self, i: &[usize], read: &dyn Fn(usize) -> i64) -> Result<i64> {
        match self {
            Coordinate::Read(k) => Ok(read(*k)),
            Coordinate::Index(index) => index.at(i),
            Coordinate::General(dim) => dim.eval_with(&|s| match s {
                Symbol::Axis(axis) => i.get(usize::from(*axis)).map(|n| *n as i64),
                Symbol::Read(k) => Some(read(usize::from(*k))),
                Symbol::Name(_) | Symbol::Value(_) => None,
            }),
        }
    }
}

/// A sum of parts by axis, as seen from a block: a function of the place inside of it along `axes`, which must be all that
/// it varies over. `None` where it is no sum.
pub(super) fn within(index: &IndexFn, axes: AxisSet, block: &Block) -> Option<IndexFn> {
    let IndexFn::Sum { offset, parts } = index else { return None };
    let mut offset = *offset;
    let mut own = Vec::with_capacity(axes.len());
    for axis in axes.iter() {
        let (start, size) = (block.start[axis], block.sizes[axis]);
        own.push(match &parts[axis] {
            Part::Stride(stride) => {
                offset += stride * start as i64;
                Part::Stride(*stride)
            }
            Part::Table(table) => Part::Table(table[start..start + size].to_vec()),
        });
    }
    Some(IndexFn::Sum { offset, parts: own })
}

/// A load with numbers in it.
#[derive(Debug)]
pub(super) struct Loading {
    /// which input
    pub input: usize,
    /// the value where a guard fails
    pub fill: Number,
    /// the steps that are read
    pub reads: Vec<StepId>,
    sizes: Vec<usize>,
    coordinates: Vec<Coordinate>,
    limits: Vec<Limit>,
    guards: Vec<(Coordinate, i64)>,
    view: Option<Flat>,
}

/// Positions and guards as sums of parts by axis.
#[derive(Debug)]
struct Flat {
    position: IndexFn,
    guards: Vec<(IndexFn, i64)>,
}

impl Loading {
    /// The load that a step is, checked to read inside of its input as far as coordinates tell. `None` where the step is
    /// no load or has no points.
    pub(super) fn new(
        kernel: &Kernel,
        step: usize,
        inputs: &[Buffer],
        extents: &[usize],
        env: &Env,
    ) -> Result<Option<Loading>> {
        let axes = kernel.steps[step].axes;
        let Op::Load { input, index, guard, fill, reads } = &kernel.steps[step].op else { return Ok(None) };
        if axes.iter().any(|axis| extents[axis] == 0) {
            return Ok(None);
        }
        let sizes = inputs[*input].sizes().to_vec();
        let coordinates = index.iter().map(|dim| Coordinate::new(dim, extents, env)).collect::<Result<Vec<_>>>()?;
        let dims: Vec<Dim> = extents.iter().map(|n| Dim::from(*n)).collect();
        let limits = index.iter().zip(&sizes).enumerate();
        let limits = limits
            .map(|(axis, (dim, size))| Limit::of(&env.apply(dim), axis, *size as i64, &Ranges::of(&dims)))
            .collect();
        let guards = guard.iter().map(|g| Ok((Coordinate::new(&g.index, extents, env)?, g.bound.eval(env)?)));
        let guards = guards.collect::<Result<Vec<_>>>()?;
        let view = if reads.is_empty() { flat(index, &sizes, &guards, extents, env)? } else { None };
        let fill = fill.unwrap_or(Number::Int(0));
        let load = Loading { input: *input, fill, reads: reads.to_vec(), sizes, coordinates, limits, guards, view };
        if load.is_view() && !kernel.reads_inside(StepId(step as u32)) && !load.stays_inside(extents) {
            let whole = Block::whole(extents);
            whole.for_each(axes, |k, i| load.position(i, &|_| 0).map(drop).at(|| whole.point_text(axes, k)))?;
        }
        Ok(Some(load))
    }

    /// Whether it is seen through positions instead of being read element by element.
    pub(super) fn is_view(&self) -> bool {
        self.view.is_some()
    }

    /// The positions that a view reads at a block of points along `axes`.
    pub(super) fn positions(&self, axes: AxisSet, block: &Block) -> Option<Positions> {
        let flat = self.view.as_ref()?;
        let guards = flat.guards.iter().map(|(guard, bound)| Some((within(guard, axes, block)?, *bound)));
        let guards = guards.collect::<Option<Vec<_>>>()?;
        Some(Positions { sizes: block.sizes_of(axes), index: within(&flat.position, axes, block)?, guards })
    }

    /// The position that is read at coordinates `i`; `None` where a guard fails.
    pub(super) fn position(&self, i: &[usize], read: &dyn Fn(usize) -> i64) -> Result<Option<usize>> {
        for (guard, bound) in &self.guards {
            if !(0..*bound).contains(&guard.at(i, read)?) {
                return Ok(None);
            }
        }
        let mut position = 0;
        for (axis, (coordinate, size)) in self.coordinates.iter().zip(&self.sizes).enumerate() {
            let at = coordinate.at(i, read)?;
            let place = usize::try_from(at).ok().filter(|n| n < size);
            let outside = || Error::invalid(self.limits[axis].told(self.limits[axis].read.map_or(at, read)));
            position = position * size + place.ok_or_else(outside)?;
        }
        Ok(Some(position))
    }

    /// Whether coordinates stay inside even where guards fail.
    fn stays_inside(&self, extents: &[usize]) -> bool {
        self.coordinates.iter().zip(&self.sizes).all(|(coordinate, size)| {
            let Coordinate::Index(index) = coordinate else { return false };
            index.range(extents).is_some_and(|(low, high)| low >= 0 && high < *size as i128)
        })
    }
}

/// A coordinate as a place on an axis.
pub(super) fn inside(at: i64, axis: usize, size: usize) -> Result<usize> {
    usize::try_from(at).ok().filter(|n| *n < size).ok_or_else(|| out_of_range(at, axis, size))
}

/// Position and guards of coordinates without reads, where they are sums of parts by axis.
fn flat(
    index: &[Dim],
    sizes: &[usize],
    guards: &[(Coordinate, i64)],
    extents: &[usize],
    env: &Env,
) -> Result<Option<Flat>> {
    let position = IndexFn::new(&flat_index(index, sizes)?, extents, env)?;
    let is_sum = |index: &IndexFn| matches!(index, IndexFn::Sum { .. });
    let guards = guards.iter().map(|(guard, bound)| match guard {
        Coordinate::Index(index) if is_sum(index) => Some((index.clone(), *bound)),
        _ => None,
    });
    let guards: Option<Vec<_>> = guards.collect();
    Ok(guards.filter(|_| is_sum(&position)).map(|guards| Flat { position, guards }))
}

/// The row-major position of coordinates in a tensor of these sizes.
pub(super) fn flat_index(index: &[Dim], sizes: &[usize]) -> Result<Dim> {
    let stride = |n: usize| i64::try_from(n).map_err(|_| Error::limit("a tensor of more than 2^63 elements"));
    let terms = index.iter().zip(row_major(sizes)).map(|(i, n)| Ok(i * stride(n)?));
    Ok(terms.collect::<Result<Vec<_>>>()?.into_iter().sum())
}
