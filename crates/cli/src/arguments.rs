//! The command line: what can be asked for, with the help that teaches it.

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::str::FromStr;

use clap::{Args, Parser, Subcommand, ValueEnum};
use fuseline::analyzer::Policy;
use fuseline::error::Error;
use fuseline::fuse::{self, DecisionId};
use fuseline::passes::{Numerics, Precision};
use fuseline::reference::{Limits, Reading};
use fuseline::tensor::DType;

use crate::device::Device;

const EXIT_STATUS: &str = "\
Exit status:
  0  done
  1  the work failed: something is not supported yet, a limit was reached, a run went wrong
  2  the request is wrong: unknown option, missing file, broken model, inputs that do not fit";

const TOUR: &str = "\
MODEL is one of
  net.onnx        an ONNX file
  net.ir          a graph in text form (docs/ir.md)
  gallery:NAME    a graph of the built-in gallery; `fuseline gallery` lists them

Start here:
  fuseline gallery
  fuseline inspect gallery:transformer_sublayer --sizes tokens=128
  fuseline run gallery:layernorm_gelu --sizes rows=8,columns=1024
  fuseline explain gallery:transformer_sublayer --target h200
  fuseline analyze examples/layer.json";

/// Automatic operator fusion for neural networks
#[derive(Debug, Parser)]
#[command(name = "fuseline", version, after_help = format!("{TOUR}\n\n{EXIT_STATUS}"))]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Inspect(Inspect),
    Run(Run),
    Explain(Explain),
    Bench(Bench),
    Kernels(Kernels),
    Analyze(Analyze),
    Gallery(Gallery),
    Doctor(Doctor),
}

/// Show which devices can be used here, and what is missing for the others
#[derive(Debug, Args)]
#[command(after_help = EXIT_STATUS)]
pub struct Doctor {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

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
    /// An ONNX file, a graph text (.ir) or gallery:NAME
    #[arg(value_name = "MODEL")]
    pub model: ModelName,
    /// Numbers for the model's free sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    /// Take sizes, and values that the structure of the model hangs on, from this .npz file
    #[arg(long, value_name = "X.npz")]
    pub inputs: Option<PathBuf>,
    /// Element type of a gallery graph: f32, f16, bf16 or f64
    #[arg(long, value_name = "TYPE", value_parser = float_type)]
    pub dtype: Option<DType>,
    /// How many nodes to list
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub top: usize,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Print the graph of primitives in text form, which can be read back from a file called .ir
    #[arg(long, conflicts_with = "json")]
    pub graph: bool,
}

/// Run a model and summarise its outputs
///
/// Inputs come from a .npz file under the model's input names. Those that it lacks are random, the same for the same
/// seed: floats are normally distributed, 8-bit integers take all their values, other integers and bool are 0 or 1 (they
/// are often indices). Free sizes that neither the file nor --sizes gives are 1, or the gallery's default.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  fuseline run model.onnx --inputs x.npz --outputs y.npz
  fuseline run model.onnx --sizes batch=2,seq=16 --seed 7
  fuseline run model.onnx --threads 1
  fuseline run gallery:softmax --sizes rows=4,columns=8 --dtype bf16 --device reference --reading rounded
  fuseline run gallery:attention --device interp --target h200

Files from and for Python:
  numpy.savez('x.npz', input_ids=ids, attention_mask=mask)
  y = numpy.load('y.npz'); y['logits']

{EXIT_STATUS}"))]
pub struct Run {
    /// An ONNX file, a graph text (.ir) or gallery:NAME
    #[arg(value_name = "MODEL")]
    pub model: ModelName,
    /// Read inputs by name from this .npz file
    #[arg(long, value_name = "X.npz")]
    pub inputs: Option<PathBuf>,
    /// Write all outputs by name to this .npz file
    #[arg(long, value_name = "Y.npz")]
    pub outputs: Option<PathBuf>,
    /// Where to run
    #[arg(long, value_enum, value_name = "DEVICE", default_value = "cpu")]
    pub device: Device,
    /// For devices that run a plan: the device to plan for, a name or a file called .spec
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,
    /// For devices that run a plan: how far arithmetic may be rearranged [default: default]
    #[arg(long, value_enum)]
    pub numerics: Option<NumericsName>,
    /// In which type the factors of contractions are multiplied
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = PrecisionName::F32)]
    pub precision: PrecisionName,
    /// For the device cpu: how many threads work [default: one for every processor]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Numbers for the model's free sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    /// Element type of a gallery graph: f32, f16, bf16 or f64
    #[arg(long, value_name = "TYPE", value_parser = float_type)]
    pub dtype: Option<DType>,
    /// Seed of random inputs
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// For the devices reference and interp: how floats are read [default: exact]
    #[arg(long, value_enum)]
    pub reading: Option<ReadingName>,
    /// Most memory for the values of a run
    #[arg(long, value_name = "BYTES", default_value = "8Gi", value_parser = parse_size)]
    pub max_memory: i64,
    /// Most trips of all loops together
    #[arg(long, value_name = "N", default_value_t = Limits::default().trips)]
    pub max_trips: u64,
    /// Print no summary
    #[arg(long, short, conflicts_with = "json")]
    pub quiet: bool,
    /// Print the summary as JSON
    #[arg(long)]
    pub json: bool,
}

/// Measure what fusion gains on this processor
///
/// Runs the model as planned, with one kernel for every node of the model, and with one for every primitive, in turns:
/// times, speed-up, traffic, what compiling and loading took, and how near to the limits of the machine that comes.
/// Inputs are those of `run`; free sizes that nobody gives are 1 for the leading axis and 128 for the others.
#[derive(Debug, Args)]
#[command(after_help = format!("\
Examples:
  fuseline bench model.onnx --sizes batch=1,seq=128
  fuseline bench model.onnx --inputs x.npz --threads 1 --json > times.json
  fuseline bench gallery:layernorm_gelu --sizes rows=4096,columns=768 --iters 100
  fuseline bench model.onnx --only fused

{EXIT_STATUS}"))]
pub struct Bench {
    /// An ONNX file, a graph text (.ir) or gallery:NAME
    #[arg(value_name = "MODEL")]
    pub model: ModelName,
    /// Read inputs by name from this .npz file
    #[arg(long, value_name = "X.npz")]
    pub inputs: Option<PathBuf>,
    /// Numbers for the model's free sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    /// Element type of a gallery graph: f32, f16, bf16 or f64
    #[arg(long, value_name = "TYPE", value_parser = float_type)]
    pub dtype: Option<DType>,
    /// How many runs of each plan are measured
    #[arg(long, value_name = "N", default_value = "20")]
    pub iters: NonZeroUsize,
    /// How many runs of each plan come before, and are not
    #[arg(long, value_name = "N", default_value_t = 3)]
    pub warmup: usize,
    /// Measure the fused plan alone, or the others alone
    #[arg(long, value_enum)]
    pub only: Option<Only>,
    /// Show where the time goes as well: every kernel of the first plan, measured beside predicted
    #[arg(long)]
    pub kernels: bool,
    /// How many threads work [default: one for every processor]
    #[arg(long, value_name = "N")]
    pub threads: Option<NonZeroUsize>,
    /// Where plans are measured
    #[arg(long, value_enum, value_name = "DEVICE", default_value_t = Measuring::Cpu)]
    pub device: Measuring,
    /// The device to plan for: a name, or a file called .spec [default: cpu; h200 with --device cuda]
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,
    /// How far arithmetic may be rearranged [default: default]
    #[arg(long, value_enum)]
    pub numerics: Option<NumericsName>,
    /// In which type the factors of contractions are multiplied
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = PrecisionName::F32)]
    pub precision: PrecisionName,
    /// Seed of random inputs
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
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
            Measuring::Cpu => "cpu",
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
    /// An ONNX file, a graph text (.ir) or gallery:NAME
    #[arg(value_name = "MODEL")]
    pub model: ModelName,
    /// As what
    #[arg(long, value_enum, value_name = "FORM", default_value_t = Form::Tile)]
    pub emit: Form,
    /// Numbers for the model's free sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    /// Take sizes, and values that the structure of the model hangs on, from this .npz file
    #[arg(long, value_name = "X.npz")]
    pub inputs: Option<PathBuf>,
    /// Element type of a gallery graph: f32, f16, bf16 or f64
    #[arg(long, value_name = "TYPE", value_parser = float_type)]
    pub dtype: Option<DType>,
    /// The device to plan for: a name, or a file called .spec [default: cpu; h200 with --emit cuda]
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,
    /// How far arithmetic may be rearranged [default: default]
    #[arg(long, value_enum)]
    pub numerics: Option<NumericsName>,
    /// In which type the factors of contractions are multiplied
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = PrecisionName::F32)]
    pub precision: PrecisionName,
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

What would one decision cost? Take its id from the list:
  fuseline explain model.onnx --flip 8493b905efb0

Write a plan down, compare it with another one, obey it:
  fuseline explain model.onnx --target h200 --lock h200.plan
  diff h100.plan h200.plan
  fuseline explain model.onnx --plan h200.plan

Devices: {}

{EXIT_STATUS}", fuseline::device::DeviceSpec::names().collect::<Vec<_>>().join(", ")))]
pub struct Explain {
    /// An ONNX file, a graph text (.ir) or gallery:NAME
    #[arg(value_name = "MODEL")]
    pub model: ModelName,
    /// The device to plan for: a name, or a file called .spec [default: cpu, or that of --plan]
    #[arg(long, value_name = "NAME")]
    pub target: Option<String>,
    /// Numbers for the model's free sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    /// Take sizes, and values that the structure of the model hangs on, from this .npz file
    #[arg(long, value_name = "X.npz")]
    pub inputs: Option<PathBuf>,
    /// Element type of a gallery graph: f32, f16, bf16 or f64
    #[arg(long, value_name = "TYPE", value_parser = float_type)]
    pub dtype: Option<DType>,
    /// How far arithmetic may be rearranged [default: default, or that of --plan]
    #[arg(long, value_enum)]
    pub numerics: Option<NumericsName>,
    /// In which type the factors of contractions are multiplied
    #[arg(long, value_enum, value_name = "TYPE", default_value_t = PrecisionName::F32)]
    pub precision: PrecisionName,
    /// Who has the last word
    #[arg(long, value_enum, default_value_t = PolicyName::Cost)]
    pub policy: PolicyName,
    /// Combine nothing: a kernel for every primitive
    #[arg(long, conflicts_with_all = ["only_fuse", "flip", "plan"])]
    pub no_fuse: bool,
    /// Do nothing but these decisions
    #[arg(long, value_name = "ID", value_delimiter = ',', num_args = 1.., conflicts_with_all = ["flip", "plan"])]
    pub only_fuse: Vec<DecisionId>,
    /// Plan again with this one decision the other way, and compare
    #[arg(long, value_name = "ID", conflicts_with = "plan")]
    pub flip: Option<DecisionId>,
    /// Take at most this many decisions; to find the one that matters
    #[arg(long, value_name = "N", conflicts_with_all = ["no_fuse", "plan"])]
    pub fuel: Option<usize>,
    /// Write the plan to this file
    #[arg(long, value_name = "FILE")]
    pub lock: Option<PathBuf>,
    /// Obey the plan in this file
    #[arg(long, value_name = "FILE", conflicts_with = "policy")]
    pub plan: Option<PathBuf>,
    /// How many decisions to list; equal ones of different layers count once
    #[arg(long, value_name = "N", default_value_t = 40)]
    pub top: usize,
    /// Print the graph after every pass and rewrite that changed it, what is prepared once, and every single decision
    #[arg(long, short, conflicts_with = "json")]
    pub verbose: bool,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How far arithmetic may be rearranged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum NumericsName {
    /// every operation and every rounding as written
    Strict,
    /// what is true of real numbers and keeps ranges
    Default,
    /// also what can overflow or lose subnormal numbers where the model does not
    Fast,
}

impl NumericsName {
    pub fn numerics(self) -> Numerics {
        match self {
            NumericsName::Strict => Numerics::Strict,
            NumericsName::Default => Numerics::Default,
            NumericsName::Fast => Numerics::Fast,
        }
    }
}

/// In which type the factors of contractions are multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PrecisionName {
    /// as the model says
    F32,
    /// factors of f32 are rounded to bf16; sums and everything else stay f32
    Bf16,
}

impl PrecisionName {
    /// The precision, which must go with the numerics.
    pub fn precision(self, numerics: Numerics) -> Result<Precision, Error> {
        match self {
            PrecisionName::F32 => Ok(Precision::F32),
            PrecisionName::Bf16 if numerics == Numerics::Strict => {
                Err(Error::invalid("bf16 rounds what strict numerics keep").at("--precision"))
            }
            PrecisionName::Bf16 => Ok(Precision::Bf16),
        }
    }
}

/// Find what to fuse among operations fed by hand
///
/// Reads operations with the tensors that join them, finds every pair with a tensor between them, and decides on each: the
/// predicted microseconds before and after, the weighted score (memory traffic 0.4, launches 0.2, registers 0.2, complexity
/// 0.1, maintainability 0.1), the rules of thumb, the reason, and the batch up to which it pays where it depends on that.
#[derive(Debug, Args)]
#[command(after_help = format!("\
A file (examples/layer.json is a larger one):
  {{
    \"sizes\": {{ \"batch\": 8 }},
    \"tensors\": {{ \"x\": [\"batch\", 1024], \"w\": [1024, 4096], \"y\": [\"batch\", 4096] }},
    \"operations\": [
      {{ \"name\": \"layernorm\", \"inputs\": [\"x\"], \"outputs\": [\"h\"], \"bound\": \"memory\", \"intensity\": 2.5 }},
      {{ \"name\": \"linear\", \"inputs\": [\"h\", \"w\"], \"outputs\": [\"y\"], \"bound\": \"compute\" }}
    ]
  }}

Fields of the file: operations (a list of them alone will do), sizes, dtype, tensors
Fields of an operation: name, inputs, outputs, and as far as they are known
  bound        memory or compute
  kind         elementwise, reduction, contraction, movement, gather, control, opaque
  elementwise  true, the same as kind elementwise
  flops        arithmetic operations: a number, or text with the sizes, \"4*batch*768\"
  intensity    arithmetic operations for each byte, instead of flops
  registers    registers of a thread      block  threads of a block
A tensor is a name, or {{ name, shape, dtype, bytes, constant }}; it need be described once. A shape has numbers and
names of sizes, and its first axis is the batch. What is not said is derived or assumed, and listed.

Examples:
  fuseline analyze examples/layer.json
  fuseline analyze examples/layer.json --target cpu --sizes batch=64
  fuseline analyze examples/layernorm_gelu.json --json

Devices: {}

{EXIT_STATUS}", fuseline::device::DeviceSpec::names().collect::<Vec<_>>().join(", ")))]
pub struct Analyze {
    /// A JSON file of operations
    #[arg(value_name = "OPS.json")]
    pub operations: PathBuf,
    /// The device to price on: a name, or a file called .spec
    #[arg(long, value_name = "NAME", default_value = "h200")]
    pub target: String,
    /// Numbers in place of the file's own sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    /// Who has the last word
    #[arg(long, value_enum, default_value_t = PolicyName::Cost)]
    pub policy: PolicyName,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Who has the last word on a fusion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum PolicyName {
    /// microseconds
    Cost,
    /// what texts on fusion refuse is refused
    Textbook,
}

impl PolicyName {
    pub fn policy(self) -> Policy {
        match self {
            PolicyName::Cost => Policy::ByCost,
            PolicyName::Textbook => Policy::Textbook,
        }
    }

    pub fn of_plans(self) -> fuse::Policy {
        match self {
            PolicyName::Cost => fuse::Policy::Microseconds,
            PolicyName::Textbook => fuse::Policy::Textbook,
        }
    }
}

/// List the graphs of the gallery
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  fuseline gallery
  fuseline gallery --json
  fuseline run gallery:swiglu --dtype f16")]
pub struct Gallery {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// How the interpreters read floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ReadingName {
    /// f64 inside, rounded where the model says so and at the outputs
    Exact,
    /// every result rounded to its element type
    Rounded,
}

impl ReadingName {
    pub fn name(self) -> &'static str {
        match self {
            ReadingName::Exact => "exact",
            ReadingName::Rounded => "rounded",
        }
    }

    pub fn reading(self) -> Reading {
        match self {
            ReadingName::Exact => Reading::Exact,
            ReadingName::Rounded => Reading::Rounded,
        }
    }
}

/// Which model is meant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ModelName {
    Gallery(String),
    File(PathBuf),
}

impl FromStr for ModelName {
    type Err = String;

    fn from_str(text: &str) -> Result<ModelName, String> {
        match text.strip_prefix("gallery:") {
            Some("") => Err("a name must follow gallery: (`fuseline gallery` lists them)".into()),
            Some(name) => Ok(ModelName::Gallery(name.into())),
            None if text.is_empty() => Err("the path is empty".into()),
            None => Ok(ModelName::File(text.into())),
        }
    }
}

/// A number for a free size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SizeBinding {
    pub name: String,
    pub size: i64,
}

impl FromStr for SizeBinding {
    type Err = String;

    fn from_str(text: &str) -> Result<SizeBinding, String> {
        let (name, size) =
            text.rsplit_once('=').ok_or("a size is given as NAME=SIZE, such as batch=1 (several: batch=1,seq=128)")?;
        let name = name.trim();
        if name.is_empty() {
            return Err("the name before = is missing".into());
        }
        Ok(SizeBinding { name: name.into(), size: parse_size(size.trim())? })
    }
}

/// A size with an optional suffix: `128`, `4k`, `1M`, `2G`, or in powers of two `4Ki`, `1Mi`, `2Gi`.
fn parse_size(text: &str) -> Result<i64, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let factor = match &text[digits.len()..] {
        "" => 1,
        "k" | "K" => 1_000,
        "M" => 1_000_000,
        "G" => 1_000_000_000,
        "Ki" | "ki" => 1 << 10,
        "Mi" => 1 << 20,
        "Gi" => 1 << 30,
        suffix => return Err(format!("the suffix {suffix} is unknown; use k, M, G, Ki, Mi or Gi")),
    };
    let number: i64 = digits.parse().map_err(|_| format!("\"{text}\" is not a size"))?;
    if number < 0 {
        return Err(format!("the size {number} is below zero"));
    }
    number.checked_mul(factor).ok_or_else(|| format!("the size {text} does not fit into 64 bits"))
}

fn float_type(text: &str) -> Result<DType, String> {
    DType::from_name(text).filter(|d| d.is_float()).ok_or_else(|| "wanted: f32, f16, bf16 or f64".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn sizes_have_suffixes() {
        assert_eq!(parse_size("128"), Ok(128));
        assert_eq!(parse_size("4k"), Ok(4000));
        assert_eq!(parse_size("1Mi"), Ok(1 << 20));
        assert!(parse_size("").is_err() && parse_size("-1").is_err() && parse_size("1T").is_err());
        assert!(parse_size("9999999999G").is_err());
        assert_eq!("a=b=3".parse::<SizeBinding>().unwrap(), SizeBinding { name: "a=b".into(), size: 3 });
        assert!("n".parse::<SizeBinding>().is_err() && "=3".parse::<SizeBinding>().is_err());
    }
}
