//! The seal of an endpoint: a server's or a client's.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;

use tailcut_wire::r2p2::sealed::VERSION_AT;
use tailcut_wire::r2p2::{
    DropReason, EXTENDED_LEN, EXTENSION_VERSION, Flags, MessageType, ROUTED_LEN, RequestHeader,
    Route, RpcId,
};
use zerocopy::FromBytes;

use super::keys::{ClientSecret, HopKey, Keys, Master, Role, Sealing, TICK_MS, WallClock};
use super::packet::{
    self, CLOCK_AT, COUNT_AT, Glance, glance, is_hop_genuine, reply_nonce, request_nonce,
};
use super::primitives::AeadKey;
use super::{Cause, Latest, Peers, SealMetrics, TRAILER_LEN, Times};
use crate::address::AddressKey;
use crate::call::numbering::Numbers;
use crate::keyed::KeyedState;
use crate::node::{Time, clock_us};

/// Seals and opens the datagrams of one endpoint.
#[derive(Debug)]
pub struct EndpointSeal {
    /// By which epochs and the beginnings of sessions are told.
    clock: WallClock,
    /// As configured.
    keys: std::sync::Arc<Keys>,
    /// What its role needs.
    side: Side,
    /// The counters so far.
    metrics: SealMetrics,
}

#[derive(Debug)]
enum Side {
    Server(Box<Server>),
    Client(Box<Client>),
}

/// A server's half.
#[derive(Debug)]
struct Server {
    /// By place of the epoch.
    masters: Vec<Master>,
    /// Authenticated clients, by the address that their packets name.
    clients: Peers<Vec<ClientKeys>>,
    /// Routers, and the latest packet of each.
    routers: Latest,
    /// Of its own packets to them.
    times: Times,
    /// Drawn at the start, and in the label of reply keys: no two servers share one, nor a server with
    /// itself after a restart.
    instance: u64,
    /// Packets sealed under any of them.
    count: u64,
    /// The request that was opened last.
    arrival: Arrival,
    /// Which sessions have been known.
    replay: Replay,
}

/// The keys of a client's session.
#[derive(Debug)]
struct ClientKeys {
    /// The client's number.
    client: u32,
    /// Of the keys.
    epoch: u8,
    /// The 40 bits of its calls' ids.
    session: u64,
    /// When it began, in ticks of the epoch.
    began: u32,
    /// The client's hop key.
    hop: HopKey,
    /// Of its packets.
    request: AeadKey,
    /// Of this server's packets, made when the first goes to it.
    reply: Option<AeadKey>,
    /// From which that is made.
    secret: ClientSecret,
}

/// Of a request, what only its seal tells.
#[derive(Clone, Copy, Debug, Default)]
struct Arrival {
    /// The client's number.
    client: u32,
    /// The 40 bits of its id.
    session: u64,
    /// When its session began: Unix time, ms.
    began_ms: u64,
}

/// The sessions that have been known where requests are run, whatever the address: there they are known
/// by address, which may be forged, and until they are evicted.
#[derive(Debug)]
struct Replay {
    /// Sessions that have been known, by client and session.
    bound: HashMap<u64, Bound, KeyedState>,
    /// The client of each of them, by its address and session: where calls are told apart by those, no
    /// other client is believed.
    owners: HashMap<(AddressKey, u64), u32, KeyedState>,
    /// In the order in which they were bound.
    order: VecDeque<u64>,
    /// A session that began by then, Unix ms, and is not bound may have had requests run that nobody
    /// remembers.
    forgotten_ms: u64,
    /// A session that is to begin within so long is waited for.
    tolerance_ms: u64,
}

/// A session that has been known.
#[derive(Clone, Copy, Debug)]
struct Bound {
    /// When it began: Unix time, ms.
    began_ms: u64,
    /// Where it was known.
    address: AddressKey,
}

/// A client's half.
#[derive(Debug)]
struct Client {
    /// As its keys have it.
    number: u32,
    /// By place of the epoch.
    secrets: Vec<ClientSecret>,
    /// Sessions of calls under way, the newest last.
    sessions: VecDeque<Session>,
    /// By server's instance and epoch.
    replies: HashMap<(u64, u8), AeadKey, KeyedState>,
    /// The microsecond of the last packet, and the count of the first in it.
    microsecond: (u32, u16),
    /// Packets sealed, wrapping.
    count: u16,
}

#[derive(Debug)]
struct Session {
    /// The 40 bits of its calls' ids.
    session: u64,
    /// Place of its epoch.
    epoch_at: usize,
    /// When it began, in ticks of the epoch.
    began: u32,
    /// Of its packets.
    key: AeadKey,
}

impl EndpointSeal {
    /// The seal of an endpoint that starts at `now`. `secret` is the endpoint's: random, and another at
    /// every start. Remembers `clients_max` clients.
    ///
    /// Panics for a router's keys, which no endpoint can use.
    pub fn new(now: Time, sealing: &Sealing, secret: &[u8; 16], clients_max: usize) -> Self {
        let mut numbers = Numbers::new(secret, b"sealed");
        let seed = numbers.seed();
        let keys = sealing.keys.clone();
        let clock = WallClock { zero_ns: sealing.clock_ns };
        let side = match keys.role {
            Role::Server => Side::Server(Box::new(Server {
                masters: keys
                    .epochs
                    .iter()
                    .map(|key| Master::of_server(key, &keys.group))
                    .collect(),
                clients: Peers::new(clients_max, seed),
                routers: Latest::new(seed),
                times: Times::default(),
                instance: numbers.draw(u64::BITS),
                count: 0,
                arrival: Arrival::default(),
                replay: Replay {
                    bound: HashMap::with_hasher(KeyedState::with_seed(seed)),
                    owners: HashMap::with_hasher(KeyedState::with_seed(seed)),
                    order: VecDeque::new(),
                    forgotten_ms: clock.ms(now),
                    tolerance_ms: sealing.clock_tolerance_ms,
                },
            })),
            Role::Client(number) => Side::Client(Box::new(Client {
                number,
                secrets: keys
                    .epochs
                    .iter()
                    .map(|key| ClientSecret::new(&key.secret, keys.cipher))
                    .collect(),
                sessions: VecDeque::new(),
                replies: HashMap::with_hasher(KeyedState::with_seed(seed)),
                microsecond: (0, 0),
                count: 0,
            })),
            Role::Router => panic!("a router's keys open no payload"),
        };
        Self { clock, keys, side, metrics: SealMetrics::default() }
    }

    /// The counters so far.
    pub fn metrics(&self) -> SealMetrics {
        self.metrics
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
        let wall_ms = self.clock.ms(now);
        let at = self.keys.accepted(wall_ms, seen.trailer.epoch).ok_or(Cause::UnknownKeys)?;
        match &mut self.side {
            Side::Server(server) => {
                server.open((&self.keys, at), peer, (&seen, bytes))?;
                let has_begun = seen.kind != MessageType::Request || server.has_begun(wall_ms);
                has_begun.then_some(()).ok_or(Cause::Ahead)
            }
            Side::Client(client) => client.open((&self.keys, at), (&seen, bytes)),
        }
    }

    /// Seals a packet for `to`, whose last [`TRAILER_LEN`] bytes are free. `false` if it must not go.
    pub fn seal(&mut self, now: Time, to: SocketAddr, bytes: &mut [u8]) -> bool {
        let is_sealed = match &mut self.side {
            Side::Server(server) => server.seal((&self.keys, &self.clock), now, to, bytes),
            Side::Client(client) => client.seal(&self.keys, now, bytes),
        };
        if !is_sealed {
            self.metrics.unsealable += 1;
        }
        is_sealed
    }

    /// True if a client's next call should begin a session, for keys that have become current.
    pub fn is_session_due(&self, now: Time) -> bool {
        let Side::Client(client) = &self.side else { return false };
        let current = self.keys.current(self.clock.ms(now));
        client.sessions.back().is_some_and(|session| session.epoch_at != current)
    }

    /// Takes note of the session of a call that begins.
    pub fn note_session(&mut self, now: Time, session: u64) {
        let wall_ms = self.clock.ms(now);
        let Side::Client(client) = &mut self.side else { return };
        if client.sessions.back().is_some_and(|newest| newest.session == session) {
            return;
        }
        let epoch_at = self.keys.current(wall_ms);
        let ticks = wall_ms.saturating_sub(self.keys.epochs[epoch_at].from_ms) / TICK_MS;
        let began = u32::try_from(ticks).unwrap_or(u32::MAX);
        let key = client.secrets[epoch_at].request_key(session, began);
        if client.sessions.len() >= SESSIONS_MAX {
            client.sessions.pop_front();
        }
        client.sessions.push_back(Session { session, epoch_at, began, key });
    }

    /// True if the request that was opened last may be run, which has come from `address`. Either its
    /// session `is_sound`, which says that what ran of it is remembered there, and is this client's; or it
    /// began after the server's start, and has not been known here or at another address before.
    pub fn may_run(&mut self, now: Time, address: SocketAddr, is_sound: bool) -> bool {
        let wall_ms = self.clock.ms(now);
        let Side::Server(server) = &self.side else { return false };
        let Server { replay, arrival, .. } = &**server;
        let may_run = is_sound && replay.is_bound(address, arrival)
            || !replay.is_of_another(address, arrival.client, arrival.session)
                && replay.may_begin(wall_ms, arrival);
        self.metrics.stale_sessions += u64::from(!may_run);
        may_run
    }

    /// The session of the request that was opened last, which has come from `address` and may run, is known
    /// from now on.
    pub fn note_known(&mut self, address: SocketAddr) {
        if let Side::Server(server) = &mut self.side {
            server.replay.bind(address, &server.arrival);
        }
    }

    /// The number of the client whose packet was opened last.
    pub fn sender(&self) -> u32 {
        match &self.side {
            Side::Server(server) => server.arrival.client,
            Side::Client(client) => client.number,
        }
    }
}

impl Server {
    fn open(
        &mut self,
        (keys, at): (&Keys, usize),
        peer: SocketAddr,
        (seen, bytes): (&Glance, &mut [u8]),
    ) -> Result<(), Cause> {
        match (seen.kind, seen.is_sealed) {
            (MessageType::Request | MessageType::ReplyAck | MessageType::Cancel, true) => {}
            (MessageType::Probe | MessageType::Claim, false) => {
                let router_key = &self.masters[at].router_key;
                return open_hop(bytes, router_key, (&mut self.routers, peer), seen);
            }
            _ => return Err(Cause::Unsealed),
        }
        let address = client_address(bytes, seen, peer);
        let (client, began) = (seen.trailer.client(), seen.trailer.low.get());
        let session = RpcId(seen.rpc_id).session().0;
        let known = self.clients.find(address).and_then(|known| {
            known.iter().find(|keys| {
                (keys.session, keys.client, keys.epoch, keys.began)
                    == (session, client, seen.trailer.epoch, began)
            })
        });
        // The hop tag comes first: a forged packet costs no more than that.
        let master = &self.masters[at];
        let is_genuine = match (seen.is_routed, known) {
            (true, _) => is_hop_genuine(bytes, &master.router_key),
            (false, Some(keys)) => is_hop_genuine(bytes, &keys.hop),
            (false, None) => is_hop_genuine(bytes, &master.hop_key(client)),
        };
        let nonce = request_nonce(bytes);
        if !is_genuine || known.is_some_and(|keys| !packet::open(bytes, &keys.request, nonce, true))
        {
            return Err(Cause::Forged);
        }
        if self.replay.is_of_another(address, client, session) {
            return Err(Cause::Forged);
        }
        if known.is_none() {
            self.open_first((keys, at), address, (seen, bytes))?;
        }
        if seen.is_routed && address != peer {
            // What asks it for its token is answered there.
            self.routers.0.entry(peer, || 0);
        }
        let began_ms = keys.epochs[at].from_ms.saturating_add(u64::from(began) * TICK_MS);
        self.arrival = Arrival { client, session, began_ms };
        Ok(())
    }

    /// Opens a packet of a session whose keys are not at hand, and remembers them if it is genuine.
    fn open_first(
        &mut self,
        (keys, at): (&Keys, usize),
        address: SocketAddr,
        (seen, bytes): (&Glance, &mut [u8]),
    ) -> Result<(), Cause> {
        let (client, began) = (seen.trailer.client(), seen.trailer.low.get());
        let (epoch, session) = (seen.trailer.epoch, RpcId(seen.rpc_id).session().0);
        let master = &self.masters[at];
        let secret = master.client(client, keys.cipher);
        let request = secret.request_key(session, began);
        let nonce = request_nonce(bytes);
        if !packet::open(bytes, &request, nonce, true) {
            return Err(Cause::Forged);
        }
        let (hop, reply) = (master.hop_key(client), None);
        let keys = ClientKeys { client, epoch, session, began, hop, request, reply, secret };
        self.remember(address, keys).then_some(()).ok_or(Cause::Forged)
    }

    /// True if the session of the request that was opened last has begun by this server's clock, or is so
    /// far ahead that to wait is no use. Until then the request is dropped, and comes again.
    fn has_begun(&self, wall_ms: u64) -> bool {
        let ahead_ms = self.arrival.began_ms.saturating_sub(wall_ms);
        ahead_ms == 0 || ahead_ms > self.replay.tolerance_ms
    }

    /// Remembers a client's keys; `false` if the session has begun at another time. Another client's make
    /// room: none of its requests has run, or this one's packets would not have been opened.
    fn remember(&mut self, address: SocketAddr, keys: ClientKeys) -> bool {
        let known = self.clients.entry(address, Vec::new);
        known.retain(|known| known.session != keys.session || known.client == keys.client);
        if let Some(same) = known.iter().find(|known| known.session == keys.session) {
            return same.began == keys.began;
        }
        if known.len() >= SESSIONS_PER_CLIENT_MAX {
            known.remove(0);
        }
        known.push(keys);
        true
    }

    fn seal(
        &mut self,
        (keys, clock): (&Keys, &WallClock),
        now: Time,
        to: SocketAddr,
        bytes: &mut [u8],
    ) -> bool {
        let Some((kind, rpc_id)) = written(bytes) else { return false };
        let is_for_client =
            matches!(kind, MessageType::Response | MessageType::Ack | MessageType::Drop);
        let session = rpc_id.session().0;
        let known = self.clients.by_address.get_mut(&AddressKey(to));
        let known = known
            .filter(|_| is_for_client)
            .and_then(|known| known.iter_mut().find(|keys| keys.session == session));
        let Some(client) = known else {
            let is_for_router = match kind {
                MessageType::Feedback | MessageType::Claimed => true,
                MessageType::Ack => self.routers.0.find(to).is_some(),
                _ => false,
            };
            if is_for_router {
                let at = keys.current(clock.ms(now));
                let time = self.times.next(clock.us(now));
                let (high, low) = ((time >> 32) as u32, time as u32);
                let trailer = packet::trailer(high, keys.epochs[at].epoch, low, 0);
                packet::seal_hop(bytes, &trailer, &self.masters[at].router_key);
            }
            return is_for_router;
        };
        if usize::from(bytes[1]) != EXTENDED_LEN || self.count >= COUNT_MAX {
            return false;
        }
        let reply = client.reply.get_or_insert_with(|| client.secret.reply_key(self.instance));
        let (high, low) = ((self.count >> 32) as u32, self.count as u32);
        let trailer = packet::trailer(high, client.epoch, low, self.instance);
        self.count += 1;
        packet::seal(bytes, reply, reply_nonce(&trailer), (&trailer, None));
        true
    }
}

impl Replay {
    /// True if a session that is not known where requests are run may be begun.
    fn may_begin(&self, wall_ms: u64, arrival: &Arrival) -> bool {
        let is_ahead = arrival.began_ms > wall_ms;
        let is_old = arrival.began_ms <= self.forgotten_ms;
        !is_ahead && !is_old && !self.bound.contains_key(&arrival.key())
    }

    /// True if the session of a request has been known at this address, as this client's.
    fn is_bound(&self, address: SocketAddr, arrival: &Arrival) -> bool {
        let bound = self.bound.get(&arrival.key());
        bound.is_some_and(|bound| (bound.address.0, bound.began_ms) == (address, arrival.began_ms))
    }

    /// True if a session at an address has been known as that of another client.
    fn is_of_another(&self, address: SocketAddr, client: u32, session: u64) -> bool {
        let owner = self.owners.get(&(AddressKey(address), session));
        owner.is_some_and(|&owner| owner != client)
    }

    fn bind(&mut self, address: SocketAddr, arrival: &Arrival) {
        if self.bound.contains_key(&arrival.key()) {
            return;
        }
        if self.order.len() >= BOUND_MAX
            && let Some(oldest) = self.order.pop_front()
            && let Some(bound) = self.bound.remove(&oldest)
        {
            self.owners.remove(&(bound.address, oldest & SESSION_MASK));
            self.forgotten_ms = self.forgotten_ms.max(bound.began_ms);
        }
        let address = AddressKey(address);
        self.bound.insert(arrival.key(), Bound { began_ms: arrival.began_ms, address });
        self.owners.insert((address, arrival.session), arrival.client);
        self.order.push_back(arrival.key());
    }
}

impl Arrival {
    /// Client and session in one word.
    fn key(&self) -> u64 {
        u64::from(self.client) << SESSION_BITS | self.session
    }
}

impl Client {
    fn open(
        &mut self,
        (keys, at): (&Keys, usize),
        (seen, bytes): (&Glance, &mut [u8]),
    ) -> Result<(), Cause> {
        // A router may say that it holds a request, or refuses it, and nothing else.
        let may_be_hop = match seen.kind {
            MessageType::Ack => bytes[FLAGS_AT] & Flags::HELD != 0,
            kind => kind == MessageType::Drop,
        };
        if !seen.is_sealed && may_be_hop {
            if !is_hop_genuine(bytes, &keys.epochs[at].hop) {
                return Err(Cause::Forged);
            }
            if seen.kind == MessageType::Drop && !is_refusal_of_router(bytes) {
                return Err(Cause::Forged);
            }
            bytes[VERSION_AT] = EXTENSION_VERSION;
            return Ok(());
        }
        let is_for_client =
            matches!(seen.kind, MessageType::Response | MessageType::Ack | MessageType::Drop);
        if !seen.is_sealed || !is_for_client {
            return Err(Cause::Unsealed);
        }
        let label = (seen.trailer.hop.get(), seen.trailer.epoch);
        let nonce = reply_nonce(&seen.trailer);
        if let Some(key) = self.replies.get(&label) {
            let is_genuine = packet::open(bytes, key, nonce, false);
            return is_genuine.then_some(()).ok_or(Cause::Forged);
        }
        // Whoever makes up an instance has it derived, and so has to know a session at least.
        let session = RpcId(seen.rpc_id).session().0;
        if !self.sessions.iter().any(|own| own.session == session) {
            return Err(Cause::UnknownKeys);
        }
        let key = self.secrets[at].reply_key(label.0);
        if !packet::open(bytes, &key, nonce, false) {
            return Err(Cause::Forged);
        }
        if self.replies.len() >= SERVERS_MAX {
            self.replies.clear();
        }
        self.replies.insert(label, key);
        Ok(())
    }

    fn seal(&mut self, keys: &Keys, now: Time, bytes: &mut [u8]) -> bool {
        let Some((kind, rpc_id)) = written(bytes) else { return false };
        let is_for_server =
            matches!(kind, MessageType::Request | MessageType::ReplyAck | MessageType::Cancel);
        let session = rpc_id.session().0;
        let found = self.sessions.iter().rev().find(|own| own.session == session);
        let (Some(own), true) = (found, is_for_server) else { return false };
        let microsecond = clock_us(now);
        if microsecond != self.microsecond.0 {
            self.microsecond = (microsecond, self.count);
        } else if self.count == self.microsecond.1.wrapping_sub(1) {
            // The next one would have the nonce of the first packet of this microsecond.
            return false;
        }
        bytes[COUNT_AT..COUNT_AT + 2].copy_from_slice(&self.count.to_be_bytes());
        self.count = self.count.wrapping_add(1);
        // On requests it is the client's clock already, which the server echoes.
        bytes[CLOCK_AT..CLOCK_AT + 4].copy_from_slice(&microsecond.to_be_bytes());
        let epoch = &keys.epochs[own.epoch_at];
        let trailer = packet::trailer(self.number, epoch.epoch, own.began, 0);
        let nonce = request_nonce(bytes);
        packet::seal(bytes, &own.key, nonce, (&trailer, Some(&epoch.hop)));
        true
    }
}

/// Looks at a packet that is authenticated for this hop alone, and opens it.
pub(super) fn open_hop(
    bytes: &mut [u8],
    key: &HopKey,
    (latest, peer): (&mut Latest, SocketAddr),
    seen: &Glance,
) -> Result<(), Cause> {
    if !is_hop_genuine(bytes, key) {
        return Err(Cause::Forged);
    }
    if !latest.advances(peer, seen.trailer.count()) {
        return Err(Cause::Replayed);
    }
    bytes[VERSION_AT] = EXTENSION_VERSION;
    Ok(())
}

/// True if a DROP for one hop says what a router has to say: one of its reasons, and none of the words in
/// which an application refuses.
fn is_refusal_of_router(bytes: &[u8]) -> bool {
    let payload = usize::from(bytes[1])..bytes.len() - TRAILER_LEN;
    let reason = DropReason::from_payload(&bytes[payload.clone()]);
    payload.len() == 1
        && matches!(
            reason,
            DropReason::Unspecified
                | DropReason::Overload
                | DropReason::TooLarge
                | DropReason::Expired
                | DropReason::NoServer
                | DropReason::Uncertain
                | DropReason::Stopping
        )
}

/// The client that a packet says it is from, behind a router too.
pub(super) fn client_address(bytes: &[u8], seen: &Glance, peer: SocketAddr) -> SocketAddr {
    if !seen.is_routed {
        return peer;
    }
    let route = Route::ref_from_bytes(&bytes[EXTENDED_LEN..ROUTED_LEN]);
    match route {
        Ok(route) if route.client_port.get() != 0 => route.client(),
        _ => peer,
    }
}

/// Type and id of a packet of the extension that this node has written.
pub(super) fn written(bytes: &[u8]) -> Option<(MessageType, RpcId)> {
    let (header, _) = RequestHeader::ref_from_prefix(bytes).ok()?;
    let is_extended = usize::from(header.base.header_size) >= EXTENDED_LEN;
    let kind = MessageType::from_byte(header.base.type_policy)?;
    is_extended.then(|| (kind, RpcId(header.rpc_id.get())))
}

/// Sessions of a client whose keys are kept: one that calls has ended in, and those of calls that last.
const SESSIONS_MAX: usize = 64;

/// The same at a server, for each address.
const SESSIONS_PER_CLIENT_MAX: usize = 4;

/// Bits of a session.
const SESSION_BITS: u32 = 40;
const SESSION_MASK: u64 = (1 << SESSION_BITS) - 1;

/// Sessions that are remembered as known. What is forgotten is refused.
const BOUND_MAX: usize = 1 << 17;

/// Servers of which a client keeps the reply keys.
const SERVERS_MAX: usize = 1 << 12;

/// Packets that a server seals before it must be started again: what fits the trailer.
const COUNT_MAX: u64 = 1 << 56;

/// Place of the flags.
const FLAGS_AT: usize = 20;
