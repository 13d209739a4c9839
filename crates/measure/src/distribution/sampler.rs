//! Sampler of a form: what it needs precomputed to be drawn from.
//!
//! Invariant: a draw is finite, and has the tail of its form.

use rand::{Rng, RngExt};
use rand_distr::{Exp1, Gamma, LogNormal, Open01, Zipf};

use super::special::{HEAD_RANKS, power_sum_above};
use super::{Form, rest};

#[derive(Clone, Debug, PartialEq)]
pub(super) enum Sampler {
    Constant(f64),
    Exponential(f64),
    /// By the form's quantile.
    Inverse,
    Points(Points),
    LogNormal(LogNormal<f64>),
    Gamma(Gamma<f64>),
    Zipf(Ranks),
}

impl Sampler {
    /// `form` has been checked, so the library's constructors cannot fail.
    pub(super) fn new(form: &Form) -> Self {
        match *form {
            Form::Fixed { value } => Sampler::Constant(value),
            Form::Exponential { mean } => Sampler::Exponential(mean),
            Form::Bimodal { values: [v1, v2], probability } => {
                Sampler::Points(Points::new(&[(v1, probability), (v2, 1.0 - probability)]))
            }
            Form::Trimodal { values: [v1, v2, v3], probabilities: [p1, p2] } => {
                Sampler::Points(Points::new(&[(v1, p1), (v2, p2), (v3, rest(p1, p2))]))
            }
            Form::LogNormal { mu, sigma } => {
                Sampler::LogNormal(LogNormal::new(mu, sigma).expect("sigma is checked"))
            }
            Form::Gamma { shape, scale } => {
                Sampler::Gamma(Gamma::new(shape, scale).expect("shape and scale are checked"))
            }
            Form::Zipf { ranks, exponent } => Sampler::Zipf(Ranks::new(ranks, exponent)),
            Form::Uniform { .. }
            | Form::Pareto { .. }
            | Form::ExtremeValue { .. }
            | Form::Empirical { .. } => Sampler::Inverse,
        }
    }

    /// A sample of `form`, without its constant.
    #[inline]
    pub(super) fn draw<R: Rng + ?Sized>(&self, form: &Form, rng: &mut R) -> f64 {
        match self {
            Sampler::Constant(value) => *value,
            Sampler::Exponential(mean) => mean * rng.sample::<f64, _>(Exp1),
            Sampler::Inverse => form.quantile(rng.sample(Open01)),
            Sampler::Points(points) => points.quantile(rng.sample(Open01)),
            Sampler::LogNormal(inner) => rng.sample(inner),
            Sampler::Gamma(inner) => rng.sample(inner),
            // Rounding could exceed the number of ranks.
            Sampler::Zipf(ranks) => rng.sample(ranks.inner).min(ranks.ranks as f64),
        }
    }
}

/// A few values with their cumulative probabilities, ascending; those without probability left out.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Points(Vec<(f64, f64)>);

impl Points {
    fn new(weighted: &[(f64, f64)]) -> Self {
        let mut points: Vec<_> = weighted.iter().copied().filter(|&(_, p)| p > 0.0).collect();
        points.sort_unstable_by(|a, b| a.0.total_cmp(&b.0));
        let mut cumulative = 0.0;
        for point in &mut points {
            cumulative += point.1;
            point.1 = cumulative;
        }
        Self(points)
    }

    pub(super) fn tail(&self, x: f64) -> f64 {
        let above = self.0.partition_point(|&(value, _)| value <= x);
        match above {
            0 => 1.0,
            // Rounding may leave the last cumulative probability short of one.
            _ if above == self.0.len() => 0.0,
            _ => 1.0 - self.0[above - 1].1,
        }
    }

    #[inline]
    pub(super) fn quantile(&self, p: f64) -> f64 {
        let at = self.0.partition_point(|&(_, cumulative)| cumulative < p);
        self.0[at.min(self.0.len() - 1)].0
    }
}

/// The ranks 1 to `ranks`, of which r has a probability in proportion to r^-exponent.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Ranks {
    inner: Zipf<f64>,
    ranks: u64,
    exponent: f64,
    /// The sum of r^-exponent over the ranks above k, by k, for the first thousand.
    above: Vec<f64>,
}

impl Ranks {
    fn new(ranks: u64, exponent: f64) -> Self {
        let inner =
            Zipf::new(ranks as f64, settled(exponent)).expect("ranks and exponent are checked");
        let head = ranks.min(HEAD_RANKS);
        let mut above = vec![power_sum_above(head, ranks, exponent)];
        for rank in (1..=head).rev() {
            above.push(above[above.len() - 1] + (rank as f64).powf(-exponent));
        }
        above.reverse();
        Self { inner, ranks, exponent, above }
    }

    pub(super) fn tail(&self, x: f64) -> f64 {
        // The cast saturates, below at no rank.
        let within = (x as u64).min(self.ranks);
        let above = match self.above.get(within as usize) {
            Some(above) => *above,
            None => power_sum_above(within, self.ranks, self.exponent),
        };
        above / self.above[0]
    }

    pub(super) fn quantile(&self, p: f64) -> f64 {
        let (mut low, mut high) = (1, self.ranks);
        while low < high {
            let middle = low + (high - low) / 2;
            if self.tail(middle as f64) > 1.0 - p {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low as f64
    }
}

/// An exponent within rounding of 1 makes the sampler's closed forms lose every digit.
fn settled(exponent: f64) -> f64 {
    if (exponent - 1.0).abs() < 1e-9 { 1.0 } else { exponent }
}
