//! Kernels at fixed sizes as vector programs.
//!
//! Comes in: a [`Kernel`](fuseline::tile::Kernel) and numbers for its sizes. Goes out: [`Emitted`], phases of vector programs
//! that run one after another. Never here: registers, instruction sets beyond the width of a vector, threads.

use crate::vector::Program;

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
    /// the program; its table of pointers is that of [`Emitted::place`]
    pub program: Program,
    /// tasks are 0..tasks
    pub tasks: u64,
    /// what it reads; a phase that reads nothing but constants and writes scratch alone can run once for all
    pub reads: Vec<Memory>,
    /// what it writes
    pub writes: Vec<Memory>,
    /// bytes that a thread needs for itself
    pub worker_bytes: usize,
    /// what to say when a check fails, by its site
    pub sites: Vec<String>,
}

impl Emitted {
    /// The place of memory in the table of pointers of every phase: inputs, outputs, scratch, the worker's.
    pub fn place(&self, memory: Memory) -> u32 {
        let place = match memory {
            Memory::Input(k) => k,
            Memory::Output(k) => self.inputs + k,
            Memory::Scratch(k) => self.inputs + self.outputs + k,
            Memory::Worker => self.inputs + self.outputs + self.scratch.len(),
        };
        place as u32
    }
}
