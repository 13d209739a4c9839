//! State that the switch keeps of a server, and its groups.
//!
//! | a server is | event | then |
//! |---|---|---|
//! | in service | it has left an original unanswered for `silent_ns`, and others have answered meanwhile | out |
//! | in service | it has, but nobody has answered | in service: its time begins anew |
//! | out | a trial's time comes | one request goes there |
//! | out | it answers | in service |
//! | any | it is drained, or removed | gets nothing, until it is resumed, or another is added under its id |
//!
//! A response names no request that was placed, and a clone may rightly have none. So what counts
//! is the oldest original since the last answer of any kind.
//!
//! Invariant: who has answered last is in service, unless it is drained.

use std::net::SocketAddr;

use super::config::SwitchConfig;
use super::{Elsewhere, SwitchServer};
use crate::node::Time;

/// A server.
#[derive(Debug)]
pub(super) struct Server {
    /// Address that requests go to and responses come from.
    pub(super) addr: SocketAddr,
    /// Requests that wait there, as it has reported last; 0 at the start.
    pub(super) load: u32,
    /// The first original since its last answer, or since nobody answered.
    asked_at: Option<Time>,
    /// Time at which it was taken out or last tried, while it is out.
    tried_at: Option<Time>,
    /// Reason why it is to get nothing, if any.
    pub(super) leave: Option<Leave>,
    /// Requests sent there.
    placed: u64,
    /// Responses from there.
    answered: u64,
}

/// Reason why a server is to get nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Leave {
    /// For now.
    Drained,
    /// Its id is free.
    Removed,
}

impl Server {
    pub(super) fn new(addr: SocketAddr) -> Self {
        Self { addr, load: 0, asked_at: None, tried_at: None, leave: None, placed: 0, answered: 0 }
    }

    pub(super) fn status(&self) -> SwitchServer {
        SwitchServer {
            addr: self.addr,
            load: self.load,
            is_silent: self.tried_at.is_some(),
            is_drained: self.leave.is_some(),
            is_removed: self.leave == Some(Leave::Removed),
            placed: self.placed,
            answered: self.answered,
        }
    }

    /// True if it gets requests now: one that is out gets one for each trial.
    pub(super) fn is_in_service(&self, now: Time, config: &SwitchConfig) -> bool {
        self.leave.is_none()
            && self.tried_at.is_none_or(|at| now >= at.saturating_add(config.trial_interval_ns))
    }

    pub(super) fn note_sent(&mut self, now: Time, is_original: bool) {
        self.placed += 1;
        if let Some(at) = &mut self.tried_at {
            *at = now;
        } else if is_original {
            self.asked_at.get_or_insert(now);
        }
    }

    /// It has answered; whether it was out.
    pub(super) fn note_answer(&mut self, load: u32) -> bool {
        self.load = load;
        self.answered += 1;
        self.asked_at = None;
        self.tried_at.take().is_some()
    }

    /// Takes note of what a data plane before the switch has placed there and heard of it since the
    /// last call; whether it was out.
    pub(super) fn note_elsewhere(&mut self, now: Time, heard: Elsewhere) -> bool {
        self.placed += u64::from(heard.asked);
        if heard.answered > 0 {
            self.answered += u64::from(heard.answered) - 1;
            return self.note_answer(heard.load);
        }
        if heard.asked > 0 && self.tried_at.is_none() {
            self.asked_at.get_or_insert(now);
        }
        false
    }

    /// Time at which it will have left an original unanswered for too long.
    pub(super) fn lost_at(&self, silent_ns: u64) -> Option<Time> {
        self.asked_at.map(|at| at.saturating_add(silent_ns))
    }

    /// Takes it out if it has, and anybody has answered meanwhile; true if it was so.
    pub(super) fn is_lost(&mut self, now: Time, answered_at: Time, silent_ns: u64) -> bool {
        let Some(asked_at) = self.asked_at.filter(|at| at.saturating_add(silent_ns) <= now) else {
            return false;
        };
        if answered_at <= asked_at {
            // Rather the network is silent than all servers at once.
            self.asked_at = Some(now);
            return false;
        }
        self.asked_at = None;
        self.tried_at = Some(now);
        true
    }
}

/// The pair of a group, as the published controller numbers them: the unordered pairs of `count`
/// servers in lexicographic order, each as (a, b) and then (b, a), from 1.
pub fn pair(group: u32, count: u32) -> Option<(usize, usize)> {
    let index = group.checked_sub(1)?;
    let (mut rank, is_turned) = (index / 2, index % 2 == 1);
    for first in 0..count {
        let pairs = count - 1 - first;
        if rank < pairs {
            let (first, second) = (first as usize, (first + 1 + rank) as usize);
            return Some(if is_turned { (second, first) } else { (first, second) });
        }
        rank -= pairs;
    }
    None
}
