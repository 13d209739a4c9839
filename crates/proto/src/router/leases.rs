//! Version 1 requests at one server: they have no placement, and are leases instead. Each counts
//! until a feedback of version 1 or its expiry takes the oldest away.

use std::collections::VecDeque;

use super::config::RouterConfig;
use crate::node::Time;

/// The leases of a server.
#[derive(Debug, Default)]
pub(super) struct Leases {
    /// Expiries of the requests placed, oldest first; at most `lease_len_max`.
    expiries: VecDeque<Time>,
    /// Leases expired since the last feedback.
    failures: u32,
    /// Time of the next trial request, while the server is silent.
    pub(super) trial_at: Time,
}

impl Leases {
    /// Requests placed and neither concluded nor expired.
    pub(super) fn len(&self) -> u32 {
        self.expiries.len() as u32
    }

    /// Failures in a row.
    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// Expiry of the oldest.
    pub(super) fn next_expiry(&self) -> Option<Time> {
        self.expiries.front().copied()
    }

    /// Places a request; true if the oldest lease had to give way.
    #[must_use]
    pub(super) fn add(&mut self, now: Time, config: &RouterConfig) -> bool {
        let gives_way = self.expiries.len() >= config.lease_len_max;
        if gives_way {
            self.expiries.pop_front();
        }
        self.expiries.push_back(now.saturating_add(config.lease_ns));
        gives_way
    }

    /// Takes a feedback; true if a lease was there for it.
    pub(super) fn conclude(&mut self) -> bool {
        self.expiries.pop_front().is_some()
    }

    /// The server has answered.
    pub(super) fn end_failures(&mut self) {
        self.failures = 0;
    }

    /// Ends the oldest lease if it has expired.
    pub(super) fn expire(&mut self, now: Time) -> bool {
        if self.expiries.front().is_none_or(|&expiry| expiry > now) {
            return false;
        }
        self.expiries.pop_front();
        self.failures = self.failures.saturating_add(1);
        true
    }
}
