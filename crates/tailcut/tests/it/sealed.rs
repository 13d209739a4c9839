//! Sealed calls over real sockets on loopback.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tailcut::sealed::{Access, DENIED_CODE, Role, Secret};
use tailcut::{DatapathKind, Error, Failure, LiveAccess, LiveKeys, Protocol, Reply, ServerBuilder};

use crate::group::{fresh_group, group, in_a_row, now_ms, of};
use crate::library::{HOMA, OnDrop, R2P2, Transport, patient, serving, transports};

#[test]
fn handlers_know_who_calls_and_strangers_are_not_heard() {
    transports().for_each(check_identities);
}

fn check_identities(transport: Transport) {
    let keys = fresh_group();
    let mut server = serving(transport).seal(keys.clone()).bind("127.0.0.1:0").expect("a port");
    let (address, stop) = (server.local_address(), server.stop_handle());
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            server.run(|request| {
                let identity = request.identity().map(|number| number.to_string());
                let reply = identity.unwrap_or_default() + &"x".repeat(request.bytes().len());
                let _ = request.reply(reply.as_bytes());
            })
        });
        let guard = OnDrop(Some(|| stop.stop()));
        for client in [3, 70_000] {
            let caller =
                patient(transport).seal(of(&keys, client)).connect(address).expect("a client");
            for len in [0, 100, 100_000] {
                let reply = caller.call(&vec![1; len]).expect("an answer");
                assert_eq!(reply.len(), client.to_string().len() + len);
                assert!(reply.starts_with(client.to_string().as_bytes()));
            }
        }
        let hasty = || patient(transport).timeout(Duration::from_millis(50));
        let mut other = fresh_group();
        other.epochs[0].secret = Secret::new([8; 32]);
        for stranger in [hasty(), hasty().seal(of(&other, 3))] {
            let stranger = stranger.connect(address).expect("a client");
            let error = stranger.call(b"hello").expect_err("nobody hears it");
            let is_unheard = matches!(
                error,
                Error::Failed { source: Failure::Deadline | Failure::Unreachable, .. }
            );
            assert!(is_unheard, "{error:?}");
        }
        drop(guard);
        thread.join().expect("the server does not panic").expect("the socket holds");
    });
}

/// Epochs that begin in a row, each known to nobody before the one before is in use.
#[test]
fn keys_follow_while_calls_run() {
    [R2P2, HOMA].into_iter().for_each(check_keys_follow);
}

fn check_keys_follow(transport: Transport) {
    const EVERY_MS: u64 = 200;
    let began_ms = now_ms();
    let until = |at| in_a_row((began_ms, EVERY_MS), at);
    let server_keys = LiveKeys::new(until(2));
    let client_keys = LiveKeys::new(of(&until(2), 3));
    let mut server = serving(transport).seal(&server_keys).bind("127.0.0.1:0").expect("a port");
    let (address, stop) = (server.local_address(), server.stop_handle());
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || server.run(|request| _ = request.reply(b"done")));
        let guard = OnDrop(Some(|| stop.stop()));
        let clients: Vec<_> = (0..3)
            .map(|_| patient(transport).seal(&client_keys).connect(address).expect("a client"))
            .collect();
        for at in 3..12 {
            assert!(server_keys.update(&until(at)).expect("they follow"));
            assert!(client_keys.update(&of(&until(at), 3)).expect("they follow"));
            let begins_ms = began_ms + (at - 1) * EVERY_MS;
            let now_ms = || std::time::UNIX_EPOCH.elapsed().expect("after 1970").as_millis() as u64;
            while now_ms() < begins_ms {
                for client in &clients {
                    client.call(b"request").expect("an answer");
                }
            }
        }
        let error = client_keys.update(&of(&until(12), 4)).expect_err("another client's");
        assert!(error.to_string().contains("client 4"), "{error}");
        // One that has nothing of the first ones is understood.
        let late = patient(transport).seal(of(&until(11), 5)).connect(address).expect("a client");
        late.call(b"request").expect("an answer");
        drop(guard);
        thread.join().expect("the server does not panic").expect("the socket holds");
    });
}

/// Passes datagrams on between one client and a server, and keeps what the client has sent.
struct Tap {
    socket: UdpSocket,
    server: SocketAddr,
    heard: Vec<Vec<u8>>,
}

impl Tap {
    fn before(server: SocketAddr) -> Self {
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a port");
        Self { socket, server, heard: Vec::new() }
    }

    /// Until an empty datagram comes.
    fn run(mut self) -> Vec<Vec<u8>> {
        let (mut buffer, mut client) = ([0; 2_048], None);
        loop {
            let (len, from) = self.socket.recv_from(&mut buffer).expect("a datagram");
            let to = match from == self.server {
                true => client,
                false if len == 0 => return self.heard,
                false => {
                    client = Some(from);
                    self.heard.push(buffer[..len].to_vec());
                    Some(self.server)
                }
            };
            if let Some(to) = to {
                self.socket.send_to(&buffer[..len], to).expect("the socket holds");
            }
        }
    }
}

/// Whoever records calls on the way to one server sends them to another of the group: none of them
/// runs.
#[test]
fn what_is_recorded_of_one_server_does_not_run_at_another() {
    [R2P2, HOMA].into_iter().for_each(check_recorded);
}

fn check_recorded(transport: Transport) {
    let keys = fresh_group();
    let runs = [AtomicUsize::new(0), AtomicUsize::new(0)];
    let mut servers: Vec<_> = (0..2)
        .map(|_| serving(transport).seal(keys.clone()).bind("127.0.0.1:0").expect("a port"))
        .collect();
    let addresses: Vec<_> = servers.iter().map(|server| server.local_address()).collect();
    let stops: Vec<_> = servers.iter().map(|server| server.stop_handle()).collect();
    std::thread::scope(|scope| {
        for (server, runs) in servers.iter_mut().zip(&runs) {
            scope.spawn(move || {
                server.run(|request| {
                    runs.fetch_add(1, Ordering::Relaxed);
                    let _ = request.reply(b"done");
                })
            });
        }
        let tap = Tap::before(addresses[0]);
        let tapped = tap.socket.local_addr().expect("it is bound");
        let attacker = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let guard = OnDrop(Some(|| {
            stops.iter().for_each(|stop| stop.stop());
            // Where an assertion has failed, the tap still listens.
            let _ = attacker.send_to(&[], tapped);
        }));
        let heard = scope.spawn(move || tap.run());
        let caller = || patient(transport).seal(of(&keys, 3));
        let client = caller().connect(tapped).expect("a client");
        for _ in 0..20 {
            client.call(b"once").expect("an answer");
        }
        attacker.send_to(&[], tapped).expect("it listens");
        let heard = heard.join().expect("it does not panic");
        assert!(heard.len() > 20);
        for datagram in &heard {
            attacker.send_to(datagram, addresses[1]).expect("it listens");
        }
        // What comes from here comes after them.
        caller().connect(addresses[1]).expect("a client").call(b"mine").expect("an answer");
        assert_eq!(runs[1].load(Ordering::Relaxed), 1);
        assert_eq!(runs[0].load(Ordering::Relaxed), 20);
        drop(guard);
    });
}

/// Many small calls at once go in few datagrams. What was recorded of them does nothing, wherever
/// it comes from.
#[test]
fn small_calls_go_together() {
    const CALLS: usize = 6_400;
    /// Byte 21 of a datagram of several packets, as docs/sealed.md has it.
    const SEVERAL: u8 = 4;
    let keys = fresh_group();
    let runs = AtomicUsize::new(0);
    let mut server = serving(R2P2).seal(keys.clone()).bind("127.0.0.1:0").expect("a port");
    let (address, stop) = (server.local_address(), server.stop_handle());
    std::thread::scope(|scope| {
        let runs = &runs;
        scope.spawn(move || {
            server.run(|request| {
                runs.fetch_add(1, Ordering::Relaxed);
                let reply = request.bytes().to_vec();
                let _ = request.reply(&reply);
            })
        });
        let tap = Tap::before(address);
        let tapped = tap.socket.local_addr().expect("it is bound");
        let attacker = UdpSocket::bind("127.0.0.1:0").expect("a port");
        let guard = OnDrop(Some(|| {
            stop.stop();
            let _ = attacker.send_to(&[], tapped);
        }));
        let heard = scope.spawn(move || tap.run());
        let client = patient(R2P2).seal(of(&keys, 3)).connect(tapped).expect("a client");
        client.call(b"who is there").expect("an answer");
        for round in 0..CALLS / 64 {
            let bytes = |number: usize| format!("call {round} {number:02}");
            let calls: Vec<_> = (0..64)
                .map(|number| client.enqueue(bytes(number).as_bytes()).expect("a call"))
                .collect();
            for (number, call) in calls.into_iter().enumerate() {
                assert_eq!(&*call.wait().expect("an answer"), bytes(number).as_bytes());
            }
        }
        attacker.send_to(&[], tapped).expect("it listens");
        let heard = heard.join().expect("it does not panic");
        let coalesced = heard.iter().filter(|datagram| datagram[21] == SEVERAL);
        // How many are in each is tested without a network, where nothing is sent again, alone.
        assert!(coalesced.count() > CALLS / 64, "of {} datagrams", heard.len());
        for datagram in &heard {
            attacker.send_to(datagram, address).expect("it listens");
        }
        // What comes from here comes after them.
        let other = patient(R2P2).seal(of(&keys, 4)).connect(address).expect("a client");
        other.call(b"mine").expect("an answer");
        assert_eq!(runs.load(Ordering::Relaxed), CALLS + 2);
        drop(guard);
    });
}

#[test]
fn keys_of_another_role_are_refused() {
    let check = |error: Error, text: &str| assert!(error.to_string().contains(text), "{error}");
    let client = of(&group(0), 1);
    let router = group(0).for_role(Role::Router).expect("a server's keys");
    for transport in [R2P2, HOMA] {
        let server = serving(transport).seal(client.clone()).bind("127.0.0.1:0");
        check(server.expect_err("a client's"), "127.0.0.1");
        for keys in [group(0), router.clone()] {
            let error = patient(transport).seal(keys).connect("127.0.0.1:9");
            let error = error.expect_err("no client's");
            assert!(matches!(error, Error::Open { .. }), "{error:?}");
        }
    }
    let disguised = (Protocol::Homa, DatapathKind::HijackedTcp);
    let homa = patient(disguised).seal(client).connect("127.0.0.1:9");
    assert!(matches!(homa, Err(Error::Open { .. })));
}

/// Calls go on while the policy changes: who is not allowed is told so at once, and nothing of it
/// runs.
#[test]
fn a_policy_says_who_may_call_and_changes_while_calls_run() {
    [R2P2, HOMA].into_iter().for_each(check_policy);
}

fn check_policy(transport: Transport) {
    let keys = fresh_group();
    let policy =
        |rules: &str| -> Access { format!("tailcut-access 1\n{rules}").parse().expect("a policy") };
    let live = LiveAccess::new(policy("allow 3 *"));
    let opening = serving(transport).seal(keys.clone()).access(&live);
    let mut server = opening.bind("127.0.0.1:0").expect("a port");
    let (address, stop) = (server.local_address(), server.stop_handle());
    let runs = [const { AtomicUsize::new(0) }; 5];
    let is_changed = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (thread_runs, guard) = (&runs, OnDrop(Some(|| stop.stop())));
        let thread = scope.spawn(move || {
            let result = server.run_workers(2, |request| {
                let number = request.identity().expect("it is sealed") as usize;
                thread_runs[number].fetch_add(1, Ordering::Relaxed);
                let _ = request.reply(b"done");
            });
            result.map(|()| server.metrics())
        });
        let [three, four] = [3, 4].map(|number| {
            patient(transport).seal(of(&keys, number)).connect(address).expect("a client")
        });
        for _ in 0..50 {
            three.call(b"request").expect("an answer");
            check_denied(four.call(b"request"), 4);
            check_denied(four.call(&[0; 100_000]), 4);
        }
        // Each call goes by one of the two policies, whole; and by the second once that is in
        // place.
        let busy = patient(transport).seal(of(&keys, 3));
        let caller = scope.spawn(move || {
            let client = busy.connect(address).expect("a client");
            let mut answered = 0;
            loop {
                let was_changed = is_changed.load(Ordering::Acquire);
                match client.call(b"request") {
                    Ok(_) if was_changed => panic!("the policy has changed"),
                    Ok(_) => answered += 1,
                    Err(error) => {
                        check_denied(Err(error), 3);
                        return answered;
                    }
                }
            }
        });
        while runs[3].load(Ordering::Relaxed) < 100 {
            std::thread::yield_now();
        }
        assert!(live.update(policy("deny 3 *\nallow any *")));
        is_changed.store(true, Ordering::Release);
        let answered = caller.join().expect("it does not panic");
        assert_eq!(runs[3].load(Ordering::Relaxed), 50 + answered);
        check_denied(three.call(b"request"), 3);
        four.call(b"request").expect("an answer");
        drop(guard);
        let metrics = thread.join().expect("it does not panic").expect("the socket holds");
        let seal = metrics.r2p2().map(|of| of.seal).or(metrics.homa().map(|of| of.seal));
        let denied = seal.expect("one of them").denied;
        assert_eq!(runs[4].load(Ordering::Relaxed), 1);
        // One that is sent again is refused again.
        assert!(denied >= 102, "{denied}");
    });
}

fn check_denied(ended: Result<Reply, Error>, number: u32) {
    let error = ended.expect_err("it is not allowed");
    let Error::Rejected { code: DENIED_CODE, text, .. } = &error else { panic!("{error}") };
    assert!(text.contains(&format!("client {number} may not call")), "{text}");
}

#[test]
fn a_policy_without_keys_or_of_a_client_s_is_refused() {
    let access: Access = "tailcut-access 1\nallow any *".parse().expect("a policy");
    let check = |builder: ServerBuilder, text: &str| {
        let error = builder.access(access.clone()).bind("127.0.0.1:0").expect_err("no server");
        assert!(error.to_string().contains(text), "{error}");
    };
    check(ServerBuilder::new(), "give the server keys too, or no policy");
    check(ServerBuilder::new().protocol(Protocol::Homa), "give the server keys too");
    check(ServerBuilder::new().seal(of(&group(0), 1)), "an access policy is a server's");
}
