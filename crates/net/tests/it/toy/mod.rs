//! The least that can be called nodes: they cost next to nothing, so that what is measured with
//! them is the driver.

#![allow(dead_code, reason = "each test uses a part of it")]

use std::io::{self, Write};
use std::net::SocketAddr;

use tailcut_net::clock::Clock;
use tailcut_net::driver::{Driver, Wait};
use tailcut_net::ip::IpPort;
use tailcut_net::udp::{SegmentedSend, UdpConfig, UdpPort};
use tailcut_proto::node::{GSO_DATAGRAMS_MAX, Node, Path, Source, Time, Transmit};

/// Sends each datagram back, as GSO batches where consecutive ones are of one peer and one length.
pub(crate) struct Echo {
    /// As whom it answers, where it is not itself.
    pub(crate) from: Source,
    /// Datagrams received.
    pub(crate) received: u64,
    datagrams_max: usize,
    bytes: Vec<u8>,
    queue: Vec<(SocketAddr, usize)>,
    next: usize,
    next_byte: usize,
}

impl Echo {
    pub(crate) fn new(segmented_send: SegmentedSend) -> Self {
        let datagrams_max = datagrams_max(segmented_send);
        Self {
            from: Source::Any,
            received: 0,
            datagrams_max,
            bytes: Vec::new(),
            queue: Vec::new(),
            next: 0,
            next_byte: 0,
        }
    }
}

impl Node for Echo {
    #[inline]
    fn handle_datagram(&mut self, _now: Time, path: Path, bytes: &mut [u8]) {
        self.received += 1;
        self.bytes.extend_from_slice(bytes);
        self.queue.push((path.peer, bytes.len()));
    }

    fn handle_timeout(&mut self, _now: Time) {}

    #[inline]
    fn poll_transmit(&mut self, _now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        let &(to, segment_len) = self.queue.get(self.next)?;
        let count_max = self.datagrams_max.min(buffer.len() / segment_len.max(1));
        let count = self.queue[self.next..]
            .iter()
            .take(count_max)
            .take_while(|&&entry| entry == (to, segment_len))
            .count();
        let len = count * segment_len;
        buffer[..len].copy_from_slice(&self.bytes[self.next_byte..self.next_byte + len]);
        self.next += count;
        self.next_byte += len;
        if self.next == self.queue.len() {
            self.queue.clear();
            self.bytes.clear();
            (self.next, self.next_byte) = (0, 0);
        }
        Some(Transmit { segment_len, from: self.from, ..Transmit::single(to, len) })
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}

/// Keeps a number of datagrams on their way to an echo and back.
pub(crate) struct Pinger {
    /// Datagrams that came back.
    pub(crate) completed: u64,
    /// From turn to turn with an answer, in nanoseconds; as many as there is capacity for.
    pub(crate) round_trips: Vec<u64>,
    target: SocketAddr,
    len: usize,
    datagrams_max: usize,
    to_send: usize,
    last: Time,
}

impl Pinger {
    pub(crate) fn new(
        target: SocketAddr,
        len: usize,
        outstanding: usize,
        segmented_send: SegmentedSend,
    ) -> Self {
        let datagrams_max = datagrams_max(segmented_send);
        Self {
            completed: 0,
            round_trips: Vec::new(),
            target,
            len,
            datagrams_max,
            to_send: outstanding,
            last: 0,
        }
    }
}

impl Node for Pinger {
    #[inline]
    fn handle_datagram(&mut self, now: Time, _path: Path, _bytes: &mut [u8]) {
        self.completed += 1;
        self.to_send += 1;
        if self.round_trips.len() < self.round_trips.capacity() && self.last != 0 {
            self.round_trips.push(now - self.last);
        }
        self.last = now;
    }

    fn handle_timeout(&mut self, _now: Time) {}

    #[inline]
    fn poll_transmit(&mut self, _now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        if self.to_send == 0 {
            return None;
        }
        let count = self.to_send.min(self.datagrams_max).min(buffer.len() / self.len);
        let len = count * self.len;
        buffer[..len].fill(0x5a);
        self.to_send -= count;
        Some(Transmit { segment_len: self.len, ..Transmit::single(self.target, len) })
    }

    fn poll_timeout(&self) -> Option<Time> {
        None
    }
}

/// Has one deadline.
pub(crate) struct Alarm {
    /// Time at which it wants to be called; `None` once it was.
    pub(crate) deadline: Option<Time>,
    /// Time at which it was called.
    pub(crate) rang: Option<Time>,
}

impl Node for Alarm {
    fn handle_datagram(&mut self, _now: Time, _path: Path, _bytes: &mut [u8]) {}

    fn handle_timeout(&mut self, now: Time) {
        self.deadline = None;
        self.rang = Some(now);
    }

    fn poll_transmit(&mut self, _now: Time, _buffer: &mut [u8]) -> Option<Transmit> {
        None
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.deadline
    }
}

/// A driver of one node on a port of its own.
pub(crate) fn driver<N: Node>(address: &str, node: N, wait: Wait) -> Driver<N> {
    let mut driver = Driver::new(wait).expect("a driver");
    driver.add(node, port(address, SegmentedSend::On), None);
    driver
}

pub(crate) fn port(address: &str, segmented_send: SegmentedSend) -> UdpPort {
    let config = UdpConfig { segmented_send, ..UdpConfig::default() };
    UdpPort::bind(address.parse().expect("an address"), config).expect("a port")
}

/// A port over IP. `None`, said loudly past the test harness's capture, where the process may not
/// open raw sockets; CI must.
pub(crate) fn ip_port(address: &str) -> Option<IpPort> {
    match IpPort::bind(address.parse().expect("an address"), UdpConfig::default()) {
        Ok(port) => Some(port),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            assert!(error.to_string().contains("CAP_NET_RAW"), "{error}");
            assert!(
                std::env::var_os("CI").is_none_or(|is_ci| is_ci != "true"),
                "CI has the capability: {error}"
            );
            writeln!(io::stderr(), "SKIPPED: {error}").expect("standard error");
            None
        }
        Err(error) => panic!("no port: {error}"),
    }
}

/// Turns drivers in turn until `is_done`; panics when nothing comes of it.
pub(crate) fn turn_until<A: Node, B: Node>(
    a: &mut Driver<A>,
    b: &mut Driver<B>,
    mut is_done: impl FnMut(&A, &B) -> bool,
) {
    let deadline = Clock.now() + PATIENCE_NS;
    while !is_done(a.node(0), b.node(0)) {
        a.turn().expect("a turn");
        b.turn().expect("a turn");
        assert!(Clock.now() < deadline, "what was waited for did not come");
    }
}

fn datagrams_max(segmented_send: SegmentedSend) -> usize {
    if segmented_send == SegmentedSend::On { GSO_DATAGRAMS_MAX } else { 1 }
}

pub(crate) const V4: &str = "127.0.0.1:0";
pub(crate) const V6: &str = "[::1]:0";

/// Longer than any machine takes for what the tests wait for.
pub(crate) const PATIENCE_NS: u64 = 10_000_000_000;
