//! Load, service times, latency records and queueing theory, sans-IO.
//!
//! A claim about a tail needs two things that must not depend on each other: a protocol, and an
//! instrument. This crate is the instrument. It decides when a request should leave, remembers
//! what became of it, and knows the exact answer of the queues that have one, so that the
//! instrument can be tried in the simulator against known answers before anyone trusts it on
//! hardware.
//!
//! Invariant: time and randomness are arguments. Nothing here reads a clock, owns a global
//! generator or does IO; the same seed and the same calls give the same numbers. Time is a `u64`
//! of nanoseconds.
//!
//! - [`quantity`]: times, sizes and rates in text form.
//! - [`distribution`]: the grammar of distributions, their samples, moments, tails and quantiles.
//! - [`generator`]: the named, seeded generator of random numbers.
//! - [`arrivals`]: intended send times.
//! - [`load`]: open and closed loops.
//! - [`slices`]: a load without an end, and what became of it slice by slice.
//! - [`load_loop`]: the loop of a load thread, over any clock and transport; [`leg`]: its slices,
//!   as [`control`] wants them.
//! - [`codec`]: slices and counts as bytes, for agents that are elsewhere.
//! - [`outcome`]: what became of requests.
//! - [`search`]: the highest load that meets an objective, and sweeps.
//! - [`statistics`]: intervals and tests that hold for latencies, whose neighbours are alike.
//! - [`stamps`]: transmit and receive timestamps of several clocks, matched to requests.
//! - [`control`]: what a run does next, and when it stops; [`objective`] and [`verdict`]: what for,
//!   and with what result.
//! - [`queueing`]: exact sojourn times of reference queues.
//! - [`app`]: what measured applications say.
//! - [`workers`]: emulated workers that serve in order.
//! - [`workload`]: message sizes of datacenters.

pub mod app;
pub mod arrivals;
pub mod codec;
pub mod control;
pub mod distribution;
pub mod generator;
pub mod leg;
pub mod load;
pub mod load_loop;
pub mod objective;
pub mod outcome;
pub mod quantity;
pub mod queueing;
pub mod search;
pub mod slices;
pub mod stamps;
pub mod statistics;
pub mod verdict;
pub mod workers;
pub mod workload;
