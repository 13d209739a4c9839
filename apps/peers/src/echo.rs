//! Echoes of 32 B through each peer, in turns with tailcut.
//!
//! Servers are on one core, clients on another, each of one thread. Of Aeron both poll, and so does
//! tailcut beside it; tonic and QUIC wait as their runtimes do, and tailcut beside them by its
//! default. Aeron's rows have 64 messages outstanding on a stream each way; those of tonic and QUIC
//! 64 tasks with a call each, on one connection.

use std::collections::VecDeque;
use std::net::SocketAddr;

use tailcut::{Client, ClientBuilder, Pending, ServerBuilder, Wait};
use tailcut_net::affinity;
use tailcut_net::clock::Clock;

use crate::slices::{LOOPBACK, MESSAGE, RoundTrips, Slice, beside};
use crate::support::{CLIENT_CORE, Plan, Side, compare, print_head};
use crate::{grpc, quic};

/// The name of a row, its unit, the peer and tailcut.
type Row = (&'static str, &'static str, Side, Side);

pub(crate) fn run() {
    let plan = Plan { pairs: 9, slice_ns: 300_000_000 };
    print_head("peer", "tailcut");
    affinity::pin_to(CLIENT_CORE).expect("two cores");
    for (name, unit, peer, ours) in rows() {
        compare(name, unit, &plan, (peer, ours));
    }
}

#[cfg(feature = "aeron")]
fn rows() -> Vec<Row> {
    use crate::aeron;
    let aeron: [Row; 3] = [
        (
            "Aeron, polling, 1 outstanding: p50",
            "us",
            |ns| aeron::run(1, ns).p50_us,
            |ns| polling(1, ns).p50_us,
        ),
        (
            "Aeron, polling, 64: calls/s",
            "M/s",
            |ns| aeron::run(64, ns).rate,
            |ns| polling(64, ns).rate,
        ),
        (
            "Aeron, polling, 64: p50",
            "us",
            |ns| aeron::run(64, ns).p50_us,
            |ns| polling(64, ns).p50_us,
        ),
    ];
    [&aeron[..], &waiting_rows()].concat()
}

#[cfg(not(feature = "aeron"))]
fn rows() -> Vec<Row> {
    println!(
        "SKIPPED: Aeron: built without `--features aeron`, which needs cmake 3.30, libclang, libbsd and libuuid"
    );
    waiting_rows().to_vec()
}

fn waiting_rows() -> [Row; 6] {
    [
        (
            "tonic, 1 outstanding: p50",
            "us",
            |ns| grpc::run(1, ns).p50_us,
            |ns| waiting(1, ns).p50_us,
        ),
        ("tonic, 64: calls/s", "M/s", |ns| grpc::run(64, ns).rate, |ns| waiting(64, ns).rate),
        ("tonic, 64: p50", "us", |ns| grpc::run(64, ns).p50_us, |ns| waiting(64, ns).p50_us),
        (
            "QUIC by quinn, 1 outstanding: p50",
            "us",
            |ns| quic::run(1, ns).p50_us,
            |ns| waiting(1, ns).p50_us,
        ),
        (
            "QUIC by quinn, 64: calls/s",
            "M/s",
            |ns| quic::run(64, ns).rate,
            |ns| waiting(64, ns).rate,
        ),
        (
            "QUIC by quinn, 64: p50",
            "us",
            |ns| quic::run(64, ns).p50_us,
            |ns| waiting(64, ns).p50_us,
        ),
    ]
}

#[cfg(feature = "aeron")]
fn polling(outstanding: usize, slice_ns: u64) -> Slice {
    ours(Wait::BusyPoll, outstanding, slice_ns)
}

fn waiting(outstanding: usize, slice_ns: u64) -> Slice {
    ours(Wait::default(), outstanding, slice_ns)
}

fn ours(wait: Wait, outstanding: usize, slice_ns: u64) -> Slice {
    let mut server = ServerBuilder::new().wait(wait).bind(LOOPBACK).expect("a server");
    let (target, stop) = (server.local_address(), server.stop_handle());
    beside(
        move || {
            server
                .run(|request| {
                    // A client that has gone needs no answer.
                    let _ = request.reply_in_place(|_| ());
                })
                .expect("the server's calls");
        },
        || {
            let slice = call(target, wait, outstanding, slice_ns);
            stop.stop();
            slice
        },
    )
}

fn call(target: SocketAddr, wait: Wait, outstanding: usize, slice_ns: u64) -> Slice {
    let client: Client = ClientBuilder::new().wait(wait).connect(target).expect("a client");
    let enqueue = || (Clock.now(), client.enqueue(&MESSAGE).expect("a call"));
    let mut calls: VecDeque<(u64, Pending<'_>)> = (0..outstanding).map(|_| enqueue()).collect();
    let (began_at, mut round_trips) = (Clock.now(), RoundTrips::default());
    loop {
        let (sent_at, oldest) = calls.pop_front().expect("calls are outstanding");
        drop(oldest.wait().expect("a reply"));
        let now = Clock.now();
        round_trips.note(now - sent_at);
        if now - began_at >= slice_ns {
            return round_trips.over(now - began_at);
        }
        calls.push_back(enqueue());
    }
}
