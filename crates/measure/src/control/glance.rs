//! Reasons against a measurement while it is still being made, from what is cheap to know.
//!
//! A look of the [`Controller`](super::Controller) takes intervals and tests over all samples; a
//! glance takes counts and two percentiles, and judges them by the same limits. It decides nothing.
//!
//! Invariant: a glance says of a measurement that ends there nothing that the verdict would not
//! say.

use super::totals::{Totals, lateness};
use crate::outcome::Counts;
use crate::verdict::{Reason, Verdict};

/// State of a measurement that is being made.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Glance {
    /// Duration of the measurement so far, ns.
    pub measured_ns: u64,
    /// Counts of its requests by outcome.
    pub counts: Counts,
    /// Number of replies that say that the server did not do what was asked.
    pub errors: u64,
    /// Number of replies that say that a key is not there.
    pub misses: u64,
    /// Requests that left meanwhile, of whichever time.
    pub sent: u64,
    /// Replies that came meanwhile, to requests of whichever time.
    pub replied: u64,
    /// The percentile from the intended send, ns; `None` where the samples do not support it.
    pub intended_ns: Option<f64>,
    /// The percentile from the actual send, ns.
    pub actual_ns: Option<f64>,
}

impl Glance {
    /// Verdict so far, of a run that is to know the percentile `p`, a share in (0, 1); the
    /// weightiest reason first.
    pub fn verdict(&self, p: f64) -> Verdict {
        let totals = Totals {
            measured_ns: self.measured_ns,
            counts: self.counts,
            errors: self.errors,
            misses: self.misses,
            offered: self.counts.sent as f64,
            sent: self.sent as f64,
            replied: self.replied as f64,
            ..Totals::default()
        };
        let mut reasons: Vec<Reason> =
            totals.load_fault().into_iter().chain(totals.failures_of_tail(p)).collect();
        reasons.extend(totals.missing());
        reasons.extend(
            self.intended_ns
                .zip(self.actual_ns)
                .and_then(|(intended_ns, actual_ns)| lateness(p, intended_ns, actual_ns)),
        );
        Verdict::from_reasons(reasons)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A second at 1,000 requests/s with a p99 of 100 us.
    const GOOD: Glance = Glance {
        measured_ns: 1_000_000_000,
        counts: Counts { sent: 1_000, replied: 1_000, lost: 0, refused: 0, timeout: 0 },
        errors: 0,
        misses: 0,
        sent: 1_000,
        replied: 1_000,
        intended_ns: Some(100_000.0),
        actual_ns: Some(99_000.0),
    };

    fn check(glance: Glance, expected: &[&str]) {
        let verdict = glance.verdict(0.99);
        assert_eq!(
            verdict.reasons().iter().map(Reason::as_ref).collect::<Vec<_>>(),
            expected,
            "{verdict}"
        );
    }

    #[test]
    fn a_good_run_has_nothing_against_it() {
        check(GOOD, &[]);
    }

    #[test]
    fn before_the_first_request_nothing_speaks_against_it() {
        check(Glance::default(), &[]);
    }

    #[test]
    fn a_client_that_does_not_send_is_seen() {
        check(Glance { sent: 980, replied: 980, ..GOOD }, &["rate_not_reached"]);
    }

    #[test]
    fn a_server_that_does_not_keep_up_is_seen() {
        check(Glance { replied: 900, ..GOOD }, &["overloaded"]);
    }

    /// Up to a tenth of the one percent beyond a p99 may be missing.
    #[test]
    fn losses_count_where_they_move_the_percentile() {
        let losing =
            |lost| Glance { counts: Counts { replied: 1_000 - lost, lost, ..GOOD.counts }, ..GOOD };
        check(losing(1), &[]);
        check(losing(2), &["unanswered"]);
        check(Glance { errors: 2, ..GOOD }, &["errors"]);
        let both = Counts { replied: 999, lost: 1, ..GOOD.counts };
        check(Glance { counts: both, errors: 1, ..GOOD }, &["errors", "unanswered"]);
    }

    #[test]
    fn a_store_that_has_not_what_is_asked_for_is_seen() {
        check(Glance { misses: 500, ..GOOD }, &[]);
        check(Glance { misses: 501, ..GOOD }, &["misses"]);
    }

    #[test]
    fn a_client_that_sends_late_is_seen_once_the_percentile_is_known() {
        let late = Glance { intended_ns: Some(150_000.0), ..GOOD };
        check(late, &["client_late"]);
        check(Glance { intended_ns: None, ..late }, &[]);
    }
}
