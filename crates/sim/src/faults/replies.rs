//! Replies that come back through a router, and what its filter made of each.
//!
//! | a reply comes to the router | and the router | then |
//! |---|---|---|
//! | of any call | forwards it | the call has one |
//! | of a call that has one | drops it | it was the slower |
//! | of a call that has none | drops it | a first reply is lost: broken |
//!
//! A router that has died has forwarded nothing, as far as the next one may say.

use std::collections::BTreeSet;
use std::net::SocketAddr;

use tailcut_proto::router::RouterMetrics;
use tailcut_wire::r2p2::Packet;

/// Calls that have a reply, as the router has forwarded it, by id and client.
#[derive(Debug, Default)]
pub(super) struct ReplyBook {
    passed: BTreeSet<(u64, SocketAddr)>,
}

/// Counters of replies at a router.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    forwarded: u64,
    filtered: u64,
}

impl Judged {
    pub(super) fn of(metrics: &RouterMetrics) -> Self {
        Self { forwarded: metrics.replies_forwarded, filtered: metrics.replies_filtered }
    }

    /// True if a reply was forwarded since.
    pub(super) fn has_forwarded_since(self, before: Self) -> bool {
        self.forwarded > before.forwarded
    }
}

impl ReplyBook {
    /// Takes what a router made of a datagram, by its counters before and after; the call of which
    /// the first reply was dropped, if one was.
    pub(super) fn note(&mut self, bytes: &[u8], before: Judged, after: Judged) -> Option<u64> {
        if before == after {
            return None;
        }
        let packet = Packet::parse(bytes).ok()?;
        let (id, client) = (packet.rpc_id()?.0, packet.route()?.client());
        if after.has_forwarded_since(before) {
            self.passed.insert((id, client));
            return None;
        }
        (!self.passed.contains(&(id, client))).then_some(id)
    }
}
