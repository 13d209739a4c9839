//! Workers of servers: what `jbsq:auto` must let each server have besides what hides the way there.
//!
//! | a report says | then the server has |
//! |---|---|
//! | requests wait | as many workers as run: they are counted |
//! | none waits, and more run than it was known to have | at least as many workers as run, and maybe more |
//!
//! While there may be more the bound is that of twice as many and one. Where they are counted, a
//! bound of as many as they are shows no more: so one of [`UNSEEN_MAX`] held requests goes past it.
//!
//! One bound holds for all servers, that of the one with the most workers of those that take
//! requests: a lower one would leave workers idle while requests are held.

use super::Router;
use super::busy::Rate;
use super::fleet::Fleet;
use super::lane::Lane;
use super::server::{Server, Shown};
use crate::node::Time;
use crate::policy::{Basis, BoundEstimator, HeldBounds, WorkerId};
use crate::work;

impl Server {
    /// Learns from the latest report; true if its workers are others than before.
    fn learn_workers(&mut self) -> bool {
        // A router's report is of all servers that it stands for, and a bound of each unit of
        // weight.
        let weight = u32::from(self.rank.weight.get());
        let reported = (self.reported.requests / self.members()).div_ceil(weight);
        let waiting = (self.reported.waiting / self.members()).div_ceil(weight);
        self.crew.learn(reported.saturating_sub(waiting), self.reported.waiting > 0)
    }
}

/// The bound of `jbsq:auto`, which follows from what is measured.
#[derive(Debug)]
pub(super) struct AutoBound {
    /// Service times, and the way to the servers.
    estimator: BoundEstimator,
    /// The servers that take requests, as far as reports show.
    pool: Pool,
    /// The bounds by what is held, once they follow from measurements.
    held: Option<HeldBounds>,
    /// Held requests placed since a report has shown that some wait at a server.
    unseen: u32,
}

/// A bound for the schedulers.
enum Derived<'a> {
    /// One, whatever is held.
    One(u32),
    /// By what is held.
    ByHeld(&'a mut HeldBounds),
}

impl AutoBound {
    /// Nothing has been measured.
    pub(super) fn new() -> Self {
        let (estimator, pool) = (BoundEstimator::new(), Pool::default());
        Self { estimator, pool, held: None, unseen: 0 }
    }

    /// True if the bound depends on what is held.
    pub(super) fn is_by_held(&self) -> bool {
        self.held.is_some()
    }

    /// A held request is placed.
    pub(super) fn note_placed(&mut self) {
        self.unseen = self.unseen.saturating_add(1);
    }

    /// Learns what a feedback has shown; true if it was anything.
    pub(super) fn learn(&mut self, shown: Shown) -> bool {
        let Shown { delay_ns, service_ns, busy, .. } = shown;
        let way_ns = busy.and_then(|rate| rate.delay_ns);
        delay_ns.into_iter().for_each(|delay_ns| self.estimator.sample_delay(delay_ns));
        service_ns.into_iter().for_each(|service_ns| self.estimator.sample_service(service_ns));
        if let Some(Rate { time_ns, count, .. }) = busy {
            self.estimator.sample_interval(time_ns, count);
        }
        way_ns.into_iter().for_each(|delay_ns| self.estimator.sample_delay(delay_ns));
        delay_ns.is_some() || service_ns.is_some() || busy.is_some()
    }

    /// Looks at all servers again; true if they are others, or have other workers.
    fn recount(&mut self, fleet: &Fleet) -> bool {
        let mut pool = Pool::default();
        for server in fleet.iter().filter(|server| server.is_able()) {
            work::step(1);
            pool.servers += 1;
            pool.units = pool.units.saturating_add(server.units());
            pool.workers = pool.workers.max(server.crew.seen);
            pool.assumed_workers = pool.assumed_workers.max(server.crew.assumed());
        }
        std::mem::replace(&mut self.pool, pool) != pool
    }

    /// The bound that follows; `None` if it is as before.
    fn derive(&mut self) -> Option<Derived<'_>> {
        let is_alone = self.pool.servers == 1;
        let Some(way) = self.estimator.way().filter(|_| !is_alone) else {
            self.held = None;
            let Self { estimator, pool, .. } = self;
            let bound = if is_alone { estimator.bound_alone() } else { estimator.bound() };
            return Some(Derived::One(bound + pool.workers.max(1) - 1));
        };
        let basis = Basis {
            servers: self.pool.units.max(1),
            workers: self.pool.assumed_workers.max(1),
            way,
            spread: self.estimator.spread(),
        };
        let is_new = match &mut self.held {
            Some(bounds) => bounds.update(basis),
            none => {
                *none = Some(HeldBounds::new(basis));
                true
            }
        };
        self.held.as_mut().filter(|_| is_new).map(Derived::ByHeld)
    }
}

impl Router {
    /// A server has reported: derives the bound anew, if that follows from what is measured.
    pub(super) fn learn_workers(&mut self, slot: WorkerId) {
        let Some(auto) = &mut self.auto else { return };
        let server = &mut self.fleet[slot];
        if server.reported.waiting > 0 {
            auto.unseen = 0;
        }
        if server.learn_workers() {
            self.recount_workers();
        }
    }

    /// A server has other workers than before, or others take requests: derives the bound anew.
    pub(super) fn recount_workers(&mut self) {
        if self.auto.as_mut().is_some_and(|auto| auto.recount(&self.fleet)) {
            self.set_bound();
        }
    }

    /// Sets the bound that follows from what is measured.
    pub(super) fn set_bound(&mut self) {
        match self.auto.as_mut().and_then(AutoBound::derive) {
            None => {}
            Some(Derived::One(bound)) => {
                self.queues.set_bound(bound);
                self.shared.set_bound(bound);
            }
            Some(Derived::ByHeld(bounds)) => {
                work::step(DERIVE_STEPS);
                self.queues.set_held_bounds(bounds);
                // The data plane places where nothing is held.
                self.shared.set_bound(bounds.at(1));
            }
        }
    }

    /// Nothing that is held may go: from time to time one goes past the bound, and a probe behind
    /// it, whose answer tells whether it waits.
    pub(super) fn look_for_workers(&mut self, now: Time) {
        let Some(auto) = &mut self.auto else { return };
        let queue = &mut self.queues[Lane::Extension];
        let is_due = auto.unseen >= UNSEEN_MAX && queue.queue_len() > 0;
        if !is_due || self.outbox.is_full() {
            return;
        }
        let Some((workers, request)) = queue.poll_placed_past(now, self.draws.word()) else {
            return;
        };
        auto.unseen = 0;
        let slot = workers.first();
        self.queues.hold_times.record(now.saturating_sub(request.arrival.arrived_at));
        self.forward_to_each(now, workers, request);
        self.fleet[slot].ask(now);
        self.refresh(now, slot);
    }
}

/// Steps that bounds which are derived anew count for.
const DERIVE_STEPS: usize = 64;

/// The servers that take requests, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Pool {
    /// Number of servers.
    servers: u32,
    /// Each counted as often as it has a bound.
    units: u32,
    /// Workers that have been seen of the one that has most.
    workers: u32,
    /// Workers that one is taken to have at most.
    assumed_workers: u32,
}

/// Held requests that are placed before one is placed to find whether it waits: so few that their
/// waits are not in a p99.
const UNSEEN_MAX: u32 = 256;

#[cfg(test)]
mod tests;
