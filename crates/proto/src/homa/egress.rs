//! Send queues of an endpoint: control packets, messages in the order of SRPT, and acknowledgements
//! that no packet has taken along, before the queues of the NIC.
//!
//! Invariant: a message is ranked exactly while something of it may be sent.

use std::collections::VecDeque;

use super::config::Link;
use super::link::{Device, NicQueue};
use super::rpcs::Rpcs;
use super::slot::{Naming, rank};
use super::transmit::Control;
use crate::node::{Path, Time, is_unanswerable};
use crate::peer::table::PeerId;
use crate::sealed::{ANSWERS_MAX, HOMA_ANSWER_LEN};
use tailcut_placement::order::heap::{Heap, Places};
use tailcut_placement::slab::SlotId;

/// Everything that an endpoint is to send.
#[derive(Debug)]
pub(super) struct Egress {
    /// Answers that say that there is no key: they go first, and are not sealed.
    pub(super) answers: VecDeque<(Path, [u8; HOMA_ANSWER_LEN])>,
    /// Control packets, which go next.
    pub(super) control: VecDeque<Control>,
    /// Latest times at which peers are told of calls that have ended; at most one entry a peer.
    pub(super) acks_due: VecDeque<(Time, PeerId)>,
    /// Peers that are told of calls that have ended once no data are left to take that along, each
    /// once.
    pub(super) acks_called: VecDeque<PeerId>,
    /// The link's queue, where its speed is known.
    pub(super) nic: NicQueue,
    /// Estimate of what the device still holds.
    pub(super) device: Device,
    /// RPCs of whose message something may be sent, the one with the fewest bytes left first.
    sendable: Heap,
    /// Place of each RPC in `sendable`.
    places: Places,
}

impl Egress {
    pub(super) fn new(link: Option<Link>, rpcs_max: usize, control_room: usize) -> Self {
        let (sendable, places) = Heap::of_at_most(rpcs_max);
        Self {
            answers: VecDeque::new(),
            control: VecDeque::with_capacity(control_room),
            acks_due: VecDeque::new(),
            acks_called: VecDeque::new(),
            nic: NicQueue::new(link),
            device: Device::default(),
            sendable,
            places,
        }
    }

    /// Queues what a packet is answered that could not be opened, if anything.
    pub(super) fn answer(&mut self, path: Path, answer: Option<[u8; HOMA_ANSWER_LEN]>) {
        // Whoever sends what cannot be opened decides how much of it comes, and from which address.
        if let Some(answer) = answer
            && !is_unanswerable(path.peer.ip())
            && self.answers.len() < ANSWERS_MAX
        {
            self.answers.push_back((path, answer));
        }
    }

    /// The RPC whose message goes next.
    pub(super) fn first(&self) -> Option<SlotId> {
        self.sendable.peek().map(|(_, index)| index)
    }

    /// Ranks the message that an RPC sends, or takes it out when nothing of it may go.
    pub(super) fn rank(&mut self, rpcs: &Rpcs, index: SlotId) {
        let out = &rpcs[index].out;
        // Where packets are sealed, a request names its server: it waits until that is known.
        if out.is_sendable() && rpcs[index].client.naming == Naming::Settled {
            self.sendable.set(&mut self.places, index, rank(out.remaining(), out.birth));
        } else {
            self.unrank(index);
        }
    }

    /// Takes the message of an RPC out; harmless when it is not ranked.
    pub(super) fn unrank(&mut self, index: SlotId) {
        self.sendable.remove(&mut self.places, index);
    }

    /// Stops the timer of the acknowledgements to a peer, if it is the next; tells whether.
    #[inline]
    pub(super) fn stop_acks_due(&mut self, peer: PeerId) -> bool {
        // One further back is left in the queue: when it is due it finds nothing to say.
        let is_next = self.acks_due.front().is_some_and(|due| due.1 == peer);
        if is_next {
            self.acks_due.pop_front();
        }
        is_next
    }

    /// Time at which something may be sent that cannot be now, or acknowledgements are due.
    pub(super) fn next_due(&self) -> Option<Time> {
        let acks = self.acks_due.front().map(|&(at, _)| at);
        // With nothing to send, an open link is no reason to wake anybody.
        match self.sendable.peek().and_then(|_| self.nic.opens_at()) {
            None => acks,
            Some(opens_at) => Some(acks.map_or(opens_at, |at| at.min(opens_at))),
        }
    }
}
