//! The command line of `fuseline explain`.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use fuseline::fuse::DecisionId;
use fuseline::tensor::DType;

use super::{
    EXIT_STATUS, GivenInputs, ModelLimits, ModelName, NumericsName, PolicyName, PrecisionName, SizeBinding, TargetName,
    count, decision, float_type, thread_count, whole,
};

/// Show which kernels a model becomes, and why
///
/// Prints the plan: each kernel with what it does, where it comes from, what it moves and computes, and the time that is
/// predicted for it on a device. Then every decision that was looked at, taken or refused, the largest effect first,
/// each with its reason and with the score that textbooks would give it. Microseconds decide; where the score says
/// otherwise, the decision is marked with ≠.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  fuseline explain model.onnx --sizes batch=1,seq=128
  fuseline explain model.onnx --target h200 --json > plan.json
  fuseline explain gallery:attention --no-fuse
  fuseline explain gallery:transformer_sublayer --policy textbook

Is what was predicted true? Every kernel, measured:
  fuseline explain model.onnx --sizes batch=1,seq=128 --analyze

What would one decision cost? Take its id from the list:
  fuseline explain model.onnx --flip 8493b905efb0

Write a plan down, compare it with another one, obey it:
  fuseline explain model.onnx --target h200 --lock h200.plan
  fuseline explain model.onnx --target h200 --tune --lock h200.plan
  diff h100.plan h200.plan
  fuseline explain model.onnx --plan h200.plan

Devices: {}

{EXIT_STATUS}", crate::target::names().join(", ")))]
pub struct Explain {
    /// An ONNX file, a graph text (.ir), a kernel (.tile), gallery:NAME or demo:NAME
    #[arg(value_name = "MODEL")]
    pub model: ModelName,
    /// The device to plan for: a name, or a file called .spec [default: cpu, or that of --plan]
    ///
    /// `cpu` is a description: what is explained for it is the same on every machine. Commands that run plans, such as bench, verify and report, take
    /// `here`, the processor that they run on; `--target here` explains what they do.
    #[arg(long, value_name = "NAME", value_parser = TargetName, hide_possible_values = true)]
    pub target: Option<OsString>,
    /// Numbers for the model's free sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    #[command(flatten)]
    pub inputs: GivenInputs,
    /// Element type of a gallery graph: f32, f16, bf16 or f64
    #[arg(long, value_name = "TYPE", value_parser = float_type)]
    pub dtype: Option<DType>,
    /// How far arithmetic may be rearranged [default: default, or that of --plan]
    #[arg(long, value_enum)]
    pub numerics: Option<NumericsName>,
    /// The type in which a network of f32 is computed
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = PrecisionName::F32)]
    pub precision: PrecisionName,
    /// Who has the last word
    #[arg(long, value_enum, default_value_t = PolicyName::Cost)]
    pub policy: PolicyName,
    /// Combine nothing: a kernel for every primitive
    #[arg(long, conflicts_with_all = ["only_fuse", "flip", "plan"])]
    pub no_fuse: bool,
    /// Do nothing but these decisions, and what they rest on: rewrites before them, and what combines the nodes that they are about
    #[arg(long, value_name = "ID", value_delimiter = ',', num_args = 1.., conflicts_with_all = ["flip", "plan"], value_parser = decision)]
    pub only_fuse: Vec<DecisionId>,
    /// Plan again with this one decision the other way, and compare
    #[arg(long, value_name = "ID", conflicts_with = "plan", value_parser = decision)]
    pub flip: Option<DecisionId>,
    /// Take at most this many decisions; to find the one that matters
    #[arg(long, value_name = "N", conflicts_with_all = ["no_fuse", "plan"], value_parser = whole::<usize>)]
    pub fuel: Option<usize>,
    /// Write the plan to this file
    #[arg(long, value_name = "FILE")]
    pub lock: Option<PathBuf>,
    /// With a GPU as --target: measure large products there, by cuBLASLt in all its ways and by kernels of our own, and write into the plan
    /// what is fastest
    #[arg(long, requires = "lock", conflicts_with = "flip")]
    pub tune: bool,
    /// Obey the plan in this file
    #[arg(long, value_name = "FILE", conflicts_with = "policy")]
    pub plan: Option<PathBuf>,
    /// How many decisions to list; equal ones of different layers count once
    #[arg(long, value_name = "N", default_value_t = 40, value_parser = whole::<usize>)]
    pub top: usize,
    /// Run the plan as well, on this processor or, with a GPU as --target, there: what every kernel takes, measured beside expected
    ///
    /// The error that is told is the median over different kernels of 20 µs or more (over all where none takes as long), and behind it that over all.
    /// On a processor, what is expected is at the rates that it is measured to have, and as much longer as other programs make work of that length.
    #[arg(long, conflicts_with = "flip")]
    pub analyze: bool,
    /// For --analyze: how many runs are measured
    #[arg(long, value_name = "N", default_value = "20", requires = "analyze", value_parser = count)]
    pub iters: NonZeroUsize,
    /// For --analyze: how many threads work [default: one for every processor]
    #[arg(long, value_name = "N", requires = "analyze", value_parser = thread_count)]
    pub threads: Option<NonZeroUsize>,
    /// Print the graph after every pass and rewrite that changed it, what is prepared once, and every single decision
    #[arg(long, short, conflicts_with_all = ["json", "quiet"])]
    pub verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub limits: ModelLimits,
}
