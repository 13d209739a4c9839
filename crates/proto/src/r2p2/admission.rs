//! Admission to the server half: who may have a request run here, and why not.

use std::net::SocketAddr;

use tailcut_wire::r2p2::{DropReason, Flags, Packet, RequestHeader, Route, RpcId};

use super::STOPPING_GRACE_NS;
use super::config::Config;
use super::routers::{FeedbackSource, Via};
use super::server::{Asked, ClientState, Control, Newcomer, Server, note_taken};
use super::shared::Shared;
use crate::node::{Path, Time};
use crate::peer::cookies::Extent;
use crate::peer::limits::Serving;
use crate::peer::once::Memory;
use crate::peer::table::{PeerId, SessionPlace};
use crate::peer::validation::Refusal;
use crate::sealed::EndpointSeal;

impl Server {
    /// True if a new request comes too late: what a router placed before it heard of the stop is
    /// still taken.
    fn is_stopping(&self, now: Time, packet: &Packet) -> bool {
        self.stopping_since
            .is_some_and(|since| !packet.is_routed() || now >= since + STOPPING_GRACE_NS)
    }

    /// The client's address and the router, if the packet came through one. `None` where one names
    /// a client that is not believed to be a router: it must echo its token in a PROBE before.
    pub(super) fn resolve(
        &mut self,
        now: Time,
        path: Path,
        route: Option<&Route>,
        config: &Config,
    ) -> Option<(SocketAddr, Option<Via>)> {
        let Some(route) = route.filter(|route| route.routed != 0) else {
            return Some((path.peer, None));
        };
        let placement = route.placement.get();
        // The source is the client, who may have written the route itself: it cannot begin counts.
        if route.client_port.get() == 0 {
            let via =
                config.pool.router.map(|router| Path { peer: router, ..path }).and_then(|router| {
                    self.routers.see(now, router, placement, FeedbackSource::Client)
                });
            return Some((path.peer, via));
        }
        if !self.routers.believes(path.peer) {
            return None;
        }
        let source = FeedbackSource::of_requests(config.seal.as_ref());
        let via = self.routers.see(now, path, placement, source);
        Some((route.client(), via))
    }

    /// Admission of a first packet: the client's record, or why not.
    pub(super) fn admit(
        &mut self,
        now: Time,
        newcomer: &Newcomer,
        shared: &mut Shared,
    ) -> Result<PeerId, Refusal> {
        let Newcomer { sender, path, packet, header } = *newcomer;
        let (config, serving) = (&shared.config, &shared.config.serving);
        let len = header.message_len.get() as usize;
        let unfit = [
            (!serving.is_enabled, DropReason::Application),
            // Where else it may have run only a router can ask.
            (!packet.is_routed() && packet.flags().has(Flags::MOVED), DropReason::Uncertain),
            (len > config.message_len_max, DropReason::TooLarge),
        ];
        if let Some((_, reason)) = unfit.into_iter().find(|(is_so, _)| *is_so) {
            return Err(Refusal::Drop(reason));
        }
        let rpc_id = RpcId(header.rpc_id.get());
        let is_idempotent = packet.flags().has(Flags::IDEMPOTENT);
        // What is for nobody may run elsewhere too.
        if shared.is_unnamed() || self.lacks_proof(now, newcomer, serving) {
            return Err(Refusal::Validate);
        }
        let Some(client) = self.admit_client(now, path.peer, (packet, sender), config)? else {
            return Err(self.overload(now, header, shared));
        };
        // First, since who is validated may have more sessions, and more bytes of them.
        self.validate_client(client, packet, sender, serving);
        self.check_session(now, path.peer, (client, rpc_id), &mut shared.seal)?;
        let session = match self.clients.session(now, client, rpc_id.session().0, serving) {
            Ok(place) => place,
            // It has room for more once it is.
            Err(_) if !self.clients[client].is_validated => return Err(Refusal::Validate),
            Err(denied) => {
                shared.metrics.deny(denied);
                return Err(self.overload(now, header, shared));
            }
        };
        if let Some(seal) = &mut shared.seal {
            self.clients[session].note_sound();
            seal.note_known(path.peer);
        }
        // Before the limits are looked at: what has ended makes room for it.
        self.release_below(session, header.floor.get(), shared);
        let serving = &shared.config.serving;
        let is_stopping = self.is_stopping(now, packet);
        let is_full = is_stopping || self.is_full(client, len, packet.count > 1, serving);
        match self.clients[session].once.recall(rpc_id.sequence()) {
            Memory::Fresh if self.may_predate(now, header, session, shared) => {
                return Err(Refusal::Drop(DropReason::Uncertain));
            }
            // A request of several packets is taken when it is complete. One that is refused is
            // taken too: the client takes that for a promise that no copy of it will run.
            Memory::Fresh if is_full && !is_idempotent || !is_full && packet.count == 1 => {
                let taken = self.clients.take(session, rpc_id.sequence());
                note_taken(taken, is_idempotent, shared)?;
            }
            Memory::Fresh => {}
            Memory::Seen if is_idempotent => {}
            // It was answered or refused; if the client still asks, that was lost, and which of
            // them it was is not remembered.
            Memory::Seen => {
                shared.metrics.duplicate_after_release += 1;
                return Err(Refusal::Drop(DropReason::Uncertain));
            }
            Memory::TooOld => return Err(Refusal::Drop(DropReason::TooOld)),
        }
        match (is_stopping, is_full) {
            (true, _) => Err(Refusal::Drop(DropReason::Stopping)),
            (false, true) => Err(Refusal::Drop(DropReason::Overload)),
            (false, false) => Ok(client),
        }
    }

    /// Refuses a sealed session of which some requests may have run and been evicted, or that is
    /// another client's here.
    #[inline]
    fn check_session(
        &self,
        now: Time,
        address: SocketAddr,
        (client, rpc_id): (PeerId, RpcId),
        seal: &mut Option<Box<EndpointSeal>>,
    ) -> Result<(), Refusal> {
        let Some(seal) = seal else { return Ok(()) };
        let known = self.clients.known_session(client, rpc_id.session().0);
        let is_sound = known.is_some_and(|known| self.clients[known].is_sound());
        if seal.may_run(now, address, is_sound) {
            Ok(())
        } else {
            Err(Refusal::Drop(DropReason::Uncertain))
        }
    }

    /// True if a request that must not run twice may have run, and its session was not known then.
    /// Where packets are sealed, that has been told by when the session began.
    fn may_predate(
        &self,
        now: Time,
        header: &RequestHeader,
        session: SessionPlace,
        shared: &Shared,
    ) -> bool {
        let known = (self.clients[session].known_since, shared.config.serving.transit_ns_max);
        shared.seal.is_none() && may_predate(now, header, known)
    }

    /// Refusal of what there is no room for: what a server can tell of a session that it does not
    /// know. Nothing is remembered of it: where packets are sealed, a stranger may send it again
    /// from another address when there is room.
    fn overload(&self, now: Time, header: &RequestHeader, shared: &Shared) -> Refusal {
        let serving = &shared.config.serving;
        let known = (self.clients.known_since(now, serving), serving.transit_ns_max);
        let may_run = shared.seal.is_some() && !Flags(header.flags).has(Flags::IDEMPOTENT);
        Refusal::Drop(match may_run || may_predate(now, header, known) {
            true => DropReason::Uncertain,
            false => DropReason::Overload,
        })
    }

    /// The client of a request; `None` when too many are known.
    fn admit_client(
        &mut self,
        now: Time,
        address: SocketAddr,
        shown: (&Packet, SocketAddr),
        config: &Config,
    ) -> Result<Option<PeerId>, Refusal> {
        if let Some(client) = self.clients.find(address) {
            return Ok(Some(client));
        }
        if !self.clients.has_room_for_unvalidated(now, &config.serving)
            && !self.is_shown(address, shown, &config.serving)
        {
            return Err(Refusal::Validate);
        }
        Ok(self.add_client(now, address, config))
    }

    pub(super) fn add_client(
        &mut self,
        now: Time,
        address: SocketAddr,
        config: &Config,
    ) -> Option<PeerId> {
        let is_local = config.is_local(address);
        let state = ClientState { token: self.token(address), is_local };
        self.clients.add(now, (address, false), state, &config.serving)
    }

    /// It is `now`, by which tokens and cookies expire.
    #[inline]
    pub(super) fn turn(&mut self, now: Time) {
        self.tokens.turn(now);
        self.cookies.turn(now);
    }

    /// Token or cookie by which a client at `address` validates that.
    pub(super) fn token(&self, address: SocketAddr) -> u64 {
        match self.cookies.are_given() {
            true => self.cookies.cookie(address),
            false => self.tokens.token(address),
        }
    }

    /// True if a packet shows that its sender receives at `address`.
    fn is_proof(&self, address: SocketAddr, packet: &Packet) -> bool {
        match self.cookies.are_given() {
            true => self.cookies.is_tagged(address, packet),
            false => self.tokens.is_valid(address, packet.token()),
        }
    }

    /// True if a request is to show its client's address first. Nothing of a long one through a
    /// router is kept of an address that may be forged: its rest would never come.
    fn lacks_proof(&mut self, now: Time, newcomer: &Newcomer, serving: &Serving) -> bool {
        let Newcomer { sender, path, packet, .. } = *newcomer;
        if packet.count > 1
            && packet.is_routed()
            && !self.is_shown(path.peer, (packet, sender), serving)
        {
            return true;
        }
        let is_loaded = self.waiting_len() > 0;
        self.cookies.are_asked(now, is_loaded, Extent::of(packet))
            && !(serving.is_trusted(path.peer.ip()) && serving.is_trusted(sender.ip()))
            && !self.cookies.is_tagged(path.peer, packet)
    }

    /// True if the client at `address` is known to receive there, or shows it by a token.
    fn is_shown(
        &mut self,
        address: SocketAddr,
        (packet, sender): (&Packet, SocketAddr),
        serving: &Serving,
    ) -> bool {
        let known = self.clients.find(address);
        known.is_some_and(|client| self.clients[client].is_validated)
            || serving.is_trusted(address.ip()) && serving.is_trusted(sender.ip())
            || self.is_proof(address, packet)
    }

    /// Looks at what validates a client's address: the token or the tag, or that the address and
    /// whoever sent the packet, which may be a router that names the address, are both trusted.
    pub(super) fn validate_client(
        &mut self,
        client: PeerId,
        packet: &Packet,
        sender: SocketAddr,
        serving: &Serving,
    ) {
        let known = &self.clients[client];
        if !known.is_validated {
            // The token that it was told needs no hash; a cookie is a key, and never echoed.
            let is_echoed = packet.token() == known.state.token && !self.cookies.are_given();
            let is_validated = is_echoed
                || serving.is_trusted(known.address.ip()) && serving.is_trusted(sender.ip())
                || self.is_proof(known.address, packet);
            self.clients[client].is_validated = is_validated;
        }
        if self.cookies.are_given() {
            // It is another in each period.
            self.clients[client].state.token = self.token(self.clients[client].address);
        }
    }

    /// True if one more request of `client` would exceed a limit.
    pub(super) fn is_full(
        &self,
        client: PeerId,
        message_len: usize,
        is_partial: bool,
        serving: &Serving,
    ) -> bool {
        let free = serving.partials_max.saturating_sub(self.held.partials);
        is_partial && !self.clients.has_room_for_partial(client, free)
            || self.clients.is_full(client, &self.held, message_len, serving)
    }

    pub(super) fn refuse_packet(
        &mut self,
        to: Path,
        asked: Asked,
        refusal: Refusal,
        shared: &mut Shared,
    ) {
        match refusal {
            Refusal::Drop(reason) => {
                shared.metrics.drop(reason);
                self.queue_control(Control::Drop { to, asked, reason }, shared);
            }
            Refusal::Validate => {
                shared.metrics.validations += 1;
                self.queue_control(Control::Validate { to, asked }, shared);
            }
        }
    }
}

/// True if a request that must not run twice was sent before and may have been sent first before
/// `since`, if the network held this packet for `transit_ns`.
#[inline]
pub(super) fn may_predate(
    now: Time,
    header: &RequestHeader,
    (since, transit_ns): (Time, u64),
) -> bool {
    let flags = Flags(header.flags);
    if flags.has(Flags::IDEMPOTENT) || !flags.has(Flags::RETRANSMIT) {
        return false;
    }
    // At the bound it may have been. What left before time 0 is clipped to that, and may have been
    // too where the clock began with the server.
    now.saturating_sub(header.age_ns().saturating_add(transit_ns)) <= since
}
