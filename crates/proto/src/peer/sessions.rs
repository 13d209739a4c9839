//! The sessions of a peer, and the budget of bytes that those of all peers share.
//!
//! | a session is | event | then |
//! |---|---|---|
//! | unknown | a request of it | known, if its peer and the budget have room |
//! | known, idle for `session_idle_ns`, no reply of it kept | room is needed | expired |
//! | expired | a request of it | known anew: what may have run before is refused by its age |
//!
//! Invariant: the budget is exactly the capacity of all sessions and their chunks, and no address
//! prefix has more than its part of it.

use std::collections::HashMap;
use std::net::IpAddr;

use super::limits::Serving;
use super::once::Once;
use crate::node::Time;
use crate::work;
use tailcut_placement::keyed::KeyedState;
use tailcut_placement::order::list::List;

/// Sessions of one peer, in no order.
pub(crate) type Sessions = Vec<Session>;

/// One session of a peer's ids.
#[derive(Debug)]
pub(crate) struct Session {
    /// The part of its ids that they share, 40 bits, and [`SOUND`].
    id: u64,
    /// Sequences that have run or were refused.
    pub(crate) once: Once,
    /// A request of this session that was first sent after this has run only if `once` says so.
    pub(crate) known_since: Time,
    /// Slots of replies that are kept, in the order in which they were given.
    pub(crate) kept: List,
    /// Arrival time of its last request.
    pub(super) used_at: Time,
}

/// Reason why a session or a sequence cannot be remembered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Denied {
    /// The peer, or all together, have too many.
    Full,
    /// The addresses around the peer's have too many.
    PrefixFull,
}

/// Bytes that sessions hold.
#[derive(Debug)]
pub(crate) struct Budget {
    /// Most bytes of all sessions.
    bytes_max: usize,
    /// Most bytes of the sessions of one address prefix.
    prefix_bytes_max: usize,
    /// Bytes of all sessions; the sum of `by_prefix`.
    bytes: usize,
    /// Those of each prefix that has any.
    pub(super) by_prefix: HashMap<u64, usize, KeyedState>,
}

/// On whose account memory grows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Account {
    /// The peer's address.
    pub(crate) ip: IpAddr,
    /// The peer receives there.
    pub(crate) is_validated: bool,
}

/// First values of a session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Start {
    /// Arrival time of its first request.
    pub(super) now: Time,
    /// Send time before which nobody knows of a request whether it has run.
    pub(super) known_since: Time,
    /// Time after which another session makes room for it.
    pub(super) idle_ns: u64,
    /// Most sessions of the peer.
    pub(super) count_max: usize,
}

impl Session {
    /// Time since a request of it last came.
    pub(crate) fn silent_ns(&self, now: Time) -> u64 {
        now.saturating_sub(self.used_at)
    }

    /// True if packets are sealed and it began here, after the server's start. Its client is known
    /// to the seal.
    pub(crate) fn is_sound(&self) -> bool {
        self.id & SOUND != 0
    }

    /// Notes that it did, as its seal says.
    pub(crate) fn note_sound(&mut self) {
        self.id |= SOUND;
    }

    /// Its peer counts from the start again.
    pub(crate) fn restart(&mut self, now: Time) {
        self.once.clear();
        self.known_since = now;
    }

    fn is_idle(&self, now: Time, idle_ns: u64) -> bool {
        self.kept.is_empty() && now.saturating_sub(self.used_at) > idle_ns
    }
}

impl Budget {
    pub(super) fn new(serving: &Serving, seed: u64) -> Self {
        Self {
            bytes_max: serving.sessions_bytes_max,
            prefix_bytes_max: serving.sessions_bytes_per_prefix_max,
            bytes: 0,
            by_prefix: HashMap::with_hasher(KeyedState::with_seed(seed)),
        }
    }

    /// Bytes that all sessions hold.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charges `bytes` more, if there is room. Addresses that are not validated, which may be
    /// forged, have half of it.
    pub(super) fn charge(&mut self, account: Account, bytes: usize) -> Result<(), Denied> {
        let part = if account.is_validated { 1 } else { 2 };
        if self.bytes + bytes > self.bytes_max / part {
            return Err(Denied::Full);
        }
        let held = self.by_prefix.entry(prefix_of(account.ip)).or_default();
        if *held + bytes > self.prefix_bytes_max / part {
            return Err(Denied::PrefixFull);
        }
        *held += bytes;
        self.bytes += bytes;
        Ok(())
    }

    fn give_back(&mut self, ip: IpAddr, bytes: usize) {
        self.bytes -= bytes;
        let prefix = prefix_of(ip);
        if let Some(held) = self.by_prefix.get_mut(&prefix) {
            *held -= bytes;
            // Else every network that was ever heard of would stay.
            if *held == 0 {
                self.by_prefix.remove(&prefix);
            }
        }
    }
}

/// Adds the session `id`; tells its place.
pub(super) fn add(
    sessions: &mut Sessions,
    id: u64,
    start: Start,
    budget: &mut Budget,
    account: Account,
) -> Result<usize, Denied> {
    let Start { now, known_since, .. } = start;
    if sessions.len() < start.count_max {
        if sessions.len() == sessions.capacity() {
            let more = sessions.len().clamp(1, start.count_max - sessions.len());
            budget.charge(account, more * size_of::<Session>())?;
            // Exactly, since the budget is charged for the capacity.
            sessions.reserve_exact(more);
        }
        let (once, kept) = (Once::default(), List::default());
        sessions.push(Session { id, once, known_since, kept, used_at: now });
        return Ok(sessions.len() - 1);
    }
    let is_idle = |&at: &usize| sessions[at].is_idle(now, start.idle_ns);
    let idlest = (0..sessions.len()).filter(is_idle).min_by_key(|&at| sessions[at].used_at);
    let at = idlest.ok_or(Denied::Full)?;
    let session = &mut sessions[at];
    (session.id, session.known_since, session.used_at) = (id, known_since, now);
    // Its chunks stay for the new session, and are charged for already.
    session.once.clear();
    Ok(at)
}

/// The place of the session `id`, if it is known.
pub(super) fn place(sessions: &Sessions, id: u64) -> Option<usize> {
    let found = sessions.iter().position(|session| session.id & !SOUND == id);
    work::step(found.unwrap_or(sessions.len()));
    found
}

/// Expires what has been idle for long, and gives its memory back.
pub(super) fn expire(
    sessions: &mut Sessions,
    ip: IpAddr,
    now: Time,
    idle_ns: u64,
    budget: &mut Budget,
) {
    let before = held_bytes(sessions);
    sessions.retain(|session| !session.is_idle(now, idle_ns));
    sessions.shrink_to_fit();
    if before > 0 {
        budget.give_back(ip, before - held_bytes(sessions));
    }
}

fn held_bytes(sessions: &Sessions) -> usize {
    let chunks: usize = sessions.iter().map(|session| session.once.held_bytes()).sum();
    sessions.capacity() * size_of::<Session>() + chunks
}

/// A bit beyond those of an id: a field of its own would make every session a word longer.
const SOUND: u64 = 1 << 63;

/// The network around an address: a /24 of IPv4, a /56 of IPv6, which is what one site or one host
/// is given at most (RFC 6177).
pub(crate) fn prefix_of(ip: IpAddr) -> u64 {
    match ip {
        IpAddr::V4(ip) => u64::from(ip.to_bits() >> 8),
        IpAddr::V6(ip) => (ip.to_bits() >> 72) as u64 | 1 << 63,
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::super::once::Memory;
    use super::*;

    const VALIDATED: Account =
        Account { ip: IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1)), is_validated: true };
    const UNVALIDATED: Account = Account { is_validated: false, ..VALIDATED };

    fn budget(bytes_max: usize, prefix_bytes_max: usize) -> Budget {
        let serving = Serving {
            sessions_bytes_max: bytes_max,
            sessions_bytes_per_prefix_max: prefix_bytes_max,
            ..Serving::default()
        };
        Budget::new(&serving, 1)
    }

    /// Checks the results of charges one after the other.
    fn check(mut budget: Budget, account: Account, charges: &[(usize, Result<(), Denied>)]) {
        for &(bytes, expected) in charges {
            let before = budget.bytes();
            assert_eq!(budget.charge(account, bytes), expected, "{bytes} after {before}");
            assert_eq!(budget.bytes(), before + if expected.is_ok() { bytes } else { 0 });
        }
    }

    #[test]
    fn a_budget_is_spent_to_the_last_byte_and_half_of_it_without_validation() {
        let (full, prefix_full) = (Err(Denied::Full), Err(Denied::PrefixFull));
        check(budget(100, 900), VALIDATED, &[(101, full), (100, Ok(())), (1, full)]);
        check(budget(100, 900), UNVALIDATED, &[(51, full), (50, Ok(())), (1, full)]);
        check(budget(900, 60), VALIDATED, &[(61, prefix_full), (60, Ok(())), (1, prefix_full)]);
        check(budget(900, 60), UNVALIDATED, &[(31, prefix_full), (30, Ok(())), (1, prefix_full)]);
    }

    /// One more of the peer's sessions, at `now`; others are idle after 1 us.
    fn add_at(sessions: &mut Sessions, budget: &mut Budget, now: Time) -> Result<usize, Denied> {
        let start = Start { now, known_since: 0, idle_ns: 1_000, count_max: 3 };
        add(sessions, now, start, budget, VALIDATED)
    }

    #[test]
    fn sessions_have_no_more_memory_than_they_may_be_many() {
        let (mut sessions, mut budget) = (Sessions::new(), budget(1 << 20, 1 << 20));
        let places = [1, 2, 3].map(|now| add_at(&mut sessions, &mut budget, now));
        assert_eq!(places, [Ok(0), Ok(1), Ok(2)]);
        assert_eq!(budget.bytes(), 3 * size_of::<Session>());
    }

    #[test]
    fn a_session_is_idle_after_its_time_and_not_before() {
        let (mut sessions, mut budget) = (Sessions::new(), budget(1 << 20, 1 << 20));
        (1..4).for_each(|now| assert!(add_at(&mut sessions, &mut budget, now).is_ok()));
        assert_eq!(add_at(&mut sessions, &mut budget, 1_001), Err(Denied::Full));
        assert_eq!(add_at(&mut sessions, &mut budget, 1_002), Ok(0));
        assert_eq!((place(&sessions, 1), place(&sessions, 1_002)), (None, Some(0)));
    }

    #[test]
    fn a_session_is_sound_once_its_seal_says_so_and_has_the_same_name() {
        let (mut sessions, mut budget) = (Sessions::new(), budget(1 << 20, 1 << 20));
        add_at(&mut sessions, &mut budget, 7).unwrap();
        assert!(!sessions[0].is_sound());
        sessions[0].note_sound();
        assert_eq!((sessions[0].is_sound(), place(&sessions, 7)), (true, Some(0)));
    }

    #[test]
    fn a_session_that_counts_from_the_start_again_knows_nothing_of_before() {
        let (mut sessions, mut budget) = (Sessions::new(), budget(1 << 20, 1 << 20));
        add_at(&mut sessions, &mut budget, 7).unwrap();
        let session = &mut sessions[0];
        assert!(session.once.take(0, |_| true));
        session.restart(99);
        assert_eq!(session.once.recall(0), Memory::Fresh);
        assert_eq!(session.known_since, 99);
    }

    #[test]
    fn a_prefix_is_a_24_of_ipv4_or_a_56_of_ipv6() {
        let prefix = |ip: &str| prefix_of(ip.parse().unwrap());
        assert_eq!(prefix("10.0.0.1"), prefix("10.0.0.255"));
        assert_ne!(prefix("10.0.0.1"), prefix("10.0.1.1"));
        assert_eq!(prefix("2001:db8:0:100::1"), prefix("2001:db8:0:1ff:9::2"));
        assert_ne!(prefix("2001:db8:0:100::1"), prefix("2001:db8:0:200::1"));
        let same_bits = Ipv6Addr::from_bits(u128::from(prefix("10.0.0.1")) << 72);
        assert_ne!(prefix("10.0.0.1"), prefix_of(same_bits.into()));
    }
}
