//! Effects of a seal on an endpoint: by whose name requests go, and which of them run.
//!
//! | a client | then |
//! |---|---|
//! | has data for who has not told a name | asks by RESEND, which names nobody; the data wait |
//! | is told the name | they go, for that server alone |
//! | has sent a request by one name, and another server is there now | the call ends as `Uncertain`, unless it may run twice |
//! | is told that the server has no key of its epoch, and the call cannot have run or may run twice | it goes again under another key, or ends as `NoKey` |
//! | the same, and the call has gone by a name | it ends as `Uncertain` |
//!
//! | a server | then |
//! |---|---|
//! | gets a request of a session that may be older than itself, or is at another address | refuses it as `Uncertain` |
//! | gets one that its policy does not allow | rejects it by its first packet, and keeps nothing of it |

use std::net::SocketAddr;

use tailcut_wire::homa::{DataFlags, DataHeader, Malformed, Ports};
use tailcut_wire::r2p2::{DropReason, Rejection};

use super::ids::{ClientId, SEQUENCE_MAX};
use super::slot::{Naming, Slot};
use super::transmit::{CONTROL_PRIORITY, Control};
use super::{Endpoint, Origin, Phase};
use crate::node::{Path, Time, Transmit};
use crate::peer::table::PeerId;
use crate::peer::validation::Refusal;
use crate::rpc::{CallError, Caller, Failure, RequestId};
use crate::sealed::{ClientEpoch, DENIED_CODE, Denial, NoKey, TRAILER_LEN};
use tailcut_placement::slab::SlotId;

/// Verdict of a server's policy on a packet that would begin a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// It may.
    Allowed,
    /// The policy does not allow it.
    Denied,
    /// It is for another packet of the request to tell, which goes again with this one.
    Untold,
}

impl Endpoint {
    /// The number of the client whose request this is, where packets are sealed.
    pub fn client_of(&self, id: RequestId) -> Option<u32> {
        self.seal.as_ref().filter(|seal| seal.is_server())?;
        self.waiting_slot(id).map(|index| self.rpcs[index].sender.client())
    }

    /// As [`crate::rpc::Rpc::caller`].
    pub(super) fn caller_of(&self, id: RequestId) -> Option<Caller> {
        let seal = self.seal.as_ref()?;
        let slot = &self.rpcs[self.waiting_slot(id)?];
        seal.caller(slot.sender.client(), slot.id.session())
    }

    /// The id of a call that begins, and for whom a server's seal seals it: who has called, where
    /// it is a call back.
    #[inline(always)]
    pub(super) fn id_for(
        &mut self,
        now: Time,
        peer: PeerId,
        back: Option<Caller>,
    ) -> Result<(ClientId, ClientEpoch), CallError> {
        if self.seal.as_ref().is_some_and(|seal| seal.is_server()) {
            return self.id_back(peer, back);
        }
        Ok((self.next_id(now, peer), ClientEpoch::default()))
    }

    /// The id of a call back, in the session of who has called, and for whom it is sealed.
    fn id_back(
        &mut self,
        peer: PeerId,
        back: Option<Caller>,
    ) -> Result<(ClientId, ClientEpoch), CallError> {
        let (seal, to) = self.seal.as_mut().zip(back).ok_or(CallError::NoSession)?;
        let called = seal.call_back(to, SEQUENCE_MAX);
        let (sender, sequence) = called.ok_or(CallError::NoSession)?;
        self.peers[peer].state.addressee = sender.addressee();
        Ok((ClientId::new(to.session, sequence), sender))
    }

    /// Opens a datagram in place; gives the length of the open packet at its beginning. `None`
    /// where it is none, or packets are open and it is sealed.
    #[inline(never)]
    pub(super) fn opened(&mut self, now: Time, path: Path, bytes: &mut [u8]) -> Option<usize> {
        let Some(seal) = &mut self.seal else {
            self.metrics.malformed(Malformed::Value);
            return None;
        };
        let opened = seal.open(now, path.peer, bytes);
        self.metrics.seal = seal.metrics();
        if opened.is_none() {
            self.egress.answer(path, seal.answer_homa());
        }
        opened
    }

    /// Writes what goes next, sealed.
    #[inline(never)]
    pub(super) fn write_next_sealed(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        if let Some((path, answer)) = self.egress.answers.pop_front() {
            buffer.get_mut(..answer.len())?.copy_from_slice(&answer);
            self.metrics.datagrams_out += 1;
            let priority = CONTROL_PRIORITY;
            return Some(Transmit { priority, ..Transmit::single(path, answer.len()) });
        }
        loop {
            let transmit = self.write_next(now, buffer)?;
            let seal = self.seal.as_mut()?;
            let sealed = seal.seal_transmit(now, transmit, buffer);
            self.metrics.seal = seal.metrics();
            // Of one that must not go nothing is left, and what waits behind it goes.
            if sealed.is_some() {
                return sealed;
            }
        }
    }

    /// The client whose packet is being handled, in its epoch; 0 where packets are open.
    #[inline]
    pub(super) fn sender(&self) -> ClientEpoch {
        self.seal.as_ref().map_or_else(ClientEpoch::default, |seal| seal.sender())
    }

    /// Addressee, for the seal, of a packet that answers the one which is being handled.
    pub(super) fn addressee(&self) -> u64 {
        self.seal.as_ref().map_or(0, |seal| seal.addressee())
    }

    /// Addressee, for the seal, of a packet of an RPC.
    #[inline]
    pub(super) fn addressee_of(&self, index: SlotId) -> u64 {
        if self.seal.is_some() { self.rpcs[index].sender.addressee() } else { 0 }
    }

    /// Bytes that each datagram leaves for the seal.
    #[inline]
    pub(super) fn trailer_len(&self) -> usize {
        if self.seal.is_some() { TRAILER_LEN } else { 0 }
    }

    /// True if nothing is known of the session of the packet that is being handled, where packets
    /// are sealed: it is to be answered, and no RPC is its.
    #[inline]
    pub(super) fn is_stranger(&self) -> bool {
        self.seal.as_ref().is_some_and(|seal| seal.is_session_unknown())
    }

    /// True if the data of an RPC may go, as far as names say: where packets are sealed, a request
    /// goes to one server, by its name.
    #[inline(never)]
    pub(super) fn may_go_by_name(&mut self, now: Time, index: SlotId) -> bool {
        let Some(seal) = &self.seal else { return true };
        let slot = &mut self.rpcs[index];
        // Who calls back is answered by the client whose session it is, or by nobody.
        if !slot.is_client() || seal.is_server() {
            return true;
        }
        let name = seal.name(now, self.peers[slot.peer].address, false);
        let may_go = slot.client.name == 0 || slot.client.name == name || slot.options.idempotent;
        slot.client.naming = match (name, may_go) {
            (0, _) => Naming::Awaited,
            (_, true) => Naming::Settled,
            (_, false) => Naming::Changed,
        };
        match slot.client.naming {
            Naming::Settled => slot.client.name = name,
            Naming::Awaited => self.await_name(now, index),
            Naming::Changed => {
                self.rank_out(index);
                self.arm(now, index);
            }
        }
        self.rpcs[index].client.naming == Naming::Settled
    }

    /// The request of an RPC waits until it is known who is there, which is asked.
    #[cold]
    fn await_name(&mut self, now: Time, index: SlotId) {
        self.rank_out(index);
        if matches!(self.rpcs[index].phase, Phase::Calling(_)) {
            self.ask(now, index);
            self.arm(now, index);
        }
    }

    /// The peer of an RPC has been heard: what has waited for its name goes.
    #[inline(never)]
    pub(super) fn take_name(&mut self, now: Time, index: SlotId) {
        let Some(seal) = &self.seal else { return };
        let slot = &mut self.rpcs[index];
        let address = self.peers[slot.peer].address;
        if slot.client.naming != Naming::Awaited || seal.name(now, address, false) == 0 {
            return;
        }
        slot.client.naming = Naming::Settled;
        slot.timing.attempts = 0;
        // Its session is with the server that was there before, and nothing of the call has gone
        // there.
        if slot.client.name == 0 && seal.is_session_over(now, (slot.id.session(), address)) {
            self.renumber(now, index);
        }
        self.rank_out(index);
    }

    /// A server has no key of the epoch under which a call has gone: that goes again under another
    /// one, if it may and there is one, or ends.
    #[cold]
    pub(super) fn handle_no_key(&mut self, now: Time, (index, told): (SlotId, NoKey)) {
        let slot = &self.rpcs[index];
        let Phase::Calling(_) = slot.phase else {
            // It has run.
            self.metrics.duplicates += 1;
            return;
        };
        let peer = self.peers[slot.peer].address;
        // What named nobody, under a key that this server never had, has run nowhere.
        let may_again = slot.options.idempotent || told.is_new && slot.client.name == 0;
        let seal = self.seal.as_mut().expect("it has told of a key");
        let has_other = seal.note_no_key(now, peer, told);
        self.metrics.seal = seal.metrics();
        if may_again && has_other {
            return self.begin_again(now, index);
        }
        let reason = if may_again { DropReason::NoKey } else { DropReason::Uncertain };
        self.metrics.refused += 1;
        self.fail(index, Failure::Refused(reason));
    }

    /// Nothing of a call counts that has gone so far: it begins again, under another id, by asking
    /// who is there.
    fn begin_again(&mut self, now: Time, index: SlotId) {
        let unscheduled = self.unscheduled_len(index);
        let slot = &mut self.rpcs[index];
        slot.out.begin_again(unscheduled);
        (slot.client.name, slot.client.naming) = (0, Naming::Awaited);
        // Under the id that it gets, nothing of it has gone: it is of age 0.
        (slot.timing.attempts, slot.timing.first_sent_at) = (0, 0);
        self.renumber(now, index);
        self.await_name(now, index);
    }

    /// A call that has not begun takes an id of a session that is in use.
    #[cold]
    fn renumber(&mut self, now: Time, index: SlotId) {
        let Slot { peer, id, .. } = self.rpcs[index];
        self.rpcs.unlist(index);
        self.peers[peer].state.numbering.end(id.session(), id.sequence());
        self.rpcs[index].id = self.next_id(now, peer);
        self.rpcs.enlist(index);
    }

    /// The id of a call that begins. Where packets are sealed its session is with who is there now,
    /// and under a key that is in use.
    #[inline(always)]
    pub(super) fn next_id(&mut self, now: Time, peer: PeerId) -> ClientId {
        let address = self.peers[peer].address;
        let numbering = &mut self.peers[peer].state.numbering;
        if let Some(seal) = &self.seal
            && seal.is_session_over(now, (numbering.session(), address))
        {
            numbering.renew();
        }
        let (session, sequence) = numbering.draw(&mut self.sessions, SEQUENCE_MAX);
        if let Some(seal) = &mut self.seal {
            seal.note_session(now, session);
        }
        ClientId::new(session, sequence)
    }

    /// A request is refused as `Uncertain`: where packets are sealed, its session may be older than
    /// the server, which then takes none of its calls.
    pub(super) fn note_refusal(&mut self, index: SlotId, reason: DropReason) {
        if reason == DropReason::Uncertain && self.seal.is_some() {
            let peer = self.rpcs[index].peer;
            self.peers[peer].state.numbering.renew();
        }
    }

    /// Refuses, where packets are sealed, a request of a session of which some may have run and
    /// been evicted, or that is another client's at this address.
    #[inline]
    pub(super) fn check_session(
        &mut self,
        now: Time,
        (address, peer): (SocketAddr, PeerId),
        id: ClientId,
    ) -> Result<(), Refusal> {
        let Some(seal) = &mut self.seal else { return Ok(()) };
        let known = self.peers.known_session(peer, id.session());
        let is_sound = known.is_some_and(|known| self.peers[known].is_sound());
        let may_run = seal.may_run(now, address, is_sound);
        self.metrics.seal = seal.metrics();
        may_run.then_some(()).ok_or(Refusal::Drop(DropReason::Uncertain))
    }

    /// A request that nothing is known of, and whose session is not: refused, by its first packet.
    #[cold]
    pub(super) fn refuse_stranger(&mut self, origin: &Origin, header: &DataHeader) {
        // Each packet that needs no grant comes here: one is answered.
        if header.offset() != 0 && header.retransmit == 0 {
            return;
        }
        self.refuse_packet(origin, header, Refusal::Drop(DropReason::Uncertain));
    }

    /// Answers who asks for an RPC in a session of which nothing is known: that it is not known
    /// either, and who does not know this server yet is told what to echo, so that no reply has to
    /// wait for that.
    #[cold]
    pub(super) fn introduce(&mut self, origin: &Origin) {
        let (to, id) = (origin.path, ClientId(origin.common.sender_id.get()));
        if self.seal.as_ref().is_some_and(|seal| seal.is_unnamed()) {
            let Ports { source, destination } = origin.common.ports();
            let ports = Ports { source: destination, destination: source };
            let addressee = self.addressee();
            self.push_control(Control::Validate { to, ports, id, addressee });
        }
        // Every client's first packet is such a question, so that it counts for nothing odd.
        self.answer_unknown(origin);
    }

    /// Verdict of the access policy on a packet that would begin a request.
    #[inline]
    pub(super) fn admission(
        &mut self,
        header: &DataHeader,
        (payload, is_whole): (&[u8], bool),
    ) -> Admission {
        let Some(seal) = self.seal.as_mut().filter(|seal| seal.has_access()) else {
            return Admission::Allowed;
        };
        let is_empty = header.flags().has(DataFlags::EMPTY);
        if header.offset() != 0 || payload.is_empty() && !is_empty {
            return Admission::Untold;
        }
        let payload = if is_empty { &[] } else { payload };
        let is_allowed = seal.check_access(payload, is_whole).is_ok();
        self.metrics.seal = seal.metrics();
        if is_allowed { Admission::Allowed } else { Admission::Denied }
    }

    /// Rejects a request that the access policy does not allow its client, by its first packet: as
    /// one that is whole, so that nothing more of it is awaited.
    #[cold]
    pub(super) fn deny(
        &mut self,
        now: Time,
        (origin, peer): (&Origin, PeerId),
        (header, payload): (&DataHeader, &[u8]),
    ) {
        let len = (payload.len() as u32).into();
        let whole = DataHeader { message_length: len, incoming: len, ..*header };
        let index = self.begin_request(now, (peer, None), origin, &whole);
        self.note_proof(now, index, header);
        self.begin_parts(now, index, &whole);
        if !self.accept(now, index, &whole, payload) {
            return;
        }
        let payload = self.take_message(now, index, whole.flags());
        self.buffers.give(payload);
        // No copy of it runs by a policy that comes later.
        let (peer, id) = (self.rpcs[index].peer, self.rpcs[index].id);
        if let Err(denied) = self.peers.take_of(peer, id.session(), id.sequence()) {
            self.metrics.deny(denied);
        }
        self.await_answer(now, index);
        let text = self.seal.as_ref().and_then(|seal| seal.denials().1).map(Denial::to_string);
        let text = text.unwrap_or_default();
        let [_, code @ ..] = Rejection::prefix(DENIED_CODE);
        let id = RequestId(self.handle_of(index));
        // It has just been taken in, so that it is not gone.
        let _ = self.refuse_saying(now, id, DropReason::Application, &[&code, text.as_bytes()]);
    }
}
