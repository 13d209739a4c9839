//! The request level against theory, published tables and plain references.

mod allocations;
mod delays;
mod dispatcher;
mod identities;
mod sensitivity;
mod slices;
mod tables;
mod workers;

use tailcut_measure::distribution::Distribution;
use tailcut_measure::quantity::Unit;
use tailcut_sim::queue::System;

/// A service time of the grammar.
fn service(text: &str) -> Distribution {
    Distribution::parse(text, Unit::Time).unwrap()
}

/// The sojourn of each request in picoseconds, by its number.
fn sojourns_ps(system: &System, seed: u64) -> Vec<u64> {
    let mut sojourns_ps = vec![0; system.requests as usize];
    system
        .run_observed(seed, |number, sojourn_ps| sojourns_ps[number as usize] = sojourn_ps)
        .unwrap();
    sojourns_ps
}
