//! The value of a step at a block of points.

use super::super::{AxisSet, Op, StepId};
use super::access::{Coordinate, Loading};
use super::{Block, Interpreter};
use crate::error::{Context, Error, Result};
use crate::ops::Number;
use crate::ops::prim::{Contract, Label, Monoid};
use crate::philox;
use crate::reference::{
    Buffer, IndexFn, Part, Positions, Reading, eval_contract, eval_map_within, eval_prefix, eval_reduce, row_major,
};
use crate::tensor::DType;

/// The value of a step at the points of a block along the axes of the step, in row-major order of these.
#[derive(Clone, Debug)]
pub(super) struct Held {
    pub buffer: Buffer,
    pub block: Block,
}

impl Interpreter<'_> {
    /// Computes the value of a step at a block of points and keeps it.
    pub(super) fn hold(&mut self, k: usize, block: &Block) -> Result<()> {
        if !self.nest.is_view[k] {
            let buffer = self.evaluate(k, block).at(|| self.kernel.describe(k))?;
            self.held[k] = Some(Held { buffer, block: block.clone() });
        }
        Ok(())
    }

    /// The value of a step at a block of points.
    pub(super) fn evaluate(&self, k: usize, block: &Block) -> Result<Buffer> {
        let step = &self.kernel.steps[k];
        if block.count(step.axes) == 0 {
            return Ok(empty(step.dtype, block.sizes_of(step.axes)));
        }
        match &step.op {
            Op::Load { .. } => self.load(k, block),
            Op::Random { stream, seed, index, reads } => {
                let index = Coordinate::new(index, &self.extents, self.run.env());
                let seeds = self.integers(*seed, step.axes, block)?;
                self.draw(*stream, &seeds, &index?, reads, step.axes, block)
            }
            Op::Map { expr, args } => {
                let args = args.iter().map(|arg| self.operand(*arg, step.axes, block)).collect::<Result<Vec<_>>>()?;
                let place = |axis: usize| (place_of(step.axes, axis), block.start[axis]);
                eval_map_within(expr, block.sizes_of(step.axes), &place, &args, &self.run)
            }
            Op::Reduce { .. } | Op::Dot { .. } => self.fold(k, block),
            Op::Prefix { monoid, axis, exclusive, arg } => {
                let arg = self.run.dense(&self.operand(*arg, step.axes, block)?)?;
                self.rounded(eval_prefix(*monoid, place_of(step.axes, *axis), *exclusive, &arg))
            }
        }
    }

    /// A fold over all points of a block.
    pub(super) fn fold_whole(&self, k: usize, block: &Block) -> Result<Buffer> {
        let step = &self.kernel.steps[k];
        let value = match &step.op {
            Op::Reduce { monoid, over, arg } => self.reduce(*monoid, *over, *arg, block)?,
            Op::Dot { over, a, b, accumulator } => {
                let factor = |id: StepId| self.kernel.step(id).axes.union(*over);
                let spec = Contract {
                    a: labels(factor(*a)),
                    b: labels(factor(*b)),
                    out: labels(step.axes),
                    accumulator: *accumulator,
                };
                let (a, b) = (self.operand(*a, factor(*a), block)?, self.operand(*b, factor(*b), block)?);
                eval_contract(&spec, &a, &b, &self.run)?
            }
            _ => return Err(Error::bug("a fold of what does not fold")),
        };
        self.rounded(value)
    }

    /// A step folded with a monoid over all points of a block.
    pub(super) fn reduce(&self, monoid: Monoid, over: AxisSet, arg: StepId, block: &Block) -> Result<Buffer> {
        let axes = self.kernel.step(arg).axes.union(over);
        let folded: Vec<usize> = over.iter().map(|axis| place_of(axes, axis)).collect();
        eval_reduce(monoid, &folded, &self.operand(arg, axes, block)?, &self.run)
    }

    /// The result of an operation, rounded where every one is.
    pub(super) fn rounded(&self, buffer: Buffer) -> Result<Buffer> {
        if self.run.reading() == Reading::Rounded { buffer.rounded() } else { Ok(buffer) }
    }

    /// The value of a step seen at a block of points along `axes`, which are all that it varies over and perhaps more.
    pub(super) fn operand(&self, id: StepId, axes: AxisSet, block: &Block) -> Result<Buffer> {
        let step = self.kernel.step(id);
        if block.count(axes) == 0 {
            return Ok(empty(step.dtype, block.sizes_of(axes)));
        }
        if let Some(load) = &self.loads[id.index()]
            && let Some(positions) = load.positions(axes, block)
        {
            return Ok(self.inputs[load.input].clone().seen_at(positions, load.fill));
        }
        let missing = || Error::bug(format!("{id:?} is read before it has a value"));
        Ok(self.seen(self.held[id.index()].as_ref().ok_or_else(missing)?, step.axes, axes, block))
    }

    /// A value that varies over `own` axes, seen at a block of points along `axes`.
    pub(super) fn seen(&self, held: &Held, own: AxisSet, axes: AxisSet, block: &Block) -> Buffer {
        if own == axes && held.block.agrees(block, axes) {
            return held.buffer.clone();
        }
        let strides = row_major(held.buffer.sizes());
        let (mut offset, mut parts) = (0, Vec::with_capacity(axes.len()));
        for axis in axes.iter() {
            let stride = if own.contains(axis) { strides[place_of(own, axis)] as i64 } else { 0 };
            offset += stride * (block.start[axis] - if own.contains(axis) { held.block.start[axis] } else { 0 }) as i64;
            parts.push(Part::Stride(stride));
        }
        let index = IndexFn::Sum { offset, parts };
        let positions = Positions { sizes: block.sizes_of(axes), index, guards: Vec::new() };
        held.buffer.clone().seen_at(positions, Number::Int(0))
    }

    /// The value of an integer step at a block of points.
    fn integers(&self, id: StepId, axes: AxisSet, block: &Block) -> Result<Vec<i64>> {
        let buffer = self.run.dense(&self.operand(id, axes, block)?)?;
        Ok(buffer.to_ints().into_owned())
    }

    /// A load that is read element by element.
    fn load(&self, k: usize, block: &Block) -> Result<Buffer> {
        let step = &self.kernel.steps[k];
        let (axes, sizes, count) = (step.axes, block.sizes_of(step.axes), block.count(step.axes));
        let Some(load) = &self.loads[k] else { return Err(Error::bug("a load that was not prepared")) };
        self.run.reserve(count)?;
        let positions = self.positions(load, axes, block)?;
        let input = &self.inputs[load.input];
        if step.dtype.is_float() {
            let mut values = vec![load.fill.to_f64(); count];
            for (value, position) in values.iter_mut().zip(positions) {
                if let Some(position) = position {
                    input.read_floats(position, std::slice::from_mut(value))?;
                }
            }
            Ok(Buffer::floats(step.dtype, sizes, values))
        } else {
            let fill = if let Number::Int(n) = load.fill { n } else { 0 };
            let mut values = vec![fill; count];
            for (value, position) in values.iter_mut().zip(positions) {
                if let Some(position) = position {
                    input.read_ints(position, std::slice::from_mut(value))?;
                }
            }
            Ok(Buffer::ints(step.dtype, sizes, values))
        }
    }

    fn positions(&self, load: &Loading, axes: AxisSet, block: &Block) -> Result<Vec<Option<usize>>> {
        let reads = load.reads.iter().map(|id| self.integers(*id, axes, block)).collect::<Result<Vec<_>>>()?;
        let mut positions = Vec::with_capacity(block.count(axes));
        block.for_each(axes, |k, i| -> Result<()> {
            positions.push(load.position(i, &|read| reads[read][k]).at(|| block.point_text(axes, k))?);
            Ok(())
        })?;
        Ok(positions)
    }

    fn draw(
        &self,
        stream: u64,
        seeds: &[i64],
        index: &Coordinate,
        reads: &[StepId],
        axes: AxisSet,
        block: &Block,
    ) -> Result<Buffer> {
        let reads = reads.iter().map(|id| self.integers(*id, axes, block)).collect::<Result<Vec<_>>>()?;
        let mut words = Vec::with_capacity(block.count(axes));
        block.for_each(axes, |k, i| -> Result<()> {
            let element = index.at(i, &|read| reads[read][k]).at(|| block.point_text(axes, k))?;
            words.push(i64::from(philox::word(seeds[k] as u64, stream, element as u64)));
            Ok(())
        })?;
        Ok(Buffer::ints(DType::U32, block.sizes_of(axes), words))
    }
}

/// The place of an axis among some axes, ascending.
fn place_of(axes: AxisSet, axis: usize) -> usize {
    axes.iter().take_while(|other| *other < axis).count()
}

/// Names for axes in a contraction.
fn labels(axes: AxisSet) -> Vec<Label> {
    axes.iter().map(|axis| char::from(b'A' + axis as u8)).collect()
}

fn empty(dtype: DType, sizes: Vec<usize>) -> Buffer {
    if dtype.is_float() { Buffer::floats(dtype, sizes, Vec::new()) } else { Buffer::ints(dtype, sizes, Vec::new()) }
}
