//! The command line of `fuseline kernel`.

use std::ffi::OsString;
use std::num::NonZeroUsize;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::{Form, JUDGING_STATUS, Measuring, SizeBinding, TargetName, count, repeats, thread_count, whole};
use crate::device::Device;

/// Check, run, measure and translate a kernel that you have written
///
/// A kernel is a text (docs/tile.md): tensors with named axes, values with names, folds inside of expressions. This is softmax:
///
///   kernel softmax(x: f32[rows, columns]) -> y: f32[rows, columns] {
///     e = exp(x - max[columns](x))
///     y = e / sum[columns](e)
///   }
///
/// Where memory is shared, where workers wait for each other and how they add up is the compiler's business.
#[derive(Debug, Args)]
#[command(verbatim_doc_comment, after_help = format!("\
Examples:
  fuseline kernel examples/softmax.tile check
  fuseline kernel examples/softmax.tile run --sizes rows=8,columns=1000
  fuseline kernel examples/layernorm_gelu.tile run --inputs x.npz --outputs y.npz
  fuseline kernel examples/softmax.tile bench --sizes rows=4096,columns=4096
  fuseline kernel examples/softmax.tile emit cuda > softmax.cu
  fuseline kernel examples/softmax.tile emit cuda --target a100 --sizes columns=4096
  fuseline kernel examples/linear_gelu.tile emit asm --sizes tokens=128,inner=512,outer=512

{JUDGING_STATUS}"))]
pub struct Kernel {
    /// A file with one kernel
    #[arg(value_name = "FILE.tile")]
    pub file: PathBuf,
    /// What to do with it
    #[command(subcommand)]
    pub action: KernelAction,
}

/// What is done with a kernel.
#[derive(Debug, Subcommand)]
pub enum KernelAction {
    Check(CheckKernel),
    Run(RunKernel),
    Bench(BenchKernel),
    Emit(EmitKernel),
}

/// Say what is wrong with it, and where; otherwise what it takes, returns and how it runs
#[derive(Debug, Args)]
pub struct CheckKernel {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Run it, and compare the outputs with those of the interpreter of kernels
///
/// An ulp is the distance of neighbours in the type of the output, at the larger of the element and the typical one (the root mean square of the output).
/// Inputs come from a .npz file under their names in the text; those that it lacks are random, as those of `fuseline run`.
/// Free sizes that nobody gives are 128.
#[derive(Debug, Args)]
#[command(after_help = JUDGING_STATUS)]
pub struct RunKernel {
    /// Read inputs by name from this .npz file
    #[arg(long, value_name = "X.npz")]
    pub inputs: Option<PathBuf>,
    /// Write all outputs by name to this .npz file
    #[arg(long, value_name = "Y.npz")]
    pub outputs: Option<PathBuf>,
    /// Numbers for free sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    /// Where to run
    #[arg(long, value_parser = Device::of_kernels(), value_name = "DEVICE", default_value = "cpu")]
    pub device: Device,
    /// For the device cpu: how many threads work [default: one for every processor]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<NonZeroUsize>,
    /// Seed of random inputs
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Measure it against a copy of as many bytes, or against what arithmetic allows where that bounds it
///
/// A kernel that is bound by memory is as good as it can be where it takes as long as that copy. One that multiplies so much for each byte
/// that arithmetic bounds it is held against that limit, in GFLOP/s of the type
/// that it multiplies; of integers no limit is known. Free sizes that nobody gives are 1024, or as much of that as
/// there is memory for.
#[derive(Debug, Args)]
pub struct BenchKernel {
    /// Numbers for free sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    /// Read inputs by name from this .npz file
    #[arg(long, value_name = "X.npz")]
    pub inputs: Option<PathBuf>,
    /// Where it is measured
    #[arg(long, value_enum, value_name = "DEVICE", default_value = "cpu")]
    pub device: Measuring,
    /// How many runs are measured
    #[arg(long, value_name = "N", default_value = "50", value_parser = count)]
    pub iters: NonZeroUsize,
    /// How many runs come before, and are not
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = repeats)]
    pub warmup: usize,
    /// For the device cpu: how many threads work [default: one for every processor]
    #[arg(long, value_name = "N", value_parser = thread_count)]
    pub threads: Option<NonZeroUsize>,
    /// Seed of random inputs
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = whole::<u64>)]
    pub seed: u64,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// Print it in the long form, as a program of vectors, as machine code, or as CUDA C++
///
/// A GPU is not needed. Programs of vectors and machine code are made for fixed sizes; those that nobody gives are 128.
#[derive(Debug, Args)]
pub struct EmitKernel {
    /// As what
    #[arg(value_enum, value_name = "FORM")]
    pub form: Form,
    /// Numbers for free sizes; 4k, 1M, 2G and 4Ki, 1Mi, 2Gi are understood
    #[arg(long, value_name = "NAME=SIZE,…", value_delimiter = ',')]
    pub sizes: Vec<SizeBinding>,
    /// The GPU that CUDA C++ is for: a name, or a file called .spec [default: h200]
    #[arg(long, value_name = "NAME", value_parser = TargetName, hide_possible_values = true)]
    pub target: Option<OsString>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}
