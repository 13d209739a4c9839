//! Connected datagrams over loopback: an echo on this thread, turned by turns with the flows.

use std::net::{SocketAddr, UdpSocket};

use tailcut_net::clock::Clock;
use tailcut_net::datagram::{DatagramConfig, DatagramEvent, Datagrams, FlowId};
use tailcut_net::driver::Wait;
use tailcut_net::stamps::Stamps;

#[test]
fn a_datagram_comes_back_over_ipv4() {
    check_flows(V4, 1, Wait::BusyPoll);
}

#[test]
fn a_datagram_comes_back_over_ipv6() {
    check_flows(V6, 1, Wait::Block { spin_ns: 0 });
}

#[test]
fn thousands_of_flows_keep_apart() {
    check_flows(V4, 2_048, Wait::BusyPoll);
    check_flows(V4, 2_048, Wait::Block { spin_ns: 0 });
}

#[test]
fn a_burst_arrives_in_order_and_whole() {
    let echo = Echo::bind(V4);
    let mut datagrams =
        Datagrams::new(Wait::BusyPoll, DatagramConfig::default()).expect("no flows");
    let flow = datagrams.open(echo.address()).expect("a flow");
    let mut received = Vec::new();
    for index in 0..200_u8 {
        datagrams.queue(flow, &[index; 9]);
    }
    datagrams.flush();
    until(|| {
        echo.turn();
        datagrams.poll(None, |_, event| received.push(format!("{event:?}"))).expect("a turn");
        received.len() == 200
    });
    let expected: Vec<String> = (0..200_u8)
        .map(|index| format!("{:?}", DatagramEvent::Bytes(&[index; 9], Stamps::default())))
        .collect();
    assert_eq!(received, expected);
    assert_eq!((datagrams.metrics().datagrams_out, datagrams.metrics().datagrams_in), (200, 200));
}

#[test]
fn nobody_listens() {
    for wait in [Wait::BusyPoll, Wait::Block { spin_ns: 0 }] {
        let address =
            UdpSocket::bind(V4).and_then(|socket| socket.local_addr()).expect("an address");
        let mut datagrams = Datagrams::new(wait, DatagramConfig::default()).expect("no flows");
        let flow = datagrams.open(address).expect("a flow");
        datagrams.send(flow, b"anybody?");
        let mut events = Vec::new();
        until(|| {
            datagrams
                .poll(None, |id, event| events.push((id, event == DatagramEvent::Refused)))
                .expect("a turn");
            !events.is_empty()
        });
        assert_eq!(events, [(flow, true)]);
    }
}

#[test]
fn a_refusal_does_not_cost_the_next_datagram() {
    let listener = UdpSocket::bind(V4).expect("a socket");
    let address = listener.local_addr().expect("an address");
    let mut datagrams =
        Datagrams::new(Wait::BusyPoll, DatagramConfig::default()).expect("no flows");
    let flow = datagrams.open(address).expect("a flow");
    drop(listener);
    datagrams.send(flow, b"refused");
    let listener = UdpSocket::bind(address).expect("the port again");
    datagrams.send(flow, b"heard");
    let mut buffer = [0; 16];
    assert_eq!(listener.recv(&mut buffer).expect("a datagram"), 5);
    let metrics = datagrams.metrics();
    assert_eq!((metrics.datagrams_out, metrics.dropped_other), (2, 0));
}

#[test]
fn what_is_too_long_is_counted() {
    let echo = Echo::bind(V4);
    let config = DatagramConfig { datagram_len_max: 100, ..DatagramConfig::default() };
    let mut datagrams = Datagrams::new(Wait::BusyPoll, config).expect("no flows");
    let flow = datagrams.open(echo.address()).expect("a flow");
    datagrams.send(flow, &[0; 65_535]);
    datagrams.send(flow, &[0; 101]);
    datagrams.send(flow, &[0; 100]);
    let mut lens = Vec::new();
    until(|| {
        echo.turn();
        let note = |_: FlowId, event: DatagramEvent<'_>| {
            if let DatagramEvent::Bytes(bytes, _) = event {
                lens.push(bytes.len());
            }
        };
        datagrams.poll(None, note).expect("a turn");
        !lens.is_empty()
    });
    let metrics = datagrams.metrics();
    assert_eq!((lens, metrics.truncated, metrics.dropped_too_large), (vec![100], 1, 1));
}

#[test]
fn flows_beyond_the_limit_are_refused() {
    let echo = Echo::bind(V4);
    let config = DatagramConfig { flows_max: 1, ..DatagramConfig::default() };
    let mut datagrams = Datagrams::new(Wait::BusyPoll, config).expect("no flows");
    datagrams.open(echo.address()).expect("a flow");
    datagrams.open(echo.address()).expect_err("the limit");
}

#[test]
fn a_warm_thread_allocates_nothing() {
    for count in [1, 64] {
        let echo = Echo::bind(V4);
        let mut datagrams =
            Datagrams::new(Wait::BusyPoll, DatagramConfig::default()).expect("no flows");
        let flows: Vec<FlowId> =
            (0..count).map(|_| datagrams.open(echo.address()).expect("a flow")).collect();
        let mut run = |rounds: usize| {
            for _ in 0..rounds {
                flows.iter().for_each(|&flow| datagrams.queue(flow, &[7; 64]));
                datagrams.flush();
                let mut answers = 0;
                until(|| {
                    echo.turn();
                    answers += datagrams.poll(None, |_, _| ()).expect("a turn");
                    answers == flows.len()
                });
            }
        };
        run(100);
        assert_eq!(allocation_counter::measure(|| run(200)).count_total, 0, "{count} flows");
    }
}

fn check_flows(at: &str, count: usize, wait: Wait) {
    let echo = Echo::bind(at);
    let mut datagrams = Datagrams::new(wait, DatagramConfig::default()).expect("no flows");
    let flows: Vec<FlowId> =
        (0..count).map(|_| datagrams.open(echo.address()).expect("a flow")).collect();
    let mut answers = vec![0; count];
    for &flow in &flows {
        datagrams.send(flow, &(flow.index() as u32).to_le_bytes());
        echo.turn();
    }
    until(|| {
        let check = |flow: FlowId, event: DatagramEvent<'_>| {
            assert_eq!(
                event,
                DatagramEvent::Bytes(&(flow.index() as u32).to_le_bytes(), Stamps::default())
            );
            answers[flow.index()] += 1;
        };
        echo.turn();
        datagrams.poll(Some(0), check).expect("a turn");
        answers.iter().all(|&answers| answers == 1)
    });
}

/// Sends back what it gets.
struct Echo(UdpSocket);

impl Echo {
    fn bind(at: &str) -> Self {
        let socket = UdpSocket::bind(at).expect("a socket");
        socket.set_nonblocking(true).expect("the option");
        Self(socket)
    }

    fn address(&self) -> SocketAddr {
        self.0.local_addr().expect("an address")
    }

    fn turn(&self) {
        let mut buffer = [0; 2048];
        while let Ok((len, from)) = self.0.recv_from(&mut buffer) {
            self.0.send_to(&buffer[..len], from).expect("an answer");
        }
    }
}

fn until(mut is_done: impl FnMut() -> bool) {
    let deadline = Clock.now() + PATIENCE_NS;
    while !is_done() {
        assert!(Clock.now() < deadline, "what is expected does not happen");
    }
}

const V4: &str = "127.0.0.1:0";
const V6: &str = "[::1]:0";

/// Longer than any machine takes for anything here.
const PATIENCE_NS: u64 = 20_000_000_000;
