//! Runs the points that have no result yet, on all cores.
//!
//! A simulation with several seeds uses cores that have no point left, because both are work of one
//! pool.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{process, thread};

use anyhow::Result;
use indicatif::{ProgressBar, ProgressStyle};
use rayon::iter::{IndexedParallelIterator, IntoParallelRefIterator, ParallelIterator};

use super::point::Point;
use super::store::Store;
use crate::signals;

/// The outcomes of points.
#[derive(Debug, Default)]
pub(super) struct Tally {
    /// Number of points whose result was there.
    pub(super) reused: usize,
    /// Number of points whose result was made.
    pub(super) ran: usize,
    pub(super) failures: Vec<Failure>,
}

/// A point without a result.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) hash: String,
    pub(super) point: String,
    pub(super) message: String,
}

/// Makes the results that are missing. SIGINT and SIGTERM end the process at once: what is done is
/// kept, by [`Store`].
pub(super) fn run(points: &[&Point], store: &Store) -> Result<Tally> {
    let missing: Vec<&Point> =
        points.iter().copied().filter(|point| store.read(point).is_none()).collect();
    let reused = points.len() - missing.len();
    let done = Arc::new(AtomicUsize::new(reused));
    let (total, seen) = (points.len(), done.clone());
    signals::on_stop(move || {
        let done = seen.load(Ordering::Relaxed);
        eprintln!(
            "tailcut: interrupted: {done} of {total} points are there, and the same command does the rest"
        );
        process::exit(1);
    })?;
    let bar = progress_bar(missing.len());
    let run = |point: &&Point| {
        let made = point.run().and_then(|result| store.write(point, &result));
        let failure = made.err().map(|error| failure(point, &error, &bar));
        if failure.is_none() {
            done.fetch_add(1, Ordering::Relaxed);
        }
        bar.inc(1);
        failure
    };
    let failures: Vec<Failure> = missing.par_iter().with_max_len(1).filter_map(run).collect();
    bar.finish_and_clear();
    Ok(Tally { reused, ran: missing.len() - failures.len(), failures })
}

fn failure(point: &Point, error: &anyhow::Error, bar: &ProgressBar) -> Failure {
    let failure = Failure {
        hash: point.hash.clone(),
        point: point.to_string(),
        message: format!("{error:#}"),
    };
    bar.suspend(|| eprintln!("{}: {}", failure.point, failure.message));
    failure
}

/// On standard error, where that is a terminal.
fn progress_bar(points: usize) -> ProgressBar {
    let template = "{bar:30} {pos}/{len} points on {msg}  {elapsed} passed, {eta} left";
    let bar = ProgressBar::new(points as u64);
    bar.set_style(
        ProgressStyle::with_template(template).expect("the template is a valid constant"),
    );
    let cores = thread::available_parallelism().map_or(1, usize::from);
    bar.set_message(format!("{cores} cores"));
    bar.tick();
    bar
}
