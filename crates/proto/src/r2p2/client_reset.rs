//! Calls whose request has come to who has no key of its epoch.
//!
//! | the call | there is another key | then |
//! |---|---|---|
//! | may run twice, or cannot have run | yes | goes again, in another session under that key |
//! | | no | ends: [`DropReason::NoKey`] |
//! | may have run | | ends: [`DropReason::Uncertain`] |

use std::net::SocketAddr;

use tailcut_wire::r2p2::{DropReason, RpcId, SessionId};

use super::client::{Client, Recovery};
use super::copies::CopyState;
use super::named::Named;
use super::pace::Start;
use super::shared::Shared;
use crate::node::Time;
use crate::rpc::Failure;
use crate::sealed::NoKey;
use tailcut_placement::slab::SlotId;

impl Client {
    /// A node has no key of the epoch under which a request has come.
    #[cold]
    pub(super) fn handle_no_key(
        &mut self,
        now: Time,
        (index, peer): (SlotId, SocketAddr),
        told: NoKey,
        shared: &mut Shared,
    ) {
        let slot = &self.slots[index];
        let is_elsewhere = slot.server_address().is_some_and(|server| server != peer);
        if is_elsewhere || slot.start != Start::Now || slot.reply.is_begun() {
            // Of another copy than the one that counts, or the call has run.
            shared.metrics.duplicates += 1;
            return;
        }
        // Who had the key once may have run it then, and so may another that it has gone to.
        let is_unrun = told.is_new && !slot.moves.is_moved && slot.moves.names.is_for_nobody();
        let may_again = slot.options.idempotent || is_unrun;
        let seal = shared.seal.as_mut().expect("it has told of a key");
        let has_other = seal.note_no_key(now, peer, told);
        shared.metrics.seal = seal.metrics();
        if may_again && has_other {
            return self.begin_again(now, index, shared);
        }
        let reason = if may_again { DropReason::NoKey } else { DropReason::Uncertain };
        shared.metrics.refused += 1;
        self.fail(index, Failure::Refused(reason), shared);
    }

    /// Nothing of a call counts that has gone so far: it begins again, under another id.
    fn begin_again(&mut self, now: Time, index: SlotId, shared: &mut Shared) {
        let former = self.slots[index].rpc_id;
        // Else the former id, which never ends, would hold the floor of its session.
        self.numbering.end(former.session().0, former.sequence());
        let seal = shared.seal.as_mut().expect("it has told of a key");
        if seal.is_session_due(now) {
            self.numbering.renew();
        }
        let id = self.numbering.draw(&mut self.sessions, RpcId::SEQUENCE_MAX);
        seal.note_session(now, id.0);
        let slot = &mut self.slots[index];
        slot.rpc_id = RpcId::new(SessionId(id.0), id.1);
        (slot.moves.names, slot.server, slot.copy) = (Named::default(), None, CopyState::Absent);
        (slot.is_unscheduled, slot.recovery) = (false, Recovery::default());
        slot.request.restart();
        self.queue_data(index);
        self.arm_retry(now, index, &shared.config);
    }
}
