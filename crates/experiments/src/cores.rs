//! Independent runs on all cores, and what they say together.

use rayon::iter::{IntoParallelIterator, ParallelIterator};
use tailcut_sim::sojourn::{Estimate, Figures};

/// The results of `run` for every seed from `first` on, in the order of the seeds, computed on all
/// cores.
pub fn over_seeds<T: Send>(first: u64, count: u64, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    (0..count).into_par_iter().map(|index| run(first.wrapping_add(index))).collect()
}

/// The names of a sojourn's figures, in the order in which they are shown.
pub const NAMES: [&str; 5] = ["mean", "p50", "p90", "p99", "p999"];

/// The figures of each seed, put together: one [`Estimate`] for each of [`NAMES`].
pub fn estimates(runs: &[Figures]) -> [Estimate; 5] {
    let each =
        |figure: fn(&Figures) -> f64| Estimate::of(&runs.iter().map(figure).collect::<Vec<_>>());
    [each(|f| f.mean), each(|f| f.p50), each(|f| f.p90), each(|f| f.p99), each(|f| f.p999)]
}
