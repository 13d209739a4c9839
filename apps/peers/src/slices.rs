//! Common parts of slices of every kind: their cores, their message, their results.

use std::cell::RefCell;
use std::sync::Barrier;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tailcut_net::affinity;
use tailcut_net::clock::Clock;
use tokio::runtime::{Builder, Runtime};

use crate::support::{SERVER_CORE, p50_us, shielded};

/// Results of a slice.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Slice {
    /// Millions of calls a second.
    pub(crate) rate: f64,
    /// Median round trip, us.
    pub(crate) p50_us: f64,
}

/// Round trips of a slice, ns.
#[derive(Debug, Default)]
pub(crate) struct RoundTrips(Vec<u64>);

impl RoundTrips {
    pub(crate) fn note(&mut self, ns: u64) {
        self.0.push(ns);
    }

    #[cfg(feature = "aeron")]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// Result of a slice that took so long.
    pub(crate) fn over(mut self, took_ns: u64) -> Slice {
        let rate = self.0.len() as f64 * 1e3 / took_ns as f64;
        Slice { rate, p50_us: p50_us(&mut self.0) }
    }
}

/// Keeps a call of each of so many tasks under way for so long, on this thread.
pub(crate) async fn keep_outstanding<F: Future<Output = ()>>(
    outstanding: usize,
    slice_ns: u64,
    call: impl Fn() -> F,
) -> Slice {
    // What is made once is made before.
    call().await;
    let (began_at, round_trips) = (Clock.now(), RefCell::new(RoundTrips::default()));
    let tasks: FuturesUnordered<_> = (0..outstanding)
        .map(|_| async {
            while Clock.now() - began_at < slice_ns {
                let sent_at = Clock.now();
                call().await;
                round_trips.borrow_mut().note(Clock.now() - sent_at);
            }
        })
        .collect();
    tasks.collect::<()>().await;
    round_trips.take().over(Clock.now() - began_at)
}

/// Runtime of one thread.
pub(crate) fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// Runs for ever beside the clients.
pub(crate) fn on_server_core(run: impl FnOnce() + Send + 'static) {
    std::thread::spawn(|| {
        affinity::pin_to(SERVER_CORE).expect("two cores");
        run();
    });
}

/// Runs a server on its core while a client, which ends it, runs here.
pub(crate) fn beside<T>(server: impl FnOnce() + Send, client: impl FnOnce() -> T) -> T {
    let start = Barrier::new(2);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            affinity::pin_to(SERVER_CORE).expect("two cores");
            start.wait();
            shielded(server);
        });
        start.wait();
        shielded(client)
    })
}

/// Bytes that are sent and come back.
pub(crate) const MESSAGE: [u8; 32] = [1; 32];

pub(crate) const LOOPBACK: &str = "127.0.0.1:0";
