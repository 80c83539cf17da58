//! What is shown: reports on standard output, notes on standard error, tables with aligned columns.

use std::io::Write as _;
use std::os::fd::AsFd;

pub use fuseline_session::table::{Column, Table, heading, wrapped};

use crate::failure::{Failure, Outcome};

/// Writes a whole report; colours vanish where they are not wanted.
pub fn print(report: &str) -> Outcome {
    let mut out = anstream::stdout().lock();
    out.write_all(report.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Output)
}

/// Writes to standard error. That nobody reads it does not stop the work.
pub fn tell(text: &str) {
    let _ = anstream::stderr().lock().write_all(text.as_bytes());
}

/// Writes a JSON value, indented.
pub fn print_json(value: &serde_json::Value) -> Outcome {
    let text = serde_json::to_string_pretty(value).expect("a JSON value can be written");
    print(&format!("{text}\n"))
}

/// Columns that a line of standard output may take.
pub fn width() -> usize {
    width_of(std::io::stdout())
}

/// Columns that a line may take: what `COLUMNS` says, else those of the terminal, and a fixed number where there is none.
pub fn width_of(stream: impl AsFd) -> usize {
    const WITHOUT_TERMINAL: usize = 120;
    let asked = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0));
    asked.or_else(terminal).unwrap_or(WITHOUT_TERMINAL).max(60)
}
