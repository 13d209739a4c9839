//! Spearman's rank correlation, and how far apart samples must be to be independent.
//!
//! Invariant: equal values share their mean rank, so a clock's resolution makes no order.

use super::reference::student_beyond;

/// A rank correlation and how likely independent values show one as large.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spearman {
    /// From -1 to 1.
    pub correlation: f64,
    /// Two-sided, by Student's t with two degrees of freedom fewer than pairs.
    pub p_value: f64,
}

/// The rank correlation of pairs. `None` for fewer than three pairs, for sides of unequal length,
/// and where a side is constant.
pub fn spearman(left: &[f32], right: &[f32]) -> Option<Spearman> {
    let count = left.len();
    if count != right.len() || count < 3 {
        return None;
    }
    let (left, right) = (ranks(left), ranks(right));
    let mean = (count as f64 + 1.0) / 2.0;
    let product =
        |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| (a - mean) * (b - mean)).sum::<f64>();
    let spread = (product(&left, &left) * product(&right, &right)).sqrt();
    if spread == 0.0 {
        return None;
    }
    let correlation = (product(&left, &right) / spread).clamp(-1.0, 1.0);
    let freedom = count as f64 - 2.0;
    let t = correlation * (freedom / ((1.0 + correlation) * (1.0 - correlation))).sqrt();
    Some(Spearman { correlation, p_value: student_beyond(t, freedom) })
}

/// The rank correlation of each sample with the one `lag` after it, in the order of sending.
pub fn spearman_at(samples: &[f32], lag: usize) -> Option<Spearman> {
    let count = samples.len().checked_sub(lag)?;
    spearman(&samples[..count], &samples[lag..])
}

/// The smallest of [`LAGS`] at which `samples` pass for independent (a p-value of at least 0.05);
/// `None` where none does. Only the last [`SAMPLES_MAX`] samples are looked at: with more of them
/// the test finds what does not matter.
pub fn independence_lag(samples: &[f32]) -> Option<usize> {
    let recent = &samples[samples.len().saturating_sub(SAMPLES_MAX)..];
    LAGS.into_iter()
        .find(|&lag| spearman_at(recent, lag).is_some_and(|test| test.p_value >= SIGNIFICANCE))
}

/// Ranks from 1; equal values share the mean of theirs.
fn ranks(values: &[f32]) -> Vec<f64> {
    let mut order: Vec<usize> = (0..values.len()).collect();
    order.sort_unstable_by(|&a, &b| values[a].total_cmp(&values[b]));
    let mut ranks = vec![0.0; values.len()];
    let mut from = 0;
    for equal in order.chunk_by(|&a, &b| values[a] == values[b]) {
        let shared = from as f64 + (equal.len() as f64 + 1.0) / 2.0;
        equal.iter().for_each(|&index| ranks[index] = shared);
        from += equal.len();
    }
    ranks
}

/// The lags at which independence is tried.
pub const LAGS: [usize; 10] = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000];
/// The most samples that [`independence_lag`] looks at.
pub const SAMPLES_MAX: usize = 20_000;
const SIGNIFICANCE: f64 = 0.05;
