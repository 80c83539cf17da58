//! The kinds of error, told apart: your input, our gap, our bug; and what the machine lacks.
//!
//! Every error carries a *path*: the chain of places it came through, outermost first
//! (`model.onnx`, `node "encoder/3/Reshape" (Reshape)`), so that a message names the spot in the user's model.

use std::fmt;

/// What went wrong, in one of the kinds that a user can act upon.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// The input is wrong: a broken file, shapes that do not fit, an index out of range.
    Invalid,
    /// The input is right but asks for something that Fuseline does not do yet.
    Unsupported,
    /// The structure of the program hangs on values that are known only at run time; pinning the named inputs
    /// (building the program for their values) removes the obstacle.
    NeedsValue,
    /// The input asks for more than a limit allows (bytes, trips, depth).
    Limit,
    /// The machine has no more of what that takes: memory, threads.
    Exhausted,
    /// An invariant of ours does not hold. Always worth a report.
    Bug,
}

impl Kind {
    fn prefix(self) -> &'static str {
        match self {
            Kind::Invalid => "invalid input",
            Kind::Unsupported => "not supported",
            Kind::NeedsValue => "value needed",
            Kind::Limit => "over a limit",
            Kind::Exhausted => "too much for this machine",
            Kind::Bug => "internal error (please report)",
        }
    }
}

/// An error with its kind, its message and the path to the place where it happened.
#[derive(Clone, PartialEq, Eq)]
pub struct Error(Box<Inner>);

#[derive(Clone, PartialEq, Eq)]
struct Inner {
    kind: Kind,
    message: String,
    path: Vec<String>,
    needs: Vec<String>,
    allowance: Option<Allowance>,
}

/// What a model that nobody trusts may have so much of and no more; whoever runs it can allow more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Allowance {
    /// processor time of import and compilation
    CompileTime,
    /// time of a run by the clock
    RunTime,
    /// nodes of the model, and primitives that they become
    Nodes,
    /// levels of functions and regions
    Nesting,
    /// bytes of a string
    Text,
    /// bytes of the values of a run
    Memory,
    /// trips of loops
    Trips,
}

/// The result of fallible work.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of the given kind.
    pub fn new(kind: Kind, message: impl Into<String>) -> Error {
        Error(Box::new(Inner { kind, message: message.into(), path: Vec::new(), needs: Vec::new(), allowance: None }))
    }

    /// The user's input is wrong.
    pub fn invalid(message: impl Into<String>) -> Error {
        Error::new(Kind::Invalid, message)
    }

    /// The input is right, but not supported yet.
    pub fn unsupported(message: impl Into<String>) -> Error {
        Error::new(Kind::Unsupported, message)
    }

    /// A limit for untrusted input was reached.
    pub fn limit(message: impl Into<String>) -> Error {
        Error::new(Kind::Limit, message)
    }

    /// A limit for untrusted input was reached, one that can be raised.
    pub fn over(allowance: Allowance, message: impl Into<String>) -> Error {
        let mut error = Error::limit(message);
        error.0.allowance = Some(allowance);
        error
    }

    /// The machine has no more of what is needed.
    pub fn exhausted(message: impl Into<String>) -> Error {
        Error::new(Kind::Exhausted, message)
    }

    /// The machine has no so many bytes of memory in one piece.
    pub fn no_memory(bytes: usize) -> Error {
        Error::exhausted(format!("the machine has no {bytes} bytes of memory in one piece"))
    }

    /// One of our own invariants is broken.
    pub fn bug(message: impl Into<String>) -> Error {
        Error::new(Kind::Bug, message)
    }

    /// Structure depends on the run-time values of the named graph inputs.
    pub fn needs_value(message: impl Into<String>, inputs: Vec<String>) -> Error {
        let mut error = Error::new(Kind::NeedsValue, message);
        error.0.needs = inputs;
        error
    }

    /// The same error, seen from one place further out.
    pub fn at(mut self, place: impl Into<String>) -> Error {
        self.0.path.insert(0, place.into());
        self
    }

    /// The same error, where the input is wrong only for sizes as they were supposed to be.
    pub fn of_sizes(mut self) -> Error {
        if self.0.kind == Kind::Invalid {
            self.0.kind = Kind::NeedsValue;
        }
        self
    }

    /// The same error, where whoever wrote the input has broken what otherwise only we could.
    pub fn of_input(mut self) -> Error {
        self.0.kind = Kind::Invalid;
        self
    }

    /// The same error, where only we could have broken what is otherwise up to whoever wrote the input.
    pub fn of_ours(mut self) -> Error {
        if self.0.kind == Kind::Invalid {
            self.0.kind = Kind::Bug;
        }
        self
    }

    /// The kind of error.
    pub fn kind(&self) -> Kind {
        self.0.kind
    }

    /// The message without its path.
    pub fn message(&self) -> &str {
        &self.0.message
    }

    /// The places the error came through, outermost first.
    pub fn path(&self) -> &[String] {
        &self.0.path
    }

    /// For [`Kind::Limit`]: which limit was reached; none where it is one that nobody can raise.
    pub fn allowance(&self) -> Option<Allowance> {
        self.0.allowance
    }

    /// For [`Kind::NeedsValue`]: the graph inputs whose values must be known.
    pub fn needs(&self) -> &[String] {
        &self.0.needs
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.0.kind.prefix())?;
        for place in &self.0.path {
            write!(f, "{place}: ")?;
        }
        f.write_str(&self.0.message)
    }
}

impl fmt::Debug for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::error::Error for Error {}

/// Adds a place to the path of an error, building its name only when there is an error.
pub trait Context<T> {
    /// The same result; an error is seen from `place`.
    fn at<S: Into<String>>(self, place: impl FnOnce() -> S) -> Result<T>;
}

impl<T> Context<T> for Result<T> {
    fn at<S: Into<String>>(self, place: impl FnOnce() -> S) -> Result<T> {
        self.map_err(|error| error.at(place()))
    }
}
