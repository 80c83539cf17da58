//! `fuseline roofline`: what a machine can do at most, and what kernels reach of it.

mod command;
mod graphics;
mod kernels;
mod labels;
pub mod plot;
mod png;
mod processor;
mod product;
pub mod scene;
pub mod svg;
mod terminal;

pub use command::roofline;
pub use processor::drawn;

use fuseline::device::DeviceSpec;
use fuseline::tensor::DType;
use serde_json::Value;

/// What the arithmetic is called of a machine of which one number is given.
const ANY_UNIT: &str = "arithmetic";

/// The limits of a machine, and kernels.
#[derive(Clone, Debug, PartialEq)]
pub struct Roofline {
    /// what the machine is called
    pub name: String,
    /// memories with GB/s
    pub memories: Vec<(String, f64)>,
    /// units of arithmetic with GFLOP/s
    pub peaks: Vec<(String, f64)>,
    pub points: Vec<Point>,
}

/// A kernel on the roofline.
#[derive(Clone, Debug, PartialEq)]
pub struct Point {
    pub name: String,
    /// operations for each byte
    pub intensity: f64,
    pub gflops: f64,
    /// how long it takes
    pub us: f64,
    pub series: Series,
}

/// Which plan a kernel is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Series {
    /// the fused one: its number, and that of all that are equal to it
    Fused(usize, usize),
    /// the unfused one
    Unfused(usize),
}

impl Series {
    /// Whether it is of the fused plan.
    pub fn is_fused(self) -> bool {
        matches!(self, Series::Fused(..))
    }
}

impl Roofline {
    /// The limits of a device as it is described.
    pub fn of(spec: &DeviceSpec) -> Roofline {
        let memories = spec.memory.iter().map(|level| (level.name.to_uppercase(), level.gbps)).collect();
        let mut peaks: Vec<(String, f64)> = Vec::new();
        let vector = [DType::F32].into_iter().filter_map(|d| Some((format!("{d} vectors"), spec.vector.peak(d)?)));
        let matrix = spec.matrix.rows.iter().map(|(d, gflops)| (format!("{d} matrices"), *gflops));
        for (name, gflops) in vector.chain(matrix) {
            match peaks.iter_mut().find(|(_, known)| *known == gflops) {
                // One line for types that are equally fast.
                Some((known, _)) if known.ends_with("matrices") => {
                    *known = known.replace(" matrices", &format!(", {name}"));
                }
                _ => peaks.push((name, gflops)),
            }
        }
        Roofline { name: spec.doc.clone(), memories, peaks, points: Vec::new() }
    }

    /// GFLOP/s of the units for matrices of a type, or, where a kernel uses none, of vectors of f32; none where they are not known.
    pub fn peak(&self, matrices: Option<DType>) -> Option<f64> {
        if let [(name, gflops)] = &self.peaks[..]
            && name == ANY_UNIT
        {
            return Some(*gflops);
        }
        let (kind, dtype) = matrices.map_or(("vectors", DType::F32), |dtype| ("matrices", dtype));
        let is_of = |name: &str| {
            name.strip_suffix(kind).is_some_and(|types| types.split([',', ' ']).any(|one| one == dtype.name()))
        };
        self.peaks.iter().find(|(name, _)| is_of(name)).map(|(_, gflops)| *gflops)
    }

    /// What a kernel with so many operations for each byte can reach at most, in GFLOP/s: by the farthest memory, or by the units that it
    /// computes with.
    pub fn limit(&self, intensity: f64, matrices: Option<DType>) -> Option<f64> {
        let gbps = self.memories.iter().map(|(_, gbps)| *gbps).reduce(f64::min)?;
        Some((gbps * intensity).min(self.peak(matrices)?))
    }

    /// As a page has it.
    pub fn from_json(value: &Value) -> Roofline {
        let pairs = |name: &str| {
            let list = value[name].as_array().into_iter().flatten();
            list.filter_map(|pair| Some((pair[0].as_str()?.to_string(), pair[1].as_f64()?))).collect()
        };
        let name = value["name"].as_str().unwrap_or_default().to_string();
        Roofline { name, memories: pairs("memories"), peaks: pairs("peaks"), points: Vec::new() }
    }
}

/// A device like another one, under another name.
fn spec_of_base(base: &DeviceSpec, name: &str, doc: &str) -> DeviceSpec {
    DeviceSpec { name: name.into(), doc: doc.into(), ..base.clone() }
}
