//! What a process that was forked may not use: sockets that it shares with its parent, and threads
//! that it does not have.

use std::sync::atomic::{AtomicU64, Ordering};

use pyo3::prelude::*;

use crate::error::Failed;

/// Forks between the first process and this one.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// Says that this process has just been forked.
#[pyfunction]
pub(crate) fn note_fork() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A value of the process that made it. In a child it is neither used nor dropped: its socket would
/// speak for the parent, and its threads and locks are gone.
#[derive(Debug)]
pub(crate) struct Owned<T> {
    /// There until it is dropped.
    value: Option<T>,
    forks: u64,
}

impl<T> Owned<T> {
    pub(crate) fn new(value: T) -> Self {
        Self { value: Some(value), forks: FORKS.load(Ordering::Relaxed) }
    }

    /// The value, in the process that made it.
    pub(crate) fn value(&self) -> Result<&T, Failed> {
        self.value.as_ref().filter(|_| self.is_ours()).ok_or(Failed::Forked)
    }

    fn is_ours(&self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }
}

impl<T> Drop for Owned<T> {
    fn drop(&mut self) {
        if !self.is_ours() {
            std::mem::forget(self.value.take());
        }
    }
}
