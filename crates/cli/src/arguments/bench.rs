//! The command line of `fuseline bench`.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fuseline::tensor::DType;

use super::{
    EXIT_STATUS, GivenInputs, ModelLimits, ModelName, NumericsName, PrecisionName, SizeBinding, TargetName, count,
    float_type, repeats, thread_count, whole,
};

/// Measure what fusion gains on this processor
///
/// Runs the model as planned, with one kernel for every node of the model, and with one for every primitive, in turns:
/// times, speed-up, traffic, what compiling and loading took, and how near to the limits of the machine that comes.
/// Inputs are those of `run`; free sizes that nobody gives are 1 for the leading axis and 128 for the others,
/// or others where the model does not take these.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  fuseline bench model.onnx --sizes batch=1,seq=128
  fuseline bench model.onnx --inputs x.npz --threads 1 --json > times.json
  fuseline bench gallery:layernorm_gelu --sizes rows=4096,columns=768 --iters 100
  fuseline bench gallery:add_gelu --sizes 1M,10M,100M
  fuseline bench gallery:softmax --sizes columns=1024,rows=1k,8k,64k
  fuseline bench model.onnx --only fused
  fuseline bench model.onnx --plan locked.plan

{EXIT_STATUS}"))]
pub struct Bench {
    /// An ONNX file, a graph text (.ir), a kernel (.tile), gallery:NAME or demo:NAME
    #[arg(value_name = "MODEL")]
    pub model: ModelName,
    #[command(flatten)]
    pub inputs: GivenInputs,
    /// Numbers for the model's free sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood. One size may have several, which are measured
    /// one after another; the name of an only one may be left out
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    /// Element type of a gallery graph: f32, f16, bf16 or f64
    #[arg(long, value_name = "TYPE", value_parser = float_type)]
    pub dtype: Option<DType>,
    /// How many runs of each plan are measured
    #[arg(long, value_name = "N", default_value = "20", value_parser = count)]
    pub iters: NonZeroUsize,
    /// How many runs of each plan come before, and are not
    #[arg(long, value_name = "N", default_value_t = 3, value_parser = repeats)]
    pub warmup: usize,
    /// Measure the fused plan alone, or the others alone
    #[arg(long, value_enum)]
    pub only: Option<Only>,
    /// Show where the time goes as well: every kernel of the first plan, measured beside predicted
    #[arg(long)]
    pub kernels: bool,
    /// How many threads work [default: one for every processor]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<NonZeroUsize>,
    /// Where plans are measured
    #[arg(long, value_enum, value_name = "DEVICE", default_value_t = Measuring::Cpu)]
    pub device: Measuring,
    /// The device to plan for: a name, or a file called .spec [default: here, this processor; h200 with --device cuda; or
    /// that of --plan]
    #[arg(long, value_name = "NAME", value_parser = TargetName, hide_possible_values = true)]
    pub target: Option<OsString>,
    /// Measure the plan in this file, written by `explain --lock`, as the fused one
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// How far arithmetic may be rearranged [default: default, or that of --plan]
    #[arg(long, value_enum)]
    pub numerics: Option<NumericsName>,
    /// The type in which a network of f32 is computed
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = PrecisionName::F32)]
    pub precision: PrecisionName,
    /// Seed of random inputs
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub limits: ModelLimits,
}

/// Where plans are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Measuring {
    /// this processor
    Cpu,
    /// an NVIDIA GPU, in its own time: what is copied from and to the host is not measured
    Cuda,
}

impl Measuring {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Measuring::Cpu => "cpu",
            Measuring::Cuda => "cuda",
        }
    }

    /// The device that is planned for where nothing else is asked for.
    pub fn target(self) -> &'static str {
        match self {
            Measuring::Cpu => fuseline_cpu::here::NAME,
            Measuring::Cuda => "h200",
        }
    }
}

/// Which plans are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Only {
    /// the plan as it is
    Fused,
    /// one kernel for every node, and one for every primitive
    Unfused,
}
