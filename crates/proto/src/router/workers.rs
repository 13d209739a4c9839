//! Workers of servers: what `jbsq:auto` must let each server have besides what hides the way there.
//!
//! | a report says | then the server has |
//! |---|---|
//! | requests wait | as many workers as run |
//! | none waits, of as many as the bound lets it have | twice as many workers, until requests wait |
//! | none waits, of fewer | at least as many workers as run |
//!
//! One bound holds for all servers, that of the one with the most workers of those that take requests:
//! a lower one would leave workers idle while requests are held.

use super::Router;
use super::server::Server;

impl Server {
    /// Learns from the latest report, where `bound` holds; true if its workers are others than
    /// before.
    fn learn_workers(&mut self, bound: u32) -> bool {
        // A router's report is of all servers that it stands for, and a bound of each unit of weight.
        let weight = u32::from(self.rank.weight.get());
        let reported = (self.reported / self.members()).div_ceil(weight);
        let running = reported.saturating_sub((self.waiting / self.members()).div_ceil(weight));
        let workers = if self.waiting > 0 {
            running
        } else if reported >= bound {
            self.workers.max(2 * running)
        } else {
            self.workers.max(running)
        };
        let workers = workers.clamp(1, WORKERS_MAX);
        std::mem::replace(&mut self.workers, workers) != workers
    }
}

impl Router {
    /// A server has reported: derives the bound anew, if that follows from what is measured.
    pub(super) fn learn_workers(&mut self, slot: u16) {
        let Some(bound) = self.schedulers[0].bound().filter(|_| self.estimator.is_some()) else {
            return;
        };
        let server = self.servers[usize::from(slot)].as_mut();
        if server.is_some_and(|server| server.learn_workers(bound)) {
            self.recount_workers();
        }
    }

    /// A server has other workers than before, or others take requests: derives the bound anew.
    pub(super) fn recount_workers(&mut self) {
        if self.estimator.is_none() {
            return;
        }
        let servers = self.servers.iter().flatten().filter(|server| server.is_able());
        let workers = servers.clone().map(|server| server.workers).max().unwrap_or(1);
        let is_alone = servers.count() == 1;
        let before = (self.workers, self.is_alone);
        (self.workers, self.is_alone) = (workers, is_alone);
        if before != (workers, is_alone) {
            self.set_bound();
        }
    }

    /// Sets the bound that follows from what is measured.
    pub(super) fn set_bound(&mut self) {
        let Some(estimator) = &self.estimator else { return };
        let bound = if self.is_alone { estimator.bound_alone() } else { estimator.bound() };
        let bound = bound + self.workers - 1;
        for scheduler in &mut self.schedulers {
            scheduler.set_bound(bound);
        }
        self.shared.set_bound(bound);
    }
}

/// Most workers that a server is taken to have: one that does not tell what waits is not given
/// everything.
const WORKERS_MAX: u32 = 64;
