//! Direct calls of a client, without a router: packets that go before anybody has taken the
//! request, and long packets to servers on its own host.

use std::net::SocketAddr;

use super::client::Client;
use super::config::{Config, Copies};
use super::copies::CopyState;
use super::shared::Shared;
use crate::peer::table::PeerId;
use tailcut_placement::slab::SlotId;

impl Client {
    /// A call begins: whether all that goes without credit goes at once, which is so where its
    /// target is known for a server, that no other stands in for.
    #[inline(always)]
    pub(super) fn plan_unscheduled(&mut self, index: SlotId, shared: &Shared) {
        let slot = &mut self.slots[index];
        // Where a copy or another target may take it, the rest might go to one that drops it.
        slot.is_unscheduled = slot.request.count() > 1
            && self.servers[slot.target.record].state.is_direct
            && !slot.options.v1
            && matches!(slot.copy, CopyState::Absent)
            && shared.config.alternates.len() <= 1;
        if slot.is_unscheduled {
            slot.request.grant_unscheduled();
        }
    }

    /// True if packets to a target may be long: it has said so itself, and no copy of a call goes
    /// elsewhere.
    #[inline(always)]
    pub(super) fn takes_long(&self, target: PeerId, config: &Config) -> bool {
        self.servers[target].state.takes_long
            // Who stands in or gets a copy may be on another host, which long packets do not reach.
            && config.alternates.len() <= 1
            && config.cloning.copies == Copies::Never
    }

    /// A server takes a request of several packets: learns whether it is the target itself. True if
    /// it is the first to answer one whose packets it may have had already.
    pub(super) fn learn_direct(&mut self, index: SlotId, server: SocketAddr) -> bool {
        let slot = &mut self.slots[index];
        let is_direct = slot.target.address == server;
        // A record that newcomers share is nobody's.
        let is_known = slot.target.record != PeerId::default();
        self.servers[slot.target.record].state.is_direct = is_direct && is_known;
        let was_early = std::mem::take(&mut slot.is_unscheduled);
        // There is a router now, which places packet 0 alone: the server has nothing of the rest.
        if was_early && !is_direct {
            slot.request.hold_rest();
        }
        was_early && is_direct
    }
}
