//! The seal of an endpoint: a server's or a client's.

use std::net::SocketAddr;
use std::sync::Arc;

use tailcut_wire::homa::PacketType;
use tailcut_wire::homa::sealed::is_answer;
use tailcut_wire::r2p2::MessageType;

use super::access::{Access, Denial};
use super::client::Client;
use super::clients::{Clients, Start};
use super::coalesced::{self, Shape};
use super::homa::{self, Accepted, HomaClient, HomaServer};
use super::keys::{ChangedKeys, Keys, Role, Sealing};
use super::limits::{ANSWER_LEN, HOMA_ANSWER_LEN, LostKeys, NoKey};
use super::packet::{client_address, glance, is_annotated};
use super::replay::Arrival;
use super::reset::Avoided;
use super::server::Server;
use super::wall_clock::WallClock;
use super::{Cause, ClientEpoch, SealMetrics, TRAILER_LEN};
use crate::call::numbering::Numbers;
use crate::node::{Time, Transmit};
use crate::rpc::Caller;

/// Seals and opens the datagrams of one endpoint.
#[derive(Debug)]
pub struct EndpointSeal {
    /// By which epochs and the beginnings of sessions are told.
    clock: WallClock,
    /// As configured, and followed by newer ones.
    keys: Arc<Keys>,
    /// State that its role needs.
    side: Side,
    /// Access policy: which clients may call what; `None` where all may call everything.
    access: Option<Arc<Access>>,
    /// The request that was denied last.
    denied: Option<Denial>,
    /// Most bytes of a datagram of several packets.
    coalesced_len_max: usize,
    /// Bytes of each packet but the last of the datagram that was opened last.
    packet_len: usize,
    /// The counters so far.
    metrics: SealMetrics,
}

#[derive(Debug)]
enum Side {
    Server(Box<Server>),
    Client(Box<Client>),
    HomaServer(Box<HomaServer>),
    HomaClient(Box<HomaClient>),
}

impl EndpointSeal {
    /// The seal of an endpoint that starts at `now`. `secret` is the endpoint's: random, and
    /// another at every start. Remembers `clients_max` clients. `keeper` is the router that keeps
    /// clients' addresses.
    ///
    /// Panics for a router's keys, which no endpoint can use.
    pub fn new(
        now: Time,
        sealing: &Sealing,
        secret: &[u8; 16],
        (clients_max, keeper): (usize, Option<SocketAddr>),
    ) -> Self {
        let (mut numbers, seed) = numbers_of(secret);
        let keys = &sealing.keys;
        let side = match keys.role {
            Role::Server => {
                let start = start((now, sealing), (clients_max, keeper));
                Side::Server(Box::new(Server::new(&start, &mut numbers)))
            }
            Role::Client(number) => Side::Client(Box::new(Client::new(number, keys, seed))),
            Role::Router => panic!("{ROUTERS_KEYS}"),
        };
        Self::of(sealing, side)
    }

    /// The seal of an endpoint of Homa that starts at `now` and remembers so many peers.
    ///
    /// Panics for a router's keys, which no endpoint can use.
    pub fn of_homa(now: Time, sealing: &Sealing, secret: &[u8; 16], peers_max: usize) -> Self {
        let (mut numbers, seed) = numbers_of(secret);
        let keys = &sealing.keys;
        let side = match keys.role {
            Role::Server => {
                let start = start((now, sealing), (peers_max, None));
                Side::HomaServer(Box::new(HomaServer::new(&start, &mut numbers)))
            }
            Role::Client(number) => {
                Side::HomaClient(Box::new(HomaClient::new(number, sealing, (peers_max, seed))))
            }
            Role::Router => panic!("{ROUTERS_KEYS}"),
        };
        Self::of(sealing, side)
    }

    fn of(sealing: &Sealing, side: Side) -> Self {
        Self {
            clock: WallClock { zero_ns: sealing.clock_ns },
            keys: sealing.keys.clone(),
            side,
            access: sealing.access.clone(),
            denied: None,
            coalesced_len_max: 0,
            packet_len: 0,
            metrics: SealMetrics::default(),
        }
    }

    /// Sends short packets together, in datagrams of so many bytes, to peers that take them so.
    pub fn gathering(mut self, coalesced_len_max: usize) -> Self {
        self.coalesced_len_max = coalesced_len_max;
        self
    }

    /// The counters so far.
    pub fn metrics(&self) -> SealMetrics {
        self.metrics
    }

    /// The wall clock shows `unix_ns` at `now`: what is told by it is told anew.
    pub fn set_clock(&mut self, now: Time, unix_ns: u64) {
        self.clock = WallClock::showing(now, unix_ns);
        let clock = self.clock;
        if let Some(clients) = self.side.clients_mut() {
            clients.set_clock(now, &clock);
        }
    }

    /// Takes newer keys of the same holder. Sessions begin under those that are current, and calls
    /// in progress finish under what they began with.
    ///
    /// # Errors
    ///
    /// As [`Keys::followed_by`]; nothing changes then.
    pub fn update_keys(&mut self, now: Time, keys: &Keys) -> Result<(), ChangedKeys> {
        let keys = self.keys.followed_by(keys, self.clock.ms(now))?;
        if keys != *self.keys {
            match &mut self.side {
                Side::Server(server) => server.clients.update_keys((&self.keys, &keys)),
                Side::HomaServer(server) => server.clients.update_keys((&self.keys, &keys)),
                Side::Client(client) => client.update_keys((&self.keys, &keys)),
                Side::HomaClient(client) => client.update_keys((&self.keys, &keys)),
            }
            self.keys = Arc::new(keys);
        }
        Ok(())
    }

    /// Takes another policy, by which requests go that begin from now on. A node that has none
    /// keeps none.
    pub fn update_access(&mut self, access: &Arc<Access>) {
        if let Some(known) = &mut self.access {
            known.clone_from(access);
        }
    }

    /// Requests that were denied, and the last of them.
    pub fn denials(&self) -> (u64, Option<&Denial>) {
        (self.metrics.denied, self.denied.as_ref())
    }

    /// Checks that the policy allows the request that was opened last, of which `first` is the
    /// first packet's payload; all of it, if it `is_whole`.
    ///
    /// # Errors
    ///
    /// What is refused, if it does not.
    #[inline]
    pub fn check_access(&mut self, first: &[u8], is_whole: bool) -> Result<(), &Denial> {
        match (&self.access, self.side.clients()) {
            (Some(access), Some(clients)) => {
                let client = clients.sender().client();
                let Err(denied) = access.check(client, first, is_whole) else { return Ok(()) };
                self.metrics.denied += 1;
                Err(self.denied.insert(denied))
            }
            _ => Ok(()),
        }
    }

    /// True if there is a policy, so that a request is to be decided by its first packet.
    #[inline]
    pub fn has_access(&self) -> bool {
        self.access.is_some()
    }

    /// Opens a datagram in place; gives the length of the open packets at its beginning, or `None`
    /// where it is none. [`EndpointSeal::packet_len`] tells where each begins.
    pub fn open(&mut self, now: Time, peer: SocketAddr, bytes: &mut [u8]) -> Option<usize> {
        match self.try_open(now, peer, bytes) {
            Ok(packet_len) => {
                self.packet_len = packet_len;
                let single_len = bytes.len() - TRAILER_LEN;
                let is_single = packet_len == single_len;
                Some(if is_single { single_len } else { coalesced::packets_len(bytes) })
            }
            Err(cause) => {
                self.metrics.count(cause);
                None
            }
        }
    }

    /// The length of each packet but the last in the datagram that was opened last: nearly always
    /// there is one.
    #[inline]
    pub fn packet_len(&self) -> usize {
        self.packet_len
    }

    /// Gives the length of each packet but the last.
    fn try_open(&mut self, now: Time, peer: SocketAddr, bytes: &mut [u8]) -> Result<usize, Cause> {
        let single_len = bytes.len().saturating_sub(TRAILER_LEN);
        match &mut self.side {
            Side::Server(server) => {
                let seen = glance(bytes).ok_or(Cause::Unsealed)?;
                let wall_ms = self.clock.ms(now);
                let Some(at) = self.keys.accepted(wall_ms, seen.trailer.epoch) else {
                    let own = server.clients.own.instance();
                    let answers = &mut server.answers;
                    let is_answered = answers.answer(now, (&self.keys, own), (&seen, bytes));
                    self.metrics.no_key_sent += u64::from(is_answered);
                    return Err(Cause::UnknownKeys);
                };
                let packet_len = server.open((&self.keys, at), peer, (&seen, bytes))?;
                let is_request = seen.kind == MessageType::Request || seen.is_coalesced;
                self.note_request(wall_ms, is_request)?;
                Ok(packet_len)
            }
            Side::HomaServer(server) => {
                let seen = homa::glance(bytes).ok_or(Cause::Unsealed)?;
                let wall_ms = self.clock.ms(now);
                let Some(at) = self.keys.accepted(wall_ms, seen.trailer.epoch) else {
                    let own = server.clients.own.instance();
                    let answers = &mut server.answers;
                    let is_answered = answers.answer(now, (&self.keys, own), (&seen, bytes));
                    self.metrics.no_key_sent += u64::from(is_answered);
                    return Err(Cause::UnknownKeys);
                };
                server.open(Accepted { keys: &self.keys, at, wall_ms }, peer, (&seen, bytes))?;
                let is_request = matches!(seen.kind, PacketType::Data | PacketType::Resend);
                self.note_request(wall_ms, is_request && !seen.is_back)?;
                Ok(single_len)
            }
            // A reply comes under the keys of its call, however old they are by then.
            Side::Client(client) => {
                let seen = glance(bytes).ok_or(Cause::Unsealed)?;
                client.open(now, &self.keys, peer, (&seen, bytes))
            }
            Side::HomaClient(client) if is_answer(bytes) => {
                client.open_answer(&self.keys, bytes)?;
                Ok(single_len)
            }
            Side::HomaClient(client) => {
                let seen = homa::glance(bytes).ok_or(Cause::Unsealed)?;
                client.open(now, &self.keys, peer, (&seen, bytes))?;
                Ok(single_len)
            }
        }
    }

    /// A packet of a client has been opened, which `is_request` or asks what has become of one: it
    /// is counted if it names nobody, and dropped if its session is to begin in a moment.
    #[inline]
    fn note_request(&mut self, wall_ms: u64, is_request: bool) -> Result<(), Cause> {
        let Some(clients) = self.side.clients() else { return Ok(()) };
        self.metrics.unnamed += u64::from(is_request && !clients.arrival.is_named);
        let Arrival { is_named, is_known, .. } = clients.arrival;
        // Of a session that cannot be begun it is refused at once.
        if is_request && is_known && !clients.has_begun(wall_ms) {
            return Err(Cause::Ahead);
        }
        let is_stale = is_request && is_named && !is_known;
        self.metrics.stale_sessions += u64::from(is_stale);
        Ok(())
    }

    /// The answer to a packet that could not be opened, and where its client is, which has come
    /// from `peer`: a request of whose epoch this server has no key.
    #[cold]
    pub fn answer(
        &mut self,
        peer: SocketAddr,
        bytes: &[u8],
    ) -> Option<(SocketAddr, [u8; ANSWER_LEN])> {
        let Side::Server(server) = &mut self.side else { return None };
        let answer = server.answers.take()?;
        let seen = glance(bytes)?;
        // Whoever is no router of ours may write any address there.
        let is_known = !is_annotated(bytes, &seen) || server.routers.at(peer).is_some();
        is_known.then(|| (client_address(bytes, &seen, peer), answer))
    }

    /// The answer over Homa to a packet that could not be opened; it goes to where that has come
    /// from.
    #[cold]
    pub fn answer_homa(&mut self) -> Option<[u8; HOMA_ANSWER_LEN]> {
        let Side::HomaServer(server) = &mut self.side else { return None };
        server.answers.take()
    }

    /// Takes the answer about a server's keys that the packet opened last has told a client, if it
    /// is one.
    pub fn take_no_key(&mut self) -> Option<NoKey> {
        self.side.avoided_mut()?.take()
    }

    /// That was about a call which is under way: sessions begin under another key for a while, if
    /// there is one. True if there is.
    pub fn note_no_key(&mut self, now: Time, peer: SocketAddr, told: NoKey) -> bool {
        match &mut self.side {
            Side::Client(client) => client.note_no_key(now, peer, told),
            Side::HomaClient(client) => client.note_no_key(now, peer, told),
            Side::Server(_) | Side::HomaServer(_) => return false,
        }
        self.metrics.no_key_received += 1;
        let avoided = self.side.avoided_mut();
        avoided.is_some_and(|avoided| avoided.leaves_one((now, self.clock), &self.keys))
    }

    /// Counters of answers sent and received about keys that are not there.
    pub fn lost_keys(&self) -> LostKeys {
        let epoch = match &self.side {
            Side::Server(server) => server.answers.epoch(),
            Side::HomaServer(server) => server.answers.epoch(),
            Side::Client(client) => client.avoided.epoch(),
            Side::HomaClient(client) => client.avoided.epoch(),
        };
        let SealMetrics { no_key_sent: sent, no_key_received: received, .. } = self.metrics;
        LostKeys { sent, received, epoch }
    }

    /// Seals a packet for `to`, whose last [`TRAILER_LEN`] bytes are free; a server's says there
    /// which client it is for, as [`EndpointSeal::addressee`] has told. `false` if it must not go.
    pub fn seal(&mut self, now: Time, to: SocketAddr, bytes: &mut [u8]) -> bool {
        let is_sealed = match &mut self.side {
            Side::Server(server) => server.seal((&self.keys, &self.clock), now, to, bytes),
            Side::HomaServer(server) => server.seal(&self.keys, bytes),
            Side::Client(client) => client.seal((&self.keys, now), to, bytes),
            Side::HomaClient(client) => client.seal((&self.keys, now), to, bytes),
        };
        if !is_sealed {
            self.metrics.unsealable += 1;
        }
        is_sealed
    }

    /// Seals each datagram of a transmit in place. What must not go is taken out of it; `None` if
    /// nothing is left.
    pub fn seal_transmit(
        &mut self,
        now: Time,
        transmit: Transmit,
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        if let Some(to) = self.gathered(now, &transmit, buffer) {
            return self.seal_all_coalesced(now, (transmit, to), buffer);
        }
        let mut len = 0;
        for start in (0..transmit.len).step_by(transmit.segment_len.max(1)) {
            let end = (start + transmit.segment_len).min(transmit.len);
            if self.seal(now, transmit.to, &mut buffer[start..end]) {
                buffer.copy_within(start..end, len);
                len += end - start;
            }
        }
        let segment_len = transmit.segment_len.min(len);
        (len > 0).then_some(Transmit { len, segment_len, ..transmit })
    }

    /// Has a client seal what has been put together.
    #[cfg(test)]
    pub(super) fn seal_together(
        &mut self,
        now: Time,
        to: SocketAddr,
        by_length: (&mut [u8], usize),
    ) -> bool {
        let Side::Client(client) = &mut self.side else { return false };
        client.seal_coalesced((&self.keys, now), to, by_length)
    }

    /// Shape in which the packets of a transmit are put together and, of a server, their addressee,
    /// if they may go so.
    #[inline]
    fn gathered(
        &self,
        now: Time,
        transmit: &Transmit,
        buffer: &[u8],
    ) -> Option<(Shape, ClientEpoch)> {
        let shape = Shape::of(transmit, self.coalesced_len_max)?;
        let packets = buffer[..transmit.len].chunks(transmit.segment_len);
        match &self.side {
            Side::Client(client) => client
                .may_gather(now, transmit.to, packets)
                .then_some((shape, ClientEpoch::default())),
            Side::Server(server) => Some((shape, server.may_gather(packets)?)),
            Side::HomaClient(_) | Side::HomaServer(_) => None,
        }
    }

    /// As [`EndpointSeal::seal_transmit`], with several packets in each datagram.
    fn seal_all_coalesced(
        &mut self,
        now: Time,
        (transmit, (shape, sender)): (Transmit, (Shape, ClientEpoch)),
        buffer: &mut [u8],
    ) -> Option<Transmit> {
        let (mut len, mut from, mut segment_len) = (0, 0, 0);
        while from < transmit.len {
            let (gathered, rest) = shape.gather(buffer, (from, transmit.len), len);
            let is_single = rest - from <= transmit.segment_len;
            let bytes = &mut buffer[len..len + gathered];
            let by_length = (&mut *bytes, shape.packet_len());
            let is_sealed = match &mut self.side {
                _ if is_single => self.seal(now, transmit.to, bytes),
                Side::Client(client) => {
                    client.seal_coalesced((&self.keys, now), transmit.to, by_length)
                }
                Side::Server(server) => server.seal_coalesced(&self.keys, sender, bytes),
                Side::HomaClient(_) | Side::HomaServer(_) => false,
            };
            if is_sealed {
                len += gathered;
                segment_len = segment_len.max(gathered);
            } else {
                self.metrics.unsealable += u64::from(!is_single);
            }
            from = rest;
        }
        (len > 0).then_some(Transmit { len, segment_len, ..transmit })
    }

    /// True if a client's next call should begin a session: for keys that have become current, or
    /// since the last one has lasted for long.
    #[inline]
    pub fn is_session_due(&self, now: Time) -> bool {
        let Side::Client(client) = &self.side else { return false };
        let next = client.avoided.place((now, self.clock), &self.keys);
        client.is_session_due((now, self.clock), self.keys.epochs[next].epoch)
    }

    /// True if a client of Homa should begin another session for its calls to an address: theirs
    /// may be with another server than who is there by now.
    #[inline]
    pub fn is_session_over(&self, now: Time, of: (u64, SocketAddr)) -> bool {
        let Side::HomaClient(client) = &self.side else { return false };
        let next = client.avoided.place((now, self.clock), &self.keys);
        client.is_session_over((now, self.clock), of, self.keys.epochs[next].epoch)
    }

    /// The name that a client's request to this address is for; 0 where it names nobody.
    pub fn name(&self, now: Time, to: SocketAddr, is_again: bool) -> u64 {
        match &self.side {
            Side::Client(client) => client.name(now, to, is_again),
            Side::HomaClient(client) => client.name(now, to, is_again),
            Side::Server(_) | Side::HomaServer(_) => 0,
        }
    }

    /// Takes note of the session of a call that begins.
    #[inline]
    pub fn note_session(&mut self, now: Time, session: u64) {
        match &mut self.side {
            Side::Client(client) => client.note_session((now, self.clock), session, &self.keys),
            Side::HomaClient(client) => client.note_session((now, self.clock), session, &self.keys),
            Side::Server(_) | Side::HomaServer(_) => {}
        }
    }

    /// True if the request that was opened last may be run, which has come from `address`. Either
    /// its session `is_sound`, which says that what ran of it is remembered there, and is this
    /// client's; or it began after the server's start, and has not been known here or at another
    /// address before. At a client of Homa it is a call of a server, in a session of the client's
    /// own, and has come once.
    pub fn may_run(&mut self, now: Time, address: SocketAddr, is_sound: bool) -> bool {
        let wall_ms = self.clock.ms(now);
        let Some(clients) = self.side.clients() else {
            return matches!(self.side, Side::HomaClient(_));
        };
        let may_run = clients.may_run(wall_ms, address, is_sound);
        self.metrics.stale_sessions += u64::from(!may_run);
        may_run
    }

    /// The session of the request that was opened last, which has come from `address` and may run,
    /// is known from now on.
    pub fn note_known(&mut self, address: SocketAddr) {
        if let Some(clients) = self.side.clients_mut() {
            clients.note_known(address);
        }
    }

    /// True if the packet that was opened last names nobody as its receiver: a request that does is
    /// not to be run, since it may be run elsewhere too. Its sender is to be answered, which tells
    /// it whom to name.
    #[inline]
    pub fn is_unnamed(&self) -> bool {
        self.side.clients().is_some_and(|clients| !clients.arrival.is_named)
    }

    /// True if the session of the packet that was opened last is not remembered, so that nothing is
    /// to be made of it but an answer: one that is older than the server, has made room for others,
    /// or has yet to name the server.
    #[inline]
    pub fn is_session_unknown(&self) -> bool {
        self.side.clients().is_some_and(|clients| !clients.arrival.is_known)
    }

    /// True of a server's seal.
    #[inline]
    pub fn is_server(&self) -> bool {
        self.side.clients().is_some()
    }

    /// Sender of a request of Homa in this session of a client, as [`EndpointSeal::call_back`]
    /// takes it; `None` where the session is no longer known.
    pub fn caller(&self, client: u32, session: u64) -> Option<Caller> {
        let Side::HomaServer(server) = &self.side else { return None };
        server.caller(&self.keys, (client, session))
    }

    /// A server calls back, in a session of the client's: the client in its epoch, for whom packets
    /// of the call are sealed, and the number of the call in the session, below `sequence_max`.
    /// `None` where the session is no longer known or has had so many, for a client that may call
    /// nothing any more, and of a seal that calls nobody back.
    pub fn call_back(&mut self, to: Caller, sequence_max: u32) -> Option<(ClientEpoch, u32)> {
        let is_denied = |access: &Arc<Access>| access.check(to.client, &[], true).is_err();
        if self.access.as_ref().is_some_and(is_denied) {
            return None;
        }
        let Side::HomaServer(server) = &mut self.side else { return None };
        server.call_back(to, sequence_max)
    }

    /// The client whose packet was opened last, with its epoch.
    #[inline]
    pub fn sender(&self) -> ClientEpoch {
        self.side.clients().map_or_else(ClientEpoch::default, Clients::sender)
    }

    /// Addressee to write behind a packet that answers the one which was opened last, so that it is
    /// sealed for the sender of that.
    #[inline]
    pub fn addressee(&self) -> u64 {
        match &self.side {
            Side::Server(server) => server.addressee(),
            Side::HomaServer(server) => server.clients.sender().addressee(),
            Side::Client(_) | Side::HomaClient(_) => 0,
        }
    }
}

impl Side {
    /// State that a server keeps of its clients.
    #[inline]
    fn clients(&self) -> Option<&Clients> {
        match self {
            Self::Server(server) => Some(&server.clients),
            Self::HomaServer(server) => Some(&server.clients),
            Self::Client(_) | Self::HomaClient(_) => None,
        }
    }

    /// State that a client keeps of keys that are not there.
    #[inline]
    fn avoided_mut(&mut self) -> Option<&mut Avoided> {
        match self {
            Self::Client(client) => Some(&mut client.avoided),
            Self::HomaClient(client) => Some(&mut client.avoided),
            Self::Server(_) | Self::HomaServer(_) => None,
        }
    }

    #[inline]
    fn clients_mut(&mut self) -> Option<&mut Clients> {
        match self {
            Self::Server(server) => Some(&mut server.clients),
            Self::HomaServer(server) => Some(&mut server.clients),
            Self::Client(_) | Self::HomaClient(_) => None,
        }
    }
}

/// Draws what a seal draws, and the seed of its tables.
fn numbers_of(secret: &[u8; 16]) -> (Numbers, u64) {
    let numbers = Numbers::new(secret, b"sealed");
    let seed = numbers.seed();
    (numbers, seed)
}

/// Parameters with which a server's half begins.
fn start(
    (now, sealing): (Time, &Sealing),
    (clients_max, keeper): (usize, Option<SocketAddr>),
) -> Start<'_> {
    let clock = WallClock { zero_ns: sealing.clock_ns };
    Start { sealing, at: (now, clock.ms(now)), clients_max, keeper }
}

/// Reason why a router's keys are no endpoint's.
const ROUTERS_KEYS: &str = "a router's keys open no payload";
