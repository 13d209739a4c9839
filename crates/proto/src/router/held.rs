//! Messages of a router to clients under overload: that it holds a request, and when to come back.
//!
//! | a request is | event | then |
//! |---|---|---|
//! | held | it is likely to wait for longer than a client does before it asks again | the client is told |
//! | held | it comes again | the client is told |
//! | refused for overload | | the DROP says how long to stay away |
//!
//! Unasked, the first router of several on the way tells, and once: with what the server sends that
//! is within the three bytes for one that an address gets which may be forged. One that comes again
//! is held by one of them at most, since one that has placed it passes it on.

use tailcut_wire::r2p2::{DropReason, Flags, MessageType, ReplyRepr, RpcId, SackBody};
use zerocopy::IntoBytes;
use zerocopy::byteorder::big_endian::U16;

use super::Router;
use super::arrival::Arrival;
use super::lane::Lane;
use super::outbox::Datagram;

impl Router {
    /// A request begins to wait: tells its client, if that would else ask again meanwhile.
    pub(super) fn tell_if_long(&mut self, lane: Lane, arrival: &Arrival) {
        let wait_ns = self.queues[lane].expected_wait_ns();
        if arrival.is_unrouted && wait_ns >= TOLD_NS_MIN {
            self.tell_held(lane, arrival);
        }
    }

    /// Tells a client that its request is held, and for how long it may be.
    pub(super) fn tell_held(&mut self, lane: Lane, arrival: &Arrival) {
        let Some(rpc_id) = arrival.rpc_id.filter(|_| !self.outbox.is_full()) else {
            return;
        };
        let wait_ns = self.queues[lane].expected_wait_ns();
        let detail = u32::try_from(wait_ns).unwrap_or(u32::MAX);
        self.metrics.told_held += 1;
        let control = ReplyRepr::control(MessageType::Ack, arrival.rid, rpc_id);
        let repr = ReplyRepr { flags: Flags::HELD, detail, ..control };
        self.send_ack(arrival, &repr, &HELD_SACK);
    }

    /// Tells a client that its request names nobody, and by its seal whom it has reached: packet 0
    /// is to come again.
    pub(super) fn tell_name(&mut self, arrival: &Arrival) {
        if let Some(rpc_id) = arrival.rpc_id.filter(|_| !self.outbox.is_full()) {
            let control = ReplyRepr::control(MessageType::Ack, arrival.rid, rpc_id);
            let repr = ReplyRepr { flags: Flags::HELD, ..control };
            self.send_ack(arrival, &repr, &AGAIN_SACK);
        }
    }

    /// Tells a client its cookie, by which packet 0 is to come again; echoes its clock.
    pub(super) fn tell_cookie(&mut self, arrival: &Arrival, rpc_id: RpcId, clock_echo_us: u32) {
        if self.outbox.is_full() {
            return;
        }
        self.metrics.validations += 1;
        let repr = ReplyRepr {
            flags: Flags::COOKIE,
            token: self.cookies.cookie(arrival.client),
            clock_echo_us,
            ..ReplyRepr::control(MessageType::Ack, arrival.rid, rpc_id)
        };
        self.send_ack(arrival, &repr, &AGAIN_SACK);
    }

    fn send_ack(&mut self, arrival: &Arrival, repr: &ReplyRepr, sack: &SackBody) {
        let mut bytes = self.outbox.buffer(repr.header().as_bytes());
        bytes.extend_from_slice(sack.as_bytes());
        let from = arrival.path.local.into();
        self.send_to(Datagram { to: arrival.client, from, bytes }, arrival.sender);
    }

    /// Delay after which a client that is refused may come back, ns; 0 where the reason has nothing
    /// to do with that.
    pub(super) fn retry_after_ns(&self, reason: DropReason) -> u32 {
        match reason {
            DropReason::Overload | DropReason::Expired => {
                let retry_after_ns = self.queues[Lane::Extension].retry_after_ns();
                u32::try_from(retry_after_ns).unwrap_or(u32::MAX)
            }
            _ => 0,
        }
    }
}

/// Shortest wait that is worth a packet: half of the shortest time after which a client asks again.
const TOLD_NS_MIN: u64 = 250_000;

/// Nothing has arrived anywhere, and packet 0 is to be sent again.
const AGAIN_SACK: SackBody = SackBody { granted: U16::ZERO, ..HELD_SACK };

/// Nothing has arrived at a server; packet 0 may be sent.
const HELD_SACK: SackBody =
    SackBody { base: U16::ZERO, granted: U16::new(1), bitmap: [0; SackBody::BITMAP_LEN] };
