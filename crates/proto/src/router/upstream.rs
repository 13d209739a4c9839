//! Routers before this one: to each of them this router is one server, which has the sum of what
//! its own servers have.
//!
//! | an upstream sends | then |
//! |---|---|
//! | a PROBE | it is told the sum |
//! | a request | its placement is noted; it is told the sum once that has changed |
//! | a CLAIM of a request that is here | it is told so: a copy goes where the request is |
//! | a CLAIM of a request that is not here | every copy of it is refused from then on |
//! | a CLAIM of a request that an earlier run of this router may have placed | uncertain |
//!
//! The sum is told in the counts that a server reports: all requests that have come, of whomever,
//! less those that are held or outstanding, are concluded. So the upstream sees the load that its
//! own requests meet. The number of servers in service goes with it, and the upstream divides by
//! that. Where there is none, or the router is closed, it asks for no more requests.
//!
//! Invariant: reports are for the addresses of [`super::RouterConfig::upstreams`] alone, counts
//! never go back within an epoch.

use std::net::SocketAddr;

use tailcut_wire::r2p2::{
    DropReason, FeedbackBody, Flags, Kind, MessageType, Packet, ReplyRepr, RpcId, SackBody, Verdict,
};
use zerocopy::IntoBytes;

use super::Router;
use super::census::Load;
use super::ids::{Entered, PlacementState};
use super::outbox::Datagram;
use crate::node::{Path, Time, Transmit, is_unanswerable};
use crate::r2p2::routers::{FeedbackSource, Routers};
use crate::sealed::SealVerdict;

/// State of the reports to routers before this one.
#[derive(Debug)]
pub(super) struct Upstreams {
    /// Those that have probed, and what they have placed.
    routers: Routers,
    /// Requests that have come from anybody, wrapping.
    received: u32,
    /// Number of these that are neither held nor outstanding, as last told; wrapping.
    concluded: u32,
    /// Values that were told last: requests concluded, servers in service, and requests that wait.
    told: (u32, u32, u32),
}

impl Upstreams {
    /// Nobody has probed. The counts begin in `epoch`.
    pub(super) fn new(epoch: u32) -> Self {
        Self {
            routers: Routers::new(RECORDS_MAX, None, epoch),
            received: 0,
            concluded: 0,
            told: (0, 0, 0),
        }
    }
}

impl Router {
    /// True if a request's client is whom this router before us names.
    pub(super) fn believes(&self, router: SocketAddr) -> bool {
        let is_named = |named: &SocketAddr| {
            named.ip() == router.ip() && (named.port() == router.port() || named.port() == 0)
        };
        self.config.upstreams.iter().any(is_named)
    }

    /// A request has come, which is taken in any case or refused.
    #[inline]
    pub(super) fn note_received(&mut self, now: Time, path: Path, packet: &Packet) {
        self.upstreams.received = self.upstreams.received.wrapping_add(1);
        if let Kind::Request { route: Some(route), .. } = packet.kind
            && route.routed != 0
            && self.believes(path.peer)
        {
            let placement = route.placement.get();
            let source = FeedbackSource::of_requests(self.config.seal.as_ref());
            self.upstreams.routers.see(now, path, placement, source);
        }
    }

    pub(super) fn handle_probe(&mut self, now: Time, path: Path, packet: &Packet) {
        let Ok(placed) = <[u8; 4]>::try_from(packet.payload) else { return };
        if !self.believes(path.peer) {
            self.metrics.probes_stranger += 1;
            return;
        }
        if self.seal.as_ref().is_some_and(|seal| seal.verdict() == SealVerdict::Unnamed) {
            return self.answer_contact(path, packet);
        }
        let via = self.upstreams.routers.probe(now, path, u32::from_be_bytes(placed));
        if let Some(via) = via {
            self.metrics.probes_answered += 1;
            self.upstreams.routers.ask(via);
        }
    }

    /// Answers an upstream that does not know this router's name, which the seal tells.
    fn answer_contact(&mut self, path: Path, packet: &Packet) {
        if self.outbox.is_full() {
            self.metrics.outbox_full += 1;
            return;
        }
        let repr = ReplyRepr::control(MessageType::Ack, packet.rid, RpcId(0));
        let mut bytes = self.outbox.buffer(repr.header().as_bytes());
        bytes.extend_from_slice(&[0; size_of::<SackBody>()]);
        self.send(Datagram { to: path.peer, from: path.local.into(), bytes });
    }

    /// Something of what upstreams are told may have changed: if so, they are told once nothing
    /// else is to be sent.
    #[inline]
    pub(super) fn note_load(&mut self) {
        if self.config.upstreams.is_empty() {
            return;
        }
        let held = self.queue_len() as u32;
        let Load { outstanding, waiting, servers } = self.fleet.census().load();
        // Copies count twice, and servers that come back may have more than was thought.
        let load = held.saturating_add(outstanding);
        let concluded = self.upstreams.received.wrapping_sub(load);
        if (concluded.wrapping_sub(self.upstreams.concluded) as i32) > 0 {
            self.upstreams.concluded = concluded;
        }
        let news = (self.upstreams.concluded, servers, held.saturating_add(waiting));
        if news != self.upstreams.told {
            self.upstreams.told = news;
            self.upstreams.routers.ask_all();
        }
    }

    /// A report that is due, once nothing else is to be sent: so that there is one for a burst.
    pub(super) fn write_report(&mut self, buffer: &mut [u8]) -> Option<Transmit> {
        if !self.upstreams.routers.is_report_due() {
            return None;
        }
        self.note_load();
        let (to, seen) = self.upstreams.routers.peek_report()?;
        let Upstreams { received, concluded, told: (_, servers, waiting), .. } = self.upstreams;
        let body = FeedbackBody { received: received.into(), concluded: concluded.into(), ..seen };
        let clip = |count: u32| u16::try_from(count).unwrap_or(u16::MAX);
        let is_stopping = self.is_closed || servers == 0;
        let repr = ReplyRepr {
            server_load: clip(received.wrapping_sub(concluded)),
            server_waiting: clip(waiting),
            detail: servers,
            flags: if is_stopping { Flags::STOPPING } else { 0 },
            ..ReplyRepr::control(MessageType::Feedback, 0, RpcId(0))
        };
        let mut bytes = self.outbox.buffer(repr.header().as_bytes());
        bytes.extend_from_slice(body.as_bytes());
        self.send(Datagram { to: to.peer, from: to.local.into(), bytes });
        self.upstreams.routers.report_sent();
        self.metrics.reports += 1;
        self.outbox.poll(buffer)
    }

    /// An upstream that places a request which another may have placed asks never to run it.
    pub(super) fn handle_claim(&mut self, now: Time, path: Path, packet: &Packet) {
        let (Some(body), Some(header)) = (packet.claim(), packet.request_header()) else { return };
        let client = body.client();
        if !self.believes(path.peer) || is_unanswerable(client.ip()) {
            self.metrics.unexpected += 1;
            return;
        }
        if self.outbox.is_full() {
            self.metrics.outbox_full += 1;
            return;
        }
        // Older than it says by what it waited in the socket: else a router that has just restarted
        // would renounce what its run before has placed.
        let age_ns = header.age_ns().saturating_add(self.history.waited_ns(now));
        let verdict = self.renounce(now, (RpcId(header.rpc_id.get()), client), age_ns);
        let rpc_id = RpcId(header.rpc_id.get());
        let repr = ReplyRepr::control(MessageType::Claimed, packet.rid, rpc_id);
        let mut bytes = self.outbox.buffer(repr.header().as_bytes());
        bytes.push(verdict as u8);
        self.send(Datagram { to: path.peer, from: path.local.into(), bytes });
    }

    fn renounce(&mut self, now: Time, (id, client): (RpcId, SocketAddr), age_ns: u64) -> Verdict {
        let until = now.saturating_add(self.config.lifetime_ns_max);
        let key = self.table.key(id, client);
        match self.table.enter(self.history.came_at(now), key, until) {
            // Remembered for longer from here on: a renounced request must run by no copy of it.
            Entered::Known(entry, PlacementState::Refused(_)) => {
                self.table.refuse(entry, DropReason::Uncertain, until);
                Verdict::Renounced
            }
            Entered::Known(..) => Verdict::Seen,
            Entered::New(entry) if self.was_before(now, age_ns) => {
                self.table.release(entry);
                Verdict::Uncertain
            }
            Entered::New(entry) => {
                self.table.refuse(entry, DropReason::Uncertain, until);
                Verdict::Renounced
            }
            Entered::Full => Verdict::Uncertain,
        }
    }
}

/// Most upstreams that are told of the load.
const RECORDS_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::node::Node;
    use crate::router::{RouterConfig, ServerConfig, ServerState, Speaks};
    use crate::sealed::{Cipher, EpochKey, HopKey, Keys, Role, Sealing, Secret};

    const MS: Time = 1_000_000;

    fn address(port: u16) -> SocketAddr {
        SocketAddr::from(([10, 0, 0, 1], port))
    }

    fn sealed_router(seed: u64, change: impl FnOnce(&mut RouterConfig)) -> Router {
        let (secret, hop) = (Secret::new([1; 32]), HopKey::default());
        let epochs = vec![EpochKey { epoch: 1, from_ms: 0, secret, hop }];
        let (role, group, cipher) = (Role::Router, "test".into(), Cipher::Aes128Gcm);
        let keys = Arc::new(Keys { role, group, cipher, reset: None, epochs });
        let seal = Some(Sealing::new(keys, 0));
        let mut config = RouterConfig { seal, seed, ..RouterConfig::default() };
        change(&mut config);
        Router::new(0, config).unwrap()
    }

    /// A router at port 1 whose only server is another at port 2, with so much room to send.
    fn two_routers(outbox_len_max: usize) -> [Router; 2] {
        let server = ServerConfig { addr: address(2), speaks: Speaks::Extension };
        let outer = sealed_router(1, |config| config.servers = vec![server]);
        let inner = sealed_router(2, |config| {
            (config.upstreams, config.outbox_len_max) = (vec![address(1)], outbox_len_max);
        });
        [outer, inner]
    }

    fn drain(router: &mut Router, now: Time) -> Vec<Vec<u8>> {
        let mut buffer = [0; 2_000];
        let mut sent = Vec::new();
        while let Some(transmit) = router.poll_transmit(now, &mut buffer) {
            let datagrams = buffer[..transmit.len].chunks(transmit.segment_len);
            sent.extend(datagrams.map(<[u8]>::to_vec));
        }
        sent
    }

    #[test]
    fn an_upstream_is_told_the_name_and_then_the_load() {
        let [mut outer, mut inner] = two_routers(9);
        for now in (0..10).map(|turn| turn * MS) {
            outer.handle_timeout(now);
            for mut probe in drain(&mut outer, now) {
                inner.handle_datagram(now, address(1).into(), &mut probe);
            }
            for mut answer in drain(&mut inner, now) {
                outer.handle_datagram(now, address(2).into(), &mut answer);
            }
        }
        // It has no server itself.
        assert_eq!(outer.servers().next().map(|server| server.state), Some(ServerState::Stopping));
        assert!(inner.metrics().probes_answered > 0 && outer.metrics().feedback_taken > 0);
    }

    #[test]
    fn a_name_that_finds_no_room_to_be_told_is_dropped_and_counted() {
        let [mut outer, mut inner] = two_routers(1);
        for now in [0, 10 * MS] {
            outer.handle_timeout(now);
            for mut probe in drain(&mut outer, now) {
                inner.handle_datagram(now, address(1).into(), &mut probe);
            }
        }
        assert_eq!((inner.metrics().outbox_full, drain(&mut inner, 10 * MS).len()), (1, 1));
    }
}
