//! tailcut for Python: the extension module `tailcut._core`.
//!
//! Each class here wraps one of the library, turns Python's objects into bytes and options, and the
//! library's errors into those of `tailcut/_errors.py`. No decision is made here. What asyncio
//! needs is in two parts: a class here that hands over many things at one wake, and
//! `tailcut/_aio.py`.
//!
//! Invariant: no thread waits for anything while it is attached to the interpreter, so that a lock
//! is never waited for by one that another needs to give it back. Threads of the library never
//! attach.

mod bell;
mod calls;
mod client;
mod counters;
mod error;
mod fork;
mod options;
mod payload;
mod request;
mod requests;
mod server;

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::prelude::*;

/// The module `tailcut._core`.
#[pymodule]
mod _core {
    #[pymodule_export]
    use crate::calls::Calls;
    #[pymodule_export]
    use crate::client::Client;
    #[pymodule_export]
    use crate::fork::note_fork;
    #[pymodule_export]
    use crate::request::Request;
    #[pymodule_export]
    use crate::requests::Requests;
    #[pymodule_export]
    use crate::server::{Server, stop_all};
}

/// A thread that panicked while holding a lock left nothing half done: every critical section is a
/// few assignments, or the library's own.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
