//! What is shown: reports on standard output, notes on standard error, tables with aligned columns.

use std::borrow::Cow;
use std::io::Write as _;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, Ordering};

use fuseline_session::table::is_command;
pub use fuseline_session::table::{Column, Table, folded, heading, spelt_out, title, wrapped};

use crate::failure::{Failure, Outcome};

/// Whether nothing is wanted but errors, JSON and code; said once, when the command line is read.
static QUIET: AtomicBool = AtomicBool::new(false);

/// Shows no progress, notes and reports from now on, where that is wanted.
pub fn be_quiet(quiet: bool) {
    QUIET.store(quiet, Ordering::Relaxed);
}

/// Whether progress, notes and reports are not wanted.
pub fn is_quiet() -> bool {
    QUIET.load(Ordering::Relaxed)
}

/// Writes a whole report, unless it is not wanted; colours vanish where they are not.
pub fn print(report: &str) -> Outcome {
    if is_quiet() {
        return Ok(());
    }
    // Headings and lists are made for terminals that are not narrower.
    const USUAL: usize = 60;
    let report = harmless(report);
    match width() {
        narrow if narrow < USUAL => print_own(&folded(&report, narrow)),
        _ => print_own(&report),
    }
}

/// Writes code, whose lines are as long as they are.
pub fn print_code(code: &str) -> Outcome {
    print_own(&harmless(code))
}

/// Writes a text in which nothing is a stranger's, with any styles.
pub fn print_own(text: &str) -> Outcome {
    let mut out = anstream::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(Failure::Output)
}

/// Writes what is worth knowing to standard error, in lines that fit its terminal, unless it is not wanted.
pub fn tell(words: &str) {
    if is_quiet() {
        return;
    }
    // It is one line, whatever names stand in it.
    let text = format!("{}\n", spelt_out(words));
    // Where there is no terminal, a program may read it, by lines.
    match columns_of(std::io::stderr()) {
        Some(width) => complain(&folded(&text, width)),
        None => complain(&text),
    }
}

/// Writes to standard error what has to be said. That nobody reads it does not stop the work.
pub fn complain(text: &str) {
    let _ = anstream::stderr().lock().write_all(harmless(text).as_bytes());
}

/// What is printed, without anything that would command the terminal but for our own styles: names of models are a stranger's.
fn harmless(text: &str) -> Cow<'_, str> {
    // End, bold, dim, red.
    const STYLES: [&str; 4] = ["\x1b[0m", "\x1b[1m", "\x1b[2m", "\x1b[31m"];
    let is_bad = |c: char| is_command(c) && !matches!(c, '\n' | '\t');
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    let (mut safe, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(at) = rest.find(is_bad) {
        safe.push_str(&rest[..at]);
        rest = &rest[at..];
        let style = STYLES.into_iter().find(|style| rest.starts_with(style));
        let bad = style.map_or_else(|| rest.chars().next().map_or(0, char::len_utf8), str::len);
        match style {
            Some(style) => safe.push_str(style),
            None => safe.extend(rest[..bad].chars().flat_map(char::escape_unicode)),
        }
        rest = &rest[bad..];
    }
    safe.push_str(rest);
    Cow::Owned(safe)
}

/// Writes a JSON value, indented.
pub fn print_json(value: &serde_json::Value) -> Outcome {
    let text = serde_json::to_string_pretty(value).expect("a JSON value can be written");
    // JSON escapes some of what commands a terminal; such characters are inside of its strings only.
    let is_raw = |c: char| c != '\n' && is_command(c);
    let escaped = |c: char| if is_raw(c) { format!("\\u{:04x}", u32::from(c)) } else { c.to_string() };
    let text = if text.contains(is_raw) { text.chars().map(escaped).collect() } else { text };
    print_code(&format!("{text}\n"))
}

/// Columns that a line of standard output may take.
pub fn width() -> usize {
    width_of(std::io::stdout())
}

/// Columns that a line may take: a fixed number where there is no terminal.
pub fn width_of(stream: impl AsFd) -> usize {
    const WITHOUT_TERMINAL: usize = 120;
    columns_of(stream).unwrap_or(WITHOUT_TERMINAL)
}

/// What `COLUMNS` says, else the columns of the terminal, if there is one.
fn columns_of(stream: impl AsFd) -> Option<usize> {
    // Below that, no number and its name have a line together.
    const LEAST: usize = 20;
    let asked = std::env::var("COLUMNS").ok().and_then(|columns| columns.parse().ok());
    let terminal = || terminal_size::terminal_size_of(stream).map(|(width, _)| usize::from(width.0));
    asked.or_else(terminal).filter(|width| *width > 0).map(|width| width.max(LEAST))
}

#[cfg(test)]
mod tests {
    use super::harmless;

    #[test]
    fn only_our_own_styles_reach_a_terminal() {
        assert_eq!(harmless("\x1b[1mbold\x1b[0m\n\ttext"), "\x1b[1mbold\x1b[0m\n\ttext");
        let names = [
            ("\x1b]0;title\x07", "\\u{1b}]0;title\\u{7}"),
            ("a\rb\u{9b}2J", "a\\u{d}b\\u{9b}2J"),
            ("\u{202e}", "\\u{202e}"),
        ];
        for (name, shown) in names {
            assert_eq!(harmless(&format!("\x1b[1m{name}")), format!("\x1b[1m{shown}"));
        }
    }
}
