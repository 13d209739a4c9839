//! Claims: a router that places a request which another router may have placed asks the servers
//! that it does not choose never to run it.
//!
//! | what the server knows of the request | it answers | then |
//! |---|---|---|
//! | it has it, or has run or refused it | seen | the router sends it here |
//! | nothing, and it would know | renounced | taken: a copy that comes later is refused |
//! | renounced before | renounced | nothing changes |
//! | nothing, and it may have been before it began to remember; or there is no room | uncertain | the router refuses it |
//!
//! Invariant: of the servers of a pool at most one neither has renounced a request nor knows it,
//! once a router places it by a claim.

use std::net::SocketAddr;

use tailcut_wire::r2p2::{Packet, RequestHeader, RpcId, Verdict};

use super::admission::may_predate;
use super::server::{Control, Server};
use super::shared::Shared;
use crate::node::{Path, Time, is_unanswerable};
use crate::peer::once::Memory;

impl Server {
    /// A router claims a request for another server.
    pub(super) fn handle_claim(
        &mut self,
        now: Time,
        path: Path,
        packet: &Packet,
        shared: &mut Shared,
    ) {
        let (Some(body), Some(header)) = (packet.claim(), packet.request_header()) else {
            return;
        };
        let client = body.client();
        let is_believed = self.routers.believes(path.peer);
        // Anybody else could have a stranger's request never run here.
        if !shared.config.serving.is_enabled || is_unanswerable(client.ip()) || !is_believed {
            shared.metrics.protocol_violation += 1;
            return;
        }
        let verdict = self.renounce(now, client, header, shared);
        let rpc_id = RpcId(header.rpc_id.get());
        self.queue_control(Control::Claimed { to: path, rid: packet.rid, rpc_id, verdict }, shared);
    }

    fn renounce(
        &mut self,
        now: Time,
        client: SocketAddr,
        header: &RequestHeader,
        shared: &mut Shared,
    ) -> Verdict {
        let rpc_id = RpcId(header.rpc_id.get());
        // One of several packets is not taken before it is complete: its session does not know it.
        if self.live.contains_key(&rpc_id.0) {
            return Verdict::Seen;
        }
        // Before the session is asked, in which what was renounced looks like what has run.
        if self.renounced.contains(rpc_id) {
            return Verdict::Renounced;
        }
        let serving = &shared.config.serving;
        let client = match self.clients.find(client) {
            Some(client) => client,
            // That a router names it does not show that anybody receives at the address.
            None if !self.clients.has_room_for_unvalidated(now, serving) => {
                return Verdict::Uncertain;
            }
            None => match self.add_client(now, client, &shared.config) {
                Some(client) => client,
                None => return Verdict::Uncertain,
            },
        };
        let session = match self.clients.session(now, client, rpc_id.session().0, serving) {
            Ok(session) => session,
            Err(denied) => {
                shared.metrics.deny(denied);
                return Verdict::Uncertain;
            }
        };
        let known_since = self.clients[session].known_since;
        match self.clients[session].once.recall(rpc_id.sequence()) {
            Memory::Seen => Verdict::Seen,
            Memory::TooOld => Verdict::Uncertain,
            Memory::Fresh if may_predate(now, header, (known_since, serving.transit_ns_max)) => {
                Verdict::Uncertain
            }
            Memory::Fresh => match self.clients.take(session, rpc_id.sequence()) {
                Ok(()) => {
                    self.renounced.add(rpc_id);
                    Verdict::Renounced
                }
                Err(denied) => {
                    shared.metrics.deny(denied);
                    Verdict::Uncertain
                }
            },
        }
    }
}
