//! The server half: requests from first packet to the end of their reply.
//!
//! | phase of a request | enters | a packet of the request again | ends |
//! |---|---|---|---|
//! | receiving | its first packet of several; through a router only of a validated address | ACK and credit | complete; no progress for `partial_ns_max` |
//! | waiting | complete, handed to the application | ACK of all its packets | answered; cancelled; deadline |
//! | replying | answered | the reply again | the client has the reply; cancelled; deadline |
//!
//! The server keeps no timer for recovery: it answers what the client asks. It runs no id twice
//! that is not idempotent: a session's [`crate::peer::once`] remembers every sequence, also after
//! the reply was released. To an address that is not validated it sends at most three bytes for
//! each byte of that request. Version 1 requests live in the same table, by [`super::server_v1`]'s
//! rules.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use tailcut_wire::r2p2::{
    CloneMark, DropReason, EXTENDED_LEN, Flags, Kind, MessageType, Packet, Rejection,
    RequestHeader, RpcId, Verdict,
};

use super::config::Config;
use super::incoming::{InOrder, Incoming};
use super::outgoing::Outgoing;
use super::queue::SendQueue;
use super::renounced::Renounced;
use super::routers::{Routers, Via};
use super::shared::Shared;
use super::terms::Terms;
use crate::address::AddressKey;
use crate::message::reassembly::Arrival;
use crate::node::{Path, Time, is_unanswerable};
use crate::peer::cookies::{AskCookies, Cookies};
use crate::peer::holdings::Held;
use crate::peer::limits::{Holdings, Serving};
use crate::peer::sessions::Denied;
use crate::peer::table::{NOBODY, PeerId, SessionPlace, Table};
use crate::peer::validation::{Allowance, Refusal, Tokens};
use crate::rpc::{AnswerError, Event, RequestId};
use crate::sealed::{ClientEpoch, DENIED_CODE, Denial};
use crate::work;
use tailcut_placement::keyed::KeyedState;
use tailcut_placement::order::list::{Linked, Links};
use tailcut_placement::order::wheel::Wheel;
use tailcut_placement::slab::{Slab, SlotId, SlotKey};

/// The requests of an endpoint.
#[derive(Debug)]
pub(super) struct Server {
    /// Requests, each in its slot.
    pub(super) slots: Slab<Slot>,
    /// Requests by their id.
    pub(super) live: HashMap<u64, SlotId, KeyedState>,
    /// Requests of version 1, by client and request id.
    pub(super) live_v1: HashMap<(AddressKey, u16), SlotId, KeyedState>,
    /// Clients and their sessions.
    pub(super) clients: Table<ClientState>,
    /// Makes the tokens that validate addresses.
    pub(super) tokens: Tokens,
    /// Makes the cookies that clients show instead, where they must.
    pub(super) cookies: Cookies,
    /// Routers, and what they are told.
    pub(super) routers: Routers,
    /// Timers at which requests expire, by slot.
    pub(super) wheel: Wheel,
    /// Packets to be sent.
    pub(super) queue: SendQueue<Control>,
    /// GSO batches since the reports were looked at: replies go first, but not for ever.
    pub(super) batches_since_report: u32,
    /// Holdings that count against the limits.
    pub(super) held: Holdings,
    /// Words of those refusals in the queue that have some, in their order.
    pub(super) rejections: VecDeque<Vec<u8>>,
    /// Requests that other servers run, as routers have said.
    pub(super) renounced: Renounced,
    /// Time at which it began to take no new requests.
    pub(super) stopping_since: Option<Time>,
    /// Requests that the application runs at once; what it has beyond them waits.
    pub(super) workers: usize,
    /// Time that refusals for overload tell clients to stay away, ns; 0 where nobody has said.
    pub(super) retry_after_ns: u32,
}

/// State of a client besides that of every protocol.
#[derive(Debug)]
pub(super) struct ClientState {
    /// Token that validates its address.
    pub(super) token: u64,
    /// As [`Config::is_local`].
    pub(super) is_local: bool,
}

/// One request. The slot outlives it and is used again.
#[derive(Debug)]
pub(super) struct Slot {
    /// Phase that it is in.
    pub(super) phase: Phase,
    /// Its id; `None` in version 1.
    pub(super) rpc_id: Option<RpcId>,
    /// The client's own number of it.
    pub(super) rid: u16,
    /// Terms of its treatment.
    pub(super) terms: Terms,
    /// The client's record.
    pub(super) client: PeerId,
    /// The client's number, where packets are sealed; else 0. No other's packets are of this
    /// request.
    pub(super) sender: ClientEpoch,
    /// The way back to the client, from the address of this host at which the request came in.
    pub(super) path: Path,
    /// The client's clock to echo in the reply: of the packet that completed the request, or that
    /// asks for the reply again.
    pub(super) clock_us: u32,
    /// The client's clock in the latest packet of the request, to echo in ACKs.
    pub(super) latest_clock_us: u32,
    /// The router that it came through.
    pub(super) via: Option<Via>,
    /// That router counts it: it is complete, and not concluded.
    pub(super) is_counted: bool,
    /// Deadline at which its client stops waiting.
    pub(super) deadline: Time,
    /// The request, while its packets come.
    pub(super) request: Incoming,
    /// The reply, once there is one.
    pub(super) reply: Outgoing,
    /// Holdings of this request that count against the limits.
    pub(super) held: Held,
    /// Bytes of datagrams of this request and its reply.
    pub(super) allowance: Allowance,
    /// Its place among the replies that its session keeps, where it has one.
    kept: Option<Links>,
    /// The next ACK asks for the token.
    pub(super) is_validation_asked: bool,
    /// The client has had an ACK of it.
    pub(super) is_acked: bool,
}

/// Phase of a request.
#[derive(Debug)]
pub(super) enum Phase {
    /// Some of its packets have come.
    Receiving,
    /// Version 1: the first of its packets have come.
    ReceivingV1(InOrder),
    /// The application has it.
    Waiting,
    /// It is answered.
    Replying,
}

/// A packet of no request that waits to be sent.
#[derive(Clone, Copy, Debug)]
pub(super) enum Control {
    /// A refusal.
    Drop { to: Path, asked: Asked, reason: DropReason },
    /// A refusal in the application's words, which are the first of [`Server::rejections`].
    Reject { to: Path, asked: Asked },
    /// A demand to validate the address before anything is kept.
    Validate { to: Path, asked: Asked },
    /// The answer to a router's claim.
    Claimed { to: Path, rid: u16, rpc_id: RpcId, verdict: Verdict },
    /// Version 1: the go-ahead, three bytes.
    AckV1 { to: Path, rid: u16 },
    /// Version 1: a refusal.
    DropV1 { to: Path, rid: u16 },
    /// Version 1: a report to the router.
    FeedbackV1 { to: Path, client: SocketAddr, rid: u16 },
}

/// The first packet of a request that is not known.
pub(super) struct Newcomer<'a> {
    /// Sender of the datagram: the client itself, or a router.
    pub(super) sender: SocketAddr,
    /// The way back to the client.
    pub(super) path: Path,
    /// The packet, and its header.
    pub(super) packet: &'a Packet<'a>,
    /// Its header.
    pub(super) header: &'a RequestHeader,
}

/// The packet that a refusal answers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked {
    /// The client's own number of its request.
    pub(super) rid: u16,
    /// The request's id.
    pub(super) rpc_id: RpcId,
    /// The client's clock when it left; 0 where it says none.
    pub(super) clock_us: u32,
    /// Addressee of the answer, as the seal has told; 0 where packets are open, and for a router.
    pub(super) addressee: u64,
    /// The packet has named nobody: the answer tells this server's name, which is of use to who has
    /// sent it here, and to nobody else.
    pub(super) is_unnamed: bool,
    /// A router has sent it, which is told a token that it echoes, not a cookie.
    pub(super) is_routers: bool,
}

impl Asked {
    /// By a packet of a request.
    fn by(packet: &Packet, header: &RequestHeader, shared: &Shared) -> Self {
        let (rpc_id, addressee) = (RpcId(header.rpc_id.get()), shared.addressee());
        let (clock_us, is_unnamed) = (header.client_clock_us.get(), shared.is_unnamed());
        Self { clock_us, is_unnamed, ..Self::of(packet.rid, rpc_id, addressee) }
    }

    /// Any packet of a client's request, whose clock is not told.
    fn of(rid: u16, rpc_id: RpcId, addressee: u64) -> Self {
        Self { rid, rpc_id, clock_us: 0, addressee, is_unnamed: false, is_routers: false }
    }
}

/// First values of the slot of an admitted request.
pub(super) struct Admission {
    /// The record of its client.
    pub(super) client: PeerId,
    /// The client's number, where packets are sealed; else 0.
    pub(super) sender: ClientEpoch,
    /// The way back to the client.
    pub(super) path: Path,
    /// The client's own number of it.
    pub(super) rid: u16,
    /// Its id; `None` in version 1.
    pub(super) rpc_id: Option<RpcId>,
    /// Terms of its treatment.
    pub(super) terms: Terms,
    /// The client's clock.
    pub(super) clock_us: u32,
    /// The router that counts it.
    pub(super) via: Option<Via>,
    /// Deadline at which its client stops waiting.
    pub(super) deadline: Time,
    /// Bytes of its first datagram.
    pub(super) bytes_in: usize,
    /// Bytes that may have gone to the client for it already.
    pub(super) bytes_out: u64,
}

impl Server {
    pub(super) fn new(now: Time, config: &Config, seeds: (u64, u32)) -> Self {
        // Not the secret itself, whose hashes are the ids of calls.
        let key = config.pool.key.unwrap_or_else(|| config.secret.map(|byte| byte ^ 0x5c));
        // Who seals packets is known by that.
        let is_open = config.seal.is_none();
        let ask_cookies = if is_open { config.pool.cookies } else { AskCookies::Never };
        let hash = || KeyedState::with_seed(seeds.0);
        let requests_max = config.serving.requests_max;
        Self {
            slots: Slab::of_at_most(requests_max),
            live: HashMap::with_capacity_and_hasher(
                config.serving.callers_room(requests_max),
                hash(),
            ),
            live_v1: HashMap::with_hasher(hash()),
            clients: Table::new(now, config.clients_max, &config.serving, seeds.0),
            tokens: Tokens::new(&key, config.pool.clock_ns),
            cookies: Cookies::new(ask_cookies, &key, config.pool.clock_ns),
            routers: Routers::new(config.pool.routers_max, config.pool.router, seeds.1),
            wheel: Wheel::new(TICK_BITS).of_at_most(requests_max),
            queue: SendQueue::new(),
            batches_since_report: 0,
            held: Holdings::default(),
            rejections: VecDeque::new(),
            renounced: Renounced::new(seeds.0),
            stopping_since: None,
            workers: 1,
            retry_after_ns: 0,
        }
    }

    /// A packet of a request; `datagram_len` is what the client paid for it.
    pub(super) fn handle_request(
        &mut self,
        now: Time,
        path: Path,
        packet: &Packet,
        datagram_len: usize,
        shared: &mut Shared,
    ) {
        let Kind::Request { header, route } = packet.kind else {
            return self.handle_request_v1(now, path, packet, shared);
        };
        let asked = Asked::by(packet, header, shared);
        self.turn(now);
        let Some((address, via)) = self.resolve(now, path, route, &shared.config) else {
            // It is the router that is asked for its token.
            let asked = Asked { addressee: 0, is_routers: true, ..asked };
            return self.refuse_packet(path, asked, Refusal::Validate, shared);
        };
        // Also where a router stands between: the client hears from the address that was asked.
        let to = Path { local: path.local, peer: address };
        if is_unanswerable(address.ip()) {
            shared.metrics.protocol_violation += 1;
            return;
        }
        if let Some(&index) = self.live.get(&asked.rpc_id.0) {
            if self.slots[index].is_of(address, shared.sender()) {
                self.validate(index, (path.peer, datagram_len), packet, &shared.config.serving);
                self.handle_again(now, index, packet, shared);
            } else {
                shared.metrics.protocol_violation += 1;
            }
        } else if packet.index != 0 && packet.flags().has(Flags::UNSCHEDULED) {
            // Its first packet was lost, refused or is late: that or the next like it is answered.
            shared.metrics.unknown += 1;
        } else if packet.index != 0 {
            // The client believes that it is known: let it begin again.
            shared.metrics.unknown += 1;
            self.queue_control(Control::Validate { to, asked }, shared);
        } else if is_copy(packet) && self.waiting_len() > 0 {
            // It would run after what waits, when the original has been answered.
            shared.metrics.clones_discarded += 1;
        } else {
            let newcomer = Newcomer { sender: path.peer, path: to, packet, header };
            match self.admit(now, &newcomer, shared) {
                Ok(client) => {
                    let index = self.take_slot(Admission {
                        client,
                        sender: shared.sender(),
                        path: to,
                        rid: packet.rid,
                        rpc_id: Some(asked.rpc_id),
                        terms: Terms::of(packet, self.clients[client].state.is_local),
                        clock_us: header.client_clock_us.get(),
                        via,
                        deadline: deadline(now, header, shared.config.lifetime_ns_max),
                        bytes_in: datagram_len,
                        bytes_out: held_ack_len(packet),
                    });
                    self.live.insert(asked.rpc_id.0, index);
                    return self.begin(now, index, packet, shared);
                }
                // A refusal would end the call, which the original may answer.
                Err(_) if is_copy(packet) => shared.metrics.clones_discarded += 1,
                Err(refusal) => self.refuse_packet(to, asked, refusal, shared),
            }
        }
        if let Some(via) = via {
            // It is not, or no longer, a request of its own: received and concluded at once.
            self.routers.receive(via);
            self.routers.conclude(via);
        }
    }

    /// A client's ACK and credit for a reply.
    pub(super) fn handle_reply_ack(
        &mut self,
        peer: SocketAddr,
        packet: &Packet,
        datagram_len: usize,
        shared: &mut Shared,
    ) {
        let (Some(index), Some(sack)) = (self.find(peer, packet, shared), packet.sack()) else {
            shared.metrics.unknown += 1;
            return;
        };
        self.validate(index, (peer, datagram_len), packet, &shared.config.serving);
        let slot = &mut self.slots[index];
        if !matches!(slot.phase, Phase::Replying) {
            shared.metrics.unexpected += 1;
            return;
        }
        slot.reply.apply(sack);
        if slot.reply.is_complete() {
            return self.release(index, shared);
        }
        let flags = packet.flags();
        let mut resent = 0;
        if flags.has(Flags::RESEND) {
            // The client asks when it has allowed for reordering.
            resent += slot.reply.resend_holes(0);
        }
        if flags.has(Flags::RESEND_TAIL) {
            resent += slot.reply.resend_some();
        }
        shared.metrics.resent += u64::from(resent);
        self.queue_data(index);
    }

    /// The client no longer wants the reply: it says so itself, or the router that the request came
    /// through does.
    pub(super) fn handle_cancel(&mut self, peer: SocketAddr, packet: &Packet, shared: &mut Shared) {
        let Some(index) = packet.rpc_id().and_then(|id| self.live.get(&id.0).copied()) else {
            shared.metrics.unknown += 1;
            return;
        };
        let (slot, sender) = (&self.slots[index], shared.sender());
        let is_passed_on =
            slot.sender == sender && slot.via.is_some_and(|via| self.routers.is_through(via, peer));
        if !slot.is_of(peer, sender) && !is_passed_on {
            shared.metrics.protocol_violation += 1;
            return;
        }
        if let (Phase::Receiving, Some(id)) = (&slot.phase, slot.rpc_id)
            // No copy of it that is still under way is to run.
            && let Err(denied) = self.clients.take_of(slot.client, id.session().0, id.sequence())
        {
            shared.metrics.deny(denied);
        }
        self.conclude(index);
        self.give_up(index, shared);
    }

    /// A router asks for a report. One that is not known is told its token first.
    pub(super) fn handle_probe(
        &mut self,
        now: Time,
        path: Path,
        packet: &Packet,
        shared: &mut Shared,
    ) {
        let Ok(placed) = <[u8; 4]>::try_from(packet.payload) else {
            return;
        };
        if !shared.config.serving.is_enabled {
            return;
        }
        self.turn(now);
        let is_believed = self.routers.believes(path.peer);
        if shared.is_unnamed() || !is_believed && !self.tokens.is_valid(path.peer, packet.token()) {
            let asked = Asked { is_routers: true, ..Asked::of(packet.rid, RpcId(0), 0) };
            return self.refuse_packet(path, asked, Refusal::Validate, shared);
        }
        if let Some(via) = self.routers.probe(now, path, u32::from_be_bytes(placed)) {
            self.routers.ask(via);
        }
    }

    pub(super) fn reply(
        &mut self,
        now: Time,
        id: RequestId,
        payload: Vec<u8>,
        shared: &mut Shared,
    ) -> Result<(), AnswerError> {
        let index = self.waiting(id).ok_or(AnswerError::Gone)?;
        let slot = &mut self.slots[index];
        let Some(rpc_id) = slot.rpc_id else {
            return self.reply_v1(index, payload, shared);
        };
        let (len, limit) =
            (payload.len(), shared.config.message_len_max.min(shared.config.packets_len_max()));
        if len > limit {
            self.refuse(id, DropReason::TooLarge, shared)?;
            return Err(AnswerError::TooLarge { len, limit });
        }
        if slot.deadline <= now {
            self.conclude(index);
            self.give_up(index, shared);
            return Err(AnswerError::Gone);
        }
        let payload = shared.buffers.fit_reply(payload);
        let segment_len = shared.config.segment_len_to(slot.terms.takes_long);
        slot.reply.begin_even(payload.into(), segment_len);
        slot.reply.grant_unscheduled();
        slot.phase = Phase::Replying;
        self.held.waiting -= 1;
        self.clients.hold(slot.client, &mut self.held, &mut slot.held, len);
        self.queue.push_data(SlotKey(id.0), &mut slot.reply);
        let client = slot.client;
        self.conclude(index);
        if let Some(place) = self.clients.known_session(client, rpc_id.session().0) {
            self.clients[place].kept.push(&mut self.slots, index);
        }
        Ok(())
    }

    pub(super) fn refuse(
        &mut self,
        id: RequestId,
        reason: DropReason,
        shared: &mut Shared,
    ) -> Result<(), AnswerError> {
        let index = self.waiting(id).ok_or(AnswerError::Gone)?;
        let slot = &self.slots[index];
        let (to, rid) = (slot.path, slot.rid);
        let control = match slot.asked(shared) {
            Some(asked) => Control::Drop { to, asked, reason },
            None => Control::DropV1 { to, rid },
        };
        self.queue_control(control, shared);
        shared.metrics.drop(reason);
        self.report_v1(index, shared);
        self.conclude(index);
        self.release(index, shared);
        Ok(())
    }

    /// Refuses a request in the application's own words. The refusal without words goes after it,
    /// for clients that know no other; whom it would pay too much has that alone.
    pub(super) fn reject(
        &mut self,
        id: RequestId,
        rejection: Rejection<'_>,
        shared: &mut Shared,
    ) -> Result<(), AnswerError> {
        let index = self.waiting(id).ok_or(AnswerError::Gone)?;
        let slot = &self.slots[index];
        let text = &rejection.text[..rejection.text.len().min(Rejection::TEXT_LEN_MAX)];
        let len = 2 * EXTENDED_LEN + Rejection::PREFIX_LEN + text.len() + 1;
        let is_affordable = self.clients[slot.client].is_validated || slot.allowance.covers(len);
        let to = slot.path;
        if let Some(asked) = slot.asked(shared).filter(|_| is_affordable)
            && self.queue.try_push_control(Control::Reject { to, asked })
        {
            let mut words = shared.buffers.take();
            words.extend_from_slice(&Rejection::prefix(rejection.code));
            words.extend_from_slice(text);
            self.rejections.push_back(words);
        }
        self.refuse(id, DropReason::Application, shared)
    }

    /// Takes no new requests from now on, and tells the routers.
    pub(super) fn stop(&mut self, now: Time) {
        if self.stopping_since.is_none() {
            self.stopping_since = Some(now);
            self.routers.ask_all();
        }
    }

    /// Takes requests again, and tells the routers.
    pub(super) fn serve_again(&mut self) {
        if self.stopping_since.take().is_some() {
            self.routers.ask_all();
        }
    }

    /// Replies of which packets have never been sent.
    pub(super) fn replies_under_way(&self) -> usize {
        self.slots.values().filter(|slot| slot.reply.is_partly_unsent()).count()
    }

    pub(super) fn handle_timeout(&mut self, now: Time, shared: &mut Shared) {
        while let Some(index) = self.wheel.pop_due(now) {
            match self.slots[index].phase {
                Phase::Receiving | Phase::ReceivingV1(_) => {
                    shared.metrics.partials_expired += 1;
                    self.report_v1(index, shared);
                    self.conclude(index);
                    self.release(index, shared);
                }
                Phase::Waiting => {
                    shared.metrics.unanswered += 1;
                    self.report_v1(index, shared);
                    self.conclude(index);
                    self.give_up(index, shared);
                }
                // Its router heard of its end when it was answered.
                Phase::Replying => self.give_up(index, shared),
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Time> {
        self.wheel.next_due()
    }

    #[inline(always)]
    pub(super) fn take_slot(&mut self, admission: Admission) -> SlotId {
        let index = self.slots.take(Slot::new);
        let slot = &mut self.slots[index];
        self.clients.begin_request(admission.client, &mut self.held, &mut slot.held);
        (slot.client, slot.sender) = (admission.client, admission.sender);
        slot.path = admission.path;
        slot.rid = admission.rid;
        slot.rpc_id = admission.rpc_id;
        slot.terms = admission.terms;
        slot.clock_us = admission.clock_us;
        slot.latest_clock_us = admission.clock_us;
        (slot.via, slot.is_counted) = (admission.via, false);
        slot.deadline = admission.deadline;
        slot.allowance =
            Allowance { received: admission.bytes_in as u64, sent: admission.bytes_out };
        slot.is_validation_asked = false;
        slot.is_acked = false;
        index
    }

    /// The first packet of an admitted request.
    #[inline]
    fn begin(&mut self, now: Time, index: SlotId, packet: &Packet, shared: &mut Shared) {
        if !shared.is_allowed(packet) {
            return self.deny(index, shared);
        }
        if packet.count == 1 {
            let mut payload = shared.buffers.take_for(packet.payload.len());
            payload.extend_from_slice(packet.payload);
            return self.deliver(index, payload, shared);
        }
        if let Some(via) = self.slots[index].via {
            // What may never be complete takes no place of the router's: it hears of it at once.
            self.routers.ask(via);
        }
        let (message_len, segment_len) = packet.lengths();
        let buffer = shared.buffers.take_to_fill(message_len as usize);
        let slot = &mut self.slots[index];
        slot.phase = Phase::Receiving;
        shared.begin_incoming(&mut slot.request, buffer, (message_len, segment_len));
        let client = slot.client;
        self.held.partials += 1;
        self.clients.begin_partial(client);
        self.receive(now, index, packet, shared);
    }

    /// A packet of a request that the server holds.
    fn handle_again(&mut self, now: Time, index: SlotId, packet: &Packet, shared: &mut Shared) {
        let slot = &mut self.slots[index];
        match slot.phase {
            Phase::ReceivingV1(_) => {}
            Phase::Receiving => self.receive(now, index, packet, shared),
            Phase::Waiting => {
                shared.metrics.repeated += 1;
                self.queue_sack(index);
            }
            Phase::Replying if packet.index == 0 => {
                slot.terms.hear_again(packet);
                shared.metrics.repeated += 1;
                slot.clock_us = slot.latest_clock_us;
                let resent = slot.reply.resend_unscheduled();
                shared.metrics.resent += u64::from(resent);
                self.queue_data(index);
            }
            Phase::Replying => {
                // The ACK of all its packets was lost, and the reply too: packet 0 will ask
                // for it again.
                shared.metrics.duplicates += 1;
                self.queue_sack(index);
            }
        }
    }

    fn receive(&mut self, now: Time, index: SlotId, packet: &Packet, shared: &mut Shared) {
        let lengths = packet.lengths();
        let slot = &mut self.slots[index];
        let before = slot.request.expected_packets();
        let arrival = slot.request.accept(packet.index, lengths, packet.payload);
        shared.note_expected(before, &slot.request);
        match arrival {
            Arrival::Refused => shared.metrics.protocol_violation += 1,
            Arrival::Duplicate => {
                shared.metrics.duplicates += 1;
                // The ACK that told of it may have been lost.
                self.queue_sack(index);
            }
            Arrival::New => {
                slot.clock_us = slot.latest_clock_us;
                let (serving, held_bytes) = (&shared.config.serving, self.held.held_bytes);
                // What has been granted may come in any case; above the limits no more is.
                if held_bytes < serving.held_bytes_max
                    && !self.clients.has_its_bytes(slot.client, held_bytes, serving)
                {
                    shared.extend_credit(&mut slot.request);
                }
                let held_bytes = slot.request.held_bytes();
                // A gap is told at once, to be mended within a round trip, and the first packet is
                // answered, so that the client knows where the rest goes.
                let is_due = shared.is_credit_due(&slot.request)
                    || slot.request.has_gap(0)
                    || packet.index == 0;
                let expiry = slot.deadline.min(now + shared.config.serving.partial_ns_max);
                self.hold(index, held_bytes);
                if is_due {
                    self.queue_sack(index);
                }
                self.wheel.arm(index, expiry);
            }
            Arrival::Complete => {
                slot.clock_us = slot.latest_clock_us;
                let payload = shared.end(&mut slot.request);
                let (client, to, rid) = (slot.client, slot.path, slot.rid);
                let (rpc_id, clock_us) = (slot.rpc_id.unwrap_or_default(), slot.clock_us);
                let addressee = shared.addressed(slot.sender);
                let taken = self.clients.take_of(client, rpc_id.session().0, rpc_id.sequence());
                let is_idempotent = packet.flags().has(Flags::IDEMPOTENT);
                if let Err(refusal) = note_taken(taken, is_idempotent, shared) {
                    shared.buffers.give(payload);
                    let asked = Asked { clock_us, ..Asked::of(rid, rpc_id, addressee) };
                    self.refuse_packet(to, asked, refusal, shared);
                    self.conclude(index);
                    return self.release(index, shared);
                }
                self.held.partials -= 1;
                self.clients.end_partial(client);
                self.deliver(index, payload, shared);
                if self.slots[index].is_acked {
                    self.queue_sack(index);
                } else {
                    // It came as one that needs no credit: the reply answers it.
                    self.slots[index].request.is_sack_queued = false;
                }
            }
        }
    }

    /// Hands a complete request to the application.
    pub(super) fn deliver(&mut self, index: SlotId, payload: Vec<u8>, shared: &mut Shared) {
        let id = self.await_answer(index);
        let slot = &self.slots[index];
        shared.metrics.requests += 1;
        shared.tell_request((id, slot.deadline), &slot.path.peer, slot.terms.options, payload);
    }

    /// A request is to be answered from now on, by the application or here.
    fn await_answer(&mut self, index: SlotId) -> RequestId {
        let slot = &mut self.slots[index];
        slot.phase = Phase::Waiting;
        slot.is_counted = slot.via.is_some();
        if let Some(via) = slot.via {
            self.routers.receive(via);
        }
        self.held.waiting += 1;
        self.wheel.arm(index, slot.deadline);
        RequestId(self.slots.key(index).0)
    }

    /// Refuses a request that the access policy does not allow its client, of which nothing has
    /// been kept.
    #[cold]
    fn deny(&mut self, index: SlotId, shared: &mut Shared) {
        let id = self.await_answer(index);
        let text = shared.seal.as_ref().and_then(|seal| seal.denials().1).map(Denial::to_string);
        let text = text.unwrap_or_default();
        let rejection = Rejection { code: DENIED_CODE, text: text.as_bytes() };
        // It has just been taken in, so that it is not gone.
        let _ = self.reject(id, rejection, shared);
    }

    /// The live request that a packet from its client speaks of.
    fn find(&self, peer: SocketAddr, packet: &Packet, shared: &Shared) -> Option<SlotId> {
        let index = *self.live.get(&packet.rpc_id()?.0)?;
        self.slots[index].is_of(peer, shared.sender()).then_some(index)
    }

    pub(super) fn waiting(&self, id: RequestId) -> Option<SlotId> {
        let index = self.slots.find(SlotKey(id.0))?;
        matches!(self.slots[index].phase, Phase::Waiting).then_some(index)
    }

    /// The number of the client of a request that the application has, where packets are sealed.
    pub(super) fn sender_of(&self, id: RequestId) -> Option<ClientEpoch> {
        Some(self.slots[self.waiting(id)?].sender)
    }

    /// Counts what the client paid and looks at its proof.
    fn validate(
        &mut self,
        index: SlotId,
        (sender, paid): (SocketAddr, usize),
        packet: &Packet,
        serving: &Serving,
    ) {
        let slot = &mut self.slots[index];
        slot.allowance.received += paid as u64;
        slot.allowance.sent += held_ack_len(packet);
        let is_request = packet.message_type == MessageType::Request;
        if let Some(header) = packet.request_header().filter(|_| is_request) {
            slot.latest_clock_us = header.client_clock_us.get();
        }
        let client = slot.client;
        self.validate_client(client, packet, sender, serving);
    }

    /// Counts `bytes` more against the limits.
    pub(super) fn hold(&mut self, index: SlotId, bytes: usize) {
        let slot = &mut self.slots[index];
        self.clients.hold(slot.client, &mut self.held, &mut slot.held, bytes);
    }

    /// Tells the router, if there is one, that the request no longer occupies this server.
    pub(super) fn conclude(&mut self, index: SlotId) {
        let slot = &mut self.slots[index];
        if std::mem::take(&mut slot.is_counted)
            && let Some(via) = slot.via
        {
            self.routers.conclude(via);
        }
    }

    /// Ends a request that nobody waits for; the application hears of it if it still has it.
    fn give_up(&mut self, index: SlotId, shared: &mut Shared) {
        let slot = &self.slots[index];
        if matches!(slot.phase, Phase::Waiting) {
            let id = RequestId(self.slots.key(index).0);
            shared.events.push_back(Event::Cancelled { id });
        }
        self.release(index, shared);
    }

    /// Releases kept replies whose calls the client says have ended: a few at a time, since a
    /// packet may end thousands. Each adds one at most, so that they do not pile up.
    pub(super) fn release_below(&mut self, session: SessionPlace, floor: u32, shared: &mut Shared) {
        for _ in 0..RELEASED_MAX {
            work::step(RELEASE_STEPS);
            let Some(index) = self.clients[session].kept.first() else {
                return;
            };
            if self.slots[index].rpc_id.is_none_or(|id| id.sequence() >= floor) {
                return;
            }
            self.unkeep(session, index);
            self.release(index, shared);
        }
    }

    /// Takes a reply out of those that its session keeps.
    #[inline(always)]
    fn unkeep(&mut self, session: SessionPlace, index: SlotId) {
        self.clients[session].kept.remove(&mut self.slots, index);
        self.slots[index].kept = None;
    }

    pub(super) fn release(&mut self, index: SlotId, shared: &mut Shared) {
        self.wheel.disarm(index);
        let slot = &mut self.slots[index];
        let from = slot.client;
        self.clients.end_request(from, &mut self.held, &mut slot.held);
        match std::mem::replace(&mut slot.phase, Phase::Replying) {
            Phase::Receiving => {
                self.held.partials -= 1;
                self.clients.end_partial(from);
            }
            Phase::ReceivingV1(mut request) => {
                self.held.partials -= 1;
                self.clients.end_partial(from);
                shared.buffers.give(request.take());
            }
            Phase::Waiting => self.held.waiting -= 1,
            Phase::Replying => {}
        }
        if slot.request.is_begun() {
            let rest = shared.end(&mut slot.request);
            shared.buffers.give(rest);
        }
        slot.request.is_sack_queued = false;
        shared.buffers.give(slot.reply.end());
        match slot.rpc_id {
            Some(rpc_id) => {
                self.live.remove(&rpc_id.0);
                if slot.kept.is_some()
                    && let Some(session) =
                        self.clients.known_session(slot.client, rpc_id.session().0)
                {
                    self.unkeep(session, index);
                }
            }
            None => {
                self.live_v1.remove(&(AddressKey(slot.path.peer), slot.rid));
            }
        }
        self.slots.release(index);
    }

    /// True if `bytes` more for a request would exceed a limit.
    pub(super) fn is_crowded(&self, index: SlotId, bytes: usize, serving: &Serving) -> bool {
        self.clients.is_crowded(self.slots[index].client, &self.held, bytes, serving)
    }

    /// Requests that wait for a worker of the application.
    pub(super) fn waiting_len(&self) -> usize {
        self.held.waiting.saturating_sub(self.workers)
    }

    pub(super) fn queue_data(&mut self, index: SlotId) {
        let key = self.slots.key(index);
        self.queue.push_data(key, &mut self.slots[index].reply);
    }

    pub(super) fn queue_sack(&mut self, index: SlotId) {
        let key = self.slots.key(index);
        self.queue.push_sack(key, &mut self.slots[index].request);
    }

    /// Queues what answers a packet that is not kept.
    pub(super) fn queue_control(&mut self, control: Control, shared: &mut Shared) {
        if !self.queue.try_push_control(control) {
            shared.metrics.control_dropped_queue_full += 1;
        }
    }
}

impl Slot {
    fn new() -> Self {
        Self {
            phase: Phase::Replying,
            rpc_id: None,
            rid: 0,
            terms: Terms::default(),
            client: PeerId::default(),
            sender: ClientEpoch::default(),
            path: NOBODY.into(),
            clock_us: 0,
            latest_clock_us: 0,
            via: None,
            is_counted: false,
            deadline: 0,
            request: Incoming::default(),
            reply: Outgoing::default(),
            held: Held::default(),
            allowance: Allowance::default(),
            kept: None,
            is_validation_asked: false,
            is_acked: false,
        }
    }

    /// Fields by which an answer names it; `None` in version 1.
    fn asked(&self, shared: &Shared) -> Option<Asked> {
        let addressee = shared.addressed(self.sender);
        self.rpc_id.map(|rpc_id| Asked::of(self.rid, rpc_id, addressee))
    }

    /// True if a packet from `address`, sealed by `sender`, is of its client.
    fn is_of(&self, address: SocketAddr, sender: ClientEpoch) -> bool {
        (self.path.peer, self.sender) == (address, sender)
    }
}

impl Linked for Slot {
    fn links(&mut self) -> &mut Links {
        self.kept.get_or_insert_default()
    }
}

/// Result of remembering a request that runs or is refused: one that is not idempotent must not run
/// where there is no memory for it, nor be refused for good.
pub(super) fn note_taken(
    taken: Result<(), Denied>,
    is_idempotent: bool,
    shared: &mut Shared,
) -> Result<(), Refusal> {
    let Err(denied) = taken else {
        return Ok(());
    };
    shared.metrics.deny(denied);
    if is_idempotent { Ok(()) } else { Err(Refusal::Drop(DropReason::Uncertain)) }
}

/// True if the request is the second of two copies.
fn is_copy(packet: &Packet) -> bool {
    let flags = packet.flags();
    flags.has(Flags::IDEMPOTENT) && flags.clone_mark() == CloneMark::Copy
}

/// Bytes that a router may have told the client for this packet: that it holds the request.
fn held_ack_len(packet: &Packet) -> u64 {
    if packet.is_routed() { HELD_ACK_LEN } else { 0 }
}

/// Deadline at which the client stops waiting, as its packet says.
fn deadline(now: Time, header: &RequestHeader, lifetime_ns_max: u64) -> Time {
    match u64::from(header.deadline_us.get()) {
        0 => now + lifetime_ns_max,
        us => now + (us * 1000).min(lifetime_ns_max),
    }
}

/// Bytes of the ACK by which a router may have told the client that it holds the request.
const HELD_ACK_LEN: u64 = (EXTENDED_LEN + size_of::<tailcut_wire::r2p2::SackBody>()) as u64;

/// Steps that a release counts for.
const RELEASE_STEPS: usize = 8;

/// Kept replies that one packet releases.
const RELEASED_MAX: u32 = 8;

/// Ticks of 2^20 ns, about 1 ms: what expires here is counted in seconds.
const TICK_BITS: u32 = 20;
