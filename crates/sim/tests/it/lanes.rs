//! Many seeds on all cores.

use std::thread;

use tailcut_sim::faults::{Coverage, Report};

/// Coverage of so many seeds together, or how one breaks a promise; `replay` begins the command
/// that runs it again.
pub(crate) fn cover(
    seed_count: u64,
    check: impl Fn(u64) -> Report + Sync,
    replay: &str,
) -> Result<Coverage, String> {
    let lanes = thread::available_parallelism().map_or(1, usize::from) as u64;
    let lane = |lane: u64| {
        let mut coverage = Coverage::default();
        for seed in (lane..seed_count).step_by(lanes as usize) {
            let report = check(seed);
            coverage.add(&report.coverage);
            if let Some(violation) = report.violation {
                return Err(format!("{violation}\nreplay it by `{replay} --seed {seed}`"));
            }
        }
        Ok(coverage)
    };
    thread::scope(|scope| {
        let lane = &lane;
        let running: Vec<_> = (0..lanes).map(|index| scope.spawn(move || lane(index))).collect();
        running.into_iter().try_fold(Coverage::default(), |mut sum, lane| {
            sum.add(&lane.join().map_err(|_| "a lane panicked".to_owned())??);
            Ok(sum)
        })
    })
}
