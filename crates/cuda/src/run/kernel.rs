//! One kernel by itself: as somebody wrote it, without a graph around it.

use std::sync::Arc;

use fuseline::error::{Context, Error, Result};
use fuseline::tensor::{Env, Literal, TensorType};
use fuseline::tile::{Kernel, Param, verify};

use super::constant::Constants;
use super::execute::{Engine, Run, Table};
use super::session::{CudaDevice, Timing};
use super::specialize::{Step, step};
use super::workshop::{Made, key};
use crate::memory::Block;

/// A kernel at fixed sizes that is ready to run on a GPU.
#[derive(Debug)]
pub struct LoneKernel {
    kernel: Arc<Kernel>,
    env: Env,
    step: Step,
    engine: Engine,
}

/// The memory of a run.
struct Memory {
    table: Table,
    outputs: Vec<Block>,
    /// keeps inputs and what is between launches
    _others: Vec<Block>,
}

impl CudaDevice {
    /// Makes a kernel ready at the sizes of a binding, which must bind all of its symbols. Where there is no code for it, the error is
    /// [`Unsupported`](fuseline::error::Kind::Unsupported).
    pub fn load_kernel(&self, kernel: Kernel, env: &Env) -> Result<LoneKernel> {
        verify(&kernel)?;
        if let Some(symbol) = kernel.symbols().into_iter().find(|symbol| env.get(symbol).is_none()) {
            return Err(Error::invalid(format!("the size {symbol} is not known")));
        }
        kernel.check_positions(env)?;
        let kernel = Arc::new(kernel);
        let engine = Engine::new(self.gpu().clone(), self.limits, self.workshop().clone(), Constants::default())?;
        let made = engine.workshop.make(&[key(&kernel, env)?])?.pop();
        let compiled = match made.ok_or_else(|| Error::bug("a kernel was not made"))? {
            Made::Code(compiled) => compiled,
            Made::Refused(reason) => return Err(Error::unsupported(reason.to_string())),
        };
        Ok(LoneKernel { kernel, env: env.clone(), step: step(compiled, env)?, engine })
    }

    /// How long a copy takes on the device that reads and writes so many bytes together; so many times.
    pub fn time_copy(&self, bytes: usize, runs: usize) -> Result<Timing> {
        let (gpu, half) = (self.gpu(), (bytes / 2).max(1));
        let [from, to] = [gpu.take(half)?, gpu.take(half)?];
        let copy = gpu.record(|| gpu.copy(to.at(), from.at(), half))?;
        timed(gpu, runs, || copy.launch())
    }
}

impl LoneKernel {
    /// The outputs for inputs of the kernel's types, in order.
    pub fn run(&self, inputs: &[Literal]) -> Result<Vec<Literal>> {
        let memory = self.prepared(inputs)?;
        Run::new(&self.engine).launch(0, &self.step, &memory.table)?;
        self.engine.gpu.synchronize().at(|| self.step.compiled.printed.launches[0].name.clone())?;
        self.engine.check_fault(&self.step.compiled.printed.sites)?;
        let read = |(param, block): (&Param, &Block)| {
            let mut data = vec![0u8; self.bytes_of(&param.ty)?];
            self.engine.gpu.read(block.at(), &mut data)?;
            let sizes = param.ty.shape.eval(&self.env)?;
            let in_memory: Vec<usize> = param.layout.order().map(|axis| sizes[axis]).collect();
            Ok(param.layout.restore(&Literal::new(param.ty.dtype, in_memory, data)?))
        };
        self.kernel.outputs.iter().zip(&memory.outputs).map(read).collect()
    }

    /// How long so many runs take on the device, on inputs and outputs that stay there.
    pub fn time(&self, inputs: &[Literal], runs: usize) -> Result<Timing> {
        let memory = self.prepared(inputs)?;
        let graph = self.engine.gpu.record(|| Run::new(&self.engine).launch(0, &self.step, &memory.table))?;
        let timing = timed(&self.engine.gpu, runs, || graph.launch())?;
        self.engine.check_fault(&self.step.compiled.printed.sites)?;
        Ok(timing)
    }

    fn bytes_of(&self, ty: &TensorType) -> Result<usize> {
        let bytes = ty.dtype.bytes(ty.shape.eval(&self.env)?.iter().product());
        bytes.ok_or_else(|| Error::limit(format!("a tensor {ty} of more bytes than can be counted")))
    }

    /// Memory for a run, with the inputs in it.
    fn prepared(&self, inputs: &[Literal]) -> Result<Memory> {
        if inputs.len() != self.kernel.inputs.len() {
            return Err(Error::invalid(format!(
                "{} inputs for a kernel of {}",
                inputs.len(),
                self.kernel.inputs.len()
            )));
        }
        let gpu = &self.engine.gpu;
        let (mut table, mut others, mut outputs) = (Table::default(), Vec::new(), Vec::new());
        for (k, (param, input)) in self.kernel.inputs.iter().zip(inputs).enumerate() {
            if param.ty.dtype != input.dtype() || param.ty.shape.eval(&self.env)? != input.sizes() {
                return Err(Error::invalid(format!("input {k} is {}, wanted {}", input.ty(), param.ty)));
            }
            let block = gpu.take(input.byte_count())?;
            gpu.write(block.at(), &param.layout.arrange(input).bytes())?;
            table.inputs.push(block.at());
            others.push(block);
        }
        for param in &self.kernel.outputs {
            let block = gpu.take(self.bytes_of(&param.ty)?)?;
            table.outputs.push(block.at());
            outputs.push(block);
        }
        for bytes in &self.step.scratch {
            let block = gpu.take(*bytes)?;
            table.scratch.push(block.at());
            others.push(block);
        }
        Ok(Memory { table, outputs, _others: others })
    }
}

/// Microseconds of every launch, after some that are not counted.
fn timed(gpu: &Arc<crate::gpu::Gpu>, runs: usize, launch: impl Fn() -> Result<()>) -> Result<Timing> {
    for _ in 0..3 {
        launch()?;
    }
    gpu.synchronize()?;
    let mut marks = vec![gpu.mark()?];
    for _ in 0..runs {
        launch()?;
        marks.push(gpu.mark()?);
    }
    gpu.synchronize()?;
    let us = marks.windows(2).map(|pair| pair[1].since(&pair[0])).collect::<Result<Vec<f64>>>()?;
    Ok(Timing { us })
}
