//! What is shown: reports on standard output, notes on standard error, tables with aligned columns.

use std::io::Write as _;

pub use fuseline_session::table::{Side, Table, heading, wrapped};

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

/// Columns that a line may take: those of the terminal, and a fixed number where there is none.
pub fn width() -> usize {
    const WITHOUT_TERMINAL: usize = 120;
    let terminal = terminal_size::terminal_size_of(std::io::stdout()).map(|(width, _)| usize::from(width.0));
    terminal.unwrap_or(WITHOUT_TERMINAL).max(60)
}
