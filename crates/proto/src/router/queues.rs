//! The schedulers of a router: one for each generation of servers, which number those alike.

use std::ops::{Index, IndexMut};

use super::arrival::Request;
use super::config::RouterConfig;
use super::lane::Lane;
use crate::histogram::Histogram;
use crate::node::Time;
use crate::policy::{HeldBounds, WorkerId};
use crate::scheduler::overload::OverloadConfig;
use crate::scheduler::{Rank, Scheduler, Service};

/// One scheduler for each [`Lane`], with a worker for each server's slot.
#[derive(Debug)]
pub(super) struct Queues {
    /// The schedulers.
    lanes: [Scheduler<Request>; 2],
    /// Time at which held requests are to be looked at again, because the last look was cut short.
    pub(super) pump_at: Option<Time>,
    /// Times for which placed requests were held.
    pub(super) hold_times: Histogram,
}

impl Queues {
    /// No workers, and nothing held.
    pub(super) fn new(config: &RouterConfig) -> Self {
        // Another seed than that of the router's own draws.
        let overload = OverloadConfig { seed: !config.seed, ..config.overload };
        let scheduler =
            || Scheduler::new(config.policy.build(), config.queue_len_max).with_overload(overload);
        Self { lanes: [scheduler(), scheduler()], pump_at: None, hold_times: Histogram::default() }
    }

    /// Requests held.
    pub(super) fn len(&self) -> usize {
        self.lanes.iter().map(Scheduler::queue_len).sum()
    }

    /// The slot of a server that takes requests of `lane`, the same in both.
    pub(super) fn add_worker(&mut self, lane: Lane) -> WorkerId {
        let worker = self[lane].add_worker();
        let shadow = self[lane.other()].add_worker();
        assert_eq!(worker, shadow, "the schedulers number the servers alike");
        // It only keeps the numbers alike, and gets nothing there.
        self[lane.other()].set_in_service(shadow, Service::Out);
        worker
    }

    pub(super) fn remove_worker(&mut self, worker: WorkerId) {
        self.lanes.iter_mut().for_each(|lane| lane.remove_worker(worker));
    }

    pub(super) fn set_ranks(&mut self, ranks: &[(WorkerId, Rank)]) {
        self.lanes.iter_mut().for_each(|lane| lane.set_ranks(ranks));
    }

    pub(super) fn set_bound(&mut self, bound: u32) {
        self.lanes.iter_mut().for_each(|lane| lane.set_bound(bound));
    }

    pub(super) fn set_held_bounds(&mut self, bounds: &HeldBounds) {
        self.lanes.iter_mut().for_each(|lane| lane.set_held_bounds(bounds));
    }

    pub(super) fn set_queue_len_max(&mut self, queue_len_max: usize) {
        self.lanes.iter_mut().for_each(|lane| lane.set_queue_len_max(queue_len_max));
    }

    /// Time at which the first of what is held expires.
    pub(super) fn next_expiry(&self) -> Option<Time> {
        self.lanes.iter().filter_map(Scheduler::next_expiry).min()
    }
}

impl Index<Lane> for Queues {
    type Output = Scheduler<Request>;

    #[inline]
    fn index(&self, lane: Lane) -> &Scheduler<Request> {
        &self.lanes[lane as usize]
    }
}

impl IndexMut<Lane> for Queues {
    #[inline]
    fn index_mut(&mut self, lane: Lane) -> &mut Scheduler<Request> {
        &mut self.lanes[lane as usize]
    }
}
