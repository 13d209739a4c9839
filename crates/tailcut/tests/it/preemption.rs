//! Long requests that have checkpoints, and short ones, in tasks on one thread.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tailcut::TimeSlice;
use tailcut_net::clock::Clock;

use crate::library::{OnDrop, R2P2, patient, server};

/// Time that a long request computes where nothing ends it: longer than all short ones take by far.
const LONG_NS: u64 = 150_000_000;

/// Time that it computes where the last short one is to end it.
const PATIENCE_NS: u64 = 10_000_000_000;

const SHORT_COUNT: usize = 10;

/// Number of the short calls, which come one after another once the long ones run, that are
/// answered before any of the long ones has ended, which they do after the last of those, or after
/// `long_ns`.
fn short_before_long(slice: Duration, long_ns: u64) -> usize {
    let mut server = server(R2P2);
    let (address, stop) = (server.local_address(), server.stop_handle());
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let [has_begun, may_end, has_ended]: [&AtomicBool; 3] =
        [(); 3].map(|()| &*Box::leak(Box::<AtomicBool>::default()));
    let mut count = 0;
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            server.run_async(runtime.handle(), 8, move |request| async move {
                if request.bytes() == b"long" {
                    has_begun.store(true, Ordering::SeqCst);
                    let mut slice = TimeSlice::new(slice);
                    let begun_at = Clock.now();
                    while Clock.now() - begun_at < long_ns && !may_end.load(Ordering::SeqCst) {
                        slice.checkpoint().await;
                    }
                    has_ended.store(true, Ordering::SeqCst);
                }
                request.reply(b"");
            })
        });
        let guard = OnDrop(Some(|| stop.stop()));
        let client = patient(R2P2).connect(address).unwrap();
        let long = [(); 2].map(|()| client.start(b"long").unwrap());
        while !has_begun.load(Ordering::SeqCst) {
            std::thread::yield_now();
        }
        for _ in 0..SHORT_COUNT {
            client.call(b"short").unwrap();
            count += usize::from(!has_ended.load(Ordering::SeqCst));
        }
        may_end.store(true, Ordering::SeqCst);
        long.into_iter().for_each(|call| assert!(call.wait().unwrap().is_empty()));
        drop(guard);
        thread.join().unwrap().unwrap();
    });
    count
}

#[test]
fn short_requests_overtake_a_long_one_at_its_checkpoints() {
    assert_eq!(short_before_long(Duration::from_micros(100), PATIENCE_NS), SHORT_COUNT);
}

#[test]
fn within_its_slice_a_request_runs_to_completion() {
    assert_eq!(short_before_long(Duration::MAX, LONG_NS), 0);
}

/// Long requests wait for what the test tells them, in all places that they may have; one of two is
/// kept for short ones.
#[test]
fn a_short_request_finds_a_place_that_long_ones_may_not_have() {
    let mut server = server(R2P2);
    let (address, stop) = (server.local_address(), server.stop_handle());
    server.classify(2, |request| u8::from(request == b"long"));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
    let may_end: &AtomicBool = Box::leak(Box::default());
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            server.run_async(runtime.handle(), 2, move |request| async move {
                while request.bytes() == b"long" && !may_end.load(Ordering::SeqCst) {
                    tokio::task::yield_now().await;
                }
                request.reply(b"");
            })
        });
        let guard = OnDrop(Some(|| stop.stop()));
        let client = patient(R2P2).connect(address).unwrap();
        for long_count in [0, 1, 3] {
            may_end.store(false, Ordering::SeqCst);
            let long: Vec<_> = (0..long_count).map(|_| client.start(b"long").unwrap()).collect();
            for _ in 0..20 {
                client.call(b"short").unwrap();
            }
            assert!(!may_end.swap(true, Ordering::SeqCst));
            long.into_iter().for_each(|call| assert!(call.wait().unwrap().is_empty()));
        }
        drop(guard);
        thread.join().unwrap().unwrap();
    });
}
