//! The seal of a router: it authenticates what it places and what it is told, and reads no payload.
//!
//! | a request is | then |
//! |---|---|
//! | for nobody | [`SealVerdict::Unnamed`]: not placed, its client is told the router's name |
//! | of a call that has ended, as its client has said | dropped |
//! | sent so long ago that nobody can wait for it | dropped |
//! | of a session that may have been evicted, or sent in the future | [`SealVerdict::Evicted`]: refused |
//! | else | [`SealVerdict::Fit`] |
//!
//! The router's own table remembers each id for as long as its packets can be taken, so that what
//! was recorded on the way is placed once: what has left the table is of a call that has ended or
//! expired.

use std::net::SocketAddr;
use std::sync::Arc;

use tailcut_wire::r2p2::sealed::{SEALED_VERSION, VERSION_AT};
use tailcut_wire::r2p2::{EXTENSION_VERSION, MessageType, RequestHeader, RpcId};
use zerocopy::FromBytes;

use super::keys::{ChangedKeys, EpochKey, HopKey, Keys, Master, Role, Sealing, carried};
use super::known::{ByClient, Known, SessionKey};
use super::limits::{ANSWER_LEN, LostKeys, RouterLimits, SealVerdict};
use super::names::{Names, OwnName, name_of};
use super::neighbours::{Heard, Routers, Servers};
use super::packet::{
    self, Glance, client_address, glance, hop_names, is_annotated, is_hop_genuine, written,
};
use super::plane::{PlaneEpoch, PlaneSeal, PlaneSession};
use super::reset::Answers;
use super::wall_clock::WallClock;
use super::{Cause, ClientEpoch, SealMetrics, TRAILER_LEN, Times};
use crate::call::numbering::Numbers;
use crate::node::Time;

/// Authenticates the datagrams of one router.
#[derive(Debug)]
pub struct RouterSeal {
    /// By which epochs are told, and the age of requests.
    clock: WallClock,
    /// As configured, and followed by newer ones.
    keys: Arc<Keys>,
    /// By place of the epoch.
    masters: Vec<Master>,
    /// Drawn at the start, and anew when the clock has been set back.
    own: OwnName,
    /// The clock that has been furthest ahead since the name was drawn.
    foremost: WallClock,
    /// Hop keys of clients that have been heard of.
    clients: ByClient<HopKey>,
    /// Sessions of which requests have been placed.
    sessions: Known<Session>,
    /// Those that this router places on.
    servers: Servers,
    /// Those that place on this router.
    routers: Routers,
    /// Times of its own packets.
    times: Times,
    /// For a data plane to hash ids with.
    plane_secret: u64,
    /// Most that a clock may be off, ms.
    tolerance_ms: u64,
    /// Longest that a call lasts, ms.
    lifetime_ms: u64,
    /// The packet that was opened last.
    arrival: Arrival,
    /// Answers about keys that are not there.
    answers: Answers<ANSWER_LEN>,
    /// The counters so far.
    metrics: SealMetrics,
}

/// State that is kept of a client's session.
#[derive(Clone, Copy, Debug)]
struct Session {
    /// Time at which it began: Unix time, ms.
    began_ms: u64,
    /// Calls below this sequence have ended.
    floor: u32,
    /// The address that the session is bound to: what was recorded comes from elsewhere.
    client: SocketAddr,
    /// Time at which it was last offered to a data plane, Unix ms.
    offered_ms: u64,
}

/// Facts of a packet that only its seal tells.
#[derive(Clone, Copy, Debug, Default)]
struct Arrival {
    /// The client in its epoch.
    sender: ClientEpoch,
    /// Verdict on it.
    verdict: SealVerdict,
    /// Time since it was sent, by its client's clock, ms.
    age_ms: u64,
    /// No router has placed it.
    is_unrouted: bool,
}

impl RouterSeal {
    /// The seal of a router. `seed` is random, and another at every start.
    ///
    /// Panics for a client's keys, which authenticate no other's requests.
    pub fn new(sealing: &Sealing, seed: u64, limits: RouterLimits) -> Self {
        let keys = sealing.keys.clone();
        let mut secret = [0; 16];
        secret[..8].copy_from_slice(&seed.to_be_bytes());
        let mut numbers = Numbers::new(&secret, b"router");
        let plane_secret = Numbers::new(&secret, b"plane").draw(u64::BITS).max(1);
        let own = sealing.own_name(|| numbers.draw(u64::BITS));
        Self {
            clock: WallClock { zero_ns: sealing.clock_ns },
            foremost: WallClock { zero_ns: sealing.clock_ns },
            masters: masters_of(&keys),
            keys,
            own,
            clients: ByClient::new(limits.clients_max, seed),
            sessions: Known::new(SESSIONS_MAX, 0, seed),
            servers: Servers::new(numbers, seed),
            routers: Routers::new(seed),
            times: Times::default(),
            plane_secret,
            tolerance_ms: sealing.clock_tolerance_ms,
            lifetime_ms: limits.lifetime_ns_max / 1_000_000,
            arrival: Arrival::default(),
            answers: Answers::default(),
            metrics: SealMetrics::default(),
        }
    }

    /// The counters so far.
    pub fn metrics(&self) -> SealMetrics {
        self.metrics
    }

    /// The answer to a packet that could not be opened, and where its client is, which has come
    /// from `peer`: a request of whose epoch this router has no key.
    #[cold]
    pub fn answer(
        &mut self,
        peer: SocketAddr,
        bytes: &[u8],
    ) -> Option<(SocketAddr, [u8; ANSWER_LEN])> {
        let answer = self.answers.take()?;
        let seen = glance(bytes)?;
        // Whoever is no router of ours may write any address there.
        let is_known = !is_annotated(bytes, &seen) || self.routers.at(peer).is_some();
        is_known.then(|| (client_address(bytes, &seen, peer), answer))
    }

    /// Counters of answers about keys that are not there.
    pub fn lost_keys(&self) -> LostKeys {
        LostKeys { sent: self.metrics.no_key_sent, received: 0, epoch: self.answers.epoch() }
    }

    /// Verdict on the packet that was opened last.
    #[inline]
    pub fn verdict(&self) -> SealVerdict {
        self.arrival.verdict
    }

    /// The client of the packet that was opened last, as answers to it are sealed for.
    #[inline]
    pub fn sender(&self) -> ClientEpoch {
        self.arrival.sender
    }

    /// Greatest age that the request that was opened last may have, ns, if that is longer than
    /// clocks may be apart.
    pub fn age_ns(&self) -> Option<u64> {
        let age_ms = Some(self.arrival.age_ms).filter(|&age_ms| age_ms > self.tolerance_ms);
        age_ms.map(|age_ms| (age_ms + self.tolerance_ms) * 1_000_000)
    }

    /// Time beyond the end of its call for which a packet is taken, by clocks that are apart, ns.
    pub fn slack_ns(&self) -> u64 {
        2 * self.tolerance_ms * 1_000_000
    }

    /// The wall clock shows `unix_ns` at `now`.
    ///
    /// If it has been set back, what was recorded and is too old could be in time again, while its
    /// id is remembered no more: so the router takes another name, as if it had been started again.
    /// Threads that share a name come to the same one.
    pub fn set_clock(&mut self, now: Time, unix_ns: u64) {
        self.clock = WallClock::showing(now, unix_ns);
        if self.clock.is_behind(self.foremost, self.tolerance_ms) {
            let mut secret = [0; 16];
            secret[..8].copy_from_slice(&self.own.name.to_be_bytes());
            let drawn = Numbers::new(&secret, b"name").draw(u64::BITS);
            self.own.name = name_of(drawn).max(1 << 8);
            self.foremost = self.clock;
        } else if self.foremost.is_behind(self.clock, 0) {
            self.foremost = self.clock;
        }
    }

    /// Takes newer keys of the same holder.
    ///
    /// # Errors
    ///
    /// As [`Keys::followed_by`]; nothing changes then.
    pub fn update_keys(&mut self, now: Time, keys: &Keys) -> Result<(), ChangedKeys> {
        let (old, new) = (&self.keys, self.keys.followed_by(keys, self.clock.ms(now))?);
        if new != **old {
            let masters = std::mem::take(&mut self.masters);
            self.masters = carried((old, masters), &new, |key| master_of(&new, key));
            // A number comes again after 256 of them.
            let kept = new.kept(old);
            if !old.are_all(&kept) {
                self.clients.retain(|sender, _| kept[usize::from(sender.epoch())]);
            }
            self.keys = Arc::new(new);
        }
        Ok(())
    }

    /// State of this seal that a data plane is told.
    pub fn plane(&self, now: Time) -> PlaneSeal {
        let wall_ms = self.clock.ms(now);
        let is_taken =
            |&(at, key): &(usize, &EpochKey)| self.keys.accepted(wall_ms, key.epoch) == Some(at);
        let epochs = self.keys.epochs.iter().enumerate().filter(is_taken);
        let epoch = |(at, key): (usize, &EpochKey)| PlaneEpoch {
            number: key.epoch,
            from_ms: key.from_ms,
            router_key: self.masters[at].router_key.clone(),
        };
        PlaneSeal {
            name: self.own.name,
            wall_zero_ns: self.clock.zero_ns,
            tolerance_ms: self.tolerance_ms,
            lifetime_ms: self.lifetime_ms,
            secret: self.plane_secret,
            epochs: epochs.map(epoch).collect(),
        }
    }

    /// The session of the request that was opened last, once in a while, for a data plane to place
    /// what comes next in it. `None` unless that came straight from the client, and named this
    /// router.
    pub fn offer(&mut self, now: Time, rpc_id: u64) -> Option<PlaneSession> {
        let sender = self.arrival.sender;
        let key = SessionKey { client: sender.client(), session: RpcId(rpc_id).session().0 };
        let wall_ms = self.clock.ms(now);
        let hop_key = self.clients.find(sender)?.clone();
        let session = self.sessions.find_mut(key)?;
        if self.arrival.verdict != SealVerdict::Fit
            || !self.arrival.is_unrouted
            || wall_ms.abs_diff(session.offered_ms) < OFFER_MS
        {
            return None;
        }
        session.offered_ms = wall_ms;
        let (began_ms, floor) = (session.began_ms, session.floor);
        Some(PlaneSession { sender, session: key.session, began_ms, floor, hop_key })
    }

    /// The name of the server at an address, and the alias there.
    pub fn names_at(&self, address: SocketAddr) -> Option<(u64, u64)> {
        self.servers.names(address).map(|names| (names.receiver, names.sender))
    }

    /// A data plane has taken reports of a server up to a time, but for the one of `passed`, which
    /// comes here. It takes nothing else of what a server says, and that may come after a later
    /// report.
    pub fn heard_before(&mut self, from: SocketAddr, (heard, passed): (u64, u64), bytes: &[u8]) {
        if let Some(seen) = glance(bytes)
            && seen.kind == MessageType::Feedback
            && seen.trailer.count() != passed
        {
            self.servers.heard_before(from, heard);
        }
    }

    /// Authenticates a datagram, and shows it as an open one. Gives the length of the open packet
    /// at its beginning; of what is for a server too, its payload and all behind it are still
    /// sealed.
    pub fn open(&mut self, now: Time, peer: SocketAddr, bytes: &mut [u8]) -> Option<usize> {
        self.arrival = Arrival::default();
        match self.try_open(now, peer, bytes) {
            Ok(()) => {
                bytes[VERSION_AT] = EXTENSION_VERSION;
                self.metrics.unnamed += u64::from(self.arrival.verdict == SealVerdict::Unnamed);
                self.metrics.stale_sessions +=
                    u64::from(self.arrival.verdict == SealVerdict::Evicted);
                Some(bytes.len() - TRAILER_LEN)
            }
            Err(cause) => {
                self.metrics.count(cause);
                None
            }
        }
    }

    fn try_open(&mut self, now: Time, peer: SocketAddr, bytes: &mut [u8]) -> Result<(), Cause> {
        let seen = glance(bytes).ok_or(Cause::Unsealed)?;
        let wall_ms = self.clock.ms(now);
        let Some(at) = self.keys.accepted(wall_ms, seen.trailer.epoch) else {
            let own = self.own.instance();
            let is_answered = self.answers.answer(now, (&self.keys, own), (&seen, bytes));
            self.metrics.no_key_sent += u64::from(is_answered);
            return Err(Cause::UnknownKeys);
        };
        match (seen.kind, seen.is_sealed) {
            // Each request is placed by itself.
            _ if seen.is_coalesced => Err(Cause::Unsealed),
            (MessageType::Request, true) => {
                self.check_client(at, peer, (&seen, bytes))?;
                self.check_request((at, wall_ms), peer, (&seen, bytes))
            }
            (MessageType::Cancel, true) => {
                self.check_client(at, peer, (&seen, bytes))?;
                self.arrival.verdict = SealVerdict::Fit;
                Ok(())
            }
            (MessageType::Feedback | MessageType::Claimed | MessageType::Ack, false) => {
                self.check_tag(at, bytes)?;
                let said = (hop_names(&seen.trailer), seen.trailer.count());
                match self.servers.hear(peer, seen.kind, said) {
                    Heard::Now => Ok(()),
                    Heard::Before => Err(Cause::Replayed),
                    Heard::Misdirected => Err(Cause::Misdirected),
                }
            }
            (MessageType::Probe | MessageType::Claim, false) => {
                self.check_tag(at, bytes)?;
                if !self.routers.hear(self.own, peer, (seen.kind, &seen.trailer))? {
                    self.arrival.verdict = SealVerdict::Unnamed;
                }
                Ok(())
            }
            _ => Err(Cause::Unsealed),
        }
    }

    fn check_tag(&self, at: usize, bytes: &[u8]) -> Result<(), Cause> {
        let is_genuine = is_hop_genuine(bytes, &self.masters[at].router_key, Names::default());
        is_genuine.then_some(()).ok_or(Cause::Forged)
    }

    /// Looks at the hop tag of a client's packet, which a router may have written in its place.
    fn check_client(
        &mut self,
        at: usize,
        peer: SocketAddr,
        (seen, bytes): (&Glance, &[u8]),
    ) -> Result<(), Cause> {
        let (master, receiver) = (&self.masters[at], self.own.name);
        let client = seen.trailer.client();
        let sender = ClientEpoch::new(client, seen.trailer.epoch);
        let is_named = if seen.is_routed {
            let [latest, before] = self.routers.at(peer).ok_or(Cause::UnknownKeys)?;
            let is_by =
                |sender| is_hop_genuine(bytes, &master.router_key, Names { receiver, sender });
            (is_by(latest) || before != latest && is_by(before)).then_some(true)
        } else {
            let known = self.clients.find(sender);
            let derived = if known.is_none() { Some(master.hop_key(client)) } else { None };
            let hop = known.or(derived.as_ref()).expect("one of them is there");
            // A cancel names nobody.
            let may_be_named = seen.kind != MessageType::Cancel;
            let is_for = |receiver| is_hop_genuine(bytes, hop, Names { receiver, sender: 0 });
            if may_be_named && is_for(receiver) { Some(true) } else { is_for(0).then_some(false) }
        };
        let is_named = is_named.ok_or(Cause::Forged)?;
        self.clients.entry(sender, || master.hop_key(client));
        let verdict = if is_named { SealVerdict::Fit } else { SealVerdict::Unnamed };
        self.arrival = Arrival { sender, verdict, age_ms: 0, is_unrouted: !seen.is_routed };
        Ok(())
    }

    /// Looks at when a request was sent, and at whether its call has ended.
    fn check_request(
        &mut self,
        (at, wall_ms): (usize, u64),
        peer: SocketAddr,
        (seen, bytes): (&Glance, &[u8]),
    ) -> Result<(), Cause> {
        let (header, _) = RequestHeader::ref_from_prefix(bytes).map_err(|_| Cause::Unsealed)?;
        let began_ms = self.keys.epochs[at].began_ms(seen.trailer.low.get());
        let sent_ms = began_ms + u64::from(header.client_clock_us.get()) / 1_000;
        // Routers before this one make the deadline shorter by what they have held it for.
        let left_ms = match seen.is_routed {
            true => self.lifetime_ms,
            false => match u64::from(header.deadline_us.get()) / 1_000 {
                0 if header.deadline_us.get() == 0 => self.lifetime_ms,
                deadline_ms => deadline_ms.min(self.lifetime_ms),
            },
        };
        if wall_ms > sent_ms.saturating_add(left_ms + self.tolerance_ms) {
            return Err(Cause::Outdated);
        }
        self.arrival.age_ms = wall_ms.saturating_sub(sent_ms);
        if sent_ms > wall_ms + self.tolerance_ms {
            self.arrival.verdict = SealVerdict::Evicted;
        }
        let (key, floor) = (seen.session(), header.floor.get());
        let client = client_address(bytes, seen, peer);
        let may_be_lost = self.sessions.may_be_lost(key.client, began_ms);
        let is_fit = self.arrival.verdict == SealVerdict::Fit;
        match self.sessions.find_mut(key) {
            Some(session) if session.began_ms != began_ms => return Err(Cause::Forged),
            Some(session) if session.client != client => {
                self.arrival.verdict = SealVerdict::Evicted;
            }
            Some(session) if is_fit && RpcId(seen.rpc_id).sequence() < session.floor => {
                return Err(Cause::Replayed);
            }
            // Of one that names nobody too: the router's table ends what is below.
            Some(session) => session.floor = session.floor.max(floor),
            None if !is_fit => {}
            None if may_be_lost => {
                self.arrival.verdict = SealVerdict::Evicted;
            }
            None => {
                let session = Session { began_ms, floor, client, offered_ms: 0 };
                self.sessions.add(key, began_ms, session);
            }
        }
        Ok(())
    }

    /// Seals a datagram for `to`: what is passed on has its trailer, what the router has written
    /// has none yet, and may be for a client. `false` if it must not go.
    pub fn seal(
        &mut self,
        now: Time,
        (to, client): (SocketAddr, Option<ClientEpoch>),
        bytes: &mut Vec<u8>,
    ) -> bool {
        let is_sealed = match (written(bytes), client) {
            (Some((MessageType::Request | MessageType::Cancel, _)), _) => self.pass_on(to, bytes),
            (Some((MessageType::Ack | MessageType::Drop, _)), Some(client)) => {
                self.seal_for_client(now, client, bytes)
            }
            (Some((kind, _)), None) => self.seal_for_node(now, (to, kind), bytes),
            _ => false,
        };
        if !is_sealed {
            self.metrics.unsealable += 1;
        }
        is_sealed
    }

    fn pass_on(&mut self, to: SocketAddr, bytes: &mut [u8]) -> bool {
        bytes[VERSION_AT] = SEALED_VERSION;
        let Some(seen) = glance(bytes) else { return false };
        // A cancel is passed on as its client has sealed it.
        if seen.kind == MessageType::Cancel {
            return true;
        }
        // It was accepted when it came, and may have been held since.
        let epoch = seen.trailer.epoch;
        let place = self.keys.place_of(epoch);
        let (Some(at), Some(names)) = (place, self.servers.names(to)) else { return false };
        packet::write_hop(bytes, &self.masters[at].router_key, names);
        true
    }

    fn seal_for_client(&mut self, now: Time, sender: ClientEpoch, bytes: &mut Vec<u8>) -> bool {
        let epoch = sender.epoch();
        let Some(at) = self.keys.place_of(epoch) else {
            return false;
        };
        let time = self.times.next(self.clock.us(now));
        let names = Names { receiver: 0, sender: self.own.instance() };
        let master = &self.masters[at];
        let key = self.clients.entry(sender, || master.hop_key(sender.client()));
        bytes.resize(bytes.len() + TRAILER_LEN, 0);
        packet::seal_hop(bytes, &packet::hop_trailer(names, epoch, time), key);
        true
    }

    fn seal_for_node(
        &mut self,
        now: Time,
        (to, kind): (SocketAddr, MessageType),
        bytes: &mut Vec<u8>,
    ) -> bool {
        let sender = self.own.instance();
        let of_server = |receiver| Names { receiver, sender };
        let names = match kind {
            MessageType::Probe => Some(self.servers.probe(to)),
            MessageType::Claim => self.servers.names(to),
            MessageType::Feedback | MessageType::Claimed => {
                self.routers.at(to).map(|[latest, _]| of_server(latest))
            }
            MessageType::Ack => self.routers.answered(to).map(of_server),
            _ => None,
        };
        let Some(names) = names else { return false };
        let at = self.keys.current(self.clock.ms(now));
        let time = self.times.next(self.clock.us(now));
        bytes.resize(bytes.len() + TRAILER_LEN, 0);
        let trailer = packet::hop_trailer(names, self.keys.epochs[at].epoch, time);
        packet::seal_hop(bytes, &trailer, &self.masters[at].router_key);
        true
    }
}

fn masters_of(keys: &Keys) -> Vec<Master> {
    keys.epochs.iter().map(|key| master_of(keys, key)).collect()
}

fn master_of(keys: &Keys, key: &EpochKey) -> Master {
    match keys.role {
        Role::Router => Master::of_router(&key.secret, &keys.group),
        Role::Server => Master::of_server(key, &keys.group),
        Role::Client(_) => panic!("a client's keys place nothing"),
    }
}

/// Between two offers of a session to a data plane, which may have lost it.
const OFFER_MS: u64 = 1_000;

/// Sessions of which is remembered which calls have ended.
const SESSIONS_MAX: usize = 1 << 17;

#[cfg(test)]
mod tests {
    use super::super::tests::seals::{Seals, request};
    use super::super::tests::{CLIENT, ROUTER};
    use super::*;

    /// Nothing has been evicted of a session that began later.
    #[test]
    fn a_session_that_may_have_been_evicted_is_refused() {
        let began_ms = Seals::new().now / 1_000_000;
        for (lost_ms, expected) in
            [(began_ms, SealVerdict::Evicted), (began_ms - 1, SealVerdict::Fit)]
        {
            let mut seals = Seals::new();
            seals.introduce(ROUTER);
            seals.router.sessions = Known::new(8, lost_ms, 1);
            let request = seals.of_client(ROUTER, &request(1));
            assert_eq!(seals.verdict(CLIENT, &request), Some(expected));
        }
    }
}
