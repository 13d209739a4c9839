//! The library over real sockets on loopback, over every transport. Homa directly over IP needs
//! CAP_NET_RAW.

use std::io::{ErrorKind, Write};
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tailcut::r2p2::{Cloning, Copies};
use tailcut::{
    AsyncClient, CallError, CallOptions, Client, ClientBuilder, Config, DatapathKind, Error,
    Failure, Protocol, Request, Server, ServerBuilder,
};
use tailcut_net::clock::Clock;
use tailcut_wire::r2p2::{Flags, Packet};

/// A protocol and what carries it.
pub(crate) type Transport = (Protocol, DatapathKind);

pub(crate) const R2P2: Transport = (Protocol::R2p2, DatapathKind::Udp);
pub(crate) const HOMA: Transport = (Protocol::Homa, DatapathKind::Udp);
const HOMA_IP: Transport = (Protocol::Homa, DatapathKind::Ip);

/// Runs `server` with `handler` on a thread of its own while `client` runs here.
fn with_server<T>(
    mut server: Server,
    handler: impl FnMut(Request<'_>) + Send,
    client: impl FnOnce(SocketAddr) -> T,
) -> T {
    let (address, stop) = (server.local_address(), server.stop_handle());
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || server.run(handler));
        // Stops the server also when the client's part panics.
        let guard = OnDrop(Some(|| stop.stop()));
        let result = client(address);
        drop(guard);
        thread.join().expect("the server does not panic").expect("the socket holds");
        result
    })
}

pub(crate) struct OnDrop<F: FnOnce()>(pub(crate) Option<F>);

impl<F: FnOnce()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        if let Some(action) = self.0.take() {
            action();
        }
    }
}

pub(crate) fn reverse(request: Request<'_>) {
    // A client that has gone needs no answer.
    let _ = request.reply_in_place(|bytes| bytes.reverse());
}

pub(crate) fn patient((protocol, datapath): Transport) -> ClientBuilder {
    ClientBuilder::new().timeout(Duration::from_secs(20)).protocol(protocol).datapath(datapath)
}

/// Every transport that this process may use; that it may not use one is said past the test
/// harness's capture, but not in CI, which must have the capability.
pub(crate) fn transports() -> impl Iterator<Item = Transport> {
    let may = match serving(HOMA_IP).bind("127.0.0.50:0") {
        Err(Error::Open { source: error, .. }) if error.kind() == ErrorKind::PermissionDenied => {
            assert!(
                std::env::var_os("CI").is_none_or(|is_ci| is_ci != "true"),
                "CI has the capability: {error}"
            );
            writeln!(std::io::stderr(), "SKIPPED: {error}").expect("standard error");
            false
        }
        bound => bound.is_ok(),
    };
    [R2P2, HOMA].into_iter().chain(may.then_some(HOMA_IP))
}

pub(crate) fn serving((protocol, datapath): Transport) -> ServerBuilder {
    ServerBuilder::new().protocol(protocol).datapath(datapath)
}

pub(crate) fn server(transport: Transport) -> Server {
    serving(transport).bind("127.0.0.1:0").unwrap()
}

pub(crate) fn pattern(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|place| (place as u8).wrapping_mul(31) ^ seed).collect()
}

/// Calls that were enqueued longer ago than a timeout are looked at by their timers first: they go
/// once, and as those that have never been sent.
#[test]
fn calls_that_have_been_enqueued_for_long_go_once() {
    let server = UdpSocket::bind("127.0.0.1:0").unwrap();
    server.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let client = patient(R2P2).connect(server.local_addr().unwrap()).unwrap();
    let calls: Vec<_> = (0..8).map(|_| client.enqueue(b"ab").unwrap()).collect();
    // Longer than the first timeout, which is 2 ms.
    let due_at = Clock.now() + 20_000_000;
    while Clock.now() < due_at {
        std::thread::park_timeout(Duration::from_millis(20));
    }
    assert!(!calls[0].is_done().unwrap());
    let mut buffer = [0; 2_000];
    let mut numbers = Vec::new();
    while let Ok(len) = server.recv(&mut buffer) {
        let packet = Packet::parse(&buffer[..len]).unwrap();
        assert!(!packet.flags().has(Flags::RETRANSMIT));
        numbers.push(packet.rid);
    }
    numbers.sort_unstable();
    assert_eq!(numbers, (0..8).collect::<Vec<_>>());
}

#[test]
fn a_call_is_answered_over_ipv4_and_ipv6() {
    for transport in transports() {
        for address in ["127.0.0.1:0", "[::1]:0"] {
            let server = serving(transport).bind(address).unwrap();
            with_server(server, reverse, |target| {
                let client = patient(transport).connect(target).unwrap();
                let reply = client.call(b"stressed").unwrap();
                assert_eq!(
                    (&reply[..], reply.server()),
                    (&b"desserts"[..], target),
                    "{transport:?}"
                );
            });
        }
    }
}

/// Both servers run each of them, and the caller gets one answer.
#[test]
fn a_client_sends_copies_to_a_second_server() {
    const CALLS: u64 = 20;
    let runs = [const { AtomicU64::new(0) }; 2];
    let counting = |server: usize| {
        let runs = &runs[server];
        move |request: Request<'_>| {
            runs.fetch_add(1, Ordering::SeqCst);
            reverse(request);
        }
    };
    with_server(server(R2P2), counting(0), |first| {
        with_server(server(R2P2), counting(1), |second| {
            let servers = vec![first, second];
            let cloning = Cloning { copies: Copies::Always, servers, ..Cloning::default() };
            let config = Config { cloning, ..Config::default() };
            let options = CallOptions { idempotent: true, ..CallOptions::default() };
            let client = patient(R2P2).config(config).options(options).connect(first).unwrap();
            for _ in 0..CALLS {
                assert_eq!(&client.call(b"stressed").unwrap()[..], b"desserts");
            }
            while runs.iter().any(|runs| runs.load(Ordering::SeqCst) < CALLS) {
                std::thread::park_timeout(Duration::from_millis(1));
            }
        });
    });
    assert_eq!(runs.map(AtomicU64::into_inner), [CALLS; 2]);
}

#[test]
fn messages_of_every_size_arrive_whole() {
    for transport in transports() {
        with_server(server(transport), reverse, |target| {
            let client = patient(transport).connect(target).unwrap();
            for len in
                [0, 1, 1379, 1380, 1381, 1396, 1397, 16_560, 40_001, 100_000, 1 << 20, 8 << 20]
            {
                let request = pattern(len, 5);
                let reply = client.call(&request).unwrap().into_vec();
                assert!(reply.iter().rev().eq(&request), "{transport:?}: {len} bytes");
            }
        });
    }
}

#[test]
fn many_long_calls_at_once_do_not_overrun_the_sockets() {
    for transport in transports() {
        with_server(server(transport), reverse, |target| {
            let client = patient(transport).connect(target).unwrap();
            let requests: Vec<Vec<u8>> = (0..24).map(|seed| pattern(300_000, seed)).collect();
            let calls: Vec<_> =
                requests.iter().map(|request| client.start(request).unwrap()).collect();
            for (call, request) in calls.into_iter().zip(&requests) {
                assert!(call.wait().unwrap().iter().rev().eq(request), "{transport:?}");
            }
        });
    }
}

#[test]
fn calls_outstanding_are_waited_for_in_any_order() {
    for transport in transports() {
        with_server(server(transport), reverse, |target| {
            let client = patient(transport).connect(target).unwrap();
            let mut calls: Vec<_> =
                (0..500u64).map(|n| client.enqueue(&n.to_be_bytes()).unwrap()).collect();
            for n in (0..500u64).rev() {
                assert_eq!(
                    &calls.pop().unwrap().wait().unwrap()[..],
                    n.to_le_bytes(),
                    "{transport:?}"
                );
            }
        });
    }
}

/// Short and long, whole and cancelled: nobody has it when all have ended.
#[test]
fn calls_share_a_request_and_let_go_of_it() {
    for transport in transports() {
        with_server(serving(transport).bind("127.0.0.1:0").unwrap(), reverse, |address| {
            let client = patient(transport).connect(address).unwrap();
            for len in [0, 5, 100_000] {
                let request: Arc<Vec<u8>> = Arc::new((0..len).map(|place| place as u8).collect());
                let expected: Vec<u8> = request.iter().rev().copied().collect();
                let mut calls: Vec<_> =
                    (0..10).map(|_| client.start_shared(request.clone()).unwrap()).collect();
                assert!(len < 100_000 || Arc::strong_count(&request) > 1, "it is not copied");
                drop(calls.remove(3));
                for call in calls {
                    assert!(call.wait().unwrap()[..] == expected[..]);
                }
                assert_eq!(Arc::strong_count(&request), 1, "{len} B over {transport:?}");
            }
            let too_long = Arc::new(vec![0; Config::default().message_len_max + 1]);
            assert!(client.start_shared(too_long.clone()).is_err());
            assert_eq!(Arc::strong_count(&too_long), 1);
        });
    }
}

#[test]
fn a_call_that_nobody_answers_ends_by_its_deadline() {
    // It is open, and nobody reads it.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = socket.local_addr().unwrap();
    for transport in transports() {
        let client = patient(transport).timeout(Duration::from_millis(30)).connect(nobody).unwrap();
        let error = client.call(b"anybody?").unwrap_err();
        assert!(error.is_deadline(), "{transport:?}: {error}");
        let expected = format!("the call to {nobody} failed: no reply by the deadline");
        assert_eq!(error.to_string(), expected);
    }
}

#[test]
fn a_call_is_waited_for_until_it_has_ended_or_a_limit() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let nobody = socket.local_addr().unwrap();
    let client = patient(R2P2).connect(nobody).unwrap();
    let pending = client.start(b"anybody?").unwrap();
    assert!(!pending.wait_for(Duration::from_millis(1)).unwrap());
    assert!(!pending.wait_for(Duration::ZERO).unwrap());
    with_server(server(R2P2), reverse, |target| {
        let client = patient(R2P2).connect(target).unwrap();
        let pending = client.start(b"stressed").unwrap();
        assert!(pending.wait_for(Duration::from_secs(20)).unwrap());
        assert!(pending.wait_for(Duration::ZERO).unwrap());
        assert_eq!(&pending.wait().unwrap()[..], b"desserts");
    });
}

#[test]
fn a_server_looks_at_something_else_though_nothing_comes() {
    for builder in [ServerBuilder::new(), ServerBuilder::new().busy_poll()] {
        let mut server = builder.bind("127.0.0.1:0").unwrap();
        let (handle, mut looks) = (server.stop_handle(), 0);
        let look = || {
            looks += 1;
            if looks == 3 {
                handle.stop();
            }
        };
        server.run_looking(reverse, Duration::from_millis(1), look).unwrap();
        assert!(looks >= 3);
    }
}

#[test]
fn a_request_dropped_by_the_handler_is_refused() {
    for transport in transports() {
        with_server(
            server(transport),
            |request| drop(request),
            |target| {
                let error =
                    patient(transport).connect(target).unwrap().call(b"please").unwrap_err();
                assert!(error.is_refused(), "{transport:?}: {error}");
            },
        );
    }
}

#[test]
fn dropping_a_pending_call_cancels_it() {
    for transport in transports() {
        with_server(server(transport), reverse, |target| {
            let client = patient(transport).connect(target).unwrap();
            drop(client.start(b"never mind").unwrap());
            let metrics = client.metrics();
            let cancelled = metrics
                .r2p2()
                .map(|r2p2| r2p2.cancelled)
                .or(metrics.homa().map(|homa| homa.cancelled));
            assert_eq!(cancelled, Some(1), "{transport:?}");
            assert_eq!(&client.call(b"still here").unwrap()[..], b"ereh llits");
        });
    }
}

#[test]
fn misuse_is_a_typed_error() {
    let client = Client::connect("127.0.0.1:9").unwrap();
    let long = vec![0; (8 << 20) + 1];
    let error = client.start(&long).unwrap_err();
    assert!(matches!(error, Error::Call { source: CallError::TooLarge { .. }, .. }));
    let hours = Duration::from_secs(7200);
    let error = client.start_with(b"", CallOptions::default(), hours).unwrap_err();
    assert!(matches!(error, Error::Call { source: CallError::BadDeadline { .. }, .. }));
    assert!(error.to_string().contains("127.0.0.1:9"), "{error}");
    let error = Client::connect("no port").unwrap_err();
    assert!(matches!(error, Error::Open { .. }), "{error}");
    assert!(error.to_string().starts_with("no port: "), "{error}");
    assert!(error.to_string().contains("HOST:PORT"), "{error}");
    let error = Client::connect("http://127.0.0.1:9").unwrap_err();
    let text = "http://127.0.0.1:9: a URL is no address; write HOST:PORT";
    assert_eq!(error.to_string(), text);
    let taken = Server::bind("127.0.0.1:0").unwrap();
    let error = Server::bind(taken.local_address()).unwrap_err();
    assert!(std::error::Error::source(&error).is_some());
    let text = error.to_string();
    assert!(text.starts_with(&taken.local_address().to_string()), "{text}");
    assert!(text.contains("port 0 takes a free one"), "{text}");
}

#[test]
fn worker_threads_answer_and_each_request_runs_once() {
    for transport in transports() {
        let mut server = server(transport);
        let (address, stop, runs) =
            (server.local_address(), server.stop_handle(), AtomicU64::new(0));
        std::thread::scope(|scope| {
            let runs = &runs;
            let thread = scope.spawn(move || {
                server.run_workers(3, |request| {
                    runs.fetch_add(1, Ordering::Relaxed);
                    reverse(request);
                })
            });
            let guard = OnDrop(Some(|| stop.stop()));
            let client = patient(transport).connect(address).unwrap();
            let calls: Vec<_> =
                (0..1000u64).map(|n| client.start(&n.to_be_bytes()).unwrap()).collect();
            for (n, call) in (0..1000u64).zip(calls) {
                assert_eq!(&call.wait().unwrap()[..], n.to_le_bytes(), "{transport:?}");
            }
            drop(guard);
            thread.join().unwrap().unwrap();
        });
        assert_eq!(runs.into_inner(), 1000, "{transport:?}");
    }
}

/// Two long calls run until they are told to end, one after the other: one of two workers is there
/// for short ones.
#[test]
fn a_short_request_never_waits_for_long_ones_that_it_is_told_from() {
    let mut server = server(R2P2);
    let (address, stop) = (server.local_address(), server.stop_handle());
    let (end, ended) = channel();
    let ended = Mutex::new(ended);
    server.classify(2, |request| u8::from(request[0] == b'l'));
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            server.run_workers(2, |request| {
                if request.bytes().first() == Some(&b'l') {
                    ended.lock().unwrap().recv().unwrap();
                }
                reverse(request);
            })
        });
        let guard = OnDrop(Some(|| stop.stop()));
        let client = patient(R2P2).connect(address).unwrap();
        // Dropped where something fails, which ends what runs.
        let end = end;
        client.call(b"s").unwrap();
        for long_count in [1, 2] {
            let long: Vec<_> = (0..long_count).map(|_| client.start(b"l").unwrap()).collect();
            for _ in 0..20 {
                client.call(b"s").unwrap();
            }
            (0..long_count).for_each(|_| end.send(()).unwrap());
            long.into_iter().for_each(|call| assert_eq!(&call.wait().unwrap()[..], b"l"));
        }
        // It cannot be told, and is taken for the last type.
        assert!(client.call(b"").unwrap().is_empty());
        drop(guard);
        thread.join().unwrap().unwrap();
    });
}

#[test]
fn several_threads_share_a_port() {
    for transport in [R2P2, HOMA] {
        let servers = serving(transport).bind_group("127.0.0.1:0", 2).unwrap();
        let address = servers[0].local_address();
        let stops: Vec<_> = servers.iter().map(Server::stop_handle).collect();
        std::thread::scope(|scope| {
            let threads: Vec<_> = servers
                .into_iter()
                .map(|mut server| scope.spawn(move || server.run(reverse)))
                .collect();
            let guard = OnDrop(Some(|| stops.iter().for_each(|stop| stop.stop())));
            for seed in 0..8 {
                let client = patient(transport).connect(address).unwrap();
                let request = pattern(50_000, seed);
                assert!(client.call(&request).unwrap().iter().rev().eq(&request), "{transport:?}");
            }
            drop(guard);
            threads.into_iter().for_each(|thread| thread.join().unwrap().unwrap());
        });
    }
    let error = serving(HOMA_IP).bind_group("127.0.0.1:0", 2).unwrap_err();
    assert!(matches!(error, Error::Open { source, .. } if source.kind() == ErrorKind::Unsupported));
}

#[test]
fn a_call_that_could_not_be_made_does_not_age_the_next() {
    with_server(Server::bind("127.0.0.1:0").unwrap(), reverse, |target| {
        let client =
            ClientBuilder::new().timeout(Duration::from_millis(500)).connect(target).unwrap();
        assert!(client.start(&vec![0; (8 << 20) + 1]).is_err());
        // Another client's call that nobody answers passes the time.
        let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
        let other = ClientBuilder::new()
            .timeout(Duration::from_millis(600))
            .connect(nobody.local_addr().unwrap())
            .unwrap();
        assert!(other.call(b"").unwrap_err().is_deadline());
        assert_eq!(&client.call(b"ping").unwrap()[..], b"gnip");
    });
}

#[test]
fn a_client_serves_nobody_whatever_its_configuration() {
    // It is open, and nobody reads it.
    let nobody = UdpSocket::bind("127.0.0.1:0").unwrap();
    for transport in [R2P2, HOMA] {
        let open = patient(transport)
            .config(Config::default())
            .homa_config(tailcut::homa::Config::default());
        let client = open.connect(nobody.local_addr().unwrap()).unwrap();
        let port = client.local_address().port();
        let other = patient(transport).connect(("127.0.0.1", port)).unwrap();
        let call = other.start(b"hello").unwrap();
        let short = Duration::from_millis(50);
        assert!(client.call_with(b"", CallOptions::default(), short).is_err());
        let error = call.wait().unwrap_err();
        // A client of Homa hears its server alone, and the kernel says so to others.
        let is_told = match transport {
            HOMA => error.is_unreachable(),
            _ => error.is_refused(),
        };
        assert!(is_told, "{transport:?}: {error}");
    }
}

#[tokio::test]
async fn a_call_never_gets_the_reply_of_another_that_was_dropped() {
    for transport in transports() {
        let mut server = server(transport);
        let (address, stop) = (server.local_address(), server.stop_handle());
        let thread = std::thread::spawn(move || server.run(reverse));
        let client = patient(transport).connect_async(address).unwrap();
        for n in 0..2000u64 {
            let dropped = client.call((n + 1_000_000).to_be_bytes());
            if n % 3 == 0 {
                tokio::task::yield_now().await;
            }
            drop(dropped);
            assert_eq!(
                client.call(n.to_be_bytes()).await.unwrap(),
                n.to_le_bytes(),
                "{transport:?}"
            );
        }
        stop.stop();
        thread.join().unwrap().unwrap();
    }
}

#[tokio::test]
async fn tasks_call_at_once_and_a_dropped_future_cancels() {
    for transport in transports() {
        let mut server = server(transport);
        let (address, stop) = (server.local_address(), server.stop_handle());
        let thread = std::thread::spawn(move || server.run(reverse));
        let client = patient(transport).connect_async(address).unwrap();
        drop(client.call("never mind"));
        let call = |n: u64| {
            let client: AsyncClient = client.clone();
            tokio::spawn(async move { client.call(n.to_be_bytes()).await.unwrap() })
        };
        let tasks: Vec<_> = (0..100).map(call).collect();
        for (n, task) in (0..100u64).zip(tasks) {
            assert_eq!(task.await.unwrap(), n.to_le_bytes(), "{transport:?}");
        }
        stop.stop();
        thread.join().unwrap().unwrap();
        let short = client
            .call_with("gone", CallOptions::default(), Duration::from_millis(30))
            .await
            .unwrap_err();
        assert!(
            matches!(short, Error::Failed { source: Failure::Deadline, .. }),
            "{transport:?}: {short}"
        );
    }
}
