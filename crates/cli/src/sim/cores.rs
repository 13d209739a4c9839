//! Independent runs on all cores.

use rayon::iter::{IntoParallelIterator, ParallelIterator};

/// The results of `run` for every seed from `first` on, in the order of the seeds, computed on all
/// cores.
pub(super) fn over_seeds<T: Send>(first: u64, count: u64, run: impl Fn(u64) -> T + Sync) -> Vec<T> {
    (0..count).into_par_iter().map(|index| run(first.wrapping_add(index))).collect()
}
