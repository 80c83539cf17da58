//! What the command promises, a module for each part of it: `cargo test -p fuseline-cli --test suites report::` runs one of them.

mod analyze;
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
