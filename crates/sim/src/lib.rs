//! Drives the nodes of `proto` in virtual time: the same code as over sockets, in a network that loses, delays, reorders,
//! duplicates and corrupts as a seed says.
//!
//! | module | what it is |
//! |---|---|
//! | [`agenda`] | what happens next: the event queue of every simulation |
//! | [`chip`] | a 16-core chip whose network interface dispatches to its cores |
//! | [`cloning`] | request cloning and in-network scheduling, at the grain of queues |
//! | [`sojourn`] | what a simulation keeps of its sojourn times |
//! | [`impair`] | what a path does to datagrams |
//! | [`network`] | nodes at addresses, joined by impaired paths |
//! | [`cluster`] | clients, a router and servers, under faults |
//! | [`pair`] | two R2P2 endpoints and an application, for protocol tests |
//! | [`queue`] | a policy before workers, at the grain of queues |
//!
//! Invariant: the same seed gives the same run, to the byte. Virtual time never meets the clock.

pub mod agenda;
pub mod chip;
pub mod cloning;
pub mod cluster;
pub mod impair;
pub mod network;
pub mod pair;
pub mod queue;
pub mod sojourn;
