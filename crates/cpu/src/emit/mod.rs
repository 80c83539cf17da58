//! Kernels at fixed sizes as vector programs.
//!
//! Comes in: a [`Kernel`] and numbers for its sizes. Goes out: [`Emitted`], phases of vector programs
//! that run one after another. Never here: registers, instruction sets beyond the width of a vector, threads.

mod access;
mod alike;
mod attention;
mod bound;
mod contract;
mod emitter;
mod empty;
mod expression;
mod factors;
mod fold;
mod fold_loop;
mod generic;
mod group;
mod index;
mod interleave;
mod lanes;
mod late;
mod matrix;
mod multiply;
mod narrow;
mod overlap;
mod parts;
mod point;
mod prefix;
mod random;
mod reach;
mod roles;
mod row_plan;
mod rows;
mod several;
mod share;
mod stream;
#[cfg(all(test, unix))]
mod tests;
mod tile_sums;
mod tiling;
mod turn;
mod windows;

use std::sync::Arc;

use fuseline::error::{Error, Result};
use fuseline::tensor::{DType, Env};
use fuseline::tile::{Kernel, Limit, Schedule};

use crate::code::Isa;
use crate::vector::{Program, Ty};
use bound::Bound;
pub(crate) use emitter::FARTHEST_INDEX;
use emitter::{Emitter, is_wide};

/// For what a kernel is emitted. No result depends on anything but the instructions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// the instructions
    pub isa: Isa,
    /// among how many cores tasks are shared
    pub cores: usize,
    /// inputs that never change, so that what is packed of them is packed once; those behind the last one do
    pub constant: Vec<bool>,
}

impl Target {
    /// A machine on which all inputs change.
    pub fn new(isa: Isa, cores: usize) -> Target {
        Target { isa, cores, constant: Vec::new() }
    }
}

/// Emits a kernel at fixed sizes. What the machine cannot do at all is [not supported](Error::unsupported).
pub fn emit(kernel: &Kernel, env: &Env, target: &Target) -> Result<Emitted> {
    if let Schedule::Host(_) = kernel.schedule {
        return Err(Error::unsupported("a kernel of the host has no vector program"));
    }
    let params = kernel.inputs.iter().chain(&kernel.outputs).map(|param| param.ty.dtype);
    check_types(params.chain(kernel.steps.iter().map(|step| step.dtype)))?;
    let kernel = &*narrow::narrowed(group::grouped(kernel));
    let bound = Bound::new(kernel, env)?;
    let rest = bound.extents.contains(&0).then(|| empty::without_empty(&bound)).transpose()?;
    let bound = match &rest {
        Some(rest) => Bound::new(rest, env)?,
        None => bound,
    };
    let most = (target.isa.vector_bytes() / 4) as u32;
    // Vectors hold half as many lanes where some turn out to have 64 bits.
    let phases = match emit_phases(&bound, target, most)? {
        emission if emission.phases.iter().any(|phase| is_wide(&phase.program) && phase.program.lanes == most) => {
            emit_phases(&bound, target, most / 2)?
        }
        emission => emission,
    };
    let Emission { phases, scratch, .. } = phases;
    Ok(Emitted { phases, scratch, inputs: kernel.inputs.len(), outputs: kernel.outputs.len() })
}

fn emit_phases<'e>(bound: &'e Bound<'e>, target: &'e Target, lanes: u32) -> Result<Emission<'e>> {
    let mut emission = Emission::new(bound, target, lanes);
    match &bound.kernel.schedule {
        Schedule::Row { along, .. } => row_plan::emit_row(&mut emission, *along)?,
        Schedule::Contract { .. } => contract::emit_contract(&mut emission)?,
        Schedule::Attention { .. } => attention::emit_attention(&mut emission)?,
        _ => generic::emit_generic(&mut emission)?,
    }
    Ok(emission)
}

fn check_types(mut dtypes: impl Iterator<Item = DType>) -> Result<()> {
    match dtypes.find(|dtype| Ty::of(*dtype).is_none()) {
        Some(dtype) => Err(Error::unsupported(format!("elements of type {dtype} in vectors"))),
        None => Ok(()),
    }
}

/// A kernel that is being emitted.
struct Emission<'e> {
    bound: &'e Bound<'e>,
    isa: Isa,
    lanes: u32,
    cores: usize,
    /// see [`Target::constant`]
    constant: &'e [bool],
    phases: Vec<Phase>,
    scratch: Vec<usize>,
}

impl<'e> Emission<'e> {
    fn new(bound: &'e Bound<'e>, target: &'e Target, lanes: u32) -> Emission<'e> {
        let Target { isa, cores, constant } = target;
        Emission { bound, isa: *isa, lanes, cores: *cores, constant, phases: Vec::new(), scratch: Vec::new() }
    }

    /// Numbers in a vector.
    fn lanes(&self) -> i64 {
        i64::from(self.lanes)
    }

    /// Emits a phase by `body`, which returns the number of tasks.
    fn phase(&mut self, name: &'static str, body: &mut dyn FnMut(&mut Emitter<'_>) -> Result<i64>) -> Result<()> {
        let mut emitter = Emitter::new(self.bound, self.isa, self.lanes, self.cores);
        let tasks = body(&mut emitter)?;
        self.phases.push(emitter.finish(name, tasks));
        Ok(())
    }
}

impl Emission<'_> {
    /// Emits a phase by `body`, which works with any number of lanes: with half as many as others have where it computes with 64 bits.
    fn phase_of_any_lanes(
        &mut self,
        name: &'static str,
        body: &mut dyn FnMut(&mut Emitter<'_>) -> Result<i64>,
    ) -> Result<()> {
        self.phase(name, body)?;
        let wide = self.isa.vector_bytes() as u32 / 8;
        if self.lanes > wide && self.phases.last().is_some_and(|phase| is_wide(&phase.program)) {
            self.phases.pop();
            let lanes = std::mem::replace(&mut self.lanes, wide);
            let emitted = self.phase(name, body);
            self.lanes = lanes;
            emitted?;
        }
        Ok(())
    }
}

/// A kernel at fixed sizes.
#[derive(Clone, Debug)]
pub struct Emitted {
    /// what runs, one after another
    pub phases: Vec<Phase>,
    /// memory between phases, each by its bytes; a pointer is a multiple of 64
    pub scratch: Vec<usize>,
    /// how many tensors it reads
    pub inputs: usize,
    /// how many tensors it writes
    pub outputs: usize,
}

/// Memory that a phase uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Memory {
    /// an input of the kernel
    Input(usize),
    /// an output of the kernel
    Output(usize),
    /// memory between phases
    Scratch(usize),
    /// memory of the thread that runs a task; its content does not outlive the task
    Worker,
}

/// A program and its tasks. Tasks are independent of each other; a phase begins when the one before has ended.
#[derive(Clone, Debug)]
pub struct Phase {
    /// what it does, in a word for reports: "pack", "multiply"
    pub name: &'static str,
    /// the program
    pub program: Arc<Program>,
    /// its table of pointers: places of the kernel's ([`Emitted::place`])
    pub table: Vec<u32>,
    /// tasks are 0..tasks
    pub tasks: u64,
    /// what it reads; a phase that reads nothing but constants and writes scratch alone can run once for all
    pub reads: Vec<Memory>,
    /// what it writes
    pub writes: Vec<Memory>,
    /// bytes that a thread needs for itself
    pub worker_bytes: usize,
    /// what is checked, by its site
    pub sites: Vec<Site>,
}

/// A coordinate that is checked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Site {
    /// the step or store of the kernel that has it, as paths of errors name it
    pub place: String,
    /// where it must be
    pub limit: Limit,
}

impl Memory {
    /// The place in the table of pointers of a kernel with so many inputs and outputs: inputs, outputs, the worker's, scratch.
    pub fn place(self, inputs: usize, outputs: usize) -> u32 {
        let place = match self {
            Memory::Input(k) => k,
            Memory::Output(k) => inputs + k,
            Memory::Worker => inputs + outputs,
            Memory::Scratch(k) => inputs + outputs + 1 + k,
        };
        place as u32
    }

    /// The memory at a place of that table.
    fn at(place: u32, inputs: usize, outputs: usize) -> Memory {
        match place as usize {
            k if k < inputs => Memory::Input(k),
            k if k < inputs + outputs => Memory::Output(k - inputs),
            k if k == inputs + outputs => Memory::Worker,
            k => Memory::Scratch(k - inputs - outputs - 1),
        }
    }
}

impl Emitted {
    /// How many pointers the table of the kernel has.
    pub fn pointers(&self) -> usize {
        self.inputs + self.outputs + 1 + self.scratch.len()
    }

    /// The place of memory in the table of pointers of the kernel.
    pub fn place(&self, memory: Memory) -> u32 {
        memory.place(self.inputs, self.outputs)
    }
}
