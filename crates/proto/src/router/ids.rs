//! The RPC ids that were placed or are held, so that a request that may run once never reaches two
//! servers.
//!
//! | an id is | event | then |
//! |---|---|---|
//! | unknown | entered | undecided, until the caller says where it is or releases it |
//! | undecided | the request is held | waiting |
//! | undecided, waiting | the request is placed | placed |
//! | undecided, waiting, placed | the request is placed on two servers | cloned |
//! | undecided, waiting | the request is refused | refused |
//! | waiting, placed, cloned | entered again | known, and nothing changes |
//! | refused | entered again | known |
//! | placed, cloned, refused, past its expiry | entered again | undecided, as if unknown |
//! | placed, cloned | a request says that its client's calls below a floor have ended | expires after the transit time |
//! | placed, entered while more than half of the entries were taken | | expires after [`CROWDED_NS`] |
//! | any | released, or reaped after its expiry | unknown |
//!
//! Feedback tells when a server's worker is free again, not that the client has the reply: a copy
//! of such a request may still come, and must reach the server that keeps the reply. What tells
//! that no copy comes is the floor of the same session in later requests. So an id is remembered
//! for as long as its call lasts, plus what the network may hold a copy for, whatever its deadline.
//! Where strangers who never say that fill the table, ids expire earlier, and what may be a copy of
//! such a request tells by its age: it is refused, Uncertain.
//!
//! No timer an entry: entries hang in the ticks of a wheel, and every entry of a new id first reaps
//! a few that are past.
//!
//! Invariant: at most `len_max` entries, each in the wheel and in the map once. While more than
//! half of them are taken, clients of one address, or /64 of IPv6, have of those taken above the
//! half at most [`SHARE`] times what is left: one that floods leaves others an eighth.
//!
//! [`SHARE`]: crate::peer::crowd::SHARE

use std::collections::HashMap;
use std::collections::hash_map::Entry as MapEntry;
use std::hash::{Hash, Hasher};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use foldhash::fast::FixedState;
use siphasher::sip::SipHasher13;
use tailcut_wire::r2p2::{DropReason, RpcId};

use super::lane::Lane;
use crate::address::share_of;
use crate::node::Time;
use crate::peer::crowd::ShareCounts;
use crate::policy::WorkerId;
use crate::scheduler::Ticket;
use crate::work;
use tailcut_placement::keyed::KeyedState;
use tailcut_placement::slab::SlotKey;

/// Identity of a request: its RPC id, and the client, so that one client's ids cannot be taken
/// by another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RequestKey {
    /// Hash of the rest, by [`Keys`]; computed once, since a key is looked up, moved and removed.
    hash: u64,
    /// The request's id.
    rpc_id: RpcId,
    /// The client's address, IPv4 in its IPv6-mapped form.
    ip: [u8; 16],
    /// The client's port.
    port: u16,
}

impl RequestKey {
    /// The keyed hash of all of it.
    pub(super) fn hash(&self) -> u64 {
        self.hash
    }
}

impl Hash for RequestKey {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        hasher.write_u64(self.hash);
    }
}

/// Makes keys, hashed with a secret since strangers choose them: without it nobody can choose many
/// that collide, which would make every packet pay for all of them.
#[derive(Clone, Copy, Debug)]
struct Keys(SipHasher13);

impl Keys {
    fn new(secret: u64) -> Self {
        Self(SipHasher13::new_with_keys(secret, !secret))
    }

    #[inline]
    fn key(self, rpc_id: RpcId, client: SocketAddr) -> RequestKey {
        let port = client.port();
        let mut bytes = [0; 26];
        bytes[..8].copy_from_slice(&rpc_id.0.to_le_bytes());
        // In one piece, and of IPv4 in the fewest words, which the hash costs by.
        let (ip, len) = match client.ip() {
            IpAddr::V4(ip) => {
                bytes[8..12].copy_from_slice(&ip.octets());
                bytes[12..14].copy_from_slice(&port.to_le_bytes());
                (ip.to_ipv6_mapped().octets(), 14)
            }
            IpAddr::V6(ip) => {
                bytes[8..24].copy_from_slice(&ip.octets());
                bytes[24..].copy_from_slice(&port.to_le_bytes());
                (ip.octets(), 26)
            }
        };
        let mut hasher = self.0;
        hasher.write(&bytes[..len]);
        RequestKey { hash: hasher.finish(), rpc_id, ip, port }
    }
}

/// A client's session: its address, and the part that its ids share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct SessionKey {
    /// The session.
    session: u64,
    /// The client's address, as in [`RequestKey`].
    ip: u128,
    /// The client's port.
    port: u16,
}

impl RequestKey {
    /// The share of the table that the client belongs to.
    fn share(&self) -> u64 {
        share_of(Ipv6Addr::from(self.ip).into())
    }

    fn session(&self) -> SessionKey {
        let ip = u128::from_ne_bytes(self.ip);
        SessionKey { session: self.rpc_id.session().0, ip, port: self.port }
    }
}

/// The ids of a session that are remembered and not known to have ended, in the order in which they
/// came: a list by [`Entry::behind`] and [`Entry::before`].
#[derive(Clone, Copy, Debug)]
struct Calls {
    /// The entry that came first.
    first: u32,
    /// The entry that came last.
    last: u32,
}

/// Names a server for as long as it is configured; never used again for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct ServerKey {
    /// Its slot in the router.
    pub(super) slot: WorkerId,
    /// Counts the servers ever added.
    pub(super) serial: u32,
}

/// Placement state of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PlacementState {
    /// Being decided.
    Undecided,
    /// Held: in the queue of this lane, under this ticket.
    Waiting(Lane, Ticket),
    /// Placed on this server.
    Placed(ServerKey),
    /// Placed on this server, and its copy on that one.
    Cloned(ServerKey, ServerKey),
    /// Not known: this claim asks the servers.
    Claiming(SlotKey),
    /// Nowhere: it was refused, and so is every copy of it.
    Refused(DropReason),
}

/// Names an entry. Once the entry is released it names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryId {
    /// Place in the table.
    index: u32,
    /// Uses of the place before this one.
    generation: u32,
}

/// Result of [`Table::enter`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Entered {
    /// The id is known.
    Known(EntryId, PlacementState),
    /// The id is new; the caller must [`Table::set`] or [`Table::release`] it.
    New(EntryId),
    /// The id is new and the table is full, or its client has its share.
    Full,
}

/// The table.
#[derive(Debug)]
pub(super) struct Table {
    /// Entry of each key.
    map: HashMap<RequestKey, u32, FixedState>,
    /// Makes its keys.
    keys: Keys,
    /// Sessions of which any id is remembered and not known to have ended.
    sessions: HashMap<SessionKey, Calls, KeyedState>,
    /// Entries, in use or free.
    entries: Vec<Entry>,
    /// First free entry, or `NONE`; the others follow by `Entry::next`.
    free: u32,
    /// Most entries in use.
    len_max: usize,
    /// Entries of each share ([`share_of`]), of those taken while more than half were.
    by_share: ShareCounts,
    /// First entry of each tick of the wheel, or `NONE`.
    ticks: Vec<u32>,
    /// Length of a tick, nanoseconds.
    tick_ns: u64,
    /// The oldest tick that may have entries.
    cursor: u64,
    /// Until then copies may come of what was placed and evicted early.
    evicted_until: Time,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Its key.
    key: RequestKey,
    /// Fate of the request.
    state: PlacementState,
    /// Time at which the entry expires.
    expires_at: Time,
    /// Counts the keys that the entry has had.
    generation: u32,
    /// Neighbours in the tick's list, or `NONE`.
    next: u32,
    /// The entry before it in the order of expiry, or `NONE`.
    previous: u32,
    /// The tick it hangs in.
    tick: u64,
    /// The entry of the same session that came next; `NONE` for the last, and once it has ended.
    behind: u32,
    /// The entry of the same session that came before it; `NONE` for the first.
    before: u32,
    /// It is in the list of its session.
    is_open: bool,
    /// It was taken while more than half were, and counts for its share.
    is_above: bool,
}

impl Table {
    /// A table of at most `len_max` ids, none of which lives longer than `lifetime_ns_max`.
    pub(super) fn new(len_max: usize, lifetime_ns_max: u64, secret: u64) -> Self {
        let room = len_max.min(ROOM_MAX);
        Self {
            map: HashMap::with_capacity_and_hasher(room, FixedState::with_seed(secret)),
            keys: Keys::new(secret),
            sessions: HashMap::with_capacity_and_hasher(room, KeyedState::with_seed(secret)),
            entries: Vec::with_capacity(room),
            free: NONE,
            len_max,
            by_share: ShareCounts::new(secret, len_max / 2),
            ticks: vec![NONE; TICKS as usize],
            tick_ns: lifetime_ns_max / (TICKS - 2) + 1,
            cursor: 0,
            evicted_until: 0,
        }
    }

    /// The key of a request.
    #[inline]
    pub(super) fn key(&self, rpc_id: RpcId, client: SocketAddr) -> RequestKey {
        self.keys.key(rpc_id, client)
    }

    pub(super) fn len(&self) -> usize {
        self.map.len()
    }

    /// Looks the key up, and enters it when it is unknown or has expired.
    pub(super) fn enter(&mut self, now: Time, key: RequestKey, expires_at: Time) -> Entered {
        self.reap(now, REAP_COUNT);
        let free = self.len_max.saturating_sub(self.map.len());
        let is_above = free <= self.len_max / 2;
        let index = match self.map.entry(key) {
            MapEntry::Occupied(occupied) => {
                let index = *occupied.get();
                let entry = &self.entries[index as usize];
                // What is held is here however late it is, and would be placed twice.
                let is_here =
                    matches!(entry.state, PlacementState::Undecided | PlacementState::Waiting(..));
                if entry.expires_at > now || is_here {
                    return Entered::Known(
                        EntryId { index, generation: entry.generation },
                        entry.state,
                    );
                }
                self.unlink(index);
                self.close(index);
                self.open(index);
                index
            }
            MapEntry::Vacant(_) if free == 0 => return Entered::Full,
            MapEntry::Vacant(vacant) => {
                if is_above && !self.by_share.try_add(key.share(), free) {
                    return Entered::Full;
                }
                let index = allocate(&mut self.entries, &mut self.free, key);
                vacant.insert(index);
                self.entries[index as usize].is_above = is_above;
                self.open(index);
                index
            }
        };
        let entry = &mut self.entries[index as usize];
        entry.state = PlacementState::Undecided;
        entry.expires_at = expires_at;
        let generation = entry.generation;
        self.link(index);
        Entered::New(EntryId { index, generation })
    }

    /// The client of `key` says that all calls of its session below `floor` have ended: a few of
    /// those remembered expire at `until`. Each request adds one at most, so that they do not pile
    /// up.
    pub(super) fn end_below(&mut self, key: RequestKey, floor: u32, until: Time) {
        let session = key.session();
        for _ in 0..REAP_COUNT {
            work::step(1);
            let Some(&Calls { first, .. }) = self.sessions.get(&session) else {
                return;
            };
            let entry = &self.entries[first as usize];
            // In the order in which they came: what came after one that goes on has to wait for it.
            if entry.key.rpc_id.sequence() >= floor {
                return;
            }
            let expires_sooner = entry.expires_at > until && is_placed(entry.state);
            self.close(first);
            if expires_sooner {
                self.unlink(first);
                self.entries[first as usize].expires_at = until;
                self.link(first);
            }
        }
    }

    /// Puts an entry behind the others of its session.
    fn open(&mut self, index: u32) {
        let session = self.entries[index as usize].key.session();
        let before = match self.sessions.entry(session) {
            MapEntry::Occupied(mut calls) => std::mem::replace(&mut calls.get_mut().last, index),
            MapEntry::Vacant(vacant) => {
                vacant.insert(Calls { first: index, last: index });
                NONE
            }
        };
        let entry = &mut self.entries[index as usize];
        (entry.before, entry.behind, entry.is_open) = (before, NONE, true);
        if before != NONE {
            self.entries[before as usize].behind = index;
        }
    }

    /// Takes an entry out of the list of its session, if it is there.
    fn close(&mut self, index: u32) {
        let entry = &mut self.entries[index as usize];
        if !std::mem::take(&mut entry.is_open) {
            return;
        }
        let Entry { key, before, behind, .. } = *entry;
        if before != NONE {
            self.entries[before as usize].behind = behind;
        }
        if behind != NONE {
            self.entries[behind as usize].before = before;
        }
        if before != NONE && behind != NONE {
            return;
        }
        let MapEntry::Occupied(mut calls) = self.sessions.entry(key.session()) else {
            unreachable!("an open entry has a session");
        };
        if before == NONE && behind == NONE {
            calls.remove();
        } else if before == NONE {
            calls.get_mut().first = behind;
        } else {
            calls.get_mut().last = before;
        }
    }

    /// Entry and placement state of the request of this key; `None` when it is not known.
    pub(super) fn find(&self, now: Time, key: RequestKey) -> Option<(EntryId, PlacementState)> {
        let &index = self.map.get(&key)?;
        let entry = &self.entries[index as usize];
        (entry.expires_at > now)
            .then_some((EntryId { index, generation: entry.generation }, entry.state))
    }

    /// Says where the request is. Harmless when the entry is gone.
    pub(super) fn set(&mut self, id: EntryId, state: PlacementState) {
        if let Some(entry) = self
            .entries
            .get_mut(id.index as usize)
            .filter(|entry| entry.generation == id.generation)
        {
            entry.state = state;
        }
    }

    /// Says that the request is placed on a server. One that came while more than half of the
    /// entries were taken is remembered for [`CROWDED_NS`] at most. Harmless when the entry is
    /// gone.
    pub(super) fn place(&mut self, now: Time, id: EntryId, server: ServerKey) {
        self.set(id, PlacementState::Placed(server));
        let Entry { generation, is_above, expires_at, .. } = self.entries[id.index as usize];
        let soon = now.saturating_add(CROWDED_NS);
        if generation == id.generation && is_above && expires_at > soon {
            self.evicted_until = self.evicted_until.max(expires_at);
            self.unlink(id.index);
            self.entries[id.index as usize].expires_at = soon;
            self.link(id.index);
        }
    }

    /// True if an unknown request that was sent first so long ago may have been placed, and have
    /// been evicted early.
    pub(super) fn may_have_evicted(&self, now: Time, age_ns: u64) -> bool {
        now < self.evicted_until && age_ns >= CROWDED_NS
    }

    /// Says that the request was refused, which is remembered to `until`. Harmless when the entry
    /// is gone.
    pub(super) fn refuse(&mut self, id: EntryId, reason: DropReason, until: Time) {
        if self
            .entries
            .get(id.index as usize)
            .is_some_and(|entry| entry.generation == id.generation)
        {
            self.unlink(id.index);
            let entry = &mut self.entries[id.index as usize];
            entry.state = PlacementState::Refused(reason);
            entry.expires_at = until;
            self.link(id.index);
        }
    }

    /// Releases the entry of the request. Harmless when the entry is gone.
    pub(super) fn release(&mut self, id: EntryId) {
        if self
            .entries
            .get(id.index as usize)
            .is_some_and(|entry| entry.generation == id.generation)
        {
            self.vacate(id.index);
        }
    }

    /// Releases some entries whose expiry has passed, where no request comes that does.
    pub(super) fn expire(&mut self, now: Time) {
        self.reap(now, EXPIRE_COUNT);
    }

    /// Releases at most `count` entries whose expiry has passed, and passes over the empty ticks
    /// between them.
    fn reap(&mut self, now: Time, count: usize) {
        let now_tick = now / self.tick_ns;
        // Every tick is visited after one turn of the wheel.
        self.cursor = self.cursor.max(now_tick.saturating_sub(TICKS));
        let mut left = count;
        while self.cursor < now_tick {
            let index = self.ticks[(self.cursor % TICKS) as usize];
            if index == NONE {
                self.cursor += 1;
                continue;
            }
            if left == 0 {
                return;
            }
            left -= 1;
            work::step(1);
            if self.entries[index as usize].expires_at <= now {
                self.vacate(index);
            } else {
                self.unlink(index);
                self.link(index);
            }
        }
    }

    /// Hangs the entry in the first tick that has passed when it has expired, or as far ahead as
    /// the wheel reaches.
    fn link(&mut self, index: u32) {
        let expiry_tick = self.entries[index as usize].expires_at / self.tick_ns;
        let tick = expiry_tick.clamp(self.cursor, self.cursor + TICKS - 1);
        let head = &mut self.ticks[(tick % TICKS) as usize];
        let next = std::mem::replace(head, index);
        let entry = &mut self.entries[index as usize];
        (entry.tick, entry.previous, entry.next) = (tick, NONE, next);
        if next != NONE {
            self.entries[next as usize].previous = index;
        }
    }

    fn unlink(&mut self, index: u32) {
        let Entry { next, previous, tick, .. } = self.entries[index as usize];
        if previous == NONE {
            self.ticks[(tick % TICKS) as usize] = next;
        } else {
            self.entries[previous as usize].next = next;
        }
        if next != NONE {
            self.entries[next as usize].previous = previous;
        }
    }

    fn vacate(&mut self, index: u32) {
        self.close(index);
        self.unlink(index);
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        entry.next = std::mem::replace(&mut self.free, index);
        let (key, is_above) = (entry.key, std::mem::take(&mut entry.is_above));
        self.map.remove(&key);
        if is_above {
            self.by_share.remove(key.share());
        }
    }
}

fn is_placed(state: PlacementState) -> bool {
    matches!(state, PlacementState::Placed(_) | PlacementState::Cloned(..))
}

/// A free entry for `key`, hanging nowhere.
fn allocate(entries: &mut Vec<Entry>, free: &mut u32, key: RequestKey) -> u32 {
    let index = *free;
    if index != NONE {
        let entry = &mut entries[index as usize];
        *free = entry.next;
        entry.key = key;
        return index;
    }
    let (state, expires_at, generation) = (PlacementState::Undecided, 0, 0);
    entries.push(Entry {
        key,
        state,
        expires_at,
        generation,
        next: NONE,
        previous: NONE,
        tick: 0,
        behind: NONE,
        before: NONE,
        is_open: false,
        is_above: false,
    });
    u32::try_from(entries.len() - 1).expect("the table's limit fits 31 bits")
}

/// Time after which a placed id expires, where many are remembered: a client that has heard nothing
/// of a server has sent a request again several times by then.
const CROWDED_NS: u64 = 250_000_000;

/// No entry.
const NONE: u32 = u32::MAX;

/// Ids for which there is room from the beginning: a router remembers those of some tenths of a
/// second. To grow is to hash all of them again within one packet.
const ROOM_MAX: usize = 1 << 16;

/// Ticks of the wheel: with a lifetime of 60 s an entry is kept 59 ms too long at most.
const TICKS: u64 = 1_024;

/// Entries that are reaped for each that is entered: more than one, so that a full table empties.
const REAP_COUNT: usize = 4;

/// Entries that are reaped in each turn of the probes.
const EXPIRE_COUNT: usize = 256;

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use proptest::prelude::*;

    const LIFETIME: u64 = 1_000_000;
    const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), 7);

    fn key(id: u64) -> RequestKey {
        Keys::new(1).key(RpcId(id), CLIENT)
    }

    fn enter_placed(table: &mut Table, now: Time, id: u64, expires_at: Time) {
        match table.enter(now, key(id), expires_at) {
            Entered::New(entry) => table.set(entry, PLACED),
            entered => panic!("{entered:?}"),
        }
    }

    const PLACED: PlacementState =
        PlacementState::Placed(ServerKey { slot: WorkerId(3), serial: 5 });

    /// Keys that share a bucket of 128 under one secret are spread under another: 512 of 65,536 and
    /// then 4 in a bucket are expected.
    #[test]
    fn keys_chosen_against_one_secret_do_not_collide_under_another() {
        let bucket = |secret, id: &u64| Keys::new(secret).key(RpcId(*id), CLIENT).hash % 128;
        let chosen: Vec<_> = (0..1 << 16).filter(|id| bucket(1, id) == 0).collect();
        assert!((400..640).contains(&chosen.len()), "{}", chosen.len());
        for at in 0..128 {
            let together = chosen.iter().filter(|id| bucket(2, id) == at).count();
            assert!(together <= 16, "{together} keys in bucket {at}");
        }
    }

    #[test]
    fn an_id_is_known_until_it_expires() {
        let mut table = Table::new(10, LIFETIME, 1);
        enter_placed(&mut table, 0, 1, 500);
        assert!(matches!(table.enter(499, key(1), 900), Entered::Known(_, PLACED)));
        assert!(matches!(table.enter(500, key(1), 900), Entered::New(_)));
        assert_eq!(table.len(), 1);
    }

    #[test]
    fn another_client_with_the_same_id_is_another_request() {
        let mut table = Table::new(10, LIFETIME, 1);
        enter_placed(&mut table, 0, 1, 500);
        let other = Keys::new(1).key(RpcId(1), SocketAddr::from(([10, 0, 0, 1], 8)));
        assert!(matches!(table.enter(0, other, 500), Entered::New(_)));
    }

    #[test]
    fn a_full_table_takes_no_more_until_entries_expire() {
        let mut table = Table::new(2, LIFETIME, 1);
        enter_placed(&mut table, 0, 1, 500);
        enter_placed(&mut table, 0, 2, 500);
        assert_eq!(table.enter(0, key(3), 500), Entered::Full);
        assert!(matches!(table.enter(500 + 2 * table.tick_ns, key(3), 5_000), Entered::New(_)));
    }

    /// Half, and then while it has at most three times what is left: 301 of 400.
    #[test]
    fn one_share_leaves_an_eighth_to_others() {
        let mut table = Table::new(800, LIFETIME, 1);
        let from = |net: u8, port: u16| SocketAddr::from(([10, 0, 0, net], port));
        let enter = |table: &mut Table, now, client: SocketAddr| {
            let key = table.key(RpcId(u64::from(client.port())), client);
            matches!(table.enter(now, key, now + 100), Entered::New(_))
        };
        let flood = |table: &mut Table, now| {
            (0..2000).filter(|&port| enter(table, now, from(1, 1000 + port))).count()
        };
        assert_eq!(flood(&mut table, 0), 400 + 301);
        assert_eq!((2..22).filter(|&net| enter(&mut table, 0, from(net, 1))).count(), 20);
        assert!(!enter(&mut table, 0, from(1, 1)), "it still has its share");
        (0..4).for_each(|_| table.expire(2 * LIFETIME));
        assert_eq!((table.len(), table.by_share.len()), (0, 0));
        assert_eq!(flood(&mut table, 2 * LIFETIME), 400 + 301);
    }

    #[test]
    fn what_is_placed_in_a_crowd_is_forgotten_early() {
        let mut table = Table::new(4, 60_000_000_000, 1);
        let until = 50_000_000_000;
        let server = ServerKey { slot: WorkerId(3), serial: 5 };
        for id in 0..4 {
            let Entered::New(entry) = table.enter(0, key(id), until) else { panic!("new") };
            if id != 3 {
                table.place(7, entry, server);
            }
        }
        let known_at = |table: &Table, id, now| table.find(now, key(id)).is_some();
        assert!((0..2).all(|id| known_at(&table, id, until - 1)), "the first half");
        assert!(known_at(&table, 2, 6 + CROWDED_NS) && !known_at(&table, 2, 7 + CROWDED_NS));
        assert!(known_at(&table, 3, until - 1), "it is held");
        let forgotten = |now, age_ns| table.may_have_evicted(now, age_ns);
        assert!(forgotten(CROWDED_NS, CROWDED_NS) && !forgotten(CROWDED_NS, CROWDED_NS - 1));
        assert!(forgotten(until - 1, CROWDED_NS) && !forgotten(until, CROWDED_NS));
    }

    #[test]
    fn what_its_client_says_has_ended_expires_after_the_transit_time() {
        let mut table = Table::new(100, LIFETIME, 1);
        for id in 0..20 {
            enter_placed(&mut table, 0, id, LIFETIME);
        }
        // An id of another client with the same session is not meant.
        let other = table.key(RpcId(3), SocketAddr::from(([10, 0, 0, 1], 8)));
        assert!(matches!(table.enter(0, other, LIFETIME), Entered::New(_)));
        for _ in 0..5 {
            table.end_below(key(19), 17, 1_000);
        }
        for id in 0..20 {
            assert!(table.find(999, key(id)).is_some(), "a copy of {id} may be under way");
            assert_eq!(table.find(1_000, key(id)).is_some(), id >= 17, "{id}");
        }
        let later = 1_000 + 2 * table.tick_ns;
        table.expire(later);
        assert_eq!((table.len(), table.sessions.len()), (4, 2));
        (17..20).for_each(|_| table.end_below(key(19), 20, later));
        table.expire(LIFETIME + 2 * table.tick_ns);
        assert_eq!((table.len(), table.sessions.len()), (0, 0));
    }

    #[test]
    fn a_floor_changes_neither_what_is_not_placed_nor_what_expires_sooner() {
        let mut table = Table::new(100, LIFETIME, 1);
        let refused = PlacementState::Refused(DropReason::Overload);
        let Entered::New(entry) = table.enter(0, key(1), LIFETIME) else { panic!("new") };
        table.set(entry, refused);
        enter_placed(&mut table, 0, 2, 500);
        table.end_below(key(9), 9, 1_000);
        assert!(table.find(LIFETIME - 1, key(1)).is_some_and(|(_, state)| state == refused));
        assert!(table.find(499, key(2)).is_some() && table.find(500, key(2)).is_none());
    }

    #[test]
    fn what_expires_as_soon_in_any_case_is_not_forgotten_early() {
        let mut table = Table::new(2, 60_000_000_000, 1);
        for id in 0..2 {
            let Entered::New(entry) = table.enter(0, key(id), CROWDED_NS) else { panic!("new") };
            table.place(0, entry, ServerKey { slot: WorkerId(3), serial: 5 });
        }
        assert!(!table.may_have_evicted(CROWDED_NS - 1, CROWDED_NS));
    }

    /// So that no request pays for all that have expired.
    #[test]
    fn a_new_id_reaps_a_few() {
        let mut table = Table::new(100, LIFETIME, 1);
        (0..20).for_each(|id| enter_placed(&mut table, 0, id, 1));
        for count in 1..=5 {
            enter_placed(&mut table, LIFETIME, 100 + count, 2 * LIFETIME);
            assert_eq!(table.len() as u64, 20 - 4 * count + count);
        }
    }

    /// The cursor is behind, so that an id which lasts as long as any lies past the wheel's end.
    #[test]
    fn an_id_past_the_end_of_the_wheel_does_not_stop_it() {
        let mut table = Table::new(100, LIFETIME, 1);
        let tick_ns = table.tick_ns;
        (0..10).for_each(|id| enter_placed(&mut table, 0, id, tick_ns));
        let now = 4 * tick_ns;
        enter_placed(&mut table, now, 100, now + LIFETIME);
        (0..10).for_each(|_| table.reap(now + tick_ns, 2));
        assert_eq!(table.len(), 1);
        assert!(table.find(now + LIFETIME - 1, key(100)).is_some());
        table.reap(now + LIFETIME + 2 * tick_ns, 2);
        assert_eq!(table.len(), 0);
    }

    #[test]
    fn a_released_entry_names_nothing() {
        let mut table = Table::new(2, LIFETIME, 1);
        let Entered::New(old) = table.enter(0, key(1), 500) else { panic!("new") };
        table.release(old);
        assert_eq!(table.find(0, key(1)), None);
        enter_placed(&mut table, 0, 2, 500);
        table.release(old);
        table.set(old, PlacementState::Undecided);
        assert!(matches!(table.find(0, key(2)), Some((_, PLACED))));
    }

    #[test]
    fn a_long_pause_loses_and_keeps_nothing_wrongly() {
        let mut table = Table::new(10, LIFETIME, 1);
        enter_placed(&mut table, 0, 1, LIFETIME);
        let later = 1_000 * LIFETIME;
        enter_placed(&mut table, later, 2, later + LIFETIME);
        assert_eq!(table.len(), 1);
        assert!(table.find(later, key(2)).is_some());
    }

    proptest! {
        /// Against a list: what has not expired is known, and what is kept too long is bounded by
        /// the reaping.
        #[test]
        fn agrees_with_a_list(steps in proptest::collection::vec((0u64..40, 1u64..LIFETIME, 0u64..LIFETIME / 8), 1..300)) {
            let mut table = Table::new(1_000, LIFETIME, 7);
            let mut list: std::collections::BTreeMap<u64, Time> = Default::default();
            let mut now = 0;
            for (id, lifetime, wait) in steps {
                now += wait;
                let known = list.get(&id).is_some_and(|&expiry| expiry > now);
                match table.enter(now, key(id), now + lifetime) {
                    Entered::Known(_, state) => prop_assert!(known && state == PLACED),
                    Entered::New(entry) => {
                        prop_assert!(!known);
                        table.set(entry, PLACED);
                        list.insert(id, now + lifetime);
                    }
                    Entered::Full => prop_assert!(false),
                }
                for (&id, &expiry) in &list {
                    prop_assert_eq!(table.find(now, key(id)).is_some(), expiry > now);
                }
            }
            let end = now + 2 * LIFETIME;
            table.reap(end, 1_000);
            prop_assert_eq!((table.len(), table.sessions.len()), (0, 0));
        }
    }
}
