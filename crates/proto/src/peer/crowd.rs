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
use crate::keyed::KeyedState;

/// Holdings of the shares, of what was taken above the halves.
#[derive(Debug)]
pub(super) struct Crowd {
    /// Half of the requests.
    pub(super) requests_half: usize,
    /// Half of their bytes.
    pub(super) bytes_half: usize,
    /// Of each share that has any.
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

/// Places that one network may have for each that is free.
pub(crate) const SHARE: usize = 3;
