//! The life of a server: handlers that answer later, refuse, panic or are cancelled, and stops that
//! drain; and clients that make more calls than may be outstanding. Over every transport.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use tailcut::{
    AsyncClient, CallOptions, Client, DropReason, Error, Failure, Request, Responder, Server,
};
use tailcut_net::clock::Clock;

use crate::library::{
    HOMA, OnDrop, R2P2, Transport, patient, pattern, reverse, server, transports,
};

/// Way in which a server runs its handlers.
#[derive(Clone, Copy, Debug)]
enum Way {
    /// On its own thread.
    Here,
    /// On worker threads.
    Workers(usize),
    /// On a thread that it is handed to.
    Later,
    /// In tasks, so many at once.
    Tasks(u32),
}

const WAYS: [Way; 4] = [Way::Here, Way::Workers(2), Way::Later, Way::Tasks(100)];

/// Runs `handler` the way that is asked for.
fn run(server: &mut Server, way: Way, handler: fn(Responder)) -> Result<(), Error> {
    match way {
        Way::Here => server.run(|request| handler(request.defer())),
        Way::Workers(count) => server.run_workers(count, |request| handler(request.defer())),
        Way::Later => {
            let (sender, receiver) = channel::<Responder>();
            std::thread::scope(|scope| {
                scope.spawn(move || receiver.into_iter().for_each(guarded(handler)));
                server.run(move |request| sender.send(request.defer()).unwrap())
            })
        }
        Way::Tasks(running_max) => {
            let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build();
            let runtime = runtime.unwrap();
            server.run_async(runtime.handle(), running_max, move |responder| async move {
                tokio::task::yield_now().await;
                handler(responder);
            })
        }
    }
}

/// The handler, whose panics end nothing.
fn guarded(handler: fn(Responder)) -> impl FnMut(Responder) {
    move |responder| {
        // The panic has refused the request.
        let _ = std::panic::catch_unwind(|| handler(responder));
    }
}

/// Result of `client` against a server that runs `handler` in some way, and the panics that the
/// server counted.
fn with_server<T>(
    transport: Transport,
    way: Way,
    handler: fn(Responder),
    client: impl FnOnce(SocketAddr) -> T,
) -> (T, u64) {
    let mut server = server(transport);
    let (address, handle) = (server.local_address(), server.stop_handle());
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || run(&mut server, way, handler));
        let guard = OnDrop(Some(|| handle.stop()));
        let result = client(address);
        drop(guard);
        thread.join().expect("the server does not panic").expect("the socket holds");
        (result, handle.panics())
    })
}

fn every_way(mut check: impl FnMut(Transport, Way)) {
    for transport in transports() {
        WAYS.into_iter().for_each(|way| check(transport, way));
    }
}

fn reason(error: &Error) -> Option<DropReason> {
    match error {
        Error::Failed { source: Failure::Refused(reason), .. } => Some(*reason),
        _ => None,
    }
}

#[test]
fn answers_come_from_wherever() {
    every_way(|transport, way| {
        let reverse = |responder: Responder| responder.reply_in_place(|bytes| bytes.reverse());
        with_server(transport, way, reverse, |target| {
            let client = patient(transport).connect(target).unwrap();
            assert!(client.call(b"warm up").is_ok());
            let calls: Vec<_> =
                (0..300u64).map(|n| client.start(&n.to_be_bytes()).unwrap()).collect();
            for (n, call) in (0..300u64).zip(calls) {
                assert_eq!(&call.wait().unwrap()[..], n.to_le_bytes(), "{transport:?} {way:?}");
            }
            let long = pattern(100_000, 3);
            assert!(client.call(&long).unwrap().iter().rev().eq(&long), "{transport:?} {way:?}");
        });
    });
}

/// One request in three panics, one is dropped, one is rejected, one answered.
fn moody(responder: Responder) {
    match responder.bytes() {
        b"panic" => panic!("on purpose"),
        b"drop" => drop(responder),
        b"reject" => responder.reject(404, "no such key: ключ"),
        _ => responder.reply(b"fine"),
    }
}

#[test]
fn a_handler_that_panics_ends_its_own_request_alone() {
    every_way(|transport, way| {
        let ((), panics) = with_server(transport, way, moody, |target| {
            let client = patient(transport).connect(target).unwrap();
            for _ in 0..3 {
                let others: Vec<_> = (0..20).map(|_| client.start(b"answer").unwrap()).collect();
                let error = client.call(b"panic").unwrap_err();
                assert_eq!(reason(&error), Some(DropReason::Panicked), "{transport:?} {way:?}");
                let error = client.call(b"drop").unwrap_err();
                assert_eq!(reason(&error), Some(DropReason::Unanswered), "{transport:?} {way:?}");
                let error = client.call(b"reject").unwrap_err();
                assert!(error.is_refused());
                assert!(
                    matches!(&error, Error::Rejected { code: 404, text, target: named, server: Some(server) }
                        if text == "no such key: ключ" && *named == target),
                    "{transport:?} {way:?}: {error}"
                );
                others.into_iter().for_each(|call| assert_eq!(&call.wait().unwrap()[..], b"fine"));
            }
        });
        // Of another thread that panics the server knows nothing but that it refused.
        let expected = if matches!(way, Way::Later) { 0 } else { 3 };
        assert_eq!(panics, expected, "{transport:?} {way:?}");
    });
}

#[test]
fn a_handler_sees_whom_it_serves_and_for_how_long() {
    fn describe(responder: Responder) {
        let (left, options) = (responder.time_left(), responder.options());
        let is_sane = left > Duration::from_secs(1) && left <= Duration::from_secs(2);
        let text = format!("{} {is_sane} {}", responder.client(), options.idempotent);
        responder.reply(text.as_bytes());
    }
    every_way(|transport, way| {
        with_server(transport, way, describe, |target| {
            let client = patient(transport).connect(target).unwrap();
            for idempotent in [false, true] {
                let options = CallOptions { idempotent, ..CallOptions::default() };
                let reply = client.call_with(b"", options, Duration::from_secs(2)).unwrap();
                let port = client.local_address().port();
                let expected = format!("127.0.0.1:{port} true {idempotent}");
                assert_eq!(String::from_utf8_lossy(&reply), expected, "{transport:?} {way:?}");
            }
        });
    });
}

/// Runs `server` in `way`; its handler waits for a word from here, or until it is cancelled.
fn blocked(
    transport: Transport,
    way: Way,
    check: impl FnOnce(&Client, &dyn Fn() -> usize, &Receiver<bool>),
) {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    let mut server = server(transport);
    let (address, handle) = (server.local_address(), server.stop_handle());
    let (sender, ended) = channel::<bool>();
    RUNS.store(0, Ordering::SeqCst);
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || match way {
            Way::Tasks(running_max) => {
                let runtime =
                    tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
                server.run_async(runtime.handle(), running_max, move |responder| {
                    RUNS.fetch_add(1, Ordering::SeqCst);
                    let sender = sender.clone();
                    async move {
                        let told = OnDrop(Some(|| sender.send(true).unwrap()));
                        std::future::pending::<()>().await;
                        drop((told, responder));
                    }
                })
            }
            _ => server.run_workers(1, |request: Request<'_>| {
                RUNS.fetch_add(1, Ordering::SeqCst);
                let begun = Clock.now();
                while !request.is_cancelled() && elapsed(begun) < Duration::from_secs(10) {
                    std::thread::yield_now();
                }
                sender.send(request.is_cancelled()).unwrap();
            }),
        });
        let guard = OnDrop(Some(|| handle.stop_within(Duration::ZERO)));
        let client = patient(transport).connect(address).unwrap();
        check(&client, &|| RUNS.load(Ordering::SeqCst), &ended);
        drop(client);
        drop(guard);
        thread.join().expect("the server does not panic").expect("the socket holds");
    });
}

/// Twenty calls are dropped: one runs and hears of it, the others never begin.
#[test]
fn a_cancelled_request_ends_wherever_it_is() {
    for transport in transports() {
        for way in [Way::Workers(1), Way::Tasks(1)] {
            blocked(transport, way, |client, runs, ended| {
                let calls: Vec<_> = (0..20).map(|_| client.start(b"wait").unwrap()).collect();
                until(|| runs() == 1);
                // The one that runs last, lest another begins in its place.
                calls.into_iter().rev().for_each(drop);
                assert_eq!(ended.recv_timeout(Duration::from_secs(5)), Ok(true));
                let last = client.start(b"last").unwrap();
                until(|| runs() == 2);
                drop(last);
                assert_eq!(ended.recv_timeout(Duration::from_secs(5)), Ok(true));
                assert_eq!(runs(), 2, "{transport:?} {way:?}");
            });
        }
    }
}

fn elapsed(since: u64) -> Duration {
    Duration::from_nanos(Clock.now() - since)
}

/// Waits at least so long.
fn pause(ms: u64) {
    let begun = Clock.now();
    while elapsed(begun) < Duration::from_millis(ms) {
        std::thread::park_timeout(Duration::from_millis(ms));
    }
}

fn until(mut is_so: impl FnMut() -> bool) {
    let begun = Clock.now();
    while !is_so() {
        assert!(elapsed(begun) < Duration::from_secs(10), "it does not happen");
        std::thread::yield_now();
    }
}

#[test]
fn a_stop_answers_what_runs_and_refuses_what_comes() {
    fn slow(responder: Responder) {
        if responder.bytes() == b"slow" {
            pause(150);
        }
        responder.reply(b"done");
    }
    for transport in transports() {
        for way in [Way::Workers(2), Way::Later] {
            let mut server = server(transport);
            let (address, handle) = (server.local_address(), server.stop_handle());
            std::thread::scope(|scope| {
                let thread = scope.spawn(move || run(&mut server, way, slow));
                let client = patient(transport).connect(address).unwrap();
                assert_eq!(&client.call(b"warm up").unwrap()[..], b"done");
                // Two run, and more wait.
                let calls: Vec<_> = (0..4).map(|_| client.start(b"slow").unwrap()).collect();
                pause(30);
                handle.stop();
                pause(30);
                let error = client.call(b"new").unwrap_err();
                assert_eq!(reason(&error), Some(DropReason::Stopping), "{transport:?} {way:?}");
                for call in calls {
                    assert_eq!(&call.wait().unwrap()[..], b"done", "{transport:?} {way:?}");
                }
                thread.join().unwrap().unwrap();
            });
        }
    }
}

#[test]
fn a_stop_ends_at_its_limit_and_says_so() {
    static KEPT: std::sync::Mutex<Vec<Responder>> = std::sync::Mutex::new(Vec::new());
    for transport in transports() {
        let mut server = server(transport);
        let (address, handle) = (server.local_address(), server.stop_handle());
        std::thread::scope(|scope| {
            let thread = scope
                .spawn(move || server.run(|request| KEPT.lock().unwrap().push(request.defer())));
            let client = patient(transport).connect(address).unwrap();
            let call = client.start(b"never").unwrap();
            until(|| !KEPT.lock().unwrap().is_empty());
            handle.stop_within(Duration::from_millis(50));
            let error = call.wait().unwrap_err();
            assert_eq!(reason(&error), Some(DropReason::Uncertain), "{transport:?}");
            thread.join().unwrap().unwrap();
        });
        // The server is gone: an answer does nothing.
        KEPT.lock().unwrap().drain(..).for_each(|responder| responder.reply(b"late"));
    }
}

#[test]
fn more_calls_than_may_be_outstanding_wait_for_their_turn() {
    for transport in [R2P2, HOMA] {
        let mut server = server(transport);
        let (address, handle) = (server.local_address(), server.stop_handle());
        let answered = AtomicU64::new(0);
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || server.run(reverse));
            let guard = OnDrop(Some(|| handle.stop()));
            let homa = tailcut::homa::Config { calls_max: 32, ..tailcut::homa::Config::default() };
            let r2p2 = tailcut::Config { calls_max: 32, ..tailcut::Config::default() };
            let builder = patient(transport).config(r2p2).homa_config(homa);
            let client = builder.connect(address).unwrap();
            let calls: Vec<_> =
                (0..500u64).map(|n| client.start(&n.to_be_bytes()).unwrap()).collect();
            for (n, call) in (0..500u64).zip(calls) {
                assert_eq!(&call.wait().unwrap()[..], n.to_le_bytes(), "{transport:?}");
            }
            let client = builder.connect_async(address).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async {
                let calls: Vec<_> = (0..2000u64).map(|n| client.call(n.to_be_bytes())).collect();
                for (n, call) in (0..2000u64).zip(calls) {
                    // Some are never wanted.
                    if n % 5 == 0 {
                        drop(call);
                        continue;
                    }
                    assert_eq!(call.await.unwrap(), n.to_le_bytes(), "{transport:?}");
                    answered.fetch_add(1, Ordering::Relaxed);
                }
            });
            check_metrics(&client, 1600);
            // A call goes when it is its turn, though nobody asks after those before it.
            let mut calls: Vec<_> = (0..500u64).map(|n| client.call(n.to_be_bytes())).collect();
            let last = calls.pop().unwrap();
            assert_eq!(runtime.block_on(last).unwrap(), 499u64.to_le_bytes(), "{transport:?}");
            drop(guard);
            thread.join().unwrap().unwrap();
        });
        assert_eq!(answered.into_inner(), 1600);
    }
}

fn check_metrics(client: &AsyncClient, replied: u64) {
    let metrics = client.metrics();
    let counted = metrics.r2p2().map(|metrics| metrics.replied);
    let counted = counted.or(metrics.homa().map(|metrics| metrics.replied));
    assert!(counted >= Some(replied), "{metrics:?}");
    assert_ne!(client.local_address().port(), 0);
}

/// Every call ends by the word of its host where nothing has ever answered; where something has,
/// the idempotent ones do.
#[test]
fn a_closed_port_is_told_at_once() {
    let patience = Duration::from_secs(1);
    for transport in [R2P2, HOMA] {
        let told = |client: &Client, idempotent: bool| {
            let options = CallOptions { idempotent, ..CallOptions::default() };
            let begun = Clock.now();
            let error = client.call_with(b"anybody?", options, patience).unwrap_err();
            assert_eq!(error.is_deadline(), !error.is_unreachable(), "{error}");
            let is_soon = elapsed(begun) < patience / 2;
            assert_eq!(error.is_unreachable(), is_soon, "{transport:?}: {error}");
            is_soon
        };
        let mut server = server(transport);
        let (address, handle) = (server.local_address(), server.stop_handle());
        let client = patient(transport).connect(address).unwrap();
        std::thread::scope(|scope| {
            let thread = scope.spawn(move || {
                server.run(reverse).unwrap();
                drop(server);
            });
            assert_eq!(&client.call(b"ab").unwrap()[..], b"ba");
            handle.stop();
            thread.join().unwrap();
        });
        assert!(!told(&client, false), "{transport:?}");
        assert!(told(&client, true), "{transport:?}");
        // A client that has never had an answer there.
        let soon = (0..10).filter(|_| {
            let client = patient(transport).connect(address).unwrap();
            told(&client, false)
        });
        assert!(soon.count() >= 9, "{transport:?}");
        // An asynchronous one sleeps meanwhile.
        let client = patient(transport).connect_async(address).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let error = runtime.block_on(client.call("anybody?")).unwrap_err();
        assert!(error.is_unreachable(), "{error}");
    }
}
