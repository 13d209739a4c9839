//! The library over real sockets on loopback.

mod allocations;
#[cfg(feature = "tokio")]
mod child;
mod cookies;
#[cfg(feature = "tokio")]
mod endings;
mod failover;
mod group;
mod in_place;
mod later;
mod library;
#[cfg(feature = "tokio")]
mod lifecycle;
mod log;
#[cfg(feature = "tokio")]
mod memory;
#[cfg(feature = "tokio")]
mod preemption;
mod resets;
mod sealed;
#[cfg(feature = "tokio")]
mod streams;
#[cfg(feature = "tokio")]
mod streams_sealed;
#[cfg(feature = "tokio")]
mod tasks;
