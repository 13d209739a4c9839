//! Ends that come together: many clients at a stop's limit, a client dropped with its calls, tasks
//! that panic where they are dropped.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use tailcut::{AsyncClient, CallOptions, DropReason, Error, Failure, Responder};
use tailcut_net::datapath::Datapath;
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::udp::{UdpConfig, UdpPort};
use tailcut_proto::router::{Router, RouterConfig, ServerConfig, Speaks};

use crate::library::{HOMA, OnDrop, R2P2, patient, server};

/// Each of more clients than a burst has datagrams hears what became of its call.
#[test]
fn every_client_hears_of_a_stop_at_its_limit() {
    static KEPT: Mutex<Vec<Responder>> = Mutex::new(Vec::new());
    for transport in [R2P2, HOMA] {
        let mut server = server(transport);
        let (address, handle) = (server.local_address(), server.stop_handle());
        std::thread::scope(|scope| {
            let thread = scope
                .spawn(move || server.run(|request| KEPT.lock().unwrap().push(request.defer())));
            let clients: Vec<_> =
                (0..150).map(|_| patient(transport).connect(address).unwrap()).collect();
            let calls: Vec<_> =
                clients.iter().map(|client| client.start(b"never").unwrap()).collect();
            while KEPT.lock().unwrap().len() < clients.len() {
                std::thread::park_timeout(Duration::from_millis(1));
            }
            handle.stop_within(Duration::from_millis(10));
            for (place, call) in calls.into_iter().enumerate() {
                let error = call.wait().unwrap_err();
                let uncertain = Failure::Refused(DropReason::Uncertain);
                assert!(
                    matches!(&error, Error::Failed { source, .. } if *source == uncertain),
                    "{transport:?}, client {place}: {error}"
                );
            }
            thread.join().unwrap().unwrap();
        });
        KEPT.lock().unwrap().clear();
    }
}

/// Dropping the last call and the client in one breath still cancels the call.
#[test]
fn a_call_that_is_dropped_with_its_client_is_cancelled() {
    for transport in [R2P2, HOMA] {
        let mut server = server(transport);
        let (address, handle) = (server.local_address(), server.stop_handle());
        let (sender, receiver) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            let thread = scope
                .spawn(move || server.run(move |request| sender.send(request.defer()).unwrap()));
            let guard = OnDrop(Some(|| handle.stop_within(Duration::from_millis(10))));
            for _ in 0..20 {
                let client = patient(transport).connect_async(address).unwrap();
                let call = client.call(b"never".to_vec());
                let request: Responder = receiver.recv().unwrap();
                drop((call, client));
                for _ in 0..5000 {
                    if request.is_cancelled() {
                        break;
                    }
                    std::thread::park_timeout(Duration::from_millis(1));
                }
                assert!(request.is_cancelled(), "{transport:?}");
            }
            drop(guard);
            thread.join().unwrap().unwrap();
        });
    }
}

/// A server made by hand, of this implementation: it asks nothing, so that what comes comes by
/// itself.
#[test]
fn a_client_that_goes_acknowledges_its_last_reply() {
    for is_async in [false, true] {
        let server = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let address = server.local_addr().unwrap();
        let answered = std::thread::spawn(move || {
            let mut packet = [0; 1500];
            let (len, client) = server.recv_from(&mut packet).unwrap();
            assert_eq!((len, packet[TYPE]), (56 + 4, 0x10), "the request");
            let id = packet[ID..ID + 8].to_vec();
            let ports = [&packet[2..4], &packet[..2]].concat();
            packet[..4].copy_from_slice(&ports);
            packet[ID + 7] ^= 1;
            // It knows the flags, and sends all of it at once.
            packet[36..56].fill(0);
            packet[49] = 0x80;
            server.send_to(&packet[..len], client).unwrap();
            // Before it has the reply it may ask for it.
            loop {
                let (len, _) = server.recv_from(&mut packet).unwrap();
                if packet[TYPE] == 0x18 {
                    return (len, packet[ID..ID + 8] == id);
                }
            }
        });
        if is_async {
            let client = patient(HOMA).connect_async(address).unwrap();
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            assert_eq!(runtime.block_on(client.call("ping")).unwrap(), b"ping");
        } else {
            let client = patient(HOMA).connect(address).unwrap();
            assert_eq!(&client.call(b"ping").unwrap()[..], b"ping");
        }
        assert_eq!(answered.join().unwrap(), (80, true), "ACK of its id");
    }
}

/// Places in Homa's header.
const TYPE: usize = 11;
const ID: usize = 20;

/// A bomb in a task that is cancelled goes off when the task is dropped.
struct Bomb;

impl Drop for Bomb {
    fn drop(&mut self) {
        panic!("dropped");
    }
}

#[test]
fn a_task_that_panics_when_it_is_dropped_leaves_its_place_to_others() {
    static BEGUN: AtomicU64 = AtomicU64::new(0);
    let mut server = server(R2P2);
    let (address, handle) = (server.local_address(), server.stop_handle());
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let tasks = runtime.handle().clone();
    std::thread::scope(|scope| {
        let thread = scope.spawn(move || {
            server.run_async(&tasks, 1, |request: Responder| async move {
                if request.bytes() == b"bomb" {
                    let _bomb = Bomb;
                    BEGUN.fetch_add(1, Ordering::SeqCst);
                    std::future::pending::<()>().await;
                }
                request.reply(b"served");
            })
        });
        let guard = OnDrop(Some(|| handle.stop()));
        let client = AsyncClient::connect(address).unwrap();
        runtime.block_on(async {
            for round in 1..=3 {
                let call = client.call("bomb");
                while BEGUN.load(Ordering::SeqCst) < round {
                    tokio::task::yield_now().await;
                }
                drop(call);
                let options = CallOptions::default();
                let served = client.call_with("next", options, Duration::from_secs(20)).await;
                assert_eq!(served.unwrap(), b"served");
                assert_eq!(handle.panics(), round);
            }
        });
        drop(guard);
        thread.join().unwrap().unwrap();
    });
}

/// A client of a router hears which of the servers behind it refused, in the application's words or
/// in none, and that it was the router where that was it.
#[test]
fn a_refusal_names_the_server_behind_the_router() {
    let mut server = server(R2P2);
    let (behind, handle) = (server.local_address(), server.stop_handle());
    let servers = vec![ServerConfig { addr: behind, speaks: Speaks::Extension }];
    let config = RouterConfig { servers, ..RouterConfig::default() };
    let port = UdpPort::bind(SocketAddr::from(([127, 0, 0, 1], 0)), UdpConfig::default()).unwrap();
    let target = port.local_address();
    let mut router = Driver::new(Wait::default()).unwrap();
    router.add(Router::new(router.clock().now(), config).unwrap(), port, None);
    let (is_over, waker) = (AtomicBool::new(false), router.waker());
    std::thread::scope(|scope| {
        let serving = scope.spawn(move || {
            server.run(|request| match request.bytes() {
                b"no" => drop(request.reject(7, "not today")),
                _ => drop(request),
            })
        });
        let is_over = &is_over;
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                router.turn().unwrap();
                router.wait(None, None).unwrap();
            }
        });
        let end = OnDrop(Some(|| {
            is_over.store(true, Ordering::Relaxed);
            waker.wake();
        }));
        let stop = OnDrop(Some(|| handle.stop()));
        let client = patient(R2P2).connect(target).unwrap();
        let tasks = patient(R2P2).connect_async(target).unwrap();
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        for word in ["no", "drop"] {
            let errors = [
                client.call(word.as_bytes()).unwrap_err(),
                runtime.block_on(tasks.call(word.as_bytes())).unwrap_err(),
            ];
            for error in errors {
                assert_eq!(error.server(), Some(behind), "{error}");
                let text = error.to_string();
                assert!(text.contains(&target.to_string()), "{text}");
                assert!(text.ends_with(&format!(" (server {behind})")), "{text}");
            }
        }
        drop(stop);
        serving.join().unwrap().unwrap();
        // The server has told the router of its stop, and nobody is left to place calls on.
        let options = CallOptions::default();
        let error = client.call_with(b"no", options, Duration::from_secs(1)).unwrap_err();
        assert_eq!(error.server(), Some(target), "{error}");
        drop(end);
    });
}

/// A server that works on its own thread refuses, where one client asks for half a second's work at
/// once, what would wait for more than half of the deadline, and none hears of it too late.
#[test]
fn what_waits_too_long_for_the_servers_own_thread_is_refused() {
    for transport in [R2P2, HOMA] {
        let mut server = server(transport);
        let (address, handle) = (server.local_address(), server.stop_handle());
        std::thread::scope(|scope| {
            let serving = scope.spawn(move || {
                server.run(|request| {
                    std::thread::park_timeout(Duration::from_millis(2));
                    let _ = request.reply_in_place(|_| {});
                })
            });
            let stop = OnDrop(Some(|| handle.stop()));
            let client = patient(transport).timeout(Duration::from_millis(400));
            let client = client.connect(address).unwrap();
            let calls: Vec<_> = (0..250).map(|_| client.enqueue(&[7; 64]).unwrap()).collect();
            let results: Vec<_> = calls.into_iter().map(|call| call.wait().map(drop)).collect();
            let count = |is_so: fn(&Result<(), Error>) -> bool| {
                results.iter().filter(|result| is_so(result)).count()
            };
            let answered = count(Result::is_ok);
            let overload = count(|result| {
                let refused = Failure::Refused(DropReason::Overload);
                matches!(result, Err(Error::Failed { source, .. }) if *source == refused)
            });
            assert!(answered > 5 && overload > 100, "{transport:?}: {answered} {overload}");
            drop(stop);
            serving.join().unwrap().unwrap();
        });
    }
}
