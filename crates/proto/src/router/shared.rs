//! Places at servers that a data plane before the router takes too: a program of the network card
//! or the kernel that places what it can alone, and gives the router the rest.
//!
//! | event | the router |
//! |---|---|
//! | a datagram, a timeout | takes over what the data plane has placed and heard since, then acts |
//! | it places a request | takes the place where the data plane takes its own, and so its number |
//! | a feedback that the data plane does not take | decides what it means, and corrects the counts |
//! | a server comes or leaves, goes in or out of service | tells the data plane |
//! | the bound of its policy changes | tells the data plane |
//! | it begins to hold requests | tells so, and looks at the counts once more: a place may have come free between |
//! | it holds requests | gets every feedback and every request, so that none overtakes those |
//! | it probes a server | gets the next feedback of it |
//! | a request that may run once comes again, and is not known | claims it: the data plane may have placed it |
//!
//! Invariant: a server's outstanding count is one number, whoever has placed. Of a data plane that
//! lives on when the router has ended, the next router takes over the counts.

use std::fmt;
use std::net::SocketAddr;

use tailcut_wire::r2p2::RpcId;

use super::Router;
use super::arrival::Arrival;
use super::config::Speaks;
use super::ids::ServerKey;
use super::lane::Lane;
use crate::node::Time;
use crate::policy::WorkerId;
use crate::sealed::{PlaneSeal, PlaneSession};

/// Counts of a server that a data plane and the router share.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SharedCounts {
    /// Placement number of the last request placed. Wraps.
    pub placed: u32,
    /// Placement number up to which the server has seen. Wraps.
    pub seen: u32,
    /// Requests that the server has received. Wraps.
    pub received: u32,
    /// Number of these that are concluded. Wraps.
    pub concluded: u32,
    /// Epoch of the server's counts; `None` before the first feedback.
    pub epoch: Option<u32>,
    /// Requests queued or running there, as it reported last.
    pub reported: u32,
    /// Number of these that wait.
    pub waiting: u32,
    /// Feedbacks that the data plane has taken. Wraps.
    pub reports: u32,
    /// The data plane may place on it.
    pub is_in_service: bool,
}

/// The places at servers that a data plane shares with a router. Servers are named by the router's
/// slots.
pub trait SharedPlaces: fmt::Debug + Send {
    /// A server is added, with these counts. Returns those that the data plane has of it already,
    /// which then hold.
    fn add(&mut self, slot: WorkerId, server: SocketAddr, counts: SharedCounts) -> SharedCounts;

    /// A server that only the router deals with is added.
    fn add_other(&mut self, server: SocketAddr);

    /// A server is removed, of either kind.
    fn remove(&mut self, slot: WorkerId, server: SocketAddr);

    /// The counts of a server.
    fn counts(&self, slot: WorkerId) -> SharedCounts;

    /// Takes a place at a server; its placement number.
    fn take(&self, slot: WorkerId) -> u32;

    /// Puts other counts in the place of those that were read before; what was placed since still
    /// counts.
    fn correct(&self, slot: WorkerId, before: &SharedCounts, counts: &SharedCounts);

    /// The bound of the policy, from now on, where it has one.
    fn set_bound(&self, bound: u32);

    /// Sets whether the data plane may place on a server.
    fn set_in_service(&self, slot: WorkerId, is_in_service: bool);

    /// The next feedback of a server is to reach the router too.
    fn want_feedback(&self, slot: WorkerId);

    /// Requests are held, until a time at least; or none any more.
    fn set_held(&self, until: Option<Time>);

    /// The data plane places nothing from now on.
    fn close(&self);

    /// Packets are sealed, and this is the seal from now on.
    fn set_seal(&self, _seal: &PlaneSeal, _transit_ns: u64) {}

    /// The name of a server, and the router's alias there.
    fn set_names(&self, _slot: WorkerId, _names: (u64, u64)) {}

    /// Up to which time the data plane has taken sealed reports of a server alone, and the time of
    /// the last that it has taken and passed on.
    fn heard(&self, _slot: WorkerId) -> (u64, u64) {
        (0, 0)
    }

    /// A session from an address is in order: what comes in it may be placed.
    fn know_session(&self, _client: SocketAddr, _session: &PlaneSession) {}

    /// The router takes a sealed request, whose packets come until then, as the data plane takes
    /// those that it places; tells the server on which that has placed it.
    fn take_id(&self, _now: Time, _id: (u32, u64), _until: Time) -> Option<WorkerId> {
        None
    }
}

/// The data plane of a router, where it has one.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The places.
    places: Option<Box<dyn SharedPlaces>>,
    /// Up to when the data plane knows that requests are held.
    held_until: Option<Time>,
}

impl Shared {
    /// Tells whether a server gets requests.
    pub(super) fn set_in_service(&self, slot: WorkerId, is_in_service: bool) {
        if let Some(places) = &self.places {
            places.set_in_service(slot, is_in_service);
        }
    }

    /// The bound of the policy has changed.
    pub(super) fn set_bound(&self, bound: u32) {
        if let Some(places) = &self.places {
            places.set_bound(bound);
        }
    }

    /// A probe is about to be sent.
    pub(super) fn want_feedback(&self, slot: WorkerId) {
        if let Some(places) = &self.places {
            places.want_feedback(slot);
        }
    }
}

impl Router {
    /// Shares the places of all servers with a data plane, from now on.
    pub fn share_places(&mut self, now: Time, places: Box<dyn SharedPlaces>) {
        self.shared.places = Some(places);
        // It places where nothing is held.
        if let Some(bound) = self.queues[Lane::Extension].bound_at(1) {
            self.shared.set_bound(bound);
        }
        for index in 0..self.fleet.len() {
            self.share_server(now, self.fleet.nth(index));
        }
        self.share_seal(now);
    }

    /// Tells the data plane the seal as it is.
    pub(super) fn share_seal(&self, now: Time) {
        if let (Some(places), Some(seal)) = (&self.shared.places, &self.seal) {
            places.set_seal(&seal.plane(now), self.config.transit_ns_max);
        }
    }

    /// Tells the seal what the data plane has heard of a server, which is nothing new here: `bytes`
    /// is the next datagram from there.
    pub(super) fn learn_heard(&mut self, from: SocketAddr, bytes: &[u8]) {
        if let (Some(places), Some(seal)) = (&self.shared.places, &mut self.seal)
            && let Some(slot) = self.fleet.find(from)
        {
            seal.heard_before(from, places.heard(slot), bytes);
        }
    }

    /// Tells the data plane who is at an address, where a sealed packet has come from it.
    pub(super) fn share_names(&self, from: SocketAddr) {
        if let (Some(places), Some(seal)) = (&self.shared.places, &self.seal)
            && let Some(slot) = self.fleet.find(from)
            && let Some(names) = seal.names_at(from)
        {
            places.set_names(slot, names);
        }
    }

    /// Takes a sealed request where the data plane takes its own; tells the server on which that
    /// has placed it.
    pub(super) fn take_shared(
        &mut self,
        now: Time,
        arrival: &Arrival,
        until: Time,
    ) -> Option<ServerKey> {
        let (Some(places), Some(seal)) = (&self.shared.places, &mut self.seal) else { return None };
        let (sender, RpcId(rpc_id)) = (arrival.sender?, arrival.rpc_id?);
        if arrival.is_unrouted
            && let Some(session) = seal.offer(now, rpc_id)
        {
            places.know_session(arrival.client, &session);
        }
        let slot = places.take_id(now, (sender.client(), rpc_id), until)?;
        self.fleet.get(slot).map(|server| server.key)
    }

    /// The shared places, as the driver has given them.
    pub fn shared_places(&self) -> Option<&dyn SharedPlaces> {
        self.shared.places.as_deref()
    }

    /// Gives the data plane a server that has been added.
    pub(super) fn share_server(&mut self, now: Time, slot: WorkerId) {
        let server = &mut self.fleet[slot];
        let Some(places) = &mut self.shared.places else {
            return;
        };
        if server.speaks() == Speaks::V1 {
            return places.add_other(server.addr());
        }
        let counts = places.add(slot, server.addr(), server.shared_counts());
        server.adopt(counts);
        self.refresh(now, slot);
    }

    pub(super) fn unshare_server(&mut self, slot: WorkerId, addr: SocketAddr) {
        if let Some(places) = &mut self.shared.places {
            places.remove(slot, addr);
        }
    }

    /// Takes over what the data plane has placed and heard.
    #[inline]
    pub(super) fn take_over(&mut self, now: Time) {
        if self.shared.places.is_some() {
            self.take_over_all(now);
        }
    }

    #[inline(never)]
    fn take_over_all(&mut self, now: Time) {
        for index in 0..self.fleet.len() {
            let slot = self.fleet.nth(index);
            let Some(places) = &self.shared.places else { return };
            let server = &mut self.fleet[slot];
            let was_silent = server.is_silent;
            if server.speaks() == Speaks::Extension
                && server.take_over(now, places.counts(slot), &self.config)
            {
                self.metrics.servers_returned += u64::from(was_silent && !server.is_silent);
                self.refresh(now, slot);
                self.learn_workers(slot);
            }
        }
    }

    /// The number of a placement at a server.
    pub(super) fn place_at(&mut self, now: Time, slot: WorkerId) -> u32 {
        let taken = self.shared.places.as_ref().map(|places| places.take(slot));
        self.fleet[slot].place(now, taken)
    }

    /// A feedback has reached the router, and may mean what the data plane did not know.
    pub(super) fn correct_shared(&mut self, slot: WorkerId) {
        let server = &mut self.fleet[slot];
        if let Some(places) = &self.shared.places
            && server.speaks() == Speaks::Extension
            && let Some((before, counts)) = server.correction()
        {
            places.correct(slot, &before, &counts);
        }
    }

    /// Tells whether requests are held, when the router has acted.
    #[inline]
    pub(super) fn share_held(&mut self, now: Time) {
        if self.shared.places.is_some() {
            self.share_held_now(now);
        }
    }

    #[inline(never)]
    fn share_held_now(&mut self, now: Time) {
        if self.queue_len() == 0 {
            return self.set_held(None);
        }
        let was_known = self.shared.held_until.is_some();
        // Long before the data plane believes it no more, or requests would overtake those that are
        // held.
        if self.shared.held_until.is_none_or(|until| until <= now + HELD_NS / 2) {
            self.set_held(Some(now + HELD_NS));
        }
        if !was_known {
            // What was heard before it was told has not come here.
            self.take_over_all(now);
            self.pump(now);
            if self.queue_len() == 0 {
                self.set_held(None);
            }
        }
    }

    fn set_held(&mut self, until: Option<Time>) {
        if let Some(places) = &self.shared.places
            && until != self.shared.held_until
        {
            places.set_held(until);
            self.shared.held_until = until;
        }
    }

    /// Time at which the data plane is to be told again that requests are held.
    pub(super) fn held_again_at(&self) -> Option<Time> {
        self.shared.held_until.map(|until| until - HELD_NS / 2)
    }

    pub(super) fn close_shared(&self) {
        if let Some(places) = &self.shared.places {
            places.close();
        }
    }

    /// True if the data plane may have placed a request that is not known here.
    pub(super) fn may_be_placed_unseen(&self, arrival: &Arrival) -> bool {
        self.shared.places.is_some() && arrival.age_ns.is_some() && !arrival.is_idempotent
    }
}

/// Time for which a data plane takes it that requests are held. A router that has died holds it up
/// for no longer, and one that pauses for longer has its requests overtaken.
const HELD_NS: u64 = 50_000_000;
