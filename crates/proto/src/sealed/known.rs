//! Sessions that a node remembers, each client in a share of its own.
//!
//! | event | then |
//! |---|---|
//! | a session is added and there is room | known |
//! | a session is added and there is none | the client that has most loses its oldest |
//! | a client has lost one | those of its that began no later and are not known count as lost |
//! | a client has lost its last | the same of those of every client |
//!
//! So whoever begins many sessions, or sends again what began them, makes room by its own alone, as
//! long as it has more than others.
//!
//! Invariant: at most `len_max` sessions; `sizes` has each client that has any, with their number.

use super::ClientEpoch;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::hash::Hash;

use tailcut_placement::keyed::KeyedState;

/// A session of a client.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SessionKey {
    /// The client's number.
    pub(super) client: u32,
    /// The 40 bits of its calls' ids.
    pub(super) session: u64,
}

/// Sessions of clients, and something of each.
#[derive(Debug)]
pub(super) struct Known<T> {
    /// By client and session; when each began, Unix ms.
    sessions: HashMap<u64, (u64, T), KeyedState>,
    /// By client.
    clients: HashMap<u32, OfClient, KeyedState>,
    /// Number of sessions of each client, with the client's number.
    sizes: BTreeSet<(usize, u32)>,
    /// Most of them.
    len_max: usize,
    /// Latest beginning, Unix ms, of a session that may have been lost, of whomever.
    lost_ms: u64,
}

/// The sessions of one client.
#[derive(Debug, Default)]
struct OfClient {
    /// In the order in which they were added.
    order: VecDeque<u64>,
    /// Latest beginning, Unix ms, of a session of it that may have been lost.
    lost_ms: u64,
}

impl SessionKey {
    fn word(self) -> u64 {
        u64::from(self.client) << SESSION_BITS | self.session
    }
}

impl<T> Known<T> {
    /// None yet, of at most `len_max`; those that began by `lost_ms` count as lost.
    pub(super) fn new(len_max: usize, lost_ms: u64, seed: u64) -> Self {
        let state = || KeyedState::with_seed(seed);
        Self {
            sessions: HashMap::with_hasher(state()),
            clients: HashMap::with_hasher(state()),
            sizes: BTreeSet::new(),
            len_max: len_max.max(1),
            lost_ms,
        }
    }

    /// State that is known of a session.
    #[inline]
    pub(super) fn find(&self, key: SessionKey) -> Option<&T> {
        self.sessions.get(&key.word()).map(|(_, known)| known)
    }

    /// State that is known of a session, to be changed.
    #[inline]
    pub(super) fn find_mut(&mut self, key: SessionKey) -> Option<&mut T> {
        self.sessions.get_mut(&key.word()).map(|(_, known)| known)
    }

    /// True if a session that is not known, and began then, may have been known.
    pub(super) fn may_be_lost(&self, client: u32, began_ms: u64) -> bool {
        let own = self.clients.get(&client).map_or(0, |known| known.lost_ms);
        began_ms <= own.max(self.lost_ms)
    }

    /// Adds a session that is not known; gives the one that has made room.
    pub(super) fn add(
        &mut self,
        key: SessionKey,
        began_ms: u64,
        known: T,
    ) -> Option<(SessionKey, T)> {
        let evicted = if self.sessions.len() >= self.len_max { self.evict() } else { None };
        let client = self.clients.entry(key.client).or_default();
        self.sizes.remove(&(client.order.len(), key.client));
        client.order.push_back(key.session);
        self.sizes.insert((client.order.len(), key.client));
        self.sessions.insert(key.word(), (began_ms, known));
        evicted
    }

    /// Keeps those for which `is_kept` says so. The others can be begun no more, and so do not
    /// count as lost.
    pub(super) fn retain(&mut self, is_kept: impl Fn(&T) -> bool) {
        let Self { sessions, clients, sizes, lost_ms, .. } = self;
        sessions.retain(|_, (_, known)| is_kept(known));
        sizes.clear();
        clients.retain(|&client, own| {
            own.order
                .retain(|&session| sessions.contains_key(&SessionKey { client, session }.word()));
            if own.order.is_empty() {
                *lost_ms = own.lost_ms.max(*lost_ms);
                return false;
            }
            sizes.insert((own.order.len(), client));
            true
        });
    }

    /// Removes the oldest session of the client that has most.
    fn evict(&mut self) -> Option<(SessionKey, T)> {
        let (count, client) = self.sizes.pop_last()?;
        let known = self.clients.get_mut(&client).expect("a size is that of a client");
        let session = known.order.pop_front().expect("a client has as many as its size says");
        let key = SessionKey { client, session };
        let (began_ms, lost) =
            self.sessions.remove(&key.word()).expect("what is in order is known");
        known.lost_ms = known.lost_ms.max(began_ms);
        if count > 1 {
            self.sizes.insert((count - 1, client));
        } else {
            self.lost_ms = self.lost_ms.max(known.lost_ms);
            self.clients.remove(&client);
        }
        Some((key, lost))
    }
}

/// Something of each client in an epoch.
pub(super) type ByClient<T> = Kept<ClientEpoch, T>;

/// Bounded map of what can be made anew: the oldest makes room.
#[derive(Debug)]
pub(super) struct Kept<K, T> {
    /// Values that are kept.
    known: HashMap<K, T, KeyedState>,
    /// In the order in which they were added.
    order: VecDeque<K>,
    /// Most of them.
    len_max: usize,
}

impl<K: Copy + Eq + Hash, T> Kept<K, T> {
    pub(super) fn new(len_max: usize, seed: u64) -> Self {
        let known = HashMap::with_hasher(KeyedState::with_seed(seed));
        Self { known, order: VecDeque::new(), len_max: len_max.max(1) }
    }

    #[inline]
    pub(super) fn find(&self, key: K) -> Option<&T> {
        self.known.get(&key)
    }

    #[inline]
    pub(super) fn find_mut(&mut self, key: K) -> Option<&mut T> {
        self.known.get_mut(&key)
    }

    /// Keeps those for which `is_kept` says so.
    pub(super) fn retain(&mut self, is_kept: impl Fn(K, &T) -> bool) {
        self.known.retain(|&key, value| is_kept(key, value));
        self.order.retain(|key| self.known.contains_key(key));
    }

    /// Takes the value of a key out.
    pub(super) fn take(&mut self, key: K) -> Option<T> {
        let value = self.known.remove(&key)?;
        let at = self.order.iter().rposition(|&known| known == key);
        self.order.remove(at.expect("what is known is in order"));
        Some(value)
    }

    /// Value of a key, made if need be.
    #[inline]
    pub(super) fn entry(&mut self, key: K, new: impl FnOnce() -> T) -> &mut T {
        if !self.known.contains_key(&key) {
            if self.order.len() >= self.len_max
                && let Some(oldest) = self.order.pop_front()
            {
                self.known.remove(&oldest);
            }
            self.order.push_back(key);
        }
        self.known.entry(key).or_insert_with(new)
    }
}

/// Bits of a session.
const SESSION_BITS: u32 = 40;

#[cfg(test)]
mod tests {
    use super::*;

    fn key(client: u32, session: u64) -> SessionKey {
        SessionKey { client, session }
    }

    #[test]
    fn sizes_are_those_of_what_each_client_has() {
        let mut known = Known::new(20, 0, 1);
        let mut draws = crate::policy::Draws::new(1);
        for session in 0..2_000 {
            let before = known.sizes.clone();
            let client = draws.below(4).min(draws.below(4));
            if let Some((lost, ())) = known.add(key(client, session), session, ()) {
                let &(most, _) = before.last().expect("it has been full");
                assert!(before.contains(&(most, lost.client)), "who has most makes room");
            }
            let size = |client| known.clients.get(&client).map(|own| (own.order.len(), client));
            assert_eq!(known.sizes, (0..4).filter_map(size).collect());
        }
        assert_eq!(known.sessions.len(), 20);
    }

    #[test]
    fn what_is_kept_of_clients_is_found_until_the_oldest_makes_room() {
        let mut known = Kept::new(3, 1);
        let found = |known: &Kept<u32, u32>| -> Vec<u32> {
            (0..6).filter(|&sender| known.find(sender).is_some()).collect()
        };
        for (sender, expected) in [
            (5, &[5][..]),
            (1, &[1, 5]),
            (1, &[1, 5]),
            (4, &[1, 4, 5]),
            (5, &[1, 4, 5]),
            (2, &[1, 2, 4]),
            (3, &[2, 3, 4]),
        ] {
            assert_eq!(*known.entry(sender, || 10 * sender), 10 * sender);
            assert_eq!(found(&known), expected, "after {sender}");
        }
        assert_eq!(*known.entry(4, || 0), 40, "it is made once");
        known.retain(|sender, _| sender != 3);
        known.entry(1, || 10);
        assert_eq!(found(&known), [1, 2, 4], "what is dropped leaves room");
        assert_eq!((known.take(2), known.take(2)), (Some(20), None));
        known.entry(5, || 50);
        assert_eq!(found(&known), [1, 4, 5], "so does what is taken");
    }

    #[test]
    fn who_has_most_makes_room_with_its_oldest() {
        let mut known = Known::new(6, 0, 1);
        for (client, session) in [(1, 1), (2, 1), (3, 1), (3, 2), (3, 3), (3, 4)] {
            assert!(known.add(key(client, session), 100 * session, ()).is_none());
        }
        let evicted = known.add(key(3, 5), 500, ()).expect("there was no room");
        assert_eq!(evicted.0, key(3, 1));
        // Another client has room at the cost of the same one.
        let evicted = known.add(key(4, 1), 600, ()).expect("there was no room");
        assert_eq!(evicted.0, key(3, 2));
        assert!([1, 2, 4].into_iter().all(|client| known.find(key(client, 1)).is_some()));
        assert!(known.may_be_lost(3, 200) && !known.may_be_lost(3, 201));
        assert!(!known.may_be_lost(1, 1) && !known.may_be_lost(9, 1), "others have lost nothing");
    }

    /// Sessions that made room stay lost, also when their client has nothing more.
    #[test]
    fn what_is_dropped_leaves_room_and_is_not_lost() {
        let mut known = Known::new(4, 0, 1);
        for (client, session) in [(1, 1), (1, 2), (1, 3), (2, 1), (1, 4)] {
            known.add(key(client, session), 100 * session, session);
        }
        known.retain(|&session| session == 1);
        assert_eq!(known.sizes.iter().copied().collect::<Vec<_>>(), [(1, 2)]);
        assert_eq!((known.find(key(2, 1)), known.find(key(1, 2))), (Some(&1), None));
        assert!(known.may_be_lost(1, 100) && !known.may_be_lost(1, 101));
        for session in 5..8 {
            assert!(known.add(key(1, session), 900, session).is_none(), "there is room");
        }
    }

    #[test]
    fn a_flood_of_one_client_costs_the_others_nothing() {
        let mut known = Known::new(100, 0, 1);
        for client in 2..50 {
            known.add(key(client, 7), 10, ());
        }
        for session in 0..10_000 {
            known.add(key(1, session), 1_000 + session, ());
        }
        assert!((2..50).all(|client| known.find(key(client, 7)).is_some()));
        assert!((2..50).all(|client| !known.may_be_lost(client, 1)));
        assert_eq!(known.sessions.len(), 100);
    }

    #[test]
    fn where_every_client_has_one_what_is_lost_counts_for_all() {
        let mut known = Known::new(2, 5, 1);
        known.add(key(1, 1), 10, ());
        known.add(key(2, 1), 20, ());
        let evicted = known.add(key(3, 1), 30, ()).expect("there was no room").0;
        assert!(known.find(evicted).is_none());
        let began_ms = u64::from(evicted.client) * 10;
        assert!(known.may_be_lost(9, began_ms) && !known.may_be_lost(9, began_ms + 1));
        assert!(known.may_be_lost(9, 5), "as at the start");
    }
}
