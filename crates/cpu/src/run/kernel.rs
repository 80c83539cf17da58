//! One kernel by itself: as somebody wrote it, without a graph around it.
#![allow(unsafe_code, reason = "machine code is called with pointers")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use fuseline::error::{Allowance, Error, Result};
use fuseline::reference::Limits;
use fuseline::tensor::{Env, Literal};
use fuseline::tile::{Kernel, Param, verify};

use super::block::{Blocks, Held};
use super::execute::failed_check;
use super::launch::{Table, launch};
use super::pool::{Pool, Team};
use super::session::CpuDevice;
use super::workshop::{Compiled, Made};
use crate::emit::Memory;

/// A kernel at fixed sizes that is ready to run on a processor.
#[derive(Debug)]
pub struct LoneKernel {
    kernel: Arc<Kernel>,
    env: Env,
    compiled: Arc<Compiled>,
    pool: Arc<Pool>,
    blocks: Arc<Blocks>,
    limits: Limits,
    /// how long making it took
    pub making: Duration,
}

/// What runs leave.
struct Launched {
    /// the outputs, each with its bytes
    outputs: Vec<(Held, usize)>,
    /// how long every run took
    times: Vec<Duration>,
}

impl CpuDevice {
    /// Makes a kernel ready at the sizes of a binding, which must bind all of its symbols. Where there is no code for it, the error is
    /// [`Unsupported`](fuseline::error::Kind::Unsupported).
    pub fn load_kernel(&self, kernel: Kernel, env: &Env) -> Result<LoneKernel> {
        verify(&kernel)?;
        if let Some(symbol) = kernel.symbols().into_iter().find(|symbol| env.get(symbol).is_none()) {
            return Err(Error::invalid(format!("the size {symbol} is not known")));
        }
        kernel.check_positions(env)?;
        let (kernel, workshop) = (Arc::new(kernel), self.workshop());
        let compiled = match self.pool().enter(|team| workshop.make_one(team, &kernel, env))? {
            Made::Code(compiled) => compiled,
            Made::Refused(reason) => return Err(Error::unsupported(reason.to_string())),
        };
        let (pool, blocks) = (self.pool().clone(), Blocks::new());
        let making = workshop.spent();
        Ok(LoneKernel { kernel, env: env.clone(), compiled, pool, blocks, limits: self.limits, making })
    }

    /// How long a copy takes that reads and writes so many bytes together, with all threads; so many times.
    pub fn time_copy(&self, bytes: usize, runs: usize) -> Result<Vec<Duration>> {
        let (half, blocks) = (bytes / 2, Blocks::once());
        let [from, to] = [blocks.take(half.max(1))?, blocks.take(half.max(1))?];
        let (from, to) = (from.block().start().expose_provenance(), to.block().start().expose_provenance());
        // Many pieces, so that threads that are disturbed leave some to the others.
        let piece = half.div_ceil(8 * self.threads()).next_multiple_of(4096);
        let pieces = half.div_ceil(piece.max(1)) as u64;
        let copy = |_: usize, range: std::ops::Range<u64>| {
            let begin = range.start as usize * piece;
            let length = half.min(range.end as usize * piece) - begin;
            let at = |start: usize| std::ptr::with_exposed_provenance_mut::<u8>(start + begin);
            // SAFETY: both blocks have `half` bytes, they do not overlap, and pieces do not either.
            unsafe { at(from).copy_to_nonoverlapping(at(to), length) };
        };
        self.pool().enter(|team| {
            let mut once = || {
                let start = Instant::now();
                team.run(pieces, &copy);
                start.elapsed()
            };
            // The first touch maps memory.
            once();
            Ok((0..runs).map(|_| once()).collect())
        })
    }
}

impl LoneKernel {
    /// The outputs for inputs of the kernel's types, in order.
    pub fn run(&self, inputs: &[Literal]) -> Result<Vec<Literal>> {
        let outputs = self.pool.enter(|team| Ok::<_, Error>(self.launched(team, inputs, 1)?.outputs))?;
        let restored = |(param, (held, bytes)): (&Param, (Held, usize))| {
            let sizes = param.ty.shape.eval(&self.env)?;
            let in_memory: Vec<usize> = param.layout.order().map(|axis| sizes[axis]).collect();
            Ok(param.layout.restore(&Literal::new(param.ty.dtype, in_memory, held.into_bytes(bytes))?))
        };
        self.kernel.outputs.iter().zip(outputs).map(restored).collect()
    }

    /// How long so many runs take, one after another, on inputs and outputs that stay where they are.
    pub fn time(&self, inputs: &[Literal], runs: usize) -> Result<Vec<Duration>> {
        self.pool.enter(|team| Ok(self.launched(team, inputs, runs)?.times))
    }

    /// The bytes of all inputs and outputs.
    pub fn bytes(&self) -> Result<usize> {
        let params = self.kernel.inputs.iter().chain(&self.kernel.outputs);
        params.map(|param| self.bytes_of(&param.ty)).sum()
    }

    fn bytes_of(&self, ty: &fuseline::tensor::TensorType) -> Result<usize> {
        let bytes = ty.dtype.bytes(ty.shape.eval(&self.env)?.iter().product());
        let bytes = bytes.ok_or_else(|| Error::limit(format!("a tensor {ty} of more bytes than can be counted")))?;
        let limit = self.limits.bytes;
        match bytes as u64 > limit {
            true => {
                Err(Error::over(Allowance::Memory, format!("a value of {bytes} bytes (the limit is {limit} bytes)")))
            }
            false => Ok(bytes),
        }
    }

    /// Refuses inputs that are not what the kernel was made for.
    fn check(&self, inputs: &[Literal]) -> Result<()> {
        if inputs.len() != self.kernel.inputs.len() {
            return Err(Error::invalid(format!(
                "{} inputs for a kernel of {}",
                inputs.len(),
                self.kernel.inputs.len()
            )));
        }
        for (k, (param, input)) in self.kernel.inputs.iter().zip(inputs).enumerate() {
            if param.ty.dtype != input.dtype() || param.ty.shape.eval(&self.env)? != input.sizes() {
                return Err(Error::invalid(format!("input {k} is {}, wanted {}", input.ty(), param.ty)));
            }
        }
        Ok(())
    }

    /// Runs all phases so many times.
    fn launched(&self, team: &mut Team<'_>, inputs: &[Literal], runs: usize) -> Result<Launched> {
        self.check(inputs)?;
        let emitted = &self.compiled.emitted;
        let arranged = self.kernel.inputs.iter().zip(inputs).map(|(param, input)| param.layout.arrange(input).bytes());
        let sources: Vec<_> = arranged.collect();
        let mut outputs = Vec::with_capacity(self.kernel.outputs.len());
        for param in &self.kernel.outputs {
            let bytes = self.bytes_of(&param.ty)?;
            outputs.push((self.blocks.take(bytes)?, bytes));
        }
        let scratch = emitted.scratch.iter().map(|bytes| self.blocks.take(*bytes)).collect::<Result<Vec<Held>>>()?;
        let worker_bytes = emitted.phases.iter().map(|phase| phase.worker_bytes).max().unwrap_or(0);
        let stride = worker_bytes.next_multiple_of(128);
        let workers = self.blocks.take_arena(stride.saturating_mul(team.threads()))?;
        let mut pointers = vec![std::ptr::null_mut(); emitted.pointers()];
        let mut set = |memory, at| pointers[emitted.place(memory) as usize] = at;
        sources.iter().enumerate().for_each(|(k, bytes)| set(Memory::Input(k), bytes.as_ptr().cast_mut()));
        outputs.iter().enumerate().for_each(|(k, (held, _))| set(Memory::Output(k), held.block().start()));
        scratch.iter().enumerate().for_each(|(k, held)| set(Memory::Scratch(k), held.block().start()));
        let worker = emitted.place(Memory::Worker) as usize;
        let mut times = Vec::with_capacity(runs);
        for _ in 0..runs {
            let start = Instant::now();
            for (phase, code) in emitted.phases.iter().zip(&self.compiled.codes) {
                let first = workers.block().start();
                let table = Table { pointers: &pointers, used: &phase.table, worker, first, stride };
                // SAFETY: inputs have the sizes for which the kernel was made; outputs, memory between phases and that of threads are
                // as large as it asks for, and ours alone; tasks of a phase are independent.
                let fault = unsafe { launch(team, code, phase.tasks, table) };
                fault.map_or(Ok(()), |fault| Err(failed_check(phase, fault)))?;
            }
            times.push(start.elapsed());
        }
        Ok(Launched { outputs, times })
    }
}
