//! The command line of `fuseline compare`.

use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::{
    EXIT_STATUS, GivenInputs, Measuring, ModelLimits, ModelName, PrecisionName, SizeBinding, count, thread_count, whole,
};

/// Measure a model beside ONNX Runtime, OpenVINO, torch.compile and TensorRT
///
/// The rivals are those that a Python interpreter has, and what is missing is told with the command that installs it. All run on this processor with
/// the same inputs and the same number of threads, or on the first GPU with inputs and results in its memory, in turns: in every round each
/// runs a few times, after a pause and a run that is not
/// counted. The error of a contender is the root mean
/// square of what differs, to that of the outputs of ONNX Runtime (or of the first rival there is); with --exact, to those of the reference,
/// which evaluates the model in f64 and is slow. Free sizes that nobody gives are 1 for the leading axis and 128 for the
/// others, or others where the model does not take these. Liger is no rival here: it has kernels that are put into models of PyTorch, and
/// reads no ONNX files; bench/gpu_peers.py times its kernels beside those of Fuseline.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  fuseline compare model.onnx
  fuseline compare model.onnx --python ~/venv/bin/python --threads 1 --sizes batch=1,seq=128
  fuseline compare model.onnx --rivals onnxruntime --rounds 20 --json > times.json
  fuseline compare small.onnx --exact
  fuseline compare model.onnx --device cuda --precision bf16

{EXIT_STATUS}
A rival that is missing is told, and is an error (1) where --rivals names it. Nobody has to be there: 0 is the status\nalso where Fuseline is measured alone."))]
pub struct Compare {
    /// An ONNX file
    #[arg(value_name = "MODEL")]
    pub model: ModelName,
    /// The Python that has the rivals [default: python3 or python of PATH]
    #[arg(long, value_name = "PYTHON")]
    pub python: Option<PathBuf>,
    /// Where the model runs
    #[arg(long, value_enum, value_name = "DEVICE", default_value_t = Measuring::Cpu)]
    pub device: Measuring,
    /// Which rivals [default: those that know the device: onnxruntime, torch, and openvino or tensorrt]
    #[arg(long, value_enum, value_name = "NAME,…", value_delimiter = ',')]
    rivals: Vec<RivalName>,
    #[command(flatten)]
    pub inputs: GivenInputs,
    /// Numbers for the model's free sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    /// How many rounds are measured
    #[arg(long, value_name = "N", default_value = "5", value_parser = count)]
    pub rounds: NonZeroUsize,
    /// How many runs each has in a round
    #[arg(long, value_name = "N", default_value = "5", value_parser = count)]
    pub iters: NonZeroUsize,
    /// How many threads work [default: one for every processor]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<NonZeroUsize>,
    /// The type in which Fuseline, OpenVINO and, on a GPU, torch and TensorRT compute a network of f32
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = PrecisionName::F32)]
    pub precision: PrecisionName,
    /// Take the error to the reference, in f64; slow
    #[arg(long)]
    pub exact: bool,
    /// Seed of random inputs
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub limits: ModelLimits,
}

impl Compare {
    /// Whether this rival was asked for by its name.
    pub fn asks_for(&self, rival: RivalName) -> bool {
        self.rivals.contains(&rival)
    }

    /// Who is measured beside Fuseline.
    pub fn rivals(&self) -> &[RivalName] {
        match (self.rivals.is_empty(), self.device) {
            (false, _) => &self.rivals,
            (true, Measuring::Cpu) => &[RivalName::Onnxruntime, RivalName::Openvino, RivalName::Torch],
            (true, Measuring::Cuda) => &[RivalName::Onnxruntime, RivalName::Torch, RivalName::Tensorrt],
        }
    }
}

/// A rival.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum RivalName {
    /// ONNX Runtime
    Onnxruntime,
    /// OpenVINO
    Openvino,
    /// torch.compile, of the model as onnx2torch translates it
    Torch,
    /// TensorRT, on a GPU
    Tensorrt,
}

impl RivalName {
    /// The name in the script and in reports.
    pub fn name(self) -> &'static str {
        match self {
            RivalName::Onnxruntime => "onnxruntime",
            RivalName::Openvino => "openvino",
            RivalName::Torch => "torch",
            RivalName::Tensorrt => "tensorrt",
        }
    }
}
