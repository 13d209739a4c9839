//! Probes of one server: when the next is due, and for how long they may stay unanswered.
//!
//! A server's patience is `silent_ns`, or an eighth more than the longest that it has let a probe
//! wait of late: one whose handlers keep its thread, or whose machine pauses, is silent for longer
//! before it is given up. Probes follow traffic: the first that stays unanswered leaves a twelfth
//! of `silent_ns` after the last report of a server that has requests, so that it is out after 13
//! twelfths. It is `silent_ns_max` at most, and always where more than half of the servers would be
//! silent: then it is rather the router that does not hear.

use super::census::Crowd;
use super::config::{RouterConfig, Speaks};
use crate::node::Time;

/// The probes of a server.
#[derive(Debug)]
pub(super) struct Probes {
    /// Token that shows it that the router receives at its address; 0 before it has asked.
    token: u64,
    /// No probe has echoed it yet.
    is_token_new: bool,
    /// Time of the next probe in turn; never for version 1.
    turn_at: Time,
    /// Time of the last probe.
    sent_at: Option<Time>,
    /// Time of a probe out of turn, for the server has requests; `None` when it has none.
    stall_at: Option<Time>,
    /// Probes sent since feedback was last taken.
    unanswered: u32,
    /// Time of the first of them.
    asked_at: Option<Time>,
    /// Time at which they will have been unanswered for too long.
    silence_at: Time,
    /// An eighth more than the longest wait for an answer, which decays within seconds,
    /// nanoseconds.
    patience_ns: u64,
    /// Time of the last answer to a probe.
    answered_at: Time,
}

/// Cause of a probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ProbeCause {
    /// It is its turn.
    Turn,
    /// The server has requests, and gives no feedback.
    Stall,
}

impl Probes {
    /// The first is due at once.
    pub(super) fn new(now: Time, speaks: Speaks) -> Self {
        Self {
            token: 0,
            is_token_new: false,
            turn_at: if speaks == Speaks::V1 { Time::MAX } else { now },
            sent_at: None,
            stall_at: None,
            unanswered: 0,
            asked_at: None,
            silence_at: Time::MAX,
            patience_ns: 0,
            answered_at: now,
        }
    }

    /// The token that probes echo; 0 before the server has told one.
    pub(super) fn token(&self) -> u64 {
        self.token
    }

    /// The server tells a token that probes are to echo: one goes out at once, if it is news.
    pub(super) fn learn_token(&mut self, now: Time, token: u64) {
        if self.token != token {
            (self.token, self.is_token_new, self.turn_at) = (token, true, now);
        }
    }

    /// A probe is to go out at once.
    pub(super) fn ask(&mut self, now: Time) {
        self.turn_at = self.turn_at.min(now);
    }

    /// A probe is to go out; not right behind the last one: a server that never learns would be
    /// probed for each answer to a probe.
    pub(super) fn ask_again(&mut self, now: Time, config: &RouterConfig) {
        let soonest = self.sent_at.map_or(now, |at| at.saturating_add(config.stall_probe_ns));
        self.turn_at = self.turn_at.min(soonest.max(now));
    }

    /// True if no answer is on its way, and the last probe is not of a moment ago.
    pub(super) fn are_quiet(&self, now: Time, config: &RouterConfig) -> bool {
        let is_soon = |at: Time| now < at.saturating_add(config.stall_probe_ns);
        self.unanswered == 0 && !self.sent_at.is_some_and(is_soon)
    }

    /// The server is in service from now on, and probed in turn.
    pub(super) fn begin_turns(&mut self, now: Time, config: &RouterConfig) {
        self.turn_at = now.saturating_add(config.probe_interval_ns);
    }

    /// The cause, if a probe is due.
    pub(super) fn due(&self, now: Time) -> Option<ProbeCause> {
        if self.stall_at.is_some_and(|at| at <= now) {
            return Some(ProbeCause::Stall);
        }
        (self.turn_at <= now).then_some(ProbeCause::Turn)
    }

    /// A probe goes out, and the next in turn after `interval_ns`. Returns true if feedback that
    /// comes will be of this probe: of those before, the server `has_answered` all, or none whose
    /// token it did not know.
    pub(super) fn note_sent(&mut self, now: Time, interval_ns: u64, has_answered: bool) -> bool {
        self.turn_at = now.saturating_add(interval_ns);
        self.sent_at = Some(now);
        self.stall_at = None;
        self.unanswered = self.unanswered.saturating_add(1);
        self.asked_at.get_or_insert(now);
        std::mem::take(&mut self.is_token_new) || self.unanswered == 1 && has_answered
    }

    /// A probe has gone out to a server that is not silent: begins the time after which it is, if
    /// it is the last of so many.
    pub(super) fn begin_silence(&mut self, now: Time, config: &RouterConfig) {
        // Equal, and not above: probes that follow do not put it off.
        if self.unanswered == UNANSWERED_MIN {
            // The last of them is given time too.
            let patience_end =
                self.asked_at.unwrap_or(now).saturating_add(self.patience_ns(config));
            self.silence_at = patience_end.max(now.saturating_add(config.stall_probe_ns));
        }
    }

    /// Time from a probe to the next of a server that has never answered: requests may wait for the
    /// first answer, so its probes come quickly at first.
    pub(super) fn first_interval_ns(&self, config: &RouterConfig) -> u64 {
        config.stall_probe_ns.saturating_mul(1 << self.unanswered.min(16))
    }

    /// The server is heard: learns how long it let the first probe wait that nothing came for. Not
    /// of one that has restarted, or was away for longer than any is given: that was no pause.
    pub(super) fn note_answer(&mut self, now: Time, is_restart: bool, config: &RouterConfig) {
        self.unanswered = 0;
        self.silence_at = Time::MAX;
        if let Some(asked_at) = self.asked_at.take() {
            // By time, since busy servers answer often: half of it in 3 s.
            let since_ns = now.saturating_sub(std::mem::replace(&mut self.answered_at, now));
            let lost_ns = (self.patience_ns >> 16) * (since_ns.min(PATIENCE_DECAY_NS) >> 16);
            let decayed_ns = self.patience_ns.saturating_sub(lost_ns);
            let waited_ns = now.saturating_sub(asked_at);
            if is_restart || waited_ns > config.silent_ns_max {
                self.patience_ns = decayed_ns;
                return;
            }
            self.patience_ns = decayed_ns.max(waited_ns.saturating_add(waited_ns / 8));
        }
    }

    /// True if they have stayed unanswered for too long. The number of probes counts besides the
    /// time, lest a pause of the router itself looks like the silence of all servers.
    pub(super) fn are_in_vain(&mut self, now: Time, crowd: Crowd, config: &RouterConfig) -> bool {
        if self.silence_at > now {
            return false;
        }
        let longest_end = self.asked_at.unwrap_or(now).saturating_add(config.silent_ns_max);
        if crowd == Crowd::IsSilent && now < longest_end {
            // Others may answer before.
            let soon = now.saturating_add(self.patience_ns(config) / 4 + 1);
            self.silence_at = longest_end.min(soon);
            return false;
        }
        self.stall_at = None;
        self.silence_at = Time::MAX;
        true
    }

    /// Longest time that they may stay unanswered while other servers answer.
    pub(super) fn patience_ns(&self, config: &RouterConfig) -> u64 {
        self.patience_ns.max(config.silent_ns).min(config.silent_ns_max)
    }

    /// Starts the time to a probe out of turn, unless that ends sooner already.
    pub(super) fn watch(&mut self, at: Time) {
        self.stall_at = Some(self.stall_at.map_or(at, |before| before.min(at)));
    }

    /// Stops the time to a probe out of turn.
    pub(super) fn unwatch(&mut self) {
        self.stall_at = None;
    }

    /// Time of what is due next; [`Time::MAX`] for never.
    pub(super) fn next_event(&self) -> Time {
        self.stall_at.unwrap_or(Time::MAX).min(self.turn_at).min(self.silence_at)
    }
}

/// Time in which a server's patience decays, about, nanoseconds.
const PATIENCE_DECAY_NS: u64 = 1 << 32;

/// Fewer probes without an answer say nothing: each may have been lost.
const UNANSWERED_MIN: u32 = 3;

#[cfg(test)]
impl Probes {
    /// Time of a probe out of turn.
    pub(super) fn stall_at(&self) -> Option<Time> {
        self.stall_at
    }

    /// Time at which the server is silent.
    pub(super) fn silence_at(&self) -> Time {
        self.silence_at
    }

    /// None has been sent, as of a server that a data plane before the router hears.
    pub(super) fn clear_sent(&mut self) {
        self.sent_at = None;
    }
}
