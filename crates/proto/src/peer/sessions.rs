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
use crate::keyed::KeyedState;
use crate::node::Time;
use crate::order::list::List;
use crate::work;

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
    /// When a request of it last came.
    pub(super) used_at: Time,
}

/// Why a session or a sequence cannot be remembered.
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
    /// When its first request came.
    pub(super) now: Time,
    /// Of a request sent before this nobody knows whether it has run.
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

    /// Where packets are sealed: it began after the server's start, and here. Whose it is the seal knows.
    pub(crate) fn is_sound(&self) -> bool {
        self.id & SOUND != 0
    }

    /// It does, as its seal says.
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
