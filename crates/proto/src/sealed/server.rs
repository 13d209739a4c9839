//! A server's half of a seal.
//!
//! What it keeps of clients is by their numbers, which are authenticated, and never by an address. So
//! packets that were recorded and come from many addresses make it forget nobody, and a reply is sealed
//! for the client whose request it answers, whatever has come from that client's address meanwhile.

use std::collections::HashMap;
use std::net::SocketAddr;

use tailcut_wire::r2p2::sealed::VERSION_AT;
use tailcut_wire::r2p2::{EXTENDED_LEN, EXTENSION_VERSION, MessageType};

use super::keys::{ClientSecret, EPOCH_KEPT_MS, EpochKey, HopKey, Keys, Master, Sealing, carried};
use super::known::{ByClient, Known, SessionKey};
use super::names::{Names, OwnName};
use super::neighbours::Routers;
use super::packet::{
    self, Glance, addressee, client_address, is_annotated, is_hop_genuine, reply_nonce,
    request_nonce, written,
};
use super::primitives::{AeadKey, Cipher};
use super::wall_clock::WallClock;
use super::{Cause, Times, addressed, client_of, epoch_of, sender};
use crate::address::AddressKey;
use crate::call::numbering::Numbers;
use crate::keyed::KeyedState;
use crate::node::Time;

/// What a server's half needs to begin.
pub(super) struct Start<'a> {
    /// Its keys and clock.
    pub(super) sealing: &'a Sealing,
    /// When it starts, and that as Unix time, ms.
    pub(super) at: (Time, u64),
    /// Clients whose keys it keeps.
    pub(super) clients_max: usize,
    /// The router that keeps clients' addresses.
    pub(super) keeper: Option<SocketAddr>,
}

/// A server's half.
#[derive(Debug)]
pub(super) struct Server {
    /// By place of the epoch.
    masters: Vec<Master>,
    /// Keys of authenticated clients.
    clients: ByClient<ClientKeys>,
    /// Keys of their sessions.
    sessions: Known<SessionKeys>,
    /// Which sessions have been known where requests are run.
    replay: Replay,
    /// Routers that it has heard of.
    routers: Routers,
    /// The router that keeps clients' addresses.
    keeper: Option<SocketAddr>,
    /// Of its own packets to routers.
    times: Times,
    /// Drawn at the start, and in the label of reply keys: no two servers share one, nor a server with
    /// itself after a restart.
    own: OwnName,
    /// Packets sealed under any of them.
    count: u64,
    /// The packet that was opened last.
    pub(super) arrival: Arrival,
}

/// The keys of a client in an epoch.
#[derive(Debug)]
struct ClientKeys {
    /// The client's hop key.
    hop: HopKey,
    /// Of this server's packets, made when the first goes to it.
    reply: Option<AeadKey>,
    /// From which that and the keys of sessions are made.
    secret: ClientSecret,
}

/// The key of a client's session.
#[derive(Debug)]
struct SessionKeys {
    /// Of the keys.
    epoch: u8,
    /// When it began, in ticks of the epoch.
    began: u32,
    /// Of its packets.
    request: AeadKey,
}

/// Of a packet, what only its seal tells.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Arrival {
    /// The client and the session.
    key: SessionKey,
    /// Of the keys.
    epoch: u8,
    /// When its session began: Unix time, ms.
    began_ms: u64,
    /// It is a router's own.
    is_hop: bool,
    /// It names this server as its receiver.
    pub(super) is_named: bool,
}

/// The sessions that have been known where requests are run, whatever the address: there they are known
/// by address, which may be forged, and until they are evicted.
#[derive(Debug)]
struct Replay {
    /// When the server started.
    started_at: Time,
    /// The same by the wall clock: sessions that began by then may be older. Unix ms.
    started_ms: u64,
    /// Sessions that have been known.
    bound: Known<Bound>,
    /// The client of each of them, by its address and session: where calls are told apart by those, no
    /// other client is believed.
    owners: HashMap<(AddressKey, u64), u32, KeyedState>,
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

impl Server {
    pub(super) fn new(start: &Start, numbers: &mut Numbers) -> Self {
        let Start { sealing, at: (started_at, started_ms), clients_max, keeper } = *start;
        let seed = numbers.seed();
        // Others' keys are derived again.
        let keys_max = clients_max.saturating_mul(2).min(KEYS_MAX);
        Self {
            masters: masters_of(&sealing.keys),
            clients: ByClient::new(keys_max, seed),
            sessions: Known::new(keys_max, 0, seed),
            replay: Replay {
                started_at,
                started_ms,
                bound: Known::new(BOUND_MAX, 0, seed),
                owners: HashMap::with_hasher(KeyedState::with_seed(seed)),
                tolerance_ms: sealing.clock_tolerance_ms,
            },
            routers: Routers::new(seed),
            keeper,
            times: Times::default(),
            own: sealing.own_name(|| numbers.draw(u64::BITS)),
            count: 0,
            arrival: Arrival::default(),
        }
    }

    /// The wall clock has been read again.
    pub(super) fn set_clock(&mut self, now: Time, clock: &WallClock) {
        self.replay.set_clock(now, clock);
    }

    /// Newer keys take the place of others.
    pub(super) fn update_keys(&mut self, (old, new): (&Keys, &Keys)) {
        let masters = std::mem::take(&mut self.masters);
        let make = |key: &EpochKey| Master::of_server(key, &new.group);
        self.masters = carried((old, masters), new, make);
        // A number comes again after 256 of them.
        let kept = new.kept(old);
        if !old.are_all(&kept) {
            self.clients.retain(|sender| kept[usize::from(epoch_of(sender))]);
        }
    }

    pub(super) fn open(
        &mut self,
        (keys, at): (&Keys, usize),
        peer: SocketAddr,
        (seen, bytes): (&Glance, &mut [u8]),
    ) -> Result<(), Cause> {
        match (seen.kind, seen.is_sealed) {
            (MessageType::Request | MessageType::ReplyAck | MessageType::Cancel, true) => {
                self.open_sealed((keys, at), peer, (seen, bytes))
            }
            (MessageType::Probe | MessageType::Claim, false) => {
                if !is_hop_genuine(bytes, &self.masters[at].router_key, Names::default()) {
                    return Err(Cause::Forged);
                }
                let is_named = self.routers.hear(self.own, peer, (seen.kind, &seen.trailer))?;
                self.arrival = Arrival { is_hop: true, is_named, ..Arrival::default() };
                bytes[VERSION_AT] = EXTENSION_VERSION;
                Ok(())
            }
            _ => Err(Cause::Unsealed),
        }
    }

    fn open_sealed(
        &mut self,
        (keys, at): (&Keys, usize),
        peer: SocketAddr,
        (seen, bytes): (&Glance, &mut [u8]),
    ) -> Result<(), Cause> {
        let key = seen.session();
        let (epoch, began) = (seen.trailer.epoch, seen.trailer.low.get());
        // The hop tag comes first: a forged packet costs no more than that.
        let is_named = self.check_hop(at, peer, (seen, bytes))?;
        let nonce = request_nonce(bytes);
        let is_genuine = match self.sessions.find(key) {
            Some(known) => {
                (known.epoch, known.began) == (epoch, began)
                    && packet::open(bytes, &known.request, nonce, true)
            }
            None => self.open_first((keys, at), (seen, bytes)),
        };
        let address = client_address(bytes, seen, peer);
        if !is_genuine || self.replay.is_of_another(address, key) {
            return Err(Cause::Forged);
        }
        let began_ms = keys.epochs[at].began_ms(began);
        self.arrival = Arrival { key, epoch, began_ms, is_hop: false, is_named };
        Ok(())
    }

    /// Looks at the hop tag; true if the packet names this server, false if it names nobody.
    fn check_hop(
        &self,
        at: usize,
        peer: SocketAddr,
        (seen, bytes): (&Glance, &[u8]),
    ) -> Result<bool, Cause> {
        let (master, receiver) = (&self.masters[at], self.own.name);
        if seen.is_routed {
            let router = if is_annotated(bytes, seen) { Some(peer) } else { self.keeper };
            let known = router.and_then(|router| self.routers.at(router));
            let [latest, before] = known.ok_or(Cause::UnknownKeys)?;
            let is_by =
                |sender| is_hop_genuine(bytes, &master.router_key, Names { receiver, sender });
            let is_genuine = is_by(latest) || before != latest && is_by(before);
            return is_genuine.then_some(true).ok_or(Cause::Forged);
        }
        let client = seen.trailer.client();
        let known = self.clients.find(sender(client, seen.trailer.epoch));
        let derived = if known.is_none() { Some(master.hop_key(client)) } else { None };
        let hop = known.map(|known| &known.hop).or(derived.as_ref()).expect("one of them is there");
        // A cancel keeps its tag through routers, and so names nobody.
        let may_be_named = seen.kind != MessageType::Cancel;
        if may_be_named && is_hop_genuine(bytes, hop, Names { receiver, sender: 0 }) {
            return Ok(true);
        }
        is_hop_genuine(bytes, hop, Names::default()).then_some(false).ok_or(Cause::Forged)
    }

    /// Opens a packet of a session whose key is not at hand, and remembers that if it is genuine.
    fn open_first(
        &mut self,
        (keys, at): (&Keys, usize),
        (seen, bytes): (&Glance, &mut [u8]),
    ) -> bool {
        let key = seen.session();
        let (epoch, began) = (seen.trailer.epoch, seen.trailer.low.get());
        let sender = sender(key.client, epoch);
        let known = self.clients.find(sender).map(|known| &known.secret);
        let derived = match known {
            Some(_) => None,
            None => Some(ClientKeys::of(&self.masters[at], key.client, keys.cipher)),
        };
        let secret = known.or(derived.as_ref().map(|keys| &keys.secret));
        let request = secret.expect("one of them is there").request_key(key.session, began);
        let nonce = request_nonce(bytes);
        if !packet::open(bytes, &request, nonce, true) {
            return false;
        }
        if let Some(derived) = derived {
            self.clients.entry(sender, || derived);
        }
        let began_ms = keys.epochs[at].began_ms(began);
        self.sessions.add(key, began_ms, SessionKeys { epoch, began, request });
        true
    }

    /// True if the session of the request that was opened last has begun by this server's clock, or is so
    /// far ahead that to wait is no use. Until then the request is dropped, and comes again.
    pub(super) fn has_begun(&self, wall_ms: u64) -> bool {
        let ahead_ms = self.arrival.began_ms.saturating_sub(wall_ms);
        ahead_ms == 0 || ahead_ms > self.replay.tolerance_ms
    }

    /// See [`super::EndpointSeal::may_run`].
    pub(super) fn may_run(&self, wall_ms: u64, address: SocketAddr, is_sound: bool) -> bool {
        let Self { replay, arrival, .. } = self;
        is_sound && replay.is_bound(address, arrival)
            || !replay.is_of_another(address, arrival.key) && replay.may_begin(wall_ms, arrival)
    }

    /// The session of the request that was opened last is known from now on.
    pub(super) fn note_known(&mut self, address: SocketAddr) {
        self.replay.bind(address, &self.arrival);
    }

    pub(super) fn seal(
        &mut self,
        (keys, clock): (&Keys, &WallClock),
        now: Time,
        to: SocketAddr,
        bytes: &mut [u8],
    ) -> bool {
        let Some((kind, _)) = written(bytes) else { return false };
        match addressee(bytes) {
            Some(sender) => self.seal_for_client(keys, (kind, sender), bytes),
            None => {
                let at = keys.current(clock.ms(now));
                let time = self.times.next(clock.us(now));
                let alias = match kind {
                    MessageType::Feedback | MessageType::Claimed => {
                        self.routers.at(to).map(|[latest, _]| latest)
                    }
                    MessageType::Ack => self.routers.answered(to),
                    _ => None,
                };
                let Some(receiver) = alias else { return false };
                let names = Names { receiver, sender: self.own.instance() };
                let trailer = packet::hop_trailer(names, keys.epochs[at].epoch, time);
                packet::seal_hop(bytes, &trailer, &self.masters[at].router_key);
                true
            }
        }
    }

    fn seal_for_client(
        &mut self,
        keys: &Keys,
        (kind, sender): (MessageType, u32),
        bytes: &mut [u8],
    ) -> bool {
        let is_for_client =
            matches!(kind, MessageType::Response | MessageType::Ack | MessageType::Drop);
        let epoch = epoch_of(sender);
        let place = keys.epochs.iter().rposition(|key| key.epoch == epoch);
        let (Some(at), true) = (place, is_for_client) else { return false };
        if usize::from(bytes[1]) != EXTENDED_LEN || self.count >= COUNT_MAX {
            return false;
        }
        let master = &self.masters[at];
        let client =
            self.clients.entry(sender, || ClientKeys::of(master, client_of(sender), keys.cipher));
        let reply = client.reply.get_or_insert_with(|| client.secret.reply_key(self.own.name));
        let count = u64::from(self.own.member) << COUNT_BITS | self.count;
        self.count += 1;
        let trailer = packet::trailer((count >> 32) as u32, epoch, count as u32, self.own.name);
        packet::seal(bytes, reply, reply_nonce(&trailer), (&trailer, None));
        true
    }

    /// The client whose packet was opened last, in its epoch.
    pub(super) fn sender(&self) -> u32 {
        sender(self.arrival.key.client, self.arrival.epoch)
    }

    /// As [`super::EndpointSeal::addressee`].
    pub(super) fn addressee(&self) -> u64 {
        if self.arrival.is_hop { 0 } else { addressed(self.sender()) }
    }
}

fn masters_of(keys: &Keys) -> Vec<Master> {
    keys.epochs.iter().map(|key| Master::of_server(key, &keys.group)).collect()
}

impl ClientKeys {
    fn of(master: &Master, client: u32, cipher: Cipher) -> Self {
        let secret = master.client(client, cipher);
        Self { hop: master.hop_key(client), reply: None, secret }
    }
}

impl Replay {
    /// The wall clock has been read again. By one that was ahead, the server has started later than it did;
    /// but one that is set back without need would make sessions of before the start look new. So that waits
    /// until no call of before the start can be under way.
    fn set_clock(&mut self, now: Time, clock: &WallClock) {
        let started_ms = clock.ms(self.started_at);
        let is_settled = now.saturating_sub(self.started_at) >= EPOCH_KEPT_MS * 1_000_000;
        if started_ms > self.started_ms || is_settled {
            self.started_ms = started_ms;
        }
    }

    /// True if a session that is not known where requests are run may be begun.
    fn may_begin(&self, wall_ms: u64, arrival: &Arrival) -> bool {
        let Arrival { key, began_ms, .. } = *arrival;
        let is_ahead = began_ms > wall_ms;
        let may_be_old =
            began_ms <= self.started_ms || self.bound.may_be_lost(key.client, began_ms);
        !is_ahead && !may_be_old && self.bound.find(key).is_none()
    }

    /// True if the session of a request has been known at this address, as this client's.
    fn is_bound(&self, address: SocketAddr, arrival: &Arrival) -> bool {
        let bound = self.bound.find(arrival.key);
        bound.is_some_and(|bound| (bound.address.0, bound.began_ms) == (address, arrival.began_ms))
    }

    /// True if a session at an address has been known as that of another client.
    fn is_of_another(&self, address: SocketAddr, key: SessionKey) -> bool {
        let owner = self.owners.get(&(AddressKey(address), key.session));
        owner.is_some_and(|&owner| owner != key.client)
    }

    fn bind(&mut self, address: SocketAddr, arrival: &Arrival) {
        let Arrival { key, began_ms, .. } = *arrival;
        if self.bound.find(key).is_some() {
            return;
        }
        let address = AddressKey(address);
        let evicted = self.bound.add(key, began_ms, Bound { began_ms, address });
        if let Some((key, bound)) = evicted {
            self.owners.remove(&(bound.address, key.session));
        }
        self.owners.insert((address, key.session), key.client);
    }
}

/// Sessions that are remembered as known. What is forgotten is refused.
const BOUND_MAX: usize = 1 << 17;
/// Most clients, and most sessions, whose keys are kept: some 10 MiB.
const KEYS_MAX: usize = 1 << 14;

/// Packets that a server seals before it must be started again: what the trailer has room for besides the
/// number of the member.
const COUNT_MAX: u64 = 1 << COUNT_BITS;

/// Bits of that count.
pub(super) const COUNT_BITS: u32 = 48;
