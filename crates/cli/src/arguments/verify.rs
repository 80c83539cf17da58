//! The command line of `fuseline verify`.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use fuseline::tensor::DType;

use super::{
    GivenInputs, JUDGING_STATUS, Measuring, ModelLimits, ModelName, NumericsName, PrecisionName, SizeBinding,
    TargetName, TimeLimit, float_type, thread_count, whole,
};

/// Check that fusion changes no result, kernel by kernel
///
/// Runs the model fused and unfused and compares both with the reference, which evaluates the model as it is written, in
/// f64. Then every fused kernel by itself: what it stored in that run is compared with what its nodes make of what it read,
/// and so are the interpreter of kernels and, on a processor, the same nodes one by one. Where something differs, the first
/// stage that does is named: passes and rewrites, lowering to kernels, the code of a device, or the run as a whole.
/// All of that takes a thousand times as long as a run: a minute for a network like BERT-base, on two cores.
/// How far results may differ follows from the model: its types, functions and the lengths of its sums.
/// An ulp is the distance of neighbours in the type of the value, at the larger of the element and the typical one (the root mean square of its tensor).
/// Inputs are those of `run`; free sizes that nobody gives are 1 for the leading axis and 128 for the others,
/// or others where the model does not take these.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  fuseline verify model.onnx
  fuseline verify model.onnx --inputs x.npz --sizes batch=2 --json > verdict.json
  fuseline verify gallery:attention --device cpu --sizes queries=37,keys=53
  fuseline verify model.onnx --precision bf16 --seed 7
  fuseline verify model.onnx --plan locked.plan

In a script:
  fuseline verify model.onnx > verdict.txt || exit 1

{JUDGING_STATUS}"))]
pub struct Verify {
    /// An ONNX file, a graph text (.ir), a kernel (.tile), gallery:NAME or demo:NAME
    #[arg(value_name = "MODEL")]
    pub model: ModelName,
    #[command(flatten)]
    pub inputs: GivenInputs,
    /// Numbers for the model's free sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    /// Element type of a gallery graph: f32, f16, bf16 or f64
    #[arg(long, value_name = "TYPE", value_parser = float_type)]
    pub dtype: Option<DType>,
    /// Which devices are judged [default: cpu, and cuda where there is a GPU]
    #[arg(long, value_enum, value_name = "DEVICE,…", value_delimiter = ',')]
    pub device: Vec<Measuring>,
    /// The device to plan for: a name, or a file called .spec [default: here, this processor; h200 for cuda]
    #[arg(long, value_name = "NAME", value_parser = TargetName, hide_possible_values = true)]
    pub target: Option<OsString>,
    /// Judge the plan in this file, written by `explain --lock` or `bisect`
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// How far arithmetic may be rearranged [default: default, or that of --plan]
    #[arg(long, value_enum)]
    pub numerics: Option<NumericsName>,
    /// The type in which a network of f32 is computed
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = PrecisionName::F32)]
    pub precision: PrecisionName,
    /// For the device cpu: how many threads work [default: one for every processor]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<NonZeroUsize>,
    /// Seed of random inputs
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>)]
    pub seed: u64,
    /// How many kernels to list, those that use most of what is allowed first
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = whole::<usize>)]
    pub top: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub time: TimeLimit,
    #[command(flatten)]
    pub limits: ModelLimits,
}
