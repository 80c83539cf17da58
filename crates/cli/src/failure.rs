//! What goes wrong, told in one block: what, where, why, and what would help.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anstyle::{AnsiColor, Style};
use fuseline::error::{Allowance, Error, Kind};

use crate::screen;

/// Where errors about a GPU that cannot be opened are.
pub const GPU: &str = "--device cuda";

const DOCTOR: &str = "`fuseline doctor` says what is there and what is missing";

/// Why a command ended without doing its work.
#[derive(Debug)]
pub enum Failure {
    /// the work itself
    Work {
        error: Error,
        /// why it went wrong, where the command knows better than the kind of error
        why: Option<&'static str>,
        /// what the user can do, where the command knows better than the kind of error
        help: Option<String>,
        /// the lines of a file that it is about
        excerpt: Option<String>,
    },
    /// something differs by more than it may, as the report on standard output says
    Differs,
    /// a file cannot be written
    NotWritten { path: PathBuf, error: io::Error },
    /// standard output cannot be written
    Output(io::Error),
}

/// Whether a file is there that may not be opened.
fn is_denied(path: &Path) -> bool {
    let opened = match fs::metadata(path) {
        // Opening a pipe would wait for its writer.
        Ok(found) if !found.is_file() => return false,
        found => found.and_then(|_| fs::File::open(path)),
    };
    opened.is_err_and(|error| error.kind() == ErrorKind::PermissionDenied)
}

/// The result of a command.
pub type Outcome<T = ()> = Result<T, Failure>;

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Work { error, why: None, help: None, excerpt: None }
    }
}

impl Failure {
    /// An error with its remedy.
    pub fn with_help(error: Error, help: impl Into<String>) -> Failure {
        Failure::Work { error, why: None, help: Some(help.into()), excerpt: None }
    }

    /// An error with its cause and its remedy.
    pub fn explained(error: Error, why: &'static str, help: impl Into<String>) -> Failure {
        Failure::Work { error, why: Some(why), help: Some(help.into()), excerpt: None }
    }

    /// A file that cannot be written.
    pub fn not_written(path: &Path, error: io::Error) -> Failure {
        Failure::NotWritten { path: path.to_path_buf(), error }
    }

    /// A file that the user named and that cannot be read, with what such files are, or where to begin with them.
    pub fn not_read(path: &Path, error: Error, help: impl Into<String>) -> Failure {
        match fs::metadata(path) {
            Err(found) if found.kind() == ErrorKind::NotFound => {
                Failure::explained(error, "there is no such file", "check the path")
            }
            Ok(found) if found.is_dir() => Failure::explained(error, "it is a folder", "give the path of a file"),
            _ if is_denied(path) => Failure::explained(
                error,
                "this user may not read it",
                "`chmod` gives permission, to whoever owns the file",
            ),
            _ => Failure::with_help(error, help),
        }
    }

    /// The same failure; where the input is wrong and nobody said what would help, with this remedy.
    pub fn or_help(self, remedy: &str) -> Failure {
        match self {
            Failure::Work { error, why, help: None, excerpt } if error.kind() == Kind::Invalid => {
                Failure::Work { error, why, help: Some(remedy.to_string()), excerpt }
            }
            other => other,
        }
    }

    /// The same failure, seen from one place further out.
    pub fn at(self, place: impl Into<String>) -> Failure {
        match self {
            Failure::Work { error, why, help, excerpt } => Failure::Work { error: error.at(place), why, help, excerpt },
            other => other,
        }
    }

    /// The same failure with the lines of a file that it is about.
    pub fn with_excerpt(self, lines: String) -> Failure {
        match self {
            Failure::Work { error, why, help, .. } => Failure::Work { error, why, help, excerpt: Some(lines) },
            other => other,
        }
    }

    /// Tells the failure on standard error, and gives the exit status.
    pub fn report(&self) -> ExitCode {
        match self {
            // Whoever reads our output has seen enough: not a failure.
            Failure::Output(error) if error.kind() == ErrorKind::BrokenPipe => ExitCode::SUCCESS,
            Failure::Output(error) => {
                screen::complain(&format!("error: cannot write to standard output: {error}\n"));
                ExitCode::from(1)
            }
            Failure::Differs => ExitCode::from(3),
            Failure::NotWritten { path, error } => {
                let (why, help, status) = why_not_written(error.kind());
                let what = Error::invalid(format!("cannot be written: {error}")).at(path.display().to_string());
                screen::complain(&block(&what, Some(why), Some(help), None));
                ExitCode::from(status)
            }
            Failure::Work { error, why, help, excerpt } => {
                screen::complain(&block(error, *why, help.as_deref(), excerpt.as_deref()));
                ExitCode::from(status(error.kind()))
            }
        }
    }
}

/// Why a file cannot be written, what would help, and the exit status: a place that takes no files is a wrong request, a place that is
/// full is not.
fn why_not_written(kind: ErrorKind) -> (&'static str, &'static str, u8) {
    match kind {
        ErrorKind::StorageFull => ("the disk is full", "free some space, or write to another disk", 1),
        ErrorKind::QuotaExceeded => ("your part of the disk is full", "free some space, or write to another disk", 1),
        ErrorKind::FileTooLarge => ("the file is larger than files may be", "raise the limit (`ulimit -f`)", 1),
        ErrorKind::PermissionDenied | ErrorKind::ReadOnlyFilesystem => {
            ("nothing may be written there", "choose a folder that you may write to", 2)
        }
        ErrorKind::NotFound => ("there is no such folder", "make the folder first", 2),
        ErrorKind::NotADirectory => ("what should be a folder is a file", "choose another place", 2),
        ErrorKind::IsADirectory => ("a folder is there", "give the name of a file", 2),
        ErrorKind::InvalidFilename => ("files have no such names", "give another name", 2),
        _ => ("the system refuses it", "choose another place", 1),
    }
}

/// 2 where the request was wrong, 1 where the work failed.
fn status(kind: Kind) -> u8 {
    match kind {
        Kind::Invalid | Kind::NeedsValue => 2,
        Kind::Unsupported | Kind::Limit | Kind::Exhausted | Kind::Bug => 1,
    }
}

fn block(error: &Error, cause: Option<&str>, help: Option<&str>, excerpt: Option<&str>) -> String {
    let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let bold = Style::new().bold();
    // A gap is told by its name, which alone would say nothing.
    let gap = if error.kind() == Kind::Unsupported { "not supported: " } else { "" };
    let mut text = format!("{red}error:{red:#} {gap}{}\n", told(error.message(), 2000));
    text.push_str(excerpt.unwrap_or_default());
    let mut line = |label: &str, words: &str| {
        writeln!(text, "  {bold}{label}:{bold:#} {words}").expect("writing to a string succeeds");
    };
    if !error.path().is_empty() {
        line("where", &error.path().iter().map(|place| told(place, 240)).collect::<Vec<_>>().join(" › "));
    }
    let lacking = error.kind() == Kind::Unsupported && error.path().iter().any(|place| place == GPU);
    let (cause, help) = match lacking {
        true => (cause.or(Some("this machine lacks what that device needs")), help.or(Some(DOCTOR))),
        false => (cause, help),
    };
    line("why", cause.unwrap_or(why(error.kind())));
    let needs = error.needs();
    match help {
        Some(help) => line("help", help),
        None if error.kind() == Kind::Limit => line("help", &raise(error.allowance())),
        None if !needs.is_empty() => {
            line("help", &format!("give values of {} with --inputs, or with --input NAME=NUMBER,…", needs.join(", ")))
        }
        None => line("help", default_help(error.kind())),
    }
    text
}

/// A text of at most so many characters in which names of models may stand, however long they are and whatever is in them.
fn told(text: &str, most: usize) -> String {
    let lines: Vec<_> = text.split('\n').map(screen::spelt_out).collect();
    let text = lines.join("\n");
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}… ({} more)", &text[..end], text[end..].chars().count()),
        None => text,
    }
}

fn why(kind: Kind) -> &'static str {
    match kind {
        Kind::Invalid => "the input does not fit",
        Kind::Unsupported => "Fuseline does not do this yet; the model itself may be right",
        Kind::NeedsValue => "the structure of the model hangs on values or sizes that are not known or do not agree",
        Kind::Limit => "a limit for untrusted models was reached",
        Kind::Exhausted => "the machine, or what it lets a program have, has no more",
        Kind::Bug => "an invariant of Fuseline does not hold",
    }
}

fn default_help(kind: Kind) -> &'static str {
    match kind {
        Kind::Invalid => "check the place named above; `fuseline inspect MODEL` shows what the model takes",
        Kind::Unsupported => "docs/adding-an-op.md shows how an operator is added",
        Kind::NeedsValue => "give inputs whose sizes agree, with --inputs or --sizes",
        Kind::Limit => "try smaller sizes, or a smaller model",
        Kind::Exhausted => "end other programs, or take smaller sizes",
        Kind::Bug => "please report it together with the model and the command",
    }
}

/// What helps where a limit was reached: its flag, where it has one.
fn raise(allowance: Option<Allowance>) -> String {
    let usual = default_help(Kind::Limit);
    match allowance {
        Some(allowance) => format!("{usual}; models that you trust may have more: {}", flag(allowance)),
        None => format!("{usual}; no flag raises this limit"),
    }
}

/// The option that allows more.
fn flag(allowance: Allowance) -> &'static str {
    match allowance {
        Allowance::CompileTime => "--max-compile-time SECONDS",
        Allowance::RunTime => "--max-time SECONDS",
        Allowance::Nodes => "--max-nodes N",
        Allowance::Nesting => "--max-nesting N",
        Allowance::Text => "--max-text BYTES",
        Allowance::Memory => "--max-memory BYTES",
        Allowance::Trips => "--max-trips N",
    }
}
