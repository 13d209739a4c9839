//! The server half: requests, from the first packet to the acknowledgement of their reply.
//!
//! | phase of a request | enters | ends |
//! |---|---|---|
//! | receiving | its first packet | complete; acknowledged; deadline; no progress for `partial_ns_max`, or no answer for `partial_silence_ns_max` |
//! | waiting | complete, handed to the application | answered; acknowledged, which cancels it; deadline |
//! | replying | answered | acknowledged; the client is silent and has been asked `need_acks_max` times |
//!
//! At most once: a request runs when its id is in none of these phases and its session has not seen
//! it. The session remembers it from then on, so that a copy that comes after the acknowledgement
//! does not run either. What is sent again and may have run before this server knew the session is
//! refused.

use tailcut_wire::homa::{
    Ack, Age, DataFlags, DataHeader, MESSAGE_LEN_MAX, PartHeader, Ports, TimeLeft,
};
use tailcut_wire::r2p2::DropReason;

use super::acks::ACKED_MAX;
use super::ids::ClientId;
use super::peers::Echo;
use super::sealing::Admission;
use super::slot::{Partial, Reply};
use super::transmit::Control;
use super::{Endpoint, Found, Origin, Phase, Shown};
use crate::node::Time;
use crate::peer::once::Memory;
use crate::peer::table::PeerId;
use crate::peer::validation::Refusal;
use crate::rpc::{AnswerError, Event, RequestId};
use crate::work;
use tailcut_placement::slab::{SlotId, SlotKey};

impl Endpoint {
    /// DATA of a request.
    pub(super) fn handle_request(
        &mut self,
        now: Time,
        origin: &Origin,
        header: &DataHeader,
        payload: &[u8],
    ) {
        // Nothing of a packet whose session is not remembered reaches an RPC, its acknowledgement
        // neither: it may have been recorded.
        if self.is_stranger() {
            return self.refuse_stranger(origin, header);
        }
        let ack = header.ack;
        // Whatever becomes of the request: its client has struck this off what it owes.
        if ack.client_id.get() != 0 {
            self.acknowledge_all(now, origin, &[ack]);
        }
        match self.find(origin) {
            Found::Nothing => {}
            Found::OtherPorts => {
                self.metrics.protocol_violation += 1;
                return;
            }
            Found::Rpc(index) => return self.handle_more(now, origin, index, (header, payload)),
        }
        let shown = self.look_for_tag(now, origin, (header, payload));
        if shown == Shown::Lacking {
            return self.ask_for_cookie(origin, header);
        }
        let origin = &Origin { shown, ..*origin };
        let is_whole = header.message_length.get() as usize <= payload.len();
        match self.admit(now, origin, (header, is_whole)) {
            Ok(_) if !self.may_begin_by(header, payload) => self.metrics.protocol_violation += 1,
            Ok((peer, partial)) => match self.admission(header, (payload, is_whole)) {
                Admission::Allowed => {
                    let index = self.begin_request(now, (peer, partial), origin, header);
                    self.note_proof(now, index, header);
                    if self.is_whole(header, payload) {
                        let message = self.take_whole(now, index, header, payload);
                        self.take_request(now, index, header.flags(), message);
                    } else {
                        self.begin_parts(now, index, header);
                        self.take_part(now, index, header, payload);
                    }
                }
                Admission::Denied => self.deny(now, (origin, peer), (header, payload)),
                Admission::Untold => {}
            },
            Err(Some(refusal)) => self.refuse_packet(origin, header, refusal),
            Err(None) => {}
        }
    }

    /// DATA of a request that is known.
    fn handle_more(
        &mut self,
        now: Time,
        origin: &Origin,
        index: SlotId,
        (header, payload): (&DataHeader, &[u8]),
    ) {
        self.touch(now, origin, index);
        self.note_proof(now, index, header);
        if !matches!(self.rpcs[index].phase, Phase::Receiving(_)) {
            // It may be the proof of the address for which the reply waits.
            self.metrics.repeated += 1;
            self.resume(index);
        } else if self.has_predated(now, index, header) {
            self.drop_partial(index, DropReason::Uncertain);
        } else {
            self.take_part(now, index, header, payload);
        }
    }

    pub(super) fn begin_reply(
        &mut self,
        now: Time,
        id: RequestId,
        payload: Vec<u8>,
    ) -> Result<(), AnswerError> {
        let index = self.waiting_slot(id).ok_or(AnswerError::Gone)?;
        let (len, limit) = (payload.len(), self.reply_len_max(index));
        if len > limit {
            self.refuse_request(now, id, DropReason::TooLarge)?;
            return Err(AnswerError::TooLarge { len, limit });
        }
        // The timer may not have come yet, and nobody waits for this reply.
        if self.rpcs[index].deadline <= now {
            self.withdraw(index);
            return Err(AnswerError::Gone);
        }
        self.send_reply(now, index, payload);
        Ok(())
    }

    pub(super) fn refuse_request(
        &mut self,
        now: Time,
        id: RequestId,
        reason: DropReason,
    ) -> Result<(), AnswerError> {
        self.refuse_saying(now, id, reason, &[])
    }

    /// Refuses a request; `words` follow the reason.
    pub(super) fn refuse_saying(
        &mut self,
        now: Time,
        id: RequestId,
        reason: DropReason,
        words: &[&[u8]],
    ) -> Result<(), AnswerError> {
        let index = self.waiting_slot(id).ok_or(AnswerError::Gone)?;
        self.metrics.drop(reason);
        let slot = &mut self.rpcs[index];
        if slot.server.flags & DataFlags::KNOWN == 0 {
            // A client that does not know flags would take the reason for a reply: silence ends its
            // call.
            self.release(index);
            return Ok(());
        }
        slot.flags |= DataFlags::REFUSED;
        let mut payload = self.buffers.take();
        payload.push(reason as u8);
        words.iter().for_each(|part| payload.extend_from_slice(part));
        self.send_reply(now, index, payload);
        Ok(())
    }

    /// The client has the replies that these name, or wants none. Of ranges, what is more than a
    /// packet may name is left: it is asked for.
    pub(super) fn acknowledge_all(&mut self, now: Time, origin: &Origin, acks: &[Ack]) {
        let mut left = ACKED_MAX;
        for &ack in acks {
            self.acknowledge_range(now, origin, ack, &mut left);
        }
    }

    fn acknowledge_range(&mut self, now: Time, origin: &Origin, ack: Ack, left: &mut u16) {
        // The lowest bit says that it is a range, and not whose number it is.
        let last = ack.client_id.get() & !1;
        let Some(count) = ack.range_count() else {
            return self.acknowledge(now, origin, (ClientId(last), ack.server_port.get()));
        };
        let taken = count.min(*left);
        self.metrics.protocol_violation += u64::from(taken < count);
        *left -= taken;
        for place in 0..u64::from(taken) {
            let id = ClientId(last.saturating_sub(2 * place));
            self.acknowledge(now, origin, (id, origin.common.dport.get()));
        }
    }

    /// The client has the reply, or wants none.
    pub(super) fn acknowledge(
        &mut self,
        now: Time,
        origin: &Origin,
        (id, server_port): (ClientId, u16),
    ) {
        let Some(peer) = self.peers.find(origin.path.peer) else {
            return;
        };
        let Some(index) = self.rpcs.find(peer, id.0 | 1) else {
            return;
        };
        work::step(RELEASE_STEPS);
        let slot = &self.rpcs[index];
        if id.0 & 1 != 0
            || slot.ports.source != server_port
            || slot.ports.destination != origin.common.sport.get()
            || !slot.is_of(self.sender())
        {
            self.metrics.protocol_violation += 1;
            return;
        }
        // Its client has given the call up, and wants no answer.
        if matches!(slot.phase, Phase::Waiting | Phase::Parked(_)) {
            return self.withdraw(index);
        }
        if !slot.out.is_sendable() {
            let delay_ns = now.saturating_sub(slot.timing.sent_at);
            let known = &mut self.peers[peer].state.times.ack_delay;
            // Clients hold acknowledgements back for half of `need_ack_ns`: only what is later is
            // news.
            if known.is_known() || delay_ns > self.config.recovery.need_ack_ns / 2 {
                known.sample(delay_ns);
            }
        }
        self.release(index);
    }

    /// Ends a request that the application has, and tells it.
    pub(super) fn withdraw(&mut self, index: SlotId) {
        // Of a part that waits for others, the application knows nothing.
        if !matches!(self.rpcs[index].phase, Phase::Parked(_)) {
            self.events.push_back(Event::Cancelled { id: RequestId(self.handle_of(index)) });
        }
        self.release(index);
    }

    /// Ends a request that the application has not, for a reason that its client is told.
    pub(super) fn drop_partial(&mut self, index: SlotId, reason: DropReason) {
        let slot = &self.rpcs[index];
        let (ports, id, request_flags) = (slot.ports, slot.id, slot.server.flags);
        let (to, addressee) = (self.path_of(index), self.addressee_of(index));
        if request_flags & DataFlags::KNOWN != 0 {
            self.metrics.drop(reason);
            self.push_control(Control::Refused { to, ports, id, reason, addressee });
        }
        self.release(index);
    }

    /// Charges `bytes` of a request to its client.
    pub(super) fn hold(&mut self, index: SlotId, bytes: usize) {
        let slot = &mut self.rpcs[index];
        let bytes = slot.server.held.bytes + bytes;
        self.peers.hold(slot.peer, &mut self.holdings, &mut slot.server.held, bytes);
    }

    /// The bytes of a request are the application's now.
    pub(super) fn unhold(&mut self, index: SlotId) {
        let slot = &mut self.rpcs[index];
        self.peers.hold(slot.peer, &mut self.holdings, &mut slot.server.held, 0);
    }

    /// Sends on what was held back until the client's address was validated.
    pub(super) fn resume(&mut self, index: SlotId) {
        if matches!(self.rpcs[index].phase, Phase::Replying(_)) {
            self.rank_out(index);
        }
    }

    /// The longest reply that the client of a request takes.
    fn reply_len_max(&self, index: SlotId) -> usize {
        let is_known = self.rpcs[index].server.flags & DataFlags::KNOWN != 0;
        let limit = self.config.message_len_max;
        // Who knows no flags is taken for the module, which refuses longer messages.
        if is_known { limit } else { limit.min(MESSAGE_LEN_MAX as usize) }
    }

    /// The request that the application means, if it has it.
    pub(super) fn waiting_slot(&self, id: RequestId) -> Option<SlotId> {
        self.slot_of(SlotKey(id.0), |phase| matches!(phase, Phase::Waiting))
    }

    /// Answers a request that waits.
    pub(super) fn send_reply(&mut self, now: Time, index: SlotId, payload: Vec<u8>) {
        self.send_reply_of(now, index, payload, false);
    }

    /// As [`Endpoint::send_reply`]; `is_fetch` of a part of a long reply.
    #[inline(always)]
    pub(super) fn send_reply_of(
        &mut self,
        now: Time,
        index: SlotId,
        payload: Vec<u8>,
        is_fetch: bool,
    ) {
        let birth = self.rpcs.next_birth();
        self.hold(index, payload.len());
        let payload = self.buffers.fit_reply(payload);
        let (payload, whole) = self.cut_reply(index, payload);
        let unscheduled = self.unscheduled_len(index);
        let slot = &mut self.rpcs[index];
        slot.phase = Phase::Replying(Reply { whole, is_fetch });
        slot.send(payload.into(), unscheduled, birth);
        // Else the time of the service would count as the client's silence.
        slot.timing.sent_at = slot.timing.sent_at.max(now);
        self.holdings.waiting -= 1;
        self.rank_out(index);
        // While it goes out, the timer that waited for the answer stands.
        if !self.is_sending(&self.rpcs[index]) {
            self.arm(now, index);
        }
    }

    #[inline(always)]
    pub(super) fn begin_request(
        &mut self,
        now: Time,
        (peer, partial): (PeerId, Option<Partial>),
        origin: &Origin,
        header: &DataHeader,
    ) -> SlotId {
        let id = ClientId(origin.common.sender_id.get());
        let Ports { source, destination } = origin.common.ports();
        let sender = self.sender();
        let index = self.rpcs.take();
        let slot = &mut self.rpcs[index];
        slot.begin(
            now,
            Phase::Receiving(partial),
            (peer, Ports { source: destination, destination: source }, id),
        );
        slot.local = origin.path.local;
        slot.sender = sender;
        slot.server.allowance.received = origin.len as u64;
        slot.server.is_validated = origin.shown == Shown::Tag;
        slot.flags = DataFlags::KNOWN | self.config.flags(origin.path.peer);
        self.peers[peer].note_long(header.flags(), &self.config);
        slot.server.flags = header.flags().0;
        slot.options.idempotent = header.flags().has(DataFlags::IDEMPOTENT);
        let lifetime_ns = self.config.lifetime_ns_max;
        // Without the flag these bytes are padding; and whatever a client says, no request is kept
        // for longer than `lifetime_ns_max`.
        let left =
            TimeLeft(header.time_left.get()).ns().filter(|_| header.flags().has(DataFlags::KNOWN));
        slot.deadline = now.saturating_add(left.unwrap_or(lifetime_ns).min(lifetime_ns));
        self.peers.begin_request(peer, &mut self.holdings, &mut slot.server.held);
        let record = &mut self.peers[peer];
        record.used_at = now;
        record.state.is_stripped = header.is_stripped();
        if let Some(partial) = partial {
            self.holdings.partials += 1;
            self.gate.unvalidated_partials += usize::from(partial == Partial::Unvalidated);
            self.peers.begin_partial(peer);
        }
        self.rpcs.enlist(index);
        index
    }

    /// Begins the message of a request of which more may be to come.
    pub(super) fn begin_parts(&mut self, now: Time, index: SlotId, header: &DataHeader) {
        self.begin_incoming(index, header);
        self.hold(index, self.rpcs[index].inc.message.granted() as usize);
        self.arm(now, index);
    }

    fn take_part(&mut self, now: Time, index: SlotId, header: &DataHeader, payload: &[u8]) {
        if !self.accept(now, index, header, payload) {
            return;
        }
        let payload = self.take_message(now, index, header.flags());
        self.take_request(now, index, header.flags(), payload);
    }

    /// All of a request has come.
    fn take_request(&mut self, now: Time, index: SlotId, flags: DataFlags, payload: Vec<u8>) {
        let slot = &self.rpcs[index];
        let (peer, id) = (slot.peer, slot.id);
        // The memory was there when the request was admitted; where others have taken it since, it
        // must not run.
        if let Err(denied) = self.peers.take_of(peer, id.session(), id.sequence())
            && !self.rpcs[index].options.idempotent
        {
            self.metrics.deny(denied);
            self.buffers.give(payload);
            return self.drop_partial(index, DropReason::Uncertain);
        }
        self.await_answer(now, index);
        if flags.has(DataFlags::PART) {
            self.take_request_part(now, index, payload);
        } else {
            self.deliver(index, payload);
        }
    }

    /// A request is to be answered from now on, by the application or here.
    #[inline(always)]
    pub(super) fn await_answer(&mut self, now: Time, index: SlotId) {
        self.end_partial(index);
        self.rpcs[index].phase = Phase::Waiting;
        self.holdings.waiting += 1;
        // Most are answered before it looks.
        self.arm_ahead(now, index);
    }

    /// Hands a request to the application.
    pub(super) fn deliver(&mut self, index: SlotId, payload: Vec<u8>) {
        self.unhold(index);
        self.metrics.requests += 1;
        let slot = &self.rpcs[index];
        let (client, deadline) = (self.peers[slot.peer].address, slot.deadline);
        let (id, options) = (RequestId(self.handle_of(index)), slot.options);
        self.events.push_back(Event::Request { id, client, payload, deadline, options });
    }

    /// Admission of an unknown request, all of which has come or not: its peer and what it counts
    /// as, or why not; `None` where its client is told nothing.
    fn admit(
        &mut self,
        now: Time,
        origin: &Origin,
        (header, is_whole): (&DataHeader, bool),
    ) -> Result<(PeerId, Option<Partial>), Option<Refusal>> {
        self.check_fit(header).map_err(|reason| Some(Refusal::Drop(reason)))?;
        let address = origin.path.peer;
        // Who cannot remember a refusal does not promise that no copy will run.
        let uncertain = Some(Refusal::Drop(DropReason::Uncertain));
        let peer = match self.peers.find(address) {
            Some(known) => known,
            None if !self.takes_stranger(now, origin, header) => {
                return Err(Some(Refusal::Validate));
            }
            None => self.peer_of(now, address).ok_or(uncertain)?,
        };
        let id = ClientId(origin.common.sender_id.get());
        self.check_session(now, (address, peer), id).map_err(Some)?;
        let is_idempotent = header.flags().has(DataFlags::IDEMPOTENT);
        // The rest of a reply that was given before the stop is fetched by requests of their own.
        let is_fetch = is_fetch(header) && is_whole;
        let is_closed = self.gate.is_closed && !is_fetch;
        let partial = self.partial_of(origin, peer, (header, is_whole));
        let is_full = self.is_full(peer, header, partial);
        if is_fetch && is_full && self.peers[peer].state.fetches > 0 {
            // The reply that it is a part of is here, and has run: it is asked for again when
            // others have left. One at a time goes whatever is held, so that they do.
            self.metrics.drop(DropReason::Overload);
            return Err(None);
        }
        let serving = &self.config.serving;
        // Read before `session` takes note of this use.
        let silent_ns = self
            .peers
            .known_session(peer, id.session())
            .map_or(0, |place| self.peers[place].silent_ns(now));
        let place = self.peers.session(now, peer, id.session(), serving).map_err(|denied| {
            self.metrics.deny(denied);
            uncertain
        })?;
        if let Some(seal) = &mut self.seal {
            self.peers[place].note_sound();
            seal.note_known(address);
        }
        let is_seen = self.peers[place].once.recall(id.sequence()) != Memory::Fresh;
        if is_seen && self.has_restarted(now, peer, header, silent_ns) {
            self.peers[place].restart(now);
        } else if is_seen && !is_idempotent {
            if header.offset() != 0 && header.retransmit == 0 {
                // Each packet of a long request that needs no grant comes here: one is answered.
                return Err(None);
            }
            self.metrics.duplicate_after_release += 1;
            return Err(uncertain);
        }
        let transit_ns_max = self.config.serving.transit_ns_max;
        // Where packets are sealed, that has been told by when the session began.
        if self.seal.is_none()
            && may_predate(now, header, (self.peers[place].known_since, transit_ns_max))
        {
            return Err(uncertain);
        }
        if !is_closed && (!is_full || is_fetch) {
            return Ok((peer, partial));
        }
        if !is_idempotent {
            // The client takes the refusal for a promise that no copy of it will run.
            self.peers.take(place, id.sequence()).map_err(|denied| {
                self.metrics.deny(denied);
                uncertain
            })?;
        }
        let reason = if self.gate.is_closed { DropReason::Stopping } else { DropReason::Overload };
        Err(Some(Refusal::Drop(reason)))
    }

    /// Refuses a request that this server takes from nobody.
    fn check_fit(&self, header: &DataHeader) -> Result<(), DropReason> {
        let unfit = [
            (!self.config.serving.is_enabled, DropReason::Application),
            // An access policy sees the first bytes of a request, and these are the header of a
            // part.
            (self.seal.is_some() && header.flags().has(DataFlags::PART), DropReason::Unspecified),
            (
                header.message_length.get() as usize > self.config.message_len_max,
                DropReason::TooLarge,
            ),
        ];
        unfit.into_iter().find(|(is_so, _)| *is_so).map_or(Ok(()), |(_, reason)| Err(reason))
    }

    /// True if a peer without flags, whose request looks like one that has run, counts from the
    /// start again: its host has come up anew, or another has its address. So it is where its
    /// session was silent for longer than a duplicate lives. Else it is asked by RPC_UNKNOWN
    /// whether it waits: a client that does sends its request again, a late duplicate does not.
    fn has_restarted(
        &mut self,
        now: Time,
        peer: PeerId,
        header: &DataHeader,
        silent_ns: u64,
    ) -> bool {
        if header.flags().has(DataFlags::KNOWN) {
            return false;
        }
        let id = ClientId(header.common.sender_id.get());
        let idle_ns = self.config.serving.session_idle_ns;
        let lifetime_ns = self.config.lifetime_ns_max;
        let state = &mut self.peers[peer].state;
        // A client whose reply was given up may wait for what has run.
        let may_wait =
            state.unacknowledged_at.is_some_and(|at| now.saturating_sub(at) < lifetime_ns);
        let is_answer = header.retransmit != 0
            && !may_wait
            && state
                .asked_about
                .is_some_and(|(asked, at)| asked == id && now.saturating_sub(at) < ANSWER_NS_MAX);
        if silent_ns > idle_ns || is_answer {
            state.asked_about = None;
            return true;
        }
        if header.retransmit == 0 && header.offset() == 0 {
            state.asked_about = Some((id, now));
        }
        false
    }

    /// True if a request that this server believes to be new was sent before it knew the session:
    /// what began it is a duplicate. In doubt it was sent later: calls that begin just after a
    /// start lose packets too.
    fn has_predated(&mut self, now: Time, index: SlotId, header: &DataHeader) -> bool {
        if self.seal.is_some() || !must_tell_age(header) {
            return false;
        }
        let (peer, id) = (self.rpcs[index].peer, self.rpcs[index].id);
        let session = self.peers.session(now, peer, id.session(), &self.config.serving);
        let sent_by = now.saturating_sub(Age(header.retransmit).ns_min());
        session.is_ok_and(|place| sent_by < self.peers[place].known_since)
    }

    fn is_full(&self, peer: PeerId, header: &DataHeader, partial: Option<Partial>) -> bool {
        // More comes by grants alone, which look at the limits again.
        let bytes = header.message_length.get().min(self.config.unscheduled_len_max) as usize;
        let serving = &self.config.serving;
        let partials_max = serving.partials_max.min(serving.requests_max);
        // Who forges addresses has half of the places at most, and keeps out nobody who has shown
        // his.
        partial == Some(Partial::Unvalidated)
            && self.gate.unvalidated_partials >= partials_max.div_ceil(2)
            || partial.is_some()
                && !self.peers.has_room_for_partial(
                    peer,
                    serving.partials_max.saturating_sub(self.holdings.partials),
                )
            || self.peers.is_full(peer, &self.holdings, bytes, serving)
    }

    /// True if a packet of an unknown request is within what its sender may send without a grant.
    /// One that is not would begin a request of which nothing has come, and nobody is asked for.
    fn may_begin_by(&self, header: &DataHeader, payload: &[u8]) -> bool {
        let ahead = self.config.unscheduled_len_max;
        let granted = if header.is_stripped() { ahead } else { header.incoming.get().min(ahead) };
        let end = u64::from(header.offset()) + payload.len() as u64;
        end <= granted.min(header.message_length.get()).into()
    }

    /// Kind of the partial request that this packet begins; `None` if the packet is all of it.
    fn partial_of(
        &self,
        origin: &Origin,
        peer: PeerId,
        (header, is_whole): (&DataHeader, bool),
    ) -> Option<Partial> {
        if is_whole {
            return None;
        }
        let version = self.advice.cutoffs.version;
        let is_shown = origin.shown == Shown::Tag;
        match is_shown || self.peers[peer].is_validated_by(Echo::of(header), version) {
            true => Some(Partial::Validated),
            false => Some(Partial::Unvalidated),
        }
    }

    /// A request is complete or gone.
    pub(super) fn end_partial(&mut self, index: SlotId) {
        let slot = &mut self.rpcs[index];
        if let Phase::Receiving(partial) = &mut slot.phase
            && let Some(partial) = partial.take()
        {
            self.holdings.partials -= 1;
            self.gate.unvalidated_partials -= usize::from(partial == Partial::Unvalidated);
            self.peers.end_partial(slot.peer);
        }
    }

    pub(super) fn refuse_packet(&mut self, origin: &Origin, header: &DataHeader, refusal: Refusal) {
        let (to, id) = (origin.path, ClientId(origin.common.sender_id.get()));
        let Ports { source, destination } = origin.common.ports();
        let ports = Ports { source: destination, destination: source };
        let addressee = self.addressee();
        match refusal {
            Refusal::Validate => self.push_control(Control::Validate { to, ports, id, addressee }),
            Refusal::Drop(reason) => {
                self.metrics.drop(reason);
                if header.flags().has(DataFlags::KNOWN) {
                    self.push_control(Control::Refused { to, ports, id, reason, addressee });
                } else if reason == DropReason::Uncertain
                    && (header.retransmit, header.offset()) == (0, 0)
                {
                    // Once: who gets it sends all of its request again.
                    let local_id = id.0 | 1;
                    self.push_control(Control::Unknown { to, ports, local_id, addressee });
                }
            }
        }
    }
}

/// True of a request for the rest of a long reply.
fn is_fetch(header: &DataHeader) -> bool {
    header.flags().has(DataFlags::PART)
        && header.flags().has(DataFlags::IDEMPOTENT)
        && header.message_length.get() as usize == PartHeader::LEN
}

/// Longest that a client takes to send its request again: several of the module's ticks.
const ANSWER_NS_MAX: u64 = 100_000_000;

/// Steps that the end of a request counts for.
const RELEASE_STEPS: usize = 8;

/// True if a packet may have been sent first, and so have run, before `known_since`.
fn may_predate(now: Time, header: &DataHeader, (known_since, transit_ns): (Time, u64)) -> bool {
    // Nothing is older than time 0: a server that began then knows all that was sent.
    must_tell_age(header)
        && match Age(header.retransmit).ns_max() {
            None => known_since > 0,
            Some(age_ns) => now.saturating_sub(age_ns).saturating_sub(transit_ns) < known_since,
        }
}

/// True if a packet is sent again of what must not run twice, by who knows flags and so says how
/// old that is.
fn must_tell_age(header: &DataHeader) -> bool {
    let flags = header.flags();
    header.retransmit != 0 && flags.has(DataFlags::KNOWN) && !flags.has(DataFlags::IDEMPOTENT)
}
