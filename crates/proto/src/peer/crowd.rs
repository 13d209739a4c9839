//! Shares of what a server holds: nobody takes all of its requests, or all of their bytes, however
//! many ports or addresses of a /64 ask for them.
//!
//! | of a limit is taken | a share ([`share_of`]) may take |
//! |---|---|
//! | half or less | what it likes, and nobody counts |
//! | more | while it has at most [`SHARE`] times what is left, of what it took above the half |
//!
//! So one share has at most seven eighths, and packets cost no hash while half is free.
//!
//! [`share_of`]: crate::address::share_of

use std::collections::HashMap;

use super::limits::Serving;
use tailcut_placement::keyed::KeyedState;
use tailcut_placement::slab::room;

/// Holdings of the shares, of what was taken above the halves.
#[derive(Debug)]
pub(super) struct Crowd {
    /// Half of the requests.
    pub(super) requests_half: usize,
    /// Half of their bytes.
    pub(super) bytes_half: usize,
    /// Holdings of each share that has any.
    by_share: HashMap<u64, Part, KeyedState>,
}

/// Holdings of one share above the halves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Part {
    /// Requests begun above their half.
    pub(super) requests: usize,
    /// Bytes taken above their half.
    pub(super) bytes: usize,
}

impl Crowd {
    pub(super) fn new(serving: &Serving, seed: u64) -> Self {
        Self {
            requests_half: serving.requests_max / 2,
            bytes_half: serving.held_bytes_max / 2,
            by_share: HashMap::with_hasher(KeyedState::with_seed(seed)),
        }
    }

    pub(super) fn part(&self, share: u64) -> Part {
        self.by_share.get(&share).copied().unwrap_or_default()
    }

    #[cold]
    pub(super) fn change(&mut self, share: u64, change: impl FnOnce(&mut Part)) {
        let part = self.by_share.entry(share).or_default();
        change(part);
        if *part == Part::default() {
            self.by_share.remove(&share);
        }
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.by_share.is_empty()
    }
}

/// Counts of what each share has of something; one that has nothing takes no room.
#[derive(Debug)]
pub(crate) struct ShareCounts(HashMap<u64, usize, KeyedState>);

impl ShareCounts {
    /// Nobody has any, of at most so many.
    pub(crate) fn new(seed: u64, most: usize) -> Self {
        Self(HashMap::with_capacity_and_hasher(room(most), KeyedState::with_seed(seed)))
    }

    /// True if a share may have one more, where so many are free.
    pub(crate) fn has_room(&self, share: u64, free: usize) -> bool {
        let held = self.0.get(&share).copied().unwrap_or(0);
        free > 0 && may_have_more(held, free)
    }

    /// A share has one more.
    pub(crate) fn add(&mut self, share: u64) {
        *self.0.entry(share).or_default() += 1;
    }

    /// A share has one more, if it may, where so many are free; whether it may.
    pub(crate) fn try_add(&mut self, share: u64, free: usize) -> bool {
        let held = self.0.entry(share).or_default();
        let has_room = may_have_more(*held, free);
        *held += usize::from(has_room);
        has_room
    }

    /// A share has one less.
    pub(crate) fn remove(&mut self, share: u64) {
        if let Some(held) = self.0.get_mut(&share) {
            *held -= 1;
            if *held == 0 {
                self.0.remove(&share);
            }
        }
    }

    /// Shares that have any.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

/// True if a share that has so many may have one more, where so many are free.
#[inline]
pub(crate) fn may_have_more(held: usize, free: usize) -> bool {
    held <= SHARE.saturating_mul(free)
}

/// Places that one share may have for each that is free.
pub(crate) const SHARE: usize = 3;
