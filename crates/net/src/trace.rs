//! A trace: the packets of one connection and the decisions of its node, written as pcapng.
//!
//! | record | what it has |
//! |---|---|
//! | a packet | its bytes, under IP and UDP headers that are made up: the real ones are the kernel's |
//! | its comment | where a router placed it, and for whom |
//! | a comment alone | which counters of decisions rose in a turn, and how far |
//!
//! The connection is a node and a peer, the first that a packet other than a router's own chatter
//! goes to or comes from. A router's traces the client: its requests, and where they went.
//!
//! Invariant: a driver that has no trace runs unobserved and pays nothing; one that has writes on
//! its own thread, and never more than [`TraceConfig::bytes_max`].

use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use etherparse::IpNumber;
use tailcut_proto::endpoint::Metrics;
use tailcut_proto::node::{Source, Transmit};
use tailcut_wire::r2p2::{Kind, MessageType, Packet};

use crate::clock::Clock;
use crate::datapath::routed_source;
use crate::datapath::{AnyDatapath, Datapath};
use crate::driver::{Driver, Observer, Turn};
use crate::log::{self, Trouble};
use crate::pcapng::{EMPTY_PACKET_LEN, PacketRecord, RAW_IP, SECTION, interface};
use crate::raw::{Ends, write_packet};
use crate::stamps::Stamps;

/// The configuration of a trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TraceConfig {
    /// The file, which is overwritten.
    pub path: PathBuf,
    /// The peer whose packets are traced; the first one seen by default.
    pub peer: Option<SocketAddr>,
    /// Bytes of the file at most; the last record then says that it ends there.
    pub bytes_max: u64,
}

/// A trace that is being written: an [`Observer`]. What is buffered is written when it is dropped.
#[derive(Debug)]
pub struct Trace {
    /// Nothing once the file is full, or could not be written.
    out: Option<BufWriter<File>>,
    /// Bytes that the file may still take.
    left: u64,
    /// Nanoseconds from the monotonic clock to the time of day.
    offset_ns: u64,
    /// Address and IP protocol of each node's port, by node.
    ports: Vec<(SocketAddr, IpNumber)>,
    /// The node that is traced, once a packet was seen.
    node: Option<usize>,
    /// The other end, once known.
    peer: Option<SocketAddr>,
    /// This end, as the peer sees it.
    own: SocketAddr,
    /// Totals of the node's counters at the end of the last turn.
    totals: Vec<u64>,
    /// The node may have worked for others before it is traced.
    is_late: bool,
    /// A packet has been written in this turn.
    is_touched: bool,
}

impl Trace {
    /// A trace into a new file.
    ///
    /// # Errors
    ///
    /// What the system says when the file cannot be made.
    pub fn create(config: &TraceConfig) -> io::Result<Self> {
        let mut trace = Self {
            out: Some(BufWriter::new(File::create(&config.path)?)),
            left: config.bytes_max,
            offset_ns: time_of_day_ns().saturating_sub(Clock.now()),
            ports: Vec::new(),
            node: None,
            peer: config.peer.map(canonical),
            own: SocketAddr::from(([0, 0, 0, 0], 0)),
            totals: Vec::new(),
            is_late: config.peer.is_some(),
            is_touched: false,
        };
        trace.write(&SECTION);
        trace.write(&interface(RAW_IP));
        Ok(trace)
    }

    /// Learns of the ports that a driver has; to call after ports were added.
    pub fn watch<N: tailcut_proto::node::Node>(&mut self, driver: &Driver<N>) {
        for index in self.ports.len()..driver.count() {
            let port = driver.port(index);
            let protocol = match port {
                AnyDatapath::Udp(_) => IpNumber::UDP,
                AnyDatapath::Ip(port) => IpNumber(port.ip_protocol()),
                AnyDatapath::Xdp(port) => IpNumber(port.ip_protocol()),
            };
            self.ports.push((port.local_address(), protocol));
        }
    }

    /// To call after each turn: writes which counters have risen, where the turn had a packet of
    /// the connection or a timeout. `read` gives a node's counters, always in the same order.
    pub fn look<N: tailcut_proto::node::Node, T: IntoIterator<Item = Trouble>>(
        &mut self,
        driver: &Driver<N>,
        turn: Turn,
        read: impl Fn(&N) -> T,
    ) {
        let Some(node) = self.node.filter(|_| !turn.is_idle() && self.out.is_some()) else {
            return;
        };
        // Counters are the node's: what rose while it was busy with others is not said of this one.
        let is_told = std::mem::take(&mut self.is_touched) || turn.timeouts > 0;
        let mut comment = String::new();
        for (place, Trouble { counter, total, .. }) in
            read(driver.node(node)).into_iter().enumerate()
        {
            if place == self.totals.len() {
                // What rose earlier is not this connection's.
                self.totals.push(if self.is_late { total } else { 0 });
            }
            let before = std::mem::replace(&mut self.totals[place], total);
            if is_told && total > before {
                let comma = if comment.is_empty() { "" } else { ", " };
                let _ = write!(comment, "{comma}{counter} +{}", total - before);
            }
        }
        if !comment.is_empty() {
            self.record(&[], &comment);
        }
    }

    /// True for a packet to or from the connection's peer, which the first packet decides.
    fn is_traced(&mut self, node: usize, peer: SocketAddr, bytes: &[u8]) -> bool {
        let peer = canonical(peer);
        let is_first = self.node.is_none()
            && self.peer.is_none_or(|wanted| wanted == peer)
            && !is_background(bytes);
        if is_first {
            (self.node, self.peer) = (Some(node), Some(peer));
            self.own = canonical(routed_source(self.ports[node].0, peer));
        }
        self.node == Some(node) && self.peer == Some(peer)
    }

    /// Writes a packet of the traced node.
    fn packet(&mut self, (from, to): (SocketAddr, SocketAddr), bytes: &[u8], comment: &str) {
        self.is_touched = true;
        let protocol = self.node.map_or(IpNumber::UDP, |node| self.ports[node].1);
        let mut frame = Vec::new();
        // A node's packets have ends of one family, and none is longer than IP allows.
        let _ = write_packet(&mut frame, &Ends { from, to, traffic_class: 0, protocol }, bytes);
        self.record(&frame, comment);
    }

    /// Writes an enhanced packet block, unless the file would become too long: then its end.
    fn record(&mut self, frame: &[u8], comment: &str) {
        let at = Clock.now().wrapping_add(self.offset_ns);
        let block = enhanced_packet(at, frame, comment);
        if block.len() as u64 + END_LEN <= self.left {
            return self.write(&block);
        }
        if self.out.is_some() {
            tracing::warn!("the trace is full and ends");
            self.write(&enhanced_packet(at, &[], END));
            self.out = None;
        }
    }

    fn write(&mut self, block: &[u8]) {
        let Some(out) = &mut self.out else { return };
        self.left = self.left.saturating_sub(block.len() as u64);
        if let Err(error) = out.write_all(block) {
            tracing::warn!(%error, "the trace cannot be written and ends");
            self.out = None;
        }
    }
}

impl Observer for Trace {
    fn handle_received(&mut self, node: usize, peer: SocketAddr, bytes: &[u8], _stamps: Stamps) {
        if self.out.is_some() && self.is_traced(node, peer, bytes) {
            self.packet((canonical(peer), self.own), bytes, "");
        }
    }

    fn handle_transmit(&mut self, node: usize, transmit: &mut Transmit, bytes: &[u8]) {
        if self.out.is_none() {
            return;
        }
        let to = canonical(transmit.to);
        for datagram in bytes.chunks(transmit.segment_len.max(1)) {
            let client = routed_client(transmit.from, datagram);
            // What a router sends on is its client's, wherever it goes.
            if !self.is_traced(node, client.unwrap_or(to), datagram) {
                continue;
            }
            let from = match transmit.from {
                Source::Any => self.own,
                Source::Toward(peer) => canonical(routed_source(self.ports[node].0, peer)),
                Source::Local(ip) => canonical(SocketAddr::new(ip, self.own.port())),
                Source::Spoofed(from) => canonical(from),
            };
            let comment = client.map(|client| format!("placed on {to} for {client}"));
            self.packet((from, to), datagram, comment.as_deref().unwrap_or_default());
        }
    }

    fn handle_sent(&mut self, _node: usize, _token: u64, _stamps: Stamps) {}
}

/// An endpoint's counters of trouble and of decisions, for [`Trace::look`].
pub fn of_endpoint(metrics: &Metrics) -> impl Iterator<Item = Trouble> + use<> {
    let decisions = match metrics {
        Metrics::R2p2(metrics) => vec![
            ("resent", metrics.resent),
            ("validations", metrics.validations),
            ("cancelled", metrics.common.cancelled),
        ],
        Metrics::Homa(metrics) => vec![
            ("resent_bytes", metrics.resent_bytes),
            ("grants", metrics.grants),
            ("resends", metrics.resends),
            ("busy", metrics.busy),
            ("need_acks", metrics.need_acks),
            ("cutoffs_changed", metrics.cutoffs_changed),
            ("cancelled", metrics.common.cancelled),
        ],
    };
    let decision = |(counter, total)| Trouble { counter, text: "", total };
    decisions.into_iter().map(decision).chain(log::of_endpoint(metrics))
}

/// The client that a router sends a request on for, by either way of sending on.
fn routed_client(from: Source, datagram: &[u8]) -> Option<SocketAddr> {
    if let Source::Spoofed(client) = from {
        return Some(canonical(client));
    }
    match Packet::parse_clear(datagram).ok()?.kind {
        Kind::Request { route: Some(route), .. } if route.client_port.get() != 0 => {
            Some(canonical(SocketAddr::new(route.client_ip.into(), route.client_port.get())))
        }
        _ => None,
    }
}

/// True for packets of no call: those that routers and servers exchange.
fn is_background(bytes: &[u8]) -> bool {
    Packet::parse_clear(bytes).is_ok_and(|packet| match packet.message_type {
        MessageType::Probe | MessageType::Feedback => true,
        // A server gives a router that it does not know its token.
        MessageType::Ack => packet.rpc_id().is_some_and(|id| id.0 == 0),
        _ => false,
    })
}

fn canonical(address: SocketAddr) -> SocketAddr {
    SocketAddr::new(address.ip().to_canonical(), address.port())
}

/// The time of day, so that traces and captures of several hosts can be merged.
#[expect(clippy::disallowed_methods, reason = "a capture's times are of the day")]
fn time_of_day_ns() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64)
}

/// The block of a packet, with a comment unless that is empty.
fn enhanced_packet(at_ns: u64, frame: &[u8], comment: &str) -> Vec<u8> {
    let wire_len = frame.len() as u32;
    PacketRecord { interface: 0, at_ns, frame, wire_len, comment }.to_block()
}

/// The last record of a file that is full, and room for it.
const END: &str = "the trace is full and ends here";
const END_LEN: u64 = (EMPTY_PACKET_LEN + 8 + END.len().next_multiple_of(4)) as u64;
