//! The command line of `fuseline report`.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::Args;
use fuseline::device::{DeviceSpec, Machine};
use fuseline::tensor::DType;

use super::{
    EXIT_STATUS, Form, GivenInputs, Measuring, ModelLimits, ModelName, NumericsName, PrecisionName, SizeBinding,
    TargetName, TimeLimit, count, float_type, thread_count, whole,
};

/// Write a page to look at: what a model becomes, why, and how it runs
///
/// One HTML file that needs nothing else: the graph before and after with kernels that can be opened, every kernel on the
/// roofline of the machine, fused and unfused, where the time and the memory of a run go, every decision with its price,
/// score and reason, and the code of every kernel. The model is run for it, in turns with a plan in which nothing is
/// fused; --no-run leaves that out, and so does a target that is not this machine.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  fuseline report model.onnx --sizes batch=1,seq=128
  fuseline report gallery:transformer_sublayer -o sublayer.html
  fuseline report model.onnx --target h200 -o h200.html
  fuseline report model.onnx --no-run --json > plan.json

{EXIT_STATUS}"))]
pub struct Report {
    /// An ONNX file, a graph text (.ir), a kernel (.tile), gallery:NAME or demo:NAME
    #[arg(value_name = "MODEL")]
    pub model: ModelName,
    /// Where the page is written
    #[arg(long, short, value_name = "FILE", default_value = "report.html")]
    pub output: PathBuf,
    /// Run nothing: show the plan only
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
    /// How many runs of each plan are measured
    #[arg(long, value_name = "N", default_value = "10", value_parser = count)]
    pub iters: NonZeroUsize,
    /// How many threads work [default: one for every processor]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<NonZeroUsize>,
    /// Where the model is run
    #[arg(long, value_enum, value_name = "DEVICE", default_value_t = Measuring::Cpu)]
    pub device: Measuring,
    /// The device to plan for: a name, or a file called .spec [default: here, this processor; h200 with --device cuda]
    #[arg(long, value_name = "NAME", value_parser = TargetName, hide_possible_values = true)]
    pub target: Option<OsString>,
    /// How far arithmetic may be rearranged [default: default]
    #[arg(long, value_enum)]
    pub numerics: Option<NumericsName>,
    /// The type in which a network of f32 is computed
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = PrecisionName::F32)]
    pub precision: PrecisionName,
    /// As what kernels are shown besides the language of kernels [default: asm; cuda for a GPU]
    #[arg(long, value_enum, value_name = "FORM")]
    pub emit: Option<Form>,
    /// Seed of random inputs
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>)]
    pub seed: u64,
    /// Print the data of the page as JSON, and write nothing
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub time: TimeLimit,
    #[command(flatten)]
    pub limits: ModelLimits,
}

impl Report {
    /// As what kernels are shown.
    pub fn form(&self, spec: &DeviceSpec) -> Form {
        self.emit.unwrap_or(if spec.kind == Machine::Gpu { Form::Cuda } else { Form::Asm })
    }
}
