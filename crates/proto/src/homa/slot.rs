//! One RPC, at either of its ends.

use std::net::IpAddr;

use tailcut_wire::homa::{DataFlags, Ports};

use super::ids::ClientId;
use super::incoming::Incoming;
use super::outgoing::Outgoing;
use crate::message::payload::Payload;
use crate::node::Time;
use crate::peer::holdings::Held;
use crate::peer::table::PeerId;
use crate::peer::validation::Allowance;
use crate::rpc::CallOptions;
use crate::sealed::ClientEpoch;
use tailcut_placement::slab::SlotId;

/// One RPC. The slot outlives it and is used again.
#[derive(Debug, Default)]
pub(super) struct Slot {
    /// Its state.
    pub(super) phase: Phase,
    /// Its id as the client numbers it.
    pub(super) id: ClientId,
    /// The other end.
    pub(super) peer: PeerId,
    /// This host's address that the peer knows; `None` until it has answered, or where only the
    /// datapath knows.
    pub(super) local: Option<IpAddr>,
    /// As this side writes them.
    pub(super) ports: Ports,
    /// The request at the client, the reply at the server.
    pub(super) out: Outgoing,
    /// The reply at the client, the request at the server.
    pub(super) inc: Incoming,
    /// Flags of the DATA that this side sends.
    pub(super) flags: u8,
    /// Options of the request's treatment.
    pub(super) options: CallOptions,
    /// Time at which the client stops waiting.
    pub(super) deadline: Time,
    /// Times of its events, which is all that timers go by.
    pub(super) timing: Timing,
    /// State that only the client has of it.
    pub(super) client: ClientSide,
    /// State that only the server has of it.
    pub(super) server: ServerSide,
    /// A GRANT for it waits to be sent.
    pub(super) is_grant_queued: bool,
    /// It waits until it may ask for what is missing.
    pub(super) is_asking: bool,
    /// The client, in its epoch, where packets are sealed, at who has the servers' keys.
    pub(super) sender: ClientEpoch,
}

/// State of a call.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ClientSide {
    /// The application's word.
    pub(super) context: u64,
    /// The cookie by which the first packet of the request was tagged that has gone last; 0 for
    /// none.
    pub(super) tagged_by: u64,
    /// Name of the server that the request has gone to, where packets are sealed, at who has a
    /// client's keys; 0 before.
    pub(super) name: u64,
    /// Permission for its data to go, as far as names say, where packets are sealed, at who has a
    /// client's keys.
    pub(super) naming: Naming,
}

/// State of a request.
#[derive(Debug)]
pub(super) struct ServerSide {
    /// Its flags.
    pub(super) flags: u8,
    /// Bytes of its datagrams.
    pub(super) allowance: Allowance,
    /// The client receives at its address: it has told the version of the cutoffs back. Always true
    /// at a client, of its server.
    pub(super) is_validated: bool,
    /// Its holdings against the limits.
    pub(super) held: Held,
}

impl Default for ServerSide {
    fn default() -> Self {
        let (allowance, held) = (Allowance::default(), Held::default());
        Self { flags: 0, allowance, is_validated: true, held }
    }
}

/// Kind of a request that is not complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Partial {
    /// From a client whose address was validated when it began.
    Validated,
    /// From anybody: of such there are fewer.
    Unvalidated,
}

/// Permission for the data of a call to go, as far as names say.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Naming {
    /// They may.
    #[default]
    Settled,
    /// They wait until the server has told its name.
    Awaited,
    /// They may not: they have gone to another server than is there now. The call is about to end.
    Changed,
}

/// Times of the events of an RPC.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Timing {
    /// Time at which the first packet of `out` was first sent; 0 before.
    pub(super) first_sent_at: Time,
    /// Time at which a packet of `out` was last sent.
    pub(super) sent_at: Time,
    /// Time at which a packet of this RPC last came.
    pub(super) heard_at: Time,
    /// Time at which this side last asked for something.
    pub(super) asked_at: Time,
    /// Time at which something new of `inc` last came, or it was allowed to go on where it could
    /// not.
    pub(super) progress_at: Time,
    /// Times that this side has asked since there was progress.
    pub(super) attempts: u32,
    /// NEED_ACKs since the client last gave a sign of life.
    pub(super) need_acks: u8,
    /// Questions about `inc` since its sender last gave a sign of life, or was allowed to send
    /// more, and when the first of them was put.
    pub(super) in_vain: (u8, Time),
}

/// State of an RPC, and its part in a call that is carried by several.
#[derive(Debug, Default)]
pub(super) enum Phase {
    /// Client: nothing of the reply has come.
    Calling(Member),
    /// Client: something of the reply has come.
    Hearing(Member),
    /// Client, of a call: the reply is long, and other RPCs fetch the rest of it.
    Fetching(Fetch),
    /// Server: the request is not complete; `None` until its first packet, which may be all of it,
    /// has been taken.
    Receiving(Option<Partial>),
    /// Server: the application has it.
    #[default]
    Waiting,
    /// Server: a part of a request that waits for the others. The application knows nothing of it.
    Parked(Part),
    /// Server: the reply goes out, or is kept until it is acknowledged.
    Replying(Reply),
}

/// A reply at the server, besides what goes out of it.
#[derive(Debug, Default)]
pub(super) struct Reply {
    /// The whole of a long one, of which `out` is the beginning.
    pub(super) whole: Vec<u8>,
    /// It carries a part of a long reply to who fetches it.
    pub(super) is_fetch: bool,
}

/// Part of an RPC of a client in its call.
#[derive(Debug, Default)]
pub(super) enum Member {
    /// It is the call.
    #[default]
    Whole,
    /// It is the call, and these carry the other parts of its request.
    First(Vec<SlotId>),
    /// It is not the call; that is in this slot.
    Other(SlotId),
}

/// A long reply that is being fetched.
#[derive(Debug, Default)]
pub(super) struct Fetch {
    /// The RPCs that fetch it.
    pub(super) others: Vec<SlotId>,
    /// Bytes of it that have come.
    pub(super) reply: Vec<u8>,
    /// Parts that have not come.
    pub(super) missing: usize,
}

/// A part of a request.
#[derive(Debug, Default)]
pub(super) struct Part {
    /// The id of the first RPC, by which the parts find each other.
    pub(super) key: ClientId,
    /// Bytes of the request.
    pub(super) total_len: u32,
    /// Its first byte in the request.
    pub(super) offset: u32,
    /// The message that brought it.
    pub(super) message: Vec<u8>,
}

impl Phase {
    /// The call that the RPC is another one of.
    pub(super) fn call(&self) -> Option<SlotId> {
        match *self {
            Self::Calling(Member::Other(first)) | Self::Hearing(Member::Other(first)) => {
                Some(first)
            }
            _ => None,
        }
    }

    /// The other RPCs of a call.
    pub(super) fn others(&mut self) -> Option<&mut Vec<SlotId>> {
        match self {
            Self::Calling(Member::First(others))
            | Self::Hearing(Member::First(others))
            | Self::Fetching(Fetch { others, .. }) => Some(others),
            _ => None,
        }
    }

    /// True if it is an RPC of its own, which holds nothing besides its messages.
    #[inline]
    pub(super) fn is_alone(&self) -> bool {
        match self {
            Self::Calling(member) | Self::Hearing(member) => matches!(member, Member::Whole),
            Self::Receiving(_) | Self::Waiting => true,
            Self::Replying(reply) => reply.whole.capacity() == 0,
            Self::Fetching(_) | Self::Parked(_) => false,
        }
    }

    /// True of a request that is not complete, of a client whose address was not validated.
    pub(super) fn is_unvalidated_partial(&self) -> bool {
        matches!(self, Self::Receiving(Some(Partial::Unvalidated)))
    }

    pub(super) fn is_client(&self) -> bool {
        matches!(self, Self::Calling(_) | Self::Hearing(_) | Self::Fetching(_))
    }
}

impl Slot {
    pub(super) fn is_client(&self) -> bool {
        self.phase.is_client()
    }

    /// True if a packet that `sender` has sealed is of it; the default where packets are open, and
    /// at a client.
    #[inline]
    pub(super) fn is_of(&self, sender: ClientEpoch) -> bool {
        self.sender.client() == sender.client()
    }

    /// True if `inc` is a message of which more is awaited.
    pub(super) fn is_receiving(&self) -> bool {
        matches!(self.phase, Phase::Hearing(_) | Phase::Receiving(_))
    }

    /// The id as this side numbers it, which it writes to its packets.
    pub(super) fn local_id(&self) -> u64 {
        self.id.0 | u64::from(!self.is_client())
    }

    /// True if `len` more bytes may go out.
    pub(super) fn may_send(&self, len: usize) -> bool {
        self.server.is_validated || self.server.allowance.covers(len)
    }

    /// Begins to send a message. Homa has no empty one: a byte stands for it, with a flag.
    pub(super) fn send(&mut self, mut payload: Payload, unscheduled: u32, birth: u32) {
        if payload.len() == 0 {
            let mut buffer = payload.take();
            buffer.push(0);
            payload = buffer.into();
            self.flags |= DataFlags::EMPTY;
        }
        self.out.begin(payload, unscheduled);
        self.out.birth = birth;
    }

    /// Begins anew as an RPC with `peer`; what is not named is as for one that has done nothing.
    pub(super) fn begin(
        &mut self,
        now: Time,
        phase: Phase,
        (peer, ports, id): (PeerId, Ports, ClientId),
    ) {
        self.phase = phase;
        self.peer = peer;
        self.local = None;
        self.ports = ports;
        self.id = id;
        self.flags = 0;
        self.timing = Timing {
            first_sent_at: 0,
            sent_at: now,
            heard_at: now,
            asked_at: now,
            progress_at: now,
            attempts: 0,
            need_acks: 0,
            in_vain: (0, now),
        };
        self.client = ClientSide::default();
        self.server = ServerSide::default();
        self.is_grant_queued = false;
        self.is_asking = false;
        self.sender = ClientEpoch::default();
    }
}

/// The rank of a message: fewer bytes first, then the older.
pub(super) fn rank(bytes: u32, birth: u32) -> u64 {
    u64::from(bytes) << 32 | u64::from(birth)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_bytes_rank_before_age() {
        assert!(rank(1, 9) < rank(2, 0));
        assert!(rank(2, 0) < rank(2, 1));
    }
}
