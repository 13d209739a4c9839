//! Round-trip estimate and retransmission timeout, as RFC 6298 computes them, with bounds for a datacenter.

use super::config::Config;

/// Smoothed round trip to one peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Rtt {
    /// 0 before the first sample.
    smoothed_ns: u64,
    variation_ns: u64,
}

impl Rtt {
    /// Takes a sample. Echoed clocks make every answer one, also to a retransmission.
    pub(super) fn sample(&mut self, rtt_ns: u64) {
        let rtt_ns = rtt_ns.max(1);
        if self.smoothed_ns == 0 {
            self.smoothed_ns = rtt_ns;
            self.variation_ns = rtt_ns / 2;
            return;
        }
        self.variation_ns = (3 * self.variation_ns + self.smoothed_ns.abs_diff(rtt_ns)) / 4;
        self.smoothed_ns = (7 * self.smoothed_ns + rtt_ns) / 8;
    }

    /// How long to wait for an answer to the attempt numbered `attempt`, from 0: doubled each time, within the bounds.
    pub(super) fn timeout_ns(&self, config: &Config, attempt: u32) -> u64 {
        let base = match self.smoothed_ns {
            0 => config.rto_initial_ns,
            smoothed => (smoothed + 4 * self.variation_ns).max(config.rto_min_ns),
        };
        base.saturating_mul(1 << attempt.min(16)).min(config.rto_max_ns.max(base.min(RTO_CEILING_NS)))
    }

    /// The smoothed round trip; `otherwise` before the first sample.
    pub(super) fn smoothed_or(&self, otherwise: u64) -> u64 {
        if self.smoothed_ns == 0 { otherwise } else { self.smoothed_ns }
    }
}

/// A server that takes longer than `rto_max_ns` by itself is waited for, up to this.
const RTO_CEILING_NS: u64 = 2_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn converges_on_a_steady_path_and_backs_off_within_bounds() {
        let config = Config::default();
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout_ns(&config, 0), config.rto_initial_ns);
        (0..100).for_each(|_| rtt.sample(10_000));
        assert_eq!(rtt.smoothed_or(0), 10_000);
        assert_eq!(rtt.timeout_ns(&config, 0), config.rto_min_ns);
        assert_eq!(rtt.timeout_ns(&config, 1), 2 * config.rto_min_ns);
        assert_eq!(rtt.timeout_ns(&config, 40), config.rto_max_ns);
    }

    #[test]
    fn a_slow_server_is_waited_for() {
        let config = Config::default();
        let mut rtt = Rtt::default();
        (0..100).for_each(|_| rtt.sample(100_000_000));
        assert!(rtt.timeout_ns(&config, 0) >= 100_000_000);
    }
}
