//! Round-trip estimate and retransmission timeout, as RFC 6298 computes them, with bounds for a
//! datacenter.

/// Bounds of a timeout, in ns.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Before anything is known of the peer.
    pub(crate) initial_ns: u64,
    /// At least, once something is known.
    pub(crate) min_ns: u64,
    /// Unless the measured round trip is longer: a slow server is waited for, up to 2 s.
    pub(crate) max_ns: u64,
}

/// Smoothed round trip to one peer.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rtt {
    /// 0 before the first sample.
    smoothed_ns: u64,
    /// Mean deviation of the samples, smoothed.
    variation_ns: u64,
}

impl Rtt {
    /// Takes a sample.
    pub(crate) fn sample(&mut self, rtt_ns: u64) {
        let rtt_ns = rtt_ns.max(1);
        if self.smoothed_ns == 0 {
            self.smoothed_ns = rtt_ns;
            self.variation_ns = rtt_ns / 2;
            return;
        }
        self.variation_ns = (3 * self.variation_ns + self.smoothed_ns.abs_diff(rtt_ns)) / 4;
        self.smoothed_ns = (7 * self.smoothed_ns + rtt_ns) / 8;
    }

    /// Time to wait for an answer to the attempt numbered `attempt`, from 0: doubled each time,
    /// within the bounds.
    pub(crate) fn timeout_ns(&self, bounds: Bounds, attempt: u32) -> u64 {
        let base = match self.smoothed_ns {
            0 => bounds.initial_ns,
            smoothed => (smoothed + 4 * self.variation_ns).max(bounds.min_ns),
        };
        base.saturating_mul(1 << attempt.min(16)).min(bounds.max_ns.max(base.min(RTO_CEILING_NS)))
    }

    /// True if there has been a sample.
    pub(crate) fn is_known(&self) -> bool {
        self.smoothed_ns != 0
    }

    /// The smoothed round trip; `otherwise` before the first sample.
    pub(crate) fn smoothed_or(&self, otherwise: u64) -> u64 {
        if self.smoothed_ns == 0 { otherwise } else { self.smoothed_ns }
    }
}

/// A server that takes longer than the greatest timeout by itself is waited for, up to this.
const RTO_CEILING_NS: u64 = 2_000_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const BOUNDS: Bounds = Bounds { initial_ns: 2_000_000, min_ns: 500_000, max_ns: 32_000_000 };

    #[test]
    fn converges_on_a_steady_path_and_backs_off_within_bounds() {
        let mut rtt = Rtt::default();
        assert_eq!(rtt.timeout_ns(BOUNDS, 0), BOUNDS.initial_ns);
        (0..100).for_each(|_| rtt.sample(10_000));
        assert_eq!(rtt.smoothed_or(0), 10_000);
        assert_eq!(rtt.timeout_ns(BOUNDS, 0), BOUNDS.min_ns);
        assert_eq!(rtt.timeout_ns(BOUNDS, 1), 2 * BOUNDS.min_ns);
        assert_eq!(rtt.timeout_ns(BOUNDS, 40), BOUNDS.max_ns);
    }

    #[test]
    fn a_slow_server_is_waited_for() {
        let mut rtt = Rtt::default();
        (0..100).for_each(|_| rtt.sample(100_000_000));
        assert!(rtt.timeout_ns(BOUNDS, 0) >= 100_000_000);
    }

    /// RFC 6298 section 2: the first sample is the mean, and half of it the deviation; later ones
    /// have an eighth of the weight, and a quarter.
    #[test]
    fn samples_weigh_as_in_the_rfc() {
        let bounds = Bounds { min_ns: 1, ..BOUNDS };
        let mut rtt = Rtt::default();
        assert!(!rtt.is_known());
        rtt.sample(10_000);
        assert!(rtt.is_known());
        assert_eq!((rtt.smoothed_or(0), rtt.timeout_ns(bounds, 0)), (10_000, 10_000 + 4 * 5_000));
        rtt.sample(18_000);
        assert_eq!((rtt.smoothed_or(0), rtt.timeout_ns(bounds, 0)), (11_000, 11_000 + 4 * 5_750));
    }
}
