//! A leg of a run, gathered from the slices of load threads.

use crate::app::{ErrorCounts, Tally};
use crate::control::Window;
use crate::load::Rates;
use crate::outcome::Counts;
use crate::slices::Slice;
use crate::statistics::arrival_fit::ArrivalFit;
use crate::statistics::series::{Timed, merge};

/// Record of a leg until it is over.
#[derive(Clone, Debug, Default)]
pub struct LegRecord {
    parts: Vec<Vec<Timed>>,
    counts: Counts,
    tally: Tally,
    /// Errors by what they say.
    error_counts: ErrorCounts,
    /// Requests that left, and replies that came, while the leg lasted.
    sent: u64,
    replied: u64,
    arrivals: Vec<ArrivalFit>,
}

impl LegRecord {
    /// Takes a slice of the leg. Its latencies are left out where they are not to be counted.
    pub fn take(&mut self, slice: Slice, is_counted: bool) {
        self.counts.merge(&slice.counts);
        self.tally.merge(&slice.tally);
        slice.errors().for_each(|(kind, code)| self.error_counts.add(kind, code, 1));
        self.sent += slice.sent_meanwhile;
        self.replied += slice.replied_meanwhile;
        if is_counted {
            self.parts.push(slice.samples);
        }
    }

    /// Hands out what is gathered of latencies so far, in the order of their intended sends: for a
    /// leg whose samples are not to wait in memory for its end. All that is taken later must be of
    /// later slices.
    pub fn drain(&mut self) -> Vec<Timed> {
        merge(std::mem::take(&mut self.parts))
    }

    /// Notes how the gaps between the sends of an agent fit.
    pub fn note_arrivals(&mut self, fit: Option<ArrivalFit>) {
        self.arrivals.extend(fit);
    }

    /// Window of the leg, which lasted for `duration_ns`.
    pub fn finish(self, duration_ns: u64) -> Window {
        let per_s = |count: u64| count as f64 * 1e9 / duration_ns.max(1) as f64;
        Window {
            duration_ns,
            samples: merge(self.parts),
            errors: self.tally.errors.iter().sum(),
            error_counts: self.error_counts,
            misses: self.tally.misses,
            rates: Rates {
                offered_per_s: per_s(self.counts.sent),
                sent_per_s: per_s(self.sent),
                replied_per_s: per_s(self.replied),
            },
            counts: self.counts,
            arrivals: self.arrivals,
            ..Window::default()
        }
    }
}
