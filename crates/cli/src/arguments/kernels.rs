//! The command line of `fuseline kernels`.

use std::ffi::OsString;

use clap::{Args, ValueEnum};
use fuseline::tensor::DType;

use super::{
    EXIT_STATUS, GivenInputs, ModelLimits, ModelName, NumericsName, PrecisionName, SizeBinding, TargetName, float_type,
};

/// Show the kernels of a model as code
///
/// Prints every kernel of the plan, equal ones once: in the language of kernels (docs/tile.md), as a program of vectors,
/// as the machine code that this processor runs, or as CUDA C++ for a GPU.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  fuseline kernels gallery:layernorm_gelu
  fuseline kernels model.onnx --emit asm --sizes batch=1,seq=128
  fuseline kernels gallery:softmax --emit cuda --dtype bf16

{EXIT_STATUS}"))]
pub struct Kernels {
    /// An ONNX file, a graph text (.ir), a kernel (.tile), gallery:NAME or demo:NAME
    #[arg(value_name = "MODEL")]
    pub model: ModelName,
    /// As what
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Tile)]
    pub emit: Form,
    /// Numbers for the model's free sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    #[command(flatten)]
    pub inputs: GivenInputs,
    /// Element type of a gallery graph: f32, f16, bf16 or f64
    #[arg(long, value_name = "TYPE", value_parser = float_type)]
    pub dtype: Option<DType>,
    /// The device to plan for: a name, or a file called .spec [default: cpu; h200 with --emit cuda]
    #[arg(long, value_name = "NAME", value_parser = TargetName, hide_possible_values = true)]
    pub target: Option<OsString>,
    /// How far arithmetic may be rearranged [default: default]
    #[arg(long, value_enum)]
    pub numerics: Option<NumericsName>,
    /// The type in which a network of f32 is computed
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = PrecisionName::F32)]
    pub precision: PrecisionName,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub limits: ModelLimits,
}

/// As what kernels are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Form {
    /// the language of kernels
    Tile,
    /// programs of vectors, at fixed sizes
    Vector,
    /// machine code, at fixed sizes
    Asm,
    /// CUDA C++, for an NVIDIA GPU, which need not be there
    Cuda,
}

impl Form {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Form::Tile => "tile",
            Form::Vector => "vector",
            Form::Asm => "asm",
            Form::Cuda => "cuda",
        }
    }

    /// What begins a comment in it, so that what stands around code can be compiled along.
    pub fn comment(self) -> &'static str {
        match self {
            Form::Tile | Form::Vector => "#",
            Form::Asm => ";",
            Form::Cuda => "//",
        }
    }
}
