//! Difference between two runs: on an M/M/1 queue, whose neighbouring latencies are alike, two runs
//! of the same seldom seem to differ, and a slower server is found.

use rand::Rng;
use tailcut_measure::generator::{Generator, generator};
use tailcut_measure::statistics::difference::Difference;
use tailcut_measure::statistics::quantile::estimate;

/// The interval of the difference is to hold in 93 of 100 pairs of runs, as that of each run does.
#[test]
fn runs_of_the_same_seldom_seem_to_differ() {
    for (stream, load) in [(0, 0.2), (1, 0.5), (2, 0.8)] {
        let found = differing(stream, (load, load));
        println!(
            "M/M/1 at {load}: the p99 of {found} of {PAIRS} pairs of runs of the same seems to differ"
        );
        assert!(found as f64 <= 0.07 * PAIRS as f64, "{found} of {PAIRS} at {load}");
    }
}

/// A server that takes a tenth longer for each request lengthens the p99 at half load by 22 %.
#[test]
fn a_slower_server_is_found() {
    let found = differing(3, (0.5, 0.55));
    println!("M/M/1 at 0.5 and 0.55: the p99 of {found} of {PAIRS} pairs of runs differs");
    assert!(found as f64 >= 0.95 * PAIRS as f64, "{found} of {PAIRS}");
}

/// Number of pairs of runs that differ, whose mean services are these shares of the mean gap.
fn differing(stream: u64, means: (f64, f64)) -> usize {
    let mut rng = generator(4, stream);
    let p99 = |samples: Vec<f32>| estimate(&samples, 0.99, 0.95).expect("there are enough");
    let differs = |_: &usize| {
        let (before, after) = (sojourns(means.0, &mut rng), sojourns(means.1, &mut rng));
        Difference::between(&p99(before), &p99(after)).is_one()
    };
    (0..PAIRS).filter(differs).count()
}

/// The sojourn times of consecutive requests of an M/M/1 queue with a mean gap of 1,000 ns, after
/// Lindley, 1952.
fn sojourns(mean_service: f64, rng: &mut Generator) -> Vec<f32> {
    let mut wait = 0.0f64;
    let mut next = || {
        let sojourn = wait + 1e3 * mean_service * exponential(rng);
        wait = (sojourn - 1e3 * exponential(rng)).max(0.0);
        sojourn as f32
    };
    (0..WARM_UP).for_each(|_| {
        next();
    });
    (0..SAMPLES).map(|_| next()).collect()
}

fn exponential(rng: &mut Generator) -> f64 {
    let uniform = (rng.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
    -(1.0 - uniform).ln()
}

const PAIRS: usize = 200;
const SAMPLES: usize = 100_000;
const WARM_UP: usize = 5_000;
