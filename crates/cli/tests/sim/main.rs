//! The commands that compute, as their user runs them. A binary of its own: they keep every core
//! busy, and beside them the tests of `it` would measure them.

mod demo;
mod sim_chip;
mod sim_clone;
mod sim_faults;
mod sim_homa;
mod sim_queue;
mod sim_r2p2;
mod sim_reproduce;
mod sim_sweep;
