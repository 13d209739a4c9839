//! The blocking client.

use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard};
use std::thread::{self, ThreadId};

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyList};
use tailcut::Pending;

use crate::counters;
use crate::error::Failed;
use crate::fork::Owned;
use crate::lock;
use crate::options::{ClientOptions, LOOK_EVERY, Settings};
use crate::payload::Payload;

/// A blocking client of one server or router. It costs one socket. Calls of several threads wait
/// for each other: make one for each thread.
#[pyclass(module = "tailcut", frozen)]
#[derive(Debug)]
pub(crate) struct Client {
    /// `None` once closed. Locked by threads that are not attached alone, since whoever has it
    /// attaches.
    client: Owned<Mutex<Option<tailcut::Client>>>,
    /// Whose lock it is. A signal's handler runs on the thread that waits in a call.
    holder: Mutex<Option<ThreadId>>,
    settings: Settings,
}

/// The client, locked.
struct Held<'a> {
    client: MutexGuard<'a, Option<tailcut::Client>>,
    holder: &'a Mutex<Option<ThreadId>>,
}

#[pymethods]
impl Client {
    /// Opens a client of the server or router at HOST:PORT. Nothing is sent yet. `seal` is the file
    /// of its keys.
    #[new]
    #[pyo3(
        signature = (target, **options),
        text_signature = "(target, *, timeout=1.0, idempotent=False, busy_poll=False, \
            transport='r2p2', seal=None)"
    )]
    fn new(target: &str, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = ClientOptions::read(options)?;
        let (settings, builder) = (options.settings()?, options.builder()?);
        let client = builder.connect(target).map_err(Failed::from)?;
        let client = Owned::new(Mutex::new(Some(client)));
        Ok(Self { client, holder: Mutex::default(), settings })
    }

    /// Calls and waits for the reply. `timeout` is in seconds, at most 60.
    #[pyo3(signature = (request, *, timeout=None, idempotent=None))]
    fn call<'py>(
        &self,
        py: Python<'py>,
        request: Payload,
        timeout: Option<f64>,
        idempotent: Option<bool>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let Settings { timeout, options } = self.settings.or(timeout, idempotent)?;
        let replied = py.detach(|| {
            self.with(|client| {
                let pending = client.start_with(&request, options, timeout)?;
                watch(&pending)?;
                let reply = pending.wait()?;
                // Copied here, so that the buffer goes back to where it came from.
                Ok(Python::attach(|py| PyBytes::new(py, &reply).unbind()))
            })
        });
        Ok(replied?.into_bound(py))
    }

    /// Makes many calls at once and waits for all replies, which come in the order of the requests.
    /// Where some fail, the first error is raised and the rest is cancelled; with
    /// `return_exceptions` errors stand in the place of replies.
    #[pyo3(signature = (requests, *, timeout=None, idempotent=None, return_exceptions=false))]
    fn call_many<'py>(
        &self,
        py: Python<'py>,
        requests: Vec<Payload>,
        timeout: Option<f64>,
        idempotent: Option<bool>,
        return_exceptions: bool,
    ) -> PyResult<Bound<'py, PyList>> {
        let settings = self.settings.or(timeout, idempotent)?;
        let ended =
            py.detach(|| self.with(|client| many(client, &requests, settings, return_exceptions)))?;
        let results = PyList::empty(py);
        for result in ended {
            match result {
                Ok(reply) => results.append(PyBytes::new(py, &reply))?,
                Err(error) => results.append(PyErr::from(Failed::from(error)).into_value(py))?,
            }
        }
        Ok(results)
    }

    /// Counters since the start.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let metrics = py.detach(|| self.with(|client| Ok(client.metrics())))?;
        counters::of_client(py, &metrics)
    }

    /// The client's own address.
    #[getter]
    fn local_address(&self, py: Python<'_>) -> PyResult<String> {
        Ok(py.detach(|| self.with(|client| Ok(client.local_address().to_string())))?)
    }

    /// Closes it: its socket is gone, and every further call raises `Closed`.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let closed = py.detach(|| match self.hold() {
            Ok(mut held) => {
                drop(held.client.take());
                Ok(())
            }
            // It is the parent's.
            Err(Failed::Forked) => Ok(()),
            Err(failed) => Err(failed),
        });
        Ok(closed?)
    }

    fn __enter__(this: Bound<'_, Self>) -> Bound<'_, Self> {
        this
    }

    #[pyo3(signature = (*_error))]
    fn __exit__(&self, py: Python<'_>, _error: &Bound<'_, PyAny>) -> PyResult<()> {
        self.close(py)
    }
}

impl Client {
    /// Uses the client, by a thread that is not attached.
    fn with<T>(
        &self,
        use_it: impl FnOnce(&tailcut::Client) -> Result<T, Failed>,
    ) -> Result<T, Failed> {
        let held = self.hold()?;
        use_it(held.client.as_ref().ok_or(Failed::Closed)?)
    }

    /// Locks the client, unless this thread has.
    fn hold(&self) -> Result<Held<'_>, Failed> {
        let client = self.client.value()?;
        let me = thread::current().id();
        if *lock(&self.holder) == Some(me) {
            return Err(Failed::Misused("the client is in a call on this very thread"));
        }
        let client = lock(client);
        *lock(&self.holder) = Some(me);
        Ok(Held { client, holder: &self.holder })
    }
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        *lock(self.holder) = None;
    }
}

/// Waits until a call has ended, or a signal raises an exception, which cancels it.
fn watch(pending: &Pending<'_>) -> Result<(), Failed> {
    while !pending.wait_for(LOOK_EVERY)? {
        Python::attach(|py| py.check_signals())?;
    }
    Ok(())
}

/// Makes the calls of `call_many`: how each has ended, in the order of the requests. Unless
/// `keeps_going`, the first error ends them all.
fn many(
    client: &tailcut::Client,
    requests: &[Payload],
    settings: Settings,
    keeps_going: bool,
) -> Result<Vec<Result<Vec<u8>, tailcut::Error>>, Failed> {
    let mut results = Vec::with_capacity(requests.len());
    let mut under_way = VecDeque::new();
    let mut end = |call: Result<Pending<'_>, tailcut::Error>| -> Result<(), Failed> {
        let result = match call {
            Ok(pending) => {
                watch(&pending)?;
                pending.wait().map(tailcut::Reply::into_vec)
            }
            Err(error) => Err(error),
        };
        match result {
            Err(error) if !keeps_going => Err(error.into()),
            result => {
                results.push(result);
                Ok(())
            }
        }
    };
    for request in requests {
        if under_way.len() >= UNDER_WAY_MAX {
            under_way.pop_front().map_or(Ok(()), &mut end)?;
        }
        under_way.push_back(client.enqueue_with(request, settings.options, settings.timeout));
    }
    under_way.into_iter().try_for_each(end)?;
    Ok(results)
}

/// Calls of one `call_many` that are under way at once, at most: far more than leave together, and
/// few enough that no server's limits are near.
const UNDER_WAY_MAX: usize = 256;
