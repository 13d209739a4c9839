//! The XDP router, frame in and frame out, by the kernel's own test runs.

pub(crate) mod bench;
mod hostile;
mod packets;
mod restart;
mod seal;
mod sealed;
mod traces;
