//! Address validation of a client: it shows that it receives at its address, where it is asked to.
//!
//! | a server, or a router, answers packet 0 | then |
//! |---|---|
//! | with a token | it goes again and echoes that, and so does all that goes there later; one that has moved goes by its router again, unless its reply has begun |
//! | with a cookie | it goes again under a tag by that, and so do the first packets of later calls |
//! | with the cookie by which it has been tagged | nothing: it goes again in its time |

use tailcut_wire::r2p2::{Flags, ReplyHeader};

use super::client::{Client, Demand, is_before_us};
use super::servers::Proof;
use super::shared::Shared;
use crate::node::{Time, clock_us};
use tailcut_placement::slab::SlotId;

impl Client {
    /// The server asks for its token before it keeps or sends anything, or a router for its cookie.
    pub(super) fn validate(
        &mut self,
        now: Time,
        index: SlotId,
        demand: Demand<'_>,
        shared: &mut Shared,
    ) {
        let Demand { server, header, is_known } = demand;
        let slot = &mut self.slots[index];
        let is_cookie = Flags(header.flags).has(Flags::COOKIE);
        // A router may have asked for a cookie: who takes the call is still to be seen.
        let may_be_routers = is_cookie && slot.target.address == server.address;
        if slot.moves.is_moved && !slot.reply.is_begun() {
            // Servers take it from a router alone, which has claimed it.
            slot.server = None;
        } else if !may_be_routers {
            slot.server = Some(server);
        }
        // Each packet that was under way when the server lost the request is answered so. What was
        // sent before the first of these answers came is sent again already: to begin anew by each
        // would send the whole request as often as it has packets.
        let (asked_us, answered_us) = (header.clock_echo_us.get(), slot.recovery.validated_us);
        let is_late = asked_us != 0 && answered_us != 0 && is_before_us(asked_us, answered_us);
        if is_late || is_cookie && is_known && answered_us != 0 {
            shared.metrics.duplicates += 1;
            return;
        }
        slot.recovery.validated_us = clock_us(now);
        if may_be_routers
            && !std::mem::replace(&mut slot.recovery.is_again, true)
            && !slot.moves.is_moved
        {
            // That was all that has gone out of it: it is nowhere.
            slot.recovery.first_sent_at = 0;
        }
        if slot.request.is_under_way() && !slot.reply.is_begun() {
            // It has released what it had, or never had it.
            slot.request.restart();
        } else {
            slot.request.resend_first();
        }
        self.queue_data(index);
    }
}

impl Proof {
    /// Takes what the target gives itself, or a server behind it: a router that asks for cookies
    /// goes on asking for them, whatever its servers do.
    #[inline]
    pub(super) fn follow(&mut self, given: Self, is_own: bool) {
        if is_own || !matches!((&*self, given), (Self::Cookie(_), Self::Token(_))) {
            *self = given;
        }
    }

    /// True if it is what a header gives.
    pub(super) fn is_given(self, header: &ReplyHeader) -> bool {
        Self::given(header) == Some(self)
    }
}
