//! The interpreter of kernels: what every kernel means.
//!
//! Comes in: a kernel, its inputs, the sizes that are known. Goes out: its outputs. Plain loops: independent axes outside,
//! as many of them and in such pieces as keep the values of steps small; inside, every step once at every point of its own
//! axes. The arithmetic is that of [`crate::reference`], on the same values: floats as f64, integers exact.
//!
//! The schedule changes nothing, unless it is asked for: [`Folds::AsScheduled`] computes folds in the parts that the
//! schedule names, combines them, and streams attention with its corrections, so that this algebra itself is tested.
//!
//! Found here, as errors that name the step and its coordinates: reads outside of an input, elements that are written twice
//! or never. Never here: memory layouts; a tensor is its elements by coordinates.

mod access;
mod block;
mod eval;
mod nest;
mod parts;
mod target;

use super::{Kernel, Rounding, Schedule, verify};
use crate::error::{Context, Error, Result};
use crate::reference::{self, Buffer, Limits, Reading, Run};
use crate::tensor::{Env, Shape, element_count};

use access::Loading;
use block::Block;
use eval::Held;
use nest::Nest;
use target::{Storing, Target};

/// How folds are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Folds {
    /// each at once
    #[default]
    Whole,
    /// in the parts that the schedule names: split rows, columns across workers, streamed attention
    AsScheduled,
}

/// How to run.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// how floats are read: exact leaves everything but casts in f64; rounded rounds where the kernel says so
    pub reading: Reading,
    /// what the kernel may use
    pub limits: Limits,
    /// how folds are computed
    pub folds: Folds,
    /// steps of more elements are computed in pieces, as far as axes are independent; changes no result
    pub piece: usize,
}

impl Default for Options {
    fn default() -> Options {
        let (reading, limits, folds) = (Reading::default(), Limits::default(), Folds::default());
        Options { reading, limits, folds, piece: 1 << 20 }
    }
}

/// The outputs of a kernel for its inputs, in order. Symbols that `env` does not bind are bound by the inputs whose sizes
/// they are.
pub fn run(kernel: &Kernel, inputs: &[Buffer], env: &Env, options: &Options) -> Result<Vec<Buffer>> {
    verify(kernel)?;
    if inputs.len() != kernel.inputs.len() {
        return Err(Error::invalid(format!("{} inputs for a kernel of {}", inputs.len(), kernel.inputs.len())));
    }
    let mut env = env.clone();
    // The second time around, sizes such as 2*n are checked whose symbols only a later input has bound.
    for _ in 0..2 {
        for (k, (param, input)) in kernel.inputs.iter().zip(inputs).enumerate() {
            param.ty.bind(input.dtype(), input.sizes(), &mut env).at(|| format!("input x{k}"))?;
        }
    }
    if let Schedule::Host(graph) = &kernel.schedule {
        let options = reference::Options { reading: options.reading, limits: options.limits };
        return Run::new(&options, env).region(graph, inputs);
    }
    // Between its ends a kernel computes in f64 unless every result is to be rounded.
    let rounds = options.reading == Reading::Rounded;
    let every = rounds && kernel.rounding == Rounding::Every;
    let inner =
        reference::Options { reading: if every { Reading::Rounded } else { Reading::Exact }, limits: options.limits };
    let mut interpreter = Interpreter::new(kernel, inputs, Run::new(&inner, env), options)?;
    let whole = Block::whole(&interpreter.extents);
    interpreter.descend(0, &whole)?;
    interpreter.outputs.into_iter().enumerate().map(|(k, target)| target.finish(k, rounds)).collect()
}

/// A kernel on its way.
struct Interpreter<'k> {
    kernel: &'k Kernel,
    run: Run<'k>,
    inputs: Vec<Buffer>,
    /// the numbers of iterations of the axes
    extents: Vec<usize>,
    /// the loads, by step; none for other steps, and where nothing is loaded
    loads: Vec<Option<Loading>>,
    nest: Nest,
    /// values of steps that are needed
    held: Vec<Option<Held>>,
    outputs: Vec<Target>,
    /// the stores; none where nothing is stored
    stores: Vec<Option<Storing>>,
    folds: Folds,
}

impl<'k> Interpreter<'k> {
    fn new(kernel: &'k Kernel, inputs: &[Buffer], run: Run<'k>, options: &Options) -> Result<Interpreter<'k>> {
        let extents = Shape::from(kernel.axes.clone()).extents(run.env());
        let extents = extents.at(|| "the extents of the axes")?;
        // All axes together may have any number of points: each step goes along its own.
        for (k, step) in kernel.steps.iter().enumerate() {
            let along: Vec<usize> = step.axes.union(step.op.folds()).iter().map(|axis| extents[axis]).collect();
            element_count(&along).at(|| kernel.describe(k))?;
        }
        for store in &kernel.stores {
            let along: Vec<usize> = store.axes().iter().map(|axis| extents[axis]).collect();
            element_count(&along).at(|| format!("the store to y{}", store.output))?;
        }
        let is_read = nest::read_somewhere(kernel, &extents);
        let mut loads = Vec::with_capacity(kernel.steps.len());
        for (k, is_read) in is_read.iter().enumerate() {
            let loading = || Loading::new(kernel, k, inputs, &extents, run.env()).at(|| kernel.describe(k));
            loads.push(if *is_read { loading()? } else { None });
        }
        // What is read element by element stays as it is; what is seen as a whole is converted once.
        let mut seen = vec![false; inputs.len()];
        loads.iter().flatten().filter(|load| load.is_view()).for_each(|load| seen[load.input] = true);
        let inputs = inputs.iter().zip(seen).map(|(input, seen)| {
            let dense = run.dense(input)?;
            Ok(if seen { dense.converted() } else { dense })
        });
        let inputs: Vec<Buffer> = inputs.collect::<Result<_>>()?;
        let views: Vec<bool> = loads.iter().map(|load| load.as_ref().is_some_and(Loading::is_view)).collect();
        let streamed = parts::streamed(kernel, options.folds);
        let nest = Nest::new(kernel, &extents, &views, &streamed, options.piece).without_idle(&is_read);
        let mut outputs = Vec::with_capacity(kernel.outputs.len());
        for (k, param) in kernel.outputs.iter().enumerate() {
            outputs.push(Target::new(&param.ty, &run).at(|| format!("output y{k}"))?);
        }
        let stores = kernel.stores.iter().map(|store| Storing::new(kernel, store, &extents, run.env()));
        let stores = stores.collect::<Result<_>>()?;
        let held = vec![None; kernel.steps.len()];
        Ok(Interpreter { kernel, run, inputs, extents, loads, nest, held, outputs, stores, folds: options.folds })
    }

    /// Runs the steps and stores of a level at a block of points, and everything deeper at every piece of it.
    fn descend(&mut self, level: usize, block: &Block) -> Result<()> {
        let steps = std::mem::take(&mut self.nest.levels[level]);
        for k in &steps {
            self.hold(*k, block)?;
            self.write(*k, block)?;
            for done in &self.nest.released[*k] {
                self.held[*done] = None;
            }
        }
        self.nest.levels[level] = steps;
        match self.nest.loops.get(level).copied() {
            Some((axis, length)) => block.pieces(axis, length).try_for_each(|piece| self.descend(level + 1, &piece)),
            None => self.stream(block),
        }
    }
}
