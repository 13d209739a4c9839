//! The seal of an endpoint: a server's or a client's.

use std::net::SocketAddr;
use std::sync::Arc;

use tailcut_wire::r2p2::MessageType;

use super::access::{Access, Denial};
use super::client::Client;
use super::keys::{ChangedKeys, Keys, Role, Sealing};
use super::packet::glance;
use super::server::{Server, Start};
use super::wall_clock::WallClock;
use super::{Cause, SealMetrics, TRAILER_LEN, client_of};
use crate::call::numbering::Numbers;
use crate::node::Time;

/// Seals and opens the datagrams of one endpoint.
#[derive(Debug)]
pub struct EndpointSeal {
    /// By which epochs and the beginnings of sessions are told.
    clock: WallClock,
    /// As configured, and followed by newer ones.
    keys: Arc<Keys>,
    /// What its role needs.
    side: Side,
    /// Which clients may call what; `None` where all may call everything.
    access: Option<Arc<Access>>,
    /// The request that was denied last.
    denied: Option<Denial>,
    /// The counters so far.
    metrics: SealMetrics,
}

#[derive(Debug)]
enum Side {
    Server(Box<Server>),
    Client(Box<Client>),
}

impl EndpointSeal {
    /// The seal of an endpoint that starts at `now`. `secret` is the endpoint's: random, and another at
    /// every start. Remembers `clients_max` clients. `keeper` is the router that keeps clients' addresses.
    ///
    /// Panics for a router's keys, which no endpoint can use.
    pub fn new(
        now: Time,
        sealing: &Sealing,
        secret: &[u8; 16],
        (clients_max, keeper): (usize, Option<SocketAddr>),
    ) -> Self {
        let mut numbers = Numbers::new(secret, b"sealed");
        let seed = numbers.seed();
        let keys = sealing.keys.clone();
        let clock = WallClock { zero_ns: sealing.clock_ns };
        let side = match keys.role {
            Role::Server => {
                let start = Start { sealing, at: (now, clock.ms(now)), clients_max, keeper };
                Side::Server(Box::new(Server::new(&start, &mut numbers)))
            }
            Role::Client(number) => Side::Client(Box::new(Client::new(number, &keys, seed))),
            Role::Router => panic!("a router's keys open no payload"),
        };
        let (access, metrics) = (sealing.access.clone(), SealMetrics::default());
        Self { clock, keys, side, access, denied: None, metrics }
    }

    /// The counters so far.
    pub fn metrics(&self) -> SealMetrics {
        self.metrics
    }

    /// The wall clock shows `unix_ns` at `now`: what is told by it is told anew.
    pub fn set_clock(&mut self, now: Time, unix_ns: u64) {
        self.clock = WallClock::showing(now, unix_ns);
        if let Side::Server(server) = &mut self.side {
            server.set_clock(now, &self.clock);
        }
    }

    /// Takes newer keys of the same holder. Sessions begin under those that are current, and calls in
    /// progress finish under what they began with.
    ///
    /// # Errors
    ///
    /// As [`Keys::followed_by`]; nothing changes then.
    pub fn update_keys(&mut self, now: Time, keys: &Keys) -> Result<(), ChangedKeys> {
        let keys = self.keys.followed_by(keys, self.clock.ms(now))?;
        if keys != *self.keys {
            match &mut self.side {
                Side::Server(server) => server.update_keys((&self.keys, &keys)),
                Side::Client(client) => client.update_keys((&self.keys, &keys)),
            }
            self.keys = Arc::new(keys);
        }
        Ok(())
    }

    /// Takes another policy, by which requests go that begin from now on. A node that has none keeps none.
    pub fn update_access(&mut self, access: &Arc<Access>) {
        if let Some(known) = &mut self.access {
            known.clone_from(access);
        }
    }

    /// Requests that were denied, and the last of them.
    pub fn denials(&self) -> (u64, Option<&Denial>) {
        (self.metrics.denied, self.denied.as_ref())
    }

    /// Whether the policy allows the request that was opened last, of which this is the first packet's
    /// payload; all of it, if it `is_whole`.
    ///
    /// # Errors
    ///
    /// What is refused, if it does not.
    #[inline]
    pub fn check_access(&mut self, first: &[u8], is_whole: bool) -> Result<(), &Denial> {
        match (&self.access, &self.side) {
            (Some(access), Side::Server(server)) => {
                let client = client_of(server.sender());
                let Err(denied) = access.check(client, first, is_whole) else { return Ok(()) };
                self.metrics.denied += 1;
                Err(self.denied.insert(denied))
            }
            _ => Ok(()),
        }
    }

    /// Opens a datagram in place; gives the length of the open packet at its beginning, or `None` where it
    /// is none.
    pub fn open(&mut self, now: Time, peer: SocketAddr, bytes: &mut [u8]) -> Option<usize> {
        match self.try_open(now, peer, bytes) {
            Ok(()) => Some(bytes.len() - TRAILER_LEN),
            Err(cause) => {
                self.metrics.count(cause);
                None
            }
        }
    }

    fn try_open(&mut self, now: Time, peer: SocketAddr, bytes: &mut [u8]) -> Result<(), Cause> {
        let seen = glance(bytes).ok_or(Cause::Unsealed)?;
        match &mut self.side {
            Side::Server(server) => {
                let wall_ms = self.clock.ms(now);
                let accepted = self.keys.accepted(wall_ms, seen.trailer.epoch);
                let at = accepted.ok_or(Cause::UnknownKeys)?;
                server.open((&self.keys, at), peer, (&seen, bytes))?;
                let is_request = seen.kind == MessageType::Request;
                self.metrics.unnamed += u64::from(is_request && !server.arrival.is_named);
                let has_begun = !is_request || server.has_begun(wall_ms);
                has_begun.then_some(()).ok_or(Cause::Ahead)
            }
            // A reply comes under the keys of its call, however old they are by then.
            Side::Client(client) => client.open(now, &self.keys, peer, (&seen, bytes)),
        }
    }

    /// Seals a packet for `to`, whose last [`TRAILER_LEN`] bytes are free; a server's says there which
    /// client it is for, as [`EndpointSeal::addressee`] has told. `false` if it must not go.
    pub fn seal(&mut self, now: Time, to: SocketAddr, bytes: &mut [u8]) -> bool {
        let is_sealed = match &mut self.side {
            Side::Server(server) => server.seal((&self.keys, &self.clock), now, to, bytes),
            Side::Client(client) => client.seal((&self.keys, now), to, bytes),
        };
        if !is_sealed {
            self.metrics.unsealable += 1;
        }
        is_sealed
    }

    /// True if a client's next call should begin a session: for keys that have become current, or since
    /// the last one has lasted for long.
    #[inline]
    pub fn is_session_due(&self, now: Time) -> bool {
        let Side::Client(client) = &self.side else { return false };
        let current = self.keys.current(self.clock.ms(now));
        client.is_session_due((now, self.clock), self.keys.epochs[current].epoch)
    }

    /// The name that a client's request to this address is for; 0 where it names nobody.
    pub fn name(&self, now: Time, to: SocketAddr, is_again: bool) -> u64 {
        match &self.side {
            Side::Client(client) => client.name(now, to, is_again),
            _ => 0,
        }
    }

    /// Takes note of the session of a call that begins.
    #[inline]
    pub fn note_session(&mut self, now: Time, session: u64) {
        if let Side::Client(client) = &mut self.side {
            client.note_session((now, self.clock), session, &self.keys);
        }
    }

    /// True if the request that was opened last may be run, which has come from `address`. Either its
    /// session `is_sound`, which says that what ran of it is remembered there, and is this client's; or it
    /// began after the server's start, and has not been known here or at another address before.
    pub fn may_run(&mut self, now: Time, address: SocketAddr, is_sound: bool) -> bool {
        let wall_ms = self.clock.ms(now);
        let Side::Server(server) = &self.side else { return false };
        let may_run = server.may_run(wall_ms, address, is_sound);
        self.metrics.stale_sessions += u64::from(!may_run);
        may_run
    }

    /// The session of the request that was opened last, which has come from `address` and may run, is known
    /// from now on.
    pub fn note_known(&mut self, address: SocketAddr) {
        if let Side::Server(server) = &mut self.side {
            server.note_known(address);
        }
    }

    /// True if the packet that was opened last names nobody as its receiver: a request that does is not to
    /// be run, since it may be run elsewhere too. Its sender is to be answered, which tells it whom to name.
    #[inline]
    pub fn is_unnamed(&self) -> bool {
        matches!(&self.side, Side::Server(server) if !server.arrival.is_named)
    }

    /// The client whose packet was opened last, with its epoch.
    #[inline]
    pub fn sender(&self) -> u32 {
        match &self.side {
            Side::Server(server) => server.sender(),
            Side::Client(_) => 0,
        }
    }

    /// What is written behind a packet that answers the one which was opened last, so that it is sealed for
    /// the sender of that.
    #[inline]
    pub fn addressee(&self) -> u64 {
        match &self.side {
            Side::Server(server) => server.addressee(),
            Side::Client(_) => 0,
        }
    }
}
