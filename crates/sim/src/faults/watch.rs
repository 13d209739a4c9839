//! Stands beside every host of a run and checks each datagram that arrives there or leaves.
//!
//! | invariant | what is counted |
//! |---|---|
//! | amplification | by server, client and call: bytes in and out, until the client has echoed a token of the server |
//! | bound | by server: requests that its application has, of those that the router's policy placed there |
//! | at most once | how often the application got each request that is not idempotent |
//! | first reply | which call a whole reply answers that has just reached its client |
//! | clone budget | by client: calls that may have copies, and copies that have left |
//!
//! **The bound** is what a router can promise: its count of a server includes what packets in
//! flight allow it to know. A request of several packets takes a place there when it is complete,
//! which may be past the bound. So a request counts against the bound where the router's *policy*
//! placed it (a duplicate goes where its original went, and a fixed call to the first server, both
//! past the bound), where it reached the server before a later placement or a probe told the server
//! to take it for lost, and where the server's counts have not begun anew since (`epoch`, in
//! docs/protocol/r2p2.md). Nor does what a stranger brings a sealed server again: the server may
//! have refused the request, and told the router that it has it no more. By induction over
//! placements the router's `outstanding` is never less than the number of these.
//!
//! **At most once** has a documented hole (docs/concepts.md): a first transmission carries no age,
//! so that a second copy of it which reaches a server or a router after a restart runs again, as if
//! it were new. The watch recognises exactly that and loses the copy on its way: a packet 0 without
//! RETRANSMIT of a call that is not idempotent, of which an earlier incarnation of the same host
//! had a copy. To lose it is what a network may do at any time.
//!
//! So has a call that has moved to another router, which has asked the servers of that time: one
//! that was added while the call lasted may run it, where the first router places it there. The
//! watch excuses two runs of such a call if one is at such a server.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::SocketAddr;

use tailcut_proto::node::Time;
use tailcut_proto::r2p2::Copies;
use tailcut_wire::homa;
use tailcut_wire::r2p2::{CloneMark, Flags, MessageType, Packet, Policy};

use self::packet::{AnyPacket, is_returned, route};
use super::heard::Heard;
use super::openers::Openers;
use super::paid::{AMPLIFICATION_MAX, Paid};
use super::plan::{CallPlan, Host, Moment, Plan, TRANSIT_NS_MAX, Transport};
use super::recorder::Expected;
use super::replies::{Judged, ReplyBook};
use super::sealed_books::{SealedBooks, names_on, shown};
use super::{Cost, Invariant, Options, Violation};
use crate::network::Damage;

mod packet;

/// The books of a run, kept from its datagrams.
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
    /// Datagrams can be trusted to be as their sender wrote them.
    is_strict: bool,
    /// A router whose table is full cannot know of what it refused, so that a copy may be placed.
    forgets_refusals: bool,
    /// By call: it may run only once.
    is_once: Vec<bool>,
    /// By call: when no copy of it may be about any more, where datagrams may be late.
    over_at: Option<Vec<Time>>,
    /// By call: when it is made, and whether it has moved to another router.
    moves: Vec<(Time, bool)>,
    /// Times at which servers are added again, and their indices.
    added: Vec<(Time, usize)>,
    /// Number of times that each call was handed to an application.
    runs: Vec<u32>,
    /// Calls by their ids, from the requests that have left clients.
    pub(super) numbers: BTreeMap<u64, u32>,
    /// The call that the reply answers which has reached a client in this turn.
    answered: Option<u32>,
    /// Most copies in thousandths of calls, where there is such a budget.
    copies_permille: Option<u64>,
    /// By client: idempotent calls that it has made, and copies that have left.
    copies: Vec<(u64, u64)>,
    /// Calls that were refused, with the promise that they have not run.
    is_refused: Vec<bool>,
    servers: Vec<ServerBook>,
    router: RouterBook,
    /// Books of what clients pay and get for each call.
    paid: Paid,
    /// Streams of which servers know that their clients hear.
    openers: Openers,
    /// Addresses that no host has.
    strangers: BTreeMap<SocketAddr, StrangerBook>,
    /// Knowledge that they have of the run.
    pub(super) heard: Heard,
    /// Bytes in and out of each client at the second router, where there is one.
    standby: BTreeMap<usize, (u64, u64)>,
    /// A bound is one router's alone.
    has_standby: bool,
    /// Restarts of each host.
    incarnations: BTreeMap<Host, u32>,
    /// The incarnation of each host that first had a copy of a call that may run once, by the
    /// call's id.
    had: BTreeMap<(Host, u64), u32>,
    /// The last lines of the trace, oldest first; at most `trace_len`.
    trace: VecDeque<String>,
    trace_len: usize,
    /// The machine's clock, where costs are asked for, and what each datagram has cost.
    pub(super) clock: Option<fn() -> u64>,
    pub(super) costs: Vec<Cost>,
    /// The last probe to and report of each server; the same again is not worth a line.
    last_counts: BTreeMap<(Host, bool), Vec<u8>>,
    /// Books of sealed packets, where packets are sealed.
    pub(super) sealed: Option<SealedBooks>,
    /// Datagrams that have left.
    pub(super) left: u64,
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
    /// Calls of these that the application has.
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
    /// Placements of strangers' requests that are still to arrive.
    of_strangers: BTreeSet<(usize, u32)>,
    /// Bytes in and out of each client.
    ledger: BTreeMap<usize, (u64, u64)>,
    /// Replies that came back.
    replies: ReplyBook,
}

/// Books of a stranger's address: what it has paid and got.
#[derive(Debug, Default)]
struct StrangerBook {
    /// The token that it was told last, or 0.
    token: u64,
    /// It has echoed that.
    is_validated: bool,
    /// Bytes that came from there, and bytes that went there.
    ledger: (u64, u64),
}

/// Order of a placement's arrival among the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Order {
    /// Behind all before.
    Ahead,
    /// A later one, or a probe, was there before.
    Overtaken,
    /// The server does not count it.
    Uncounted,
}

/// Time from which nodes may have released a call, by its deadline and what the network may take.
fn forgotten_at(call: &CallPlan) -> Time {
    call.at + call.timeout_ns + TRANSIT_NS_MAX
}

impl Watch {
    pub(super) fn new(plan: &Plan, options: Options) -> Self {
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
            over_at: plan.is_late.then(|| plan.calls.iter().map(forgotten_at).collect()),
            moves: plan.calls.iter().map(|call| (call.at, false)).collect(),
            added: plan.servers_added(),
            runs: vec![0; plan.calls.len()],
            numbers: BTreeMap::new(),
            answered: None,
            copies_permille: match plan.copies {
                Copies::Never => Some(0),
                Copies::Always => None,
                Copies::Hedge(hedge) => Some(hedge.budget_permille.into()),
            },
            copies: vec![(0, 0); clients],
            is_refused: vec![false; plan.calls.len()],
            servers: plan.servers.iter().map(book).collect(),
            router: RouterBook::default(),
            paid: Paid::default(),
            openers: Openers::default(),
            strangers: BTreeMap::new(),
            heard: Heard::new(plan),
            standby: BTreeMap::new(),
            // What was for a server before its restart arrives, and is dropped by its seal.
            has_standby: plan.has_standby() || plan.seal.is_some() && plan.has_restarts(),
            incarnations: BTreeMap::new(),
            had: BTreeMap::new(),
            trace: VecDeque::new(),
            trace_len: options.trace_len,
            clock: options.clock,
            costs: Vec::new(),
            last_counts: BTreeMap::new(),
            sealed: SealedBooks::new(plan),
            left: 0,
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
            Host::Standby => self.standby = BTreeMap::new(),
            Host::Router => {
                self.router = RouterBook::default();
                self.servers.iter_mut().for_each(ServerBook::begin_anew);
            }
            Host::Server(index) => {
                self.openers.crashed(index);
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

    /// True if the host has died before.
    pub(super) fn has_restarted(&self, host: Host) -> bool {
        self.incarnations.contains_key(&host)
    }

    /// The router's bound at this moment.
    pub(super) fn note_bound(&mut self, bound: Option<u32>) {
        self.router.bound = self.router.bound.max(bound);
    }

    /// Checks the router's verdict on a datagram, by its counters before and after.
    pub(super) fn note_judged(&mut self, bytes: &[u8], before: Judged, after: Judged) {
        if let Some(id) = self.router.replies.note(bytes, before, after).filter(|_| self.is_strict)
        {
            self.violate(Invariant::FilterKeepsFirst, || {
                format!("the filter drops the first reply to {id:016x} that comes to the router")
            });
        }
    }

    /// A datagram is about to be handed to `host`; false if it shall be lost instead.
    pub(super) fn arrives(&mut self, host: Host, from: SocketAddr, datagram: &[u8]) -> bool {
        let life = self.life(host);
        let intruding = match &mut self.sealed {
            Some(sealed) => sealed.arrives((host, life), (from, datagram), &self.numbers),
            None => None,
        };
        let mut is_taken = true;
        let packets = shown(self.sealed.as_mut(), (from, host.address()), datagram);
        for packet in &packets {
            let datagram = if packets.len() > 1 { packet } else { datagram };
            is_taken &= self.packet_arrives((host, from, intruding), packet, datagram);
        }
        is_taken
    }

    /// A packet is about to be handed to `host`, in this datagram; false if that shall be lost
    /// instead.
    fn packet_arrives(
        &mut self,
        (host, from, intruding): (Host, SocketAddr, Option<Expected>),
        bytes: &[u8],
        datagram: &[u8],
    ) -> bool {
        let parsed = AnyPacket::parse(self.transport, bytes);
        if let (Ok(AnyPacket::R2p2(packet)), None) = (&parsed, intruding) {
            self.heard.keep_report((host, from), packet, datagram);
        }
        let is_taken = match (&parsed, intruding) {
            (Ok(packet), None) if self.is_strict => {
                self.look_at_arrival(host, from, packet, datagram.len())
            }
            (Ok(packet), Some(Expected::Anything)) if self.is_strict => {
                self.note_paid(host, from, packet, datagram.len() as u64);
                self.note_replayed(host, packet);
                true
            }
            _ => true,
        };
        if self.trace_len == 0 || self.is_old_news(host, from, (&parsed, datagram)) {
            return is_taken;
        }
        self.say(|| {
            let from = Host::at(from).map_or_else(|| from.to_string(), |host| host.to_string());
            let end = match (is_taken, intruding) {
                (false, _) => " (a copy of what ran before the restart: lost)",
                (true, None) => "",
                (true, Some(_)) => " (of a stranger)",
            };
            match parsed {
                Ok(AnyPacket::R2p2(packet)) => {
                    format!("{from} > {host}: {packet}{}{end}", names_on(datagram))
                }
                Ok(AnyPacket::Homa(packet)) => format!("{from} > {host}: {packet}{end}"),
                Err(reason) => format!("{from} > {host}: {} B, malformed: {reason}", bytes.len()),
            }
        });
        is_taken
    }

    /// Tells a probe or a report that says what the one before said.
    fn is_old_news(
        &mut self,
        host: Host,
        from: SocketAddr,
        (parsed, bytes): (&Result<AnyPacket<'_>, String>, &[u8]),
    ) -> bool {
        let Ok(AnyPacket::R2p2(packet)) = parsed else { return false };
        let key = match (packet.message_type, Host::at(from)) {
            (MessageType::Probe, _) => (host, true),
            (MessageType::Feedback, Some(from)) => (from, false),
            _ => return false,
        };
        self.last_counts.insert(key, bytes.to_vec()).is_some_and(|before| before == bytes)
    }

    /// A datagram leaves `host`.
    pub(super) fn leaves(&mut self, host: Host, to: SocketAddr, datagram: &[u8]) {
        if let Some(sealed) = self.sealed.as_mut().filter(|sealed| sealed.is_answer(datagram)) {
            if !sealed.answer_leaves(host) {
                self.violate(Invariant::Amplification, || format!("{host} answers nobody"));
            }
            return;
        }
        self.left += 1;
        if let (Some(sealed), Host::Client(_)) = (&mut self.sealed, host) {
            sealed.leaves(host, to, datagram, &mut self.numbers);
        }
        if !self.is_strict {
            return;
        }
        let packets = shown(self.sealed.as_mut(), (host.address(), to), datagram);
        for packet in &packets {
            let datagram = if packets.len() > 1 { packet } else { datagram };
            self.packet_leaves(host, to, packet, datagram);
        }
    }

    /// A packet leaves `host`, in this datagram.
    fn packet_leaves(&mut self, host: Host, to: SocketAddr, bytes: &[u8], datagram: &[u8]) {
        let len = datagram.len() as u64;
        let Ok(packet) = AnyPacket::parse(self.transport, bytes) else { return };
        let Some(to) = Host::at(to) else {
            return self.pay_stranger(host, to, (&packet, len));
        };
        match (host, to, packet) {
            // It goes on to the client, for whom the server answers.
            (Host::Server(server), Host::Router, AnyPacket::R2p2(reply)) if is_returned(&reply) => {
                let client = reply.route().and_then(|route| Host::at(route.client()));
                if let Some(Host::Client(client)) = client {
                    self.pay_out(server, client, &AnyPacket::R2p2(reply), len);
                }
            }
            (Host::Router, Host::Client(_), AnyPacket::R2p2(reply))
                if reply.message_type == MessageType::Response => {}
            (Host::Server(server), Host::Client(client), packet) => {
                self.pay_out(server, client, &packet, len)
            }
            (Host::Router | Host::Standby, Host::Client(client), packet) => {
                self.pay_in_all(client, (packet.id(), len));
                let paid = self.ledger(host).entry(client).or_default();
                paid.1 += len;
                let (paid_in, paid_out) = *paid;
                if paid_out > AMPLIFICATION_MAX * paid_in {
                    let detail =
                        || format!("the router sent client {client} {paid_out} B for {paid_in} B");
                    self.violate(Invariant::Amplification, detail);
                }
            }
            (Host::Router, Host::Server(server), AnyPacket::R2p2(packet)) => {
                self.note_placement(server, &packet)
            }
            (Host::Client(client), _, AnyPacket::R2p2(packet)) => {
                self.heard.keep_first(client, &packet, datagram);
                self.note_call(client, &packet);
            }
            (Host::Client(client), _, AnyPacket::Homa(packet)) => {
                if let (homa::Body::Data { header, .. }, true) =
                    (packet.body, packet.is_from_client())
                {
                    self.heard.keep_first_of_homa(client, header, datagram);
                }
            }
            _ => {}
        }
    }

    /// A datagram leaves for an address that no host has.
    fn pay_stranger(&mut self, host: Host, to: SocketAddr, (packet, len): (&AnyPacket<'_>, u64)) {
        let book = self.strangers.entry(to).or_default();
        book.token = packet.given_token().unwrap_or(book.token);
        book.ledger.1 += len;
        let (paid_in, paid_out) = book.ledger;
        if !book.is_validated && paid_out > AMPLIFICATION_MAX * paid_in {
            self.violate(Invariant::Amplification, || {
                format!("{host} sent {to}, a stranger, so that it had {paid_out} B for {paid_in} B")
            });
        }
    }

    /// The token that a stranger was told last, or 0.
    pub(super) fn token_told(&self, stranger: SocketAddr) -> u64 {
        self.strangers.get(&stranger).map_or(0, |book| book.token)
    }

    /// A server's application was handed call `number`.
    pub(super) fn runs_at(&mut self, server: usize, number: u32) {
        self.say(|| format!("server {server} runs call {number}"));
        if let Some((invariant, detail)) =
            self.sealed.as_ref().and_then(|sealed| sealed.broken_by_run(server, number))
        {
            self.violate(invariant, || detail);
        }
        let over_at = self.over_at.as_ref().map_or(Time::MAX, |over_at| over_at[number as usize]);
        if !self.is_trusted() || self.now > over_at {
            return;
        }
        let (made_at, has_moved) = self.moves[number as usize];
        let is_added = |&(at, added): &(Time, usize)| added == server && made_at < at;
        if has_moved && self.added.iter().any(|added| is_added(added) && added.0 <= self.now) {
            self.excused += 1;
            return;
        }
        self.runs[number as usize] += 1;
        if self.is_once[number as usize] && self.runs[number as usize] > 1 {
            let times = self.runs[number as usize];
            self.violate(Invariant::AtMostOnce, || {
                format!("server {server} ran call {number}, which is its run {times}")
            });
        }
        let is_refused = self.is_once[number as usize] && self.is_refused[number as usize];
        // Refusals are remembered for as long as the network may take twice, and here it takes
        // longer.
        if is_refused && self.over_at.is_some() {
            self.excused += 1;
        } else if is_refused {
            self.violate(Invariant::RefusedHasNotRun, || {
                format!("server {server} runs call {number}, which was refused")
            });
        }
        let book = &mut self.servers[server];
        if book.arrivals.get(&number) == Some(&true) {
            book.live.insert(number);
        }
        let count = book.live.len();
        let bound = self.router.bound.filter(|_| !self.has_standby);
        if let Some(bound) = bound.filter(|&bound| count > bound as usize) {
            let detail = || {
                format!(
                    "server {server} has {count} requests of the router's, whose bound is {bound}"
                )
            };
            self.violate(Invariant::Bound, detail);
        }
    }

    /// A call was refused for a reason that promises that it has not run; and that it will not, if
    /// who refuses it `remembers` that.
    pub(super) fn refused(&mut self, number: u32, remembers: bool) {
        if self.forgets_refusals {
            return;
        }
        self.is_refused[number as usize] = remembers;
        if self.is_trusted() && self.is_once[number as usize] && self.runs[number as usize] > 0 {
            self.violate(Invariant::RefusedHasNotRun, || {
                format!("call {number} was refused, and has run")
            });
        }
    }

    /// True if what applications and callers are told is as it was said: no bit is flipped, or
    /// seals tell.
    fn is_trusted(&self) -> bool {
        self.is_strict || self.sealed.is_some()
    }

    /// Number of times that a host has died.
    pub(super) fn life(&self, host: Host) -> u32 {
        self.incarnations.get(&host).copied().unwrap_or(0)
    }

    /// A server's application, which was handed call `number`, has refused it before it ran.
    pub(super) fn has_not_run(&mut self, number: u32) {
        let runs = &mut self.runs[number as usize];
        *runs = runs.saturating_sub(1);
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
        packet: &AnyPacket<'_>,
        len: usize,
    ) -> bool {
        if Host::at(from).is_none() {
            self.note_paid(host, from, packet, len as u64);
            // A router that keeps clients' addresses sends strangers' requests from theirs.
            if let (Host::Server(server), AnyPacket::R2p2(packet)) = (host, packet) {
                self.note_arrival((server, from), packet, None);
            }
            return true;
        }
        if self.sealed.is_none() && self.is_old_copy(host, packet) {
            self.excused += 1;
            return false;
        }
        self.note_paid(host, from, packet, len as u64);
        match (host, packet) {
            (Host::Server(server), packet) => {
                if packet.is_request() {
                    self.heard.last_request = Some((host, packet.id()));
                }
                if let AnyPacket::R2p2(packet) = packet {
                    self.note_arrival((server, from), packet, self.number(packet));
                }
            }
            (Host::Router | Host::Standby, _) => {}
            (Host::Client(_), AnyPacket::R2p2(packet)) => {
                let is_whole = packet.message_type == MessageType::Response && packet.count == 1;
                let id = packet.rpc_id().filter(|_| is_whole);
                let number = id.and_then(|id| self.numbers.get(&id.0).copied());
                // What strangers have asked for from an address goes there.
                let is_own = |number: &u32| match &self.sealed {
                    Some(sealed) => sealed.client(*number) == host,
                    None => true,
                };
                self.answered = number.filter(is_own);
            }
            (Host::Client(_), AnyPacket::Homa(_)) => {}
        }
        true
    }

    /// Somebody has paid with a packet for what a host says.
    fn note_paid(&mut self, host: Host, from: SocketAddr, packet: &AnyPacket<'_>, len: u64) {
        match (host, Host::at(from)) {
            (_, None) => {
                // What a router has sent on was paid there.
                let is_sent_on = match (host, packet) {
                    (Host::Server(server), AnyPacket::R2p2(packet)) => {
                        let placement = route(packet).map(|route| (server, route.placement.get()));
                        placement.is_some_and(|at| self.router.of_strangers.contains(&at))
                    }
                    _ => false,
                };
                let book = self.strangers.entry(from).or_default();
                let token = packet.echoed_token();
                // No stranger makes tags.
                book.is_validated |= token != 0 && token == book.token && !self.heard.are_tagged();
                book.ledger.0 += if is_sent_on { 0 } else { len };
            }
            (Host::Server(server), _) => {
                self.pay_in(server, from, packet, len);
                let client = packet.client(from);
                let is_strangers = self.sealed.as_ref().is_some_and(|it| it.intruding.is_some());
                if is_strangers && Host::at(client).is_none() {
                    // A stranger sends again what the router has sent on for it.
                    self.strangers.entry(client).or_default().ledger.0 += len;
                }
                if self.is_paid(server, from, packet)
                    && let Some(Host::Client(client)) = Host::at(packet.client(from))
                {
                    self.paid.note_in((client, packet.id()), len);
                }
            }
            (Host::Router | Host::Standby, Some(Host::Client(client))) => {
                self.ledger(host).entry(client).or_default().0 += len;
                self.paid.note_in((client, packet.id()), len);
            }
            _ => {}
        }
    }

    /// The call that the whole reply answers which the last datagram brought a client, if it did.
    pub(super) fn take_answered(&mut self) -> Option<u32> {
        self.answered.take()
    }

    /// A call has ended, which its client's next request tells routers.
    pub(super) fn note_ended(&mut self, number: u32) {
        if let Some(over_at) = &mut self.over_at {
            let at = &mut over_at[number as usize];
            *at = (*at).min(self.now + TRANSIT_NS_MAX);
        }
    }

    /// A client makes a call, whose first packet may fail to leave.
    pub(super) fn note_made(&mut self, client: usize, number: u32) {
        self.copies[client].0 += u64::from(!self.is_once[number as usize]);
    }

    /// A client sends a packet of a request: learns its id, and counts it where it is a copy.
    fn note_call(&mut self, client: usize, packet: &Packet) {
        let (Some(number), Some(id)) = (self.number(packet), packet.rpc_id()) else { return };
        self.numbers.insert(id.0, number);
        self.moves[number as usize].1 |= packet.flags().has(Flags::MOVED);
        if self.is_once[number as usize] {
            return;
        }
        let (calls, copies) = &mut self.copies[client];
        *copies += u64::from(packet.flags().clone_mark() == CloneMark::Copy);
        let (calls, copies) = (*calls, *copies);
        if self.copies_permille.is_some_and(|permille| copies * 1_000 > calls * permille) {
            self.violate(Invariant::CloneBudget, || {
                format!("client {client} has sent {copies} copies of {calls} calls")
            });
        }
    }

    /// Bytes in and out of each client at a router.
    fn ledger(&mut self, router: Host) -> &mut BTreeMap<usize, (u64, u64)> {
        if router == Host::Standby { &mut self.standby } else { &mut self.router.ledger }
    }

    /// The call that a first packet of a request belongs to.
    fn number(&self, packet: &Packet) -> Option<u32> {
        let is_first = packet.message_type == MessageType::Request && packet.index == 0;
        let number = match self.sealed {
            Some(_) => *self.numbers.get(&packet.rpc_id()?.0)?,
            None => u32::from_le_bytes(*packet.payload.first_chunk()?),
        };
        (is_first && (number as usize) < self.runs.len()).then_some(number)
    }

    /// Tells what the hole in at most once lets through.
    fn is_old_copy(&mut self, host: Host, packet: &AnyPacket<'_>) -> bool {
        let is_again = match packet {
            AnyPacket::R2p2(packet) => match self.number(packet) {
                Some(number) if self.is_once[number as usize] => {
                    packet.flags().has(Flags::RETRANSMIT)
                }
                // It renounces what a copy asks for that comes after a restart.
                _ if packet.message_type == MessageType::Claim => true,
                _ => return false,
            },
            // Any packet of a request is enough to refuse it.
            AnyPacket::Homa(packet) => match packet.body {
                homa::Body::Data { header, .. }
                    if !header.flags().has(homa::DataFlags::IDEMPOTENT) =>
                {
                    header.retransmit != 0
                }
                _ => return false,
            },
        };
        if matches!(host, Host::Client(_)) {
            return false;
        }
        let incarnation = self.incarnations.get(&host).copied().unwrap_or(0);
        let first = *self.had.entry((host, packet.id())).or_insert(incarnation);
        first < incarnation && !is_again
    }

    fn pay_in(&mut self, server: usize, from: SocketAddr, packet: &AnyPacket<'_>, len: u64) {
        let Some(Host::Client(client)) = Host::at(packet.client(from)) else { return };
        if let Some(bytes) = packet.request_begin() {
            self.openers.note(server, client, bytes);
        }
        let book = &mut self.servers[server];
        let token = packet.echoed_token();
        let is_shown = token == book.tokens[client] || self.heard.has_tagged(client, token);
        book.validated[client] |= token != 0 && is_shown;
        if !book.validated[client] {
            book.ledger.entry((client, packet.id())).or_default().0 += len;
        }
    }

    fn pay_out(&mut self, server: usize, client: usize, packet: &AnyPacket<'_>, len: u64) {
        if packet.is_request() {
            return self.check_call(server, client, packet);
        }
        if let Some(token) = packet.given_token() {
            let is_pooled = self.servers[server].is_pooled;
            for (index, book) in self.servers.iter_mut().enumerate() {
                if index == server || is_pooled && book.is_pooled {
                    book.tokens[client] = token;
                }
            }
        }
        self.pay(server, client, (packet.id(), len));
    }

    /// True if a packet at a server is one that the network has made of a client's, or a client has
    /// sent: what a router sends on has been paid there.
    fn is_paid(&mut self, server: usize, from: SocketAddr, packet: &AnyPacket<'_>) -> bool {
        let AnyPacket::R2p2(packet) = packet else { return true };
        let Some(route) = route(packet) else { return true };
        // Each server has three bytes for one of the copy that a router gives it.
        if packet.flags().clone_mark() == CloneMark::Copy {
            return true;
        }
        let placement = route.placement.get();
        self.paid.is_doubled((Host::at(from) == Some(Host::Standby), server, placement))
    }

    /// Somebody sends a client that is not validated so many bytes of a call.
    fn pay_in_all(&mut self, client: usize, (id, len): (u64, u64)) {
        if let Some((paid_in, paid_out)) = self.paid.note_out((client, id), len) {
            let detail = || {
                format!(
                    "client {client} had {paid_out} B of call {id:016x}, of all, for {paid_in} B"
                )
            };
            self.violate(Invariant::Amplification, detail);
        }
    }

    /// A server that has streams calls, too, but nobody who has not shown that he hears.
    fn check_call(&mut self, server: usize, client: usize, packet: &AnyPacket<'_>) {
        if let Some(bytes) = packet.request_begin()
            && !self.openers.has(server, client, bytes)
        {
            self.violate(Invariant::Amplification, || {
                format!("server {server} calls client {client}, which has not told its number back")
            });
        }
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
        self.pay_in_all(client, (id, len));
    }

    /// The router has forwarded a request.
    fn note_placement(&mut self, server: usize, packet: &Packet) {
        let Some(route) = route(packet) else { return };
        if packet.rpc_id().is_none_or(|id| !self.numbers.contains_key(&id.0)) {
            self.router.of_strangers.insert((server, route.placement.get()));
            return;
        }
        let is_new = packet.rpc_id().is_some_and(|id| self.router.forwarded.insert(id.0));
        let is_copy = packet.flags().clone_mark() == CloneMark::Copy;
        // Claims, like copies of the same, go where they must.
        let is_bound = packet.policy != Policy::Fixed && !packet.flags().has(Flags::MOVED);
        if (is_new || is_copy) && is_bound {
            self.router.placed.insert((server, route.placement.get()));
        }
    }

    /// A stranger brings a server what that has had before.
    fn note_replayed(&mut self, host: Host, packet: &AnyPacket<'_>) {
        if let (Host::Server(server), AnyPacket::R2p2(packet)) = (host, packet)
            && let Some(number) = self.number(packet)
        {
            self.servers[server].arrivals.insert(number, false);
        }
    }

    fn note_arrival(
        &mut self,
        (server, from): (usize, SocketAddr),
        packet: &Packet,
        number: Option<u32>,
    ) {
        let book = &mut self.servers[server];
        if packet.message_type == MessageType::Probe {
            if let Ok(placed) = <[u8; 4]>::try_from(packet.payload) {
                let placement = u32::from_be_bytes(placed);
                book.see(placement, true);
                self.router.overtake(server, placement);
            }
            return;
        }
        let placement = route(packet).map(|route| route.placement.get());
        // A router that has restarted since may have placed it: the server's counts begin anew.
        let is_late = number.is_none() && Host::at(from) == Some(Host::Router);
        let of_strangers = |&at: &u32| is_late || self.router.of_strangers.contains(&(server, at));
        if let Some(placement) = placement.filter(of_strangers) {
            // It counts for nothing, but it overtakes others.
            book.see(placement, true);
            self.router.overtake(server, placement);
            return;
        }
        let Some(number) = number else { return };
        let (Some(route), Some(placement)) = (route(packet), placement) else {
            book.arrivals.insert(number, false);
            return;
        };
        // A sealed server lets no request begin its counts anew.
        let may_begin = self.sealed.is_none() && route.client_port.get() != 0;
        let order = book.see(placement, may_begin);
        self.overtaken += u64::from(order == Order::Overtaken);
        let counts = order == Order::Ahead
            && packet.count == 1
            && self.router.placed.contains(&(server, placement));
        book.arrivals.entry(number).and_modify(|counts| *counts = false).or_insert(counts);
        self.router.overtake(server, placement);
    }
}

impl RouterBook {
    /// A placement has arrived: those before it that come later do not count, also where the
    /// server's counts begin anew between.
    fn overtake(&mut self, server: usize, placement: u32) {
        for placements in [&mut self.placed, &mut self.of_strangers] {
            placements
                .retain(|&(at, earlier)| at != server || placement.wrapping_sub(earlier) >= LEAP);
        }
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

    /// Releases its requests from the router's count.
    fn begin_anew(&mut self) {
        self.live.clear();
        self.arrivals.values_mut().for_each(|counts| *counts = false);
    }
}

/// A placement this far from the last is another router's, or of the same one restarted
/// (docs/protocol/r2p2.md).
const LEAP: u32 = 1 << 16;

#[cfg(test)]
mod tests;
