//! Whom a call is for: who may answer it, and by which names it goes where packets are sealed.
//!
//! | event | then |
//! |---|---|
//! | who was sent what names nobody tells its name | packet 0 goes again, by that name |
//! | somebody else asks for it by name | nothing: it would run there too |
//! | packet 0 goes to one address under two names, and may run once | it goes as one that has moved |

use std::net::SocketAddr;

use super::client::{Client, Slot};
use super::pace::Start;
use super::shared::Shared;
use crate::call::slab::SlotId;
use crate::node::Time;

impl Client {
    /// True if what asks for packet 0 by name is where that has been sent, and has told its name.
    pub(super) fn may_name(
        &self,
        now: Time,
        index: SlotId,
        peer: SocketAddr,
        shared: &mut Shared,
    ) -> bool {
        if !self.slots[index].is_sent_to(peer) {
            // A stranger has sent there what names nobody: by name it would run there too.
            shared.metrics.protocol_violation += 1;
            return false;
        }
        // Else the answer to another call tells it: to ask again at once would be to ask without end.
        shared.seal.as_ref().is_some_and(|seal| seal.name(now, peer, true) != 0)
    }

    /// A router has told its name, since packet 0 has named nobody: it goes again, as the seal now names it. If
    /// that was all that has gone out of the call, it can be nowhere, and so goes as for the first time.
    pub(super) fn take_name(&mut self, index: SlotId) {
        let slot = &mut self.slots[index];
        if slot.start == Start::Now && slot.server.is_none() && !slot.reply.is_begun() {
            if !std::mem::replace(&mut slot.recovery.is_again, true) && !slot.is_moved {
                slot.recovery.first_sent_at = 0;
            }
            slot.request.resend_first();
            self.queue_data(index);
        }
    }
}

impl Slot {
    /// True if `peer` may have the request: the target, or the server behind it that has answered so
    /// far. A router may have placed what is idempotent on several, and the next router's claim may
    /// have found another server than the one that answered a copy by way of the first.
    pub(super) fn may_be_answered_by(&self, peer: SocketAddr) -> bool {
        self.options.idempotent
            || self.is_moved
            || self.target.address == peer
            || self.server_address().is_none_or(|server| server == peer)
    }

    /// Packet 0 goes to an address, for who has this name, or for nobody if it is 0. Who had another name
    /// there may get that packet from a stranger, even if it never was there: a request that may run once
    /// then goes as one that has moved.
    pub(super) fn note_name(&mut self, to: SocketAddr, name: u64) {
        let known = &mut self.names[usize::from(to != self.target.address)];
        if name != 0 && !self.options.idempotent {
            self.is_renamed |= *known != 0 && *known != name;
            self.is_moved |= self.is_renamed;
            *known = name;
        }
    }

    /// True if the request goes to this address.
    pub(super) fn is_sent_to(&self, peer: SocketAddr) -> bool {
        self.target.address == peer || self.server_address() == Some(peer)
    }
}
