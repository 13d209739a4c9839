//! Drives the nodes of `proto` in virtual time: the same code as over sockets, in a network that
//! loses, delays, reorders, duplicates and corrupts as a seed says.
//!
//! | module | what it is |
//! |---|---|
//! | [`agenda`] | what happens next: the event queue of every simulation |
//! | [`sojourn`] | what a simulation keeps of its sojourn times |
//! | [`queue`] | at the grain of queues: a policy before workers |
//! | [`chip`] | at the grain of queues: a 16-core chip whose network interface dispatches to its cores |
//! | [`cloning`] | at the grain of queues: cloning and in-network scheduling |
//! | [`fabric`] | links and switches, in picoseconds |
//! | [`impair`] | what a path does to datagrams |
//! | [`clock`] | a host's clock that is wrong |
//! | [`member`] | an endpoint or a router at an address |
//! | [`network`] | nodes at addresses, over links and switches or impaired paths alone |
//! | [`overload`] | at the grain of queues: more than can be served, with deadlines |
//! | [`r2p2`] | at the grain of packets: an experiment with clients, a router and servers |
//! | [`homa`] | at the grain of packets: messages under load, over the network of Homa's published simulation |
//! | [`faults`] | random runs under faults, and what must hold in them |
//!
//! Invariant: the same seed gives the same run, to the byte. Virtual time never meets the clock.

pub mod agenda;
pub mod chip;
pub mod clock;
pub mod cloning;
pub mod fabric;
pub mod failing;
pub mod faults;
pub mod homa;
pub mod impair;
pub mod member;
pub mod network;
pub mod overload;
pub mod queue;
pub mod r2p2;
mod regions;
pub mod sojourn;

/// Picoseconds, the tick of every simulation, in a nanosecond.
pub const PS_PER_NS: u64 = 1000;

/// One request in so many warms a run up, unless it says otherwise.
pub const WARMUP_SHARE: u64 = 10;
