//! This machine's GPU, measured by kernels of our own: a copy, a fold, and a long chain of arithmetic.

use fuseline::compile::plan_program;
use fuseline::device::{DeviceSpec, NamedTensors};
use fuseline::error::{Error, Result};
use fuseline::fuse::PlanOptions;
use fuseline::graph::{Builder, Graph};
use fuseline::reference::Limits;
use fuseline::tensor::{DType, Literal, Shape};
use fuseline_session::machine::{Machine, Program};
use serde_json::{Value, json};

use super::{Roofline, spec_of_base};
use crate::quantity;
use crate::screen::{self, Column, Table};

/// What was measured.
#[derive(Clone, Debug)]
pub struct Graphics {
    /// what it is called
    pub name: String,
    cores: usize,
    memory: usize,
    /// GB/s
    copy: f64,
    read: f64,
    /// GFLOP/s
    vectors: f64,
}

/// Elements of what is copied: more than any cache holds.
const FAR: usize = 1 << 27;
/// Elements of the chain, and its length.
const NEAR: usize = 1 << 24;
const CHAIN: usize = 128;
/// Runs of which the fastest counts.
const RUNS: usize = 10;

/// Measures the first GPU; `tell` is called with what comes next.
pub fn measure(tell: &mut dyn FnMut(&str)) -> Result<Graphics> {
    let plan = PlanOptions::on(DeviceSpec::find("h200")?);
    let machine = Machine::cuda(plan.clone(), Limits::default())?;
    let Machine::Cuda(device) = &machine else { return Err(Error::bug("a GPU that is none")) };
    let description = device.description().clone();
    tell("memory of the GPU");
    let moved = (2 * FAR * 4) as f64;
    let copy = moved / fastest(&machine, &plan, copy()?, FAR)? / 1e9;
    let read = (FAR * 4) as f64 / fastest(&machine, &plan, fold()?, FAR)? / 1e9;
    tell("arithmetic of the GPU");
    let vectors = (2 * CHAIN * NEAR) as f64 / fastest(&machine, &plan, chain()?, NEAR)? / 1e9;
    let cores = usize::try_from(description.cores).unwrap_or(1);
    Ok(Graphics { name: description.name, cores, memory: description.memory, copy, read, vectors })
}

fn shape(sizes: &[usize]) -> Shape {
    sizes.iter().copied().collect()
}

fn copy() -> Result<Graph> {
    let b = Builder::new("copy");
    let x = b.input("x", DType::F32, shape(&[FAR]));
    b.output("y", x * 2.0);
    b.finish()
}

fn fold() -> Result<Graph> {
    let b = Builder::new("fold");
    let x = b.input("x", DType::F32, shape(&[FAR / 4096, 4096]));
    b.output("y", x.sum(&[1]));
    b.finish()
}

/// y·y + c again and again: nothing in it can be computed before.
fn chain() -> Result<Graph> {
    let b = Builder::new("chain");
    let mut y = b.input("x", DType::F32, shape(&[NEAR]));
    for _ in 0..CHAIN {
        y = y * y - 0.5;
    }
    b.output("y", y);
    b.finish()
}

/// The least seconds that a graph takes on the device.
fn fastest(machine: &Machine, plan: &PlanOptions, graph: Graph, elements: usize) -> Result<f64> {
    let sizes = graph.ty(graph.inputs()[0]).shape.as_ints().ok_or_else(|| Error::bug("a size that is not known"))?;
    let zeros = Literal::new(DType::F32, sizes, vec![0u8; 4 * elements])?;
    let inputs: NamedTensors = [("x".into(), zeros)].into_iter().collect();
    let Program::Cuda(session) = machine.load(&plan_program(graph, plan, &mut |_| {})?)? else {
        return Err(Error::bug("a program that is not on the GPU"));
    };
    session.time(&inputs, 2)?;
    let timing = session.time(&inputs, RUNS)?.ok_or_else(|| Error::bug("a kernel that the host takes part in"))?;
    let us = timing.us.iter().copied().fold(f64::INFINITY, f64::min);
    if us > 0.0 && us.is_finite() { Ok(us / 1e6) } else { Err(Error::bug("a clock that stands still")) }
}

impl Graphics {
    /// What was measured, and nothing that a data sheet says.
    pub fn roofline(&self) -> Roofline {
        Roofline {
            name: format!("{}, measured", self.name),
            memories: vec![("HBM".into(), self.copy.max(self.read))],
            peaks: vec![("f32 vectors".into(), self.vectors)],
            points: Vec::new(),
        }
    }

    /// As the planner can be given it: the data sheet of the nearest GPU that is known, and what was reached of it.
    pub fn to_spec(&self) -> Result<DeviceSpec> {
        let known = ["a100", "h100", "h200"].into_iter().find(|known| self.name.to_lowercase().contains(known));
        let base = DeviceSpec::find(known.unwrap_or("h200"))?;
        let mut spec = spec_of_base(base, "here", &format!("{}, memory and f32 vectors measured", self.name));
        let wider = self.cores as f64 / base.limits.cores.max(1) as f64;
        spec.limits.cores = self.cores;
        if known.is_none() {
            for rates in [&mut spec.vector, &mut spec.matrix, &mut spec.special] {
                rates.rows.iter_mut().for_each(|(_, rate)| *rate *= wider);
            }
        }
        let reach = |measured: f64, peak: f64| (measured / peak * 1e2).round().clamp(1.0, 100.0) / 1e2;
        let peak = spec.vector.peak(DType::F32).unwrap_or(self.vectors);
        spec.vector.reach = reach(self.vectors, peak);
        let main = spec.memory.last_mut().ok_or_else(|| Error::bug("a device without memory"))?;
        main.bytes = self.memory;
        main.gbps = if known.is_some() { main.gbps } else { (self.copy / main.reach).round() };
        main.reach = reach(self.copy, main.gbps);
        Ok(spec)
    }

    /// The same as JSON.
    pub fn to_json(&self) -> Value {
        json!({
            "name": self.name,
            "memories": [{ "name": "hbm", "bytes": self.memory, "read_gbps": [self.read], "copy_gbps": [self.copy] }],
            "arithmetic": [{ "unit": "f32 vectors", "gflops": [self.vectors] }],
        })
    }

    /// A table of rates.
    pub fn to_text(&self) -> String {
        let mut table = Table::new([Column::left(""), Column::right("")]);
        let rate = |gbps: f64| format!("{}B/s", quantity::count(gbps * 1e9));
        table.row(["HBM copy".into(), rate(self.copy)]);
        table.row(["HBM read".into(), rate(self.read)]);
        table.row(["f32 vectors".into(), format!("{}FLOP/s", quantity::count(self.vectors * 1e9))]);
        table.text(screen::width())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_roof_is_drawn_that_was_not_measured() {
        let name = "NVIDIA H200".to_string();
        let gpu = Graphics { name, cores: 132, memory: 1 << 37, copy: 4000.0, read: 4100.0, vectors: 50e3 };
        let drawn = gpu.roofline();
        assert_eq!(drawn.memories, [("HBM".to_string(), 4100.0)]);
        assert_eq!(drawn.peaks, [("f32 vectors".to_string(), 50e3)]);
        let spec = gpu.to_spec().unwrap();
        assert!(spec.matrix.peak(DType::BF16).is_some(), "plans know of the other units by the data sheet");
        assert!(spec.doc.contains("memory and f32 vectors measured"), "{}", spec.doc);
    }
}
