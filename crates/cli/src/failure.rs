//! What goes wrong, told in one block: what, where, why, and what would help.

use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use fuseline::error::{Error, Kind};

use crate::screen;

/// Why a command ended without doing its work.
#[derive(Debug)]
pub enum Failure {
    /// the work itself
    Work {
        error: Error,
        /// what the user can do, where the command knows better than the kind of error
        help: Option<String>,
        /// the lines of a file that it is about
        excerpt: Option<String>,
    },
    /// something differs by more than it may, as the report on standard output says
    Differs,
    /// standard output cannot be written
    Output(io::Error),
}

/// The result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Work { error, help: None, excerpt: None }
    }
}

impl Failure {
    /// An error with its remedy.
    pub fn with_help(error: Error, help: impl Into<String>) -> Failure {
        Failure::Work { error, help: Some(help.into()), excerpt: None }
    }

    /// The same failure; where the input is wrong and nobody said what would help, with this remedy.
    pub fn or_help(self, remedy: &str) -> Failure {
        match self {
            Failure::Work { error, help: None, excerpt } if error.kind() == Kind::Invalid => {
                Failure::Work { error, help: Some(remedy.to_string()), excerpt }
            }
            other => other,
        }
    }

    /// The same failure, seen from one place further out.
    pub fn at(self, place: impl Into<String>) -> Failure {
        match self {
            Failure::Work { error, help, excerpt } => Failure::Work { error: error.at(place), help, excerpt },
            output => output,
        }
    }

    /// The same failure with the lines of a file that it is about.
    pub fn with_excerpt(self, lines: String) -> Failure {
        match self {
            Failure::Work { error, help, .. } => Failure::Work { error, help, excerpt: Some(lines) },
            output => output,
        }
    }

    /// Tells the failure on standard error, and gives the exit status.
    pub fn report(&self) -> ExitCode {
        match self {
            // Whoever reads our output has seen enough: not a failure.
            Failure::Output(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Failure::Output(error) => {
                screen::tell(&format!("error: cannot write to standard output: {error}\n"));
                ExitCode::from(1)
            }
            Failure::Differs => ExitCode::from(3),
            Failure::Work { error, help, excerpt } => {
                screen::tell(&block(error, help.as_deref(), excerpt.as_deref()));
                ExitCode::from(status(error.kind()))
            }
        }
    }
}

/// 2 where the request was wrong, 1 where the work failed.
fn status(kind: Kind) -> u8 {
    match kind {
        Kind::Invalid | Kind::NeedsValue => 2,
        Kind::Unsupported | Kind::Limit | Kind::Bug => 1,
    }
}

fn block(error: &Error, help: Option<&str>, excerpt: Option<&str>) -> String {
    let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let bold = Style::new().bold();
    // A gap is told by its name, which alone would say nothing.
    let gap = if error.kind() == Kind::Unsupported { "not supported: " } else { "" };
    let mut text = format!("{red}error:{red:#} {gap}{}\n", error.message());
    text.push_str(excerpt.unwrap_or_default());
    let mut line = |label: &str, words: &str| {
        writeln!(text, "  {bold}{label}:{bold:#} {words}").expect("writing to a string succeeds");
    };
    if !error.path().is_empty() {
        line("where", &error.path().join(" › "));
    }
    line("why", why(error.kind()));
    let needs = error.needs();
    match help {
        Some(help) => line("help", help),
        None if !needs.is_empty() => line("help", &format!("give values of {} with --inputs", needs.join(", "))),
        None => line("help", default_help(error.kind())),
    }
    text
}

fn why(kind: Kind) -> &'static str {
    match kind {
        Kind::Invalid => "the input does not fit",
        Kind::Unsupported => "Fuseline does not do this yet; the model itself may be right",
        Kind::NeedsValue => "the structure of the model hangs on values or sizes that are not known or do not agree",
        Kind::Limit => "a limit for untrusted models was reached",
        Kind::Bug => "an invariant of Fuseline does not hold",
    }
}

fn default_help(kind: Kind) -> &'static str {
    match kind {
        Kind::Invalid => "check the place named above; `fuseline inspect MODEL` shows what the model takes",
        Kind::Unsupported => "docs/adding-an-op.md shows how an operator is added",
        Kind::NeedsValue => "give inputs whose sizes agree, with --inputs or --sizes",
        Kind::Limit => {
            "try smaller sizes; models that you trust may have more: --max-compile-time, --max-nodes, --max-nesting, and of \
             `fuseline run` --max-memory, --max-trips"
        }
        Kind::Bug => "please report it together with the model and the command",
    }
}
