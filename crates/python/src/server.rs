//! The blocking server: a handler on the thread that serves.

use std::cell::RefCell;
use std::sync::{Condvar, Mutex, PoisonError, TryLockError};
use std::time::Duration;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use slab::Slab;
use tailcut::ServerHandle;

use crate::error::Failed;
use crate::fork::Owned;
use crate::lock;
use crate::options::{LOOK_EVERY, ServerOptions, duration};
use crate::payload::Payload;
use crate::request::{Request, fail};

/// A server on one port, whose handler runs on the thread that serves.
#[pyclass(module = "tailcut", frozen)]
#[derive(Debug)]
pub(crate) struct Server {
    /// Locked while it serves.
    server: Owned<Mutex<tailcut::Server>>,
    handle: Owned<ServerHandle>,
    address: String,
}

#[pymethods]
impl Server {
    /// Opens a server at HOST:PORT; port 0 takes a free one. `seal` is the file of the servers'
    /// keys, and `access` that of a policy. `cookies` says when clients must show one: never,
    /// under-load or always.
    #[new]
    #[pyo3(
        signature = (address, **options),
        text_signature = "(address, *, busy_poll=False, transport='r2p2', seal=None, access=None, \
            cookies='never')"
    )]
    fn new(address: &str, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let builder = ServerOptions::read(options)?.builder()?;
        let opened = builder.bind(address).map_err(Failed::from)?;
        let (handle, address) = (opened.stop_handle(), opened.local_address().to_string());
        Ok(Self { server: Owned::new(Mutex::new(opened)), handle: Owned::new(handle), address })
    }

    /// Where it serves, HOST:PORT.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// Answers requests on this thread, until `stop` or the exception of a signal: `handler` is
    /// given a request's bytes and returns those of the reply. An exception refuses the request;
    /// one that is no `Exception` ends the server too.
    fn serve(&self, py: Python<'_>, handler: Py<PyAny>) -> PyResult<()> {
        let rejection = py.import("tailcut._answer")?.getattr("rejection")?.unbind();
        self.run(py, move |py, request| {
            let reply = handler.call1(py, (PyBytes::new(py, request.bytes()),));
            // A client that has gone needs no answer.
            match reply.and_then(|reply| reply.extract::<Payload>(py)) {
                Ok(reply) => drop(request.reply(&reply)),
                Err(error) => {
                    let rejected = rejection.call1(py, (error.into_value(py),))?;
                    match rejected.extract::<(u32, String)>(py) {
                        Ok((code, text)) => drop(request.reject(code, &text)),
                        Err(_none) => fail(request.defer()),
                    }
                }
            }
            Ok(())
        })
    }

    /// As `serve`, but that `handler` is given a `Request`, and may return `None` and answer it
    /// later, from any thread.
    fn serve_requests(&self, py: Python<'_>, handler: Py<PyAny>) -> PyResult<()> {
        let answer = py.import("tailcut._answer")?.getattr("answer")?.unbind();
        self.run(py, move |py, request| {
            answer.call1(py, (&handler, Request::new(request.defer())))?;
            Ok(())
        })
    }

    /// Has it stop: it takes no new requests, answers those that it has, within `limit` seconds,
    /// and `serve` returns. From any thread.
    #[pyo3(signature = (limit=5.0))]
    fn stop(&self, limit: f64) -> PyResult<()> {
        self.handle.value()?.stop_within(duration(limit)?);
        Ok(())
    }
}

impl Server {
    /// Serves by `answer`; an error of it stops the server and is what this returns.
    fn run(
        &self,
        py: Python<'_>,
        answer: impl Fn(Python<'_>, tailcut::Request<'_>) -> PyResult<()> + Send,
    ) -> PyResult<()> {
        let handle = self.handle.value()?;
        let ended = py.detach(move || -> Result<(), Failed> {
            let mut server = match self.server.value()?.try_lock() {
                Ok(server) => server,
                Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
                Err(TryLockError::WouldBlock) => {
                    return Err(Failed::Misused("the server is serving already"));
                }
            };
            let _running = Running::begin(handle);
            let ending = RefCell::new(None);
            let note = |done: PyResult<()>| {
                if let Err(error) = done {
                    handle.stop();
                    ending.borrow_mut().get_or_insert(error);
                }
            };
            server.run_looking(
                |request| note(Python::attach(|py| answer(py, request))),
                LOOK_EVERY,
                || note(Python::attach(|py| py.check_signals())),
            )?;
            ending.into_inner().map_or(Ok(()), |error| Err(error.into()))
        });
        Ok(ended?)
    }
}

/// Stops the servers that are serving and waits for them, since the interpreter is about to end:
/// their threads may not enter it afterwards.
#[pyfunction]
pub(crate) fn stop_all(py: Python<'_>) {
    let is_ours = |handle: &Owned<ServerHandle>| handle.value().is_ok();
    py.detach(|| {
        let running = lock(&RUNNING);
        for handle in running.iter().filter_map(|(_, handle)| handle.value().ok()) {
            handle.stop_within(STOP_LIMIT);
        }
        let waited = ENDED.wait_timeout_while(running, 2 * STOP_LIMIT, |running| {
            running.iter().any(|(_, handle)| is_ours(handle))
        });
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    });
}

/// A server among those that are serving, as long as this is there.
struct Running {
    key: usize,
}

impl Running {
    fn begin(handle: &ServerHandle) -> Self {
        Self { key: lock(&RUNNING).insert(Owned::new(handle.clone())) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(lock(&RUNNING).remove(self.key));
        ENDED.notify_all();
    }
}

/// The servers that are serving.
static RUNNING: Mutex<Slab<Owned<ServerHandle>>> = Mutex::new(Slab::new());

/// One of them has ended.
static ENDED: Condvar = Condvar::new();

/// How long servers may answer what they have when the interpreter ends.
const STOP_LIMIT: Duration = Duration::from_secs(1);
