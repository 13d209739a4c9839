//! Calls of one client in a loop, for benches of the library.

#![allow(dead_code, unreachable_pub, reason = "each bench uses its part")]

use std::collections::VecDeque;

use tailcut::{Client, Pending, ServerHandle};
use tailcut_net::clock::Clock;

use crate::support::{ROUND_TRIPS, p50_us};

/// Median round trip of calls one after another, in us.
pub fn ping(client: &Client, request: &[u8], slice_ns: u64) -> f64 {
    let mut round_trips = Vec::with_capacity(ROUND_TRIPS);
    let end = Clock.now() + slice_ns;
    let mut now = Clock.now();
    while now < end {
        drop(client.call(request).expect("a reply"));
        let after = Clock.now();
        round_trips.push(after - now);
        now = after;
    }
    p50_us(&mut round_trips)
}

/// Millions of calls a second with `outstanding` of them outstanding.
pub fn keep_outstanding(
    client: &Client,
    (outstanding, request): (usize, &[u8]),
    slice_ns: u64,
) -> f64 {
    let mut calls: VecDeque<Pending<'_>> =
        (0..outstanding).map(|_| client.enqueue(request).expect("a call")).collect();
    let started = Clock.now();
    let mut completed: u64 = 0;
    while !completed.is_multiple_of(64) || Clock.now() - started < slice_ns {
        let oldest = calls.pop_front().expect("calls are outstanding");
        drop(oldest.wait().expect("a reply"));
        calls.push_back(client.enqueue(request).expect("a call"));
        completed += 1;
    }
    completed as f64 * 1e3 / (Clock.now() - started) as f64
}

/// Gigabytes a second of messages of so many bytes, one after another.
pub fn goodput(client: &Client, len: usize, slice_ns: u64) -> f64 {
    let (message, started) = (vec![7; len], Clock.now());
    let mut moved = 0;
    while Clock.now() - started < slice_ns {
        drop(client.call(&message).expect("a reply"));
        moved += len as u64;
    }
    moved as f64 / (Clock.now() - started) as f64
}

/// Stops a server, also where a client panics.
pub struct StopOnDrop(pub ServerHandle);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.stop();
    }
}
