//! `fuseline completions`: what lets a shell complete commands and options.

use clap::CommandFactory;

use crate::arguments::{Arguments, Completions};
use crate::failure::Outcome;
use crate::screen;

/// Prints the completions for a shell.
pub fn completions(arguments: &Completions) -> Outcome {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut Arguments::command(), "fuseline", &mut text);
    screen::print_code(&String::from_utf8_lossy(&text))
}
