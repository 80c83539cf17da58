//! The command line: what can be asked for, with the help that teaches it. One file a command.

mod analyze;
mod bench;
mod bisect;
mod choice;
mod compare;
mod completions;
mod demo;
mod doctor;
mod explain;
mod gallery;
mod inspect;
mod kernel;
mod kernels;
mod limits;
mod report;
mod roofline;
mod run;
mod value;
mod verify;

use clap::{Parser, Subcommand};

pub use analyze::Analyze;
pub use bench::{Bench, Measuring, Only};
pub use bisect::{Bisect, Metric};
pub use choice::{NumericsName, PolicyName, PrecisionName, ReadingName};
pub use compare::{Compare, RivalName};
pub use completions::Completions;
pub use demo::Demo;
pub use doctor::Doctor;
pub use explain::Explain;
pub use gallery::Gallery;
pub use inspect::Inspect;
pub use kernel::{BenchKernel, CheckKernel, EmitKernel, Kernel, KernelAction, RunKernel};
pub use kernels::{Form, Kernels};
pub use limits::ModelLimits;
pub use report::Report;
pub use roofline::RooflineArguments;
pub use run::Run;
pub use value::{ModelName, SizeBinding, float_type, parse_size, thread_count};
pub use verify::Verify;

const EXIT_STATUS: &str = "\
Exit status:
  0  done
  1  the work failed: something is not supported yet, a limit was reached, a run went wrong, a disk is full
  2  the request is wrong: unknown option, missing file, broken model, inputs that do not fit";

/// What is added for all commands together.
const FOUND: &str = "  3  verify, bisect, demo, kernel run: something differs by more than it may, or is found guilty";

/// The exit status of commands that judge.
const JUDGING_STATUS: &str = "\
Exit status:
  0  everything agrees
  1  the work failed: something is not supported yet, a limit was reached, a run went wrong, a disk is full
  2  the request is wrong: unknown option, missing file, broken model, inputs that do not fit
  3  something differs by more than it may";

const TOUR: &str = "\
MODEL is one of
  net.onnx        an ONNX file
  net.ir          a graph in text form (docs/ir.md)
  gallery:NAME    a graph of the built-in gallery; `fuseline gallery` lists them
  demo:NAME       a small network with weights: encoder, resnet, llama or opt

Start here:
  fuseline demo
  fuseline gallery
  fuseline inspect gallery:transformer_sublayer --sizes tokens=128
  fuseline run gallery:layernorm_gelu --sizes rows=8,columns=1024
  fuseline explain gallery:transformer_sublayer --target h200
  fuseline analyze examples/layer.json";

/// Automatic operator fusion for neural networks
#[derive(Debug, Parser)]
#[command(name = "fuseline", version, after_help = format!("{TOUR}\n\n{EXIT_STATUS}\n{FOUND}"))]
pub struct Arguments {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    Demo(Demo),
    Inspect(Inspect),
    Run(Run),
    Explain(Explain),
    Bench(Bench),
    Kernels(Kernels),
    Report(Report),
    Roofline(RooflineArguments),
    Kernel(Kernel),
    Verify(Verify),
    Compare(Compare),
    Bisect(Bisect),
    Analyze(Analyze),
    Gallery(Gallery),
    Doctor(Doctor),
    Completions(Completions),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_well_formed() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }
}
