//! Is the second half of a run like the first?
//!
//! The body is compared by the means of the latencies' logarithms, up to the percentile, with
//! variances that reckon with correlation; the tail by the percentile itself. What lies beyond the
//! percentile moves neither: one stall of a hundred times the median in a hundred requests would be
//! 5 % of the geometric mean. A difference counts where it is both significant and large enough to
//! matter: with many samples every server differs from itself by something.
//!
//! Invariant: the order of the halves does not matter to the decision, and latencies of 0 are taken
//! for 1 ns.

use super::batches::{CELLS, cells, long_run};
use super::difference::Difference;
use super::quantile::Ranked;
use super::reference::student_beyond;

/// Difference of the second half of a run from the first.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drift {
    /// The second half's geometric mean over the first's, up to the percentile, less 1.
    pub body: f64,
    /// Probability that halves of a steady run differ as much in the body; two-sided.
    pub body_p_value: f64,
    /// The second half's percentile over the first's, less 1; `None` where the samples do not
    /// support it.
    pub tail: Option<f64>,
    /// True if the interval of the tail's difference leaves zero out.
    pub tail_is_one: bool,
}

impl Drift {
    /// True if the halves differ significantly and by more than the share `tolerance`, in the body
    /// or in the tail.
    pub fn is_beyond(&self, tolerance: f64) -> bool {
        // Twice as much and half as much are the same drift.
        let large = |change: f64| change.ln_1p().abs() > tolerance.ln_1p();
        let body = self.body_p_value < SIGNIFICANCE && large(self.body);
        body || self.tail_is_one && self.tail.is_some_and(large)
    }

    /// The larger of the changes, for people.
    pub fn largest(&self) -> f64 {
        let tail = self.tail.filter(|_| self.tail_is_one).unwrap_or(0.0);
        if tail.abs() > self.body.abs() { tail } else { self.body }
    }
}

/// A run's samples, in the order of their sending, as a whole and by halves.
#[derive(Clone, Debug)]
pub struct Halved<'a> {
    /// All of them.
    pub whole: Ranked<'a>,
    /// The first half, and the second.
    pub halves: [Ranked<'a>; 2],
}

impl<'a> Halved<'a> {
    /// Parts `samples`, ns, in the middle.
    pub fn new(samples: &'a [f32]) -> Self {
        let (first, second) = samples.split_at(samples.len() / 2);
        Self { whole: Ranked::new(samples), halves: [first, second].map(Ranked::new) }
    }
}

/// Compares the halves of a run in the body and in the percentile `p`. `None` for fewer than
/// sixteen samples, which make no halves.
pub fn drift(run: &mut Halved<'_>, p: f64) -> Option<Drift> {
    let most = run.whole.percentile(p);
    let (body, body_p_value) = body([run.halves[0].samples(), run.halves[1].samples()], most)?;
    let [before, after] =
        run.halves.each_mut().map(|half| half.estimate(p, 1.0 - SIGNIFICANCE).ok());
    let tail = before.zip(after).filter(|(before, _)| before.value_ns > 0.0);
    Some(Drift {
        body,
        body_p_value,
        tail: tail.map(|(before, after)| after.value_ns / before.value_ns - 1.0),
        tail_is_one: tail
            .is_some_and(|(before, after)| Difference::between(&before, &after).is_one()),
    })
}

/// The change of the geometric mean, in which no latency counts as longer than `most`, and its
/// p-value by Welch's t.
fn body([first, second]: [&[f32]; 2], most: f32) -> Option<(f64, f64)> {
    let logarithms =
        |half| cells(half, CELLS, |latency| f64::from(latency.min(most).max(1.0)).ln());
    let (before, after) = (logarithms(first), logarithms(second));
    let (of_before, of_after) = (long_run(&before)?, long_run(&after)?);
    let mean = |cells: &[f64]| cells.iter().sum::<f64>() / cells.len() as f64;
    let change = mean(&after) - mean(&before);
    let variance = of_before.variance + of_after.variance;
    if variance == 0.0 {
        return Some((change.exp_m1(), if change == 0.0 { 1.0 } else { 0.0 }));
    }
    let share = |variance: f64, freedom: f64| variance * variance / freedom;
    let freedom = variance * variance
        / (share(of_before.variance, of_before.freedom)
            + share(of_after.variance, of_after.freedom));
    Some((change.exp_m1(), student_beyond(change / variance.sqrt(), freedom)))
}

/// A steady run is to be called drifting in one of a hundred cases at most, and only where the
/// change is large as well.
const SIGNIFICANCE: f64 = 0.01;
