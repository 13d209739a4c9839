//! The requests of an asyncio server: a thread of the library receives them, the loop takes all
//! that have come at one wake.

use std::sync::{Arc, Mutex};

use pyo3::prelude::*;
use pyo3::types::PyDict;
use tailcut::{Responder, ServerHandle};

use crate::bell::Bell;
use crate::error::Failed;
use crate::fork::Owned;
use crate::lock;
use crate::options::{ServerOptions, duration};
use crate::request::Request;

/// The requests of one server of an asyncio loop.
#[pyclass(module = "tailcut._core", frozen)]
#[derive(Debug)]
pub(crate) struct Requests {
    shared: Owned<Shared>,
    address: String,
}

#[derive(Debug)]
struct Shared {
    /// `None` once its thread has it.
    server: Mutex<Option<tailcut::Server>>,
    handle: ServerHandle,
    inbox: Arc<Inbox>,
}

/// What the loop has not taken.
#[derive(Debug)]
struct Inbox {
    arrivals: Mutex<Arrivals>,
    bell: Bell,
}

#[derive(Debug, Default)]
struct Arrivals {
    /// As many as the endpoint's limits allow, at most.
    requests: Vec<Responder>,
    /// How the thread has ended, once it has.
    ending: Option<Result<(), tailcut::Error>>,
}

#[pymethods]
impl Requests {
    /// Opens a server at HOST:PORT; port 0 takes a free one.
    #[new]
    #[pyo3(signature = (address, **options))]
    fn new(address: &str, options: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let builder = ServerOptions::read(options)?.builder()?;
        let server = builder.bind(address).map_err(Failed::from)?;
        let (handle, address) = (server.stop_handle(), server.local_address().to_string());
        let inbox = Arc::new(Inbox { arrivals: Mutex::default(), bell: Bell::new()? });
        let server = Mutex::new(Some(server));
        Ok(Self { shared: Owned::new(Shared { server, handle, inbox }), address })
    }

    /// Where it serves, HOST:PORT.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// What the loop waits for; when it is readable, `take` is to be called.
    fn fileno(&self) -> PyResult<i32> {
        Ok(self.shared.value()?.inbox.bell.fd())
    }

    /// Starts its thread.
    fn start(&self) -> PyResult<()> {
        let shared = self.shared.value()?;
        let server = lock(&shared.server).take();
        let mut server = server.ok_or(Failed::Misused("the server is serving already, or has"))?;
        let inbox = shared.inbox.clone();
        let thread = std::thread::Builder::new().name("tailcut-server".to_owned());
        thread.spawn(move || {
            let ending = server.run(|request| {
                lock(&inbox.arrivals).requests.push(request.defer());
                inbox.bell.ring();
            });
            // The port is free by when the loop hears of it.
            drop(server);
            lock(&inbox.arrivals).ending = Some(ending);
            inbox.bell.ring();
        })?;
        Ok(())
    }

    /// The requests that have come, and whether they are the last: the server has ended then.
    /// Raises what it ended by, if that was its socket.
    fn take(&self) -> PyResult<(Vec<Request>, bool)> {
        let shared = self.shared.value()?;
        shared.inbox.bell.answer();
        let Arrivals { requests, ending } = std::mem::take(&mut *lock(&shared.inbox.arrivals));
        let is_over = ending.is_some();
        ending.transpose().map_err(Failed::from)?;
        // What was cancelled meanwhile needs no handler.
        let awaited = requests.into_iter().filter(|responder| !responder.is_cancelled());
        Ok((awaited.map(Request::new).collect(), is_over))
    }

    /// Has it stop, within `limit` seconds.
    fn stop(&self, limit: f64) -> PyResult<()> {
        self.shared.value()?.handle.stop_within(duration(limit)?);
        Ok(())
    }
}

impl Drop for Shared {
    /// The loop takes nothing any more.
    fn drop(&mut self) {
        self.handle.stop_within(std::time::Duration::ZERO);
    }
}
