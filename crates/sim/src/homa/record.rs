//! Arrivals of counted messages: those of the load by their sizes, those of an incast together.
//!
//! Invariant: an incast counts once, when the last of it is there.

use std::collections::BTreeMap;

use super::load::Message;
use super::slowdown::{Bucket, Slowdowns};
use super::{Experiment, paper};

/// Messages that have arrived so far.
#[derive(Debug)]
pub(super) struct Record<'a> {
    experiment: &'a Experiment,
    /// Slowdowns of the load.
    pub(super) slowdowns: Slowdowns,
    /// Slowdowns of incasts, in one bucket.
    incasts: Slowdowns,
    /// Incasts that have not arrived: messages of each that have, and the longest time that one
    /// took, ps.
    arriving: BTreeMap<u32, (u32, u64)>,
    /// Messages of both.
    pub(super) count: u64,
}

impl<'a> Record<'a> {
    pub(super) fn new(experiment: &'a Experiment) -> Self {
        Self {
            experiment,
            slowdowns: Slowdowns::new(&experiment.buckets),
            incasts: Slowdowns::new(&[]),
            arriving: BTreeMap::new(),
            count: 0,
        }
    }

    /// A counted message has arrived, `took_ps` after it was due.
    pub(super) fn note(&mut self, message: &Message, took_ps: u64) {
        self.count += 1;
        let ideal_ps = self.experiment.ideal_ps(message);
        let (Some(number), Some(incast)) = (message.incast, self.experiment.incast) else {
            return self.slowdowns.record(message.len, took_ps, ideal_ps);
        };
        let (arrived, longest_ps) = self.arriving.entry(number).or_default();
        (*arrived, *longest_ps) = (*arrived + 1, took_ps.max(*longest_ps));
        if *arrived == incast.senders {
            let others_ps = u64::from(incast.senders - 1) * paper::ideal_link_ps(incast.len);
            self.incasts.record(incast.len, *longest_ps, ideal_ps + others_ps);
            self.arriving.remove(&number);
        }
    }

    /// The incasts that have arrived; `None` where there are to be none.
    pub(super) fn incasts(&self) -> Option<Bucket> {
        self.experiment.incast.map(|_| self.incasts.all())
    }
}
