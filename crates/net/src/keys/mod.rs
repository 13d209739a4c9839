//! Keys of sealed services that change while nodes run, and who may call what of them.
//!
//! | who | does |
//! |---|---|
//! | a program that gets keys, or a [`Source`] of them | [`LiveKeys::update`] |
//! | each driver, once a turn | looks at a count, and gives its nodes what is new |
//! | who has another policy ([`LiveAccess::update`]), or a file of one ([`AccessSource`]) | the same |
//! | each driver, once a second | reads the wall clock for its sealed nodes |
//!
//! Invariants: no child of a process seals by what its parent has opened; what is published follows
//! what was there ([`Keys::followed_by`]), so that no node refuses it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tailcut_proto::node::{Node, Time};
use tailcut_proto::sealed::{ChangedKeys, Denial, Keys, LostKeys};

use self::renewal::Renewal;
use crate::clock::Clock;
use crate::sys;

pub mod access;
#[cfg(feature = "key-agent")]
pub mod agent;
#[cfg(feature = "key-agent")]
pub mod certificates;
#[cfg(feature = "key-agent")]
mod fetch;
pub mod file;
#[cfg(all(feature = "key-agent", any(test, feature = "fuzz")))]
pub mod fuzzed;
#[cfg(feature = "key-agent")]
mod hurried;
#[cfg(feature = "key-agent")]
mod identities;
#[cfg(feature = "key-agent")]
pub mod pinned;
mod renewal;
mod source;
#[cfg(feature = "key-agent")]
mod tls;

pub use self::access::{AccessSource, LiveAccess};
pub use self::source::Source;

/// Keys that may be followed by newer ones, for any number of nodes and threads; clones are the
/// same keys.
#[derive(Clone, Debug)]
pub struct LiveKeys {
    /// The keys.
    shared: Arc<Shared>,
    /// Renews them as long as anybody has them, where they come from a [`Source`].
    renewal: Option<Arc<Renewal>>,
}

#[derive(Debug)]
struct Shared {
    /// Number of their changes so far.
    version: AtomicU64,
    /// The keys as they are now.
    keys: Mutex<Arc<Keys>>,
}

impl LiveKeys {
    /// Keys to begin with.
    pub fn new(keys: Keys) -> Self {
        Arc::new(keys).into()
    }

    /// The keys as they are now.
    pub fn current(&self) -> Arc<Keys> {
        self.lock().clone()
    }

    /// Puts newer keys of the same holder in place: sessions begin under those that are current,
    /// and calls in progress finish under what they began with. Returns whether anything is new.
    ///
    /// # Errors
    ///
    /// That role, group or cipher are others, or that an epoch in use has another key. The keys
    /// stay as they are then.
    pub fn update(&self, newer: &Keys) -> Result<bool, ChangedKeys> {
        let mut keys = self.lock();
        let next = keys.followed_by(newer, Clock.unix_ns() / 1_000_000)?;
        let is_new = next != **keys;
        if is_new {
            *keys = Arc::new(next);
            self.shared.version.fetch_add(1, Ordering::Release);
        }
        Ok(is_new)
    }

    /// Has them renewed at once, where they come from a [`Source`].
    fn renew_soon(&self) {
        self.renewal.iter().for_each(|renewal| renewal.ask());
    }

    /// The keys, and how often they have changed.
    fn read(&self) -> (Arc<Keys>, u64) {
        let keys = self.lock();
        (keys.clone(), self.shared.version.load(Ordering::Acquire))
    }

    fn lock(&self) -> MutexGuard<'_, Arc<Keys>> {
        self.shared.keys.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl PartialEq for LiveKeys {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl From<Keys> for LiveKeys {
    fn from(keys: Keys) -> Self {
        Self::new(keys)
    }
}

impl From<Arc<Keys>> for LiveKeys {
    fn from(keys: Arc<Keys>) -> Self {
        let shared = Shared { version: AtomicU64::new(0), keys: Mutex::new(keys) };
        Self { shared: Arc::new(shared), renewal: None }
    }
}

impl From<&LiveKeys> for LiveKeys {
    fn from(keys: &Self) -> Self {
        keys.clone()
    }
}

/// State that a driver keeps of the keys of one of its nodes, and of who may call it.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The keys.
    live: LiveKeys,
    /// The change that the node has taken.
    seen: u64,
    /// Time of the next reading of the wall clock.
    read_at: Time,
    /// Keys that were not there, as far as they have been logged.
    lost: LostKeys,
    /// Time from which the next line about them may be written.
    lost_tell_at: Time,
    /// Policy of who may call what; `None` where all may call everything.
    access: Option<WatchAccess>,
    /// Forks before the node was made.
    forks: u32,
}

/// State that a driver keeps of the policy of one of its nodes.
#[derive(Debug)]
struct WatchAccess {
    /// The policy.
    live: LiveAccess,
    /// The change that the node has taken.
    seen: u64,
    /// Refused requests that have been logged.
    told: u64,
    /// Time from which the next line about them may be written.
    tell_at: Time,
}

impl Watch {
    /// Watch of a node that has been made with an earlier state of these keys and this policy, or
    /// this one.
    pub(crate) fn new(live: LiveKeys, access: Option<LiveAccess>) -> Self {
        let watch = |live| WatchAccess { live, seen: u64::MAX, told: 0, tell_at: 0 };
        let access = access.map(watch);
        let (lost, lost_tell_at) = (LostKeys::default(), 0);
        sys::count_forks();
        let forks = sys::forks();
        Self { live, seen: u64::MAX, read_at: 0, lost, lost_tell_at, access, forks }
    }

    /// True in a child of the process that made the node: both would seal under the same nonces.
    #[inline]
    pub(crate) fn is_of_parent(&self) -> bool {
        self.forks != sys::forks()
    }

    /// Gives the node what is new. `now` is the time of the last turn.
    #[inline]
    pub(crate) fn look(&mut self, now: Time, node: &mut impl Node) {
        if let Some(access) = &mut self.access
            && access.live.version() != access.seen
        {
            access.give(node);
        }
        if now >= self.read_at || self.live.shared.version.load(Ordering::Relaxed) != self.seen {
            self.give(node);
        }
    }

    /// Logs what the node has refused by its policy, and which keys were not there, once a second
    /// at most.
    #[inline]
    pub(crate) fn tell(&mut self, now: Time, node: &impl Node) {
        let lost = node.lost_keys();
        if lost != self.lost && now >= self.lost_tell_at {
            self.tell_lost(now, lost);
        }
        if let Some(access) = &mut self.access
            && let (count, Some(denial)) = node.denials()
            && count != access.told
            && now >= access.tell_at
        {
            access.log(now, count, denial);
        }
    }

    /// Keys were not there: newer ones are asked for, where calls have been answered so.
    #[cold]
    fn tell_lost(&mut self, now: Time, lost: LostKeys) {
        let epoch = lost.epoch;
        let (sent, received) = (lost.sent - self.lost.sent, lost.received - self.lost.received);
        if received > 0 {
            tracing::warn!(
                epoch,
                count = received,
                "calls went where this epoch's key is not there"
            );
            self.live.renew_soon();
        }
        if sent > 0 {
            tracing::warn!(epoch, count = sent, "requests came of an epoch whose key is not here");
        }
        (self.lost, self.lost_tell_at) = (lost, now.saturating_add(LINE_INTERVAL_NS));
    }

    #[cold]
    fn give(&mut self, node: &mut impl Node) {
        let (now, unix_ns) = Clock.both();
        self.read_at = now.saturating_add(CLOCK_INTERVAL_NS);
        node.handle_wall_clock(now, unix_ns);
        let (keys, version) = self.live.read();
        if version != self.seen {
            self.seen = version;
            if let Err(error) = node.update_keys(now, &keys) {
                tracing::error!(%error, "newer keys are refused, and the old ones stay");
            }
        }
    }
}

impl WatchAccess {
    #[cold]
    fn give(&mut self, node: &mut impl Node) {
        let (access, version) = self.live.read();
        self.seen = version;
        node.update_access(&access);
    }

    #[cold]
    fn log(&mut self, now: Time, total: u64, denial: &Denial) {
        let (count, client, called) = (total - self.told, denial.client, &denial.called);
        tracing::warn!(client, %called, count, total, "requests refused by the access policy");
        (self.told, self.tell_at) = (total, now.saturating_add(LINE_INTERVAL_NS));
    }
}

/// Interval between readings of the wall clock: who is resumed, or whose clock is set, is off for
/// no longer.
const CLOCK_INTERVAL_NS: u64 = 1_000_000_000;

/// Between two lines about refused requests.
const LINE_INTERVAL_NS: u64 = 1_000_000_000;
