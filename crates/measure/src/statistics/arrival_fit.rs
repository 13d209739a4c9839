//! Did the requests of a sender, or of several, leave as the distribution asks, and in time?
//!
//! The gaps between sends go through the distribution's own cumulative probability, which makes
//! them uniform if they are right, and Anderson and Darling's A2 says how far they are from that.
//! A2 grows with the number of gaps for any fault, however small, so the decision takes the fault
//! itself: (A2 - 1) / n, the weighted square distance between what was asked and what was done,
//! which no rate and no length of a run changes. A fault needs to be both significant and large.
//!
//! Clocks and system calls smear every gap by some time, the resolution. Gaps are compared through
//! it: a gap at which the distribution has a step, as every gap of a fixed load, counts as right
//! anywhere within the resolution.
//!
//! Invariant: nothing is drawn at random; the smear is spread evenly over the gaps by a sequence
//! that fills the interval.

use crate::arrivals::Process;
use crate::distribution::{Distribution, DistributionError, Form};
use crate::quantity::Unit;

/// Gaps that are asked for.
#[derive(Clone, Debug)]
pub struct Asked {
    gaps: Distribution,
    /// Multiplies a value of `gaps` into ns.
    scale_ns: f64,
    resolution_ns: f64,
}

impl Asked {
    /// Gaps of `process` at `rate_per_s` on average from one sender.
    ///
    /// # Errors
    ///
    /// A process whose mean gap is zero or infinite.
    pub fn new(process: &Process, rate_per_s: f64) -> Result<Self, DistributionError> {
        let gaps = match process {
            Process::Poisson => Distribution::new(Form::Exponential { mean: 1.0 }, Unit::Plain)?,
            Process::Fixed => Distribution::new(Form::Fixed { value: 1.0 }, Unit::Plain)?,
            Process::Shaped(gaps) => gaps.clone(),
        };
        let mean = gaps.mean().unwrap_or(f64::INFINITY);
        let mean_ns = 1e9 / rate_per_s;
        Ok(Self {
            gaps,
            scale_ns: mean_ns / mean,
            resolution_ns: RESOLUTION_NS.min(mean_ns / 10.0),
        })
    }

    /// Places in (0, 1) of the gaps `gaps_ns` of one sender: even, if they are those asked for.
    pub fn places(&self, gaps_ns: &[f64]) -> impl Iterator<Item = f64> {
        let spreads = (1..).map(|index| (f64::from(index) * GOLDEN).fract());
        gaps_ns.iter().zip(spreads).map(|(&gap_ns, spread)| self.place(gap_ns, spread))
    }

    /// The mean gap, ns.
    pub(super) fn mean_ns(&self) -> f64 {
        self.gaps.mean().unwrap_or(f64::INFINITY) * self.scale_ns
    }

    /// Place in (0, 1) of a gap; `spread`, in (0, 1), says where within what cannot be told apart.
    fn place(&self, gap_ns: f64, spread: f64) -> f64 {
        let value = |ns: f64| ns / self.scale_ns;
        if self.has_steps() {
            let (low, high) =
                (value(gap_ns - self.resolution_ns), value(gap_ns + self.resolution_ns));
            let (above_low, above_high) = (self.gaps.tail(low), self.gaps.tail(high));
            return 1.0 - (above_low + spread * (above_high - above_low));
        }
        let end_ns = |p: f64| self.gaps.quantile(p).unwrap_or(0.0).max(0.0) * self.scale_ns;
        let (start_ns, end_ns) = (end_ns(0.0), end_ns(1.0));
        let smeared_ns = gap_ns + self.resolution_ns * (2.0 * spread - 1.0);
        // What is smeared over an end is turned back, or all gaps near it would look wrong.
        let mut turned_ns = smeared_ns;
        if smeared_ns < start_ns && gap_ns >= start_ns - self.resolution_ns {
            turned_ns = 2.0 * start_ns - smeared_ns;
        } else if smeared_ns > end_ns && gap_ns <= end_ns + self.resolution_ns {
            turned_ns = 2.0 * end_ns - smeared_ns;
        }
        1.0 - self.gaps.tail(value(turned_ns))
    }

    fn has_steps(&self) -> bool {
        let steps = Form::Bimodal { values: [0.0; 2], probability: 0.0 };
        match self.gaps.form() {
            Form::Fixed { .. }
            | Form::Trimodal { .. }
            | Form::Zipf { .. }
            | Form::Empirical { .. } => true,
            form => std::mem::discriminant(form) == std::mem::discriminant(&steps),
        }
    }
}

/// Fit of gaps to those asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ArrivalFit {
    /// Gaps compared.
    pub gaps: usize,
    /// Anderson and Darling's A2.
    pub statistic: f64,
    /// Probability that gaps that are right show an A2 as large.
    pub p_value: f64,
    /// The fault: (A2 - 1) / gaps, from 0.
    pub fault: f64,
}

impl ArrivalFit {
    /// Fit of `places`, as of [`Asked::places`] of any number of senders: how evenly they lie in
    /// (0, 1). `None` for fewer than [`GAPS_MIN`].
    pub fn of(places: &mut [f64]) -> Option<Self> {
        if places.len() < GAPS_MIN {
            return None;
        }
        let AndersonDarling { statistic, p_value } = anderson_darling(places)?;
        let gaps = places.len();
        Some(Self { gaps, statistic, p_value, fault: ((statistic - 1.0) / gaps as f64).max(0.0) })
    }

    /// The worse one: of which the gaps are wrong, or else more so.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        if (self.is_wrong(), self.fault) >= (other.is_wrong(), other.fault) { self } else { other }
    }

    /// True if the gaps are significantly and noticeably others than was asked: by about as much as
    /// if 7 % of them had been put together in bursts.
    pub fn is_wrong(&self) -> bool {
        self.p_value < SIGNIFICANCE && self.fault > FAULT_MAX
    }
}

/// A2 and its p-value.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AndersonDarling {
    /// A2, about 1 for values that are uniform.
    pub statistic: f64,
    /// Probability that uniform values show an A2 as large.
    pub p_value: f64,
}

/// Are `places`, which it sorts, uniform on (0, 1)? `None` without any. Values at the ends count as
/// 1e-12 from them.
pub fn anderson_darling(places: &mut [f64]) -> Option<AndersonDarling> {
    if places.is_empty() {
        return None;
    }
    places.sort_unstable_by(f64::total_cmp);
    let count = places.len() as f64;
    let inside = |place: f64| place.clamp(PLACE_MIN, 1.0 - PLACE_MIN);
    let pairs = places.iter().zip(places.iter().rev());
    let sum: f64 = pairs
        .enumerate()
        .map(|(index, (&low, &high))| {
            (2.0 * index as f64 + 1.0) * (inside(low).ln() + (-inside(high)).ln_1p())
        })
        .sum();
    let statistic = -count - sum / count;
    Some(AndersonDarling { statistic, p_value: (1.0 - at_most(statistic, count)).clamp(0.0, 1.0) })
}

/// Lateness of sends.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Lateness {
    /// The median, ns.
    pub p50_ns: u64,
    /// The 99th percentile, ns.
    pub p99_ns: u64,
    /// The latest, ns.
    pub max_ns: u64,
    /// The share of sends that were later than the mean gap of their sender: another was due by
    /// then.
    pub overtaken: f64,
}

impl Lateness {
    /// Lateness of sends that were `late_ns` after their intended times, with `gap_mean_ns` between
    /// those on average. All zero without sends.
    pub fn of(late_ns: &mut [u64], gap_mean_ns: f64) -> Self {
        late_ns.sort_unstable();
        let Some(&max_ns) = late_ns.last() else {
            return Self::default();
        };
        let at =
            |share: f64| late_ns[((share * late_ns.len() as f64) as usize).min(late_ns.len() - 1)];
        let in_time = late_ns.partition_point(|&late| late as f64 <= gap_mean_ns);
        Self {
            p50_ns: at(0.5),
            p99_ns: at(0.99),
            max_ns,
            overtaken: 1.0 - in_time as f64 / late_ns.len() as f64,
        }
    }
}

/// The probability that A2 of `count` uniform values is at most `statistic`, to five digits
/// (Marsaglia and Marsaglia, 2004).
fn at_most(statistic: f64, count: f64) -> f64 {
    if statistic <= 0.0 {
        return 0.0;
    }
    let limit = at_most_in_the_limit(statistic);
    limit + correction(count, limit)
}

fn at_most_in_the_limit(z: f64) -> f64 {
    if z < 2.0 {
        let series = [2.00012, 0.247_105, -0.064_982_1, 0.034_796_2, -0.011_672_0, 0.001_686_91];
        return (-1.233_714_1 / z).exp() / z.sqrt() * polynomial(&series, z);
    }
    (-polynomial(&[1.0776, -2.30695, 0.43424, -0.082_433, 0.008_056, -0.000_314_6], z).exp()).exp()
}

/// Correction that `count` values add to the limit's probability `x`.
fn correction(count: f64, x: f64) -> f64 {
    if x > 0.8 {
        return polynomial(&[-130.2137, 745.2337, -1705.091, 1950.646, -1116.360, 255.7844], x)
            / count;
    }
    let knee = 0.01265 + 0.1757 / count;
    if x < knee {
        let t = x / knee;
        let shape = t.sqrt() * (1.0 - t) * (49.0 * t - 102.0);
        return shape * (0.0037 / (count * count) + 0.00078 / count + 0.00006) / count;
    }
    let t = (x - knee) / (0.8 - knee);
    let shape = polynomial(&[-0.000_226_33, 6.54034, -14.6538, 14.458, -8.259, 1.91864], t);
    shape * (0.04213 + 0.01365 / count) / count
}

/// Ascending powers.
fn polynomial(coefficients: &[f64], x: f64) -> f64 {
    coefficients.iter().rev().fold(0.0, |sum, coefficient| sum * x + coefficient)
}

/// The fewest gaps that are judged: with fewer the fault is not known to a tenth of its limit.
pub const GAPS_MIN: usize = 500;
/// The largest fault of a right load.
pub const FAULT_MAX: f64 = 0.003;
/// Small, because each agent is tested, and each time that the run is looked at.
const SIGNIFICANCE: f64 = 0.001;
/// By so much a right gap may err, or by a tenth of the mean gap where that is shorter.
const RESOLUTION_NS: f64 = 3_000.0;
/// The fraction of the golden ratio: its multiples fill the interval most evenly.
const GOLDEN: f64 = 0.618_033_988_749_894_9;
const PLACE_MIN: f64 = 1e-12;
