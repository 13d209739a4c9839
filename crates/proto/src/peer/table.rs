//! Peers by address: what is remembered of each, and which is evicted when the table is full.
//!
//! | a peer is | event | then |
//! |---|---|---|
//! | unknown | found or added | known; `None` where the table is full of peers that are not idle |
//! | known | something is under way with it, or it was heard of within `session_idle_ns` | it stays |
//! | known and idle | room is needed | evicted, with its sessions |
//!
//! Invariant: the table is bounded, and a peer is evicted only when nothing is under way with it
//! and it has been idle for longer than the network can hold a duplicate. Above half of the bound,
//! and of the budget of its sessions, an address must be validated first, so that forged addresses
//! cannot fill the table. Nor can one network: its peers are at most [`SHARE`] times the places
//! that are free (the dynamic thresholds of Choudhury and Hahne, 1998), so that it may have three
//! quarters of a table that nobody else wants, and k networks that want all of it still leave a
//! place in 3 k + 1, the first not counted: a table of no more than 3 k + 1 places they fill.
//!
//! [`SHARE`]: super::crowd::SHARE

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::{Index, IndexMut};

use super::crowd::{Crowd, ShareCounts};
use super::limits::Serving;
use super::sessions::{self, Account, Budget, Denied, Session, Sessions, Start, prefix_of};
use crate::address::{AddressKey, share_of};
use crate::node::Time;
use crate::work;
use tailcut_placement::keyed::KeyedState;
use tailcut_placement::slab::ROOM_MAX;

/// The place of a peer in its table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct PeerId(pub(crate) u32);

impl PeerId {
    /// As an index of a vector.
    pub(crate) fn index(self) -> usize {
        self.0 as usize
    }
}

/// Peers by address. `T` is what a protocol remembers of one.
#[derive(Debug)]
pub(crate) struct Table<T> {
    /// The place of each address.
    index: Addresses,
    /// Peers, and places that are vacant.
    peers: Vec<Peer<T>>,
    /// Most places.
    peers_max: usize,
    /// Found last; most packets come from the peer of the one before.
    last: PeerId,
    /// Index at which the search for a peer to evict goes on.
    hand: usize,
    /// Places of peers that have been evicted.
    vacant: Vec<PeerId>,
    /// Peers of each address prefix that has any.
    by_prefix: ShareCounts,
    /// Requests half received of each share ([`share_of`]) that has any.
    partials: ShareCounts,
    /// Requests and bytes of each share, where more than half of all are taken.
    pub(super) crowd: Crowd,
    /// Bytes of all sessions.
    budget: Budget,
    /// Nothing that was sent before this is known to have run or not.
    started_at: Time,
}

/// One peer.
#[derive(Debug)]
pub(crate) struct Peer<T> {
    /// Its address; [`NOBODY`] where the place is vacant.
    pub(crate) address: SocketAddr,
    /// It receives at its address: it has told a token, or the address is trusted.
    pub(crate) is_validated: bool,
    /// Time at which it was last heard of.
    pub(crate) used_at: Time,
    /// Calls to it that have not ended.
    pub(crate) calls: usize,
    /// Requests of it that the server holds, in any state.
    pub(crate) requests: usize,
    /// Bytes of them.
    pub(crate) held_bytes: usize,
    /// Sessions of its ids that are remembered.
    sessions: Sessions,
    /// State that the protocol adds.
    pub(crate) state: T,
}

/// The place of a session in its peer, valid until a session of that peer is added or expires.
#[derive(Clone, Copy, Debug)]
pub(crate) struct SessionPlace {
    /// The peer.
    peer: PeerId,
    /// Its place in `Peer::sessions`.
    at: usize,
}

/// Addresses, IPv4 apart: their keys are a word, so that the table of many fits a cache.
#[derive(Debug)]
struct Addresses {
    /// By IPv4 address and port in one word.
    v4: HashMap<u64, PeerId, KeyedState>,
    /// By IPv6 address.
    others: HashMap<AddressKey, PeerId, KeyedState>,
}

impl<T> Table<T> {
    /// A table of at most `peers_max` peers.
    pub(crate) fn new(now: Time, peers_max: usize, serving: &Serving, seed: u64) -> Self {
        Self {
            index: Addresses::new(seed, index_room(peers_max, serving)),
            peers: Vec::with_capacity(serving.callers_room(peers_max)),
            peers_max,
            last: PeerId::default(),
            hand: 0,
            vacant: Vec::new(),
            by_prefix: ShareCounts::new(seed, serving.callers_room(peers_max)),
            partials: ShareCounts::new(seed, serving.callers_room(serving.partials_max)),
            crowd: Crowd::new(serving, seed),
            budget: Budget::new(serving, seed),
            started_at: now,
        }
    }

    /// Bytes that it remembers of sessions.
    pub(crate) fn sessions_bytes(&self) -> usize {
        self.budget.bytes()
    }

    #[inline(always)]
    pub(crate) fn find(&mut self, address: SocketAddr) -> Option<PeerId> {
        self.find_at(&address)
    }

    /// As [`Table::find`], of an address that stays where it is.
    #[inline(always)]
    pub(crate) fn find_at(&mut self, address: &SocketAddr) -> Option<PeerId> {
        match self.peers.get(self.last.index()) {
            Some(last) if last.address == *address => Some(self.last),
            _ => self.search(*address),
        }
    }

    /// The peer at an address that is not the last one's.
    fn search(&mut self, address: SocketAddr) -> Option<PeerId> {
        let found = self.index.find(address)?;
        self.last = found;
        Some(found)
    }

    /// Adds a peer that is not known; `None` when the table is full of peers that are not idle, or
    /// the network around it has its share.
    pub(crate) fn add(
        &mut self,
        now: Time,
        account: (SocketAddr, bool),
        state: T,
        serving: &Serving,
    ) -> Option<PeerId> {
        let (address, is_validated) = account;
        let prefix = prefix_of(address.ip());
        // The place of one that is idle is for whoever comes.
        if !self.has_room_for(prefix) && !self.evict_idle(now, serving.session_idle_ns) {
            return None;
        }
        let peer = Peer {
            address,
            is_validated,
            used_at: now,
            calls: 0,
            requests: 0,
            held_bytes: 0,
            sessions: Sessions::new(),
            state,
        };
        let added = match self.vacant.pop() {
            Some(place) => {
                self[place] = peer;
                place
            }
            None if self.peers.len() < self.peers_max => {
                self.peers.push(peer);
                PeerId(self.peers.len() as u32 - 1)
            }
            None => return None,
        };
        self.index.insert(address, added);
        self.by_prefix.add(prefix);
        self.last = added;
        Some(added)
    }

    /// True if a peer of this prefix may be added.
    fn has_room_for(&self, prefix: u64) -> bool {
        let free = self.peers_max.saturating_sub(self.index.len());
        self.by_prefix.has_room(prefix, free)
    }

    /// True if one more request of a peer may be half received, where `free` places are left: who
    /// begins what it does not end leaves some of them to others, as with the table itself.
    pub(crate) fn has_room_for_partial(&self, peer: PeerId, free: usize) -> bool {
        self.partials.has_room(share_of(self[peer].address.ip()), free)
    }

    /// A request of a peer is half received.
    pub(crate) fn begin_partial(&mut self, peer: PeerId) {
        self.partials.add(share_of(self[peer].address.ip()));
    }

    /// A request of a peer, which was half received, is complete or gone.
    pub(crate) fn end_partial(&mut self, peer: PeerId) {
        self.partials.remove(share_of(self[peer].address.ip()));
    }

    /// True if a peer at an address that is not validated would still be added. May evict an idle
    /// one to make room.
    pub(crate) fn has_room_for_unvalidated(&mut self, now: Time, serving: &Serving) -> bool {
        let limit = (self.peers_max / 2).min(UNVALIDATED_MAX);
        if self.index.len() >= limit {
            self.evict_idle(now, serving.session_idle_ns);
        }
        self.index.len() < limit
    }

    /// Since when a session that is not known would have been known, had it been used: it may have
    /// expired after it was idle for long.
    pub(crate) fn known_since(&self, now: Time, serving: &Serving) -> Time {
        self.started_at.max(now.saturating_sub(serving.session_idle_ns))
    }

    /// The session `id` of a peer, added if need be. Takes note that it is used.
    pub(crate) fn session(
        &mut self,
        now: Time,
        peer: PeerId,
        id: u64,
        serving: &Serving,
    ) -> Result<SessionPlace, Denied> {
        let record = &mut self[peer];
        record.used_at = now;
        let at = match sessions::place(&record.sessions, id) {
            Some(at) => {
                record.sessions[at].used_at = now;
                at
            }
            None => self.add_session(now, peer, id, serving)?,
        };
        Ok(SessionPlace { peer, at })
    }

    /// The session `id` of a peer, if it is known.
    #[inline]
    pub(crate) fn known_session(&self, peer: PeerId, id: u64) -> Option<SessionPlace> {
        let at = sessions::place(&self[peer].sessions, id)?;
        Some(SessionPlace { peer, at })
    }

    /// Takes a sequence of a session that runs or is refused.
    #[inline(always)]
    pub(crate) fn take(&mut self, place: SessionPlace, sequence: u32) -> Result<(), Denied> {
        let Peer { address, is_validated, sessions, .. } = &mut self.peers[place.peer.index()];
        let mut denied = Denied::Full;
        let is_taken = sessions[place.at].once.take(sequence, |bytes| {
            let account = Account { ip: address.ip(), is_validated: *is_validated };
            self.budget.charge(account, bytes).map_err(|reason| denied = reason).is_ok()
        });
        if is_taken { Ok(()) } else { Err(denied) }
    }

    /// Takes a sequence of the session `id`. One of a session that has expired meanwhile is refused
    /// by its age.
    pub(crate) fn take_of(&mut self, peer: PeerId, id: u64, sequence: u32) -> Result<(), Denied> {
        self.known_session(peer, id).map_or(Ok(()), |place| self.take(place, sequence))
    }

    #[cold]
    fn add_session(
        &mut self,
        now: Time,
        peer: PeerId,
        id: u64,
        serving: &Serving,
    ) -> Result<usize, Denied> {
        let account = self.account(peer);
        let count_max = match account.is_validated {
            true => serving.sessions_per_client_max,
            false => serving.sessions_unvalidated_max.min(serving.sessions_per_client_max),
        };
        let known_since = self.known_since(now, serving);
        let idle_ns = serving.session_idle_ns;
        let start = Start { now, known_since, idle_ns, count_max };
        let sessions = &mut self.peers[peer.index()].sessions;
        sessions::add(sessions, id, start, &mut self.budget, account).or_else(|_| {
            // What is idle elsewhere may make room: of a few peers at a time, so that no packet
            // costs more.
            self.expire_sessions(now, idle_ns);
            let sessions = &mut self.peers[peer.index()].sessions;
            sessions::add(sessions, id, start, &mut self.budget, account)
        })
    }

    fn account(&self, peer: PeerId) -> Account {
        let Peer { address, is_validated, .. } = self[peer];
        Account { ip: address.ip(), is_validated }
    }

    /// Evicts one peer with which nothing is under way and that has been idle for long, if a few
    /// steps find one; true if they do.
    fn evict_idle(&mut self, now: Time, idle_ns: u64) -> bool {
        for _ in 0..STEPS_MAX.min(self.peers.len()) {
            work::step(1);
            self.hand = (self.hand + 1) % self.peers.len();
            let peer = &mut self.peers[self.hand];
            let is_idle = peer.calls == 0
                && peer.requests == 0
                && now.saturating_sub(peer.used_at) > idle_ns
                // Neither a vacant place nor the record that newcomers share at a client.
                && peer.address != NOBODY;
            if is_idle {
                // All of them: none was used later than its peer, nor keeps a reply by now.
                sessions::expire(&mut peer.sessions, peer.address.ip(), now, 0, &mut self.budget);
                self.index.remove(peer.address);
                let prefix = prefix_of(peer.address.ip());
                peer.address = NOBODY;
                self.vacant.push(PeerId(self.hand as u32));
                self.by_prefix.remove(prefix);
                return true;
            }
        }
        false
    }

    /// Expires the idle sessions of the next few peers, of fewer where they have many.
    fn expire_sessions(&mut self, now: Time, idle_ns: u64) {
        let mut looked_at = 0;
        for _ in 0..STEPS_MAX.min(self.peers.len()) {
            self.hand = (self.hand + 1) % self.peers.len();
            let Peer { sessions, address, .. } = &mut self.peers[self.hand];
            let is_first = looked_at == 0;
            looked_at += 1 + sessions.len();
            work::step(1 + sessions.len());
            // One peer at least: those of a peer with as many would be kept for ever.
            if looked_at > SESSIONS_LOOKED_AT_MAX && !is_first {
                return;
            }
            sessions::expire(sessions, address.ip(), now, idle_ns, &mut self.budget);
        }
    }
}

impl<T> Index<PeerId> for Table<T> {
    type Output = Peer<T>;

    #[inline]
    fn index(&self, peer: PeerId) -> &Peer<T> {
        &self.peers[peer.index()]
    }
}

impl<T> IndexMut<PeerId> for Table<T> {
    #[inline]
    fn index_mut(&mut self, peer: PeerId) -> &mut Peer<T> {
        &mut self.peers[peer.index()]
    }
}

impl<T> Index<SessionPlace> for Table<T> {
    type Output = Session;

    #[inline]
    fn index(&self, place: SessionPlace) -> &Session {
        &self[place.peer].sessions[place.at]
    }
}

impl<T> IndexMut<SessionPlace> for Table<T> {
    #[inline]
    fn index_mut(&mut self, place: SessionPlace) -> &mut Session {
        &mut self[place.peer].sessions[place.at]
    }
}

impl Addresses {
    fn new(seed: u64, room: usize) -> Self {
        let state = || KeyedState::with_seed(seed);
        let v4 = HashMap::with_capacity_and_hasher(room, state());
        Self { v4, others: HashMap::with_hasher(state()) }
    }

    fn find(&self, address: SocketAddr) -> Option<PeerId> {
        match v4_key(address) {
            Some(key) => self.v4.get(&key).copied(),
            None => self.others.get(&AddressKey(address)).copied(),
        }
    }

    fn insert(&mut self, address: SocketAddr, peer: PeerId) {
        match v4_key(address) {
            Some(key) => self.v4.insert(key, peer),
            None => self.others.insert(AddressKey(address), peer),
        };
    }

    fn remove(&mut self, address: SocketAddr) {
        match v4_key(address) {
            Some(key) => self.v4.remove(&key),
            None => self.others.remove(&AddressKey(address)),
        };
    }

    fn len(&self) -> usize {
        self.v4.len() + self.others.len()
    }
}

fn v4_key(address: SocketAddr) -> Option<u64> {
    match address {
        SocketAddr::V4(v4) => Some(u64::from(v4.ip().to_bits()) << 16 | u64::from(v4.port())),
        SocketAddr::V6(_) => None,
    }
}

/// Sessions looked at for what is idle, each time memory is needed; those of one peer at least.
const SESSIONS_LOOKED_AT_MAX: usize = 64;

/// Peers for whose addresses there is room from the beginning: an index that grows hashes all of
/// them within one packet. What is not used of it takes address space alone.
fn index_room(peers_max: usize, serving: &Serving) -> usize {
    let room = serving.callers_room(peers_max);
    if room == ROOM_MAX { peers_max } else { room }
}

/// Most peers that are not validated, and those that are known beside them.
const UNVALIDATED_MAX: usize = 4096;

/// Peers looked at for one to evict, each time room is needed.
const STEPS_MAX: usize = 32;

/// The address of a place that is vacant.
pub(crate) const NOBODY: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

#[cfg(test)]
mod tests {
    use super::super::once::BYTES_MAX;
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn address(host: u8) -> SocketAddr {
        ([192, 0, 2, host], 1).into()
    }

    fn table(peers_max: usize, change: impl FnOnce(&mut Serving)) -> (Table<()>, Serving) {
        let mut serving = Serving::default();
        change(&mut serving);
        (Table::new(0, peers_max, &serving, 1), serving)
    }

    #[test]
    fn unvalidated_peers_fill_half_of_the_table() {
        let (mut table, serving) = table(4, |_| {});
        for host in 0..2 {
            assert!(table.has_room_for_unvalidated(0, &serving));
            table.add(0, (address(host), false), (), &serving).unwrap();
        }
        assert!(!table.has_room_for_unvalidated(0, &serving));
        assert!(table.has_room_for_unvalidated(6 * SECOND, &serving), "they are idle");
    }

    #[test]
    fn those_beyond_the_first_4096_must_be_validated_however_many_fit() {
        let (mut table, serving) = table(100_000, |_| {});
        for number in 0..UNVALIDATED_MAX as u32 {
            assert!(table.has_room_for_unvalidated(0, &serving), "{number}");
            let [_, high, middle, low] = number.to_be_bytes();
            let address = ([192, high, middle, low], 1).into();
            table.add(0, (address, false), (), &serving).unwrap();
        }
        assert!(!table.has_room_for_unvalidated(0, &serving));
        assert!(table.add(0, (address(1), true), (), &serving).is_some());
    }

    #[test]
    fn a_full_table_evicts_who_is_idle_and_owes_nothing() {
        let (mut table, serving) = table(2, |_| {});
        for host in 0..2 {
            table.add(0, (address(host), true), (), &serving).unwrap();
        }
        assert_eq!(table.add(SECOND, (address(2), true), (), &serving), None);
        table[PeerId(0)].calls = 1;
        let added = table.add(10 * SECOND, (address(2), true), (), &serving);
        assert_eq!(added, Some(PeerId(1)));
        assert_eq!((table.find(address(0)), table.find(address(1))), (Some(PeerId(0)), None));
    }

    /// One network takes three quarters, a second three quarters of what is left by the same rule,
    /// and whoever comes from a third still finds a place.
    #[test]
    fn no_network_fills_the_table() {
        let (mut table, serving) = table(1000, |_| {});
        let fill = |table: &mut Table<()>, net: u8| {
            let addresses = (0..2000u16).map(|host| {
                let [high, low] = host.to_be_bytes();
                SocketAddr::from(([10, 0, net, low], 1000 + u16::from(high)))
            });
            addresses.filter(|&at| table.add(0, (at, true), (), &serving).is_some()).count()
        };
        assert_eq!(fill(&mut table, 1), 751);
        assert_eq!(fill(&mut table, 2), 187);
        assert!(fill(&mut table, 3) > 40);
        let idle = 6 * SECOND;
        assert!(table.add(idle, (([10, 0, 1, 9], 1).into(), true), (), &serving).is_some());
    }

    #[test]
    fn one_network_leaves_a_fourth_of_all_places_but_one() {
        for places in 1..40 {
            let (mut table, serving) = table(places, |_| {});
            let added = (1..100)
                .filter(|&host| table.add(0, (address(host), true), (), &serving).is_some());
            assert_eq!(added.count(), places - (places - 1) / 4, "of {places}");
        }
    }

    #[test]
    fn sessions_are_counted_to_the_byte_and_given_back() {
        let (mut table, serving) = table(2, |_| {});
        let peer = table.add(0, (address(0), true), (), &serving).unwrap();
        for id in 0..64 {
            table.session(0, peer, id, &serving).unwrap();
            table.take_of(peer, id, 7).unwrap();
        }
        assert_eq!(table.session(0, peer, 64, &serving).unwrap_err(), Denied::Full);
        assert_eq!(table.sessions_bytes(), 64 * (size_of::<Session>() + 72));
        table.evict_idle(6 * SECOND, serving.session_idle_ns);
        assert_eq!((table.sessions_bytes(), table.budget.by_prefix.len()), (0, 0));
    }

    #[test]
    fn a_network_has_its_part_of_the_memory_and_leaves_the_rest_to_others() {
        let (mut table, serving) = table(4, |serving| {
            serving.sessions_bytes_max = 4096;
            serving.sessions_bytes_per_prefix_max = 1024;
        });
        let (near, far) = (address(1), SocketAddr::from(([192, 0, 3, 1], 1)));
        let near = table.add(0, (near, true), (), &serving).unwrap();
        let far = table.add(0, (far, true), (), &serving).unwrap();
        let full = (0..64).find_map(|id| table.session(0, near, id, &serving).err());
        assert_eq!(full, Some(Denied::PrefixFull));
        assert!(table.session(0, far, 0, &serving).is_ok());
        assert!(table.session(6 * SECOND, near, 99, &serving).is_ok(), "idle ones make room");
    }

    #[test]
    fn unvalidated_peers_have_half_of_the_memory() {
        let (mut table, serving) = table(4, |serving| {
            serving.sessions_unvalidated_max = 64;
            serving.sessions_bytes_max = BYTES_MAX;
        });
        let peer = table.add(0, (address(1), false), (), &serving).unwrap();
        table.session(0, peer, 1, &serving).unwrap();
        let mut apart = (0..).step_by(512);
        let denied = apart.find_map(|sequence| table.take_of(peer, 1, sequence).err());
        assert_eq!(denied, Some(Denied::Full));
        assert!(table.sessions_bytes() <= BYTES_MAX / 2);
        table[peer].is_validated = true;
        assert_eq!(table.take_of(peer, 1, apart.next().unwrap()), Ok(()));
    }

    #[test]
    fn nobody_who_is_owed_something_or_was_just_heard_of_is_evicted() {
        let (mut table, serving) = table(2, |_| {});
        for host in 0..2 {
            table.add(0, (address(host), true), (), &serving).unwrap();
        }
        table[PeerId(0)].calls = 1;
        table[PeerId(1)].requests = 1;
        let idle = serving.session_idle_ns + 1;
        assert_eq!(table.add(idle, (address(2), true), (), &serving), None);
        table[PeerId(1)].requests = 0;
        assert_eq!(table.add(idle - 1, (address(2), true), (), &serving), None);
        assert_eq!(table.add(idle, (address(2), true), (), &serving), Some(PeerId(1)));
    }

    #[test]
    fn addresses_of_ipv4_are_apart() {
        let (mut table, serving) = table(9, |_| {});
        for (at, place) in ["10.0.0.1:7", "[fd00::1]:7"].into_iter().zip(0..) {
            let at = at.parse().unwrap();
            assert_eq!(table.add(0, (at, true), (), &serving), Some(PeerId(place)));
            table.last = PeerId(99);
            assert_eq!(table.find(at), Some(PeerId(place)));
        }
        assert_eq!((table.index.v4.len(), table.index.others.len()), (1, 1));
    }

    /// Its sessions alone are as many as are looked at.
    #[test]
    fn idle_sessions_of_a_peer_that_has_all_it_may_make_room_too() {
        let count = SESSIONS_LOOKED_AT_MAX as u64;
        let (mut table, serving) = table(100, |serving| {
            assert_eq!(serving.sessions_per_client_max as u64, count, "by default");
        });
        let peer = table.add(0, (address(1), true), (), &serving).unwrap();
        (0..count).for_each(|id| assert!(table.session(0, peer, id, &serving).is_ok()));
        table.expire_sessions(6 * SECOND, serving.session_idle_ns);
        assert_eq!(table.sessions_bytes(), 0);
    }

    /// Forty peers of three idle sessions each: a peer and its sessions are four looks.
    #[test]
    fn the_search_for_idle_sessions_looks_at_64_of_peers_and_sessions_at_once() {
        let (mut table, serving) = table(100, |_| {});
        for host in 0..40 {
            let peer = table.add(0, (address(host), true), (), &serving).unwrap();
            (0..3).for_each(|id| assert!(table.session(0, peer, id, &serving).is_ok()));
        }
        let bytes_each = table.sessions_bytes() / 40;
        for left in [24, 8] {
            work::take();
            table.expire_sessions(6 * SECOND, serving.session_idle_ns);
            assert_eq!(work::take(), 17 * 4, "the last is not looked into");
            assert_eq!(table.sessions_bytes(), left * bytes_each);
        }
    }
}
