//! The `fuseline` command: inspects, explains and runs models, and analyzes operations fed by hand.
//!
//! Comes in: arguments, files. Goes out: reports on standard output, notes and errors on standard error, files, an exit
//! status. Options are read here, once; nothing below looks at the environment.
#![forbid(unsafe_code)]

mod analyze;
mod arguments;
mod bench;
mod bisect;
mod ceiling;
mod compare;
mod completions;
mod deadline;
mod demo;
mod device;
mod doctor;
mod explain;
mod failure;
mod feed;
mod file;
mod formula;
mod gallery;
mod given_inputs;
mod given_sizes;
mod histogram;
mod inspect;
mod kernel;
mod kernels;
mod load;
mod machine;
mod model;
mod operations;
mod part;
mod report;
mod roofline;
mod run;
mod screen;
mod settle_sizes;
mod signals;
mod target;
mod verify;
mod waiting;
mod written_plan;

use std::process::ExitCode;

use fuseline_session::{gpu, quantity};

use arguments::{Arguments, Command};
use failure::Outcome;

fn main() -> ExitCode {
    match Arguments::read() {
        Ok(arguments) => {
            screen::be_quiet(arguments.quiet);
            told(run_command(arguments.command))
        }
        Err(asked) if !asked.use_stderr() => told(screen::print_own(&asked.render().ansi().to_string())),
        Err(wrong) => wrong.exit(),
    }
}

fn told(done: Outcome) -> ExitCode {
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => failure.report(),
    }
}

fn run_command(command: Command) -> Outcome {
    match command {
        Command::Demo(arguments) => demo::demo(&arguments),
        Command::Inspect(arguments) => inspect::inspect(&arguments),
        Command::Explain(arguments) => explain::explain(&arguments),
        Command::Run(arguments) => run::run(&arguments),
        Command::Bench(arguments) => bench::bench(&arguments),
        Command::Kernels(arguments) => kernels::kernels(&arguments),
        Command::Report(arguments) => report::report(&arguments),
        Command::Roofline(arguments) => roofline::roofline(&arguments),
        Command::Analyze(arguments) => analyze::analyze(&arguments),
        Command::Gallery(arguments) => gallery::list(&arguments),
        Command::Kernel(arguments) => kernel::kernel(&arguments),
        Command::Bisect(arguments) => bisect::bisect(&arguments),
        Command::Verify(arguments) => verify::verify(&arguments),
        Command::Compare(arguments) => compare::compare(&arguments),
        Command::Doctor(arguments) => doctor::doctor(&arguments),
        Command::Completions(arguments) => completions::completions(&arguments),
    }
}
