//! Byte streams over anything that is an [`Rpc`]: connect, accept, bytes in order both ways, flow
//! control, half-close.
//!
//! [`Streams`] is a [`Node`] around an endpoint. What a side has to say it says in requests to the
//! other's address, so that each side is client and server; the endpoint sends again what is lost,
//! and a message that comes twice changes nothing. `docs/protocol/stream.md` is the normative text.
//!
//! | phase of a stream | enters | goes on |
//! |---|---|---|
//! | opening | `connect` sends OPEN; again where the peer could not tell whether it had had it | its reply: open, or failed |
//! | half-open | OPEN of a peer, which is answered | a message with both numbers: open, in the backlog; `open_ns_max`: gone |
//! | open | | closed and both directions over: gone; a fault: failed |
//! | failed | the peer is dead, has reset it, or has broken the protocol | the application closes it: gone |
//!
//! `half` is one stream's directions, `messages` what is sent and answered, `requests` what peers
//! send, `shares` the windows and what one host may have of all.
//!
//! Where packets are sealed, a stream is that of the client whose keys have opened it: messages of
//! others are of none, and the other side calls back in the session in which that client has called
//! last.
//!
//! Invariants: every byte is delivered once and in order, or the stream fails; what a stream holds
//! is bounded by its window in each direction, and the sum of windows by the configuration; an
//! address that has not shown that it hears is sent replies alone; no host has everything.

mod backlog;
mod config;
mod half;
mod messages;
mod requests;
mod shares;
mod slot;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Arc;

pub use self::config::{Config, Holdings, Metrics};

use self::backlog::Backlog;
use self::half::{End, Incoming, Outgoing};
use self::shares::{Shares, Way};
use self::slot::{Holder, Key, Phase, Sent, Slot, What};
use crate::address::AddressKey;
use crate::call::numbering::Numbers;
use crate::call::unreachable::UnreachableLook;
use crate::node::{Node, Path, Time, Transmit};
use crate::rpc::{CallError, Event, Failure, Rpc};
use crate::sealed::{Access, ChangedKeys, Denial, Keys, LostKeys};
use tailcut_placement::keyed::KeyedState;
use tailcut_placement::order::wheel::Wheel;
use tailcut_placement::slab::{Slab, SlotId, SlotKey};

/// A stream of a [`Streams`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct StreamId(u64);

impl StreamId {
    /// Its place in a table: no two streams of a [`Streams`] that have not been closed have the
    /// same.
    pub fn place(self) -> usize {
        self.0 as u32 as usize
    }
}

/// Reason why a stream cannot be used, or no longer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Fault {
    /// The peer takes no stream now.
    #[error("the peer refuses the stream")]
    Refused,
    /// The peer has ended the stream, or knows nothing of it since it has restarted.
    #[error("the peer has reset the stream")]
    Reset,
    /// This side has ended it.
    #[error("the stream was reset here")]
    Aborted,
    /// Nobody has answered who has keys of this side's group, and takes sealed streams.
    #[error("nobody answers there whose packets are sealed by the same group's keys")]
    NoKeys,
    /// The peer's access policy does not allow it to this side's keys.
    #[error("the peer's access policy does not allow the stream")]
    Denied,
    /// The peer did not answer a message.
    #[error("a message of the stream was not answered: {0}")]
    Lost(Failure),
    /// The transport takes no further message.
    #[error("a message of the stream could not be sent: {0}")]
    NotSent(CallError),
    /// The peer has broken the protocol.
    #[error("the peer has broken the protocol of streams")]
    Broken,
    /// This side has said that it writes nothing more.
    #[error("the stream has been finished by this side")]
    Finished,
    /// As many streams are open, with that peer or in all, as the configuration allows.
    #[error("as many streams are open as the configuration allows")]
    TooMany,
    /// The stream has been closed.
    #[error("the stream has been closed")]
    Closed,
}

/// State of a stream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Status {
    /// The peer has taken it; false before, and after a fault.
    pub is_open: bool,
    /// Bytes that can be read at once.
    pub readable_len: usize,
    /// Bytes that can be written at once.
    pub writable_len: usize,
    /// Everything has been read, and nothing will come.
    pub is_ended: bool,
    /// The peer has everything that was written, and knows that nothing will follow.
    pub is_finished: bool,
    /// Reason for its failure, if it has failed.
    pub fault: Option<Fault>,
}

/// The streams of an endpoint.
#[derive(Debug)]
pub struct Streams<E> {
    /// The endpoint.
    rpc: E,
    /// The configuration, mended to what it can do.
    config: Config,
    /// Streams, each in its slot.
    slots: Slab<Slot>,
    /// Streams by what messages name.
    known: HashMap<Key, SlotId, KeyedState>,
    /// Streams by peer.
    peers: HashMap<AddressKey, usize, KeyedState>,
    /// Messages that are not answered, by the context of their call.
    sent: Slab<Sent>,
    /// Oldest first; some may be half-open no longer.
    half_open: VecDeque<StreamId>,
    /// Streams that wait to be accepted.
    backlog: Backlog,
    /// Streams that may have something to send.
    queue: VecDeque<SlotId>,
    /// Streams that the application should look at.
    changed: VecDeque<StreamId>,
    /// Timers at which streams expire, by slot.
    wheel: Wheel,
    /// Numbers of streams, which nobody can guess.
    numbers: Numbers,
    /// Holdings that count against the limits; its bytes are counted when asked for.
    holdings: Holdings,
    /// Share of each host in them.
    shares: Shares,
    /// Limit on how often streams to an address where nothing listens are searched for.
    unreachable_look: UnreachableLook,
    /// Counters since the start.
    metrics: Metrics,
}

impl<E: Rpc> Streams<E> {
    /// Streams over an endpoint of which nothing else is wanted.
    pub fn new(rpc: E, config: Config) -> Self {
        let numbers = Numbers::new(&config.secret, b"streams");
        let seed = numbers.seed();
        let state = || KeyedState::with_seed(seed);
        Self {
            rpc,
            slots: Slab::default(),
            known: HashMap::with_hasher(state()),
            peers: HashMap::with_hasher(state()),
            sent: Slab::default(),
            half_open: VecDeque::new(),
            backlog: Backlog::default(),
            queue: VecDeque::new(),
            changed: VecDeque::new(),
            wheel: Wheel::new(TICK_BITS),
            numbers,
            holdings: Holdings::default(),
            shares: Shares::new(seed),
            unreachable_look: UnreachableLook::default(),
            metrics: Metrics::default(),
            config: config.mended(),
        }
    }

    /// The endpoint.
    pub fn rpc(&self) -> &E {
        &self.rpc
    }

    /// Counters since the start.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Everything held now. Looks at every stream.
    pub fn holdings(&self) -> Holdings {
        let buffered_bytes =
            self.slots.values().map(|slot| slot.out.buffered() + slot.inc.buffered()).sum();
        Holdings { buffered_bytes, windows_bytes: self.windows_bytes(Way::In), ..self.holdings }
    }

    /// True if there is neither a stream nor an unanswered message.
    pub fn is_empty(&self) -> bool {
        self.holdings.streams == 0 && self.holdings.messages == 0
    }

    /// Takes note that the owner goes; see [`Rpc::say_farewell`].
    pub fn say_farewell(&mut self) {
        self.rpc.say_farewell();
    }

    /// Opens a stream. [`Streams::poll_changed`] tells when the peer has answered; what is written
    /// before waits.
    ///
    /// # Errors
    ///
    /// [`Fault::TooMany`] or [`Fault::NotSent`] when a limit of streams or of the transport is
    /// reached.
    pub fn connect(&mut self, now: Time, peer: SocketAddr) -> Result<StreamId, Fault> {
        if !self.has_room_for(peer) {
            return Err(Fault::TooMany);
        }
        let opener = self.numbers.draw(64);
        let index = self.begin(now, Key { peer: AddressKey(peer), opener, is_opener: true });
        let slot = &mut self.slots[index];
        slot.phase = Phase::Opening;
        slot.holder = Holder::Application;
        self.shares.begin(peer.ip());
        match self.send(now, index, What::Open) {
            Ok(()) => Ok(self.id_of(index)),
            Err(error) => {
                self.release(now, index);
                Err(Fault::NotSent(error))
            }
        }
    }

    /// The next stream that a peer has opened, and the peer.
    pub fn accept(&mut self) -> Option<(StreamId, SocketAddr)> {
        let index = self.backlog.first()?;
        self.backlog.remove(&mut self.slots, index);
        self.slots[index].holder = Holder::Application;
        self.note_change(index);
        Some((self.id_of(index), self.slots[index].peer))
    }

    /// The number of the client that has opened a stream, where packets are sealed and this side
    /// has the servers' keys.
    pub fn identity(&self, id: StreamId) -> Option<u32> {
        self.slots[self.find(id)?].caller.map(|caller| caller.client)
    }

    /// Takes no further stream; those that wait to be accepted are reset.
    pub fn stop_listening(&mut self, now: Time) {
        self.config.is_listening = false;
        while let Some(index) = self.backlog.first() {
            self.fail(now, index, Fault::Aborted);
        }
    }

    /// Writes bytes; tells how many were taken, 0 when there is no room now.
    ///
    /// # Errors
    ///
    /// The fault of the stream, or [`Fault::Finished`].
    pub fn write(&mut self, id: StreamId, bytes: &[u8]) -> Result<usize, Fault> {
        self.write_by(id, bytes.len(), |out, window| out.write(bytes, window))
    }

    /// As [`Streams::write`], moving the bytes that are taken; without a copy where nothing else
    /// waits to be sent.
    ///
    /// # Errors
    ///
    /// As [`Streams::write`].
    pub fn write_all(&mut self, id: StreamId, bytes: &mut VecDeque<u8>) -> Result<usize, Fault> {
        self.write_by(id, bytes.len(), |out, window| out.write_all(bytes, window))
    }

    /// Reads bytes; tells how many, 0 at the end of the stream, `None` when nothing is there now.
    /// What came before a fault can be read after it.
    ///
    /// # Errors
    ///
    /// The fault of the stream.
    pub fn read(&mut self, id: StreamId, buffer: &mut [u8]) -> Result<Option<usize>, Fault> {
        self.read_by(id, |inc| inc.read(buffer))
    }

    /// As [`Streams::read`], to the end of `into`: everything that is there, without a copy, where
    /// that is empty, and else at most `room` bytes.
    ///
    /// # Errors
    ///
    /// As [`Streams::read`].
    pub fn read_all(
        &mut self,
        id: StreamId,
        into: &mut VecDeque<u8>,
        room: usize,
    ) -> Result<Option<usize>, Fault> {
        self.read_by(id, |inc| inc.read_all(into, room))
    }

    /// Says that nothing more will be written. What was written is sent, then the end.
    ///
    /// # Errors
    ///
    /// The fault of the stream.
    pub fn finish(&mut self, id: StreamId) -> Result<(), Fault> {
        let index = self.usable(id)?;
        self.slots[index].out.finish();
        self.enqueue(index);
        Ok(())
    }

    /// State of a stream; `None` when it has been closed.
    pub fn status(&self, id: StreamId) -> Option<Status> {
        let slot = &self.slots[self.find(id)?];
        let is_writable =
            matches!(slot.phase, Phase::Opening | Phase::Open) && slot.out.end() == End::Open;
        Some(Status {
            is_open: slot.phase == Phase::Open,
            readable_len: slot.inc.ready_len(),
            writable_len: if is_writable { slot.out.room(slot.window(Way::Out)) } else { 0 },
            is_ended: slot.inc.is_over(),
            is_finished: slot.out.is_over(),
            fault: slot.fault(),
        })
    }

    /// Lets go of a stream. What was written is still sent, unless something that has come was not
    /// read, which resets the stream. Harmless when it has been closed.
    pub fn close(&mut self, now: Time, id: StreamId) {
        let Some(index) = self.find(id) else {
            return;
        };
        let slot = &mut self.slots[index];
        slot.holder = Holder::Nobody;
        if slot.phase != Phase::Open {
            return self.release(now, index);
        }
        if slot.inc.has_unread() {
            return self.fail(now, index, Fault::Aborted);
        }
        slot.out.finish();
        slot.since = now;
        self.enqueue(index);
        self.arm(index);
        self.settle(now, index);
    }

    /// Ends a stream in both directions at once, and tells the peer. Harmless when it has been
    /// closed.
    pub fn reset(&mut self, now: Time, id: StreamId) {
        let Some(index) = self.find(id) else {
            return;
        };
        self.slots[index].holder = Holder::Nobody;
        if self.slots[index].phase == Phase::Open {
            self.fail(now, index, Fault::Aborted);
        } else {
            self.release(now, index);
        }
    }

    /// A stream about which something has changed: it has been taken, there is something to read or
    /// room to write, it has ended or failed. `None` when there is none.
    pub fn poll_changed(&mut self) -> Option<StreamId> {
        while let Some(id) = self.changed.pop_front() {
            if let Some(index) = self.find(id) {
                self.slots[index].is_changed = false;
                return Some(id);
            }
        }
        None
    }

    fn write_by(
        &mut self,
        id: StreamId,
        len: usize,
        write: impl FnOnce(&mut Outgoing, usize) -> usize,
    ) -> Result<usize, Fault> {
        let index = self.usable(id)?;
        if self.slots[index].out.end() != End::Open {
            return Err(Fault::Finished);
        }
        while len > self.room(index) && self.widen(index, Way::Out) {}
        let slot = &mut self.slots[index];
        let window = slot.window(Way::Out);
        let taken = write(&mut slot.out, window);
        // Who writes what there is room for may have more.
        if self.room(index) == 0 {
            self.widen(index, Way::Out);
        }
        self.enqueue(index);
        Ok(taken)
    }

    /// Bytes that may be written to a stream.
    fn room(&self, index: SlotId) -> usize {
        let slot = &self.slots[index];
        slot.out.room(slot.window(Way::Out))
    }

    fn read_by(
        &mut self,
        id: StreamId,
        read: impl FnOnce(&mut Incoming) -> usize,
    ) -> Result<Option<usize>, Fault> {
        let index = self.find(id).ok_or(Fault::Closed)?;
        let slot = &mut self.slots[index];
        let (len, window) = (read(&mut slot.inc), slot.window(Way::In));
        if len > 0 {
            if slot.phase == Phase::Open && slot.inc.is_worth_telling(window) {
                self.enqueue(index);
            }
            return Ok(Some(len));
        }
        match slot.fault() {
            Some(_) if slot.inc.is_over() => Ok(Some(0)),
            Some(fault) => Err(fault),
            None => Ok(slot.inc.is_over().then_some(0)),
        }
    }

    /// True if one more stream with a peer is within the limits.
    fn has_room_for(&self, peer: SocketAddr) -> bool {
        let of_peer = self.peers.get(&AddressKey(peer)).copied().unwrap_or(0);
        of_peer < self.config.streams_per_peer_max
            && self.shares.has_place(peer.ip(), self.open_count(), &self.config)
            && self.has_windows()
    }

    /// A stream in no phase yet.
    fn begin(&mut self, now: Time, key: Key) -> SlotId {
        let index = self.slots.take(Slot::free);
        let slot = &mut self.slots[index];
        slot.peer = key.peer.0;
        slot.opener = key.opener;
        slot.acceptor = 0;
        slot.is_opener = key.is_opener;
        (slot.caller, slot.sent_at) = (None, now);
        slot.is_window_in_flight = false;
        slot.has_greeted = false;
        slot.is_changed = false;
        slot.since = now;
        slot.windows = [self.config.window_min; 2];
        self.known.insert(key, index);
        *self.peers.entry(key.peer).or_default() += 1;
        self.holdings.streams += 1;
        index
    }

    /// Ends a stream by a fault. The peer is told where it may not know.
    fn fail(&mut self, now: Time, index: SlotId, fault: Fault) {
        self.metrics.failed += 1;
        self.metrics.broken += u64::from(fault == Fault::Broken);
        self.cancel_messages(now, index);
        let slot = &self.slots[index];
        let is_ours = !matches!(fault, Fault::Refused | Fault::Reset | Fault::Denied);
        if slot.phase == Phase::Open && is_ours && self.holdings.messages < self.config.messages_max
        {
            // Whoever does not hear of it learns it from the answer to its next message.
            let _ = self.send(now, index, What::Reset);
        }
        let slot = &mut self.slots[index];
        self.known.remove(&slot.key());
        self.wheel.disarm(index);
        slot.phase = Phase::Failed(fault);
        slot.out = Outgoing::default();
        slot.inc.drop_early();
        match slot.holder {
            Holder::Application => self.note_change(index),
            Holder::Backlog => {
                self.backlog.remove(&mut self.slots, index);
                self.release(now, index);
            }
            Holder::Nobody => self.release(now, index),
        }
    }

    /// Ends a stream that nobody asks for any more.
    fn release(&mut self, now: Time, index: SlotId) {
        self.cancel_messages(now, index);
        self.wheel.disarm(index);
        let slot = &mut self.slots[index];
        let (key, phase) = (slot.key(), slot.phase);
        slot.phase = Phase::Free;
        slot.out = Outgoing::default();
        slot.inc = Incoming::default();
        if !matches!(phase, Phase::Failed(_)) {
            self.known.remove(&key);
        }
        if phase == Phase::HalfOpen {
            self.holdings.half_open -= 1;
        } else {
            self.give_back(index);
        }
        self.holdings.streams -= 1;
        if let Some(count) = self.peers.get_mut(&key.peer) {
            *count -= 1;
            if *count == 0 {
                self.peers.remove(&key.peer);
            }
        }
        self.slots.release(index);
    }

    /// Lets a closed stream go when both directions are over.
    fn settle(&mut self, now: Time, index: SlotId) {
        if self.slots[index].is_over() {
            self.release(now, index);
        }
    }

    /// Sets the timer of a stream.
    fn arm(&mut self, index: SlotId) {
        let slot = &self.slots[index];
        let config = &self.config;
        let span_ns = match (slot.phase, slot.holder) {
            (Phase::HalfOpen, _) => config.open_ns_max,
            (Phase::Open, Holder::Nobody) => config.linger_ns_max,
            (Phase::Open, _) => config.keepalive_ns,
            _ => return self.wheel.disarm(index),
        };
        self.wheel.arm(index, self.quiet_since(index).saturating_add(span_ns));
    }

    /// Since when there is a reason to ask the peer of a stream. Who has opened it where packets
    /// are sealed also sends something now and then: the peer calls back in the session in which it
    /// was called last, and that is to be one under keys that are in use.
    fn quiet_since(&self, index: SlotId) -> Time {
        let slot = &self.slots[index];
        let must_call = slot.is_opener && slot.holder != Holder::Nobody && self.rpc.is_sealed();
        if must_call { slot.since.min(slot.sent_at) } else { slot.since }
    }

    /// Nothing listens at `peer`: nobody will take the streams that are being opened to it. Those
    /// that are open wait and see.
    fn refuse_opening(&mut self, now: Time, peer: SocketAddr) {
        let places = self.slots.places();
        if !self.unreachable_look.may_look(now, places) {
            return;
        }
        for place in 0..places {
            let is_its = |&index: &SlotId| {
                self.slots[index].phase == Phase::Opening && self.slots[index].peer == peer
            };
            if let Some(index) = self.slots.at(place).filter(is_its) {
                self.fail(now, index, Fault::Refused);
            }
        }
    }

    fn handle_due(&mut self, now: Time, index: SlotId) {
        let quiet_ns = now.saturating_sub(self.quiet_since(index));
        let slot = &mut self.slots[index];
        match (slot.phase, slot.holder) {
            (Phase::Opening, _) => self.open_again(now, index),
            (Phase::HalfOpen, _) => {
                self.metrics.half_open_dropped += 1;
                self.release(now, index);
            }
            (Phase::Open, Holder::Nobody) => self.fail(now, index, Fault::Aborted),
            (Phase::Open, _) if quiet_ns < self.config.keepalive_ns => self.arm(index),
            (Phase::Open, _) => {
                slot.inc.shrink();
                self.narrow(index);
                self.wheel.arm(index, now.saturating_add(self.config.keepalive_ns));
                self.ask(now, index);
            }
            _ => {}
        }
    }

    /// The application should look at a stream.
    fn note_change(&mut self, index: SlotId) {
        let id = self.id_of(index);
        let slot = &mut self.slots[index];
        if slot.holder == Holder::Application && !slot.is_changed {
            slot.is_changed = true;
            self.changed.push_back(id);
        }
    }

    /// A stream may have something to send.
    fn enqueue(&mut self, index: SlotId) {
        let slot = &mut self.slots[index];
        if !slot.is_queued {
            slot.is_queued = true;
            self.queue.push_back(index);
        }
    }

    fn id_of(&self, index: SlotId) -> StreamId {
        StreamId(self.slots.key(index).0)
    }

    fn find(&self, id: StreamId) -> Option<SlotId> {
        self.slots.find(SlotKey(id.0))
    }

    /// A stream that has not failed.
    fn usable(&self, id: StreamId) -> Result<SlotId, Fault> {
        let index = self.find(id).ok_or(Fault::Closed)?;
        self.slots[index].fault().map_or(Ok(index), Err)
    }

    fn handle_events(&mut self, now: Time) {
        while let Some(event) = self.rpc.poll_event() {
            match event {
                Event::Request { id, client, payload, .. } => {
                    self.handle_request(now, (id, client), payload)
                }
                Event::Replied { id, context, payload, .. } => {
                    self.handle_reply(now, (id, context), payload)
                }
                Event::Failed { id, context, failure, .. } => {
                    self.handle_failure(now, (id, context), failure)
                }
                // Every request has been answered when it came.
                Event::Cancelled { .. } => {}
            }
        }
    }
}

impl<E: Rpc> Node for Streams<E> {
    fn handle_datagram(&mut self, now: Time, path: Path, bytes: &mut [u8]) {
        self.rpc.handle_datagram(now, path, bytes);
        self.handle_events(now);
    }

    fn handle_unreachable(&mut self, now: Time, peer: SocketAddr) {
        self.refuse_opening(now, peer);
    }

    fn handle_wall_clock(&mut self, now: Time, unix_ns: u64) {
        self.rpc.handle_wall_clock(now, unix_ns);
    }

    fn update_keys(&mut self, now: Time, keys: &Keys) -> Result<(), ChangedKeys> {
        self.rpc.update_keys(now, keys)
    }

    fn update_access(&mut self, access: &Arc<Access>) {
        self.rpc.update_access(access);
    }

    fn denials(&self) -> (u64, Option<&Denial>) {
        self.rpc.denials()
    }

    fn lost_keys(&self) -> LostKeys {
        self.rpc.lost_keys()
    }

    fn handle_timeout(&mut self, now: Time) {
        self.rpc.handle_timeout(now);
        self.handle_events(now);
        while let Some(index) = self.wheel.pop_due(now) {
            self.handle_due(now, index);
        }
    }

    fn poll_transmit(&mut self, now: Time, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.queue.is_empty() {
            self.send_queued(now);
        }
        self.rpc.poll_transmit(now, buffer)
    }

    fn poll_timeout(&self) -> Option<Time> {
        self.rpc.poll_timeout().into_iter().chain(self.wheel.next_due()).min()
    }
}

/// Ticks of 2^20 ns, a millisecond: nothing here is urgent.
const TICK_BITS: u32 = 20;
