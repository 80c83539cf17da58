//! The command line of `fuseline roofline`.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use fuseline::tensor::DType;

use super::{
    EXIT_STATUS, GivenInputs, Measuring, ModelLimits, ModelName, NumericsName, PrecisionName, SizeBinding, TargetName,
    count, float_type, thread_count,
};

/// Show what this machine can do at most, and where the kernels of a model stand
///
/// Measures this machine: bandwidth of every memory and multiply-adds, by threads, with programs made for it. Then draws
/// the roofline: below the slope a kernel waits for memory, below the flat roof for arithmetic. A model's kernels are
/// measured and put on it. What was measured can be written as a device that `explain`, `bench` and others plan for.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  fuseline roofline
  fuseline roofline model.onnx --sizes batch=1,seq=128 --svg roofline.svg --png roofline.png
  fuseline roofline --write here.spec && fuseline explain model.onnx --target here.spec
  fuseline roofline gallery:layernorm_gelu --target h200
  fuseline roofline gallery:attention --peak-bw 900 --peak-flops 15000

Devices: {}

{EXIT_STATUS}", crate::target::names().join(", ")))]
pub struct RooflineArguments {
    /// An ONNX file, a graph text (.ir), a kernel (.tile), gallery:NAME or demo:NAME, whose kernels are put on it
    #[arg(value_name = "MODEL")]
    pub model: Option<ModelName>,
    /// Measure nothing: the roofline of this device, a name or a file called .spec
    #[arg(long, value_name = "NAME", conflicts_with_all = ["peak_bw", "peak_flops", "device", "threads"], value_parser = TargetName, hide_possible_values = true)]
    pub target: Option<OsString>,
    /// Measure nothing: the roofline of a memory with so many GB/s …
    #[arg(long, value_name = "GB/s", requires = "peak_flops", conflicts_with_all = ["device", "threads"], value_parser = rate)]
    pub peak_bw: Option<f64>,
    /// … and arithmetic of so many GFLOP/s
    #[arg(long, value_name = "GFLOP/s", requires = "peak_bw", value_parser = rate)]
    pub peak_flops: Option<f64>,
    /// What is measured
    #[arg(long, value_enum, value_name = "DEVICE", default_value_t = Measuring::Cpu)]
    pub device: Measuring,
    /// How many threads work at most; no more than there are processors [default: all of them]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<NonZeroUsize>,
    /// Write the device to this file, which --target takes
    #[arg(long, value_name = "FILE.spec", conflicts_with = "peak_bw")]
    pub write: Option<PathBuf>,
    /// Draw into this file
    #[arg(long, value_name = "FILE.svg")]
    pub svg: Option<PathBuf>,
    /// Draw into this file
    #[arg(long, value_name = "FILE.png")]
    pub png: Option<PathBuf>,
    /// Do not run the model: its kernels as predicted
    #[arg(long)]
    pub no_run: bool,
    #[command(flatten)]
    pub inputs: GivenInputs,
    /// Numbers for the model's free sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    /// Element type of a gallery graph: f32, f16, bf16 or f64
    #[arg(long, value_name = "TYPE", value_parser = float_type)]
    pub dtype: Option<DType>,
    /// How far arithmetic may be rearranged [default: default]
    #[arg(long, value_enum)]
    pub numerics: Option<NumericsName>,
    /// The type in which a network of f32 is computed
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = PrecisionName::F32)]
    pub precision: PrecisionName,
    /// How many runs of the model are measured
    #[arg(long, value_name = "N", default_value = "10", value_parser = count)]
    pub iters: NonZeroUsize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub limits: ModelLimits,
}

/// The rates that can be drawn, in GB/s and GFLOP/s: from a pocket calculator's to beyond that of all machines together.
const RATES: std::ops::RangeInclusive<f64> = 1e-6..=1e12;

fn rate(text: &str) -> Result<f64, String> {
    let wanted = || format!("wanted: a number above zero, from {:e} to {:e}", RATES.start(), RATES.end());
    text.parse().ok().filter(|rate| RATES.contains(rate)).ok_or_else(wanted)
}
