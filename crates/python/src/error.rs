//! Our errors as Python exceptions.

use std::panic::{AssertUnwindSafe, catch_unwind};

use fuseline::error::{Error, Kind, Result};
use pyo3::prelude::*;

/// What was wrong if the input was: the model, or what it was run with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum About {
    Model,
    Inputs,
}

/// Does work that needs no interpreter without its lock. A panic is a bug of ours and becomes an error like others, not the end of the
/// program.
pub fn work<T: Send>(py: Python<'_>, about: About, work: impl FnOnce() -> Result<T> + Send) -> PyResult<T> {
    let done = py.detach(|| catch_unwind(AssertUnwindSafe(work)));
    let done = done.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or(panic.downcast_ref::<&str>().copied());
        Err(Error::bug(format!("a panic: {}", text.unwrap_or("without a message"))))
    });
    done.map_err(|error| exception(py, &error, about))
}

/// The exception for an error: a class of `fuseline._errors`.
pub fn exception(py: Python<'_>, error: &Error, about: About) -> PyErr {
    let name = match (error.kind(), about) {
        (Kind::Invalid, About::Model) => "InvalidModel",
        (Kind::Invalid, About::Inputs) => "InvalidInput",
        (Kind::NeedsValue, _) => "NeedsValue",
        (Kind::Unsupported, _) => "Unsupported",
        (Kind::Limit, _) => "Limit",
        (Kind::Exhausted, _) => "Exhausted",
        (Kind::Bug, _) => "Bug",
    };
    let make = || {
        let class = py.import("fuseline._errors")?.getattr(name)?;
        let value = class.call1((error.to_string(),))?;
        value.setattr("message", error.message())?;
        value.setattr("path", error.path())?;
        Ok(PyErr::from_value(value))
    };
    make().unwrap_or_else(|error| error)
}
