//! Replies that come back through the router, which drops the slower of two.
//!
//! | a reply of one packet is | and comes from | then |
//! |---|---|---|
//! | the first of its call | a server of ours | forwarded to the client, from the server's address |
//! | the second of its call | a server of ours | dropped: filtered |
//! | any, of a call that is not cloned | a server of ours | forwarded |
//! | any | anybody else | dropped: stranger |
//!
//! With [`super::FilterAt::Router`] the router asks for this in the route of what it has cloned
//! itself. The server sends such a reply to its configured router, with the client's address in a
//! route block; the router takes the block out and sends the rest on as if it came from the
//! server, to which what the client says next goes directly. Longer replies and answers to
//! retransmissions go to the client directly: the client filters those by their ids.
//!
//! An id here is the call's, which holds the random session of its client, with a keyed hash of it
//! and of the client's address. So no id is used again: neither a client nor a router that
//! restarts takes one reply for another.

use std::net::SocketAddr;
use std::num::NonZeroU64;

use tailcut_wire::r2p2::{CloneMark, EXTENDED_LEN, Packet, ROUTED_LEN, ReplyHeader, Route, RpcId};

use super::Router;
use super::config::{FilterAt, RouterConfig};
use super::outbox::Datagram;
use crate::node::{Path, Source, Time, is_unanswerable};
use crate::policy::WorkerId;
use crate::reply_filter::{ReplyFilter, Verdict};

/// The identity of a call at the filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FilterId {
    /// The call's id.
    rpc_id: RpcId,
    /// Keyed hash of that and of the client's address; never 0, so that an empty cell takes no
    /// room.
    hash: NonZeroU64,
}

/// The filter of a configuration that has one.
pub(super) fn filter_of(config: &RouterConfig) -> Option<ReplyFilter<FilterId>> {
    (config.filter == FilterAt::Router).then(|| ReplyFilter::new(config.filter_len))
}

impl Router {
    /// A reply of a server's for a client.
    pub(super) fn handle_reply(&mut self, now: Time, path: Path, packet: &Packet, bytes: &[u8]) {
        let (Some(route), Some(rpc_id)) = (packet.route(), packet.rpc_id()) else {
            self.metrics.unexpected += 1;
            return;
        };
        let (Some(slot), true) = (self.fleet.find(path.peer), self.filter.is_some()) else {
            self.metrics.replies_stranger += 1;
            return;
        };
        let client = route.client();
        if is_unanswerable(client.ip()) || client.port() == 0 {
            self.metrics.malformed.client_address += 1;
            return;
        }
        if self.outbox.is_full() {
            // Before it is judged: what is lost here may not stand for the other.
            self.metrics.outbox_full += 1;
            return;
        }
        let is_cloned = packet.flags().clone_mark() != CloneMark::Single;
        if is_cloned && self.judge(rpc_id, client) == Verdict::Drop {
            self.metrics.replies_filtered += 1;
        } else {
            let mut forwarded = self.outbox.buffer(&bytes[..EXTENDED_LEN]);
            forwarded[HEADER_SIZE_AT] = EXTENDED_LEN as u8;
            forwarded.extend_from_slice(&bytes[ROUTED_LEN..]);
            self.send(Datagram { to: client, from: Source::Spoofed(path.peer), bytes: forwarded });
            self.metrics.replies_forwarded += 1;
        }
        if let Some(header) = packet.reply_header() {
            self.learn_load(now, slot, header);
        }
    }

    /// A reply tells its server's load before the feedback does, which says what has ended.
    fn learn_load(&mut self, now: Time, slot: WorkerId, header: &ReplyHeader) {
        let server = &mut self.fleet[slot];
        if server.hear_load(header.server_load.get(), header.server_waiting.get()) {
            self.refresh(now, slot);
            self.note_load();
        }
    }

    fn judge(&mut self, rpc_id: RpcId, client: SocketAddr) -> Verdict {
        let hash = self.table.key(rpc_id, client).hash();
        let id = FilterId { rpc_id, hash: NonZeroU64::new(hash).unwrap_or(NonZeroU64::MIN) };
        match &mut self.filter {
            Some(filter) => filter.judge((hash >> 63) as u32, hash, id),
            None => Verdict::Forward,
        }
    }
}

/// Asks the server for its reply, where the router has cloned the request itself: of both copies or
/// of none.
pub(super) fn ask_back(route: &mut Route, marks: (CloneMark, CloneMark), filter: FilterAt) {
    let (client_mark, mark) = marks;
    let is_cloned_here = client_mark == CloneMark::Single && mark != CloneMark::Single;
    // The client of another router before this one is not the datagram's source.
    let is_source_kept = route.client_port.get() == 0;
    route.returns = (filter == FilterAt::Router && is_cloned_here && is_source_kept).into();
}

/// Offset of the byte that says how long the header is.
const HEADER_SIZE_AT: usize = 1;
