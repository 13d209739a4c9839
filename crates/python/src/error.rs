//! The library's errors as exceptions, whose classes are in `tailcut/_errors.py`.

use std::io;

use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use tailcut::{Error, Failure};

/// Why something did not succeed, known by a thread that may not be attached.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The library says so.
    Library(Error),
    /// A file of keys or of a policy cannot be read, or holds none.
    File(io::Error),
    /// It has been closed.
    Closed,
    /// It was made by the process that this one was forked from.
    Forked,
    /// It is misused.
    Misused(&'static str),
    /// An exception of Python's, such as of a signal.
    Raised(PyErr),
}

impl From<Error> for Failed {
    fn from(error: Error) -> Self {
        Self::Library(error)
    }
}

impl From<PyErr> for Failed {
    fn from(error: PyErr) -> Self {
        Self::Raised(error)
    }
}

impl From<Failed> for PyErr {
    fn from(failed: Failed) -> Self {
        Python::attach(|py| match failed {
            Failed::Library(error) => library(py, &error).unwrap_or_else(|error| error),
            Failed::File(error) => plain(py, "OpenError", &error.to_string()),
            Failed::Closed => plain(py, "Closed", "it has been closed"),
            Failed::Forked => plain(
                py,
                "Closed",
                "it was opened before the fork and belongs to the parent; open another one here",
            ),
            Failed::Misused(text) => PyRuntimeError::new_err(text),
            Failed::Raised(error) => error,
        })
    }
}

/// An exception of `_errors.py` that has a text alone.
fn plain(py: Python<'_>, class: &str, text: &str) -> PyErr {
    let made = class_of(py, class).and_then(|class| class.call1((text,)));
    made.map_or_else(|error| error, PyErr::from_value)
}

fn library(py: Python<'_>, error: &Error) -> PyResult<PyErr> {
    let text = error.to_string();
    let made = match error {
        Error::Rejected { code, text: said, .. } => {
            let made = class_of(py, "Rejected")?.call1((*code, said))?;
            made.setattr("_described", text)?;
            made
        }
        other => class_of(py, class_name(other))?.call1((text,))?,
    };
    if let Some(server) = error.server() {
        made.setattr("server", server.to_string())?;
    }
    if let Error::Failed { source: Failure::Refused(reason), .. } = error {
        made.setattr("reason", snake_case(&format!("{reason:?}")))?;
        made.setattr("retry_after", error.retry_after().map(|time| time.as_secs_f64()))?;
    }
    Ok(PyErr::from_value(made))
}

fn class_of<'py>(py: Python<'py>, name: &str) -> PyResult<Bound<'py, PyAny>> {
    py.import("tailcut._errors")?.getattr(name)
}

fn class_name(error: &Error) -> &'static str {
    match error {
        Error::Open { .. } | Error::NoAddress(_) => "OpenError",
        Error::Call { .. } => "NotCalled",
        Error::Failed { source: Failure::Deadline, .. } => "DeadlineExceeded",
        Error::Failed { source: Failure::Unreachable, .. } => "Unreachable",
        Error::Failed { source: Failure::ReplyTooLarge, .. } => "ReplyTooLarge",
        Error::Failed { source: Failure::Refused(_), .. } => "Refused",
        Error::Closed { .. } => "Closed",
        _ => "Error",
    }
}

/// A variant's name as Python writes words.
fn snake_case(name: &str) -> String {
    let mut words = String::with_capacity(name.len() + 2);
    for letter in name.chars() {
        if letter.is_uppercase() && !words.is_empty() {
            words.push('_');
        }
        words.extend(letter.to_lowercase());
    }
    words
}
