//! Warm calls allocate nothing.

use std::collections::VecDeque;

use allocation_counter::measure;
use tailcut::{
    CallOptions, Client, ClientBuilder, DispatchConfig, InPlace, Pending, Request, Responder,
    Server, ServerBuilder,
};
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::udp::{UdpConfig, UdpPort};
use tailcut_proto::router::{Router, RouterConfig, ServerConfig, Speaks};

use crate::library::{OnDrop, R2P2, patient};

/// 100 000 calls through the library, 64 outstanding, client and server turned on this thread by
/// turns.
#[test]
fn a_warm_rpc_allocates_nothing() {
    let mut server = ServerBuilder::new().busy_poll().bind(V4).expect("a server");
    let client =
        ClientBuilder::new().busy_poll().connect(server.local_address()).expect("a client");
    check_calls(&client, || turn_server(&mut server));
}

/// Each request is kept, and its answer comes from elsewhere: in place, from a buffer, or by words
/// of refusal.
#[test]
fn a_warm_answer_from_elsewhere_allocates_nothing() {
    let mut server = ServerBuilder::new().busy_poll().bind(V4).expect("a server");
    let client =
        ClientBuilder::new().busy_poll().connect(server.local_address()).expect("a client");
    let mut kept: VecDeque<Responder> = VecDeque::with_capacity(64);
    let mut number = 0_u64;
    check_calls(&client, || {
        server.turn(&mut |request: Request<'_>| kept.push_back(request.defer())).expect("a turn");
        for responder in kept.drain(..) {
            number += 1;
            if number.is_multiple_of(2) {
                responder.reply_in_place(|_| {});
            } else {
                responder.reply(&[9; 64]);
            }
        }
    });
}

/// Requests that run in place before workers: what 100 000 calls more allocate at the server's
/// thread, from its start to its end.
#[test]
fn a_warm_request_in_place_allocates_nothing() {
    let allocations = |count: usize| {
        let mut server = ServerBuilder::new().bind(V4).expect("a server");
        let (target, handle) = (server.local_address(), server.stop_handle());
        let config = DispatchConfig::new(1).in_place(InPlace::Below(50_000));
        std::thread::scope(|scope| {
            let serving = scope.spawn(|| {
                measure(|| {
                    let echo = |request: Request<'_>| {
                        // A client that has gone needs no answer.
                        let _ = request.reply_in_place(|_| {});
                    };
                    server.run_workers(config, echo).expect("the socket holds");
                })
            });
            // A call that fails ends the test, not only this thread.
            let guard = OnDrop(Some(|| handle.stop()));
            // Where others have the worker's core the queue stands, and what waits in it is
            // refused.
            keep_calling(target, count);
            drop(guard);
            let total = serving.join().expect("the server does not panic").count_total;
            (total, handle.dispatch_metrics().expect("there are workers").in_place.run)
        })
    };
    let (few, _) = allocations(20_000);
    // Beside tests that take all cores the workers may look slow for a while.
    let mut runs = (0..WINDOWS).map(|_| allocations(120_000));
    let (many, _) = runs.find(|&(_, in_place)| in_place > 10_000).expect("some run in place");
    assert!(many < few + 1000, "{few} allocations in 20 000 calls, {many} in 120 000");
}

/// So many replies, 64 calls outstanding; returns how many calls were refused, and made again.
fn keep_calling(target: std::net::SocketAddr, count: usize) -> usize {
    let client = patient(R2P2).connect(target).expect("a client");
    let mut calls: VecDeque<Pending<'_>> = VecDeque::with_capacity(64);
    let (mut missing, mut refused) = (count, 0);
    while missing > 0 || !calls.is_empty() {
        if missing > 0 && calls.len() < 64 {
            calls.push_back(client.enqueue(&[7; 64]).expect("a call"));
            missing -= 1;
        } else if let Some(Err(error)) = calls.pop_front().map(Pending::wait) {
            assert!(error.is_refused(), "{error}");
            (missing, refused) = (missing + 1, refused + 1);
        }
    }
    refused
}

/// Answers by tasks: what 100 000 calls more allocate at the server's thread, from its start to its
/// end.
#[cfg(feature = "tokio")]
#[test]
fn a_warm_task_allocates_nothing() {
    let allocations = |count: usize| {
        let mut server = ServerBuilder::new().bind(V4).expect("a server");
        let (target, handle) = (server.local_address(), server.stop_handle());
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build();
        let runtime = runtime.expect("a runtime");
        std::thread::scope(|scope| {
            let tasks = runtime.handle();
            let serving = scope.spawn(move || {
                measure(|| {
                    let echo = |responder: Responder| async { responder.reply_in_place(|_| {}) };
                    server.run_async(tasks, 64, echo).expect("the socket holds");
                })
            });
            let guard = OnDrop(Some(|| handle.stop()));
            assert_eq!(keep_calling(target, count), 0, "refused");
            drop(guard);
            serving.join().expect("the server does not panic").count_total
        })
    };
    let (few, many) = (allocations(20_000), allocations(120_000));
    assert!(many < few + 1000, "{few} allocations in 20 000 calls, {many} in 120 000");
}

/// Calls through a router.
#[test]
fn a_warm_routed_rpc_allocates_nothing() {
    let mut server = ServerBuilder::new().busy_poll().bind(V4).expect("a server");
    let port =
        UdpPort::bind(V4.parse().expect("an address"), UdpConfig::default()).expect("a port");
    let servers = vec![ServerConfig { addr: server.local_address(), speaks: Speaks::Extension }];
    let policy = "jbsq:16".parse().expect("a policy");
    // A table of ids that is full after the warm-up, however fast this machine is.
    let config = RouterConfig { policy, servers, table_len_max: 4096, ..RouterConfig::default() };
    let mut router = Driver::new(Wait::BusyPoll).expect("a driver");
    let target = port.local_address();
    router.add(Router::new(router.clock().now(), config).expect("a router"), port, None);
    let options = CallOptions { idempotent: true, ..CallOptions::default() };
    let client =
        ClientBuilder::new().busy_poll().options(options).connect(target).expect("a client");
    check_calls(&client, || {
        router.turn().expect("a turn");
        turn_server(&mut server);
    });
}

/// 100 000 calls without an allocation. A stall of the machine makes the client send everything
/// again, and the queues may then grow to a new size: that is warming up, and the next 100 000 are
/// looked at. Beside tests that take all cores there are many stalls.
fn check_calls(client: &Client, mut turn: impl FnMut()) {
    let mut calls = VecDeque::with_capacity(64);
    let mut run = |count: u64| {
        for _ in 0..count {
            while calls.len() < 64 {
                calls.push_back(client.enqueue(&[7; 64]).expect("a call"));
            }
            let oldest: Pending<'_> = calls.pop_front().expect("calls are outstanding");
            while !oldest.is_done().expect("a socket") {
                turn();
            }
            assert_eq!(oldest.wait().expect("a reply").len(), 64);
        }
    };
    run(50_000);
    let windows = (0..WINDOWS).map(|_| measure(|| run(100_000)).count_total);
    let allocations: Vec<u64> = windows.take_while(|&allocations| allocations > 0).collect();
    assert!(allocations.len() < WINDOWS, "allocations of each 100 000 calls: {allocations:?}");
}

fn turn_server(server: &mut Server) {
    let echo =
        &mut |request: Request<'_>| request.reply_in_place(|_| {}).expect("the client waits");
    server.turn(echo).expect("a turn");
}

/// Most times that 100 000 calls are looked at.
const WINDOWS: usize = 20;

const V4: &str = "127.0.0.1:0";
