//! How things are opened and calls are made.

use std::path::PathBuf;
use std::time::Duration;

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};
use tailcut::{
    AccessSource, AskCookies, CallOptions, ClientBuilder, KeySource, Protocol, ServerBuilder,
};

use crate::error::Failed;

/// How often a thread that waits looks for signals, which only the interpreter can act on.
pub(crate) const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The keyword arguments of a client.
#[derive(Debug)]
pub(crate) struct ClientOptions {
    /// How long a call waits for its reply, s. Default 1.
    timeout: f64,
    /// A call may run more than once. Default no.
    is_idempotent: bool,
    /// It polls instead of sleeping. Default no.
    is_polling: bool,
    /// `r2p2`, the default, or `homa`.
    transport: String,
    /// The file of the client's keys. Default none: the service is open.
    seal: Option<PathBuf>,
}

/// The keyword arguments of a server.
#[derive(Debug, Default)]
pub(crate) struct ServerOptions {
    /// It polls instead of sleeping. Default no.
    is_polling: bool,
    /// `r2p2`, the default, or `homa`.
    transport: Option<String>,
    /// The file of the servers' keys. Default none: the service is open.
    seal: Option<PathBuf>,
    /// The file of the policy. Default none: all may call.
    access: Option<PathBuf>,
    /// When it asks for cookies. Default never.
    cookies: AskCookies,
}

/// How a call is made.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Settings {
    pub(crate) timeout: Duration,
    pub(crate) options: CallOptions,
}

impl Default for ClientOptions {
    fn default() -> Self {
        Self {
            timeout: 1.0,
            is_idempotent: false,
            is_polling: false,
            transport: "r2p2".to_owned(),
            seal: None,
        }
    }
}

impl ClientOptions {
    /// Reads keyword arguments.
    ///
    /// # Errors
    ///
    /// A `TypeError` that names the argument which is of another type, or that there is none of its
    /// name.
    pub(crate) fn read(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut options = Self::default();
        for (name, value) in keywords.into_iter().flatten() {
            let name = name.cast_into::<PyString>()?.to_string();
            match &*name {
                "timeout" => options.timeout = argument(&name, &value)?,
                "idempotent" => options.is_idempotent = argument(&name, &value)?,
                "busy_poll" => options.is_polling = argument(&name, &value)?,
                "transport" => options.transport = argument(&name, &value)?,
                "seal" => options.seal = argument(&name, &value)?,
                _ => {
                    let text = format!("a client has no keyword argument '{name}'");
                    return Err(PyTypeError::new_err(text));
                }
            }
        }
        Ok(options)
    }

    /// How calls are made where they do not say otherwise.
    pub(crate) fn settings(&self) -> PyResult<Settings> {
        let options = CallOptions { idempotent: self.is_idempotent, ..CallOptions::default() };
        Ok(Settings { timeout: duration(self.timeout)?, options })
    }

    /// What opens the client.
    pub(crate) fn builder(&self) -> PyResult<ClientBuilder> {
        let settings = self.settings()?;
        let mut builder = ClientBuilder::new().timeout(settings.timeout).options(settings.options);
        builder = builder.protocol(protocol(&self.transport)?);
        if self.is_polling {
            builder = builder.busy_poll();
        }
        if let Some(file) = &self.seal {
            builder = builder.seal(KeySource::open(file).map_err(Failed::File)?);
        }
        Ok(builder)
    }
}

impl ServerOptions {
    /// Reads keyword arguments.
    ///
    /// # Errors
    ///
    /// As [`ClientOptions::read`], and a `ValueError` for cookies at no such time.
    pub(crate) fn read(keywords: Option<&Bound<'_, PyDict>>) -> PyResult<Self> {
        let mut options = Self::default();
        for (name, value) in keywords.into_iter().flatten() {
            let name = name.cast_into::<PyString>()?.to_string();
            match &*name {
                "busy_poll" => options.is_polling = argument(&name, &value)?,
                "transport" => options.transport = Some(argument(&name, &value)?),
                "seal" => options.seal = argument(&name, &value)?,
                "access" => options.access = argument(&name, &value)?,
                "cookies" => {
                    let when: String = argument(&name, &value)?;
                    options.cookies = when.parse().map_err(PyValueError::new_err::<String>)?;
                }
                _ => {
                    let text = format!("a server has no keyword argument '{name}'");
                    return Err(PyTypeError::new_err(text));
                }
            }
        }
        Ok(options)
    }

    /// What opens the server.
    pub(crate) fn builder(&self) -> PyResult<ServerBuilder> {
        let transport = self.transport.as_deref().unwrap_or("r2p2");
        let mut builder = ServerBuilder::new().protocol(protocol(transport)?).cookies(self.cookies);
        if self.is_polling {
            builder = builder.busy_poll();
        }
        if let Some(file) = &self.seal {
            builder = builder.seal(KeySource::open(file).map_err(Failed::File)?);
        }
        if let Some(file) = &self.access {
            builder = builder.access(AccessSource::open(file).map_err(Failed::File)?);
        }
        Ok(builder)
    }
}

impl Settings {
    /// These, but for what a call says otherwise.
    pub(crate) fn or(self, timeout: Option<f64>, is_idempotent: Option<bool>) -> PyResult<Self> {
        let timeout = timeout.map_or(Ok(self.timeout), duration)?;
        let idempotent = is_idempotent.unwrap_or(self.options.idempotent);
        Ok(Self { timeout, options: CallOptions { idempotent, ..self.options } })
    }
}

/// Seconds as Python writes them.
pub(crate) fn duration(seconds: f64) -> PyResult<Duration> {
    Duration::try_from_secs_f64(seconds)
        .map_err(|error| PyValueError::new_err(format!("{seconds} s: {error}")))
}

/// The value of a keyword argument, or a `TypeError` that names it.
fn argument<'py, T: FromPyObjectOwned<'py>>(name: &str, value: &Bound<'py, PyAny>) -> PyResult<T> {
    value.extract::<T>().map_err(|error| {
        let error: PyErr = error.into();
        let py = value.py();
        if error.is_instance_of::<PyTypeError>(py) {
            PyTypeError::new_err(format!("argument '{name}': {}", error.value(py)))
        } else {
            error
        }
    })
}

fn protocol(name: &str) -> PyResult<Protocol> {
    match name {
        "r2p2" => Ok(Protocol::R2p2),
        "homa" => Ok(Protocol::Homa),
        _ => Err(PyValueError::new_err(format!("transport {name:?}: r2p2 or homa"))),
    }
}
