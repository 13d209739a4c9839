//! How things are opened and calls are made.

use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use tailcut::{CallOptions, ClientBuilder, Protocol, ServerBuilder};

/// How often a thread that waits looks for signals, which only the interpreter can act on.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// How a call is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) timeout: Duration,
    pub(crate) options: CallOptions,
}

impl Settings {
    /// What the arguments of a client come to.
    pub(crate) fn of_client(timeout: f64, is_idempotent: bool) -> PyResult<Self> {
        let options = CallOptions { idempotent: is_idempotent, ..CallOptions::default() };
        Ok(Self { timeout: duration(timeout)?, options })
    }

    /// These, but for what a call says otherwise.
    pub(crate) fn or(self, timeout: Option<f64>, is_idempotent: Option<bool>) -> PyResult<Self> {
        let timeout = timeout.map_or(Ok(self.timeout), duration)?;
        let idempotent = is_idempotent.unwrap_or(self.options.idempotent);
        Ok(Self { timeout, options: CallOptions { idempotent, ..self.options } })
    }
}

/// What opens a client.
pub(crate) fn client_builder(
    settings: Settings,
    is_polling: bool,
    transport: &str,
) -> PyResult<ClientBuilder> {
    let builder = ClientBuilder::new().timeout(settings.timeout).options(settings.options);
    let builder = builder.protocol(protocol(transport)?);
    Ok(if is_polling { builder.busy_poll() } else { builder })
}

/// What opens a server.
pub(crate) fn server_builder(is_polling: bool, transport: &str) -> PyResult<ServerBuilder> {
    let builder = ServerBuilder::new().protocol(protocol(transport)?);
    Ok(if is_polling { builder.busy_poll() } else { builder })
}

/// Seconds as Python writes them.
pub(crate) fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("{seconds} s: {error}")))
}

fn protocol(name: &str) -> PyResult<Protocol> {
    match name {
        "r2p2" => Ok(Protocol::R2p2),
        "homa" => Ok(Protocol::Homa),
        _ => Err(PyValueError::new_err(format!("transport {name:?}: r2p2 or homa"))),
    }
}
