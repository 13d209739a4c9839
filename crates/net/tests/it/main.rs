//! Ports, streams and drivers over real sockets on loopback, and between two namespaces.

mod addressed;
mod allocations;
mod connected;
mod credit;
mod datagrams;
mod driver;
mod ebpf;
mod floor;
mod homa;
mod homa_hijacked;
mod homa_lossless;
mod ip;
mod raw;
mod reuseport;
#[cfg(feature = "tcp")]
mod stamps;
#[cfg(feature = "tcp")]
mod streams;
mod toy;
mod udp;
mod veth;
#[cfg(feature = "tcp")]
mod waits;
mod xdp;
mod xdp_calls;
mod xdp_cloner;
mod xdp_router;
