//! What the command promises, a module for each part of it: `cargo test -p fuseline-cli --test suites report::` runs one of them.

mod analyze;
mod arguments;
mod bench;
mod bisect;
mod command;
mod compare;
mod demo;
mod explain;
mod files;
mod kernel;
mod reading_explain;
mod readme;
mod report;
mod report_in_browser;
mod roofline;
mod verify;
mod widths;

use std::process::{Command, Output};

use serde_json::Value;

/// What the command answers.
fn fuseline(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_fuseline")).args(arguments).output().unwrap()
}

/// Standard output of a command that must succeed.
fn stdout(arguments: &[&str]) -> String {
    let done = fuseline(arguments);
    assert!(done.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    String::from_utf8(done.stdout).unwrap()
}

/// The JSON that a command which must succeed writes.
fn json(arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(arguments)).unwrap()
}

/// Exit status and standard error of a command that must fail, and must not panic.
fn failure(arguments: &[&str]) -> (i32, String) {
    let done = fuseline(arguments);
    let message = String::from_utf8(done.stderr).unwrap();
    assert!(!done.status.success() && !message.contains("panicked"), "{arguments:?}: {message}");
    (done.status.code().unwrap(), message)
}
