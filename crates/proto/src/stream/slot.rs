//! State that is kept of a stream, and of a message until it is answered.

use std::net::SocketAddr;

use super::half::{Cut, Incoming, Outgoing};
use super::shares::Way;
use super::{Fault, StreamId};
use crate::address::AddressKey;
use crate::node::Time;
use crate::rpc::{CallId, Caller};
use tailcut_placement::order::list::Links;
use tailcut_placement::slab::SlotKey;

/// A stream in its place of the table.
#[derive(Debug)]
pub(super) struct Slot {
    /// Phase that it is in.
    pub(super) phase: Phase,
    /// Whoever will close it.
    pub(super) holder: Holder,
    /// The other end.
    pub(super) peer: SocketAddr,
    /// The number that the opener has drawn.
    pub(super) opener: u64,
    /// The number that the other side has drawn; 0 before it is known.
    pub(super) acceptor: u64,
    /// This side has opened it.
    pub(super) is_opener: bool,
    /// Opener of it elsewhere, where packets are sealed: as its latest session has it.
    pub(super) caller: Option<Caller>,
    /// Bytes held for the application at most, by [`Way`].
    pub(super) windows: [usize; 2],
    /// The direction that is written.
    pub(super) out: Outgoing,
    /// The direction that is read.
    pub(super) inc: Incoming,
    /// Its unanswered messages.
    pub(super) messages: Vec<SlotKey>,
    /// A message that tells the limit has not been answered.
    pub(super) is_window_in_flight: bool,
    /// The opener has sent something after OPEN.
    pub(super) has_greeted: bool,
    /// It stands in the queue of those that may have something to send.
    pub(super) is_queued: bool,
    /// It stands in the queue of those that the application should look at.
    pub(super) is_changed: bool,
    /// Its neighbours where it waits to be accepted.
    pub(super) links: Links,
    /// Time at which the peer was last heard of; of a closed stream, at which it was closed.
    pub(super) since: Time,
    /// Time at which this side last sent a message.
    pub(super) sent_at: Time,
}

/// Phase of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// The place is free.
    Free,
    /// OPEN has been sent and not answered.
    Opening,
    /// OPEN has come and has been answered; the opener has not shown that it hears.
    HalfOpen,
    /// Both sides may send.
    Open,
    /// It has ended by a fault that the application has not heard of.
    Failed(Fault),
}

/// The party that will close a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Holder {
    /// Nobody: it is half-open, or has been closed.
    Nobody,
    /// It waits to be accepted.
    Backlog,
    Application,
}

/// By what the messages of a peer find their stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    /// The other end.
    pub(super) peer: AddressKey,
    /// The number that the opener has drawn.
    pub(super) opener: u64,
    /// This side has opened it.
    pub(super) is_opener: bool,
}

/// A message until it is answered; its place is the context of the call.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sent {
    /// The stream that it belongs to.
    pub(super) stream: StreamId,
    /// Its content.
    pub(super) what: What,
    /// `None` while the place is free.
    pub(super) call: Option<CallId>,
}

/// Content of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    Open,
    Data(Cut),
    Window,
    Reset,
}

impl Slot {
    pub(super) fn free() -> Self {
        Self {
            phase: Phase::Free,
            holder: Holder::Nobody,
            peer: SocketAddr::from(([0, 0, 0, 0], 0)),
            opener: 0,
            acceptor: 0,
            is_opener: false,
            caller: None,
            windows: [0; 2],
            out: Outgoing::default(),
            inc: Incoming::default(),
            messages: Vec::new(),
            is_window_in_flight: false,
            has_greeted: false,
            is_queued: false,
            is_changed: false,
            links: Links::default(),
            since: 0,
            sent_at: 0,
        }
    }

    /// The fault by which it has ended, if it has.
    pub(super) fn fault(&self) -> Option<Fault> {
        match self.phase {
            Phase::Failed(fault) => Some(fault),
            Phase::Free | Phase::Opening | Phase::HalfOpen | Phase::Open => None,
        }
    }

    /// Bytes held for the application at most in a direction.
    pub(super) fn window(&self, way: Way) -> usize {
        self.windows[way as usize]
    }

    /// True if a message is of who has opened it from elsewhere, as far as seals tell.
    pub(super) fn is_of(&self, caller: Option<Caller>) -> bool {
        self.is_opener || self.caller.map(|own| own.client) == caller.map(|other| other.client)
    }

    /// A message of it has come, in this session: what begins last is what is called back in.
    pub(super) fn note_caller(&mut self, caller: Option<Caller>) {
        if let (Some(own), Some(other)) = (&mut self.caller, caller)
            && other.began_ms >= own.began_ms
        {
            *own = other;
        }
    }

    pub(super) fn key(&self) -> Key {
        Key { peer: AddressKey(self.peer), opener: self.opener, is_opener: self.is_opener }
    }

    /// It has been closed and has nothing more to say or to hear.
    pub(super) fn is_over(&self) -> bool {
        self.phase == Phase::Open
            && self.holder == Holder::Nobody
            && self.out.is_over()
            && self.inc.is_complete()
    }
}
