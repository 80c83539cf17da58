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

use std::path::Path;
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

/// An ONNX file of the sum of x and z, f32 with 8 columns and so many rows, by name.
fn sum_of(folder: &Path, file: &str, rows: [&str; 2]) -> String {
    let field = |tag: u8, content: &[u8]| [&[tag, content.len() as u8], content].concat();
    let shape = |rows: &str| {
        let dims = [field(0x12, rows.as_bytes()), vec![0x08, 8]];
        field(0x12, &dims.map(|dim| field(0x0a, &dim)).concat())
    };
    let port = |tag: u8, name: &[u8], rows: &str| {
        let tensor = field(0x0a, &[&[0x08, 1], &shape(rows)[..]].concat());
        field(tag, &[field(0x0a, name), field(0x12, &tensor)].concat())
    };
    let node = [field(0x0a, b"x"), field(0x0a, b"z"), field(0x12, b"y"), field(0x22, b"Add")].concat();
    let inputs = [port(0x5a, b"x", rows[0]), port(0x5a, b"z", rows[1])].concat();
    let graph = [field(0x0a, &node), field(0x12, b"g"), inputs, port(0x62, b"y", "rows of y")].concat();
    let path = folder.join(file);
    std::fs::write(&path, [&[0x08, 8], &field(0x3a, &graph)[..], &field(0x42, &[0x10, 17])].concat()).unwrap();
    path.display().to_string()
}
