//! Typed services over real sockets on loopback, and what changes in a program of tonic's.

mod calls;
mod codecs;
mod layers;
mod programs;
mod spans;
mod statuses;

/// The service that tests try.
pub(crate) mod trial {
    tailcut_services::include_proto!("trial");
}
