//! Requests in the hands of Python.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::PyBytes;
use tailcut::Responder;

use crate::error::Failed;
use crate::fork::Owned;
use crate::lock;
use crate::payload::Payload;

/// A request: answer it at once or later, from any thread. One that is dropped without an answer is
/// refused.
#[pyclass(module = "tailcut", frozen)]
pub(crate) struct Request {
    /// `None` once it is answered.
    responder: Owned<Mutex<Option<Responder>>>,
    data: PyOnceLock<Py<PyBytes>>,
}

#[pymethods]
impl Request {
    /// The request's bytes.
    #[getter]
    fn data<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let data = self.data.get_or_try_init(py, || {
            self.with(|responder| PyBytes::new(py, responder.bytes()).unbind())
        })?;
        Ok(data.bind(py).clone())
    }

    /// The client's own address, also behind a router.
    #[getter]
    fn client(&self) -> PyResult<String> {
        Ok(self.with(|responder| responder.client().to_string())?)
    }

    /// The number of the client's keys, which is who calls, also behind a router; `None` where the
    /// service is open.
    #[getter]
    fn identity(&self) -> PyResult<Option<u32>> {
        Ok(self.with(Responder::identity)?)
    }

    /// How many seconds the client will still wait.
    #[getter]
    fn time_left(&self) -> PyResult<f64> {
        Ok(self.with(|responder| responder.time_left().as_secs_f64())?)
    }

    /// Whether it may run more than once, here or elsewhere.
    #[getter]
    fn idempotent(&self) -> PyResult<bool> {
        Ok(self.with(|responder| responder.options().idempotent)?)
    }

    /// Whether nobody waits for the answer any more. A handler that works for long asks now and
    /// then.
    #[getter]
    fn cancelled(&self) -> PyResult<bool> {
        Ok(self.with(Responder::is_cancelled)?)
    }

    /// Answers it. An answer that nobody waits for any more does nothing.
    fn reply(&self, reply: Payload) -> PyResult<()> {
        self.take()?.reply(&reply);
        Ok(())
    }

    /// Refuses it with a number and a text, of which 1024 bytes arrive: the caller's `Rejected`.
    #[pyo3(signature = (code, text=""))]
    fn reject(&self, code: u32, text: &str) -> PyResult<()> {
        self.take()?.reject(code, text);
        Ok(())
    }

    /// Refuses it because its handler has failed: it may have run in part.
    fn fail(&self) -> PyResult<()> {
        fail(self.take()?);
        Ok(())
    }
}

impl Request {
    pub(crate) fn new(responder: Responder) -> Self {
        Self { responder: Owned::new(Mutex::new(Some(responder))), data: PyOnceLock::new() }
    }

    fn with<T>(&self, look: impl FnOnce(&Responder) -> T) -> Result<T, Failed> {
        lock(self.responder.value()?).as_ref().map(look).ok_or(ANSWERED)
    }

    fn take(&self) -> Result<Responder, Failed> {
        lock(self.responder.value()?).take().ok_or(ANSWERED)
    }
}

/// Refuses a request whose handler has raised an exception: as the library does when one panics.
pub(crate) fn fail(responder: Responder) {
    // By a panic that nobody hears of: a responder that one drops tells the client so.
    let failed = catch_unwind(AssertUnwindSafe(move || {
        let _dropped = responder;
        resume_unwind(Box::new(()))
    }));
    failed.unwrap_or(());
}

const ANSWERED: Failed = Failed::Misused("the request is answered");
