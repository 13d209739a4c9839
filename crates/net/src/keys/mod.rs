//! Keys of sealed services that change while nodes run.
//!
//! | who | does |
//! |---|---|
//! | a program that gets keys, or a [`Source`] of them | [`LiveKeys::update`] |
//! | each driver, once a turn | looks at a count, and gives its nodes what is new |
//! | each driver, once a second | reads the wall clock for its sealed nodes |
//!
//! Invariant: what is published follows what was there ([`Keys::followed_by`]), so that no node refuses it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tailcut_proto::node::{Node, Time};
use tailcut_proto::sealed::{ChangedKeys, Keys};

use self::source::Renewal;
use crate::clock::Clock;

#[cfg(feature = "key-agent")]
pub mod agent;
#[cfg(feature = "key-agent")]
mod fetch;
pub mod file;
#[cfg(feature = "key-agent")]
mod hurried;
#[cfg(feature = "key-agent")]
mod identities;
#[cfg(feature = "key-agent")]
pub mod pinned;
mod source;
#[cfg(feature = "key-agent")]
mod tls;

pub use self::source::Source;

/// Keys that may be followed by newer ones, for any number of nodes and threads; clones are the same keys.
#[derive(Clone, Debug)]
pub struct LiveKeys {
    /// The keys.
    shared: Arc<Shared>,
    /// Renews them as long as anybody has them, where they come from a [`Source`].
    _renewal: Option<Arc<Renewal>>,
}

#[derive(Debug)]
struct Shared {
    /// How often they have changed.
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

    /// Puts newer keys of the same holder in place: sessions begin under those that are current, and calls in
    /// progress finish under what they began with. Returns whether anything is new.
    ///
    /// # Errors
    ///
    /// That role, group or cipher are others, or that an epoch in use has another key. The keys stay as they
    /// are then.
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
        Self { shared: Arc::new(shared), _renewal: None }
    }
}

impl From<&LiveKeys> for LiveKeys {
    fn from(keys: &Self) -> Self {
        keys.clone()
    }
}

/// What a driver knows of the keys of one of its nodes.
#[derive(Debug)]
pub(crate) struct Watch {
    /// The keys.
    live: LiveKeys,
    /// The change that the node has taken.
    seen: u64,
    /// When the wall clock is read next.
    read_at: Time,
}

impl Watch {
    /// Of a node that has been made with an earlier state of these keys, or this one.
    pub(crate) fn new(live: LiveKeys) -> Self {
        Self { live, seen: u64::MAX, read_at: 0 }
    }

    /// Gives the node what is new. `now` is the time of the last turn.
    #[inline]
    pub(crate) fn look(&mut self, now: Time, node: &mut impl Node) {
        if now >= self.read_at || self.live.shared.version.load(Ordering::Relaxed) != self.seen {
            self.give(node);
        }
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

/// How often the wall clock is read: who is resumed, or whose clock is set, is off for no longer.
const CLOCK_INTERVAL_NS: u64 = 1_000_000_000;
