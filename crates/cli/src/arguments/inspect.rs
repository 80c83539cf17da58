//! The command line of `fuseline inspect`.

use clap::Args;
use fuseline::tensor::DType;

use super::{EXIT_STATUS, GivenInputs, ModelLimits, ModelName, SizeBinding, float_type, whole};

/// Show what a model takes, returns, computes and moves
///
/// Prints the signature, the free sizes, the parameters, and work (arithmetic operations) and traffic (bytes) per
/// operator. With free sizes the numbers are formulae; --sizes makes them numbers. Traffic is what an unfused execution
/// moves: every operator reads its inputs and writes its outputs. "At least" is what any execution must move.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  fuseline inspect model.onnx
  fuseline inspect model.onnx --sizes batch=1,seq=128
  fuseline inspect gallery:attention --dtype f16 --json
  fuseline inspect gallery:softmax --graph > softmax.ir

{EXIT_STATUS}"))]
pub struct Inspect {
    /// An ONNX file, a graph text (.ir), a kernel (.tile), gallery:NAME or demo:NAME
    #[arg(value_name = "MODEL")]
    pub model: ModelName,
    /// Numbers for the model's free sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    #[command(flatten)]
    pub inputs: GivenInputs,
    /// Element type of a gallery graph: f32, f16, bf16 or f64
    #[arg(long, value_name = "TYPE", value_parser = float_type)]
    pub dtype: Option<DType>,
    /// How many nodes to list
    #[arg(long, value_name = "N", default_value_t = 10, value_parser = whole::<usize>)]
    pub top: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print the graph of primitives in text form, which can be read back from a file called .ir
    #[arg(long, conflicts_with = "json")]
    pub graph: bool,
    #[command(flatten)]
    pub limits: ModelLimits,
}
