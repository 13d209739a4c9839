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
use super::arrival::Lane;
use super::server::Server;
use crate::node::Time;
use crate::policy::{Basis, HeldBounds};
use crate::work;

impl Server {
    /// Learns from the latest report; true if its workers are others than before.
    fn learn_workers(&mut self) -> bool {
        // A router's report is of all servers that it stands for, and a bound of each unit of
        // weight.
        let weight = u32::from(self.rank.weight.get());
        let reported = (self.reported / self.members()).div_ceil(weight);
        let running = reported.saturating_sub((self.waiting / self.members()).div_ceil(weight));
        let before = (self.workers, self.is_counted);
        if self.waiting > 0 {
            (self.workers, self.is_counted) = (running.clamp(1, WORKERS_MAX), true);
        } else if running > self.workers {
            (self.workers, self.is_counted) = (running.min(WORKERS_MAX), running >= WORKERS_MAX);
        }
        before != (self.workers, self.is_counted)
    }

    /// Workers that it is taken to have: while there may be more, twice as many as have been seen
    /// and one, so that some wait where there are not.
    fn assumed_workers(&self) -> u32 {
        if self.is_counted { self.workers } else { (2 * self.workers + 1).min(WORKERS_MAX) }
    }
}

impl Router {
    /// A server has reported: derives the bound anew, if that follows from what is measured.
    pub(super) fn learn_workers(&mut self, slot: u16) {
        if self.estimator.is_none() {
            return;
        }
        let Some(server) = self.servers[usize::from(slot)].as_mut() else { return };
        if server.waiting > 0 {
            self.unseen = 0;
        }
        if server.learn_workers() {
            self.recount_workers();
        }
    }

    /// A server has other workers than before, or others take requests: derives the bound anew.
    pub(super) fn recount_workers(&mut self) {
        if self.estimator.is_none() {
            return;
        }
        let servers = self.servers.iter().flatten().filter(|server| server.is_able());
        let mut pool = Pool::default();
        for server in servers {
            work::step(1);
            pool.servers += 1;
            pool.units = pool.units.saturating_add(server.units());
            pool.workers = pool.workers.max(server.workers);
            pool.assumed_workers = pool.assumed_workers.max(server.assumed_workers());
        }
        if std::mem::replace(&mut self.pool, pool) != pool {
            self.set_bound();
        }
    }

    /// Sets the bound that follows from what is measured.
    pub(super) fn set_bound(&mut self) {
        let Some(estimator) = &self.estimator else { return };
        let is_alone = self.pool.servers == 1;
        let Some(way) = estimator.way().filter(|_| !is_alone) else {
            self.held_bounds = None;
            let bound = if is_alone { estimator.bound_alone() } else { estimator.bound() };
            return self.use_bound(bound + self.pool.workers.max(1) - 1);
        };
        let basis = Basis {
            servers: self.pool.units.max(1),
            workers: self.pool.assumed_workers.max(1),
            way,
            spread: estimator.spread(),
        };
        let is_new = match &mut self.held_bounds {
            Some(bounds) => bounds.update(basis),
            none => {
                *none = Some(HeldBounds::new(basis));
                true
            }
        };
        let Some(bounds) = self.held_bounds.as_mut().filter(|_| is_new) else { return };
        work::step(DERIVE_STEPS);
        for scheduler in &mut self.schedulers {
            scheduler.set_held_bounds(bounds);
        }
        // The data plane places where nothing is held.
        self.shared.set_bound(bounds.at(1));
    }

    fn use_bound(&mut self, bound: u32) {
        for scheduler in &mut self.schedulers {
            scheduler.set_bound(bound);
        }
        self.shared.set_bound(bound);
    }

    /// Nothing that is held may go: from time to time one goes past the bound, and a probe behind
    /// it, whose answer tells whether it waits.
    pub(super) fn look_for_workers(&mut self, now: Time) {
        let lane = Lane::Extension as usize;
        let is_due = self.unseen >= UNSEEN_MAX && self.schedulers[lane].queue_len() > 0;
        if !is_due || self.outbox.is_full() {
            return;
        }
        let placed = self.schedulers[lane].poll_placed_past(now, self.draws.word());
        let Some((workers, request)) = placed else { return };
        self.unseen = 0;
        let slot = workers.first().0 as u16;
        self.hold_times.record(now.saturating_sub(request.arrival.arrived_at));
        self.forward_to_each(now, workers, request);
        if let Some(server) = self.servers[usize::from(slot)].as_mut() {
            server.ask(now);
            self.refresh(now, slot);
        }
    }
}

/// Steps that bounds which are derived anew count for.
const DERIVE_STEPS: usize = 64;

/// The servers that take requests, all together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Pool {
    /// How many there are.
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

/// Most workers that a server is taken to have: one that does not tell what waits is not given
/// everything.
const WORKERS_MAX: u32 = 64;

#[cfg(test)]
mod tests;
