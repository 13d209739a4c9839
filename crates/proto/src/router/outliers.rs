//! Servers that answer, but much slower than the others: taken out for a while, and tried with one
//! request at a time before they get their share again.
//!
//! | a server is | event | then |
//! |---|---|---|
//! | well | in each of `windows` windows in a row it takes `factor` times as long as three of four servers in their worst window of late | ejected |
//! | ejected | its time is over | on probation: one request at a time |
//! | on probation | 16 requests have ended in less than two thirds of that | well |
//! | on probation | its requests take longer | ejected, for twice as long |
//! | ejected, on probation | no other server is in service | well |
//! | any | it has restarted | well |
//!
//! Envoy's outlier detection ejects by errors (a row of them, or a success rate below the mean by
//! some standard deviations), for a time that grows, and at most a share of the hosts. A router
//! here sees no replies, and a slow server makes no errors. It sees in feedback how many requests
//! have ended, and knows how many were outstanding meanwhile: by Little's law the one over the
//! other is how long they took. So there is no timer and no number for each request, and what the
//! server says of itself is not asked for.
//!
//! A mean of a window is a poor one where services vary, and a pause of 20 ms makes one window look
//! bad. Hence the worst windows of the others as the measure, several windows in a row, and a
//! difference that is worth it. Of a window in which few have ended only what is certain counts:
//! that those under way take no less than they have taken.
//!
//! Invariant: at most one server in `servers_per_ejected` is ejected or on probation, or one of
//! three, and never the last in service.

use super::Router;
use super::lane::Lane;
use super::pace::{Health, PROBATION_COUNT, Pace};
use super::server::Server;
use crate::node::Time;
use crate::policy::WorkerId;

/// State of outlier detection over all servers.
#[derive(Debug, Default)]
pub(super) struct Outliers {
    /// Time at which the next window ends.
    check_at: Time,
    /// Servers that are ejected or on probation.
    pub(super) limited_count: usize,
    /// Room for the worst windows of all servers.
    peaks: Vec<u64>,
}

impl Router {
    /// Looks at the servers once in a window.
    pub(super) fn check_outliers(&mut self, now: Time) {
        let config = self.config.outliers;
        if now < self.outliers.check_at || config.factor == 0 {
            return;
        }
        self.outliers.check_at = now.saturating_add(config.window_ns);
        let usual_ns = self.usual_ns();
        for index in 0..self.fleet.len() {
            let slot = self.fleet.nth(index);
            let change = self.change_of(now, slot, usual_ns);
            if let Some(change) = change {
                self.limit(now, slot, change);
            }
        }
    }

    /// Upper quartile over the servers of the average time of a request in their worst window, ns;
    /// `None` of fewer than three servers.
    fn usual_ns(&mut self) -> Option<u64> {
        let peaks = &mut self.outliers.peaks;
        peaks.clear();
        let servers = self.fleet.iter().filter(|server| !server.is_silent);
        peaks.extend(servers.filter_map(|server| server.pace.peak_ns));
        let place = peaks.len().checked_sub(1)? * 3 / 4;
        (peaks.len() >= SERVERS_MIN).then(|| *peaks.select_nth_unstable(place).1)
    }

    /// Change of a server's health after this window, if any.
    fn change_of(&mut self, now: Time, slot: WorkerId, usual_ns: Option<u64>) -> Option<Health> {
        let (config, room) = (self.config.outliers, self.has_room_to_eject());
        let server = &mut self.fleet[slot];
        let concluded_total = server.concluded_total();
        let is_able = server.is_able();
        let pace = &mut server.pace;
        let window = pace.window(now, concluded_total);
        if !is_able {
            // What it has may be stuck, but not because it is slow.
            pace.strikes = 0;
        }
        let is_slow = is_able
            && usual_ns.is_some_and(|usual_ns| {
                let limit_ns = usual_ns.saturating_mul(config.factor.into());
                // One request at a time waits for no other.
                let is_alone = pace.health == Health::Probation;
                let limit_ns = if is_alone { limit_ns / 3 * 2 } else { limit_ns };
                window.at_least_ns > limit_ns.max(usual_ns.saturating_add(config.least_ns))
            });
        match pace.health {
            Health::Ejected(until) if now >= until => {
                pace.begin(concluded_total);
                Some(Health::Probation)
            }
            Health::Ejected(_) => None,
            Health::Probation if is_slow => Some(Health::Ejected(now)),
            Health::Probation => (window.concluded >= PROBATION_COUNT).then_some(Health::Well),
            Health::Well if is_slow => {
                pace.strikes += 1;
                let is_ejected = pace.strikes >= config.windows && room;
                is_ejected.then_some(Health::Ejected(now))
            }
            Health::Well => {
                // A window in which nothing has ended does not show that it is well.
                if window.concluded > 0 {
                    pace.strikes = 0;
                }
                None
            }
        }
    }

    /// True if one more server may be ejected.
    fn has_room_to_eject(&self) -> bool {
        let in_service = self.queues[Lane::Extension].in_service_count() as usize;
        let (limited, per) =
            (self.outliers.limited_count, self.config.outliers.servers_per_ejected);
        let has_share = (limited + 1) * per as usize <= in_service + limited;
        in_service >= SERVERS_MIN && (limited == 0 || has_share)
    }

    fn limit(&mut self, now: Time, slot: WorkerId, health: Health) {
        let config = self.config.outliers;
        let pace = &mut self.fleet[slot].pace;
        let was_limited = pace.is_limited();
        match health {
            Health::Well => pace.readmit(now),
            Health::Probation => pace.health = Health::Probation,
            Health::Ejected(_) => pace.eject(now, &config),
        }
        self.metrics.servers_ejected += u64::from(pace.is_ejected());
        self.metrics.servers_readmitted += u64::from(!pace.is_limited() && was_limited);
        let is_limited = usize::from(pace.is_limited());
        self.outliers.limited_count =
            self.outliers.limited_count + is_limited - usize::from(was_limited);
        self.refresh(now, slot);
        self.queues.pump_at = Some(now);
    }

    /// A slow server is better than none.
    pub(super) fn readmit_if_last(&mut self, now: Time) {
        let scheduler = &self.queues[Lane::Extension];
        if self.outliers.limited_count == 0 || scheduler.in_service_count() > 0 {
            return;
        }
        for index in 0..self.fleet.len() {
            let slot = self.fleet.nth(index);
            if self.fleet[slot].pace.is_limited() {
                self.limit(now, slot, Health::Well);
            }
        }
    }

    /// A server has begun anew: how slow the one before it was says nothing.
    pub(super) fn begin_pace(&mut self, now: Time, slot: WorkerId) {
        if self.fleet[slot].pace.is_limited() {
            self.limit(now, slot, Health::Well);
        }
        let server = &mut self.fleet[slot];
        server.pace = Pace::since(now, server.concluded_total());
    }

    /// A server is removed.
    pub(super) fn release_pace(&mut self, server: &Server) {
        self.outliers.limited_count -= usize::from(server.pace.is_limited());
    }
}

/// Fewer servers do not tell which of them is slow.
const SERVERS_MIN: usize = 3;

#[cfg(test)]
mod tests;
