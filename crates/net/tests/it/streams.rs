//! Streams over loopback: both ends on one thread, turned by turns until what is expected has
//! happened.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};

use socket2::{Domain, Socket, Type};
use tailcut_net::clock::Clock;
use tailcut_net::driver::Wait;
use tailcut_net::stream::{
    Connection, ConnectionId, Event, Reason, StreamConfig, Streams, TlsClient, TlsServer,
    Verification,
};

#[test]
fn bytes_come_back_over_ipv4() {
    check_echo(V4, None, 100_000);
}

#[test]
fn bytes_come_back_over_ipv6() {
    check_echo(V6, None, 100_000);
}

#[test]
fn bytes_come_back_over_tls() {
    let (server, pem) = server_tls();
    let client =
        TlsClient::new(Some("localhost"), Verification::Roots(pem.as_bytes())).expect("roots");
    check_echo(V4, Some((server, client)), 3_000_000);
}

#[test]
fn an_unverified_certificate_is_taken_when_asked() {
    let (server, _) = server_tls();
    let client = TlsClient::new(None, Verification::Off).expect("a client");
    check_echo(V4, Some((server, client)), 1_000);
}

#[test]
fn a_certificate_that_nobody_trusts_ends_the_connection() {
    let (server, _) = server_tls();
    let other = certificate().0;
    let client =
        TlsClient::new(Some("localhost"), Verification::Roots(other.as_bytes())).expect("roots");
    check_tls_failure(server, &client, "invalid peer certificate");
}

#[test]
fn a_certificate_of_another_name_ends_the_connection() {
    let (server, pem) = server_tls();
    let client =
        TlsClient::new(Some("example.org"), Verification::Roots(pem.as_bytes())).expect("roots");
    check_tls_failure(server, &client, "not valid for name");
}

#[test]
fn a_peer_that_does_not_speak_tls_ends_the_connection() {
    let listener = TcpListener::bind(V4).expect("a port");
    let mut streams = streams(Wait::default());
    let client = TlsClient::new(None, Verification::Off).expect("a client");
    streams
        .connect(listener.local_addr().expect("an address"), Some(&client))
        .expect("a connection");
    let (mut peer, _) = listener.accept().expect("a connection");
    peer.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").expect("bytes");
    assert!(matches!(closing(&mut streams), Reason::Tls(_)));
}

#[test]
fn nobody_listens() {
    let address =
        TcpListener::bind(V4).and_then(|listener| listener.local_addr()).expect("an address");
    let mut streams = streams(Wait::default());
    streams.connect(address, None).expect("a connection");
    assert_eq!(closing(&mut streams), Reason::Refused);
    assert!(streams.is_empty());
}

/// A port whose queue of waiting connections is full drops what else comes.
#[test]
fn a_peer_that_is_silent_runs_into_the_deadline() {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    socket.bind(&address(V4).into()).expect("a port");
    socket.listen(1).expect("a port");
    let to = socket.local_addr().expect("an address").as_socket().expect("an IP address");
    let config = StreamConfig { connect_timeout_ns: 300_000_000, ..StreamConfig::default() };
    let mut streams = Streams::new(Wait::default(), config).expect("streams");
    let ids: Vec<ConnectionId> =
        (0..8).map(|_| streams.connect(to, None).expect("a connection")).collect();
    let mut reasons = Vec::new();
    while reasons.len() + 2 < ids.len() {
        let note = |_: &mut Connection<'_>, event: Event<'_>| {
            if let Event::Closed(reason) = event {
                reasons.push(reason);
            }
        };
        streams.poll(None, note).expect("a turn");
    }
    assert!(reasons.iter().all(|reason| *reason == Reason::TimedOut), "{reasons:?}");
}

#[test]
fn a_reset_is_told() {
    let (mut streams, id, peer) = pair(Wait::default());
    Socket::from(peer).set_linger(Some(std::time::Duration::ZERO)).expect("the option");
    assert_eq!(closing(&mut streams), Reason::Reset);
    assert!(streams.output(id).is_none());
}

#[test]
fn a_reset_is_told_when_a_write_finds_it() {
    let (mut streams, id, peer) = pair(Wait::BusyPoll);
    Socket::from(peer).set_linger(Some(std::time::Duration::ZERO)).expect("the option");
    streams.output(id).expect("an open connection").extend_from_slice(b"late");
    streams.flush(id);
    assert_eq!(closing(&mut streams), Reason::Reset);
}

#[test]
fn who_sends_no_more_can_still_be_answered() {
    let (mut streams, _, mut peer) = pair(Wait::default());
    peer.write_all(b"last words").expect("bytes");
    peer.shutdown(std::net::Shutdown::Write).expect("an end");
    let mut events = Vec::new();
    while events.len() < 2 {
        let answer = |connection: &mut Connection<'_>, event: Event<'_>| {
            events.push(format!("{event:?}"));
            if event == Event::Finished {
                connection.output().extend_from_slice(b"farewell");
                connection.close();
            }
        };
        streams.poll(None, answer).expect("a turn");
    }
    let mut answer = String::new();
    peer.read_to_string(&mut answer).expect("an answer");
    assert_eq!((answer.as_str(), events[1].as_str(), streams.len()), ("farewell", "Finished", 0));
}

#[test]
fn what_is_unsent_leaves_after_the_close() {
    let (mut streams, id, mut peer) = pair(Wait::default());
    let sent = vec![7; 900_000];
    streams.output(id).expect("an open connection").extend_from_slice(&sent);
    streams.flush(id);
    streams.close(id);
    let reader = std::thread::spawn(move || {
        let mut received = Vec::new();
        peer.read_to_end(&mut received).expect("the bytes");
        received
    });
    while !streams.is_empty() {
        streams.poll(None, |_, event| panic!("{event:?}")).expect("a turn");
    }
    assert_eq!(reader.join().expect("the reader"), sent);
    assert_eq!(streams.metrics().lingered_out, 0);
}

#[test]
fn a_closed_connection_does_not_linger_for_ever() {
    let config = StreamConfig { linger_ns: 50_000_000, ..StreamConfig::default() };
    let (mut streams, id, _peer) = pair_of(Streams::new(Wait::default(), config).expect("streams"));
    while streams.unsent(id) < 500_000 {
        streams.output(id).expect("an open connection").extend_from_slice(&[7; 500_000]);
        streams.flush(id);
    }
    streams.close(id);
    while !streams.is_empty() {
        streams.poll(None, |_, event| panic!("{event:?}")).expect("a turn");
    }
    assert_eq!(streams.metrics().lingered_out, 1);
}

#[test]
fn a_slow_reader_fills_its_buffer_and_no_more() {
    let (mut streams, id, _peer) = pair(Wait::BusyPoll);
    let mut appended = 0;
    while let Some(output) = streams.output(id) {
        output.extend_from_slice(&[7; 1 << 16]);
        appended += 1 << 16;
        streams.flush(id);
    }
    let limit = StreamConfig::default().output_len_max;
    assert!(
        (limit..limit + (1 << 16)).contains(&streams.unsent(id)),
        "{} of {appended}",
        streams.unsent(id)
    );
    assert_eq!(streams.metrics().output_full, 1);
}

/// The echo would have to keep all that it does not get rid of.
#[test]
fn who_does_not_read_is_not_read_from() {
    let (mut streams, id, peer) = pair(Wait::BusyPoll);
    peer.set_nonblocking(true).expect("the option");
    let (mut idle, mut echoed) = (0, 0);
    while idle < 1_000 {
        let wrote = (&peer).write(&[7; 1 << 16]).is_ok();
        idle = if wrote || turn(&mut streams, echo) > 0 { 0 } else { idle + 1 };
        echoed = echoed.max(streams.unsent(id));
    }
    assert!(echoed <= StreamConfig::default().output_len_max + (1 << 16), "{echoed}");
    peer.set_nonblocking(false).expect("the option");
    let reader = std::thread::spawn(move || (&peer).read(&mut [0; 1 << 16]).map(|_| peer));
    while streams.unsent(id) > 1 << 16 && !reader.is_finished() {
        turn(&mut streams, echo);
    }
    drop(reader.join().expect("the reader").expect("bytes"));
}

/// Also by a thread that reads few connections directly.
#[test]
fn a_paused_connection_is_not_read() {
    let (mut streams, id, peer) = pair(Wait::BusyPoll);
    streams.set_reading(id, false);
    (&peer).write_all(b"a").expect("a byte");
    for _ in 0..100 {
        assert_eq!(turn(&mut streams, |_, event| panic!("{event:?}")), 0);
    }
    streams.set_reading(id, true);
    until(|| turn(&mut streams, |_, event| assert_eq!(event, Event::Bytes(b"a"))) > 0);
}

#[test]
fn a_unix_socket_is_connected_to() {
    let path = std::path::PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("streams-unix");
    // There is one where an earlier run was killed.
    let _ = std::fs::remove_file(&path);
    let mut streams = streams(Wait::Block { spin_ns: 0 });
    assert!(streams.connect_unix(&path).is_err());
    let listener = std::os::unix::net::UnixListener::bind(&path).expect("a socket");
    let id = streams.connect_unix(&path).expect("a connection");
    let (mut peer, _) = listener.accept().expect("a connection");
    until(|| turn(&mut streams, |_, event| assert_eq!(event, Event::Connected)) > 0);
    peer.write_all(b"hello").expect("bytes");
    until(|| turn(&mut streams, echo) > 0);
    let mut bytes = [0; 5];
    peer.read_exact(&mut bytes).expect("bytes");
    assert_eq!(&bytes, b"hello");
    drop(peer);
    until(|| turn(&mut streams, |_, event| assert_eq!(event, Event::Finished)) > 0);
    streams.close(id);
    std::fs::remove_file(&path).expect("it is there");
}

/// An owner who waits for it with other descriptors.
#[test]
fn it_is_readable_while_it_has_something_to_tell() {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let (mut streams, _, peer) = pair(Wait::default());
    let is_readable = |streams: &Streams, seconds| {
        let mut fds = [PollFd::new(streams, PollFlags::IN)];
        let timeout = Timespec { tv_sec: seconds, tv_nsec: 0 };
        poll(&mut fds, Some(&timeout)).expect("a call") > 0
    };
    assert!(!is_readable(&streams, 0) && streams.next_deadline().is_none());
    (&peer).write_all(b"a").expect("a byte");
    assert!(is_readable(&streams, 20));
    let looked = streams.look(|_, event| assert_eq!(event, Event::Bytes(b"a"))).expect("a look");
    assert_eq!((looked, is_readable(&streams, 0)), (1, false));
}

#[test]
fn thousands_of_connections_are_served_alike() {
    const COUNT: usize = 4_096;
    // Two descriptors for each connection, since both ends are here.
    let limit = descriptor_limit();
    if limit < 2 * COUNT + 100 {
        writeln!(
            std::io::stderr(),
            "SKIPPED: {COUNT} connections need more descriptors than the {limit} permitted"
        )
        .expect("stderr");
        return;
    }
    let (mut server, mut client) = (streams(Wait::BusyPoll), streams(Wait::BusyPoll));
    let listener = server.listen(address(V4), None).expect("a port");
    let to = server.listen_address(listener).expect("an address");
    let ids: Vec<ConnectionId> =
        (0..COUNT).map(|_| client.connect(to, None).expect("a connection")).collect();
    let mut answers = vec![0; COUNT];
    let mut connected = 0;
    until(|| {
        turn(&mut server, echo);
        turn(&mut client, |_, event| connected += usize::from(event == Event::Connected));
        connected == COUNT
    });
    for id in &ids {
        client
            .output(*id)
            .expect("an open connection")
            .extend_from_slice(&(id.index() as u64).to_le_bytes());
        client.flush(*id);
    }
    until(|| {
        turn(&mut server, echo);
        turn(&mut client, |connection, event| {
            assert_eq!(event, Event::Bytes(&(connection.id().index() as u64).to_le_bytes()));
            answers[connection.id().index()] += 1;
        });
        answers.iter().all(|&answers| answers == 1)
    });
    assert_eq!((server.metrics().accepted, client.metrics().failed), (COUNT as u64, 0));
}

#[test]
fn connections_beyond_the_limit_are_refused() {
    let config = StreamConfig { connections_max: 1, ..StreamConfig::default() };
    let mut server = Streams::new(Wait::BusyPoll, config).expect("streams");
    let listener = server.listen(address(V4), None).expect("a port");
    let to = server.listen_address(listener).expect("an address");
    let peers = [
        TcpStream::connect(to).expect("a connection"),
        TcpStream::connect(to).expect("a connection"),
    ];
    until(|| {
        turn(&mut server, echo);
        server.metrics().accepts_refused == 1
    });
    assert_eq!(server.len(), 1);
    drop(peers);
    server.connect(to, None).expect_err("the limit holds for both directions");
}

#[test]
fn an_id_that_has_ended_names_nothing() {
    let (mut streams, id, peer) = pair(Wait::BusyPoll);
    streams.close(id);
    assert!(streams.output(id).is_none() && streams.local_address(id).is_none());
    let again = streams.connect(peer.peer_addr().expect("an address"), None);
    assert_ne!(again.expect("a connection"), id);
}

#[test]
fn a_waker_ends_the_sleep() {
    let mut streams = streams(Wait::Block { spin_ns: 0 });
    let waker = streams.waker();
    let thread = std::thread::spawn(move || waker.wake());
    assert_eq!(streams.poll(None, |_, _| ()).expect("a turn"), 0);
    thread.join().expect("the other thread");
}

#[test]
fn a_sleep_ends_in_time() {
    let mut streams = streams(Wait::Block { spin_ns: 0 });
    let until = Clock.now() + 1_000_000;
    assert_eq!(streams.poll(Some(until), |_, _| ()).expect("a turn"), 0);
    assert!(Clock.now() >= until);
}

#[test]
fn a_warm_thread_allocates_nothing() {
    for connections in [1, 64] {
        let (mut server, mut client) = (streams(Wait::BusyPoll), streams(Wait::BusyPoll));
        let listener = server.listen(address(V4), None).expect("a port");
        let to = server.listen_address(listener).expect("an address");
        let mut answers = 0;
        for _ in 0..connections {
            client.connect(to, None).expect("a connection");
        }
        let mut run = |count: u64| {
            let end = answers + count;
            until(|| {
                turn(&mut server, echo);
                turn(&mut client, |connection, event| {
                    answers += u64::from(matches!(event, Event::Bytes(_)));
                    connection.output().extend_from_slice(&[7; 64]);
                });
                answers >= end
            });
        };
        run(5_000);
        let counts: Vec<u64> =
            (0..5).map(|_| allocation_counter::measure(|| run(5_000)).count_total).collect();
        assert!(counts.contains(&0), "{counts:?} allocations with {connections} connections");
    }
}

fn check_echo(at: &str, tls: Option<(TlsServer, TlsClient)>, len: usize) {
    for wait in [Wait::BusyPoll, Wait::Block { spin_ns: 0 }] {
        let (mut server, mut client) = (streams(wait), streams(wait));
        let (server_tls, client_tls) = tls.clone().unzip();
        let listener = server.listen(address(at), server_tls).expect("a port");
        let to = server.listen_address(listener).expect("an address");
        let sent: Vec<u8> = (0..len).map(|index| index as u8).collect();
        let mut received = Vec::new();
        client.connect(to, client_tls.as_ref()).expect("a connection");
        until(|| {
            turn(&mut server, echo);
            turn(&mut client, |connection, event| match event {
                Event::Connected => connection.output().extend_from_slice(&sent),
                Event::Bytes(bytes) => received.extend_from_slice(bytes),
                other => panic!("{other:?}"),
            });
            received.len() >= len
        });
        assert!(received == sent, "the bytes differ");
        assert_eq!((client.metrics().connected, server.metrics().accepted), (1, 1));
    }
}

fn check_tls_failure(tls: TlsServer, client_tls: &TlsClient, message: &str) {
    let (mut server, mut client) = (streams(Wait::BusyPoll), streams(Wait::BusyPoll));
    let listener = server.listen(address(V4), Some(tls)).expect("a port");
    let to = server.listen_address(listener).expect("an address");
    client.connect(to, Some(client_tls)).expect("a connection");
    let (mut ours, mut theirs) = (None, None);
    until(|| {
        turn(&mut server, |_, event| ours = closed(event).or(ours.take()));
        turn(&mut client, |_, event| theirs = closed(event).or(theirs.take()));
        ours.is_some() && theirs.is_some()
    });
    assert!(matches!(&theirs, Some(Reason::Tls(text)) if text.contains(message)), "{theirs:?}");
    assert!(matches!(ours, Some(Reason::Tls(_))), "{ours:?}");
}

fn echo(connection: &mut Connection<'_>, event: Event<'_>) {
    match event {
        Event::Bytes(bytes) => connection.output().extend_from_slice(bytes),
        Event::Finished => connection.close(),
        _ => {}
    }
}

fn closed(event: Event<'_>) -> Option<Reason> {
    if let Event::Closed(reason) = event { Some(reason) } else { None }
}

fn closing(streams: &mut Streams) -> Reason {
    let mut reason = None;
    until(|| {
        turn(streams, |_, event| reason = closed(event).or(reason.take()));
        reason.is_some()
    });
    reason.expect("a reason")
}

/// A connection of ours and the other end of it.
fn pair(wait: Wait) -> (Streams, ConnectionId, TcpStream) {
    pair_of(streams(wait))
}

fn pair_of(mut streams: Streams) -> (Streams, ConnectionId, TcpStream) {
    let listener = TcpListener::bind(V4).expect("a port");
    let id =
        streams.connect(listener.local_addr().expect("an address"), None).expect("a connection");
    let (peer, _) = listener.accept().expect("a connection");
    until(|| turn(&mut streams, |_, event| assert_eq!(event, Event::Connected)) > 0);
    (streams, id, peer)
}

fn turn(streams: &mut Streams, f: impl FnMut(&mut Connection<'_>, Event<'_>)) -> usize {
    streams.poll(Some(0), f).expect("a turn")
}

fn until(mut is_done: impl FnMut() -> bool) {
    let deadline = Clock.now() + PATIENCE_NS;
    while !is_done() {
        assert!(Clock.now() < deadline, "what is expected does not happen");
    }
}

fn streams(wait: Wait) -> Streams {
    Streams::new(wait, StreamConfig::default()).expect("streams")
}

fn server_tls() -> (TlsServer, String) {
    let (certificate, key) = certificate();
    (TlsServer::new(certificate.as_bytes(), key.as_bytes()).expect("a certificate"), certificate)
}

/// A certificate for localhost that only itself vouches for, and its key.
fn certificate() -> (String, String) {
    let names = vec!["localhost".to_owned()];
    let rcgen::CertifiedKey { cert, signing_key } =
        rcgen::generate_simple_self_signed(names).expect("a certificate");
    (cert.pem(), signing_key.serialize_pem())
}

fn descriptor_limit() -> usize {
    let limits = std::fs::read_to_string("/proc/self/limits").expect("the process's limits");
    let line = limits
        .lines()
        .find(|line| line.starts_with("Max open files"))
        .expect("the limit of descriptors");
    line.split_whitespace().nth(3).and_then(|limit| limit.parse().ok()).unwrap_or(usize::MAX)
}

fn address(text: &str) -> SocketAddr {
    text.parse().expect("an address")
}

const V4: &str = "127.0.0.1:0";
const V6: &str = "[::1]:0";

/// Longer than any machine takes for anything here.
const PATIENCE_NS: u64 = 20_000_000_000;
