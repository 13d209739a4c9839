//! Plans under a load that is asked for: a share of what the servers can serve, or many times it.
//!
//! | the load is reached by | as far as |
//! |---|---|
//! | services that all take longer, or less long | a mean of 1 ms, or a twentieth |
//! | calls that come closer together, or further apart, around their middle | the rest |
//!
//! Deadlines, faults and what calls carry stay as the seed draws them, so that overload meets every
//! fault. Handlers then refuse what has waited for too long, as servers do.

use tailcut_proto::node::Time;

use super::plan::Plan;

impl Plan {
    /// The plan with calls that come at `load` times what its servers' workers can serve.
    #[must_use]
    pub fn at_load(mut self, load: f64) -> Self {
        self.load = Some(load);
        let quiet_at = self.quiet_at();
        let times = || self.calls.iter().filter(|call| !call.is_after_all).map(|call| call.at);
        let (Some(first), Some(last)) = (times().min(), times().max()) else { return self };
        let missing = load / self.natural_load(times().count(), (last - first).max(1));
        let means = self.servers.iter().map(|server| server.service.mean().unwrap_or(1.0));
        let factor_max = (SERVICE_MEAN_NS_MAX / means.fold(1.0, f64::max)).max(1.0);
        let factor = missing.clamp(SERVICE_FACTOR_MIN, factor_max);
        self.servers.iter_mut().for_each(|server| server.service_factor = factor);
        let closer = missing / factor;
        let begin = (first.midpoint(last) as f64 - (last - first) as f64 / 2.0 / closer).max(0.0);
        let mut end = quiet_at;
        for call in self.calls.iter_mut().filter(|call| !call.is_after_all) {
            call.at = (begin + (call.at - first) as f64 / closer) as Time;
            end = end.max(call.at);
        }
        for call in self.calls.iter_mut().filter(|call| call.is_after_all) {
            call.at += end - quiet_at;
        }
        self
    }

    /// Calls over what the workers can serve, where so many calls come in so long.
    fn natural_load(&self, calls: usize, lasts_ns: u64) -> f64 {
        let served = |server: &super::plan::ServerPlan| {
            f64::from(server.workers) / server.service.mean().unwrap_or(1.0)
        };
        calls as f64 / (lasts_ns as f64 * self.servers.iter().map(served).sum::<f64>())
    }
}

/// Services that take no longer leave what is made after all the time that it needs.
const SERVICE_MEAN_NS_MAX: f64 = 1e6;

/// Least part of a service that is left.
const SERVICE_FACTOR_MIN: f64 = 0.05;
