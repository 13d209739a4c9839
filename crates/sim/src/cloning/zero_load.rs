//! Exact latencies where nobody waits: one copy, or the first of two.
//!
//! With jitter a service is B, or 15 B with probability p, so that a copy exceeds t with
//! probability `s(t) = (1 - p) b(t) + p b(t / 15)`. Of two copies with draws of their own, the
//! second later by a lag d, the first response exceeds t with probability `s(t) s(t - d)`. Where
//! both share B and only the jitter is drawn, the original is the first unless it alone is slow:
//! `(1 - p) b(t) + p^2 b(t / 15) + p (1 - p) b(max(t / 15, t - d))`.
//!
//! Invariant: nothing is simulated, and every time is in the unit of the service's distribution
//! (ns).

use tailcut_measure::distribution::{Distribution, Form};

use super::{Config, Copies, JITTER_FACTOR, Scheme};
use crate::PS_PER_NS;

/// The exact latency of a request that meets no other.
#[derive(Clone, Debug, PartialEq)]
pub struct ZeroLoad {
    base: Base,
    /// The probability of jitter.
    jitter: f64,
    draw: Draw,
    /// Added to every latency, ns.
    offset_ns: f64,
}

/// The draws of a request.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Draw {
    /// One copy.
    Single,
    /// Two copies of their own draws, the second later by so much; ns.
    Fresh { lag_ns: f64 },
    /// Two copies of one base, the second later by so much; ns.
    Shared { lag_ns: f64 },
}

/// A distribution whose first of two has a closed form.
#[derive(Clone, Debug, PartialEq)]
enum Base {
    Exponential {
        mean: f64,
    },
    /// Values and their probabilities.
    Points(Vec<(f64, f64)>),
}

impl ZeroLoad {
    /// One copy; `None` where the distribution is neither exponential nor of a few values.
    pub fn single(service: &Distribution, jitter: f64) -> Option<Self> {
        let base = Base::of(service)?;
        Some(Self { base, jitter, draw: Draw::Single, offset_ns: 0.0 })
    }

    /// The first of two copies, the second later by `lag_ns`; `None` as for [`ZeroLoad::single`].
    pub fn pair(service: &Distribution, jitter: f64, copies: Copies, lag_ns: f64) -> Option<Self> {
        let draw = match copies {
            Copies::Fresh => Draw::Fresh { lag_ns },
            Copies::Shared => Draw::Shared { lag_ns },
        };
        Some(Self { draw, ..Self::single(service, jitter)? })
    }

    /// The limit of a scheme as its load goes to zero, round trip included: every request of a
    /// scheme that clones is cloned.
    pub fn of(config: &Config) -> Option<Self> {
        let lag_ns = match config.scheme {
            Scheme::NetClone | Scheme::NetCloneRackSched => {
                config.delays.recirculation_ps as f64 / PS_PER_NS as f64
            }
            _ => 0.0,
        };
        let zero_load = if config.scheme.clones() {
            Self::pair(&config.service, config.jitter, config.copies, lag_ns)
        } else {
            Self::single(&config.service, config.jitter)
        };
        zero_load.map(|zero_load| Self {
            offset_ns: config.round_trip_ps() as f64 / PS_PER_NS as f64,
            ..zero_load
        })
    }

    /// The mean, ns.
    pub fn mean(&self) -> f64 {
        let p = self.jitter;
        let mean = match self.draw {
            Draw::Single => self.base.mean() * (1.0 + p * (JITTER_FACTOR - 1.0)),
            Draw::Fresh { lag_ns } => self.copies().iter().fold(0.0, |mean, (weight, own)| {
                let others = self.copies().into_iter();
                mean + others
                    .map(|(other_weight, other)| {
                        weight * other_weight * own.mean_of_first(&other, lag_ns)
                    })
                    .sum::<f64>()
            }),
            Draw::Shared { lag_ns } => {
                let both_slow = self.base.mean() * JITTER_FACTOR;
                (1.0 - p) * self.base.mean()
                    + p * p * both_slow
                    + p * (1.0 - p) * self.base.mean_of_late_rescue(lag_ns)
            }
        };
        self.offset_ns + mean
    }

    /// The probability that a latency exceeds `time_ns`.
    pub fn tail(&self, time_ns: f64) -> f64 {
        let (t, p) = (time_ns - self.offset_ns, self.jitter);
        let copy = |t: f64| (1.0 - p) * self.base.tail(t) + p * self.base.tail(t / JITTER_FACTOR);
        match self.draw {
            Draw::Single => copy(t),
            Draw::Fresh { lag_ns } => copy(t) * copy(t - lag_ns),
            Draw::Shared { lag_ns } => {
                let both_slow = self.base.tail(t / JITTER_FACTOR);
                let rescued = self.base.tail((t / JITTER_FACTOR).max(t - lag_ns));
                (1.0 - p) * self.base.tail(t) + p * p * both_slow + p * (1.0 - p) * rescued
            }
        }
    }

    /// The smallest latency that is exceeded with a probability of at most `1 - p`, ns; found by
    /// bisection to 12 digits.
    ///
    /// `None` for a `p` outside of (0, 1), and on a knife edge: where the latency skips values just
    /// there, so that it exceeds each of them with a probability of exactly `1 - p`. Simulations
    /// then flip between the ends.
    pub fn percentile(&self, p: f64) -> Option<f64> {
        if !(p > 0.0 && p < 1.0) {
            return None;
        }
        let (low, high) = (self.first_within(1.0 - p + EDGE), self.first_within(1.0 - p - EDGE));
        (high - low <= EDGE_WIDTH * high).then(|| f64::midpoint(low, high))
    }

    /// The smallest latency that is exceeded with a probability of at most `beyond`.
    fn first_within(&self, beyond: f64) -> f64 {
        let (mut low, mut high) = (0.0, 1.0);
        while self.tail(high) > beyond {
            low = high;
            high *= 2.0;
        }
        while high - low > PERCENTILE_ERROR * high {
            let middle = f64::midpoint(low, high);
            if self.tail(middle) > beyond {
                low = middle;
            } else {
                high = middle;
            }
        }
        high
    }

    /// A copy without jitter and one with it, and the probability of each.
    fn copies(&self) -> [(f64, Base); 2] {
        [(1.0 - self.jitter, self.base.clone()), (self.jitter, self.base.times(JITTER_FACTOR))]
    }
}

impl Base {
    fn of(service: &Distribution) -> Option<Self> {
        let offset = service.offset();
        let points = |points: &[(f64, f64)]| {
            Self::Points(points.iter().map(|&(value, share)| (value + offset, share)).collect())
        };
        match *service.form() {
            Form::Exponential { mean } if offset == 0.0 => Some(Self::Exponential { mean }),
            Form::Fixed { value } => Some(points(&[(value, 1.0)])),
            Form::Bimodal { values: [v1, v2], probability } => {
                Some(points(&[(v1, probability), (v2, 1.0 - probability)]))
            }
            Form::Trimodal { values: [v1, v2, v3], probabilities: [p1, p2] } => {
                Some(points(&[(v1, p1), (v2, p2), (v3, 1.0 - p1 - p2)]))
            }
            _ => None,
        }
    }

    fn times(&self, factor: f64) -> Self {
        match self {
            Self::Exponential { mean } => Self::Exponential { mean: mean * factor },
            Self::Points(points) => {
                Self::Points(points.iter().map(|&(value, share)| (value * factor, share)).collect())
            }
        }
    }

    fn mean(&self) -> f64 {
        match self {
            Self::Exponential { mean } => *mean,
            Self::Points(points) => points.iter().map(|(value, share)| value * share).sum(),
        }
    }

    /// The probability to exceed `t`.
    fn tail(&self, t: f64) -> f64 {
        match self {
            _ if t < 0.0 => 1.0,
            Self::Exponential { mean } => (-t / mean).exp(),
            Self::Points(points) => {
                points.iter().filter(|(value, _)| *value > t).map(|(_, share)| share).sum()
            }
        }
    }

    /// The mean of the smaller of this and of `lag` plus an independent draw of `other`, which is
    /// of the same kind.
    fn mean_of_first(&self, other: &Self, lag: f64) -> f64 {
        match (self, other) {
            (Self::Exponential { mean: own }, Self::Exponential { mean: other }) => {
                // Alone until the lag has passed, then two at once.
                let beyond_lag = (-lag / own).exp();
                own * (1.0 - beyond_lag) + beyond_lag * own * other / (own + other)
            }
            (Self::Points(own), Self::Points(other)) => {
                let pairs = own.iter().flat_map(|own| other.iter().map(move |other| (own, other)));
                pairs
                    .map(|((value, share), (other, other_share))| {
                        share * other_share * value.min(other + lag)
                    })
                    .sum()
            }
            _ => unreachable!("both copies are drawn from one distribution"),
        }
    }

    /// The mean of the smaller of 15 times a draw and of `lag` plus that same draw.
    fn mean_of_late_rescue(&self, lag: f64) -> f64 {
        // The rescue is later than the slow copy for draws below this.
        let edge = lag / (JITTER_FACTOR - 1.0);
        match self {
            Self::Exponential { mean } => {
                let beyond_edge = (-edge / mean).exp();
                JITTER_FACTOR * mean * (1.0 - beyond_edge) + mean * beyond_edge
            }
            Self::Points(points) => points
                .iter()
                .map(|&(value, share)| share * (value * JITTER_FACTOR).min(value + lag))
                .sum(),
        }
    }
}

/// Largest distance from an edge of the distribution at which a probability counts as on it; above
/// what sums of products lose.
const EDGE: f64 = 1e-12;
/// Width from which a gap makes an edge a knife edge, as a share of the percentile.
const EDGE_WIDTH: f64 = 1e-6;
const PERCENTILE_ERROR: f64 = 1e-12;
