//! Outputs on their way: what is written, and that every element is written once.

use super::super::{Kernel, StepId, Store};
use super::access::{Coordinate, flat_index, inside, within};
use super::{Block, Interpreter};
use crate::error::{Context, Error, Result};
use crate::reference::{Buffer, IndexFn, Positions, Run, coordinates};
use crate::tensor::{DType, Env, TensorType};

/// Elements that are written together.
const CHUNK: usize = 4096;

/// An output.
#[derive(Debug)]
pub(super) struct Target {
    dtype: DType,
    sizes: Vec<usize>,
    floats: Vec<f64>,
    ints: Vec<i64>,
    written: Vec<bool>,
}

impl Target {
    pub(super) fn new(ty: &TensorType, run: &Run<'_>) -> Result<Target> {
        let sizes = run.sizes(&ty.shape)?;
        let count: usize = sizes.iter().product();
        run.reserve(count)?;
        let (floats, ints) = if ty.dtype.is_float() { (vec![0.0; count], vec![]) } else { (vec![], vec![0; count]) };
        Ok(Target { dtype: ty.dtype, sizes, floats, ints, written: vec![false; count] })
    }

    /// The tensor, when every element has been written; floats rounded to their type if so wished.
    pub(super) fn finish(self, output: usize, rounds: bool) -> Result<Buffer> {
        if let Some(position) = self.written.iter().position(|written| !written) {
            return Err(Error::invalid(format!("{} is never written", self.element_text(output, position))));
        }
        let buffer = if self.dtype.is_float() {
            Buffer::floats(self.dtype, self.sizes, self.floats)
        } else {
            Buffer::ints(self.dtype, self.sizes, self.ints)
        };
        if rounds { buffer.rounded() } else { Ok(buffer) }
    }

    fn element_text(&self, output: usize, position: usize) -> String {
        format!("y{output}{:?}", coordinates(position, &self.sizes))
    }

    /// Writes elements `start..` of a value to positions; the error is the number of the point that writes a second time.
    fn put(&mut self, value: &Buffer, start: usize, positions: &[usize]) -> Result<std::result::Result<(), usize>> {
        let (mut floats, mut ints) = (Vec::new(), Vec::new());
        if self.dtype.is_float() {
            floats.resize(positions.len(), 0.0);
            value.read_floats(start, &mut floats)?;
        } else {
            ints.resize(positions.len(), 0);
            value.read_ints(start, &mut ints)?;
        }
        for (k, position) in positions.iter().enumerate() {
            if std::mem::replace(&mut self.written[*position], true) {
                return Ok(Err(k));
            }
            if self.dtype.is_float() {
                self.floats[*position] = floats[k];
            } else {
                self.ints[*position] = ints[k];
            }
        }
        Ok(Ok(()))
    }
}

/// A store with numbers in it.
#[derive(Debug)]
pub(super) struct Storing {
    /// the position, where that is a sum of parts by axis and known to lie inside
    flat: Option<IndexFn>,
    coordinates: Vec<Coordinate>,
}

impl Storing {
    /// `None` where the store has no points.
    pub(super) fn new(kernel: &Kernel, store: &Store, extents: &[usize], env: &Env) -> Result<Option<Storing>> {
        if store.axes().iter().any(|axis| extents[axis] == 0) {
            return Ok(None);
        }
        let sizes = kernel.outputs[store.output].ty.shape.eval(env)?;
        let flat = IndexFn::new(&flat_index(&store.index, &sizes)?, extents, env)?;
        let is_known = kernel.covers(store.output) && matches!(flat, IndexFn::Sum { .. });
        let coordinates = store.index.iter().map(|dim| Coordinate::new(dim, extents, env)).collect::<Result<_>>()?;
        Ok(Some(Storing { flat: is_known.then_some(flat), coordinates }))
    }
}

impl Interpreter<'_> {
    /// Runs the stores of a step at a block of points.
    pub(super) fn write(&mut self, k: usize, block: &Block) -> Result<()> {
        let kernel = self.kernel;
        let stores = kernel.stores.iter().enumerate().filter(|(_, store)| store.value == StepId(k as u32));
        for (number, store) in stores {
            self.store(number, store, block).at(|| format!("store {number} (y{})", store.output))?;
        }
        Ok(())
    }

    fn store(&mut self, number: usize, store: &Store, block: &Block) -> Result<()> {
        let axes = store.axes();
        // Inside of loops that the store does not mention, the first trip of them writes.
        if (0..block.start.len()).any(|axis| !axes.contains(axis) && block.start[axis] > 0) {
            return Ok(());
        }
        let count = block.count(axes);
        let Some(storing) = self.stores[number].as_ref().filter(|_| count > 0) else { return Ok(()) };
        let value = self.operand(store.value, axes, block)?;
        let places = self.places(store, storing, block)?;
        let target = &mut self.outputs[store.output];
        let mut chunk = Vec::with_capacity(CHUNK.min(count));
        for start in (0..count).step_by(CHUNK) {
            chunk.clear();
            let length = CHUNK.min(count - start);
            match &places {
                Places::Sums(positions) => {
                    positions.for_each(start, length, target.written.len(), |_, position| chunk.extend(position))?
                }
                Places::Each(positions) => chunk.extend_from_slice(&positions[start..start + length]),
            }
            if let Err(k) = target.put(&value, start, &chunk)? {
                let (element, point) = (target.element_text(store.output, chunk[k]), block.point_text(axes, start + k));
                return Err(Error::invalid(format!("{element} is written a second time at {point}")));
            }
        }
        Ok(())
    }

    /// Where a store writes at a block of points.
    fn places(&self, store: &Store, storing: &Storing, block: &Block) -> Result<Places> {
        let (axes, sizes) = (store.axes(), &self.outputs[store.output].sizes);
        if let Some(index) = storing.flat.as_ref().and_then(|flat| within(flat, axes, block)) {
            return Ok(Places::Sums(Positions { sizes: block.sizes_of(axes), index, guards: Vec::new() }));
        }
        let mut positions = Vec::with_capacity(block.count(axes));
        block.for_each(axes, |k, i| -> Result<()> {
            let mut position = 0;
            for (axis, (coordinate, size)) in storing.coordinates.iter().zip(sizes).enumerate() {
                let at = coordinate.at(i, &|_| 0).and_then(|at| inside(at, axis, *size));
                position = position * size + at.at(|| block.point_text(axes, k))?;
            }
            positions.push(position);
            Ok(())
        })?;
        Ok(Places::Each(positions))
    }
}

/// Positions in an output by point.
enum Places {
    /// sums of parts by axis, known to lie inside
    Sums(Positions),
    /// one by one
    Each(Vec<usize>),
}
