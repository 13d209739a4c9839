//! A router in virtual time, with clients and servers written by hand.
//!
//! | call | what it does |
//! |---|---|
//! | [`Bench::send`] | a datagram arrives; what the router sends at once comes back |
//! | [`Bench::advance`] | time passes; what the router sends meanwhile comes back |
//! | [`FakeServer::take`] | a server receives a datagram; its answer to a probe comes back |
//! | [`FakeServer::conclude`] | a server ends so many requests; its feedback comes back |

use std::net::SocketAddr;

use tailcut_proto::node::{Node, Path, Source, Time};
use tailcut_proto::router::{
    Router, RouterConfig, RouterMetrics, ServerConfig, ServerState, Speaks,
};
use tailcut_wire::r2p2::{
    CloneMark, DropReason, FeedbackBody, Flags, Kind, MessageType, Packet, Policy, ReplyRepr,
    RequestRepr, Route, RpcId, Segment,
};
use zerocopy::IntoBytes;

pub(crate) const MS: Time = 1_000_000;

/// A datagram that the router sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) to: SocketAddr,
    pub(crate) from: Source,
    pub(crate) bytes: Vec<u8>,
}

pub(crate) struct Bench {
    pub(crate) router: Router,
    pub(crate) now: Time,
}

impl Bench {
    /// A router over `count` servers of one kind, those of `server(0..)`, which have answered its
    /// first probes.
    pub(crate) fn new(speaks: Speaks, count: u16, change: impl FnOnce(&mut RouterConfig)) -> Self {
        let servers =
            (0..count).map(|index| ServerConfig { addr: server(index), speaks }).collect();
        let mut config = RouterConfig {
            policy: "jbsq:2".parse().unwrap(),
            servers,
            silent_ns: 50_000_000,
            silent_ns_max: 50_000_000,
            ..RouterConfig::default()
        };
        change(&mut config);
        let mut bench = Self { router: Router::new(0, config).unwrap(), now: 0 };
        let probes = bench.advance(0);
        for Sent { to, bytes, .. } in probes {
            let feedback = FakeServer { addr: to, ..FakeServer::new(0) }.take(&bytes);
            bench.send(to, &feedback.expect("a probe is answered"));
        }
        bench
    }

    pub(crate) fn send(&mut self, path: impl Into<Path>, bytes: &[u8]) -> Vec<Sent> {
        self.router.handle_datagram(self.now, path.into(), &mut bytes.to_vec());
        self.drain()
    }

    /// Sends a request and gives the index of the server that got it, `None` when nobody did.
    pub(crate) fn place(&mut self, bytes: &[u8]) -> Option<u16> {
        let sent = self.send(client(), bytes);
        assert!(sent.len() <= 1, "{sent:?}");
        sent.first()
            .filter(|sent| sent.to.ip() == server(0).ip())
            .map(|sent| sent.to.port() - server(0).port())
    }

    pub(crate) fn advance(&mut self, time: Time) -> Vec<Sent> {
        let end = self.now + time;
        let mut sent = Vec::new();
        while let Some(due) = self.router.poll_timeout().filter(|&due| due <= end) {
            self.now = self.now.max(due);
            self.router.handle_timeout(self.now);
            sent.extend(self.drain());
        }
        self.now = end;
        sent
    }

    /// Lets time pass until `now` with nothing to do: what comes then has not waited in the socket.
    pub(crate) fn rest_until(&mut self, now: Time) {
        for left in (0..20).rev() {
            self.now = now - left * MS;
            self.router.handle_timeout(self.now);
            self.drain();
        }
    }

    /// Lets time pass while these servers answer their probes.
    pub(crate) fn live(&mut self, servers: &mut [&mut FakeServer], time: Time) {
        let end = self.now + time;
        while self.now < end {
            for sent in self.advance((end - self.now).min(MS / 4)) {
                for server in servers.iter_mut().filter(|server| server.addr == sent.to) {
                    if let Some(feedback) = server.take(&sent.bytes) {
                        self.send(server.addr, &feedback);
                    }
                }
            }
        }
    }

    pub(crate) fn outstanding(&self) -> Vec<u32> {
        self.router.status().servers.iter().map(|server| server.outstanding).collect()
    }

    pub(crate) fn states(&self) -> Vec<ServerState> {
        self.router.status().servers.iter().map(|server| server.state).collect()
    }

    pub(crate) fn metrics(&self) -> RouterMetrics {
        self.router.metrics()
    }

    pub(crate) fn drain(&mut self) -> Vec<Sent> {
        let mut buffer = vec![0; 70_000];
        let mut sent = Vec::new();
        while let Some(transmit) = self.router.poll_transmit(self.now, &mut buffer) {
            for bytes in buffer[..transmit.len].chunks(transmit.segment_len) {
                sent.push(Sent { to: transmit.to, from: transmit.from, bytes: bytes.to_vec() });
            }
        }
        sent
    }
}

/// A tailcut server's side of the accounting.
pub(crate) struct FakeServer {
    pub(crate) addr: SocketAddr,
    pub(crate) epoch: u32,
    pub(crate) seen: u32,
    pub(crate) received: u32,
    pub(crate) concluded: u32,
    /// Load that it reports.
    pub(crate) load: u16,
    /// Part of that load which waits.
    pub(crate) waiting: u16,
    /// Servers that it stands for.
    pub(crate) members: u32,
    /// Flags of its reports.
    pub(crate) flags: u8,
}

impl FakeServer {
    pub(crate) fn new(index: u16) -> Self {
        Self {
            addr: server(index),
            epoch: 1,
            seen: 0,
            received: 0,
            concluded: 0,
            load: 0,
            waiting: 0,
            members: 0,
            flags: 0,
        }
    }

    pub(crate) fn take(&mut self, bytes: &[u8]) -> Option<Vec<u8>> {
        let packet = Packet::parse(bytes).unwrap();
        match packet.message_type {
            MessageType::Request => {
                self.seen = route(bytes).placement.get();
                self.received += 1;
                None
            }
            MessageType::Probe => {
                self.seen = u32::from_be_bytes(packet.payload.try_into().unwrap());
                Some(self.feedback())
            }
            other => panic!("{other:?}"),
        }
    }

    pub(crate) fn conclude(&mut self, count: u32) -> Vec<u8> {
        self.concluded += count;
        self.feedback()
    }

    pub(crate) fn feedback(&self) -> Vec<u8> {
        let body = FeedbackBody {
            epoch: self.epoch.into(),
            placement_seen: self.seen.into(),
            received: self.received.into(),
            concluded: self.concluded.into(),
        };
        let report = ReplyRepr::control(MessageType::Feedback, 0, RpcId(0));
        let repr = ReplyRepr {
            server_load: self.load,
            server_waiting: self.waiting,
            detail: self.members,
            flags: self.flags,
            ..report
        };
        let header = repr.header();
        [header.as_bytes(), body.as_bytes()].concat()
    }
}

/// Fields that a client may set in a request.
#[derive(Clone, Copy, Default)]
pub(crate) struct Ask {
    pub(crate) id: u64,
    pub(crate) flags: u8,
    pub(crate) deadline_us: u32,
    pub(crate) age_ms: u16,
    pub(crate) is_fixed: bool,
    pub(crate) route: Route,
}

impl Ask {
    pub(crate) fn id(id: u64) -> Self {
        Self { id, ..Self::default() }
    }

    /// A request of 4 bytes in one packet.
    pub(crate) fn bytes(self) -> Vec<u8> {
        let repr = RequestRepr {
            policy: if self.is_fixed { Policy::Fixed } else { Policy::Unrestricted },
            segment: Segment { message_len: 4, segment_len: 1_400, ..Segment::CONTROL },
            flags: self.flags,
            deadline_us: self.deadline_us,
            age_ms: self.age_ms,
            ..RequestRepr::control(MessageType::Request, self.id as u16, RpcId(self.id))
        };
        [repr.header().as_bytes(), self.route.as_bytes(), b"ping"].concat()
    }
}

pub(crate) fn client() -> SocketAddr {
    SocketAddr::from(([10, 1, 0, 1], 4_000))
}

pub(crate) fn server(index: u16) -> SocketAddr {
    SocketAddr::from(([10, 2, 0, 1], 8_000 + index))
}

pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    digits
        .chunks(2)
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

pub(crate) fn v1_request(rid: u16) -> Vec<u8> {
    hex(&format!("cc0800c0{rid:04x}000131323334"))
}

/// A version 1 feedback with the reference's uninitialised bytes.
pub(crate) fn v1_feedback() -> Vec<u8> {
    hex("ccec202cfd7f00000002a7f97f000001")
}

pub(crate) fn route(bytes: &[u8]) -> Route {
    let packet = Packet::parse(bytes).unwrap();
    match packet.kind {
        Kind::Request { route: Some(route), .. } => *route,
        _ => panic!("no route in {packet}"),
    }
}

/// The reason of the one extended DROP in `sent`.
pub(crate) fn drop_reason(sent: &[Sent]) -> DropReason {
    assert_eq!(sent.len(), 1, "{sent:?}");
    let packet = Packet::parse(&sent[0].bytes).unwrap();
    assert_eq!(packet.message_type, MessageType::Drop);
    assert!(packet.is_extended());
    DropReason::from_payload(packet.payload)
}

/// A request that may run twice, with a clone mark.
pub(crate) fn idempotent(id: u64, mark: CloneMark) -> Vec<u8> {
    let flags = Flags(Flags::IDEMPOTENT).with_clone_mark(mark).0;
    Ask { flags, ..Ask::id(id) }.bytes()
}

/// A cancel of a call that one of its clones has won.
pub(crate) fn cancel(id: u64, winner: CloneMark) -> Vec<u8> {
    let control = RequestRepr::control(MessageType::Cancel, 0, RpcId(id));
    RequestRepr { flags: winner.bits(), ..control }.header().as_bytes().to_vec()
}
