//! The bare loops that the benches compare with.

use std::io;
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};

use bare::*;

#[path = "../../benches/support/bare.rs"]
mod bare;

/// Runs both sides of an exchange for a slice; returns what the first one says.
fn check<T>(
    echo: impl FnOnce(&UdpSocket, &AtomicBool) -> io::Result<()> + Send,
    run: impl FnOnce(SocketAddr) -> T,
) -> T {
    let server =
        bind(loopback()).and_then(|socket| set_gro(&socket).map(|()| socket)).expect("a socket");
    let target = server.local_addr().expect("an address");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| echo(&server, &stop));
        let result = run(target);
        stop.store(true, Ordering::Relaxed);
        bind(loopback()).and_then(|socket| socket.send_to(&[0], target)).expect("a last datagram");
        thread.join().expect("the echo").expect("the echo's calls");
        result
    })
}

fn ping_pong(
    echo: impl FnOnce(&UdpSocket, &AtomicBool) -> io::Result<()> + Send,
    ping: impl FnOnce(&UdpSocket, &[u8], u64, &mut Vec<u64>) -> io::Result<()>,
) {
    let round_trips = check(echo, |target| {
        let client = bind(loopback()).expect("a socket");
        client.connect(target).expect("a connection");
        let mut round_trips = Vec::with_capacity(1_000_000);
        ping(&client, &[1; 32], SLICE_NS, &mut round_trips).expect("the client's calls");
        round_trips
    });
    assert!(!round_trips.is_empty());
}

fn exchange(
    echo: impl FnOnce(&UdpSocket, &AtomicBool) -> io::Result<()> + Send,
    run: impl FnOnce(&UdpSocket, &Load) -> io::Result<Moved>,
) {
    let moved = check(echo, |target| {
        let client = bind(loopback())
            .and_then(|socket| set_gro(&socket).map(|()| socket))
            .expect("a socket");
        client.set_nonblocking(true).expect("the option");
        run(&client, &Load { target, payload_len: 64, outstanding: 64, slice_ns: SLICE_NS })
            .expect("the client's calls")
    });
    assert!(moved.datagrams > 0 && moved.rate() > 0.0, "{moved:?}");
}

#[test]
fn a_polling_ping_pong_runs() {
    ping_pong(echo_spin, ping_spin);
}

#[test]
fn a_blocking_ping_pong_runs() {
    ping_pong(echo_blocking, ping_blocking);
}

#[test]
fn a_ping_pong_over_tcp_runs() {
    let listener = std::net::TcpListener::bind(loopback()).expect("a port");
    let client =
        TcpStream::connect(listener.local_addr().expect("an address")).expect("a connection");
    let (server, _) = listener.accept().expect("a connection");
    let mut round_trips = Vec::with_capacity(1_000_000);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| echo_stream_spin(&server, &stop));
        ping_stream_spin(&client, &[1; 32], SLICE_NS, &mut round_trips)
            .expect("the client's calls");
        drop(client);
        thread.join().expect("the echo").expect("the echo's calls");
    });
    assert!(!round_trips.is_empty());
}

#[test]
fn a_batched_exchange_runs() {
    exchange(echo_batched, exchange_batched);
}

#[test]
fn an_exchange_of_trains_runs() {
    exchange(echo_batches, exchange_batches);
}

#[test]
fn a_stream_runs() {
    exchange(
        |socket, stop| stream_receive(socket, stop).map(|moved| assert!(moved.datagrams > 0)),
        stream_send,
    );
}

#[test]
fn a_hop_passes_both_ways() {
    let behind = bind(loopback()).expect("a socket");
    let server = behind.local_addr().expect("an address");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| echo_spin(&behind, &stop));
        ping_pong(|socket, stop| hop_spin(socket, server, stop), ping_spin);
        stop.store(true, Ordering::Relaxed);
        thread.join().expect("the echo").expect("the echo's calls");
    });
}

fn loopback() -> SocketAddr {
    "127.0.0.1:0".parse().expect("an address")
}

/// Longer than a scheduler's slice, so that both sides run even where they share a core.
const SLICE_NS: u64 = 50_000_000;
