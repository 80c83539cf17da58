//! The command line of `fuseline run`.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use fuseline::tensor::DType;
use fuseline_session::allowance;

use super::{
    EXIT_STATUS, GivenInputs, ModelLimits, ModelName, NumericsName, PrecisionName, ReadingName, SizeBinding,
    TargetName, float_type, thread_count, whole,
};
use crate::device::Device;

/// Run a model and summarise its outputs
///
/// Inputs come from a .npz file under the model's input names, or from --input. Those that nobody gives are random, the same for the same
/// seed: floats are normally distributed, 8-bit integers take all their values, other integers and bool are 0 or 1 (they
/// are often indices). Free sizes that neither the file nor --sizes gives are 1 for the leading axis and 128 for the others (the gallery has
/// its own), or others where the model does not take these; what was taken is said.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  fuseline run model.onnx --inputs x.npz --outputs y.npz
  fuseline run model.onnx --sizes batch=2,seq=16 --seed 7
  fuseline run model.onnx --input rate=16000 --input attention_mask=1
  fuseline run model.onnx --threads 1
  fuseline run model.onnx --plan locked.plan
  fuseline run gallery:softmax --sizes rows=4,columns=8 --dtype bf16 --device reference --reading rounded
  fuseline run gallery:attention --device interp --target h200

Files from and for Python:
  numpy.savez('x.npz', input_ids=ids, attention_mask=mask)
  y = numpy.load('y.npz'); y['logits']

{EXIT_STATUS}"))]
pub struct Run {
    /// An ONNX file, a graph text (.ir), a kernel (.tile), gallery:NAME or demo:NAME
    #[arg(value_name = "MODEL")]
    pub model: ModelName,
    #[command(flatten)]
    pub inputs: GivenInputs,
    /// Write all outputs by name to this .npz file
    #[arg(long, value_name = "Y.npz")]
    pub outputs: Option<PathBuf>,
    /// Where to run
    #[arg(long, value_enum, value_name = "DEVICE", default_value = "cpu")]
    pub device: Device,
    /// For devices that run a plan: the device to plan for, a name or a file called .spec
    #[arg(long, value_name = "NAME", value_parser = TargetName, hide_possible_values = true)]
    pub target: Option<OsString>,
    /// For devices that run a plan: run the one in this file, written by `explain --lock`
    #[arg(long, value_name = "FILE")]
    pub plan: Option<PathBuf>,
    /// For devices that run a plan: how far arithmetic may be rearranged [default: default, or that of --plan]
    #[arg(long, value_enum)]
    pub numerics: Option<NumericsName>,
    /// The type in which a network of f32 is computed
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = PrecisionName::F32)]
    pub precision: PrecisionName,
    /// For the device cpu: how many threads work [default: one for every processor]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<NonZeroUsize>,
    /// Numbers for the model's free sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    /// Element type of a gallery graph: f32, f16, bf16 or f64
    #[arg(long, value_name = "TYPE", value_parser = float_type)]
    pub dtype: Option<DType>,
    /// Seed of random inputs
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>)]
    pub seed: u64,
    /// For the devices reference and interp: how floats are read [default: exact, rounded with --numerics strict]
    #[arg(long, value_enum)]
    pub reading: Option<ReadingName>,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
    /// Most seconds, by the clock, until the outputs are there [default: 600, and 1 more for every MiB of the model's files]
    #[arg(long, value_name = "SECONDS", help_heading = "Limits for untrusted models", value_parser = whole::<u64>)]
    pub max_time: Option<u64>,
    #[command(flatten)]
    pub limits: ModelLimits,
}

impl Run {
    /// How long it may take until the outputs are there; to be asked for when the model is open.
    pub fn time(&self) -> Duration {
        self.max_time.map_or_else(|| allowance::run_time(self.limits.bytes()), Duration::from_secs)
    }
}
