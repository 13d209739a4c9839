//! Sums over the windows of a measurement, and the faults of the load that show in them.

use super::Window;
use crate::app::ErrorCounts;
use crate::load::Rates;
use crate::outcome::Counts;
use crate::statistics::arrival_fit::ArrivalFit;
use crate::verdict::Reason;

/// Sums over the windows of a measurement.
#[derive(Clone, Debug, Default)]
pub(super) struct Totals {
    pub(super) measured_ns: u64,
    pub(super) counts: Counts,
    pub(super) errors: u64,
    /// Errors by what they say.
    pub(super) error_counts: ErrorCounts,
    /// Replies that a key is not there.
    pub(super) misses: u64,
    /// Requests offered, sent and replied to, from the rates.
    pub(super) offered: f64,
    pub(super) sent: f64,
    pub(super) replied: f64,
    pub(super) arrivals: Option<ArrivalFit>,
    pub(super) agents_lost: Vec<String>,
}

impl Totals {
    pub(super) fn add(&mut self, window: &Window) {
        let Rates { offered_per_s, sent_per_s, replied_per_s } = window.rates;
        let seconds = window.duration_ns as f64 / 1e9;
        self.measured_ns += window.duration_ns;
        self.counts.merge(&window.counts);
        self.errors += window.errors;
        self.error_counts.merge(&window.error_counts);
        self.misses += window.misses;
        self.offered += offered_per_s * seconds;
        self.sent += sent_per_s * seconds;
        self.replied += replied_per_s * seconds;
        self.arrivals =
            window.arrivals.iter().copied().chain(self.arrivals).reduce(ArrivalFit::worse);
    }

    /// Fault of the gaps between sends, if they were not those asked for.
    pub(super) fn arrival_fault(&self) -> Option<Reason> {
        let wrong = self.arrivals.filter(ArrivalFit::is_wrong);
        wrong.map(|fit| Reason::ArrivalsWrong { fault: fit.fault })
    }

    fn failures(&self) -> u64 {
        let Counts { lost, refused, timeout, .. } = self.counts;
        lost + refused + timeout + self.errors
    }

    /// Fault of the load, if it was not the one asked for, or more than was answered.
    pub(super) fn load_fault(&self) -> Option<Reason> {
        let Self { offered, sent, replied, measured_ns, .. } = *self;
        let per_s = |count: f64| count * 1e9 / measured_ns.max(1) as f64;
        if sent < offered * RATE_SHARE_MIN {
            return Some(Reason::RateNotReached {
                offered_per_s: per_s(offered),
                sent_per_s: per_s(sent),
            });
        }
        let answered = replied + self.failures() as f64;
        (answered < sent * ANSWERED_SHARE_MIN)
            .then(|| Reason::Overloaded { sent_per_s: per_s(sent), replied_per_s: per_s(replied) })
    }

    /// Requests without a reply and those that were answered with an error, where they may move the
    /// percentile `p`.
    pub(super) fn failures_of_tail(&self, p: f64) -> Vec<Reason> {
        if self.share(self.failures()) <= (1.0 - p) * FAILED_OF_TAIL {
            return Vec::new();
        }
        self.answered_with_errors().into_iter().chain(self.unanswered()).collect()
    }

    /// Fault of the store, if most replies say that a key is not there.
    pub(super) fn missing(&self) -> Option<Reason> {
        let (misses, replied) = (self.misses, self.counts.replied);
        let are_most = misses as f64 > replied as f64 * MISSES_SHARE_MAX;
        are_most.then_some(Reason::Misses { misses, replied })
    }

    fn share(&self, count: u64) -> f64 {
        count as f64 / self.counts.sent.max(1) as f64
    }

    pub(super) fn unanswered(&self) -> Option<Reason> {
        let Counts { lost, refused, timeout, .. } = self.counts;
        let named = [("lost", lost), ("timed out", timeout), ("refused", refused)];
        let outcomes: Vec<_> = named.into_iter().filter(|&(_, count)| count > 0).collect();
        let share = self.share(lost + refused + timeout);
        (!outcomes.is_empty()).then_some(Reason::Unanswered { outcomes, share })
    }

    fn answered_with_errors(&self) -> Option<Reason> {
        if self.errors == 0 {
            return None;
        }
        let mut errors = self.error_counts.named();
        if errors.is_empty() {
            errors.push(("error".to_owned(), self.errors));
        }
        Some(Reason::Errors { errors, share: self.share(self.errors) })
    }
}

/// Fault of the client, if its own delay is a part of the percentile `p`, by that percentile's
/// values from the intended and from the actual send.
pub(super) fn lateness(p: f64, intended_ns: f64, actual_ns: f64) -> Option<Reason> {
    let is_late = intended_ns - actual_ns > (actual_ns * LATE_SHARE).max(LATE_MIN_NS);
    is_late.then_some(Reason::ClientLate { p, intended_ns, actual_ns })
}

/// The clocks have parted where the percentile from the intended send exceeds the other by this
/// share of it, and by more than what timestamps differ by.
const LATE_SHARE: f64 = 0.1;
const LATE_MIN_NS: f64 = 2_000.0;
/// Least share of the requests offered that must leave.
const RATE_SHARE_MIN: f64 = 0.99;
/// Least share of those that must be answered in time; a queue that is long at the end of a run
/// leaves some out.
const ANSWERED_SHARE_MIN: f64 = 0.95;
/// Requests without a reply have no latency, and an error is no answer. Up to this share of those
/// beyond the percentile they do not move it.
const FAILED_OF_TAIL: f64 = 0.1;
/// A cache misses some; a store of which most keys are missing was not filled.
const MISSES_SHARE_MAX: f64 = 0.5;
