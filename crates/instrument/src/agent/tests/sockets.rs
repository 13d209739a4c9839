//! A door in this process, and who knocks.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;

use tailcut_net::clock::Clock;

use super::engine::{SERVICE, slice};
use super::{LIMITS, job};
use crate::agent::frames::{Opener, Sealer};
use crate::agent::handshake::{Before, HELLO_LEN, Refusal, Session, VERSION, accept, begin};
use crate::agent::key::Key;
use crate::agent::limits::Limits;
use crate::agent::listen::{Activity, Door};
use crate::agent::message::{Order, Report};
use crate::agent::remote::connect;
use crate::agent::serve::Service;
use crate::agent::stream::{Hurried, Stream};
use crate::engine;
use crate::job::{Agent, AgentEvent, Granted, Job, LoadShare, Transport};

const SECOND_NS: u64 = 1_000_000_000;

/// The address of a new agent, whose threads end with the test's process.
fn agent(key: Option<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        Door::new(key.map(self::key), SERVICE, Activity::default()).keep(&listener)
    });
    address
}

fn key(byte: u8) -> Key {
    Key::of(&[byte; 32]).unwrap()
}

fn try_connect(address: &str, key: Option<u8>) -> anyhow::Result<Box<dyn Agent>> {
    connect(&format!("tcp:{address}").parse().unwrap(), key.map(self::key).as_ref())
}

fn check_refused(address: &str, key: Option<u8>, says: &str) {
    let error = format!("{:#}", try_connect(address, key).err().expect("it is refused"));
    assert!(error.contains(&format!("tcp:{address}")) && error.contains(says), "{error}");
}

fn check_serves(address: &str, key: Option<u8>) {
    let mut agent = try_connect(address, key).unwrap();
    agent.prepare(&job()).unwrap();
    assert!(matches!(next(&mut *agent), AgentEvent::Ready { .. }));
}

fn next(agent: &mut dyn Agent) -> AgentEvent {
    agent.poll(20 * SECOND_NS).expect("it tells something")
}

/// Says a hello of this version, without a key, and gives what comes back.
fn greet(address: &str, version: u16) -> Vec<u8> {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.write_all(&hello(version, false)).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

fn hello(version: u16, keyed: bool) -> Vec<u8> {
    let mut hello = b"tcagent\0".to_vec();
    hello.extend(version.to_le_bytes());
    hello.push(u8::from(keyed));
    hello.resize(HELLO_LEN, 0x11);
    hello
}

/// Both ends of the protocol below [`connect`].
fn session(address: &str) -> (Sealer<Stream>, Opener<Hurried>, Stream) {
    let stream = Stream::tcp(TcpStream::connect(address).unwrap()).unwrap();
    let Session { sealer, opener } =
        begin(&stream, 10 * SECOND_NS, (None, ""), Before::Nothing).unwrap();
    (sealer, opener, stream)
}

fn send(sealer: &mut Sealer<Stream>, order: &Order) {
    sealer.send(|body| order.put(body)).unwrap();
}

#[test]
fn what_the_engine_tells_arrives_unchanged_and_in_order() {
    let mut agent = try_connect(&agent(Some(1)), Some(1)).unwrap();
    let job = job();
    agent.prepare(&job).unwrap();
    assert!(
        matches!(next(&mut *agent), AgentEvent::Ready { host, .. } if host.name == "host of a test")
    );
    agent.start(SECOND_NS / 5).unwrap();
    for index in 0..10 {
        for thread in 0..job.threads {
            let told = next(&mut *agent);
            assert!(
                matches!(&told, AgentEvent::Slice { thread: t, slice: s } if *t == thread && *s == slice(&job, thread, index))
            );
        }
    }
    agent.set_connections(9).unwrap();
    agent.stop().unwrap();
    let rest: Vec<AgentEvent> = std::iter::from_fn(|| Some(next(&mut *agent)))
        .take_while(|told| !matches!(told, AgentEvent::Done))
        .collect();
    assert!(
        rest.iter().any(
            |told| matches!(told, AgentEvent::Client { client, .. } if client.reconnects == 9)
        ),
        "{rest:?}"
    );
}

/// The slice at whose end the engine tells it is at the agreed time, and the clocks here are one
/// clock.
#[test]
fn the_load_begins_at_the_agreed_time() {
    let mut agent = try_connect(&agent(None), None).unwrap();
    let job = Job { slice_ns: 1_000_000, ..job() };
    agent.prepare(&job).unwrap();
    next(&mut *agent);
    let start_ns = Clock.now() + SECOND_NS / 5;
    agent.start(SECOND_NS / 5).unwrap();
    next(&mut *agent);
    let told_ns = Clock.now();
    let uncertainty_ns = agent.start_uncertainty_ns();
    assert!((1..SECOND_NS / 10).contains(&uncertainty_ns), "{uncertainty_ns} ns");
    assert!(
        told_ns + uncertainty_ns >= start_ns + job.slice_ns,
        "it began {} ns early",
        start_ns + job.slice_ns - told_ns
    );
}

#[test]
fn a_second_job_follows_the_first() {
    let mut agent = try_connect(&agent(None), None).unwrap();
    for _ in 0..2 {
        agent.prepare(&job()).unwrap();
        assert!(matches!(next(&mut *agent), AgentEvent::Ready { .. }));
        agent.start(SECOND_NS / 10).unwrap();
        assert!(
            matches!(next(&mut *agent), AgentEvent::Slice { thread: 0, slice } if slice.index == 0)
        );
        agent.stop().unwrap();
        while !matches!(next(&mut *agent), AgentEvent::Done) {}
    }
}

#[test]
fn who_has_another_key_or_none_is_refused_and_is_told_why() {
    let keyed = agent(Some(1));
    check_refused(&keyed, Some(2), "has another key");
    check_refused(&keyed, None, "--key-file");
    check_serves(&keyed, Some(1));
    check_refused(&agent(None), Some(1), "has no key");
}

/// All that a coordinator says while it begins a session and gives signs of life.
fn overhear(address: String) -> Vec<u8> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let between = listener.local_addr().unwrap().to_string();
    let ears = thread::spawn(move || {
        let (mut coordinator, _) = listener.accept().unwrap();
        let mut agent = TcpStream::connect(address).unwrap();
        let mut back = [agent.try_clone().unwrap(), coordinator.try_clone().unwrap()];
        thread::spawn(move || {
            let [from, to] = &mut back;
            io::copy(from, to)
        });
        let mut heard = Vec::new();
        let mut bytes = [0; 4096];
        while let Ok(len @ 1..) = coordinator.read(&mut bytes) {
            heard.extend(&bytes[..len]);
            agent.write_all(&bytes[..len]).unwrap();
        }
        heard
    });
    drop(try_connect(&between, Some(1)).unwrap());
    ears.join().unwrap()
}

#[test]
fn a_session_that_was_listened_to_is_not_begun_again() {
    let heard = overhear(agent(Some(1)));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut replaying = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    replaying.write_all(&heard).unwrap();
    let stream = Stream::tcp(listener.accept().unwrap().0).unwrap();
    let refused = accept(&stream, 10 * SECOND_NS, Some(&key(1))).map(|_| ()).unwrap_err();
    let Refusal::Failed(why) = &refused else { panic!("{refused:?}") };
    assert!(why.to_string().contains("decrypt"), "{why}");
}

#[test]
fn another_version_is_refused_by_either_side_which_both_say() {
    let answer = greet(&agent(None), VERSION - 1);
    assert_eq!(answer.len(), HELLO_LEN, "a hello from which the other can say why, and no more");

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(&hello(99, false)).unwrap();
        // Until the other hangs up.
        let _ = stream.read_to_end(&mut Vec::new());
    });
    check_refused(&address, None, "speaks version 99");
    answering.join().unwrap();
}

#[test]
fn what_is_no_agent_is_told_from_one() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answering = thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        stream.write_all(b"HTTP/1.1 400 Bad Request\r\n\r\n").unwrap();
        let _ = stream.read_to_end(&mut Vec::new());
    });
    check_refused(&address, None, "is no tailcut agent");
    answering.join().unwrap();
}

#[test]
fn a_stranger_who_talks_garbage_or_nothing_keeps_nobody_out() {
    let address = agent(None);
    let silent: Vec<TcpStream> = (0..4).map(|_| TcpStream::connect(&address).unwrap()).collect();
    let mut garbage = TcpStream::connect(&address).unwrap();
    garbage.write_all(&[0x5a; 10_000]).unwrap();
    // It hangs up, in order or not, and says nothing.
    let mut answer = Vec::new();
    let _ = garbage.read_to_end(&mut answer);
    assert!(answer.is_empty());
    check_serves(&address, None);
    drop(silent);
}

/// More than there are places, and each time again.
#[test]
fn silent_connections_of_ones_own_network_shut_nobody_out() {
    let address = agent(Some(1));
    let mut silent = Vec::new();
    for _ in 0..3 {
        silent.extend((0..40).map(|_| TcpStream::connect(&address).unwrap()));
        let began = Clock.now();
        serve_soon(&address, Some(1));
        assert!(Clock.now() - began < SECOND_NS, "it does not wait for their time to be over");
    }
}

/// Address of a test's server, and the number of datagrams or commands that it has been sent.
fn answered(transport: Transport) -> (String, Arc<AtomicU64>) {
    let asked = Arc::new(AtomicU64::new(0));
    let count = asked.clone();
    if transport == Transport::Udp {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap().to_string();
        thread::spawn(move || {
            let mut bytes = [0; 2048];
            while let Ok((len, from)) = socket.recv_from(&mut bytes) {
                count.fetch_add(1, Ordering::Relaxed);
                let _ = socket.send_to(&bytes[..len], from);
            }
        });
        return (address, asked);
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    thread::spawn(move || {
        while let Ok((stream, _)) = listener.accept() {
            let (mut replies, count) = (stream.try_clone().unwrap(), count.clone());
            thread::spawn(move || {
                // A command of Redis's with three arguments is seven lines.
                for _ in BufReader::new(stream).lines().map_while(Result::ok).step_by(7) {
                    count.fetch_add(1, Ordering::Relaxed);
                    if replies.write_all(b"+OK\r\n").is_err() {
                        return;
                    }
                }
            });
        }
    });
    (address, asked)
}

/// An agent of this rate that loads indeed, asked for `job`, when it is ready.
fn loading(rate_max_per_s: f64, job: &Job) -> Box<dyn Agent> {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let limits = Limits { rate_max_per_s, ..LIMITS };
    let service = Service::new(limits, |note| eprintln!("{note}"));
    thread::spawn(move || Door::new(None, service, Activity::default()).keep(&listener));
    let mut agent = try_connect(&address, None).unwrap();
    agent.prepare(job).unwrap();
    assert!(matches!(next(&mut *agent), AgentEvent::Ready { .. }));
    agent
}

#[test]
fn a_closed_loop_keeps_the_rate_of_the_agent() {
    let (target, asked) = answered(Transport::Udp);
    let load = LoadShare::Closed { outstanding: 64 };
    let app = "echo:64".to_owned();
    let (transport, targets) = (Transport::Udp, vec![target]);
    let job = Job { transport, app, targets, load, pipeline: 64, ..job() };
    let mut agent = loading(500.0, &job);
    agent.start(SECOND_NS / 10).unwrap();
    let began = Clock.now() + SECOND_NS / 10 - agent.start_uncertainty_ns();
    while asked.load(Ordering::Relaxed) < 200 {
        let told = next(&mut *agent);
        assert!(!matches!(told, AgentEvent::Failed(_)), "{told:?}");
    }
    // Each of its two threads begins with one.
    let took_ns = Clock.now() - began;
    assert!(took_ns > (200 - 2) * SECOND_NS / 500, "200 requests in {took_ns} ns");
}

#[test]
fn a_store_is_filled_at_the_rate_of_the_agent() {
    let (target, asked) = answered(Transport::Tcp);
    let app = "redis:keys=100,get=0".to_owned();
    let load = LoadShare::Closed { outstanding: 1 };
    let (targets, preload) = (vec![target], true);
    let job =
        Job { app, targets, load, preload, threads: 1, connections: 1, no_probe: true, ..job() };
    let began = Clock.now();
    let agent = loading(500.0, &job);
    let took_ns = Clock.now() - began;
    assert!(took_ns > (100 - 1) * SECOND_NS / 500, "100 requests in {took_ns} ns");
    assert_eq!(asked.load(Ordering::Relaxed), 100);
    drop(agent);
}

/// `.invalid` has no addresses (RFC 6761), so that to look the name up again would fail.
#[test]
fn the_address_that_was_checked_is_the_one_that_is_loaded() {
    let (target, asked) = answered(Transport::Tcp);
    let granted = Granted { rate_max_per_s: None, addresses: vec![target.parse().unwrap()] };
    let app = "redis:keys=10".to_owned();
    let (targets, preload) = (vec!["changed.invalid:6379".to_owned()], true);
    let (threads, connections) = (1, 1);
    let job = Job { app, targets, preload, threads, connections, granted, no_probe: true, ..job() };
    let mut agent = engine::local();
    agent.prepare(&job).unwrap();
    assert!(matches!(next(&mut *agent), AgentEvent::Ready { .. }));
    assert_eq!(asked.load(Ordering::Relaxed), 10);
}

#[test]
fn a_frame_that_claims_four_gigabytes_ends_its_session_alone() {
    let address = agent(None);
    let (mut sealer, mut opener, _stream) = session(&address);
    sealer.write(&u32::MAX.to_le_bytes()).unwrap();
    assert!(opener.receive().is_err());
    serve_soon(&address, None);
}

#[test]
fn garbage_after_the_handshake_ends_its_session_alone() {
    let address = agent(None);
    let (_, mut opener, mut stream) = session(&address);
    stream.write_all(&[&10_u32.to_le_bytes()[..], &[0x5a; 42]].concat()).unwrap();
    assert!(opener.receive().is_err());
    serve_soon(&address, None);
}

/// The session before is over for the agent a moment after it is for the coordinator.
fn serve_soon(address: &str, key: Option<u8>) {
    for _ in 0..10_000 {
        match try_connect(address, key) {
            Ok(_) => return,
            Err(error) => assert!(format!("{error:#}").contains("busy"), "{error:#}"),
        }
    }
    panic!("it stays busy");
}

#[test]
fn a_second_coordinator_is_told_that_the_agent_is_busy() {
    let address = agent(Some(1));
    let first = try_connect(&address, Some(1)).unwrap();
    check_refused(&address, Some(1), "busy with another coordinator");
    drop(first);
}

#[test]
fn a_job_that_is_refused_or_fails_is_told_with_the_agents_name() {
    let address = agent(None);
    let mut agent = try_connect(&address, None).unwrap();
    let mut check = |job: &Job, says: &str| {
        agent.prepare(job).unwrap();
        match next(&mut *agent) {
            AgentEvent::Failed(why) => {
                assert!(why.contains(&address) && why.contains(says), "{why}")
            }
            told => panic!("{told:?}"),
        }
    };
    check(
        &Job { targets: vec!["192.0.2.1:9".to_owned()], ..job() },
        "refuses the job: 192.0.2.1:9 is at",
    );
    check(&Job { app: "none".to_owned(), ..job() }, "no server answers");
}

#[test]
fn a_start_that_comes_too_late_is_a_failure() {
    let (mut sealer, mut opener, _stream) = session(&agent(None));
    send(&mut sealer, &Order::Prepare { number: 1, job: Box::new(job()) });
    send(&mut sealer, &Order::Start { at_ns: 1 });
    loop {
        match Report::read(opener.receive().unwrap()).unwrap() {
            Report::Event { told: AgentEvent::Ready { .. }, .. } => {}
            Report::Event { told: AgentEvent::Failed(why), .. } => {
                return assert!(why.contains("too late"), "{why}");
            }
            report => panic!("{report:?}"),
        }
    }
}

#[test]
fn a_coordinator_does_not_take_slices_out_of_order() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let answering = thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let stream = Stream::tcp(stream).unwrap();
        let Session { mut sealer, mut opener } = accept(&stream, 10 * SECOND_NS, None).unwrap();
        while let Ok(body) = opener.receive() {
            let report = match Order::read(body).unwrap() {
                Order::Ping { sent_ns } => Report::Pong { sent_ns, agent_ns: 0 },
                _ => Report::Event {
                    number: 1,
                    told: AgentEvent::Slice { thread: 0, slice: slice(&job(), 0, 4_000_000_000) },
                },
            };
            sealer.send(|body| report.put(body)).unwrap();
        }
    });
    let mut agent = try_connect(&address, None).unwrap();
    agent.prepare(&job()).unwrap();
    match next(&mut *agent) {
        AgentEvent::Failed(why) => assert!(why.contains("where 0 is due"), "{why}"),
        told => panic!("{told:?}"),
    }
    answering.join().unwrap();
}
