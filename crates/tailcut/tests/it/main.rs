//! The library over real sockets on loopback.

mod allocations;
mod library;
#[cfg(feature = "tokio")]
mod lifecycle;
#[cfg(feature = "tokio")]
mod streams;
