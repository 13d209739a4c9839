//! The Homa endpoint: client and server over one port, as the Linux module speaks it.
//!
//! [`Endpoint`] is a [`Node`] and an [`Rpc`]. Both halves send and receive messages, so that they
//! share one table of RPCs; a packet goes to the rules of its type:
//!
//! | packet | rules |
//! |---|---|
//! | DATA of a request | `server`: admission and at most once; then reassembly and `grants` |
//! | DATA of a reply | `client`; then the same |
//! | GRANT, RESEND, BUSY, RPC_UNKNOWN, NEED_ACK, ACK, CUTOFFS | `control` |
//!
//! `transmit` writes what is to be sent: control packets first, then the message with the fewest
//! bytes left. `recovery` holds all timers, `sealing` what a seal changes, `cookies` what servers
//! do that ask for those. What a control packet says is believed only of a live RPC, of that peer
//! and these ports, within its range.

mod acks;
mod asked;
mod client;
mod config;
mod control;
mod cookies;
mod cutoffs;
mod egress;
mod gate;
mod grants;
mod ids;
mod incoming;
mod link;
mod long;
mod metrics;
mod outgoing;
mod pace;
mod peers;
mod receive;
mod recovery;
mod rpcs;
mod sealing;
mod server;
mod slot;
mod transmit;

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Arc;

use tailcut_wire::homa::sealed::is_marked;
use tailcut_wire::homa::{Body, CommonHeader, DataFlags, Packet, Ports};
use tailcut_wire::r2p2::{DropReason, Rejection};

pub use self::config::{
    Carrier, Config, CookieConfig, Framing, GrantPolicy, Grants, Incast, Link, Prefix, Pull,
    Recovery,
};
pub use self::cutoffs::{Adaptive, Cutoffs, Priorities, UnscheduledRank};
pub use self::metrics::Metrics;
pub use crate::call::counters::Counters;
pub use crate::peer::limits::{Holdings, Serving};

use self::cutoffs::Advice;
use self::egress::Egress;
use self::gate::Gate;
use self::grants::Book;
use self::peers::HomaPeer;
use self::rpcs::Rpcs;
use self::slot::{Phase, Slot};
use crate::buffers::Buffers;
use crate::call::numbering::Numbers;
use crate::call::unreachable::UnreachableLook;
use crate::node::{Attached, Node, Path, Time, Transmit, is_unanswerable};
use crate::peer::table::Table;
use crate::rpc::{AnswerError, Call, CallError, CallId, Caller, Event, Lent, RequestId, Rpc};
use crate::sealed::{Access, ChangedKeys, Denial, EndpointSeal, Keys, LostKeys};
use tailcut_placement::order::wheel::Wheel;
use tailcut_placement::slab::{SlotId, SlotKey};

/// A Homa client and server on one port.
#[derive(Debug)]
pub struct Endpoint {
    /// The configuration, mended to what it can do.
    config: Config,
    /// RPCs of both halves.
    rpcs: Rpcs,
    /// Peers and their sessions.
    peers: Table<HomaPeer>,
    /// Gate that new requests must pass.
    gate: Gate,
    /// Sessions of the ids of calls.
    sessions: Numbers,
    /// Cutoffs that senders are told.
    advice: Advice,
    /// Messages that want grants.
    book: Book,
    /// Data asked for again.
    asked: asked::Asked,
    /// Packets to be sent.
    egress: Egress,
    /// Timers of the RPCs, by slot.
    wheel: Wheel,
    /// Buffers for messages.
    buffers: Buffers,
    /// Events that the application has not taken.
    events: VecDeque<Event>,
    /// Counters since the start.
    metrics: Metrics,
    /// Holdings that count against the limits.
    holdings: Holdings,
    /// Limit on searches for calls to an address where nothing listens.
    unreachable_look: UnreachableLook,
    /// The seal, where packets are sealed.
    seal: Option<Box<EndpointSeal>>,
}

/// Origin of a packet: its way and the RPC that it names.
#[derive(Clone, Copy, Debug)]
struct Origin<'a> {
    /// The way that it came.
    path: Path,
    /// The header that every packet has.
    common: &'a CommonHeader,
    /// Bytes of the datagram.
    len: usize,
    /// Validation that a packet shows which would begin a request.
    shown: Shown,
}

/// Validation of its sender's address by a packet that would begin a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shown {
    /// Nothing, and it need not.
    #[default]
    Unasked,
    /// By a tag, that who receives there has made the packet.
    Tag,
    /// Nothing, and it must.
    Lacking,
}

/// Result of looking for the RPC of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Found {
    Nothing,
    Rpc(SlotId),
    /// The peer has an RPC of that id, with other ports.
    OtherPorts,
}

impl Endpoint {
    /// An endpoint that starts at `now`.
    pub fn new(now: Time, mut config: Config) -> Self {
        // 0 would be divided by; 60,000 bytes still fit a datagram with headers and a seal's
        // trailer.
        config.framing.unscheduled_len = config.framing.unscheduled_len.clamp(64, 60_000);
        config.framing.scheduled_len = config.framing.scheduled_len.clamp(64, 60_000);
        config.framing.local_len = config.framing.local_len.min(60_000);
        // `overcommit - 1` is a rank, and arrays of active messages have `OVERCOMMIT_MAX` places.
        config.grants.overcommit = config.grants.overcommit.clamp(1, grants::OVERCOMMIT_MAX);
        // With 0 nothing would ever go: a receiver grants only what it has heard of.
        config.unscheduled_len = config.unscheduled_len.max(1);
        // What is cut into parts must be longer than one: `cut_reply` takes a whole part off it.
        config.rpc_len_max = config.rpc_len_max.max(tailcut_wire::homa::MESSAGE_LEN_MAX);
        let seal = config.seal.as_ref().map(|sealing| {
            config.framing = config.framing.sealed();
            // Who is sealed takes long messages as they are.
            config.rpc_len_max = u32::MAX;
            Box::new(EndpointSeal::of_homa(now, sealing, &config.secret, config.peers_max))
        });
        let seed = Numbers::new(&config.secret, b"tables").seed();
        let rpcs_max = config.calls_max.saturating_add(config.serving.requests_max);
        Self {
            rpcs: Rpcs::new(rpcs_max, config.serving.room(rpcs_max), seed),
            peers: Table::new(now, config.peers_max, &config.serving, seed),
            gate: Gate::new(&config),
            sessions: Numbers::new(&config.secret, b"session"),
            advice: Advice::new(now, config.priorities, config.unscheduled_len),
            book: Book::default(),
            asked: asked::Asked::default(),
            egress: Egress::new(config.link, rpcs_max, config.serving.room(config.control_len_max)),
            wheel: Wheel::new(TICK_BITS).of_at_most(rpcs_max),
            buffers: Buffers::new(config.pool_bytes_max),
            events: VecDeque::new(),
            metrics: Metrics::default(),
            holdings: Holdings::default(),
            unreachable_look: UnreachableLook::default(),
            seal,
            config,
        }
    }

    /// A call whose request is `len` bytes long: its payload, which is at least a byte, and then
    /// zeros that are stored nowhere. For simulations of load.
    ///
    /// # Errors
    ///
    /// As of [`Rpc::call`]. The request must go in one RPC.
    pub fn call_padded(&mut self, now: Time, call: Call, len: u32) -> Result<CallId, CallError> {
        let limit = self.config.single_len_max();
        if len as usize > limit {
            return Err(CallError::TooLarge { len: len as usize, limit });
        }
        let id = self.begin_call(now, call, (None, None))?;
        if let Some(index) = self.slot_of(SlotKey(id.0), |phase| matches!(phase, Phase::Calling(_)))
        {
            self.pad(index, len);
        }
        Ok(id)
    }

    /// A reply as [`Endpoint::call_padded`] makes a request.
    ///
    /// # Errors
    ///
    /// As of [`Rpc::reply`]. The reply must go in one RPC.
    pub fn reply_padded(
        &mut self,
        now: Time,
        id: RequestId,
        payload: Vec<u8>,
        len: u32,
    ) -> Result<(), AnswerError> {
        let limit = self.config.single_len_max();
        if len as usize > limit {
            return Err(AnswerError::TooLarge { len: len as usize, limit });
        }
        self.begin_reply(now, id, payload)?;
        if let Some(index) =
            self.slot_of(SlotKey(id.0), |phase| matches!(phase, Phase::Replying(_)))
        {
            self.pad(index, len);
        }
        Ok(())
    }

    /// Counters since the start.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// True if the application has yet to answer a request, and somebody waits for it.
    pub fn is_waiting(&self, id: RequestId) -> bool {
        self.slot_of(SlotKey(id.0), |phase| matches!(phase, Phase::Waiting)).is_some()
    }

    /// Everything that it holds now.
    pub fn holdings(&self) -> Holdings {
        Holdings { expected: self.book.expected_bytes, ..self.holdings }
    }

    /// True if one more call is within the limits of what may be outstanding, in all and to one
    /// peer: a long request takes several RPCs.
    pub fn may_call(&mut self, target: SocketAddr, len: usize) -> bool {
        let rpcs = long::part_count(len, &self.config);
        let to_peer = self.peers.find(target).map_or(0, |peer| self.peers[peer].calls);
        self.holdings.calls + rpcs <= self.config.calls_max
            && to_peer + rpcs <= self.config.calls_per_peer_max
    }

    /// Says how many requests the application runs at once; see
    /// [`crate::endpoint::Endpoint::set_workers`].
    pub fn set_workers(&mut self, workers: usize) {
        self.gate.workers = workers;
    }

    /// Takes no new requests from now on; see [`crate::endpoint::Endpoint::stop`]. Homa has no
    /// routers that would have to know.
    pub fn stop(&mut self, _now: Time) {
        self.gate.is_closed = true;
    }

    /// Takes new requests again; see [`crate::endpoint::Endpoint::serve_again`].
    pub fn serve_again(&mut self) {
        self.gate.is_closed = false;
    }

    /// Replies of which bytes have never been sent.
    pub fn replies_under_way(&self) -> usize {
        let is_unsent = |slot: &&Slot| match &slot.phase {
            // Of a long one the client has yet to fetch the rest.
            Phase::Replying(reply) => {
                !reply.whole.is_empty() || slot.out.sent_len() < slot.out.len()
            }
            _ => false,
        };
        self.rpcs.values().filter(is_unsent).count()
    }

    /// Bytes that it remembers of the sessions of its peers, to run no request twice.
    pub fn sessions_bytes(&self) -> usize {
        self.peers.sessions_bytes()
    }

    /// The cutoffs that its senders are told now, and the number of levels for scheduled data.
    pub fn cutoffs(&self) -> (Cutoffs, u8) {
        (self.advice.cutoffs, self.advice.scheduled_levels)
    }

    /// The `sender_id` of the requests of a call that has not ended, by which a capture knows it;
    /// of a long call that of its first RPC.
    pub fn wire_id(&self, id: CallId) -> Option<u64> {
        let index = self.slot_of(SlotKey(id.0), Phase::is_client)?;
        Some(self.rpcs[index].local_id())
    }

    /// The live RPC of a packet: of that peer, with these ports.
    fn find(&mut self, origin: &Origin) -> Found {
        let Some(peer) = self.peers.find(origin.path.peer) else {
            return Found::Nothing;
        };
        let Some(index) = self.rpcs.find(peer, origin.common.local_id()) else {
            return Found::Nothing;
        };
        let Ports { source, destination } = origin.common.ports();
        let slot = &self.rpcs[index];
        // Who does not know the ports is not believed, nor, where packets are sealed, another
        // client that shares the address.
        let is_its = slot.ports == Ports { source: destination, destination: source }
            && slot.is_of(self.sender());
        if is_its { Found::Rpc(index) } else { Found::OtherPorts }
    }

    /// Finds the RPC of a packet and takes note that the peer is alive; a packet of no RPC is
    /// counted.
    fn hear(&mut self, now: Time, origin: &Origin) -> Option<SlotId> {
        match self.find(origin) {
            Found::Rpc(index) => {
                self.touch(now, origin, index);
                Some(index)
            }
            Found::Nothing => {
                self.metrics.unknown += 1;
                None
            }
            Found::OtherPorts => {
                self.metrics.protocol_violation += 1;
                None
            }
        }
    }

    /// Takes note that the peer of an RPC is alive.
    fn touch(&mut self, now: Time, origin: &Origin, index: SlotId) {
        let slot = &mut self.rpcs[index];
        slot.timing.heard_at = now;
        // A call leaves from any address until the answer tells which of this host's it was.
        slot.local = slot.local.or(origin.path.local);
        slot.timing.need_acks = 0;
        slot.timing.in_vain.0 = 0;
        // As long as the datagram, with its trailer: what goes out is counted so too.
        slot.server.allowance.received += origin.len as u64;
        let peer = &mut self.peers[slot.peer];
        peer.used_at = now;
        peer.state.is_heard = true;
        if self.seal.is_some() {
            self.take_name(now, index);
        }
    }

    /// Ends an RPC; what it holds is given back.
    fn release(&mut self, index: SlotId) {
        let peer = self.rpcs[index].peer;
        self.rpcs.unlist(index);
        self.wheel.disarm(index);
        self.egress.unrank(index);
        self.unwant(index);
        if !self.rpcs[index].phase.is_alone() {
            self.leave_long(index);
        }
        let message = &self.rpcs[index].inc.message;
        let (expected, missing) = (message.expected(), message.len() - message.received());
        let is_begun = message.len() > 0;
        // What it was granted and does not send is for messages that wait, which may hear nothing
        // else.
        self.book.is_due |= missing > 0;
        self.expect_less(peer, expected);
        let pace = &mut self.peers[peer].state.pace;
        pace.owed -= u64::from(missing);
        pace.messages -= u64::from(is_begun);
        let slot = &mut self.rpcs[index];
        let (is_client, id) = (slot.is_client(), slot.id);
        let request = slot.out.end();
        if slot.inc.message.len() > 0 {
            // It is not complete.
            let (reply, spare) = (slot.inc.end(), slot.inc.message.take_spare());
            self.buffers.give(spare);
            self.buffers.give(reply);
        }
        self.buffers.give(request);
        self.end_partial(index);
        let slot = &mut self.rpcs[index];
        if is_client {
            let peer = &mut self.peers[peer];
            self.holdings.calls -= 1;
            peer.calls -= 1;
            peer.state.numbering.end(id.session(), id.sequence());
        } else {
            self.holdings.waiting -=
                usize::from(matches!(slot.phase, Phase::Waiting | Phase::Parked(_)));
            self.peers.end_request(peer, &mut self.holdings, &mut slot.server.held);
            let is_fetch = matches!(&slot.phase, Phase::Replying(reply) if reply.is_fetch);
            self.peers[peer].state.fetches -= usize::from(is_fetch);
        }
        self.rpcs.release(index);
    }

    /// Ranks the message that an RPC sends, or takes it out when nothing of it may go.
    #[inline]
    fn rank_out(&mut self, index: SlotId) {
        self.egress.rank(&self.rpcs, index);
    }

    fn pad(&mut self, index: SlotId, len: u32) {
        let unscheduled = self.unscheduled_len(index);
        self.rpcs[index].out.pad(len, unscheduled);
        self.rank_out(index);
    }

    /// Bytes of the message that an RPC sends that need no grant.
    fn unscheduled_len(&self, index: SlotId) -> u32 {
        let slot = &self.rpcs[index];
        let is_incast = slot.server.flags & DataFlags::INCAST != 0;
        match self.peers[slot.peer].state.is_stripped {
            // A peer that knows no grants sends none, and what waits for one would wait for ever.
            true => u32::MAX,
            false if is_incast => self.config.incast.unscheduled_len,
            false => self.config.unscheduled_len,
        }
    }

    /// Writes what goes next.
    #[inline]
    fn write_next(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        self.grant_due(now);
        if !self.egress.control.is_empty()
            && let Some(transmit) = self.write_control(buffer)
        {
            return Some(transmit);
        }
        if self.egress.first().is_some() {
            let data = self.write_data(now, buffer);
            // What data could not be sent for may have to be said.
            if let Some(transmit) = data.or_else(|| self.write_control(buffer)) {
                return Some(transmit);
            }
        }
        // Behind data, which may take them along.
        if self.egress.acks_called.is_empty() { None } else { self.write_acks(buffer) }
    }

    /// The slot that an id of the application means, if its RPC is in a phase that will do.
    fn slot_of(&self, id: SlotKey, will_do: impl Fn(&Phase) -> bool) -> Option<SlotId> {
        self.rpcs.at(id).filter(|&index| will_do(&self.rpcs[index].phase))
    }

    /// The id that the application knows an RPC by.
    fn handle_of(&self, index: SlotId) -> u64 {
        self.rpcs.key(index).0
    }
}

impl Node for Endpoint {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        self.metrics.datagrams_in += 1;
        let datagram_len = bytes.len();
        // A sealed packet at an open end goes there too: it is counted as malformed.
        let bytes = match self.seal.is_some() | is_marked(bytes) {
            false => bytes,
            true => match self.opened(now, path, bytes) {
                Some(len) => &mut bytes[..len],
                None => return,
            },
        };
        let packet = match Packet::parse(bytes) {
            Ok(packet) => packet,
            Err(reason) => return self.metrics.malformed(reason),
        };
        // An answer to a forged source of many hosts would reach all of them.
        if is_unanswerable(path.peer.ip()) {
            self.metrics.protocol_violation += 1;
            return;
        }
        let shown = Shown::Unasked;
        let origin = Origin { path, common: packet.common, len: datagram_len, shown };
        match packet.body {
            Body::Data { header, payload } if packet.is_from_client() => {
                self.handle_request(now, &origin, header, payload)
            }
            Body::Data { header, payload } => self.handle_reply(now, &origin, header, payload),
            Body::Grant(grant) => self.handle_grant(now, &origin, grant),
            Body::Resend(resend) => self.handle_resend(now, &origin, resend),
            Body::RpcUnknown => self.handle_unknown(now, &origin),
            Body::Busy => {
                if let Some(index) = self.hear(now, &origin) {
                    self.be_patient(now, index);
                }
            }
            Body::Cutoffs(cutoffs) => self.handle_cutoffs(now, &origin, cutoffs),
            Body::NeedAck => self.handle_need_ack(now, &origin),
            Body::Ack(acks) => self.handle_ack(now, &origin, acks),
            Body::Cookie(cookie) => self.handle_cookie(now, &origin, cookie),
            Body::Freeze => self.metrics.unexpected += 1,
        }
    }

    fn handle_unreachable(&mut self, now: Time, peer: SocketAddr) {
        self.end_unreachable(now, peer);
    }

    fn handle_timeout(&mut self, now: Time) {
        let due = self.poll_timeout().unwrap_or(now);
        // A host that is so late has not read its socket either, where what is missing may lie.
        if now.saturating_sub(due) >= self.config.recovery.gap_ns_min {
            self.book.late_at = now;
        }
        while let Some(index) = self.wheel.pop_due(now) {
            self.handle_due(now, index);
        }
        self.give_late_grants(now);
        self.say_late_acks(now);
    }

    fn handle_wall_clock(&mut self, now: Time, unix_ns: u64) {
        if let Some(seal) = &mut self.seal {
            seal.set_clock(now, unix_ns);
        }
    }

    fn update_keys(&mut self, now: Time, keys: &Keys) -> Result<(), ChangedKeys> {
        self.seal.as_mut().map_or(Ok(()), |seal| seal.update_keys(now, keys))
    }

    fn update_access(&mut self, access: &Arc<Access>) {
        if let Some(seal) = &mut self.seal {
            seal.update_access(access);
        }
    }

    #[inline]
    fn denials(&self) -> (u64, Option<&Denial>) {
        self.seal.as_ref().map_or((0, None), |seal| seal.denials())
    }

    fn lost_keys(&self) -> LostKeys {
        self.seal.as_ref().map_or_else(LostKeys::default, |seal| seal.lost_keys())
    }

    #[inline]
    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        match self.seal.is_some() {
            false => self.write_next(now, buffer),
            true => self.write_next_sealed(now, buffer),
        }
    }

    #[inline]
    fn poll_attached(&mut self, now: Time, buffer: &mut [u8]) -> Option<(Transmit, Attached)> {
        self.grant_due(now);
        // Control packets go first.
        if !self.egress.control.is_empty() {
            return None;
        }
        self.write_attached(now, buffer)
    }

    fn attached(&self, attached: &Attached) -> &[u8] {
        self.attached_payload(attached)
    }

    fn poll_timeout(&self) -> Option<Time> {
        let timers = [self.wheel.next_due(), self.book.wake_at, self.egress.next_due()];
        let earliest = timers.map(|due| due.unwrap_or(Time::MAX)).into_iter().min();
        earliest.filter(|&due| due != Time::MAX)
    }
}

impl Rpc for Endpoint {
    fn call(&mut self, now: Time, call: Call) -> Result<CallId, CallError> {
        self.begin_call(now, call, (None, None))
    }

    fn caller(&self, id: RequestId) -> Option<Caller> {
        self.caller_of(id)
    }

    fn call_back(&mut self, now: Time, call: Call, to: Caller) -> Result<CallId, CallError> {
        self.begin_call(now, call, (None, Some(to)))
    }

    fn is_sealed(&self) -> bool {
        self.seal.is_some()
    }

    fn call_lent(&mut self, now: Time, call: Call, request: Lent) -> Result<CallId, CallError> {
        self.begin_call(now, call, (Some(request), None))
    }

    fn cancel(&mut self, _now: Time, id: CallId) {
        self.cancel_call(id);
    }

    fn reply(&mut self, now: Time, id: RequestId, payload: Vec<u8>) -> Result<(), AnswerError> {
        self.begin_reply(now, id, payload)
    }

    fn refuse(&mut self, now: Time, id: RequestId, reason: DropReason) -> Result<(), AnswerError> {
        self.refuse_request(now, id, reason)
    }

    fn reject(
        &mut self,
        now: Time,
        id: RequestId,
        code: u32,
        text: &[u8],
    ) -> Result<(), AnswerError> {
        let text = &text[..text.len().min(Rejection::TEXT_LEN_MAX)];
        let [_, code @ ..] = Rejection::prefix(code);
        self.refuse_saying(now, id, DropReason::Application, &[&code, text])
    }

    fn say_farewell(&mut self) {
        // Nobody runs their timer any more, and servers keep replies until they are told.
        self.say_late_acks(Time::MAX);
    }

    fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    fn buffer(&mut self) -> Vec<u8> {
        self.buffers.take_any()
    }

    fn buffer_for(&mut self, len: usize) -> Vec<u8> {
        self.buffers.take_for(len)
    }

    fn recycle(&mut self, buffer: Vec<u8>) {
        self.buffers.give(buffer);
    }
}

/// Ticks of 2^14 ns, 16 us: a tenth of the shortest timeout.
const TICK_BITS: u32 = 14;

#[cfg(test)]
mod tests {
    use tailcut_wire::homa::DataHeader;
    use zerocopy::IntoBytes;

    use super::*;

    #[test]
    fn what_a_peer_owes_and_may_send_goes_with_its_message() {
        let mut server = Endpoint::new(0, Config::default());
        let client = SocketAddr::from(([127, 0, 0, 1], 32_769));
        let ports = Ports { source: 32_769, destination: 99 };
        let mut header = DataHeader::new(ports, 2, 20_000, 0);
        header.incoming = 20_000.into();
        let mut bytes = [header.as_bytes(), &[0; 1000]].concat();
        server.handle_datagram(1_000_000, client.into(), &mut bytes);
        let peer = server.peers.find(client).expect("it is known");
        let pace = &server.peers[peer].state.pace;
        assert_eq!((pace.owed, pace.expected, pace.messages), (19_000, 19_000, 1));
        while let Some(at) = server.poll_timeout() {
            server.handle_timeout(at);
            while server.poll_transmit(at, &mut [0; 65_536]).is_some() {}
        }
        let pace = &server.peers[peer].state.pace;
        assert_eq!((pace.owed, pace.expected, pace.messages), (0, 0, 0));
    }
}
