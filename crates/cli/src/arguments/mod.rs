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
mod given;
mod inspect;
mod kernel;
mod kernels;
mod limits;
mod report;
mod roofline;
mod run;
mod value;
mod verify;

use std::ffi::OsString;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

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
pub use given::{GivenInputs, InputValues};
pub use inspect::Inspect;
pub use kernel::{BenchKernel, CheckKernel, EmitKernel, Kernel, KernelAction, RunKernel};
pub use kernels::{Form, Kernels};
pub use limits::{ModelLimits, TimeLimit};
pub use report::Report;
pub use roofline::RooflineArguments;
pub use run::Run;
pub use value::{
    ModelName, SizeBinding, TargetName, count, decision, float_type, parse_size, repeats, thread_count, whole,
};
pub use verify::Verify;

const EXIT_STATUS: &str = "\
Errors are text on standard error, also with --json. Exit status:
  0  done
  1  the work failed: something is not supported yet, a limit was reached, a run went wrong, a disk is full
  2  the request is wrong: unknown option, missing file, broken model, inputs that do not fit";

/// What is added for all commands together.
const FOUND: &str = "  3  verify, bisect, demo, kernel run: something differs by more than it may, or is found guilty";

/// The exit status of commands that judge.
const JUDGING_STATUS: &str = "\
Errors are text on standard error, also with --json. Exit status:
  0  everything agrees
  1  the work failed: something is not supported yet, a limit was reached, a run went wrong, a disk is full
  2  the request is wrong: unknown option, missing file, broken model, inputs that do not fit
  3  something differs by more than it may";

const TOUR: &str = "\
MODEL is one of
  net.onnx        an ONNX file
  net.ir          a graph in text form (docs/ir.md)
  my.tile         what a kernel of yours computes (docs/tile.md), planned as a graph is; `fuseline kernel` runs it as you wrote it
  gallery:NAME    a graph of the built-in gallery; `fuseline gallery` lists them
  demo:NAME       a small network with weights: encoder, resnet, llama or opt

Start here:
  fuseline demo
  fuseline gallery
  fuseline inspect gallery:transformer_sublayer --sizes tokens=128
  fuseline run gallery:layernorm_gelu --sizes rows=8,columns=1024
  fuseline explain gallery:transformer_sublayer --target h200
  fuseline bench gallery:add_gelu --sizes 1M,10M,100M
  fuseline kernels gallery:softmax --emit cuda
  fuseline analyze examples/layer.json";

/// Automatic operator fusion for neural networks
#[derive(Debug, Parser)]
#[command(name = "fuseline", version, after_help = format!("{TOUR}\n\n{EXIT_STATUS}\n{FOUND}"))]
pub struct Arguments {
    /// Print no progress, no notes and no report: errors only, and what is asked for as JSON or as code
    #[arg(long, short, global = true)]
    pub quiet: bool,
    #[command(subcommand)]
    pub command: Command,
}

impl Arguments {
    /// Those of this process. What is asked for instead of a command, such as help, comes back as an error too.
    pub fn read() -> Result<Arguments, clap::Error> {
        Arguments::from(std::env::args_os())
    }

    fn from(words: impl IntoIterator<Item = impl Into<OsString> + Clone>) -> Result<Arguments, clap::Error> {
        let mut command = with_negative_numbers(Arguments::command());
        let found = command.try_get_matches_from_mut(words);
        found.and_then(|found| Arguments::from_arg_matches(&found)).map_err(|error| error.format(&mut command))
    }
}

/// A command, and all below it, that take `-1` as a number, so that it is refused as one and not as an unknown option.
fn with_negative_numbers(command: clap::Command) -> clap::Command {
    command.allow_negative_numbers(true).mut_subcommands(with_negative_numbers)
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
        with_negative_numbers(Arguments::command()).debug_assert();
    }

    /// Every command, with how it is called; what `kernel` does are commands of their own.
    fn all_commands(all: &clap::Command) -> Vec<(Vec<&str>, &clap::Command)> {
        let own = all.get_subcommands().map(|command| (vec![command.get_name()], command));
        let kernel = all.find_subcommand("kernel").unwrap();
        let of_kernels =
            kernel.get_subcommands().map(|command| (vec!["kernel", "x.tile", command.get_name()], command));
        own.chain(of_kernels).collect()
    }

    #[test]
    fn every_command_has_json_and_may_be_quiet() {
        let mut all = Arguments::command();
        all.build();
        for (path, command) in all_commands(&all) {
            let has = |name: &str| command.get_arguments().any(|option| option.get_long() == Some(name));
            let is_told_by_clap = command.get_name() == "help";
            assert!(has("quiet") || is_told_by_clap, "{path:?}");
            assert!(has("json") || is_told_by_clap || command.has_subcommands(), "{path:?}");
        }
    }

    /// Every option with a number, of every command, refuses what is none in words of ours.
    #[test]
    fn numbers_that_are_none_are_refused_in_plain_words() {
        let mut tried = 0;
        let all = Arguments::command();
        for (path, command) in all_commands(&all) {
            for option in command.get_opts() {
                let value = option.get_value_names().and_then(|names| names.first()).map(|name| name.as_str());
                if !matches!(value, Some("N" | "SECONDS" | "BYTES" | "PERCENT" | "GB/s" | "GFLOP/s")) {
                    continue;
                }
                let flag = format!("--{}", option.get_long().unwrap());
                for number in ["x", "-1", "1.5.2", "99999999999999999999999"] {
                    // Parts and rates may be large, and parts below zero.
                    let is_real = matches!(value, Some("PERCENT" | "GB/s" | "GFLOP/s"));
                    let fits = number.parse().is_ok_and(|x: f64| x > 0.0 || value == Some("PERCENT"));
                    if is_real && fits {
                        continue;
                    }
                    let words = [&["fuseline"], &path[..], &[&flag, number]].concat();
                    let error = Arguments::from(words.clone()).expect_err("it is no number").to_string();
                    let plain = [
                        "wanted:",
                        "fit into 64 bits",
                        "is not a size",
                        "is below zero",
                        "the suffix",
                        "the most that",
                    ];
                    assert!(plain.iter().any(|words| error.contains(words)), "{words:?}: {error}");
                    tried += 1;
                }
            }
        }
        assert!(tried > 100, "{tried}");
        let zero = Arguments::from(["fuseline", "bench", "gallery:softmax", "--iters", "0"]).unwrap_err().to_string();
        assert!(zero.contains("wanted: a whole number, 1 or more"), "{zero}");
    }
}
