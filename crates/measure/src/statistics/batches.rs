//! The variance of a mean of correlated values, by overlapping batch means.
//!
//! A run is cut into cells, and windows of several cells slide over it. Where a window is long
//! against the memory of the process, the spread of the windows' means tells the spread of the
//! run's own mean (Meketon and Schmeiser, 1984). Windows of a 32nd to a 256th of the run are tried
//! and the largest variance is taken: the longest windows bear the most memory, and the shorter
//! ones see through a period that happens to fit the longest.
//!
//! Invariant: positive correlation widens, and none makes the variance less than that of the cells'
//! own spread.

/// The variance of a mean, with what is known of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct LongRun {
    /// Variance of the mean over all cells, in the values' unit squared.
    pub(super) variance: f64,
    /// Degrees of freedom of that variance.
    pub(super) freedom: f64,
}

/// Variance of the mean of `cells`, which follow each other in time and are of equal length. `None`
/// for fewer than eight.
pub(super) fn long_run(cells: &[f64]) -> Option<LongRun> {
    let count = cells.len();
    if count < CELLS_MIN {
        return None;
    }
    let mean = cells.iter().sum::<f64>() / count as f64;
    let mut sums = Vec::with_capacity(count + 1);
    sums.push(0.0);
    for cell in cells {
        sums.push(sums[sums.len() - 1] + (cell - mean));
    }
    let variance = BATCHES
        .iter()
        .map(|batches| of_windows(&sums, (count / batches).max(1)))
        .fold(0.0, f64::max);
    let longest = (count / BATCHES[0]).max(1);
    Some(LongRun { variance, freedom: 1.5 * (count as f64 / longest as f64 - 1.0) })
}

/// The means of `values` over at most `count` cells of equal length; what is left over is at the
/// start, where a run is least settled.
pub(super) fn cells(values: &[f32], count: usize, of: impl Fn(f32) -> f64) -> Vec<f64> {
    let count = count.min(values.len());
    if count == 0 {
        return Vec::new();
    }
    let length = values.len() / count;
    let rest = values.len() - length * count;
    values[rest..]
        .chunks_exact(length)
        .map(|cell| cell.iter().map(|&value| of(value)).sum::<f64>() / length as f64)
        .collect()
}

/// `sums[i]` is the sum of the first i cells, each less the mean of all.
fn of_windows(sums: &[f64], window: usize) -> f64 {
    let count = sums.len() - 1;
    let squares: f64 = sums
        .iter()
        .zip(&sums[window..])
        .map(|(from, to)| ((to - from) / window as f64).powi(2))
        .sum();
    window as f64 * squares / ((count - window + 1) * (count - window)) as f64
}

/// Cells of a run: fine enough for windows of a 256th to slide by a quarter.
pub(super) const CELLS: usize = 1024;
const CELLS_MIN: usize = 8;
/// Numbers of windows of each length that a run holds side by side; the longest first.
const BATCHES: [usize; 4] = [32, 64, 128, 256];

#[cfg(test)]
mod tests {
    use rand::RngExt;
    use rand_distr::StandardNormal;

    use super::*;
    use crate::generator::generator;

    #[test]
    fn of_a_first_order_process_the_variance_is_the_known_one() {
        // x' = a x + e has the long-run variance 1 / (1 - a)^2; the mean over 400 runs is within 10
        // %, less than the bias that taking the largest of four brings.
        for a in [0.0, 0.5, 0.9] {
            let estimates: Vec<f64> = (0..400).map(|seed| estimate(a, seed)).collect();
            let mean = estimates.iter().sum::<f64>() / 400.0;
            let exact = 1.0 / (1.0 - a) / (1.0 - a) / LENGTH as f64;
            assert!((0.97..1.25).contains(&(mean / exact)), "{a}: {}", mean / exact);
        }
    }

    #[test]
    fn a_period_of_the_longest_window_is_seen() {
        let cells: Vec<f64> = (0..1024).map(|cell| f64::from(cell % 32 == 0)).collect();
        assert!(long_run(&cells).unwrap().variance > 1e-5);
    }

    #[test]
    fn what_is_left_over_is_at_the_start() {
        assert_eq!(cells(&[9.0, 1.0, 3.0, 5.0, 7.0], 2, f64::from), [2.0, 6.0]);
    }

    fn estimate(a: f64, seed: u64) -> f64 {
        let mut rng = generator(seed, 0);
        let mut level = 0.0;
        let values: Vec<f32> = (0..LENGTH)
            .map(|_| {
                level = a * level + rng.sample::<f64, _>(StandardNormal);
                level as f32
            })
            .collect();
        long_run(&cells(&values, CELLS, f64::from)).unwrap().variance
    }

    const LENGTH: usize = 1 << 14;
}
