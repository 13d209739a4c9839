//! State that a server keeps of its clients: by their numbers, which are authenticated, and never
//! by an address.
//!
//! So packets that were recorded and come from many addresses make it evict nobody, and a reply is
//! sealed for the client whose request it answers, whatever has come from that client's address
//! meanwhile.

use std::net::SocketAddr;

use tailcut_wire::r2p2::sealed::Trailer;

use super::ClientEpoch;
use super::keys::{ClientSecret, EpochKey, HopKey, Keys, Master, Sealing, Transport, carried};
use super::known::{ByClient, Kept, Known};
use super::names::OwnName;
use super::packet;
use super::primitives::{AeadKey, Cipher};
use super::replay::{Arrival, Replay};
use super::wall_clock::WallClock;
use super::window::Window;
use crate::call::numbering::Numbers;
use crate::node::Time;

/// Parameters with which a server's half begins.
pub(super) struct Start<'a> {
    /// Its keys and clock.
    pub(super) sealing: &'a Sealing,
    /// Time at which it starts, and that as Unix time, ms.
    pub(super) at: (Time, u64),
    /// Clients whose keys it keeps.
    pub(super) clients_max: usize,
    /// The router that keeps clients' addresses.
    pub(super) keeper: Option<SocketAddr>,
}

/// Keys of clients, and what is known of their sessions.
#[derive(Debug)]
pub(super) struct Clients {
    /// By place of the epoch.
    pub(super) masters: Vec<Master>,
    /// Keys of clients, of each of whom a packet's hop tag, or a session's pass, has been found
    /// genuine.
    known: ByClient<ClientKeys>,
    /// Keys of their sessions.
    pub(super) sessions: Known<SessionKeys>,
    /// Keys of sessions of which a hop tag or the pass is genuine, and no packet yet: whoever has
    /// recorded one may send it changed, as often as it likes.
    begun: Kept<Begun, AeadKey>,
    /// Sessions that have been known where requests are run.
    pub(super) replay: Replay,
    /// Drawn at the start, and in the label of reply keys: no two servers share one, nor a server
    /// with itself after a restart.
    pub(super) own: OwnName,
    /// The packet that was opened last.
    pub(super) arrival: Arrival,
    /// Packets sealed under any of the reply keys.
    count: u64,
    /// By which keys are derived.
    transport: Transport,
}

/// The keys of a client in an epoch.
#[derive(Debug)]
pub(super) struct ClientKeys {
    /// The client's hop key.
    pub(super) hop: HopKey,
    /// Key of this server's packets, made when the first goes to it.
    reply: Option<AeadKey>,
    /// From which that and the keys of sessions are made.
    secret: ClientSecret,
}

/// The key of a client's session.
#[derive(Debug)]
pub(super) struct SessionKeys {
    /// Epoch of the keys.
    pub(super) epoch: u8,
    /// Time at which it began, in ticks of the epoch.
    pub(super) began: u32,
    /// Key of its packets.
    pub(super) request: AeadKey,
    /// Window of its packets that have come, where each is taken once.
    pub(super) window: Option<Box<Window>>,
    /// Calls of this server in it.
    pub(super) called: u32,
    /// Its client has sent several packets in a datagram, and so takes them.
    pub(super) takes_coalesced: bool,
}

/// A session as a packet names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Begun {
    /// Its client, in its epoch.
    pub(super) sender: ClientEpoch,
    /// The 40 bits of its calls' ids.
    pub(super) session: u64,
    /// Time at which it began, in ticks of the epoch.
    pub(super) began: u32,
}

impl Clients {
    pub(super) fn new(start: &Start, numbers: &mut Numbers, transport: Transport) -> Self {
        let Start { sealing, at, clients_max, .. } = *start;
        let seed = numbers.seed();
        let keys_max = clients_max.saturating_mul(2).min(KEYS_MAX);
        // Of R2P2 what is evicted is derived anew, of Homa it is refused.
        let sessions_min = if transport == Transport::Homa { SESSIONS_MIN } else { 1 };
        Self {
            masters: masters_of(&sealing.keys),
            known: ByClient::new(keys_max, seed),
            begun: Kept::new(BEGUN_MAX, seed),
            sessions: Known::new(keys_max.max(sessions_min), 0, seed),
            replay: Replay::new(at, sealing.clock_tolerance_ms, seed),
            own: sealing.own_name(|| numbers.draw(u64::BITS)),
            arrival: Arrival::default(),
            count: 0,
            transport,
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
            self.known.retain(|sender, _| kept[usize::from(sender.epoch())]);
            self.begun.retain(|begun, _| kept[usize::from(begun.sender.epoch())]);
            self.sessions.retain(|known| kept[usize::from(known.epoch)]);
        }
    }

    /// The keys of a client, if they are at hand.
    #[inline]
    pub(super) fn find(&self, sender: ClientEpoch) -> Option<&ClientKeys> {
        self.known.find(sender)
    }

    /// The key of a session that is not known, of which a hop tag or the pass is genuine. `at` is
    /// the place of its epoch.
    pub(super) fn request_key(&mut self, (keys, at): (&Keys, usize), begun: Begun) -> &AeadKey {
        let Begun { sender, session, began } = begun;
        let (master, of) = (&self.masters[at], (keys.cipher, self.transport));
        self.begun.entry(begun, || {
            let new = || ClientKeys::of(master, sender.client(), of);
            self.known.entry(sender, new).secret.request_key(session, began)
        })
    }

    /// The key of a session of which a packet has been found genuine, for the session to keep.
    pub(super) fn validated(&mut self, begun: Begun) -> AeadKey {
        self.begun.take(begun).expect("a packet of it was opened by this key")
    }

    /// True if the session of the request that was opened last has begun by this server's clock, or
    /// is so far ahead that to wait is no use. Until then the request is dropped, and comes again.
    pub(super) fn has_begun(&self, wall_ms: u64) -> bool {
        let ahead_ms = self.arrival.began_ms.saturating_sub(wall_ms);
        ahead_ms == 0 || ahead_ms > self.replay.tolerance_ms
    }

    /// See [`super::EndpointSeal::may_run`].
    pub(super) fn may_run(&self, wall_ms: u64, address: SocketAddr, is_sound: bool) -> bool {
        let Self { replay, arrival, .. } = self;
        let may_begin =
            || !replay.is_of_another(address, arrival.key) && replay.may_begin(wall_ms, arrival);
        arrival.is_known && (is_sound && replay.is_bound(address, arrival) || may_begin())
    }

    /// The session of the request that was opened last is known from now on.
    pub(super) fn note_known(&mut self, address: SocketAddr) {
        self.replay.bind(address, &self.arrival);
    }

    /// The client whose packet was opened last, in its epoch.
    pub(super) fn sender(&self) -> ClientEpoch {
        ClientEpoch::new(self.arrival.key.client, self.arrival.epoch)
    }

    /// Key and trailer of the next packet for a client; `None` where its keys are not at hand, or
    /// no count is left.
    pub(super) fn next_reply(
        &mut self,
        keys: &Keys,
        sender: ClientEpoch,
    ) -> Option<(&AeadKey, Trailer)> {
        let epoch = sender.epoch();
        let at = keys.place_of(epoch)?;
        if self.count >= COUNT_MAX {
            return None;
        }
        let (master, of) = (&self.masters[at], (keys.cipher, self.transport));
        let client = self.known.entry(sender, || ClientKeys::of(master, sender.client(), of));
        let reply = client.reply.get_or_insert_with(|| client.secret.reply_key(self.own.name));
        let count = u64::from(self.own.member) << COUNT_BITS | self.count;
        self.count += 1;
        let trailer = packet::trailer((count >> 32) as u32, epoch, count as u32, self.own.name);
        Some((reply, trailer))
    }
}

fn masters_of(keys: &Keys) -> Vec<Master> {
    keys.epochs.iter().map(|key| Master::of_server(key, &keys.group)).collect()
}

impl ClientKeys {
    fn of(master: &Master, client: u32, (cipher, transport): (Cipher, Transport)) -> Self {
        let secret = master.client(client, (cipher, transport));
        let hop = match transport {
            Transport::R2p2 => master.hop_key(client),
            Transport::Homa => HopKey::default(),
        };
        Self { hop, reply: None, secret }
    }
}

/// Packets that a server seals before it must be started again: what the trailer has room for
/// besides the number of the member.
const COUNT_MAX: u64 = 1 << COUNT_BITS;

/// Most clients, and most sessions, whose keys are kept where they can be derived anew: some 10
/// MiB.
const KEYS_MAX: usize = 1 << 14;

/// Most sessions whose keys are kept before a packet of theirs is genuine.
const BEGUN_MAX: usize = 256;

/// Sessions of Homa that are remembered at least, each in less than 2 kB.
const SESSIONS_MIN: usize = 1 << 12;

/// Bits of that count.
pub(super) const COUNT_BITS: u32 = 48;
