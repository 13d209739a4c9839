//! Drives the nodes of `proto` in virtual time: the same code as over sockets, in a network that loses, delays, reorders,
//! duplicates and corrupts as a seed says.
//!
//! | module | what it is |
//! |---|---|
//! | [`agenda`] | what happens next: the event queue of every simulation |
//! | [`sojourn`] | what a simulation keeps of its sojourn times |
//! | [`fabric`] | links and switches, in picoseconds |
//! | [`impair`] | what a path does to datagrams |
//! | [`clock`] | a host's clock that is wrong |
//! | [`network`] | nodes at addresses, over links and switches or impaired paths alone |
//! | [`faults`] | random runs under faults, and what must hold in them |
//! | [`pair`] | two R2P2 endpoints and an application, for protocol tests |
//! | [`queue`] | a policy before workers, at the grain of queues |
//!
//! Invariant: the same seed gives the same run, to the byte. Virtual time never meets the clock.

pub mod agenda;
pub mod clock;
pub mod fabric;
pub mod faults;
pub mod impair;
pub mod network;
pub mod pair;
pub mod queue;
pub mod sojourn;
