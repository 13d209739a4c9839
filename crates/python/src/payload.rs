//! Bytes that Python gives.

use std::ops::Deref;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyMemoryView};

/// The bytes of a request or a reply: those of a `bytes` as they are, and of whatever else is
/// bytes-like as a copy. They can be read by a thread that is not attached, and do not change.
#[derive(Debug)]
pub(crate) struct Payload(PyBackedBytes);

impl<'py> FromPyObject<'_, 'py> for Payload {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self(bytes.to_owned().into()));
        }
        let copied = PyMemoryView::from(&object)?.call_method0("tobytes")?;
        Ok(Self(copied.cast_into::<PyBytes>()?.into()))
    }
}

impl Deref for Payload {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.0
    }
}
