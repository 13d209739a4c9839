//! The calls of an asyncio client: a thread of the library makes them, the loop hears of all that
//! have ended at one wake.
//!
//! | a call | in the table | its future |
//! |---|---|---|
//! | is made | from then on | pending |
//! | ends | until the loop takes it | is given the result by [`Calls::take`] |
//! | its future is cancelled | no more, which cancels the call | cancelled already |

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};
use slab::Slab;
use tailcut::{AsyncCall, AsyncClient};

use crate::bell::Bell;
use crate::counters;
use crate::error::Failed;
use crate::fork::Owned;
use crate::lock;
use crate::options::{ClientOptions, Settings};
use crate::payload::Payload;

/// The calls of one client of an asyncio loop.
#[pyclass(module = "tailcut._core", frozen)]
pub(crate) struct Calls {
    shared: Owned<Shared>,
    settings: Settings,
}

struct Shared {
    /// `None` once closed.
    client: Mutex<Option<AsyncClient>>,
    table: Mutex<Slab<Outstanding>>,
    done: Arc<Done>,
}

struct Outstanding {
    call: AsyncCall,
    waker: Waker,
    future: Py<PyAny>,
}

/// The calls that have ended and that the loop has not taken.
struct Done {
    keys: Mutex<Vec<usize>>,
    bell: Bell,
}

/// What the client's thread wakes when a call has ended.
struct Ending {
    key: usize,
    done: Arc<Done>,
}

type Outcome = Result<Vec<u8>, tailcut::Error>;

#[pymethods]
impl Calls {
    /// Opens a client of the server or router at HOST:PORT, and starts its thread.
    #[new]
    #[pyo3(signature = (target, **options))]
    fn new(target: &str, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let options = ClientOptions::read(options)?;
        let (settings, builder) = (options.settings()?, options.builder()?);
        let client = builder.connect_async(target).map_err(Failed::from)?;
        let done = Arc::new(Done { keys: Mutex::default(), bell: Bell::new()? });
        let (client, table) = (Mutex::new(Some(client)), Mutex::default());
        Ok(Self { shared: Owned::new(Shared { client, table, done }), settings })
    }

    /// What the loop waits for; when it is readable, `take` is to be called.
    fn fileno(&self) -> PyResult<i32> {
        Ok(self.shared.value()?.done.bell.fd())
    }

    /// Makes a call whose result goes to `future`; the key by which it can be cancelled.
    fn start(
        &self,
        future: Bound<'_, PyAny>,
        request: Payload,
        timeout: Option<f64>,
        idempotent: Option<bool>,
    ) -> PyResult<usize> {
        let Settings { timeout, options } = self.settings.or(timeout, idempotent)?;
        let shared = self.shared.value()?;
        let client = lock(&shared.client);
        let mut call =
            client.as_ref().ok_or(Failed::Closed)?.call_with(request.to_vec(), options, timeout);
        drop(client);
        let mut table = lock(&shared.table);
        let entry = table.vacant_entry();
        let key = entry.key();
        let waker = Waker::from(Arc::new(Ending { key, done: shared.done.clone() }));
        let ended = poll(&mut call, &waker);
        entry.insert(Outstanding { call, waker, future: future.clone().unbind() });
        if let Some(outcome) = ended {
            drop(table.remove(key));
            drop(table);
            settle(&future, outcome)?;
        }
        Ok(key)
    }

    /// Cancels a call whose future has no result yet.
    fn cancel(&self, key: usize) -> PyResult<()> {
        let cancelled = lock(&self.shared.value()?.table).try_remove(key);
        drop(cancelled);
        Ok(())
    }

    /// Gives the results of calls that have ended to their futures.
    fn take(&self, py: Python<'_>) -> PyResult<()> {
        let shared = self.shared.value()?;
        shared.done.bell.answer();
        let keys = std::mem::take(&mut *lock(&shared.done.keys));
        let mut ended = Vec::with_capacity(keys.len());
        let mut table = lock(&shared.table);
        for key in keys {
            // One that was cancelled may have left its key to another, which has not ended.
            let outstanding = table.get_mut(key);
            let outcome = outstanding.and_then(|known| poll(&mut known.call, &known.waker));
            if let Some(outcome) = outcome {
                ended.push((table.remove(key).future, outcome));
            }
        }
        drop(table);
        // One that raises, such as by a signal's handler, leaves no other without its result.
        let mut raised = Ok(());
        for (future, outcome) in ended {
            let settled = settle(future.bind(py), outcome);
            raised = raised.and(settled);
        }
        raised
    }

    /// Counters since the start.
    fn metrics<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let shared = self.shared.value()?;
        let client = lock(&shared.client).clone().ok_or(Failed::Closed)?;
        counters::of_client(py, &py.detach(|| client.metrics()))
    }

    /// The client's own address.
    #[getter]
    fn local_address(&self) -> PyResult<String> {
        let client = lock(&self.shared.value()?.client);
        Ok(client.as_ref().ok_or(Failed::Closed)?.local_address().to_string())
    }

    /// Ends its thread and its calls; the futures of those that had not ended.
    fn close(&self, py: Python<'_>) -> Vec<Py<PyAny>> {
        let Ok(shared) = self.shared.value() else { return Vec::new() };
        let client = lock(&shared.client).take();
        let outstanding = std::mem::take(&mut *lock(&shared.table));
        let parts = outstanding.into_iter().map(|(_, known)| (known.call, known.future));
        let (calls, futures): (Vec<AsyncCall>, Vec<Py<PyAny>>) = parts.unzip();
        py.detach(|| drop((client, calls)));
        futures
    }
}

impl Wake for Ending {
    fn wake(self: Arc<Self>) {
        lock(&self.done.keys).push(self.key);
        self.done.bell.ring();
    }
}

/// How a call has ended, if it has; otherwise `waker` hears of it.
fn poll(call: &mut AsyncCall, waker: &Waker) -> Option<Outcome> {
    match Pin::new(call).poll(&mut Context::from_waker(waker)) {
        Poll::Ready(outcome) => Some(outcome),
        Poll::Pending => None,
    }
}

/// Gives a future its result; one that is cancelled needs none.
fn settle(future: &Bound<'_, PyAny>, outcome: Outcome) -> PyResult<()> {
    let py = future.py();
    if future.call_method0(intern!(py, "done"))?.is_truthy()? {
        return Ok(());
    }
    match outcome {
        Ok(reply) => {
            let reply = PyBytes::new(py, &reply);
            future.call_method1(intern!(py, "set_result"), (reply,))?;
        }
        Err(error) => {
            let error = PyErr::from(Failed::from(error)).into_value(py);
            future.call_method1(intern!(py, "set_exception"), (error,))?;
        }
    }
    Ok(())
}
