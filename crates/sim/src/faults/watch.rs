//! Stands beside every host of a run and checks each datagram that arrives there or leaves.
//!
//! | invariant | what is counted |
//! |---|---|
//! | amplification | by server, client and call: bytes in and out, until the client has echoed a token of the server |
//! | bound | by server: requests that its application has, of those that the router's policy placed there |
//! | at most once | how often the application got each request that is not idempotent |
//!
//! **The bound** is what a router can promise: its count of a server includes what packets in
//! flight allow it to know. So a request counts against the bound where the router's *policy*
//! placed it (a duplicate goes where its original went, and a fixed call to the first server, both
//! past the bound), where it reached the server before a later placement or a probe told the server
//! to take it for lost, and where the server's counts have not begun anew since (`epoch`, in
//! docs/protocol/r2p2.md). By induction over placements the router's `outstanding` is never less
//! than the number of these.
//!
//! **At most once** has a documented hole (docs/concepts.md): a first transmission carries no age,
//! so that a second copy of it which reaches a server or a router after a restart runs again, as if
//! it were new. The watch recognises exactly that and loses the copy on its way: a packet 0 without
//! RETRANSMIT of a call that is not idempotent, of which an earlier incarnation of the same host
//! had a copy. To lose it is what a network may do at any time.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::{Ipv6Addr, SocketAddr};

use tailcut_proto::node::Time;
use tailcut_wire::homa;
use tailcut_wire::r2p2::{Flags, Kind, MessageType, Packet, Policy, Route};

use super::plan::{Host, Moment, Plan, Transport};
use super::{Invariant, Violation};
use crate::network::Damage;

/// What is known of a run from its datagrams.
#[derive(Debug)]
pub(super) struct Watch {
    /// The virtual time.
    pub(super) now: Time,
    /// The first invariant that did not hold.
    pub(super) violation: Option<Violation>,
    /// Copies lost because of the hole in at most once.
    pub(super) excused: u64,
    /// Requests that a later placement or a probe overtook.
    pub(super) overtaken: u64,
    transport: Transport,
    /// Whether datagrams can be trusted to be what their sender wrote.
    is_strict: bool,
    /// A router whose table is full cannot know of what it refused, so that a copy may be placed.
    forgets_refusals: bool,
    /// Whether each call may run once.
    is_once: Vec<bool>,
    /// How often each call was handed to an application.
    runs: Vec<u32>,
    /// Calls that were refused, with the promise that they have not run.
    is_refused: Vec<bool>,
    servers: Vec<ServerBook>,
    router: RouterBook,
    /// Restarts of each host.
    incarnations: BTreeMap<Host, u32>,
    /// The incarnation of each host that first had a copy of a call that may run once.
    had: BTreeMap<(Host, u32), u32>,
    /// The same of Homa, by the call's id: any packet of a request is enough to refuse it.
    had_ids: BTreeMap<(Host, u64), u32>,
    /// What happened last, oldest first; at most `trace_len`.
    trace: VecDeque<String>,
    trace_len: usize,
    /// The last probe to and report of each server; the same again is not worth a line.
    last_counts: BTreeMap<(Host, bool), Vec<u8>>,
}

/// A server since it started.
#[derive(Debug, Default)]
struct ServerBook {
    is_trusting: bool,
    is_pooled: bool,
    /// The token that each client was given, or 0.
    tokens: Vec<u64>,
    /// Clients that have echoed it.
    validated: Vec<bool>,
    /// Bytes in and out of each call of a client that has not.
    ledger: BTreeMap<(usize, u64), (u64, u64)>,
    /// The router's placement that it has seen last.
    seen: Option<u32>,
    /// Calls of which a first packet has arrived, and whether they count against the bound.
    arrivals: BTreeMap<u32, bool>,
    /// Of these, the ones that the application has.
    live: BTreeSet<u32>,
}

/// The router since it started.
#[derive(Debug, Default)]
struct RouterBook {
    /// Its largest bound so far, where it has one.
    bound: Option<u32>,
    /// Calls that it has forwarded.
    forwarded: BTreeSet<u64>,
    /// Placements that its policy made and that are still to arrive.
    placed: BTreeSet<(usize, u32)>,
    /// Bytes in and out of each client.
    ledger: BTreeMap<usize, (u64, u64)>,
}

/// How a placement arrived among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Behind all before.
    Ahead,
    /// A later one, or a probe, was there before.
    Overtaken,
    /// The server does not count it.
    Uncounted,
}

impl Watch {
    pub(super) fn new(plan: &Plan, trace_len: usize) -> Self {
        let clients = plan.clients.len();
        let book = |server: &super::plan::ServerPlan| ServerBook {
            is_trusting: server.is_trusting,
            is_pooled: server.is_pooled,
            tokens: vec![0; clients],
            validated: vec![false; clients],
            ..ServerBook::default()
        };
        Self {
            now: 0,
            violation: None,
            excused: 0,
            overtaken: 0,
            transport: plan.transport,
            is_strict: plan.damage == Damage::Noticed,
            forgets_refusals: (plan.router.as_ref())
                .is_some_and(|router| router.config.table_len_max < plan.calls.len()),
            is_once: plan.calls.iter().map(|call| !call.is_idempotent).collect(),
            runs: vec![0; plan.calls.len()],
            is_refused: vec![false; plan.calls.len()],
            servers: plan.servers.iter().map(book).collect(),
            router: RouterBook::default(),
            incarnations: BTreeMap::new(),
            had: BTreeMap::new(),
            had_ids: BTreeMap::new(),
            trace: VecDeque::new(),
            trace_len,
            last_counts: BTreeMap::new(),
        }
    }

    /// Notes a violation, the first one only.
    pub(super) fn violate(&mut self, invariant: Invariant, detail: impl FnOnce() -> String) {
        if self.violation.is_none() {
            self.violation = Some(Violation { invariant, at: self.now, detail: detail() });
        }
    }

    /// Notes a line for people.
    pub(super) fn say(&mut self, line: impl FnOnce() -> String) {
        if self.trace_len > 0 {
            if self.trace.len() == self.trace_len {
                self.trace.pop_front();
            }
            self.trace.push_back(format!("{} {}", Moment(self.now), line()));
        }
    }

    pub(super) fn take_trace(&mut self) -> Vec<String> {
        std::mem::take(&mut self.trace).into()
    }

    /// A host has died.
    pub(super) fn crashed(&mut self, host: Host) {
        *self.incarnations.entry(host).or_default() += 1;
        match host {
            Host::Router => {
                self.router = RouterBook::default();
                self.servers.iter_mut().for_each(ServerBook::begin_anew);
            }
            Host::Server(index) => {
                let book = &mut self.servers[index];
                let kept = std::mem::take(book);
                let clients = kept.tokens.len();
                *book = ServerBook {
                    is_trusting: kept.is_trusting,
                    is_pooled: kept.is_pooled,
                    ..ServerBook::default()
                };
                book.tokens = if kept.is_pooled { kept.tokens } else { vec![0; clients] };
                book.validated = vec![false; clients];
            }
            Host::Client(_) => {}
        }
    }

    /// The router's bound at this moment.
    pub(super) fn note_bound(&mut self, bound: Option<u32>) {
        self.router.bound = self.router.bound.max(bound);
    }

    /// A datagram is about to be handed to `host`; whether it shall be.
    pub(super) fn arrives(&mut self, host: Host, from: SocketAddr, bytes: &[u8]) -> bool {
        if self.transport != Transport::R2p2 {
            return self.arrives_homa(host, from, bytes);
        }
        let is_taken = match Packet::parse(bytes) {
            Ok(packet) if self.is_strict => self.look_at_arrival(host, from, &packet, bytes.len()),
            _ => true,
        };
        if self.trace_len == 0 || self.is_old_news(host, from, bytes) {
            return is_taken;
        }
        self.say(|| {
            let from = Host::at(from).map_or_else(|| from.to_string(), |host| host.to_string());
            let end = if is_taken { "" } else { " (a copy of what ran before the restart: lost)" };
            match Packet::parse(bytes) {
                Ok(packet) => format!("{from} > {host}: {packet}{end}"),
                Err(reason) => format!("{from} > {host}: {} B, malformed: {reason:?}", bytes.len()),
            }
        });
        is_taken
    }

    /// Whether it is a probe or a report that says what the one before said.
    fn is_old_news(&mut self, host: Host, from: SocketAddr, bytes: &[u8]) -> bool {
        let kind = Packet::parse(bytes).ok().map(|packet| packet.message_type);
        let key = match (kind, Host::at(from)) {
            (Some(MessageType::Probe), _) => (host, true),
            (Some(MessageType::Feedback), Some(from)) => (from, false),
            _ => return false,
        };
        self.last_counts.insert(key, bytes.to_vec()).is_some_and(|before| before == bytes)
    }

    /// A datagram leaves `host`.
    pub(super) fn leaves(&mut self, host: Host, to: SocketAddr, bytes: &[u8]) {
        if self.transport != Transport::R2p2 {
            return self.leaves_homa(host, to, bytes);
        }
        let (Some(to), Ok(packet), true) = (Host::at(to), Packet::parse(bytes), self.is_strict)
        else {
            return;
        };
        match (host, to) {
            (Host::Server(server), Host::Client(client)) => {
                self.pay_out(server, client, &packet, bytes.len() as u64)
            }
            (Host::Router, Host::Client(client)) => {
                let paid = self.router.ledger.entry(client).or_default();
                paid.1 += bytes.len() as u64;
                let (paid_in, paid_out) = *paid;
                if paid_out > AMPLIFICATION_MAX * paid_in {
                    let detail =
                        || format!("the router sent client {client} {paid_out} B for {paid_in} B");
                    self.violate(Invariant::Amplification, detail);
                }
            }
            (Host::Router, Host::Server(server)) => self.note_placement(server, &packet),
            _ => {}
        }
    }

    /// A server's application was handed call `number`.
    pub(super) fn runs_at(&mut self, server: usize, number: u32) {
        self.say(|| format!("server {server} runs call {number}"));
        if !self.is_strict {
            return;
        }
        self.runs[number as usize] += 1;
        if self.is_once[number as usize] && self.runs[number as usize] > 1 {
            let times = self.runs[number as usize];
            self.violate(Invariant::AtMostOnce, || {
                format!("server {server} ran call {number}, which is its run {times}")
            });
        }
        if self.is_once[number as usize] && self.is_refused[number as usize] {
            self.violate(Invariant::RefusedHasNotRun, || {
                format!("server {server} runs call {number}, which was refused")
            });
        }
        let book = &mut self.servers[server];
        if book.arrivals.get(&number) == Some(&true) {
            book.live.insert(number);
        }
        let count = book.live.len();
        if let Some(bound) = self.router.bound.filter(|&bound| count > bound as usize) {
            let detail = || {
                format!(
                    "server {server} has {count} requests of the router's, whose bound is {bound}"
                )
            };
            self.violate(Invariant::Bound, detail);
        }
    }

    /// A call was refused for a reason that promises that it has not run.
    pub(super) fn refused(&mut self, number: u32) {
        if self.forgets_refusals {
            return;
        }
        self.is_refused[number as usize] = true;
        if self.is_strict && self.is_once[number as usize] && self.runs[number as usize] > 0 {
            self.violate(Invariant::RefusedHasNotRun, || {
                format!("call {number} was refused, and has run")
            });
        }
    }

    /// A server's application has call `number` no longer.
    pub(super) fn ends_at(&mut self, server: usize, number: u32) {
        let book = &mut self.servers[server];
        book.live.remove(&number);
        book.arrivals.remove(&number);
    }

    fn look_at_arrival(
        &mut self,
        host: Host,
        from: SocketAddr,
        packet: &Packet,
        len: usize,
    ) -> bool {
        let number = self.number(packet);
        if let Some(number) = number.filter(|_| !matches!(host, Host::Client(_)))
            && self.is_old_copy(host, number, packet)
        {
            self.excused += 1;
            return false;
        }
        match host {
            Host::Server(server) => {
                self.pay_in(server, from, packet, len as u64);
                self.note_arrival(server, packet, number);
            }
            Host::Router => {
                if let Some(Host::Client(client)) = Host::at(from) {
                    self.router.ledger.entry(client).or_default().0 += len as u64;
                }
            }
            Host::Client(_) => {}
        }
        true
    }

    /// The call that a first packet of a request belongs to.
    fn number(&self, packet: &Packet) -> Option<u32> {
        let is_first = packet.message_type == MessageType::Request && packet.index == 0;
        let number = u32::from_le_bytes(*packet.payload.first_chunk()?);
        (is_first && (number as usize) < self.runs.len()).then_some(number)
    }

    /// Whether the packet is what the hole in at most once lets through.
    fn is_old_copy(&mut self, host: Host, number: u32, packet: &Packet) -> bool {
        if !self.is_once[number as usize] {
            return false;
        }
        let incarnation = self.incarnations.get(&host).copied().unwrap_or(0);
        let first = *self.had.entry((host, number)).or_insert(incarnation);
        first < incarnation && !packet.flags().has(Flags::RETRANSMIT)
    }

    fn pay_in(&mut self, server: usize, from: SocketAddr, packet: &Packet, len: u64) {
        let Some(Host::Client(client)) = Host::at(client_of(from, packet)) else { return };
        let book = &mut self.servers[server];
        let token = packet.token();
        if token != 0 && token == book.tokens[client] && !book.validated[client] {
            book.validated[client] = true;
        }
        if !book.validated[client] {
            let id = packet.rpc_id().map_or(0, |id| id.0);
            book.ledger.entry((client, id)).or_default().0 += len;
        }
    }

    /// A datagram of Homa is about to be handed to `host`; whether it shall be.
    fn arrives_homa(&mut self, host: Host, from: SocketAddr, bytes: &[u8]) -> bool {
        let is_taken = match homa::Packet::parse(bytes) {
            Ok(packet) if self.is_strict => {
                self.look_at_homa(host, from, &packet, bytes.len() as u64)
            }
            _ => true,
        };
        self.say(|| {
            let from = Host::at(from).map_or_else(|| from.to_string(), |host| host.to_string());
            let end = if is_taken { "" } else { " (a copy of what ran before the restart: lost)" };
            match homa::Packet::parse(bytes) {
                Ok(packet) => format!("{from} > {host}: {packet}{end}"),
                Err(reason) => format!("{from} > {host}: {} B, malformed: {reason:?}", bytes.len()),
            }
        });
        is_taken
    }

    fn look_at_homa(
        &mut self,
        host: Host,
        from: SocketAddr,
        packet: &homa::Packet,
        len: u64,
    ) -> bool {
        let (Host::Server(server), Some(Host::Client(client))) = (host, Host::at(from)) else {
            return true;
        };
        let book = &mut self.servers[server];
        let id = packet.common.sender_id.get();
        if let homa::Body::Data { header, .. } = packet.body {
            let token = u64::from(header.cutoff_version.get());
            book.validated[client] |= token != 0 && token == book.tokens[client];
            let incarnation = self.incarnations.get(&host).copied().unwrap_or(0);
            let first = *self.had_ids.entry((host, id)).or_insert(incarnation);
            let is_once = !header.flags().has(homa::DataFlags::IDEMPOTENT);
            if is_once && first < incarnation && header.retransmit == 0 {
                self.excused += 1;
                return false;
            }
        }
        let book = &mut self.servers[server];
        if !book.validated[client] {
            book.ledger.entry((client, id)).or_default().0 += len;
        }
        true
    }

    /// A datagram of Homa leaves `host`.
    fn leaves_homa(&mut self, host: Host, to: SocketAddr, bytes: &[u8]) {
        let (Host::Server(server), Some(Host::Client(client)), Ok(packet), true) =
            (host, Host::at(to), homa::Packet::parse(bytes), self.is_strict)
        else {
            return;
        };
        let book = &mut self.servers[server];
        if let homa::Body::Cutoffs(cutoffs) = packet.body {
            book.tokens[client] = cutoffs.version.get().into();
        }
        self.pay(server, client, (packet.common.local_id(), bytes.len() as u64));
    }

    fn pay_out(&mut self, server: usize, client: usize, packet: &Packet, len: u64) {
        let token = packet.token();
        if self.servers[server].is_pooled {
            let pool = self.servers.iter_mut().filter(|book| book.is_pooled);
            pool.for_each(|book| book.tokens[client] = token);
        }
        let book = &mut self.servers[server];
        book.tokens[client] = token;
        self.pay(server, client, (packet.rpc_id().map_or(0, |id| id.0), len));
    }

    /// A server sends a client so many bytes of a call.
    fn pay(&mut self, server: usize, client: usize, (id, len): (u64, u64)) {
        let book = &mut self.servers[server];
        if book.validated[client] || book.is_trusting {
            return;
        }
        let paid = book.ledger.entry((client, id)).or_default();
        paid.1 += len;
        let (paid_in, paid_out) = *paid;
        if paid_out > AMPLIFICATION_MAX * paid_in {
            let detail = || {
                format!(
                    "server {server} sent client {client}, which is not validated, {paid_out} B for {paid_in} B"
                )
            };
            self.violate(Invariant::Amplification, detail);
        }
    }

    /// The router has forwarded a request.
    fn note_placement(&mut self, server: usize, packet: &Packet) {
        let Some(route) = route(packet) else { return };
        let is_new = packet.rpc_id().is_some_and(|id| self.router.forwarded.insert(id.0));
        if is_new && packet.policy != Policy::Fixed {
            self.router.placed.insert((server, route.placement.get()));
        }
    }

    fn note_arrival(&mut self, server: usize, packet: &Packet, number: Option<u32>) {
        let book = &mut self.servers[server];
        if packet.message_type == MessageType::Probe {
            if let Ok(placed) = <[u8; 4]>::try_from(packet.payload) {
                let placement = u32::from_be_bytes(placed);
                book.see(placement, true);
                self.router.overtake(server, placement);
            }
            return;
        }
        let Some(number) = number else { return };
        let Some(route) = route(packet) else {
            book.arrivals.insert(number, false);
            return;
        };
        let placement = route.placement.get();
        let order = book.see(placement, route.client_port.get() != 0);
        self.overtaken += u64::from(order == Order::Overtaken);
        let counts = order == Order::Ahead && self.router.placed.contains(&(server, placement));
        book.arrivals.entry(number).and_modify(|counts| *counts = false).or_insert(counts);
        self.router.overtake(server, placement);
    }
}

impl RouterBook {
    /// A placement has arrived: those before it that come later do not count, also where the
    /// server's counts begin anew between.
    fn overtake(&mut self, server: usize, placement: u32) {
        self.placed
            .retain(|&(at, earlier)| at != server || placement.wrapping_sub(earlier) >= LEAP);
    }
}

impl ServerBook {
    /// The server's own rule for placements.
    fn see(&mut self, placement: u32, is_from_router: bool) -> Order {
        let Some(seen) = self.seen else {
            self.seen = Some(placement);
            return Order::Ahead;
        };
        let ahead = placement.wrapping_sub(seen);
        if ahead == 0 || ahead.wrapping_neg() < LEAP {
            return Order::Overtaken;
        }
        if ahead >= LEAP {
            if !is_from_router {
                return Order::Uncounted;
            }
            self.begin_anew();
        }
        self.seen = Some(placement);
        Order::Ahead
    }

    /// What it has is not the router's any more.
    fn begin_anew(&mut self) {
        self.live.clear();
        self.arrivals.values_mut().for_each(|counts| *counts = false);
    }
}

/// Whose request it is: the client's own address, or what a router has written.
fn client_of(from: SocketAddr, packet: &Packet) -> SocketAddr {
    match route(packet) {
        Some(route) if route.client_port.get() != 0 => {
            SocketAddr::new(Ipv6Addr::from(route.client_ip).to_canonical(), route.client_port.get())
        }
        _ => from,
    }
}

/// The route block, if a router has written it.
fn route<'a>(packet: &Packet<'a>) -> Option<&'a Route> {
    match packet.kind {
        Kind::Request { route, .. } => route.filter(|route| route.routed != 0),
        Kind::V1 | Kind::Reply { .. } => None,
    }
}

/// Bytes out for each byte in.
const AMPLIFICATION_MAX: u64 = 3;

/// A placement this far from the last is another router's, or of the same one restarted
/// (docs/protocol/r2p2.md).
const LEAP: u32 = 1 << 16;
