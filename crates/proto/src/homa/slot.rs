//! One RPC, at either of its ends.

use std::net::IpAddr;

use tailcut_wire::homa::{DataFlags, Ports};

use super::ids::ClientId;
use super::incoming::Incoming;
use super::outgoing::Outgoing;
use crate::call::slab::SlotId;
use crate::node::Time;
use crate::peer::table::PeerId;
use crate::peer::validation::Allowance;
use crate::rpc::CallOptions;

/// One RPC. The slot outlives it and is used again.
#[derive(Debug, Default)]
pub(super) struct Slot {
    pub(super) phase: Phase,
    pub(super) id: ClientId,
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
    /// Flags of the request, at the server.
    pub(super) request_flags: u8,
    pub(super) options: CallOptions,
    pub(super) context: u64,
    pub(super) deadline: Time,
    /// When the first packet of `out` first went out; 0 before.
    pub(super) first_sent_at: Time,
    /// When a packet of `out` last went out.
    pub(super) sent_at: Time,
    /// When a packet of this RPC last came.
    pub(super) heard_at: Time,
    /// When this side last asked for something.
    pub(super) asked_at: Time,
    /// When something new of `inc` last came.
    pub(super) progress_at: Time,
    /// Times that this side has asked since there was progress.
    pub(super) attempts: u32,
    /// NEED_ACKs since the client last gave a sign of life.
    pub(super) need_acks: u8,
    /// Bytes of datagrams of this RPC, at the server.
    pub(super) allowance: Allowance,
    /// The peer receives at its address: it has told the version of the cutoffs back.
    pub(super) is_validated: bool,
    /// Bytes that this RPC holds against the limits, at the server.
    pub(super) held_bytes: usize,
    pub(super) is_grant_queued: bool,
    /// What it is to a long call.
    pub(super) role: Role,
}

/// What an RPC is to a call that is carried by several.
#[derive(Debug, Default)]
pub(super) enum Role {
    /// Nothing: it is a call by itself, or it is served like one.
    #[default]
    Whole,
    /// Client: the first RPC. The others, and what has come of the reply.
    First { others: Vec<SlotId>, reply: Vec<u8>, missing: usize },
    /// Client: another RPC, of the call whose first RPC is in this slot.
    Other { first: SlotId },
    /// Server: a part of a request that waits for the others.
    Part { key: ClientId, total_len: u32, offset: u32, message: Vec<u8> },
    /// Server: the first RPC, and the whole of the reply that it begins.
    LongReply { reply: Vec<u8> },
}

/// Where an RPC stands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Phase {
    /// Client: nothing of the reply has come.
    #[default]
    Calling,
    /// Client: something of the reply has come.
    Hearing,
    /// Client: the reply is long, and other RPCs fetch the rest of it.
    Fetching,
    /// Server: the request is not complete.
    Receiving,
    /// Server: the application has it.
    Waiting,
    /// Server: the reply goes out, or is kept until it is acknowledged.
    Replying,
}

impl Slot {
    pub(super) fn is_client(&self) -> bool {
        matches!(self.phase, Phase::Calling | Phase::Hearing | Phase::Fetching)
    }

    /// Whether `inc` is a message of which more is awaited.
    pub(super) fn is_receiving(&self) -> bool {
        matches!(self.phase, Phase::Hearing | Phase::Receiving)
    }

    /// The id as this side numbers it, which it writes to its packets.
    pub(super) fn local_id(&self) -> u64 {
        self.id.0 | u64::from(!self.is_client())
    }

    /// Whether `len` more bytes may go out.
    pub(super) fn may_send(&self, len: usize) -> bool {
        self.is_validated || self.allowance.covers(len)
    }

    /// Begins to send a message. Homa has no empty one: a byte stands for it, with a flag.
    pub(super) fn send(&mut self, mut payload: Vec<u8>, unscheduled: u32, birth: u32) {
        if payload.is_empty() {
            payload.push(0);
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
        self.request_flags = 0;
        self.first_sent_at = 0;
        self.sent_at = now;
        self.heard_at = now;
        self.asked_at = now;
        self.progress_at = now;
        self.attempts = 0;
        self.need_acks = 0;
        self.allowance = Allowance::default();
        self.is_validated = true;
        self.is_grant_queued = false;
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
