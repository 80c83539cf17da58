//! The command line of `fuseline bisect`.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};
use fuseline::tensor::DType;

use super::{
    EXIT_STATUS, GivenInputs, Measuring, ModelLimits, ModelName, NumericsName, PrecisionName, SizeBinding, TargetName,
    TimeLimit, count, float_type, thread_count, whole,
};

/// Find the one decision that makes a result wrong, or a model slower
///
/// Plans that take ever more decisions are run until two differ in one decision, and in what is asked about: with --metric error, the
/// outputs of one agree with the reference and those of the other do not; with --metric latency, one takes longer than the other.
/// A folder is written with both plans, and with the guilty kernel as a case of its own: its graph, its inputs, its plan and its text;
/// where no single kernel is wrong, the report says why. Where outputs differ without any decision, it names the stage that is to blame.
/// Inputs are those of `run`; free sizes that nobody gives are 1 for the leading axis and 128 for the others,
/// or others where the model does not take these.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  fuseline bisect model.onnx --metric error
  fuseline bisect model.onnx --metric latency --sizes batch=1,seq=128 --threads 2
  fuseline bisect model.onnx --metric error --device cuda --case wrong

What is written can be judged again:
  fuseline verify model.onnx --plan wrong/bad.plan
  fuseline verify wrong/kernel.ir --plan wrong/kernel.plan --inputs wrong/kernel.npz
  diff wrong/good.plan wrong/bad.plan

{EXIT_STATUS}
  3  a guilty decision was found, or outputs differ without any"))]
pub struct Bisect {
    /// An ONNX file, a graph text (.ir), a kernel (.tile), gallery:NAME or demo:NAME
    #[arg(value_name = "MODEL")]
    pub model: ModelName,
    /// What is asked about
    #[arg(long, value_enum, default_value_t = Metric::Error)]
    pub metric: Metric,
    /// Write the plans and the case to this folder
    #[arg(long, value_name = "FOLDER", default_value = "bisect")]
    pub case: PathBuf,
    #[command(flatten)]
    pub inputs: GivenInputs,
    /// Numbers for the model's free sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    /// Element type of a gallery graph: f32, f16, bf16 or f64
    #[arg(long, value_name = "TYPE", value_parser = float_type)]
    pub dtype: Option<DType>,
    /// Where plans are run
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
    /// For the device cpu: how many threads work [default: one for every processor]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<NonZeroUsize>,
    /// With --metric latency: how many runs of each plan are measured, of which the fastest counts
    #[arg(long, value_name = "N", default_value = "15", value_parser = count)]
    pub iters: NonZeroUsize,
    /// With --metric latency: by how many percent a decision must slow the model down to be guilty
    #[arg(long, value_name = "PERCENT", default_value_t = 3.0, value_parser = percent)]
    pub above: f64,
    /// Seed of random inputs
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub time: TimeLimit,
    #[command(flatten)]
    pub limits: ModelLimits,
}

/// What a decision is guilty of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Metric {
    /// outputs that differ from those of the reference by more than they may
    Error,
    /// a longer run
    Latency,
}

/// A part of the whole, in percent.
fn percent(text: &str) -> Result<f64, String> {
    let percent = text.parse().ok().filter(|percent: &f64| percent.is_finite() && *percent >= 0.0);
    percent.ok_or_else(|| "wanted: a number of percent, 0 or more, such as 3 or 2.5".to_string())
}
